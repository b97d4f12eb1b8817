"""Writes a simulated machine into a directory, with the kernel's shape.

`layout` is what stands still and `readings` what follows the cards' states; both are pure, path to content. `create`
writes both into a directory of its own; `refresh` writes readings again, each file replaced by a rename, so that a
reader sees the old value or the new one and never half of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from ..errors import InvalidArgument
from .card import card_files, card_readings
from .files import Directory, Entry, Files, Link
from .host import host_files
from .kfd import kfd_files, kfd_readings
from .machine import Machine

MARKER = ".dtk-simulated"
MARKER_TEXT = "simulated by dtk.sim\n"
_STAGE = ".dtk-stage"
_PARTS = ("sys", "proc", "usr")

# Files that root may write on a real machine; everything else is read-only.
_SETTABLE = re.compile(
    r"power1_cap|pwm1(_enable)?|fan1_(enable|target)|control|autosuspend_delay_ms|power_dpm_\w+|pp_dpm_\w+|pp_[sm]clk_od"
    r"|pp_od_clk_voltage|current_(compute|memory)_partition|thermal_throttling_logging"
)


def layout(machine: Machine) -> Files:
    """Everything of a machine that does not follow its cards' states."""
    files = host_files(machine) | kfd_files(machine)
    for card in machine.cards:
        files |= card_files(machine, card)
    return files


def readings(machine: Machine) -> Files:
    """Everything that does. The names are the same at every moment of a machine."""
    files = kfd_readings(machine)
    for card in machine.cards:
        files |= card_readings(machine, card)
    return files


def create(root: Path, machine: Machine) -> None:
    """Write `machine` into `root`, an absent or empty directory or one that an earlier call wrote.

    Of an earlier machine sys/, proc/ and usr/ are replaced; anything else below the root stays.
    Raises InvalidArgument when `root` holds something that is no simulated machine, which is left as it is; OSError.
    """
    claim(root)
    stage = root / _STAGE
    shutil.rmtree(stage, ignore_errors=True)
    for path, entry in (layout(machine) | readings(machine)).items():
        _write(stage / "new" / path, path, entry)
    (stage / "old").mkdir(parents=True)
    for part in _PARTS:
        with contextlib.suppress(FileNotFoundError):
            (root / part).rename(stage / "old" / part)
        (stage / "new" / part).rename(root / part)
    shutil.rmtree(stage)


def claim(root: Path) -> None:
    """Make `root` a place for a simulated machine, or raise InvalidArgument when it is something else."""
    if root.exists() and not root.is_dir():
        raise InvalidArgument("no directory", path=str(root))
    root.mkdir(parents=True, exist_ok=True)
    marker = root / MARKER
    if not _is_simulated(marker):
        if any(root.iterdir()):
            raise InvalidArgument(
                "holds something that is no simulated machine", path=str(root), hint="name an empty or a new directory"
            )
        marker.write_text(MARKER_TEXT)


def _is_simulated(marker: Path) -> bool:
    return marker.is_file() and not marker.is_symlink() and marker.read_bytes() == MARKER_TEXT.encode()


def refresh(root: Path, before: Files, after: Files) -> None:
    """Bring the readings `before`, as they stand below `root`, to `after`."""
    for path, entry in after.items():
        if before.get(path) != entry:
            replace_file(root, path, entry)


def replace_file(root: Path, path: str, entry: Entry) -> None:
    """Put a new content in the place of one file, in one step."""
    stage = root / _STAGE / "file"
    _write(stage, path, entry)
    stage.rename(root / path)


def _write(target: Path, path: str, entry: Entry) -> None:
    """Write at `target` what will stand at `path` below the root."""
    target.parent.mkdir(parents=True, exist_ok=True)
    match entry:
        case Link(destination):
            target.symlink_to(relative_link(path, destination))
        case Directory():
            target.mkdir(exist_ok=True)
        case _:
            target.write_bytes(entry)
            target.chmod(0o644 if _SETTABLE.fullmatch(path.rpartition("/")[2]) else 0o444)


def relative_link(path: str, destination: str) -> str:
    """The text of a link at `path`: as the kernel writes it, up to the destination's parent and down again."""
    parent, _, name = destination.rpartition("/")
    return f"{os.path.relpath(parent, path.rpartition('/')[0])}/{name}"
