"""Processes of this machine's own kernel: real ones, while sys/ is that of a simulated machine.

The simulated sys/ is mounted over /sys, for one process and its children alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from process_tree import ProcessTree

import dtk

PRELUDE = """
import os, pickle, pwd, subprocess, sys, time
import dtk, dtk.process  # while all of Python may be read
dtk.processes()
gpu_ids = [device.gpu_id for device in dtk.devices()]

def compute(pid, gpu_id):  # what KFD would show
    os.makedirs(f"/sys/class/kfd/kfd/proc/{pid}/queues", exist_ok=True)
    with open(f"/sys/class/kfd/kfd/proc/{pid}/vram_{gpu_id}", "w") as file:
        file.write("4096")

def become_nobody():
    os.setgroups([]); os.setgid(65534); os.setuid(65534)

def find(pid, source="kfd"):
    return next((p for p in dtk.processes(source).processes if p.pid == pid), None)

waiter = subprocess.Popen(["cat", "-"], stdin=subprocess.PIPE)  # it ends when this program does
while " (cat) S " not in open(f"/proc/{waiter.pid}/stat").read():
    time.sleep(0.01)
"""


@pytest.fixture
def live(machine: Callable[[str], Path], tmp_path: Path) -> Callable[..., None]:
    """Run a program where /sys is a simulated machine's and /dev has only dri/renderD128, a file."""
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    root = Path(shutil.copytree(machine("mi210"), tmp_path / "root", symlinks=True))
    ProcessTree(root)
    drm = dtk.System(root).devices()[0].drm_render
    mounts = (
        "mount --make-rprivate / && "
        f"mount --bind {root}/sys /sys && "
        f"touch {tmp_path}/null && mount --bind /dev/null {tmp_path}/null && "
        "mount -t tmpfs tmpfs /dev && mkdir /dev/dri && "
        f"touch /dev/dri/renderD{drm} /dev/null && mount --bind {tmp_path}/null /dev/null"
    )
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    check = subprocess.run(["unshare", *as_root, "--mount", "sh", "-c", mounts], capture_output=True, check=False)
    if check.returncode != 0:
        pytest.skip(f"needs to mount, in a namespace of its own: {check.stderr.decode().strip()}")

    def run(code: str, *options: str, mount: str = "true") -> None:
        program = f"{PRELUDE}node = '/dev/dri/renderD{drm}'\n{code}"
        script = f'{mounts} && {mount} && exec "$@"'
        command = [
            "unshare",
            *as_root,
            "--mount",
            *options,
            "sh",
            "-c",
            script,
            "sh",
            sys.executable,
            "-I",
            "-c",
            program,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

    return run


def test_who_it_is(live: Callable[..., None]) -> None:
    live("""
compute(waiter.pid, gpu_ids[1])
process = find(waiter.pid)
assert (process.status, process.name, process.command, process.state) == ("ok", "cat", "cat -", "S")
assert (process.uid, process.user) == (0, pwd.getpwuid(0).pw_name)
assert (process.parent, process.ns_pid, process.host_pid) == (os.getpid(), None, waiter.pid)
assert 0 <= time.time() - process.start_time < 30, process
assert [(use.device, use.memory_used) for use in process.devices] == [(1, 4096)]
waiter.kill()
waiter.wait()
ended = find(waiter.pid)
assert (ended.status, ended.name) == ("gone", None)
""")


def test_who_has_a_card_open(live: Callable[..., None]) -> None:
    """There is no card, so the kernel tells nothing of the file: it may be in use or not."""
    live("""
file = open(node)
copy = os.dup(file.fileno())
process = find(os.getpid(), "all")
assert [(use.device, use.memory_used, use.sources) for use in process.devices] == [(0, None, ("fdinfo",))]
assert process.devices[0].reason("memory_used") == "unsupported"
assert find(waiter.pid, "all") is None
assert find(os.getpid()) is None
os.remove(node)
assert find(os.getpid(), "all").devices == process.devices  # the kernel says "(deleted)" now
""")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_files_of_others_are_hidden(live: Callable[..., None]) -> None:
    live("""
compute(waiter.pid, gpu_ids[0])

def is_hidden(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            if int(file.read().rsplit(")")[-1].split()[6]) & 0x200000:  # a kernel thread
                return False
        for number in os.listdir(f"/proc/{pid}/fd"):
            os.readlink(f"/proc/{pid}/fd/{number}")
    except PermissionError:
        return True
    except OSError:
        pass
    return False

def check():  # others come and go meanwhile
    end = time.monotonic() + 10
    while time.monotonic() < end:
        expected = sum(is_hidden(int(pid)) for pid in os.listdir("/proc") if pid.isdigit())
        table = dtk.processes("all")
        if table.hidden == expected:
            return table
    raise AssertionError((table.hidden, expected))

check()  # root may see nearly all
become_nobody()
table = check()
assert table.hidden > 0
assert table.hidden_reason == "files of other users' processes may be looked at by them and root only"
process = find(waiter.pid, "all")
assert (process.name, process.user, process.devices[0].memory_used) == ("cat", "root", 4096)
assert process.devices[0].reason("memory_gtt_used") == "denied"
assert (dtk.processes().hidden, dtk.processes().hidden_reason) == (0, None)
""")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
@pytest.mark.parametrize("level", [1, 2])
def test_hidepid(live: Callable[..., None], level: int) -> None:
    code = """
compute(waiter.pid, gpu_ids[0])
become_nobody()
process = find(waiter.pid, "all")
assert (process.status, process.name, process.command) == ("denied", None, None)
assert process.devices[0].memory_used == 4096
assert process.devices[0].reason("memory_gtt_used") == "denied"
"""
    if level == 1:
        code += "assert process.user == 'root' and dtk.processes('all').hidden > 0"
    else:
        code += "assert process.user is None and 'hidepid' in dtk.processes('all').hidden_reason"
    live(code, mount=f"mount -t proc -o hidepid={level} proc /proc")


def test_pid_namespace(live: Callable[..., None]) -> None:
    live(
        """
compute(waiter.pid, gpu_ids[0])  # of the host, and by chance the same number
compute(70001, gpu_ids[1])
table = dtk.processes("all")
assert [(p.pid, p.host_pid, p.status, p.name) for p in table.processes] == [
    (waiter.pid, waiter.pid, "unsupported", None),
    (70001, 70001, "unsupported", None),
]
assert table.hidden_reason == "this PID namespace lists only the processes in it"
file = open(node)
assert [p.pid for p in dtk.processes("all").processes][0] == os.getpid()
""",
        "--pid",
        "--fork",
        "--mount-proc",
    )


def test_pids_inside_a_namespace(live: Callable[..., None]) -> None:
    live("""
inner = subprocess.Popen(["unshare", "--pid", "--fork", "cat"], stdin=subprocess.PIPE)
children = ""
while not children:
    with open(f"/proc/{inner.pid}/task/{inner.pid}/children") as file:
        children = file.read()
child = int(children)
while " (cat) S " not in open(f"/proc/{child}/stat").read():
    time.sleep(0.01)
compute(child, gpu_ids[0])
process = find(child)
assert (process.pid, process.ns_pid, process.name) == (child, 1, "cat"), process
""")
