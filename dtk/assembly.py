"""Assembly: what one dtk-reader told so far, and the Snapshot it makes. For take.py and monitor.py."""

from __future__ import annotations

import struct
import time

from . import metrics, reader
from ._native import ffi, lib
from .errors import Error, Timeout
from .library import ABORTED, VendorLibrary, library_record, library_warnings
from .machine import Probe, SystemInfo, probe_record, system_info
from .metrics import text
from .reader import Crash
from .records import ECCBlock, ecc_blocks, memory_banks
from .sample import Sample
from .snapshot import Reading, Snapshot
from .system import key_error, root_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native._dtk import CData
    from .process import ProcessTable
    from .virtual import VirtualTable

__all__ = ["Assembly", "Slot"]

_DEVICE = struct.Struct("=iiii")  # behind the dtk_info
_TICK = struct.Struct("=dIi")
_SAMPLE = struct.Struct("=ddIiii")
_FILES = 1  # the part of a sample that the files gave; reader.h


class Slot:
    """A device or card as a reader told of it."""

    def __init__(self, info: CData, is_device: bool, card: int, card_devices: tuple[int, ...]) -> None:
        self.info = info
        self.is_device = is_device
        self.card = card  # slot of its card
        self.card_devices = card_devices
        self.ecc_blocks: dict[str, ECCBlock] = {}
        self.firmware: dict[str, str] = {}
        self.memory_banks: dict[str, dict[str, int]] = {}
        self.sample: Sample | None = None  # the last
        self.tick = 0  # of that
        self.asked = 0.0  # when it was asked what it has not yet answered; 0 when it has
        self.duration: float | None = None  # seconds that its last answer took
        self.asked_tick = 0  # in which tick it was asked last
        self.library_at = 0.0  # when the vendor's library last added something


