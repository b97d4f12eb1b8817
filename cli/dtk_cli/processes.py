"""Processes as rows: below the table of cards, and of `ps`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dtk
from dtk_cli.cells import WORDS, gib
from dtk_cli.grid import Cell, Column, render
from dtk_cli.text import DIM, YELLOW, Screen

MIB = 1 << 20
WIDE = 110  # columns from which it is said where a process runs

# From here memory that belongs to no process is worth a line: below it are the driver and the firmware.
UNATTRIBUTED_BYTES, UNATTRIBUTED_SHARE = 512 * MIB, 0.02

REMARKS = {"denied": "(denied)", "gone": "(has ended)", "unsupported": "(in another PID namespace)"}

Pair = tuple[dtk.Process, dtk.ProcessUsage]


def pairs(processes: Iterable[dtk.Process]) -> list[Pair]:
    """Each process with each device it uses, by device, the largest first."""
    found = [(process, usage) for process in processes for usage in process.devices]
    return sorted(found, key=lambda pair: (pair[1].device, -(pair[1].memory_used or 0), pair[0].pid))


def short_lines(snapshot: dtk.Snapshot, screen: Screen, size: int) -> list[str]:
    """The part of the table below the cards, of the same width."""
    found = snapshot.processes.processes if snapshot.processes else ()
    wide = screen.columns >= WIDE
    columns = [*WHO, Column("Memory GiB", ">"), *[Column("Where")] * wide, Column("Command", least=8)]
    rows = [
        [*who(process, usage, screen), memory(usage), *[(where(process), "")] * wide, (command(process, screen), "")]
        for process, usage in pairs(found)
    ]
    lines = render(columns, rows, screen, least=size, most=size)[0] if rows else []
    return [*lines, *remarks(snapshot, screen)]


def remarks(snapshot: dtk.Snapshot, screen: Screen) -> Iterator[str]:
    """What the rows do not tell: what is hidden, and memory that belongs to none of them."""
    table = snapshot.processes
    if table is None:
        yield screen.style("processes are not known: see the warning", YELLOW)
        return
    if table.hidden or table.hidden_reason:
        count = f"{table.hidden} more may be hidden" if table.hidden else "some may be hidden"
        yield screen.style(screen.text(f"{count}: {table.hidden_reason or 'for an unknown reason'}"), YELLOW)
    if table.truncated:
        yield screen.style("there are more than are shown", YELLOW)
    if "ok" not in table.sources.values():
        places = ", ".join(f"{place}: {status}" for place, status in table.sources.items())
        yield screen.style(f"processes are not known ({places})", DIM)
    elif not table.processes:
        yield screen.style("no process is seen on these devices", DIM)
    if rest := [f"GPU_{index}_{gib(count)}_GiB" for index, count in unattributed(snapshot)]:
        from textwrap import wrap

        text = f"memory of no process seen here: {', '.join(rest)}"
        for line in wrap(text, screen.columns, subsequent_indent="  "):
            yield screen.style(line.replace("_", " "), DIM)


def unattributed(snapshot: dtk.Snapshot) -> Iterator[tuple[int | None, int]]:
    """Devices of which much memory is in use that no process accounts for, and how much."""
    rest = snapshot.processes.unattributed if snapshot.processes else {}
    for device in snapshot.devices:
        total, count = device.sample.memory_total, rest.get(device.uuid, 0)
        if count >= max(UNATTRIBUTED_BYTES, UNATTRIBUTED_SHARE * (total or 0)):
            yield device.index, count


WHO = (Column("GPU", ">"), Column("PID", ">"), Column("User"))


def who(process: dtk.Process, usage: dtk.ProcessUsage, screen: Screen) -> list[Cell]:
    """The cells of these three columns."""
    return [(str(usage.device), ""), (str(process.pid), ""), (user(process, screen), "")]


def user(process: dtk.Process, screen: Screen) -> str:
    """Its name, else its number."""
    name = process.user or ("?" if process.uid is None else str(process.uid))
    return screen.fit(screen.text(name), 12)


def memory(usage: dtk.ProcessUsage) -> Cell:
    """Device memory in GiB."""
    if usage.memory_used is None:
        return WORDS.get(usage.reason("memory_used") or "", ("-", DIM))
    return (gib(usage.memory_used), "")


def command(process: dtk.Process, screen: Screen) -> str:
    """Its command line, else its name, and what is odd about it."""
    words = process.command or process.name or "", REMARKS.get(process.status, "")
    return screen.text(" ".join(filter(None, words)) or "?")


def where(process: dtk.Process) -> str:
    """The job, pod or container it belongs to."""
    if process.slurm_job:
        return f"job {process.slurm_job}"
    if process.pod:
        return f"pod {process.pod[:8]}"
    if process.container:
        return f"{process.runtime or 'container'} {process.container[:12]}"
    return ""
