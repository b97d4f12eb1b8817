"""Driver, cards and device nodes: who has a card, from PCI up to what a program opens."""

from __future__ import annotations

import os

from .look import DRIVERS, GROUP_MAY, Look, count, driver_of, label
from .report import Check, Finding, check, found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..machine import Probe
    from ..snapshot import Reading

PARTITIONS = {"DPX": 2, "TPX": 3, "QPX": 4}  # as many as a mode makes of a card; CPX: one of each of its dies
NO_PCI = "this user may not read sys/bus/pci/devices"
NO_KFD = "this user may not read KFD's topology/nodes"


# ---- driver ----


def driver(look: Look) -> Check:
    """The modules, and cards that none of them holds."""
    if look.machine is None:
        return check("driver", "Driver", look.why("machine"), status="unknown")
    probe = look.machine.probe
    versions = look.snapshot.system.drivers if look.snapshot else {}
    names = dict.fromkeys((*probe.modules, *versions))
    modules = [{"name": name, "state": probe.module_states.get(name), "version": versions.get(name)} for name in names]
    words = (" ".join(filter(None, (module["name"], module["version"], module["state"]))) for module in modules)
    summary = ", ".join(words) or f"none of {', '.join(DRIVERS)} is loaded"
    status = "ok"
    if probe.pci_denied:
        summary, status = f"{summary}; {NO_PCI}", "unknown"
    return check("driver", "Driver", summary, {"modules": modules}, _driver_findings(look, probe), status)


def _driver_findings(look: Look, probe: Probe) -> Iterator[Finding]:
    assert look.machine
    if not look.machine.pci and not probe.pci_denied and not (look.snapshot and look.snapshot.cards):
        display = f"; {probe.first_display} is another display, such as a BMC's VGA" if probe.first_display else ""
        yield found("no_card", f"no Hygon DCU and no AMD GPU found{display}")
    for name in probe.modules:
        state = probe.module_states.get(name)
        if state not in ("live", None):
            yield found("module_not_live", f'module {name} is in state "{state}"')
    for card in (card for card in look.machine.pci if look.judged(card.bdf)):
        wanted = driver_of(card.vendor_id)
        if card.driver is None:
            # Hygon's module was called hydcu before 6.3; the one that is there is the one to load.
            yield found("card_without_driver", f"{card.bdf} has no driver", card.bdf, driver=wanted)
        elif card.driver not in DRIVERS:
            yield found("card_of_other_driver", f"{card.bdf} is held by {card.driver}", card.bdf, driver=wanted)


# ---- cards ----


def cards(look: Look) -> Check:
    """How many cards PCI, the driver, DRM and KFD count, and which are lost on the way."""
    if look.snapshot is None:
        finding = found("cards_unknown", "the kernel did not answer when it was asked for cards")
        return check("cards", "Cards", "the kernel did not answer by the deadline", findings=[finding])
    rows = [_row(look, card) for card in look.snapshot.cards]
    facts: dict[str, object] = {"cards": rows}
    if look.machine is None:
        finding = found("not_examined", f"{look.why('machine')}; readings came of {count(len(rows), 'card')}")
        return check("cards", "Cards", f"{count(len(rows), 'card')}; more is not known", facts, [finding])
    pci, probe = look.machine.pci, look.machine.probe
    held = sum(card.driver in DRIVERS for card in pci)
    facts |= {"pci": len(pci), "driver": held, "kfd_nodes": probe.kfd_nodes, "kfd_denied": probe.kfd_denied}
    denied = f", {probe.kfd_denied} more denied" if probe.kfd_denied else ""
    nodes = count(probe.kfd_nodes, "KFD node") if probe.kfd else "no KFD"
    summary = f"{len(pci)} on PCI, {held} with a driver, {nodes}{denied}"
    if len(pci) < len(rows) and not look.complete:
        summary = f"{count(len(rows), 'card')}, {nodes}; the recording does not hold PCI"
    lines = [summary]
    if probe.kfd_denied and any(map(look.in_kfd, look.snapshot.cards)):
        lines.append("denied is right in a container or job that was given the other cards only")
    unread = [words for denied, words in ((probe.pci_denied, NO_PCI), (probe.kfd_list_denied, NO_KFD)) if denied]
    if unread:  # who has which card cannot be told
        lines = [f"{count(len(rows), 'card')}; {' and '.join(unread)}"]
        return check("cards", "Cards", lines, facts, status="unknown")
    return check("cards", "Cards", lines, facts, _card_findings(look, probe))


def _row(look: Look, card: Reading) -> dict[str, object]:
    """A card and where it is known."""
    assert look.snapshot
    parts = [device for device in look.snapshot.devices if device.card_index == card.card_index]
    names = ("bdf", "name", "driver", "drm_card", "drm_render", "numa_node")
    return {
        **{name: getattr(card, name) for name in names},
        "devices": list(card.card_devices),
        "kfd_nodes": sorted(part.kfd_node for part in parts if part.kfd_node is not None),
    }


