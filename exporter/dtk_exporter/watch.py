"""Keeps a Monitor going for as long as the exporter runs, and counts what goes wrong with it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

import psutil

import dtk

from .book import Book, View
from .options import Config
from .text import describe

__all__ = ["Watch"]

FIRST_DELAY, LAST_DELAY = 1.0, 60.0  # seconds before a monitor that ended is started again, doubling

REFUSALS = (dtk.InvalidArgument, dtk.LibraryError, dtk.NotSupported)  # what ends a start, for waiting would not mend it
LOOK_SECONDS = 0.05  # between looks whether to stop waiting

logger = logging.getLogger("dtk_exporter")


class Watch:
    """A Monitor over the machine of a configuration, and the Book it writes; another one when it ends in an error."""

    def __init__(self, config: Config, root: str | None, errors: Counter[str]) -> None:
        """errors: counts by source, which outlast this watch. Raises InvalidArgument for a root without sys/."""
        self.book = Book(config.collect_interval, config.collect_deadline)
        self._config, self._root, self._errors = config, root, errors
        self._closed = threading.Event()
        self._settled = threading.Event()  # the first look, or what keeps it away
        self._refused: dtk.Error | None = None
        self._reader = _Reader()
        self._counted = dtk.MonitorCounters(0, 0, 0, None)
        self._monitor = self._start()
        self._thread = threading.Thread(target=self._run, name="dtk-watch", daemon=True)
        self._thread.start()

    def _start(self) -> dtk.Monitor:
        config = self._config
        monitor = dtk.Monitor(
            self._root,
            interval=config.collect_interval,
            deadline=config.collect_deadline,
            slow=True,
            slow_interval=max(config.collect_interval, config.collect_slow_interval),
            processes=True,
            backend=config.collect_backend,
        )
        monitor.on_snapshot(self._take)
        self._counted = dtk.MonitorCounters(0, 0, 0, None)
        return monitor

    def first(self, timeout: float, stop: threading.Event) -> View | None:
        """The first view; None when none came in so many seconds, or `stop` was set. Raises InvalidArgument when there
        is no such machine, and LibraryError when nothing can read it. Later such errors are told and outlasted.
        """
        end = time.monotonic() + timeout
        while not (self._settled.wait(LOOK_SECONDS) or stop.is_set() or time.monotonic() >= end):
            pass
        self._settled.set()
        if self._refused:
            raise self._refused
        return self.book.view()

    def _run(self) -> None:
        """Wait for the monitor to end, which it does by an error only, and start another."""
        delay = FIRST_DELAY
        while not self._closed.is_set():
            try:
                if self._monitor.wait(1.0) is not None:
                    delay = FIRST_DELAY
                self._count()
                continue
            except dtk.Error as error:
                if not self._settled.is_set() and isinstance(error, REFUSALS):
                    self._refused = error
                    self._settled.set()
                    return
                self._errors["monitor"] += 1
                logger.error("%s; again in %.0f s", error, delay)
            self._count()
            self._monitor.close()
            if self._closed.wait(delay):
                return
            delay = min(2 * delay, LAST_DELAY)
            try:
                self._monitor = self._start()
            except dtk.Error as error:  # of the closed one wait() raises the old error again
                logger.error("%s", error)
            if self._closed.is_set():
                self._monitor.close()

    def _take(self, snapshot: dtk.Snapshot) -> None:
        for event in snapshot.events:
            if event.kind != "throttled":  # which may be a card's usual way of working
                logger.warning("%s %s: %s", event.uuid, event.kind, event.text)
        try:
            self.book.update(snapshot)
        except Exception as error:  # noqa: BLE001 - the monitor would swallow it, and old values stay unexplained
            self._errors["monitor"] += 1
            logger.error("a look at the cards is lost: %s", describe(error))
        self._settled.set()

    def _count(self) -> None:
        now, before = self._monitor.counters, self._counted
        if now.crashes > before.crashes:
            logger.warning("dtk-reader crashed, time %d since the start; another takes its place", now.crashes)
        self._errors["reader_crash"] += now.crashes - before.crashes
        self._errors["reader_hang"] += now.hangs - before.hangs
        self._errors["library"] += now.library - before.library
        self._counted = now

    def reader_cost(self) -> tuple[float, int | None]:
        """Processor seconds of all readers so far, and the resident memory of the one that reads now."""
        return self._reader.cost(self._monitor.counters.reader)

    def close(self) -> None:
        """End it, whatever the cards do."""
        self._closed.set()
        self._monitor.close()


class _Reader:
    """What the readers cost, one after another."""

    def __init__(self) -> None:
        self._before = 0.0  # of those that are gone
        self._pid: int | None = None
        self._seconds = 0.0  # of the one that reads now

    def cost(self, pid: int | None) -> tuple[float, int | None]:
        if pid != self._pid:
            self._before += self._seconds
            self._pid, self._seconds = pid, 0.0
        memory = None
        if pid:
            try:
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._seconds = max(self._seconds, times.user + times.system)
                memory = process.memory_info().rss
            except (psutil.Error, OSError):
                pass  # it has just ended, or no descriptor is left to look at it
        return self._before + self._seconds, memory
