"""Writes a simulated machine into a directory, with the kernel's shape.

`layout` is what stands still while the same cards are there, `readings` what follows the cards' states; with the
processes they make the `tree`, path to content. `create` writes one into a directory of its own; `refresh` brings what
it wrote to another moment: files are replaced by a rename, so that a reader sees the old value or the new one and never
half of one, and directories (a card's, a process's) come and go whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
from collections.abc import Set
from pathlib import Path

from ..errors import InvalidArgument
from .card import card_files, card_readings
from .faults import FAULTS
from .files import Denied, Directory, Entry, Files, Link, Reference
from .host import host_files
from .kfd import kfd_files, kfd_readings
from .machine import Machine
from .processes import process_files
from .virtual import virtual_files

MARKER = ".dtk-simulated"
MARKER_TEXT = "simulated by dtk.sim\n"
_STAGE = ".dtk-stage"
_LIBC = ctypes.CDLL(None)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_PARTS = ("sys", "proc", "usr", "etc")

# Files that root may write on a real machine; everything else is read-only.
_SETTABLE = re.compile(
    r"power1_cap|pwm1(_enable)?|fan1_(enable|target)|control|autosuspend_delay_ms|power_dpm_\w+|pp_dpm_\w+|pp_[sm]clk_od"
    r"|pp_od_clk_voltage|current_(compute|memory)_partition|thermal_throttling_logging"
)


def layout(machine: Machine) -> Files:
    """Everything of a machine that follows neither its cards' states nor its processes."""
    files = host_files(machine) | kfd_files(machine) | virtual_files(machine)
    for card in machine.cards:
        files |= card_files(machine, card)
    return files


def readings(machine: Machine) -> Files:
    """Everything that follows the cards' states. The names are the same as long as the cards are."""
    files = kfd_readings(machine)
    for card in machine.cards:
        files |= card_readings(machine, card)
    return files


def tree(machine: Machine) -> Files:
    """All files of a machine."""
    return layout(machine) | readings(machine) | process_files(machine)


def create(root: Path, machine: Machine) -> None:
    """Write `machine` into `root`, an absent or empty directory or one that an earlier call wrote.

    Of an earlier machine sys/, proc/, usr/ and etc/ are replaced; its faults end, and anything else stays.
    Raises InvalidArgument when `root` holds something that is no simulated machine, which is left as it is; OSError.
    """
    claim(root)
    (root / FAULTS).unlink(missing_ok=True)
    stage = root / _STAGE
    shutil.rmtree(stage, ignore_errors=True)
    for path, entry in tree(machine).items():
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
    if not is_simulated(root):
        if any(root.iterdir()):
            raise InvalidArgument(
                "holds something that is no simulated machine", path=str(root), hint="name an empty or a new directory"
            )
        marker.write_text(MARKER_TEXT)


def is_simulated(root: Path) -> bool:
    """Whether `root` holds a simulated machine."""
    marker = root / MARKER
    return marker.is_file() and not marker.is_symlink() and marker.read_bytes() == MARKER_TEXT.encode()


def refresh(root: Path, before: Files, after: Files) -> None:
    """Bring the files `before`, as they stand below `root`, to `after`."""
    if gone := before.keys() - after.keys():
        _remove(root, gone, _directories(after))
    if new := after.keys() - before.keys():
        _add(root, {path: after[path] for path in after if path in new}, _directories(before))
    for path, entry in after.items():
        if path in before and before[path] != entry:
            replace_file(root, path, entry)


def _directories(files: Files) -> set[str]:
    """All directories that a tree has."""
    found = {path for path, entry in files.items() if isinstance(entry, Directory)}
    for path in files:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found


def _top(path: str, directories: set[str]) -> str:
    """The path, or the highest of the directories above it that are not among `directories`."""
    while (parent := path.rpartition("/")[0]) and parent not in directories:
        path = parent
    return path


def _remove(root: Path, gone: Set[str], stay: set[str]) -> None:
    """Take files away; a directory goes in one step, with all that is in it."""
    trash = root / _STAGE / "gone"
    trash.mkdir(parents=True, exist_ok=True)
    for number, top in enumerate({_top(path, stay) for path in gone}):
        with contextlib.suppress(FileNotFoundError):
            (root / top).rename(trash / str(number))
    shutil.rmtree(trash)


def _add(root: Path, files: Files, there: set[str]) -> None:
    """Put new files in their places; a directory appears in one step, with all that is in it."""
    stage = root / _STAGE / "new"
    shutil.rmtree(stage, ignore_errors=True)
    tops: dict[str, None] = {}  # a set in order
    for path, entry in files.items():
        _write(stage / path, path, entry)
        tops[_top(path, there)] = None
    for top in tops:
        (stage / top).rename(root / top)
    shutil.rmtree(stage, ignore_errors=True)


def replace_file(root: Path, path: str, entry: Entry, stage_name: str = "file") -> None:
    """Put a new content in the place of one file, in one step; two writers at once need stages of their own."""
    stage = root / _STAGE / stage_name
    _write(stage, path, entry)
    if _exchange(stage, root / path):
        stage.unlink()
    else:
        stage.rename(root / path)


def _exchange(one: Path, other: Path) -> bool:
    """Let two files change places, where the kernel can. ext4 writes a file to the disk when it is renamed over another
    one, a millisecond each; when the two change places it does not.
    """
    renameat2 = getattr(_LIBC, "renameat2", None)  # glibc >= 2.28
    if renameat2 is None:
        return False
    done: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


def _write(target: Path, path: str, entry: Entry) -> None:
    """Write at `target` what will stand at `path` below the root."""
    target.parent.mkdir(parents=True, exist_ok=True)
    match entry:
        case Link(destination):
            target.symlink_to(relative_link(path, destination))
        case Reference(text):
            target.symlink_to(text)
        case Denied(content):
            target.write_bytes(content)
            target.chmod(0)
        case Directory():
            target.mkdir(exist_ok=True)
        case _:
            target.write_bytes(entry)
            target.chmod(0o644 if settable(path) else 0o444)


def settable(path: str) -> bool:
    """Whether root may write a file on a real machine."""
    return _SETTABLE.fullmatch(path.rpartition("/")[2]) is not None


def relative_link(path: str, destination: str) -> str:
    """The text of a link at `path`: as the kernel writes it, up to the destination's parent and down again."""
    parent, _, name = destination.rpartition("/")
    return f"{os.path.relpath(parent, path.rpartition('/')[0])}/{name}"
