"""Every family that dtk-exporter serves on /metrics: name, type, labels and help, in the order of the page.

What the catalogue of metrics has is taken from there; tests/data/released-families.txt holds us to names and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import dtk
from dtk import events, throttle

from .allocation import Holder

__all__ = ["BY_NAME", "CATALOGUE", "FAMILIES", "NAMES", "Column", "Family"]

STATES = ("ok", "degraded", "lost", "unknown")
SOURCES = ("reader_crash", "reader_hang", "library", "monitor", "kubelet")
SOURCE_HELP = "crashes of dtk-reader, hangs of it, the vendor's library, the monitor, the kubelet"

INFO = (
    "uuid index pci_address model vendor driver driver_version serial card partition drm_render numa_node arch".split()
)
ALLOCATION = Holder._fields
PROCESS_INFO = "pid name user job_id container pod_uid".split()


class Family(NamedTuple):
    """A family. name: of its samples, so that of a counter ends in _total. type: "gauge" or "counter"."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...]


class Column(NamedTuple):
    """A metric of the catalogue as samples of a family. label_value: None for a family without a label of its own."""

    metric: str
    family: Family
    label_value: str | None
    scale: Callable[[float], float]


_SCALES: dict[str, Callable[[float], float]] = {
    "%": lambda percent: percent / 100,
    "MHz": lambda megahertz: megahertz * 1e6,
    "mV": lambda millivolts: millivolts / 1000,
}


def _from_catalogue() -> tuple[Column, ...]:
    rows: dict[str, list[dtk.Metric]] = {}
    for metric in dtk.metrics.all():
        rows.setdefault(metric.family, []).append(metric)
    columns: list[Column] = []
    for name, metrics in rows.items():
        first = metrics[0]
        bits = first.type == "bits"
        label = "reason" if bits else first.label
        text = first.help
        if len(metrics) > 1:
            text = "; ".join(f"{metric.label_value}: {metric.help.rstrip('.')}" for metric in metrics) + "."
        family = Family(f"dtk_device_{name}", first.kind, text, ("uuid", label) if label else ("uuid",))
        for metric in metrics:
            scale = _SCALES.get(metric.unit, lambda value: value)
            columns.append(Column(metric.name, family, metric.label_value if first.label else None, scale))
    return tuple(columns)


def _gauge(name: str, text: str, labels: Sequence[str] = ()) -> Family:
    return Family(name, "gauge", text, tuple(labels))


def _counter(name: str, text: str, labels: Sequence[str] = ()) -> Family:
    return Family(name, "counter", text, tuple(labels))


CATALOGUE = _from_catalogue()

_DEVICE = ("uuid",)
_PROCESS = ("uuid", "pid")

FAMILIES: tuple[Family, ...] = (
    _gauge("dtk_device_info", "What a device is; 1. card is the uuid of its physical card.", INFO),
    _gauge(
        "dtk_device_up",
        "1 when its values are fresh or it sleeps, 0 when it is lost, hung, or may not be read.",
        _DEVICE,
    ),
    _gauge(
        "dtk_device_state",
        "1 for the state it is in. degraded: uncorrectable memory errors or pages to be retired, hot, held back by "
        "heat or the platform, a link below what the card can do, values that could not be read, or in KFD alone; "
        "lost: gone from the bus; unknown: no fresh values.",
        ("uuid", "state"),
    ),
    _gauge("dtk_device_asleep", "1 when it is in runtime suspend and is left to sleep: it has no values.", _DEVICE),
    _gauge("dtk_device_last_success_timestamp_seconds", "When it last answered, Unix time.", _DEVICE),
    _gauge("dtk_device_sample_age_seconds", "How old its values were at the last look at the machine.", _DEVICE),
    _gauge(
        "dtk_device_read_errors",
        "Values that it should have and that could not be read: failed, or denied to the exporter.",
        ("uuid", "reason"),
    ),
    _counter(
        "dtk_device_events_total",
        f"What happened to it since the exporter started: {', '.join(events.KINDS)}.",
        ("uuid", "type"),
    ),
    *dict.fromkeys(column.family for column in CATALOGUE),
    _counter(
        "dtk_device_throttle_seconds_total",
        f"Time it was held back since the exporter started, by reason: {', '.join(throttle.REASONS)}. They overlap.",
        ("uuid", "reason"),
    ),
    _counter(
        "dtk_device_ecc_block_errors_total",
        "Memory errors by block of the card, since the driver was loaded.",
        ("uuid", "block", "severity"),
    ),
    _gauge("dtk_device_processes", "Processes that compute on it.", _DEVICE),
    _gauge(
        "dtk_device_memory_unattributed_bytes",
        "Device memory in use that no known process accounts for: of driver, firmware and hidden processes.",
        _DEVICE,
    ),
    _gauge(
        "dtk_device_allocation_info",
        "Who has it; 1. source: slurm and container by the cgroup of its processes, k8s by the kubelet or the cgroup.",
        ALLOCATION,
    ),
    _gauge("dtk_process_info", "A process that computes on a device; 1.", PROCESS_INFO),
    _gauge("dtk_process_start_time_seconds", "When it began, Unix time.", ("pid",)),
    _gauge("dtk_process_memory_used_bytes", "Device memory that a process uses.", _PROCESS),
    _gauge("dtk_process_queues", "Compute queues of a process on a device.", _PROCESS),
    _gauge("dtk_process_compute_units", "Compute units that hold work of a process at this instant.", _PROCESS),
    _counter("dtk_process_sdma_seconds_total", "Time of copying by a process's queues.", _PROCESS),
    _counter("dtk_process_evicted_seconds_total", "Time in which a process had to make room for others.", _PROCESS),
    _gauge("dtk_build_info", "The exporter; 1.", ("version", "python_version")),
    _gauge("dtk_exporter_simulated", "1 when the machine is a simulated one."),
    _counter("dtk_collect_errors_total", f"What went wrong while reading: {SOURCE_HELP}.", ("source",)),
    _gauge("dtk_collect_duration_seconds", "Time that a card's last answer took.", _DEVICE),
    _counter("dtk_exporter_snapshots_total", "Looks at the machine."),
    _gauge("dtk_exporter_last_snapshot_timestamp_seconds", "When it last looked at the machine, Unix time."),
    _gauge("dtk_exporter_processes_dropped", "Processes left out because of --collect.processes-max."),
    _counter("dtk_exporter_reader_cpu_seconds_total", "Processor time of dtk-reader, a process of its own."),
    _gauge("dtk_exporter_reader_resident_memory_bytes", "Resident memory of dtk-reader."),
    _gauge("dtk_exporter_render_seconds", "Time it took to make the page before this one."),
    _gauge("dtk_exporter_config_last_reload_successful", "1 when the configuration was good when it was last read."),
    _gauge("dtk_exporter_config_last_reload_success_timestamp_seconds", "When it was last read and good, Unix time."),
    _counter("dtk_exporter_http_requests_total", "Answers by status.", ("code",)),
    _counter(
        "dtk_exporter_http_rejected_total",
        "Clients that were turned away: busy, malformed, timeout, tls.",
        ("reason",),
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}
NAMES = tuple(BY_NAME)
