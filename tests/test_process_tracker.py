"""dtk_tracker: looking for processes again and again, as dtk-reader does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from process_tree import Machine, one

import dtk
from dtk._native import ffi, lib
from dtk.process import table

GIB = 1 << 30


@pytest.fixture
def mi210(copy_machine: Callable[[str], Path]) -> Machine:
    return Machine(copy_machine("mi210"))


class Tracker:
    """What dtk-reader does with a machine."""

    def __init__(self, machine: Machine) -> None:
        self.system = machine.system
        self.uuids = [device.uuid for device in machine.devices]
        pointer = ffi.new("dtk_tracker **")
        self.handle = machine.system.handle()
        assert lib.dtk_tracker_open(self.handle, pointer) == 0
        self.tracker = ffi.gc(pointer[0], lib.dtk_tracker_close)
        self.full = False

    def scan(self, flags: int = 0) -> dtk.ProcessTable:
        result = ffi.new("dtk_scan *")
        places = lib.DTK_SCAN_KFD | lib.DTK_SCAN_FDINFO
        assert lib.dtk_tracker_scan(self.tracker, places | flags, result, ffi.sizeof("dtk_scan")) == 0
        self.full = bool(result.full)
        rows = ffi.new("dtk_process[]", result.processes)
        usages = ffi.new("dtk_usage[]", result.usages)
        assert lib.dtk_tracker_processes(self.tracker, rows, ffi.sizeof("dtk_process"), len(rows)) == len(rows)
        assert lib.dtk_tracker_usages(self.tracker, usages, ffi.sizeof("dtk_usage"), len(usages)) == len(usages)
        return table(rows, usages, result, dict.fromkeys(self.uuids))

    def pids(self, flags: int = 0) -> list[int]:
        return [process.pid for process in self.scan(flags).processes]


def test_tracker_looks_at_new_processes_and_users_alone(mi210: Machine) -> None:
    tracker = Tracker(mi210)
    mi210.process(10)
    mi210.process(20)
    mi210.drm(20, 3, 0, client=20, drm_resident_vram="1 MiB")
    assert tracker.pids() == [20]
    assert tracker.full
    mi210.drm(10, 3, 0, client=10, drm_resident_vram="1 MiB")  # not seen yet
    mi210.drm(20, 3, 0, client=20, drm_resident_vram="2 MiB")
    mi210.process(30)
    mi210.drm(30, 3, 0, client=30, drm_resident_vram="1 MiB")
    result = tracker.scan()
    assert not tracker.full
    assert [(p.pid, p.devices[0].memory_used) for p in result.processes] == [(20, 2 << 20), (30, 1 << 20)]
    mi210.compute(10, {mi210.gpu_ids[0]: 0})  # KFD's processes are always looked at
    assert tracker.pids() == [10, 20, 30]
    shutil.rmtree(mi210.proc / "20")
    assert tracker.pids() == [10, 30]
    assert tracker.pids(lib.DTK_SCAN_FULL) == [10, 30]
    assert tracker.full


def test_tracker_sees_what_changes_of_a_process(mi210: Machine) -> None:
    tracker = Tracker(mi210)
    mi210.compute(10, {mi210.gpu_ids[0]: GIB})
    mi210.process(10, ["bash"], name="bash")
    assert one(tracker.scan()).command == "bash"
    mi210.process(10, ["python3", "x.py"], name="python3", state="R")  # exec
    process = one(tracker.scan())
    assert (process.name, process.command, process.state) == ("python3", "python3 x.py", "R")
    mi210.process(10, ["python3", "x.py"], name="python3", state="D")
    process = one(tracker.scan())
    assert (process.command, process.state) == ("python3 x.py", "D")


def test_engine_times_do_not_go_back(mi210: Machine) -> None:
    tracker = Tracker(mi210)
    mi210.process(10)
    for gfx, dma, expected in ((100, 10, (100, 10)), (90, 20, (100, 20)), (120, 15, (120, 20))):
        mi210.drm(10, 3, 0, client=5, drm_engine_gfx=f"{gfx} ns", drm_engine_dma=f"{dma} ns")
        times = one(tracker.scan()).devices[0].engine_times
        assert (times["gfx"], times["dma"]) == expected
    mi210.drm(10, 3, 0, client=6, drm_engine_gfx="5 ns")  # another file
    assert one(tracker.scan()).devices[0].engine_times == {"gfx": 5}


def test_pid_that_was_given_away_is_not_the_one_kfd_means(mi210: Machine) -> None:
    tracker = Tracker(mi210)
    mi210.process(10, start=100)
    mi210.compute(10, {mi210.gpu_ids[0]: GIB})
    assert one(tracker.scan()).name == "python3"
    mi210.process(10, name="innocent", start=900)
    for _ in range(2):
        process = one(tracker.scan())
        assert (process.pid, process.status, process.name) == (10, "gone", None)
    (mi210.kfd / "10").rename(mi210.kfd / "old")
    mi210.compute(10, {mi210.gpu_ids[0]: GIB})  # a new one has a new entry
    assert one(tracker.scan()).name == "innocent"


def test_places_may_change_between_scans(mi210: Machine) -> None:
    tracker = Tracker(mi210)
    mi210.process(10)
    mi210.drm(10, 3, 0, client=5, drm_engine_gfx="100 ns")
    result = ffi.new("dtk_scan *")
    assert tracker.pids() == [10]
    assert lib.dtk_tracker_scan(tracker.tracker, lib.DTK_SCAN_KFD, result, ffi.sizeof("dtk_scan")) == 0
    assert (result.processes, result.usages, result.fdinfo) == (0, 0, lib.DTK_UNSUPPORTED)
    mi210.drm(10, 3, 0, client=5, drm_engine_gfx="90 ns")
    assert one(tracker.scan()).devices[0].engine_times == {"gfx": 100}
    assert not tracker.full


def test_kernels_without_openat2_tell_the_same(mi210: Machine) -> None:
    for pid in (10, 20):
        mi210.process(pid)
        mi210.compute(pid, {mi210.gpu_ids[0]: GIB, mi210.gpu_ids[1]: 0}, [mi210.gpu_ids[1]])
        mi210.drm(pid, 3, 2, client=pid, drm_resident_vram="1 MiB")
    found = []
    for flags in (0, lib.DTK_OPEN_NO_OPENAT2):
        system, pointer = ffi.new("dtk_system **"), ffi.new("dtk_tracker **")
        assert lib.dtk_open(os.fsencode(mi210.root), flags, system) == 0
        assert lib.dtk_tracker_open(system[0], pointer) == 0
        tracker = Tracker(mi210)
        tracker.tracker = pointer[0]
        found.append(tracker.scan())
        lib.dtk_tracker_close(pointer[0])
        lib.dtk_close(system[0])
    assert found[0] == found[1]
    assert [len(process.devices) for process in found[0].processes] == [3, 3]


def test_arguments(mi210: Machine) -> None:
    tracker = Tracker(mi210).tracker
    for flags in (0, lib.DTK_SCAN_FULL, 8, lib.DTK_SCAN_KFD | 16):
        assert lib.dtk_tracker_scan(tracker, flags, ffi.NULL, 0) == -lib.DTK_INVALID_ARGUMENT
    assert lib.dtk_tracker_scan(tracker, lib.DTK_SCAN_KFD, ffi.NULL, 0) == 0
    assert lib.dtk_tracker_scan(ffi.NULL, lib.DTK_SCAN_KFD, ffi.NULL, 0) == -lib.DTK_INVALID_ARGUMENT
    assert lib.dtk_tracker_open(ffi.NULL, ffi.new("dtk_tracker **")) == -lib.DTK_INVALID_ARGUMENT
    assert lib.dtk_tracker_processes(tracker, ffi.NULL, 0, 1) == -lib.DTK_INVALID_ARGUMENT
    assert lib.dtk_tracker_usages(ffi.NULL, ffi.NULL, 0, 0) == -lib.DTK_INVALID_ARGUMENT
    lib.dtk_tracker_close(ffi.NULL)


def test_rows_are_filled_up_to_the_size_and_count_of_the_caller(mi210: Machine) -> None:
    for pid in (1, 2, 3):
        mi210.compute(pid, {mi210.gpu_ids[0]: GIB})
    tracker = Tracker(mi210)
    tracker.scan()
    pids = ffi.new("int32_t[4]", [-9, -9, -9, -9])
    assert lib.dtk_tracker_processes(tracker.tracker, ffi.cast("dtk_process *", pids), 4, 2) == 3
    assert list(pids) == [1, 2, -9, -9]


def test_names_of_engines() -> None:
    names = [dtk.metrics.text(lib.dtk_engine_name(number)) for number in range(lib.DTK_ENGINE_COUNT)]
    assert names == ["gfx", "compute", "dma", "decode", "encode", "jpeg", "vpe"]
    assert lib.dtk_engine_name(-1) == lib.dtk_engine_name(lib.DTK_ENGINE_COUNT) == ffi.NULL
