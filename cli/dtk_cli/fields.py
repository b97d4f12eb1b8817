"""`dtk-smi fields [PATTERN]`: what can be queried, and whether these cards have it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import dtk
from dtk_cli import names
from dtk_cli.exit import Exit, Stop
from dtk_cli.grid import BLANK, Cell, Column, render
from dtk_cli.look import mention, take, verdict
from dtk_cli.nvidia_names import OURS
from dtk_cli.options import KEY_HELP, Parser, add_machine
from dtk_cli.output import page, write
from dtk_cli.text import DIM, GREEN, YELLOW, Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WIDE = 120  # columns from which aliases have a column of their own

EPILOG = f"""\
PATTERN is a part of a name or of nvidia-smi's name for the same (power, clocks.sm),
or has wildcards ('temperature_*').

{KEY_HELP}"""


class Support:
    """Whether devices have a field: for each the value's source, or the reason and more about it."""

    def __init__(self, field: names.Field, snapshot: dtk.Snapshot) -> None:
        self.field = field
        self.aliases = sorted((alias for alias, ours in OURS.items() if ours == field.name), key=len)
        self.devices = [_support(field, snapshot, device) for device in snapshot.devices]


def _support(field: names.Field, snapshot: dtk.Snapshot, device: dtk.Reading) -> dict[str, Any]:
    is_metric = field.name in device.sample
    has = field.read(snapshot, device) is not None
    reason = None if has else field.reason(device)
    return {
        "index": device.index,
        "uuid": device.uuid,
        "supported": has or (None if reason not in (None, "unsupported") else False),
        "source": device.sample.source(field.name) if is_metric else None,
        "reason": reason,
        "detail": device.sample.detail(field.name) if is_metric and not has else None,
    }


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi fields", "List what can be queried, and whether these cards have it.", EPILOG)
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="", help="only names with this in them")
    parser.add_argument("--json", action="store_true", help="the same and more, as a JSON list")
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print them, on a machine without cards too."""
    snapshot = take(args, slow=True)
    found = [
        support
        for support in (Support(field, snapshot) for field in names.all_fields().values())
        if _matches(args.pattern, [support.field.name, *support.aliases])
    ]
    if not found:
        raise Stop(Exit.USAGE, f"no field has {args.pattern!r} in its name", "'dtk-smi fields' lists all")
    if args.json:
        import json

        write(json.dumps([_object(support) for support in found], indent=2) + "\n")
    else:
        screen = Screen(sys.stdout)
        write(page(_lines(found, screen), screen, None))
    mention(snapshot)
    return verdict(snapshot)


def _matches(pattern: str, candidates: list[str]) -> bool:
    pattern = pattern.lower()
    if not any(c in pattern for c in "*?["):
        return any(pattern in name.lower() for name in candidates)
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name.lower(), pattern) for name in candidates)


def _object(support: Support) -> dict[str, Any]:
    field = support.field
    metric = next((metric for metric in dtk.metrics.all() if metric.name == field.name), None)
    return {
        "name": field.name,
        "aliases": support.aliases,
        "unit": field.unit or None,
        "tier": field.tier or None,
        "type": metric.type if metric else None,
        "kind": metric.kind if metric else None,
        "window": (metric.window if metric else "") or None,
        "help": field.help,
        "sources": list(metric.sources) if metric else [],
        "devices": support.devices,
    }


def _lines(found: list[Support], screen: Screen) -> list[str]:
    wide = screen.columns >= WIDE
    rows: list[list[Cell]] = []
    for support in found:
        field = support.field
        here, source = _here(support), _source(support)
        row = [(field.name, ""), (field.unit, ""), (field.tier, DIM), here, source]
        if wide:
            row.insert(1, (", ".join(support.aliases[:2]), DIM))
        rows.append(row)
        if support.aliases and not wide:
            rows.append([(f"  {support.aliases[0]}", DIM), BLANK, BLANK, BLANK, BLANK])
    columns = [Column("Field"), Column("Unit"), Column("Tier"), Column("Here"), Column("Source, or why not", least=8)]
    if wide:
        columns.insert(1, Column("nvidia-smi"))
    return render(columns, rows, screen)[0]


def _here(support: Support) -> Cell:
    """Whether the devices have it: yes, no, how many of them, or that it cannot be told."""
    answers = [device["supported"] for device in support.devices]
    if not answers:
        return BLANK
    if all(device["reason"] == "on_card" for device in support.devices):
        return ("card", DIM)
    if all(answers):
        return ("yes", GREEN)
    if any(answers):
        return (f"{sum(map(bool, answers))} of {len(answers)}", YELLOW)
    return ("?", YELLOW) if None in answers else ("no", DIM)


def _source(support: Support) -> Cell:
    sources = dict.fromkeys(device["source"] for device in support.devices if device["source"])
    if sources:
        return (", ".join(sources), "")
    return (", ".join(_reasons(support)), DIM)


def _reasons(support: Support) -> Iterator[str]:
    pairs = dict.fromkeys((device["reason"], device["detail"]) for device in support.devices if device["reason"])
    for reason, detail in pairs:
        yield f"{reason}: {detail}" if detail else reason
