"""What an examination gives: a report of checks, each with facts and findings."""

from __future__ import annotations

from .._record import Record
from .codes import CODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Check", "Finding", "Report", "check", "found"]

TEXT_MAX = 300  # characters; file names and values of variables may be long


class Finding(Record):
    """Something that is wrong.

    code: of dtk.doctor.CODES, for scripts. text: what was found. meaning: what that means. action: what to do.
    card: PCI address of the card it is about, None for the machine.
    """

    code: str
    text: str
    meaning: str
    action: str
    card: str | None


class Check(Record):
    """One thing that was looked at.

    name: for scripts. title: for people. status: "ok", "finding", "unknown" (it could not be looked at, and summary
    says why) or "skipped" (it makes no sense on this machine). summary: what was seen, in a few lines. facts: the same
    for programs; what JSON can hold.
    """

    name: str
    title: str
    status: str
    summary: tuple[str, ...]
    facts: dict[str, Any]
    findings: tuple[Finding, ...]


class Report(Record):
    """An examination. timestamp: Unix seconds. root, hostname, simulated, live: of the machine, as SystemInfo has them.

    checks: in the order in which a machine comes up. command: a line of shell to run on a node with cards, that shows
    which of the variables that hide devices its runtime obeys; nobody has run it.
    """

    timestamp: float
    root: str
    hostname: str | None
    simulated: bool
    live: bool
    checks: tuple[Check, ...]
    command: str

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all checks."""
        return tuple(finding for check in self.checks for finding in check.findings)

    @property
    def healthy(self) -> bool:
        """There is no finding."""
        return not self.findings


def found(code: str, text: str, card: str | None = None, **words: object) -> Finding:
    """A finding; the card and `words` go into what its code means and what to do."""
    meaning, action = (sentence.format(card=card, **words) for sentence in CODES[code])
    text = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
    return Finding(code, text, meaning, action, card)


def check(
    name: str,
    title: str,
    summary: str | Iterable[str],
    facts: dict[str, Any] | None = None,
    findings: Iterable[Finding] = (),
    status: str = "ok",
) -> Check:
    """A check, whose status is "finding" where there are some."""
    findings = tuple(findings)
    lines = (summary,) if isinstance(summary, str) else tuple(summary)
    return Check(name, title, "finding" if findings else status, lines, facts or {}, findings)
