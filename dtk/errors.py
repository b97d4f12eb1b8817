"""Errors of dtk.

    Error                               anything dtk raises
    ├── NoDriver                        no driver is bound to a card
    ├── DeviceNotFound (LookupError)    no device has that key
    ├── DeviceLost                      the card is no longer there
    ├── NotSupported                    this card, driver or state has no such thing
    ├── PermissionDenied (PermissionError)
    ├── Timeout (TimeoutError)          no answer by the deadline
    ├── LibraryError                    a vendor library is missing or failed
    └── InvalidArgument (ValueError)    a key, root or argument that cannot be meant

A reading that is missing is no error: it is None, and Sample.reason() says why.
All have `operation`, `path`, `hint` and `status`, and may be pickled.
"""

from __future__ import annotations

from ._statuses import STATUSES

__all__ = [
    "DeviceLost",
    "DeviceNotFound",
    "Error",
    "InvalidArgument",
    "LibraryError",
    "NoDriver",
    "NotSupported",
    "PermissionDenied",
    "Timeout",
    "from_status",
]


class Error(Exception):
    """Anything dtk raises; itself, when no other class fits.

    operation: what was asked, such as "open" or "firmware".
    path: the file or directory it was about.
    hint: what to do about it.
    status: the status of libdtk by name, such as "denied".
    Each is None where there is nothing to say.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        path: str | None = None,
        hint: str | None = None,
        status: str | None = None,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.path = path
        self.hint = hint
        self.status = status

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.operation, self.path, str(self.args[0])) if part)
        return f"{text} ({self.hint})" if self.hint else text


class NoDriver(Error):
    """No driver is bound to a card."""


class DeviceNotFound(Error, LookupError):
    """No device has that key."""


class DeviceLost(Error):
    """The card is no longer there: unplugged, reset, or fallen off the bus."""


class NotSupported(Error):
    """The card or its driver has no such thing, or not in the state it is in."""


class PermissionDenied(Error, PermissionError):
    """The user may not read or change it."""


class Timeout(Error, TimeoutError):
    """No answer by the deadline."""


class LibraryError(Error):
    """A vendor library is missing or failed."""


class InvalidArgument(Error, ValueError):
    """A key, root or argument that cannot be meant, or that means more than one device."""


_CLASSES: dict[str, type[Error]] = {
    cls.__name__: cls
    for cls in (
        Error,
        NoDriver,
        DeviceNotFound,
        DeviceLost,
        NotSupported,
        PermissionDenied,
        Timeout,
        LibraryError,
        InvalidArgument,
    )
}
for _class in _CLASSES.values():
    _class.__module__ = "dtk"  # where users find them, and so what a traceback shows


def from_status(
    status: int,
    operation: str,
    path: str | None = None,
    hint: str | None = None,
    message: str | None = None,
) -> Error:
    """The error to raise for a status of libdtk, of either sign. The only place where one becomes the other.

    `message` says it more exactly than the status does.
    """
    name, meaning, class_name = STATUSES.get(abs(status), ("unknown", f"unknown status {status}", "Error"))
    return _CLASSES[class_name or "Error"](message or meaning, operation=operation, path=path, hint=hint, status=name)
