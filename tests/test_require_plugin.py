"""With DTK_TEST_REQUIRE=1 no test that "needs" something absent is passed over, wherever it says so and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_of_mark.py": "import pytest\n@pytest.mark.skipif(True, reason='needs magic')\ndef test(): pass\n",
    "test_of_call.py": "import pytest\ndef test(): pytest.skip('needs magic')\n",
    "test_of_file.py": "import pytest\npytest.skip('needs magic', allow_module_level=True)\n",
    "test_other.py": "import pytest\ndef test(): pytest.skip('of another machine')\n",
}


@pytest.mark.parametrize(("required", "workers"), [("0", "0"), ("1", "0"), ("1", "2")])
def test_absent_tools(tmp_path: Path, required: str, workers: str) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)
    options = f"-q -p require_plugin -p no:hypothesispytest -n {workers} -c {os.devnull} --rootdir {tmp_path}"
    options += f" --basetemp {tmp_path}/base"  # else it may have to remove the directories of earlier runs
    command = [sys.executable, "-m", "pytest", *options.split(), "--continue-on-collection-errors", tmp_path]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "DTK_TEST_REQUIRE": required}
    variables.pop("CI", None)  # pytest would say everything twice
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == int(required), done.stdout
    complaints = [line for line in done.stdout.splitlines() if line.endswith("DTK_TEST_REQUIRE=1 does not allow that")]
    assert len(complaints) == (3 if required == "1" else 0), done.stdout
