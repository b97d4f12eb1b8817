"""The gpu_metrics decoder: every field of every revision, and every way in which a table can be wrong.

What a field should give is said in gpu_metrics_model; where it lies comes from dtk.sim.gpu_metrics, whose layouts share
nothing with the decoder's. A few offsets are written out, so that no mistake hides in both.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from gpu_metrics_model import (
    ACTIVITIES,
    AVERAGE_CLOCKS,
    FIXED,
    REVISIONS,
    Revision,
    Table,
    decode,
    decoded,
    expected,
    kernel_fields,
    possible,
)
from hypothesis import given
from hypothesis import strategies as st
from machines import CORPUS
from native_library import FAILED, UNSUPPORTED

from dtk.sim.gpu_metrics import LAYOUTS, Stats, Value, pack

each_revision = pytest.mark.parametrize("revision", REVISIONS, ids="{0[0]}.{0[1]}".format)
each_fixed = pytest.mark.parametrize("revision", FIXED, ids="{0[0]}.{0[1]}".format)


@each_revision
def test_each_number_alone(revision: Revision) -> None:
    meant: set[str] = set()
    for name, length in kernel_fields(revision).items():
        raw = possible(name, revision)
        for index in range(length):
            fields = expected(revision, name, raw, index)
            assert decoded(revision, {name: [None] * index + [raw]}).fields == fields, f"{name}[{index}]"
            meant |= fields.keys()
    assert len(meant) >= 10


@each_revision
def test_all_fields_together(revision: Revision) -> None:
    values = {name: possible(name, revision) for name in kernel_fields(revision)}
    fields: dict[str, Any] = {}
    for name in sorted(values, key=lambda name: name not in AVERAGE_CLOCKS):  # a current clock takes its place
        if name not in ACTIVITIES:
            fields |= expected(revision, name, values[name])
    found = {name: value for name, value in decoded(revision, values).fields.items() if not name.endswith("_ACTIVITY")}
    assert found == fields


@each_revision
def test_all_ones_is_no_field(revision: Revision) -> None:
    assert decoded(revision, {}) == Table(revision, {}, {}, False)


@each_fixed
def test_zero_is_a_value(revision: Revision) -> None:
    size = LAYOUTS["v{}_{}".format(*revision)].size
    table = decode(struct.pack("<HBB", size, *revision) + bytes(size - 4))
    assert isinstance(table, Table)
    assert len(table.fields) >= 10
    assert set(table.fields.values()) == {0}
    assert "LINK_SPEED" not in table.fields


# ---- Arrays and scales ----


@pytest.mark.parametrize("revision", [(1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (1, 9)])
@given(st.lists(st.one_of(st.none(), st.integers(0, 65534)), min_size=8, max_size=8))
def test_clock_is_the_highest(revision: Revision, clocks: list[int | None]) -> None:
    valid = [clock for clock in clocks if clock is not None]
    fields = {"CLOCK_GFX": max(valid)} if valid else {}
    assert decoded(revision, {"current_gfxclk": clocks}).fields == fields


def mean(values: list[int | None]) -> Any:
    valid = [value for value in values if value is not None and value <= 100]
    return pytest.approx(sum(valid) / len(valid)) if valid else None


def present(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


PERCENTS = st.lists(st.one_of(st.none(), st.integers(0, 130)), max_size=4)


@pytest.mark.parametrize(
    ("revision", "names"),
    [
        ((1, 4), ["vcn_activity"]),
        ((1, 5), ["vcn_activity", "jpeg_activity"]),
        ((1, 9), ["vcn_busy", "jpeg_busy"]),
    ],
)
@given(st.lists(PERCENTS, min_size=2, max_size=2))
def test_media_is_the_mean_of_all_engines(revision: Revision, names: list[str], uses: list[list[int | None]]) -> None:
    values = dict(zip(names, uses, strict=False))
    engines = [use for each in values.values() for use in each]
    assert decoded(revision, values).fields == present(MEDIA_ACTIVITY=mean(engines))


@each_revision
def test_more_than_all_is_no_activity(revision: Revision) -> None:
    for name in ACTIVITIES.keys() & kernel_fields(revision).keys():
        assert decoded(revision, {name: 0x3232}).fields == {}, name


@pytest.mark.parametrize("revision", [(1, 6), (1, 7), (1, 8)])
@given(st.lists(st.tuples(PERCENTS, PERCENTS, PERCENTS), max_size=8))
def test_partitions(
    revision: Revision, stats: list[tuple[list[int | None], list[int | None], list[int | None]]]
) -> None:
    partitions: list[Stats] = [
        {"gfx_busy_inst": gfx, "vcn_busy": vcn, "jpeg_busy": jpeg, "gfx_busy_acc": [50] * 8} for gfx, vcn, jpeg in stats
    ]
    table = decoded(revision, {"xcp_stats": partitions})
    pairs = {i: present(gfx=mean(gfx), media=mean(vcn + jpeg)) for i, (gfx, vcn, jpeg) in enumerate(stats)}
    assert table.partitions == {i: pair for i, pair in pairs.items() if pair}
    engines = [use for _, vcn, jpeg in stats for use in vcn + jpeg]
    assert table.fields == present(MEDIA_ACTIVITY=mean(engines))


@pytest.mark.parametrize("revision", [(1, 6), (1, 7), (1, 8)])
def test_engines_of_another_kind_are_not_mixed_in(revision: Revision) -> None:
    stats: list[Stats] = [{"jpeg_busy": [50, 0]}, {"gfx_busy_inst": [*[None] * 7, 40]}]
    table = decoded(revision, {"xcp_stats": stats})
    assert table.partitions == {0: {"media": 25}, 1: {"gfx": 40}}


@pytest.mark.parametrize("revision", [(1, 1), (1, 3), (1, 9)])
def test_memory_stacks_keep_their_places(revision: Revision) -> None:
    fields = decoded(revision, {"temperature_hbm": [None, 41, 2112, 43]}).fields
    assert fields == {"TEMPERATURE_HBM1": 41, "TEMPERATURE_HBM3": 43}


def test_apu_power_is_milliwatt_unless_it_cannot_be() -> None:
    for revision in [(2, 0), (2, 1), (2, 4), (3, 0)]:
        for raw, watt in [(18_844, 18.844), (251, 0.251), (250, 250), (15, 15), (0, 0)]:
            assert decoded(revision, {"average_socket_power": raw}).fields == {"POWER_AVERAGE": watt}


@pytest.mark.parametrize(
    ("revision", "second_l3", "raw", "percent"),
    [
        ((2, 0), None, 79, 0.79),  # Renoir
        ((2, 1), None, 79, 0.79),  # as recorded on a Phoenix whose gpu_busy_percent was 0
        ((2, 1), None, 10_000, 100),
        ((2, 1), None, 10_001, None),
        ((2, 2), 4_000, 79, 0.79),  # Renoir again: it alone fills the second L3 cache
        ((2, 2), None, 79, 79),  # Van Gogh
        ((2, 2), None, 100, 100),
        ((2, 3), None, 6_400, 64),  # Van Gogh with its first firmware
        ((2, 4), None, 64, 64),
        ((2, 4), None, 101, 1.01),
        ((2, 4), None, 10_001, None),
        ((3, 0), None, 64, 64),  # newer firmware than
        ((3, 0), None, 6_400, 64),  # this one
        ((1, 3), None, 100, 100),
        ((1, 3), None, 101, None),
    ],
)
def test_activity_scale(revision: Revision, second_l3: int | None, raw: int, percent: float | None) -> None:
    values: dict[str, Value] = {"average_gfx_activity": raw}
    fields = present(GFX_ACTIVITY=percent)
    if "average_mm_activity" in kernel_fields(revision):
        values["average_mm_activity"] = raw
        fields |= present(MEDIA_ACTIVITY=percent)
    if second_l3 is not None:
        values["temperature_l3"] = [second_l3, second_l3]
    assert decoded(revision, values).fields == fields


def test_current_clock_goes_before_the_average() -> None:
    for revision in [(1, 0), (1, 3), (2, 0), (2, 3)]:
        both = {"current_gfxclk": 500, "average_gfxclk_frequency": 700}
        assert decoded(revision, both).fields == {"CLOCK_GFX": 500}
        assert decoded(revision, {**both, "current_gfxclk": None}).fields == {"CLOCK_GFX": 700}


def test_a_generation_is_no_link_speed() -> None:
    for revision in [(1, 0), (1, 3), (1, 6), (1, 9)]:
        assert decoded(revision, {"pcie_link_speed": 4}).fields == {}
        assert decoded(revision, {"pcie_link_speed": 25}).fields == {"LINK_SPEED": 2.5}


def test_false_hotspot_bit_is_dropped() -> None:
    bits = 1 << 36 | 1 << 5
    for hotspot, kept in [(54, 1 << 5), (89, 1 << 5), (90, bits), (110, bits), (None, bits), (2112, bits)]:
        values = {"indep_throttle_status": bits, "temperature_hotspot": hotspot}
        assert decoded((1, 3), values).fields["THROTTLE_STATUS"] == kept
    assert decoded((2, 2), {"indep_throttle_status": bits}).fields == {"THROTTLE_STATUS": bits}


@each_revision
def test_impossible_temperature_is_torn(revision: Revision) -> None:
    apu = revision[0] > 1
    name = "temperature_soc" if apu else "temperature_hotspot"
    memory = {} if apu else {"temperature_mem": 40}
    for raw in [50_100, 65_000] if apu else [501, 511, 2112, 65_534]:
        table = decoded(revision, {name: raw, **memory})
        assert table.torn
        assert table.fields == ({} if apu else {"TEMPERATURE_MEMORY": 40})
    assert not decoded(revision, {name: 50_000 if apu else 500}).torn


# ---- Damage ----


@each_revision
def test_truncation_is_refused(revision: Revision) -> None:
    table = pack(*revision, {})
    assert {decode(table[:length]) for length in range(len(table))} == {FAILED}
    assert isinstance(decode(table + bytes(4096 - len(table) % 4096)), Table)


@each_fixed
def test_another_size_is_refused(revision: Revision) -> None:
    table = pack(*revision, {})
    for size in (0, 3, 4, len(table) - 1, len(table) + 1, len(table) + 8, 0xFFFF):
        assert decode(struct.pack("<H", size) + table[2:] + bytes(0xFFFF)) == FAILED, size


def test_interim_build_without_partitions() -> None:
    table = pack(1, 6, {"temperature_hotspot": 44, "current_uclk": 900})
    interim = decode(struct.pack("<H", 312) + table[2:312])
    assert isinstance(interim, Table)
    assert interim.fields == {"TEMPERATURE_HOTSPOT": 44, "CLOCK_MEMORY": 900}


@pytest.mark.parametrize("revision", [(0, 0), (1, 10), (1, 255), (2, 5), (3, 1), (4, 0), (255, 255)])
def test_unknown_revision(revision: Revision) -> None:
    assert decode(struct.pack("<HBB", 120, *revision) + bytes(116)) == UNSUPPORTED
    assert decode(struct.pack("<HBB", 120, *revision) + bytes(115)) == FAILED
    assert decode(struct.pack("<HBB", 4, *revision)) == UNSUPPORTED


def test_empty_header() -> None:
    assert decode(b"") == FAILED
    assert decode(bytes(4096)) == FAILED


# ---- Records of version 1.9 ----

U16, S16, U32 = 2, 3, 4


def records(*attributes: tuple[int, int, int, bytes], count: int | None = None) -> bytes:
    """A table of (number, unit, type, values), with `count` of them claimed."""
    body = struct.pack("<i", len(attributes) if count is None else count)
    for number, unit, kind, values in attributes:
        instances = len(values) >> (kind >> 1)
        body += struct.pack("<Q", unit << 24 | kind << 20 | number << 10 | instances) + values
    return struct.pack("<HBB", 4 + len(body), 1, 9) + body


HOTSPOT = (0, 2, U16, b"\x2c\x00")


def test_records_have_the_size_of_a_real_table() -> None:
    table = pack(1, 9, {})
    assert (len(table), table[4]) == (1150, 47)  # of an MI300X


@pytest.mark.parametrize(
    ("table", "fields"),
    [
        (records(), {}),
        (records(HOTSPOT), {"TEMPERATURE_HOTSPOT": 44}),
        (records((1023, 99, 6, bytes(8 * 9)), HOTSPOT), {"TEMPERATURE_HOTSPOT": 44}),
        (records((0, 3, U16, b"\x05\x00"), HOTSPOT), {"TEMPERATURE_HOTSPOT": 44}),  # hotspot in watts: another thing
        (records((0, 2, U16, b""), HOTSPOT), {"TEMPERATURE_HOTSPOT": 44}),
        (records(HOTSPOT, (1, 2, U16, b"")), {"TEMPERATURE_HOTSPOT": 44}),
        (records((0, 2, S16, struct.pack("<h", -7))), {"TEMPERATURE_HOTSPOT": -7}),
        (records((0, 2, S16, struct.pack("<h", -100))), {"TEMPERATURE_HOTSPOT": -100}),
        (records((0, 2, U32, struct.pack("<I", 44))), {"TEMPERATURE_HOTSPOT": 44}),
        (records((37, 1, S16, struct.pack("<h", -7))), {}),  # no clock is negative
        (records((37, 1, S16, struct.pack("<h", 0x7FFF))), {"CLOCK_MEMORY": 0x7FFF}),
        (records(HOTSPOT, HOTSPOT, count=1), {"TEMPERATURE_HOTSPOT": 44}),
    ],
)
def test_records(table: bytes, fields: dict[str, float]) -> None:
    found = decode(table)
    assert isinstance(found, Table)
    assert (found.fields, found.torn) == (fields, False)


@pytest.mark.parametrize(
    "table",
    [
        records(count=1),
        records(HOTSPOT, count=2),
        records(count=-1),
        records(HOTSPOT, (1, 2, 8, bytes(16))),  # a type that is none
        records(HOTSPOT)[:-1],
        struct.pack("<HBB", 4, 1, 9),
        struct.pack("<HBBiQ", 16, 1, 9, 1, 0x3FF),
    ],
)
def test_records_that_run_over_their_end_are_refused(table: bytes) -> None:
    assert decode(table) == FAILED


def test_cold_is_cold() -> None:
    table = decode(records((0, 2, S16, struct.pack("<h", -101))))
    assert isinstance(table, Table)
    assert (table.fields, table.torn) == ({}, True)


# ---- Offsets written out ----


@pytest.mark.parametrize(
    ("revision", "size", "places", "fields"),
    [
        (
            (1, 3),
            120,
            {6: ("H", 59), 22: ("H", 36), 24: ("Q", 65536), 54: ("H", 500), 76: ("H", 160), 108: ("H", 1356)},
            {
                "TEMPERATURE_HOTSPOT": 59,
                "POWER_AVERAGE": 36,
                "ENERGY": 1,
                "CLOCK_GFX": 500,
                "LINK_SPEED": 16,
                "VOLTAGE_MEMORY": 1356,
            },
        ),
        ((1, 0), 80, {18: ("H", 59), 75: ("B", 80)}, {"TEMPERATURE_HOTSPOT": 59, "LINK_SPEED": 8}),
        ((1, 4), 288, {10: ("H", 700), 254: ("H", 2100)}, {"POWER_CURRENT": 700, "CLOCK_GFX": 2100}),
        ((1, 5), 360, {86: ("H", 50), 152: ("Q", 3)}, {"MEDIA_ACTIVITY": 50, "PCIE_REPLAYS": 3}),
        ((1, 6), 1664, {36: ("I", 5), 304: ("H", 900)}, {"PROCHOT_RESIDENCY": 5, "CLOCK_MEMORY": 900}),
        ((1, 8), 3872, {60: ("I", 6), 3536: ("H", 30)}, {"HBM_THERMAL_RESIDENCY": 6, "MEDIA_ACTIVITY": 30}),
        ((2, 1), 120, {4: ("H", 2500), 40: ("H", 3401)}, {"TEMPERATURE_EDGE": 25, "POWER_AVERAGE": 3.401}),
        ((2, 4), 168, {120: ("Q", 96), 156: ("H", 814)}, {"THROTTLE_STATUS": 96, "VOLTAGE_GFX": 814}),
        ((3, 0), 264, {112: ("I", 55_000), 252: ("I", 9)}, {"POWER_AVERAGE": 55, "SOC_THERMAL_RESIDENCY": 9}),
    ],
)
def test_offsets(revision: Revision, size: int, places: dict[int, tuple[str, int]], fields: dict[str, float]) -> None:
    table = bytearray(struct.pack("<HBB", size, *revision) + b"\xff" * (size - 4))
    for offset, (kind, number) in places.items():
        struct.pack_into(f"<{kind}", table, offset, number)
    found = decode(bytes(table))
    assert isinstance(found, Table)
    assert found.fields == fields


# ---- Recorded tables ----

recorded = pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the project")
EXPECTED_FIELDS = {
    "gpu_load_percent": "GFX_ACTIVITY",
    "current_gfxclk_mhz": "CLOCK_GFX",
    "current_uclk_mhz": "CLOCK_MEMORY",
    "gpu_temp_c": "TEMPERATURE_EDGE",
    "soc_temp_c": "TEMPERATURE_SOC",
}
THROTTLE_CLASSES = {"power": 0xFF, "current": 0xFF << 16, "temp": 0xFFFF << 32, "other": 3 << 56}


@recorded
@pytest.mark.parametrize("name", ["v1_3", "v2_2_vangogh", "invalid"])
def test_recorded_table(name: str) -> None:
    told = json.loads((CORPUS / "gpu_metrics" / f"{name}.expect.json").read_text())
    table = decode((CORPUS / "gpu_metrics" / f"{name}.bin").read_bytes())
    if not told["valid"]:
        assert table == FAILED
        return
    assert isinstance(table, Table)
    assert table.revision == (told["header"]["format_revision"], told["header"]["content_revision"])
    for key, field in EXPECTED_FIELDS.items():
        if field in table.fields:  # its tool writes 0 for what a table has not
            assert int(table.fields[field]) == told["values"][key], key
    for name, bits in THROTTLE_CLASSES.items():
        throttled = int(table.fields["THROTTLE_STATUS"]) & bits != 0
        assert throttled == told["values"][f"is_{name}_throttled"], name


@recorded
def test_recorded_machines() -> None:
    paths = sorted(CORPUS.glob("machines/*/sys/devices/pci*/**/gpu_metrics"))
    assert len(paths) >= 5
    names = {"edge": "EDGE", "junction": "HOTSPOT", "mem": "MEMORY", "vrgfx": "VR_GFX", "vrmem": "VR_MEMORY"}
    for path in paths:
        table = decode(path.read_bytes())
        assert isinstance(table, Table)
        assert not table.torn
        machine = Path(*path.parts[: path.parts.index("sys")])
        (told,) = json.loads((machine / "expect.json").read_text())["gpus"]
        for key, name in names.items():
            if key in told["temps_c"] and f"TEMPERATURE_{name}" in table.fields:
                assert table.fields[f"TEMPERATURE_{name}"] == pytest.approx(told["temps_c"][key], abs=1), machine.name


# ---- pack() ----


@pytest.mark.parametrize(
    ("revision", "values"),
    [
        ((1, 99), {}),
        ((1, 3), {"temperature": 1}),
        ((1, 9), {"temperature": 1}),
        ((1, 3), {"temperature_edge": 65536}),
        ((1, 3), {"temperature_edge": -1}),
        ((1, 3), {"temperature_hbm": [1] * 5}),
        ((1, 3), {"temperature_hbm": [{"gfx_busy_inst": 1}]}),
        ((1, 6), {"xcp_stats": 1}),
        ((1, 6), {"xcp_stats": [{"gfx": 1}]}),
    ],
)
def test_pack_refuses_what_no_table_holds(revision: Revision, values: dict[str, Value]) -> None:
    with pytest.raises(ValueError, match=r"gpu_metrics|takes|holds"):
        pack(*revision, values)
