"""The libraries that stand in for the vendors' are what the facts say of each ABI generation, and obey a test."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import standin
from standin import GENERATIONS, Call, Standin, errors, expected, raw

BDFS = ("0000:43:00.0", "10001:c3:1f.7/2")

SINCE_AMD6 = {"rsmi_dev_activity_metric_get", "rsmi_dev_power_get", "rsmi_dev_current_socket_power_get"}
OLD = {"rsmi_dev_nps_mode_get"}
AMD7 = {"rsmi_dev_device_identifiers_get", "rsmi_dev_market_name_get"}
HYGON63 = {
    "rsmi_hy_version_get",
    "rsmi_driver_status",
    "rsmi_compute_process_info_by_pid_get_v2",
    *(f"rsmi_dev_{name}_get" for name in ("cu_usage", "hcu_util", "cu_util", "wave_util", "se_util", "cu_num")),
    *(f"rsmi_dev_{name}_get" for name in ("df_bandwidth", "proc_usage", "xhcl_bandwidth", "xhcl_link_number")),
    *(f"rsmi_dev_xhcl_link_{name}_get" for name in ("state", "remote_bdfid", "remote_dev_type")),
}
# Which of these a generation has, its version, and the first sensor of its HBM.
KINDS: dict[str, tuple[set[str], tuple[int, int, int], int]] = {
    "AMD5": (OLD, (5, 0, 0), 3),
    "AMD6": (SINCE_AMD6, (6, 0, 0), 3),
    "AMD7": (SINCE_AMD6 | AMD7, (7, 8, 0), 3),
    "HYGON62": (OLD, (2, 8, 0), 7),
    "HYGON63": (SINCE_AMD6 | HYGON63, (7, 6, 0), 7),
}

u32, u64, i64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


class Version(ctypes.Structure):
    _fields_ = [("major", u32), ("minor", u32), ("patch", u32), ("build", ctypes.c_char_p)]


class Frequencies(ctypes.Structure):
    """Since AMD 6."""

    _fields_ = [("has_deep_sleep", ctypes.c_bool), ("count", u32), ("current", u32), ("hertz", u64 * 33)]


class ProcessV2(ctypes.Structure):
    _fields_ = [
        ("pid", u32),
        ("vram", u64),
        ("vram_rate", ctypes.c_float),
        ("count", ctypes.c_int),
        ("devices", ctypes.c_int * 16),
        ("rates", ctypes.c_float * 16),
    ]


Load = Callable[..., tuple[Standin, ctypes.CDLL]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """A stand-in with two devices, loaded into this process."""

    def get(generation: str, *lines: str) -> tuple[Standin, ctypes.CDLL]:
        one = standin.make(tmp_path, generation, BDFS, *lines)
        monkeypatch.setenv("DTK_STANDIN", str(one.control))
        library = ctypes.CDLL(str(one.library))
        assert library.rsmi_init(u64(0)) == 0
        return one, library

    return get


def number(library: ctypes.CDLL, function: str, *arguments: int, kind: Any = u64) -> Any:
    ret = kind()
    assert getattr(library, function)(*arguments, ctypes.byref(ret)) == 0, function
    return ret.value


# ---- the ABI ----


def test_readings_of_a_unit_do_not_share_a_number() -> None:
    said = Counter(
        (row.unit, raw(device, name)) for name, row in standin.READINGS.items() if row.step for device in range(8)
    )
    assert [key for key, times in said.items() if times > 1] == []


@pytest.mark.parametrize("generation", GENERATIONS)
def test_generations_have_their_functions_and_version(generation: str, load: Load) -> None:
    functions, numbers, _ = KINDS[generation]
    _, library = load(generation)
    differing = OLD | SINCE_AMD6 | AMD7 | HYGON63
    assert {name for name in differing if hasattr(library, name)} == functions
    version = Version()
    assert library.rsmi_version_get(ctypes.byref(version)) == 0
    assert (version.major, version.minor, version.patch) == numbers


def test_a_library_without_some_functions() -> None:
    library = ctypes.CDLL(str(standin.build("AMD6", ("rsmi_dev_power_ave_get", "rsmi_shut_down"))))
    assert not hasattr(library, "rsmi_dev_power_ave_get")
    assert not hasattr(library, "rsmi_shut_down")
    assert hasattr(library, "rsmi_init")
    assert not hasattr(library, "control_enter")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_structs_have_the_size_of_the_generation(generation: str, tmp_path: Path) -> None:
    hygon63, since_amd6 = generation == "HYGON63", generation not in ("AMD5", "HYGON62")
    calls: list[list[str | int]] = [
        ["rsmi_version_get", 24, "buffer"],
        ["rsmi_dev_gpu_clk_freq_get", 280 if since_amd6 else 264, 0, 0, "buffer"],
        ["rsmi_dev_pci_bandwidth_get", 416 if since_amd6 else 392, 0, "buffer"],
        ["rsmi_dev_ecc_count_get", 64 if hygon63 else 16, 0, 1, "buffer"],
        ["rsmi_utilization_count_get", 56 if hygon63 else 16, 0, "buffer", 1, "one"],
        ["rsmi_dev_memory_reserved_pages_get", 24, 0, "one", "buffer"],
        ["rsmi_compute_process_info_get", 32, "buffer", "one"],
        ["rsmi_compute_process_info_by_pid_get", 32, 77, "buffer"],
        ["rsmi_dev_name_get", 7, 0, "buffer", 7],
    ]
    if since_amd6:
        calls.append(["rsmi_dev_activity_metric_get", 6, 0, 7, "buffer"])
    if generation == "AMD7":
        calls.append(["rsmi_dev_device_identifiers_get", 72, 0, "buffer"])
    if hygon63:
        calls += [
            ["rsmi_hy_version_get", 8, "buffer"],
            ["rsmi_compute_process_info_by_pid_get_v2", 152, 77, "buffer"],
            ["rsmi_dev_df_bandwidth_get", 24, 0, 3, "buffer"],
            ["rsmi_dev_xhcl_bandwidth_get", 56, 0, 255, 0, 0, "buffer"],
            ["rsmi_dev_se_util_get", 32, 0, "buffer"],
        ]
    one = standin.make(tmp_path, generation, BDFS, "process 77 0 4096 8 12.5")
    script = str(standin.SOURCE / "guard.py")
    command = [sys.executable, script, str(one.library), json.dumps(calls)]
    done = subprocess.run(command, env={**os.environ, **one.env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    survived = dict(zip((call[0] for call in calls), json.loads(done.stdout), strict=True))
    assert {name: both for name, both in survived.items() if both != [True, False]} == {}


# ---- values ----


@pytest.mark.parametrize("generation", GENERATIONS)
def test_sensors_have_the_numbers_of_the_generation(generation: str, load: Load) -> None:
    _, library = load(generation)
    hbm = KINDS[generation][2]
    said = {sensor: number(library, "rsmi_dev_temp_metric_get", 1, sensor, 0, kind=i64) for sensor in range(hbm + 4)}
    names = {2: "memory", hbm: "hbm0", hbm + 3: "hbm3", **({3: "vr_gfx", 6: "vr_mem1"} if hbm == 7 else {})}
    assert {sensor: said[sensor] for sensor in names} == {
        sensor: raw(1, f"temperature_{name}") for sensor, name in names.items()
    }
    core = library.rsmi_dev_temp_metric_get(1, 11, 0, ctypes.byref(i64()))
    assert core == (0 if generation == "HYGON63" else 2)
    assert number(library, "rsmi_dev_temp_metric_get", 0, 1, 7, kind=i64) == raw(0, "temperature_junction_emergency")


def test_values_are_those_of_the_table(load: Load) -> None:
    _, library = load("HYGON63")
    for device in (0, 1):
        assert number(library, "rsmi_dev_busy_percent_get", device, kind=u32) == raw(device, "utilization_gpu")
        assert number(library, "rsmi_dev_memory_usage_get", device, 2) == raw(device, "memory_gtt_used")
        assert number(library, "rsmi_dev_cu_usage_get", device, kind=ctypes.c_float) == expected(device, "cu_usage")
        frequencies = Frequencies()
        assert library.rsmi_dev_gpu_clk_freq_get(device, 4, ctypes.byref(frequencies)) == 0
        assert (frequencies.has_deep_sleep, frequencies.count, frequencies.current) == (False, 3, 1)
        assert list(frequencies.hertz[1:3]) == [raw(device, "clock_memory"), raw(device, "clock_memory_max")]
        counts = (u64 * 8)()
        found = [list(counts) for block in (1, 2, 4) if library.rsmi_dev_ecc_count_get(device, block, counts) == 0]
        assert [sum(row[i] for row in found) for i in range(3)] == [
            errors(device, severity) for severity in ("correctable", "uncorrectable", "deferred")
        ]


def test_devices_are_those_of_the_control_file(load: Load) -> None:
    _, library = load("AMD7")
    assert number(library, "rsmi_num_monitor_devices", kind=u32) == 2
    assert number(library, "rsmi_dev_pci_id_get", 0) == 0x4300
    assert number(library, "rsmi_dev_pci_id_get", 1) == 0x10001_2000_C3FF
    assert library.rsmi_dev_pci_id_get(2, ctypes.byref(u64())) == 1


def test_processes(load: Load) -> None:
    _, library = load("HYGON63", "process 77 0 4096 8 12.5", "process 77 1 8192 4 2.5", "process 88 1 1 1 1")
    count = u32(9)
    assert library.rsmi_compute_process_info_get(None, ctypes.byref(count)) == 0
    assert count.value == 2
    process = ProcessV2()
    assert library.rsmi_compute_process_info_by_pid_get_v2(77, ctypes.byref(process)) == 0
    assert (process.pid, process.vram, process.count) == (77, 12288, 2)
    assert (process.devices[:2], process.rates[:2]) == ([0, 1], [12.5, 2.5])
    assert number(library, "rsmi_dev_proc_usage_get", 77, 1, kind=ctypes.c_float) == 2.5
    assert library.rsmi_compute_process_info_by_pid_get_v2(99, ctypes.byref(process)) == 10


# ---- behaviour ----


def test_lines_of_the_control_file(load: Load) -> None:
    one, library = load("AMD6", "value power_limit 1 -1", "version 1.0.0", "value levels * 99")
    assert number(library, "rsmi_dev_power_cap_get", 0, 0) == raw(0, "power_limit")
    assert number(library, "rsmi_dev_power_cap_get", 1, 0) == (1 << 64) - 1
    version = Version()
    library.rsmi_version_get(ctypes.byref(version))
    assert (version.major, version.minor, version.patch) == (1, 0, 0)
    frequencies = Frequencies()
    library.rsmi_dev_gpu_clk_freq_get(0, 0, ctypes.byref(frequencies))
    assert frequencies.count == 99
    one.say("status rsmi_dev_power_cap_get 0 2", "status * 1 16")
    assert [library.rsmi_dev_power_cap_get(device, 0, ctypes.byref(u64())) for device in (0, 1)] == [2, 16]
    assert library.rsmi_dev_fan_rpms_get(1, 0, ctypes.byref(i64())) == 16
    one.unsay("status * 1 16")
    assert library.rsmi_dev_fan_rpms_get(1, 0, ctypes.byref(i64())) == 0


@pytest.mark.parametrize(
    "line", ["value temperature_edgy 0 1", "hang rsmi_dev_temp_get *", "hung rsmi_init *", "abort rsmi_init", "hang"]
)
def test_a_line_that_would_do_nothing_is_an_error(line: str, load: Load) -> None:
    with pytest.raises(ValueError, match=line.split()[0]):
        load("AMD5", line)


def test_the_log_has_every_call(load: Load) -> None:
    one, library = load("AMD5")
    number(library, "rsmi_dev_volt_metric_get", 1, 0, 0, kind=i64)
    number(library, "rsmi_dev_memory_total_get", 0, 2)
    thread = threading.get_native_id()
    assert one.calls()[-2:] == [
        Call("rsmi_dev_volt_metric_get", 1, thread, 0),
        Call("rsmi_dev_memory_total_get", 0, thread, 2),
    ]
    assert one.calls("rsmi_init") == [Call("rsmi_init", None, thread, 0)]


def test_a_call_hangs_until_the_line_is_gone(load: Load) -> None:
    one, library = load("AMD7", "hang * 1")
    function = "rsmi_dev_memory_total_get"
    calls = [threading.Thread(target=number, args=(library, function, device, 0)) for device in (0, 1)]
    for call in calls:
        call.start()
    calls[0].join(10)
    calls[1].join(0.1)
    alive = [call.is_alive() for call in calls]
    one.unsay("hang * 1")
    calls[1].join(10)
    assert (alive, calls[1].is_alive()) == ([False, True], False)


def test_windows_are_waited_for(load: Load) -> None:
    _, library = load("HYGON63", "sleep rsmi_dev_cu_usage_get * 50")
    for function, arguments in (
        ("rsmi_dev_hcu_util_get", (0, 50)),
        ("rsmi_dev_cu_util_get", (0, 50)),
        ("rsmi_dev_wave_util_get", (0, 50)),
        ("rsmi_dev_cu_usage_get", (0,)),
    ):
        start = time.monotonic()
        number(library, function, *arguments, kind=ctypes.c_float)
        assert 0.05 <= time.monotonic() - start < 5, function


PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.rsmi_init(ctypes.c_uint64(0))
library.rsmi_dev_busy_percent_get(0, ctypes.byref(ctypes.c_uint32()))
print("went on")
"""


