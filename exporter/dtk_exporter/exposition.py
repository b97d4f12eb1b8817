"""Pages of metrics as text, and the bodies of a view: made at most once, on first demand, and served as bytes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from .families import FAMILIES, Family

__all__ = ["Bodies", "Page", "Writer", "encode"]

GZIP_LEVEL = 5
FORMATS_MAX = 16  # bodies of one view that are kept: clients may ask for many versions
END = "# EOF\n"  # of OpenMetrics

_text: Callable[[float], str] = floatToGoString

Labels = tuple[str, ...]
View = TypeVar("View")


class Page:
    """The samples of a page, family by family. What has no value is not put. rest: families of others, whole."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[list[Labels], list[float]]] = {family.name: ([], []) for family in FAMILIES}
        self.rest: list[Metric] = []

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """A sample of a family of families.py, its labels in the order of that."""
        if value is not None:
            all_labels, values = self._rows[name]
            all_labels.append(labels)
            values.append(value)

    def rows(self) -> Iterator[tuple[Family, list[Labels], list[float]]]:
        """The families that have samples: their labels and values, in the order of families.py."""
        for family in FAMILIES:
            labels, values = self._rows[family.name]
            if values:
                yield family, labels, values


class _Known(NamedTuple):
    """A family as it was last written: its samples' labels, its head, and each sample up to its value."""

    labels: list[Labels]
    head: str
    samples: list[str]


class Writer:
    """Writes pages in a format. Names, labels and escapes are prometheus-client's. They are the same from page to page
    as long as the same devices are there, and it takes most of its time for them: so they are written once, and each
    page puts its values behind them.
    """

    def __init__(self, encode: Callable[[Iterable[Metric]], bytes]) -> None:
        self._encode = encode
        self._known: dict[str, _Known] = {}

    def write(self, page: Page) -> bytes:
        """The page."""
        parts: list[str] = []
        for family, labels, values in page.rows():
            known = self._known.get(family.name)
            if known is None or known.labels != labels:
                known = self._known[family.name] = self._write_names(family, labels)
            parts.append(known.head)
            parts += [f"{name}{_text(value)}\n" for name, value in zip(known.samples, values, strict=True)]
        return "".join(parts).encode() + self._encode(page.rest)

    def _write_names(self, family: Family, labels: list[Labels]) -> _Known:
        metric = Metric(family.name.removesuffix("_total"), family.help, family.type)
        metric.samples = [Sample(family.name, dict(zip(family.labels, one, strict=True)), 0.0) for one in labels]
        lines = self._encode([metric]).decode().removesuffix(END).split("\n")[:-1]
        head = "".join(f"{line}\n" for line in lines if line.startswith("# "))
        return _Known(labels, head, [line.removesuffix("0.0") for line in lines if not line.startswith("# ")])


class Bodies(Generic[View]):
    """Bodies of one view, made by whoever asks first while the others wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view: View | None = None
        self._bodies: dict[tuple[str, ...], bytes] = {}

    def clear(self) -> None:
        """Make them anew."""
        with self._lock:
            self._view, self._bodies = None, {}

    def get(self, view: View, key: tuple[str, ...], make: Callable[[], bytes], is_gzip: bool) -> bytes:
        """The body of that key, as it is or compressed."""
        with self._lock:
            if view is not self._view or len(self._bodies) > FORMATS_MAX:
                self._view, self._bodies = view, {}
            plain = self._bodies.get(key)
            if plain is None:
                plain = self._bodies[key] = make()
            if not is_gzip:
                return plain
            packed_key = (*key, "gzip")
            packed = self._bodies.get(packed_key)
            if packed is None:
                packed = self._bodies[packed_key] = gzip.compress(plain, GZIP_LEVEL, mtime=0)
            return packed


def encode(accept: str) -> tuple[str, Callable[[Iterable[Metric]], bytes]]:
    """The content type for an Accept header, and what writes families in it."""
    encoder, content_type = choose_encoder(accept)
    return content_type, lambda metrics: encoder(_Collected(metrics))


class _Collected(CollectorRegistry):
    """Families as prometheus-client's writers want them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """They are collected already."""
        return iter(self._metrics)
