"""Recorded machines: what DTK reads equals what an independent tool published for the same files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from machines import CORPUS

import dtk

if not CORPUS.is_dir():
    pytest.skip("no corpus beside the project", allow_module_level=True)

Get = Callable[[str], Path]
EXPECTED: dict[str, Any] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(CORPUS.glob("machines/*/expect.json"))
}
SENSORS = [case for case, expected in EXPECTED.items() if "gpus" in expected]

# What the tool says of a card and the metric that must say the same.
METRICS = {
    "temps_c.1": "temperature_edge",  # radeon's only sensor carries no label
    "temps_c.edge": "temperature_edge",
    "temps_c.junction": "temperature_junction",
    "temps_c.mem": "temperature_memory",
    "temps_c.soc": "temperature_soc",
    "temps_c.vrgfx": "temperature_vr_gfx",
    "temps_c.vrsoc": "temperature_vr_soc",
    "temps_c.vrmem": "temperature_vr_memory",
    "temps_crit_c.1": "temperature_edge_critical",
    "temps_crit_c.edge": "temperature_edge_critical",
    "temps_crit_c.junction": "temperature_junction_critical",
    "temps_crit_c.mem": "temperature_memory_critical",
    "power_w.average": "power_average",
    "power_w.current": "power_current",
    "power_w.cap_current": "power_limit",
    "power_w.cap_default": "power_limit_default",
    "power_w.cap_max": "power_limit_max",
    "power_w.cap_min": "power_limit_min",
    "vram_bytes.total": "memory_total",
    "vram_bytes.used": "memory_used",
    "visible_vram_bytes.total": "memory_visible_total",
    "visible_vram_bytes.used": "memory_visible_used",
    "gtt_bytes.total": "memory_gtt_total",
    "gtt_bytes.used": "memory_gtt_used",
    "busy_percent": "utilization_gpu",
    "fan.rpm": "fan_rpm",
    "fan.pwm": "fan_speed",
    "clocks_mhz.gpu": "clock_gfx",
    "clocks_mhz.vram": "clock_memory",
    "clocks_mhz.sensors.SOCCLK": "clock_soc",
    "clocks_mhz.sensors.VCLK": "clock_video",
    "power_states_mhz.core": "clock_gfx_max",
    "power_states_mhz.vram": "clock_memory_max",
    "voltage_mv.gpu": "voltage_gfx",
    "voltage_mv.sensors.soc": "voltage_soc",
    "voltage_mv.sensors.mem": "voltage_memory",
    "pcie_link.current_speed": "pcie_link_speed",
    "pcie_link.current_width": "pcie_link_width",
    "pcie_link.max_speed": "pcie_link_speed_max",
    "pcie_link.max_width": "pcie_link_width_max",
    "throttle": "throttle_status",
}

# What it says of who the card is.
IDENTITY: dict[str, Callable[[dtk.Device], object]] = {
    "driver": lambda device: device.driver,
    "vendor_id": lambda device: f"{device.vendor_id:04X}",
    "device_id": lambda device: f"{device.device_id:04X}",
    "subsystem_vendor_id": lambda device: f"{device.subsystem_vendor_id:04X}",
    "subsystem_device_id": lambda device: f"{device.subsystem_device_id:04X}",
    "unique_id": lambda device: f"{device.unique_id:016x}",
    "vbios_version": lambda device: device.info().get("vbios"),
    "performance_level": lambda device: device.info().get("performance_level"),
    "vram_vendor": lambda device: device.info().get("memory_vendor"),
}

# What has no metric: settings and tables, other engines of the same kind, and names out of the tool's own pci.ids.
WITHOUT_METRIC = (
    "active_power_states",
    "board_name",
    "board_vendor",
    "clocks_mhz.gpu_target",
    "clocks_mhz.sensors.DCLK",
    "clocks_mhz.sensors.DCLK1",
    "clocks_mhz.sensors.UCLK",
    "clocks_mhz.sensors.VCLK1",
    "fan.pmfw",
    "fan.pwm_max",
    "fan.pwm_min",
    "fan.rpm_max",
    "fan.rpm_min",
    "fan.temperature_range_c",
    "kfd_caches",
    "name",
    "overdrive",
    "power_profile",
    "power_states_ids",
    "power_w.sensors",
    "temps_crit_hyst_c",
    "vendor",
    "voltage_mv.sensors.northbridge",
)


class Different(NamedTuple):
    """A value that rightly differs from the tool's, and why."""

    value: object
    why: str


DIFFERENT = {
    ("phoenix", "throttle"): Different(
        None, "gpu_metrics 2.1 has no ASIC-independent bits, and none is not no throttling"
    ),
}


