"""The vendor's own software reads a simulated machine and says the same as DTK, number by number.

Not compared are the library's known defects and what only it tells: KNOWN, with the reason. A key of rocm-smi that is
neither compared nor known fails the test.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import math
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import rig

import dtk
from dtk import sim

HERE = Path(__file__).parent
SEED, TICK = 3, 40

# What rocm-smi 5.2.3 prints and DTK does not say likewise: its key, and why.
KNOWN = {
    r"GPU OverDrive value \(%\)": "it takes the missing pp_sclk_od for 0 %",
    r".* clock level:?": "the level's number is not a reading; the clock is compared",
    r"(GFX|Memory) Activity": "a raw accumulator; compared with the simulator's own",
    r"Energy counter": "in units of the card; the energy is compared",
    r"Card model": "it looks for a subsystem name in the system's pci.ids and falls back to a number",
    r"Card vendor": "a name where the system has pci.ids, else a number",
    r"Card SKU": "cut out of the VBIOS version",
}
# More of its defects, which decide how the tests run:
#   the library counts a BMC's connector as a card when asked for all vendors, and aborts: AMD machines with flags 0
#   rsmi_dev_ecc_count_get aborts on the third row ("de:") of a ras file: no --showrasinfo
#   --showpids fails for a process that may open only some cards: compared are those that may open all
# And one number that is wrong by a known factor: a count of the energy counter is 2^-16 J, which is 15.2588 µJ; the
# library reckons with this, 0.27 % more.
ENERGY_UNIT = ctypes.c_float(15.3).value

FREQUENCIES = {"sclk": "clock_gfx", "mclk": "clock_memory", "socclk": "clock_soc", "fclk": "clock_fabric"}
TEMPERATURES = {
    "edge": "temperature_edge",
    "junction": "temperature_junction",
    "memory": "temperature_memory",
    **{f"HBM {n}": f"temperature_hbm{n}" for n in range(4)},
}


@pytest.fixture(scope="module")
def mi210(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("witness") / "mi210"
    sim.write(root, ["mi210:8"], SEED, TICK)
    return root


@pytest.fixture(scope="module")
def k100_ai(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("witness") / "k100_ai"
    sim.write(root, ["k100_ai:8"], SEED, TICK)
    return root


def by_bdf(bdfid: int) -> str:
    return f"{bdfid >> 32:04x}:{bdfid >> 8 & 0xFF:02x}:{bdfid >> 3 & 0x1F:02x}.{bdfid & 7}"


# ---- rocm-smi ----


@pytest.fixture(scope="module")
def rocm_smi(mi210: Path) -> dict[str, dict[str, str]]:
    if not shutil.which("rocm-smi"):
        pytest.skip("needs rocm-smi")
    command = ["rocm-smi", "-a", "--showmeminfo", "vram", "vis_vram", "gtt", "--json"]
    found: dict[str, dict[str, str]] = rig.run_json(mi210, command)
    for card in found.values():
        if "PCI Bus" in card:
            card["PCI Bus"] = card["PCI Bus"].lower()  # it prints the digits A to F large
    return found


def expected(device: dtk.Device, sample: dtk.Sample) -> dict[str, object]:
    """What rocm-smi should print for a card: numbers to compare as numbers, texts as texts."""
    info = device.info()
    rows: dict[str, object] = {
        "GPU ID": device.device_id,
        "Unique ID": device.unique_id,
        "VBIOS version": info["vbios"],
        "Performance Level": info["performance_level"],
        "GPU memory vendor": info["memory_vendor"],
        "Serial Number": device.serial,
        "PCI Bus": device.bdf,
        "Card series": device.name,
        "Max Graphics Package Power (W)": sample.power_limit,
        "Average Graphics Package Power (W)": sample.power_average,
        "GPU use (%)": sample.utilization_gpu,
        "GPU memory use (%)": sample.utilization_memory,
        "PCIe Replay Count": sample.pcie_replay_count,
        "Voltage (mV)": sample.voltage_gfx,
        "VRAM Total Memory (B)": sample.memory_total,
        "VRAM Total Used Memory (B)": sample.memory_used,
        "VIS_VRAM Total Memory (B)": sample.memory_visible_total,
        "VIS_VRAM Total Used Memory (B)": sample.memory_visible_used,
        "GTT Total Memory (B)": sample.memory_gtt_total,
        "GTT Total Used Memory (B)": sample.memory_gtt_used,
    }
    rows |= {f"Temperature (Sensor {key}) (C)": getattr(sample, name) for key, name in TEMPERATURES.items()}
    rows |= {f"{key} clock speed:": getattr(sample, name) for key, name in FREQUENCIES.items()}
    rows["pcie clock level"] = f"1 ({sample.pcie_link_speed}GT/s x{sample.pcie_link_width})"
    assert sample.energy is not None
    rows["Accumulated Energy (uJ)"] = sample.energy * (1 << 16) * ENERGY_UNIT
    return rows


def same(said: str, ours: object) -> bool:
    if isinstance(ours, str):
        return said == ours
    if not isinstance(ours, (int, float)):
        return False
    number = re.fullmatch(r"\(?(0x[0-9a-f]+|[0-9.]+)(Mhz\))?", said)
    if not number:
        return False
    text = number[1]
    return int(text, 16) == ours if text.startswith("0x") else math.isclose(float(text), ours, rel_tol=1e-9)


def known(key: str) -> bool:
    return any(re.fullmatch(pattern, key) for pattern in KNOWN)


def test_rocm_smi_says_the_same_of_every_card(mi210: Path, rocm_smi: Mapping[str, Mapping[str, str]]) -> None:
    said = {card["PCI Bus"]: card for name, card in rocm_smi.items() if name.startswith("card")}
    with dtk.System(mi210) as system:
        assert sorted(said) == [device.bdf for device in system.devices()]
        for device in system.devices():
            sample = device.sample()
            ours, theirs = expected(device, sample), said[device.bdf]
            wrong = {key: value for key, value in ours.items() if not same(theirs.get(key, ""), value)}
            assert wrong == {}, (device.bdf, theirs)
            check_firmware(device, theirs)
            rest = [key for key in theirs if key not in ours and "firmware version" not in key]
            assert [key for key in rest if not known(key)] == []
        assert rocm_smi["system"]["Driver version"] == system.info.drivers["amdgpu"]


def check_firmware(device: dtk.Device, said: Mapping[str, str]) -> None:
    """It prints some versions in hexadecimal, some as decimal numbers and some as four numbers with points."""
    ours = {name.lower().replace("_", " "): int(version, 16) for name, version in device.firmware().items()}
    theirs = {key.partition(" firmware")[0].lower(): text for key, text in said.items() if "firmware version" in key}
    assert theirs.keys() == ours.keys()
    for name, text in theirs.items():
        value = int.from_bytes(map(int, text.split(".")), "big") if "." in text else int(text, 0)
        assert value == ours[name], name


def test_rocm_smi_reads_the_accumulators(rocm_smi: Mapping[str, Mapping[str, str]]) -> None:
    for card in sim.build(["mi210:8"], SEED, TICK).cards:
        (said,) = (one for one in rocm_smi.values() if one.get("PCI Bus") == card.bdf)
        assert int(said["GFX Activity"]) == int(card.state.activity[0]) % (1 << 32)
        assert int(said["Memory Activity"]) == int(card.state.memory_activity) % (1 << 32)


def test_rocm_smi_sees_the_processes(rocm_smi: Mapping[str, Mapping[str, str]]) -> None:
    machine = sim.build(["mi210:8"], SEED, TICK)
    said = {int(key[3:]): text for key, text in rocm_smi["system"].items() if key.startswith("PID")}
    opened = {process.pid: process for process in machine.processes if process.kfd}
    assert said.keys() == opened.keys()
    compared = 0
    for pid, text in said.items():
        _, cards, vram, sdma, _ = text.split(", ")
        uses = opened[pid].uses
        assert int(cards) == len(uses)
        if opened[pid].cgroup in ("system", "session"):
            assert (int(vram), int(sdma)) == (sum(use.vram for use in uses), sum(use.sdma for use in uses))
            compared += bool(uses)
    assert compared


# ---- pyrsmi and the C API ----


def differences(root: Path, said: list[dict[str, Any]], convert: Callable[[str, Any], Any]) -> dict[str, Any]:
    """By card and reading, what a witness says otherwise; a reading it does not have counts as one."""
    found: dict[str, Any] = {}
    with dtk.System(root) as system:
        assert sorted(by_bdf(card["bdfid"]) for card in said) == [device.bdf for device in system.devices()]
        for card in said:
            device = system.device(by_bdf(card.pop("bdfid")))
            sample = device.sample()
            for name, value in card.items():
                ours = getattr(device, name) if hasattr(device, name) else getattr(sample, name)
                if value is None or convert(name, value) != ours:
                    found[f"{device.bdf} {name}"] = (value, ours)
    return found


def test_pyrsmi_says_the_same(mi210: Path, tmp_path: Path) -> None:
    rig.needs_library()
    try:
        version = importlib.metadata.version("pyrsmi")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs pyrsmi")
    assert version == "0.2.0"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/librocm_smi64.so").symlink_to(rig.library_path() or "")
    env = {"ROCM_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    said = rig.run_json(mi210, [sys.executable, str(HERE / "witness/use_pyrsmi.py")], env)
    assert len(said) == 8
    assert differences(mi210, said, lambda _, value: value) == {}


def in_our_units(name: str, value: Any) -> Any:
    """The library has millidegrees and microwatts."""
    scale = {"temperature": 1000, "power": 1000000}.get(name.partition("_")[0])
    return value / scale if scale else value


@pytest.mark.parametrize(("name", "flags"), [("mi210", 0), ("k100_ai", 1)])
def test_the_library_says_the_same(name: str, flags: int, request: pytest.FixtureRequest) -> None:
    rig.needs_library()
    root: Path = request.getfixturevalue(name)
    said = rig.run_json(root, [sys.executable, str(HERE / "witness/use_library.py"), rig.LIBRARY, str(flags)])
    assert (said["status"], len(said["cards"])) == (0, 8)
    assert differences(root, said["cards"], in_our_units) == {}


def test_nothing_stays_in_shared_memory(mi210: Path) -> None:
    """The library leaves files there; its programs run with a /dev/shm of their own."""
    rig.needs_library()
    before = set(Path("/dev/shm").iterdir())
    rig.run(mi210, [sys.executable, str(HERE / "witness/use_library.py"), rig.LIBRARY, "0"])
    assert {path for path in set(Path("/dev/shm").iterdir()) - before if "rocm_smi" in path.name} == set()
