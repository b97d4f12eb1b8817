"""`dtk-smi -L`: one line a device, partitions below their card."""

from __future__ import annotations

from collections.abc import Iterator

import dtk
from dtk_cli.look import group
from dtk_cli.text import Screen


def render(snapshot: dtk.Snapshot, screen: Screen) -> str:
    """The lines. The part up to the closing parenthesis has the shape of `nvidia-smi -L`."""
    return "".join(f"{line}\n" for line in _lines(snapshot, screen))


def _lines(snapshot: dtk.Snapshot, screen: Screen) -> Iterator[str]:
    for card, partitions in group(snapshot):
        name = screen.text(card.name)
        if not partitions:
            yield f"GPU {card.index}: {name} (UUID: {card.uuid}) {card.bdf}"
            continue
        yield f"Card {card.card_index}: {name} {card.bdf}"
        for device in partitions:
            yield f"  GPU {device.index}: {name} partition {device.partition} (UUID: {device.uuid}) {device.bdf}"
