"""Simulated machines: their files have the kernel's shape, are the same for a seed, and respect other people's data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from machines import MACHINES, SEED, device_directory, hwmon_directory, properties

import dtk
from dtk import InvalidArgument, sim
from dtk.sim.kfd import gfx_target_version
from dtk.sim.machine import settle
from dtk.sim.tree import MARKER, layout, readings, refresh, tree

Get = Callable[[str], Path]
NODES = "sys/devices/virtual/kfd/kfd/topology/nodes"
every_machine = pytest.mark.parametrize("name", MACHINES)
every_model = pytest.mark.parametrize("model", sim.MODELS.values(), ids=list(sim.MODELS))


def cards(root: Path) -> list[Path]:
    """Devices of the DRM cards below a root that are no BMC."""
    devices = {path.resolve().parent.parent for path in (root / "sys/class/drm").glob("card[0-9]*")}
    return sorted(path for path in devices if (path / "gpu_busy_percent").exists())


def content(root: Path) -> dict[str, bytes | str]:
    """All of a tree: files to their bytes, links to their text."""
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


# ---- shape ----


@every_machine
def test_links_are_relative_and_stay_inside(machine: Get, name: str) -> None:
    root = machine(name).resolve()
    links = [path for path in (root / "sys").rglob("*") if path.is_symlink()]
    assert links
    for link in links:
        assert not os.path.isabs(link.readlink())
        assert link.resolve(strict=True).is_relative_to(root)


@every_machine
def test_text_files_end_as_the_kernel_ends_them(machine: Get, name: str) -> None:
    for path, data in content(machine(name)).items():
        if isinstance(data, bytes) and not path.endswith(("/gpu_metrics", "/cmdline")):
            assert data.endswith(b"\n") or data == b"", path
            assert data.isascii(), path


@every_machine
def test_links_have_the_kernels_text(machine: Get, name: str) -> None:
    root = machine(name)
    assert os.readlink(root / "sys/class/kfd/kfd") == "../../devices/virtual/kfd/kfd"
    for directory in cards(root):
        drm = next((directory / "drm").glob("card*"))
        assert os.readlink(root / "sys/class/drm" / drm.name) == f"../../{drm.relative_to(root.resolve() / 'sys')}"
        assert os.readlink(drm / "device") == f"../../../{directory.name}"
        (hwmon,) = (directory / "hwmon").iterdir()
        assert os.readlink(hwmon / "device") == f"../../../{directory.name}"
        assert (root / "sys/class/hwmon" / hwmon.name).resolve() == hwmon.resolve()
        driver = (directory / "driver").resolve().name
        assert (root / "sys/bus/pci/drivers" / driver / directory.name).resolve() == directory.resolve()
        assert f"DRIVER={driver}" in (directory / "uevent").read_text()
        assert (root / "sys/module" / driver / "initstate").read_text() == "live\n"


def test_names_and_formats_of_a_card(machine: Get) -> None:
    root = machine("mi210")
    directory = device_directory(root, "0000:43:00.0")
    hwmon = hwmon_directory(root, "0000:43:00.0")
    text = {path: (directory / path).read_text() for path in ("vendor", "class", "max_link_speed", "ras/umc_err_count")}
    assert text == {
        "vendor": "0x1002\n",
        "class": "0x038000\n",
        "max_link_speed": "16.0 GT/s PCIe\n",
        "ras/umc_err_count": "ue: 0\nce: 0\nde: 0\n",
    }
    assert (directory / "uevent").read_text().splitlines() == [
        "DRIVER=amdgpu",
        "PCI_CLASS=38000",
        "PCI_ID=1002:740F",
        "PCI_SUBSYS_ID=1002:0C34",
        "PCI_SLOT_NAME=0000:43:00.0",
        "MODALIAS=pci:v00001002d0000740Fsv00001002sd00000C34bc03sc80i00",
    ]
    assert (hwmon / "name").read_text() == "amdgpu\n"
    assert [(hwmon / f"temp{n}_label").read_text() for n in (1, 2, 3)] == ["edge\n", "junction\n", "mem\n"]
    for domain in ("sclk", "mclk", "socclk"):
        levels = (directory / f"pp_dpm_{domain}").read_text().splitlines()
        assert sum(level.endswith("Mhz *") for level in levels) == 1
        assert all(level.endswith(("Mhz *", "Mhz ")) for level in levels)


def test_traps_of_a_hygon_node(machine: Get) -> None:
    root = machine("k100_ai-2s")
    vga = (root / "sys/class/drm/card0/device").resolve()
    assert ((vga / "vendor").read_text(), (vga / "class").read_text()) == ("0x1a03\n", "0x030000\n")
    assert (vga / "driver").resolve().name == "ast"
    bridges = [
        path
        for path in (root / "sys/bus/pci/devices").iterdir()
        if (path / "vendor").read_text() == "0x1d94\n" and (path / "class").read_text() == "0x060400\n"
    ]
    assert len(bridges) > 8
    assert len(cards(root)) == 8
    for directory in cards(root):
        assert not (directory / "gpu_metrics").exists()
        assert not (directory / "product_name").exists()
    names = [path.joinpath("name").read_text() for path in sorted((root / "sys/class/hwmon").iterdir())]
    assert Counter(names) == {"amdgpu\n": 8, "k10temp\n": 2, "nvme\n": 1}


def test_numbers_of_a_card_differ_between_the_subsystems(machine: Get) -> None:
    """hwmonN, cardN and KFD's node are not the same number, and address order is not KFD order."""
    root = machine("mi210")
    for directory in cards(root):
        (hwmon,) = (directory / "hwmon").iterdir()
        (card,) = (directory / "drm").glob("card*")
        assert hwmon.name.removeprefix("hwmon") != card.name.removeprefix("card")
    places = [properties(root / NODES / str(node) / "properties")["location_id"] for node in range(2, 10)]
    assert places != sorted(places)


