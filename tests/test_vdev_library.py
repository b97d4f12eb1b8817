"""Virtual devices with a library in the place of Hygon's libhydmi.so: what it tells, and what it may do to us.

The stand-in is compiled from tests/hydmi/hydmi.c. DTK asks a library on the live machine alone, so /sys and /etc are
those of a simulated one; see rig.py. Hygon's own library was never asked on a card.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import rig
from native_library import compile_c
from smi import SMI, environment, validate_virtual
from test_vdev_files import text

import dtk
from dtk import sim

SOURCE = Path(__file__).parent / "hydmi" / "hydmi.c"
MIB = 1 << 20

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile the stand-in with macros; at a place of its own, or at `output`."""

    def get(*macros: str, output: Path | None = None) -> Path:
        place = output or tmp_path_factory.mktemp("hydmi") / "libhydmi.so"
        place.parent.mkdir(parents=True, exist_ok=True)
        options = [f"-D{macro}" for macro in macros]
        return compile_c(place, "-shared", "-fPIC", *options, SOURCE)

    return get


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two K100_AI; of virtual device 0 there is a file too, and one of 8, which the library does not know."""
    root = tmp_path / "node"
    sim.write(root, ["k100_ai:2"])
    cache = Path("/etc/ld.so.cache")
    if cache.exists():
        shutil.copy(cache, root / "etc")
    vdev = root / "etc/vdev"
    vdev.mkdir()
    (vdev / "vdev0.conf").write_text(text(0, cu_count=99))
    (vdev / "vdev8.conf").write_text(text(8, "0000:25:00.0", device_id=1))
    return root


def run(root: Path, library: Path | None, *arguments: str, parts: tuple[str, ...] = ()) -> CompletedProcess[str]:
    variables = {} if library is None else {"DTK_SMI_HYDMI_LIB": str(library)}
    return rig.run(root, [SMI, "virtual", *arguments], environment(**variables), ("sys", "etc", *parts))


def ask(root: Path, library: Path | None, *arguments: str, code: int = 0, **options: Any) -> Any:
    """The object that --json prints."""
    done = run(root, library, "--json", *arguments, **options)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    validate_virtual(found)
    return found


def by_id(found: Any) -> dict[int, Any]:
    return {device["id"]: device for device in found["virtual"]}


def warnings(found: Any) -> list[str]:
    return [warning["text"] for warning in found["warnings"]]


def check_fallback(found: Any) -> None:
    """What the files tell is there, and a warning says that it is all."""
    assert {id: device["sources"] for id, device in by_id(found).items()} == {0: ["file"], 8: ["file"]}
    assert by_id(found)[0]["compute_units"] == 99
    (warning,) = warnings(found)
    assert warning.startswith("libhydmi")
    assert warning.endswith("what the configuration files tell is shown")


# ---- what it tells ----


def test_all_that_it_tells(root: Path, build: Build) -> None:
    library = build()
    found = ask(root, library)
    devices = by_id(found)
    assert {id: device["sources"] for id, device in devices.items()} == {
        0: ["file", "library"],
        1: ["library"],
        5: ["library"],
        8: ["file"],
    }
    assert devices[5] == {
        "id": 5,
        "card": 1,
        "bdf": "0000:25:00.0",
        "card_number": 1,
        "name": "K100_AI vDCU",
        "compute_units": 35,
        "memory_total": 2005 * MIB,
        "memory_used": 105 * MIB,
        "utilization": 45.0,
        "container": "0x1234abcd",
        "pipe": None,
        "enabled": None,
        "sources": ["library"],
        "reasons": {},
        "details": {},
    }
    assert (devices[0]["compute_units"], devices[0]["pipe"], devices[0]["enabled"]) == (30, 3, True)
    assert devices[1]["container"] is None
    assert [(c["card_number"], c["compute_units_free"], c["memory_free"]) for c in found["cards"]] == [
        (0, 20, 1000 * MIB),
        (1, 21, 1001 * MIB),
    ]
    assert (found["most"], found["library"], found["unknown_cards"]) == (4, str(library), [])
    assert (found["sources"], found["warnings"]) == ({"file": "ok", "library": "ok"}, [])


def test_a_file_of_a_device_that_it_does_not_know(root: Path, build: Build) -> None:
    device = by_id(ask(root, build()))[8]
    assert device["reasons"] == {"memory_used": "gone", "utilization": "gone"}
    assert device["details"]["utilization"] == "dmiGetVDeviceInfo: VDEV_NOT_EXIST (15)"
    assert device["compute_units"] == 30


def test_table(root: Path, build: Build) -> None:
    lines = run(root, build()).stdout.splitlines()
    assert [line.split()[:4] for line in lines[2:4]] == [["0", "05:00.0", "20", "1.0"], ["1", "25:00.0", "21", "1.0"]]
    assert lines[9].split() == ["5", "1", "25:00.0", "35", "0.1/2", "45%", "-", "-", "library", "0x1234abcd"]
    assert lines[10].split()[4:6] == ["lost/16", "lost"]
    assert "a card can have 4" in lines[-1] or "a card can have 4" in lines[-2]
    assert max(map(len, lines)) <= 80


def test_only_the_cards_that_are_asked_for(root: Path, build: Build) -> None:
    found = ask(root, build(), "-d", "1")
    assert [*by_id(found)] == [5, 8]
    assert [card["index"] for card in found["cards"]] == [1]


def test_python(root: Path, build: Build) -> None:
    code = (
        "import dtk, json, sys; s = dtk.take_snapshot(virtual=sys.argv[1]); "
        "print(json.dumps([[v.id, v.utilization] for v in s.virtual.devices] + [len(s.devices), s.devices[0].state]))"
    )
    found = rig.run_json(root, [sys.executable, "-c", code, str(build())], environment(), ("sys", "etc"))
    assert found == [[0, 40.0], [1, 41.0], [5, 45.0], [8, None], 2, "ok"]


# ---- which card is which ----


def test_a_file_says_which_card_a_number_is(root: Path, build: Build) -> None:
    for name, bdf, number in (("vdev0", "0000:05:00.0", 1), ("vdev8", "0000:25:00.0", 0)):
        (root / f"etc/vdev/{name}.conf").write_text(text(int(name[4:]), bdf, device_id=number))
    found = ask(root, build())
    assert [(card["index"], card["card_number"]) for card in found["cards"]] == [(0, 1), (1, 0)]
    assert by_id(found)[1]["card"] == 1


def test_else_the_order_of_the_nodes_of_kfd(root: Path, build: Build) -> None:
    etc = shutil.copytree(root / "etc", root / "kept")
    sim.write(root, ["mi210:1", "k100_ai:3"])
    shutil.copytree(etc, root / "etc", dirs_exist_ok=True)
    shutil.rmtree(root / "etc/vdev")
    with dtk.System(root) as system:
        nodes = {card.kfd_node or 0: card.card_index for card in system.cards() if "K100" in card.name}
    expected = [index for _, index in sorted(nodes.items())]
    assert expected != sorted(nodes.values()), "else the order of addresses would do"
    found = ask(root, build("CARDS=3"))
    numbers = {card["card_number"]: card["index"] for card in found["cards"] if card["card_number"] is not None}
    assert [numbers[number] for number in range(3)] == expected
    assert [by_id(found)[id]["card"] for id in (0, 1, 5)] == [expected[0], expected[0], expected[1]]


def test_as_many_cards_as_there_are_not(root: Path, build: Build) -> None:
    shutil.rmtree(root / "etc/vdev")
    found = ask(root, build("CARDS=3"))
    assert {device["card"] for device in found["virtual"]} == {None}
    assert [card["card_number"] for card in found["unknown_cards"]] == [0, 1, 2]
    assert [card["compute_units_free"] for card in found["cards"]] == [None, None]
    assert "virtual device 5: nothing says which card it is on" in warnings(found)


# ---- what it cannot tell ----


@pytest.mark.parametrize(
    ("status", "reason", "name"),
    [
        (6, "unsupported", "NOT_SUPPORTED (6)"),
        (14, "unsupported", "DEVICE_NOT_SUPPORT (14)"),
        (31, "unsupported", "NOT_YET_IMPLEMENTED (31)"),
        (19, "denied", "PERMISSION (19)"),
        (15, "gone", "VDEV_NOT_EXIST (15)"),
        (29, "failed", "SMI_BUSY (29)"),
        (10, "failed", "INVALID_ARGUMENTS (10)"),
        (77, "failed", "status 77"),
    ],
)
def test_a_status_for_each_reading(root: Path, build: Build, status: int, reason: str, name: str) -> None:
    found = ask(
        root, build(f"AT_dmiGetVDevBusyPercent=return {status};", f"AT_dmiGetDeviceRemainingInfo=return {status};")
    )
    device, card = by_id(found)[5], found["cards"][0]
    assert (device["utilization"], device["reasons"]) == (None, {"utilization": reason})
    assert device["details"] == {"utilization": f"dmiGetVDevBusyPercent: {name}"}
    assert device["memory_used"] == 105 * MIB
    assert card["reasons"] == {"compute_units_free": reason, "memory_free": reason}
    assert card["details"]["memory_free"] == f"dmiGetDeviceRemainingInfo: {name}"


@pytest.mark.parametrize(
    ("status", "source", "code", "text"),
    [
        (29, "failed", 12, "dmiGetDeviceCount: SMI_BUSY (29)"),
        (19, "denied", 4, "dmiGetDeviceCount: PERMISSION (19)"),
        (6, "unsupported", 0, "dmiGetDeviceCount: NOT_SUPPORTED (6)"),
        (3, "unsupported", 0, "dmiGetDeviceCount: OPEN_MKFD_FAILED (3): there is no /dev/mkfd"),
        (13, "unsupported", 0, "dmiGetDeviceCount: ERROR_NOT_INITIALIZED (13): there is no /dev/mkfd"),
    ],
)
def test_it_answers_nothing(root: Path, build: Build, status: int, source: str, code: int, text: str) -> None:
    if "mkfd" in text and Path("/dev/mkfd").exists():
        pytest.skip("this machine has a /dev/mkfd")
    found = ask(root, build(f"AT_dmiGetDeviceCount=return {status};"), code=code)
    check_fallback(found)
    assert f"libhydmi: {text}" in warnings(found)[0]
    assert found["sources"]["library"] == source


def test_some_devices_fail(root: Path, build: Build) -> None:
    found = ask(root, build("AT_dmiGetVDeviceInfo=if (device < 2) return 29;"))
    assert [*by_id(found)] == [0, 5, 8], "of 1 nothing is known, so that it is not made up"
    assert by_id(found)[0]["reasons"] == {"memory_used": "failed", "utilization": "failed"}
    assert warnings(found) == ["libhydmi counts 3 virtual devices and tells of 1: dmiGetVDeviceInfo: SMI_BUSY (29)"]


FUNCTIONS = ("MaxVDeviceCount", "VDeviceCount", "DeviceRemainingInfo", "VDeviceInfo", "VDevBusyPercent")


@pytest.mark.parametrize("function", [f"dmiGet{name}" for name in FUNCTIONS])
def test_without_a_function(root: Path, build: Build, function: str) -> None:
    found = ask(root, build(f"WITHOUT_{function}"))
    devices = by_id(found)
    assert found["sources"]["library"] == "ok"
    match function:
        case "dmiGetMaxVDeviceCount":
            assert found["most"] is None
        case "dmiGetDeviceRemainingInfo":
            assert found["cards"][0]["reasons"] == dict.fromkeys(("compute_units_free", "memory_free"), "unsupported")
        case "dmiGetVDeviceInfo":
            assert devices[0]["reasons"] == {"memory_used": "unsupported", "utilization": "unsupported"}
        case "dmiGetVDevBusyPercent":
            assert devices[5]["reasons"] == {"utilization": "unsupported"}
    assert [*devices] == ([0, 8] if function == "dmiGetVDeviceInfo" else [0, 1, 5, 8])


def test_without_any(root: Path, build: Build) -> None:
    found = ask(root, build("WITHOUT_dmiGetDeviceCount"), code=12)
    check_fallback(found)
    assert "the library has no such function" in warnings(found)[0]


def test_numbers_that_cannot_be_true(root: Path, build: Build) -> None:
    absurd = "info->compute_unit_count = -1; info->global_mem_size = SIZE_MAX; info->device_id = -7; return 0;"
    found = ask(root, build(f"AT_dmiGetVDeviceInfo={absurd}", "AT_dmiGetVDevBusyPercent=*percent = 101; return 0;"))
    device = by_id(found)[3]
    assert device["reasons"] == {"compute_units": "failed", "memory_total": "failed", "utilization": "failed"}
    assert set(device["details"].values()) == {"a number that cannot be true"}
    assert (device["memory_used"], device["card"]) == (0, None)


@pytest.mark.parametrize("count", ["INT_MAX", "INT_MIN", "-1", "0"])
def test_counts_that_cannot_be_true(root: Path, build: Build, count: str) -> None:
    found = ask(root, build(f"CARDS=({count})", f"MOST=({count})", f"COUNTED=({count})"))
    assert [*by_id(found)][-1] == 8
    if count == "INT_MAX":
        assert len(found["unknown_cards"]) == 64 - len(
            [card for card in found["cards"] if card["card_number"] is not None]
        )
        assert "there are more cards or virtual devices than dtk takes" in warnings(found)


@pytest.mark.parametrize("write", ["memset(info, 'x', 800); info->device_id = 0;", "memset(info, 0xff, 800);"])
def test_a_name_without_an_end_in_a_larger_struct(root: Path, build: Build, write: str) -> None:
    found = ask(root, build(f"AT_dmiGetVDeviceInfo=if (device != 1) return 15; {write} return 0;"))
    assert by_id(found)[1]["name"] in ("x" * 95, "?" * 95)


def test_a_name_that_would_move_the_cursor(root: Path, build: Build) -> None:
    done = run(root, build(r'NAME="\033[2J\377\nx"'))
    assert (done.returncode, done.stderr.count("warning")) == (0, 0)
    assert "\033" not in done.stdout


# ---- what it may do to us ----


def test_it_prints(root: Path, build: Build) -> None:
    talk = 'for (int i = 0; i < 10000; i++) printf("[hydmi] open device\\n"); fflush(stdout);'
    found = ask(root, build(f"AT_dmiGetDeviceCount={talk}", f"AT_dmiGetVDevBusyPercent={talk}"))
    assert by_id(found)[5]["utilization"] == 45
    assert found["warnings"] == []


@pytest.mark.parametrize("function", ["dmiGetDeviceCount", "dmiGetVDevBusyPercent"])
@pytest.mark.parametrize("end", ["abort();", "__builtin_trap();", "exit(0);", "_exit(3);"])
def test_it_ends_the_process(root: Path, build: Build, function: str, end: str) -> None:
    found = ask(root, build(f"AT_{function}={end}"), code=12)
    check_fallback(found)
    assert "crashed, or ended the process" in warnings(found)[0]
    assert found["sources"] == {"file": "ok", "library": "failed"}


def test_it_hangs(root: Path, build: Build) -> None:
    begin = time.monotonic()
    found = ask(root, build("AT_dmiGetVDeviceInfo=for (;;) pause();"), "--deadline", "0.5", code=11)
    assert time.monotonic() - begin < 5
    check_fallback(found)
    assert "no answer by the deadline" in warnings(found)[0]
    assert found["sources"] == {"file": "ok", "library": "stale"}


def test_it_leaves_processes_behind(root: Path, build: Build) -> None:
    """Hygon's runs ps and lsmod, which must not keep what waits for the frames."""
    child = 'if (fork() == 0) { execlp("sleep", "sleep", "30", (char *)0); _exit(1); }'
    begin = time.monotonic()
    assert by_id(ask(root, build(f"AT_dmiGetDeviceCount={child}")))[5]["utilization"] == 45
    assert time.monotonic() - begin < 20


