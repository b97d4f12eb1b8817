"""Looks at the machine, for every view: one, or one every so many seconds. All of them read through dtk-reader, which a
card that hangs cannot keep from ending.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import dtk
from dtk_cli.exit import PRECEDENCE, Exit
from dtk_cli.output import write
from dtk_cli.text import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class Tiers(TypedDict, total=False):
        """What to read."""

        static: bool
        fast: bool
        slow: bool
        processes: bool | str
        library_metrics: Sequence[str] | None
        virtual: bool | str


Show = Callable[[dtk.Snapshot, "int | None"], str]


def take(args: argparse.Namespace, **tiers: Unpack[Tiers]) -> dtk.Snapshot:
    """One look at the devices that the options ask for."""
    if not (tiers.get("static", True) or tiers.get("fast", True) or tiers.get("slow")):
        tiers["static"] = True  # the reader wants something to read
    return dtk.take_snapshot(args.root, devices=args.keys, deadline=args.deadline, **tiers)


def is_loop(args: argparse.Namespace) -> bool:
    """--loop or --count was given."""
    return args.loop is not None or args.count is not None


def each(args: argparse.Namespace, show: Show, *, says_simulated: bool = False, **tiers: Unpack[Tiers]) -> Exit:
    """Print what `show` makes of one look, or of one every --loop seconds.

    It is given the number of the turn, None outside a loop. Warnings are told once, and that the machine is made up,
    unless the output says so.
    """
    told: set[str] = set()
    code = Exit.OK
    for turn, snapshot in _looks(args, tiers):
        code = min(code, verdict(snapshot, told=told), key=_rank)
        if not says_simulated and not turn:
            mention(snapshot)
        write(show(snapshot, turn))
        warn(snapshot, told)
        if not snapshot.devices:
            break
    return code


def _looks(args: argparse.Namespace, tiers: Tiers) -> Iterator[tuple[int | None, dtk.Snapshot]]:
    if not is_loop(args):
        yield None, take(args, **tiers)
        return
    interval = args.loop or 1.0
    with dtk.Monitor(
        args.root,
        devices=args.keys,
        interval=interval,
        deadline=args.deadline,
        slow=tiers.get("slow", False),
        slow_interval=max(5.0, interval),
        processes=tiers.get("processes", False),
        library_metrics=tiers.get("library_metrics"),
    ) as monitor:
        for turn, snapshot in enumerate(monitor):
            yield turn, snapshot
            if turn + 1 == args.count:
                return


def warn(snapshot: dtk.Snapshot, told: set[str]) -> None:
    """Tell stderr the warnings of a look that are not in `told` by now."""
    for _, text in snapshot.warnings:
        if text not in told:
            complain(f"warning: {text}")
            told.add(text)


def verdict(snapshot: dtk.Snapshot, notes: list[tuple[str, str]] | None = None, told: set[str] | None = None) -> Exit:
    """The exit status of a look: the library that was asked for does not serve, there is no device, a card is late, or
    all is well.

    stderr is told why, but for what is in `told` by now; a note of it is added to `notes`.
    """
    library = snapshot.library
    if snapshot.backend == "rsmi" and library and library.status not in ("ok", "stale"):
        code, kind = Exit.LIBRARY, ""  # a warning of the snapshot is the note
        lines = [text for about, text in snapshot.warnings if about.startswith("library_")]
    elif not snapshot.devices:
        from dtk_cli import no_cards

        code, lines = no_cards.explain(snapshot)
        kind = code.name.lower()
    elif snapshot.stale:
        late = dict.fromkeys(reading.bdf for reading in snapshot.stale)
        code, lines, kind = Exit.DEADLINE, [f"no answer by the deadline: {', '.join(late)}"], "stale"
    elif any(kind in ("processes_stale", "library_stale", "virtual_stale") for kind, _ in snapshot.warnings):
        return Exit.DEADLINE  # the warning says why
    else:
        return Exit.OK
    if told is None or lines[0] not in told:
        complain(*lines)
    if told is not None:
        told.add(lines[0])
    if notes is not None and kind:
        notes.append((kind, lines[0]))
    return code


def _rank(code: Exit) -> int:
    return PRECEDENCE.index(code) if code in PRECEDENCE else len(PRECEDENCE)


def group(snapshot: dtk.Snapshot) -> list[tuple[dtk.Reading, list[dtk.Reading]]]:
    """The cards, each with those of its partitions that were asked for; a whole card has none, it is the device."""
    return [
        (card, [device for device in snapshot.devices if device.is_partition and device.card_index == card.card_index])
        for card in snapshot.cards
    ]


def mention(snapshot: dtk.Snapshot) -> None:
    """Tell stderr what stdout does not say of itself: that the machine is made up."""
    if snapshot.system.simulated:
        complain(f"SIMULATED machine below {snapshot.root}")
