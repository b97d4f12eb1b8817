"""python -m dtk.sim: write a simulated machine, and keep it alive."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import Error, InvalidArgument
from . import KINDS, MODELS, Simulator, assemble, build, create, mount
from .demo import watch_parent
from .faults import MOUNT_KINDS, parse
from .machine import Machine
from .run import keep_alive


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dtk.sim",
        description="Write a simulated machine into a directory: a root for dtk-smi --root and DTK_SMI_ROOT.",
        epilog="A fault is KIND[:ARGUMENT][@START[-END]]=CARD[/FILE], such as lost@10-25=0 (seconds from the start) or "
        "garbage=2/hwmon/temp1_input. While the machine runs, DIR/.dtk-faults holds its faults, one a line: replace "
        "that file to change them.",
    )
    parser.add_argument("directory", nargs="?", metavar="DIR", help="absent, empty, or an earlier simulated machine")
    parser.add_argument(
        "--cards",
        nargs="+",
        action="extend",
        metavar="MODEL[:N]",
        help="the cards, such as mi210:8 radeon; --list shows the models (default: k100_ai:8)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another number gives other ids and loads")
    parser.add_argument("--tick", type=int, default=0, metavar="N", help="write the machine as it is N seconds later")
    parser.add_argument("--virtual", type=int, default=0, metavar="N", help="N virtual devices on each Hygon card")
    parser.add_argument(
        "--run",
        action="store_true",
        help="keep the machine alive until SIGINT or SIGTERM; it then stays as it stands, to be looked at or replaced",
    )
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between changes (default: 1)")
    parser.add_argument("--fault", action="append", default=[], metavar="SPEC", help="a fault of a machine that runs")
    parser.add_argument("--mount", metavar="DIR2", help="show it there too, where reads can hang and fail (needs FUSE)")
    parser.add_argument("--list", action="store_true", help="list the card models and the kinds of faults, and exit")
    # For dtk.sim.demo: also end when the input ends, and remove the directory at the end.
    parser.add_argument("--for-parent", action="store_true", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 1 the directory cannot be written or mounted, 2 bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        _list()
        return 0
    if options.directory is None:
        parser.error("name the directory to write, or --list")
    try:
        _check(options)
        if options.run:
            _run(options)
        else:
            machine = build(options.cards or ["k100_ai:8"], options.seed, options.tick)
            create(Path(options.directory), replace(machine, virtual=options.virtual))
            print(f"{_title(machine)} written to {options.directory}")
    except InvalidArgument as error:
        parser.error(str(error))
    except (Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _list() -> None:
    width = max(map(len, MODELS))
    for key, model in MODELS.items():
        print(f"{key:{width}}  {model.title}")
    print()
    for kind, text in KINDS.items():
        print(f"{kind:{width}}  {text}")


def _check(options: argparse.Namespace) -> None:
    if not options.run and (options.fault or options.mount):
        raise InvalidArgument("--fault and --mount are for a machine that runs: add --run")
    if not 0.01 <= options.interval <= 3600:
        raise InvalidArgument("--interval is from 0.01 to 3600 seconds")
    if options.tick < 0:
        raise InvalidArgument("--tick is not below 0")
    if not 0 <= options.virtual <= 20:
        raise InvalidArgument("--virtual is from 0 to 20")
    for spec in options.fault:
        if parse(spec).kind in MOUNT_KINDS and not options.mount:
            raise InvalidArgument(f"{spec!r} is beyond what plain files can do: add --mount")


def _title(machine: Machine) -> str:
    count = len(machine.cards)
    return f"SIMULATED machine {machine.hostname} with {'1 card' if count == 1 else f'{count} cards'}"


def _run(options: argparse.Namespace) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if options.for_parent:
        watch_parent(stop)
    root = Path(options.directory)
    machine = assemble(options.cards or ["k100_ai:8"], options.seed)
    machine = replace(machine, boot=int(time.time() - machine.uptime), virtual=options.virtual)
    try:
        simulator = Simulator(root, machine, options.interval, options.fault)
        for _ in range(options.tick):
            simulator.advance()
        with contextlib.ExitStack() as stack:
            place = options.directory
            if options.mount:
                place = stack.enter_context(mount(root, options.mount)).root
            print(f"{_title(machine)} is alive in {place}", flush=True)
            keep_alive(simulator, options.interval, stop)
    finally:
        if options.for_parent:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
