"""Processes of simulated machines: their files have the kernel's shape, and psutil reads them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import MACHINES, SEED

import dtk
from dtk import sim
from dtk.sim.processes import process_files

Get = Callable[[str], Path]
KFD_PROC = "sys/class/kfd/kfd/proc"
every_machine = pytest.mark.parametrize("name", MACHINES)

PSUTIL = """
import json, sys, psutil
psutil.PROCFS_PATH = sys.argv[1]
found = {}
for pid in psutil.pids():
    process = psutil.Process(pid)
    with process.oneshot():
        found[pid] = [process.ppid(), process.uids().real, process.cmdline(), process.status(),
                      process.create_time(), process.num_fds(), process.cpu_times().user]
print(json.dumps([psutil.boot_time(), found]))
"""


@every_machine
def test_psutil_reads_the_processes(machine: Get, name: str) -> None:
    made = sim.build(MACHINES[name], SEED)
    command = [sys.executable, "-I", "-c", PSUTIL, str(machine(name) / "proc")]
    boot, found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert boot == made.boot
    assert {int(pid) for pid in found} == {process.pid for process in made.processes}
    for process in made.processes:
        parent, uid, words, status, created, descriptors, cpu = found[str(process.pid)]
        assert (parent, uid, tuple(words)) == (process.parent, process.user.uid, process.command)
        assert status == ("running" if any(use.busy for use in process.uses) else "sleeping")
        assert created == pytest.approx(made.boot + process.start, abs=0.01)
        assert cpu == pytest.approx(0.9 * process.cpu, abs=0.01)
        assert descriptors >= (10 if process.uses else 6)


def test_people_have_names(machine: Get) -> None:
    root = machine("mi210")
    rows = [row.split(":") for row in (root / "etc/passwd").read_text().splitlines()]
    assert all(len(row) == 7 for row in rows)
    users = {int(row[2]): row[0] for row in rows}
    for process in sim.build(MACHINES["mi210"], SEED).processes:
        assert users[process.user.uid] == process.user.name


def test_names_are_as_awkward_as_real_ones() -> None:
    seen = set()
    for seed in range(12):
        for process in sim.build(["mi210:8"], seed).processes:
            seen |= {process.name, *process.command}
    assert any(")" in name and " " in name for name in seen)
    assert any(not name.isascii() for name in seen)


@pytest.mark.parametrize(("cards", "version"), [("k100_ai:8", 1), ("mi210:8", 2)], ids=["cgroup v1", "cgroup v2"])
def test_cgroups_name_containers_pods_and_jobs(cards: str, version: int) -> None:
    shapes = {
        "container": r"docker[-/][0-9a-f]{64}(\.scope)?",
        "pod": r"kubepods.*pod[0-9a-f_-]{36}(\.slice)?/(cri-containerd-)?[0-9a-f]{64}(\.scope)?",
        "slurm": r"job_41\d\d\d/step_0/",
        "session": r"user-100\d\.slice/session-\d+\.scope",
        "system": r"system\.slice/\w+(-\w+)?\.service",
    }
    seen = set()
    for seed in range(8):
        machine = sim.build([cards], seed)
        files = process_files(machine)
        for process in machine.processes:
            cgroup, status = files[f"proc/{process.pid}/cgroup"], files[f"proc/{process.pid}/status"]
            assert isinstance(cgroup, bytes)
            assert isinstance(status, bytes)
            rows = cgroup.decode().splitlines()
            assert all(re.fullmatch(r"\d+:[\w,]*:/.*", row) for row in rows)
            assert (rows[0].startswith("0::")) == (version == 2)
            assert re.search(shapes[process.cgroup], rows[0])
            seen.add(process.cgroup)
            pids = status.decode().split("NSpid:\t")[1].splitlines()[0].split("\t")
            assert len(pids) == (2 if process.cgroup in ("container", "pod") else 1)
    assert seen == shapes.keys()


@every_machine
def test_kfd_and_drm_tell_the_memory_of_processes(machine: Get, name: str) -> None:
    root, made = machine(name), sim.build(MACHINES[name], SEED)
    cards = {card.bdf: card for card in made.cards}
    for process in made.processes:
        clients: dict[tuple[str, str], int] = {}
        for path in (root / "proc" / str(process.pid) / "fdinfo").iterdir():
            keys = dict(re.findall(r"^(drm-[\w-]+): ?\t(.*)$", path.read_text(), re.MULTILINE))
            if keys:
                held = int(keys["drm-memory-vram"].removesuffix(" KiB")) << 10
                client = keys["drm-pdev"], keys["drm-client-id"]
                assert clients.setdefault(client, held) == held
        told = made.platform.kernel[0] != "4"
        assert sorted(clients.values()) == sorted(use.vram for use in process.uses if told)
        for use in process.uses if process.kfd else ():
            gpu_id = cards[use.bdf].gpu_id[use.part]
            entry = root / KFD_PROC / str(process.pid)
            assert int((entry / f"vram_{gpu_id}").read_text()) == use.vram
            queues = [(queue / "gpuid").read_text() for queue in (entry / "queues").iterdir()]
            assert queues.count(f"{gpu_id}\n") == 3


@every_machine
@pytest.mark.parametrize("source", ["kfd", "all"])
def test_dtk_finds_the_same_processes(machine: Get, name: str, source: str) -> None:
    made = sim.build(MACHINES[name], SEED)
    with_drm = source == "all" and made.platform.kernel[0] != "4"
    expected = {process.pid: process for process in made.processes if process.uses and (process.kfd or with_drm)}
    with dtk.System(machine(name)) as system:
        table = system.processes(source=source)
    assert {process.pid for process in table.processes} == expected.keys()
    for found in table.processes:
        process = expected[found.pid]
        assert (found.uid, found.user, found.ns_pid) == (process.user.uid, process.user.name, process.inner_pid)
        assert found.container == (process.container or None)
        assert (found.slurm_job is not None) == (process.cgroup == "slurm")
        assert sorted(use.memory_used or 0 for use in found.devices) == sorted(use.vram for use in process.uses)


def test_some_memory_is_nobodys() -> None:
    machine = sim.build(["k100_ai:8"], SEED)
    rest = {card.bdf: sum(card.state.memory_used) - card.model.idle_vram for card in machine.cards}
    for process in machine.processes:
        for use in process.uses:
            rest[use.bdf] -= use.vram
    assert min(rest.values()) == 0
    assert max(rest.values()) > 16 << 20


def test_a_monitor_has_kfd_open_and_uses_nothing(machine: Get) -> None:
    root = machine("mi210")
    (idle,) = [process for process in sim.build(MACHINES["mi210"], SEED).processes if process.kfd and not process.uses]
    entry = root / KFD_PROC / str(idle.pid)
    assert {path.read_text() for path in entry.glob("vram_*")} == {"0\n"}
    assert not list((entry / "queues").iterdir())
