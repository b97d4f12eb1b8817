"""Runs programs that know only /sys on a simulated machine: its sys/ stands in the place of /sys for them alone.

bubblewrap does it without privileges where user namespaces are allowed; else root has unshare. The vendor library
leaves files in /dev/shm, which for these programs is a directory of their own.
"""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

LIBRARY = "librocm_smi64.so.1"

_MOUNTS = 'mount --bind "$1" /sys && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"'


def _bubblewrap(system: Path) -> list[str]:
    return ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/dev/shm", "--bind", str(system), "/sys"]


def _unshare(system: Path) -> list[str]:
    return ["unshare", "-m", "sh", "-c", _MOUNTS, "sh", str(system)]


@functools.cache
def _way() -> str | None:
    for name, command in (("bwrap", _bubblewrap), ("unshare", _unshare)):
        if shutil.which(name) and subprocess.run([*command(Path("/sys")), "true"], capture_output=True).returncode == 0:
            return name
    return None


def needs_library() -> None:
    """Skip the test when the vendor library is not installed."""
    if not library_path():
        pytest.skip(f"needs {LIBRARY} (Debian's librocm-smi64-1)")


def library_path() -> str | None:
    """Where the vendor library is."""
    found = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    paths = (row.rpartition(" => ")[2] for row in found.splitlines() if LIBRARY in row)
    return next(paths, None)


def run(root: Path, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program for which `root`/sys is /sys; skips the test where that is not possible."""
    way = _way()
    if way is None:
        pytest.skip("needs bubblewrap with user namespaces, or root and unshare")
    before = _bubblewrap(root / "sys") if way == "bwrap" else _unshare(root / "sys")
    result = subprocess.run(
        [*before, *command], capture_output=True, text=True, timeout=60, check=False, cwd="/", env=env
    )
    assert result.returncode >= 0, f"{shlex.join(command)} died of signal {-result.returncode}: {result.stderr[-2000:]}"
    return result


def run_json(root: Path, command: Sequence[str], env: Mapping[str, str] | None = None) -> Any:
    """As `run`; the JSON document that the program prints last."""
    result = run(root, command, env)
    lines = [line for line in result.stdout.splitlines() if line.startswith(("{", "["))]
    assert lines, f"{shlex.join(command)} printed no JSON, exit code {result.returncode}: {result.stderr[-2000:]}"
    return json.loads(lines[-1])
