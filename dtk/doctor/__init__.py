"""Is this node all right? Driver, cards, device nodes, health, links, libraries, toolchain, environment, cost.

    >>> from dtk import doctor
    >>> for finding in doctor.examine().findings:
    ...     print(finding.code, finding.text, finding.action)

Nothing is changed, no card is woken and no device node is opened. What may hang runs in processes that are not waited
for: a card that does not answer by the deadline is a finding.
"""

from __future__ import annotations

import contextlib
import os
import time

from ..errors import Timeout
from ..library import default_backend
from ..snapshot import Snapshot
from ..system import resolve_root
from ..take import check_seconds, take_snapshot
from . import cards, child, environment, libraries, readings, toolchain
from .codes import CODES
from .look import Look, Machine
from .report import Check, Finding, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["CODES", "Check", "Finding", "Report", "examine"]

SOFTWARE_SECONDS = 10.0  # for libraries and compilers
GRACE = 0.2  # seconds beyond the deadline for what libdtk is asked directly

CHECKS = (
    cards.driver,
    cards.cards,
    cards.nodes,
    readings.health,
    readings.links,
    libraries.libraries,
    toolchain.toolchain,
    environment.environment,
    readings.cost,
)


def examine(
    root: str | os.PathLike[str] | None = None,
    *,
    devices: Sequence[str | int] | None = None,
    deadline: float = 1.0,
) -> Report:
    """Examine a machine.

    root, devices, deadline: as for take_snapshot(); with devices, only these are judged. Compilers and libraries may
    take up to ten seconds more. Raises what take_snapshot() raises, but for Timeout, which is a finding.
    """
    path, _ = resolve_root(root)
    check_seconds(deadline=deadline)
    default_backend()  # what is no backend is no reason to find anything
    begin = time.monotonic()
    silent: dict[str, str] = {}
    with _start("machine", silent, path) as process:
        snapshot = _snapshot(path, devices, deadline)
        end = max(begin + deadline, time.monotonic() + GRACE)
        machine, costs = _ask_machine(process, silent, snapshot, end)
    live = snapshot.system.live if snapshot else _is_live(path)
    software = _software(silent, snapshot) if live else None
    look = Look(live, snapshot, machine, costs, software, dict(os.environ), silent, bool(devices))
    return Report(
        timestamp=snapshot.timestamp if snapshot else time.time(),
        root=path,
        hostname=snapshot.system.hostname if snapshot else None,
        simulated=snapshot.system.simulated if snapshot else os.path.exists(os.path.join(path, ".dtk-simulated")),
        live=live,
        checks=tuple(check(look) for check in CHECKS),
        command=environment.COMMAND,
    )


def _snapshot(path: str, devices: Sequence[str | int] | None, deadline: float) -> Snapshot | None:
    try:
        return take_snapshot(path, devices=devices, slow=True, processes="all", deadline=deadline, backend="kernel")
    except Timeout:
        return None


def _start(
    module: str, silent: dict[str, str], *arguments: str
) -> contextlib.AbstractContextManager[child.Child | None]:
    """A process, or nothing where none can be started."""
    try:
        return child.python(module, *arguments)
    except OSError as error:
        silent[module] = f"could not be started: {error.strerror or error}"
        return contextlib.nullcontext()


def _answer(process: child.Child | None, silent: dict[str, str], name: str, end: float) -> dict[str, Any] | None:
    """What a process answers next; where it does not, why is noted under a name."""
    if process is None:
        return None
    try:
        return child.answer(process, end)
    except child.NoAnswer as why:
        silent[name] = str(why)
        return None


def _ask_machine(
    process: child.Child | None, silent: dict[str, str], snapshot: Snapshot | None, end: float
) -> tuple[Machine | None, dict[str, Any] | None]:
    """What there is on the machine, and what the first card that is awake costs to read."""
    found = _answer(process, silent, "machine", end)
    if process is None or found is None:
        return None, None
    try:
        machine = Machine(found)
    except (KeyError, TypeError) as error:
        silent["machine"] = f"answered what cannot be understood: {error}"
        return None, None
    awake = [card.uuid for card in snapshot.cards if card.state == "ok"] if snapshot else []
    if not awake:
        return machine, None
    process.tell(awake[0])
    return machine, _answer(process, silent, "costs", end)


def _software(silent: dict[str, str], snapshot: Snapshot | None) -> dict[str, Any] | None:
    """Libraries and compilers of this machine."""
    archs = dict.fromkeys(card.arch for card in snapshot.cards if card.arch) if snapshot else ()
    with _start("software", silent, str(SOFTWARE_SECONDS), *archs) as process:
        end = time.monotonic() + SOFTWARE_SECONDS + 1
        found = _answer(process, silent, "software", end)
        return {**found, **(_answer(process, silent, "toolchain", end) or {})} if found else None


def _is_live(path: str) -> bool:
    try:
        return os.path.samefile(path, "/")
    except OSError:
        return False
