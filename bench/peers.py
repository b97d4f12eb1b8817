"""dtk-smi and import dtk beside rocm-smi and pyrsmi, in one run on the same simulated machine of 8 MI210.

The real library and its tools read the machine through a /sys that bubblewrap binds over the real one. Each ratio is
the median of pairs that were run one after the other; compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PAIRS = 15
SMI = str(Path(sys.executable).with_name("dtk-smi"))
LIBRARY = next(iter(sorted(Path("/usr/lib").rglob("librocm_smi64.so*"))), None)
COMMANDS = {
    "table on a terminal": (["dtk-smi"], 0.5, True),
    "table, piped": (["dtk-smi"], 0.5, False),
    "-L": (["dtk-smi", "-L"], 0.2, False),
    "query": (
        ["dtk-smi", "query", "index,memory_used,temperature_edge,power_draw,utilization_gpu", "--format", "csv"],
        0.2,
        False,
    ),
    "--json": (["dtk-smi", "--json"], 0.5, False),
}


def run(command: Sequence[str], terminal: bool) -> float:
    """Seconds that a command takes, its output thrown away."""
    begin = time.perf_counter()
    if not terminal:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return time.perf_counter() - begin
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except OSError:  # the terminal's other end was closed
        pass
    os.waitpid(pid, 0)
    os.close(descriptor)
    return time.perf_counter() - begin


def pairs(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float, float]:
    """Median seconds of each, and the median ratio of the pairs."""
    times = [(one(), other()) for _ in range(PAIRS)]
    ratio = statistics.median(a / b for a, b in times)
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times), ratio


def commands() -> None:
    """Whole commands against rocm-smi's default table."""
    print(f"{'command':<32} {'dtk-smi ms':>11} {'rocm-smi ms':>12} {'ratio':>6} {'budget':>7}")
    for name, (command, budget, terminal) in COMMANDS.items():
        ours = [SMI, *command[1:]]
        a, b, ratio = pairs(lambda ours=ours, terminal=terminal: run(ours, terminal), lambda: run(["rocm-smi"], False))
        print(f"{name:<32} {a * 1e3:>11.1f} {b * 1e3:>12.1f} {ratio:>6.2f} {budget:>7}")
    print(f"{'table, peak MB with its reader':<32} {peak([SMI]):>11.1f} {'':>12} {'':>6} {40:>7}")


def peak(command: Sequence[str]) -> float:
    """Resident MB of a command at its largest, with the process that it reads through added."""
    process = subprocess.Popen([*command, "--loop", "0.2", "--count", "3"], stdout=subprocess.DEVNULL)
    largest = 0.0
    while process.poll() is None:
        try:
            children = Path(f"/proc/{process.pid}/task").glob("*/children")
            pids = [process.pid, *(int(pid) for path in children for pid in path.read_text().split())]
            status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
            sizes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
            largest = max(largest, sum(sizes) / 1024)
        except OSError:  # one of them ended meanwhile
            pass
        time.sleep(0.005)
    return largest


def partitions(work: Path) -> None:
    """64 partitions beside 8 cards."""
    import dtk.sim

    many, few = work / "many", work / "few"
    dtk.sim.write(many, cards=["mi300x-cpx:8"])
    dtk.sim.write(few, cards=["mi210:8"])
    print(f"{'':<32} {'64, ms':>11} {'8, ms':>12}")
    for name, arguments in (("table, piped", []), ("--json", ["--json"]), ("-L", ["-L"])):
        commands = [[SMI, *arguments, "--root", str(root)] for root in (many, few)]
        a, b, ratio = pairs(
            lambda commands=commands: run(commands[0], False), lambda commands=commands: run(commands[1], False)
        )
        print(f"{f'64 partitions, {name}':<32} {a * 1e3:>11.1f} {b * 1e3:>12.1f} {ratio:>6.2f} {9:>7}")


def imports() -> None:
    """`import dtk` over bare Python."""
    bare = [sys.executable, "-I", "-c", "pass"]
    ours = [sys.executable, "-I", "-c", "import dtk"]
    a, b, _ = pairs(lambda: run(ours, False), lambda: run(bare, False))
    print(f"{'import dtk over bare python, ms':<32} {(a - b) * 1e3:>11.1f} {'':>12} {'':>6} {25:>7}")


