"""The document of one look at a machine, schema dtk/1: `dtk-smi --json` and the exporter's /v1/devices.

See docs/schema/dtk-1.schema.json.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .process import Process, ProcessUsage
    from .snapshot import Reading, Snapshot

__all__ = ["SCHEMA", "document", "process", "render", "rfc3339"]

SCHEMA = "dtk/1"


def document(snapshot: Snapshot, *, verbose: bool = False, notes: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
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


def rfc3339(seconds: float) -> str:
    """A time in Unix seconds as UTC, with milliseconds."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{milliseconds:03}Z"


def render(document: dict[str, Any]) -> str:
    """The document as text: ASCII whatever a driver wrote, one line a value."""
    import json  # slow to import, and who only wants a time does not need it

    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _card(card: Reading, verbose: bool) -> dict[str, Any]:
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


def _device(device: Reading, verbose: bool) -> dict[str, Any]:
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


def process(entry: Process) -> dict[str, Any]:
    """A process with what it uses; null is not known, and for a number `reasons` says why."""
    found: dict[str, Any] = entry._asdict()
    found["start_time"] = None if entry.start_time is None else rfc3339(entry.start_time)
    found["devices"] = [_usage(usage) for usage in entry.devices]
    return found


def _usage(usage: ProcessUsage) -> dict[str, Any]:
    found: dict[str, Any] = usage._asdict()
    return {"uuid": found.pop("uuid"), "index": found.pop("device"), **found}


def _values(reading: Reading, verbose: bool) -> dict[str, Any]:
    """What a card and a device have alike. Every null among the metrics has its reason."""
    sample = reading.sample
    values = {
        "timestamp": rfc3339(sample.timestamp),
        "state": reading.state,
        "info": reading.info,
        "metrics": dict(sample),
        "reasons": sample.missing(),
    }
    if verbose:
        values["sources"] = {name: sample.source(name) for name in sample if sample[name] is not None}
        values["details"] = {name: detail for name in sample if (detail := sample.detail(name))}
        values["ages"] = {name: round(age, 3) for name in sample if (age := sample.age(name)) > 0}
    return values
