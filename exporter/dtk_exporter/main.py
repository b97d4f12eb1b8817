"""The entry point of dtk-exporter."""

from __future__ import annotations

import sys


def main() -> int:
    """The command. Returns its exit status."""
    print("dtk-exporter: not built yet", file=sys.stderr)
    return 3
