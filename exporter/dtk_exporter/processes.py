"""The families of single processes: asked for by --collect.processes, and no more of them than it allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import dtk

__all__ = ["biggest", "by_device", "put"]


def by_device(table: dtk.ProcessTable) -> Counter[str]:
    """How many processes compute on each device."""
    return Counter(usage.uuid for process in table.processes for usage in process.devices if "kfd" in usage.sources)


def put(put: Callable[..., None], table: dtk.ProcessTable, most: int) -> None:
    """Put the biggest processes and how many were left out.

    No command lines: they hold secrets, and there is no end of them.
    """
    for process in biggest(table, most):
        _put_process(put, process)
    put("dtk_exporter_processes_dropped", max(0, len(table.processes) - most))


def biggest(table: dtk.ProcessTable, most: int) -> list[dtk.Process]:
    """The processes that use the most device memory, at most so many of them."""
    return sorted(table.processes, key=lambda process: (-_memory(process), process.pid))[:most]


def _memory(process: dtk.Process) -> int:
    return sum(usage.memory_used or 0 for usage in process.devices)


def _put_process(put: Callable[..., None], process: dtk.Process) -> None:
    pid = str(process.pid)
    put(
        "dtk_process_info",
        1,
        pid,
        process.name or "",
        process.user or "",
        process.slurm_job or "",
        process.container or "",
        process.pod or "",
    )
    put("dtk_process_start_time_seconds", process.start_time, pid)
    for usage in process.devices:
        uuid = usage.uuid
        put("dtk_process_memory_used_bytes", usage.memory_used, uuid, pid)
        put("dtk_process_queues", usage.queues, uuid, pid)
        put("dtk_process_compute_units", usage.compute_units, uuid, pid)
        put("dtk_process_sdma_seconds_total", _scaled(usage.sdma_time, 1e9), uuid, pid)
        put("dtk_process_evicted_seconds_total", _scaled(usage.evicted_time, 1e3), uuid, pid)


def _scaled(value: int | None, scale: float) -> float | None:
    return None if value is None else value / scale
