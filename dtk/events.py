"""Events: what happened to the cards of a machine between one snapshot and the next."""

from __future__ import annotations

from . import throttle
from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .sample import Sample
    from .snapshot import Reading, Snapshot

__all__ = ["KINDS", "Event", "Watcher", "margins", "replaced"]

KINDS = ("lost", "hung", "back", "hot", "throttled", "ecc")
"""lost: gone from the machine. hung: did not answer by the deadline. back: answers again. hot: a sensor came
within HOT degrees of its critical limit. throttled: it began to hold itself back. ecc: memory errors were counted."""

HOT, COOL = 3.0, 8.0  # degrees below the limit where "hot" begins and ends: a card holds itself just below it

_SENSORS = ("edge", "junction", "memory")  # those with a critical limit
_ERRORS = ("correctable", "uncorrectable", "deferred")


class Event(Record):
    """Something that happened to a device. kind: one of KINDS. timestamp: Unix seconds. text: for people."""

    kind: str
    uuid: str
    timestamp: float
    text: str


class _Device:
    """What is remembered of a device."""

    def __init__(self, reading: Reading) -> None:
        self.bdf = reading.bdf
        self.condition = "ok"  # or "lost" or "hung"
        self.sample: Sample | None = None  # the last with values
        self.hot: set[str] = set()
        self.throttled = False
        self.errors: dict[str, int] = {}


class Watcher:
    """Tells events apart, snapshot by snapshot. A device that is new is no event."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def update(self, snapshot: Snapshot) -> tuple[Event, ...]:
        """What happened since the last snapshot."""
        readings = {reading.uuid: reading for reading in (*snapshot.cards, *snapshot.devices)}
        for uuid in replaced({uuid: device.bdf for uuid, device in self._devices.items()}, readings.values()):
            del self._devices[uuid]
        events: list[Event] = []
        for uuid, device in self._devices.items():
            if uuid not in readings:
                events += self._turn(device, uuid, "lost", snapshot.timestamp, "gone from the bus")
        for uuid, reading in readings.items():
            device = self._devices.setdefault(uuid, _Device(reading))
            events += self._condition(device, reading, snapshot.timestamp)
            if reading.state == "ok":
                happened = (*_hot(device, reading.sample), *_throttled(device, reading.sample), *_ecc(device, reading))
                events += [Event(kind, uuid, snapshot.timestamp, text) for kind, text in happened]
                device.sample = reading.sample
        return tuple(events)

    def _condition(self, device: _Device, reading: Reading, now: float) -> Iterator[Event]:
        if reading.state == "gone":
            yield from self._turn(device, reading.uuid, "lost", now, "the driver says that it is gone")
        elif reading.state == "stale":
            yield from self._turn(device, reading.uuid, "hung", now, "no answer by the deadline")
        elif reading.state in ("ok", "asleep"):
            yield from self._turn(device, reading.uuid, "ok", now, f"answers again, was {device.condition}")

    def _turn(self, device: _Device, uuid: str, condition: str, now: float, text: str) -> Iterator[Event]:
        if device.condition != condition:
            device.condition = condition
            device.sample = None
            yield Event("back" if condition == "ok" else condition, uuid, now, text)


def replaced(known: Mapping[str, str], readings: Iterable[Reading]) -> set[str]:
    """Of known devices, {uuid: address}, those that are not lost: their card is there, and was divided anew."""
    present: dict[str, set[str]] = {}
    for reading in readings:
        present.setdefault(reading.bdf, set()).add(reading.uuid)
    return {uuid for uuid, bdf in known.items() if uuid not in present.get(bdf, {uuid})}


def margins(sample: Sample) -> dict[str, float]:
    """How many degrees each sensor is below its critical limit, where both are known."""
    found = {}
    for sensor in _SENSORS:
        value, limit = sample.get(f"temperature_{sensor}"), sample.get(f"temperature_{sensor}_critical")
        if isinstance(value, float) and isinstance(limit, float):
            found[sensor] = limit - value
    return found


def _hot(device: _Device, sample: Sample) -> Iterator[tuple[str, str]]:
    for sensor, margin in margins(sample).items():
        if margin <= HOT and sensor not in device.hot:
            device.hot.add(sensor)
            yield "hot", f"{sensor} {sample[f'temperature_{sensor}']:.0f} °C"
        elif margin > COOL:
            device.hot.discard(sensor)


def _throttled(device: _Device, sample: Sample) -> Iterator[tuple[str, str]]:
    bits = sample.throttle_status
    if bits is None and device.sample is not None:
        bits = tuple(reason for reason, time in (throttle.seconds(device.sample, sample) or {}).items() if time)
    if bits and not device.throttled:
        yield "throttled", ", ".join(bits)
    device.throttled = bool(bits)


def _ecc(device: _Device, reading: Reading) -> Iterator[tuple[str, str]]:
    for severity in _ERRORS:
        count = reading.sample.get(f"ecc_{severity}")
        if not isinstance(count, int):
            continue
        before = device.errors.get(severity, count)
        device.errors[severity] = count
        if count > before:
            yield "ecc", f"{count - before} {severity}"
