"""Sample: the readings of one device at one moment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from . import metrics
from ._native import ffi, lib
from ._statuses import STATUSES
from .attributes import MetricAttributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native._dtk import CData


__all__ = ["Sample", "Value"]

_F64, _I64, _BITS = lib.DTK_TYPE_F64, lib.DTK_TYPE_I64, lib.DTK_TYPE_BITS

Value = float | int | tuple[str, ...] | None

# The state of a device is the first of these that any of its readings has.
_STATES = (lib.DTK_GONE, lib.DTK_ASLEEP, lib.DTK_OK, lib.DTK_STALE, lib.DTK_DENIED, lib.DTK_FAILED)

_DETAILS = {
    lib.DTK_DETAIL_MALFORMED: "text that is no number, or too long, or empty",
    lib.DTK_DETAIL_IMPLAUSIBLE: "a number that cannot be true",
    lib.DTK_DETAIL_TABLE_DAMAGED: "gpu_metrics is short or inconsistent",
    lib.DTK_DETAIL_LIBRARY_ABORTED: "library aborted",
    lib.DTK_DETAIL_LIBRARY_MISSING: "the vendor's library was not found or did not start",
    lib.DTK_DETAIL_LIBRARY_NO_CARD: "the vendor's library does not list this card",
}
# rsmi_status_t, as far as calls that only read may return it.
_RSMI = {
    3: "file error",
    4: "no permission",
    5: "out of resources",
    6: "internal exception",
    7: "input out of bounds",
    8: "initialisation failed",
    11: "insufficient size",
    12: "interrupted",
    13: "unexpected size",
    15: "unexpected data",
    16: "busy",
    17: "too many references",
    19: "the driver restarted",
}


class Sample(MetricAttributes, Mapping[str, Value]):
    """The readings of one device at one moment: an attribute and a key for each metric of the tiers that were asked.

        sample.power_draw               # 41.0, or None
        sample.reason("power_draw")     # None, or why there is no value: "denied"
        sample.source("power_draw")     # "hwmon/power1_average"

    A value is a float, an int, or for bits a tuple of names; units are those of dtk.metrics. A missing value is None,
    never 0. A metric of a tier that was not asked is a KeyError (AttributeError for the attribute).
    Samples do not change, and may be pickled.
    """

    __slots__ = ("_bdf", "_monotonic", "_numbers", "_taken", "_tiers", "_timestamp", "_values")

    def __init__(
        self,
        values: CData,
        tiers: int,
        bdf: str,
        timestamp: float,
        monotonic: float,
        taken: Mapping[str, float] | None = None,
    ) -> None:
        """For Device.sample(): `values` is a dtk_value[DTK_METRIC_COUNT] that nobody changes any more. taken: when each
        tier was read, by time.monotonic(), where that was not with the sample.
        """
        self._values = values
        self._tiers = tiers
        self._numbers = _numbers(tiers)
        self._bdf = bdf
        self._timestamp = timestamp
        self._monotonic = monotonic
        self._taken = taken or {}

    # ---- values ----

    def __getitem__(self, name: str) -> Value:
        number = self._number(name)
        reading = self._values[number]
        if reading.status:
            return None
        if reading.type == _F64:
            return float(reading.f64)
        if reading.type == _BITS:
            bits = reading.u64
            return tuple(_bit_name(number, bit) for bit in range(bits.bit_length()) if bits >> bit & 1)
        return int(reading.i64 if reading.type == _I64 else reading.u64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def reason(self, name: str) -> str | None:
        """Why a metric has no value: "unsupported", "denied", "asleep", "gone", "failed", "stale" or "on_card" (only
        Device.card can answer). None when it has one.
        """
        status = self._values[self._number(name)].status
        return STATUSES[status][0] if status else None

    def missing(self) -> dict[str, str]:
        """{name: reason} of all metrics that have no value."""
        values = self._values
        return {
            name: STATUSES[status][0] for name, number in self._numbers.items() if (status := values[number].status)
        }

    def source(self, name: str) -> str | None:
        """Where a value was read: "hwmon/power1_average". None when there is no value."""
        number = self._number(name)
        return metrics.source(number, self._values[number].source)

    def detail(self, name: str) -> str | None:
        """More about a missing value: the kernel's error in words, or what was wrong with the text. None when there is
        no more to say.
        """
        detail = self._values[self._number(name)].detail
        return _detail_text(detail) if detail else None

    def age(self, name: str) -> float:
        """Seconds between the reading of this metric and the sample's own time: a Monitor reads the slow and static
        tiers less often than the rest. 0.0 when it was read with the sample.
        """
        self._number(name)
        return max(0.0, self._monotonic - self._taken.get(metrics.get(name).tier, self._monotonic))

    def _number(self, name: str) -> int:
        try:
            return self._numbers[name]
        except KeyError:
            tier = metrics.get(name).tier  # a KeyError that names what comes close, when there is no such metric
            message = f"{name} is of the {tier} tier, which was not asked for: sample({tier}=True)"
            raise KeyError(message) from None

    # ---- the sample as a whole ----

    @property
    def timestamp(self) -> float:
        """When it was taken, in Unix seconds."""
        return self._timestamp

    @property
    def monotonic(self) -> float:
        """When it was taken, by time.monotonic(): for rates."""
        return self._monotonic

    @property
    def state(self) -> str:
        """Of the device: "ok", "asleep", "stale", "gone", "denied" or "failed".

        One reading that is gone or asleep says it of the device; otherwise one that is ok makes it ok. Stale are then
        all that might have come.
        """
        statuses = {self._values[number].status for number in self._numbers.values()}
        return next((STATUSES[state][0] for state in _STATES if state in statuses), "ok")

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """(code, text) of what was odd although there are values: "gpu_metrics_unknown" or "gpu_metrics_damaged"."""
        details = {self._values[number].detail for number in self._numbers.values()}
        return [
            (code, f"{self._bdf}: {_detail_text(detail)}; other sources were used")
            for detail in sorted(details)
            if (code := _warning_code(detail))
        ]

    def as_dict(self) -> dict[str, Value]:
        """{name: value}, a copy."""
        return dict(self)

    def keep_stale(self, before: Sample) -> None:
        """For snapshots, before anybody else has it: what the library was asked for and gave a moment ago stands."""
        for number, value in enumerate(self._values):
            if value.status == lib.DTK_STALE and before._values[number].status == lib.DTK_OK:
                self._values[number] = before._values[number]

    def fail_stale(self) -> None:
        """For snapshots, before anybody else has it: the library has ended the process that asked it."""
        for value in self._values:
            if value.status == lib.DTK_STALE:
                value.status, value.detail = lib.DTK_FAILED, lib.DTK_DETAIL_LIBRARY_ABORTED

    def updated(self, later: Sample) -> Sample:
        """For snapshots: a sample of some tiers, with the other tiers from this one."""
        if not self._tiers & ~later._tiers:
            return later
        merged = ffi.new("dtk_value[]", metrics.COUNT)
        ffi.memmove(merged, self._values, ffi.sizeof(merged))
        for number in _numbers(later._tiers).values():
            merged[number] = later._values[number]
        newer = max(self, later, key=lambda sample: sample._monotonic)
        taken = {
            tier: self._taken.get(tier, self._monotonic) for tier, bit in metrics.TIERS.items() if bit & self._tiers
        }
        taken |= {tier: later._monotonic for tier, bit in metrics.TIERS.items() if bit & later._tiers}
        return Sample(merged, self._tiers | later._tiers, self._bdf, newer._timestamp, newer._monotonic, taken)

    def __repr__(self) -> str:
        known = sum(reading is not None for reading in self.values())
        return f"<Sample of {self._bdf}: {self.state}, {known} of {len(self)} values>"

    def __reduce__(self) -> tuple[object, ...]:
        raw = bytes(ffi.buffer(self._values))
        return _unpickle, (raw, self._tiers, self._bdf, self._timestamp, self._monotonic, dict(self._taken))


def _bit_name(number: int, bit: int) -> str:
    name = lib.dtk_bit_name(number, bit)
    return metrics.text(name) if name else f"bit_{bit}"


def _numbers(tiers: int) -> dict[str, int]:
    """{name: number} of the metrics of some tiers."""
    if tiers not in _NUMBERS:
        _NUMBERS[tiers] = {m.name: m.number for m in metrics.all() if metrics.TIERS[m.tier] & tiers}
    return _NUMBERS[tiers]


_NUMBERS: dict[int, dict[str, int]] = {}


def _warning_code(detail: int) -> str | None:
    if detail == lib.DTK_DETAIL_TABLE_DAMAGED:
        return "gpu_metrics_damaged"
    return "gpu_metrics_unknown" if _is_unknown_table(detail) else None


def _is_unknown_table(detail: int) -> bool:
    return bool(lib.DTK_DETAIL_TABLE_UNKNOWN <= detail < lib.DTK_DETAIL_TABLE_UNKNOWN + 0x10000)


def _detail_text(detail: int) -> str:
    if _is_unknown_table(detail):
        revision = detail - lib.DTK_DETAIL_TABLE_UNKNOWN
        return f"gpu_metrics has revision {revision >> 8}.{revision & 0xFF}, which this version of dtk does not know"
    if detail >= lib.DTK_DETAIL_RSMI:
        status = detail - lib.DTK_DETAIL_RSMI
        return f"the vendor's library: {_RSMI.get(status, 'error')} ({status})"
    return _DETAILS.get(detail) or os.strerror(detail)


def _unpickle(
    raw: bytes, tiers: int, bdf: str, timestamp: float, monotonic: float, taken: Mapping[str, float] | None = None
) -> Sample:
    values = ffi.new("dtk_value[]", metrics.COUNT)
    ffi.memmove(values, raw, min(len(raw), ffi.sizeof(values)))
    return Sample(values, tiers, bdf, timestamp, monotonic, taken)
