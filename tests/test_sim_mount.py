"""A simulated machine behind a mount: the same machine, and faults that a plain file cannot have."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import device_directory, hwmon_directory, needs_fuse
from test_sim import content
from test_sim_alive import running, wait_for

import dtk
from dtk import InvalidArgument, LibraryError, sim
from dtk.sim.faults import card_directories

Mount = Callable[[str], sim.Mounted]
READ = "0" if platform.machine() == "x86_64" else "63"  # the system call, as /proc/PID/syscall has it


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open; it may close others meanwhile."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(link) == str(path):
                return True
    return False


def waits_in_read(pid: int) -> bool:
    return Path(f"/proc/{pid}/syscall").read_text().startswith(f"{READ} ")


def reader(path: Path) -> subprocess.Popen[bytes]:
    """A process that waits in a read."""
    process = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE)
    wait_for(lambda: has_open(process.pid, path) and waits_in_read(process.pid))
    return process


def state(process: subprocess.Popen[bytes]) -> str:
    """Its state as in /proc: S sleeps, D cannot be killed, Z is over."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def fails(path: Path) -> int:
    """The error that reading a file gives."""
    try:
        path.read_bytes()
    except OSError as error:
        return error.errno or 0
    return 0


def card_file(mounted: sim.Mounted, index: int, name: str) -> Path:
    return mounted.root / card_directories(mounted.root)[index] / name


def test_a_mount_shows_the_same_machine(mounted: Mount, machine: Callable[[str], Path]) -> None:
    mount = mounted("radeon")
    assert content(mount.root) == content(machine("radeon"))
    with dtk.System(mount.root) as seen, dtk.System(machine("radeon")) as below:
        assert seen.info.simulated
        assert dict(seen.devices()[0].sample(slow=True)) == dict(below.devices()[0].sample(slow=True))


def test_reads_fail_as_asked(mounted: Mount) -> None:
    mount = mounted("mi210")
    mount.set("eio=0", "enodev=1/gpu_busy_percent", "eacces=2/hwmon/temp*")
    assert fails(card_file(mount, 0, "gpu_metrics")) == errno.EIO
    assert fails(card_file(mount, 1, "gpu_busy_percent")) == errno.ENODEV
    assert card_file(mount, 1, "gpu_metrics").read_bytes()
    assert card_file(mount, 0, "vendor").read_text() == "0x1002\n"
    hwmon = hwmon_directory(mount.root, card_directories(mount.root)[2].rpartition("/")[2])
    assert fails(hwmon / "temp1_input") == errno.EACCES
    assert not os.access(hwmon / "temp1_input", os.R_OK)
    assert (hwmon / "power1_average").read_text()
    with dtk.System(mount.root) as system:
        samples = [device.sample() for device in system.devices()]
    assert samples[0].reason("power_draw") == "failed"
    assert samples[1].source("utilization_gpu") == "gpu_metrics/average_gfx_activity"
    assert [sample.state for sample in samples[3:]] == ["ok"] * 5
    mount.clear("eio=0")
    assert card_file(mount, 0, "gpu_metrics").read_bytes()
    assert fails(card_file(mount, 1, "gpu_busy_percent")) == errno.ENODEV
    mount.clear()
    assert card_file(mount, 1, "gpu_busy_percent").read_text()


def test_a_read_that_hangs_cannot_be_killed(mounted: Mount) -> None:
    mount = mounted("mi210")
    mount.set("hang=3")
    path = card_file(mount, 3, "gpu_busy_percent")
    patient, killed, stopped = reader(path), reader(path), reader(path)
    assert [state(process) for process in (patient, killed, stopped)] == ["S", "S", "S"]
    killed.kill()
    stopped.send_signal(signal.SIGTERM)
    wait_for(lambda: state(killed) == state(stopped) == "D")
    assert card_file(mount, 2, "gpu_busy_percent").read_text()  # the others answer
    mount.clear()
    assert patient.communicate()[0].strip().isdigit()
    assert (killed.wait(5), stopped.wait(5)) == (-signal.SIGKILL, -signal.SIGTERM)
    killed.communicate()
    stopped.communicate()


def test_leaving_releases_what_hangs(copy_machine: Callable[[str], Path], tmp_path: Path) -> None:
    needs_fuse()
    mountpoint = tmp_path / "mount"
    with sim.mount(copy_machine("radeon"), mountpoint) as mount:
        mount.set("hang=0")
        killed = [reader(card_file(mount, 0, "gpu_busy_percent")) for _ in range(20)]
        for process in killed:
            process.kill()
        start = time.monotonic()
    assert time.monotonic() - start < 5
    assert [process.wait(5) for process in killed] == [-signal.SIGKILL] * 20
    for process in killed:
        process.communicate()
    assert not os.path.ismount(mountpoint)
    assert not list(mountpoint.iterdir())


