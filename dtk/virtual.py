"""Virtual devices of Hygon cards (vDCU): what they were given, what they use, and what their cards have left."""

from __future__ import annotations

import errno
import os

from ._native import ffi, lib
from ._record import Record
from ._statuses import STATUSES
from .errors import from_status
from .metrics import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ._native._dtk import CData
    from .system import System

__all__ = ["VirtualCard", "VirtualDevice", "VirtualTable"]

LIBRARY = "libhydmi"
FALLBACK = "what the configuration files tell is shown"

_PLACES = {lib.DTK_VIRTUAL_FILES: "file", lib.DTK_VIRTUAL_LIBRARY: "library"}

# What libhydmi's functions return, from 0.
_DMI = (
    "SUCCESS ERROR NO_MEMORY OPEN_MKFD_FAILED MKFD_ALREADY_OPENED SYS_NODE_NOT_EXIST NOT_SUPPORTED MKFD_NOT_OPENED "
    "CREATE_VDEV_FAILED DESTROY_VDEV_FAILED INVALID_ARGUMENTS OUT_OF_RESOURCES QUERY_VDEV_INFO_FAILED "
    "ERROR_NOT_INITIALIZED DEVICE_NOT_SUPPORT VDEV_NOT_EXIST INIT_DEVICE_FAILED DEVICE_BUSY FILE_ERROR PERMISSION "
    "INTERNAL_EXCEPTION INPUT_OUT_OF_BOUNDS SMI_INIT_ERROR NOT_FOUND INSUFFICIENT_SIZE INTERRUPT UNEXPECTED_SIZE "
    "NO_DATA UNEXPECTED_DATA SMI_BUSY REFCOUNT_OVERFLOW NOT_YET_IMPLEMENTED UNKNOWN_ERROR"
).split()

_DETAILS = {
    lib.DTK_DETAIL_MALFORMED: "not of the form that is expected",
    lib.DTK_DETAIL_IMPLAUSIBLE: "a number that cannot be true",
    errno.EEXIST: "a second file of the same virtual device",
    errno.ELOOP: "a symbolic link, which is not followed",
}


class VirtualDevice(Record):
    """A part of a card that Hygon's driver keeps apart for a container. None is not known; `reasons` says why.

    id: N of vdevN.
    card: index of its card, None when that is not there or nobody says which it is. bdf: its PCI address.
    card_number: of its card, as Hygon's tools count them.
    name: what the library calls it.
    compute_units: 0 when it shares all of its card's. memory_total, memory_used: bytes. utilization: %.
    container: number of the container that owns it, in hex. pipe: of the card, that it uses.
    enabled: as its file says.
    sources: where it was seen: "file" (etc/vdev/vdevN.conf), "library" (libhydmi.so); only the latter knows its use.
    reasons: of compute_units, memory_total, memory_used and utilization, each that is None with its status.
    details: of some of these, more about it.
    """

    id: int
    card: int | None
    bdf: str | None
    card_number: int | None
    name: str | None
    compute_units: int | None
    memory_total: int | None
    memory_used: int | None
    utilization: float | None
    container: str | None
    pipe: int | None
    enabled: bool | None
    sources: tuple[str, ...]
    reasons: dict[str, str]
    details: dict[str, str]


class VirtualCard(Record):
    """What a card has left for further virtual devices, which only libhydmi knows.

    card: index of the card, None when nobody says which it is. card_number: as Hygon's tools count them.
    compute_units_free; memory_free: bytes. reasons, details: as of a VirtualDevice.
    """

    card: int | None
    card_number: int
    compute_units_free: int | None
    memory_free: int | None
    reasons: dict[str, str]
    details: dict[str, str]


class VirtualTable(Record):
    """The virtual devices of a machine.

    devices: by id. cards: those that libhydmi counts; () without it.
    sources: status of each place, "file" and "library": "ok"; "unsupported" it is not there or was not asked;
    "not_found" there is no libhydmi; "library" it cannot be loaded; "denied"; "failed"; "stale" it did not answer.
    library: path of the libhydmi that was asked. most: virtual devices that a card can have.
    warnings: (code, text) of what went wrong.
    """

    devices: tuple[VirtualDevice, ...]
    cards: tuple[VirtualCard, ...]
    sources: dict[str, str]
    library: str | None
    most: int | None
    warnings: tuple[tuple[str, str], ...]