def test_cards_without_a_sensor_lack_its_file(machine: Get) -> None:
    (directory,) = cards(machine("mi300x-cpx"))
    (hwmon,) = (directory / "hwmon").iterdir()
    for missing in ("temp1_input", "in0_input", "power1_average", "fan1_input"):
        assert not (hwmon / missing).exists()
    assert (hwmon / "power1_label").read_text() == "PPT\n"
    assert int((hwmon / "power1_input").read_text()) > 0
    (directory,) = cards(machine("apu"))
    (hwmon,) = (directory / "hwmon").iterdir()
    assert not list(hwmon.glob("*cap*"))
    assert not list(hwmon.glob("fan*"))
    assert (directory / "unique_id").read_text() == "\n"


# ---- KFD ----


@every_machine
def test_processors_come_first_in_kfd(machine: Get, name: str) -> None:
    root = machine(name)
    nodes = sorted((root / NODES).iterdir(), key=lambda path: int(path.name))
    kinds = []
    for node in nodes:
        values = properties(node / "properties")
        cpu = values["simd_count"] == 0
        kinds.append(cpu)
        assert (int((node / "gpu_id").read_text()) == 0) == cpu
        assert (values["cpu_cores_count"] > 0) == cpu
        for key in ("simd_per_cu", "array_count", "simd_arrays_per_engine", "cu_per_simd_array"):
            assert (values[key] == 0) == cpu
        for kind in ("io_links", "p2p_links"):
            assert values[f"{kind}_count"] == len(list((node / kind).iterdir()))
        assert properties(node / "mem_banks/0/properties")["heap_type"] == (0 if cpu else 1)
    sockets = 1 if name in ("apu", "radeon") else 2
    assert kinds == [True] * sockets + [False] * (len(nodes) - sockets)
    identities = [(node / "gpu_id").read_text() for node in nodes[sockets:]]
    assert len(set(identities)) == len(identities)


@every_machine
def test_kfd_leads_to_the_render_node_and_the_card(machine: Get, name: str) -> None:
    root = machine(name)
    for node in (root / NODES).iterdir():
        values = properties(node / "properties")
        if not values["simd_count"]:
            continue
        render = (root / f"sys/class/drm/renderD{values['drm_render_minor']}/device").resolve()
        bdf = f"{values['domain']:04x}:{values['location_id'] >> 8 & 0xFF:02x}:00.0"
        part = values["location_id"] & 7
        assert (render.name == bdf) == (part == 0)
        directory = device_directory(root, bdf)
        assert values["device_id"] == int((directory / "device").read_text(), 16)
        unique = directory / "unique_id"
        assert values["unique_id"] == int((unique.read_text().strip() if unique.exists() else "") or "0", 16)


