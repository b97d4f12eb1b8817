"""The front door of dtk-smi: finds the command, lets argparse parse it, and makes errors one line and an exit status.

A command is imported when it is asked for, so that `-L` does not pay for the table or for json. typer shows the help
and completes words in a shell; nothing else imports it, since that takes longer than most commands to run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import dtk
from dtk_cli.exit import Exit, Stop, exit_code
from dtk_cli.options import split
from dtk_cli.output import write
from dtk_cli.text import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Each is a module of this package with build_parser() and run(args).
COMMANDS = ("query", "ps", "show", "map", "virtual", "fields", "doctor")
GUIDE = ("-h", "--help", "--install-completion", "--show-completion")


def front(arguments: Sequence[str]) -> Exit:
    """The command, from its arguments to its exit status. No traceback, unless DTK_SMI_DEBUG=1 asks for one."""
    try:
        return run(list(arguments))
    except Exception as error:  # noqa: BLE001 - whatever it is, it becomes a line and an exit status
        return report(error)


def run(arguments: list[str]) -> Exit:
    """Find the command and its parser, parse, and do it."""
    if sys.stdout is None:
        raise Stop(Exit.INTERNAL, "stdout is closed")
    name, rest = split(arguments)
    if name is None and any(word.startswith(("--query-gpu", "--help-query-gpu")) for word in rest):
        name = "nvidia"
    elif name is not None and name not in COMMANDS:
        raise _unknown(name)
    if os.environ.get("_DTK_SMI_COMPLETE") or any(word in GUIDE for word in rest):
        from dtk_cli import guide

        return guide.show(name, rest)
    command = load(name)
    try:
        args = command.build_parser().parse_args(rest)
    except SystemExit as done:  # --version has printed; a mistake is told
        write("")
        return Exit(int(done.code or 0))
    return _demo(command, args) if args.demo else Exit(command.run(args))


def _demo(command: ModuleType, args: argparse.Namespace) -> Exit:
    """The command on a simulated node, which lives as long as it runs."""
    if args.root is not None:
        raise Stop(Exit.USAGE, "--demo makes a machine of its own: it goes without --root")
    from dtk import sim

    with sim.demo() as root:
        args.root = str(root)
        return Exit(command.run(args))


def load(name: str | None) -> ModuleType:
    """The module of a command; of bare dtk-smi without one."""
    return import_module(f"dtk_cli.{name or 'bare'}")


def _unknown(name: str) -> Stop:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {close[0]}?" if close else "'dtk-smi --help' lists the commands"
    return Stop(Exit.USAGE, f"no command {name!r}", hint)


def report(error: Exception) -> Exit:
    """Tell stderr what went wrong and what to do, in a line each, and find the exit status."""
    if isinstance(error, Stop):
        code, lines = error.code, error.lines
    elif isinstance(error, dtk.Error):
        what = ": ".join(filter(None, (error.operation, error.path, str(error.args[0]))))
        code, lines = exit_code(error), (what, error.hint) if error.hint else (what,)
    else:
        what = f"internal error: {type(error).__name__}: {error}"
        code, lines = Exit.INTERNAL, (what, "DTK_SMI_DEBUG=1 shows where; please report it")
    complain(*lines)
    if os.environ.get("DTK_SMI_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    return code
