"""A machine that `dtk-smi doctor` takes for the one it runs on.

For it, the machine that runs the tests has the sys/ of a simulated one in the place of its own, and a /dev of the
test's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from smi import SMI, environment
from test_doctor import KFD, SCHEMA, codes

CARDS = 8


class Live:
    """A machine whose sys/ is that of `root`. What is put below `files` stands in the place of the machine's own."""

    def __init__(self, root: Path, files: Path) -> None:
        self.root = root
        self.files = files
        if not root.is_mount():
            shutil.rmtree(root / KFD / "proc")  # its processes are none of this machine's
        self.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nchen:x:1000:1000::/tmp:/bin/sh\n")
        self.put("etc/group", "root:x:0:\nhcu:x:1000:\n")
        self.node("kfd")
        for number in range(CARDS):
            self.node(f"dri/renderD{128 + number}")

    def put(self, path: str, content: str, mode: int = 0o644) -> Path:
        target = self.files / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)
        return target

    def node(self, name: str, mode: int = 0o666) -> None:
        self.put(f"dev/{name}", "", mode)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run it there as user chen. The files are chen's and of group hcu: mode 060 keeps chen out and lets hcu in."""
        command = [
            shutil.which("bwrap") or "bwrap",
            "--unshare-user",
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--dev-bind",
            "/",
            "/",
        ]
        command += ["--bind", str(self.root / "sys"), "/sys", "--tmpfs", "/dev"]
        command += [word for name in ("null", "urandom") for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
        for top in ("dev/kfd", "dev/dri", "etc/passwd", "etc/group", "opt"):
            if (self.files / top).exists():
                command += ["--bind", str(self.files / top), f"/{top}"]
        if shutil.which("bwrap") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
            pytest.skip("needs bubblewrap with user namespaces")
        env = {**environment(), **variables}
        done = subprocess.run([*command, SMI, *arguments], env=env, capture_output=True, timeout=60, check=False)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def examine(self, **variables: str) -> Any:
        """The document; text has the same codes."""
        done = self.run("doctor", "--json", "--deadline", "5", **variables)
        assert done.stderr == ""
        document = json.loads(done.stdout)
        Draft202012Validator(SCHEMA).validate(document)
        assert document["live"]
        assert done.returncode == (0 if document["healthy"] else 5)
        text = self.run("doctor", "--deadline", "5", **variables)
        assert (text.returncode, text.stderr) == (done.returncode, "")
        assert all(code in text.stdout for code, _ in codes(document))
        assert text.stdout.isprintable() or all(line.isprintable() for line in text.stdout.splitlines())
        return document


def found(document: Any) -> set[str]:
    return {code for code, _ in codes(document)}
