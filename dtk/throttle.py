"""Throttling: how long a card held itself back between two samples, and why."""

from __future__ import annotations

from . import metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .sample import Sample

__all__ = ["HEAT", "REASONS", "reason_of", "seconds"]

REASONS = ("power", "current", "thermal", "prochot", "other")
"""Kinds of what makes a card hold itself back: its power limit, the current of a rail, a temperature, a signal of the
platform."""
HEAT = ("thermal", "prochot")
"""Those of REASONS that no healthy card has. The others only say that it works as hard as it may."""

# How the bits of throttle_status, and the residencies, begin.
_KINDS = {
    "ppt": "power",
    "spl": "power",
    "fppt": "power",
    "sppt": "power",
    "tdc": "current",
    "edc": "current",
    "apcc": "current",
    "temp": "thermal",
    "vrhot": "thermal",
    "prochot": "prochot",
}
_RESIDENCIES = {
    metric.name: metric.label_value for metric in metrics.all() if metric.family == "throttle_residency_total"
}


def reason_of(name: str) -> str:
    """Which of REASONS a bit of throttle_status, "temp_hotspot", or a residency, "hbm_thermal", is."""
    if name.endswith("_thermal"):
        return "thermal"
    return next((kind for start, kind in _KINDS.items() if name.startswith(start)), "other")


def seconds(before: Sample, after: Sample) -> dict[str, float] | None:
    """Seconds between two samples of a card that it was throttled, by reason, each of REASONS; reasons may overlap.

    From the firmware's own count where it keeps one; else what throttled it at the first is taken to have done so until
    the second. None where the card does not tell.
    """
    span = max(0.0, after.monotonic - before.monotonic)
    if after.throttle_status is not None:
        active = {reason_of(bit) for bit in before.throttle_status or ()}
        return {reason: span if reason in active else 0.0 for reason in REASONS}
    first, last = before.throttle_accumulation_counter, after.throttle_accumulation_counter
    if last is None:
        return None
    found = dict.fromkeys(REASONS, 0.0)
    ticks = last - first if first is not None else 0
    if ticks <= 0:  # the firmware started anew
        return found
    for name, label in _RESIDENCIES.items():
        old, new = before[name], after[name]
        if isinstance(old, int) and isinstance(new, int) and new > old:
            reason = reason_of(label)
            found[reason] = min(span, found[reason] + span * (new - old) / ticks)
    return found
