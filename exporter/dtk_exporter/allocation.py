"""Who has which device: labels of dtk_device_allocation_info."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dtk

from .pods import Allocation, devices_of

__all__ = ["allocations"]


def allocations(
    processes: Iterable[dtk.Process], readings: Sequence[dtk.Reading], pods: Iterable[Allocation] = ()
) -> list[tuple[str, ...]]:
    """Rows of (uuid, source, job, step, namespace, pod, pod_uid, container, user), each once.

    What the kubelet tells of a device stands for what the cgroups of its processes tell of pods.
    """
    rows: dict[tuple[str, ...], None] = {}
    told: set[str] = set()
    for pod in pods:
        for uuid in devices_of(pod.device, readings):
            told.add(uuid)
            rows[(uuid, "k8s", "", "", pod.namespace, pod.pod, "", pod.container, "")] = None
    here = {reading.uuid for reading in readings}
    for process in processes:
        for usage in process.devices:
            if usage.uuid in here and (row := _by_cgroup(process, usage.uuid, usage.uuid in told)):
                rows[row] = None
    return sorted(rows)


def _by_cgroup(process: dtk.Process, uuid: str, told: bool) -> tuple[str, ...] | None:
    user = process.user or ""
    if process.slurm_job:
        return (uuid, "slurm", process.slurm_job, process.slurm_step or "", "", "", "", process.container or "", user)
    if process.pod:
        return None if told else (uuid, "k8s", "", "", "", "", process.pod, process.container or "", user)
    if process.container:
        return (uuid, "container", "", "", "", "", "", process.container, user)
    return None