@pytest.mark.parametrize("call", ["rsmi_init", "rsmi_dev_busy_percent_get"])
@pytest.mark.parametrize(
    ("line", "code", "stdout", "stderr"),
    [
        ("abort CALL *", -signal.SIGABRT, "", ""),
        ("throw CALL *", -signal.SIGABRT, "", "out_of_range"),
        ("exit CALL * 3", 3, "", ""),
        ("print CALL * WARN deprecated", 0, "WARN deprecated", "WARN deprecated"),
        ("flood CALL *", 0, "x" * 4095 + "\n" + "x" * 4095, "x" * 4095),
    ],
    ids=["abort", "throw", "exit", "print", "flood"],
)
def test_what_else_a_call_does(call: str, line: str, code: int, stdout: str, stderr: str, tmp_path: Path) -> None:
    one = standin.make(tmp_path, "HYGON63", BDFS, line.replace("CALL", call))
    command = [sys.executable, "-c", PROGRAM, str(one.library)]
    done = subprocess.run(command, env={**os.environ, **one.env}, capture_output=True, text=True, check=False)
    assert (done.returncode, "went on" in done.stdout) == (code, code == 0)
    assert stdout in done.stdout
    assert stderr in done.stderr


def test_dtk_smi_runs_beside_it(machine: Callable[[str], Path], tmp_path: Path) -> None:
    root = machine("mi210")
    one = standin.for_machine(tmp_path, "AMD7", root)
    document = json.loads(standin.smi(root, one, "--json").stdout)
    assert [f"device {card['bdf']}" for card in document["cards"]] == [s for s in one.lines if s.startswith("device")]
