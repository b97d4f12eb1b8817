"""`dtk-smi query FIELD,…`: some values of each device, for scripts."""

from __future__ import annotations

import argparse
import sys

import dtk
from dtk_cli import names
from dtk_cli.exit import Exit, Stop
from dtk_cli.look import Show, each, is_loop
from dtk_cli.options import KEY_HELP, Parser, add_loop, add_machine
from dtk_cli.output import page
from dtk_cli.text import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dtk.sample import Value

Columns = list[tuple[str, names.Field]]

EPILOG = f"""\
FIELD is a metric, or a name of a device: 'dtk-smi fields' lists both. Names of
nvidia-smi (memory.used, clocks.sm) select the same, with our name and unit. A
missing value is null, in csv nothing, in a table '-' or a word that says why.

{KEY_HELP}"""


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi query", "Print some values of each device.", EPILOG)
    parser.add_argument("fields", metavar="FIELD,...", nargs="+", help="what to print, in this order")
    formats = ("table", "csv", "json", "ndjson")
    parser.add_argument(
        "--format", choices=formats, default="table", metavar="FORMAT", help="table (default), csv, json or ndjson"
    )
    parser.add_argument("--noheader", action="store_true", help="table and csv without the line of names")
    parser.add_argument("--nounits", action="store_true", help="table and csv without units in that line")
    add_loop(parser)
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print them."""
    columns = names.find(split_fields(args.fields))
    if args.format in ("json", "ndjson") and (args.noheader or args.nounits):
        raise Stop(Exit.USAGE, "--noheader and --nounits go with --format table and csv")
    if args.format == "json" and is_loop(args):
        raise Stop(Exit.USAGE, "a list has no end in a loop", "--format ndjson prints an object a line")
    show = {"table": _table, "csv": _csv, "json": _json, "ndjson": _json_lines}[args.format](columns, args)
    tiers = {field.tier for _, field in columns}
    library = names.metrics_of(field.name for _, field in columns)
    return each(
        args, show, static="static" in tiers, fast="fast" in tiers, slow="slow" in tiers, library_metrics=library
    )


def split_fields(words: list[str]) -> list[str]:
    """The names in words that hold one or several, with commas between them."""
    found = [name.strip() for word in words for name in word.strip(", ").split(",")]
    if not all(found):
        raise Stop(Exit.USAGE, f"an empty field in {' '.join(words)!r}")
    return found


def _titles(columns: Columns, args: argparse.Namespace) -> list[str]:
    return [field.name if args.nounits else field.title for _, field in columns]


def _table(columns: Columns, args: argparse.Namespace) -> Show:
    from dtk_cli import cells, grid

    titles = _titles(columns, args)

    def cell(field: names.Field, device: dtk.Reading, value: Value | str, screen: Screen) -> grid.Cell:
        if value is not None:
            return (screen.text(plain(value)), "")
        return cells.WORDS.get(field.reason(device) or "", cells.WORDS["unsupported"])

    def show(snapshot: dtk.Snapshot, turn: int | None) -> str:
        screen = Screen(sys.stdout)
        values = [[field.read(snapshot, device) for device in snapshot.devices] for _, field in columns]
        numeric = [any(isinstance(value, (int, float)) for value in column) for column in values]
        shown = [
            grid.Column(title, ">" if is_number else "<") for title, is_number in zip(titles, numeric, strict=True)
        ]
        rows = [
            [cell(field, device, value, screen) for (_, field), value in zip(columns, row, strict=True)]
            for device, row in zip(snapshot.devices, zip(*values, strict=True), strict=True)
        ]
        lines, _ = grid.render(shown, rows, screen, titles=not args.noheader)
        return page(lines if snapshot.devices else [], screen, turn)

    return show


def _csv(columns: Columns, args: argparse.Namespace) -> Show:
    """RFC 4180, but for the newline at the end of a line. A missing value is an empty field: known ones never are."""
    import csv
    import io

    titles = _titles(columns, args)

    def show(snapshot: dtk.Snapshot, turn: int | None) -> str:
        screen, text = Screen(sys.stdout), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not turn and not args.noheader:
            writer.writerow(titles)
        for device in snapshot.devices:
            values = [field.read(snapshot, device) for _, field in columns]
            writer.writerow(["" if value is None else screen.text(plain(value)) for value in values])
        return text.getvalue()

    return show


def _json(columns: Columns, _: argparse.Namespace) -> Show:
    import json

    def show(snapshot: dtk.Snapshot, _: int | None) -> str:
        return json.dumps([_row(columns, snapshot, device) for device in snapshot.devices], indent=2) + "\n"

    return show


def _json_lines(columns: Columns, _: argparse.Namespace) -> Show:
    import json

    def show(snapshot: dtk.Snapshot, _: int | None) -> str:
        return "".join(json.dumps(_row(columns, snapshot, device)) + "\n" for device in snapshot.devices)

    return show


def _row(columns: Columns, snapshot: dtk.Snapshot, device: dtk.Reading) -> dict[str, Value | str]:
    return {asked: field.read(snapshot, device) for asked, field in columns}


def plain(value: Value | str) -> str:
    """A value as text. Several names stand with spaces between them, none is "none"."""
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    return str(value)
