"""`dtk-smi doctor` on "this machine": device nodes, libraries, compilers and variables.

For it, the machine that runs the tests has the sys/ of a simulated one in the place of its own, and a /dev of the
test's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import standin
from jsonschema import Draft202012Validator
from machines import device_directory, put
from smi import SMI, environment, smi
from test_doctor import FIRST, KFD, NODE, SCHEMA, SECOND, check, codes, findings

import dtk
from dtk import doctor
from dtk.doctor.environment import COMMAND
from dtk.doctor.look import Look

if TYPE_CHECKING:
    from dtk.sim import Mounted

Get = Callable[[str], Path]
CARDS = 8


class Live:
    """A machine whose sys/ is that of `root`. What is put below `files` stands in the place of the machine's own."""

    def __init__(self, root: Path, files: Path) -> None:
        self.root = root
        self.files = files
        if not root.is_mount():
            shutil.rmtree(root / KFD / "proc")  # its processes are none of this machine's
        self.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nchen:x:1000:1000::/tmp:/bin/sh\n")
        self.put("etc/group", "root:x:0:\nhcu:x:1000:\n")
        self.node("kfd")
        for number in range(CARDS):
            self.node(f"dri/renderD{128 + number}")

    def put(self, path: str, content: str, mode: int = 0o644) -> Path:
        target = self.files / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    def node(self, name: str, mode: int = 0o666) -> None:
        self.put(f"dev/{name}", "", mode)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run it there as user chen. The files are chen's and of group hcu: mode 060 keeps chen out and lets hcu in."""
        command = [
            shutil.which("bwrap") or "bwrap",
            "--unshare-user",
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--dev-bind",
            "/",
            "/",
        ]
        command += ["--bind", str(self.root / "sys"), "/sys", "--tmpfs", "/dev"]
        command += [word for name in ("null", "urandom") for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
        for top in ("dev/kfd", "dev/dri", "etc/passwd", "etc/group", "opt"):
            if (self.files / top).exists():
                command += ["--bind", str(self.files / top), f"/{top}"]
        if shutil.which("bwrap") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
            pytest.skip("needs bubblewrap with user namespaces")
        env = {**environment(), **variables}
        done = subprocess.run([*command, SMI, *arguments], env=env, capture_output=True, timeout=60, check=False)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def examine(self, **variables: str) -> Any:
        """The document; text has the same codes."""
        done = self.run("doctor", "--json", "--deadline", "5", **variables)
        assert done.stderr == ""
        document = json.loads(done.stdout)
        Draft202012Validator(SCHEMA).validate(document)
        assert document["live"]
        assert done.returncode == (0 if document["healthy"] else 5)
        text = self.run("doctor", "--deadline", "5", **variables)
        assert (text.returncode, text.stderr) == (done.returncode, "")
        assert all(code in text.stdout for code, _ in codes(document))
        assert text.stdout.isprintable() or all(line.isprintable() for line in text.stdout.splitlines())
        return document


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


def found(document: Any) -> set[str]:
    return {code for code, _ in codes(document)}


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
        ("#!/bin/sh\nexec sleep 60\n", CLANG, "did not answer"),
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
    assert "compiler_broken" in found(json.loads(done.stdout))
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


# ---- libraries ----


def test_override_that_yields_nothing(node: Live, bare_path: str, tmp_path: Path) -> None:
    document = node.examine(PATH=bare_path, ROCM_SMI_LIB_PATH=str(tmp_path / "none"))
    assert found(document) == {"library_override"}
    assert "Unset ROCM_SMI_LIB_PATH" in findings(document)[0]["action"]
    (tmp_path / "there").mkdir()
    library = tmp_path / "there/librocm_smi64.so.2.8"
    library.write_bytes(b"x" * 10)
    (tmp_path / "there/librocm_smi64.so").symlink_to(library.name)
    document = node.examine(PATH=bare_path, ROCM_SMI_LIB_PATH=str(tmp_path / "there"))
    assert found(document) == {"library_failed"}  # it is none
    assert "file too short" in findings(document)[0]["text"]
    places = check(document, "libraries")["facts"]["places"]
    (place,) = [place for place in places if place["origin"] == "ROCM_SMI_LIB_PATH"]
    link, file = place["files"]
    assert link == {
        "path": f"{tmp_path}/there/librocm_smi64.so",
        "target": str(library),
        "size": 10,
        "about": file["about"],
    }
    assert file == {"path": str(library), "target": None, "size": 10, "about": file["about"]}


def test_second_library_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtk.doctor import libraries

    for name in ("driver", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "librocm_smi64.so.2").write_bytes(b"x")
    monkeypatch.setattr(libraries, "PLACES", (str(tmp_path / "driver"),))
    for directory, expected in (("other", ["library_shadowed"]), ("driver", []), ("", [])):
        variables = {"LD_LIBRARY_PATH": f"relative::{tmp_path / directory if directory else ''}"}
        software = {"libraries": libraries.search(variables)}
        look = Look(True, None, None, None, software, variables, {}, False)
        assert [finding.code for finding in libraries.libraries(look).findings] == expected


@pytest.mark.parametrize(
    ("path", "shadowed"),
    [
        ("", False),
        ("/opt/hyhal/lib", False),  # as Hygon's env.sh sets it
        ("/opt/hyhal/lib/:/opt/rocm/lib", False),
        ("/opt/dtk/.hyhal/lib", False),  # a link to it
        ("/opt/none:/opt/rocm/lib:/opt/hyhal/lib", True),
    ],
)
@pytest.mark.parametrize("variable", ["", "HYHAL_PATH"])
def test_libraries_of_both_vendors(live: Live, tmp_path: Path, path: str, shadowed: bool, variable: str) -> None:
    hygon = standin.for_machine(tmp_path, "HYGON63", live.root)
    live.put("opt/hyhal/lib/librocm_smi64.so.2", "").write_bytes(hygon.library.read_bytes())
    live.put("opt/rocm/lib/librocm_smi64.so.1", "").write_bytes(standin.build("AMD5").read_bytes())
    live.put("opt/dtk/env.sh", "")
    (live.files / "opt/dtk/.hyhal").symlink_to("/opt/hyhal")
    variables = {"DTK_STANDIN": hygon.env["DTK_STANDIN"], "LD_LIBRARY_PATH": path, "PATH": str(tmp_path)}
    document = live.examine(**variables, **({variable: "/opt/hyhal"} if variable else {}))
    assert found(document) == ({"library_shadowed"} if shadowed else set())


def test_library_of_amd_is_no_standard_for_hygon_cards(live: Live, tmp_path: Path) -> None:
    """Hygon's is elsewhere, and a variable says where."""
    hygon = standin.for_machine(tmp_path, "HYGON63", live.root)
    live.put("opt/rocm/lib/librocm_smi64.so.1", "").write_bytes(standin.build("AMD5").read_bytes())
    live.put("opt/driver/librocm_smi64.so.2", "").write_bytes(hygon.library.read_bytes())
    variables = {"DTK_STANDIN": hygon.env["DTK_STANDIN"], "LD_LIBRARY_PATH": "/opt/driver", "PATH": str(tmp_path)}
    assert found(live.examine(**variables)) == set()


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


# ---- the vendor's library ----


def library_of(document: Any, library: standin.Standin) -> dict[str, Any]:
    places = check(document, "libraries")["facts"]["places"]
    (about,) = (file["about"] for place in places for file in place["files"] if file["path"] == str(library.library))
    return dict(about)


def test_version_and_abi_of_a_library(live: Live, tmp_path: Path) -> None:
    library = standin.for_machine(tmp_path, "HYGON63", live.root)
    document = live.examine(**library.env)
    assert findings(document) == [] or "library" not in str(findings(document))
    about = library_of(document, library)
    assert (about["status"], about["abi"], about["matched"]) == ("ok", "hygon-6.3", CARDS)
    assert about["version"].startswith("7.6.0")
    assert "ABI hygon-6.3" in live.run("doctor", **library.env).stdout


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("status rsmi_init * 8", "library_failed", "rsmi_init() failed with 8"),
        ("throw rsmi_init *", "library_aborted", "it printed:"),
        ("hang rsmi_init *", "library_silent", "did not answer"),
        ("hang rsmi_dev_memory_total_get 1", "library_silent", f"did not answer within 2 s for {SECOND}"),
    ],
)
def test_library_that_does_not_serve(live: Live, tmp_path: Path, line: str, code: str, text: str) -> None:
    library = standin.for_machine(tmp_path, "HYGON63", live.root, line)
    document = live.examine(**library.env)
    assert (code, None) in codes(document)
    assert any(text in finding["text"] for finding in findings(document) if finding["code"] == code)


