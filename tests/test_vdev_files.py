"""Virtual devices as their configuration files tell: the parser, good and damaged files, and what is made of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from machines import put
from smi import bare, output, smi, validate_virtual
from test_parsers import MALFORMED, parse, prove

import dtk
from dtk import sim
from dtk._native import ffi, lib

OK, UNSUPPORTED, FAILED = 0, 1, 5
CARD = "0000:05:00.0"


def text(vdev: int = 0, bdf: str = CARD, **lines: object) -> str:
    known = {"PciBusId": bdf, "cu_count": 30, "mem": "16384 MiB", "device_id": 0, "vdev_id": vdev, "pipe_id": 3}
    return "".join(f"{key}: {value}\n" for key, value in {**known, "enable": 1, **lines}.items() if value is not None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two K100_AI, at 05:00.0 and 25:00.0, without virtual devices."""
    sim.write(tmp_path / "node", ["k100_ai:2"])
    return tmp_path / "node"


def table(root: Path) -> dtk.VirtualTable:
    """What is there, which is the same by both ways."""
    with dtk.System(root) as system:
        found = system.virtual_devices()
    taken = dtk.take_snapshot(root, virtual=True).virtual
    assert taken == found
    return found


def only(root: Path) -> dtk.VirtualDevice:
    (device,) = table(root).devices
    return device


# ---- the parser ----


def test_parser() -> None:
    raw = text(7, cu_count=30).replace("cu_count", "cu_mask: 0x00ff\ncu_mask: 0x0\ncu_count")
    vdev = parse("vdev", "struct vdev", raw.encode())
    assert (vdev.id.value, vdev.card.value, vdev.compute_units.value, vdev.pipe.value) == (7, 0, 30, 3)
    assert (vdev.memory.value, vdev.enabled.value) == (16384 << 20, 1)
    assert (vdev.address.domain, vdev.address.bus, vdev.has_address) == (0, 5, True)


@pytest.mark.parametrize("raw", [b"", b"\n", b"\0vdev_id: 3", b"\x7fELF\xff\xfe" * 50, b"vdev_id 3", b"x: 1\n"])
def test_parser_refuses(raw: bytes) -> None:
    assert parse("vdev", "struct vdev", raw) == MALFORMED


VALUES = st.one_of(
    st.integers(-2, 2**65).map(str),
    st.text("0123456789 -xMGi\tB", max_size=12),
    st.integers(0, 2**31).map(lambda n: f"{n} MiB"),
)


@prove
@given(VALUES, VALUES)
@example("65535", "1073741824 MiB")
@example("65536", "1073741825 MiB")
def test_parser_of_numbers(units: str, memory: str) -> None:
    vdev = parse("vdev", "struct vdev", f"vdev_id: 1\ncu_count: {units}\nmem:{memory}\n".encode())

    def expected(form: str, value: str, most: int) -> tuple[int, int]:
        found = re.fullmatch(form, value.strip(" \t"))
        return (OK, int(found[1])) if found and int(found[1]) <= most else (FAILED, 0)

    assert (vdev.compute_units.status, vdev.compute_units.value) == expected(r"(\d+)", units, 65535)
    status, mebibytes = expected(r"(\d+)[ \t]*MiB", memory, 1 << 30)
    assert (vdev.memory.status, vdev.memory.value) == (status, mebibytes << 20)


@prove
@given(st.binary(max_size=300))
def test_parser_takes_any_bytes(raw: bytes) -> None:
    vdev = parse("vdev", "struct vdev", b"enable: 1\n" + raw)
    assert (vdev.enabled.status, vdev.enabled.value) == (OK, 1)
    assert all(getattr(vdev, name).status in (OK, UNSUPPORTED, FAILED) for name in ("id", "card", "pipe", "memory"))


def test_parser_takes_the_first_of_several_lines() -> None:
    vdev = parse("vdev", "struct vdev", b"cu_count: 4\ncu_count: 8\nmem: x\nmem: 5 MiB\n")
    assert (vdev.compute_units.value, vdev.memory.status) == (4, FAILED)


