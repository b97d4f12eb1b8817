"""What the cards read, and what that says of their health; their links; what they cost to read."""

from __future__ import annotations

from .look import Look, count, driver_of, label
from .report import Check, Finding, check, found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..process import ProcessTable
    from ..snapshot import Reading, Snapshot

MIB, GIB = 1 << 20, 1 << 30

STATES = {
    "stale": "does not answer",
    "gone": "is gone",
    "denied": "may not be read",
    "failed": "gives no reading that can be true",
}
WORDS = {"ok": "answer", "stale": "do not"}
SENSORS = ("junction", "edge", "memory")
NAMES_MAX = 4  # of readings that failed
TABLE = "gpu_metrics"
SLOW = 100_000  # microseconds of one source


# ---- health ----


def health(look: Look) -> Check:
    """Readings that are missing or bad, memory errors, what nobody owns."""
    if look.snapshot is None or not look.snapshot.cards:
        return check("health", "Health", "no card to look at", status="unknown" if look.snapshot is None else "skipped")
    snapshot = look.snapshot
    states = [card.state for card in snapshot.cards]
    words = ", ".join(f"{states.count(state)} {WORDS.get(state, state)}" for state in dict.fromkeys(states))
    facts = {"cards": [_facts(card) for card in snapshot.cards]}
    findings = [finding for reading in _readings(snapshot) for finding in _reading_findings(reading)]
    if snapshot.processes:
        findings += _process_findings(snapshot, snapshot.processes)
    return check("health", "Health", f"{count(len(states), 'card')}: {words}", facts, findings)


def _facts(card: Reading) -> dict[str, object]:
    names = ("ecc_correctable", "ecc_uncorrectable", "retired_pages", "pending_pages", "pcie_replay_count")
    return {"bdf": card.bdf, "state": card.state, **{name: card.sample[name] for name in names}}


def _readings(snapshot: Snapshot) -> Iterator[Reading]:
    """The cards, and the partitions of those that are well: what ails a card ails them too."""
    ill = {card.card_index for card in snapshot.cards if card.state != "ok"}
    yield from snapshot.cards
    for device in snapshot.devices:
        if device.is_partition and device.card_index not in ill:
            yield device


def _reading_findings(reading: Reading) -> Iterator[Finding]:
    name, sample = label(reading), reading.sample
    words = {"driver": driver_of(reading.vendor_id, reading.driver)}
    if reading.state in STATES:
        yield found(f"card_{reading.state}", f"{name} {STATES[reading.state]}", reading.bdf, **words)
        return
    for code, text in sample.warnings:
        yield found(code, text, reading.bdf, **words)
    for reason, code in (("failed", "reading_failed"), ("denied", "card_denied")):
        # What a damaged table should have held is told by its warning.
        metrics = [m for m in sample if sample.reason(m) == reason and TABLE not in (sample.detail(m) or "")]
        if metrics:
            more = f" and {len(metrics) - NAMES_MAX} more" if len(metrics) > NAMES_MAX else ""
            text = f"{name}: {reason} for {', '.join(metrics[:NAMES_MAX])}{more}"
            yield found(code, text, reading.bdf, **words)
    if errors := sample.ecc_uncorrectable:
        blocks = [block for block, counts in reading.ecc_blocks.items() if counts.uncorrectable]
        where = f" in {', '.join(blocks)}" if blocks else ""
        text = f"{name} counted {count(errors, 'error')}{where} that could not be corrected"
        yield found("ecc_uncorrectable", text, reading.bdf)
    if pages := sample.pending_pages:
        yield found("pages_pending", f"{name} has {count(pages, 'bad memory page')} still in use", reading.bdf)
    if pages := sample.retired_pages:
        yield found("pages_retired", f"{name} has {count(pages, 'memory page')} out of use", reading.bdf)
    for sensor in SENSORS:
        value, limit = sample[f"temperature_{sensor}"], sample[f"temperature_{sensor}_critical"]
        if isinstance(value, float) and isinstance(limit, float) and value >= limit > 0:
            yield found("too_hot", f"{name} has {value:.0f} C at its {sensor}, {limit:.0f} is critical", reading.bdf)


