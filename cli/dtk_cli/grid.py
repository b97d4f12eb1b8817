"""Columns in line, for every view that has rows. Plain text on purpose: the same bytes on a terminal, in a pipe and in
the C locale, in a tenth of a millisecond, where rich alone takes longer to import than the whole command to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from dtk_cli.text import BOLD, DIM, Screen, width

Cell = tuple[str, str]  # a text and its style
BLANK = ("", "")
GAP = "  "


class Column:
    """A title, and how the cells below it stand: to the left "<", to the right ">", or with their strokes in line "/".

    least: makes it the elastic column, which takes what the others leave, and this much whatever they need.
    """

    def __init__(self, title: str, align: str = "<", least: int = 0) -> None:
        self.title = title
        self.align = align
        self.least = least


def render(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    screen: Screen,
    *,
    least: int = 0,
    most: int | None = None,
    titles: bool = True,
) -> tuple[list[str], int]:
    """The lines (titles, a rule, the rows) and how wide the rule is: from `least` to `most` columns, which the elastic
    column sees to.
    """
    texts = [_aligned(column, [row[i][0] for row in rows], titles) for i, column in enumerate(columns)]
    widths = [max(map(width, column), default=0) for column in texts]
    elastic = next((i for i, column in enumerate(columns) if column.least), None)
    others = sum(widths) - (0 if elastic is None else widths[elastic]) + len(GAP) * (len(columns) - 1)
    if elastic is not None:
        room = (screen.columns if most is None else most) - others
        widths[elastic] = max(columns[elastic].least, least - others, min(widths[elastic], room))
        others += widths[elastic]
    lines = []
    if titles:
        lines.append(_line(columns, [(column.title, BOLD) for column in columns], widths, screen))
        lines.append(screen.style(screen.rule * others, DIM))
    for number, row in enumerate(rows, start=int(titles)):
        cells = [(texts[i][number], style) for i, (_, style) in enumerate(row)]
        lines.append(_line(columns, cells, widths, screen))
    return lines, others


def natural(column: Column, cells: Sequence[Cell]) -> int:
    """How wide a column is when nothing is cut."""
    return max(map(width, _aligned(column, [text for text, _ in cells], True)))


def _aligned(column: Column, cells: list[str], titles: bool) -> list[str]:
    """The title and the cells of a column."""
    if column.align == "/":
        pairs = [cell.partition("/") for cell in cells]
        left, right = (max((len(pair[i]) for pair in pairs), default=0) for i in (0, 2))
        cells = [f"{used:>{left}}{stroke or ' '}{limit:<{right}}" for used, stroke, limit in pairs]
    return [column.title, *cells] if titles else cells


def _line(columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int], screen: Screen) -> str:
    parts = []
    for column, (text, style), columns_ in zip(columns, cells, widths, strict=True):
        text = screen.fit(text, columns_)
        padding = " " * (columns_ - width(text))
        text = screen.style(text, style)
        parts.append(text + padding if column.align == "<" else padding + text)
    return GAP.join(parts).rstrip()
