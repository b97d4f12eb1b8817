"""The page /: the cards and their states at a glance, also on a phone."""

from __future__ import annotations

from html import escape

import dtk
from dtk.document import rfc3339

from .book import Entry, View

__all__ = ["render"]

STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; --ok: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --ok: #3fb950; --bad: #f85149; --warn: #d29922; } }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.3rem; margin: 0; }
p { margin: .4rem 0 1rem; color: var(--dim); }
ul { list-style: none; margin: 0; padding: 0; }
li { border-top: 1px solid var(--line); padding: .6rem 0; display: grid; grid-template-columns: 1fr auto; gap: 0 1rem; }
.name { font-weight: 600; overflow-wrap: anywhere; }
.id, .values { color: var(--dim); font-size: .85rem; grid-column: 1 / -1; overflow-wrap: anywhere; }
.why { font-size: .85rem; grid-column: 1 / -1; }
.values { color: inherit; font-variant-numeric: tabular-nums; }
.values span { display: inline-block; margin-right: 1.2rem; }
.state { font-weight: 600; }
.ok { color: var(--ok); } .degraded { color: var(--warn); } .lost, .unknown { color: var(--bad); }
.note { border: 1px solid var(--warn); border-radius: 6px; color: inherit; padding: .4rem .7rem; }
nav { border-top: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding-top: .8rem; }
nav a { padding: .3rem 0; }
""".strip()

WHY = {"stale": "hangs", "denied": "may not be read", "failed": "cannot be read"}

LINKS = ("/metrics", "/metrics/compat", "/v1/devices", "/-/ready", "/-/healthy")


def render(view: View | None, late: str | None, is_compat: bool) -> bytes:
    """The page. late: why the values are not fresh, None when they are. is_compat: there is a /metrics/compat."""
    links = [link for link in LINKS if is_compat or link != "/metrics/compat"]
    host = view.snapshot.system.hostname if view else None
    notes = []
    if late:
        notes.append(late)
    if view and view.snapshot.system.simulated:
        notes.append("SIMULATED: these cards do not exist")
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="refresh" content="10">',
        f"<title>{escape(_title(host))}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(_title(host))}</h1>",
        f"<p>{escape(_summary(view))}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        "<ul>",
        *(_entry(entry) for entry in (view.entries if view else ())),
        "</ul>",
        f"<nav>{''.join(f'<a href={link}>{link}</a>' for link in links)}</nav>",
        "</body></html>",
    ]
    return "\n".join(lines).encode("utf-8", "replace")


def _title(host: str | None) -> str:
    return f"dtk-exporter on {host}" if host else "dtk-exporter"


def _summary(view: View | None) -> str:
    if view is None:
        return f"version {dtk.__version__}"
    devices = [entry for entry in view.entries if entry.reading.index is not None]
    if not devices:
        return f"no cards: dtk-smi doctor says why · version {dtk.__version__}"
    states = [entry.state for entry in devices]
    counts = (f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{len(devices)} device{'s' * (len(devices) != 1)}: {', '.join(counts)} · version {dtk.__version__}"


def _entry(entry: Entry) -> str:
    reading = entry.reading
    number = "card" if reading.index is None else f"{reading.index}"
    if entry.state == "lost" and reading.index is not None:
        number = f"was {reading.index}:"  # another may have that number now
    state = "asleep" if entry.asleep else entry.state
    return (
        f'<li><span class="name">{number} {escape(reading.name)}</span>'
        f'<span class="state {entry.state}">{state}</span>'
        f'<span class="id">{escape(entry.uuid)} · {escape(reading.bdf)}</span>'
        f"{_causes(entry)}{_values(entry.sample)}</li>"
    )


def _causes(entry: Entry) -> str:
    """Why it is not well."""
    causes = list(entry.causes)
    if entry.state in ("lost", "unknown"):
        causes = [WHY[entry.reading.state]] if entry.state == "unknown" and entry.reading.state in WHY else []
        known = entry.last_success is not None
        causes.append(f"last answer {rfc3339(entry.last_success or 0)}" if known else "no answer yet")
    return f'<span class="why {entry.state}">{escape(", ".join(causes))}</span>' if causes else ""


def _values(sample: dtk.Sample | None) -> str:
    """The readings that people look for first, those that there are."""
    if sample is None:
        return ""
    temperature = next((t for t in _temperatures(sample) if t is not None), None)
    parts = [
        _part(sample.utilization_gpu, "{:.0f} % busy"),
        _memory(sample.memory_used, sample.memory_total),
        _part(temperature, "{:.0f} °C"),
        _power(sample.power_draw, sample.power_limit),
    ]
    return f'<span class="values">{"".join(f"<span>{part}</span>" for part in parts if part)}</span>'


def _temperatures(sample: dtk.Sample) -> tuple[float | None, ...]:
    return sample.temperature_junction, sample.temperature_edge, sample.temperature_core


def _part(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _memory(used: int | None, total: int | None) -> str:
    if used is None:
        return ""
    return f"{used / 2**30:.1f} of {total / 2**30:.0f} GiB" if total else f"{used / 2**30:.1f} GiB"


def _power(draw: float | None, limit: float | None) -> str:
    if draw is None:
        return ""
    return f"{draw:.0f} of {limit:.0f} W" if limit else f"{draw:.0f} W"
