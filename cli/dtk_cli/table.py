"""Bare `dtk-smi`: the cards, a line each, then their processes. For people: scripts take --json or query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import dtk
from dtk_cli import cells, processes
from dtk_cli.grid import GAP, Cell, Column, natural, render
from dtk_cli.look import group
from dtk_cli.text import BOLD, DIM, MIN_COLUMNS, YELLOW, Screen, width

LEAST_NAME = 8  # even if a line then takes more than the screen has
LEAST_BAR, MOST_BAR = 8, 20


class Row:
    """A line: a card, or a partition below its card."""

    def __init__(self, reading: dtk.Reading, index: str, name: str, address: str) -> None:
        self.sample = reading.sample
        self.index = index
        self.uuid = reading.uuid if index else ""
        self.name = name
        self.address = address


Show = Callable[[Row, Screen], Cell]


def lines(snapshot: dtk.Snapshot, screen: Screen) -> list[str]:
    """The table."""
    rows = list(_rows(snapshot, screen))
    shows = _fitting(rows, screen)
    shown = [[show(row, screen) for _, show in shows] for row in rows]
    found, size = render([column for column, _ in shows], shown, screen, least=MIN_COLUMNS)
    below = processes.short_lines(snapshot, screen, size)
    return [*found, "", *below, screen.style(screen.rule * size, DIM), *_footer(snapshot, screen, size)]


def _rows(snapshot: dtk.Snapshot, screen: Screen) -> Iterator[Row]:
    """A line for a whole card; for a partitioned one a line with its sensors, then one for each partition."""
    domain = any(not card.bdf.startswith("0000:") for card in snapshot.cards)
    for card, partitions in group(snapshot):
        index = "" if partitions else str(card.index)
        yield Row(card, index, screen.text(_short(card.name)), card.bdf if domain else card.bdf.removeprefix("0000:"))
        for device in partitions:
            branch = screen.last if device is partitions[-1] else screen.branch
            yield Row(device, str(device.index), f"{branch} partition {device.partition}", "")


def _footer(snapshot: dtk.Snapshot, screen: Screen, size: int) -> Iterator[str]:
    """Where and when; nearest to the prompt, and so the first to be seen: that nothing of it is real."""
    info = snapshot.system
    drivers = ", ".join(f"{name} {version}" if version else name for name, version in info.drivers.items())
    facts = GAP.join(screen.text(fact) for fact in (info.hostname, drivers) if fact)
    program, now = f"dtk-smi {dtk.__version__}", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.timestamp))
    room = size - len(program) - len(now) - 2 * len(GAP)
    facts = screen.fit(facts, room)
    yield GAP.join((screen.style(program, BOLD), facts + " " * (room - width(facts)), now))
    if snapshot.backend == "rsmi":
        library = snapshot.library
        yield f"readings of {screen.text((library and library.path) or 'librocm_smi64')}"
    if info.simulated or not info.live:
        kind = screen.style("SIMULATED", YELLOW) if info.simulated else "recorded"
        yield f"{kind} machine below {screen.text(snapshot.root)}"


# ---- columns ----


def _short(name: str) -> str:
    """The half of a name that tells cards apart: without the maker, and of "Chip [Product]" the product."""
    if name.endswith("]"):
        name = name.rpartition("[")[2].removesuffix("]")
    return name.removeprefix("AMD ")


def _sample(show: Callable[[dtk.Sample], Cell]) -> Show:
    return lambda row, _: show(row.sample)


def _drawn(show: Callable[[dtk.Sample, Screen], Cell]) -> Show:
    return lambda row, screen: show(row.sample, screen)


def _bar(show: Callable[[dtk.Sample, Screen, int], Cell], columns: int) -> tuple[Column, Show]:
    return Column(""), lambda row, screen: show(row.sample, screen, columns)


INDEX: tuple[Column, Show] = (Column("GPU", ">"), lambda row, _: (row.index, ""))
NAME: tuple[Column, Show] = (Column("Name", least=LEAST_NAME), lambda row, _: (row.name, ""))
READINGS: list[tuple[Column, Show]] = [
    (Column("Bus id"), lambda row, _: (row.address, "")),
    (Column("Temp", ">"), _drawn(cells.temperature)),
    (Column("Power W", "/"), _sample(cells.power)),
    (Column("Memory GiB", "/"), _sample(cells.memory)),
]
MEMORY: tuple[Column, Show] = (Column("Mem", ">"), _sample(cells.memory_percent))
UTILIZATION: tuple[Column, Show] = (Column("Util", ">"), _sample(cells.utilization))
STATE: tuple[Column, Show] = (Column("State"), _sample(cells.state))
EXTRAS: list[tuple[Column, Show]] = [
    (Column("Clock MHz", "/"), _sample(cells.clocks)),
    (Column("Mem T", ">"), _drawn(cells.memory_temperature)),
    (Column("Fan", ">"), _sample(cells.fan)),
    (Column("UUID"), lambda row, _: (row.uuid, DIM)),
]


def _fitting(rows: list[Row], screen: Screen) -> list[tuple[Column, Show]]:
    """The columns: nine that always are there; on a wider screen bars, what else is known, whole names, longer bars."""

    def room(*shows: tuple[Column, Show]) -> int:
        return sum(natural(column, [show(row, screen) for row in rows]) + len(GAP) for column, show in shows)

    others = room(INDEX, *READINGS, MEMORY, UTILIZATION, STATE)
    whole = room(NAME) - len(GAP)
    name = min(whole, max(LEAST_NAME, MIN_COLUMNS - others))
    spare = screen.columns - others - name - 2 * (LEAST_BAR + len(GAP))
    if spare < 0:
        return [INDEX, NAME, *READINGS, MEMORY, UTILIZATION, STATE]
    extras = []
    for extra in EXTRAS:
        if (columns := room(extra)) <= spare:
            spare -= columns
            extras.append(extra)
    spare -= min(spare, whole - name)
    size = min(MOST_BAR, LEAST_BAR + spare // 2)
    memory, utilization = (_bar(show, size) for show in (cells.memory_bar, cells.utilization_bar))
    return [INDEX, NAME, *READINGS, MEMORY, memory, UTILIZATION, utilization, *extras, STATE]
