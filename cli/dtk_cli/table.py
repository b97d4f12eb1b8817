"""Bare `dtk-smi`: one line a device, in 80 columns. For people: scripts take --json."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator

import dtk
from dtk_cli.snapshot import Card
from dtk_cli.text import MIN_COLUMNS, Screen, width

GIB = 1 << 30

# When a card is called busy, full or warm.
BUSY_PERCENT = 10
FULL_PERCENT = 95
WARM_MARGIN = 10  # °C below critical

BOLD, DIM, RED, YELLOW, GREEN = "1", "2", "1;31", "33", "32"

Cell = tuple[str, str]  # a text and its style
BLANK = ("", "")

# What a table says for a value that is missing, by reason.
WORDS = {
    "unsupported": ("-", DIM),
    "denied": ("denied", YELLOW),
    "asleep": ("asleep", DIM),
    "gone": ("lost", RED),
    "failed": ("err", RED),
    "stale": ("stale", RED),
    "on_card": BLANK,  # the card stands in the row above
}

# The temperature shown is the first of these that is there, or the first that reached the limit beside it.
SENSORS = {
    "temperature_junction": "temperature_junction_critical",
    "temperature_edge": "temperature_edge_critical",
    "temperature_core": None,
    "temperature_memory": "temperature_memory_critical",
}


# Titles, and how the cells below them stand: to the left, to the right, or with their strokes in line.
COLUMNS = (
    ("GPU", ">"),
    ("Name", "<"),
    ("Bus id", "<"),
    ("Temp", ">"),
    ("Power W", "/"),
    ("Memory GiB", "/"),
    ("Mem", ">"),
    ("Util", ">"),
    ("State", "<"),
)
NAME = 1  # the column that takes what the others leave
MIN_NAME = 8  # even if a line then takes more than the screen has
GAP = "  "


def render(system: dtk.System, cards: Iterable[Card], screen: Screen) -> str:
    """The table."""
    cards = list(cards)
    domain = any(not card.card[0].bdf.startswith("0000:") for card in cards)
    rows = [row for card in cards for row in _rows(card, domain, screen)]
    texts = [_texts(title, align, [row[i][0] for row in rows]) for i, (title, align) in enumerate(COLUMNS)]
    widths = [max(map(width, column)) for column in texts]
    others = sum(widths) - widths[NAME] + len(GAP) * (len(COLUMNS) - 1)
    if widths[NAME] > screen.columns - others:
        texts[NAME] = [_short(text) for text in texts[NAME]]
    widths[NAME] = max(MIN_NAME, MIN_COLUMNS - others, min(widths[NAME], screen.columns - others))
    styles = [[BOLD] * len(COLUMNS), *([style for _, style in row] for row in rows)]
    head, *body = (_line(*line, widths, screen) for line in zip(zip(*texts, strict=True), styles, strict=True))
    rule = screen.rule * (widths[NAME] + others)
    lines = (*_header(system, screen, len(rule)), "", head, screen.style(rule, DIM), *body)
    return "".join(f"{line}\n" for line in lines)


def _texts(title: str, align: str, cells: list[str]) -> list[str]:
    """The title and the cells of a column."""
    if align == "/":
        pairs = [cell.partition("/") for cell in cells]
        left, right = (max(len(pair[i]) for pair in pairs) for i in (0, 2))
        cells = [f"{used:>{left}}{stroke or ' '}{limit:<{right}}" for used, stroke, limit in pairs]
    return [title, *cells]


def _short(name: str) -> str:
    """The half of a name that tells cards apart: without the maker, and of "Chip [Product]" the product."""
    if name.endswith("]"):
        name = name.rpartition("[")[2].removesuffix("]")
    return name.removeprefix("AMD ")


def _line(texts: Iterable[str], styles: Iterable[str], widths: Iterable[int], screen: Screen) -> str:
    cells = []
    for text, style, columns, (_, align) in zip(texts, styles, widths, COLUMNS, strict=True):
        text = screen.fit(text, columns)
        padding = " " * (columns - width(text))
        text = screen.style(text, style)
        cells.append(text + padding if align == "<" else padding + text)
    return GAP.join(cells).rstrip()


def _rows(card: Card, domain: bool, screen: Screen) -> Iterator[list[Cell]]:
    """A line for a whole card; for a partitioned one a line with its sensors, then one for each partition."""
    device, sample = card.card
    index = "" if card.partitions else str(device.index)
    address = device.bdf if domain else device.bdf.removeprefix("0000:")
    yield [(index, ""), (screen.text(device.name), ""), (address, ""), *_readings(sample, screen)]
    for device, sample in card.partitions:
        branch = screen.last if device is card.partitions[-1][0] else screen.branch
        name = f"{branch} partition {device.partition}"
        yield [(str(device.index), ""), (name, ""), BLANK, *_readings(sample, screen)]


def _header(system: dtk.System, screen: Screen, columns: int) -> Iterator[str]:
    info = system.info
    drivers = ", ".join(f"{name} {version}" if version else name for name, version in info.drivers.items())
    facts = GAP.join(screen.text(fact) for fact in (info.hostname, drivers) if fact)
    program, now = f"dtk-smi {dtk.__version__}", time.strftime("%Y-%m-%d %H:%M:%S")
    room = columns - len(program) - len(now) - 2 * len(GAP)
    facts = screen.fit(facts, room)
    yield GAP.join((screen.style(program, BOLD), facts + " " * (room - width(facts)), now))
    if info.simulated or not info.live:
        kind = screen.style("SIMULATED", YELLOW) if info.simulated else "recorded"
        yield f"{kind} machine below {screen.text(system.root)}"


def _readings(sample: dtk.Sample, screen: Screen) -> list[Cell]:
    """The cells from the temperature to the state."""
    return [
        _temperature(sample, screen),
        _pair(sample, "power_draw", "power_limit", "{:.0f}".format),
        _pair(sample, "memory_used", "memory_total", _gib),
        _memory(sample),
        _utilization(sample),
        _state(sample),
    ]


def _temperature(sample: dtk.Sample, screen: Screen) -> Cell:
    known = [sensor for sensor in SENSORS if sample[sensor] is not None] or list(SENSORS)
    sensor = next((sensor for sensor in known if _margin(sample, sensor) <= 0), known[0])
    margin = _margin(sample, sensor)
    style = RED if margin <= 0 else YELLOW if margin <= WARM_MARGIN else ""
    return _cell(sample, sensor, lambda value: f"{value:.0f}{screen.celsius}", style)


def _memory(sample: dtk.Sample) -> Cell:
    percent = _memory_percent(sample)
    return BLANK if percent is None else (f"{percent:.0f}%", YELLOW if _full(sample) else "")


def _utilization(sample: dtk.Sample) -> Cell:
    return _cell(sample, "utilization_gpu", "{:.0f}%".format, GREEN if _busy(sample) else "")


def _state(sample: dtk.Sample) -> Cell:
    """What matters most: a card that does not answer or not all, then heat, memory and work."""
    if sample.state != "ok":
        return WORDS[sample.state]
    if any(sample.reason(name) == "failed" for name in ("power_draw", "memory_used", "utilization_gpu", *SENSORS)):
        return WORDS["failed"]
    if any(_margin(sample, sensor) <= 0 for sensor in SENSORS):
        return ("hot", RED)
    if _full(sample):
        return ("full", YELLOW)
    return ("busy", GREEN) if _busy(sample) else ("ok", DIM)


def _margin(sample: dtk.Sample, sensor: str) -> float:
    """How far a sensor is below the temperature at which its card throttles; infinite where either is not known."""
    limit = SENSORS[sensor]
    value, critical = _number(sample, sensor), _number(sample, limit) if limit else None
    return math.inf if value is None or critical is None else critical - value


def _memory_percent(sample: dtk.Sample) -> float | None:
    used, total = _number(sample, "memory_used"), _number(sample, "memory_total")
    return None if used is None or not total else 100 * used / total


def _full(sample: dtk.Sample) -> bool:
    return (_memory_percent(sample) or 0) >= FULL_PERCENT


def _busy(sample: dtk.Sample) -> bool:
    return (_number(sample, "utilization_gpu") or 0) >= BUSY_PERCENT


def _number(sample: dtk.Sample, name: str) -> float | None:
    value = sample[name]
    return value if isinstance(value, (int, float)) else None


def _cell(sample: dtk.Sample, name: str, show: Callable[[float], str], style: str = "") -> Cell:
    """A reading, or the word for why it is missing; no word where the state of the whole device says it."""
    value = _number(sample, name)
    if value is not None:
        return (show(value), style)
    reason = sample.reason(name) or "unsupported"
    return BLANK if reason == sample.state else WORDS[reason]


def _pair(sample: dtk.Sample, name: str, of: str, show: Callable[[float], str]) -> Cell:
    """A reading and its limit."""
    text, style = _cell(sample, name, show)
    limit = _number(sample, of)
    return (f"{text}/{show(limit).removesuffix('.0')}" if text and limit is not None else text, style)


def _gib(count: float) -> str:
    gib = count / GIB
    return f"{gib:.1f}" if gib < 99.95 else f"{gib:.0f}"
