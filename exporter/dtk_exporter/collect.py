"""From a View to the samples of the page /metrics."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client import ProcessCollector

import dtk
from dtk import throttle

from . import health, processes
from .allocation import allocations
from .book import Entry, View
from .exposition import Page
from .families import CATALOGUE, INFO, STATES
from .pods import Allocation

__all__ = ["Own", "collect"]


class Own(NamedTuple):
    """What the exporter tells of itself."""

    errors: Mapping[str, int]
    reader_cpu: float
    reader_memory: int | None
    render_seconds: float | None
    reload_good: bool
    reload_time: float
    requests: Mapping[str, int]
    rejected: Mapping[str, int]


def collect(view: View | None, own: Own, pods: Iterable[Allocation] = (), most_processes: int | None = None) -> Page:
    """All families. pods: who has which device by the kubelet. most_processes: how many processes have families of
    their own, None for none of them.
    """
    page = Page()
    page.put("dtk_exporter_snapshots_total", view.number if view else 0)
    if view is not None:
        for entry in view.entries:
            _identity(page, entry, view.snapshot)
            _state(page, entry, view.snapshot)
            if entry.sample is not None:
                _values(page, entry, entry.sample)
        if view.is_fresh:
            _processes(page, view, pods, most_processes)
        page.put("dtk_exporter_simulated", float(view.snapshot.system.simulated))
        page.put("dtk_exporter_last_snapshot_timestamp_seconds", view.snapshot.timestamp)
    _own(page, own)
    page.rest += _process_collector.collect()
    return page


_process_collector = ProcessCollector(registry=None)


def _identity(page: Page, entry: Entry, snapshot: dtk.Snapshot) -> None:
    reading = entry.reading

    def known(value: object) -> str:
        return "" if value is None else str(value)

    labels = {
        "uuid": entry.uuid,
        "index": known(reading.index),
        "pci_address": reading.bdf,
        "model": reading.name,
        "vendor": _VENDORS.get(reading.vendor_id or 0, ""),
        "driver": known(reading.driver),
        "driver_version": known(snapshot.system.drivers.get(reading.driver or "")),
        "serial": known(reading.serial),
        "card": entry.card,
        "partition": known(reading.partition),
        "drm_render": known(reading.drm_render),
        "numa_node": known(reading.numa_node),
        "arch": known(reading.arch),
    }
    page.put("dtk_device_info", 1, *(labels[name] for name in INFO))


_VENDORS = {0x1002: "AMD", 0x1D94: "Hygon"}


def _state(page: Page, entry: Entry, snapshot: dtk.Snapshot) -> None:
    uuid = entry.uuid
    page.put("dtk_device_up", float(entry.sample is not None or entry.asleep), uuid)
    for state in STATES:
        page.put("dtk_device_state", float(entry.state == state), uuid, state)
    page.put("dtk_device_last_success_timestamp_seconds", entry.last_success, uuid)
    for kind, count in entry.counts.items():
        page.put("dtk_device_events_total", count, uuid, kind)
    for reason in throttle.REASONS if entry.throttled else ():
        page.put("dtk_device_throttle_seconds_total", (entry.throttled or {})[reason], uuid, reason)
    if entry.state != "lost":
        page.put("dtk_device_asleep", float(entry.asleep), uuid)
    if entry.sample is not None:
        page.put("dtk_device_sample_age_seconds", max(0.0, snapshot.monotonic - entry.sample.monotonic), uuid)
        page.put("dtk_collect_duration_seconds", entry.reading.duration, uuid)


def _values(page: Page, entry: Entry, sample: dtk.Sample) -> None:
    uuid = entry.uuid
    for reason, names in health.unread(sample).items():
        page.put("dtk_device_read_errors", len(names), uuid, reason)
    for column in CATALOGUE:
        value = sample.get(column.metric)
        if value is None:
            continue
        if isinstance(value, tuple):
            for bit in value:
                page.put(column.family.name, 1, uuid, bit)
        elif column.label_value is None:
            page.put(column.family.name, column.scale(value), uuid)
        else:
            page.put(column.family.name, column.scale(value), uuid, column.label_value)
    for block, errors in entry.reading.ecc_blocks.items():
        for severity in ("correctable", "uncorrectable", "deferred"):
            page.put("dtk_device_ecc_block_errors_total", getattr(errors, severity), uuid, block, severity)


def _processes(page: Page, view: View, pods: Iterable[Allocation], most: int | None) -> None:
    table = view.snapshot.processes
    up = [entry for entry in view.entries if entry.sample is not None and entry.reading.index is not None]
    for labels in allocations(table.processes if table else (), [entry.reading for entry in up], pods):
        page.put("dtk_device_allocation_info", 1, *labels)
    if table is None or table.sources.get("kfd") != "ok":
        return
    counts = processes.by_device(table)
    for entry in up:
        if entry.reading.gpu_id is None:  # KFD knows nothing of it, or may not tell: a container without /dev/dri
            continue
        page.put("dtk_device_processes", counts.get(entry.uuid, 0), entry.uuid)
        page.put("dtk_device_memory_unattributed_bytes", table.unattributed.get(entry.uuid), entry.uuid)
    if most is not None:
        processes.put(page.put, table, most)


def _own(page: Page, own: Own) -> None:
    page.put("dtk_build_info", 1, dtk.__version__, platform.python_version())
    for source, count in own.errors.items():
        page.put("dtk_collect_errors_total", count, source)
    page.put("dtk_exporter_reader_cpu_seconds_total", own.reader_cpu)
    page.put("dtk_exporter_reader_resident_memory_bytes", own.reader_memory)
    page.put("dtk_exporter_render_seconds", own.render_seconds)
    page.put("dtk_exporter_config_last_reload_successful", float(own.reload_good))
    page.put("dtk_exporter_config_last_reload_success_timestamp_seconds", own.reload_time)
    for code, count in own.requests.items():
        page.put("dtk_exporter_http_requests_total", count, code)
    for reason, count in own.rejected.items():
        page.put("dtk_exporter_http_rejected_total", count, reason)
