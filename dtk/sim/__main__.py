"""python -m dtk.sim: write a simulated machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import InvalidArgument
from . import MODELS, build, create


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dtk.sim",
        description="Write a simulated machine into a directory: a root for dtk-smi --root and DTK_SMI_ROOT.",
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
    parser.add_argument("--list", action="store_true", help="list the card models and exit")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 1 the directory cannot be written, 2 bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        width = max(map(len, MODELS))
        for key, model in MODELS.items():
            print(f"{key:{width}}  {model.title}")
        return 0
    if options.directory is None:
        parser.error("name the directory to write, or --list")
    try:
        machine = build(options.cards or ["k100_ai:8"], options.seed)
        create(Path(options.directory), machine)
    except InvalidArgument as error:
        parser.error(str(error))
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    count = len(machine.cards)
    cards = "1 card" if count == 1 else f"{count} cards"
    print(f"SIMULATED machine {machine.hostname} with {cards} written to {options.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