def test_writes_are_refused_and_clamped(mounted: Mount) -> None:
    mount = mounted("mi210")
    bdfs = [path.rpartition("/")[2] for path in card_directories(mount.root)]
    caps = [hwmon_directory(mount.root, bdf) / "power1_cap" for bdf in bdfs]
    caps[0].write_text("200000000")
    assert caps[0].read_text() == "200000000\n"
    mount.set("refuse=1", "clamp:250000000=2/hwmon/power1_cap")
    with pytest.raises(OSError, match="Invalid argument"):
        caps[1].write_text("200000000")
    assert caps[1].read_text() == "300000000\n"
    for asked, taken in (("280000000", "250000000\n"), ("100000000\n", "100000000\n")):
        caps[2].write_text(asked)
        assert caps[2].read_text() == taken


def test_a_machine_that_lives_lives_in_its_mount(tmp_path: Path) -> None:
    needs_fuse()
    root = tmp_path / "node"
    simulator = sim.Simulator(root, sim.assemble(["mi210:2"], 1), faults=["denied=1/gpu_metrics"])
    with sim.mount(root, tmp_path / "mount") as mount, dtk.System(mount.root) as system:
        metrics, uptime = card_file(mount, 1, "gpu_metrics"), mount.root / "proc/uptime"
        before = uptime.read_text()
        assert metrics.read_bytes()
        simulator.advance()
        assert uptime.read_text() != before
        assert fails(metrics) == errno.EACCES
        assert system.devices()[1].sample().reason("temperature_hbm0") == "denied"
        mount.set("lost=0")
        simulator.advance()
        assert system.devices()[0].sample().state == "gone"
        mount.clear()
        simulator.advance()
        system.rescan()
        assert [device.sample().state for device in system.devices()] == ["ok", "ok"]
        cap = hwmon_directory(mount.root, system.devices()[0].bdf) / "power1_cap"
        cap.write_text("100000000")
        simulator.advance()
        assert simulator.clock.machine.cards[-1].state.power_cap == 100


def test_faults_by_path_and_time(mounted: Mount) -> None:
    mount = mounted("radeon")
    name = next((mount.root / "proc").glob("[0-9]*")).name
    mount.set(f"eacces=proc/{name}/fdinfo/*", f"eacces=proc/{name}/fd", "eio@3600=0")
    assert fails(mount.root / "proc" / name / "fdinfo/0") == errno.EACCES
    with pytest.raises(PermissionError):
        os.listdir(mount.root / "proc" / name / "fd")
    assert card_file(mount, 0, "gpu_busy_percent").read_text()


def test_refuses_what_cannot_be_mounted(tmp_path: Path, machine: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidArgument, match="no simulated machine"), sim.mount(tmp_path, tmp_path / "mount"):
        pass
    needs_fuse()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious").write_text("data")
    with pytest.raises(InvalidArgument, match="not empty"), sim.mount(machine("radeon"), tmp_path / "full"):
        pass


def test_says_what_is_missing(tmp_path: Path, machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mfusepy", None)
    with pytest.raises(LibraryError, match="mfusepy"), sim.mount(machine("radeon"), tmp_path / "mount"):
        pass


def test_a_mount_ends_with_a_killed_parent(tmp_path: Path, machine: Callable[[str], Path]) -> None:
    needs_fuse()
    program = (
        "import sys\nfrom dtk import sim\n"
        "with sim.mount(sys.argv[1], sys.argv[2]) as mount: mount.set('hang=0'); print('up', flush=True); input()"
    )
    root, mountpoint = tmp_path / "node", tmp_path / "mount"
    sim.write(root, ["radeon"])
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root), str(mountpoint)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    ) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"up\n"
        hanging = reader(mountpoint / card_directories(root)[0] / "gpu_busy_percent")
        hanging.kill()
        parent.kill()
        parent.wait()
        assert hanging.wait(10) == -signal.SIGKILL
        hanging.communicate()
        wait_for(lambda: not os.path.ismount(mountpoint))


def test_the_command_mounts(tmp_path: Path) -> None:
    needs_fuse()
    root, mountpoint = tmp_path / "node", tmp_path / "mount"
    arguments = (root, "--cards", "mi210:2", "--run", "--interval", "0.05", "--mount", mountpoint, "--fault", "eio=1")
    with running(*arguments) as process:
        assert process.stdout
        assert process.stdout.readline().endswith(f"is alive in {mountpoint}\n")
        card = card_directories(mountpoint)[1]
        assert fails(mountpoint / card / "gpu_busy_percent") == errno.EIO
        sim.set_faults(root, [])
        assert device_directory(mountpoint, card.rpartition("/")[2]).joinpath("gpu_busy_percent").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert (process.stdout.read(), process.stderr and process.stderr.read()) == ("", "")
    assert not os.path.ismount(mountpoint)
