"""What the variables that hide devices make of a list of them: pure functions on text, after AMD's sources.

ROCr applies ROCR_VISIBLE_DEVICES. To what that left, in its new order, HIP applies HIP_VISIBLE_DEVICES, or where that
is empty CUDA_VISIBLE_DEVICES. The two read their lists by different rules. Hygon's runtime is a fork that may differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

_C_NUMBER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")  # what strtol() takes with base 0


class View:
    """What a program sees.

    agents: positions in the list of all, in its order. notes: what each variable did.
    """

    def __init__(self, agents: list[int], notes: list[str]) -> None:
        self.agents = agents
        self.notes = notes


def hip(uuids: Sequence[str], environment: Mapping[str, str]) -> View:
    """What a HIP program sees. `uuids` are those of all agents in the order of KFD, "" where there is none."""
    return _masked(uuids, environment, ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))


def opencl(uuids: Sequence[str], environment: Mapping[str, str]) -> View:
    """What an OpenCL program sees."""
    return _masked(uuids, environment, ("GPU_DEVICE_ORDINAL",))


def _masked(uuids: Sequence[str], environment: Mapping[str, str], variables: Sequence[str]) -> View:
    agents, notes = list(range(len(uuids))), []
    if (value := environment.get("ROCR_VISIBLE_DEVICES")) is not None:
        agents, why = _rocr(value, uuids)
        notes.append(_note("ROCR_VISIBLE_DEVICES", value, agents, why))
    for variable in variables:
        if value := environment.get(variable, ""):
            chosen, why = _hip(value, [uuids[agent] for agent in agents])
            agents = [agents[place] for place in chosen]
            notes.append(_note(variable, value, agents, why))
            break
        if variable in environment:
            notes.append(f"{variable} is empty, which is as if it were not set")
    return View(agents, notes)


def _note(variable: str, value: str, agents: list[int], why: str) -> str:
    left = f"leaves {len(agents)} device{'s' * (len(agents) != 1)}" if agents else "hides all devices"
    return f"{variable}={value} {left}" + (f"; {why}" if why else "")


def _rocr(value: str, uuids: Sequence[str]) -> tuple[list[int], str]:
    """The agents that are left, and why not more: the first entry that is wrong or there twice ends the list.

    An empty value hides all. No more entries are looked at than there are agents.
    """
    chosen: list[int] = []
    for entry in value.split(",")[: len(uuids)] if value else ():
        entry = entry.strip()
        if not entry:
            return [], "an empty entry makes ROCr end the program"
        fitting = _rocr_agents(entry, uuids)
        if len(fitting) != 1 or fitting[0] in chosen:
            fits = "is there twice" if len(fitting) == 1 else f"fits {'several devices' if fitting else 'no device'}"
            return chosen, f"{entry} {fits}, which ends the list"
        chosen += fitting
    return chosen, ""


def _rocr_agents(entry: str, uuids: Sequence[str]) -> list[int]:
    """The agents that an entry means: by the beginning of a uuid, or by number, also hexadecimal or octal."""
    if entry[0] in "Gg":
        upper = entry.upper()
        return [i for i, uuid in enumerate(uuids) if 5 <= len(upper) <= 20 and uuid.upper().startswith(upper)]
    number = _C_NUMBER.fullmatch(entry)
    if not number:
        return []
    sign, hexadecimal, octal, decimal = number.groups()
    place = int(hexadecimal, 16) if hexadecimal else int(decimal) if decimal else int(octal or "0", 8)
    return [place] if place < len(uuids) and (sign != "-" or place == 0) else []


def _hip(value: str, uuids: Sequence[str]) -> tuple[list[int], str]:
    """The same for HIP: the first entry that is wrong ends the list, one that is there twice is skipped."""
    chosen: list[int] = []
    for entry in value.split(","):
        if entry.startswith("GPU-"):
            place = next((i for i, uuid in enumerate(uuids) if entry in uuid), -1)
        else:
            place = int(entry) if re.fullmatch(r"0|[1-9][0-9]{0,8}", entry) else -1
        if not 0 <= place < len(uuids):
            return chosen, "" if entry == "-1" else f"{entry or 'an empty entry'} fits no device, which ends the list"
        if place not in chosen:
            chosen.append(place)
    return chosen, ""