class Assembly:
    """What one reader told so far."""

    def __init__(self, root: str, origin: str, backend: str = "kernel", aborted: VendorLibrary | None = None) -> None:
        self.root = root
        self.origin = origin
        self.backend = backend
        self.library = aborted  # what became of the vendor's library, as far as it is known
        self.log = ""  # what that printed
        self.system: SystemInfo | None = None
        self.probe: Probe | None = None
        self.slots: dict[int, Slot] = {}
        self.touching: str | None = None  # the card whose files it began to read last, while it looks for cards
        self.ready = False
        self.tick = 0  # the last that began
        self.began = 0.0  # when, by time.monotonic()
        self.done = 0  # the last that is done
        self.files = 0  # the last in which all cards told what their files gave
        self.files_at = 0.0  # when
        self.keep = 0.0  # for how many seconds what the library gave stands in for what it is asked again
        self.changed = False
        self.scan: tuple[CData, CData, CData] | None = None  # the last dtk_scan, its processes and usages
        self.scan_asked = 0.0  # when processes were asked for and not yet told; 0 when they were
        self.scan_tick = 0  # in which tick they were asked for last
        self.scan_at = 0.0  # when they were last told
        self.virtual: VirtualTable | None = None  # as far as it was told
        self.virtual_asked = False  # and not yet told to the end

    def take(self, kind: int, slot: int, tick: int, payload: bytes) -> None:
        """Take a frame. Raises Crash for one that cannot be, and the Error that it tells of."""
        try:
            self._take(kind, slot, tick, payload)
        except Error:
            raise
        except (KeyError, ValueError, struct.error) as error:
            raise Crash(f"dtk-reader wrote a frame of kind {kind} that cannot be") from error

    def _take(self, kind: int, slot: int, tick: int, payload: bytes) -> None:
        if kind == reader.SAMPLE:
            self._take_sample(self.slots[slot], tick, payload)
        elif kind == reader.INFO:
            self.slots[slot].info = _struct("dtk_info", payload)
        elif kind == reader.ECC:
            self.slots[slot].ecc_blocks = ecc_blocks(_structs("dtk_ecc_block", payload))
        elif kind == reader.BANKS:
            self.slots[slot].memory_banks = memory_banks(_structs("dtk_bank_count", payload))
        elif kind == reader.FIRMWARE:
            rows = _structs("dtk_firmware", payload)
            self.slots[slot].firmware = dict(sorted((text(row.name), text(row.version)) for row in rows))
        elif kind == reader.LIBRARY:
            self.library = library_record(_struct("dtk_rsmi", payload))
        elif kind == reader.TICK:
            self._take_tick(tick, payload)
        elif kind == reader.PROCESSES:
            self._take_processes(payload)
        elif kind == reader.VIRTUAL:
            self._take_virtual(tick, payload)
        elif kind == reader.DONE:
            self.done = tick
        elif kind == reader.FILES:
            self.files, self.files_at = tick, time.monotonic()
        elif kind == reader.DEVICE:
            size = ffi.sizeof("dtk_info")
            is_device, card, first, count = _DEVICE.unpack(payload[size:])
            indices = tuple(range(first, first + count))
            self.slots[slot] = Slot(_struct("dtk_info", payload[:size]), bool(is_device), card, indices)
        elif kind == reader.TOUCHING:
            self.touching = payload.decode()
        elif kind == reader.SYSTEM:
            self.system = system_info(_struct("dtk_system_info", payload))
        elif kind == reader.PROBE:
            self.probe = probe_record(_struct("dtk_probe", payload))
        elif kind == reader.READY:
            self.ready = True
            self.touching = None
        elif kind == reader.CHANGED:
            self.changed = True
        elif kind == reader.ERROR:
            raise self._error(payload)

    def _take_tick(self, tick: int, payload: bytes) -> None:
        monotonic, _, count = _TICK.unpack_from(payload)
        asked = set(struct.unpack_from(f"={count}i", payload, _TICK.size))
        self.tick, self.began = tick, monotonic
        if reader.PROCESSES_SLOT in asked:
            self.scan_asked = monotonic
            self.scan_tick = tick
        self.virtual_asked = reader.VIRTUAL_SLOT in asked
        for number, slot in self.slots.items():
            if slot.card in asked:
                self.slots[number].asked = monotonic
                self.slots[number].asked_tick = tick

    def _take_sample(self, slot: Slot, tick: int, payload: bytes) -> None:
        timestamp, monotonic, tiers, count, part, _ = _SAMPLE.unpack_from(payload)
        values = ffi.new("dtk_value[]", metrics.COUNT)
        if count != metrics.COUNT or len(payload) != _SAMPLE.size + ffi.sizeof(values):
            raise ValueError
        ffi.memmove(values, payload[_SAMPLE.size :], ffi.sizeof(values))
        sample = Sample(values, tiers, text(slot.info.bdf), timestamp, monotonic)
        if part != _FILES:
            slot.library_at = time.monotonic()
        elif slot.sample and monotonic - slot.library_at <= self.keep:
            sample.keep_stale(slot.sample)
        slot.sample = slot.sample.updated(sample) if slot.sample else sample
        if tick >= slot.asked_tick:  # what the library adds may be late
            slot.tick = tick
            slot.duration = time.monotonic() - slot.asked if slot.asked else slot.duration
            slot.asked = 0.0

    def _take_processes(self, payload: bytes) -> None:
        size = ffi.sizeof("dtk_scan")
        scan = _struct("dtk_scan", payload[:size])
        processes, usages = ffi.new("dtk_process[]", scan.processes), ffi.new("dtk_usage[]", scan.usages)
        split = size + ffi.sizeof(processes)
        if len(payload) != split + ffi.sizeof(usages):
            raise ValueError
        ffi.memmove(processes, payload[size:split], ffi.sizeof(processes))
        ffi.memmove(usages, payload[split:], ffi.sizeof(usages))
        self.scan = scan, processes, usages
        self.scan_asked = 0.0
        self.scan_at = time.monotonic()

    def _take_virtual(self, tick: int, payload: bytes) -> None:
        from .virtual import table

        scan = _struct("dtk_virtual_scan", payload[: ffi.sizeof("dtk_virtual_scan")])
        cards, devices = ffi.new("dtk_virtual_card[]", scan.cards), ffi.new("dtk_virtual[]", scan.devices)
        split = ffi.sizeof("dtk_virtual_scan") + ffi.sizeof(cards)
        if len(payload) != split + ffi.sizeof(devices):
            raise ValueError
        ffi.memmove(cards, payload[split - ffi.sizeof(cards) : split], ffi.sizeof(cards))
        ffi.memmove(devices, payload[split:], ffi.sizeof(devices))
        self.virtual = table(scan, cards, devices)
        self.virtual_asked = self.virtual_asked and not tick

    def _error(self, payload: bytes) -> Error:
        status, name = struct.unpack_from("=i252s", payload)
        key = name.rstrip(b"\0").decode(errors="surrogateescape")
        if not key:
            return root_error(status, self.root, self.origin)
        return key_error(status, key, [_identity(slot) for slot in self.slots.values()])

    def finish_virtual(self, crashed: bool, selected: bool) -> None:
        """Settle what there is of virtual devices: without the library, if it crashed or is late; of the cards that
        were asked for.
        """
        from .virtual import NOTHING, crash, late, of_cards

        if crashed and self.system is not None and self.system.live:
            self.virtual = crash(self.virtual or NOTHING)
        elif self.virtual is None or self.virtual_asked:
            self.virtual = late(self.virtual or NOTHING)
        if selected:
            self.virtual = of_cards(self.virtual or NOTHING, {slot.info.card for slot in self.slots.values()})

    @property
    def is_done(self) -> bool:
        """All that were asked in the last tick have answered."""
        return self.ready and self.tick > 0 and self.done == self.tick

    def outstanding(self) -> list[str]:
        """Addresses of the cards that were asked and have not answered."""
        return sorted({text(slot.info.bdf) for slot in self.slots.values() if slot.asked})

    def snapshot(self, deadline: float, tiers: int, last: dict[str, Sample] | None = None) -> Snapshot:
        """The machine now. A device that was asked longer than `deadline` seconds ago and has not answered, or was not
        asked at all, is stale; `last` are earlier samples by uuid, which a stale one shows beside.
        """
        if self.system is None:
            raise Timeout(
                "no answer by the deadline",
                operation="look for cards",
                path=self.root,
                hint="a longer --deadline tells slow from stuck; where the kernel hangs, sudo dmesg may say where",
            )
        now, monotonic = time.time(), time.monotonic()
        readings = {}
        for number, slot in self.slots.items():
            sample, uuid = slot.sample, text(slot.info.uuid)
            late = slot.asked > 0 and monotonic - slot.asked >= deadline
            if sample is None or late:
                before = sample or (last or {}).get(uuid)
                stale = stale_sample(tiers, text(slot.info.bdf), now, monotonic)
                readings[number] = Reading(slot, stale, before)
            else:
                readings[number] = Reading(slot, sample, None)
        devices = [readings[number] for number, slot in self.slots.items() if slot.is_device]
        cards = [readings[number] for number, slot in self.slots.items() if slot.card == number]
        devices.sort(key=lambda reading: reading.index or 0)
        table, warnings = self._table(devices, deadline, monotonic)
        library = self.library and self.library._replace(log=self.log or self.library.log)
        late = any(_is_late(reading) for reading in readings.values())
        warnings += library_warnings(library, self.backend, late)
        return Snapshot(
            self.root,
            self.system,
            devices,
            cards,
            self.probe,
            table,
            now,
            monotonic,
            warnings,
            self.backend if self.system.live else "kernel",  # the library knows no other machine
            library,
            self.virtual,
        )

    def after_crash(self) -> VendorLibrary | None:
        """The vendor's library, when the reader ended in it; None when it did not have it, or is known to have."""
        if self.library is None or self.library.status == ABORTED:
            return None
        return self.library._replace(status=ABORTED, log=self.log or None)

    def is_whole_without_library(self) -> bool:
        """All has been told but for what the library was to add."""
        told = all(slot.sample for slot in self.slots.values())
        return self.ready and self.files == self.tick > 0 and told and not self.scan_asked and not self.virtual_asked

    def abort_library(self, library: VendorLibrary) -> None:
        """What it was to add is failed."""
        self.library = library
        for slot in self.slots.values():
            if slot.sample:
                slot.sample.fail_stale()

    def _table(
        self, devices: list[Reading], deadline: float, now: float
    ) -> tuple[ProcessTable | None, list[tuple[str, str]]]:
        """The processes, and what is to be said of them."""
        if self.scan_asked and (self.scan is None or now - self.scan_asked >= deadline):
            return None, [("processes_stale", "processes: no answer by the deadline")]
        if self.scan is None:
            return None, []
        from .process import table

        # It is not asked again while it is busy.
        if self.tick > self.scan_tick + 1 and now - self.scan_at >= deadline:
            return None, [("processes_stale", "processes: no answer by the deadline")]
        scan, processes, usages = self.scan
        used = {reading.uuid: reading.sample.memory_used for reading in devices}
        return table(processes, usages, scan, used, self.system is not None and self.system.live), []


def stale_sample(tiers: int, bdf: str, timestamp: float, monotonic: float) -> Sample:
    """Readings that did not come by the deadline."""
    values = ffi.new("dtk_value[]", metrics.COUNT)
    for value in values:
        value.status = lib.DTK_STALE
    return Sample(values, tiers, bdf, timestamp, monotonic)


def _is_late(reading: Reading) -> bool:
    """It has values, and among them some that the vendor's library did not give by the deadline."""
    return reading.state != "stale" and any(reading.sample.reason(name) == "stale" for name in reading.sample)


def _struct(name: str, payload: bytes) -> CData:
    struct = ffi.new(f"{name} *")
    if len(payload) != ffi.sizeof(name):
        raise ValueError
    ffi.memmove(struct, payload, len(payload))
    return struct


def _structs(name: str, payload: bytes) -> CData:
    count, rest = divmod(len(payload), ffi.sizeof(name))
    if rest:
        raise ValueError
    structs = ffi.new(f"{name}[]", count)
    ffi.memmove(structs, payload, len(payload))
    return structs


def _identity(slot: Slot) -> Reading:
    return Reading(slot, stale_sample(lib.DTK_TIER_FAST, "", 0.0, 0.0), None)