def read(system: System) -> VirtualTable:
    """What the configuration files tell. The library is not for this process: see take_snapshot()."""
    handle, opened = system.handle(), ffi.new("dtk_virtuals **")
    status = lib.dtk_virtuals_read(handle, lib.DTK_VIRTUAL_FILES, ffi.NULL, opened)
    if status < 0:
        raise from_status(status, "virtual devices", system.root)
    virtuals, scan = ffi.gc(opened[0], lib.dtk_virtuals_free), ffi.new("dtk_virtual_scan *")
    lib.dtk_virtuals_scan(virtuals, scan, ffi.sizeof("dtk_virtual_scan"))
    cards, devices = ffi.new("dtk_virtual_card[]", scan.cards), ffi.new("dtk_virtual[]", scan.devices)
    lib.dtk_virtuals_cards(virtuals, cards, ffi.sizeof("dtk_virtual_card"), scan.cards)
    lib.dtk_virtuals_devices(virtuals, devices, ffi.sizeof("dtk_virtual"), scan.devices)
    del handle  # kept the system open
    return table(scan, cards, devices)


def table(scan: CData, cards: CData, devices: CData) -> VirtualTable:
    """The records of a look."""
    rows = tuple(map(_device, devices))
    return VirtualTable(
        devices=rows,
        cards=tuple(map(_card, cards)),
        sources={"file": _status(scan.files), "library": _status(scan.library)},
        library=text(scan.path) or None,
        most=_number(scan.most),
        warnings=(*_of_library(scan, rows), *_of_files(scan), *_of_cards(rows)),
    )


def of_cards(whole: VirtualTable, indices: set[int | None]) -> VirtualTable:
    """What there is of some cards alone."""
    devices = tuple(device for device in whole.devices if device.card in indices)
    return whole._replace(devices=devices, cards=tuple(card for card in whole.cards if card.card in indices))


# Before anything was told.
NOTHING = VirtualTable((), (), {"file": "stale", "library": "stale"}, None, None, ())


def crash(whole: VirtualTable) -> VirtualTable:
    """What the files tell, when the library made the reader end."""
    warning = "virtual_library", f"{LIBRARY} crashed, or ended the process that asked it; {FALLBACK}"
    return _without_library(whole, "failed", warning)


def late(whole: VirtualTable) -> VirtualTable:
    """What the files tell, when the library did not answer by the deadline."""
    return _without_library(whole, "stale", ("virtual_stale", f"{LIBRARY}: no answer by the deadline; {FALLBACK}"))


def _without_library(whole: VirtualTable, status: str, warning: tuple[str, str]) -> VirtualTable:
    return whole._replace(sources={**whole.sources, "library": status}, warnings=(warning, *whole.warnings))


def _device(row: CData) -> VirtualDevice:
    values = {
        "compute_units": row.compute_units,
        "memory_total": row.memory_total,
        "memory_used": row.memory_used,
        "utilization": row.utilization,
    }
    calls = dict.fromkeys(values, "dmiGetVDeviceInfo")
    if row.sources & lib.DTK_VIRTUAL_LIBRARY:
        calls["utilization"] = "dmiGetVDevBusyPercent"
    reasons, details = _missing(values, calls)
    return VirtualDevice(
        id=row.id,
        card=_number(row.card),
        bdf=text(row.bdf) or None,
        card_number=_number(row.device),
        name=text(row.name) or None,
        compute_units=_count(row.compute_units),
        memory_total=_count(row.memory_total),
        memory_used=_count(row.memory_used),
        utilization=None if row.utilization.status else float(row.utilization.f64),
        container=text(row.container) or None,
        pipe=_number(row.pipe),
        enabled=None if row.enabled < 0 else bool(row.enabled),
        sources=tuple(name for bit, name in _PLACES.items() if row.sources & bit),
        reasons=reasons,
        details=details,
    )


