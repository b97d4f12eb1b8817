"""`dtk-smi doctor` on machines with something wrong: each finding through the door that people use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from machines import MACHINES, device_directory, hwmon_directory, put
from smi import SMI, bare, environment, smi

import dtk
from dtk import doctor, sim
from dtk.doctor import readings
from dtk.doctor.look import Look, Machine

if TYPE_CHECKING:
    from dtk.sim import Mounted

Get = Callable[[str], Path]
Break = Callable[[Path, str], None]
DOCS = Path(__file__).parent.parent / "docs"
SCHEMA = json.loads((DOCS / "schema" / "dtk-doctor-1.schema.json").read_text())
NODE = "k100_ai-2s"
PAIR = "k100_ai:2"  # its first two cards: through a mount, what reads little is quick
FIRST, SECOND = "0000:05:00.0", "0000:25:00.0"
KFD = "sys/devices/virtual/kfd/kfd"


def examine(root: Path, *arguments: str, **variables: str) -> Any:
    """The document; the text has the same findings, and both the exit status."""
    done = smi("doctor", "--json", *arguments, root=root, **variables)
    document = json.loads(done.stdout)
    Draft202012Validator(SCHEMA).validate(document)
    assert done.returncode == (0 if document["healthy"] else 5)
    text = smi("doctor", *arguments, root=root, **variables)
    assert (text.returncode, text.stderr) == (done.returncode, "")
    headline = text.stdout.splitlines()[0]
    found = findings(document)
    assert document["healthy"] == (not found)
    count = "healthy" if not found else "1 finding" if len(found) == 1 else f"{len(found)} findings"
    assert headline.startswith(count)
    long = ("V=", "SIMULATED ", "recorded ")  # a line to copy, and the path of the machine
    assert max(len(line) for line in text.stdout.splitlines() if not line.startswith(long)) <= 80
    for finding in found:
        assert finding["code"] in text.stdout
        assert finding["code"] in doctor.CODES
    return document


def findings(document: Any) -> list[Any]:
    return [finding for check in document["checks"] for finding in check["findings"]]


def codes(document: Any) -> set[tuple[str, str | None]]:
    return {(finding["code"], finding["card"]) for finding in findings(document)}


def check(document: Any, name: str) -> Any:
    (found,) = [check for check in document["checks"] if check["name"] == name]
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_machines_without_faults_are_healthy(machine: Get, name: str) -> None:
    document = examine(machine(name))
    statuses = {check["name"]: check["status"] for check in document["checks"]}
    skipped = {"nodes", "libraries", "toolchain", "environment"}  # of another machine
    assert {name for name, status in statuses.items() if status == "skipped"} == skipped
    assert {name for name, status in statuses.items() if status == "ok"} == statuses.keys() - skipped
    assert check(document, "cards")["facts"]["kfd_nodes"] >= len(MACHINES[name])
    costs = check(document, "cost")["facts"]
    assert all(0 < time < 1e6 for time in costs["sources"].values())
    assert {"gpu_busy_percent", "power/runtime_status"} <= costs["sources"].keys()
    assert {"enumeration", "sample_fast"} <= costs["calls"].keys()


def test_demo_says_that_it_is_made_up() -> None:
    done = smi("doctor", "--demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "SIMULATED" in done.stdout.splitlines()[1]
    done = smi("doctor", "--demo", "--json")
    assert "SIMULATED" in done.stderr
    assert json.loads(done.stdout)["simulated"]


# ---- what a tree of files can show ----


def unbind(root: Path, bdf: str, other: str | None = None) -> None:
    """Take a card from its driver, and perhaps give it to another."""
    directory = device_directory(root, bdf)
    for link in (root / "sys/bus/pci/drivers").glob(f"*/{bdf}"):
        link.unlink()
    for link in (root / "sys/class/drm").iterdir():
        if link.is_symlink() and bdf in str(link.readlink()):
            link.unlink()
    (directory / "driver").unlink()
    shutil.rmtree(directory / "drm")
    put(root, f"{directory.relative_to(root)}/uevent", "PCI_CLASS=B4000\nPCI_ID=1D94:6210\n")
    if other:
        (root / "sys/bus/pci/drivers" / other).mkdir()
        depth = len(directory.relative_to(root / "sys").parts)
        (directory / "driver").symlink_to("../" * depth + f"bus/pci/drivers/{other}")


def node_of(root: Path, bdf: str) -> Path:
    return root / KFD / "topology/nodes" / str(dtk.System(root).device(bdf).kfd_node)


def without_driver(root: Path, bdf: str) -> None:
    shutil.rmtree(node_of(root, bdf))
    unbind(root, bdf)


def of_other_driver(root: Path, bdf: str) -> None:
    shutil.rmtree(node_of(root, bdf))
    unbind(root, bdf, "vfio-pci")


def without_kfd(root: Path, bdf: str) -> None:
    shutil.rmtree(node_of(root, bdf))


def without_any_kfd(root: Path) -> None:
    (root / "sys/class/kfd/kfd").unlink()
    (root / "sys/class/kfd").rmdir()


def without_pci(root: Path, bdf: str) -> None:
    unbind(root, bdf)
    shutil.rmtree(device_directory(root, bdf))
    (root / "sys/bus/pci/devices" / bdf).unlink()


def without_render(root: Path, bdf: str) -> None:
    path = node_of(root, bdf) / "properties"
    text = re.sub(r"drm_render_minor \d+", "drm_render_minor 0", path.read_text())
    put(root, f"{path.relative_to(root)}", text)
    for link in (root / "sys/class/drm").glob("renderD*"):
        if bdf in str(link.readlink()):
            link.unlink()


def file(name: str, content: str | bytes) -> Break:
    """Another content of a file of a card."""

    def break_it(root: Path, bdf: str) -> None:
        directory = hwmon_directory(root, bdf) if name.startswith("hwmon/") else device_directory(root, bdf)
        put(root, f"{directory.relative_to(root)}/{name.removeprefix('hwmon/')}", content)

    return break_it


def slow_at_work(root: Path, bdf: str) -> None:
    file("gpu_busy_percent", "80\n")(root, bdf)
    file("current_link_speed", "2.5 GT/s PCIe\n")(root, bdf)


def ended(root: Path, bdf: str) -> None:
    gpu = dtk.System(root).device(bdf).gpu_id
    put(root, f"{KFD}/proc/4000000/vram_{gpu}", f"{3 << 30}\n")
    put(root, f"{KFD}/proc/4000000/pasid", "32770\n")


def module_state(root: Path) -> None:
    put(root, "sys/module/hycu/initstate", "going\n")


FAULTS: dict[str, Break] = {
    "card_without_driver": without_driver,
    "card_of_other_driver": of_other_driver,
    "card_without_kfd": without_kfd,
    "card_without_pci": without_pci,
    "card_without_render": without_render,
    "ecc_uncorrectable": file("ras/umc_err_count", "ue: 3\nce: 17\n"),
    "pages_retired": file("ras/gpu_vram_bad_pages", "0x00000001 : 0x00001000 : R\n"),
    "pages_pending": file("ras/gpu_vram_bad_pages", "0x00000001 : 0x00001000 : P\n"),
    "reading_failed": file("hwmon/temp1_input", "garbage\n"),
    "too_hot": file("hwmon/temp2_crit", "20000\n"),
    "gpu_metrics_unknown": file("gpu_metrics", b"\x78\x00\x09\x09" + bytes(116)),
    "gpu_metrics_damaged": file("gpu_metrics", b"\x78\x00\x01\x03"),
    "link_narrow": file("current_link_width", "8\n"),
    "link_slow": slow_at_work,
    "numa_unknown": file("numa_node", "-1\n"),
    "memory_held": file("mem_info_vram_used", f"{20 << 30}\n"),
    "process_ended": ended,
}
MI210 = ("mi210", "0000:03:00.0")
WHERE = {
    "gpu_metrics_unknown": MI210,
    "gpu_metrics_damaged": MI210,
    "too_hot": MI210,
    "memory_held": (NODE, "0000:c5:00.0"),  # on which nothing runs
}
WHOLE = {"kfd_missing": without_any_kfd, "module_not_live": module_state}


@pytest.mark.parametrize("code", FAULTS)
def test_fault_of_a_card(copy_machine: Get, code: str) -> None:
    name, bdf = WHERE.get(code, (NODE, FIRST))
    root = copy_machine(name)
    FAULTS[code](root, bdf)
    document = examine(root)
    assert codes(document) == {(code, bdf)}
    (finding,) = findings(document)
    assert finding["meaning"]
    assert finding["action"]
    assert "{" not in finding["meaning"] + finding["action"]


@pytest.mark.parametrize("code", WHOLE)
def test_fault_of_the_machine(copy_machine: Get, code: str) -> None:
    root = copy_machine(NODE)
    WHOLE[code](root)
    assert (code, None) in codes(examine(root))


def test_several_cards_with_one_fault_are_told_once(copy_machine: Get) -> None:
    root = copy_machine(NODE)
    for bdf in (FIRST, SECOND):
        file("current_link_width", "8\n")(root, bdf)
    assert codes(examine(root)) == {("link_narrow", FIRST), ("link_narrow", SECOND)}
    text = smi("doctor", root=root).stdout
    assert text.count("link_narrow") == 1
    assert f"1. GPU 0 ({FIRST}) uses 8 of 16 lanes\n   GPU 1 ({SECOND}) uses" in text


def test_an_idle_link_may_be_slow_and_a_sleeping_card_is_not_judged(copy_machine: Get) -> None:
    root = copy_machine(NODE)
    file("gpu_busy_percent", "0\n")(root, FIRST)
    file("current_link_speed", "2.5 GT/s PCIe\n")(root, FIRST)
    file("current_link_width", "1\n")(root, SECOND)
    file("power/runtime_status", "suspended\n")(root, SECOND)
    document = examine(root)
    assert document["healthy"]
    assert "1 idle link below the highest speed" in " ".join(check(document, "links")["summary"])
    assert "7 answer, 1 asleep" in check(document, "health")["summary"][0]


def test_machine_whose_cards_all_sleep(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    for bdf in (root / "sys/bus/pci/drivers/amdgpu").glob("0000:*"):
        file("power/runtime_status", "suspended\n")(root, bdf.name)
    cost = check(examine(root), "cost")
    assert (cost["status"], cost["summary"]) == ("skipped", ["no card is awake"])


def test_partition_that_is_lost(tmp_path: Path) -> None:
    """How many there should be is known of another card in this mode."""
    root = tmp_path / "cpx"
    sim.write(root, cards=("mi300x-cpx:2",), seed=1)
    device = dtk.System(root).devices()[3]
    shutil.rmtree(root / KFD / "topology/nodes" / str(device.kfd_node))
    document = examine(root)
    assert codes(document) == {("partition_missing", device.bdf)}
    assert "KFD has 7 of 8 partitions" in findings(document)[0]["text"]


def test_long_hostname_stays_in_the_line(copy_machine: Get) -> None:
    root = copy_machine(NODE)
    put(root, "proc/sys/kernel/hostname", "node-" * 12 + "\n")
    examine(root)


def test_only_some_devices(copy_machine: Get) -> None:
    root = copy_machine(NODE)
    file("current_link_width", "8\n")(root, FIRST)
    assert examine(root, "-d", "1,2")["healthy"]
    assert not examine(root, "-d", "0")["healthy"]
    without_driver(root, FIRST)
    assert examine(root, "-d", SECOND)["healthy"]
    assert ("card_without_driver", FIRST) in codes(examine(root))
    done = smi("doctor", "-d", "99", root=root)
    assert (done.returncode, done.stdout) == (6, "")


def test_no_card(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    document = examine(tmp_path)
    assert codes(document) == {("no_card", None)}
    assert smi("doctor", root=tmp_path / "missing").returncode == 2


@pytest.mark.parametrize("bdf", [FIRST, SECOND])
def test_a_card_of_another_display_is_none(copy_machine: Get, bdf: str) -> None:
    root = copy_machine(NODE)
    assert "0000:1f:00.0" not in json.dumps(examine(root))  # the BMC's VGA


@pytest.mark.parametrize(
    ("path", "words"),
    [(f"{KFD}/topology/nodes", "KFD's topology/nodes"), ("sys/bus/pci/devices", "sys/bus/pci/devices")],
)
def test_a_directory_that_may_not_be_read_is_no_lost_card(copy_machine: Get, path: str, words: str) -> None:
    root = copy_machine(NODE)
    (root / path).chmod(0)
    done = subprocess.run(
        [*bare(), SMI, "doctor", "--json", "--root", str(root)], env=environment(), capture_output=True
    )
    (root / path).chmod(0o755)
    document = json.loads(done.stdout)
    assert codes(document) == set()
    assert check(document, "cards")["status"] == "unknown"
    assert words in check(document, "cards")["summary"][0]


# ---- what only a mount can show ----


@pytest.mark.parametrize(
    ("fault", "code"),
    [("hang=1", "card_stale"), ("eacces=1/*", "card_denied"), ("eio=1/hwmon/power1_average", "reading_failed")],
)
def test_card_that_does_not_answer_well(mounted: Callable[[str], Mounted], fault: str, code: str) -> None:
    machine = mounted(PAIR)
    machine.set(fault)
    begin = time.monotonic()
    done = smi("doctor", "--json", "--deadline", "3", root=machine.root)
    took = time.monotonic() - begin
    assert done.returncode == 5
    assert (code, SECOND) in codes(json.loads(done.stdout))
    assert took < 3 + 0.3 + 1.5  # of which 1.5 for Python to start on a busy machine


def test_hang_of_the_first_card_is_not_waited_for(mounted: Callable[[str], Mounted]) -> None:
    """What is measured is another card; nothing is left behind that holds the output open."""
    machine = mounted(PAIR)
    machine.set("hang=0")
    document = json.loads(smi("doctor", "--json", "--deadline", "3", root=machine.root).stdout)
    assert codes(document) == {("card_stale", FIRST)}
    assert check(document, "cost")["facts"].get("card") != FIRST
    assert check(document, "cards")["status"] == "ok"


def test_machine_that_does_not_even_show_its_cards(mounted: Callable[[str], Mounted]) -> None:
    machine = mounted(NODE)
    machine.set(f"hang={KFD}/topology/nodes/*/properties")
    begin = time.monotonic()
    done = smi("doctor", "--json", "--deadline", "0.4", root=machine.root)
    assert time.monotonic() - begin < 0.4 + 0.3 + 1.5
    document = json.loads(done.stdout)
    assert done.returncode == 5
    assert ("cards_unknown", None) in codes(document)
    assert check(document, "driver")["status"] == "unknown"
    headline = smi("doctor", "--deadline", "0.4", root=machine.root).stdout.splitlines()[0]
    assert re.match(r"\d findings?, \d checks unknown", headline)


def test_nodes_of_kfd_that_a_cgroup_denies(mounted: Callable[[str], Mounted]) -> None:
    machine = mounted(PAIR)
    number = dtk.System(machine.root).device(FIRST).kfd_node
    machine.set(f"eacces={KFD}/topology/nodes/{number}/properties")
    document = examine(machine.root, "--deadline", "5")
    assert codes(document) == set()  # what is right in a container
    assert "1 KFD node, 1 more denied" in check(document, "cards")["summary"][0]
    document = examine(machine.root, "--deadline", "5", "-d", FIRST)
    assert codes(document) == {("kfd_denied", None)}
    assert FIRST in findings(document)[0]["text"]


# ---- processes that fail ----


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("#!/bin/sh\necho no module named dtk\nexit 3\n", "ended with status 3: no module named dtk"),
        ("#!/bin/sh\nkill -9 $$\n", "was ended by signal 9"),
        ("#!/no/such/python\n", "could not be started: No such file"),
        ("#!/bin/sh\nexec sleep 60\n", "did not answer by the deadline"),
        ("#!/bin/sh\necho '{}'\n", "answered what cannot be understood"),
    ],
)
def test_a_machine_that_could_not_be_looked_at_is_not_healthy(
    machine: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, words: str
) -> None:
    (tmp_path / "python").write_text(python)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    report = doctor.examine(machine(NODE), deadline=2)
    assert [finding.code for finding in report.findings] == ["not_examined"]
    assert words in report.findings[0].text
    statuses = {check.name: check.status for check in report.checks}
    assert (statuses["driver"], statuses["cards"], statuses["cost"]) == ("unknown", "finding", "unknown")


def test_variables_are_shown_also_where_the_machine_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    (variables,) = [check for check in doctor.examine("/").checks if check.name == "environment"]
    assert variables.status == "unknown"
    assert variables.summary[0] == "HIP_VISIBLE_DEVICES=0"


def test_processes_import_what_the_program_does(machine: Get, tmp_path: Path) -> None:
    """Also where Python itself would not find it: neither PYTHONPATH nor site-packages has it."""
    paths = [path for path in map(os.path.abspath, sys.path) if path != str(Path(__file__).parent)]
    code = f"import sys; sys.path[:] = {paths}; from dtk import doctor; print(doctor.examine({str(machine(NODE))!r}))"
    (tmp_path / "dtk").mkdir()
    (tmp_path / "dtk/__init__.py").write_text("raise SystemExit(7)")
    python = os.path.realpath(sys.executable)  # not of the virtual environment
    done = subprocess.run([python, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not_examined" not in done.stdout
    assert "status='unknown'" not in done.stdout


# ---- what no simulated machine does ----


def reading(**attributes: Any) -> Any:
    """A whole card as a snapshot has it."""
    names = dict.fromkeys(("drm_card", "drm_render", "numa_node", "driver", "arch", "partition"))
    return SimpleNamespace(**{**names, "bdf": FIRST, "index": 0, "card_index": 0, "vendor_id": 0x1D94, **attributes})


@pytest.mark.parametrize("state", ["gone", "failed", "denied", "stale"])
def test_card_that_gives_no_reading_at_all(state: str) -> None:
    (finding,) = readings._reading_findings(reading(state=state, sample=None))
    assert (finding.code, finding.card) == (f"card_{state}", FIRST)


def test_source_that_takes_long() -> None:
    costs = {"card": FIRST, "calls": {"sample_fast": 250e3}, "sources": {"gpu_metrics": 245e3, "gpu_busy_percent": 3.0}}
    snapshot: Any = SimpleNamespace(cards=[reading(state="ok")])
    (finding,) = readings.cost(Look(True, snapshot, None, costs, None, {}, {}, False)).findings
    assert (finding.code, finding.text) == ("source_slow", f"{FIRST}: gpu_metrics takes 245 ms")


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=10,
)


@given(ANYTHING)
def test_what_a_process_says_may_be_anything(found: Any) -> None:
    with suppress(KeyError, TypeError):
        Machine({"probe": found, "pci": found, "agents": found, "inactive_groups": found})


# ---- the catalogue ----


def test_documentation_has_every_code() -> None:
    text = (DOCS / "doctor.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", text, re.M)
    assert [code for code, _, _ in rows] == list(doctor.CODES)
    for code, meaning, action in rows:
        assert (meaning, action.replace("\\|", "|")) == doctor.CODES[code], code
