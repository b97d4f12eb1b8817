"""Run the installed dtk-smi, and make what it prints comparable."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def stable(text: str, root: Path) -> str:
    """The text without what changes from run to run or release to release."""
    text = text.replace(str(root), "ROOT")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z", "TIMESTAMP", text)
    return re.sub(r"^dtk-smi \S+(.*?) +\d{4}-\d\d-\d\d [\d:]{8}$", r"dtk-smi VERSION\1  TIME", text, flags=re.M)


def validate(document: Any) -> None:
    """Raise when a document breaks the schema, or says of a metric both a value and a reason, or neither."""
    Draft202012Validator(SCHEMA).validate(document)
    for entry in [*document["cards"], *document["devices"]]:
        assert entry["reasons"].keys() == {name for name, value in entry["metrics"].items() if value is None}
