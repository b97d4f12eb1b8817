"""Who uses which card: what KFD and the open files of processes tell, and what may not be seen."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machines import device_directory, put
from process_tree import BOOT, TICKS, Machine, ProcessTree, one

import dtk

GIB = 1 << 30
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture
def mi210(copy_machine: Callable[[str], Path]) -> Machine:
    return Machine(copy_machine("mi210"))


@pytest.fixture
def partitioned(copy_machine: Callable[[str], Path]) -> Machine:
    return Machine(copy_machine("mi300x-cpx"))


# ---- KFD ----


def test_kfd_tells_memory_by_card(mi210: Machine) -> None:
    a, b, c, *_ = ids = mi210.gpu_ids
    mi210.process(4711)
    mi210.compute(4711, dict.fromkeys(ids, 0) | {a: 3 * GIB, b: GIB}, [a, a, c])
    process = one(mi210.system.processes())
    assert [(use.device, use.memory_used, use.queues) for use in process.devices] == [
        (0, 3 * GIB, 2),
        (1, GIB, 0),
        (2, 0, 1),
    ]
    assert [use.uuid for use in process.devices] == [device.uuid for device in mi210.devices[:3]]
    assert {use.sources for use in process.devices} == {("kfd",)}


def test_who_only_opened_kfd_is_no_user(mi210: Machine) -> None:
    mi210.process(4711)
    mi210.compute(4711, dict.fromkeys(mi210.gpu_ids, 0))
    assert mi210.system.processes().processes == ()
    assert mi210.all().processes == ()


def test_kfd_counts_work(mi210: Machine) -> None:
    a, b, *_ = mi210.gpu_ids
    stats = {f"stats_{a}__cu_occupancy": 52, f"stats_{a}__evicted_ms": 7, f"sdma_{a}": 1500}
    mi210.compute(4711, {a: GIB, b: GIB}, [a], **stats)
    first, second = one(mi210.system.processes()).devices
    assert (first.compute_units, first.evicted_time, first.sdma_time) == (52, 7, 1_500_000)
    assert (second.compute_units, second.evicted_time, second.sdma_time) == (None, None, None)
    assert second.reason("compute_units") == second.reason("memory_gtt_used") == "unsupported"
    assert first.reason("compute_units") is None


def test_kernel_that_tells_no_memory(mi210: Machine) -> None:
    mi210.process(4711)
    mi210.compute(4711, {}, [mi210.gpu_ids[3]])
    (use,) = one(mi210.system.processes()).devices
    assert (use.device, use.memory_used, use.reason("memory_used"), use.queues) == (3, None, "unsupported", 1)


def test_damaged_entries_cost_only_themselves(mi210: Machine) -> None:
    a, b, *_ = mi210.gpu_ids
    mi210.process(1)
    mi210.compute(1, {a: GIB})
    mi210.compute(2, {a: GIB, b: GIB}, [b, a])
    (mi210.kfd / "2" / f"vram_{a}").write_text("lots\n")
    (mi210.kfd / "2" / "queues/0/gpuid").write_text("")
    os.mkfifo(mi210.kfd / "2" / f"sdma_{a}")
    for name in ("x", "0", "-3", "99999999999", "4 2"):
        (mi210.kfd / name).mkdir()
    (mi210.kfd / "3").write_text("")
    (mi210.kfd / "4").symlink_to("2")
    first, second = mi210.system.processes().processes
    assert [use.memory_used for use in first.devices] == [GIB]
    assert [(use.memory_used, use.queues) for use in second.devices] == [(None, 1), (GIB, 0)]
    assert second.devices[0].reasons["memory_used"] == second.devices[0].reasons["sdma_time"] == "failed"


def test_machine_without_kfd(mi210: Machine) -> None:
    (mi210.root / "sys/class/kfd/kfd").unlink()
    mi210.process(4711)
    mi210.drm(4711, 3, 0, drm_resident_vram="1 MiB")
    assert mi210.system.processes().sources == {"kfd": "unsupported", "fdinfo": "unsupported"}
    assert mi210.system.processes().unattributed == {}
    both = mi210.all()
    assert both.sources == {"kfd": "unsupported", "fdinfo": "ok"}
    assert one(both).devices[0].memory_used == 1 << 20
    assert one(both).devices[0].queues is None


# ---- who it is ----


def test_who_a_process_is(mi210: Machine) -> None:
    job = "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n"
    command = ("/opt/conda/bin/python3", "-m", "vllm.entrypoints.openai.api_server")
    mi210.process(4711, command, start=12_345, state="D", ns_pid=12, cgroup=job)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    process = one(mi210.system.processes())
    assert (process.pid, process.status, process.parent, process.ns_pid, process.host_pid) == (4711, "ok", 1, 12, 4711)
    assert (process.uid, process.user, process.state) == (1000, "alice", "D")
    assert (process.start_ticks, process.start_time) == (12_345, BOOT + 12_345 / TICKS)
    assert (process.slurm_job, process.slurm_step, process.unit) == ("1234", "0", "slurmstepd.scope")
    assert (process.container, process.runtime, process.pod) == (None, None, None)
    # Reading the arguments of a process that waits in the kernel may wait with it.
    assert process.command is None
    mi210.process(4711, command)
    assert one(mi210.system.processes()).command == " ".join(command)


@pytest.mark.parametrize(
    ("name", "command", "shown"),
    [
        ("python3", ("python3", "x.py"), "python3"),
        ("text-generation", ("/usr/bin/text-generation-server",), "text-generation-server"),
        ("text-generation", ("python3", "text-generation-server"), "text-generation"),
        ("a) (b", ("x",), "a) (b"),
    ],
)
def test_name(mi210: Machine, name: str, command: tuple[str, ...], shown: str) -> None:
    mi210.process(4711, command, name=name)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    assert one(mi210.system.processes()).name == shown


def test_long_command_says_that_it_is_cut(mi210: Machine) -> None:
    mi210.process(4711, ["x" * 100] * 100_000)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    command = one(mi210.system.processes()).command
    assert command is not None
    assert command.endswith("x…")
    assert len(command) == 256


def test_nothing_of_this_machine_is_told_of_another(mi210: Machine) -> None:
    pid = os.getpid()
    mi210.compute(pid, {mi210.gpu_ids[0]: GIB})
    mi210.process(4711, uid=0)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    put(mi210.root, "etc/passwd", "")
    processes = {process.pid: process for process in mi210.system.processes().processes}
    assert (processes[pid].status, processes[pid].name, processes[pid].uid) == ("gone", None, None)
    assert (processes[4711].uid, processes[4711].user) == (0, None)


def test_entries_that_lead_outside_are_not_followed(mi210: Machine, tmp_path: Path) -> None:
    elsewhere = ProcessTree(tmp_path / "mi210")
    elsewhere.process(5000)
    outside = shutil.move(mi210.proc / "5000", tmp_path / "outside")
    (mi210.proc / "4711").symlink_to(outside)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    process = one(mi210.all())
    assert (process.name, process.uid) == (None, None)


def test_machine_without_proc(mi210: Machine) -> None:
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    shutil.rmtree(mi210.proc)
    result = mi210.all()
    assert result.sources == {"kfd": "ok", "fdinfo": "unsupported"}
    process = one(result)
    assert (process.pid, process.host_pid, process.status, process.name) == (4711, 4711, "unsupported", None)
    assert process.devices[0].memory_used == GIB


def test_process_that_ended(mi210: Machine) -> None:
    """KFD's memory of one that ended is shown; of an open file there is nothing left."""
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    mi210.process(4712)
    mi210.drm(4712, 3, 0, drm_resident_vram="1 MiB")
    (mi210.proc / "4712/stat").unlink()
    process = one(mi210.all())
    assert (process.pid, process.status) == (4711, "gone")
    assert process.devices[0].reason("memory_gtt_used") == "unsupported"


