"""Draw docs/images/table.svg: what `dtk-smi` shows of a simulated node, as the READMEs have it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import rich.console
import rich.text

import dtk.sim

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "table.svg"

COLUMNS = 100


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dtk-") as directory:
        dtk.sim.write(directory, cards=["k100_ai:8"])
        environment = {**os.environ, "FORCE_COLOR": "1", "LC_ALL": "C.UTF-8", "COLUMNS": str(COLUMNS)}
        command = [str(Path(sys.executable).with_name("dtk-smi")), "--root", directory]
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        output = output.replace(directory, "/tmp/node")
    with Path(os.devnull).open("w") as nowhere:
        console = rich.console.Console(record=True, width=COLUMNS + 2, file=nowhere, force_terminal=True)
        console.print(rich.text.Text.from_ansi(output.rstrip()))
    svg = console.export_svg(title="dtk-smi", unique_id="table")
    # A picture must not fetch a font from somewhere.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code,", "")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
