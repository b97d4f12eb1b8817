"""What makes a card that answers a degraded one, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

import dtk
from dtk import events, throttle

__all__ = ["BUSY", "of_heat", "of_link", "of_memory", "of_reading", "unread"]

BUSY = 20.0  # percent of use from which a link must run as it can: that of an idle card is slower, and may be narrower


def unread(sample: dtk.Sample) -> dict[str, list[str]]:
    """The metrics that could not be read although the card has them, by reason: "failed" and "denied"."""
    found: dict[str, list[str]] = {"failed": [], "denied": []}
    for name, reason in sample.missing().items():
        if reason in found:
            found[reason].append(name)
    return found


def of_reading(reading: dtk.Reading) -> list[str]:
    """A card that the driver does not have, and values that could not be read."""
    causes = [] if reading.driver else ["not on PCI: only KFD knows it"]
    for reason, names in unread(reading.sample).items():
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            causes.append(f"{reason}: {names[0]}{more}")
    return causes


def of_memory(sample: dtk.Sample) -> list[str]:
    """Errors that lost data, and pages that wait for a reset to go out of use."""
    counts = {"uncorrectable memory errors": "ecc_uncorrectable", "memory pages to be retired": "pending_pages"}
    return [f"{text}: {sample[name]}" for text, name in counts.items() if sample.get(name)]


def of_heat(sample: dtk.Sample, spans: Mapping[str, float]) -> list[str]:
    """Sensors at their limit, and what holds the card back that holds no healthy card back. spans: seconds of
    throttling since the last look, by reason.
    """
    hot = [
        f"{sensor} sensor at {sample[f'temperature_{sensor}']:.0f} °C"
        for sensor, margin in events.margins(sample).items()
        if margin <= events.HOT
    ]
    now = {throttle.reason_of(bit) for bit in sample.throttle_status or ()}
    return hot + [f"held back: {reason}" for reason in throttle.HEAT if spans.get(reason) or reason in now]


def of_link(sample: dtk.Sample) -> list[str]:
    """A PCIe link that is narrower or slower than the card can."""
    found = []
    width, most = sample.pcie_link_width, sample.pcie_link_width_max
    if width is not None and most is not None and width < most:
        found.append(f"PCIe link x{width} of x{most}")
    speed, top = sample.pcie_link_speed, sample.pcie_link_speed_max
    if speed is not None and top is not None and speed < top:
        found.append(f"PCIe link at {speed:g} of {top:g} GT/s")
    return found
