"""Processes that do what may hang, and are not waited for when they do: modules of this package, and compilers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

from .._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

OUTPUT_MAX = 1 << 18  # bytes
TURN = 0.02  # seconds between two looks at whether it has ended
LEFT_SECONDS = 0.1  # for what it wrote last; others may have its output open for ever
END_SECONDS = 0.2  # to end by itself
SAID_MAX = 200  # bytes of the last words of a process

# Processes that were killed and were not gone at once; kept so that they are reaped some time.
_killed: list[subprocess.Popen[bytes]] = []


class Child:
    """A process and a pipe of what it writes; with `talk` also one of what it reads. Raises OSError when it cannot be
    started.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None, talk: bool = False
    ) -> None:
        _killed[:] = [process for process in _killed if process.poll() is None]
        # A socket, since a pipe whose reader has ended would end this process with a signal.
        self._input: socket.socket | None = None
        theirs: socket.socket | None = None
        if talk:
            self._input, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                arguments,
                stdin=theirs.fileno() if theirs else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for us, and what it starts ends with it
            )
        except BaseException:
            if self._input:
                self._input.close()
            raise
        finally:
            if theirs:
                theirs.close()
        self._buffer = b""
        self._last: float | None = None  # when to read no more, once it has ended

    def tell(self, line: str) -> None:
        """Write a line to its input."""
        assert self._input
        with contextlib.suppress(OSError):  # it has ended
            self._input.send(f"{line}\n".encode(), socket.MSG_NOSIGNAL)

    def line(self, end: float) -> bytes | None:
        """The next line that it writes before `end`, by time.monotonic(); None when there is none."""
        while b"\n" not in self._buffer:
            if not self._read(end):
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def rest(self, end: float) -> tuple[bytes, int | None]:
        """All that it writes until it ends, and its exit status; None when it has not ended at `end`, or writes too
        much. What it leaves behind is not waited for, though that may write on.
        """
        while self._read(end):
            pass
        while (status := self._status()) is None and not self.flooded and time.monotonic() < end:
            time.sleep(TURN)
        return self._buffer, None if self.flooded else status

    @property
    def flooded(self) -> bool:
        """It wrote more than anybody wants to read."""
        return len(self._buffer) > OUTPUT_MAX

    def _status(self) -> int | None:
        """Its exit status, once it has ended. It is not reaped, so that its process group stays its own."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _read(self, end: float) -> bool:
        """Take in what is there by `end`; False at the end, and when it writes too much."""
        assert self._process.stdout
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while not self.flooded:
            now = time.monotonic()
            if self._last is None and self._status() is not None:
                self._last = now + LEFT_SECONDS
            left = (end if self._last is None else min(end, self._last)) - now
            if poll.poll(min(max(0.0, left), TURN) * 1000):
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                self._buffer += piece
                return bool(piece)
            if left <= 0:
                break
        return False

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        """End it with all that it started, also with what it left behind. What reads its input until that ends has a
        moment to end what has a process group of its own.
        """
        for pipe in (self._input, self._process.stdout):
            if pipe:
                with contextlib.suppress(OSError):  # of what was still to be written to it
                    pipe.close()
        end = time.monotonic() + (END_SECONDS if self._input else 0)
        while self._status() is None and time.monotonic() < end:
            time.sleep(TURN)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.poll() is None:
            _killed.append(self._process)


class NoAnswer(Exception):
    """A process has not answered, and never will or was not waited for; the message says which, after "it"."""


class Outcome(Record):
    """What a program said: all its output, and its exit status, None when it was ended for the time it took, or because
    it wrote too much (flooded).
    """

    output: str
    status: int | None
    flooded: bool


def run(arguments: Sequence[str], end: float, environment: Mapping[str, str] | None = None) -> Outcome:
    """Run a program without a shell and without input, until `end` at most. Raises OSError when it does not start."""
    with Child(arguments, environment) as child:
        output, status = child.rest(end)
        return Outcome(output.decode(errors="replace"), status, child.flooded)


# Before anything is imported: neither where the process stands nor PYTHONPATH may have a dtk, or a json, of its own.
START = (
    "import sys; sys.path[:] = {path!r}; "
    "import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


def python(module: str, *arguments: str) -> Child:
    """A module of this package in a process of its own, which imports what this one would. Raises OSError."""
    start = START.format(path=[*_import_path()], module=f"dtk.doctor.{module}")
    return Child([sys.executable or "python3", "-c", start, *arguments], talk=True)


def _import_path() -> Iterator[str]:
    for entry in sys.path:
        with contextlib.suppress(OSError):  # relative to a directory that is gone
            yield os.path.abspath(entry)


def answer(child: Child, end: float) -> dict[str, Any]:
    """The JSON object that it writes next by `end`. Raises NoAnswer."""
    said = b""
    while (line := child.line(end)) is not None:
        try:
            found = json.loads(line)
        except ValueError:  # a warning of Python's, or its last words
            said = line.strip() or said
            continue
        if isinstance(found, dict):
            return found
    output, status = child.rest(end)
    if status is None:
        raise NoAnswer("did not answer by the deadline")
    said = next(reversed(output.split(b"\n")), b"").strip() or said
    how = f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"
    raise NoAnswer(f"{how}: {said[:SAID_MAX].decode(errors='replace')}" if said else how)


def end_with_parent() -> None:
    """Of such a module: end when the input does, as that does with who started it, and then what was started too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def tell(found: dict[str, Any]) -> None:
    """Of such a module: write a line for answer()."""
    print(json.dumps(found), flush=True)