def links(root: Path, kind: str) -> dict[tuple[int, int], tuple[int, int]]:
    found = {}
    for path in (root / NODES).glob(f"*/{kind}/*/properties"):
        values = properties(path)
        assert values["node_from"] == int(path.parents[2].name)
        found[values["node_from"], values["node_to"]] = values["type"], values["weight"]
    return found


@every_machine
def test_every_link_has_its_way_back(machine: Get, name: str) -> None:
    root = machine(name)
    near, far = links(root, "io_links"), links(root, "p2p_links")
    for table in (near, far):
        assert all(table[there, here] == value for (here, there), value in table.items())
    assert not near.keys() & far.keys()
    count = len(list((root / NODES).iterdir()))
    assert len(near) + len(far) == count * (count - 1)


def test_hives_of_mi210(machine: Get) -> None:
    root = machine("mi210")
    hives = Counter(properties(root / NODES / str(node) / "properties")["hive_id"] for node in range(2, 10))
    assert sorted(hives.values()) == [4, 4]
    assert 0 not in hives
    near = links(root, "io_links")
    xgmi = {pair: weight for pair, (kind, weight) in near.items() if kind == 11}
    assert len(xgmi) == 2 * 4 * 3
    assert set(xgmi.values()) == {15}
    assert Counter(value for pair, value in near.items() if 0 < min(pair) + 1 <= 2 <= max(pair)) == {(2, 20): 16}
    assert links(root, "p2p_links")[2, 6] == (2, 72)


def test_partitions(machine: Get) -> None:
    root = machine("mi300x-cpx")
    (directory,) = cards(root)
    assert (directory / "current_compute_partition").read_text() == "CPX\n"
    nodes = [properties(root / NODES / str(node) / "properties") for node in range(2, 10)]
    assert [node["location_id"] & 7 for node in nodes] == list(range(8))
    assert {node["simd_count"] for node in nodes} == {38 * 4}
    assert len({node["unique_id"] for node in nodes}) == 1
    banks = [properties(root / NODES / str(node) / "mem_banks/0/properties")["size_in_bytes"] for node in range(2, 10)]
    assert sum(banks) == int((directory / "mem_info_vram_total").read_text())
    used = [int((root / NODES / str(node) / "mem_banks/0/used_memory").read_text()) for node in range(2, 10)]
    assert sum(used) == int((directory / "mem_info_vram_used").read_text())
    platform = sorted(path.name for path in (root / "sys/devices/platform").iterdir())
    assert platform == [f"amdgpu_xcp_{n}" for n in range(7)]
    assert (root / "sys/class/drm/card2").resolve().is_relative_to((root / "sys/devices/platform").resolve())


@pytest.mark.parametrize(
    ("gfx", "number"), [("gfx906", 90006), ("gfx90a", 90010), ("gfx942", 90402), ("gfx1100", 110000)]
)
def test_gfx_target_version(gfx: str, number: int) -> None:
    assert gfx_target_version(gfx) == number


# ---- the machine as data ----


