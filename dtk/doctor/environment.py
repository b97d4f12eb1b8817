"""Variables of the environment that hide cards or change what runtimes do."""

from __future__ import annotations

import os

from .. import visibility
from .look import Look
from .report import Check, Finding, check, found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Read by Hygon's container toolkit when a container starts, and by no program in it.
CONTAINER = ("HCU_VISIBLE_DEVICES", "VHCU_VISIBLE_DEVICES", "MIG_VISIBLE_DEVICES")
OTHERS = ("HSA_OVERRIDE_GFX_VERSION", "HSA_FORCE_FINE_GRAIN_PCIE", "ROCM_PATH", "DTKROOT", "HYHAL_PATH")
OWN = ("DTK_SMI_ROOT", "DTK_SMI_DEBUG", "DTK_SMI_BACKEND", "DTK_SMI_ROCM_SMI_LIB", "DTK_SMI_HYDMI_LIB")
MISSPELT = {
    "HSA_FORCE_FINE_GRAIN_PRICE": "HSA_FORCE_FINE_GRAIN_PCIE",
    "ROCR_VISIBLE_DEVICE": "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICE": "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICE": "CUDA_VISIBLE_DEVICES",
    "HCU_VISIBLE_DEVICE": "HCU_VISIBLE_DEVICES",
}
PATHS = ("ROCM_PATH", "DTKROOT", "HYHAL_PATH")

# Run by a person on a node with cards, not by us: "-1" is no card to every variable, so one that is obeyed leaves 0.
COMMAND = """\
V="ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL HCU_VISIBLE_DEVICES"; \
for v in NONE $V; do (unset $V; export $v=-1; python3 -c 'import ctypes; n = ctypes.c_int(0); \
e = ctypes.CDLL("libamdhip64.so").hipGetDeviceCount(ctypes.byref(n)); \
print("'$v'=-1 leaves", n.value if e in (0, 100) else f"error {e}")'); done"""


def environment(look: Look) -> Check:
    """What is set, what it hides, and what is wrong with it."""
    title = "Environment"
    if not look.live:
        return check("environment", title, "not looked at: it is this machine's, not that one's", status="skipped")
    values = look.environment
    names = (*visibility.VARIABLES, *CONTAINER, *OTHERS, *MISSPELT)
    shown = {name: visibility.shown(values[name]) for name in names if name in values}
    shown |= {name: visibility.shown(values[name]) for name in sorted(values) if name.startswith("DTK_SMI_")}
    lines = [f"{name}={value}" for name, value in shown.items() if not look.machine or name not in visibility.VARIABLES]
    summary, status = lines, "ok"
    facts: dict[str, object] = {"variables": shown}
    findings = list(_findings(look))
    if look.machine:
        uuids = [visibility.rocr_uuid(uuid) for uuid in look.machine.agents]
        view, opencl = visibility.hip(uuids, values), visibility.opencl(uuids, values)
        notes = dict.fromkeys((*view.notes, *opencl.notes))
        unread = [name for name in visibility.VARIABLES if name in shown and not any(n.startswith(name) for n in notes)]
        passed_over = [f"{name}={shown[name]} is not obeyed beside HIP_VISIBLE_DEVICES" for name in unread]
        summary = [*notes, *passed_over, *lines]
        facts["visible"] = [look.machine.agents[agent] for agent in view.agents]
        if look.machine.agents:
            both = (*_visibility_findings(visibility.hip, uuids, values), *_opencl_findings(uuids, values))
            findings = [*both, *findings]
    else:
        summary, status = [*lines, f"what that does is not known: {look.why('machine')}"], "unknown"
    summary += [f"{name} is for containers as they start, not for programs" for name in CONTAINER if name in shown]
    return check("environment", title, summary or "nothing is set that hides or changes cards", facts, findings, status)


def _opencl_findings(uuids: Sequence[str], values: Mapping[str, str]) -> Iterator[Finding]:
    """What is not the same for HIP."""
    hip = list(_visibility_findings(visibility.hip, uuids, values))
    return (finding for finding in _visibility_findings(visibility.opencl, uuids, values) if finding not in hip)


def _visibility_findings(
    see: Callable[[Sequence[str], Mapping[str, str]], visibility.View],
    uuids: Sequence[str],
    values: Mapping[str, str],
) -> Iterator[Finding]:
    view = see(uuids, values)
    for step in view.steps:
        if step.why:
            yield found("visibility_bad_entry", f"{step.variable}={step.value}: {step.why}", variable=step.variable)
        elif not step.left:
            yield found("visibility_hides_all", str(step), variable=step.variable)
    if len(view.steps) > 1:
        first, second = view.steps
        alone = {name: value for name, value in values.items() if name != first.variable}
        if see(uuids, alone).agents != view.agents:
            text = f"{first.variable}={first.value} and {second.variable}={second.value} are both set"
            yield found("visibility_twice", text)


def _findings(look: Look) -> Iterator[Finding]:
    values = look.environment
    if (version := values.get("HSA_OVERRIDE_GFX_VERSION")) and look.snapshot:
        for arch in dict.fromkeys(card.arch for card in look.snapshot.cards if card.arch):
            if arch != _arch(version):
                text = f"HSA_OVERRIDE_GFX_VERSION={visibility.shown(version)}, and there are cards of {arch}"
                yield found("gfx_override", text)
    for wrong, right in MISSPELT.items():
        if wrong in values:
            yield found("variable_misspelt", f"{wrong} is set; meant is {right}", right=right)
    for name in sorted(values):
        if name.startswith("DTK_SMI_") and name not in OWN:
            yield found("variable_unknown", f"{visibility.shown(name)} is set")
    for variable in PATHS:
        if (path := values.get(variable)) and not _is_directory(path):
            text = f"{variable}={visibility.shown(path)} is no directory"
            yield found("path_missing", text, variable=variable)


def _arch(version: str) -> str | None:
    """A version such as 9.0.6 as a target: gfx906; the last two are hexadecimal digits."""
    try:
        major, minor, step = (int(part) for part in version.split("."))
    except ValueError:
        return None
    return f"gfx{major}{minor:x}{step:x}"


def _is_directory(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:  # no path at all
        return False
