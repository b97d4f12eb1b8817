"""Events and throttling: what a Monitor tells of a machine whose cards have faults, and how long they are held back."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dtk
from dtk import events, sim, throttle
from dtk.sim.run import keep_alive


class Machine:
    """A simulated machine that is moved by hand, and what a Watcher tells of it."""

    def __init__(self, root: Path, *cards: str) -> None:
        self._simulator = sim.Simulator(root, sim.assemble(cards, 1))
        self._root = root
        self._watcher = events.Watcher()
        self.look()

    def look(self) -> tuple[dtk.Snapshot, tuple[dtk.Event, ...]]:
        snapshot = dtk.take_snapshot(self._root, slow=True)
        return snapshot, self._watcher.update(snapshot)

    def go(self, ticks: int, *faults: str) -> list[str]:
        """So many seconds on with these faults: the kinds of what happened."""
        sim.set_faults(self._root, faults)
        kinds: list[str] = []
        for _ in range(ticks):
            self._simulator.advance()
            kinds += [event.kind for event in self.look()[1]]
        return kinds


@pytest.fixture
def moving(tmp_path: Path) -> Callable[..., Machine]:
    return lambda *cards: Machine(tmp_path / "node", *cards)


def test_a_healthy_machine_has_no_events(moving: Callable[..., Machine]) -> None:
    assert set(moving("k100_ai:2").go(5)) <= {"throttled"}  # at its power limit, perhaps


def test_lost_and_back(moving: Callable[..., Machine]) -> None:
    node = moving("mi210:2")
    assert node.go(2, "lost=0") == ["lost"]
    assert node.go(2, "lost=0") == []
    assert node.go(1) == ["back"]


def test_memory_errors(moving: Callable[..., Machine]) -> None:
    node = moving("mi210:2")
    kinds = node.go(2, "ecc:uncorrectable=1")
    assert kinds == ["ecc", "ecc"]
    assert node.go(2) == []


def test_hot_is_told_once_until_it_has_cooled(moving: Callable[..., Machine]) -> None:
    node = moving("mi210:1")
    kinds = Counter(node.go(60, "throttle=0"))
    assert kinds["hot"] >= 1
    assert kinds["hot"] <= 2  # of two sensors
    assert kinds["throttled"] >= 1


def test_event_has_the_device_and_a_text(moving: Callable[..., Machine]) -> None:
    node = moving("mi210:2")
    before = node.look()[0]
    sim.set_faults(before.root, ["ecc:correctable=1"])
    node._simulator.advance()
    snapshot, (event,) = node.look()
    assert event.uuid == before.devices[1].uuid
    assert event.text.endswith(" correctable")
    assert event.timestamp == snapshot.timestamp


def test_partitions_that_were_made_anew_are_not_lost(tmp_path: Path) -> None:
    watcher = events.Watcher()
    looks = []
    for cards in ("mi300x-cpx:1", "mi300x:1"):
        sim.write(tmp_path / "node", [cards], seed=1)
        looks.append(dtk.take_snapshot(tmp_path / "node"))
    assert looks[0].cards[0].bdf == looks[1].cards[0].bdf
    assert [e.kind for look in looks for e in watcher.update(look)] == []


def test_a_card_that_may_no_longer_be_read_is_not_back(moving: Callable[..., Machine]) -> None:
    class Denied:
        uuid, bdf, state = "GPU-1", "0000:01:00.0", "stale"

    class Look:
        cards: tuple[Denied, ...] = (Denied(),)
        devices: tuple[Denied, ...] = ()
        timestamp = 1.0

    watcher = events.Watcher()
    assert [event.kind for event in watcher.update(Look())] == ["hung"]
    Denied.state = "denied"
    assert watcher.update(Look()) == ()


def test_every_partition_of_a_lost_card_is_lost(moving: Callable[..., Machine]) -> None:
    node = moving("mi300x-cpx:1", "mi210:1")
    assert Counter(node.go(1, "lost=0")) == {"lost": 9}  # the card and its eight partitions


def test_monitor_tells_of_a_card_that_hangs(mounted: Callable[[str], sim.Mounted]) -> None:
    node = mounted("mi210:4")
    seen: list[dtk.Event] = []
    hung, back = threading.Event(), threading.Event()

    def note(snapshot: dtk.Snapshot) -> None:
        seen.extend(snapshot.events)
        hung.set() if any(event.kind == "hung" for event in seen) else None
        back.set() if any(event.kind == "back" for event in seen) else None

    with dtk.Monitor(node.root, interval=0.2, deadline=1.0) as monitor:
        first = monitor.wait(10)
        monitor.on_snapshot(note)
        node.set("hang=2")
        assert hung.wait(10)
        node.clear()
        assert back.wait(20)
        counters = monitor.counters
    assert first is not None
    assert {event.uuid for event in seen} == {first.devices[2].uuid}
    assert [event.kind for event in seen] == ["hung", "back"]
    assert counters.crashes == 0


def test_monitor_counts_the_readers_that_end(moving: Callable[..., Machine], tmp_path: Path) -> None:
    import os
    import signal

    moving("mi210:1")
    with dtk.Monitor(tmp_path / "node", interval=0.1) as monitor:
        assert monitor.wait(10)
        before = monitor.counters
        assert before.reader
        os.kill(before.reader, signal.SIGKILL)
        while monitor.counters.reader in (before.reader, None):
            assert monitor.wait(10)
        assert monitor.counters.crashes == before.crashes + 1


# ---- throttling ----


def test_every_bit_and_residency_has_a_reason() -> None:
    known = {"ppt0": "power", "tdc_gfx": "current", "edc_cpu": "current", "temp_hotspot": "thermal"}
    known |= {"vrhot1": "thermal", "prochot_gfx": "prochot", "fit": "other", "bit_63": "other"}
    known |= {"hbm_thermal": "thermal", "ppt": "power", "sppt_apu": "power"}
    assert {name: throttle.reason_of(name) for name in known} == known
    for metric in dtk.metrics.all():
        if metric.family == "throttle_residency_total":
            assert throttle.reason_of(metric.label_value) in ("power", "thermal", "prochot")


@contextlib.contextmanager
def alive(root: Path, cards: str, *faults: str) -> Iterator[None]:
    simulator = sim.Simulator(root, sim.assemble([cards], 1), 1.0, faults)
    for _ in range(40):
        simulator.advance()
    stop = threading.Event()
    thread = threading.Thread(target=keep_alive, args=(simulator, 0.05, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def two_looks(root: Path) -> tuple[dtk.Sample, dtk.Sample]:
    with dtk.Monitor(root, interval=0.2) as monitor:
        first = monitor.wait(10)
        second = monitor.wait(10)
    assert first is not None
    assert second is not None
    return first.cards[0].sample, second.cards[0].sample


@pytest.mark.parametrize("card", ["mi210", "mi300x"])  # by bits, and by the firmware's residencies
def test_seconds_of_a_card_that_is_not_cooled(tmp_path: Path, card: str) -> None:
    with alive(tmp_path / "node", f"{card}:1", "throttle=0"):
        before, after = two_looks(tmp_path / "node")
    found = throttle.seconds(before, after)
    assert found is not None
    assert set(found) == set(throttle.REASONS)
    assert 0 < max(found.values()) <= after.monotonic - before.monotonic


def test_seconds_of_a_card_that_does_not_tell(tmp_path: Path) -> None:
    sim.write(tmp_path / "node", ["k100_ai:1"])
    before, after = two_looks(tmp_path / "node")
    if after.throttle_status is None:
        assert throttle.seconds(before, after) is None
    assert throttle.seconds(after, after) in (None, dict.fromkeys(throttle.REASONS, 0.0))
