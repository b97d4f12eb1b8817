"""Faults of a simulated machine: what goes wrong, where and when.

A fault is a text, KIND[:ARGUMENT][@START[-END]]=TARGET:

    lost@10-25=0                    card 0 falls off the bus 10 s after the start and is back at 25 s
    hang=2                          what asks card 2's hardware does not come back
    eio=0000:43:00.0/hwmon/temp*    a card by its address, and files of its device directory; * stands for anything
    denied=sys/module/*/version     files by their path below the root
    clamp:250000000=1/hwmon/power1_cap

A card is an index in the order of PCI addresses, or an address. A machine's faults stand in the file FAULTS of its
root, one a line. Whoever keeps the machine alive or mounted reads it again when it is replaced: writing is the command.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidArgument

FAULTS = ".dtk-faults"

# What a mount does to reads and writes; a plain file cannot.
MOUNT_KINDS: Mapping[str, str] = {
    "hang": "a read does not come back, and cannot be killed, until the fault is cleared",
    "eio": "a read fails with EIO",
    "enodev": "a read fails with ENODEV",
    "eacces": "opening fails with EACCES, for root too",
    "refuse": "a write fails with EINVAL",
    "clamp": "a write of a number above the argument is taken as the argument",
}
# What a running simulator does to files, and to cards.
TREE_KINDS: Mapping[str, str] = {
    "denied": "files lose every permission (a mount refuses them to root as well)",
    "garbage": "files hold no value",
    "truncated": "a file, gpu_metrics unless another is named, ends in its middle",
}
CARD_KINDS: Mapping[str, str] = {
    "lost": "the card is gone from PCI, DRM and KFD",
    "throttle": "the card is not cooled: it heats up and holds itself back (argument: bits in place of ppt0)",
    "ecc": "memory errors are counted each tick (argument: correctable, uncorrectable or deferred)",
    "suspended": "the card is in runtime suspend",
}
KINDS: Mapping[str, str] = {**MOUNT_KINDS, **TREE_KINDS, **CARD_KINDS}

# What a driver answers by asking the card. The rest it knows, or the PCI core does.
_ASKS_THE_CARD = (
    "*_busy_percent",
    "gpu_metrics",
    "pp_dpm_*",
    "pcie_replay_count",
    "hwmon/*_input",
    "hwmon/power1_average",
    "hwmon/pwm1",
    "ras/*_err_count",
)
_SETTABLE = ("power_dpm_force_performance_level", "pp_dpm_*", "hwmon/power1_cap", "hwmon/pwm1*")
_DEFAULT_FILES = {"refuse": _SETTABLE, "clamp": _SETTABLE, "truncated": ("gpu_metrics",)}

_SPEC = re.compile(
    r"(?P<kind>\w+)(?::(?P<argument>[^@=]+))?(?:@(?P<start>\d+(\.\d+)?)(?:-(?P<end>\d+(\.\d+)?))?)?=(?P<target>[^\s=]+)",
    re.ASCII,
)
_CARD = re.compile(r"(?P<card>\d+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/(?P<file>.+))?", re.ASCII)


@dataclass(frozen=True)
class Fault:
    """One fault. `card` is an index or an address and `file` a pattern below its device, else one below the root."""

    kind: str
    argument: str | None
    start: float
    end: float
    card: str | None
    file: str | None

    def active(self, elapsed: float) -> bool:
        """Whether it is in force `elapsed` seconds after the start."""
        return self.start <= elapsed < self.end


def parse(spec: str) -> Fault:
    """The fault that a text means. Raises InvalidArgument with what is wrong."""
    found = _SPEC.fullmatch(spec)
    if not found:
        raise InvalidArgument(
            f"{spec!r} is no fault; one is KIND[:ARGUMENT][@START[-END]]=CARD[/FILE], such as lost@10=0"
        )
    kind, argument = found["kind"], found["argument"]
    if kind not in KINDS:
        raise InvalidArgument(f"{spec!r}: no fault {kind!r}; there are {', '.join(KINDS)}")
    problem = _argument_problem(kind, argument)
    if problem:
        raise InvalidArgument(f"{spec!r}: {problem}")
    start, end = float(found["start"] or 0), float(found["end"] or "inf")
    target = _CARD.fullmatch(found["target"])
    if target and target["file"] and kind in CARD_KINDS:
        raise InvalidArgument(f"{spec!r}: {kind} is of a card, not of a file")
    if target:
        return Fault(kind, argument, start, end, target["card"], target["file"])
    if kind in CARD_KINDS or not found["target"].startswith(("sys/", "proc/")):
        raise InvalidArgument(f"{spec!r}: a card is an index or an address, and a path begins with sys/")
    return Fault(kind, argument, start, end, None, found["target"])


def _argument_problem(kind: str, argument: str | None) -> str | None:
    if kind == "clamp" and not re.fullmatch(r"\d+", argument or "", re.ASCII):
        return "say the most that is taken, such as clamp:250000000=0/hwmon/power1_cap"
    if argument and kind == "ecc" and argument not in ("correctable", "uncorrectable", "deferred"):
        return "errors are correctable, uncorrectable or deferred"
    if argument and kind == "throttle" and not re.fullmatch(r"\d+", argument, re.ASCII):
        return "the bits are a decimal number"
    if argument and kind not in ("clamp", "ecc", "throttle"):
        return f"{kind} takes no argument"
    return None


def _card_of(fault: Fault, directories: Sequence[str]) -> str:
    """The device directory of the card that a fault means; `directories` are those of all cards, by index."""
    wanted = fault.card or ""
    if wanted.isdigit():
        chosen = directories[int(wanted) : int(wanted) + 1]
    else:
        chosen = [path for path in directories if path.endswith(f"/{wanted}")]
    if not chosen:
        raise InvalidArgument(f"a fault of card {wanted}, but the machine has {len(directories)} cards")
    return chosen[0]


def patterns(fault: Fault, directories: Sequence[str]) -> list[str]:
    """The patterns of paths below the root that a fault means; of a card's fault its device directory alone."""
    if fault.card is None:
        return [fault.file or "*"]
    card = _card_of(fault, directories)
    if fault.kind in CARD_KINDS:
        return [card]
    files: Iterable[str] = _DEFAULT_FILES.get(fault.kind, _ASKS_THE_CARD)
    if fault.file:
        files = (fault.file,)
    return [f"{card}/{re.sub('^hwmon/(?!hwmon)', 'hwmon/hwmon*/', file)}" for file in files]


