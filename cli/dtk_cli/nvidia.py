"""`dtk-smi --query-gpu=… --format=csv`: nvidia-smi's query, word for word, for scripts that were written for it."""

from __future__ import annotations

import argparse
import re
import sys

import dtk
from dtk_cli.exit import Exit, Stop
from dtk_cli.look import each
from dtk_cli.names import metrics_of
from dtk_cli.nvidia_names import ALIASES, QUESTIONS, Question
from dtk_cli.options import Parser, add_machine, count, keys, seconds
from dtk_cli.output import write
from dtk_cli.text import Screen

MISSING = "[N/A]"
EPILOG = """\
Header, units and words are nvidia-smi's; what has no answer here is [N/A].
'dtk-smi query' has more fields, and json.
"""


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi", "Answer a query written for nvidia-smi.", EPILOG)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--query-gpu", metavar="FIELD,...", dest="fields", help="what to print")
    what.add_argument("--help-query-gpu", action="store_true", help="list the fields")
    parser.add_argument("--format", metavar="csv[,noheader][,nounits]", type=_format, help="must be given")
    parser.add_argument("-i", "--id", metavar="KEY", dest="keys", action="extend", type=_ids, help="only these devices")
    parser.add_argument("-l", "--loop", metavar="SECONDS", type=seconds, nargs="?", const=5.0, help="again; default 5")
    parser.add_argument("-lms", "--loop-ms", metavar="MS", dest="loop", type=_milliseconds, help="again")
    parser.add_argument("-n", "--count", metavar="COUNT", type=count, help="end after COUNT times")
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print the rows, or the names of all fields."""
    if args.help_query_gpu:
        write("".join(f'"{name}"\n' for name in QUESTIONS))
        return Exit.OK
    if args.format is None:
        raise Stop(Exit.USAGE, "--query-gpu needs --format=csv", "also csv,noheader and csv,noheader,nounits")
    asked = [name.strip() for name in args.fields.split(",")]
    for name in asked:
        if name not in QUESTIONS and name not in ALIASES:
            write(f'Field "{name}" is not a valid field to query.\n')  # to stdout, as nvidia-smi does
            return Exit.USAGE
    names = [ALIASES.get(name, name) for name in asked]
    questions = [_devices(args) if name == "count" else QUESTIONS[name] for name in names]
    units = "nounits" not in args.format
    header = [f"{name} [{QUESTIONS[name].unit}]" if units and QUESTIONS[name].unit else name for name in names]

    def show(snapshot: dtk.Snapshot, turn: int | None) -> str:
        rows = [[_answer(question, snapshot, device, units) for question in questions] for device in snapshot.devices]
        if not turn and "noheader" not in args.format:
            rows.insert(0, header)
        return "".join(Screen(sys.stdout).text(", ".join(row)) + "\n" for row in rows)

    tiers = {tier for question in questions for tier in question.tiers}
    library = metrics_of(question.ours for question in questions)
    return each(
        args, show, static="static" in tiers, fast="fast" in tiers, slow="slow" in tiers, library_metrics=library
    )


def _devices(args: argparse.Namespace) -> Question:
    """How many devices there are, also of those that were not asked for."""
    if not args.keys:
        return QUESTIONS["count"]
    number = len(dtk.take_snapshot(args.root, deadline=args.deadline, fast=False, library_metrics=()).devices)
    return Question(lambda *_: str(number))


def _answer(question: Question, snapshot: dtk.Snapshot, device: dtk.Reading, units: bool) -> str:
    text = question.answer(snapshot, device)
    if text is None:
        return MISSING
    return f"{text} {question.unit}" if units and question.unit else text


def _format(text: str) -> set[str]:
    words = set(text.split(","))
    if "csv" not in words or words - {"csv", "noheader", "nounits"}:
        raise argparse.ArgumentTypeError(f"{text!r}: it is csv[,noheader][,nounits]")
    return words


def _ids(text: str) -> list[str]:
    """Keys; nvidia-smi writes eight digits of a PCI domain, where Linux writes four."""
    return [re.sub(r"^0000(?=[0-9A-Fa-f]{4}:)", "", key) for key in keys(text)]


def _milliseconds(text: str) -> float:
    return seconds(text) / 1000
