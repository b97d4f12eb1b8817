"""Bare dtk-smi, the table: golden screens, what it says of a card, processes below it, and in a loop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import MACHINES, device_directory, hwmon_directory, put
from smi import ESCAPE, SMI, bare, document, environment, output, smi, stable, terminal, widest

import dtk

Get = Callable[[str], Path]
Golden = Callable[[str, str], None]
MI210 = "0000:03:00.0"  # its first card
SIZES = ((80, 24), (100, 30), (200, 60))


# ---- golden screens ----


@pytest.mark.parametrize("name", MACHINES)
def test_table(machine: Get, golden: Golden, name: str) -> None:
    table = output(root=machine(name))
    golden(f"cli/table-{name}.txt", stable(table, machine(name)))
    assert widest(table) <= 80
    assert "SIMULATED" in table.splitlines()[-1]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["k100_ai-2s", "mi300x-cpx", "mixed"])
def test_screen(machine: Get, golden: Golden, name: str, size: tuple[int, int]) -> None:
    screen = terminal(root=machine(name), size=size)
    golden(f"cli/screen-{name}-{size[0]}x{size[1]}.txt", stable(screen, machine(name)))
    assert widest(ESCAPE.sub("", screen)) <= size[0]


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}],
    ids=["C", "dumb", "no colour", "no colour wins"],
)
def test_plain_screens(machine: Get, golden: Golden, variables: dict[str, str]) -> None:
    """Of a terminal that cannot, or should not, do more: the same text as without colours."""
    root = machine("mi300x-cpx")
    screen = stable(terminal(root=root, size=(100, 30), **variables), root)
    if variables == {"LC_ALL": "C"}:
        golden("cli/screen-mi300x-cpx-100x30-C.txt", screen)
        assert screen.isascii()
        screen = ESCAPE.sub("", screen)
        assert len(screen.splitlines()) == len(stable(output(root=root), root).splitlines())
    else:
        assert screen == ESCAPE.sub("", stable(terminal(root=root, size=(100, 30)), root))


def test_colour_is_for_terminals_only(machine: Get) -> None:
    root = machine("k100_ai-2s")
    plain = stable(output(root=root), root)
    assert "\x1b" not in plain
    coloured = terminal(root=root)
    assert "\x1b[" in coloured
    assert stable(ESCAPE.sub("", coloured), root) == plain
    assert output(root=root, FORCE_COLOR="1") != output(root=root)
    assert "\x1b" not in terminal("-L", root=root)


def test_columns_count_where_there_is_no_terminal(machine: Get) -> None:
    root = machine("k100_ai-2s")
    wide = stable(output(root=root, COLUMNS="120"), root)
    assert wide == ESCAPE.sub("", stable(terminal(root=root, size=(120, 40)), root))
    for nonsense in ("", "many", "-5", "7"):
        assert widest(output(root=root, COLUMNS=nonsense)) == 80


def test_64_partitions_are_a_line_each(tmp_path: Path) -> None:
    from dtk import sim

    sim.write(tmp_path / "node", cards=["mi300x-cpx:8"], seed=1)
    table = output(root=tmp_path / "node")
    cards = above(table)
    assert len(cards) == 8 + 64
    assert [int(line.split()[0]) for line in cards if re.match(r" *\d", line)] == list(range(64))
    assert widest(table) <= 80


# ---- what it says of a card ----


def above(table: str) -> list[str]:
    """The lines of the cards."""
    return table.partition("\n\n")[0].splitlines()[2:]


def row(table: str, index: int) -> str:
    (line,) = [line for line in above(table) if line.startswith(f"{index:3}  ")]
    return line


def test_table_tells_the_states(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    cards = [entry["bdf"] for entry in document(root=root)["cards"]]
    device = [device_directory(root, bdf) for bdf in cards]
    for path in device:  # what is broken below must not come from here
        (path / "gpu_metrics").unlink()
        put(path, "gpu_busy_percent", "3\n")
    put(device[0], "power/runtime_status", "suspended\n")
    (critical,) = hwmon_directory(root, cards[1]).glob("temp2_crit")
    put(hwmon_directory(root, cards[1]), "temp2_input", critical.read_text())
    put(device[2], "mem_info_vram_used", (device[2] / "mem_info_vram_total").read_text())
    put(device[3], "gpu_busy_percent", "97\n")
    put(device[4], "gpu_busy_percent", "what\n")
    (device[5] / "gpu_busy_percent").unlink()
    (hwmon_directory(root, cards[6]) / "power1_average").unlink()
    table = output(root=root)
    assert row(table, 0).split()[-2:] == [cards[0].removeprefix("0000:"), "asleep"]
    assert row(table, 1).endswith("hot")
    assert row(table, 2).endswith("100%    3%  full")
    assert row(table, 3).endswith(" 97%  busy")
    assert row(table, 4).endswith(" err  err")
    assert row(table, 5).endswith("   -  ok")
    assert row(table, 7).endswith("  3%  ok")
    assert "  -/300  " in row(table, 6)
    coloured = output(root=root, FORCE_COLOR="1").splitlines()
    assert list(map(ESCAPE.sub, [""] * len(above(table)), coloured[2:])) == above(table)
    for word in ("\x1b[1;31mhot\x1b[0m", "\x1b[33mfull\x1b[0m", "\x1b[32mbusy\x1b[0m", "\x1b[1;31merr\x1b[0m"):
        assert any(line.endswith(word) for line in coloured)


def test_denied_is_told_from_missing(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    path = device_directory(root, MI210)
    for name in ("gpu_busy_percent", "gpu_metrics", "mem_info_vram_used"):
        (path / name).chmod(0)
    for bank in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/mem_banks/*/used_memory"):
        bank.chmod(0)
    env = environment(DTK_SMI_ROOT=str(root))
    done = subprocess.run([*bare(), SMI], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert row(done.stdout, 0).endswith("denied/64       denied  ok")


class Sample(dict[str, Any]):
    """Some readings; the others are missing, for one reason."""

    def __init__(self, reason: str = "unsupported", **values: float) -> None:
        super().__init__(dict.fromkeys((metric.name for metric in dtk.metrics.all()), None) | values)
        self.state = "ok" if values else reason
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def reason(self, name: str) -> str | None:
        return self._reason if self[name] is None else None


@pytest.mark.parametrize(
    ("state", "word"),
    [("gone", "lost"), ("denied", "denied"), ("failed", "err"), ("asleep", "asleep"), ("stale", "stale")],
)
def test_device_that_does_not_answer(state: str, word: str) -> None:
    """Its state stands in one place, and its other cells are empty."""
    from dtk_cli import cells
    from dtk_cli.text import Screen

    sample: Any = Sample(state)
    with open(os.devnull, "w") as stream:
        shown = [cells.temperature(sample, Screen(stream))]
    shown += [show(sample) for show in (cells.power, cells.memory, cells.memory_percent, cells.utilization)]
    assert [text for text, _ in shown] == [""] * 5
    assert cells.state(sample)[0] == word


def test_what_matters_most_comes_first() -> None:
    from dtk_cli import cells

    values: dict[str, Any] = {}
    for word, more in (
        ("ok", {"utilization_gpu": 9.0}),
        ("busy", {"utilization_gpu": 10.0}),
        ("capped", {"throttle_status": ("ppt0", "tdc_gfx")}),
        ("full", {"memory_used": 95, "memory_total": 100}),
        ("throttled", {"throttle_status": ("ppt0", "temp_mem")}),
        ("hot", {"temperature_memory": 95.0, "temperature_memory_critical": 95.0}),
    ):
        values |= more
        sample: Any = Sample(**values)
        assert cells.state(sample)[0] == word
    sample = Sample("failed", **values)
    assert cells.state(sample)[0] == "err"


def test_bars_and_their_ends(machine: Get) -> None:
    from dtk_cli.text import Screen

    with open(os.devnull, "w", encoding="utf-8") as stream:
        screen = Screen(stream)
    assert [screen.bar(percent, 4) for percent in (0, 12, 13, 50, 99, 100, 250, -3)] == [
        "▁▁▁▁", "▃▁▁▁", "▃▁▁▁", "▆▆▁▁", "▆▆▆▆", "▆▆▆▆", "▆▆▆▆", "▁▁▁▁",
    ]  # fmt: skip


# ---- processes ----


def below(table: str) -> list[str]:
    return table.partition("\n\n")[2].splitlines()


@pytest.mark.parametrize("name", ["k100_ai-2s", "mi300x-cpx"])
def test_processes_stand_below_the_cards(machine: Get, name: str) -> None:
    with dtk.System(machine(name)) as system:
        expected = [
            (usage.device, process.pid) for process in system.processes().processes for usage in process.devices
        ]
    assert expected
    lines = below(output(root=machine(name)))
    found = [tuple(map(int, line.split()[:2])) for line in lines if re.match(r" *\d+ +\d+  ", line)]
    assert sorted(found) == sorted(expected)
    (index, pid), *_ = expected
    only = output("-d", str(index), root=machine(name))
    assert str(pid) in "\n".join(below(only))
    assert {int(line.split()[0]) for line in below(only) if re.match(r" *\d+ +\d+  ", line)} == {index}


def test_memory_of_no_process_is_told(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    for entry in (root / "sys/class/kfd/kfd/proc").iterdir():
        entry.rename(root / entry.name)
    lines = below(output(root=root))
    assert lines[0] == "no process is seen on these devices"
    assert lines[1].startswith("memory of no process seen here: GPU 1 ")
    assert "GPU 0" not in lines[1]  # its few MiB are the driver's


# ---- again and again ----


def test_loop_in_a_pipe_appends(machine: Get) -> None:
    root = machine("k100_ai-2s")
    done = smi("-l", "0.2", "-n", "3", root=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("SIMULATED") == 3
    assert "\x1b" not in done.stdout
    assert stable(done.stdout, root).count(stable(output(root=root), root)) == 3


def test_loop_on_a_terminal_stays_in_its_place(machine: Get) -> None:
    screens = terminal("--loop", "0.2", "--count", "3", root=machine("mi300x-cpx"), size=(80, 12)).split("\x1b[H")
    assert len(screens) == 4
    for screen in screens[1:]:
        assert len(screen.splitlines()) <= 12
        assert "lines more" in screen


def test_ticks_are_monotonic(machine: Get) -> None:
    began = time.monotonic()
    output("-l", "0.5", "-n", "3", root=machine("k100_ai-2s"))
    assert 1.0 < time.monotonic() - began < 5


def test_first_ctrl_c_ends_a_loop_quietly(machine: Get) -> None:
    env = environment(DTK_SMI_ROOT=str(machine("mi210")))
    pipe = subprocess.PIPE
    for arguments in (["-l", "0.2"], ["query", "index", "-l", "0.2"], ["ps", "-l", "0.2"], ["-l", "100"]):
        with subprocess.Popen([SMI, *arguments], env=env, stdout=pipe, stderr=pipe) as process:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == -signal.SIGINT  # in a shell 130
            assert b"Traceback" not in process.stderr.read()
