"""Reader: the process dtk-reader, and the frames that it writes. For snapshot.py and monitor.py.

What may hang or crash happens in that process. Nobody waits for it: it is killed, and goes when the kernel lets it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import struct
import time
from _thread import allocate_lock

from . import metrics
from ._native import _dtk, ffi, lib
from .errors import LibraryError
from .system import is_debugging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Crash", "Frame", "Reader"]

# reader.h
MAGIC, VERSION, LENGTH_MAX = 0x524B5444, 3, 64 << 20
HELLO, TOUCHING, SYSTEM, PROBE, DEVICE, READY, ERROR, TICK, INFO, SAMPLE, DONE, CHANGED = range(1, 13)
PROCESSES, ECC, FIRMWARE, LIBRARY, VIRTUAL, BANKS, FILES = range(13, 20)
PROCESSES_SLOT, VIRTUAL_SLOT = -2, -3
NO_LIBRARY = "none"  # of `virtual`: only the files
LOG_MAX = 16384  # bytes
LOOK_SECONDS = 0.05  # between looks whether a silent process has ended
_HEADER = struct.Struct("=IHHIiQ")
_HELLO = struct.Struct("=13I")

PROGRAM = os.path.join(os.path.dirname(_dtk.__file__), "bin", "dtk-reader")

Frame = tuple[int, int, int, bytes]  # kind, slot, tick, payload

# Readers that were killed and are not yet gone.
_abandoned: list[int] = []
_abandoned_lock = allocate_lock()


class Crash(Exception):
    """The reader ended, or wrote what is no frame."""


class Reader:
    """One dtk-reader.

    root: absolute. tiers: of a tick, and `slow` those asked besides in every `slow_every`-th. interval: seconds between
    ticks, None to read once. devices: keys of the devices to read, all without. without: addresses of cards not to
    touch. processes: DTK_SCAN_* to look for processes too. virtual: to look for virtual devices too, the path of
    libhydmi, "" the known places, or NO_LIBRARY. backend: "kernel", "auto" or "rsmi"; library: numbers of the metrics
    for which the vendor's library may be asked, None for all; aborted: it has ended a reader before, and is not asked
    again. Raises LibraryError when it cannot be started.
    """

    def __init__(
        self,
        root: str,
        tiers: int,
        *,
        interval: float | None = None,
        slow: int = 0,
        slow_every: int = 0,
        devices: Sequence[str] = (),
        without: Sequence[str] = (),
        processes: int = 0,
        virtual: str | None = None,
        backend: str = "kernel",
        library: Sequence[int] | None = None,
        aborted: bool = False,
    ) -> None:
        reap()
        arguments = [PROGRAM, "--root", root, "--tiers", str(tiers)]
        if interval is not None:
            arguments += ["--interval", str(max(1, round(interval * 1000))), "--slow", str(slow), str(slow_every)]
        for key in devices:
            arguments += ["--device", key]
        for bdf in without:
            arguments += ["--without", bdf]
        if processes:
            arguments += ["--processes", str(processes)]
        if virtual is not None:
            arguments += ["--virtual", virtual]
        if backend != "kernel":
            numbers = "all" if library is None else ",".join(map(str, library))
            arguments += [f"--{backend}", "--library", numbers]
        if aborted:
            arguments.append("--library-aborted")
        if is_debugging():
            arguments.append("--debug")
        self._buffer = bytearray()
        self._log = bytearray()
        self._pid, self._stdin, self.descriptor, self._stderr = _spawn(arguments)
        os.set_blocking(self.descriptor, False)
        self._greeted = False

    def frames(self, timeout: float) -> Iterator[Frame]:
        """The frames that are there, after waiting up to `timeout` seconds for the first. Raises Crash."""
        ended = False
        if not self._wait(timeout):
            if not self._has_ended():
                return
            ended = True  # something that it started keeps the pipe open
        with contextlib.suppress(BlockingIOError):
            while len(self._buffer) < LENGTH_MAX:
                piece = os.read(self.descriptor, 1 << 18)
                self._buffer += piece
                if not piece:
                    ended = True
                    break
        yield from self._parse()
        if ended:
            raise Crash("dtk-reader ended")

    def _wait(self, timeout: float) -> bool:
        """There is something to read within the time; False as soon as the process is known to have ended."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        end = time.monotonic() + max(0.0, timeout)
        while not poll.poll(max(0.0, min(LOOK_SECONDS, end - time.monotonic())) * 1000):
            if time.monotonic() >= end or self._has_ended():
                return False
        return True

    def _has_ended(self) -> bool:
        """The process, whoever still has its pipe. Nobody takes leave of it here: kill() does."""
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def _parse(self) -> Iterator[Frame]:
        at = 0
        try:
            while len(self._buffer) - at >= _HEADER.size:
                magic, version, kind, length, slot, tick = _HEADER.unpack_from(self._buffer, at)
                if magic != MAGIC or version != VERSION or not HELLO <= kind <= FILES or length > LENGTH_MAX:
                    raise Crash("dtk-reader wrote what is no frame")
                end = at + _HEADER.size + length
                if end > len(self._buffer):
                    break
                payload = bytes(self._buffer[at + _HEADER.size : end])
                at = end
                if kind == HELLO:
                    self._greet(payload)
                elif not self._greeted:
                    raise Crash("dtk-reader did not greet")
                else:
                    yield kind, slot, tick, payload
        finally:
            del self._buffer[:at]

    def _greet(self, payload: bytes) -> None:
        names = "value info system_info probe scan process usage ecc_block firmware rsmi bank_count"
        sizes = [ffi.sizeof(f"dtk_{name}") for name in names.split()]
        if len(payload) != _HELLO.size or [*_HELLO.unpack(payload)] != [lib.DTK_API_VERSION, metrics.COUNT, *sizes]:
            raise Crash("dtk-reader is of another version than dtk")
        self._greeted = True

    @property
    def pid(self) -> int:
        """Its process id, 0 after kill()."""
        return self._pid

    def log(self) -> str:
        """What came on its stderr so far, the first LOG_MAX bytes: that is the vendor's library."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):  # it may never stop
                if not self._pid or not (piece := os.read(self._stderr, 1 << 16)):
                    break
                self._log += piece[: LOG_MAX - len(self._log)]
        return self._log.decode(errors="replace")

    def kill(self) -> int:
        """End it, without waiting. Returns its process id."""
        pid, self._pid = self._pid, 0
        if pid:
            for descriptor in (self._stdin, self.descriptor, self._stderr):
                os.close(descriptor)
            # With what a vendor's library may have started: it is a group of its own, whose number is its own until
            # somebody took leave of it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            if not _is_gone(pid):
                with _abandoned_lock:
                    _abandoned.append(pid)
            reap()
        return pid

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def reap() -> None:
    """Take leave of the killed readers that are gone by now."""
    with _abandoned_lock:
        _abandoned[:] = [pid for pid in _abandoned if not _is_gone(pid)]


def is_abandoned(pid: int) -> bool:
    """A reader was killed and is not gone: the kernel still holds it in a read."""
    reap()
    return pid in _abandoned


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # of the process that forked this one, or somebody else took leave of it
        return True


def _spawn(arguments: list[str]) -> tuple[int, int, int, int]:
    """Start the program: its process id, a descriptor that ends it when it is closed, and those of what it writes.

    Its stderr never waits for us: what does not fit the pipe is lost.
    """
    ends: list[int] = []
    try:
        for _ in range(3):
            ends += map(_above_standard, os.pipe())
        stdin, keep, output, stdout, log, stderr = ends
        for end in (log, stderr):
            os.set_blocking(end, False)
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
        ]
        if not is_debugging():
            actions.append((os.POSIX_SPAWN_DUP2, stderr, 2))
        # The environment is for the vendor's library, and for the search for it.
        pid = os.posix_spawn(PROGRAM, arguments, os.environ, file_actions=actions, setpgroup=0)
    except OSError as error:
        for end in ends:
            os.close(end)
        missing = error.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC)
        raise LibraryError(
            error.strerror or str(error),
            operation="start",
            path=PROGRAM,
            hint="install dtk-smi again" if missing else "ulimit -a shows what this process may have",
        ) from error
    os.close(stdin)
    os.close(stdout)
    os.close(stderr)
    return pid, keep, output, log


def _above_standard(descriptor: int) -> int:
    """The descriptor, or another for it when it took the place of a closed standard one."""
    if descriptor > 2:
        return descriptor
    import fcntl

    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return other
