"""`dtk-smi show DEVICE`: everything that is known of a device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import dtk
from dtk_cli import names, processes
from dtk_cli.cells import GIB, WORDS
from dtk_cli.exit import Exit
from dtk_cli.grid import Cell, Column, render
from dtk_cli.look import group, mention, take, verdict, warn
from dtk_cli.options import KEY_HELP, Parser, add_machine, keys
from dtk_cli.output import page, write
from dtk_cli.text import BOLD, DIM, MIN_COLUMNS, Screen

HYGON = 0x1D94  # vendor_id
LABEL = 31  # columns for a name: the longest is that long


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi show", "Show everything that is known of a device.", KEY_HELP)
    parser.add_argument("devices", metavar="DEVICE", nargs="*", type=keys, help="which, by KEY; all by default")
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print it: of a partition also what its card knows."""
    args.keys = [*args.keys, *(key for several in args.devices for key in several)]
    snapshot = take(args, slow=True, processes="all")
    screen = Screen(sys.stdout)
    lines = [line for reading in _readings(snapshot) for line in (*_section(snapshot, reading, screen), "")]
    if snapshot.devices:
        lines += processes.short_lines(snapshot, screen, MIN_COLUMNS)
    write(page(lines, screen, None))
    mention(snapshot)
    told: set[str] = set()
    code = verdict(snapshot, told=told)
    warn(snapshot, told)
    return code


def _readings(snapshot: dtk.Snapshot) -> Iterator[dtk.Reading]:
    for card, partitions in group(snapshot):
        yield card
        yield from partitions


def _section(snapshot: dtk.Snapshot, reading: dtk.Reading, screen: Screen) -> Iterator[str]:
    title = f"Card {reading.card_index}" if reading.index is None else f"GPU {reading.index}"
    part = f", partition {reading.partition} of card {reading.card_index}" if reading.is_partition else ""
    yield screen.style(f"{title}: {screen.text(reading.name)}{part}", BOLD)
    yield from _names(snapshot, reading, screen)
    sample, absent, rows = reading.sample, [], []
    for metric in dtk.metrics.all():
        reason = sample.reason(metric.name)
        if reason in ("unsupported", "on_card"):
            absent.append(metric.name)
        else:
            more = sample.detail(metric.name) if reason else _source(sample, metric)
            name, source = f"  {metric.name:<{LABEL}}", screen.text(more or "")
            rows.append([(name, ""), _value(sample, metric, screen), (source, DIM)])
    columns = [Column(""), Column("", ">"), Column("", least=8)]
    yield ""
    yield from render(columns, rows, screen, titles=False)[0]
    yield from _details(reading, screen)
    library = [name for name in absent if reading.vendor_id == HYGON and _is_of_library(name)]
    absent = [name for name in absent if name not in library]
    if absent:
        where = "not of a partition" if reading.is_partition else "not on this card"
        yield from _wrapped(f"{where}: {', '.join(absent)}", screen)
    if library:
        yield from _wrapped(f"only with Hygon's librocm_smi64: {', '.join(library)}", screen)


def _names(snapshot: dtk.Snapshot, reading: dtk.Reading, screen: Screen) -> Iterator[str]:
    for name, (_, read) in names.IDENTITY.items():
        value = read(snapshot, reading)
        if value is not None and name not in ("timestamp", "hostname", "index", "name"):
            yield f"  {name:<{LABEL}}  {screen.text(str(value))}"


def _details(reading: dtk.Reading, screen: Screen) -> Iterator[str]:
    """What is no metric: errors by block and memory bank, firmware versions."""
    for name, block in reading.ecc_blocks.items():
        counts = (f"{kind} {'-' if count is None else count}" for kind, count in zip(block._fields, block, strict=True))
        yield f"  {'errors in ' + screen.text(name):<{LABEL}}  {', '.join(counts)}"
    for bank, numbers in reading.memory_banks.items():
        shown = ", ".join(f"{screen.text(name)} {count}" for name, count in numbers.items())
        yield f"  {'memory bank ' + screen.text(bank):<{LABEL}}  {shown}"
    for name, version in reading.firmware.items():
        yield f"  {'firmware ' + screen.text(name):<{LABEL}}  {screen.text(version)}"


def _is_of_library(name: str) -> bool:
    """No file has it."""
    return all(source.startswith("rsmi_") for source in dtk.metrics.get(name).sources)


def _source(sample: dtk.Sample, metric: dtk.Metric) -> str:
    """Where a value is from, and of what is measured over a window how long that is."""
    window = f"over {metric.window}, " if metric.tier == "slow" and metric.window[:1].isdigit() else ""
    return f"{window}{sample.source(metric.name)}"


def _value(sample: dtk.Sample, metric: dtk.Metric, screen: Screen) -> Cell:
    value = sample[metric.name]
    if value is None:
        return WORDS[sample.reason(metric.name) or "unsupported"]
    if isinstance(value, tuple):
        return (" ".join(value) or "none", "")
    if metric.unit == "B":
        return (f"{value / GIB:.2f} GiB", "")
    return (f"{value} {screen.celsius if metric.unit == 'C' else metric.unit}".rstrip(), "")


def _wrapped(text: str, screen: Screen) -> Iterator[str]:
    from textwrap import wrap

    yield ""
    for line in wrap(text, min(screen.columns, 100), initial_indent="  ", subsequent_indent="  "):
        yield screen.style(line, DIM)
