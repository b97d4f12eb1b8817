"""`import dtk` on the project's machines: systems, devices, records, samples."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from machines import MACHINES, device_directory, put

import dtk

Machine = Callable[[str], Path]

# Records whose fields are metrics, with the prefix that the metric's name has.
RECORDS = {
    "memory": "memory_",
    "temperature": "temperature_",
    "power": "power_",
    "clocks": "clock_",
    "utilization": "utilization_",
    "fan": "fan_",
    "pcie": "pcie_",
    "throttle": "throttle_",
    "ecc": "ecc_",
}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "sys").mkdir()
    return tmp_path


# ---- systems ----


def test_machine_without_cards(empty: Path) -> None:
    system = dtk.System(empty)
    assert system.devices() == []
    assert system.cards() == []
    assert system.root == str(empty)
    assert system.info == dtk.SystemInfo(hostname=None, simulated=False, live=False, drivers={})
    probe = system.probe()
    assert (probe.pci_cards, probe.drm, probe.kfd, probe.modules, probe.first_unbound) == (0, False, False, (), None)
    assert probe.dev_kfd is None
    assert probe.dev_render_access is None
    with pytest.raises(dtk.DeviceNotFound, match="there are no devices"):
        system.device(0)


def test_system_info_and_probe(machine: Machine) -> None:
    system = dtk.System(machine("k100_ai-2s"))
    info, probe = system.info, system.probe()
    assert info.simulated is True
    assert info.live is False
    assert info.hostname
    assert len(info.drivers) == 1
    assert all(info.drivers.values())
    assert probe.pci_cards == 8
    assert probe.drm is True
    assert probe.kfd is True
    assert set(probe.modules) == set(info.drivers)


def test_root_from_the_environment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTK_SMI_ROOT", str(machine("mi210")))
    assert dtk.System().root == str(machine("mi210"))
    assert dtk.System(machine("radeon")).root == str(machine("radeon")), "an argument wins"
    assert len(dtk.devices()) == 8
    assert dtk.cards() == dtk.devices()
    assert dtk.device(3).index == 3
    monkeypatch.setenv("DTK_SMI_ROOT", str(machine("radeon")))
    assert len(dtk.devices()) == 1
    monkeypatch.setenv("DTK_SMI_ROOT", "")
    assert dtk.System().root == "/"


def test_root_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(dtk.InvalidArgument, match=f"{name}: there is no such directory .*root=") as caught:
            dtk.System(tmp_path / name)
        assert (caught.value.operation, caught.value.path) == ("open", str(tmp_path / name))
    with pytest.raises(dtk.InvalidArgument, match=r"has no sys/ directory .*root="):
        dtk.System(tmp_path)
    for nonsense in ("", "a\0b"):
        with pytest.raises(dtk.InvalidArgument):
            dtk.System(nonsense)
    monkeypatch.setenv("DTK_SMI_ROOT", str(tmp_path))
    with pytest.raises(dtk.InvalidArgument, match="DTK_SMI_ROOT must name a directory that holds sys/"):
        dtk.devices()


def test_debug_says_what_was_swallowed(
    copy_machine: Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = copy_machine("radeon")
    busy = device_directory(root, dtk.System(root).device(0).bdf) / "gpu_busy_percent"
    busy.unlink()
    busy.mkdir()
    dtk.System(root).device(0).utilization()
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("DTK_SMI_DEBUG", "1")
    dtk.System(root).device(0).utilization()
    assert "gpu_busy_percent" in capfd.readouterr().err


def test_close(machine: Machine) -> None:
    before = open_files()
    with dtk.System(machine("mi210")) as system:
        device = system.device(0)
        assert device.power().draw is not None
        assert open_files() > before
    assert open_files() == before
    assert system.closed
    for call in (system.devices, system.probe, system.rescan, device.sample, device.power, device.info):
        with pytest.raises(dtk.Error, match="this System is closed"):
            call()
    assert device.bdf in repr(device)
    assert hash(device)
    system.close()


def test_a_device_keeps_its_system_open(machine: Machine) -> None:
    device = dtk.System(machine("mi210")).device(0)
    gc.collect()
    assert device.power().draw is not None
    before = open_files()
    del device
    assert open_files() < before, "nothing holds the system any more"


# ---- devices ----


def test_whole_cards(machine: Machine) -> None:
    system = dtk.System(machine("mi210"))
    devices = system.devices()
    assert [device.index for device in devices] == list(range(8))
    assert [device.card_index for device in devices] == list(range(8))
    assert devices == system.cards()
    assert sorted(devices, key=lambda device: device.bdf) == devices
    assert len({device.uuid for device in devices} | {device.serial for device in devices}) == 16
    first = devices[0]
    assert first.card is first
    assert first.partition is None
    assert not first.is_partition
    assert (first.vendor_id, first.arch, first.compute_units) == (0x1002, "gfx90a", 104)
    assert first.uuid == f"GPU-{first.unique_id:016x}"
    assert first.name
    assert first.driver == "amdgpu"
    for attribute in ("numa_node", "drm_card", "drm_render", "kfd_node", "gpu_id", "hip_index", "device_id",
                      "subsystem_vendor_id", "subsystem_device_id", "revision_id", "hive_id"):  # fmt: skip
        assert isinstance(getattr(first, attribute), int), attribute
    assert repr(first) == f"Device(index=0, name={first.name!r}, bdf={first.bdf!r})"
    info = first.info()
    assert info["arch"] == "gfx90a"
    assert info["performance_level"] == "auto"
    assert all(info.values())


def test_partitions(machine: Machine) -> None:
    system = dtk.System(machine("mi300x-cpx"))
    (card,) = system.cards()
    parts = system.devices()
    assert [part.index for part in parts] == list(range(len(parts)))
    assert [part.partition for part in parts] == list(range(len(parts)))
    assert len({part.uuid for part in parts}) == len(parts) > 1
    assert card.index is None
    assert repr(card).startswith("Device(card=0, ")
    for part in parts:
        assert part.is_partition
        assert part.card == card
        assert (part.bdf, part.card_index) == (card.bdf, 0)
    sample = parts[0].sample()
    assert sample.memory_total is not None
    assert (sample.power_draw, sample.reason("power_draw")) == (None, "on_card")
    assert parts[0].power() == dtk.Power(*[None] * 8)
    assert parts[0].ecc() == dtk.ECC(None, None, None, None, None, {})
    with pytest.raises(dtk.NotSupported, match=r"ask Device\.card") as caught:
        parts[0].firmware()
    assert caught.value.status == "on_card"
    assert card.power().draw is not None
    assert card.firmware()


def test_without_drm(copy_machine: Machine) -> None:
    """A container that has no /sys/class/drm."""
    root = copy_machine("mi210")
    shutil.rmtree(root / "sys/class/drm")
    assert [device.power().draw is None for device in dtk.System(root).devices()] == [False] * 8


def test_kfd_alone(copy_machine: Machine) -> None:
    root = copy_machine("mi210")
    whole = dtk.System(root).devices()
    for path in ("sys/class/drm", "sys/class/hwmon", "sys/bus"):
        shutil.rmtree(root / path)
    for path in (root / "sys/devices").glob("pci*"):
        shutil.rmtree(path)
    devices = dtk.System(root).devices()
    assert [device.bdf for device in devices] == [device.bdf for device in whole]
    assert devices[0].memory().total is not None
    assert devices[0].driver is None
    assert devices[0].sample().reason("power_draw") == "unsupported"
    with pytest.raises(dtk.NotSupported):
        devices[0].firmware()


def test_keys(machine: Machine) -> None:
    system = dtk.System(machine("mi210"))
    device = system.device(5)
    for key in ("5", device.uuid, device.uuid[:12], device.bdf, device.bdf.removeprefix("0000:"),
                f"card{device.drm_card}", f"renderD{device.drm_render}", f"kfd:{device.kfd_node}",
                f"gpu_id:{device.gpu_id}", f"hip:{device.hip_index}", f"serial:{device.serial}", device):  # fmt: skip
        assert system.device(key) == device, key
        assert system.match(key) == [device], key
    other = dtk.System(machine("mi210"))
    assert other.device(device) == device
    for key in (8, 99, "card99", "GPU-0000000000000000", "serial:none", "0000:ff:1f.7"):
        with pytest.raises(dtk.DeviceNotFound, match="there are 8 devices, 0 to 7") as caught:
            system.device(key)
        assert isinstance(caught.value, LookupError)
    nonsense: list[object] = [-1, "", "x", "card", "kfd:x", "0x5", "5 ", None, 1.0, True, "a\0b", "\udcff", "5" * 40]
    for wrong in nonsense:
        with pytest.raises(dtk.InvalidArgument, match="keys are an index"):
            system.device(wrong)  # type: ignore[arg-type]
    with pytest.raises(dtk.DeviceNotFound):
        system.device(dtk.System(machine("mi300x-cpx")).device(0))
    with pytest.raises(dtk.InvalidArgument, match=device.uuid):
        system.device("GPU-")  # the beginning of all


def test_key_of_a_partitioned_card(machine: Machine) -> None:
    system = dtk.System(machine("mi300x-cpx"))
    card, parts = system.cards()[0], system.devices()
    assert system.match(card.bdf) == parts
    assert system.match(f"serial:{card.serial}") == parts
    assert system.device(card) == card
    with pytest.raises(dtk.InvalidArgument) as caught:
        system.device(card.bdf)
    assert caught.value.status == "ambiguous"
    for part in parts:
        assert f"{part.index} {part.uuid}" in (caught.value.hint or "")


def test_equality_and_pickle(machine: Machine) -> None:
    one, other = dtk.System(machine("mi210")), dtk.System(machine("mi210"))
    assert one.devices() == other.devices()
    assert len(set(one.devices()) | set(other.devices())) == 8
    assert one.device(0) != one.device(1)
    assert one.device(0) != "GPU"
    for device in (one.device(3), dtk.System(machine("mi300x-cpx")).cards()[0]):
        copy = pickle.loads(pickle.dumps(device))
        assert copy == device
        assert copy.sample().state == "ok"


def test_pickle_of_a_device_that_left(copy_machine: Machine) -> None:
    root = copy_machine("radeon")
    data = pickle.dumps(dtk.System(root).device(0))
    shutil.rmtree(root / "sys")
    (root / "sys").mkdir()
    with pytest.raises(dtk.DeviceNotFound, match="unpickle"):
        pickle.loads(data)


# ---- records and samples ----


@pytest.mark.parametrize("name", MACHINES)
def test_records_say_what_the_sample_says(machine: Machine, name: str) -> None:
    for device in dtk.System(machine(name)).devices():
        sample = device.sample(slow=True)
        for call, prefix in RECORDS.items():
            record = getattr(device, call)()
            for field, value in record._asdict().items():
                if field == "hbm":
                    assert value == tuple(sample[f"temperature_hbm{n}"] for n in range(len(value)))
                elif field != "blocks":
                    metric = prefix + field if prefix + field in sample else field
                    assert value == sample[metric], f"{call}().{field}"


def test_costs_of_sources(machine: Machine) -> None:
    device = dtk.System(machine("mi210")).device(0)
    for _ in range(20):
        costs = device.costs()
        assert all(0 < cost < 1e6 for cost in costs.values())
        # Every source that a sample reads from is measured, and under its name alone.
        sample = device.sample(slow=True)
        sources = {str(sample.source(name)) for name in sample if sample[name] is not None}
        files = {source.partition("/")[0] if source.startswith("gpu_metrics") else source for source in sources}
        derived = {"memory_total - memory_used", "hwmon/pwm1 / pwm1_max", "kfd/max_engine_clk_fcompute"}
        assert files - derived <= costs.keys()
        assert "power/runtime_status" in costs
        assert "" not in costs


def test_costs_of_a_sleeping_card(copy_machine: Machine) -> None:
    root = copy_machine("mi210")
    put(device_directory(root, "0000:03:00.0"), "power/runtime_status", "suspended\n")
    assert list(dtk.System(root).device(0).costs()) == ["power/runtime_status"]


def test_arrays_of_the_c_api_are_filled_as_far_as_asked(machine: Machine) -> None:
    """Callers pass the size of the struct that they were compiled with, and how many they have room for."""
    from dtk._native import ffi, lib

    assert lib.dtk_system_pci(ffi.NULL, ffi.NULL, 0, 0) == -lib.DTK_INVALID_ARGUMENT
    assert lib.dtk_device_costs(ffi.NULL, ffi.NULL, 0, 0) == -lib.DTK_INVALID_ARGUMENT
    system = dtk.System(machine("mi210"))
    device = system.device(0)
    calls: list[tuple[Callable[..., int], object, str]] = [
        (lib.dtk_system_pci, system.handle(), "dtk_pci_card *"),
        (lib.dtk_device_costs, device._pointer, "dtk_cost *"),
    ]
    for call, subject, row in calls:
        assert call(subject, ffi.NULL, 0, 1) == -lib.DTK_INVALID_ARGUMENT
        whole = call(subject, ffi.NULL, 0, 0)
        room = ffi.new("char[]", b"\xff" * 64)
        assert call(subject, ffi.cast(row, room), 16, 2) == whole >= 8
        assert bytes(ffi.buffer(room))[32:64] == b"\xff" * 32
        assert bytes(ffi.buffer(room))[:4] in (b"0000", b"powe")


def test_cards_of_pci_whatever_their_driver(copy_machine: Machine) -> None:
    root = copy_machine("mixed")
    system = dtk.System(root)
    assert [card.bdf for card in system.pci_cards()] == [card.bdf for card in system.cards()]
    first = system.pci_cards()[0]
    assert (first.driver, first.vendor_id, first.pci_class) == ("hycu", 0x1D94, 0x0B4000)
    (device_directory(root, first.bdf) / "driver").unlink()
    assert system.pci_cards()[0] == first._replace(driver=None)
    depth = len(device_directory(root, first.bdf).relative_to(root / "sys").parts)
    (root / "sys/bus/pci/drivers/vfio-pci").mkdir()
    (device_directory(root, first.bdf) / "driver").symlink_to("../" * depth + "bus/pci/drivers/vfio-pci")
    assert system.pci_cards()[0] == first._replace(driver="vfio-pci")


def test_probe_counts_what_kfd_and_the_modules_say(copy_machine: Machine) -> None:
    root = copy_machine("k100_ai-2s")
    probe = dtk.System(root).probe()
    assert (probe.kfd_nodes, probe.kfd_denied, probe.numa_nodes) == (8, 0, 2)
    assert probe.module_states == {"hycu": "live"}
    put(root, "sys/module/hycu/initstate", "going\n")
    put(root, "sys/module/amdgpu/refcnt", "0\n")
    assert dtk.System(root).probe().module_states == {"hycu": "going", "amdgpu": None}


def test_firmware_and_ecc_blocks(machine: Machine) -> None:
    device = dtk.System(machine("mi210")).device(0)
    firmware = device.firmware()
    assert list(firmware) == sorted(firmware)
    assert firmware["smc"].startswith("0x")
    ecc = device.ecc()
    assert "umc" in ecc.blocks
    assert ecc.correctable == sum(block.correctable or 0 for block in ecc.blocks.values())


def test_sample_is_a_mapping_with_attributes(machine: Machine) -> None:
    sample = dtk.System(machine("mi210")).device(0).sample(slow=True)
    assert list(sample) == [metric.name for metric in dtk.metrics.all()]
    assert len(sample) == len(dtk.metrics.all())
    types = {"f64": float, "i64": int, "u64": int, "bits": tuple}
    for metric in dtk.metrics.all():
        value = sample[metric.name]
        assert value is None or type(value) is types[metric.type], metric.name
        assert getattr(sample, metric.name) == value
        assert (value is None) == (sample.reason(metric.name) is not None) == (sample.source(metric.name) is None)
        assert value is None or sample.source(metric.name) in metric.sources
        assert value is None or sample.detail(metric.name) is None
    assert sample.as_dict() == dict(sample)
    assert sample.get("nope") is None
    assert "power_draw" in dir(sample)
    assert repr(sample).startswith("<Sample of 0000:")
    assert sample.state == "ok"
    assert sample.warnings == []


def test_sample_holds_the_tiers_that_were_asked(machine: Machine) -> None:
    device = dtk.System(machine("mi210")).device(0)
    tiers = {metric.name: metric.tier for metric in dtk.metrics.all()}
    for tier in ("static", "fast", "slow"):
        sample = device.sample(**{"static": False, "fast": False, tier: True})
        assert [tiers[name] for name in sample] == [tier] * len(sample)
    sample = device.sample(static=False)
    with pytest.raises(KeyError, match=r"sample\(static=True\)"):
        sample["memory_total"]
    with pytest.raises(AttributeError, match=r"sample\(static=True\)"):
        _ = sample.memory_total
    with pytest.raises(dtk.InvalidArgument, match="at least one tier"):
        device.sample(static=False, fast=False)


def test_unknown_names(machine: Machine) -> None:
    sample = dtk.System(machine("mi210")).device(0).sample()
    for ask in (sample.__getitem__, sample.reason, sample.source, sample.detail):
        with pytest.raises(KeyError, match="did you mean power_draw"):
            ask("power_drw")
    with pytest.raises(KeyError, match="no metric 'nope'"):
        sample["nope"]
    assert not hasattr(sample, "nope")


def test_sample_is_frozen_and_pickles(machine: Machine) -> None:
    device = dtk.System(machine("mi210")).device(0)
    before = time.time(), time.monotonic()
    sample = device.sample()
    assert before[0] <= sample.timestamp <= time.time()
    assert before[1] <= sample.monotonic <= time.monotonic()
    for name in ("power_draw", "timestamp", "state", "new"):
        with pytest.raises(AttributeError):
            setattr(sample, name, 1)
    copy = pickle.loads(pickle.dumps(sample))
    assert copy == sample
    assert [copy.reason(name) for name in copy] == [sample.reason(name) for name in sample]
    assert (copy.timestamp, copy.monotonic, repr(copy)) == (sample.timestamp, sample.monotonic, repr(sample))
    power = device.power()
    assert pickle.loads(pickle.dumps(power)) == power
    with pytest.raises(AttributeError):
        power.draw = 1.0  # type: ignore[misc]


def test_a_sample_is_of_one_moment(copy_machine: Machine) -> None:
    root = copy_machine("radeon")
    device = dtk.System(root).device(0)
    put(device_directory(root, device.bdf), "gpu_busy_percent", "40\n")
    sample = device.sample()
    put(device_directory(root, device.bdf), "gpu_busy_percent", "50\n")
    assert sample.utilization_gpu == 40.0
    assert device.utilization().gpu == 50.0


# ---- threads, forks, memory ----


def test_threads(machine: Machine) -> None:
    """Threads that read all devices, with rescans and a close in between."""
    system = dtk.System(machine("mixed"))
    devices = [*system.devices(), *system.cards()]
    failures: list[BaseException] = []
    end = time.monotonic() + 1.0

    def work() -> None:
        try:
            while time.monotonic() < end:
                for device in devices:
                    assert device.sample(slow=True).state == "ok"
                    assert device.index is not None
                assert len(system.devices()) == len(devices) // 2
        except dtk.Error as error:
            if not system.closed:
                failures.append(error)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end - 0.3:
        system.rescan()
        time.sleep(0.01)
    system.close()
    for thread in threads:
        thread.join()
    assert not failures


def in_child(action: Callable[[], object]) -> int:
    """Exit status of a forked child that does something."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            action()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_fork(machine: Machine) -> None:
    system = dtk.System(machine("mi210"))
    device = system.device(0)
    with system.lock(device.bdf), system.lock():  # as if a thread was in the library just now
        assert in_child(device.power) == 0
        assert in_child(system.devices) == 0
        assert in_child(system.rescan) == 0
        assert in_child(lambda: in_child(device.power) and 1 / 0) == 0
    assert in_child(system.close) == 0
    assert device.power().draw is not None


def test_nothing_grows(machine: Machine) -> None:
    system = dtk.System(machine("mi210"))
    device = system.device(0)

    def work(count: int) -> int:
        for _ in range(count):
            device.sample(slow=True).as_dict()
            system.device(1).info()
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before, files = work(500), open_files()
    assert work(3000) - before < 1024, "KiB"
    assert open_files() == files


def test_import_opens_no_device_file() -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    command = ["strace", "-f", "-e", "trace=openat,openat2,open", sys.executable, "-I", "-c", "import dtk"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    opened = [line for line in done.stderr.splitlines() if "libdtk.so.0" in line]
    assert opened, "strace shows what is opened"
    touched = [line for line in done.stderr.splitlines() if '"/sys' in line or "/dev/kfd" in line or "/dev/dri" in line]
    assert touched == []
