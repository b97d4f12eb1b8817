"""The entry point of dtk-smi: what must be settled before anything else is imported."""

from __future__ import annotations

import signal
import sys

LIBRARY = 12  # dtk_cli.exit.Exit.LIBRARY: that file needs dtk too


def main() -> int:
    """The command. Returns its exit status."""
    # Interrupted, or left alone by `| head -1`, it ends at once and quietly like any filter: 130 and 141 in a shell.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        from dtk_cli.front import front
    except Exception as error:
        if type(error).__name__ != "LibraryError":  # of dtk, which is what could not be imported
            raise
        print(f"dtk-smi: {error}", file=sys.stderr)
        return LIBRARY
    return front(sys.argv[1:])