def _process_findings(snapshot: Snapshot, table: ProcessTable) -> Iterator[Finding]:
    cards = {device.index: device.bdf for device in snapshot.devices}
    for process in table.processes:
        if process.status == "gone" or process.state == "Z":
            where = ", ".join(f"GPU {usage.device}" for usage in process.devices)
            text = f"process {process.pid} has ended, and still holds what it used of {where}"
            yield found("process_ended", text, cards.get(process.devices[0].device) if process.devices else None)
    if table.sources.get("kfd") != "ok" or table.hidden or table.hidden_reason:
        return  # who has the memory may be somebody unseen
    owned = {usage.uuid for process in table.processes for usage in process.devices}
    for device in snapshot.devices:
        used, total = table.unattributed.get(device.uuid, 0), device.sample.memory_total or 0
        idle = device.sample.utilization_gpu == 0
        if device.uuid not in owned and idle and used >= max(512 * MIB, 0.02 * total):
            text = f"{label(device)} has {used / GIB:.1f} GiB in use, no load, and no process"
            yield found("memory_held", text, device.bdf)


# ---- links ----


def links(look: Look) -> Check:
    """PCIe links below what the card can do, and cards that no processor is near to."""
    title = "PCIe links"
    if look.snapshot is None or not look.snapshot.cards:
        return check("links", title, "no card to look at", status="unknown" if look.snapshot is None else "skipped")
    rows = [_link(card) for card in look.snapshot.cards]
    known = [row for row in rows if row["speed"] is not None and row["width"] is not None]
    kinds = [f"{row['speed']:g} GT/s x{row['width']}" for row in known]
    words = [f"{count(kinds.count(kind), 'card')} at {kind}" for kind in dict.fromkeys(kinds)]
    waits = sum(_is_slow(card) and not card.sample.utilization_gpu for card in look.snapshot.cards)
    if waits:
        words.append(f"{count(waits, 'idle link')} below the highest speed, as idle cards may be")
    if len(known) < len(rows):
        words.append(f"{count(len(rows) - len(known), 'card')} not known")
    findings = [finding for card in look.snapshot.cards for finding in _link_findings(look, card)]
    return check("links", title, words, {"cards": rows}, findings, status="ok" if known else "unknown")


def _link(card: Reading) -> dict[str, object]:
    sample = card.sample
    return {
        "bdf": card.bdf,
        "speed": sample.pcie_link_speed,
        "width": sample.pcie_link_width,
        "speed_max": sample.pcie_link_speed_max,
        "width_max": sample.pcie_link_width_max,
        "numa_node": card.numa_node,
    }


def _is_slow(card: Reading) -> bool:
    now, most = card.sample.pcie_link_speed, card.sample.pcie_link_speed_max
    return now is not None and most is not None and now < most


def _link_findings(look: Look, card: Reading) -> Iterator[Finding]:
    sample, name = card.sample, label(card)
    width, most = sample.pcie_link_width, sample.pcie_link_width_max
    if width is not None and most is not None and width < most:
        yield found("link_narrow", f"{name} uses {width} of {most} lanes", card.bdf)
    if _is_slow(card) and sample.utilization_gpu:  # an idle card may lower its speed
        text = f"{name} works at {sample.pcie_link_speed:g} of {sample.pcie_link_speed_max:g} GT/s"
        yield found("link_slow", text, card.bdf)
    nodes = look.machine.probe.numa_nodes if look.machine else None
    if nodes and nodes > 1 and card.numa_node is None and card.driver is not None:
        yield found("numa_unknown", f"{name} belongs to none of {nodes} NUMA nodes", card.bdf)


# ---- cost ----


def cost(look: Look) -> Check:
    """Microseconds that each source of one card takes."""
    title = "Cost"
    if not look.snapshot or not look.snapshot.cards:
        return check("cost", title, "no card to look at", status="skipped")
    if all(card.state == "asleep" for card in look.snapshot.cards):
        return check("cost", title, "no card is awake", status="skipped")
    if not look.costs and not any(card.state == "ok" for card in look.snapshot.cards):
        return check("cost", title, "no card is well", status="unknown")
    if not look.costs:
        return check("cost", title, look.why("costs"), status="unknown")
    calls: dict[str, float] = look.costs["calls"]
    sources: dict[str, float] = look.costs["sources"]
    card = str(look.costs["card"])
    slowest = sorted(sources.items(), key=lambda pair: -pair[1])[:4]
    summary = [
        f"of {card}, in microseconds: {', '.join(f'{name} {time:.0f}' for name, time in calls.items())}",
        f"slowest sources: {', '.join(f'{name} {time:.1f}' for name, time in slowest)}",
    ]
    slow = ((name, time) for name, time in slowest if time >= SLOW)
    findings = (found("source_slow", f"{card}: {name} takes {time / 1000:.0f} ms", card) for name, time in slow)
    return check("cost", title, summary, look.costs, findings)