def test_damaged_proc_entries(mi210: Machine) -> None:
    for pid in (1, 2, 3, 4):
        mi210.process(pid)
        mi210.compute(pid, {mi210.gpu_ids[0]: GIB})
    put(mi210.root, "proc/1/stat", "nonsense")
    (mi210.proc / "2/stat").unlink()
    os.mkfifo(mi210.proc / "2/stat")
    put(mi210.root, "proc/3/status", b"\xff" * 100_000)
    put(mi210.root, "proc/3/cgroup", b"\0")
    put(mi210.root, "proc/3/cmdline", b"\x1b]0;pwned\x07\0\xff")
    assert [(p.status, p.name, p.command) for p in mi210.all().processes] == [
        ("failed", None, None),
        ("failed", None, None),
        ("ok", "python3", "?]0;pwned? ?"),
        ("ok", "python3", "python3 train.py"),
    ]


# ---- fdinfo ----


def test_fdinfo(mi210: Machine) -> None:
    mi210.process(4711)
    mi210.drm(4711, 3, 2, client=7, drm_resident_vram="3 MiB", drm_memory_vram="9 MiB", drm_memory_gtt="5 KiB",
              drm_engine_gfx="100 ns", drm_engine_enc="5 ns", drm_engine_enc_1="6 ns")  # fmt: skip
    assert mi210.system.processes().processes == ()
    (use,) = one(mi210.all()).devices
    assert (use.device, use.memory_used, use.memory_gtt_used) == (2, 3 << 20, 5 << 10)
    assert use.engine_times == {"gfx": 100, "encode": 11}
    assert (use.sources, use.queues) == (("fdinfo",), None)
    assert use.reason("sdma_time") == "unsupported"


