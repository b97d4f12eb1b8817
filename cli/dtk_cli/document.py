"""`dtk-smi --json`: the document of schema dtk/1, see docs/schema/dtk-1.schema.json."""

from __future__ import annotations

import json
from collections.abc import Iterable

import dtk
from dtk_cli.text import rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "dtk/1"


def document(snapshot: dtk.Snapshot, *, verbose: bool = False, notes: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """The document of one look at a machine.

    `verbose` adds where each value came from; `notes` are (code, text) of warnings about the machine as a whole.
    """
    system = snapshot.system
    return {
        "schema": SCHEMA,
        "timestamp": rfc3339(snapshot.timestamp),
        "hostname": system.hostname,
        "simulated": system.simulated,
        "driver": dict(system.drivers),
        "backend": snapshot.backend,
        "library": snapshot.library._asdict() if snapshot.library else None,
        "cards": [_card(card, verbose) for card in snapshot.cards],
        "devices": [_device(device, verbose) for device in snapshot.devices],
        "processes": None if snapshot.processes is None else [process(entry) for entry in snapshot.processes.processes],
        "warnings": [{"code": code, "text": text} for code, text in [*notes, *snapshot.warnings]],
    }


def render(document: dict[str, Any]) -> str:
    """The document as text: ASCII whatever a driver wrote, one line a value."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _card(card: dtk.Reading, verbose: bool) -> dict[str, Any]:
    return {
        "index": card.card_index,
        "bdf": card.bdf,
        "name": card.name,
        "serial": card.serial,
        "drm_card": card.drm_card,
        "numa_node": card.numa_node,
        "driver": card.driver,
        "devices": list(card.card_devices),
        **_values(card, verbose),
    }


def _device(device: dtk.Reading, verbose: bool) -> dict[str, Any]:
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
        **_values(device, verbose),
    }


def process(entry: dtk.Process) -> dict[str, Any]:
    """A process with what it uses; null is not known, and for a number `reasons` says why."""
    found: dict[str, Any] = entry._asdict()
    found["start_time"] = None if entry.start_time is None else rfc3339(entry.start_time)
    found["devices"] = [_usage(usage) for usage in entry.devices]
    return found


def _usage(usage: dtk.ProcessUsage) -> dict[str, Any]:
    found: dict[str, Any] = usage._asdict()
    return {"uuid": found.pop("uuid"), "index": found.pop("device"), **found}


def _values(reading: dtk.Reading, verbose: bool) -> dict[str, Any]:
    """What a card and a device have alike. Every null among the metrics has its reason."""
    sample = reading.sample
    values = {
        "timestamp": rfc3339(sample.timestamp),
        "state": reading.state,
        "info": reading.info,
        "metrics": dict(sample),
        "reasons": {name: sample.reason(name) for name in sample if sample[name] is None},
    }
    if verbose:
        values["sources"] = {name: sample.source(name) for name in sample if sample[name] is not None}
        values["details"] = {name: detail for name in sample if (detail := sample.detail(name))}
        values["ages"] = {name: round(age, 3) for name in sample if (age := sample.age(name)) > 0}
    return values
