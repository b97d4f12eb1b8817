"""The book: what the exporter knows of each device, also of one that is gone, and what it counts from look to look."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

import dtk
from dtk import events, throttle

from . import health

__all__ = ["Book", "Entry", "View"]

FRESH_INTERVALS = 3  # a value older than so many intervals goes


class Entry(NamedTuple):
    """A device or card at one moment. reading: its last, also of a look before it was gone. sample: its values, None
    when they are not fresh. causes: why it is degraded. counts: events by kind. throttled: seconds by reason, None
    where the card does not tell.
    """

    uuid: str
    reading: dtk.Reading
    card: str
    sample: dtk.Sample | None
    state: str
    causes: tuple[str, ...]
    asleep: bool
    last_success: float | None
    counts: dict[str, int]
    throttled: dict[str, float] | None

    def expired(self) -> Entry:
        """The same when nobody has looked for too long."""
        return self._replace(sample=None, state="lost" if self.state == "lost" else "unknown", causes=(), asleep=False)


class View(NamedTuple):
    """The machine at one moment, as it is served: it does not change. entries: cards and devices, each once."""

    snapshot: dtk.Snapshot
    entries: tuple[Entry, ...]
    number: int  # of the snapshot, from 1
    is_fresh: bool = True

    def expired(self) -> View:
        """The same when nobody has looked for too long: without values."""
        return self._replace(entries=tuple(entry.expired() for entry in self.entries), is_fresh=False)


class _Device:
    """What outlasts a look."""

    def __init__(self, reading: dtk.Reading) -> None:
        self.reading = reading
        self.card = reading.uuid
        self.last_success: float | None = None
        self.sample: dtk.Sample | None = None  # the last that had values
        self.counts = dict.fromkeys(events.KINDS, 0)
        self.throttled: dict[str, float] | None = None
        self.causes: list[str] = []  # that the last look found
        self.link: list[str] = []  # what was wrong with its link when it last worked

    def go_on(self, old: _Device) -> None:
        """Go on with what was known of the same device before."""
        self.last_success = self.last_success or old.last_success
        self.counts = {kind: count + old.counts[kind] for kind, count in self.counts.items()}
        self.link = self.link or old.link
        if old.throttled:
            sums = self.throttled or {}
            self.throttled = {reason: span + sums.get(reason, 0.0) for reason, span in old.throttled.items()}


class Book:
    """Takes snapshots in, and has the View to serve. Written by one thread, read by any.

    interval, deadline: of the monitor. Values older than three intervals are not served, whatever keeps new ones away.
    """

    def __init__(self, interval: float, deadline: float) -> None:
        self._fresh = FRESH_INTERVALS * interval
        self._patience = self._fresh + deadline
        self._devices: dict[str, _Device] = {}
        self._lock = threading.Lock()
        self._number = 0  # of the last snapshot
        self._view: View | None = None
        self._expired: View | None = None

    def view(self) -> View | None:
        """What to serve now; None before the first look."""
        view = self._view
        if view is None or time.monotonic() - view.snapshot.monotonic <= self._patience:
            return view
        expired = self._expired
        if expired is None or expired.snapshot is not view.snapshot:
            expired = self._expired = view.expired()
        return expired

    def inherit(self, other: Book) -> None:
        """Go on with what another knows of the same machine: cards that are lost, and counts."""
        with self._lock:
            self._number += other._number
            for uuid, old in other._devices.items():
                new = self._devices.setdefault(uuid, old)
                if new is not old:
                    new.go_on(old)
            if view := self._view or other._view:  # while nobody can look, what was seen before, which is old soon
                self._view = self._make_view(view.snapshot)

    def update(self, snapshot: dtk.Snapshot) -> None:
        """Take a snapshot in."""
        with self._lock:
            self._update(snapshot)

    def _update(self, snapshot: dtk.Snapshot) -> None:
        readings = {reading.uuid: reading for reading in (*snapshot.cards, *snapshot.devices)}
        known = {uuid: device.reading.bdf for uuid, device in self._devices.items()}
        for uuid in events.replaced(known, readings.values()):
            del self._devices[uuid]
        for uuid, reading in readings.items():
            self._take(self._devices.setdefault(uuid, _Device(reading)), reading)
        for card in snapshot.cards:
            for device in snapshot.devices:
                if device.card_index == card.card_index:
                    self._devices[device.uuid].card = card.uuid
        for event in snapshot.events:
            if event.uuid in self._devices:
                self._devices[event.uuid].counts[event.kind] += 1
        self._number += 1
        self._view = self._make_view(snapshot)

    def _make_view(self, snapshot: dtk.Snapshot) -> View:
        present = {reading.uuid for reading in (*snapshot.cards, *snapshot.devices)}
        entries = {uuid: self._entry(uuid, device, snapshot, uuid in present) for uuid, device in self._devices.items()}
        return View(snapshot, tuple(_inherit(entry, entries) for entry in _ordered(entries)), self._number)

    def _take(self, device: _Device, reading: dtk.Reading) -> None:
        device.reading = reading
        if reading.state == "ok":
            sample = reading.sample
            # What nobody saw, since the card hung or the reader was gone, is not counted.
            before = device.sample or sample
            is_seen = sample.monotonic - before.monotonic <= self._patience
            spans = throttle.seconds(before if is_seen else sample, sample)
            if spans is not None:
                sums = device.throttled or {}
                device.throttled = {reason: sums.get(reason, 0.0) + span for reason, span in spans.items()}
            if (sample.utilization_gpu or 0) >= health.BUSY:
                device.link = health.of_link(sample)
            found = (health.of_reading(reading), health.of_memory(sample), health.of_heat(sample, spans or {}))
            device.causes = [cause for causes in (*found, device.link) for cause in causes]
            device.sample = sample
            device.last_success = sample.timestamp
        elif reading.state == "asleep":
            device.sample = None
            device.last_success = reading.sample.timestamp
        elif reading.state != "stale":
            device.sample = None

    def _entry(self, uuid: str, device: _Device, snapshot: dtk.Snapshot, is_present: bool) -> Entry:
        state = device.reading.state if is_present else "gone"
        asleep = state == "asleep"
        if state == "gone":
            device.sample = None
        sample = device.sample
        if sample is not None and state == "stale" and snapshot.monotonic - sample.monotonic > self._fresh:
            sample = None
        if state == "gone":
            condition = "lost"
        elif asleep:
            condition = "ok"
        elif sample is None:
            condition = "unknown"
        else:
            condition = "degraded" if device.causes else "ok"
        return Entry(
            uuid,
            device.reading,
            device.card,
            sample,
            condition,
            tuple(device.causes) if condition == "degraded" else (),
            asleep,
            device.last_success,
            dict(device.counts),
            device.throttled,
        )


def _ordered(entries: dict[str, Entry]) -> list[Entry]:
    """By address, a card before its partitions."""
    return sorted(entries.values(), key=lambda e: (e.reading.bdf, e.reading.is_partition, e.reading.partition or 0))


def _inherit(entry: Entry, entries: dict[str, Entry]) -> Entry:
    """A partition is no better than its card."""
    card = entries.get(entry.card, entry)
    if entry.state == "ok" and card.state == "degraded":
        return entry._replace(state="degraded", causes=("its card is",))
    return entry
