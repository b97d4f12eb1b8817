"""C programs of tests/native against libdtk's objects, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import rig
import standin
from machines import put
from native_library import compile_c
from process_tree import ProcessTree

import dtk
from dtk import sim

PROJECT = Path(__file__).parent.parent

# reader.h
HEADER, FRAME_VIRTUAL = struct.Struct("=IHHIiQ"), 17


def build(directory: Path, *options: str) -> Path:
    """Configure and build the native test programs; returns the directory they are in."""
    for tool in ("cmake", "cc"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    configure = ["cmake", "-S", PROJECT, "-B", directory, "-DDTK_TESTS=ON", "-DDTK_DEVELOPER=ON", *options]
    for command in (configure, ["cmake", "--build", directory, "--parallel", "2"]):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
    return directory


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sanitized"), "-DDTK_SANITIZE=ON")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plain"))


def run(program: Path, *arguments: object) -> None:
    command = [str(program), *(str(argument) for argument in arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0), shlex.join(command)


@pytest.mark.parametrize("name", ["mi210", "mi300x-cpx", "k100_ai-2s", "apu"])
def test_sample_allocates_nothing(plain: Path, machine: Callable[[str], Path], name: str) -> None:
    # Without sanitizers: they bring a malloc of their own.
    run(plain / "test_allocation", machine(name))


@pytest.mark.parametrize("name", ["mi210", "mi300x-cpx"])
def test_threads_sample_while_another_rescans(sanitized: Path, machine: Callable[[str], Path], name: str) -> None:
    run(sanitized / "test_threads", machine(name), 2)


@pytest.mark.parametrize("cards", ["mi210:2", "mi300x-cpx:2"])
def test_rescan_keeps_and_retires_devices(sanitized: Path, tmp_path: Path, cards: str) -> None:
    root = tmp_path / "root"
    sim.write(root, cards=[cards])
    nodes = root / "sys/devices/virtual/kfd/kfd/topology/nodes"
    first = min((root / "sys/bus/pci/drivers/amdgpu").glob("0000:*"))
    bus, device = (int(part, 16) for part in first.name[5:10].split(":"))
    places = [(path.resolve(), path.name) for path in (first,)]
    for path in nodes.iterdir():
        location = int((path / "properties").read_text().split("location_id ")[1].split()[0])
        if location >> 3 == (bus << 8 | device << 3) >> 3 and location:
            places.append((path, f"node{path.name}"))
    away = root / "away"
    leave = " && ".join([f"mkdir {away}", *(f"mv {place} {away}/{name}" for place, name in places)])
    # As the kernel would, with new inodes.
    back = " && ".join([*(f"cp -a {away}/{name} {place}" for place, name in places), f"rm -r {away}"])
    rebuild = f"cp -a {nodes} {nodes}.new && rm -r {nodes} && mv {nodes}.new {nodes}"
    run(sanitized / "test_rescan", root, leave, back, rebuild)


@pytest.mark.parametrize("name", ["mi210", "mi300x-cpx", "k100_ai-2s"])
def test_without_descriptors_nothing_is_found_wrongly(plain: Path, machine: Callable[[str], Path], name: str) -> None:
    run(plain / "test_starved", machine(name))


def test_find_means_the_device_of_the_key(sanitized: Path, copy_machine: Callable[[str], Path]) -> None:
    root = copy_machine("mi210")
    for name in ("sys/bus", "sys/class/drm"):  # so that a card is what KFD shows
        shutil.rmtree(root / name)
    run(sanitized / "test_find", root, root / "sys/devices/virtual/kfd/kfd/topology/nodes/2", 2)


@pytest.mark.parametrize("number", ["01", "002", "-1", "99999999999", "1x"])
def test_node_that_is_none(sanitized: Path, copy_machine: Callable[[str], Path], number: str) -> None:
    root = copy_machine("mi210")
    nodes = root / "sys/devices/virtual/kfd/kfd/topology/nodes"
    shutil.copytree(nodes / "2", nodes / number)
    with dtk.System(root) as system:
        assert len(system.devices()) == 8
    run(sanitized / "test_threads", root, 1)


def test_trackers_scan_while_processes_come_and_go(sanitized: Path, copy_machine: Callable[[str], Path]) -> None:
    tree = ProcessTree(copy_machine("mi210"))
    first, second, *_ = dtk.System(tree.root).devices()
    for pid in range(100, 110):
        tree.process(pid)
        tree.compute(pid, {first.gpu_id or 0: 1 << 30, second.gpu_id or 0: pid % 2}, [first.gpu_id or 0])
        tree.file(pid, 3, f"/dev/dri/renderD{first.drm_render}", drm_client_id=5, drm_resident_vram="3 MiB")
        tree.file(pid, 4, f"/dev/dri/renderD{second.drm_render}", drm_client_id=pid, drm_memory_gtt="3 KiB")
    run(sanitized / "test_tracker", tree.root, 2)


@pytest.mark.parametrize("generation", standin.GENERATIONS)
def test_no_generation_of_the_library_overflows_a_buffer(
    sanitized: Path, machine: Callable[[str], Path], tmp_path: Path, generation: str
) -> None:
    """A stand-in writes every byte of its generation's structs; red zones lie around each buffer of ours."""
    root = machine("k100_ai-2s")
    library = standin.for_machine(tmp_path, generation, root, "value levels * 99", "value deep_sleep * 1")
    done = rig.run(root, [str(sanitized / "test_rsmi")], {**library.env, "ASAN_OPTIONS": "detect_leaks=0"})
    assert (done.returncode, done.stderr) == (0, "")
    first, *rows = done.stdout.splitlines()
    assert first == f"{library.library} ok {standin.ABI[generation]}"
    read = {(int(card), name): float(value) for card, name, value in map(str.split, rows)}
    for card in range(8):
        assert read[card, "fan_rpm"] == standin.expected(card, "fan_rpm")
        assert read[card, "retired_pages"] == standin.raw(card, "retired_pages")
        assert read[card, "ecc_correctable"] == standin.errors(card, "correctable")