def test_open_files_without_use_are_none(mi210: Machine) -> None:
    mi210.process(4711)
    mi210.drm(4711, 3, 0, drm_resident_vram="0", drm_memory_gtt="0 KiB", drm_engine_gfx="0 ns")
    mi210.file(4711, 4, "/dev/null")
    mi210.file(4711, 5, "socket:[4711]")
    mi210.file(4711, 6, "/dev/dri/renderDx", drm_resident_vram="1 MiB")
    mi210.file(4711, 7, "/home/dev/dri/renderD128", drm_resident_vram="1 MiB")
    mi210.file(4711, 8, "/dev/dri/card63", drm_pdev="0000:ff:00.0", drm_resident_vram="1 MiB")
    assert mi210.all().processes == ()


def test_clients_are_counted_once(mi210: Machine) -> None:
    """dup() and fork() make more descriptors of one client; it is the oldest process's."""
    mi210.process(100, start=20)
    mi210.process(300, start=10)
    for pid, number in ((300, 3), (300, 4), (100, 3)):
        mi210.drm(pid, number, 0, client=7, drm_resident_vram="3 MiB")
    mi210.drm(300, 5, 0, client=8, drm_resident_vram="1 MiB")
    mi210.drm(300, 6, 1, client=9, card=True, drm_resident_vram="2 MiB")
    process = one(mi210.all())
    assert process.pid == 300
    assert [(use.device, use.memory_used) for use in process.devices] == [(0, 4 << 20), (1, 2 << 20)]


def test_kfd_and_fdinfo_of_one_process_are_not_added(mi210: Machine) -> None:
    mi210.process(4711)
    mi210.compute(4711, {mi210.gpu_ids[0]: 5 << 20, mi210.gpu_ids[1]: 5 << 20}, [mi210.gpu_ids[0]])
    mi210.drm(4711, 3, 0, client=1, drm_resident_vram="3 MiB", drm_memory_gtt="1 MiB")
    mi210.drm(4711, 4, 1, client=2, drm_resident_vram="6 MiB")
    first, second = one(mi210.all()).devices
    assert (first.memory_used, first.memory_gtt_used, first.sources) == (5 << 20, 1 << 20, ("kfd", "fdinfo"))
    assert (second.memory_used, second.memory_gtt_used) == (6 << 20, None)


