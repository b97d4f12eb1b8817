"""Why there is nothing to show: what was looked for, what is there instead, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

import dtk
from dtk_cli.exit import Exit

DRIVERS = ("amdgpu", "radeon", "hydcu", "hycu")
LSPCI = "lspci -nn | grep -Ei '1d94|1002'"


def explain(snapshot: dtk.Snapshot) -> tuple[Exit, list[str]]:
    """The exit status of a machine without devices, and at most ten lines, the first of which says what is wrong."""
    probe, live = snapshot.probe, snapshot.system.live
    if probe is None:  # it had cards, and they are gone
        return Exit.NO_CARD, ["no card is left"]
    lines = [_headline(probe) + ("" if live else f", on the machine below {snapshot.root}")]
    lines += _found(probe)
    lines += [f"next: {step}" for step in _next_steps(probe, live)]
    return Exit.NO_DRIVER if probe.pci_unbound else Exit.NO_CARD, lines


def _headline(probe: dtk.Probe) -> str:
    if not probe.pci_unbound:
        return "no Hygon DCU and no AMD GPU found"
    if probe.pci_unbound == 1:
        return f"PCI shows a card at {probe.first_unbound}, but no driver has it"
    return f"PCI shows {probe.pci_unbound} cards, the first at {probe.first_unbound}, but no driver has them"


def _found(probe: dtk.Probe) -> Iterator[str]:
    """What was looked for, in the order in which a machine comes up."""
    display = f"; {probe.first_display} is another display, such as a BMC's VGA" if probe.first_display else ""
    yield f"PCI: {probe.pci_cards or 'no'} Hygon or AMD card{'' if probe.pci_cards == 1 else 's'}{display}"
    yield f"driver: {' and '.join(probe.modules) or 'none of ' + ', '.join(DRIVERS)} loaded"
    yield f"kernel: {_there('sys/class/drm', probe.drm)}, {_there('sys/class/kfd', probe.kfd)}"
    if probe.dev_kfd is not None:  # the nodes of a recorded machine are not known
        yield f"nodes: {_there('/dev/kfd', probe.dev_kfd)}, {probe.dev_render or 'no'} render nodes in /dev/dri"
    if _locked_out(probe):
        yield f"group: this user may not open them; they belong to {probe.render_group or 'a group not known'}"


def _next_steps(probe: dtk.Probe, live: bool) -> Iterator[str]:
    if not live:
        yield "name the root of a machine with cards: --root or DTK_SMI_ROOT"
    elif probe.pci_unbound and probe.modules:
        yield f"ask why {probe.modules[0]} did not take it: sudo dmesg | grep -iE '{'|'.join(probe.modules)}'"
    elif probe.pci_unbound:
        yield "load the driver: sudo modprobe amdgpu; for a Hygon card hycu, before 6.3 hydcu"
    elif probe.pci_cards:
        yield "a driver holds a card that /sys does not show: a container needs the host's /sys"
    elif probe.dev_kfd or probe.dev_render:
        yield "a container needs the host's /sys; elsewhere sudo dmesg says why there is no card"
    else:
        yield f"ask the bus itself: {LSPCI}"
        yield "a container needs --device /dev/kfd --device /dev/dri; a virtual machine, a card passed through"
    if live and _locked_out(probe) and probe.render_group:
        group = probe.render_group
        yield f"join the group: sudo usermod -aG {group} $USER; for a container --group-add {group}"


def _there(path: str, there: bool) -> str:
    return path if there else f"no {path}"


def _locked_out(probe: dtk.Probe) -> bool:
    """Whether there are device nodes that this process may not open."""
    no_kfd = probe.dev_kfd is True and probe.dev_kfd_access is False
    return no_kfd or (probe.dev_render_access or 0) < (probe.dev_render or 0)
