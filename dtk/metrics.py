"""The metric catalogue: what can be read, in which unit, over which window, from which files.

    >>> dtk.metrics.get("power_draw").unit
    'W'

It comes from libdtk's own table (dtk/_native/metrics.def), and so do the attributes of a Sample, JSON keys and exporter
families. Names and numbers never change.
"""

from __future__ import annotations

from ._native import ffi, lib
from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native._dtk import CData


__all__ = ["Metric", "all", "get"]

COUNT: int = lib.DTK_METRIC_COUNT
TIERS: dict[str, int] = {"static": lib.DTK_TIER_STATIC, "fast": lib.DTK_TIER_FAST, "slow": lib.DTK_TIER_SLOW}

_TYPES = {lib.DTK_TYPE_F64: "f64", lib.DTK_TYPE_I64: "i64", lib.DTK_TYPE_U64: "u64", lib.DTK_TYPE_BITS: "bits"}
_KINDS = {lib.DTK_KIND_GAUGE: "gauge", lib.DTK_KIND_COUNTER: "counter"}
_TIER_NAMES = {bit: name for name, bit in TIERS.items()}


class Metric(Record):
    """One row of the catalogue.

    number: fixed for ever.
    name: "power_draw"; the attribute and key of a Sample.
    unit: "%", "B", "C", "W", "J", "MHz", "mV", "GT/s", "rpm", "B/s"; "" for counts, lanes and bits.
    type: "f64" is a float, "i64" and "u64" an int, "bits" a tuple of names.
    kind: "gauge", or "counter" for what only grows.
    tier: "static" changes only with a setting, "fast" costs microseconds, "slow" reads many files.
    window: what the value covers in time; "" for the static tier.
    family, label, label_value: of the exporter, without its dtk_device_ prefix; labels are "" if there is none.
    help: what it means.
    sources: where it is read, in the order that is tried: "hwmon/power1_average", "gpu_metrics/average_socket_power".
    """

    number: int
    name: str
    unit: str
    type: str
    kind: str
    tier: str
    window: str
    family: str
    label: str
    label_value: str
    help: str
    sources: tuple[str, ...]


def text(pointer: CData) -> str:
    """A string of the library's."""
    return ffi.string(pointer).decode("utf-8", "replace")


def source(number: int, index: int) -> str | None:
    """Name of the index-th source of a metric, from 1."""
    name = lib.dtk_metric_source(number, index)
    return text(name) if name else None


def _sources(number: int) -> tuple[str, ...]:
    names: list[str] = []
    while name := source(number, len(names) + 1):
        names.append(name)
    return tuple(names)


def _metric(number: int) -> Metric:
    row = lib.dtk_metric_describe(number)
    return Metric(
        number=number,
        name=text(row.name),
        unit=text(row.unit),
        type=_TYPES[row.type],
        kind=_KINDS[row.kind],
        tier=_TIER_NAMES[row.tier],
        window=text(row.window),
        family=text(row.family),
        label=text(row.label),
        label_value=text(row.label_value),
        help=text(row.help),
        sources=_sources(number),
    )


_ALL = tuple(_metric(number) for number in range(COUNT))
_BY_NAME = {metric.name: metric for metric in _ALL}


def all() -> tuple[Metric, ...]:
    """Every metric, by number."""
    return _ALL


def get(name: str) -> Metric:
    """The metric of that name. KeyError, with the names that come close, if there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KeyError(_unknown(name)) from None


def _unknown(name: str) -> str:
    from difflib import get_close_matches  # slow to import, and nobody needs it but here

    close = get_close_matches(str(name), _BY_NAME, n=3)
    return f"no metric {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else "; see dtk.metrics.all()")