def matches(path: str, wanted: Sequence[str]) -> bool:
    """Whether a path below the root is one of those that patterns mean."""
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in wanted)


def card_directories(root: Path) -> list[str]:
    """The device directories of a tree's cards, in the order of their addresses, as paths below the root."""
    found = {
        link.name: os.path.relpath(os.path.realpath(link), os.path.realpath(root))
        for driver in ("amdgpu", "hydcu", "hycu")
        for link in (root / "sys/bus/pci/drivers" / driver).glob("*:*")
    }
    return [found[address] for address in sorted(found)]


def read_faults(root: Path) -> list[Fault]:
    """The faults that stand in a root. Raises InvalidArgument with the line that is none."""
    try:
        text = (root / FAULTS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    rows = (row.strip() for row in text.splitlines())
    return [parse(row) for row in rows if row and not row.startswith("#")]


class FaultFile:
    """The faults of some kinds that stand in a root, read again when their file is another one or changed.

    cards: the directories of all cards, lost ones too, so that an index means the same card for good.
    """

    def __init__(self, root: Path, cards: Sequence[str], kinds: Container[str]) -> None:
        self._root = root
        self._cards = cards
        self._kinds = kinds
        self._version: tuple[int, ...] = ()
        self._faults: list[tuple[Fault, list[str]]] = []

    def active(self, elapsed: float) -> list[tuple[Fault, list[str]]]:
        """Those in force `elapsed` seconds after the start, with the patterns of the paths they mean."""
        self._update()
        return [(fault, wanted) for fault, wanted in self._faults if fault.active(elapsed)]

    def _update(self) -> None:
        """What makes no sense is said once, and changes nothing."""
        try:
            now = os.stat(self._root / FAULTS)
            version: tuple[int, ...] = (now.st_ino, now.st_mtime_ns, now.st_size)
        except FileNotFoundError:
            version = ()
        if version == self._version:
            return
        self._version = version
        try:
            faults = [fault for fault in read_faults(self._root) if fault.kind in self._kinds]
            self._faults = [(fault, patterns(fault, self._cards)) for fault in faults]
        except InvalidArgument as error:
            print(f"{self._root / FAULTS}: {error}", file=sys.stderr, flush=True)


def set_faults(root: str | os.PathLike[str], specs: Iterable[str]) -> None:
    """Put these faults in force in a simulated root, and no others. Raises InvalidArgument and then changes nothing."""
    specs = list(specs)
    for spec in specs:
        parse(spec)
    new = Path(root) / f"{FAULTS}.new"
    new.write_text("".join(f"{spec}\n" for spec in specs), encoding="utf-8")
    new.replace(Path(root) / FAULTS)
