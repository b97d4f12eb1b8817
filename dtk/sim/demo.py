"""A simulated machine for as long as somebody looks at it, kept alive by a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import InvalidArgument, LibraryError
from .faults import MOUNT_KINDS, parse
from .machine import assemble


@contextlib.contextmanager
def demo(
    cards: Sequence[str] = ("k100_ai:8",), seed: int = 0, interval: float = 1.0, faults: Sequence[str] = ()
) -> Iterator[Path]:
    """The root of a simulated machine that is alive while the context lasts.

    It lives in a temporary directory and is kept alive by a process of its own, which removes it at the end, also when
    this process is killed. Raises InvalidArgument for cards and faults that cannot be.
    """
    assemble(cards, seed)
    for fault in faults:
        if parse(fault).kind in MOUNT_KINDS:
            raise InvalidArgument(f"{fault!r} is beyond what plain files can do: see dtk.sim.mount")
    root = tempfile.mkdtemp(prefix="dtk-demo-")
    command = [sys.executable, "-m", "dtk.sim", root, "--run", "--for-parent", "--seed", str(seed)]
    command += ["--interval", str(interval), "--cards", *cards]
    for fault in faults:
        command += ["--fault", fault]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",  # a dtk in the present directory is not this one
        start_new_session=True,  # Ctrl-C is for us
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        if not child.stdout.readline():
            raise LibraryError("the simulator did not start", operation="demo", path=root)
        yield Path(root)
    finally:
        child.stdin.close()
        child.stdout.close()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        shutil.rmtree(root, ignore_errors=True)


def watch_parent(stop: threading.Event) -> None:
    """Set `stop` when the input ends, as it does with the process that holds its other end."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
