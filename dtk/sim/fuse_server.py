"""The process behind `dtk.sim.mount`: serves a simulated tree through FUSE and adds what plain files cannot do.

    python -m dtk.sim.fuse_server ROOT MOUNTPOINT

Says "ready" on its output when the mount stands; when its input ends, it is gone, and with it every read that hung.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mfusepy  # type: ignore[import-untyped, import-not-found, unused-ignore]

from .faults import MOUNT_KINDS, Fault, FaultFile, card_directories, matches
from .mount import unmount
from .tree import replace_file

_READ_ERRORS = {"eio": errno.EIO, "enodev": errno.ENODEV}
_POLL = 0.02  # s; how soon a hanging read sees that its fault was cleared


class Operations:
    """What FUSE asks, answered from the tree below; the names and arguments are mfusepy's."""

    use_ns = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self._faults = FaultFile(root, card_directories(root), MOUNT_KINDS)
        self._start = time.monotonic()

    def init(self, _path: str) -> None:
        os.write(1, b"ready\n")

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, int]:
        found = os.lstat(self._below(path))
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
        return {name: getattr(found, name) for name in names} | {"st_mtime": found.st_mtime_ns}

    def access(self, path: str, _mode: int) -> int:
        self._check_permission(path)
        return 0

    def readlink(self, path: str) -> str:
        return os.readlink(self._below(path))

    def opendir(self, path: str) -> int:
        self._check_permission(path)
        return 0

    def readdir(self, path: str, _handle: int) -> Iterator[str]:
        yield from (".", "..", *os.listdir(self._below(path)))

    def open(self, path: str, _flags: int) -> int:
        self._check_permission(path)
        return os.open(self._below(path), os.O_RDONLY | os.O_CLOEXEC)

    def release(self, _path: str, handle: int) -> int:
        os.close(handle)
        return 0

    def read(self, path: str, size: int, offset: int, handle: int) -> bytes:
        while self._fault(path[1:], "hang"):
            time.sleep(_POLL)
        fault = self._fault(path[1:], *_READ_ERRORS)
        if fault:
            raise OSError(_READ_ERRORS[fault.kind], path)
        return os.pread(handle, size, offset)

    def truncate(self, _path: str, _length: int, _handle: int | None = None) -> int:
        return 0  # as sysfs does: opening to write empties nothing

    def write(self, path: str, data: bytes, _offset: int, _handle: int) -> int:
        text = data.strip()
        if self._fault(path[1:], "refuse"):
            raise OSError(errno.EINVAL, path)
        fault = self._fault(path[1:], "clamp")
        if fault and fault.argument and text.isdigit():
            text = str(min(int(text), int(fault.argument))).encode()
        replace_file(self._root, path[1:], text + b"\n", f"mount-{threading.get_ident()}")
        return len(data)

    def _fault(self, path: str, *kinds: str) -> Fault | None:
        """The first fault of such a kind that is in force for a path below the root."""
        for fault, wanted in self._faults.active(time.monotonic() - self._start):
            if fault.kind in kinds and matches(path, wanted):
                return fault
        return None

    def _below(self, path: str) -> str:
        return f"{self._root}{path}"

    def _check_permission(self, path: str) -> None:
        mode = os.lstat(self._below(path)).st_mode
        if self._fault(path[1:], "eacces") or not (mode & 0o444 or stat.S_ISLNK(mode)):
            raise OSError(errno.EACCES, path)


def _end_with_input(mountpoint: str) -> None:
    sys.stdin.buffer.read()
    unmount(mountpoint)
    os._exit(0)  # joining threads that hang would be in vain


def main() -> None:
    root, mountpoint = sys.argv[1:]
    threading.Thread(target=_end_with_input, args=(mountpoint,), daemon=True).start()
    options: dict[str, object] = {"allow_other": True} if os.geteuid() == 0 else {}
    if (mfusepy.fuse_version_major, mfusepy.fuse_version_minor) >= (3, 12):
        options["max_threads"] = 256  # each read that hangs holds one; before, there was no limit
    mfusepy.FUSE(
        Operations(Path(root)),
        mountpoint,
        foreground=True,
        fsname="dtk.sim",
        subtype="simulated",
        direct_io=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
        **options,
    )


if __name__ == "__main__":
    main()
