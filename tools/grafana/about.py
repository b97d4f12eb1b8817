"""What a panel says of itself: of a family, what the catalogue and the exporter say."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import dtk.metrics
from dtk_exporter.families import BY_NAME

# Units of the catalogue, as Grafana calls the base unit that the exporter converts them to.
UNITS = {
    "": "short",
    "%": "percentunit",
    "B": "bytes",
    "B/s": "binBps",
    "C": "celsius",
    "GT/s": "suffix: GT/s",
    "J": "joule",
    "MHz": "hertz",
    "W": "watt",
    "mV": "volt",
    "rpm": "rotrpm",
}
RATES = {"joule": "watt", "short": "cps"}  # what a unit becomes by the second

# What the name of a family says of its unit; a panel's axis says it too.
SUFFIX = re.compile(
    r"(_(ratio|bytes|bytes_per_second|celsius|gigatransfers|hertz|joules|lanes|volts|watts))?(_total)?$"
)
ACRONYMS = {"Ecc": "ECC", "Pcie": "PCIe"}


@dataclass(frozen=True)
class About:
    """Title, help and Grafana's unit of a panel."""

    title: str
    help: str
    unit: str = "short"

    def but(self, title: str, unit: str | None = None) -> About:
        """The same under another title, in another unit."""
        return replace(self, title=title, unit=unit or self.unit)

    def rate(self) -> About:
        """Of a counter: how fast it grows."""
        return self.but(f"{self.title} per second", RATES[self.unit])


def families() -> tuple[str, ...]:
    """The families of the catalogue, without the prefix, in its order."""
    return tuple(dict.fromkeys(metric.family for metric in dtk.metrics.all()))


def counter(family: str) -> bool:
    """Whether a family only grows."""
    return next(metric.kind == "counter" for metric in dtk.metrics.all() if metric.family == family)


def label(family: str) -> str:
    """What tells the series of a card apart; "" where there is but one."""
    return "reason" if family == "throttle_active" else next(m.label for m in dtk.metrics.all() if m.family == family)


def about(family: str, value: str | None = None) -> About:
    """What the catalogue says of a family, or of the one of its series that has this label value."""
    rows = [row for row in dtk.metrics.all() if row.family == family and value in (None, row.label_value)]
    if not rows:
        raise KeyError(f"no family {family!r} with a series {value!r} in the catalogue")
    (unit,) = {row.unit for row in rows}
    title = SUFFIX.sub("", family).replace("_", " ").capitalize()
    for word, acronym in ACRONYMS.items():
        title = title.replace(word, acronym)
    if value:
        title += f": {value}"
    text = rows[0].help if len(rows) == 1 else "\n".join(f"- **{row.label_value}**: {row.help}" for row in rows)
    return About(title, text, UNITS[unit])


def own(family: str, title: str, unit: str = "short") -> About:
    """What the exporter says of a family that is not the catalogue's."""
    return About(title, BY_NAME[family].help, unit)
