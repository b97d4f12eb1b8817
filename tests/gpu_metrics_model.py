"""The gpu_metrics decoder in Python's hands, and what each field of a table should give, by the kernel's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from native_library import UNSUPPORTED, library

from dtk.sim.gpu_metrics import ATTRIBUTES, LAYOUTS, Value, pack

Revision = tuple[int, int]
RECORDS: Revision = (1, 9)
FIXED: list[Revision] = [(int(name[1]), int(name[3])) for name in LAYOUTS if name.startswith("v")]
REVISIONS = [*FIXED, RECORDS]


# ---- The decoder ----


class Table(NamedTuple):
    """What the decoder made of a table: valid fields only, by their names without TABLE_."""

    revision: Revision
    fields: dict[str, float | int]
    partitions: dict[int, dict[str, float]]
    torn: bool


COUNTERS = {"LINK_WIDTH", "PCIE_REPLAYS", "THROTTLE_STATUS", "ACCUMULATION_COUNTER"}


def decode(table: bytes) -> Table | int:
    """The table, or the status of a failure, after which the result must be as it was."""
    ffi, lib = library()
    names = {number: name.removeprefix("TABLE_") for number, name in ffi.typeof("enum table_field").elements.items()}
    ret = ffi.new("struct gpu_metrics *")
    ret.format, ret.content = 77, 78
    before = bytes(ffi.buffer(ret))
    status = lib.gpu_metrics_decode(ffi.from_buffer("uint8_t[]", table), len(table), ret)
    if status == UNSUPPORTED:
        assert (ret.format, ret.content) == (table[2], table[3])
        ret.format, ret.content = 77, 78
    if status != 0:
        assert bytes(ffi.buffer(ret)) == before
        return int(status)

    def number(name: str, value: Any) -> float | int:
        return int(value.u64) if name in COUNTERS or name.endswith("_RESIDENCY") else float(value.f64)

    fields = {names[i]: number(names[i], ret.field[i]) for i in range(lib.TABLE_FIELD_COUNT) if ret.field[i].valid}
    partitions = {}
    for i in range(lib.PARTITIONS_MAX):
        pair = {"gfx": ret.partition[i].gfx_activity, "media": ret.partition[i].media_activity}
        partitions[i] = {name: value.f64 for name, value in pair.items() if value.valid}
    valid = {i: pair for i, pair in partitions.items() if pair}
    return Table((ret.format, ret.content), fields, valid, ret.torn)


def decoded(revision: Revision, values: Mapping[str, Value]) -> Table:
    table = decode(pack(*revision, values))
    assert isinstance(table, Table)
    assert table.revision == revision
    return table


# ---- What each kernel field should give ----

CLOCKS = {
    "current_gfxclk": "CLOCK_GFX",
    "current_uclk": "CLOCK_MEMORY",
    "current_socclk": "CLOCK_SOC",
    "current_fclk": "CLOCK_FABRIC",
    "current_vclk0": "CLOCK_VIDEO",
    "current_vclk": "CLOCK_VIDEO",
}
AVERAGE_CLOCKS = {
    "average_gfxclk_frequency": "CLOCK_GFX",
    "average_uclk_frequency": "CLOCK_MEMORY",
    "average_socclk_frequency": "CLOCK_SOC",
    "average_fclk_frequency": "CLOCK_FABRIC",
    "average_vclk0_frequency": "CLOCK_VIDEO",
    "average_vclk_frequency": "CLOCK_VIDEO",
}
RESIDENCIES = {
    "accumulation_counter": "ACCUMULATION_COUNTER",
    "prochot_residency_acc": "PROCHOT_RESIDENCY",
    "ppt_residency_acc": "PPT_RESIDENCY",
    "socket_thm_residency_acc": "SOCKET_THERMAL_RESIDENCY",
    "vr_thm_residency_acc": "VR_THERMAL_RESIDENCY",
    "hbm_thm_residency_acc": "HBM_THERMAL_RESIDENCY",
    "throttle_residency_prochot": "PROCHOT_RESIDENCY",
    "throttle_residency_spl": "SPL_RESIDENCY",
    "throttle_residency_fppt": "FPPT_RESIDENCY",
    "throttle_residency_sppt": "SPPT_RESIDENCY",
    "throttle_residency_thm_core": "CORE_THERMAL_RESIDENCY",
    "throttle_residency_thm_gfx": "GFX_THERMAL_RESIDENCY",
    "throttle_residency_thm_soc": "SOC_THERMAL_RESIDENCY",
}
TEMPERATURES = {
    "temperature_edge": "TEMPERATURE_EDGE",
    "temperature_gfx": "TEMPERATURE_EDGE",
    "temperature_hotspot": "TEMPERATURE_HOTSPOT",
    "temperature_mem": "TEMPERATURE_MEMORY",
    "temperature_soc": "TEMPERATURE_SOC",
    "temperature_vrgfx": "TEMPERATURE_VR_GFX",
    "temperature_vrsoc": "TEMPERATURE_VR_SOC",
    "temperature_vrmem": "TEMPERATURE_VR_MEMORY",
}
ACTIVITIES = {
    "average_gfx_activity": "GFX_ACTIVITY",
    "average_umc_activity": "MEMORY_ACTIVITY",
    "average_mm_activity": "MEDIA_ACTIVITY",
    "average_vcn_activity": "MEDIA_ACTIVITY",
    "vcn_activity": "MEDIA_ACTIVITY",
    "jpeg_activity": "MEDIA_ACTIVITY",
    "jpeg_busy": "MEDIA_ACTIVITY",
    "vcn_busy": "MEDIA_ACTIVITY",
}
OTHERS = {
    "average_socket_power": "POWER_AVERAGE",
    "curr_socket_power": "POWER_CURRENT",
    "energy_accumulator": "ENERGY",
    "voltage_gfx": "VOLTAGE_GFX",
    "voltage_soc": "VOLTAGE_SOC",
    "voltage_mem": "VOLTAGE_MEMORY",
    "average_gfx_voltage": "VOLTAGE_GFX",
    "average_soc_voltage": "VOLTAGE_SOC",
    "current_fan_speed": "FAN_RPM",
    "pcie_link_speed": "LINK_SPEED",
    "pcie_link_width": "LINK_WIDTH",
    "pcie_replay_count_acc": "PCIE_REPLAYS",
    "indep_throttle_status": "THROTTLE_STATUS",
}
MEANING = {**TEMPERATURES, **ACTIVITIES, **CLOCKS, **AVERAGE_CLOCKS, **RESIDENCIES, **OTHERS}


def kernel_fields(revision: Revision) -> dict[str, int]:
    """The numeric fields of a revision and how many elements each has."""
    if revision == RECORDS:
        return {name: attribute.length for name, attribute in ATTRIBUTES.items()}
    fields = LAYOUTS["v{}_{}".format(*revision)].fields
    return {name: field.length for name, field in fields.items() if not field.nested}


def field_width(revision: Revision, name: str) -> int:
    if revision == RECORDS:
        return ATTRIBUTES[name].width
    return LAYOUTS["v{}_{}".format(*revision)].fields[name].width


def expected(revision: Revision, name: str, raw: int, index: int = 0) -> dict[str, Any]:
    """What a table says in which nothing but this element of a field is given, a number from possible()."""
    apu = revision[0] > 1
    if name == "temperature_hbm":
        return {f"TEMPERATURE_HBM{index}": raw} if index < 4 else {}
    field = MEANING.get(name)
    if field is None or (revision == (1, 0) and name == "energy_accumulator"):
        return {}
    if name in TEMPERATURES:
        return {field: raw / 100 if apu else raw}
    if name in ACTIVITIES:
        hundredths = revision in {(2, 0), (2, 1)} or name == "average_vcn_activity"
        return {field: raw / 100 if hundredths else raw}
    scale = {"energy_accumulator": 2**-16, "pcie_link_speed": 0.1, "average_socket_power": 0.001 if apu else 1}
    return {field: pytest.approx(raw * scale.get(name, 1), rel=1e-15)}


def possible(name: str, revision: Revision) -> int:
    """A raw number that a field takes for what it is: different from field to field and filling its width."""
    apu = revision[0] > 1
    some = sum(name.encode())
    if name in TEMPERATURES or name == "temperature_hbm":
        return (4_000 if apu else 256) + some % 200
    width = field_width(revision, name)
    if name == "average_socket_power" and apu:
        return 118_844 if width == 4 else 18_844
    if name in ACTIVITIES or width == 1:
        return 30 + some % 70
    return {2: 1_000, 4: 0x1234_0000, 8: 0x0102_0304_0506_0000}[width] + some
