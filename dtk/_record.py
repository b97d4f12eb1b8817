"""typing.NamedTuple for the records of this package, without its cost.

Importing typing takes longer than importing all of dtk, and a command that a script calls in a loop pays for it each
time. Type checkers see the real NamedTuple.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from collections import namedtuple

    class _RecordType(type):
        def __new__(cls, name, _bases, body):
            fields = namedtuple(name, body["__annotations__"])
            return type(name, (fields,), {**body, "__slots__": ()})

    Record = type.__new__(_RecordType, "Record", (), {})

__all__ = ["Record"]