def test_driver_that_tells_nothing_of_files(mi210: Machine) -> None:
    """An open file may be use or not. Where KFD knows the process, it knows."""
    mi210.process(4711)
    mi210.process(4712)
    mi210.compute(4711, dict.fromkeys(mi210.gpu_ids, 0) | {mi210.gpu_ids[0]: GIB})
    for pid in (4711, 4712):
        for number, device in enumerate(mi210.devices[:2], 3):
            mi210.file(pid, number, f"/dev/dri/renderD{device.drm_render}")
    known, unknown = mi210.all().processes
    assert [(use.device, use.memory_used) for use in known.devices] == [(0, GIB)]
    assert [(use.device, use.memory_used) for use in unknown.devices] == [(0, None), (1, None)]
    assert unknown.devices[0].reason("memory_used") == "unsupported"


def test_files_of_linux_5_14(mi210: Machine) -> None:
    mi210.process(4711)
    info = {"pdev": mi210.devices[1].bdf, "vram mem": "1024 kB"}
    for number, pasid in ((3, 32770), (4, 32770), (5, 32771)):
        mi210.file(4711, number, "/dev/dri/renderD200", pasid=pasid, **info)
    (use,) = one(mi210.all()).devices
    assert (use.device, use.memory_used) == (1, 2 << 20)


def test_driver_knows_the_card_better_than_the_name_of_the_node(mi210: Machine) -> None:
    mi210.process(4711)
    mi210.drm(4711, 3, 5, drm_pdev=mi210.devices[2].bdf, drm_resident_vram="1 MiB")
    mi210.file(4711, 4, f"/dev/dri/renderD{mi210.devices[6].drm_render} (deleted)", drm_resident_vram="1 MiB")
    assert [use.device for use in one(mi210.all()).devices] == [2, 6]


def test_partitions_are_told_apart_by_their_nodes(partitioned: Machine) -> None:
    assert len(partitioned.devices) == 8
    partitioned.process(4711)
    partitioned.compute(4711, dict.fromkeys(partitioned.gpu_ids, 0) | {partitioned.gpu_ids[5]: GIB})
    for number in (1, 4):
        partitioned.drm(4711, 3 + number, number, client=number, drm_resident_vram=f"{number} MiB")
    partitioned.drm(4711, 20, 7, client=7, drm_pdev="", drm_resident_vram="7 MiB")
    expected = [(1, 1 << 20), (4, 4 << 20), (5, GIB), (7, 7 << 20)]
    assert [(use.device, use.memory_used) for use in one(partitioned.all()).devices] == expected
    assert [use.device for use in one(partitioned.devices[4].processes("all")).devices] == [4]
    assert [use.device for use in one(partitioned.devices[4].card.processes("all")).devices] == [1, 4, 5, 7]
    assert partitioned.devices[0].processes("all").processes == ()


def test_many_descriptors(mi210: Machine) -> None:
    mi210.process(4711)
    for number in range(1000):
        mi210.file(4711, number, "/dev/null")
    mi210.drm(4711, 777, 0, drm_resident_vram="1 MiB")
    assert one(mi210.all()).devices[0].memory_used == 1 << 20
    assert not mi210.all().truncated


# ---- devices and memory ----


def test_devices_have_their_own_processes(mi210: Machine) -> None:
    a, b, *_ = mi210.gpu_ids
    for pid, used in ((1, {a: GIB}), (2, {b: GIB}), (3, {a: GIB, b: GIB})):
        mi210.process(pid)
        mi210.compute(pid, used)
    assert [process.pid for process in mi210.devices[0].processes().processes] == [1, 3]
    assert [[use.device for use in p.devices] for p in mi210.devices[1].processes().processes] == [[1], [1]]
    assert set(mi210.devices[0].processes().unattributed) == {mi210.devices[0].uuid}


def set_file(machine: Machine, device: int, name: str, content: object) -> None:
    (device_directory(machine.root, machine.devices[device].bdf) / name).write_text(f"{content}\n")


