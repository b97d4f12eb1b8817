"""`dtk-smi ps`: the processes on the cards, of compute and of graphics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import dtk
from dtk.document import rfc3339
from dtk_cli import processes
from dtk_cli.cells import gib
from dtk_cli.exit import Exit, Stop
from dtk_cli.grid import BLANK, Cell, Column, render
from dtk_cli.look import each, is_loop
from dtk_cli.options import KEY_HELP, Parser, add_loop, add_machine
from dtk_cli.output import page
from dtk_cli.text import DIM, Screen

EPILOG = f"""\
Memory in use that no process accounts for is told too: 'memory of no process seen here'.
In a loop the table says how busy a process kept its busiest engine meanwhile.

{KEY_HELP}"""


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi ps", "Show the processes on the cards, of compute and of graphics.", EPILOG)
    parser.add_argument("--user", metavar="NAME", help="only those of this user; a name or a number")
    parser.add_argument(
        "--format", choices=tuple(VIEWS), default="table", metavar="FORMAT", help="table (default), csv, json or tree"
    )
    parser.add_argument("--use", action="store_true", help="ask Hygon's library how busy each keeps a card")
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="the same as --format json")
    add_loop(parser)
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print them."""
    if args.format == "json" and is_loop(args):
        raise Stop(Exit.USAGE, "--format json goes without -l", "--format csv repeats")
    show = VIEWS[args.format](args.user)
    show.use = args.use
    return each(args, show, processes="use" if args.use else "all", library_metrics=())


class View:
    """A way to print the processes of a user, or of all."""

    use = False  # how busy each keeps a card was asked for

    def __init__(self, user: str | None) -> None:
        self.user = user

    def __call__(self, snapshot: dtk.Snapshot, turn: int | None) -> str:
        """The text of one look."""
        screen = Screen(sys.stdout)
        lines = self.lines(snapshot, screen) if snapshot.devices else []
        return page(lines, screen, turn)

    def lines(self, snapshot: dtk.Snapshot, screen: Screen) -> list[str]:
        """The lines of one look at a machine that has devices."""
        raise NotImplementedError

    def processes(self, snapshot: dtk.Snapshot) -> list[dtk.Process]:
        """Those to show."""
        found = snapshot.processes.processes if snapshot.processes else ()
        return [process for process in found if self.user in (None, process.user, str(process.uid))]


class Table(View):
    """A line for each process and device."""

    def __init__(self, user: str | None) -> None:
        super().__init__(user)
        self.engines = Engines()

    def lines(self, snapshot: dtk.Snapshot, screen: Screen) -> list[str]:
        """The lines."""
        wide = screen.columns >= processes.WIDE
        found = processes.pairs(self.processes(snapshot))
        self.engines.next(snapshot)
        columns = [*processes.WHO, *(Column(title, ">") for title in ("VRAM GiB", "GTT GiB", "CU", "Time"))]
        rows = [[*processes.who(*pair, screen), *_numbers(*pair, snapshot)] for pair in found]
        engines = [self.engines.busiest(*pair) for pair in found]
        if any(usage.utilization is not None for _, usage in found):
            columns.append(Column("Use", ">"))
            rows = [[*row, _use(usage)] for row, (_, usage) in zip(rows, found, strict=True)]
        if any(engines):
            columns.append(Column("Engine"))
            rows = [[*row, (engine, "")] for row, engine in zip(rows, engines, strict=True)]
        if wide:
            columns.append(Column("Where"))
            rows = [[*row, (processes.where(process), "")] for row, (process, _) in zip(rows, found, strict=True)]
        rows = [[*row, (processes.command(process, screen), "")] for row, (process, _) in zip(rows, found, strict=True)]
        lines = render([*columns, Column("Command", least=8)], rows, screen)[0] if rows else []
        if self.use and found and all(usage.utilization is None for _, usage in found):
            lines.append(screen.style("use is not known: only Hygon's librocm_smi64 (driver 6.3) tells it", DIM))
        return [*lines, *processes.remarks(snapshot, screen)]