# ---- files ----


def test_a_simulated_node_has_them(tmp_path: Path) -> None:
    sim.write(tmp_path / "node", ["k100_ai:2", "mi210:1"], virtual=3)
    found = table(tmp_path / "node")
    assert [device.id for device in found.devices] == [*range(6)]
    assert [device.card for device in found.devices] == [0, 0, 0, 1, 1, 1]
    with dtk.System(tmp_path / "node") as system:
        first, second, other = system.devices()
        assert {device.bdf for device in second.virtual_devices()} == {second.bdf}
        assert sum(device.compute_units or 0 for device in first.virtual_devices()) == first.compute_units == 120
        assert other.virtual_devices() == ()
    assert found.sources == {"file": "ok", "library": "unsupported"}
    assert (found.cards, found.warnings, found.library, found.most) == ((), (), None, None)


def test_what_a_file_tells(root: Path) -> None:
    put(root, "etc/vdev/vdev3.conf", text(3))
    put(root, "etc/vdev/notes.txt", "x")
    put(root, "etc/vdev/vdev.conf", "x")
    assert only(root)._asdict() == {
        "id": 3,
        "card": 0,
        "bdf": CARD,
        "card_number": 0,
        "name": None,
        "compute_units": 30,
        "memory_total": 16 << 30,
        "memory_used": None,
        "utilization": None,
        "container": None,
        "pipe": 3,
        "enabled": True,
        "sources": ("file",),
        "reasons": {"memory_used": "unsupported", "utilization": "unsupported"},
        "details": {},
    }
    assert table(root).warnings == ()


def test_a_file_with_only_a_part(root: Path) -> None:
    put(root, "etc/vdev/vdev12.conf", "PciBusId: 05:00.0\nmem: lots\nenable: 2\n")
    device = only(root)
    assert (device.id, device.card, device.compute_units, device.memory_total) == (12, 0, None, None)
    assert (device.pipe, device.enabled, device.card_number) == (None, None, None)
    assert (device.reasons["compute_units"], device.reasons["memory_total"]) == ("unsupported", "failed")
    assert device.details == {"memory_total": "not of the form that is expected"}


def test_of_a_container(root: Path) -> None:
    put(root, "etc/vdev/docker/vdev0.conf", text(4))
    assert only(root).id == 4
    put(root, "etc/vdev/vdev4.conf", text(4, cu_count=8))
    assert only(root).compute_units == 8, "the host's goes before"
    assert table(root).warnings == ()


def test_two_files_of_one_device(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(4))
    put(root, "etc/vdev/vdev1.conf", text(4))
    assert only(root).id == 4
    ((code, warning),) = table(root).warnings
    assert code == "virtual_files"
    assert re.fullmatch(r"left out etc/vdev/vdev[01]\.conf: a second file of the same virtual device", warning)


def test_a_card_that_is_not_there(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0, "0000:99:00.0"))
    put(root, "etc/vdev/vdev1.conf", text(1, "nowhere"))
    first, second = table(root).devices
    assert (first.card, first.bdf, second.card, second.bdf) == (None, "0000:99:00.0", None, None)
    assert table(root).warnings == (
        ("virtual_card", "virtual device 0: its card 0000:99:00.0 is not there"),
        ("virtual_card", "virtual device 1: nothing says which card it is on"),
    )
    done = smi("virtual", root=root)
    assert "warning: virtual device 0: its card 0000:99:00.0 is not there" in done.stderr
    assert done.returncode == 0
    assert smi("virtual", "-d", "0", root=root).stdout.startswith("no virtual devices")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("empty", "not of the form"),
        ("binary", "not of the form"),
        ("huge", "File too large"),
        ("link", "a symbolic link"),
        ("directory", "Is a directory"),
        ("fifo", "No such device"),
    ],
)
def test_a_file_that_is_damaged(root: Path, tmp_path: Path, damage: str, why: str) -> None:
    (tmp_path / "outside").write_text(text(9))
    put(root, "etc/vdev/vdev1.conf", text(1))
    path = root / "etc/vdev/vdev0.conf"
    match damage:
        case "empty":
            path.touch()
        case "binary":
            path.write_bytes(os.urandom(1000).replace(b":", b""))
        case "huge":
            path.write_text(text(0) * 1000)
        case "link":
            path.symlink_to(tmp_path / "outside")
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
    assert only(root).id == 1
    ((_, warning),) = table(root).warnings
    assert warning.startswith(f"left out etc/vdev/vdev0.conf: {why}")


