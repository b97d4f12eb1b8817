"""Write what is derived from metrics.def and status.def, or check that it is up to date (--check).

The header stays readable on its own and type checkers see every attribute of a sample, yet nobody writes a name, unit
or help twice.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "dtk" / "_native"

UNITS = {
    "PERCENT": "%",
    "BYTES": "B",
    "CELSIUS": "°C",
    "WATT": "W",
    "JOULE": "J",
    "MEGAHERTZ": "MHz",
    "MILLIVOLT": "mV",
    "RPM": "rpm",
    "GIGATRANSFERS": "GT/s",
    "LANES": "lanes",
    "COUNT": "count",
    "BITMASK": "bits",
    "BYTES_PER_SECOND": "B/s",
}
PYTHON_TYPES = {"F64": "float", "I64": "int", "U64": "int", "BITS": "tuple[str, ...]"}


@dataclass(frozen=True)
class Metric:
    """A row of metrics.def."""

    number: int
    name: str
    unit: str
    type: str
    kind: str
    tier: str
    window: str
    family: str
    label: str
    label_value: str
    sources: tuple[str, ...]
    help: str


@dataclass(frozen=True)
class Status:
    """A row of status.def."""

    number: int
    code: str
    name: str
    text: str
    python: str


METRIC = re.compile(
    r"^METRIC\((\d+), (\w+), (\w+), (\w+), (\w+), (\w+), \"([^\"]*)\",\s+"
    r"\"([^\"]*)\", \"([^\"]*)\", \"([^\"]*)\", \(([\w, ]+)\),\s+\"([^\"]*)\"\)$",
    re.MULTILINE,
)
SOURCE = re.compile(r'^SOURCE\((\w+), \w+, "([^"]+)"', re.MULTILINE)
GROUP = re.compile(r"^/\* ---- (.+) ---- \*/$", re.MULTILINE)
STATUS = re.compile(r'^STATUS\((\d+), (\w+), "([^"]*)", "([^"]*)", "([^"]*)"\)$', re.MULTILINE)


def metrics() -> list[Metric]:
    """Rows of metrics.def, in order; fails when one of them does not have the usual form."""
    text = (NATIVE / "metrics.def").read_text()
    rows = []
    for match in METRIC.finditer(text):
        number, name, unit, type_, kind, tier, window, family, label, value, sources, help_text = match.groups()
        source_ids = tuple(sources.split(", "))
        rows.append(
            Metric(int(number), name, unit, type_, kind, tier, window, family, label, value, source_ids, help_text)
        )
    if len(rows) != len(re.findall(r"^METRIC\(", text, re.MULTILINE)):
        sys.exit("metrics.def: a row does not have the form that the first comment gives")
    if [row.number for row in rows] != list(range(len(rows))):
        sys.exit("metrics.def: numbers must run from 0 without a gap")
    return rows


def statuses() -> list[Status]:
    """Rows of status.def, in order."""
    text = (NATIVE / "status.def").read_text()
    return [Status(int(number), *rest) for number, *rest in STATUS.findall(text)]


def header(text: str) -> str:
    """dtk.h with its two enums."""
    status_rows = [(f"    DTK_{row.code} = {row.number},", row.text) for row in statuses()]
    metric_rows = [
        (f"    DTK_METRIC_{row.name.upper()} = {row.number},", f"{UNITS[row.unit]}: {row.help}") for row in metrics()
    ]
    text = between(text, "status.def", ["enum dtk_status {", *aligned(status_rows), "};"])
    return between(
        text,
        "metrics.def",
        ["enum dtk_metric {", *aligned(metric_rows), f"    DTK_METRIC_COUNT = {len(metric_rows)}", "};"],
    )


def aligned(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(code) for code, _ in rows)
    return [f"{code:<{width}} /* {comment} */" for code, comment in rows]


def between(text: str, source: str, lines: list[str]) -> str:
    begin, end = (f"/* generated from {source}: {edge} */" for edge in ("begin", "end"))
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    # The rows are as long as their help: they are not for the formatter.
    body = "\n".join(["/* clang-format off */", *lines, "/* clang-format on */"])
    return f"{head}{begin}\n{body}\n{end}{tail}"


def attributes(_: str) -> str:
    """dtk/attributes.pyi: what the base class of Sample has at run time, for type checkers and editors."""
    lines = [
        "# Made by `make generate` from dtk/_native/metrics.def.",
        "",
        "class MetricAttributes:",
        '    """An attribute for each metric; None where it has no value, and Sample.reason() says why."""',
    ]
    for row in metrics():
        lines += [
            "",
            "    @property",
            f"    def {row.name}(self) -> {PYTHON_TYPES[row.type]} | None:",
            f'        """{UNITS[row.unit]}: {row.help}"""',
        ]
    return "\n".join(lines) + "\n"


def status_table(_: str) -> str:
    """dtk/_statuses.py: status.def for Python, so that errors need no C library."""
    lines = [
        '"""The status table. Made by `make generate` from dtk/_native/status.def."""',
        "",
        "from __future__ import annotations",
        "",
        "# number: (name, meaning, class of dtk.errors that a failed call raises)",
        "STATUSES = {",
        *(f'    {row.number}: ("{row.name}", "{row.text}", "{row.python}"),' for row in statuses()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def table(_: str) -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Made by `make generate` from `dtk/_native/metrics.def`. Names and numbers never change.",
        "",
        "| number | name | unit | type | kind | tier | window | exporter family (`dtk_device_…`) | meaning |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in metrics():
        label = f'{{{row.label}="{row.label_value}"}}' if row.label else ""
        lines.append(
            f"| {row.number} | `{row.name}` | {UNITS[row.unit]} | {row.type.lower()} | {row.kind.lower()} "
            f"| {row.tier.lower()} | {row.window} | `{row.family}{label}` | {row.help} |"
        )
    return "\n".join(lines) + "\n"


MANUAL = r"""
Every number has one name, in
.BR dtk\-smi (1),
in its JSON and in
.BR "import dtk" ;
the C API has it in capitals, with DTK_METRIC_ before it. Behind a name stand its unit, its type, and its tier: static
changes only with a setting, fast costs microseconds, slow reads many files. A counter only grows. A value that is
missing is never 0: it is null, None or
.BR \- ,
and has a reason.
.PP
.B dtk\-smi fields
says which of them the cards of a machine have, and how nvidia\-smi calls them.
"""


def manual(_: str) -> str:
    """man/dtk-metrics.7."""
    files = dict(SOURCE.findall((NATIVE / "sources.def").read_text() + (NATIVE / "rsmi.def").read_text()))
    rows = {row.name: row for row in metrics()}
    groups = GROUP.split((NATIVE / "metrics.def").read_text())[1:]  # a title, its rows, a title, its rows …
    lines = [
        r".\" Made by `make generate` from dtk/_native/metrics.def.",
        r'.TH DTK\-METRICS 7 "" "dtk" "Miscellaneous Information"',
        ".ad l",
        ".SH NAME",
        r"dtk\-metrics \- what dtk reads of Hygon DCU cards and AMD ROCm GPUs",
        ".SH DESCRIPTION",
        MANUAL.strip(),
    ]
    for title, body in zip(groups[::2], groups[1::2], strict=True):
        lines.append(f".SH {roff(title.upper())}")
        for match in METRIC.finditer(body):
            lines += entry(rows[match.group(2)], files)
    return "\n".join([*lines, ".SH SEE ALSO", r".BR dtk\-smi (1)"]) + "\n"


def entry(row: Metric, files: dict[str, str]) -> list[str]:
    """A metric in a manual page."""
    unit = "" if row.unit in ("COUNT", "BITMASK") else UNITS[row.unit]
    facts = (unit, PYTHON_TYPES[row.type].partition("[")[0], row.kind.lower(), row.tier.lower())
    return [
        ".TP",
        f'.BR {row.name} " ({roff(", ".join(filter(None, facts)))})"',
        roff(row.help),
        *([f"Window: {roff(row.window)}."] if row.window else []),
        f"Read from {roff(', '.join(files[source] for source in row.sources))}.",
    ]


def roff(text: str) -> str:
    """A text without what groff takes for something else, whose names of fields and files are not hyphenated."""
    escapes = {"\\": r"\e", "-": r"\-", "^": r"\(ha", "°": r"\(de"}
    text = "".join(escapes.get(character, character) for character in text)
    return re.sub(r"(?<!\S)(?=\S*[_/])", r"\\%", text)


TARGETS = {
    NATIVE / "include" / "dtk.h": header,
    ROOT / "dtk" / "attributes.pyi": attributes,
    ROOT / "dtk" / "_statuses.py": status_table,
    ROOT / "docs" / "metrics.md": table,
    ROOT / "man" / "dtk-metrics.7": manual,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    check = parser.parse_args().check
    stale = []
    for path, make in TARGETS.items():
        old = path.read_text() if path.exists() else ""
        new = make(old)
        if new != old:
            stale.append(path)
            if not check:
                path.write_text(new)
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date, run `make generate`' if check else 'written'}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
