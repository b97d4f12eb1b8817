"""How to measure time on a machine that does other things too."""

from __future__ import annotations

import time
from collections.abc import Callable


def is_done_within(seconds: float, action: Callable[[], object]) -> bool:
    """Whether it can be done in that time, in one of three tries: what else runs makes it slower, never quicker."""
    for _ in range(3):
        begin = time.monotonic()
        action()
        if time.monotonic() - begin < seconds:
            return True
    return False
