"""`dtk-smi doctor` on "this machine": device nodes, compilers and variables."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from live_machine import CARDS, Live, found
from smi import SMI, environment, smi
from test_doctor import FIRST, NODE, check, findings

import dtk
from dtk import doctor
from dtk.doctor.environment import COMMAND

Get = Callable[[str], Path]


@pytest.fixture
def live(copy_machine: Get, tmp_path: Path) -> Live:
    return Live(copy_machine(NODE), tmp_path / "files")


@pytest.fixture(scope="module")
def node(machine: Get, tmp_path_factory: pytest.TempPathFactory) -> Live:
    """The same for tests that change nothing of it."""
    directory = tmp_path_factory.mktemp("live")
    return Live(Path(shutil.copytree(machine(NODE), directory / "root", symlinks=True)), directory / "files")


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what Python needs, and no compiler."""
    return str(tmp_path)


# ---- device nodes ----


def test_everything_open(node: Live, bare_path: str) -> None:
    document = node.examine(PATH=bare_path)
    assert found(document) == set()
    facts = check(document, "nodes")["facts"]
    assert (facts["dev_kfd"], facts["dev_kfd_access"], facts["dev_render"], facts["dev_render_access"]) == (
        True,
        True,
        CARDS,
        CARDS,
    )
    assert facts["group"] == "hcu"


