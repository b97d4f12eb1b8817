"""The entry point of dtk-exporter: options, signals, exit status."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys

import dtk

from .options import parse
from .service import Service

__all__ = ["main"]

logger = logging.getLogger("dtk_exporter")


def main() -> int:
    """The command. Returns its exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="dtk-exporter: %(message)s")
    arguments = sys.argv[1:]
    try:
        given, config = parse(arguments, os.environ)
        with Service(config) as service:
            view = service.first()
            if view and view.snapshot.system.simulated:
                logger.info("SIMULATED: these cards do not exist")
            return _once(service, view is not None) if "once" in given else _serve(service, arguments)
    except dtk.Error as error:
        print(f"dtk-exporter: {error}", file=sys.stderr)
        return _status(error)
    except KeyboardInterrupt:
        return 0


def _serve(service: Service, arguments: list[str]) -> int:
    """Until a signal ends it."""
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    for address in service.listen():
        logger.info("listening on %s", address)
    while (received := signals.get()) == signal.SIGHUP:
        try:
            _, config = parse(arguments, os.environ)
            service.reload(config)
            logger.info("the configuration was read again")
        except dtk.Error as error:
            service.reload_failed()
            logger.error("the old configuration stays: %s", error)
    logger.info("ended by %s", signal.Signals(received).name)
    return 0


def _once(service: Service, looked: bool) -> int:
    """Print the page."""
    _, page = service.metrics("", packed=False)
    sys.stdout.buffer.write(page)
    if not looked:
        print("dtk-exporter: no look at the cards came by the deadline", file=sys.stderr)
        return 11
    return 0


def _status(error: dtk.Error) -> int:
    """The exit status that an error means, as of dtk-smi."""
    kinds = {dtk.InvalidArgument: 2, dtk.PermissionDenied: 4, dtk.LibraryError: 12}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 1)
