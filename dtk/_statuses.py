"""The status table. Made by `make generate` from dtk/_native/status.def."""

from __future__ import annotations

# number: (name, meaning, class of dtk.errors that a failed call raises)
STATUSES = {
    0: ("ok", "success", ""),
    1: ("unsupported", "this card or driver has no such thing", "NotSupported"),
    2: ("denied", "this user may not read or change it", "PermissionDenied"),
    3: ("asleep", "the card is suspended; it was not woken", "NotSupported"),
    4: ("gone", "the card is no longer there", "DeviceLost"),
    5: ("failed", "the read failed or gave something that cannot be true", "Error"),
    6: ("stale", "no answer by the deadline", "Timeout"),
    7: ("on_card", "only the card of this partition can answer", "NotSupported"),
    8: ("invalid_argument", "an argument is not valid", "InvalidArgument"),
    9: ("not_found", "no such device", "DeviceNotFound"),
    10: ("ambiguous", "the key fits more than one device", "InvalidArgument"),
    11: ("no_memory", "out of memory or of file descriptors", "Error"),
    12: ("library", "the vendor library is missing or failed", "LibraryError"),
    13: ("no_driver", "no driver is bound to a card", "NoDriver"),
}
