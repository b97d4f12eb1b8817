"""Processes that use cards: who they are, and what each uses of which device."""

from __future__ import annotations

from ._native import ffi, lib
from ._record import Record
from ._statuses import STATUSES
from .errors import from_status
from .metrics import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._native._dtk import CData
    from .system import System

__all__ = ["Process", "ProcessTable", "ProcessUsage", "processes"]

_HIDDEN = {
    lib.DTK_HIDDEN_DENIED: "files of other users' processes may be looked at by them and root only",
    lib.DTK_HIDDEN_HIDEPID: "/proc is mounted with hidepid and does not list processes of other users",
    lib.DTK_HIDDEN_NAMESPACE: "this PID namespace lists only the processes in it",
}
_SOURCES = {lib.DTK_SCAN_KFD: "kfd", lib.DTK_SCAN_FDINFO: "fdinfo"}
SCANS = {
    "kfd": lib.DTK_SCAN_KFD,
    "all": lib.DTK_SCAN_KFD | lib.DTK_SCAN_FDINFO,
    "use": lib.DTK_SCAN_KFD | lib.DTK_SCAN_FDINFO | lib.DTK_SCAN_RSMI,
}
_ENGINES = tuple(text(lib.dtk_engine_name(number)) for number in range(lib.DTK_ENGINE_COUNT))


class ProcessUsage(Record):
    """What one process uses of one device. None is not known; reason() says why.

    device: index of the device. uuid: of the device.
    memory_used: device memory in bytes: the larger of what KFD and fdinfo tell, which overlap.
    memory_gtt_used: system memory mapped for the device, in bytes, from fdinfo.
    queues: its compute queues, from KFD.
    compute_units: those that hold work of it at this instant, from KFD; not on every card.
    sdma_time: ns of copying by its KFD queues. evicted_time: ms for which these had to make room for others. Both since
    it began to use the device.
    engine_times: ns of work on each engine that fdinfo tells of, since its files were opened: gfx, compute (without
    KFD's queues), dma, decode, encode, jpeg, vpe. Less than before means that files were closed.
    utilization: share of the device that it keeps busy, in %; from the library of Hygon cards alone, with source "use".
    sources: where it was seen: "kfd", "fdinfo".
    reasons: {name: why} for each of memory_used, memory_gtt_used, compute_units, sdma_time, evicted_time, utilization
    that is None.
    """

    device: int
    uuid: str
    memory_used: int | None
    memory_gtt_used: int | None
    queues: int | None
    compute_units: int | None
    sdma_time: int | None
    evicted_time: int | None
    engine_times: dict[str, int]
    utilization: float | None
    sources: tuple[str, ...]
    reasons: dict[str, str]

    def reason(self, name: str) -> str | None:
        """Why a number is None: "denied" (only its user and root may see it), "failed", or "unsupported" (none of the
        places that were asked has it). None when it is there.
        """
        return self.reasons.get(name)


class Process(Record):
    """A process that uses a device. None is not known.

    pid: as this machine numbers it; with start_time it names a process, for pids are used again.
    status: "ok"; "denied": this user may not look at it; "gone": it has ended, and KFD still holds what it used;
    "unsupported": KFD knows it, but it is in another PID namespace or the machine has no proc: then pid is the host's.
    start_time: Unix seconds. start_ticks: the same as the kernel counts it, exact. parent: pid of its parent.
    uid: its effective user; user: the name of that. state: R, S, D, Z, T, t or I, as in proc.
    name: of the program. command: its arguments with blanks between; "…" at the end when there are more.
    ns_pid: in its own PID namespace, where that is another one. host_pid: as KFD numbers it.
    container: id of its container; runtime: of that: "docker", "containerd", "crio", "podman", "lxc".
    pod: uid of its Kubernetes pod. slurm_job, slurm_step: "1234" and "0", "batch" or "extern".
    unit: innermost systemd service or scope. Source of these: proc/<pid>/cgroup.
    devices: what it uses, by index.
    """

    pid: int
    status: str
    start_time: float | None
    start_ticks: int | None
    parent: int | None
    uid: int | None
    user: str | None
    state: str | None
    name: str | None
    command: str | None
    ns_pid: int | None
    host_pid: int | None
    container: str | None
    runtime: str | None
    pod: str | None
    slurm_job: str | None
    slurm_step: str | None
    unit: str | None
    devices: tuple[ProcessUsage, ...]


class ProcessTable(Record):
    """The processes that use devices, at one moment.

    processes: by pid.
    hidden: how many other processes may use a device unseen. hidden_reason: why; not None also where nobody can tell
    how many. None of both with source "kfd", since KFD tells everybody of all.
    unattributed: {uuid: bytes} of device memory in use that none of these processes accounts for: of the driver and
    the firmware, of hidden processes, with source "kfd" also of those that draw. Only where both numbers are known.
    sources: {"kfd": status, "fdinfo": status} of the places that were asked: "ok"; "unsupported": it is not there;
    "denied"; "failed".
    truncated: there was more than dtk takes; processes may be missing.
    """

    processes: tuple[Process, ...]
    hidden: int
    hidden_reason: str | None
    unattributed: dict[str, int]
    sources: dict[str, str]
    truncated: bool


def processes(source: str = "kfd") -> ProcessTable:
    """The processes of this machine, or of the one below $DTK_SMI_ROOT: see System.processes()."""
    from .system import shared  # system.py builds on this file

    return shared().processes(source)


