"""The front door of dtk-smi: what scripts call in loops, parsed by argparse alone.

A view is imported when it is asked for, so that `-L` does not pay for the table or for json.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import dtk
from dtk_cli.exit import Exit, Stop, exit_code, first
from dtk_cli.snapshot import take, warnings
from dtk_cli.text import Screen, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

EPILOG = """\
KEY is an index (0), a uuid or the beginning of one (GPU-1a2b), a PCI address
(43:00.0), card1, renderD128, kfd:4, gpu_id:12345, hip:0 or serial:S. Several:
-d 0,1 or -d 0 -d 1. What names a partitioned card means all its partitions.

exit status: 0 ok, also when values are missing; 1 internal error; 2 bad usage;
4 no permission; 6 no such device; 9 PCI shows a card but no driver has it;
10 no card; 12 library problem.
"""


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake takes two lines instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Exit 2."""
        complain(message, f"'{self.prog} --help' shows what there is")
        sys.exit(Exit.USAGE)


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which machine and which of its devices."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=_directory,
        help="read the machine below DIR, which holds sys/ (or: DTK_SMI_ROOT)",
    )
    parser.add_argument(
        "-d",
        "--device",
        metavar="KEY",
        dest="keys",
        action="extend",
        type=_keys,
        default=[],
        help="only these devices; see below",
    )


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the front door."""
    parser = Parser(
        prog="dtk-smi",
        description="Show Hygon DCU cards and AMD ROCm GPUs: a table, or one of the views below.",
        epilog=EPILOG,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    view = parser.add_mutually_exclusive_group()
    view.add_argument("-L", "--list", action="store_true", help="one line a device, with its uuid")
    view.add_argument("--json", action="store_true", help="everything, as a document of schema dtk/1")
    view.add_argument("--version", action="version", version=f"dtk-smi {dtk.__version__}", help="the version")
    parser.add_argument("--verbose", action="store_true", help="with --json: where each value came from")
    add_machine_options(parser)
    build = parser.add_argument_group("building C programs", "cc x.c $(dtk-smi --cflags) $(dtk-smi --libs)")
    build.add_argument("--cflags", action="store_true", help="print what the compiler needs for dtk.h")
    build.add_argument("--libs", action="store_true", help="print what the linker needs for libdtk")
    return parser


def front(arguments: Sequence[str]) -> Exit:
    """The command, from its arguments to its exit status. No traceback, unless DTK_SMI_DEBUG=1 asks for one."""
    try:
        return run(arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it becomes a line and an exit status
        return report(error)


def run(arguments: Sequence[str]) -> Exit:
    """Parse, look, print."""
    if sys.stdout is None:
        raise Stop(Exit.INTERNAL, "stdout is closed")
    parser = build_parser()
    try:
        args = parser.parse_args(arguments)
    except SystemExit as done:  # --help and --version have printed; a mistake is told
        write("")
        return Exit(int(done.code or 0))
    if args.verbose and not args.json:
        raise Stop(Exit.USAGE, "--verbose goes with --json")
    if args.cflags or args.libs:
        write(build_flags(args.cflags, args.libs))
        return Exit.OK
    with dtk.System(args.root) as system:
        return show(system, args)


def show(system: dtk.System, args: argparse.Namespace) -> Exit:
    """Print the view that was asked for; without a card, what there is instead."""
    now = time.time()
    devices = select(system, args.keys)
    code, notes = Exit.OK, []
    if not devices:
        from dtk_cli import no_cards

        code, lines = no_cards.explain(system)
        notes.append((code.name.lower(), lines[0]))
        complain(*lines)
    if args.json:
        from dtk_cli import document

        write(document.render(document.document(system, take(devices), now, notes=notes, verbose=args.verbose)))
    elif args.list:
        from dtk_cli import listing

        write(listing.render(devices, Screen(sys.stdout)))
        if system.info.simulated:
            complain(f"SIMULATED machine below {system.root}")
    elif devices:
        from dtk_cli import table

        cards = take(devices)
        write(table.render(system, cards, Screen(sys.stdout)))
        for _, text in warnings(cards):
            complain(f"warning: {text}")
    return code


def write(text: str) -> None:
    """Text to stdout, at once: an error that waits in a buffer would come up after the exit status is settled."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what the exit would write again
        raise Stop(Exit.INTERNAL, f"cannot write to stdout: {error.strerror}") from error


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


def build_flags(cflags: bool, libs: bool) -> str:
    """What a C compiler needs, as one line."""
    from dtk import build

    return " ".join([build.cflags()] * cflags + [build.libs()] * libs) + "\n"


def select(system: dtk.System, keys: Sequence[str]) -> list[dtk.Device]:
    """The devices of the keys, in the order of their index; all of them without a key.

    A machine without devices has none for a key either: that it has no card explains more than that the key fits none.
    """
    devices = system.devices()
    if not keys:
        return devices
    chosen: set[int | None] = set()
    errors = []
    for key in keys:
        try:
            chosen.update(device.index for device in system.match(key))
        except dtk.Error as error:
            errors.append(error)
    if errors and (devices or not isinstance(first(errors), dtk.DeviceNotFound)):
        raise first(errors)
    return [device for device in devices if device.index in chosen]


def _formatter(prog: str) -> argparse.HelpFormatter:
    """A fixed width, since to ask for the terminal's argparse imports shutil, for every option it is given."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=80)


def _directory(text: str) -> str:
    if not text:  # an unset variable in a script; it would be the current directory
        raise argparse.ArgumentTypeError("an empty name")
    return text


def _keys(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",")]
    if not all(keys):
        raise argparse.ArgumentTypeError(f"an empty key in {text!r}")
    return keys
