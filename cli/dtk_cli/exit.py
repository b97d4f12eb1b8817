"""Exit codes of dtk-smi, and which of them an error means."""

from __future__ import annotations

from enum import IntEnum

import dtk


class Exit(IntEnum):
    """What the command's exit status says. Missing values alone are OK."""

    OK = 0
    INTERNAL = 1  # a bug in dtk-smi, or stdout could not be written
    USAGE = 2
    NOT_SUPPORTED = 3
    DENIED = 4
    PARTIAL = 5  # only of commands that act on or check several things
    NO_DEVICE = 6
    NO_DRIVER = 9  # PCI shows a card, but no driver has it
    NO_CARD = 10
    DEADLINE = 11  # a card that was asked for missed it; the others are printed
    LIBRARY = 12
    NOTHING_FREE = 16
    NEEDS_YES = 17


# When several apply, the first of these is the exit status.
PRECEDENCE = (
    Exit.USAGE,
    Exit.LIBRARY,
    Exit.NO_DRIVER,
    Exit.NO_CARD,
    Exit.NO_DEVICE,
    Exit.DENIED,
    Exit.DEADLINE,
    Exit.PARTIAL,
)

_CODES: tuple[tuple[type[dtk.Error], Exit], ...] = (
    (dtk.InvalidArgument, Exit.USAGE),
    (dtk.LibraryError, Exit.LIBRARY),
    (dtk.NoDriver, Exit.NO_DRIVER),
    (dtk.DeviceNotFound, Exit.NO_DEVICE),
    (dtk.DeviceLost, Exit.NO_DEVICE),
    (dtk.PermissionDenied, Exit.DENIED),
    (dtk.Timeout, Exit.DEADLINE),
    (dtk.NotSupported, Exit.NOT_SUPPORTED),
)


def exit_code(error: dtk.Error) -> Exit:
    """The exit status that an error of the library means."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.INTERNAL)


def first(errors: list[dtk.Error]) -> dtk.Error:
    """Of several errors the one whose exit status comes first in PRECEDENCE, which is the one to report."""
    ranks = {code: rank for rank, code in enumerate(PRECEDENCE)}
    return min(errors, key=lambda error: ranks.get(exit_code(error), len(ranks)))


class Stop(Exception):
    """End the command: a code, and the lines for stderr, the first of which says what is wrong."""

    def __init__(self, code: Exit, *lines: str) -> None:
        super().__init__(code, *lines)
        self.code = code
        self.lines = lines
