"""The files of processes: KFD's, and those below proc/."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from .files import DIRECTORY, Files, Reference, line, lines
from .kfd import KFD
from .machine import Card, Machine, Process, Use, User, invent

TICKS = 100  # of proc/<pid>/stat's clock, a second
_PASID = 0x8000

USERS = (
    User("alice", 1001),
    User("bob", 1002),
    User("chen", 1003),
    User("liwei", 1004),
    User("zhang", 1005),
)
ROOT_USER = User("root", 0)

# Where a process belongs, with the names of cgroup v2 and of the memory controller of v1.
CGROUPS = {
    "system": ("/system.slice/{name}.service", "/system.slice/{name}.service"),
    "session": (
        "/user.slice/user-{uid}.slice/session-{session}.scope",
        "/user.slice/user-{uid}.slice/session-{session}.scope",
    ),
    "container": ("/system.slice/docker-{container}.scope", "/docker/{container}"),
    "pod": (
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod_}.slice/cri-containerd-{container}.scope",
        "/kubepods/burstable/pod{pod}/{container}",
    ),
    "slurm": (
        "/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0",
        "/slurm/uid_{uid}/job_{job}/step_0/task_0",
    ),
}
_V1_CONTROLLERS = ("devices", "freezer", "cpu,cpuacct", "memory", "pids")


def process_files(machine: Machine) -> Files:
    """Everything of a machine's processes."""
    seconds = machine.uptime
    files: Files = {
        "proc/stat": lines(
            "cpu  482910 3021 190223 98120394 20391 0 3012 0 0 0",
            "ctxt 981203948",
            f"btime {machine.boot}",
            f"processes {200000 + int(seconds)}",
            "procs_running 3",
            "procs_blocked 0",
        ),
        "proc/uptime": line(f"{seconds:.2f} {seconds * 0.97:.2f}"),
        "proc/sys/kernel/random/boot_id": line(_uuid(machine.seed, machine.boot)),
        "etc/passwd": _passwd(),
    }
    for number, process in enumerate(machine.processes):
        files |= _proc_files(machine, process)
        if process.kfd:
            files |= _kfd_files(machine, process, _PASID + number)
    return files