def _card_findings(look: Look, probe: Probe) -> Iterator[Finding]:
    assert look.snapshot
    assert look.machine
    known = {card.bdf for card in look.machine.pci}
    without: list[Reading] = []
    for card in look.snapshot.cards:
        words = {"driver": driver_of(card.vendor_id, card.driver)}
        if card.bdf not in known and card.driver is None and look.complete:
            yield found("card_without_pci", f"KFD knows {label(card)}, and PCI does not", card.bdf)
        elif card.drm_render is None and card.index is not None and look.complete:
            yield found("card_without_render", f"{label(card)} has no render node", card.bdf, **words)
        if not look.in_kfd(card) and card.driver != "radeon":  # which never had compute
            without.append(card)
    yield from _partition_findings(look, probe)
    if not without:
        return
    if not probe.kfd:
        if look.complete:
            yield found("kfd_missing", f"sys/class/kfd is missing, with {count(len(without), 'card')}")
        return
    if probe.kfd_denied and not any(map(look.in_kfd, look.snapshot.cards)):
        cards = ", ".join(card.bdf for card in without)
        yield found(
            "kfd_denied", f"{count(probe.kfd_denied, 'node')} of KFD may not be looked at; without one: {cards}"
        )
    if probe.kfd_denied < len(without):
        for card in without:
            words = {"driver": driver_of(card.vendor_id, card.driver)}
            yield found("card_without_kfd", f"{label(card)} has a driver, and no node in KFD", card.bdf, **words)


def _partition_findings(look: Look, probe: Probe) -> Iterator[Finding]:
    """Cards with fewer KFD nodes than their mode makes of them; in a container some may be denied."""
    assert look.snapshot
    if probe.kfd_denied:
        return
    there = {card.bdf: look.partitions(card) for card in look.snapshot.cards}
    for card in look.snapshot.cards:
        mode, has = card.info.get("compute_partition"), there[card.bdf]
        alike = (
            c for c in look.snapshot.cards if (c.device_id, c.info.get("compute_partition")) == (card.device_id, mode)
        )
        expected = max(there[c.bdf] for c in alike) if mode == "CPX" else PARTITIONS.get(mode or "", 0)
        if 0 < has < expected:
            text = f"card {card.card_index} ({card.bdf}) is in mode {mode}, and KFD has {has} of {expected} partitions"
            yield found("partition_missing", text, card.bdf, driver=driver_of(card.vendor_id, card.driver))


# ---- device nodes ----


def nodes(look: Look) -> Check:
    """What a program must be able to open."""
    title = "Device nodes"
    if not look.live:
        return check("nodes", title, "not known of another machine", status="skipped")
    if look.machine is None:
        return check("nodes", title, look.why("machine"), status="unknown")
    probe = look.machine.probe
    container = (look.software or {}).get("container")
    facts = {name: getattr(probe, name) for name in ("dev_kfd", "dev_kfd_access", "dev_render", "dev_render_access")}
    facts |= {"group": probe.render_group, "container": container}
    kfd = "no /dev/kfd" if not probe.dev_kfd else f"/dev/kfd {'open' if probe.dev_kfd_access else 'denied'}"
    render = f"{probe.dev_render or 'no'} /dev/dri/renderD*"
    usable = f" ({probe.dev_render_access or 0} open)" if probe.dev_render else ""
    summary = [f"{kfd}, {render}{usable}" + (f", group {probe.render_group}" if probe.render_group else "")]
    if container:
        summary.append(f"in a container ({container})")
    return check("nodes", title, summary, facts, _node_findings(look, probe))


def _render_nodes(look: Look, probe: Probe) -> tuple[int, int]:
    """How many may not be opened, and how many there are: of all, or of the cards that are asked about."""
    if not look.selected or look.snapshot is None:
        return (probe.dev_render or 0) - (probe.dev_render_access or 0), probe.dev_render or 0
    devices = (*look.snapshot.cards, *look.snapshot.devices)  # partitions have nodes of their own
    numbers = {device.drm_render for device in devices if device.drm_render is not None}
    paths = [path for path in (f"/dev/dri/renderD{number}" for number in numbers) if os.path.exists(path)]
    return sum(not os.access(path, os.R_OK | os.W_OK) for path in paths), len(paths)


def _node_findings(look: Look, probe: Probe) -> Iterator[Finding]:
    assert look.machine
    if not any(card.driver in DRIVERS for card in look.machine.pci) and not (look.snapshot and look.snapshot.cards):
        return  # without a card that a driver has there are none, which is another finding
    denied: list[tuple[str, str, str | None, int | None]] = []
    if not probe.dev_kfd and probe.kfd:
        yield found("dev_kfd_missing", "/dev/kfd is missing")
    elif probe.dev_kfd and not probe.dev_kfd_access:
        text = f"this user may not open /dev/kfd; it belongs to group {probe.kfd_group}"
        denied.append(("dev_kfd_denied", text, probe.kfd_group, probe.kfd_mode))
    if not probe.dev_render:
        yield found("render_missing", "there is no /dev/dri/renderD*")
    elif (nodes := _render_nodes(look, probe))[0]:
        text = f"this user may not open {nodes[0]} of {count(nodes[1], 'render node')} of group {probe.dri_group}"
        denied.append(("render_denied", text, probe.dri_group, probe.dri_mode))
    for code, text, group, mode in denied:
        if group in ("root", "0"):
            yield found("node_of_root", text, group="render")
        elif mode is not None and mode & GROUP_MAY != GROUP_MAY:
            yield found("node_of_root", f"{text}, which may not either", group=group)
        else:
            yield found(code, text, group=group or "render")
    for group in dict.fromkeys(group for _, _, group, _ in denied if group in look.machine.inactive_groups):
        yield found("group_not_active", f"this user is in group {group}, and this process is not", group=group)