def readings() -> None:
    """Readings that both Python packages have and that change, for all cards, in one process."""
    from pyrsmi import rocml

    import dtk

    rocml.smi_initialize()
    cards = range(rocml.smi_get_device_count())
    devices = dtk.devices()

    def theirs() -> float:
        begin = time.perf_counter()
        for card in cards:
            rocml.smi_get_device_utilization(card)
            rocml.smi_get_device_memory_busy(card)
            for kind in ("VRAM", "VIS_VRAM", "GTT"):
                rocml.smi_get_device_memory_used(card, kind)
            rocml.smi_get_device_average_power(card)
            rocml.smi_get_device_pcie_bandwidth(card)
            rocml.smi_get_device_pci_replay_counter(card)
        return time.perf_counter() - begin

    def ours() -> float:
        begin = time.perf_counter()
        for device in devices:
            sample = device.sample(static=False)
            _ = (sample.utilization_gpu, sample.utilization_memory, sample.memory_used, sample.memory_visible_used)
            _ = (sample.memory_gtt_used, sample.power_average, sample.pcie_link_speed, sample.pcie_replay_count)
        return time.perf_counter() - begin

    ours(), theirs()
    rounds = [pairs(ours, theirs) for _ in range(5)]
    a, b, ratio = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"{'8 readings of 8 cards, us':<32} {a * 1e6:>11.0f} {b * 1e6:>12.0f} {ratio:>6.2f} {0.6:>7}  (pyrsmi)")


def backends() -> None:
    """The vendor's library beside the files: a whole command, and the fast tier of all cards in one process."""
    import dtk

    print(f"{'':<32} {'library':>11} {'files':>12}")
    commands = [["env", f"DTK_SMI_BACKEND={backend}", SMI, "--json"] for backend in ("rsmi", "kernel")]
    a, b, ratio = pairs(lambda: run(commands[0], False), lambda: run(commands[1], False))
    print(f"{'--json, ms':<32} {a * 1e3:>11.1f} {b * 1e3:>12.1f} {ratio:>6.2f}")
    systems = [dtk.System(backend=backend) for backend in ("rsmi", "kernel")]
    devices = [system.devices() for system in systems]

    def sample(which: int) -> float:
        begin = time.perf_counter()
        for device in devices[which]:
            device.sample(static=False)
        return time.perf_counter() - begin

    sample(0), sample(1)
    rounds = [pairs(lambda: sample(0), lambda: sample(1)) for _ in range(5)]
    a, b, ratio = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"{'fast sample of 8 cards, us':<32} {a * 1e6:>11.0f} {b * 1e6:>12.0f} {ratio:>6.2f}")


def main() -> None:
    """Make the machine, bind it over /sys, and measure inside."""
    if os.environ.get("DTK_BENCH_INSIDE"):
        commands()
        imports()
        readings()
        backends()
        return
    missing = [tool for tool in ("bwrap", "rocm-smi") if not shutil.which(tool)]
    if missing or LIBRARY is None:
        sys.exit(f"bench/peers.py needs bubblewrap, rocm-smi and librocm-smi64-1 (missing: {' '.join(missing)})")
    import dtk.sim

    with tempfile.TemporaryDirectory(prefix="dtk-") as directory:
        root, rocm = Path(directory) / "root", Path(directory) / "rocm"
        dtk.sim.write(root, cards=["mi210:8"])
        (rocm / "lib").mkdir(parents=True)
        (rocm / "lib/librocm_smi64.so").symlink_to(LIBRARY)
        sandbox = ["bwrap", "--dev-bind", "/", "/", "--bind", str(root / "sys"), "/sys", "--"]
        environment = {**os.environ, "DTK_BENCH_INSIDE": "1", "ROCM_PATH": str(rocm)}
        subprocess.run([*sandbox, sys.executable, __file__], env=environment, check=True)
        partitions(Path(directory))
        for left in Path("/dev/shm").glob("rocm_smi_card*"):
            left.unlink()


if __name__ == "__main__":
    main()
