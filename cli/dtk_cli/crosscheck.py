"""`dtk-smi doctor --crosscheck`: each reading from the files and from the vendor's library, side by side."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from textwrap import wrap

import dtk
from dtk import crosscheck
from dtk.document import rfc3339
from dtk_cli.cells import GIB, WORDS
from dtk_cli.exit import Exit
from dtk_cli.grid import Cell, Column, render
from dtk_cli.look import verdict
from dtk_cli.output import page, write
from dtk_cli.text import BOLD, DIM, GREEN, RED, Screen, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dtk.sample import Value

SCHEMA = "dtk-crosscheck/1"
AGREE: dict[bool | None, Cell] = {True: ("yes", GREEN), False: ("NO", RED), None: ("-", DIM)}


def run(args: argparse.Namespace) -> Exit:
    """Compare, print, and say whether all agree."""
    result = crosscheck.crosscheck(args.root, devices=args.keys, deadline=args.deadline)
    if args.json:
        write(json.dumps(document(result), indent=2, allow_nan=False) + "\n")
    elif result.kernel.devices:
        screen = Screen(sys.stdout)
        write(page(list(_lines(result, screen)), screen, None))
    for _, text in result.warnings:
        complain(f"warning: {text}")
    return _exit(result)


def _exit(result: crosscheck.Crosscheck) -> Exit:
    if not result.kernel.devices:
        return verdict(result.kernel)
    if all(card.state == "asleep" for card in result.kernel.cards):
        complain("crosscheck: no card is awake, and none is woken", "start a program on one of them, and look again")
        return Exit.NOT_SUPPORTED
    if result.library.status not in ("ok", "stale") and not result.stale:
        return Exit.LIBRARY
    if result.stale or result.library.status == "stale":
        return Exit.DEADLINE
    return Exit.PARTIAL if result.differ or result.trouble else Exit.OK


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
    cards = len({row.uuid for row in result.rows})
    where = f"on {cards} card{'s' if cards != 1 else ''}"
    if result.trouble:
        yield screen.style("not all could be compared: see below", RED)
    if result.differ:
        verdict = screen.style(f"{len(result.differ)} of {len(compared)} readings differ", RED)
    elif compared:
        verdict = screen.style(f"all {len(compared)} readings that both have agree", GREEN)
    else:
        verdict = screen.style("nothing was compared", RED)
    yield f"{verdict}, {where}"
    library = result.library
    facts = [fact for fact in (library.path, library.version, library.abi) if fact]
    yield from wrap("library: " + ("  ".join(map(screen.text, facts)) or "none"), screen.columns)
    for card in result.kernel.cards:
        yield ""
        title = f"card {card.card_index} {card.bdf}: {screen.text(card.name)}"
        yield screen.style(screen.fit(title, screen.columns), BOLD)
        yield from _card([row for row in result.rows if row.uuid == card.uuid], screen)
    yield from _notes(compared, screen)
    for text in result.trouble:
        yield ""
        for line in wrap(screen.text(text), screen.columns):
            yield screen.style(line, RED)


def _card(rows: list[crosscheck.Comparison], screen: Screen) -> Iterator[str]:
    cells = [
        [
            (f"  {row.metric}", ""),
            _value(row, row.kernel, row.kernel_reason),
            _value(row, row.rsmi, row.rsmi_reason),
            AGREE[row.agree],
        ]
        for row in rows
        if row.kernel is not None or row.rsmi is not None
    ]
    columns = [Column("  reading"), Column("files", ">"), Column("library", ">"), Column("agree")]
    yield from render(columns, cells, screen)[0]


def _notes(compared: list[crosscheck.Comparison], screen: Screen) -> Iterator[str]:
    """What is known of differences; each once."""
    notes: dict[str, list[str]] = {}
    for row in compared:
        if row.note and row.metric not in notes.setdefault(row.note, []):
            notes[row.note].append(row.metric)
    for note, metrics in notes.items():
        yield ""
        for line in wrap(f"{', '.join(metrics)}: {note}", screen.columns):
            yield screen.style(line, DIM)


def _value(row: crosscheck.Comparison, value: Value, reason: str | None) -> Cell:
    if value is None:
        return WORDS[reason or "unsupported"]
    if row.unit == "B" and isinstance(value, int | float):
        return (f"{value / GIB:.3f} GiB", "")
    number = str(value)
    if isinstance(value, float):
        number = f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return (f"{number} {row.unit}".rstrip(), "")
