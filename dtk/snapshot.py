"""Snapshot: what one look at a machine gave, read by a process that may hang without harm."""

from __future__ import annotations

import os
import struct
import time

from . import metrics, reader
from ._native import ffi, lib
from .errors import Error, LibraryError, Timeout, from_status
from .identity import Identity, strings
from .library import ABORTED, VendorLibrary, library_record, library_warnings, resolve_backend
from .metrics import text
from .reader import NO_LIBRARY, Crash, Reader
from .records import ECCBlock, ecc_blocks, memory_banks
from .sample import Sample
from .system import Probe, SystemInfo, key_error, key_text, probe_record, resolve_root, root_error, system_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ._native._dtk import CData
    from .process import ProcessTable
    from .virtual import VirtualTable

__all__ = ["Reading", "Snapshot", "take_snapshot"]

SECONDS_MAX = 86400.0  # of an interval or a deadline

_DEVICE = struct.Struct("=iiii")  # behind the dtk_info
_TICK = struct.Struct("=dIi")
_SAMPLE = struct.Struct("=ddIi")


class Reading(Identity):
    """A device of a snapshot: who it is, as the attributes of Device, and what it read.

    sample: its readings; of a card that did not answer by the deadline every value is None for the reason "stale".
    state: "ok", "asleep", "stale", "gone", "denied" or "failed". info: strings that a driver may change, as
    Device.info(). last: its last readings before it became stale, None when there were none or it is not stale.
    ecc_blocks, firmware, memory_banks: errors by block, firmware versions and memory banks of a card, as Device.ecc(),
    Device.firmware() and Device.memory_banks() have them; empty unless the slow tier was asked for.
    card_devices: of a card, the indices of its devices, also of those that were not asked for.
    """

    __slots__ = ("_info", "card_devices", "ecc_blocks", "firmware", "info", "last", "memory_banks", "sample", "state")

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
    what was odd although there are values.
    """

    __slots__ = (
        "backend",
        "cards",
        "devices",
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
        readings = dict.fromkeys((*self.cards, *self.devices))
        odd = (warning for reading in readings for warning in reading.sample.warnings)
        self.warnings = (*warnings, *(virtual.warnings if virtual else ()), *dict.fromkeys(odd))

    @property
    def stale(self) -> tuple[Reading, ...]:
        """The devices and cards that did not answer by the deadline."""
        return tuple(r for r in dict.fromkeys((*self.cards, *self.devices)) if r.state == "stale")

    def __repr__(self) -> str:
        return f"<Snapshot of {self.root}: {len(self.devices)} devices, {len(self.stale)} stale>"


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
        self.changed = False
        self.scan: tuple[CData, CData, CData] | None = None  # the last dtk_scan, its processes and usages
        self.scan_asked = 0.0  # when processes were asked for and not yet told; 0 when they were
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
        self.virtual_asked = reader.VIRTUAL_SLOT in asked
        for number, slot in self.slots.items():
            if slot.card in asked:
                self.slots[number].asked = monotonic

    def _take_sample(self, slot: Slot, tick: int, payload: bytes) -> None:
        timestamp, monotonic, tiers, count = _SAMPLE.unpack_from(payload)
        values = ffi.new("dtk_value[]", metrics.COUNT)
        if count != metrics.COUNT or len(payload) != _SAMPLE.size + ffi.sizeof(values):
            raise ValueError
        ffi.memmove(values, payload[_SAMPLE.size :], ffi.sizeof(values))
        sample = Sample(values, tiers, text(slot.info.bdf), timestamp, monotonic)
        slot.sample = slot.sample.updated(sample) if slot.sample else sample
        slot.tick = max(slot.tick, tick)  # what the library adds may be late
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
                hint="the kernel hangs; sudo dmesg may say where",
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

    def _table(
        self, devices: list[Reading], deadline: float, now: float
    ) -> tuple[ProcessTable | None, list[tuple[str, str]]]:
        """The processes, and what is to be said of them."""
        if self.scan_asked and (self.scan is None or now - self.scan_asked >= deadline):
            return None, [("processes_stale", "processes: no answer by the deadline")]
        if self.scan is None:
            return None, []
        from .process import table

        scan, processes, usages = self.scan
        used = {reading.uuid: reading.sample.memory_used for reading in devices}
        return table(processes, usages, scan, used, self.system is not None and self.system.live), []


def take_snapshot(
    root: str | os.PathLike[str] | None = None,
    *,
    devices: Sequence[str | int] | None = None,
    static: bool = True,
    fast: bool = True,
    slow: bool = False,
    processes: bool | str = False,
    virtual: bool | str = False,
    deadline: float = 1.0,
    backend: str | None = None,
    library: Sequence[str] | None = None,
) -> Snapshot:
    """One look at a machine, which takes no longer than `deadline` seconds whatever a card does.

    root: as for System. devices: keys as for System.match(), none of them for all devices; one device costs one
    card's reads. static, fast, slow: as for Device.sample(). processes: True or "kfd" for those that compute, "all"
    also for those that draw, which takes a look at every process, "use" also how busy each keeps a Hygon card, of which
    the vendor's library is asked in turn. virtual: True for the virtual devices of Hygon cards, or the path of the
    libhydmi.so to ask; where that library crashes or does not answer, the snapshot has what is known without it, and a
    warning. A machine without cards gives no devices.
    backend: "kernel" for files alone; "auto" asks the vendor's library for what a Hygon card does not tell there;
    "rsmi" asks it alone; None is $DTK_SMI_BACKEND, else "auto". It is asked in a process of its own: when it ends that,
    its readings are "failed", and when it hangs, "stale". library: names of the metrics for which it may be asked, None
    for all: when the files have them, it is not even loaded.
    Raises DeviceNotFound, InvalidArgument and PermissionDenied as System and System.match() do; LibraryError when
    dtk-reader cannot run; Timeout when not even the cards were known by the deadline.
    """
    path, origin = resolve_root(root)
    tiers = bool(static) * lib.DTK_TIER_STATIC | bool(fast) * lib.DTK_TIER_FAST | bool(slow) * lib.DTK_TIER_SLOW
    if not tiers:
        raise from_status(lib.DTK_INVALID_ARGUMENT, "take_snapshot", None, "ask for at least one tier")
    keys = check_keys(devices)
    backend, numbers = resolve_backend(backend, "auto"), library_numbers(library)
    check_seconds(deadline=deadline)
    begin = time.monotonic()
    without: list[str] = []
    aborted: VendorLibrary | None = None
    crashes = 0
    hydmi = virtual_option(virtual)
    while True:
        assembly = Assembly(path, origin, backend, aborted)
        # The search for cards may use up the deadline: what was found then gets a little more.
        end = begin + deadline + (0.2 if without or aborted or crashes else 0)
        patience = deadline * (0.15 if without else 0.35)
        try:
            with Reader(
                path,
                tiers,
                devices=keys,
                without=without,
                processes=scan_flags(processes),
                virtual=hydmi,
                backend=backend,
                library=numbers,
                aborted=aborted is not None,
            ) as process:
                try:
                    _listen(process, assembly, end, patience)
                finally:
                    assembly.log = process.log()
        except Crash as crash:
            if (ended := assembly.after_crash()) is not None:
                aborted = ended
                continue
            crashes += 1
            if crashes > 1:
                raise crashed(crash) from crash
            hydmi = None if hydmi is None else NO_LIBRARY  # the restart goes without it
            continue
        # A card that hangs already the search for cards is left out of the next, while there is time for one.
        if assembly.ready or assembly.touching is None or time.monotonic() >= end:
            break
        without.append(assembly.touching)
    if virtual:
        assembly.finish_virtual(crashed=crashes > 0, selected=bool(keys))
    return assembly.snapshot(0.0, tiers)


def _listen(process: Reader, assembly: Assembly, end: float, patience: float) -> None:
    """Take in what a reader tells, until it is done, or to the end; while it looks for cards, until it is silent for
    longer than `patience` seconds. Raises Crash.
    """
    heard = time.monotonic()
    while not assembly.is_done and (now := time.monotonic()) < end:
        until = end if assembly.ready else min(end, heard + patience)
        if now >= until:
            return
        try:
            for frame in process.frames(until - now):
                assembly.take(*frame)
                heard = time.monotonic()
        except Crash:
            if not assembly.is_done:
                raise


def crashed(crash: Crash) -> LibraryError:
    """The error of a reader that crashed again and again."""
    return LibraryError(str(crash), operation="read", path=reader.PROGRAM, hint="DTK_SMI_DEBUG=1 shows what it says")


def scan_flags(processes: bool | str) -> int:
    """DTK_SCAN_* for what take_snapshot() calls processes."""
    if not processes:
        return 0
    from .process import SCANS

    source = "kfd" if processes is True else processes
    if source not in SCANS:
        raise from_status(lib.DTK_INVALID_ARGUMENT, "processes", repr(processes), 'True, False, "kfd", "all" or "use"')
    return SCANS[source]


def library_numbers(names: Sequence[str] | None) -> list[int] | None:
    """Numbers of metrics. Raises KeyError as dtk.metrics.get() does."""
    return None if names is None else [metrics.get(name).number for name in names]


def virtual_option(virtual: bool | str) -> str | None:
    """What dtk-reader wants to hear of virtual devices."""
    if isinstance(virtual, bool):
        return "" if virtual else None
    if not virtual or "\0" in virtual:
        raise from_status(lib.DTK_INVALID_ARGUMENT, "virtual", repr(virtual), "True, False, or the path of a library")
    return virtual if "/" in virtual else f"./{virtual}"


def check_seconds(**seconds: float) -> None:
    """Refuse what is no time: InvalidArgument names it."""
    for name, value in seconds.items():
        if not 0 < value <= SECONDS_MAX:
            raise from_status(
                lib.DTK_INVALID_ARGUMENT, name, None, f"more than 0 and at most {SECONDS_MAX:.0f} seconds", f"{value!r}"
            )


def check_keys(devices: Sequence[str | int] | None) -> list[str]:
    """Keys of devices as dtk-reader takes them."""
    return [*dict.fromkeys(key_text(key) for key in devices or ())]


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
