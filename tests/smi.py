"""Run the installed dtk-smi, and make what it prints comparable."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

SCHEMA = json.loads((Path(__file__).parent.parent / "docs" / "schema" / "dtk-1.schema.json").read_text())
SMI = str(Path(sys.executable).with_name("dtk-smi"))
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def environment(**variables: str) -> dict[str, str]:
    """The least that a command needs: nothing of the caller's may change what it prints."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC", **variables}


def smi(*arguments: str, root: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run dtk-smi on the machine below `root`, with further environment variables."""
    if root is not None:
        variables["DTK_SMI_ROOT"] = str(root)
    return subprocess.run(
        [SMI, *arguments],
        env=environment(**variables),
        capture_output=True,
        encoding=variables.get("PYTHONIOENCODING", "utf-8"),
        check=False,
        timeout=60,
    )


def output(*arguments: str, root: Path | None = None, **variables: str) -> str:
    """What dtk-smi prints when all is well: exit status 0, and stderr empty but for the note on a simulated machine."""
    done = smi(*arguments, root=root, **variables)
    notes = [line for line in done.stderr.splitlines() if "SIMULATED" not in line]
    assert (done.returncode, notes) == (0, [])
    return done.stdout


def document(*arguments: str, root: Path) -> Any:
    """What --json prints."""
    return json.loads(output("--json", *arguments, root=root))


def bare() -> list[str]:
    """What to put before a command to keep it from reading what may not be read, as root otherwise may."""
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    if drop and (not shutil.which("setpriv") or subprocess.run([*drop, "true"], check=False).returncode):
        pytest.skip("root cannot give its capabilities away here")
    return drop


def terminal(*arguments: str, root: Path, size: tuple[int, int] = (80, 24), **variables: str) -> str:
    """What dtk-smi writes to a terminal of that many columns and lines."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    env = environment(**{"DTK_SMI_ROOT": str(root), "TERM": "xterm", **variables})
    with subprocess.Popen([SMI, *arguments], env=env, stdout=slave, stderr=subprocess.PIPE) as process:
        os.close(slave)
        written = b""
        try:
            while chunk := os.read(master, 65536):
                written += chunk
        except OSError:  # Linux says EIO at the end
            pass
        assert process.wait(10) == 0
    os.close(master)
    return written.decode().replace("\r\n", "\n")


def columns(text: str) -> int:
    """Terminal columns of a line."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def widest(text: str) -> int:
    """Columns of the widest line, but for the last, which has the path of the machine."""
    return max(map(columns, text.splitlines()[:-1]))


def stable(text: str, root: Path) -> str:
    """The text without what changes from run to run or release to release."""
    text = text.replace(str(root), "ROOT")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", "TIMESTAMP", text)
    style = r"(?:\x1b\[\d+m)?"
    footer = rf"^({style})dtk-smi [\d.]+({style})(.*?) +\d{{4}}-\d\d-\d\d [\d:]{{8}}$"
    return re.sub(footer, r"\1dtk-smi VERSION\2\3  TIME", text, flags=re.M)


def validate(document: Any) -> None:
    """Raise when a document breaks the schema, or says of a metric both a value and a reason, or neither."""
    Draft202012Validator(SCHEMA).validate(document)
    for entry in [*document["cards"], *document["devices"]]:
        assert entry["reasons"].keys() == {name for name, value in entry["metrics"].items() if value is None}


def validate_virtual(document: Any) -> None:
    """Raise when the object of `virtual --json` breaks the schema."""
    Draft202012Validator({"$ref": "#/$defs/virtual_view", "$defs": SCHEMA["$defs"]}).validate(document)
    for entry in [*document["virtual"], *document["cards"], *document["unknown_cards"]]:
        assert entry["details"].keys() <= entry["reasons"].keys()
        assert all(entry[name] is None for name in entry["reasons"])
