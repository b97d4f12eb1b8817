"""The virtual devices of Hygon cards: the configuration files that Hygon's tools write."""

from __future__ import annotations

from .files import Files, lines
from .machine import Machine
from .models import MIB

HYGON = 0x1D94


def virtual_files(machine: Machine) -> Files:
    """A file for each, all of a card alike; cards in the order of their KFD nodes."""
    cards = sorted((card for card in machine.cards if card.model.pci[0] == HYGON), key=lambda card: card.kfd_node)
    files: Files = {}
    for number, card in enumerate(cards):
        units = card.model.compute_units // max(1, machine.virtual)
        for part in range(machine.virtual):
            vdev = number * machine.virtual + part
            mask = (1 << units) - 1 << units * part
            files[f"etc/vdev/vdev{vdev}.conf"] = lines(
                f"PciBusId: {card.bdf}",
                f"cu_mask: 0x{mask & (1 << 64) - 1:016x}",
                f"cu_mask: 0x{mask >> 64:016x}",
                f"cu_count: {units}",
                f"mem: {card.model.vram // machine.virtual // MIB} MiB",
                f"device_id: {number}",
                f"vdev_id: {vdev}",
                f"pipe_id: {part}",
                "enable: 1",
            )
    return files
