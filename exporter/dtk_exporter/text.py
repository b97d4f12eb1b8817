"""Texts for the log."""

from __future__ import annotations

import os
import traceback

__all__ = ["describe"]


def describe(error: BaseException) -> str:
    """An error and where it came from, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
