"""Libraries that stand in for the vendors' librocm_smi64, one an ABI generation, and dtk-smi run with one of them.

What a stand-in answers is in tests/standin/readings.def: base + step * device, see `expected`. What it does besides is
in a control file, which it reads at each call, so that a test may change its mind while a program runs:

    device BDF                            the next device; 0000:43:00.0/2 is partition 2
    value READING DEVICE NUMBER           instead of the table's, in the library's unit
    version 1.0.0                         what rsmi_version_get says instead of the generation's
    process PID DEVICE VRAM UNITS USE     bytes, compute units, percent; one line for each device of a process
    log FILE                              Standin.calls() reads it

    status CALL DEVICE NUMBER             the call fails with this rsmi_status_t
    sleep CALL DEVICE MILLISECONDS        the call takes so much longer
    hang CALL DEVICE                      until the line is gone
    abort CALL DEVICE
    throw CALL DEVICE                     a C++ exception
    exit CALL DEVICE CODE
    print CALL DEVICE TEXT                on stdout and on stderr
    flood CALL DEVICE                     4 MiB on stdout and on stderr

CALL is a function's name; "*" stands for all of READING, CALL or DEVICE, and is the DEVICE of a call that has none.
Of several lines that fit the last one counts. Statuses go before INIT_ERROR and INVALID_ARGS; several behaviours of one
call come in the order print, flood, sleep, hang, abort, exit, throw, status.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
import rig
from smi import SMI, environment

import dtk

SOURCE = Path(__file__).parent / "standin"
# Each generation, and what dtk calls it.
ABI = {"AMD5": "amd-5", "AMD6": "amd-6", "AMD7": "amd-7", "HYGON62": "hygon-6.2", "HYGON63": "hygon-6.3"}
GENERATIONS = tuple(ABI)

# What to multiply the library's number by, and to divide it by, for what it is in dtk's unit, where the units differ.
SCALES = {
    "millipercent": (1, 1000),
    "millicelsius": (1, 1000),
    "microwatt": (1, 1000000),
    "hertz": (1, 1000000),
    "transfers": (1, 1000000000),
    "of_255": (100, 255),
}


class Reading(NamedTuple):
    """A row of readings.def."""

    unit: str
    base: int
    step: int


READINGS = {
    name: Reading(unit, int(base, 0), int(step, 0))
    for name, unit, base, step in re.findall(
        r"^READING\((\w+), (\w+), (\w+), (\w+)\)", (SOURCE / "readings.def").read_text(), re.MULTILINE
    )
}


FUNCTIONS = set(re.findall(r"\brsmi_\w+", "".join(path.read_text() for path in SOURCE.glob("*.c"))))
BEHAVIOURS = ("status", "sleep", "hang", "abort", "throw", "exit", "print", "flood")


def raw(device: int, reading: str) -> int:
    """What the library says of its device number `device`, in its own unit."""
    _, base, step = READINGS[reading]
    return base + step * device


def expected(device: int, reading: str) -> float:
    """The same in dtk's unit: °C, W, MHz, percent, GT/s, and what needs no other as it is."""
    number = raw(device, reading)
    if READINGS[reading].unit not in SCALES:
        return number
    factor, divisor = SCALES[READINGS[reading].unit]
    return number * factor / divisor


def errors(device: int, severity: str) -> int:
    """The sum over all blocks of the "correctable", "uncorrectable" or "deferred" errors."""
    return sum(raw(device, f"{block}_{severity}") for block in ("umc", "sdma", "gfx"))


@functools.cache
def _directory() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="dtk-standin-")
    atexit.register(directory.cleanup)
    return Path(directory.name)


