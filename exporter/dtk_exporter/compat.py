"""The families of /metrics/compat: names, labels and units that dashboards for other exporters of Hygon cards query.

"hcu" is HYGON-AI/hcu-exporter, "dcu" is Project-HAMi/dcu-exporter; docs/compat.md has what they call what. There is one
series for a physical card, whoever made it. All are gauges, as theirs. What is not known is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric

import dtk

__all__ = ["KINDS", "families"]


class Alias(NamedTuple):
    """A series of a card, from its sample.

    name: without the prefix. metrics: of the catalogue, added up. label: what it has beside the labels of the card,
    "mem_type=vram". scale: what the catalogue's unit is multiplied with; unit: what it is then.
    """

    name: str
    metrics: str
    label: str = ""
    scale: float = 1.0
    unit: str = ""

    def value(self, sample: Mapping[str, object]) -> float | None:
        """None where any of the metrics is not known."""
        values = [sample.get(metric) for metric in self.metrics.split()]
        numbers = [value for value in values if isinstance(value, (int, float))]
        return sum(numbers) * self.scale if len(numbers) == len(values) else None

    @property
    def help(self) -> str:
        """Of its family."""
        metric = dtk.metrics.get(self.metrics.split()[0])
        unit = self.unit or _UNITS.get(metric.unit, metric.unit)
        return f"Alias of dtk_device_{metric.family}" + (f", in {unit}." if unit else ".")


_UNITS = {"B": "bytes", "C": "degrees Celsius"}

# Rows of a family stand together.
_BOTH = (
    Alias("temp", "temperature_edge"),
    Alias("power_usage", "power_draw"),
    Alias("powercap", "power_limit"),
    Alias("sclk", "clock_gfx"),
    Alias("utilizationrate", "utilization_gpu"),
    Alias("usedmemory_bytes", "memory_used"),
    Alias("memorycap_bytes", "memory_total"),
)
_HCU = (
    Alias("mclk", "clock_memory"),
    Alias("sclk_max", "clock_gfx_max"),
    Alias("mclk_max", "clock_memory_max"),
    Alias("available_memory_bytes", "memory_free"),
    Alias("vram_percent", "utilization_memory"),
    Alias("meminfo_used_bytes", "memory_used", "mem_type=vram"),
    Alias("meminfo_used_bytes", "memory_visible_used", "mem_type=vis_vram"),
    Alias("meminfo_used_bytes", "memory_gtt_used", "mem_type=gtt"),
    Alias("meminfo_total_bytes", "memory_total", "mem_type=vram"),
    Alias("meminfo_total_bytes", "memory_visible_total", "mem_type=vis_vram"),
    Alias("meminfo_total_bytes", "memory_gtt_total", "mem_type=gtt"),
    Alias("util_percent", "utilization_gpu"),
    Alias("cu_usage", "utilization_cu"),
    Alias("sampled_usage", "utilization_gpu_window"),
    Alias("cu_sampled_usage", "utilization_cu_window"),
    Alias("wave_sampled_usage", "utilization_wave_window"),
    Alias("cu_util", "utilization_cu_window", scale=0.01, unit="0 to 1"),
    Alias("wave_util", "utilization_wave_window", scale=0.01, unit="0 to 1"),
    Alias("temp_mem", "temperature_memory"),
    Alias("temp_board", "temperature_edge"),
    Alias("temp_edge_current", "temperature_edge"),
    Alias("temp_edge_critical", "temperature_edge_critical"),
    Alias("temp_edge_emergency", "temperature_edge_emergency"),
    Alias("sensor_temp", "temperature_edge", "sensor_type=edge"),
    Alias("sensor_temp", "temperature_junction", "sensor_type=junction"),
    Alias("sensor_temp", "temperature_memory", "sensor_type=mem"),
    Alias("sensor_temp", "temperature_core", "sensor_type=core"),
    Alias("sensor_temp_critical", "temperature_edge_critical", "sensor_type=edge"),
    Alias("sensor_temp_critical", "temperature_junction_critical", "sensor_type=junction"),
    Alias("sensor_temp_critical", "temperature_memory_critical", "sensor_type=mem"),
    Alias("powercap_range_max", "power_limit_max"),
    Alias("powercap_range_min", "power_limit_min"),
    Alias("voltage_mv", "voltage_gfx"),
    Alias("fan_percent", "fan_speed"),
    Alias("fan_rpm", "fan_rpm"),
    Alias("pcie_width", "pcie_link_width"),
    Alias("pcie_clock", "pcie_link_speed", scale=1e9, unit="T/s"),
    Alias("pcie_replay_count", "pcie_replay_count"),
    Alias("ce_count_total", "ecc_correctable"),
    Alias("ue_count_total", "ecc_uncorrectable"),
    Alias("bad_pages", "retired_pages", "page_status=reserved"),
    Alias("bad_pages", "pending_pages", "page_status=pending"),
    Alias("df_bw_read", "memory_read_bandwidth", scale=1e-6, unit="MB/s"),
    Alias("df_bw_write", "memory_write_bandwidth", scale=1e-6, unit="MB/s"),
    Alias("df_bw_read_write", "memory_read_bandwidth memory_write_bandwidth", scale=1e-6, unit="MB/s"),
    Alias("hylink_send", "link_send_bandwidth", "link_id=all", scale=1e-6, unit="MB/s"),
    Alias("hylink_recv", "link_receive_bandwidth", "link_id=all", scale=1e-6, unit="MB/s"),
    Alias("hylink_send_recv", "link_send_bandwidth link_receive_bandwidth", "link_id=all", scale=1e-6, unit="MB/s"),
)
_ALIASES = {"dcu": _BOTH, "hcu": (*_BOTH, *_HCU)}

# Families that are made of more than a sample, and their help.
_BOTH_HELP = {
    "compute_unit_count": "Compute units of the card.",
    "ce_count": "Alias of dtk_device_ecc_block_errors_total, correctable.",
    "ue_count": "Alias of dtk_device_ecc_block_errors_total, uncorrectable.",
}
_HCU_HELP = {
    "perf_level": "The performance level that is set; 1.",
    "node_id": "Number of the card's node in the KFD topology.",
    "numa_node": "NUMA node of the card's slot.",
    "numa_affinity": "NUMA node of the card's slot.",
    "process_vram_used_bytes": "Alias of dtk_process_memory_used_bytes, in bytes.",
    "process_vram_usage_rate": "Alias of dtk_process_memory_used_bytes, in % of the card's memory.",
    "process_sdma_used": "Alias of dtk_process_sdma_seconds_total, in microseconds.",
    "process_cu_occupancy": "Alias of dtk_process_compute_units, in % of the card's.",
    "process_hcu_percent": "Alias of dtk_process_compute_units, in % of the card's.",
}
_MORE_HELP = {"dcu": _BOTH_HELP, "hcu": _BOTH_HELP | _HCU_HELP}

KINDS = tuple(_ALIASES)

# The driver's names of performance levels, and of a block of the card, where theirs are others.
_LEVELS = {
    "profile_standard": "stable_std",
    "profile_peak": "stable_peak",
    "profile_min_mclk": "stable_min_mclk",
    "profile_min_sclk": "stable_min_sclk",
}
_BLOCKS: dict[str, dict[str, str]] = {"dcu": {}, "hcu": {"xgmi_wafl": "HSLWAFL"}}

# Name of a family without its prefix, value, label of its own.
_Series = tuple[str, float | None, dict[str, str]]


class _Card(NamedTuple):
    """A physical card. devices: itself, or its partitions."""

    reading: dtk.Reading
    sample: Mapping[str, object]
    devices: list[dtk.Reading]

    @property
    def compute_units(self) -> int | None:
        return _sum(device.compute_units for device in self.devices)


def families(
    snapshot: dtk.Snapshot,
    kind: str,
    node: str,
    samples: Mapping[str, Mapping[str, object] | None],
    pods: Mapping[str, tuple[str, str, str]] | None = None,
    processes: Iterable[dtk.Process] = (),
) -> Iterator[Metric]:
    """The families of a kind that have any series.

    node: name of this machine. samples: by uuid, the values that count; a card without any has no series.
    pods: by uuid, namespace, pod and container that have the card. processes: those that have series of their own.
    """
    found = {name: Metric(f"{kind}_{name}", text, "gauge") for name, text in _helps(kind).items()}
    processes = tuple(processes)
    for reading in snapshot.cards:
        if (sample := samples.get(reading.uuid)) is None:
            continue
        card = _Card(reading, sample, [d for d in snapshot.devices if d.card_index == reading.card_index])
        labels = _labels(card, kind, node, (pods or {}).get(reading.uuid))
        for name, value, more in _series(card, kind, processes):
            if value is not None:
                found[name].add_sample(f"{kind}_{name}", labels | more, value)
    return (metric for metric in found.values() if metric.samples)


def _helps(kind: str) -> dict[str, str]:
    return {alias.name: alias.help for alias in _ALIASES[kind]} | _MORE_HELP[kind]


def _labels(card: _Card, kind: str, node: str, pod: tuple[str, str, str] | None) -> dict[str, str]:
    """Their device_id is the serial number; the uuid stands in, for their dashboards count cards by it."""
    namespace, name, container = pod or ("", "", "")
    return {
        "device_id": card.reading.serial or card.reading.uuid,
        "minor_number": str(card.reading.card_index),
        "name": card.reading.name,
        "node": node,
        "pcieBus_number": card.reading.bdf,
        f"{kind}_pod_namespace": namespace,
        f"{kind}_pod_name": name,
        "container": container,
    }


def _series(card: _Card, kind: str, processes: Iterable[dtk.Process]) -> Iterator[_Series]:
    for alias in _ALIASES[kind]:
        label, _, value = alias.label.partition("=")
        yield alias.name, alias.value(card.sample), {label: value} if label else {}
    yield "compute_unit_count", card.compute_units, {}
    for block, errors in card.reading.ecc_blocks.items():
        name = _BLOCKS[kind].get(block) or block.upper().replace("_", "")
        yield "ce_count", errors.correctable, {"block_type": name}
        yield "ue_count", errors.uncorrectable, {"block_type": name}
    if kind == "hcu":
        yield from _places(card.reading)
        for process in processes:
            yield from _of_process(card, process)


def _places(reading: dtk.Reading) -> Iterator[_Series]:
    if level := reading.info.get("performance_level"):
        yield "perf_level", 1, {"level": _LEVELS.get(level, level)}
    yield "node_id", reading.kfd_node, {}
    yield "numa_node", reading.numa_node, {}
    yield "numa_affinity", reading.numa_node, {}


def _of_process(card: _Card, process: dtk.Process) -> Iterator[_Series]:
    """What it uses of one card: of all its partitions together."""
    here = {device.uuid for device in card.devices}
    usages = [usage for usage in process.devices if usage.uuid in here]
    if not usages:
        return
    labels = {"pid": str(process.pid), "process_name": process.name or "unknown"}
    memory = _sum(usage.memory_used for usage in usages)
    copying = _sum(usage.sdma_time for usage in usages)
    busy = _percent(_sum(usage.compute_units for usage in usages), card.compute_units)
    yield "process_vram_used_bytes", memory, labels
    yield "process_vram_usage_rate", _percent(memory, card.sample.get("memory_total")), labels
    yield "process_sdma_used", None if copying is None else copying / 1000, labels
    yield "process_cu_occupancy", busy, labels
    yield "process_hcu_percent", busy, labels


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None where any of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _percent(part: int | None, whole: object) -> float | None:
    return 100 * part / whole if part is not None and isinstance(whole, (int, float)) and whole else None
