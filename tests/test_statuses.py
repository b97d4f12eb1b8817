"""Every status a reading can have, on machines in which something was broken."""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from machines import device_directory, hwmon_directory, put

import dtk
from dtk import sim
from dtk.sim.gpu_metrics import pack

Machine = Callable[[str], Path]
NOBODY = 65534


class Broken:
    """A private copy of a machine, and its first card."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.system = dtk.System(root)
        self.device = self.system.cards()[0]
        self.directory = device_directory(root, self.device.bdf)
        self.hwmon = hwmon_directory(root, self.device.bdf)

    def put(self, path: str, content: str | bytes) -> None:
        put(self.directory, path, content)

    def unplug(self) -> None:
        """The card is no longer there, for PCI and KFD."""
        nodes = self.root / "sys/devices/virtual/kfd/kfd/topology/nodes"
        for device in self.system.devices():
            if device.bdf == self.device.bdf:
                shutil.rmtree(nodes / str(device.kfd_node))
        shutil.rmtree(self.directory)


@pytest.fixture
def radeon(copy_machine: Machine) -> Broken:
    return Broken(copy_machine("radeon"))


@pytest.fixture
def mi210(tmp_path: Path) -> Broken:
    """Two cards: one to break, and one that must go on."""
    sim.write(tmp_path / "mi210", cards=("mi210:2",))
    return Broken(tmp_path / "mi210")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to read everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


# ---- failed, unsupported ----

BREAKAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "fifo": (os.mkfifo, "failed", os.strerror(errno.ENXIO)),
    "directory": (os.mkdir, "failed", os.strerror(errno.EISDIR)),
    "link that leaves": (lambda path: path.symlink_to("/etc/hostname"), "failed", os.strerror(errno.ELOOP)),
    "empty": (lambda path: path.write_text(""), "failed", "text that is no number"),
    "garbage": (lambda path: path.write_text("over 9000\n"), "failed", "text that is no number"),
    "binary": (lambda path: path.write_bytes(b"\0\xff" * 999), "failed", "text that is no number"),
    "impossible": (lambda path: path.write_text("4000000000\n"), "failed", "cannot be true"),
    "absent": (lambda path: None, "unsupported", ""),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_file_that_is_broken_costs_its_metric_only(radeon: Broken, breakage: str) -> None:
    make, reason, detail = BREAKAGES[breakage]
    (radeon.directory / "gpu_metrics").unlink(missing_ok=True)
    before = radeon.device.sample()
    replace(radeon.directory / "gpu_busy_percent", make)
    sample = radeon.device.sample()
    assert sample.utilization_gpu is None
    assert sample.reason("utilization_gpu") == reason
    assert detail in (sample.detail("utilization_gpu") or "")
    assert sample.source("utilization_gpu") is None
    assert sample.state == "ok"
    others = set(before) - {"utilization_gpu"}
    assert {name: sample[name] for name in others} == {name: before[name] for name in others}
    assert radeon.device.utilization().gpu is None


def test_the_next_source_serves_when_one_is_broken(mi210: Broken) -> None:
    before = mi210.device.sample()
    assert before.source("utilization_gpu") == "gpu_busy_percent"
    mi210.put("gpu_busy_percent", "nonsense\n")
    sample = mi210.device.sample()
    assert sample.source("utilization_gpu") == "gpu_metrics/average_gfx_activity"
    assert sample.utilization_gpu is not None
    assert sample.reason("utilization_gpu") is None


def test_a_reading_comes_back(radeon: Broken) -> None:
    (radeon.directory / "gpu_metrics").unlink(missing_ok=True)
    (radeon.directory / "gpu_busy_percent").unlink()
    assert radeon.device.sample().reason("utilization_gpu") == "unsupported"
    radeon.put("gpu_busy_percent", "7\n")
    assert radeon.device.utilization().gpu == 7.0


def test_zero_is_a_value(radeon: Broken) -> None:
    radeon.put("gpu_busy_percent", "0\n")
    assert radeon.device.utilization().gpu == 0.0


# ---- denied ----


def test_denied(radeon: Broken) -> None:
    (radeon.directory / "gpu_metrics").unlink(missing_ok=True)
    (radeon.directory / "gpu_busy_percent").chmod(0)
    with as_nobody():
        sample = radeon.device.sample()
    assert sample.reason("utilization_gpu") == "denied"
    assert sample.detail("utilization_gpu") == "Permission denied"
    assert sample.state == "ok"


def test_all_denied(mi210: Broken) -> None:
    for path in mi210.root.rglob("*"):  # KFD's too
        if path.is_file() and not path.is_symlink():
            path.chmod(0)
    with as_nobody():
        sample = mi210.device.sample(static=False)
        assert mi210.device.power().draw is None
    assert sample.state == "denied"
    assert set(sample.values()) == {None}


def test_denied_directories(mi210: Broken) -> None:
    (mi210.directory / "ras").chmod(0)
    (mi210.directory / "fw_version").chmod(0)
    with as_nobody():
        for call in (mi210.device.ecc, mi210.device.firmware):
            with pytest.raises(dtk.PermissionDenied) as caught:
                call()
            assert isinstance(caught.value, PermissionError)
            assert caught.value.path == f"{mi210.root}/sys/bus/pci/devices/{mi210.device.bdf}"


def test_denied_root(tmp_path: Path) -> None:
    (tmp_path / "closed/root/sys").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as open_to_all:  # unlike tmp_path, which is of its user alone
        inside, root = tmp_path / "closed/root", Path(open_to_all) / "root"
        (root / "sys").mkdir(parents=True)
        Path(open_to_all).chmod(0o755)
        for closed, path in ((inside.parent, inside), (root, root), (root / "sys", root)):
            closed.chmod(0)
            with as_nobody(), pytest.raises(dtk.PermissionDenied) as caught:
                dtk.System(path)
            closed.chmod(0o700)
            assert caught.value.path == str(path)


def test_card_that_may_not_be_entered_keeps_its_place() -> None:
    with tempfile.TemporaryDirectory() as directory:  # tmp_path is of its user alone
        root = Path(directory) / "root"
        Path(directory).chmod(0o755)
        sim.write(root, cards=("mi210:2",))
        shutil.rmtree(root / "sys/class/kfd")
        closed = device_directory(root, "0000:03:00.0")
        closed.chmod(0)
        with as_nobody(), dtk.System(root) as system:
            first, second = system.devices()
            assert (first.index, first.bdf, first.driver) == (0, "0000:03:00.0", "amdgpu")
            assert first.sample().state == "denied"
            assert first.sample().reason("power_draw") == "denied"
            assert second.sample().state == "ok"
        closed.chmod(0o755)


# ---- no such directory ----


def test_without_ras_and_firmware(mi210: Broken) -> None:
    shutil.rmtree(mi210.directory / "ras")
    shutil.rmtree(mi210.directory / "fw_version")
    assert mi210.device.ecc() == dtk.ECC(None, None, None, None, None, {})
    assert mi210.device.sample(slow=True).reason("ecc_correctable") == "unsupported"
    with pytest.raises(dtk.NotSupported) as caught:
        mi210.device.firmware()
    assert (caught.value.operation, caught.value.status) == ("firmware", "unsupported")


# ---- gone ----


def test_gone(mi210: Broken) -> None:
    device, others = mi210.device, mi210.system.devices()[1:]
    uuid = device.uuid
    mi210.unplug()
    sample = device.sample(slow=True)
    assert sample.state == "gone"
    assert {sample.reason(name) for name in sample} == {"gone"}
    for call in (device.memory, device.temperature, device.power, device.clocks, device.utilization, device.fan,
                 device.pcie, device.ecc, device.throttle, device.firmware):  # fmt: skip
        with pytest.raises(dtk.DeviceLost, match="rescan") as caught:
            call()
        assert caught.value.operation == call.__name__
        assert caught.value.path == f"{mi210.root}/sys/bus/pci/devices/{device.bdf}"
    assert others[0].power().draw is not None, "the other cards go on"
    assert device.index == 0

    mi210.system.rescan()
    assert mi210.system.devices() == others
    assert [other.index for other in others] == [0]
    assert device.index is None
    assert device.uuid == uuid
    assert device.sample().state == "gone"
    with pytest.raises(dtk.DeviceLost):
        device.power()
    with pytest.raises(dtk.DeviceNotFound):
        mi210.system.device(uuid)


def test_gone_partitions(copy_machine: Machine) -> None:
    broken = Broken(copy_machine("mi300x-cpx"))
    part = broken.system.device(0)
    broken.unplug()
    assert part.sample().state == "gone"
    broken.system.rescan()
    with pytest.raises(dtk.DeviceLost):
        _ = part.card


def test_a_card_that_came_back_is_another_device(mi210: Broken) -> None:
    before = mi210.device
    away = mi210.root / "away"
    shutil.copytree(mi210.directory, away, symlinks=True)
    shutil.rmtree(mi210.directory)
    away.rename(mi210.directory)
    assert before.sample().state == "gone"
    mi210.system.rescan()
    assert before.sample().state == "gone"
    assert mi210.system.device(0).sample().state == "ok"


def test_a_card_that_leaves_while_it_is_read(mi210: Broken) -> None:
    """Whatever the moment: values, or gone; never an error, never a made-up state."""
    states: list[str] = []
    running = threading.Event()

    def read() -> None:
        running.set()
        while not states or states[-1] == "ok":
            states.append(mi210.device.sample(slow=True).state)

    thread = threading.Thread(target=read)
    thread.start()
    running.wait()
    time.sleep(0.02)
    shutil.rmtree(mi210.directory)
    thread.join(10)
    assert set(states) <= {"ok", "gone"}
    assert states[-1] == "gone"


# ---- asleep ----


def test_asleep(mi210: Broken) -> None:
    device = mi210.device
    mi210.put("power/runtime_status", "suspended\n")
    sample = device.sample(slow=True)
    assert sample.state == "asleep"
    assert {sample.reason(name) for name in sample} == {"asleep"}
    assert device.power() == dtk.Power(*[None] * 8)
    assert device.temperature().hbm == ()
    assert device.ecc() == dtk.ECC(None, None, None, None, None, {})
    assert device.info() == {"arch": "gfx90a"}
    with pytest.raises(dtk.NotSupported, match="suspended") as caught:
        device.firmware()
    assert caught.value.status == "asleep"
    assert device.name

    assert mi210.system.device(1).power().draw is not None
    mi210.put("power/runtime_status", "active\n")
    assert device.sample().state == "ok"


def test_what_a_sleeping_card_does_not_tell_is_asked_again(mi210: Broken) -> None:
    mi210.put("power/runtime_status", "suspended\n")
    device = dtk.System(mi210.root).device(0)
    assert device.serial is None
    assert device.name
    mi210.put("power/runtime_status", "active\n")
    assert device.serial
    assert device.name == mi210.device.name


READ_ALL = """
import os, sys, dtk
device = dtk.System(sys.argv[1]).device(0)
try: os.open("/from-here", os.O_RDONLY)
except OSError: pass
device.sample(slow=True), device.memory(), device.power(), device.ecc(), device.info(), device.name, device.serial
try: device.firmware()
except dtk.NotSupported: pass
"""


def test_a_sleeping_card_is_not_touched(mi210: Broken) -> None:
    """No file of it is opened that its driver would have to answer."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    mi210.put("power/runtime_status", "suspended\n")
    command = ["strace", "-f", "-e", "trace=openat,openat2,open", sys.executable, "-I", "-c", READ_ALL, mi210.root]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, _, after = done.stderr.partition("/from-here")
    opened = {Path(name).name for name in re.findall(r'open\w*\([^"]*"([^"]+)"', after)}
    pci_core = {"numa_node", "revision", "vendor", "device", "subsystem_vendor", "subsystem_device", "runtime_status"}
    assert "runtime_status" in opened
    assert opened <= pci_core


