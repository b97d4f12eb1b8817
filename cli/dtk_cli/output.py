"""What goes to stdout: data only, at once, and again over itself where a terminal shows a loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dtk_cli.exit import Exit, Stop
from dtk_cli.text import Screen


def write(text: str) -> None:
    """Text to stdout, at once: an error that waits in a buffer would come up after the exit status is settled."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> Stop:
    """What to raise when stdout cannot be written; what its buffer still holds goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Stop(Exit.INTERNAL, f"cannot write to stdout: {error.strerror}")


def page(lines: Sequence[str], screen: Screen, turn: int | None) -> str:
    """Lines as a text. In a loop, whose turns count from 0, a terminal shows each in the place of the last."""
    if turn is None or not screen.terminal:
        return ("\n" if turn and lines else "") + "".join(f"{line}\n" for line in lines)
    room = max(1, screen.lines - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"{screen.more} {len(lines) - room + 1} lines more"]
    start = "\x1b[H" if turn else "\x1b[H\x1b[2J"
    return start + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"
