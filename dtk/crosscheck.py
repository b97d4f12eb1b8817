"""Crosscheck: each reading from the kernel's files and from the vendor's library, side by side.

The library is the independent witness: where the two agree on a card, so do our units, fields and sensors.
"""

from __future__ import annotations

import os

from . import metrics
from ._native import lib
from ._record import Record
from .errors import from_status
from .library import VendorLibrary
from .snapshot import Snapshot
from .take import take_snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .metrics import Metric
    from .sample import Sample, Value

__all__ = ["Comparison", "Crosscheck", "crosscheck"]

# How far two readings of what changes may lie apart, by unit: a part of the value, and an amount. They are not taken at
# one moment, and a card's own sensors flutter that much. Sizes and limits must be equal, counters must count.
TOLERANCES = {
    "%": (0.0, 10.0),
    "B": (0.01, 64.0 * 2**20),
    "C": (0.0, 3.0),
    "W": (0.1, 5.0),
    "J": (0.001, 1.0),
    "MHz": (0.1, 50.0),
    "mV": (0.1, 20.0),
    "rpm": (0.1, 50.0),
    "GT/s": (0.0, 0.0),
    "": (0.0, 0.0),
}

# What is known to differ, and why.
NOTES = {
    "energy": "the library says 15.3 µJ a count; counted with the card's 2^-16 J, as the files are",
    "utilization_gpu": "the driver averages over up to 1 s",
    "clock_gfx": "the files have the clock, the library the level it belongs to",
    "clock_memory": "the files have the clock, the library the level it belongs to",
}
PCIE = (
    "pcie_throughput",
    "not compared: the file pcie_bw takes 1 s a read; AMD's library gives what was sent as received and the reverse",
)


UNASKED = VendorLibrary("not_found", None, None, None, None, None, None, "there was no card to ask it about", None)


class Comparison(Record):
    """One reading of one card, twice. agree: None where one of the two has no value; …_reason says why. note: what is
    known of a difference, or why there is nothing to compare, in words; None where there is nothing to say.
    """

    uuid: str
    metric: str
    unit: str
    kernel: Value
    rsmi: Value
    agree: bool | None
    note: str | None
    kernel_reason: str | None
    rsmi_reason: str | None


