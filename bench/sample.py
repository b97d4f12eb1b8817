"""What a sample costs: files opened a card, and time as a ratio to a bare C loop over the same files.

Runs on simulated machines, so that everybody can. Compare the ratios, not the microseconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import dtk.build
import dtk.sim

HERE = Path(__file__).parent
MACHINES = {"8 MI210": ["mi210:8"], "8 K100_AI": ["k100_ai:8"], "8 MI300X in CPX (64 partitions)": ["mi300x-cpx:8"]}
OPENED = re.compile(r'open(?:at|at2)\((?:AT_FDCWD|\d+)(?:<([^>]*)>)?, "([^"]*)".* = (-?\d+)')

# Samples twice: what the second one opens is the steady cost.
SAMPLER = """
import sys, dtk
devices = dtk.System(sys.argv[1]).devices()
for device in devices: device.sample()
open("/dev/null").close()
for device in devices: device.sample(static=False)
"""


def opened_files(root: Path) -> list[str]:
    """Paths of the files below sys/ that one fast sample of every device opens."""
    command = [
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=openat,openat2",
        "-o",
        "/dev/stdout",
        sys.executable,
        "-I",
        "-c",
        SAMPLER,
    ]
    trace = subprocess.run([*command, str(root)], capture_output=True, text=True, check=True).stdout
    steady = trace.rsplit('"/dev/null"', 1)[1]
    paths = []
    for directory, name, result in OPENED.findall(steady):
        path = f"{directory}/{name}" if directory and not name.startswith("/") else name
        if path.startswith(f"{root}/sys/"):
            assert int(result) >= 0, f"opened a file that is not there: {path}"
            paths.append(path)
    return paths


def main() -> None:
    """Print a line for each machine."""
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        program = work / "sample"
        flags = f"{dtk.build.cflags()} {dtk.build.libs()}".split()
        subprocess.run(["cc", "-O2", HERE / "sample.c", *flags, "-o", program], check=True)
        print(f"{'machine':<34} {'opens/card':>10} {'sample us':>10} {'bare us':>10} {'ratio':>6}")
        for number, (name, cards) in enumerate(MACHINES.items()):
            root = work / f"machine{number}"
            dtk.sim.write(root, cards=cards)
            paths = opened_files(root)
            (work / "files").write_text("".join(f"{path}\n" for path in paths if Path(path).is_file()))
            result = subprocess.run([program, root, work / "files"], capture_output=True, text=True, check=True)
            sample, bare, ratio = result.stdout.split()
            devices = len(dtk.System(str(root)).devices())
            print(f"{name:<34} {len(paths) / devices:>10.1f} {sample:>10} {bare:>10} {ratio:>6}")


if __name__ == "__main__":
    main()
