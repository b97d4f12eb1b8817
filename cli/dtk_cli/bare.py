"""dtk-smi without a command: the table, -L, --json, and what a C compiler needs."""

from __future__ import annotations

import argparse
import sys

import dtk
from dtk_cli.exit import Exit, Stop
from dtk_cli.look import each, is_loop, mention, take, verdict
from dtk_cli.options import EPILOG, Parser, add_loop, add_machine
from dtk_cli.output import page, write
from dtk_cli.text import Screen


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi", "Show Hygon DCU cards and AMD ROCm GPUs: a table, or one of these views.", EPILOG)
    view = parser.add_mutually_exclusive_group()
    view.add_argument("-L", "--list", action="store_true", help="one line a device, with its uuid")
    view.add_argument("--json", action="store_true", help="everything, as a document of schema dtk/1")
    view.add_argument("--version", action="version", version=f"dtk-smi {dtk.__version__}", help="the version")
    parser.add_argument("--verbose", action="store_true", help="with --json: where each value came from, how old")
    add_loop(parser)
    add_machine(parser)
    build = parser.add_argument_group("building C programs", "cc x.c $(dtk-smi --cflags) $(dtk-smi --libs)")
    build.add_argument("--cflags", action="store_true", help="print what the compiler needs for dtk.h")
    build.add_argument("--libs", action="store_true", help="print what the linker needs for libdtk")
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print the view that was asked for."""
    if args.verbose and not args.json:
        raise Stop(Exit.USAGE, "--verbose goes with --json")
    if is_loop(args) and (args.json or args.list):
        raise Stop(Exit.USAGE, "-l goes with the table and the commands query and ps", "query --format ndjson streams")
    if args.cflags or args.libs:
        write(_build_flags(args.cflags, args.libs))
        return Exit.OK
    if args.json:
        return _document(args)
    return _listing(args) if args.list else _table(args)


def _table(args: argparse.Namespace) -> Exit:
    from dtk_cli import table
    from dtk_cli.cells import BASIC

    def show(snapshot: dtk.Snapshot, turn: int | None) -> str:
        screen = Screen(sys.stdout)
        return page(table.lines(snapshot, screen) if snapshot.devices else [], screen, turn)

    return each(
        args,
        show,
        says_simulated=True,
        processes=True,
        library_metrics=BASIC if dtk.default_backend() == "auto" else None,
    )


def _listing(args: argparse.Namespace) -> Exit:
    from dtk_cli import listing

    snapshot = take(args, fast=False, library_metrics=())
    write(listing.render(snapshot, Screen(sys.stdout)))
    code = verdict(snapshot)
    mention(snapshot)
    return code


def _document(args: argparse.Namespace) -> Exit:
    """On a machine without cards it is a valid document too."""
    from dtk import document

    snapshot = take(args, processes=True)
    notes: list[tuple[str, str]] = []
    code = verdict(snapshot, notes)
    write(document.render(document.document(snapshot, notes=notes, verbose=args.verbose)))
    return code


def _build_flags(cflags: bool, libs: bool) -> str:
    """What a C compiler needs, as one line."""
    from dtk import build

    return " ".join([build.cflags()] * cflags + [build.libs()] * libs) + "\n"
