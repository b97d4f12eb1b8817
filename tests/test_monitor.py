"""Monitor, and what a card that hangs does to it and to a single look: on a FUSE mount whose reads really hang."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import device_directory, put
from timing import is_done_within

import dtk
import dtk.reader
from dtk import sim

Get = Callable[[str], Path]
BDF = "0000:03:00.0"  # the first card of mi210


def states(snapshot: dtk.Snapshot) -> list[str]:
    return [reading.state for reading in snapshot.devices]


def until(monitor: dtk.Monitor, condition: Callable[[dtk.Snapshot], bool], seconds: float = 10) -> dtk.Snapshot:
    end = time.monotonic() + seconds
    for snapshot in monitor:
        if condition(snapshot):
            return snapshot
        assert time.monotonic() < end, f"still {snapshot}: {states(snapshot)}"
    raise AssertionError("the monitor ended")


# ---- on a plain tree ----


def test_snapshots_follow_each_other(machine: Get) -> None:
    with dtk.Monitor(machine("mi210"), interval=0.05) as monitor:
        first, second, third = (snapshot for _, snapshot in zip(range(3), monitor, strict=False))
    assert first.monotonic < second.monotonic < third.monotonic
    assert first.devices[0].sample.monotonic < third.devices[0].sample.monotonic
    assert third.devices[0].sample.memory_total  # of an earlier, slower tick
    assert third.devices[0].sample.memory_used is not None
    assert first is not second
    assert monitor.snapshot is not None


def test_changes_are_seen(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    with dtk.Monitor(root, interval=0.05) as monitor:
        next(iter(monitor))
        put(device_directory(root, BDF), "gpu_busy_percent", "77\n")
        until(monitor, lambda snapshot: snapshot.devices[0].sample.utilization_gpu == 77)


def test_slow_tier_when_asked(machine: Get) -> None:
    with dtk.Monitor(machine("mi210"), interval=0.05, slow=True) as monitor:
        for _, snapshot in zip(range(3), monitor, strict=False):
            assert snapshot.devices[0].sample.ecc_correctable == 0
    with dtk.Monitor(machine("mi210"), interval=0.05) as monitor:
        assert "ecc_correctable" not in next(iter(monitor)).devices[0].sample


def test_callback_and_wait(machine: Get) -> None:
    seen: list[dtk.Snapshot] = []

    def callback(snapshot: dtk.Snapshot) -> None:
        seen.append(snapshot)
        raise RuntimeError("a callback's fault is its own")

    with dtk.Monitor(machine("apu"), interval=0.05) as monitor:
        monitor.on_snapshot(callback)
        assert monitor.wait(5) is not None
        assert monitor.wait(5) is not None
    assert len(seen) >= 1
    assert monitor.wait(0.01) is None


def test_card_that_leaves_and_returns(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    link = root / "sys/bus/pci/drivers/amdgpu" / BDF
    nodes = root / "sys/devices/virtual/kfd/kfd/topology/nodes"
    places = [
        link.resolve(),
        next(node for node in nodes.iterdir() if "location_id 768\n" in (node / "properties").read_text()),
    ]
    target = os.readlink(link)
    with dtk.Monitor(root, interval=0.05) as monitor:
        until(monitor, lambda snapshot: len(snapshot.devices) == 8)
        link.unlink()
        for place in places:
            place.rename(root / f"away-{place.name}")
        snapshot = until(monitor, lambda snapshot: len(snapshot.devices) == 7)
        assert all(reading.bdf != BDF for reading in snapshot.devices)
        for place in places:
            shutil.copytree(root / f"away-{place.name}", place, symlinks=True)
        link.symlink_to(target)
        until(monitor, lambda snapshot: states(snapshot) == ["ok"] * 8)


def test_crashed_reader_is_replaced(machine: Get) -> None:
    with dtk.Monitor(machine("mi210"), interval=0.05) as monitor:
        until(monitor, lambda snapshot: True)
        children = Path(f"/proc/self/task/{monitor._thread.native_id}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        killed = time.monotonic()
        until(monitor, lambda snapshot: snapshot.monotonic > killed + 0.05)


def test_stopped_reader_is_replaced(machine: Get) -> None:
    with dtk.Monitor(machine("mi210"), interval=0.1, deadline=0.3) as monitor:
        until(monitor, lambda snapshot: True)
        for pid in Path(f"/proc/self/task/{monitor._thread.native_id}/children").read_text().split():
            os.kill(int(pid), signal.SIGSTOP)
        stopped = time.monotonic()
        until(monitor, lambda snapshot: snapshot.monotonic > stopped + 0.3 and not snapshot.stale)


def test_callback_cannot_end_the_monitor(machine: Get) -> None:
    def callback(snapshot: dtk.Snapshot) -> None:
        raise SystemExit

    with dtk.Monitor(machine("apu"), interval=0.05) as monitor:
        monitor.on_snapshot(callback)
        for _ in range(4):
            assert monitor.wait(5) is not None


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e9])
@pytest.mark.parametrize("name", ["interval", "deadline", "slow_interval"])
def test_times_that_are_none(machine: Get, name: str, value: float) -> None:
    with pytest.raises(dtk.InvalidArgument, match=name):
        dtk.Monitor(machine("apu"), **{name: value})
    if name == "deadline":
        with pytest.raises(dtk.InvalidArgument, match=name):
            dtk.take_snapshot(machine("apu"), deadline=value)


def test_bad_arguments_are_errors(machine: Get, tmp_path: Path) -> None:
    with dtk.Monitor(machine("mi210"), devices=["99"]) as monitor, pytest.raises(dtk.DeviceNotFound):
        monitor.wait(5)
    with dtk.Monitor(tmp_path) as monitor, pytest.raises(dtk.InvalidArgument):
        next(iter(monitor))
    with pytest.raises(dtk.InvalidArgument):
        dtk.Monitor(machine("mi210"), devices=["x" * 1000])


def test_close_wakes_those_who_wait(machine: Get) -> None:
    monitor = dtk.Monitor(machine("apu"), interval=60)
    next(iter(monitor))
    threading.Timer(0.1, monitor.close).start()
    assert list(monitor) in ([], [monitor.snapshot])
    monitor.close()


# ---- on a mount whose reads hang ----


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("mfusepy", reason="needs mfusepy")
    if not Path("/dev/fuse").exists() or not shutil.which("fusermount3"):
        pytest.skip("needs fuse3")
    mountpoint = tmp_path / "mount"
    mountpoint.mkdir()
    sim.write(tmp_path / "root", cards=["mi210:4"])
    with sim.mount(tmp_path / "root", mountpoint) as mount:
        yield mount


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.mark.parametrize("fault", ["hang=2", "hang=2/gpu_metrics", "hang=2/power/runtime_status"])
def test_one_look_comes_back_by_the_deadline(mounted: Any, fault: str) -> None:
    dtk.take_snapshot(mounted.root, deadline=10)  # the mount itself is slow at first
    mounted.set(fault)

    def look() -> None:
        snapshot = dtk.take_snapshot(mounted.root, deadline=1.5)
        assert states(snapshot) == ["ok", "ok", "stale", "ok"]
        assert [reading.index for reading in snapshot.stale] == [2]
        assert snapshot.devices[2].sample.reason("power_draw") == "stale"
        assert snapshot.devices[2].uuid.startswith("GPU-")

    assert is_done_within(1.5 + 0.3, look)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (["hang=2/uevent"], ["ok", "ok", "stale", "ok"]),
        (["hang=2/*"], ["ok", "ok", "stale", "ok"]),
        (["hang=0/uevent", "hang=1/uevent", "hang=3/uevent"], ["stale", "stale", "ok", "stale"]),
        (["hang=sys/devices/virtual/kfd/kfd/topology/nodes/3/properties"], ["ok"] * 4),
        (["hang=sys/devices/virtual/kfd/kfd/topology/nodes/3/gpu_id"], ["ok"] * 4),
    ],
)
def test_what_hangs_the_search_is_left_out(mounted: Any, faults: list[str], expected: list[str]) -> None:
    dtk.take_snapshot(mounted.root, deadline=10)
    mounted.set(*faults)
    begin = time.monotonic()
    snapshot = dtk.take_snapshot(mounted.root, deadline=4)
    assert states(snapshot) == expected
    assert time.monotonic() - begin < 4.3


def test_reader_of_a_hung_card_is_killed_and_goes_when_the_read_does(mounted: Any) -> None:
    dtk.take_snapshot(mounted.root, deadline=10)
    mounted.set("hang=2")
    dtk.take_snapshot(mounted.root, deadline=1.5)
    pid = dtk.reader._abandoned[-1]
    status = ""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that was not in a read has just ended
            status += (task / "status").read_text()
    pending = [line for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    assert any(int(line.split()[1], 16) >> (signal.SIGKILL - 1) & 1 for line in pending)
    assert dtk.reader.is_abandoned(pid)
    mounted.clear()
    end = time.monotonic() + 5
    while dtk.reader.is_abandoned(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not dtk.reader.is_abandoned(pid)


def test_command_exits_and_waits_for_no_process(mounted: Any) -> None:
    dtk.take_snapshot(mounted.root, deadline=10)
    mounted.set("hang=2")
    begin = time.monotonic()
    code = f"import dtk; print(len(dtk.take_snapshot({str(mounted.root)!r}, deadline=1.5).stale))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout == "1\n"
    assert time.monotonic() - begin < 3  # with Python's own start on a busy machine


def test_monitor_goes_on_without_a_hung_card_and_takes_it_back(mounted: Any) -> None:
    with dtk.Monitor(mounted.root, interval=0.2, deadline=1.0) as monitor:
        until(monitor, lambda snapshot: states(snapshot) == ["ok"] * 4)
        mounted.set("hang=2")
        snapshot = until(monitor, lambda snapshot: bool(snapshot.stale))
        assert states(snapshot) == ["ok", "ok", "stale", "ok"]
        assert snapshot.devices[2].last is not None
        assert snapshot.devices[2].last.power_draw is not None
        before = snapshot.devices[0].sample.monotonic
        until(monitor, lambda snapshot: snapshot.devices[0].sample.monotonic > before)
        mounted.clear()
        until(monitor, lambda snapshot: states(snapshot) == ["ok"] * 4)


def test_monitor_replaces_a_reader_when_no_card_answers(mounted: Any) -> None:
    with dtk.Monitor(mounted.root, interval=0.2, deadline=1.0) as monitor:
        until(monitor, lambda snapshot: states(snapshot) == ["ok"] * 4)
        mounted.set(*(f"hang={card}" for card in range(4)))
        snapshot = until(monitor, lambda snapshot: states(snapshot) == ["stale"] * 4)
        assert snapshot.devices[3].name == "AMD Instinct MI210"
        mounted.clear()
        until(monitor, lambda snapshot: states(snapshot) == ["ok"] * 4, 20)


def test_monitor_closes_at_once_with_a_hung_card(mounted: Any) -> None:
    monitor = dtk.Monitor(mounted.root, interval=0.2, deadline=1.0)
    until(monitor, lambda snapshot: states(snapshot) == ["ok"] * 4)
    mounted.set("hang=2")
    until(monitor, lambda snapshot: bool(snapshot.stale))
    begin = time.monotonic()
    monitor.close()
    assert time.monotonic() - begin < 0.5


def test_a_card_that_leaves_while_cards_are_looked_for(mounted: Any) -> None:
    """It is gone from PCI and DRM when the search begins, and from KFD before it ends: nothing of it may stay."""
    below = mounted._below
    first = dtk.take_snapshot(mounted.root, deadline=10).devices[0]
    nodes = "sys/devices/virtual/kfd/kfd/topology/nodes"
    for link in (f"bus/pci/devices/{first.bdf}", f"bus/pci/drivers/{first.driver}/{first.bdf}"):
        (below / "sys" / link).unlink()
    for link in (f"card{first.drm_card}", f"renderD{first.drm_render}"):
        (below / "sys/class/drm" / link).unlink()
    hang = f"hang=sys/module/{first.driver}/version"  # asked for after the search, before the first tick
    mounted.set(hang)
    with dtk.Monitor(mounted.root, interval=0.1, deadline=20) as monitor:
        assert monitor.wait(1) is None
        shutil.rmtree(below / nodes / str(first.kfd_node))
        mounted.clear(hang)
        until(monitor, lambda snapshot: first.bdf not in {device.bdf for device in snapshot.devices})
