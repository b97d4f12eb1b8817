"""Who has which device: labels of dtk_device_allocation_info."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import dtk

from .pods import Allocation, devices_of

__all__ = ["Holder", "allocations"]


class Holder(NamedTuple):
    """The labels of dtk_device_allocation_info, in its order; "" where one says nothing."""

    uuid: str
    source: str
    job_id: str = ""  # not "job", which Prometheus has its own idea of
    step_id: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    container: str = ""
    user: str = ""


def allocations(
    processes: Iterable[dtk.Process], readings: Sequence[dtk.Reading], pods: Iterable[Allocation] = ()
) -> list[Holder]:
    """Who holds these devices, each once.

    What the kubelet tells of a device stands for what the cgroups of its processes tell of pods.
    """
    rows: dict[Holder, None] = {}
    told: set[str] = set()
    for given in pods:
        for uuid in devices_of(given.device, readings):
            told.add(uuid)
            holder = Holder(uuid, "k8s", namespace=given.namespace, pod=given.pod, container=given.container)
            rows[holder] = None
    here = {reading.uuid for reading in readings}
    for process in processes:
        for usage in process.devices:
            found = _by_cgroup(process, usage.uuid) if usage.uuid in here else None
            if found and not (found.source == "k8s" and found.uuid in told):
                rows[found] = None
    return sorted(rows)


def _by_cgroup(process: dtk.Process, uuid: str) -> Holder | None:
    container, user = process.container or "", process.user or ""
    if process.slurm_job:
        job, step = process.slurm_job, process.slurm_step or ""
        return Holder(uuid, "slurm", job_id=job, step_id=step, container=container, user=user)
    if process.pod:
        return Holder(uuid, "k8s", pod_uid=process.pod, container=container, user=user)
    return Holder(uuid, "container", container=container, user=user) if container else None
