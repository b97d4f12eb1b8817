"""What libdtk is asked directly, and may block: python -m dtk.doctor.machine ROOT, a process that may hang.

It writes what is on the machine, as a line of JSON; then it reads the uuid of a card and writes what its sources cost.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from ..system import System
from .child import tell
from .look import GROUP_MAY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..device import Device
    from ..machine import Probe

TURNS = 5  # odd: the middle one counts


def main() -> None:
    """The process."""
    begin = time.perf_counter()
    with System(sys.argv[1], backend="kernel") as system:
        enumeration = (time.perf_counter() - begin) * 1e6
        devices = [device for device in system.devices() if device.hip_index is not None]
        probe = system.probe()
        tell(
            {
                "probe": probe._asdict(),
                "pci": [card._asdict() for card in system.pci_cards()],
                "agents": [device.uuid for device in sorted(devices, key=lambda device: device.hip_index or 0)],
                "inactive_groups": list(_inactive_groups(probe)),
            }
        )
        uuid = sys.stdin.readline().strip()
        for card in system.cards():
            if card.uuid == uuid:
                calls = {"enumeration": enumeration, "processes": _median(system.processes), **_samples(card)}
                tell({"card": card.bdf, "calls": calls, "sources": card.costs()})


def _samples(card: Device) -> dict[str, float]:
    return {
        "sample_static": _median(lambda: card.sample(fast=False)),
        "sample_fast": _median(lambda: card.sample(static=False)),
        "sample_slow": _median(lambda: card.sample(static=False, fast=False, slow=True)),
    }


def _median(call: Callable[[], object]) -> float:
    """Microseconds that a call takes."""
    times = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return sorted(times)[TURNS // 2]


def _inactive_groups(probe: Probe) -> Iterator[str]:
    """Groups of device nodes that let them in, that this user is a member of, and this process is not."""
    import grp
    import pwd

    nodes = ((probe.kfd_group, probe.kfd_gid, probe.kfd_mode), (probe.dri_group, probe.dri_gid, probe.dri_mode))
    for name, gid, mode in nodes:
        if not name or mode is None or mode & GROUP_MAY != GROUP_MAY or gid in (os.getegid(), *os.getgroups()):
            continue
        with contextlib.suppress(KeyError):  # a group that has a number only, a user without a name
            if pwd.getpwuid(os.getuid()).pw_name in grp.getgrnam(name).gr_mem:
                yield name


if __name__ == "__main__":
    main()
