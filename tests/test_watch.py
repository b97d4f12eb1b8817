"""What the exporter remembers from look to look, and what it does when it cannot look: below HTTP, which is quick."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import dtk
import dtk.monitor
import dtk.reader
from dtk import sim
from dtk_exporter import watch
from dtk_exporter.book import Book
from dtk_exporter.options import Config

Get = Callable[[str], Path]


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What waits longer and longer does not."""
    monkeypatch.setattr(dtk.monitor, "LAST_RESTART", 0.01)
    monkeypatch.setattr(watch, "FIRST_DELAY", 0.1)
    return monkeypatch


def garbage(directory: Path) -> str:
    """A dtk-reader that writes what is no frame."""
    program = directory / "reader"
    program.write_text("#!/bin/sh\necho this is no frame at all, and long enough to look like one\n")
    program.chmod(0o755)
    return str(program)


def test_a_start_that_cannot_look_goes_on_trying(machine: Get, tmp_path: Path, impatient: pytest.MonkeyPatch) -> None:
    good = dtk.reader.PROGRAM
    impatient.setattr(dtk.reader, "PROGRAM", garbage(tmp_path))
    errors: Counter[str] = Counter()
    found = watch.Watch(Config(collect_interval=0.1), str(machine("apu")), errors)
    assert found.first(0.01, threading.Event()) is None
    wait(lambda: errors["monitor"] >= 1)
    assert errors["reader_crash"] >= 1
    impatient.setattr(dtk.reader, "PROGRAM", good)
    wait(lambda: (view := found.book.view()) and view.is_fresh)
    found.close()


def test_a_start_without_a_reader_is_refused(machine: Get, impatient: pytest.MonkeyPatch) -> None:
    impatient.setattr(dtk.reader, "PROGRAM", "/nonexistent")
    found = watch.Watch(Config(), str(machine("apu")), Counter())
    with pytest.raises(dtk.LibraryError):
        found.first(10, threading.Event())
    found.close()


def test_no_descriptor_for_another_monitor(copy_machine: Get, impatient: pytest.MonkeyPatch) -> None:
    root = copy_machine("apu")
    errors: Counter[str] = Counter()
    found = watch.Watch(Config(collect_interval=0.1), str(root), errors)
    assert found.first(10, threading.Event())

    def no_pipe() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    away = root.rename(root.with_name("away"))
    os.kill(found._monitor.counters.reader or 0, signal.SIGKILL)
    wait(lambda: errors["monitor"] >= 1)
    impatient.setattr(os, "pipe", no_pipe)
    failed = errors["monitor"]
    wait(lambda: errors["monitor"] >= failed + 2)
    assert errors["reader_crash"] == 1
    impatient.undo()
    away.rename(root)
    view = found.book.view()
    wait(lambda: (now := found.book.view()) is not view and now and now.is_fresh)
    found.close()


def test_a_reader_that_stands_still_is_counted(machine: Get) -> None:
    with dtk.Monitor(machine("apu"), interval=0.1, deadline=0.3) as monitor:
        assert monitor.wait(10)
        reader = monitor.counters.reader
        assert reader
        os.kill(reader, signal.SIGSTOP)
        wait(lambda: monitor.counters.reader not in (reader, None))
        assert monitor.counters.hangs == 1
        assert monitor.counters.crashes == 0


def test_what_nobody_saw_is_not_throttling(tmp_path: Path) -> None:
    simulator = sim.Simulator(tmp_path / "node", sim.assemble(["mi210:1"], 1), 1.0, ["throttle=0"])
    for _ in range(40):
        simulator.advance()
    patient, impatient = Book(10, 1), Book(0.01, 0.01)
    for _ in range(2):
        snapshot = dtk.take_snapshot(tmp_path / "node", slow=True)
        patient.update(snapshot)
        impatient.update(snapshot)
        time.sleep(0.1)
    seen = [view.entries[0].throttled for book in (patient, impatient) if (view := book.view())]
    assert seen[0] is not None
    assert seen[1] is not None
    assert seen[0]["thermal"] > 0.1
    assert set(seen[1].values()) == {0.0}


def test_a_book_goes_on_with_another(tmp_path: Path) -> None:
    node = sim.Simulator(tmp_path / "node", sim.assemble(["mi210:2"], 1))
    old, new = Book(10, 1), Book(5, 1)
    first = dtk.take_snapshot(tmp_path / "node")
    old.update(first)
    sim.set_faults(tmp_path / "node", ["lost=0"])
    node.advance()
    new.update(dtk.take_snapshot(tmp_path / "node"))
    new.inherit(old)
    view = new.view()
    assert view is not None
    assert view.number == 2
    blind = Book(10, 1)
    blind.inherit(old)
    assert (seen := blind.view()) is not None
    assert len(seen.entries) == 2
    assert {entry.uuid: entry.state for entry in view.entries}[first.devices[0].uuid] == "lost"
