"""Runs programs that know only /sys on a simulated machine: its sys/ stands in the place of /sys for them alone, and
where that is asked for further parts of it, such as etc/, in the place of theirs.

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

_MOUNTS = """
mount -t tmpfs tmpfs /dev/shm
while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done
shift
exec "$@"
"""


def _bubblewrap(binds: Mapping[str, str]) -> list[str]:
    found = [word for place, path in binds.items() for word in ("--bind", path, place)]
    return ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/dev/shm", *found]


def _unshare(binds: Mapping[str, str]) -> list[str]:
    found = [word for place, path in binds.items() for word in (path, place)]
    return ["unshare", "-m", "sh", "-c", _MOUNTS, "sh", *found, "--"]


@functools.cache
def _way() -> str | None:
    for name, command in (("bwrap", _bubblewrap), ("unshare", _unshare)):
        if (
            shutil.which(name)
            and subprocess.run([*command({"/sys": "/sys"}), "true"], capture_output=True).returncode == 0
        ):
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


def run(
    root: Path, command: Sequence[str], env: Mapping[str, str] | None = None, parts: Sequence[str] = ("sys",)
) -> subprocess.CompletedProcess[str]:
    """Run a program for which `root`/sys is /sys, and so on; skips the test where that is not possible."""
    way = _way()
    if way is None:
        pytest.skip("needs bubblewrap with user namespaces, or root and unshare")
    binds = {f"/{part}": str(root / part) for part in parts}
    before = _bubblewrap(binds) if way == "bwrap" else _unshare(binds)
    result = subprocess.run(
        [*before, *command], capture_output=True, text=True, timeout=60, check=False, cwd="/", env=env
    )
    assert result.returncode >= 0, f"{shlex.join(command)} died of signal {-result.returncode}: {result.stderr[-2000:]}"
    return result


def run_json(
    root: Path, command: Sequence[str], env: Mapping[str, str] | None = None, parts: Sequence[str] = ("sys",)
) -> Any:
    """As `run`; the JSON document that the program prints last."""
    result = run(root, command, env, parts)
    lines = [line for line in result.stdout.splitlines() if line.startswith(("{", "["))]
    assert lines, f"{shlex.join(command)} printed no JSON, exit code {result.returncode}: {result.stderr[-2000:]}"
    return json.loads(lines[-1])
