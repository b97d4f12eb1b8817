"""What typer shows: the help, and in a shell the words that complete a line. The grammar stays that of argparse, whose
options are described to typer; typer parses none of them.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence

import typer

from dtk_cli.exit import Exit
from dtk_cli.front import COMMANDS, GUIDE, load
from dtk_cli.output import unwritable, write
from dtk_cli.text import Screen

# Typer takes its width from the terminal alone, and 80 elsewhere.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


def show(name: str | None, rest: Sequence[str]) -> Exit:
    """Show the help of a command, or of all; or complete a word, for which the shell says all in the environment."""
    if name == "nvidia":  # no command, but another grammar of bare dtk-smi
        write(load(name).build_parser().format_help())
        return Exit.OK
    app = _app(Screen(sys.stdout))
    asked = [word for word in rest if word in GUIDE][:1]
    try:
        app([*([name] if name else []), *asked], prog_name="dtk-smi", standalone_mode=False)
        sys.stdout.flush()
    except OSError as error:
        raise unwritable(error) from error
    return Exit.OK


def _app(screen: Screen) -> typer.Typer:
    """All commands. Boxes and colours are for a terminal that can show them."""
    app = typer.Typer(
        rich_markup_mode="rich" if screen.terminal and screen.unicode else None, context_settings=SETTINGS
    )
    bare = load(None).build_parser()
    app.callback(invoke_without_command=True, help=bare.description, epilog=_epilog(bare))(_described(bare))
    for name in COMMANDS:
        parser = load(name).build_parser()
        command = app.command(name, help=parser.description, epilog=_epilog(parser), context_settings=SETTINGS)
        command(_described(parser))
    return app


def _epilog(parser: argparse.ArgumentParser) -> str:
    return parser.epilog or ""


def _described(parser: argparse.ArgumentParser) -> Callable[..., None]:
    """A function that has the options and arguments of a parser, for typer to look at."""

    def nothing(**_: object) -> None:
        """Never called: typer shows a help and ends."""

    parameters = list(_parameters(parser))
    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nothing.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return nothing


def _parameters(parser: argparse.ArgumentParser) -> Iterator[inspect.Parameter]:
    number = 0
    for group in parser._action_groups:
        title = group.title or ""
        panel = None if title == "options" else title[:1].upper() + title[1:]
        for action in group._group_actions:
            if action.dest == "help":  # typer has its own
                continue
            is_flag = action.nargs == 0
            metavar = "" if is_flag else str(action.metavar or action.dest.upper())
            if action.option_strings:
                info = typer.Option(
                    False if is_flag else "",
                    *action.option_strings,
                    help=action.help,
                    metavar=metavar,
                    rich_help_panel=panel,
                    show_default=False,
                )
            else:
                info = typer.Argument("", help=action.help, metavar=metavar, show_default=False)
            number += 1  # two options may have one destination
            kind = inspect.Parameter.KEYWORD_ONLY
            yield inspect.Parameter(f"option{number}", kind, default=info, annotation=bool if is_flag else str)
