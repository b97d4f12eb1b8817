"""take_snapshot(): one look at a machine, in a process that may hang without harm."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import device_directory, put
from timing import is_done_within

import dtk
import dtk.reader

Get = Callable[[str], Path]


@pytest.mark.parametrize("name", ["k100_ai-2s", "mi210", "mi300x-cpx", "apu", "radeon", "mixed"])
def test_equals_what_direct_calls_read(machine: Get, name: str) -> None:
    snapshot = dtk.take_snapshot(machine(name), slow=True)
    with dtk.System(machine(name)) as system:
        assert snapshot.system == system.info
        for readings, devices in ((snapshot.devices, system.devices()), (snapshot.cards, system.cards())):
            assert [reading.uuid for reading in readings] == [device.uuid for device in devices]
            for reading, device in zip(readings, devices, strict=True):
                assert dict(reading.sample) == dict(device.sample(slow=True))
                assert reading.info == device.info()
                assert reading.ecc_blocks == device.ecc().blocks
                try:
                    assert reading.firmware == device.firmware()
                except dtk.NotSupported:
                    assert reading.firmware == {}
                for attribute in (
                    "index",
                    "card_index",
                    "partition",
                    "bdf",
                    "name",
                    "serial",
                    "hip_index",
                    "numa_node",
                ):
                    assert getattr(reading, attribute) == getattr(device, attribute), attribute
    assert snapshot.stale == ()
    assert snapshot.probe is None


def test_whole_card_is_one_reading_in_both_lists(machine: Get) -> None:
    snapshot = dtk.take_snapshot(machine("mi210"))
    assert all(device is card for device, card in zip(snapshot.devices, snapshot.cards, strict=True))
    assert [card.card_devices for card in snapshot.cards] == [(index,) for index in range(8)]


def test_partitions_are_those_of_their_card(machine: Get) -> None:
    snapshot = dtk.take_snapshot(machine("mi300x-cpx"), devices=["3"])
    (device,), (card,) = snapshot.devices, snapshot.cards
    assert (device.index, device.card_index, card.card_index, card.index) == (3, 0, 0, None)
    assert card.card_devices == tuple(range(8))  # also those that were not asked for
    assert device.sample.reason("power_draw") == "on_card"
    assert card.sample.power_draw


def test_one_device_costs_one_cards_reads(machine: Get, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"import dtk; dtk.take_snapshot({str(machine('mi210'))!r}, devices=[2])"
    command = ["strace", "-f", "-o", trace, "-e", "trace=openat,openat2", sys.executable, "-I", "-c", code]
    if subprocess.run(["sh", "-c", "command -v strace"], capture_output=True, check=False).returncode:
        pytest.skip("needs strace")
    subprocess.run(command, check=True)
    assert trace.read_text().count('"gpu_busy_percent"') == 1


def test_tiers(machine: Get) -> None:
    (reading,) = dtk.take_snapshot(machine("apu"), static=False).devices
    assert "memory_total" not in reading.sample
    assert "memory_used" in reading.sample
    assert "ecc_correctable" not in reading.sample


def test_empty_machine_is_probed(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    snapshot = dtk.take_snapshot(tmp_path)
    assert (snapshot.devices, snapshot.cards) == ((), ())
    assert snapshot.probe is not None
    assert snapshot.probe.pci_cards == 0


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ("99", dtk.DeviceNotFound, "8 devices, 0 to 7"),
        ("GPU-", dtk.InvalidArgument, "say which: 0 GPU-"),
        ("bogus", dtk.InvalidArgument, "no key for a device"),
        ("x" * 100_000, dtk.InvalidArgument, "no key for a device"),
        ("a\0b", dtk.InvalidArgument, "no key for a device"),
        ("--tiers", dtk.InvalidArgument, "no key for a device"),
        ("serial:none", dtk.DeviceNotFound, "8 devices"),
    ],
)
def test_keys_that_mean_nothing(machine: Get, key: str, error: type[dtk.Error], text: str) -> None:
    with pytest.raises(error, match=text):
        dtk.take_snapshot(machine("mi210"), devices=[0, key])


def test_roots_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(dtk.InvalidArgument, match="no sys/ directory"):
        dtk.take_snapshot(tmp_path)
    monkeypatch.setenv("DTK_SMI_ROOT", str(tmp_path / "missing"))
    with pytest.raises(dtk.InvalidArgument, match="DTK_SMI_ROOT must name"):
        dtk.take_snapshot()


def test_damaged_table_is_a_warning(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    put(device_directory(root, "0000:03:00.0"), "gpu_metrics", b"\x78\x00\x09\x09" + bytes(116))
    snapshot = dtk.take_snapshot(root)
    assert [code for code, _ in snapshot.warnings] == ["gpu_metrics_unknown"]
    assert "9.9" in snapshot.warnings[0][1]


@pytest.fixture
def broken_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a shell script in the place of dtk-reader."""

    def replace(script: str) -> None:
        program = tmp_path / "dtk-reader"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(dtk.reader, "PROGRAM", str(program))

    return replace