@functools.cache
def build(generation: str, without: tuple[str, ...] = ()) -> Path:
    """The library of a generation, without some of its functions; built once a run."""
    for need in ("cc", "g++"):
        if not shutil.which(need):
            pytest.skip(f"needs {need}")
    directory = Path(tempfile.mkdtemp(prefix=f"{generation}-", dir=_directory()))
    # Without builtins, so that a caller built with ASan sees what memset writes to it.
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-fexceptions", "-fno-builtin"]
    flags.append(f"-DGENERATION={generation}")
    for source in SOURCE.glob("*.c"):
        _run("cc", "-std=gnu11", *flags, "-c", str(source), "-o", str(directory / f"{source.stem}.o"))
    exports = directory / "exports.map"
    exports.write_text(f"{{ global: rsmi_*; local: {''.join(f'{name}; ' for name in without)}*; }};\n")
    library = directory / "librocm_smi64.so"
    objects = map(str, directory.glob("*.o"))
    _run(
        "g++", *flags, "-shared", f"-Wl,--version-script={exports}", *objects, f"{SOURCE}/throw.cc", "-o", str(library)
    )
    return library


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Call(NamedTuple):
    """A line of the log. device: None for a call that has none. argument: flags, sensor, duration, kind … or 0."""

    name: str
    device: int | None
    thread: int
    argument: int


def _check(line: str) -> None:
    """Raise for a line that the library would pass over."""
    key, *fields = line.split()
    if key in ("device", "version", "process", "log"):
        return
    subjects = READINGS if key == "value" else FUNCTIONS if key in BEHAVIOURS else ()
    if len(fields) < 2 or (fields[0] != "*" and fields[0] not in subjects) or not subjects:
        raise ValueError(f"no line of a control file: {line}")


@dataclass
class Standin:
    """A library with the control file of one test."""

    library: Path
    control: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log.touch()
        self.say(f"log {self._log}")

    def say(self, *lines: str) -> None:
        """Add lines to the control file, in one step."""
        for line in lines:
            _check(line)
        self.lines += lines
        self._write()

    def unsay(self, *lines: str) -> None:
        """Take lines out of the control file, in one step."""
        for line in lines:
            self.lines.remove(line)
        self._write()

    def _write(self) -> None:
        new = self.control.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self.lines))
        new.replace(self.control)

    @property
    def _log(self) -> Path:
        return self.control.with_suffix(".log")

    @property
    def env(self) -> dict[str, str]:
        """What a program needs in its environment to load this library."""
        return {"DTK_SMI_ROCM_SMI_LIB": str(self.library), "DTK_STANDIN": str(self.control)}

    def calls(self, name: str | None = None) -> list[Call]:
        """The calls so far, or those of one function."""
        calls = []
        for line in self._log.read_text().splitlines():
            call, device, thread, argument = line.split()
            if name in (None, call):
                calls.append(Call(call, None if device == "-1" else int(device), int(thread), int(argument)))
        return calls


def make(
    directory: Path, generation: str, devices: Sequence[str], *lines: str, without: tuple[str, ...] = ()
) -> Standin:
    """A stand-in whose devices are the cards with these BDFs, in this order; `lines` are for its control file."""
    standin = Standin(build(generation, without), directory / "standin.control")
    standin.say(*(f"device {bdf}" for bdf in devices), *lines)
    return standin


def for_machine(directory: Path, generation: str, root: Path, *lines: str, without: tuple[str, ...] = ()) -> Standin:
    """A stand-in that knows the cards of the machine below `root`, by BDF and unique id."""
    with dtk.System(root) as system:
        cards = [(card.bdf, card.unique_id) for card in system.cards()]
    bdfs = [bdf for bdf, _ in cards]
    ids = [f"value unique_id {index} {unique}" for index, (_, unique) in enumerate(cards) if unique is not None]
    return make(directory, generation, bdfs, *ids, *lines, without=without)


def smi(root: Path, standin: Standin, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run dtk-smi where `root`/sys is /sys and the vendors' library is the stand-in."""
    return rig.run(root, [SMI, *arguments], environment(**{**standin.env, **variables}))
