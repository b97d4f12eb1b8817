"""C programs of tests/native against libdtk's objects, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent


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


def test_rescan_keeps_and_retires_devices(sanitized: Path, copy_machine: Callable[[str], Path]) -> None:
    root = copy_machine("mi210")
    first = min((root / "sys/bus/pci/drivers/amdgpu").glob("0000:*"))
    directory = first.resolve()
    away = root / "away"
    nodes = root / "sys/devices/virtual/kfd/kfd/topology/nodes"
    bus, device = (int(part, 16) for part in first.name[5:10].split(":"))
    node = next(
        path
        for path in nodes.iterdir()
        if f"location_id {bus << 8 | device << 3}\n" in (path / "properties").read_text()
    )
    leave = f"mkdir {away} && mv {directory} {away}/pci && mv {node} {away}/node"
    # As the kernel would, with new inodes.
    back = f"cp -a {away}/pci {directory} && cp -a {away}/node {node}"
    run(sanitized / "test_rescan", root, leave, back)
