"""What the variables that hide devices make of a list of them: pure functions on text, after AMD's sources.

ROCr applies ROCR_VISIBLE_DEVICES. To what that left, in its new order, HIP applies HIP_VISIBLE_DEVICES, or where that
is empty CUDA_VISIBLE_DEVICES. The two read their lists by different rules. Hygon's runtime is a fork that may differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ._record import Record

__all__ = ["VARIABLES", "Step", "View", "hip", "opencl", "rocr_uuid", "shown"]

VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")

_C_NUMBER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")  # what strtol() takes with base 0


SHOWN_MAX = 60  # characters of a value


class Step(Record):
    """What one variable did.

    value: of it, shortened. before, left: how many devices there were, and are left. why: the entry that is wrong, in
    words, "" when none is.
    """

    variable: str
    value: str
    before: int
    left: int
    why: str

    def __str__(self) -> str:
        left = f"leaves {self.left} device{'s' * (self.left != 1)}" if self.left else "hides all devices"
        return f"{self.variable}={self.value} {left}" + (f"; {self.why}" if self.why else "")


class View:
    """What a program sees.

    agents: positions in the list of all, in its order. steps: what the variables did. notes: the same in words, with
    what was left out.
    """

    def __init__(self, agents: list[int], steps: list[Step], notes: list[str]) -> None:
        self.agents = agents
        self.steps = steps
        self.notes = notes


def shown(value: str) -> str:
    """A value, shortened: an environment variable may have a hundred thousand characters."""
    return value if len(value) <= SHOWN_MAX else f"{value[:SHOWN_MAX]}..."


def rocr_uuid(uuid: str) -> str:
    """A device's uuid as ROCr knows it: partitions share one, and without a unique id there is none."""
    return uuid.partition("/")[0] if uuid.startswith("GPU-") else ""


def hip(uuids: Sequence[str], environment: Mapping[str, str]) -> View:
    """What a HIP program sees. `uuids` are those of all agents in the order of KFD, "" where there is none."""
    return _masked(uuids, environment, ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))


def opencl(uuids: Sequence[str], environment: Mapping[str, str]) -> View:
    """What an OpenCL program sees."""
    return _masked(uuids, environment, ("GPU_DEVICE_ORDINAL",))


def _masked(uuids: Sequence[str], environment: Mapping[str, str], variables: Sequence[str]) -> View:
    agents = list(range(len(uuids)))
    steps: list[Step] = []
    empty: list[str] = []

    def take(variable: str, value: str, chosen: list[int], why: str) -> list[int]:
        steps.append(Step(variable, shown(value), len(agents), len(chosen), why))
        return chosen

    if (value := environment.get("ROCR_VISIBLE_DEVICES")) is not None:
        agents = take("ROCR_VISIBLE_DEVICES", value, *_rocr(value, uuids))
    for variable in variables:
        if value := environment.get(variable, ""):
            places, why = _hip(value, [uuids[agent] for agent in agents])
            agents = take(variable, value, [agents[place] for place in places], why)
            break
        if variable in environment:
            empty.append(f"{variable} is empty, which is as if it were not set")
    return View(agents, steps, [*map(str, steps), *empty])


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
            return chosen, f"{shown(entry)} {fits}, which ends the list"
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
            wrong = f"{shown(entry) or 'an empty entry'} fits no device, which ends the list"
            return chosen, "" if entry == "-1" else wrong
        if place not in chosen:
            chosen.append(place)
    return chosen, ""
