"""The project's own machines, and helpers to break them in and to make recorded ones usable."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

import pytest

CORPUS = Path(__file__).parent.parent.parent / "shared" / "corpus"

MACHINES: dict[str, tuple[str, ...]] = {
    "k100_ai-2s": ("k100_ai:8",),
    "mi300x-cpx": ("mi300x-cpx:1",),
    "mi210": ("mi210:8",),
    "apu": ("apu:1",),
    "radeon": ("radeon:1",),
    "mixed": ("k100_ai:2", "z100l:1", "bw1000:1", "mi210:1", "radeon:1"),
}
SEED = 1


def needs_fuse() -> None:
    """Skip the test where nothing can be mounted."""
    for what, there in (
        ("mfusepy", importlib.util.find_spec("mfusepy") is not None),
        ("fuse3", shutil.which("fusermount3") is not None),
        ("/dev/fuse", os.access("/dev/fuse", os.R_OK | os.W_OK)),
    ):
        if not there:
            pytest.skip(f"needs {what}")


def put(root: Path, path: str, content: str | bytes) -> None:
    """Put a file below `root`, in one step and whatever stood there, as the simulator does."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(target.name + ".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.replace(target)


def device_directory(root: Path, bdf: str) -> Path:
    """The real directory of a PCI device below `root`."""
    return (root / "sys/bus/pci/devices" / bdf).resolve(strict=True)


def hwmon_directory(root: Path, bdf: str) -> Path:
    """The hwmon directory of a PCI device below `root`."""
    (found,) = (device_directory(root, bdf) / "hwmon").iterdir()
    return found


def properties(path: Path) -> dict[str, int]:
    """A KFD properties file."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {key: int(value) for key, value in pairs}


_LINK_TEXT = re.compile(rb"(\.\./)+[^\n\0]+")


def link_text(path: Path, root: Path) -> str | None:
    """What a small file says when it is a symlink that became a file on its way here; None when it is a file."""
    if path.stat().st_size > 4096:
        return None
    content = path.read_bytes()
    if not _LINK_TEXT.fullmatch(content):
        return None
    text = os.fsdecode(content)
    target = Path(os.path.normpath(path.parent / text))
    return text if target.is_relative_to(root) and target.exists() else None


def materialise(source: Path, target: Path) -> None:
    """Copy a recorded machine, with symlinks where the recording holds their text in small files instead."""
    for directory, names, files in os.walk(source):
        here = target / Path(directory).relative_to(source)
        here.mkdir(parents=True)
        for name in [*names, *files]:
            path = Path(directory) / name
            if path.is_symlink():
                (here / name).symlink_to(path.readlink())
            elif path.is_file():
                text = link_text(path, source)
                if text is None:
                    shutil.copyfile(path, here / name)
                else:
                    (here / name).symlink_to(text)
