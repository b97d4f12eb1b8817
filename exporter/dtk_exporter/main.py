"""The entry point of dtk-exporter: options, signals, exit status."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
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
        if "once" in given:
            for number in (signal.SIGPIPE, signal.SIGINT):  # it ends quietly, like any filter
                signal.signal(number, signal.SIG_DFL)
            with Service(config) as service:
                return _once(service)
        signals, stopping = _catch_signals()
        with Service(config, stopping) as service:
            return _serve(service, arguments, signals)
    except dtk.Error as error:
        print(f"dtk-exporter: {error}", file=sys.stderr)
        return _status(error)


def _catch_signals() -> tuple[int, threading.Event]:
    """A descriptor from which the numbers of signals come, from before the start on, and an event that is set by those
    that end it. A queue would not do: a signal that comes just before somebody waits for it is not seen until the next.
    """
    received, caught = os.pipe()
    os.set_blocking(caught, False)
    signal.set_wakeup_fd(caught, warn_on_full_buffer=False)
    stopping = threading.Event()

    def catch(number: int, _: object) -> None:
        if number != signal.SIGHUP:
            stopping.set()  # which nobody waits for: that would not be safe here

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, catch)
    return received, stopping


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


def _serve(service: Service, arguments: list[str], signals: int) -> int:
    """Until a signal ends it."""
    for address in service.listen():
        logger.info("listening on %s", address)
    view = service.first()
    logger.info("version %s, %s", dtk.__version__, _cards(view))
    _mention(view)
    while (received := os.read(signals, 1)[0]) == signal.SIGHUP:
        try:
            _, config = parse(arguments, os.environ)
            service.reload(config)
            logger.info("the configuration was read again")
        except dtk.Error as error:
            service.reload_failed()
            if not service.is_listening:
                raise
            logger.error("the old configuration stays: %s", error)
    logger.info("ended by %s", signal.Signals(received).name)
    return 0


def _once(service: Service) -> int:
    """Check the web configuration too, and print the page."""
    service.check_web()
    view = service.first()
    _mention(view)
    _, page = service.metrics("", packed=False)
    try:
        if sys.stdout is None:
            raise OSError("stdout is closed")
        sys.stdout.buffer.write(page)
        sys.stdout.buffer.flush()
    except OSError as error:
        print(f"dtk-exporter: cannot write the page: {error.strerror or error}", file=sys.stderr)
        os._exit(1)  # Python would try to write the rest again
    if view is None:
        print("dtk-exporter: no look at the cards came by the deadline", file=sys.stderr)
        return 11
    return 0


def _mention(view: View | None) -> None:
    if view and view.snapshot.system.simulated:
        logger.info("SIMULATED: these cards do not exist")


def _status(error: dtk.Error) -> int:
    """The exit status that an error means, as of dtk-smi."""
    kinds = {dtk.InvalidArgument: 2, dtk.NotSupported: 3, dtk.PermissionDenied: 4, dtk.LibraryError: 12}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 1)