def _passwd() -> bytes:
    system = ("root:x:0:0:root:/root:/bin/bash", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin")
    return lines(*system, *(f"{user.name}:x:{user.uid}:{user.uid}::/home/{user.name}:/bin/bash" for user in USERS))


def _uuid(*what: object) -> str:
    digits = hashlib.sha256(repr(what).encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


# ---- KFD ----


def _kfd_files(machine: Machine, process: Process, pasid: int) -> Files:
    """KFD has an entry for each device that the process may open: its own in a container or a job, else all."""
    path = f"{KFD}/proc/{process.pid}"
    files: Files = {f"{path}/pasid": line(pasid), f"{path}/queues": DIRECTORY}
    uses = {(use.bdf, use.part): use for use in process.uses}
    queue = 0
    for card in machine.cards:
        for part, gpu_id in enumerate(card.gpu_id):
            use = uses.get((card.bdf, part))
            if use is None and process.cgroup not in ("session", "system"):
                continue
            files |= _kfd_device(path, card, gpu_id, use)
            for kind in (0, 2, 2) if use else ():  # one queue of SDMA, two of compute
                files[f"{path}/queues/{queue}/gpuid"] = line(gpu_id)
                files[f"{path}/queues/{queue}/size"] = line(1 << 20)
                files[f"{path}/queues/{queue}/type"] = line(kind)
                queue += 1
    return files


def _kfd_device(path: str, card: Card, gpu_id: int, use: Use | None) -> Files:
    files: Files = {
        f"{path}/vram_{gpu_id}": line(use.vram if use else 0),
        f"{path}/sdma_{gpu_id}": line(use.sdma if use else 0),
        f"{path}/stats_{gpu_id}/evicted_ms": line(0),
    }
    if card.model.kfd.wave_front == 64:
        units = card.model.compute_units // card.model.partitions
        files[f"{path}/stats_{gpu_id}/cu_occupancy"] = line(round(units * use.busy) if use else 0)
    return files


# ---- proc ----


def _proc_files(machine: Machine, process: Process) -> Files:
    path = f"proc/{process.pid}"
    name = (process.name or process.command[0].rsplit("/", 1)[-1])[:15]
    files: Files = {
        f"{path}/comm": line(name),
        f"{path}/cmdline": "".join(f"{word}\0" for word in process.command).encode(),
        f"{path}/stat": line(_stat(process, name)),
        f"{path}/status": _status(process, name),
        f"{path}/cgroup": _cgroup(machine, process),
    }
    for number, (target, info) in enumerate(_descriptors(machine, process)):
        files[f"{path}/fd/{number}"] = Reference(target)
        files[f"{path}/fdinfo/{number}"] = lines("pos:\t0", "flags:\t02100002", "mnt_id:\t26", *info)
    return files


def _state(process: Process) -> str:
    return "R" if any(use.busy > 0 for use in process.uses) else "S"


def _stat(process: Process, name: str) -> str:
    user, system = int(process.cpu * TICKS * 0.9), int(process.cpu * TICKS * 0.1)
    start = int(process.start * TICKS)
    fields = (process.parent, process.pid, process.pid, 0, -1, 4194304, 90210, 0, 12, 0, user, system, 0, 0, 20, 0, 24)
    rest = (0, start, 21474836480, 524288, 18446744073709551615, *(0,) * 12, 17, *(0,) * 13)
    return f"{process.pid} ({name}) {_state(process)} {' '.join(map(str, fields + rest))}"


def _status(process: Process, name: str) -> bytes:
    uid = process.user.uid
    inner = "" if process.inner_pid is None else f"\t{process.inner_pid}"
    return lines(
        f"Name:\t{name}",
        "Umask:\t0022",
        f"State:\t{'R (running)' if _state(process) == 'R' else 'S (sleeping)'}",
        f"Tgid:\t{process.pid}",
        "Ngid:\t0",
        f"Pid:\t{process.pid}",
        f"PPid:\t{process.parent}",
        "TracerPid:\t0",
        f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}",
        f"Gid:\t{uid}\t{uid}\t{uid}\t{uid}",
        "FDSize:\t64",
        f"Groups:\t44 {uid} ",
        f"NStgid:\t{process.pid}{inner}",
        f"NSpid:\t{process.pid}{inner}",
        "VmRSS:\t 2097152 kB",
        "Threads:\t24",
    )


def old_cgroups(machine: Machine) -> bool:
    """Whether the machine's kernel has cgroup v1 and DRM file descriptors tell nothing."""
    return int(machine.platform.kernel.split(".")[0]) < 5


def _cgroup(machine: Machine, process: Process) -> bytes:
    new, old = CGROUPS[process.cgroup]
    pod = _uuid("pod", process.container)
    values = {
        "name": process.command[0].rsplit("/", 1)[-1],
        "uid": process.user.uid,
        "job": process.job,
        "session": process.job % 1000 + 2,
        "container": process.container,
        "pod": pod,
        "pod_": pod.replace("-", "_"),
    }
    if not old_cgroups(machine):
        return line(f"0::{new.format(**values)}")
    count = len(_V1_CONTROLLERS)
    rows = (f"{count - n}:{controller}:{old.format(**values)}" for n, controller in enumerate(_V1_CONTROLLERS))
    return lines(*rows, "0::/")


def _descriptors(machine: Machine, process: Process) -> Iterator[tuple[str, Sequence[str]]]:
    """What each file descriptor leads to, and what its fdinfo says besides."""
    inode = 20000 + process.pid * 8
    yield "/dev/null", ()
    yield f"pipe:[{inode}]", ()
    yield f"pipe:[{inode + 1}]", ()
    yield f"socket:[{inode + 2}]", ()
    yield "anon_inode:[eventpoll]", ("tfd:        3 events:       19 data:                3  pos:0 ino:1a2b sdev:8",)
    yield "anon_inode:[eventfd]", ("eventfd-count:                0", "eventfd-id: 12")
    if process.kfd:
        yield "/dev/kfd", ()
    cards = {card.bdf: card for card in machine.cards}
    for place, use in enumerate(process.uses):
        info = _drm_info(machine, process, cards[use.bdf], use, process.pid * 100 + place)
        for _ in range(2 if place == 0 else 1):  # the first is there twice: a duplicate, the same DRM client
            yield f"/dev/dri/renderD{cards[use.bdf].drm_render[use.part]}", info
    if process.uses:
        yield f"/home/{process.user.name}/run/{process.pid}.log", ()
        yield f"socket:[{inode + 3}]", ()


def _drm_info(machine: Machine, process: Process, card: Card, use: Use, client: int) -> Sequence[str]:
    if old_cgroups(machine):
        return ()
    vram, gtt = f"{use.vram >> 10} KiB", f"{use.gtt >> 10} KiB"
    rows = [
        f"drm-driver:\t{card.model.driver}",
        f"drm-client-id:\t{client}",
        f"drm-pdev:\t{card.bdf}",
        f"pasid:\t{_PASID + process.pid % 4096}",
    ]
    if machine.platform.dkms == "6.12.12":  # the names of newer kernels, beside the old ones
        rows += [f"drm-total-vram:\t{vram}", "drm-shared-vram:\t0", f"drm-resident-vram:\t{vram}"]
        rows += [f"drm-total-gtt:\t{gtt}", "drm-shared-gtt:\t0", f"drm-resident-gtt:\t{gtt}"]
    rows += [
        f"drm-memory-vram:\t{vram}",
        f"drm-memory-gtt: \t{gtt}",
        "drm-memory-cpu: \t0 KiB",
        f"amd-memory-visible-vram:\t{vram}",
        "amd-evicted-vram:\t0 KiB",
    ]
    if use.graphics:
        rows.append(f"drm-engine-gfx:\t{use.graphics} ns")
    return rows


def container_id(*what: object) -> str:
    """The id of a container, as Docker and containerd make them."""
    return f"{invent(256, *what, 'container'):064x}"
