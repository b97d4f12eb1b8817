"""`dtk-smi -L`: one line a device, partitions below their card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dtk
from dtk_cli.snapshot import group
from dtk_cli.text import Screen


def render(devices: Iterable[dtk.Device], screen: Screen) -> str:
    """The lines. The part up to the closing parenthesis has the shape of `nvidia-smi -L`."""
    return "".join(f"{line}\n" for line in _lines(devices, screen))


def _lines(devices: Iterable[dtk.Device], screen: Screen) -> Iterator[str]:
    for card, partitions in group(devices):
        name = screen.text(card.name)
        if not partitions:
            yield f"GPU {card.index}: {name} (UUID: {card.uuid}) {card.bdf}"
            continue
        yield f"Card {card.card_index}: {name} {card.bdf}"
        for device in partitions:
            yield f"  GPU {device.index}: {name} partition {device.partition} (UUID: {device.uuid}) {device.bdf}"
