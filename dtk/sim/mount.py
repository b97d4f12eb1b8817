"""A simulated machine behind a mount, where reads can hang and fail and writes can be refused."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import InvalidArgument, LibraryError
from .faults import FAULTS, read_faults, set_faults
from .tree import is_simulated

_HINT = "needs the Python package mfusepy and the system package fuse3"


class Mounted:
    """A mounted machine. `root` is the mount point: what a reader is given."""

    def __init__(self, below: Path, root: Path) -> None:
        self._below = below
        self.root = root

    def set(self, *specs: str) -> None:
        """Add faults, such as "hang=2" or "eio=0/hwmon/temp1_input"; in force when this returns.

        Raises InvalidArgument for a text that is no fault.
        """
        set_faults(self._below, [*self._specs(), *specs])

    def clear(self, *specs: str) -> None:
        """End these faults, or all of them; reads that hang go on."""
        set_faults(self._below, [spec for spec in self._specs() if specs and spec not in specs])

    def _specs(self) -> list[str]:
        read_faults(self._below)
        path = self._below / FAULTS
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@contextlib.contextmanager
def mount(root: str | os.PathLike[str], mountpoint: str | os.PathLike[str]) -> Iterator[Mounted]:
    """Show the simulated machine of `root` below `mountpoint` (absent or an empty directory) while the context lasts.

    Reads go to the file below each time (nothing is cached), so a machine that is alive is alive here. The faults are
    those of the root, see `set_faults`. A read that hangs is as in the kernel: interruptible until a signal comes, even
    SIGKILL, and then not; it ends when its fault is cleared or the context is left. Who waits for such a reader must
    leave the context first.

    Raises InvalidArgument when `root` is no simulated machine, LibraryError when the mount is not possible.
    """
    below, target = Path(root).resolve(), Path(os.path.abspath(mountpoint))
    if not is_simulated(below):
        raise InvalidArgument("no simulated machine", operation="mount", path=str(below))
    if not _installed("mfusepy"):
        raise LibraryError("mfusepy is not installed", operation="mount", hint=_HINT)
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise InvalidArgument("is not empty", operation="mount", path=str(target), hint="name another directory")
    errors = tempfile.TemporaryFile()  # noqa: SIM115
    server = subprocess.Popen(
        [sys.executable, "-m", "dtk.sim.fuse_server", str(below), str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd="/",  # a dtk in the present directory is not this one
        start_new_session=True,  # Ctrl-C is for us
    )
    assert server.stdout
    try:
        if server.stdout.readline() != b"ready\n":
            server.wait()
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["it gave no reason"]
            raise LibraryError(lines[-1], operation="mount", path=str(target), hint=_HINT)
        yield Mounted(below, target)
    finally:
        _end(server, target)
        errors.close()


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # somebody keeps it from being imported
        return False


def _end(server: subprocess.Popen[bytes], target: Path) -> None:
    """End the server first: that alone releases the reads that hang."""
    server.kill()
    server.wait()
    for stream in (server.stdin, server.stdout):
        if stream:
            stream.close()
    unmount(str(target))


def unmount(mountpoint: str) -> None:
    """Take the mount away, also from under those who read in it."""
    for command in (["fusermount3", "-uqz", mountpoint], ["umount", "-l", mountpoint]):
        try:
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return
        except FileNotFoundError:
            continue
