"""Keeps a simulated machine alive in a directory: a tick each interval, with its faults and what was written to it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .card import card_readings, device_path
from .clock import Clock
from .faults import CARD_KINDS, KINDS, TREE_KINDS, FaultFile, matches, parse, patterns, set_faults
from .files import Denied, Entry, Files
from .machine import Card, Machine, draw
from .processes import process_files
from .tree import create, layout, readings, refresh, settable

_GARBAGE = (b"", b"garbage\n", b"-\n", b"12three\n", b"\xff\xfe\x00\n", b"99999999999999999999999999\n")


class Simulator:
    """A machine that lives in `root`. `machine` comes from `assemble`; `step` is a tick in seconds of its time."""

    def __init__(self, root: Path, machine: Machine, step: float = 1.0, faults: Sequence[str] = ()) -> None:
        self.clock = Clock(machine, step)
        self._root = root
        cards = [device_path(card) for card in sorted(machine.cards, key=lambda card: card.bdf)]
        self._present: list[tuple[str, tuple[int, ...]]] = []
        self._still: Files = {}
        self._settable: list[tuple[Card, str]] = []
        for spec in faults:
            patterns(parse(spec), cards)
        self._files = self._tree()
        create(root, self.clock.machine)
        set_faults(root, faults)
        self._faults = FaultFile(root, cards, KINDS)

    def advance(self) -> None:
        """One tick on. Faults and writes of the last one take effect."""
        self._obey()
        active = self._faults.active((self.clock.tick + 1) * self.clock.step)
        effects: dict[str, dict[str, str | None]] = {}
        for fault, wanted in active:
            if fault.kind in CARD_KINDS:
                effects.setdefault(wanted[0].rpartition("/")[2], {})[fault.kind] = fault.argument
        self.clock.advance(effects)
        after = self._tree()
        for fault, wanted in active:
            if fault.kind in TREE_KINDS:
                for path in [path for path in after if matches(path, wanted)]:
                    after[path] = _spoilt(fault.kind, path, after[path])
        refresh(self._root, self._files, after)
        self._files = after

    def _tree(self) -> Files:
        """As `tree.tree`; what stands still is made again only when a card came or went."""
        machine = self.clock.machine
        present = [(card.bdf, card.kfd_node) for card in machine.cards]
        if self._present != present:
            self._present, self._still = present, layout(machine)
            self._settable = [
                (card, path) for card in machine.cards for path in card_readings(machine, card) if settable(path)
            ]
        return self._still | readings(machine) | process_files(machine)

    def _obey(self) -> None:
        """Take what was written to the cards' settings; what they do not understand is put back by the next tick."""
        for card, path in self._settable:
            entry = self._files[path]
            with contextlib.suppress(OSError):
                found = (self._root / path).read_bytes()
                if isinstance(entry, bytes) and found != entry:
                    self._files[path] = found
                    self._set(card.bdf, path.rpartition("/")[2], found.strip())

    def _set(self, bdf: str, name: str, text: bytes) -> None:
        if name == "power1_cap" and text.isdigit():
            self.clock.set_power_cap(bdf, int(text) // 1000000)
        elif name == "power_dpm_force_performance_level":
            self.clock.set_performance_level(bdf, text.decode(errors="replace"))


def _spoilt(kind: str, path: str, entry: Entry) -> Entry:
    if not isinstance(entry, bytes):
        return entry
    if kind == "denied":
        return Denied(entry)
    if kind == "truncated":
        return entry[: len(entry) // 2]
    return _GARBAGE[int(len(_GARBAGE) * draw(path, "garbage"))]


def keep_alive(simulator: Simulator, interval: float, stop: threading.Event) -> None:
    """A tick each `interval` seconds until `stop` is set; a tick that comes late is not made up for."""
    due = time.monotonic() + interval
    while not stop.wait(max(0.0, due - time.monotonic())):
        simulator.advance()
        due = max(due + interval, time.monotonic())