def flatten(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """(key.key, value) down to what is mapped."""
    for key, value in values.items():
        name = before + key
        if name in METRICS or name in IDENTITY or name.startswith(WITHOUT_METRIC):
            yield name, value
        elif isinstance(value, dict):
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def in_our_units(name: str, value: Any) -> Any:
    """The tool's value as the metric would have it."""
    if name == "fan.pwm":
        return value / 255 * 100
    if name.startswith("power_states_mhz"):
        return max(value)
    if name.startswith("pcie_link"):
        return float(value.split()[0])
    if name == "throttle":
        return tuple(value)
    return value


def tolerance(name: str, source: str | None) -> float:
    """How far a reading may be off, in its unit."""
    if name.startswith("clocks_mhz"):
        return 0.999  # the tool publishes whole MHz
    if name.startswith("temps_c") and source and source.startswith("gpu_metrics/"):
        return 0.999  # the table holds whole degrees, hwmon thousandths
    return 0.01


def agree(found: object, want: object, allowed: float) -> bool:
    if isinstance(found, int | float) and isinstance(want, int | float):
        return abs(found - want) <= allowed
    return found == want


@pytest.mark.parametrize("case", SENSORS)
def test_every_published_value(corpus: Get, case: str) -> None:
    expected = EXPECTED[case]
    wrong = []
    with dtk.System(corpus(case)) as system:
        assert len(system.devices()) == len(system.cards()) == expected["gpu_count"] == len(expected["gpus"]) == 1
        (device,) = system.devices()
        assert (device.bdf, f"card{device.drm_card}") == (expected["tree"]["bdf"], expected["tree"]["card"])
        sample = device.sample(slow=True)
        assert sample.state == "ok"
        assert sample.warnings == []
        for name, published in flatten(expected["gpus"][0]):
            if name.startswith(WITHOUT_METRIC):
                continue
            want = DIFFERENT[case, name].value if (case, name) in DIFFERENT else in_our_units(name, published)
            found: object
            where: str | None
            if name in IDENTITY:
                found, where = IDENTITY[name](device), "identity"
            else:
                metric = METRICS[name]
                found, where = sample[metric], sample.source(metric) or sample.reason(metric)
            if not agree(found, want, tolerance(name, where)):
                wrong.append(f"{name}: should be {want}, is {found} ({where})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", SENSORS)
def test_every_published_key_has_a_place(case: str) -> None:
    """A key that nobody looks at must be named above."""
    for gpu in EXPECTED[case]["gpus"]:
        for name, _ in flatten(gpu):
            assert name in METRICS or name in IDENTITY or name.startswith(WITHOUT_METRIC)


@pytest.mark.parametrize("case", EXPECTED)
def test_identity_of_every_machine(corpus: Get, case: str) -> None:
    with dtk.System(corpus(case)) as system:
        devices = system.devices()
        assert len(devices) == EXPECTED[case]["gpu_count"]
        assert len({device.uuid for device in devices}) == len(devices)
        assert [device.index for device in devices] == list(range(len(devices)))
        assert all(device.name for device in [*devices, *system.cards()])
        assert all(device.card in system.cards() for device in devices)
        assert not system.info.simulated
        assert not system.info.live


# ---- topologies without DRM ----


def nodes(expected: dict[str, Any]) -> list[int]:
    return list(range(expected["gpu_nodes"]["first"], expected["gpu_nodes"]["last"] + 1))


def test_mi308x_in_partitions(corpus: Get) -> None:
    expected = EXPECTED["mi308x-cpx"]
    with dtk.System(corpus("mi308x-cpx")) as system:
        devices, cards = system.devices(), system.cards()
        assert len(cards) == 8
        assert sorted(device.kfd_node or 0 for device in devices) == nodes(expected)
        assert [device.bdf for device in devices] == sorted(device.bdf for device in devices)
        assert [device.partition for device in devices] == [0, 1, 2, 3] * 8
        assert all(device.uuid.endswith(f"/p{device.partition}") for device in devices)
        found = {str(device.drm_render): device.bdf.replace(".", ":") for device in devices}
        assert found == expected["render_minor_to_pci"]
        for device in devices:
            assert (device.arch, device.compute_units) == ("gfx942", 20)
            assert device.sample().memory_total in (51539607552, 51522830336)
            assert device.sample().reason("power_draw") == "on_card"


def test_mi210_in_two_hives(corpus: Get) -> None:
    expected = EXPECTED["mi210-xgmi-pcie"]
    with dtk.System(corpus("mi210-xgmi-pcie")) as system:
        devices = system.devices()
        assert devices == system.cards()
        assert sorted(device.kfd_node or 0 for device in devices) == nodes(expected)
        hives = [device.hive_id for device in devices]
        assert len(set(hives)) == 2
        assert {hives.count(hive) for hive in hives} == {4}
        assert {(device.arch, device.compute_units, device.partition) for device in devices} == {("gfx90a", 104, None)}


def test_mi25_on_an_old_kernel(corpus: Get) -> None:
    """Its authors copied the node and changed the unique id's last digit to make a second device in the same place."""
    values = EXPECTED["mi25-kfd"]["values"]
    with dtk.System(corpus("mi25-kfd")) as system:
        first, second = system.devices()
        # Old kernels do not print the domain: only the id tells whether two nodes of one address are one card.
        assert len(system.cards()) == 2
        assert first.uuid != second.uuid
        assert (first.kfd_node, second.kfd_node) == (1, 2)
        assert first.sample().memory_total == values["nodes/1/mem_banks/0 size_in_bytes"]
        assert second.compute_units == values["nodes/2 simd_count"] // 4
