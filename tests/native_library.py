"""libdtk's internal parsers for tests in Python: built once into a library of their own and called through cffi.

libdtk hides these functions, so the tests compile the same sources again. What cffi knows of them is read from the
headers themselves.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import cffi
import pytest

PROJECT = Path(__file__).resolve().parent.parent
NATIVE = PROJECT / "dtk" / "_native"
SOURCES = tuple(NATIVE / "src" / name for name in ("parse.c", "parse_process.c", "parse_vdev.c", "gpu_metrics.c"))
INCLUDES = (f"-I{NATIVE / 'src'}", f"-I{NATIVE / 'include'}")

# Of status.def, as a failed call returns them.
UNSUPPORTED, FAILED, NOT_FOUND = -1, -5, -9


class Library(NamedTuple):
    """The loaded library: cffi's `ffi`, and `lib` with the functions and constants of the two headers."""

    ffi: Any
    lib: Any


def compile_c(output: Path, *arguments: str | Path) -> Path:
    """Compile C as strictly as the project is built; returns `output`. Skips the test where there is no compiler."""
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", *INCLUDES, *arguments, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def _declarations(header: Path) -> str:
    """A header without its preprocessor lines, save the numbers it defines."""
    lines = header.read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#") or re.match(r"#define \w+ \d+$", line))


@functools.cache
def library() -> Library:
    """Build and load the parsers, once a run."""
    ffi = cffi.FFI()
    for name in ("parse.h", "gpu_metrics.h"):
        ffi.cdef(_declarations(NATIVE / "src" / name))
    with tempfile.TemporaryDirectory(prefix="dtk-parsers-") as directory:
        built = compile_c(Path(directory) / "parsers.so", "-O1", "-shared", "-fPIC", *SOURCES)
        return Library(ffi, ffi.dlopen(str(built)))