def test_library_is_not_loaded_while_a_card_sleeps(live: Live, tmp_path: Path) -> None:
    put(live.root, f"{device_directory(live.root, SECOND).relative_to(live.root)}/power/runtime_status", "suspended\n")
    library = standin.for_machine(tmp_path, "HYGON63", live.root, "abort rsmi_init *")
    document = live.examine(PATH=str(tmp_path), **library.env)
    assert found(document) == set()
    assert "a card sleeps" in check(document, "libraries")["summary"][-1]
    assert library.calls() == []
    assert "no librocm_smi64 was loaded" in live.run("doctor", "-d", FIRST, **library.env).stdout


def test_library_that_does_not_list_every_card(live: Live, tmp_path: Path) -> None:
    library = standin.make(tmp_path, "HYGON62", [FIRST])
    (finding,) = [x for x in findings(live.examine(**library.env)) if x["code"] == "library_lists_fewer"]
    assert f"lists 1 of 8 cards, not {SECOND}, " in finding["text"]
    assert "library_lists_fewer" not in live.run("doctor", "-d", FIRST, **library.env).stdout
    done = live.run("doctor", "-d", SECOND, **library.env)
    assert f"lists 0 of 1 card, not {SECOND}" in " ".join(done.stdout.split())


def test_library_in_a_container_lists_the_cards_that_were_given(
    mounted: Callable[[str], Mounted], tmp_path: Path
) -> None:
    machine = mounted(NODE)
    cards = [card.bdf for card in dtk.System(machine.root).cards()]
    nodes = [dtk.System(machine.root).device(bdf).kfd_node for bdf in cards[1:]]
    library = standin.make(tmp_path, "HYGON63", cards[:1])
    live = Live(machine.root, tmp_path / "files")
    machine.set(*(f"eacces={KFD}/topology/nodes/{number}/properties" for number in nodes))
    # The processes of a mount stay, and none of them is this machine's.
    assert found(live.examine(PATH=str(tmp_path), **library.env)) == {"process_ended"}


def test_library_of_amd_is_not_made_for_hygon_cards(live: Live, tmp_path: Path) -> None:
    library = standin.for_machine(tmp_path, "AMD5", live.root, "status rsmi_init * 8")
    assert not {code for code, _ in codes(live.examine(**library.env)) if code.startswith("library")}
