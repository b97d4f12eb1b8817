"""`dtk-smi --json`: the document of schema dtk/1, see docs/schema/dtk-1.schema.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone

import dtk
from dtk_cli.snapshot import Card, Reading, warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "dtk/1"


def document(
    system: dtk.System,
    cards: Iterable[Card],
    timestamp: float,
    *,
    verbose: bool = False,
    notes: Iterable[tuple[str, str]] = (),
) -> dict[str, Any]:
    """The document of one look at a machine, taken at `timestamp` (unix seconds).

    `verbose` adds where each value came from; `notes` are (code, text) of warnings about the machine as a whole.
    """
    cards = list(cards)
    info = system.info
    indices: dict[int | None, list[int | None]] = {}
    for device in system.devices():
        indices.setdefault(device.card_index, []).append(device.index)
    return {
        "schema": SCHEMA,
        "timestamp": _time(timestamp),
        "hostname": info.hostname,
        "simulated": info.simulated,
        "driver": dict(info.drivers),
        "cards": [_card(card.card, indices[card.card[0].card_index], verbose) for card in cards],
        "devices": [_device(reading, verbose) for card in cards for reading in card.devices],
        "warnings": [{"code": code, "text": text} for code, text in [*notes, *warnings(cards)]],
    }


def render(document: dict[str, Any]) -> str:
    """The document as text: ASCII whatever a driver wrote, one line a value."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _card(reading: Reading, devices: list[int | None], verbose: bool) -> dict[str, Any]:
    card, _ = reading
    return {
        "index": card.card_index,
        "bdf": card.bdf,
        "name": card.name,
        "serial": card.serial,
        "drm_card": card.drm_card,
        "numa_node": card.numa_node,
        "driver": card.driver,
        "devices": devices,
        **_values(reading, verbose),
    }


def _device(reading: Reading, verbose: bool) -> dict[str, Any]:
    device, _ = reading
    return {
        "index": device.index,
        "uuid": device.uuid,
        "bdf": device.bdf,
        "name": device.name,
        "serial": device.serial,
        "drm_card": device.drm_card,
        "drm_render": device.drm_render,
        "kfd_node": device.kfd_node,
        "gpu_id": device.gpu_id,
        "hip_index": device.hip_index,
        "partition": device.partition,
        "card": device.card_index,
        "driver": device.driver,
        **_values(reading, verbose),
    }


def _values(reading: Reading, verbose: bool) -> dict[str, Any]:
    """What a card and a device have alike. Every null among the metrics has its reason."""
    device, sample = reading
    values = {
        "timestamp": _time(sample.timestamp),
        "state": sample.state,
        "info": device.info(),
        "metrics": dict(sample),
        "reasons": {name: sample.reason(name) for name in sample if sample[name] is None},
    }
    if verbose:
        values["sources"] = {name: sample.source(name) for name in sample if sample[name] is not None}
    return values


def _time(seconds: float) -> str:
    """RFC 3339, UTC, milliseconds."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