def scan(system: System, uuids: Iterable[str], source: str) -> ProcessTable:
    """For System and Device: the processes that use these devices now."""
    if source not in SCANS:
        message = f'source={source!r} is not "kfd", "all" or "use"'
        raise from_status(lib.DTK_INVALID_ARGUMENT, "processes", None, message)
    handle = system.handle()  # keeps the system open
    opened = ffi.new("dtk_tracker **")
    status = lib.dtk_tracker_open(handle, opened)
    if status < 0:
        raise from_status(status, "processes", system.root)
    tracker = ffi.gc(opened[0], lib.dtk_tracker_close)
    result = ffi.new("dtk_scan *")
    status = lib.dtk_tracker_scan(tracker, SCANS[source], result, ffi.sizeof("dtk_scan"))
    if status < 0:
        raise from_status(status, "processes", system.root)
    rows = ffi.new("dtk_process[]", result.processes)
    usages = ffi.new("dtk_usage[]", result.usages)
    lib.dtk_tracker_processes(tracker, rows, ffi.sizeof("dtk_process"), result.processes)
    lib.dtk_tracker_usages(tracker, usages, ffi.sizeof("dtk_usage"), result.usages)
    wanted = set(uuids)
    used = {d.uuid: d.sample(static=False).memory_used for d in system.devices() if d.uuid in wanted}
    return table(rows, usages, result, used, system.info.live)


def table(
    rows: CData, usages: CData, result: CData, memory_used: Mapping[str, int | None], live: bool = False
) -> ProcessTable:
    """The records of a scan: dtk_process[], dtk_usage[] and dtk_scan, for the devices that `memory_used` has.

    live: users that etc/passwd below the root does not have may be asked of this machine's directory.
    """
    found: dict[int, list[ProcessUsage]] = {}
    for usage in usages:
        if text(usage.uuid) in memory_used and 0 <= usage.process < len(rows):
            found.setdefault(usage.process, []).append(_usage(usage))
    places = {"kfd": _status(result.kfd), "fdinfo": _status(result.fdinfo)}
    reasons = [reason for bit, reason in _HIDDEN.items() if result.hidden_reasons & bit]
    known = "ok" in places.values() and not result.truncated
    return ProcessTable(
        processes=tuple(_process(rows[number], found[number], live) for number in sorted(found)),
        hidden=result.hidden,
        hidden_reason="; ".join(reasons) or None,
        unattributed=_unattributed(found.values(), memory_used) if known else {},
        sources=places,
        truncated=bool(result.truncated),
    )


def _unattributed(found: Iterable[list[ProcessUsage]], memory_used: Mapping[str, int | None]) -> dict[str, int]:
    """What is in use less the sum of what processes use; nothing of a device where either is not known."""
    rest = {uuid: used for uuid, used in memory_used.items() if used is not None}
    for usages in found:
        for usage in usages:
            if usage.memory_used is None:
                rest.pop(usage.uuid, None)
            elif usage.uuid in rest:
                rest[usage.uuid] -= usage.memory_used
    return {uuid: max(used, 0) for uuid, used in rest.items()}


def _usage(usage: CData) -> ProcessUsage:
    values = {
        "memory_used": usage.vram,
        "memory_gtt_used": usage.gtt,
        "compute_units": usage.cu_count,
        "sdma_time": usage.sdma,
        "evicted_time": usage.evicted,
    }
    numbers = {name: None if value.status else int(value.u64) for name, value in values.items()}
    use = usage.utilization
    values["utilization"] = use
    return ProcessUsage(
        device=usage.device,
        uuid=text(usage.uuid),
        queues=_number(usage.queues),
        engine_times={
            name: int(time.u64) for name, time in zip(_ENGINES, usage.engine, strict=False) if not time.status
        },
        utilization=None if use.status else float(use.f64),
        sources=tuple(name for bit, name in _SOURCES.items() if usage.sources & bit),
        reasons={name: _status(value.status) for name, value in values.items() if value.status},
        **numbers,
    )


def _process(row: CData, devices: list[ProcessUsage], live: bool) -> Process:
    command = text(row.command)
    uid = _number(row.uid)
    return Process(
        pid=row.pid,
        status=_status(row.status),
        start_time=None if row.start_time < 0 else row.start_time,
        start_ticks=row.start_ticks or None,
        parent=_number(row.parent),
        uid=uid,
        user=text(row.user) or (_user(uid) if live and uid is not None else None),
        state=row.state.decode() if row.state != b"\0" else None,
        name=text(row.name) or None,
        command=(f"{command}…" if row.command_cut else command) or None,
        ns_pid=_number(row.ns_pid),
        host_pid=_number(row.host_pid),
        container=text(row.container) or None,
        runtime=text(row.runtime) or None,
        pod=text(row.pod) or None,
        slurm_job=text(row.slurm_job) or None,
        slurm_step=text(row.slurm_step) or None,
        unit=text(row.unit) or None,
        devices=tuple(devices),
    )


def _user(uid: int) -> str | None:
    """The name of a user of this machine, from wherever it keeps them."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


def _status(status: int) -> str:
    return STATUSES[status][0] if status in STATUSES else "failed"


def _number(number: int) -> int | None:
    return None if number < 0 else number
