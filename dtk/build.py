"""How to build a C program with the libdtk of this installation; `dtk-smi --cflags` and `--libs` print the same.

cc program.c $(dtk-smi --cflags) $(dtk-smi --libs)
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["cflags", "include_dir", "library", "libs"]


def include_dir() -> Path:
    """Directory of dtk.h."""
    return Path(str(files("dtk") / "_native" / "include" / "dtk.h")).parent


def library() -> Path:
    """The shared library, libdtk.so.0. Its directory also has pkgconfig/dtk.pc."""
    return Path(str(files("dtk") / "_native" / "lib" / "libdtk.so.0"))


def cflags() -> str:
    """Options for the compiler."""
    return f"-I{include_dir()}"


def libs() -> str:
    """Options for the linker. The program will find the library where it is now, without LD_LIBRARY_PATH."""
    return f"{library()} -Wl,-rpath,{library().parent}"