def test_user_outside_the_group(live: Live, bare_path: str) -> None:
    live.node("kfd", 0o060)
    live.node("dri/renderD130", 0o060)
    document = live.examine(PATH=bare_path)
    assert found(document) == {"dev_kfd_denied", "render_denied"}
    assert "sudo usermod -aG hcu $USER" in findings(document)[0]["action"]
    assert "1 of 8 render nodes" in findings(document)[1]["text"]
    assert "render_denied" not in live.run("doctor", "-d", "0", PATH=bare_path).stdout
    assert "1 of 1 render node" in live.run("doctor", "-d", "2", PATH=bare_path).stdout
    # This process is in it: whatever keeps it out, another login does not help.
    live.put("etc/group", "hcu:x:1000:chen\n")
    assert found(live.examine(PATH=bare_path)) == {"dev_kfd_denied", "render_denied"}
    # A mode that keeps the group out.
    live.node("kfd", 0)
    assert found(live.examine(PATH=bare_path)) == {"node_of_root", "render_denied"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_user_who_was_made_a_member_since(live: Live, bare_path: str) -> None:
    live.node("kfd", 0o060)
    live.put("etc/group", "hcu:x:1000:chen\nother:x:65534:chen\n")
    os.chown(live.files / "dev/dri/renderD130", -1, 4444)  # which no group there maps to
    live.node("dri/renderD130", 0o060)
    document = live.examine(PATH=bare_path)
    assert found(document) == {"dev_kfd_denied", "render_denied", "group_not_active"}
    texts = [finding["text"] for finding in findings(document)]
    assert ["hcu" in texts[0], "other" in texts[1], "other" in texts[2]] == [True, True, True]


def test_nodes_that_belong_to_root(live: Live, bare_path: str) -> None:
    live.node("kfd", 0)
    live.put("etc/group", "root:x:1000:\n")
    document = live.examine(PATH=bare_path)
    assert found(document) == {"node_of_root"}
    assert "chgrp render" in findings(document)[0]["action"]


def test_nodes_that_are_missing(live: Live, bare_path: str) -> None:
    shutil.rmtree(live.files / "dev")
    document = live.examine(PATH=bare_path)
    assert found(document) == {"dev_kfd_missing", "render_missing"}
    assert "--device /dev/kfd" in findings(document)[0]["action"]


# ---- compilers ----

HIPCC = """\
#!/bin/sh
echo "HIP version: 9.1.2-abc"
echo "clang version 19.0.0"
echo "Target: x86_64-unknown-linux-gnu"
echo "InstalledDir: $(dirname $0)/llvm"
"""
# Knows one target, and says of others what clang says.
CLANG = """\
#!/bin/sh
case "$*" in
*-mcpu=gfx906*) exit 0;;
esac
echo "clang: error: invalid target ID: $*" >&2
exit 1
"""


def compiler(directory: Path, hipcc: str = HIPCC, clang: str = CLANG) -> Path:
    for path, text in ((directory / "hipcc", hipcc), (directory / "llvm/clang", clang)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return directory


def test_compiler_that_does_not_know_the_cards(node: Live, tmp_path: Path) -> None:
    where = compiler(tmp_path / "bin")
    document = node.examine(PATH=f"{where}:/usr/bin:/bin")
    assert "target_unknown" in found(document)
    facts = check(document, "toolchain")["facts"]
    (first, *_) = facts["compilers"]
    assert (first["hipcc"], first["version"], first["clang_version"]) == (f"{where}/hipcc", "9.1.2-abc", "19.0.0")
    assert (first["clang"], first["targets"], first["error"]) == (f"{where}/llvm/clang", {"gfx928": False}, None)
    assert facts["cards"][0] == {"bdf": FIRST, "arch": "gfx928", "known": {f"{where}/hipcc": False}}
    (finding,) = [finding for finding in findings(document) if finding["code"] == "target_unknown"]
    assert "gfx928" in finding["text"]
    assert "/opt/dtk/env.sh" in finding["action"]


def test_compiler_that_knows_them(node: Live, tmp_path: Path) -> None:
    where = compiler(tmp_path / "bin", clang="#!/bin/sh\nexit 0\n")
    document = node.examine(PATH=f"{where}:/usr/bin:/bin")
    assert found(document) == set()
    assert "knows gfx928" in " ".join(check(document, "toolchain")["summary"])


def test_first_compiler_is_the_one_that_counts(node: Live, tmp_path: Path) -> None:
    knows, other = compiler(tmp_path / "knows/bin", clang="#!/bin/sh\nexit 0\n"), compiler(tmp_path / "other/bin")
    path = "/usr/bin:/bin"
    assert found(node.examine(PATH=f"{knows}:{path}", ROCM_PATH=str(other.parent))) == set()
    document = node.examine(PATH=f"{other}:{path}", ROCM_PATH=str(knows.parent))
    assert found(document) == {"target_unknown"}
    assert findings(document)[0]["text"].endswith(f"{knows}/hipcc does")


@pytest.mark.parametrize(
    ("hipcc", "clang", "error"),
    [
        ("#!/bin/sh\nexit 3\n", CLANG, "status 3"),
        ("#!/bin/sh\necho HIP version: 5\n", CLANG, "names no clang"),
        ("#!/no/such/interpreter\n", CLANG, "cannot be started"),
        (HIPCC.replace("/llvm", "/nowhere"), CLANG, "clang was not found"),
        ("#!/bin/sh\nexec yes\n", CLANG, "printed too much"),
    ],
)
def test_broken_compiler(node: Live, tmp_path: Path, hipcc: str, clang: str, error: str) -> None:
    where = compiler(tmp_path / "bin", hipcc, clang)
    document = node.examine(PATH=f"{where}:/usr/bin:/bin")
    assert found(document) == {"compiler_broken"}
    assert error in findings(document)[0]["text"]


def test_compiler_that_hangs_is_given_up(node: Live, tmp_path: Path) -> None:
    where = compiler(tmp_path / "bin", f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 60 & wait\n")
    begin = time.monotonic()
    done = node.run("doctor", "--json", PATH=f"{where}:/usr/bin:/bin")
    assert time.monotonic() - begin < 10
    (finding,) = findings(json.loads(done.stdout))
    assert finding["code"] == "compiler_broken"
    assert "did not answer" in finding["text"]
    assert not is_running((tmp_path / "pid").read_text().strip())


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def has_ended(pid: str) -> bool:
    end = time.monotonic() + 2
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(pid)


def test_compiler_that_leaves_a_server_behind(node: Live, tmp_path: Path) -> None:
    """It is not broken, and the server, which has its output open, is ended."""
    server = f"sleep 60 & echo $! > {tmp_path}/pid\n"
    where = compiler(tmp_path / "bin", HIPCC + server, clang="#!/bin/sh\nexit 0\n")
    begin = time.monotonic()
    assert found(node.examine(PATH=f"{where}:/usr/bin:/bin", DTK_SMI_BACKEND="kernel")) == set()
    assert time.monotonic() - begin < 8  # of two runs
    assert has_ended((tmp_path / "pid").read_text().strip())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_doctor_is_ended(tmp_path: Path, number: int) -> None:
    where = compiler(
        tmp_path / "bin",
        f"#!/bin/sh\necho $$ $PPID > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids\nexec sleep 60\n",
    )
    variables = environment(PATH=f"{where}:/usr/bin:/bin", DTK_SMI_BACKEND="kernel")
    with subprocess.Popen([SMI, "doctor"], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 10
        while not (tmp_path / "pids").exists() and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate(timeout=5)
    assert all(has_ended(pid) for pid in (tmp_path / "pids").read_text().split())


def test_version_files_that_are_none(live: Live, bare_path: str) -> None:
    live.put("opt/dtk-1/.info/version", "")
    os.mkfifo(live.files / "opt/dtk-1/.dtk_version")
    live.put("opt/dtk-2/.dtk_version", "9" * 100_000)
    begin = time.monotonic()
    document = live.examine(PATH=bare_path)
    assert time.monotonic() - begin < 10
    first, second = check(document, "toolchain")["facts"]["toolkits"]
    assert (first["version"], second["version"]) == (None, "9" * 60 + "...")


@pytest.mark.skipif(not shutil.which("clang"), reason="needs clang")
def test_real_clang_is_asked(tmp_path: Path) -> None:
    """It has known gfx906, of a Z100L, for long, and gfx928, of a K100_AI, never."""
    real = Path(shutil.which("clang") or "").resolve()
    hipcc = f"#!/bin/sh\necho HIP version: 5.2.0\n{real} --version\necho InstalledDir: {real.parent}\n"
    where = compiler(tmp_path / "bin", hipcc)
    for arch, known in (("gfx906", True), ("gfx928", False)):
        found = dtk.doctor.toolchain.search({"PATH": str(where)}, [arch], time.monotonic() + 20)
        (compiler_,) = [c for c in found["compilers"] if c["hipcc"] == f"{where}/hipcc"]
        assert (compiler_["error"], compiler_["targets"]) == (None, {arch: known})


@pytest.mark.skipif(not shutil.which("hipcc"), reason="no hipcc of Debian or ROCm here")
def test_real_hipcc_is_asked() -> None:
    found = dtk.doctor.toolchain.search(os.environ, ["gfx90a"], time.monotonic() + 20)
    first = found["compilers"][0]
    assert (first["error"], first["targets"]) == (None, {"gfx90a": True})
    assert first["version"]


# ---- variables ----


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,1"}, set()),
        ({"ROCR_VISIBLE_DEVICES": ""}, {"visibility_hides_all"}),
        ({"HIP_VISIBLE_DEVICES": "-1"}, {"visibility_hides_all"}),
        ({"HIP_VISIBLE_DEVICES": ""}, set()),
        ({"HIP_VISIBLE_DEVICES": "0,9"}, {"visibility_bad_entry"}),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0123456789abcdef"}, {"visibility_bad_entry"}),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "0"}, {"visibility_twice"}),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2", "HIP_VISIBLE_DEVICES": "0"}, set()),  # the same card either way
        ({"ROCR_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2"}, {"visibility_twice", "visibility_bad_entry"}),
        ({"GPU_DEVICE_ORDINAL": "0,1"}, set()),
        ({"GPU_DEVICE_ORDINAL": "-1"}, {"visibility_hides_all"}),
        ({"GPU_DEVICE_ORDINAL": "9"}, {"visibility_bad_entry"}),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "GPU_DEVICE_ORDINAL": "0"}, {"visibility_twice"}),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.0.6"}, {"gfx_override"}),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.2.8"}, set()),
        ({"HSA_OVERRIDE_GFX_VERSION": "\x1b[2J"}, {"gfx_override"}),
        ({"HSA_FORCE_FINE_GRAIN_PCIE": "1"}, set()),
        ({"HSA_FORCE_FINE_GRAIN_PRICE": "1"}, {"variable_misspelt"}),
        ({"HCU_VISIBLE_DEVICES": "0"}, set()),
        ({"ROCM_PATH": "/no/where"}, {"path_missing"}),
        ({"DTKROOT": "/tmp"}, set()),
        ({"DTK_SMI_DEADLINE": "1"}, {"variable_unknown"}),
        ({"ROCR_VISIBLE_DEVICES": "x" * 100_000}, {"visibility_bad_entry"}),
        ({"HIP_VISIBLE_DEVICES": "0," * 50_000}, {"visibility_bad_entry"}),
        ({"HIP_VISIBLE_DEVICES": "\x1b]0;owned\x07"}, {"visibility_bad_entry"}),
        ({"LD_LIBRARY_PATH": "/x\n:" * 1000, "ROCM_PATH": "\x1b[31m" * 1000}, {"path_missing"}),
        ({"ROCM_SMI_LIB_PATH": "\x1b[31m" * 10_000}, {"library_override"}),
        ({"DTK_SMI_\x1b[31m": "1"}, {"variable_unknown"}),
    ],
    ids=lambda value: ",".join(f"{k}={v}"[:40] for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_variables(node: Live, bare_path: str, variables: dict[str, str], expected: set[str]) -> None:
    document = node.examine(**{"PATH": bare_path, **variables})
    assert found(document) == expected
    facts = check(document, "environment")["facts"]
    assert all(len(value) < 100 for value in facts["variables"].values())
    assert all(len(finding["text"]) <= 310 for finding in findings(document))


def test_what_is_left_to_a_program(node: Live, bare_path: str) -> None:
    document = node.examine(PATH=bare_path, ROCR_VISIBLE_DEVICES="2,0")
    uuids = [device.uuid for device in dtk.System(node.root).devices()]
    assert check(document, "environment")["facts"]["visible"] == [uuids[2], uuids[0]]
    assert "ROCR_VISIBLE_DEVICES=2,0 leaves 2 devices" in check(document, "environment")["summary"]
    variables = {"GPU_DEVICE_ORDINAL": "1", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "3"}
    assert check(node.examine(PATH=bare_path, **variables), "environment")["summary"] == [
        "HIP_VISIBLE_DEVICES=0 leaves 1 device",
        "GPU_DEVICE_ORDINAL=1 leaves 1 device",
        "CUDA_VISIBLE_DEVICES=3 is not obeyed beside HIP_VISIBLE_DEVICES",
    ]


# ---- the command ----

RUNTIME = """\
#include <stdlib.h>
#include <string.h>
/* Obeys ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, with eight cards. */
int hipGetDeviceCount(int *count)
{
    const char *names[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};

    *count = 8;
    for (int i = 0; i < 2; i++)
        if (getenv(names[i]) && strcmp(getenv(names[i]), "-1") == 0)
            *count = 0;
    return *count ? 0 : 100;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_command_shows_which_variables_are_obeyed(tmp_path: Path, shell: str) -> None:
    source = tmp_path / "hip.c"
    source.write_text(RUNTIME)
    library = tmp_path / "libamdhip64.so"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    assert "\n" not in COMMAND
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "HIP_VISIBLE_DEVICES": "3", "GPU_DEVICE_ORDINAL": "1"}
    done = subprocess.run(
        [shell, "-c", COMMAND], env=environment(**variables), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "NONE=-1 leaves 8",
        "ROCR_VISIBLE_DEVICES=-1 leaves 0",
        "HIP_VISIBLE_DEVICES=-1 leaves 0",
        "CUDA_VISIBLE_DEVICES=-1 leaves 8",
        "GPU_DEVICE_ORDINAL=-1 leaves 8",
        "HCU_VISIBLE_DEVICES=-1 leaves 8",
    ]


def test_command_is_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    assert COMMAND in smi("doctor", root=tmp_path).stdout.splitlines()
    assert doctor.examine(tmp_path).command == COMMAND
