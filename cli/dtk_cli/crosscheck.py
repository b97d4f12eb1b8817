"""`dtk-smi doctor --crosscheck`: each reading from the files and from the vendor's library, side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from textwrap import wrap

import dtk
from dtk import crosscheck
from dtk_cli.cells import GIB
from dtk_cli.exit import Exit, Stop
from dtk_cli.grid import Cell, Column, render
from dtk_cli.look import mention, verdict
from dtk_cli.output import page, write
from dtk_cli.text import BOLD, DIM, GREEN, RED, YELLOW, Screen, complain, rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dtk.sample import Value

SCHEMA = "dtk-crosscheck/1"
AGREE: dict[bool | None, Cell] = {True: ("yes", GREEN), False: ("NO", RED), None: ("-", DIM)}


def run(args: argparse.Namespace) -> Exit:
    """Compare, print, and say whether all agree."""
    first = dtk.take_snapshot(args.root, devices=args.keys, deadline=args.deadline, backend="kernel", fast=False)
    if not first.devices:
        return verdict(first)
    if not first.system.live:
        raise Stop(
            Exit.NOT_SUPPORTED,
            f"crosscheck: {first.root}: the vendor's library reads this machine only",
            "run it on the node itself, without --root and --demo",
        )
    result = crosscheck.crosscheck(args.root, devices=args.keys, deadline=args.deadline)
    if args.json:
        write(json.dumps(document(result), indent=2, allow_nan=False) + "\n")
    else:
        screen = Screen(sys.stdout)
        write(page(list(_lines(result, screen)), screen, None))
    mention(result.kernel)
    for _, text in result.warnings:
        complain(f"warning: {text}")
    if result.library.status != "ok":
        return Exit.DEADLINE if result.library.status == "stale" else Exit.LIBRARY
    return Exit.PARTIAL if result.differ or result.warnings else Exit.OK


def document(result: crosscheck.Crosscheck) -> dict[str, Any]:
    """What a user with a card sends us."""
    kernel = result.kernel
    return {
        "schema": SCHEMA,
        "timestamp": rfc3339(kernel.timestamp),
        "dtk": dtk.__version__,
        "simulated": kernel.system.simulated,
        "driver": dict(kernel.system.drivers),
        "library": result.library._asdict(),
        "cards": [
            {"uuid": card.uuid, "bdf": card.bdf, "name": card.name, "arch": card.arch, "driver": card.driver}
            for card in kernel.cards
        ],
        "crosscheck": [row._asdict() for row in result.rows],
        "warnings": [{"code": code, "text": text} for code, text in result.warnings],
    }


def _lines(result: crosscheck.Crosscheck, screen: Screen) -> Iterator[str]:
    compared = [row for row in result.rows if row.agree is not None]
    cards = {row.uuid for row in result.rows}
    differ = len(result.differ)
    verdict = f"{differ} readings differ" if differ else "all readings agree"
    yield screen.style(verdict, RED if differ else GREEN) + f": {len(compared)} of {len(cards)} cards compared"
    library = result.library
    facts = (library.path, library.version, library.abi)
    yield "library: " + "  ".join(screen.text(fact) for fact in facts if fact)
    for card in result.kernel.cards:
        rows = [row for row in result.rows if row.uuid == card.uuid]
        yield ""
        yield screen.style(f"card {card.card_index}: {screen.text(card.name)}, {card.bdf}", BOLD)
        yield from _card(rows, screen)
    notes = {row.metric: row.note for row in result.rows if row.note and row.agree is not None}
    for metric, note in notes.items():
        yield ""
        yield from wrap(f"{metric}: {note}", screen.columns)


def _card(rows: list[crosscheck.Comparison], screen: Screen) -> Iterator[str]:
    shown = [row for row in rows if row.kernel is not None or row.rsmi is not None]
    cells = [
        [(f"  {row.metric}", ""), _value(row, row.kernel), _value(row, row.rsmi), AGREE[row.agree], _note(row, screen)]
        for row in shown
    ]
    columns = [Column("  reading"), Column("files", ">"), Column("library", ">"), Column("agree"), Column("", least=4)]
    yield from render(columns, cells, screen)[0]


def _value(row: crosscheck.Comparison, value: Value) -> Cell:
    if value is None:
        return ("-", DIM)
    if row.unit == "B" and isinstance(value, int | float):
        return (f"{value / GIB:.3f} GiB", "")
    number = (
        f"{value:.4g}"
        if isinstance(value, float) and abs(value) < 1e4
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )
    return (f"{number} {row.unit}".rstrip(), "")


def _note(row: crosscheck.Comparison, screen: Screen) -> Cell:
    """Why there is nothing to compare; what is known of a difference stands below the tables."""
    return (screen.text(row.note or "") if row.agree is None else "", YELLOW if row.agree is False else DIM)
