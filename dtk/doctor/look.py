"""What an examination has seen; the checks make findings of it."""

from __future__ import annotations

from .._record import Record
from ..machine import PCICard, Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..identity import Identity
    from ..snapshot import Reading, Snapshot

__all__ = ["DRIVERS", "Look", "Machine", "count", "driver_of", "label"]

DRIVERS = ("amdgpu", "radeon", "hydcu", "hycu")
HYGON = 0x1D94
GROUP_MAY = 0o060  # open a device node


class Machine:
    """What libdtk saw when it was asked directly, out of the JSON of machine.py. Raises KeyError and TypeError for
    what is something else.

    agents: uuids of the devices in the order of HIP. inactive_groups: of device nodes, that this user is a member of
    by the file of groups, and this process is not.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        probe = found["probe"]
        self.probe = Probe(**{**probe, "modules": tuple(probe["modules"])})
        self.pci = [PCICard(**card) for card in found["pci"]]
        self.agents: list[str] = [str(uuid) for uuid in found["agents"]]
        self.inactive_groups = {str(group) for group in found["inactive_groups"]}


class Look(Record):
    """snapshot: the readings; None when not even the cards were known by the deadline. machine: what libdtk saw when it
    was asked directly; None when that did not answer. costs: what it measured, likewise. software: what was found of
    libraries and compilers; None when that did not answer, or on a machine that is not this one (live is False).
    silent: why "machine", "costs" and "software" are not there, in words after "it". selected: devices were named, and
    other cards are not judged.
    """

    live: bool
    snapshot: Snapshot | None
    machine: Machine | None
    costs: dict[str, Any] | None
    software: dict[str, Any] | None
    environment: Mapping[str, str]
    silent: Mapping[str, str]
    selected: bool

    def judged(self, bdf: str) -> bool:
        """A card at this address is asked about."""
        return not self.selected or (self.snapshot is not None and any(c.bdf == bdf for c in self.snapshot.cards))

    def why(self, name: str) -> str:
        """Why one of them is not there."""
        return f"the process that looks at it {self.silent.get(name, 'did not answer by the deadline')}"

    @property
    def complete(self) -> bool:
        """What does not show is not there; a recording may just not hold it."""
        return self.live or (self.snapshot is not None and self.snapshot.system.simulated)

    def in_kfd(self, card: Reading) -> bool:
        """KFD has a node of this card, and this process may look at it."""
        return self.partitions(card) > 0

    def partitions(self, card: Reading) -> int:
        """How many nodes that is."""
        devices = self.snapshot.devices if self.snapshot else ()
        return sum(device.kfd_node is not None for device in devices if device.card_index == card.card_index)


def label(device: Identity) -> str:
    """What a device is called in a finding."""
    name = f"card {device.card_index}" if device.index is None else f"GPU {device.index}"
    return f"{name} ({device.bdf})"


def driver_of(vendor_id: int | None, driver: str | None = None) -> str:
    """The driver that has a card or should have it, in words that go into a command."""
    return driver if driver in DRIVERS else "hycu" if vendor_id == HYGON else "amdgpu"


def count(number: int, one: str, several: str = "") -> str:
    """A number of things: 1 card, 2 cards."""
    return f"{number} {one if number == 1 else several or one + 's'}"
