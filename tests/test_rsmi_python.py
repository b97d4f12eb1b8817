"""The vendor's library from Python: Monitor, and a program that asks it in its own process."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
from native_library import compile_c
from smi import environment
from standin import Standin, errors, expected, raw

MONITOR = """
import json, sys, time, dtk
seconds, interval, deadline = map(float, sys.argv[1:])
with dtk.Monitor(interval=interval, deadline=deadline, slow=True, slow_interval=1.0) as monitor:
    end = time.monotonic() + seconds
    for snapshot in monitor:
        sample = snapshot.devices[0].sample
        print(json.dumps({
            "library": snapshot.library and snapshot.library.status, "cu": sample.utilization_cu,
            "reason": sample.reason("utilization_cu"), "power": sample.power_draw, "state": sample.state,
            "window": sample.utilization_gpu_window, "age": sample.age("utilization_gpu_window"),
            "monotonic": sample.monotonic}), flush=True)
        if time.monotonic() > end:
            break
"""


def monitored(
    root: Path, library: Standin, seconds: float, interval: float = 0.2, deadline: float = 0.5
) -> list[dict[str, Any]]:
    numbers = [str(number) for number in (seconds, interval, deadline)]
    done = rig.run(root, [sys.executable, "-c", MONITOR, *numbers], environment(**library.env))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_monitor_reads_both(stand_in: Callable[..., Standin], machine: Callable[[str], Path]) -> None:
    looks = monitored(machine("k100_ai-2s"), stand_in("HYGON63"), 3)
    assert {look["cu"] for look in looks} == {expected(0, "cu_usage")}
    windows = [look for look in looks if look["window"] is not None]
    assert {look["window"] for look in windows} == {expected(0, "hcu_util")}
    assert max(look["age"] for look in windows) > 0.5
    times = [look["monotonic"] for look in looks]
    assert times == sorted(times)


def test_a_monitor_goes_on_when_the_library_ends_its_reader(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path]
) -> None:
    looks = monitored(machine("k100_ai-2s"), stand_in("HYGON63", "abort rsmi_dev_cu_usage_get 5"), 2)
    assert looks[-1]["library"] == "aborted"
    assert looks[-1]["reason"] == "failed"
    assert all(look["power"] is not None and look["state"] == "ok" for look in looks)


def test_a_monitor_goes_on_while_the_library_hangs(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path]
) -> None:
    looks = monitored(machine("k100_ai-2s"), stand_in("HYGON63", "hang rsmi_dev_cu_usage_get 0"), 3)
    assert all(look["power"] is not None and look["state"] == "ok" for look in looks)
    assert looks[-1]["reason"] == "stale"
    gaps = [later["monotonic"] - look["monotonic"] for look, later in itertools.pairwise(looks[2:])]
    assert max(gaps) < 1.0, "a library that hangs holds up the files"


@pytest.mark.parametrize(("interval", "deadline"), [(0.2, 0.5), (1.0, 1.0)])
def test_a_monitor_does_not_wait_for_a_slow_library(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], interval: float, deadline: float
) -> None:
    """Eight cards, one call at a time: 1.6 s a round, and the files at every tick all the same."""
    looks = monitored(
        machine("k100_ai-2s"),
        stand_in("HYGON63", "sleep rsmi_dev_cu_usage_get * 200"),
        5 * deadline,
        interval,
        deadline,
    )
    gaps = [later["monotonic"] - look["monotonic"] for look, later in itertools.pairwise(looks[1:])]
    assert max(gaps) < interval + 0.8
    assert all(look["power"] is not None and look["state"] == "ok" for look in looks)
    assert any(look["cu"] == expected(0, "cu_usage") for look in looks)


FORK = """
import os, threading, time, dtk
system = dtk.System(backend="rsmi")
devices = system.devices()
def read(device):
    while True:
        device.sample(static=False)
for device in devices:
    threading.Thread(target=read, args=(device,), daemon=True).start()
time.sleep(0.5)
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        sample = devices[0].sample(static=False)
        os._exit(0 if sample.reason("fan_rpm") == "failed" else 3)
    end = time.monotonic() + 10
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(pid, 9)
        print("the child hangs", flush=True)
        os._exit(1)
    if done[1]:
        os._exit(os.waitstatus_to_exitcode(done[1]))
os._exit(0)
"""


def test_a_forked_child_has_no_library(stand_in: Callable[..., Standin], machine: Callable[[str], Path]) -> None:
    """What other threads of its parent were in stays locked there."""
    library = stand_in("HYGON63", "sleep rsmi_dev_fan_rpms_get * 20")
    done = rig.run(machine("k100_ai-2s"), [sys.executable, "-c", FORK], environment(**library.env))
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


IN_PROCESS = """
import json, dtk
with dtk.System(backend="rsmi") as system:
    sample = system.devices()[2].sample(slow=True)
    print(json.dumps({"values": dict(sample), "abi": system.library.abi, "source": sample.source("fan_rpm")}))
"""


def test_in_the_process_of_a_python_program(stand_in: Callable[..., Standin], machine: Callable[[str], Path]) -> None:
    found = rig.run_json(
        machine("k100_ai-2s"), [sys.executable, "-c", IN_PROCESS], environment(**stand_in("HYGON63").env)
    )
    assert (found["abi"], found["source"]) == ("hygon-6.3", "rsmi_dev_fan_rpms_get")
    assert found["values"]["fan_rpm"] == expected(2, "fan_rpm")
    assert found["values"]["ecc_deferred"] == errors(2, "deferred")
    assert found["values"]["memory_read_bandwidth"] == raw(2, "df_read") * 1e6


BESIDE = """
import ctypes, json, sys, dtk
loaded = [ctypes.CDLL(path) for path in sys.argv[1:]]
with dtk.System(backend="rsmi") as system:
    sample = system.devices()[2].sample()
    print(json.dumps({"status": system.library.status, "message": system.library.message, "fan": sample.fan_rpm}))
"""


def test_not_beside_libamd_smi(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its classes have the same names, and each would call the other's."""
    library = stand_in("HYGON63")
    (tmp_path / "other.c").write_text("int amdsmi_init(void);\nint amdsmi_init(void) { return 0; }\n")
    name = "libamd_smi.so.26"
    other = compile_c(tmp_path / name, "-shared", "-fPIC", f"-Wl,-soname,{name}", tmp_path / "other.c")
    command = [sys.executable, "-c", BESIDE]
    assert rig.run_json(machine("k100_ai-2s"), command, environment(**library.env))["status"] == "ok"
    calls = len(library.calls())
    found = rig.run_json(machine("k100_ai-2s"), [*command, str(other)], environment(**library.env))
    assert (found["status"], found["fan"]) == ("library", None)
    assert "libamd_smi is loaded in this process" in found["message"]
    assert len(library.calls()) == calls
