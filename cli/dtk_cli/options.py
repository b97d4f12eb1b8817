"""The grammar that commands share. argparse alone: scripts call these in loops, and typer costs ten times as much."""

from __future__ import annotations

import argparse
import sys

from dtk_cli.exit import Exit
from dtk_cli.text import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

KEY_HELP = """\
KEY is an index (0), a uuid or the beginning of one (GPU-1a2b), a PCI address
(43:00.0), card1, renderD128, kfd:4, gpu_id:12345, hip:0 or serial:S. Several:
-d 0,1 or -d 0 -d 1. What names a partitioned card means all its partitions.
"""

EPILOG = f"""\
{KEY_HELP}
--query-gpu=FIELD,... --format=csv answers as nvidia-smi does.

exit status: 0 ok, also when values are missing; 1 internal error; 2 bad usage;
3 not possible here, such as the vendor's library with --root;
4 no permission; 5 findings of doctor; 6 no such device; 9 PCI shows a card but
no driver has it; 10 no card; 11 a card missed the deadline; 12 library problem.
"""

# Options with a value that need no command or may stand before it: what follows one is not the command.
VALUED = frozenset(
    "--root --deadline -d --device -i --id -l --loop -lms --loop-ms -n --count --format --query-gpu --user".split()
)


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake takes two lines instead of the whole usage."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=_formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Exit 2."""
        complain(message, f"'{self.prog} --help' shows what there is")
        sys.exit(Exit.USAGE)


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The options that say which machine and which of its devices. Every command has them."""
    group = parser.add_argument_group("which machine, which devices")
    group.add_argument(
        "--root",
        metavar="DIR",
        type=_directory,
        help="read the machine below DIR, which holds sys/ (or: DTK_SMI_ROOT)",
    )
    group.add_argument("--demo", action="store_true", help="show a simulated node of eight cards")
    group.add_argument(
        "-d",
        "--device",
        metavar="KEY",
        dest="keys",
        action="extend",
        type=keys,
        default=[],
        help="only these devices; see below",
    )
    group.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=seconds,
        default=1.0,
        help="do not wait longer for a card; default 1",
    )


def add_loop(parser: argparse.ArgumentParser) -> None:
    """The options of what can repeat."""
    parser.add_argument("-l", "--loop", metavar="SECONDS", type=seconds, help="again every so many seconds")
    parser.add_argument("-n", "--count", metavar="COUNT", type=count, help="end after COUNT times; default: never")


def split(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The command among the arguments, and the others in their order: options work before and after it."""
    value = False
    for place, word in enumerate(arguments):
        if value:
            value = False
        elif word == "--":
            break
        elif word.startswith("-"):
            value = word in VALUED
        else:
            return word, [*arguments[:place], *arguments[place + 1 :]]
    return None, arguments


def keys(text: str) -> list[str]:
    """The keys of devices in an option's value."""
    found = [key.strip() for key in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"an empty key in {text!r}")
    return found


def seconds(text: str) -> float:
    """A time that is not zero, and short enough to wait for."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def count(text: str) -> int:
    """A number of times that is not zero."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no count")
    return int(text)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """A fixed width, since to ask for the terminal's argparse imports shutil, for every option it is given."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=80)


def _directory(text: str) -> str:
    if not text:  # an unset variable in a script; it would be the current directory
        raise argparse.ArgumentTypeError("an empty name")
    return text
