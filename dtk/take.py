"""take_snapshot(): one look at a machine through dtk-reader, and what it has in common with Monitor."""

from __future__ import annotations

import os
import time

from . import metrics, reader
from ._native import lib
from .assembly import Assembly
from .errors import LibraryError, from_status
from .library import VendorLibrary, resolve_backend
from .reader import NO_LIBRARY, Crash, Reader
from .snapshot import Snapshot
from .system import key_text, resolve_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["take_snapshot"]

SECONDS_MAX = 86400.0  # of an interval or a deadline


def take_snapshot(
    root: str | os.PathLike[str] | None = None,
    *,
    devices: Sequence[str | int] | None = None,
    static: bool = True,
    fast: bool = True,
    slow: bool = False,
    processes: bool | str = False,
    virtual: bool | str = False,
    deadline: float = 1.0,
    backend: str | None = None,
    library_metrics: Sequence[str] | None = None,
) -> Snapshot:
    """One look at a machine, which takes no longer than `deadline` seconds whatever a card does.

    root: as for System. devices: keys as for System.match(), none of them for all devices; one device costs one
    card's reads. static, fast, slow: as for Device.sample(). processes: True or "kfd" for those that compute, "all"
    also for those that draw, which takes a look at every process, "use" also how busy each keeps a Hygon card, of which
    the vendor's library is asked in turn. virtual: True for the virtual devices of Hygon cards, or the path of the
    libhydmi.so to ask; where that library crashes or does not answer, the snapshot has what is known without it, and a
    warning. A machine without cards gives no devices.
    backend: "kernel" for files alone; "auto" asks the vendor's library for what a Hygon card does not tell there;
    "rsmi" asks it alone; None is $DTK_SMI_BACKEND, else "auto". It is asked in a process of its own: when it ends that,
    its readings are "failed", and when it hangs, "stale". library_metrics: names of the metrics for which it may be
    asked, None for all: when the files have them, it is not even loaded.
    Raises DeviceNotFound, InvalidArgument and PermissionDenied as System and System.match() do; LibraryError when
    dtk-reader cannot run; Timeout when not even the cards were known by the deadline.
    """
    path, origin = resolve_root(root)
    tiers = bool(static) * lib.DTK_TIER_STATIC | bool(fast) * lib.DTK_TIER_FAST | bool(slow) * lib.DTK_TIER_SLOW
    if not tiers:
        raise from_status(lib.DTK_INVALID_ARGUMENT, "take_snapshot", None, "ask for at least one tier")
    keys = check_keys(devices)
    backend, numbers = resolve_backend(backend, "auto"), library_numbers(library_metrics)
    check_seconds(deadline=deadline)
    begin = time.monotonic()
    without: list[str] = []
    aborted: VendorLibrary | None = None
    crashes = 0
    hydmi = virtual_option(virtual)
    while True:
        assembly = Assembly(path, origin, backend, aborted)
        # The search for cards may use up the deadline: what was found then gets a little more.
        end = begin + deadline + (0.2 if without or aborted or crashes else 0)
        patience = deadline * (0.15 if without else 0.35)
        try:
            with Reader(
                path,
                tiers,
                devices=keys,
                without=without,
                processes=scan_flags(processes),
                virtual=hydmi,
                backend=backend,
                library=numbers,
                aborted=aborted is not None,
            ) as process:
                try:
                    _listen(process, assembly, end, patience)
                finally:
                    assembly.log = process.log()
        except Crash as crash:
            if (ended := assembly.after_crash()) is not None:
                if assembly.is_whole_without_library():
                    assembly.abort_library(ended)
                    break
                aborted = ended
                continue
            crashes += 1
            if crashes > 1:
                raise crashed(crash) from crash
            hydmi = None if hydmi is None else NO_LIBRARY  # the restart goes without it
            continue
        # A card that hangs already the search for cards is left out of the next, while there is time for one.
        if assembly.ready or assembly.touching is None or time.monotonic() >= end:
            break
        without.append(assembly.touching)
    if virtual:
        assembly.finish_virtual(crashed=crashes > 0, selected=bool(keys))
    return assembly.snapshot(0.0, tiers)


def _listen(process: Reader, assembly: Assembly, end: float, patience: float) -> None:
    """Take in what a reader tells, until it is done, or to the end; while it looks for cards, until it is silent for
    longer than `patience` seconds. Raises Crash.
    """
    heard = time.monotonic()
    while not assembly.is_done and (now := time.monotonic()) < end:
        until = end if assembly.ready else min(end, heard + patience)
        if now >= until:
            return
        try:
            for frame in process.frames(until - now):
                assembly.take(*frame)
                heard = time.monotonic()
        except Crash:
            if not assembly.is_done:
                raise


def crashed(crash: Crash) -> LibraryError:
    """The error of a reader that crashed again and again."""
    return LibraryError(str(crash), operation="read", path=reader.PROGRAM, hint="DTK_SMI_DEBUG=1 shows what it says")


def scan_flags(processes: bool | str) -> int:
    """DTK_SCAN_* for what take_snapshot() calls processes."""
    if not processes:
        return 0
    from .process import SCANS

    source = "kfd" if processes is True else processes
    if source not in SCANS:
        raise from_status(lib.DTK_INVALID_ARGUMENT, "processes", repr(processes), 'True, False, "kfd", "all" or "use"')
    return SCANS[source]


def library_numbers(names: Sequence[str] | None) -> list[int] | None:
    """Numbers of metrics. Raises InvalidArgument for what names none."""
    if names is None:
        return None
    known = {metric.name: metric.number for metric in metrics.all()}
    unknown = [names] if isinstance(names, str) else [name for name in names if name not in known]
    if unknown:
        hint = "a sequence of names of metrics; dtk.metrics.all() has them"
        raise from_status(lib.DTK_INVALID_ARGUMENT, "library_metrics", None, hint, f"no metric {unknown[0]!r}")
    return [known[name] for name in names]


def virtual_option(virtual: bool | str) -> str | None:
    """What dtk-reader wants to hear of virtual devices."""
    if isinstance(virtual, bool):
        return "" if virtual else None
    if not virtual or "\0" in virtual:
        raise from_status(lib.DTK_INVALID_ARGUMENT, "virtual", repr(virtual), "True, False, or the path of a library")
    return virtual if "/" in virtual else f"./{virtual}"


def check_seconds(**seconds: float) -> None:
    """Refuse what is no time: InvalidArgument names it."""
    for name, value in seconds.items():
        if not 0 < value <= SECONDS_MAX:
            raise from_status(
                lib.DTK_INVALID_ARGUMENT, name, None, f"more than 0 and at most {SECONDS_MAX:.0f} seconds", f"{value!r}"
            )


def check_keys(devices: Sequence[str | int] | None) -> list[str]:
    """Keys of devices as dtk-reader takes them."""
    return [*dict.fromkeys(key_text(key) for key in devices or ())]
