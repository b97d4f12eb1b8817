"""Libraries, compilers and the container: python -m dtk.doctor.software SECONDS [TARGET]..., a process that may hang,
as file systems do. It writes a line of JSON for libraries and one for compilers, and ends when its input does.
"""

from __future__ import annotations

import os
import sys
import time

from . import libraries, toolchain
from .child import end_with_parent, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


ASK_SHARE = 0.4  # of the time, left for the compilers


def main() -> None:
    """The process."""
    end_with_parent()
    end = time.monotonic() + float(sys.argv[1])
    places = libraries.ask(libraries.search(os.environ), end - ASK_SHARE * (end - time.monotonic()))
    tell({"container": container(os.environ), "libraries": places})
    tell({"toolchain": toolchain.search(os.environ, sys.argv[2:], end)})


def container(environment: Mapping[str, str]) -> str | None:
    """What this process is contained in, as far as it shows."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    return environment.get("container") or None


if __name__ == "__main__":
    main()
