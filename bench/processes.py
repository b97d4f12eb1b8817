"""What looking for processes costs: KFD's, and the open files of thousands of real processes.

The processes are this machine's own. Their cards are simulated: sys/ of a simulated machine is mounted over /sys for
the measuring program alone, which needs root or user namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dtk
import dtk.build
import dtk.sim

HERE = Path(__file__).parent
KFD, FDINFO = 1, 2
PROCESSES, FILES, NOBODY = 5000, 10, 65534


def kfd_entries(root: Path, count: int) -> None:
    """Processes that compute, as KFD and proc show them, each on two cards."""
    gpu_ids = [device.gpu_id for device in dtk.System(root).devices()]
    kfd = (root / "sys/class/kfd/kfd").resolve() / "proc"
    for entry in [*kfd.glob("*"), *(root / "proc").glob("[0-9]*")]:
        shutil.rmtree(entry)
    for number in range(count):
        pid = 10_000 + number
        uses = [gpu_ids[number % len(gpu_ids)], gpu_ids[(number + 3) % len(gpu_ids)]]
        files = {f"{kfd}/{pid}/vram_{gpu_id}": (gpu_id in uses) << 30 for gpu_id in gpu_ids}
        files |= {f"{kfd}/{pid}/sdma_{gpu_id}": 0 for gpu_id in gpu_ids}
        files |= {f"{kfd}/{pid}/stats_{gpu_id}/evicted_ms": 0 for gpu_id in gpu_ids}
        files |= {f"{kfd}/{pid}/stats_{gpu_id}/cu_occupancy": 50 for gpu_id in gpu_ids}
        files |= {f"{kfd}/{pid}/queues/{queue}/gpuid": uses[queue % 2] for queue in range(6)}
        rest = f"1 {pid} 1 0 -1 4194304 0 0 0 0 5 6 0 0 20 0 1 0 123456 0 0"
        files[f"{root}/proc/{pid}/stat"] = f"{pid} (python3) S {rest}"
        files[f"{root}/proc/{pid}/status"] = f"Name:\tpython3\nUid:\t0\t0\t0\t0\nNSpid:\t{pid}"
        files[f"{root}/proc/{pid}/cmdline"] = "python3\0train.py\0"
        files[f"{root}/proc/{pid}/cgroup"] = "0::/user.slice/user-1000.slice/session-3.scope"
        for name, content in files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")


@contextmanager
def held(program: Path, count: int) -> Iterator[None]:
    """That many real processes."""
    command = [program, "hold", str(count), str(FILES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        if holder.stdout.readline() != "ready\n":
            raise SystemExit(f"may not start {count} processes")
        yield
        holder.communicate("")


def scan(command: list[str], root: str, places: int, count: int, *user: str) -> tuple[float, float, int, int]:
    arguments = [*command, "scan", root, str(places), str(count), *user]
    full, tick, found, hidden = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    return float(full), float(tick), int(found), int(hidden)


def main() -> None:
    """Print a line for each measurement."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        program = work / "processes"
        flags = f"{dtk.build.cflags()} {dtk.build.libs()}".split()
        subprocess.run(["cc", "-O2", HERE / "processes.c", *flags, "-o", program], check=True)
        root = work / "machine"
        dtk.sim.write(root, cards=["mi210:8"])
        kfd_entries(root, 16)

        print(f"{'median ms of a scan':<62} {'full':>8} {'tick':>8} {'limit':>6} {'found':>6} {'hidden':>6}")

        def report(what: str, result: tuple[float, float, int, int], limit: str) -> None:
            full, tick, found, hidden = result
            print(f"{what:<62} {full:>8.2f} {tick:>8.2f} {limit:>6} {found:>6} {hidden:>6}")

        report("KFD, 8 cards, 16 processes", scan([str(program)], str(root), KFD, 101), "5")
        as_root = os.getuid() == 0
        mount = f'mount --bind {root}/sys /sys && exec "$@"'
        unshare = [
            "unshare",
            *([] if as_root else ["--map-root-user"]),
            "--mount",
            "sh",
            "-c",
            mount,
            "sh",
            str(program),
        ]
        with held(program, PROCESSES):
            total = sum(name.isdigit() for name in os.listdir("/proc"))
            what = f"fdinfo, {total} processes, {PROCESSES} of them with {FILES} files,"
            report(f"{what} as their user", scan(unshare, "/", FDINFO, 15), "250" if as_root else "")
            if as_root:
                report(f"{what} as nobody", scan(unshare, "/", FDINFO, 15, str(NOBODY)), "25")


if __name__ == "__main__":
    main()
