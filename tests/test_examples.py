"""The examples do what they say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dtk import build

EXAMPLES = Path(__file__).parent.parent / "examples"


def output(*command: str | Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_c_list_devices(machine: Callable[[str], Path], tmp_path: Path) -> None:
    program = tmp_path / "list_devices"
    source = EXAMPLES / "c" / "list_devices.c"
    subprocess.run(["cc", source, *build.cflags().split(), *build.libs().split(), "-o", program], check=True)
    first, second, *_ = output(program, machine("mi210"))
    assert first.startswith("0  0000:")
    assert second.startswith("1  0000:")
    assert first.endswith("GiB")


def test_python_list_devices(machine: Callable[[str], Path]) -> None:
    first, second, *_ = output(sys.executable, EXAMPLES / "python" / "list_devices.py", machine("mi210"))
    assert first.startswith("0  0000:")
    assert second.endswith(" W")


def test_python_most_free_memory(machine: Callable[[str], Path]) -> None:
    (uuid,) = output(sys.executable, EXAMPLES / "python" / "most_free_memory.py", machine("mi210"))
    assert uuid.startswith("GPU-")


def test_every_example_is_tested() -> None:
    names = {path.stem for path in EXAMPLES.rglob("*.[cp]*") if path.suffix in {".c", ".py"}}
    assert names == {"list_devices", "most_free_memory"}
