"""The C structs keep their layout; the program that checks it says what to do when they do not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_structs_are_as_compiled_programs_know_them(tmp_path: Path) -> None:
    program = tmp_path / "abi"
    source, include = PROJECT / "tests/native/abi.c", PROJECT / "dtk/_native/include"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", f"-I{include}", source, "-o", program], check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert result.stdout == ""
    assert result.returncode == 0
