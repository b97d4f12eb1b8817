"""The entry point of dtk-exporter: options, signals, exit status."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
from collections import Counter

import dtk

from .book import View
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
            if "once" not in given:
                logger.info("version %s, %s", dtk.__version__, _cards(view))
            if view and view.snapshot.system.simulated:
                logger.info("SIMULATED: these cards do not exist")
            if "once" not in given:
                return _serve(service, arguments)
            service.check_web()
            return _once(service, view is not None)
    except dtk.Error as error:
        print(f"dtk-exporter: {error}", file=sys.stderr)
        return _status(error)
    except KeyboardInterrupt:
        return 0


def _cards(view: View | None) -> str:
    """What was found, for the log."""
    if view is None:
        return "no look at the cards yet: one of them, or a library, does not answer"
    snapshot = view.snapshot
    if not snapshot.devices:
        return "no cards: `dtk-smi doctor` says why"
    models = Counter(device.name for device in snapshot.devices)
    drivers = (f"{name} {version or ''}".rstrip() for name, version in snapshot.system.drivers.items())
    return f"{', '.join(f'{count} {name}' for name, count in models.items())}, driver {', '.join(drivers)}"


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