@pytest.mark.parametrize("target", ["../../outside", "/etc"])
def test_a_directory_that_leads_out_of_the_root(root: Path, tmp_path: Path, target: str) -> None:
    put(tmp_path, "outside/vdev0.conf", text(0))
    (root / "etc/vdev").symlink_to(target)
    found = table(root)
    assert (found.devices, found.sources["file"]) == ((), "failed")
    assert found.warnings == (("virtual_files", "etc/vdev: a symbolic link, which is not followed"),)


def test_files_that_may_not_be_read(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0))
    put(root, "etc/vdev/vdev1.conf", text(1))
    (root / "etc/vdev/vdev0.conf").chmod(0)
    code = "import dtk, sys; print(dtk.System(sys.argv[1]).virtual_devices())"
    command = [*bare(), sys.executable, "-c", code, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert "left out etc/vdev/vdev0.conf: Permission denied" in done.stdout
    (root / "etc/vdev").chmod(0)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    (root / "etc/vdev").chmod(0o755)
    assert "'file': 'denied'" in done.stdout


def test_more_than_there_can_be(root: Path) -> None:
    for number in range(1100):
        put(root, f"etc/vdev/vdev{number}.conf", text(number))
    found = table(root)
    assert len(found.devices) == 1024
    assert found.devices == tuple(sorted(found.devices, key=lambda device: device.id))
    assert [code for code, _ in found.warnings] == ["virtual_truncated"]


def test_numbers_at_their_limits(root: Path) -> None:
    put(root, "etc/vdev/vdev2147483647.conf", "enable: 0\n")
    put(root, "etc/vdev/vdev2147483648.conf", "enable: 0\n")
    put(root, "etc/vdev/vdev99999999999999999999.conf", "enable: 0\n")
    device = only(root)
    assert (device.id, device.enabled) == (2147483647, False)


def test_arguments_in_c(root: Path) -> None:
    with dtk.System(root) as system:
        opened = ffi.new("dtk_virtuals **")
        for places in (0, 4, 7):
            status = lib.dtk_virtuals_read(system.handle(), places, ffi.NULL, opened)
            assert status == -lib.DTK_INVALID_ARGUMENT
        assert lib.dtk_virtuals_read(ffi.NULL, 1, ffi.NULL, opened) == -lib.DTK_INVALID_ARGUMENT
        lib.dtk_virtuals_free(ffi.NULL)
        put(root, "etc/vdev/vdev0.conf", text(0))
        assert lib.dtk_virtuals_read(system.handle(), 3, b"/nowhere/libhydmi.so", opened) == 0
        scan = ffi.new("dtk_virtual_scan *")
        assert lib.dtk_virtuals_scan(opened[0], scan, ffi.sizeof("dtk_virtual_scan")) == 0
        assert (scan.devices, scan.library) == (1, lib.DTK_UNSUPPORTED), "no library on a foreign root"
        short = ffi.new("dtk_virtual[]", 1)
        assert lib.dtk_virtuals_devices(opened[0], short, 4, 1) == 1
        assert (short[0].id, short[0].sources) == (0, 0), "an older caller gets what it knows"
        assert lib.dtk_virtuals_devices(opened[0], ffi.NULL, 4, 1) == -lib.DTK_INVALID_ARGUMENT
        assert lib.dtk_virtuals_cards(opened[0], ffi.NULL, 0, 0) == 0
        lib.dtk_virtuals_free(opened[0])


# ---- the command ----


def document(*arguments: str, root: Path) -> Any:
    found = json.loads(output("virtual", "--json", *arguments, root=root))
    validate_virtual(found)
    return found


def test_document(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0))
    put(root, "etc/vdev/vdev1.conf", text(1, "0000:25:00.0", cu_count=0))
    found = document(root=root)
    assert [device["compute_units"] for device in found["virtual"]] == [30, 0]
    assert [(card["index"], card["compute_units_free"]) for card in found["cards"]] == [(0, None), (1, None)]
    assert found["cards"][0]["reasons"] == {"compute_units_free": "unsupported", "memory_free": "unsupported"}
    assert found["simulated"] is True
    assert [device["id"] for device in document("-d", "25:00.0", root=root)["virtual"]] == [1]


