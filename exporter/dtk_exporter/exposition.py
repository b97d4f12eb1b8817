"""The bodies of /metrics: made at most once a view, format and encoding, on first demand, and served as bytes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

__all__ = ["Bodies", "encode"]

GZIP_LEVEL = 5
FORMATS_MAX = 16  # bodies of one view that are kept: clients may ask for many versions

View = TypeVar("View")


class Bodies(Generic[View]):
    """Bodies of one view, made by whoever asks first while the others wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view: View | None = None
        self._bodies: dict[tuple[str, ...], bytes] = {}

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
