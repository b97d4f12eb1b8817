"""Snapshot: what one look at a machine gave, read by a process that may hang without harm: see take.py."""

from __future__ import annotations

from .identity import Identity, strings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._native._dtk import CData
    from .assembly import Slot
    from .events import Event
    from .library import VendorLibrary
    from .machine import Probe, SystemInfo
    from .process import ProcessTable
    from .sample import Sample
    from .virtual import VirtualTable

__all__ = ["Reading", "Snapshot"]


class Reading(Identity):
    """A device of a snapshot: who it is, as the attributes of Device, and what it read.

    sample: its readings; of a card that did not answer by the deadline every value is None for the reason "stale".
    state: "ok", "asleep", "stale", "gone", "denied" or "failed". info: strings that a driver may change, as
    Device.info(). last: its last readings before it became stale, None when there were none or it is not stale.
    ecc_blocks, firmware, memory_banks: errors by block, firmware versions and memory banks of a card, as Device.ecc(),
    Device.firmware() and Device.memory_banks() have them; empty unless the slow tier was asked for.
    card_devices: of a card, the indices of its devices, also of those that were not asked for.
    duration: seconds from when it was asked to its answer, None when it has not answered.
    """

    __slots__ = (
        "_info",
        "card_devices",
        "duration",
        "ecc_blocks",
        "firmware",
        "info",
        "last",
        "memory_banks",
        "sample",
        "state",
    )

    def __init__(self, slot: Slot, sample: Sample, last: Sample | None) -> None:
        """For Snapshot."""
        self._info = slot.info
        self.info = strings(slot.info)
        self.sample = sample
        self.state = sample.state
        self.last = last
        self.card_devices = slot.card_devices
        self.ecc_blocks = slot.ecc_blocks
        self.firmware = slot.firmware
        self.memory_banks = slot.memory_banks
        self.duration = None if sample.state == "stale" else slot.duration

    @property
    def _identity(self) -> CData:
        return self._info

    def __repr__(self) -> str:
        return f"<Reading of {self.uuid}: {self.name}, {self.state}>"


class Snapshot:
    """A machine at one moment. It does not change.

    timestamp: Unix seconds; monotonic: the same by time.monotonic(). root: of the machine. system: SystemInfo.
    devices: those that were asked for, by index. cards: the physical cards of these; a whole card is the same Reading
    in both. probe: what there is instead, when the machine has no device at all, else None.
    processes: what uses the devices, when that was asked for; None also when it was not known by the deadline, which is
    a warning then. virtual: the virtual devices of Hygon cards, likewise. backend: "kernel", "auto" or "rsmi", as it
    was asked for. library: what became of the vendor's library, None when it was not needed. warnings: (code, text) of
    what was odd although there are values. events: of a Monitor, what happened since its last snapshot.
    """

    __slots__ = (
        "backend",
        "cards",
        "devices",
        "events",
        "library",
        "monotonic",
        "probe",
        "processes",
        "root",
        "system",
        "timestamp",
        "virtual",
        "warnings",
    )

    def __init__(
        self,
        root: str,
        system: SystemInfo,
        devices: Iterable[Reading],
        cards: Iterable[Reading],
        probe: Probe | None,
        processes: ProcessTable | None,
        timestamp: float,
        monotonic: float,
        warnings: Iterable[tuple[str, str]] = (),
        backend: str = "kernel",
        library: VendorLibrary | None = None,
        virtual: VirtualTable | None = None,
    ) -> None:
        self.root = root
        self.system = system
        self.devices = tuple(devices)
        self.cards = tuple(cards)
        self.probe = probe
        self.processes = processes
        self.virtual = virtual
        self.timestamp = timestamp
        self.monotonic = monotonic
        self.backend = backend
        self.library = library
        self.events: tuple[Event, ...] = ()
        readings = dict.fromkeys((*self.cards, *self.devices))
        odd = (warning for reading in readings for warning in reading.sample.warnings)
        self.warnings = (*warnings, *(virtual.warnings if virtual else ()), *dict.fromkeys(odd))

    @property
    def stale(self) -> tuple[Reading, ...]:
        """The devices and cards that did not answer by the deadline."""
        return tuple(r for r in dict.fromkeys((*self.cards, *self.devices)) if r.state == "stale")

    def __repr__(self) -> str:
        return f"<Snapshot of {self.root}: {len(self.devices)} devices, {len(self.stale)} stale>"