def test_table(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0))
    put(root, "etc/vdev/vdev10.conf", text(10, "0000:25:00.0", cu_count=0, enable=0))
    lines = output("virtual", root=root).splitlines()
    assert [line.split() for line in lines[2:4]] == [
        ["0", "0", "05:00.0", "30", "-/16", "-", "3", "yes", "file", "-"],
        ["10", "1", "25:00.0", "shared", "-/16", "-", "3", "no", "file", "-"],
    ]
    assert "of another machine" in lines[4]
    assert max(map(len, lines)) <= 80
    assert output("virtual", root=root, LC_ALL="C").isascii()


def test_table_of_very_little_and_very_much(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0, mem="8 MiB"))
    put(root, "etc/vdev/vdev2147483647.conf", text(2147483647, cu_count=65535, mem="953674316 MiB", pipe_id=2147483647))
    lines = output("virtual", root=root).splitlines()
    assert "-/<0.1" in lines[2]
    assert "65535" in lines[3]
    assert max(map(len, lines)) <= 80


def test_without_virtual_devices(root: Path) -> None:
    assert output("virtual", root=root).startswith("no virtual devices: each card is whole (there is no etc/vdev)\n")
    assert document(root=root)["virtual"] == []
    (root / "etc/vdev").mkdir()
    assert "(etc/vdev has no file of one)" in output("virtual", root=root)


def test_of_a_demo() -> None:
    assert output("virtual", "--demo").startswith("no virtual devices: each card is whole")


def test_on_amd_cards(tmp_path: Path) -> None:
    sim.write(tmp_path / "node", ["mi210:1"], virtual=2)
    assert "only Hygon cards can have virtual devices" in output("virtual", root=tmp_path / "node")


def test_without_cards(root: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0))
    shutil.rmtree(root / "sys")
    (root / "sys").mkdir()
    done = smi("virtual", "--json", root=root)
    assert done.returncode == 10
    found = json.loads(done.stdout)
    validate_virtual(found)
    assert ([device["card"] for device in found["virtual"]], found["cards"]) == ([None], [])


@pytest.mark.parametrize("arguments", [["-d", "9"], ["--frob"], ["extra"]])
def test_bad_usage(root: Path, arguments: list[str]) -> None:
    done = smi("virtual", *arguments, root=root)
    assert (done.returncode, done.stdout) == (6 if "-d" in arguments else 2, "")
    assert "Traceback" not in done.stderr


def test_library_name_that_is_none(root: Path) -> None:
    for name in ("", "a\0b"):
        with pytest.raises(dtk.InvalidArgument, match="path of a library"):
            dtk.take_snapshot(root, virtual=name)


def test_library_of_another_machine_is_not_loaded(root: Path, tmp_path: Path) -> None:
    put(root, "etc/vdev/vdev0.conf", text(0))
    (tmp_path / "libhydmi.so").write_text("no library")
    assert "warning" not in smi("virtual", root=root, DTK_SMI_HYDMI_LIB=str(tmp_path / "libhydmi.so")).stderr