def test_memory_that_no_process_accounts_for(mi210: Machine) -> None:
    a, b, c, d, *_ = mi210.gpu_ids
    for number in range(4):
        set_file(mi210, number, "mem_info_vram_used", 10 * GIB)
    mi210.process(1)
    mi210.process(2)
    mi210.compute(1, {a: 3 * GIB, b: 20 * GIB}, [d])
    mi210.compute(2, {a: 4 * GIB, c: 0}, [c])
    set_file(mi210, 4, "power/runtime_status", "suspended")
    result = mi210.system.processes().unattributed
    assert [result.get(device.uuid) for device in mi210.devices[:5]] == [3 * GIB, 0, 10 * GIB, None, None]


# ---- denied is not absent ----


def as_nobody(root: Path) -> dtk.ProcessTable:
    """The processes as a user sees them who owns nothing."""
    code = """
import os, pickle, sys, dtk, dtk.process  # while all of Python may be read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.stdout.buffer.write(pickle.dumps(dtk.System(sys.argv[1]).processes("all")))
"""
    done = subprocess.run([sys.executable, "-I", "-c", code, root], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    result = pickle.loads(done.stdout)
    assert isinstance(result, dtk.ProcessTable)
    return result


@pytest.fixture
def open_path(mi210: Machine) -> Iterator[None]:
    """Let every user reach the machine, which lies in a directory of pytest's."""
    changed = []
    for parent in mi210.root.parents:
        if not parent.stat().st_mode & 1:
            changed.append((parent, parent.stat().st_mode))
            parent.chmod(0o755)
    yield
    for parent, mode in changed:
        parent.chmod(mode)


@AS_ROOT
def test_files_that_may_not_be_looked_at(mi210: Machine, open_path: None) -> None:
    a, *_ = mi210.gpu_ids
    for pid in (2, 10, 20, 30, 40):
        mi210.process(pid, uid=0)
        (mi210.proc / str(pid) / "fd").chmod(0o700)
    mi210.compute(10, {a: GIB})
    mi210.drm(20, 3, 1, drm_resident_vram="1 MiB")
    put(mi210.root, "proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n")
    put(mi210.root, "proc/2/task/2/children", "3 40 ")
    mi210.process(50, uid=65534)
    mi210.drm(50, 3, 2, drm_resident_vram="1 MiB")
    result = as_nobody(mi210.root)
    assert result.hidden == 3  # 10, 20 and 30; kernel threads have no files
    assert result.hidden_reason == "files of other users' processes may be looked at by them and root only"
    theirs, ours = result.processes
    assert (theirs.pid, theirs.status, theirs.name, theirs.uid) == (10, "ok", "python3", 0)
    assert (theirs.devices[0].memory_used, theirs.devices[0].memory_gtt_used) == (GIB, None)
    assert theirs.devices[0].reason("memory_gtt_used") == "denied"
    assert (ours.pid, ours.devices[0].device) == (50, 2)
    assert mi210.all().hidden == 0


@AS_ROOT
def test_entries_that_may_not_be_looked_at(mi210: Machine, open_path: None) -> None:
    mi210.process(10, uid=0)
    mi210.compute(10, {mi210.gpu_ids[0]: GIB, mi210.gpu_ids[1]: 0})
    (mi210.kfd / "10" / f"vram_{mi210.gpu_ids[1]}").chmod(0o600)
    for name in ("stat", "status", "cmdline", "cgroup"):
        (mi210.proc / "10" / name).chmod(0o600)
    (mi210.proc / "10" / "fd").chmod(0o700)
    process = one(as_nobody(mi210.root))
    assert (process.pid, process.status, process.name) == (10, "denied", None)
    assert [(use.memory_used, use.reason("memory_used")) for use in process.devices] == [(GIB, None), (None, "denied")]


@AS_ROOT
def test_places_that_may_not_be_looked_at(mi210: Machine, open_path: None) -> None:
    mi210.process(10)
    mi210.compute(10, {mi210.gpu_ids[0]: GIB})
    mi210.kfd.chmod(0o700)
    assert as_nobody(mi210.root).sources == {"kfd": "denied", "fdinfo": "ok"}
    mi210.proc.chmod(0o700)
    result = as_nobody(mi210.root)
    assert result.sources == {"kfd": "denied", "fdinfo": "denied"}
    assert (result.processes, result.unattributed) == ((), {})


# ---- PID namespaces ----


def enter_namespace(machine: Machine, number: int) -> None:
    """Make proc that of a PID namespace, as process 77 of it sees it."""
    (machine.proc / "77/ns").mkdir(parents=True)
    (machine.proc / "77/ns/pid").symlink_to(f"pid:[{number}]")
    (machine.proc / "self").unlink(missing_ok=True)
    (machine.proc / "self").symlink_to("77")


def test_pids_of_the_host_are_not_those_of_a_namespace(mi210: Machine) -> None:
    enter_namespace(mi210, 4026532200)
    mi210.process(4711, name="innocent")
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    result = mi210.all()
    process = one(result)
    assert (process.pid, process.host_pid, process.status, process.name) == (4711, 4711, "unsupported", None)
    assert process.devices[0].reason("memory_gtt_used") == "denied"
    assert (result.hidden, result.hidden_reason) == (0, "this PID namespace lists only the processes in it")


@pytest.mark.parametrize("newer", [False, True], ids=["one pasid", "one for each card"])
def test_address_spaces_tell_who_is_who_in_a_namespace(mi210: Machine, newer: bool) -> None:
    a, b, *_ = mi210.gpu_ids
    enter_namespace(mi210, 4026532200)
    numbers = {"pasid": 0, f"pasid_{a}": 32771, f"pasid_{b}": 5} if newer else {"pasid": 32771}
    mi210.compute(90001, {a: GIB, b: GIB}, [a], **numbers)
    mi210.compute(90002, {a: 2 * GIB}, [a], **dict.fromkeys(numbers, 40000))
    mi210.process(12, name="vllm")
    mi210.drm(12, 3, 0, client=5, pasid=32771, drm_resident_vram="3 GiB", drm_memory_gtt="7 KiB")
    known, unknown = mi210.all().processes
    assert (known.pid, known.host_pid, known.status, known.name) == (12, 90001, "ok", "vllm")
    assert [(use.memory_used, use.memory_gtt_used) for use in known.devices] == [(GIB, 7 << 10), (GIB, None)]
    assert (unknown.pid, unknown.host_pid, unknown.status) == (90002, 90002, "unsupported")


def test_first_namespace_is_the_hosts(mi210: Machine) -> None:
    enter_namespace(mi210, 4026531836)
    mi210.process(4711)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    assert one(mi210.all()).name == "python3"
    assert mi210.all().hidden_reason is None


def test_proc_of_the_host_in_another_namespace(mi210: Machine) -> None:
    """Kernel threads are in the host's proc alone."""
    enter_namespace(mi210, 4026532200)
    put(mi210.root, "proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n")
    mi210.process(4711)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    assert one(mi210.all()).name == "python3"


# ---- arguments ----


def test_arguments(mi210: Machine) -> None:
    with pytest.raises(dtk.InvalidArgument, match="source='gpu' is not"):
        mi210.system.processes("gpu")
    mi210.system.close()
    with pytest.raises(dtk.Error, match="closed"):
        mi210.system.processes()


def test_default_machine(mi210: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    mi210.process(4711)
    mi210.compute(4711, {mi210.gpu_ids[0]: GIB})
    monkeypatch.setenv("DTK_SMI_ROOT", str(mi210.root))
    assert one(dtk.processes()) == one(mi210.system.processes())
    with contextlib.suppress(dtk.Error):
        dtk.System("/").processes("all")  # of this machine, whatever it has


def test_machine_without_cards(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    result = dtk.System(tmp_path).processes("all")
    assert (result.processes, result.hidden, result.unattributed) == ((), 0, {})
