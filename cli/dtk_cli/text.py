"""Text for people: printable, no wider than asked, and in characters that the stream can carry."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes milliseconds to import, and scripts call this command in loops
    from typing import TextIO

MIN_COLUMNS = 80

BOLD, DIM, RED, YELLOW, GREEN, CYAN = "1", "2", "1;31", "33", "32", "36"


class Screen:
    """What a stream can show: how wide and high, in which characters, and whether in colour.

    Colour needs a terminal that is not dumb, and NO_COLOR unset; FORCE_COLOR stands in for the terminal.
    The C locale means ASCII, although Python then writes UTF-8.
    """

    def __init__(self, stream: TextIO) -> None:
        self.columns, self.lines = _size(stream)
        self.encoding = "ascii" if os.environ.get("LC_ALL") in ("C", "POSIX") else stream.encoding
        self.terminal = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.colour = (self.terminal or bool(os.environ.get("FORCE_COLOR"))) and not os.environ.get("NO_COLOR")
        self.unicode = _carries(self.encoding, "°…─├└│▁▃▆")
        if self.unicode:
            self.celsius, self.more, self.rule = "°C", "…", "─"
            self.branch, self.last, self.stem = "├─", "└─", "│  "
            self.full, self.half, self.track = "▆", "▃", "▁"
        else:
            self.celsius, self.more, self.rule = "C", "~", "-"
            self.branch, self.last, self.stem = "|-", "`-", "|  "
            self.full, self.half, self.track = "#", "=", "-"

    def text(self, text: str) -> str:
        """A text from outside, safe to print: what the stream cannot carry is escaped too."""
        return printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def fit(self, text: str, columns: int) -> str:
        """The text, cut where it is wider than `columns`."""
        if width(text) <= columns:
            return text
        text = text[:columns]
        while text and width(text) > columns - len(self.more):
            text = text[:-1]
        return text + self.more

    def bar(self, percent: float, columns: int) -> str:
        """A bar on a track, which is full at 100 %; lower than the line, so that those of two lines stay apart."""
        halves = round(min(max(percent, 0.0), 100.0) * columns * 2 / 100)
        return (self.full * (halves // 2) + self.half * (halves % 2)).ljust(columns, self.track)

    def style(self, text: str, style: str) -> str:
        """The text in a style: the numbers of an SGR sequence, "" for none."""
        return f"\x1b[{style}m{text}\x1b[0m" if style and text and self.colour else text


def printable(text: str) -> str:
    """The text with everything escaped that could move a cursor, end a line or turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def width(text: str) -> int:
    """Terminal columns that a printable text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def complain(*lines: str) -> None:
    """A message to stderr, escaped; the lines after the first are indented."""
    if sys.stderr is not None:  # closed, and print() would take stdout for it
        print("\n  ".join(map(printable, (f"dtk-smi: {lines[0]}", *lines[1:]))), file=sys.stderr)


def _carries(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns, at least 80, and lines of a terminal. Elsewhere COLUMNS counts, which watch(1) sets, and no lines."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        variable = os.environ.get("COLUMNS", "")
        columns, lines = int(variable) if variable.isascii() and variable.isdigit() else 0, 0
    return max(MIN_COLUMNS, min(columns, 1000)), lines