# ---- gpu_metrics ----


def test_unknown_gpu_metrics(mi210: Broken) -> None:
    mi210.put("gpu_metrics", struct.pack("<HBB", 200, 9, 7) + bytes(196))
    sample = mi210.device.sample()
    ((code, text),) = sample.warnings
    assert code == "gpu_metrics_unknown"
    for part in (mi210.device.bdf, "9.7", "other sources"):
        assert part in text
    assert sample.reason("energy") == "unsupported"
    assert "9.7" in (sample.detail("energy") or "")
    assert sample.temperature_edge is not None
    assert sample.source("temperature_edge") == "hwmon/temp*_input (edge)"
    assert sample.state == "ok"


@pytest.mark.parametrize("content", [b"\0\0\0\0" + bytes(100), struct.pack("<HBB", 120, 1, 3) + bytes(16), b"x"])
def test_damaged_gpu_metrics(mi210: Broken, content: bytes) -> None:
    mi210.put("gpu_metrics", content)
    sample = mi210.device.sample()
    ((code, text),) = sample.warnings
    assert code == "gpu_metrics_damaged"
    assert mi210.device.bdf in text
    assert sample.reason("energy") == "failed"
    assert "short or inconsistent" in (sample.detail("energy") or "")
    assert sample.temperature_edge is not None
    assert sample.state == "ok"


def test_throttle_status_is_names(mi210: Broken) -> None:
    def throttle(bits: int) -> tuple[str, ...] | None:
        mi210.put("gpu_metrics", pack(1, 3, {"indep_throttle_status": bits}))
        return mi210.device.throttle().status

    assert throttle(0) == ()
    assert throttle(1) == ("ppt0",)
    assert throttle(1 << 63 | 1 << 36 | 1) == ("ppt0", "temp_hotspot", "bit_63")
    assert throttle(2**64 - 1) is None, "all ones: the firmware does not say"


def test_hbm_stacks(mi210: Broken) -> None:
    mi210.put("gpu_metrics", pack(1, 3, {"temperature_hbm": [50, 0xFFFF, 52, 0xFFFF]}))
    assert mi210.device.temperature().hbm == (50.0, None, 52.0)
    mi210.put("gpu_metrics", pack(1, 3, {}))
    assert mi210.device.temperature().hbm == ()
