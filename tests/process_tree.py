"""Processes below a machine's root, entry by entry, as the kernel would show them, and what dtk finds of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from machines import put

import dtk

BOOT = 1_700_000_000
TICKS = 100


class ProcessTree:
    """The proc and KFD entries of a machine of dtk.sim, which begins with none."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.kfd = (root / "sys/class/kfd/kfd").resolve(strict=True) / "proc"
        for entry in [*self.proc.glob("[0-9]*"), *self.kfd.glob("*")]:
            shutil.rmtree(entry)
        put(root, "proc/stat", f"cpu  1 2 3\nintr 5\nbtime {BOOT}\n")
        put(root, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000:Alice,,,:/home/alice:/bin/sh\n")

    def process(
        self,
        pid: int,
        command: Iterable[str] = ("python3", "train.py"),
        *,
        name: str = "python3",
        uid: int = 1000,
        start: int = 123_456,
        state: str = "S",
        ns_pid: int | None = None,
        cgroup: str = "0::/user.slice/user-1000.slice/session-3.scope\n",
    ) -> None:
        """An entry of proc. start: ticks since boot."""
        fields = f"1 {pid} 1 0 -1 4194304 0 0 0 0 5 6 0 0 20 0 1 0 {start} 0 0 18446744073709551615"
        inner = "" if ns_pid is None else f"\t{ns_pid}"
        path = f"proc/{pid}"
        put(self.root, f"{path}/stat", f"{pid} ({name}) {state} {fields}\n")
        put(self.root, f"{path}/status", f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}{inner}\n")
        put(self.root, f"{path}/cmdline", "".join(f"{word}\0" for word in command))
        put(self.root, f"{path}/cgroup", cgroup)
        (self.proc / str(pid) / "fd").mkdir(exist_ok=True)

    def file(self, pid: int, number: int, target: str, **info: object) -> None:
        """An open file of a process, and keys of its fdinfo: underscores for dashes."""
        link = self.proc / str(pid) / "fd" / str(number)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        keys = {key.replace("_", "-").replace("-1", "_1"): value for key, value in info.items()}
        lines = ["pos:\t0", "flags:\t02100002", "mnt_id:\t26", *(f"{key}:\t{value}" for key, value in keys.items())]
        put(self.root, f"proc/{pid}/fdinfo/{number}", "".join(f"{line}\n" for line in lines))

    def compute(self, pid: int, vram: Mapping[int, int], queues: Iterable[int] = (), **extra: int) -> None:
        """KFD's entry of a process: memory by gpu_id, and the gpu_id of each queue.

        extra: other files, with __ for /: stats_123__cu_occupancy=5.
        """
        directory = self.kfd / str(pid)
        (directory / "queues").mkdir(parents=True, exist_ok=True)
        for gpu_id, used in vram.items():
            (directory / f"vram_{gpu_id}").write_text(f"{used}\n")
        for number, gpu_id in enumerate(queues):
            (directory / "queues" / str(number)).mkdir(exist_ok=True)
            (directory / "queues" / str(number) / "gpuid").write_text(f"{gpu_id}\n")
        for name, value in extra.items():
            path = directory / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{value}\n")


class Machine(ProcessTree):
    """A machine with processes, and its devices."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.system = dtk.System(root)
        self.devices = self.system.devices()
        self.gpu_ids = [device.gpu_id or 0 for device in self.devices]

    def drm(self, pid: int, number: int, device: int, *, client: int = 1, card: bool = False, **info: object) -> None:
        """An open render or card node of a device."""
        node = f"card{self.devices[device].drm_card}" if card else f"renderD{self.devices[device].drm_render}"
        keys = {"drm_driver": "amdgpu", "drm_client_id": client, "drm_pdev": self.devices[device].bdf, **info}
        self.file(pid, number, f"/dev/dri/{node}", **keys)

    def all(self) -> dtk.ProcessTable:
        return self.system.processes("all")


def one(processes: dtk.ProcessTable) -> dtk.Process:
    (process,) = processes.processes
    return process