@pytest.mark.parametrize(("files", "damaged", "count"), [(0, 0, 0), (3, 2, 3), (1100, 0, 1024)])
def test_virtual_devices(
    sanitized: Path, copy_machine: Callable[[str], Path], files: int, damaged: int, count: int
) -> None:
    root = copy_machine("k100_ai-2s")
    for number in range(files):
        put(root, f"etc/vdev/vdev{number}.conf", f"vdev_id: {number}\nPciBusId: 0000:05:00.0\ncu_count: 3\n")
    for number in range(damaged):
        put(root, f"etc/vdev/docker/vdev{9 + number}.conf", "\xff" * (5000 * number))
    run(sanitized / "test_virtual", root, count)


def frame_kinds(written: bytes) -> list[int]:
    """Kinds of the frames that a reader wrote, which must be whole."""
    kinds = []
    while written:
        _, _, kind, length, _, _ = HEADER.unpack_from(written)
        kinds.append(kind)
        written = written[HEADER.size + length :]
    return kinds


@pytest.mark.parametrize(
    "macros",
    [
        [],
        ["CARDS=INT_MAX", "MOST=INT_MAX", "COUNTED=INT_MAX"],
        ["AT_dmiGetVDeviceInfo=memset(info, 0xff, 1000); return 0;"],
        ["WITHOUT_dmiGetVDeviceInfo", "AT_dmiGetDeviceRemainingInfo=return -1;"],
    ],
    ids=["good", "counts", "struct", "missing"],
)
def test_library_of_virtual_devices(
    sanitized: Path, copy_machine: Callable[[str], Path], tmp_path: Path, macros: list[str]
) -> None:
    """In dtk-reader, whose input must stay open."""
    root = copy_machine("k100_ai-2s")
    source = PROJECT / "tests/hydmi/hydmi.c"
    library = compile_c(tmp_path / "hydmi.so", "-shared", "-fPIC", *(f"-D{macro}" for macro in macros), source)
    os.mkfifo(tmp_path / "input")
    script = 'exec 0<>"$1"; exec "$2" --root / --tiers 1 --virtual "$3" > "$4"'
    paths = (tmp_path / "input", sanitized / "dtk-reader", library, tmp_path / "frames")
    done = rig.run(root, ["sh", "-c", script, "sh", *map(str, paths)])
    assert (done.stderr, done.returncode) == ("", 0)
    assert frame_kinds((tmp_path / "frames").read_bytes()).count(FRAME_VIRTUAL) == 2
