"""Simulated machines: directories that look like the root of a machine with cards, made from card models.

They are for tests, demonstrations and a first look without hardware, and they say so: the marker file in the root makes
everything that reads one report it as simulated.

    python -m dtk.sim /tmp/node --cards k100_ai:8
    DTK_SMI_ROOT=/tmp/node dtk-smi
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .clock import Clock, build
from .demo import demo
from .faults import KINDS, set_faults
from .machine import Card, Machine, Platform, Process, Slot, State, Use, assemble, settle
from .models import MODELS, Model
from .mount import Mounted, mount
from .run import Simulator
from .tree import create

__all__ = [
    "KINDS",
    "MODELS",
    "Card",
    "Clock",
    "Machine",
    "Model",
    "Mounted",
    "Platform",
    "Process",
    "Simulator",
    "Slot",
    "State",
    "Use",
    "assemble",
    "build",
    "create",
    "demo",
    "mount",
    "set_faults",
    "settle",
    "write",
]


def write(
    path: str | os.PathLike[str],
    cards: Sequence[str] = ("k100_ai:8",),
    seed: int = 0,
    tick: int = 0,
    virtual: int = 0,
) -> None:
    """Write a simulated machine, as it is at one moment, into the directory `path`.

    path: absent, empty, or holding an earlier simulated machine, which is replaced.
    cards: groups of a model of MODELS and how many, such as "mi210:8", in the order of the machine's slots.
    seed: the same cards, seed and tick give the same machine, byte for byte; another seed other ids and loads.
    tick: so many seconds later.
    virtual: so many virtual devices on each Hygon card, as etc/vdev/vdevN.conf tells of them.

    Raises InvalidArgument when there is no such model or count, when the cards do not fit one machine, and when `path`
    holds something else, which is left as it is; OSError when the directory cannot be written.
    """
    create(Path(path), replace(build(cards, seed, tick), virtual=virtual))
