"""`dtk-smi virtual`: the virtual devices of Hygon cards (vDCU), and what their cards have left."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from textwrap import wrap

import dtk
from dtk_cli.cells import GIB, WORDS, gib
from dtk_cli.exit import Exit
from dtk_cli.grid import Cell, Column, render
from dtk_cli.look import mention, take, verdict, warn
from dtk_cli.options import KEY_HELP, Parser, add_machine
from dtk_cli.output import page, write
from dtk_cli.text import DIM, Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EPILOG = f"""\
What a virtual device uses, which container owns it and what its card has left
is known to Hygon's libhydmi.so alone, which is asked on this machine where it is
installed (or: DTK_SMI_HYDMI_LIB=FILE). Elsewhere /etc/vdev/vdev*.conf tells what
each was given. Read only. Untested on a card.

{KEY_HELP}"""

HYGON = 0x1D94

# Exit status by what became of the library; "stale" is a matter of the deadline.
CODES = {"denied": Exit.DENIED, "library": Exit.LIBRARY, "failed": Exit.LIBRARY}


def build_parser() -> Parser:
    """The grammar."""
    parser = Parser("dtk-smi virtual", "Show the virtual devices of Hygon cards, and what the cards have left.", EPILOG)
    parser.add_argument("--json", action="store_true", help="the same as a JSON object")
    add_machine(parser)
    return parser


def run(args: argparse.Namespace) -> Exit:
    """Print them. What a card that does not answer reads is not asked for here."""
    library = os.environ.get("DTK_SMI_HYDMI_LIB") or True
    snapshot = take(args, fast=False, library_metrics=(), virtual=library)
    table = snapshot.virtual
    assert table is not None  # it was asked for
    if args.json:
        import json

        write(json.dumps(_document(snapshot, table), indent=2) + "\n")
    else:
        screen = Screen(sys.stdout)
        write(page(list(_lines(snapshot, table, screen)), screen, None))
    mention(snapshot)
    told: set[str] = set()
    code = verdict(snapshot, told=told)
    warn(snapshot, told)
    return code or CODES.get(table.sources["library"], Exit.OK)


# ---- the view ----


def _lines(snapshot: dtk.Snapshot, table: dtk.VirtualTable, screen: Screen) -> Iterator[str]:
    if table.cards:
        yield from render(CARDS, [_card(snapshot, card, screen) for card in table.cards], screen)[0]
        yield ""
    if table.devices:
        yield from render(DEVICES, [_device(device) for device in table.devices], screen)[0]
    elif snapshot.devices:
        there = "etc/vdev has no file of one" if table.sources["file"] == "ok" else "there is no etc/vdev"
        yield f"no virtual devices: each card is whole ({there})"
        if snapshot.system.simulated:
            yield "python -m dtk.sim DIR --virtual 4 makes a machine that has some"
    for note in _notes(snapshot, table):
        for line in wrap(screen.text(note), screen.columns, subsequent_indent="  "):
            yield screen.style(line, DIM)


CARDS = [Column("Card", ">"), Column("Bus id"), Column("CU left", ">"), Column("GiB left", ">"), Column("Name")]
DEVICES = [
    Column("vDCU", ">"),
    Column("Card", ">"),
    Column("Bus id"),
    Column("CU", ">"),
    Column("Memory GiB", "/"),
    Column("Use", ">"),
    Column("Pipe", ">"),
    Column("On"),
    Column("From"),
    Column("Container", least=9),
]


def _card(snapshot: dtk.Snapshot, card: dtk.VirtualCard, screen: Screen) -> list[Cell]:
    known = next((reading for reading in snapshot.cards if reading.card_index == card.card), None)
    return [
        _plain(card.card),
        _plain(known and known.bdf.removeprefix("0000:")),
        _reading(card, "compute_units_free"),
        _reading(card, "memory_free"),
        _plain(screen.text(known.name) if known else f"the library's {card.card_number}; not known which"),
    ]


def _device(device: dtk.VirtualDevice) -> list[Cell]:
    enabled = {None: ("-", DIM), True: ("yes", ""), False: ("no", "")}[device.enabled]
    return [
        (str(device.id), ""),
        _plain(device.card),
        _plain(device.bdf and device.bdf.removeprefix("0000:")),
        ("shared", "") if device.compute_units == 0 else _reading(device, "compute_units"),
        _memory(device),
        _reading(device, "utilization"),
        _plain(device.pipe),
        enabled,
        (device.sources[0] if len(device.sources) == 1 else "both", ""),
        _plain(device.container),
    ]


def _memory(device: dtk.VirtualDevice) -> Cell:
    used, style = _reading(device, "memory_used")
    return (used if device.memory_total is None else f"{used}/{_gib(device.memory_total).removesuffix('.0')}", style)


def _reading(row: dtk.VirtualDevice | dtk.VirtualCard, name: str) -> Cell:
    value = getattr(row, name)
    if value is None:
        return WORDS[row.reasons[name]]
    if name.startswith("memory"):
        return (_gib(value), "")
    return (f"{value:.0f}%" if name == "utilization" else str(value), "")


def _gib(count: int) -> str:
    """As everywhere, but a device may have so little that it would look like none."""
    return "<0.1" if 0 < count < 0.05 * GIB else gib(count)


def _plain(value: object) -> Cell:
    return ("-", DIM) if value is None else (str(value), "")


def _notes(snapshot: dtk.Snapshot, table: dtk.VirtualTable) -> Iterator[str]:
    """What the rows do not say: what there is not, and why."""
    details = [row.details for row in table.devices] + [card.details for card in table.cards]
    yield from dict.fromkeys(f"{name}: {text}" for row in details for name, text in row.items())
    if not snapshot.devices:
        return
    if not any(reading.vendor_id == HYGON for reading in snapshot.cards):
        yield "only Hygon cards can have virtual devices, and none of these is one"
    elif not snapshot.system.live:
        yield "of another machine the files in etc/vdev alone are read: they know no use, no owner, not what is left"
    elif table.sources["library"] == "not_found":
        yield "use, owner and what is left are known to Hygon's libhydmi.so, which was not found"
    elif table.most is not None:
        yield f"a card can have {table.most}, says {table.library}"


# ---- the document ----


def _document(snapshot: dtk.Snapshot, table: dtk.VirtualTable) -> dict[str, Any]:
    left = {card.card: card for card in table.cards}
    return {
        "virtual": [{**device._asdict(), "sources": list(device.sources)} for device in table.devices],
        "cards": [_card_object(reading, left.get(reading.card_index)) for reading in snapshot.cards],
        "unknown_cards": [card._asdict() for card in table.cards if card.card is None],
        "most": table.most,
        "sources": table.sources,
        "library": table.library,
        "simulated": snapshot.system.simulated,
        "warnings": [{"code": code, "text": text} for code, text in snapshot.warnings],
    }


def _card_object(reading: dtk.Reading, left: dtk.VirtualCard | None) -> dict[str, Any]:
    names = ("compute_units_free", "memory_free")
    found: dict[str, Any] = {"index": reading.card_index, "bdf": reading.bdf, "name": reading.name}
    if left is None:
        return {
            **found,
            "card_number": None,
            **dict.fromkeys(names),
            "reasons": dict.fromkeys(names, "unsupported"),
            "details": {},
        }
    return {**found, **{name: value for name, value in left._asdict().items() if name != "card"}}
