"""What one look at the machine gives, for every view: the cards with their partitions, each read once."""

from __future__ import annotations

from collections.abc import Iterable

import dtk

Reading = tuple[dtk.Device, dtk.Sample]


class Card:
    """A physical card, and those of its partitions that were asked for. A whole card has none: it is the device."""

    def __init__(self, card: dtk.Device, partitions: Iterable[dtk.Device]) -> None:
        self.card: Reading = (card, card.sample())
        self.partitions: list[Reading] = [(partition, partition.sample()) for partition in partitions]

    @property
    def devices(self) -> list[Reading]:
        """What a runtime can open."""
        return self.partitions or [self.card]


def group(devices: Iterable[dtk.Device]) -> list[tuple[dtk.Device, list[dtk.Device]]]:
    """The cards of some devices, each with its partitions among them, in order."""
    cards: dict[int | None, tuple[dtk.Device, list[dtk.Device]]] = {}
    for device in devices:
        if device.card_index not in cards:
            cards[device.card_index] = device.card, []
        if device.is_partition:
            cards[device.card_index][1].append(device)
    return list(cards.values())


def take(devices: Iterable[dtk.Device]) -> list[Card]:
    """Read the devices and their cards: static and fast metrics."""
    return [Card(card, partitions) for card, partitions in group(devices)]


def warnings(cards: Iterable[Card]) -> list[tuple[str, str]]:
    """The (code, text) of everything odd about the samples, each once."""
    readings = (reading for card in cards for reading in [card.card, *card.partitions])
    return list(dict.fromkeys(warning for _, sample in readings for warning in sample.warnings))