# ---- where it is ----


def test_a_name_that_leads_nowhere(root: Path) -> None:
    found = ask(root, Path("/nowhere/libhydmi.so"), code=12)
    check_fallback(found)
    assert "/nowhere/libhydmi.so: cannot open shared object file" in warnings(found)[0]


def test_what_is_no_library(root: Path, tmp_path: Path) -> None:
    (tmp_path / "libhydmi.so").write_text("text")
    found = ask(root, tmp_path / "libhydmi.so", code=12)
    check_fallback(found)
    assert "cannot be loaded" in warnings(found)[0]


def test_what_is_no_file_is_not_opened(root: Path, tmp_path: Path) -> None:
    """To open a FIFO would wait for ever, and would be seen as a library that hangs."""
    os.mkfifo(tmp_path / "libhydmi.so")
    for name in (tmp_path / "libhydmi.so", Path("/dev/null"), tmp_path):
        found = ask(root, name, code=12)
        check_fallback(found)
        assert f"{name}: not a regular file" in warnings(found)[0]


def test_a_library_that_misses_another(root: Path, build: Build) -> None:
    found = ask(root, build("AT_dmiGetDeviceCount=extern int nobody_has(void); nobody_has();"), code=12)
    check_fallback(found)
    assert "nobody_has" in warnings(found)[0]


