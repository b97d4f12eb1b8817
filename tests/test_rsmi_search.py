"""Where the vendor's library is looked for, and which of several is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
from smi import SMI, environment
from standin import Standin

import dtk


def run(root: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    done = rig.run(root, [SMI, "--json", *arguments], environment(DTK_SMI_BACKEND="rsmi", **variables))
    return {**json.loads(done.stdout), "exit": done.returncode, "stderr": done.stderr}


def test_an_override_that_names_nothing_is_told_of(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], tmp_path: Path
) -> None:
    library = stand_in("HYGON63")
    (tmp_path / "empty").mkdir()
    for override in (tmp_path / "none.so", tmp_path / "empty", tmp_path / "standin.control"):
        variables = library.env | {"DTK_SMI_ROCM_SMI_LIB": str(override)}
        found = run(machine("k100_ai-2s"), ROCM_SMI_LIB_PATH=str(library.library.parent), **variables)
        assert (found["exit"], found["library"]["path"]) == (0, str(library.library))
        assert found["library"]["origin"] == "ROCM_SMI_LIB_PATH"
        (warning,) = found["warnings"]
        assert warning["code"] == "library_other"
        assert f"DTK_SMI_ROCM_SMI_LIB: {override}" in warning["text"]


@pytest.mark.parametrize(
    ("variable", "below"),
    [("ROCM_SMI_LIB_PATH", ""), ("HYHAL_PATH", "lib"), ("DTKROOT", ".hyhal/lib"), ("ROCM_PATH", "lib64")],
)
def test_variables_of_the_vendors(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], tmp_path: Path, variable: str, below: str
) -> None:
    library = stand_in("HYGON63")
    directory = tmp_path / "vendor" / below
    directory.mkdir(parents=True)
    (directory / "librocm_smi64.so.2.8").symlink_to(library.library)
    found = run(machine("k100_ai-2s"), DTK_STANDIN=str(library.control), **{variable: str(tmp_path / "vendor")})
    assert (found["exit"], found["library"]["path"]) == (0, str(library.library))
    assert found["library"]["origin"] == variable


def test_places_come_in_the_documented_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for directory in ("a", "b/lib", "c/.hyhal/lib", "d/lib"):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "librocm_smi64.so").touch()
    for version in ("1.0", "10.0", "9.0"):
        (tmp_path / "d/lib64").mkdir(exist_ok=True)
        (tmp_path / "d/lib64" / f"librocm_smi64.so.{version}").touch()
    (tmp_path / "d/lib64/librocm_smi64.so.bak").touch()
    monkeypatch.setenv("DTK_SMI_ROCM_SMI_LIB", str(tmp_path / "gone"))
    for variable, directory in (("ROCM_SMI_LIB_PATH", "a"), ("HYHAL_PATH", "b"), ("DTKROOT", "c"), ("ROCM_PATH", "d")):
        monkeypatch.setenv(variable, str(tmp_path / directory))
    ours = [(file.path, file.origin, file.found) for file in dtk.library_files() if file.path.startswith(str(tmp_path))]
    assert ours == [
        (f"{tmp_path}/gone", "DTK_SMI_ROCM_SMI_LIB", False),
        (f"{tmp_path}/a/librocm_smi64.so", "ROCM_SMI_LIB_PATH", True),
        (f"{tmp_path}/b/lib/librocm_smi64.so", "HYHAL_PATH", True),
        (f"{tmp_path}/c/.hyhal/lib/librocm_smi64.so", "DTKROOT", True),
        (f"{tmp_path}/d/lib/librocm_smi64.so", "ROCM_PATH", True),
        (f"{tmp_path}/d/lib64/librocm_smi64.so.10.0", "ROCM_PATH", True),
        (f"{tmp_path}/d/lib64/librocm_smi64.so.9.0", "ROCM_PATH", True),
        (f"{tmp_path}/d/lib64/librocm_smi64.so.1.0", "ROCM_PATH", True),
    ]
    assert dtk.library_files()[-1].found is None
