"""`dtk-smi doctor`: is this node all right, and what to do where it is not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from textwrap import wrap

from dtk import doctor
from dtk.document import rfc3339
from dtk_cli.exit import Exit
from dtk_cli.options import KEY_HELP, Parser, add_machine
from dtk_cli.output import page, write
from dtk_cli.text import BOLD, DIM, GREEN, RED, YELLOW, Screen, complain, width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "dtk-doctor/1"
WIDEST = 100  # longer lines are hard to read
TITLE, STATUS = 14, 9  # columns
CARDS_MAX = 8  # lines of findings that are the same for several cards
STYLES = {"ok": GREEN, "finding": RED, "unknown": YELLOW, "skipped": DIM}

EPILOG = f"""\
Looks at driver, cards, device nodes, health, PCIe links, libraries, compilers,
environment variables, and at what a look costs. Every finding says what it means
and what to do. Nothing is changed, and no card is woken. A librocm_smi64 is loaded
to see whether it works, and may leave files /dev/shm/rocm_smi*; not while a card
sleeps, and not with DTK_SMI_BACKEND=kernel.

With --crosscheck, compares the two sources of readings instead: what to send us
from a machine with cards.

exit status: 0 healthy; 5 findings, or readings that differ; 2 bad usage; 6 no such
device; of --crosscheck also 3 with --root, 9 and 10 no card, 11 and 12 library.

{KEY_HELP}"""


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi doctor", "Say whether this node is all right, and what to do where it is not.", EPILOG)
    parser.add_argument("--json", action="store_true", help="the same as a JSON document of schema dtk-doctor/1")
    parser.add_argument(
        "--crosscheck", action="store_true", help="each reading from the files and from the vendor's library"
    )
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Examine the machine and print what was found."""
    if args.crosscheck:
        from dtk_cli import crosscheck

        return crosscheck.run(args)
    report = doctor.examine(args.root, devices=args.keys, deadline=args.deadline)
    if args.json:
        import json

        write(json.dumps(_document(report), indent=2, allow_nan=False) + "\n")
        if report.simulated:
            complain(f"SIMULATED machine below {report.root}")
    else:
        screen = Screen(sys.stdout)
        write(page(list(_lines(report, screen)), screen, None))
    return Exit.OK if report.healthy else Exit.PARTIAL


def _document(report: doctor.Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "timestamp": rfc3339(report.timestamp),
        "hostname": report.hostname,
        "simulated": report.simulated,
        "live": report.live,
        "healthy": report.healthy,
        "checks": [
            {**check._asdict(), "findings": [finding._asdict() for finding in check.findings]}
            for check in report.checks
        ],
        "command": report.command,
    }


def _lines(report: doctor.Report, screen: Screen) -> Iterator[str]:
    count = len(report.findings)
    kinds = len(_groups(report))
    verdict = "healthy: no findings" if not count else "1 finding" if count == 1 else f"{count} findings"
    verdict += f" of {kinds} kinds" if 1 < kinds < count else ""
    unknown = sum(check.status == "unknown" for check in report.checks)
    if unknown:
        verdict += f", {unknown} check{'s' * (unknown != 1)} unknown"
    host = f" on {screen.text(report.hostname)}" if report.hostname else ""
    host = screen.fit(host, screen.columns - len(verdict))
    yield screen.style(verdict, RED if count else GREEN) + host
    if report.simulated or not report.live:
        kind = screen.style("SIMULATED", YELLOW) if report.simulated else "recorded"
        yield f"{kind} machine below {screen.text(report.root)}"
    yield ""
    for check in report.checks:
        yield from _check(check, screen)
    yield ""
    yield "Which variables hide cards from programs? Run this on a node with cards:"
    yield screen.style(report.command, DIM)
    for number, findings in enumerate(_groups(report), 1):
        yield ""
        yield from _findings(number, findings, screen)


def _check(check: doctor.Check, screen: Screen) -> Iterator[str]:
    """A line, and below it what else was seen."""
    status = screen.style(check.status, STYLES[check.status]) + " " * (STATUS - len(check.status))
    head = f"{check.title:<{TITLE}}"
    for summary in check.summary:
        for line in _wrapped(summary, screen, TITLE + STATUS):
            yield f"{head}{status}{line}".rstrip()
            head, status = " " * TITLE, " " * STATUS


def _groups(report: doctor.Report) -> list[list[doctor.Finding]]:
    """The findings; those that mean the same and want the same of several cards together."""
    groups: dict[tuple[str, ...], list[doctor.Finding]] = {}
    for finding in report.findings:
        action = finding.action.replace(finding.card or "\0", "CARD")
        groups.setdefault((finding.code, finding.meaning, action), []).append(finding)
    return list(groups.values())


def _findings(number: int, findings: list[doctor.Finding], screen: Screen) -> Iterator[str]:
    first = findings[0]
    head, indent = f"{number}. ", " " * len(f"{number}. ")
    for finding in findings[:CARDS_MAX]:
        for line in _wrapped(finding.text, screen, len(head)):
            yield screen.style(head + line, BOLD)
            head = indent
    if len(findings) > CARDS_MAX:
        yield f"{indent}and {len(findings) - CARDS_MAX} more"
    for line in _wrapped(first.meaning, screen, len(indent)):
        yield indent + line
    label = "do: "
    for line in _wrapped(first.action, screen, len(indent + label)):
        yield f"{indent}{label}{line}"
        label = " " * len(label)
    yield indent + screen.style(first.code, DIM)


def _wrapped(text: str, screen: Screen, taken: int = 0) -> list[str]:
    """A text in lines that leave room for what stands before them."""
    room = min(screen.columns, WIDEST) - taken
    lines = wrap(screen.text(text), room, break_on_hyphens=False)
    return [part for line in lines for part in ([line] if width(line) <= room else [screen.fit(line, room)])] or [""]