@pytest.fixture
def opt(root: Path) -> Path:
    """/opt of the machine."""
    if any(str(Path(path)).startswith("/opt/") for path in (sys.prefix, sys.base_prefix)):
        pytest.skip("Python itself is in /opt")
    (root / "opt").mkdir()
    return root / "opt"


@pytest.mark.parametrize(
    "place", ["hyhal/lib/libhydmi.so", "hyhal/lib/libhydmi.so.1.4", "dtk/.hyhal/lib/libhydmi.so.1"]
)
def test_known_places(root: Path, build: Build, opt: Path, place: str) -> None:
    build(output=opt / place)
    found = ask(root, None, parts=("opt",))
    assert (found["library"], by_id(found)[5]["utilization"]) == (f"/opt/{place}", 45)


def test_known_places_after_a_name_that_leads_nowhere(root: Path, build: Build, opt: Path) -> None:
    build(output=opt / "hyhal/lib/libhydmi.so")
    found = ask(root, Path("/nowhere.so"), parts=("opt",))
    assert found["library"] == "/opt/hyhal/lib/libhydmi.so"
    (warning,) = warnings(found)
    assert "looked for in the known places, since: /nowhere.so: cannot open" in warning


def test_none(root: Path) -> None:
    """No warning: most nodes have none. The table says what is not known without it."""
    done = run(root, None)
    if "a card can have" in done.stdout or "says /" in done.stdout:
        pytest.skip("this machine has a libhydmi")
    assert (done.returncode, "warning" in done.stderr) == (0, False)
    assert "known to Hygon's libhydmi.so, which was not found" in " ".join(done.stdout.split())


def test_not_asked_where_no_hygon_card_is(root: Path, build: Build, opt: Path) -> None:
    build("AT_dmiGetDeviceCount=abort();", output=opt / "hyhal/lib/libhydmi.so")
    assert ask(root, None, parts=("opt",), code=12)["sources"]["library"] == "failed"
    etc = shutil.copytree(root / "etc", root / "kept")
    sim.write(root, ["mi210:1"])
    shutil.copytree(etc, root / "etc", dirs_exist_ok=True)
    assert ask(root, None, parts=("opt",))["sources"] == {"file": "ok", "library": "unsupported"}


def test_of_another_machine_it_is_not_asked(root: Path, build: Build) -> None:
    library = build("AT_dmiGetDeviceCount=abort();")
    variables = environment(DTK_SMI_HYDMI_LIB=str(library))
    done = rig.run(root, [SMI, "virtual", "--root", str(root)], variables)
    assert (done.returncode, "warning" in done.stderr) == (0, False)