def test_a_seed_is_a_machine(tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        sim.write(tmp_path / name, cards=["mi210:2"], seed=seed)
    first, same, other = (content(tmp_path / name) for name in ("a", "b", "c"))
    assert first == same
    assert {path for path in first if "proc/" not in path} == {path for path in other if "proc/" not in path}
    unique = next(path for path in first if path.endswith("/unique_id"))
    assert first[unique] != other[unique]


def test_a_further_card_changes_no_other() -> None:
    few, many = sim.build(["k100_ai:2"], 3), sim.build(["k100_ai:8"], 3)
    assert [card.unique_id for card in few.cards] == [card.unique_id for card in many.cards[:2]]
    assert [card.serial for card in few.cards] == [card.serial for card in many.cards[:2]]


def test_identities_are_unique() -> None:
    machine = sim.build(["mi300x-cpx:8"], 2)
    for values in (
        [card.unique_id for card in machine.cards],
        [card.serial for card in machine.cards],
        [card.bdf for card in machine.cards],
        [number for card in machine.cards for number in card.gpu_id],
        [number for card in machine.cards for number in card.drm_render],
        [number for card in machine.cards for number in card.xcp],
    ):
        assert len(set(values)) == len(values)
    assert {card.slot.domain for card in machine.cards} == {0, 1}
    assert max(number for card in machine.cards for number in card.drm_card) > 9


@every_model
@pytest.mark.parametrize("load", [0.0, 0.5, 1.0])
def test_states_are_plausible(model: sim.Model, load: float) -> None:
    state = settle(model, [load] * model.partitions, 1e6, "test")
    assert state.busy == round(100 * load)
    assert 0 < sum(state.memory_used) <= model.vram
    assert 0.9 * model.idle_watts <= state.power <= (model.cap[2] if model.cap else 1.1 * model.full_watts)
    for sensor in model.sensors:
        assert 20 < state.temperatures[sensor.label] < (sensor.critical or 100)
    for name, clock in model.clocks.items():
        assert (clock.deep_sleep or clock.levels[0]) <= state.clocks[name] <= clock.levels[-1]


@every_model
def test_readings_and_layout_are_apart(model: sim.Model) -> None:
    machine = sim.build([model.key])
    busy = machine.with_states([settle(model, [1.0] * model.partitions, 1e6, "busy")], uptime=1e6)
    assert readings(machine).keys() == readings(busy).keys()
    assert not readings(machine).keys() & layout(machine).keys()
    assert layout(machine) == layout(busy)
    assert readings(machine) != readings(busy)


def test_refresh_replaces_what_changed(tmp_path: Path) -> None:
    root = tmp_path / "node"
    before = sim.build(["mi210:1"])
    sim.create(root, before)
    (card,) = before.cards
    after = before.with_states([replace(card.state, power=222.0)], uptime=before.uptime)
    power = hwmon_directory(root, card.bdf) / "power1_average"
    busy = device_directory(root, card.bdf) / "gpu_busy_percent"
    kept = busy.stat().st_ino
    with power.open() as reader:
        refresh(root, tree(before), tree(after))
        assert reader.read() == f"{round(card.state.power)}000000\n"  # the file that was open is as it was
    assert power.read_text() == "222000000\n"
    assert busy.stat().st_ino == kept
    fresh = tmp_path / "fresh"
    sim.create(fresh, after)
    assert content(root) == content(fresh)


# ---- what DTK makes of it ----


@every_machine
def test_dtk_reads_what_was_written(machine: Get, name: str) -> None:
    made = sim.build(MACHINES[name], SEED)
    with dtk.System(machine(name)) as system:
        assert system.info.simulated
        assert system.info.hostname == made.hostname
        assert system.info.drivers.keys() == set(made.drivers)
        assert [card.bdf for card in system.cards()] == sorted(card.bdf for card in made.cards)
        for card in made.cards:
            devices = system.match(card.bdf)
            check_identity(devices, made, card)
            check_readings(devices, card)


def check_identity(devices: list[dtk.Device], made: sim.Machine, card: sim.Card) -> None:
    model = card.model
    assert [device.kfd_node for device in devices] == list(card.kfd_node)
    assert [device.gpu_id for device in devices] == list(card.gpu_id)
    assert [device.drm_render for device in devices] == list(card.drm_render)
    assert [device.hip_index for device in devices] == [node - made.platform.sockets for node in card.kfd_node]
    assert {device.compute_units for device in devices} == {model.compute_units // model.partitions}
    whole = devices[0].card
    node = made.numa_node(card)
    assert whole.drm_card == card.drm_card[0]
    assert whole.unique_id == card.unique_id
    assert whole.serial == (card.serial or None)
    assert whole.numa_node == (None if node < 0 else node)
    assert (whole.driver, whole.arch) == (model.driver, model.gfx)
    assert (whole.vendor_id, whole.device_id) == model.pci[:2]
    assert {device.hive_id or 0 for device in devices} == {card.hive_id}


def check_readings(devices: list[dtk.Device], card: sim.Card) -> None:
    state = card.state
    sample = devices[0].card.sample(slow=True)
    assert (sample.state, sample.warnings) == ("ok", [])
    assert sample.utilization_gpu == state.busy
    assert sample.memory_used == sum(state.memory_used)
    assert sample.power_draw == pytest.approx(state.power)
    assert sample.power_limit == state.power_cap
    assert sample.temperature_junction == state.temperatures.get("junction")
    assert sample.temperature_edge == state.temperatures.get("edge")
    assert sample.temperature_core == state.temperatures.get("core")
    assert sample.clock_gfx == state.clocks["sclk"]
    assert sample.clock_memory == state.clocks["mclk"]
    assert sample.clock_soc == state.clocks["socclk"]
    assert (sample.fan_speed is None) == (card.model.fan is None)
    assert sample.ecc_correctable == (0 if card.model.ras else None)
    if card.model.partitions > 1:
        for device, bank, used, busy in zip(devices, card.banks, state.memory_used, state.utilization, strict=True):
            part = device.sample()
            assert (part.memory_total, part.memory_used, part.utilization_gpu) == (bank, used, busy)


# ---- other people's directories ----


def test_writes_into_an_absent_or_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/below"):
        sim.write(tmp_path / name, cards=["radeon"])
        assert (tmp_path / name / MARKER).read_text() == "simulated by dtk.sim\n"
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == [MARKER, "etc", "proc", "sys", "usr"]


def test_replaces_an_earlier_machine(tmp_path: Path) -> None:
    sim.write(tmp_path, cards=["mi210:8"])
    (tmp_path / "run/dtk").mkdir(parents=True)
    (tmp_path / "run/dtk/lease").write_text("mine")
    sim.write(tmp_path, cards=["radeon"])
    assert len(cards(tmp_path)) == 1
    assert (tmp_path / "run/dtk/lease").read_text() == "mine"


@pytest.mark.parametrize("marker", [None, "something else\n"])
def test_refuses_a_foreign_directory(tmp_path: Path, marker: str | None) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys/precious").write_text("data")
    if marker:
        (tmp_path / MARKER).write_text(marker)
    before = content(tmp_path)
    with pytest.raises(InvalidArgument, match="no simulated machine"):
        sim.write(tmp_path)
    assert content(tmp_path) == before


def test_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("data")
    with pytest.raises(InvalidArgument, match="no directory"):
        sim.write(tmp_path / "file")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "at least one card"),
        (["h100:8"], "no card model 'h100'.*mi210"),
        (["mi210:"], "mi210:8"),
        (["mi210:0"], "mi210:8"),
        (["mi210:-1"], "mi210:8"),
        (["mi210:²"], "mi210:8"),
        (["mi210:17"], "16 slots"),
        (["radeon:5"], "4 slots"),
        (["apu:2"], "has one apu"),
        (["k100_ai", "apu"], "goes with radeon"),
    ],
)
def test_refuses_what_is_no_machine(groups: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=message):
        sim.write(tmp_path, cards=groups)
    assert not list(tmp_path.iterdir())