class Engines:
    """How busy processes kept the engines between two looks, from the work that fdinfo counts."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int | None, str], dict[str, int]] = {}
        self._now: dict[tuple[int, int | None, str], dict[str, int]] = {}
        self._moment = self._seconds = 0.0

    def next(self, snapshot: dtk.Snapshot) -> None:
        """Go on to a new look."""
        self._seconds, self._moment = snapshot.monotonic - self._moment, snapshot.monotonic
        self._before = self._now
        found = snapshot.processes.processes if snapshot.processes else ()
        self._now = {_key(process, usage): usage.engine_times for process in found for usage in process.devices}

    def busiest(self, process: dtk.Process, usage: dtk.ProcessUsage) -> str:
        """The engine it used most, and how much of the time; "" where that is not known."""
        before = self._before.get(_key(process, usage))
        if before is None:
            return ""
        shares = [(time - before.get(name, 0), name) for name, time in usage.engine_times.items()]
        nanoseconds, name = max(shares, default=(0, ""))
        return f"{name} {nanoseconds / self._seconds / 1e7:.0f}%" if nanoseconds > 0 else ""


def _key(process: dtk.Process, usage: dtk.ProcessUsage) -> tuple[int, int | None, str]:
    return process.pid, process.start_ticks, usage.uuid


def _numbers(process: dtk.Process, usage: dtk.ProcessUsage, snapshot: dtk.Snapshot) -> list[Cell]:
    gtt, units = usage.memory_gtt_used, usage.compute_units
    return [
        processes.memory(usage),
        ("-", DIM) if gtt is None else (gib(gtt), ""),
        ("-", DIM) if units is None else (str(units), ""),
        (elapsed(snapshot.timestamp - process.start_time), "") if process.start_time else ("-", DIM),
    ]


def _use(usage: dtk.ProcessUsage) -> Cell:
    return ("-", DIM) if usage.utilization is None else (f"{usage.utilization:.0f}%", "")


def elapsed(seconds: float) -> str:
    """A time since something began, in its two largest units."""
    whole = max(0, int(seconds))
    for unit, size, part, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02}{part}"
    return f"{whole}s"


class Tree(View):
    """Each process below the one that started it, with all that it uses."""

    def lines(self, snapshot: dtk.Snapshot, screen: Screen) -> list[str]:
        """The lines."""
        from dtk_cli.tree import branches

        columns = [Column("PID", ">"), Column("User"), Column("GPU"), Column("VRAM GiB", ">")]
        columns.append(Column("Command", least=8))
        rows: list[list[Cell]] = []
        for node, prefix in branches(self.processes(snapshot), screen, snapshot.system.live):
            process = node.process
            if process is None:
                rows.append([(str(node.pid), DIM), BLANK, BLANK, BLANK, (prefix + screen.text(node.name), DIM)])
                continue
            known = [usage.memory_used for usage in process.devices if usage.memory_used is not None]
            gpus = ",".join(str(usage.device) for usage in process.devices)
            text = prefix + processes.command(process, screen)
            memory: Cell = (gib(sum(known)), "") if known else ("-", DIM)
            rows.append([(str(node.pid), ""), (processes.user(process, screen), ""), (gpus, ""), memory, (text, "")])
        lines = render(columns, rows, screen)[0] if rows else []
        return [*lines, *processes.remarks(snapshot, screen)]


class Csv(View):
    """A row for each process and device, memory in bytes."""

    NAMES = (
        "timestamp pid start_time uid user state index uuid memory_used memory_gtt_used queues compute_units "
        "container pod slurm_job name command utilization"
    ).split()

    def __call__(self, snapshot: dtk.Snapshot, turn: int | None) -> str:
        """The rows, in the first turn behind their names."""
        import csv
        import io

        screen, text = Screen(sys.stdout), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not turn:
            writer.writerow(self.NAMES)
        for process, usage in processes.pairs(self.processes(snapshot)):
            started = None if process.start_time is None else rfc3339(process.start_time)
            known = {**process._asdict(), **usage._asdict(), "index": usage.device, "start_time": started}
            known["timestamp"] = rfc3339(snapshot.timestamp)
            values = [known[name] for name in self.NAMES]
            writer.writerow(["" if value is None else screen.text(str(value)) for value in values])
        return text.getvalue()


class Json(View):
    """An object: the processes as in the document of --json, and what is known of those that are not there."""

    def __call__(self, snapshot: dtk.Snapshot, _: int | None) -> str:
        """The object."""
        import json

        from dtk.document import process

        table = snapshot.processes
        found = {
            "processes": None if table is None else [process(entry) for entry in self.processes(snapshot)],
            "hidden": table.hidden if table else None,
            "hidden_reason": table.hidden_reason if table else None,
            "unattributed": table.unattributed if table else {},
            "sources": table.sources if table else {},
            "truncated": table.truncated if table else None,
        }
        return json.dumps(found, indent=2) + "\n"


VIEWS: dict[str, Callable[[str | None], View]] = {"table": Table, "csv": Csv, "json": Json, "tree": Tree}