class Crosscheck(Record):
    """All comparisons of a machine. library: what became of the one that was asked, in the fast tier. warnings: (code,
    text) of what is to be said of it: "library_failed", "library_aborted", "library_stale" where readings could not be
    compared, "library_other" where another was taken than the one that was named. kernel: the snapshot of the files.
    stale: PCI addresses of the cards that did not answer by the deadline in one of the looks.
    """

    rows: tuple[Comparison, ...]
    library: VendorLibrary
    kernel: Snapshot
    warnings: tuple[tuple[str, str], ...]
    stale: tuple[str, ...]

    @property
    def differ(self) -> tuple[Comparison, ...]:
        """Those that do not agree."""
        return tuple(row for row in self.rows if row.agree is False)

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why readings could not be compared, in words; empty when all that are awake were."""
        compared = {row.uuid for row in self.rows if row.agree is not None}
        return (
            *(text for code, text in self.warnings if code != "library_other"),
            *(f"{bdf}: no answer by the deadline" for bdf in self.stale),
            *(
                f"{card.bdf}: the library gave nothing to compare"
                for card in self.kernel.cards
                if card.state == "ok" and card.uuid not in compared
            ),
        )


def crosscheck(
    root: str | os.PathLike[str] | None = None,
    *,
    devices: Sequence[str | int] | None = None,
    deadline: float = 1.0,
) -> Crosscheck:
    """Read the cards from the files, from the library, and from the files again; a reading of the library agrees with
    what lies between. The slow tier is asked by itself, since libraries crash there (of AMD's 5.2, on a row "de:" of an
    error file). Takes up to six times `deadline`.

    Where the library does not serve, nothing agrees and nothing differs: Crosscheck.library says why. Raises as
    take_snapshot() does, NotSupported when the root is not "/" among it.
    """
    first = _look(root, devices, deadline, "kernel")
    if not first[0].devices:
        return Crosscheck((), UNASKED, first[0], (), ())
    if not first[0].system.live:
        raise from_status(
            lib.DTK_UNSUPPORTED,
            "crosscheck",
            first[0].root,
            "run it on the node itself",
            "the vendor's library reads this machine only",
        )
    looks = [first, _look(root, devices, deadline, "rsmi"), _look(root, devices, deadline, "kernel")]
    rows = [row for tier in range(2) for row in _compare(*(look[tier] for look in looks))]
    order = {metric.name: metric.number for metric in metrics.all()}
    rows.sort(key=lambda row: (row.uuid, order.get(row.metric, len(order))))
    warnings = dict.fromkeys(
        warning for snapshot in looks[1] for warning in snapshot.warnings if warning[0].startswith("library_")
    )
    late = dict.fromkeys(reading.bdf for look in looks for snapshot in look for reading in snapshot.stale)
    return Crosscheck(tuple(rows), looks[1][0].library or UNASKED, first[0], tuple(warnings), tuple(late))


def _look(
    root: str | os.PathLike[str] | None, devices: Sequence[str | int] | None, deadline: float, backend: str
) -> tuple[Snapshot, Snapshot]:
    """The static and fast tiers, and the slow one by itself."""
    fast = take_snapshot(root, devices=devices, deadline=deadline, backend=backend)
    slow = take_snapshot(root, devices=devices, deadline=deadline, backend=backend, static=False, fast=False, slow=True)
    return fast, slow


def _compare(before: Snapshot, library: Snapshot, after: Snapshot) -> Iterator[Comparison]:
    """What one tier or two of each card gave."""
    witnesses = {reading.uuid: reading.sample for reading in library.cards}
    later = {reading.uuid: reading.sample for reading in after.cards}
    for card in before.cards:
        first, witness = card.sample, witnesses.get(card.uuid)
        last = later.get(card.uuid, first)
        if witness is None:
            continue
        for name in first:
            metric = metrics.get(name)
            if any(source.startswith("rsmi_") for source in metric.sources):
                yield _row(card.uuid, metric, first, last, witness)
        if "power_draw" in first:
            yield Comparison(card.uuid, PCIE[0], "", None, None, None, PCIE[1], None, None)


def _row(uuid: str, metric: Metric, first: Sample, last: Sample, witness: Sample) -> Comparison:
    name = metric.name
    kernel, rsmi = first[name], witness[name]
    agree, note = None, NOTES.get(name)
    if kernel is None or rsmi is None:
        note = _why(name, first, witness)
    else:
        agree = agrees(metric, kernel, rsmi, last[name])
    return Comparison(uuid, name, metric.unit, kernel, rsmi, agree, note, first.reason(name), witness.reason(name))


def agrees(metric: Metric, first: Value, witness: Value, last: Value) -> bool:
    """A reading of the library lies between two of the files, as far as its kind allows."""
    if not all(isinstance(value, int | float) for value in (first, witness)):
        return first == witness
    low, high = sorted((_number(first), _number(first if last is None else last)))
    if metric.tier == "static":
        return low <= _number(witness) <= high
    part, amount = TOLERANCES.get(metric.unit, (0.0, 0.0))
    if metric.kind == "counter" and metric.unit == "":
        part, amount = 0.0, 0.0
    slack = max(amount, part * abs(high))
    return low - slack <= _number(witness) <= high + slack


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _why(name: str, kernel: Sample, witness: Sample) -> str:
    """Why there is nothing to compare."""
    words = []
    for label, sample in (("files", kernel), ("library", witness)):
        if reason := sample.reason(name):
            detail = sample.detail(name)
            words.append(f"{label}: {reason}{f' ({detail})' if detail else ''}")
    return "; ".join(words)
