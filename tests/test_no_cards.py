"""What dtk-smi says when there is nothing to show, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from machines import device_directory, put
from smi import smi, validate

import dtk

Get = Callable[[str], Path]
HYGON = {"vendor": "0x1d94", "device": "0x6210", "class": "0x0b4000"}
AMD = {"vendor": "0x1002", "device": "0x740f", "class": "0x038000"}
BMC = {"vendor": "0x1a03", "device": "0x2000", "class": "0x030000"}
BRIDGE = {"vendor": "0x1d94", "device": "0x1480", "class": "0x060000"}


def pci(root: Path, functions: Iterable[dict[str, str]], modules: Iterable[str] = ()) -> Path:
    """A root with these PCI functions, none of which has a driver, and these modules loaded."""
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    for number, function in enumerate(functions):
        bdf = f"0000:{number + 3:02x}:00.0"
        for name, content in function.items():
            put(root, f"sys/devices/pci0000:00/{bdf}/{name}", f"{content}\n")
        (bus / bdf).symlink_to(f"../../../devices/pci0000:00/{bdf}")
    for module in modules:
        put(root, f"sys/module/{module}/initstate", "live\n")
    return root


def explanation(root: Path, *arguments: str, code: int) -> list[str]:
    """The lines on stderr, the same for every view; stdout has nothing, or a valid document."""
    done = smi("--json", *arguments, root=root)
    document = json.loads(done.stdout)
    validate(document)
    assert (done.returncode, document["devices"], document["cards"]) == (code, [], [])
    lines = done.stderr.splitlines()
    assert document["warnings"] == [
        {"code": {9: "no_driver", 10: "no_card"}[code], "text": lines[0].removeprefix("dtk-smi: ")}
    ]
    for view in ([], ["-L"]):
        done = smi(*view, *arguments, root=root)
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (code, "", lines)
    assert len(lines) <= 10
    assert all(line.startswith("  ") for line in lines[1:])
    assert lines[-1].startswith("  next: ")
    return lines


def test_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    lines = explanation(tmp_path, code=10)
    assert "no Hygon DCU and no AMD GPU" in lines[0]
    assert str(tmp_path) in lines[0]
    assert "no Hygon or AMD cards" in lines[1]
    assert "none of amdgpu, radeon, hydcu, hycu" in lines[2]
    assert "no sys/class/drm, no sys/class/kfd" in lines[3]
    assert "--root" in lines[-1]


def test_only_the_screen_of_the_bmc(tmp_path: Path) -> None:
    lines = explanation(pci(tmp_path, [BRIDGE, BMC]), code=10)
    assert "0000:04:00.0" in lines[1]
    assert "BMC" in lines[1]


@pytest.mark.parametrize("card", [HYGON, AMD], ids=["hygon", "amd"])
def test_card_without_a_driver(tmp_path: Path, card: dict[str, str]) -> None:
    lines = explanation(pci(tmp_path, [BMC, BRIDGE, card]), code=9)
    assert "a card at 0000:05:00.0" in lines[0]
    assert "no driver has it" in lines[0]


def test_cards_that_the_loaded_driver_did_not_take(tmp_path: Path) -> None:
    lines = explanation(pci(tmp_path, [HYGON, HYGON], ["hycu"]), code=9)
    assert "2 cards, the first at 0000:03:00.0" in lines[0]
    assert "hycu loaded" in lines[2]


def test_keys_do_not_change_what_is_said(tmp_path: Path) -> None:
    """9 and 10 come before 6, and 2 before all."""
    pci(tmp_path, [HYGON])
    assert explanation(tmp_path, "-d", "0", code=9) == explanation(tmp_path, code=9)
    done = smi("-L", "-d", "0,what:ever", root=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_one_card_with_a_driver_is_enough(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    for driver in (root / "sys/bus/pci/drivers/amdgpu").glob("0000:*"):
        if driver.name != "0000:03:00.0":
            (device_directory(root, driver.name) / "driver").unlink()
            driver.unlink()
    assert smi("-L", root=root).returncode == 0


# ---- this machine, in the states that a test cannot bring about ----


def steps(**found: object) -> list[str]:
    """What is said of a live machine with these findings."""
    from dtk_cli.no_cards import explain

    counts = ("pci_cards", "pci_unbound", "pci_displays", "dev_render", "dev_render_access", "kfd_nodes", "kfd_denied")
    nothing = dict.fromkeys(counts, 0)
    flags = dict.fromkeys(("drm", "kfd", "dev_kfd", "dev_kfd_access", "pci_denied", "kfd_list_denied"), False)
    nodes = (f"{node}_{what}" for node in ("kfd", "dri") for what in ("group", "gid", "mode"))
    names = dict.fromkeys(("first_unbound", "first_display", "render_group", "numa_nodes", *nodes))
    probe = dtk.Probe(**{**nothing, **flags, **names, "modules": (), "module_states": {}, **found})
    snapshot = SimpleNamespace(probe=probe, system=SimpleNamespace(live=True), root="/")
    code, lines = explain(snapshot)  # type: ignore[arg-type]
    assert code == (9 if probe.pci_unbound else 10)
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 110
    return lines


def test_live_machine_without_anything() -> None:
    lines = steps()
    assert "no /dev/kfd, no render nodes" in "\n".join(lines)
    assert "lspci" in "\n".join(lines)
    assert "--device /dev/kfd" in lines[-1]


def test_live_machine_without_a_driver() -> None:
    lines = steps(pci_cards=1, pci_unbound=1, first_unbound="0000:43:00.0")
    assert "modprobe" in lines[-1]
    lines = steps(pci_cards=1, pci_unbound=1, first_unbound="0000:43:00.0", modules=("hycu",))
    assert "dmesg | grep -iE 'hycu'" in lines[-1]


def test_user_outside_the_group() -> None:
    lines = steps(modules=("amdgpu",), dev_kfd=True, dev_kfd_access=False, dev_render=1, render_group="render")
    assert "may not open them; they belong to render" in "\n".join(lines)
    assert "usermod -aG render" in lines[-1]
    assert "container" in lines[-2]


def test_container_without_sys() -> None:
    lines = steps(dev_kfd=True, dev_kfd_access=True, dev_render=2, dev_render_access=2)
    assert "/sys" in lines[-1]
    assert not any("group" in line for line in lines)
    lines = steps(pci_cards=2, modules=("amdgpu",))
    assert "a container needs the host's /sys" in lines[-1]