# ---- the command ----


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dtk.sim", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_command_writes_and_says_so(tmp_path: Path) -> None:
    result = run(tmp_path / "node", "--cards", "mi210:2", "radeon", "--cards", "bw1000", "--seed", "7")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"SIMULATED machine sim-mi210 with 4 cards written to {tmp_path}/node\n"
    assert len(cards(tmp_path / "node")) == 4
    expected = tmp_path / "expected"
    sim.write(expected, cards=["mi210:2", "radeon", "bw1000"], seed=7)
    assert content(tmp_path / "node") == content(expected)


def test_command_lists_the_models() -> None:
    result = run("--list")
    assert result.returncode == 0
    models, faults = result.stdout.split("\n\n")
    assert [line.split()[0] for line in models.splitlines()] == list(sim.MODELS)
    assert [line.split()[0] for line in faults.splitlines()] == list(sim.KINDS)


def test_command_refuses_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    for arguments in ([tmp_path], [tmp_path / "new", "--cards", "h100:8"], [], [tmp_path / "new", "--seed", "x"]):
        result = run(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_command_says_when_it_cannot_write() -> None:
    result = run("/proc/nowhere", "--cards", "radeon")
    assert result.returncode == 1
    assert "/proc/nowhere" in result.stderr
    assert "Traceback" not in result.stderr
