"""What a table says of a card: each reading as a text and a style, and the one word that matters most."""

from __future__ import annotations

import math
from collections.abc import Callable

import dtk
from dtk import throttle
from dtk_cli.grid import BLANK, Cell
from dtk_cli.text import CYAN, DIM, GREEN, RED, YELLOW, Screen

GIB = 1 << 30

# When a card is called busy, full or warm.
BUSY_PERCENT = 10
FULL_PERCENT = 95
WARM_MARGIN = 10  # °C below critical

# What every card should tell: for these the vendor's library is asked where a driver's files lack one. For the rest it
# takes too long.
BASIC = ("utilization_gpu", "memory_total", "memory_used", "temperature_edge", "power_draw", "power_limit")

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


def temperature(sample: dtk.Sample, screen: Screen) -> Cell:
    """Of the sensor that matters most."""
    known = [sensor for sensor in SENSORS if sample[sensor] is not None] or list(SENSORS)
    sensor = next((sensor for sensor in known if _margin(sample, sensor) <= 0), known[0])
    return _celsius(sample, sensor, screen)


def memory_temperature(sample: dtk.Sample, screen: Screen) -> Cell:
    """Of the memory."""
    return _celsius(sample, "temperature_memory", screen)


def power(sample: dtk.Sample) -> Cell:
    """In W, and its limit."""
    return _pair(sample, "power_draw", "power_limit", "{:.0f}".format)


def memory(sample: dtk.Sample) -> Cell:
    """Used and total, in GiB."""
    return _pair(sample, "memory_used", "memory_total", gib)


def memory_percent(sample: dtk.Sample) -> Cell:
    """How full it is."""
    percent = _memory_percent(sample)
    return BLANK if percent is None else (f"{percent:.0f}%", YELLOW if _is_full(sample) else "")


def memory_bar(sample: dtk.Sample, screen: Screen, columns: int) -> Cell:
    """The same as a bar."""
    return _bar(_memory_percent(sample), YELLOW if _is_full(sample) else CYAN, screen, columns)


def utilization(sample: dtk.Sample) -> Cell:
    """Of the compute engines."""
    return cell(sample, "utilization_gpu", "{:.0f}%".format, GREEN if _is_busy(sample) else "")


def utilization_bar(sample: dtk.Sample, screen: Screen, columns: int) -> Cell:
    """The same as a bar."""
    return _bar(number(sample, "utilization_gpu"), GREEN if _is_busy(sample) else DIM, screen, columns)


def clocks(sample: dtk.Sample) -> Cell:
    """Of the compute engines and the memory, in MHz."""
    return _pair(sample, "clock_gfx", "clock_memory", "{:.0f}".format)


def fan(sample: dtk.Sample) -> Cell:
    """Its drive."""
    return cell(sample, "fan_speed", "{:.0f}%".format)


def state(sample: dtk.Sample) -> Cell:
    """What matters most: a card that does not answer or not all, then heat, memory, power and work."""
    if sample.state != "ok":
        return WORDS[sample.state]
    if any(sample.reason(name) == "failed" for name in ("power_draw", "memory_used", "utilization_gpu", *SENSORS)):
        return WORDS["failed"]
    if any(_margin(sample, sensor) <= 0 for sensor in SENSORS):
        return ("hot", RED)
    throttled = sample.throttle_status or ()
    if any(throttle.reason_of(bit) in throttle.HEAT for bit in throttled):
        return ("throttled", RED)
    if _is_full(sample):
        return ("full", YELLOW)
    if throttled:
        return ("capped", YELLOW)
    return ("busy", GREEN) if _is_busy(sample) else ("ok", DIM)


def cell(sample: dtk.Sample, name: str, show: Callable[[float], str], style: str = "") -> Cell:
    """A reading, or the word for why it is missing; no word where the state of the whole device says it."""
    value = number(sample, name)
    if value is not None:
        return (show(value), style)
    reason = sample.reason(name) or "unsupported"
    return BLANK if reason == sample.state else WORDS[reason]


def number(sample: dtk.Sample, name: str) -> float | None:
    """A reading that is a number; None also where it has no value."""
    value = sample[name]
    return value if isinstance(value, (int, float)) else None


def gib(count: float) -> str:
    """Bytes in GiB, in three digits or so."""
    value = count / GIB
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _celsius(sample: dtk.Sample, sensor: str, screen: Screen) -> Cell:
    margin = _margin(sample, sensor)
    style = RED if margin <= 0 else YELLOW if margin <= WARM_MARGIN else ""
    return cell(sample, sensor, lambda value: f"{value:.0f}{screen.celsius}", style)


def _margin(sample: dtk.Sample, sensor: str) -> float:
    """How far a sensor is below the temperature at which its card throttles; infinite where either is not known."""
    limit = SENSORS[sensor]
    value, critical = number(sample, sensor), number(sample, limit) if limit else None
    return math.inf if value is None or critical is None else critical - value


def _memory_percent(sample: dtk.Sample) -> float | None:
    used, total = number(sample, "memory_used"), number(sample, "memory_total")
    return None if used is None or not total else 100 * used / total


def _is_full(sample: dtk.Sample) -> bool:
    return (_memory_percent(sample) or 0) >= FULL_PERCENT


def _is_busy(sample: dtk.Sample) -> bool:
    return (number(sample, "utilization_gpu") or 0) >= BUSY_PERCENT


def _pair(sample: dtk.Sample, name: str, of: str, show: Callable[[float], str]) -> Cell:
    """A reading and what it goes with."""
    text, style = cell(sample, name, show)
    other = number(sample, of)
    return (f"{text}/{show(other).removesuffix('.0')}" if text and other is not None else text, style)


def _bar(percent: float | None, style: str, screen: Screen, columns: int) -> Cell:
    return BLANK if percent is None else (screen.bar(percent, columns), style if percent else DIM)
