"""The manual pages and the help: complete, and rendered without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from exporting import COMMAND
from smi import environment, output, terminal

import dtk
from dtk_cli.front import COMMANDS, load
from dtk_exporter.options import OPTIONS

MAN = Path(__file__).parent.parent / "man"
PAGES = sorted(MAN.iterdir())
GRAMMARS = [None, *COMMANDS, "nvidia"]
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def options(name: str | None) -> set[str]:
    """The options of a command, as its parser has them."""
    return {option for action in load(name).build_parser()._actions for option in action.option_strings}


def rendered(page: Path, columns: int = 80) -> str:
    """A page as people read it."""
    env = environment(MANWIDTH=str(columns), MANROFFOPT="-c", MAN_KEEP_FORMATTING="")
    command = ["man", "--warnings", "-l", str(page)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)


needs_man = pytest.mark.skipif(
    not (shutil.which("man") and shutil.which("groff") and shutil.which("tbl")), reason="needs man-db and groff"
)


@needs_man
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("columns", [80, 120])
def test_pages_render_without_a_warning(page: Path, columns: int) -> None:
    text = rendered(page, columns)
    assert len(text.splitlines()) > 100
    assert max(map(len, text.splitlines())) <= columns


@needs_man
def test_page_has_every_option() -> None:
    text = rendered(MAN / "dtk-smi.1", 1000)
    words = set(OPTION.findall(text))
    for name in GRAMMARS:
        assert options(name) <= words, name
    for word in OPTION.findall(output("--help")):
        assert word in words
    for name in COMMANDS:
        assert re.search(rf"^   {name}\b", text, re.M)


@needs_man
def test_page_names_every_exit_status() -> None:
    text = rendered(MAN / "dtk-smi.1")
    section = text.partition("EXIT STATUS")[2].partition("ENVIRONMENT")[0]
    assert re.findall(r"^ +(\d+)  ", section, re.M) == ["0", "1", "2", "3", "4", "5", "6", "9", "10", "11", "12", "130"]


@needs_man
def test_page_of_the_exporter_has_every_option_and_its_help_fits() -> None:
    text = rendered(MAN / "dtk-exporter.1", 1000)
    for option in OPTIONS:
        assert re.search(rf"^ +--{re.escape(option.name)}( |$)", text, re.M), option.name
    done = subprocess.run([COMMAND, "--help"], env=environment(), capture_output=True, text=True, check=True)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert all(f"--{option.name}" in done.stdout for option in OPTIONS)


def test_page_of_metrics_has_all_of_them() -> None:
    names = re.findall(r"^\.BR (\w+) ", (MAN / "dtk-metrics.7").read_text(), re.M)
    assert names == [metric.name for metric in dtk.metrics.all()]


# ---- help ----


@pytest.mark.parametrize("name", GRAMMARS)
def test_help_has_every_option_and_fits(name: str | None) -> None:
    arguments = {None: [], "nvidia": ["--query-gpu=index"]}.get(name, [name or ""])
    for flag in ("--help", "-h"):
        text = output(*arguments, flag)
        assert max(map(len, text.splitlines())) <= 80
        assert options(name) <= set(OPTION.findall(text))
    assert output("-d", "0", *arguments, "--help") == text


def test_help_lists_the_commands() -> None:
    text = output("--help")
    for name in COMMANDS:
        assert re.search(rf"^ +{name} +[A-Z]", text, re.M)


def test_help_on_a_terminal(tmp_path: Path) -> None:
    text = terminal("--help", root=tmp_path, size=(100, 40))
    assert "╭─" in text
    assert "query" in text
    assert terminal("--help", root=tmp_path, LC_ALL="C").isascii()


@pytest.mark.parametrize(
    ("line", "expected"),
    [("dtk-smi q", {"query"}), ("dtk-smi query --f", {"--format"}), ("dtk-smi ps --u", {"--use", "--user"})],
)
def test_shell_completes(line: str, expected: set[str]) -> None:
    words = line.split()
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_DTK_SMI_COMPLETE": "complete_bash"}
    assert set(output(**variables).split()) == expected
