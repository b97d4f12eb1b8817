"""The entry point of dtk-smi: what must be settled before anything else is imported."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """The command. Returns its exit status."""
    # Interrupted, or left alone by `| head -1`, it ends at once and quietly like any filter: 130 and 141 in a shell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    from dtk_cli.front import front

    return front(sys.argv[1:])