@pytest.mark.parametrize(
    "script", ["exit 3", "kill -SEGV $$", "head -c 4000 /dev/urandom", "yes", "printf DTKR", "printf 'DTKR\\001\\000'"]
)
def test_reader_that_crashes_is_an_error(machine: Get, broken_reader: Callable[[str], None], script: str) -> None:
    broken_reader(script)
    with pytest.raises(dtk.LibraryError, match="dtk-reader"):
        dtk.take_snapshot(machine("apu"))


def test_reader_that_says_nothing_is_a_timeout(machine: Get, broken_reader: Callable[[str], None]) -> None:
    broken_reader("exec sleep 100")

    def look() -> None:
        with pytest.raises(dtk.Timeout, match="look for cards"):
            dtk.take_snapshot(machine("apu"), deadline=0.3)

    assert is_done_within(0.3 + 0.3, look)


def test_reader_that_is_not_there(machine: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtk.reader, "PROGRAM", "/nonexistent/dtk-reader")
    with pytest.raises(dtk.LibraryError, match="install dtk-smi again"):
        dtk.take_snapshot(machine("apu"))


def test_leaves_no_process_and_no_descriptor(machine: Get) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    dtk.take_snapshot(machine("apu"))
    before = descriptors()
    for _ in range(20):
        dtk.take_snapshot(machine("apu"))
    assert descriptors() == before
    for _ in range(100):
        dtk.reader.reap()
        if not dtk.reader._abandoned:
            break
        time.sleep(0.01)
    assert not dtk.reader._abandoned


def test_reader_inherits_nothing(machine: Get, tmp_path: Path) -> None:
    lease = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(lease, True)
    with dtk.reader.Reader(str(machine("apu")), 2, interval=1.0) as process:
        seen = [kind for kind, *_ in process.frames(5)]
        while dtk.reader.READY not in seen:
            seen += [kind for kind, *_ in process.frames(5)]
        opened = set()
        for path in Path(f"/proc/{process._pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                opened.add(os.readlink(path))
    os.close(lease)
    assert str(tmp_path) not in opened
    assert all(path.startswith((str(machine("apu")), "pipe:", "anon_inode:", "/dev/null")) for path in opened)


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)])
def test_works_with_closed_standard_descriptors(machine: Get, closed: tuple[int, ...]) -> None:
    code = f"""
import os
for descriptor in {closed!r}: os.close(descriptor)
import dtk
os._exit(len(dtk.take_snapshot({str(machine("mi210"))!r}).devices))
"""
    assert subprocess.run([sys.executable, "-I", "-c", code], check=False).returncode == 8


def test_a_late_word_of_the_library_does_not_hide_a_card_that_hangs() -> None:
    """What the library adds to tick 1 comes while the files of tick 2 hang."""
    import struct

    from dtk import reader
    from dtk._native import ffi, lib
    from dtk.assembly import Assembly

    assembly = Assembly("/", "")
    info, values = ffi.new("dtk_info *"), ffi.new("dtk_value[]", lib.DTK_METRIC_COUNT)

    def tick(number: int) -> None:
        assembly.take(reader.TICK, -1, number, struct.pack("=dIii", float(number), lib.DTK_TIER_FAST, 1, 0))

    def sample(number: int, part: int) -> None:
        head = struct.pack("=ddIiii", 0.0, float(number), lib.DTK_TIER_FAST, lib.DTK_METRIC_COUNT, part, 0)
        assembly.take(reader.SAMPLE, 0, number, head + bytes(ffi.buffer(values)))

    assembly.take(reader.DEVICE, 0, 0, bytes(ffi.buffer(info)) + struct.pack("=iiii", 1, 0, 0, 1))
    tick(1)
    sample(1, 1)
    assert assembly.slots[0].asked == 0.0
    tick(2)
    sample(1, 2)
    assert assembly.slots[0].asked == 2.0
    assert assembly.outstanding()
    sample(2, 1)
    assert not assembly.slots[0].asked