def _card(row: CData) -> VirtualCard:
    values = {"compute_units_free": row.compute_units_free, "memory_free": row.memory_free}
    reasons, details = _missing(values, dict.fromkeys(values, "dmiGetDeviceRemainingInfo"))
    return VirtualCard(
        card=_number(row.card),
        card_number=row.device,
        compute_units_free=_count(row.compute_units_free),
        memory_free=_count(row.memory_free),
        reasons=reasons,
        details=details,
    )


def _missing(values: Mapping[str, CData], calls: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Why values are missing: a status each, and more about some."""
    missing = {name: value for name, value in values.items() if value.status}
    details = {name: _detail(value.detail, calls[name]) for name, value in missing.items() if value.detail}
    return {name: _status(value.status) for name, value in missing.items()}, details


# ---- warnings ----


def _of_library(scan: CData, devices: tuple[VirtualDevice, ...]) -> Iterator[tuple[str, str]]:
    message, call = text(scan.message), text(scan.call)
    found = sum("library" in device.sources for device in devices)
    if scan.library == lib.DTK_LIBRARY and not call:
        yield "virtual_library", f"{LIBRARY} cannot be loaded: {message}; {FALLBACK}"
    elif scan.named:
        yield "virtual_library_named", f"{LIBRARY} was looked for in the known places, since: {message}"
    failure = f"{call}: {_dmi(scan.library_detail)}" if call else ""
    if scan.node >= 0:
        failure += f": {_node(scan)}"
    if call and scan.library != lib.DTK_OK:
        yield "virtual_library", f"{LIBRARY}: {failure}; {FALLBACK}"
    elif scan.counted > found:
        more = f": {failure}" if failure else ""
        yield "virtual_incomplete", f"{LIBRARY} counts {scan.counted} virtual devices and tells of {found}{more}"
    elif call and scan.counted < 0:
        yield "virtual_incomplete", f"{LIBRARY}: {failure}"
    if scan.truncated:
        yield "virtual_truncated", "there are more cards or virtual devices than dtk takes"


def _node(scan: CData) -> str:
    if scan.node == 0:
        return "there is no /dev/mkfd; a container needs --device /dev/mkfd"
    return "this user may not open /dev/mkfd" if scan.library == lib.DTK_DENIED else "/dev/mkfd is there"


def _of_files(scan: CData) -> Iterator[tuple[str, str]]:
    if scan.files in (lib.DTK_DENIED, lib.DTK_FAILED):
        yield "virtual_files", f"etc/vdev: {_detail(scan.files_detail, '')}"
    if scan.skipped:
        more = f", and {scan.skipped - 1} more" if scan.skipped > 1 else ""
        yield "virtual_files", f"left out {text(scan.first_skipped)}: {_detail(scan.skipped_detail, '')}{more}"


def _of_cards(devices: tuple[VirtualDevice, ...]) -> Iterator[tuple[str, str]]:
    for device in devices:
        if device.card is None:
            where = f"its card {device.bdf} is not there" if device.bdf else "nothing says which card it is on"
            yield "virtual_card", f"virtual device {device.id}: {where}"


# ---- words ----


def _detail(detail: int, call: str) -> str:
    if lib.DTK_DETAIL_DMI <= detail < lib.DTK_DETAIL_DMI + 0x10000:
        return f"{call}: {_dmi(detail - lib.DTK_DETAIL_DMI)}"
    return _DETAILS.get(detail) or os.strerror(detail)


def _dmi(status: int) -> str:
    if status == -1:
        return "the library has no such function"
    return f"{_DMI[status]} ({status})" if 0 <= status < len(_DMI) else f"status {status}"


def _count(value: CData) -> int | None:
    return None if value.status else int(value.u64)


def _number(number: int) -> int | None:
    return None if number < 0 else number


def _status(status: int) -> str:
    return STATUSES[status][0] if status in STATUSES else "failed"
