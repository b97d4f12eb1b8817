"""Monitor: snapshots of a machine, one after another, whatever its cards do."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator

from . import reader
from ._native import lib
from ._record import Record
from .assembly import Assembly
from .errors import Error, LibraryError
from .events import Watcher
from .library import VendorLibrary, resolve_backend
from .reader import Crash, Reader
from .snapshot import Snapshot
from .system import resolve_root
from .take import check_keys, check_seconds, crashed, library_numbers, scan_flags

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from .sample import Sample

__all__ = ["Monitor", "MonitorCounters"]

FIRST_RESTART, LAST_RESTART = 0.1, 10.0  # seconds before a crashed reader is started again, doubling
FIRST_PROBE, LAST_PROBE = 1.0, 60.0  # seconds before a card that hung is asked again, doubling
BUSY_SECONDS, IDLE_SECONDS = 0.05, 0.25  # at most between two looks at the clock, within a tick and between two
LIBRARY_GRACE = 0.05  # seconds for what the vendor's library adds, once all files are read
LIBRARY_PAUSE = 600.0  # seconds before the vendor's library, after it ended a reader, is asked again


class MonitorCounters(Record):
    """What became of the readers of a Monitor, since it began.

    crashes: ended by themselves, or wrote what is no frame. hangs: replaced because nothing came any more. library:
    ended or stopped by the vendor's library. reader: process id of the one that reads now, None while there is none.
    """

    crashes: int
    hangs: int
    library: int
    reader: int | None


class Monitor:
    """Reads a machine again and again in a process of its own, and hands out immutable Snapshots.

        with dtk.Monitor(interval=1.0) as monitor:
            for snapshot in monitor:
                print(snapshot.devices[0].sample.power_draw)

    interval: seconds between ticks. deadline: seconds a card may take to answer; after that it is "stale" while the
    others go on, and back as soon as it answers. slow: read the slow tier too, every `slow_interval` seconds, as the
    static tier is. root, devices, processes, backend, library_metrics: as for take_snapshot(). A vendor's library that
    ended the process that asked it is left out for ten minutes.

    A snapshot's `events` are what happened to the cards since the one before: see dtk.events.

    The first snapshot comes when all cards have answered, or at the deadline. Cards that come and go are seen within a
    tick. A crashed reader is replaced. close() ends it at once, also while a card hangs; nobody waits for the kernel.
    May be used from several threads. A child that fork() makes has no monitor.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        devices: Sequence[str | int] | None = None,
        interval: float = 1.0,
        deadline: float = 1.0,
        slow_interval: float = 5.0,
        slow: bool = False,
        processes: bool | str = False,
        backend: str | None = None,
        library_metrics: Sequence[str] | None = None,
    ) -> None:
        self._root, self._origin = resolve_root(root)
        self._backend, self._library = resolve_backend(backend, "auto"), library_numbers(library_metrics)
        self._keys = check_keys(devices)
        check_seconds(interval=interval, deadline=deadline, slow_interval=slow_interval)
        self._interval = interval
        self._deadline = deadline
        self._slow_every = max(1, round(slow_interval / interval))
        self._slow = lib.DTK_TIER_STATIC | slow * lib.DTK_TIER_SLOW
        self._processes = scan_flags(processes)
        self._callbacks: list[Callable[[Snapshot], None]] = []
        self._changed = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._count = 0
        self._counters = MonitorCounters(0, 0, 0, None)
        self._error: Error | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dtk-monitor", daemon=True)
        self._wake = self._woken = -1
        try:
            self._wake, self._woken = os.pipe()
            self._thread.start()
        except (OSError, RuntimeError) as error:
            for end in (self._wake, self._woken):
                if end >= 0:
                    os.close(end)
            hint = "ulimit -a shows what this process may have"
            raise LibraryError(str(error), operation="start a monitor", hint=hint) from error

    # ---- for everybody ----

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest, None before the first. Raises the Error that ended the monitor."""
        with self._changed:
            if self._error:
                raise self._error
            return self._snapshot

    def wait(self, timeout: float | None = None) -> Snapshot | None:
        """The next snapshot, None when none came within `timeout` seconds or the monitor was closed."""
        with self._changed:
            before = self._count
            self._changed.wait_for(lambda: self._count > before or self._error or self._closed, timeout)
            if self._error:
                raise self._error
            return self._snapshot if self._count > before else None

    def __iter__(self) -> Iterator[Snapshot]:
        """Each snapshot from now on; one that came while the last was looked at is skipped for the newest."""
        seen = 0
        while (step := self._after(seen)) is not None:
            seen, snapshot = step
            yield snapshot

    def _after(self, seen: int) -> tuple[int, Snapshot] | None:
        """The newest snapshot after the seen-th, with its number; None when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > seen or self._error or self._closed)
            if self._error:
                raise self._error
            return None if self._closed or self._snapshot is None else (self._count, self._snapshot)

    def on_snapshot(self, callback: Callable[[Snapshot], None]) -> None:
        """Call this with every snapshot from the latest on: with that one now, with the others in the monitor's thread.
        It must be quick, and what it raises is lost.
        """
        with self._changed:
            self._callbacks.append(callback)
            snapshot = self._snapshot
        if snapshot is not None:
            with contextlib.suppress(BaseException):
                callback(snapshot)

    @property
    def counters(self) -> MonitorCounters:
        """What became of its readers."""
        return self._counters

    def close(self) -> None:
        """End it. Returns at once, also while a card hangs; a callback that is running is waited for."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        os.write(self._woken, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        os.close(self._wake)
        os.close(self._woken)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    # ---- the thread ----

    def _run(self) -> None:
        try:
            watch = _Watch(self._root, self._origin, self._keys, self._interval, self._deadline, self._processes)
            with contextlib.closing(watch):
                watch.start(self._slow, self._slow_every, self._backend, self._library)
                while not self._closed:
                    snapshot = watch.step(self._wake)
                    self._counters = watch.counters()
                    if snapshot is not None:
                        self._publish(snapshot)
        except BaseException as error:  # noqa: BLE001 - whoever waits for a snapshot must hear of it
            with self._changed:
                self._error = error if isinstance(error, Error) else Error(f"the monitor ended: {error!r}")
                self._changed.notify_all()

    def _publish(self, snapshot: Snapshot) -> None:
        with self._changed:
            self._snapshot = snapshot
            self._count += 1
            self._changed.notify_all()
            callbacks = tuple(self._callbacks)
        for callback in callbacks:
            with contextlib.suppress(BaseException):
                callback(snapshot)


class _Watch:
    """The reader of a Monitor and what is known through it: one step at a time, in one thread."""

    def __init__(
        self, root: str, origin: str, keys: list[str], interval: float, deadline: float, processes: int
    ) -> None:
        self._root, self._origin, self._keys = root, origin, keys
        self._interval, self._deadline, self._processes = interval, deadline, processes
        self._reader: Reader | None = None
        self._assembly = Assembly(root, origin)
        self._published = 0  # the last tick of this reader that made a snapshot
        self._began = 0.0  # when the first tick began that has made none
        self._heard = 0.0  # when the reader last told something
        self._restart_at = 0.0
        self._restart_delay = FIRST_RESTART
        self._crashes = 0  # since a reader last got as far as a snapshot
        self._last: dict[str, Sample] = {}
        self._hung: dict[str, _Hung] = {}  # cards that are left out, by address
        self._aborted: VendorLibrary | None = None  # the vendor's library, while it is left out
        self._library_at = 0.0  # until when
        self._watcher = Watcher()
        self._all_crashes = self._all_hangs = self._all_library = 0  # readers that ended so

    def counters(self) -> MonitorCounters:
        pid = self._reader.pid if self._reader else None
        return MonitorCounters(self._all_crashes, self._all_hangs, self._all_library, pid)

    def start(self, slow: int, slow_every: int, backend: str, library: list[int] | None) -> None:
        self._slow, self._slow_every = slow, slow_every
        self._backend, self._library = backend, library
        self._start_reader()

    def close(self) -> None:
        if self._reader:
            self._reader.kill()
        for hung in self._hung.values():
            hung.close()

    def step(self, wake: int) -> Snapshot | None:
        """Wait for what comes next, at most a moment, and take it in. Returns a snapshot when one is due."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        if self._reader:
            poll.register(self._reader.descriptor, select.POLLIN)
        poll.poll(min(IDLE_SECONDS if self._is_idle() else BUSY_SECONDS, self._deadline / 4) * 1000)
        try:
            if self._reader:
                for frame in self._reader.frames(0):
                    self._assembly.take(*frame)
                    self._heard = time.monotonic()
        except Crash as crash:
            return self._take_crash(crash)
        if not self._reader:
            if time.monotonic() >= self._restart_at:
                self._start_reader()
            return None
        if self._assembly.changed or self._probe_hung():
            return self._replace(())
        if self._aborted and time.monotonic() >= self._library_at:
            self._aborted = None
            return self._replace(())
        return self._due()

    def _is_idle(self) -> bool:
        """Nothing is under way whose end a clock would tell: the next frame is."""
        probing = any(hung.reader for hung in self._hung.values())
        return self._reader is not None and self._assembly.tick == self._published and not probing

    def _due(self) -> Snapshot | None:
        """A snapshot when all that were asked have answered, or the deadline of the tick has passed."""
        assembly, now = self._assembly, time.monotonic()
        if not assembly.ready:
            if now >= self._heard + self._deadline:
                self._all_hangs += 1
                return self._replace([assembly.touching] if assembly.touching else [])
            return None
        if now >= self._heard + self._interval + self._deadline:
            # It does not even begin ticks: stopped, as nothing in it does but a library that stops the process.
            self._all_hangs += not self._abort_library()
            return self._replace(())
        if assembly.tick <= self._published:
            return None
        self._began = self._began or assembly.began
        over = now >= self._began + self._deadline
        new = any(
            slot.sample is None and slot.asked and now < slot.asked + self._deadline for slot in assembly.slots.values()
        )
        # What the library gave a moment ago stands where it is late; nothing waits for it but the first snapshot.
        read = self._last and assembly.files == assembly.tick and now >= assembly.files_at + LIBRARY_GRACE
        if not over and (new or not (assembly.is_done or read)):
            return None
        late = now >= assembly.began + self._deadline
        if late and assembly.outstanding() and not any(slot.tick == assembly.tick for slot in assembly.slots.values()):
            self._all_hangs += 1
            return self._replace(assembly.outstanding())
        self._published = assembly.tick
        self._began = 0.0
        self._crashes = 0
        self._restart_delay = FIRST_RESTART
        return self._make()

    def _make(self) -> Snapshot:
        reader.reap()
        if self._reader:
            self._assembly.log = self._reader.log()
        snapshot = self._assembly.snapshot(self._deadline, self._slow | lib.DTK_TIER_FAST, self._last)
        for reading in (*snapshot.cards, *snapshot.devices):
            if reading.state == "ok":
                self._last[reading.uuid] = reading.sample
        snapshot.events = self._watcher.update(snapshot)
        return snapshot

    # ---- readers come and go ----

    def _start_reader(self) -> None:
        self._assembly = Assembly(self._root, self._origin, self._backend, self._aborted)
        self._assembly.keep = self._deadline + self._interval
        self._published = 0
        self._began = 0.0
        self._heard = time.monotonic()
        try:
            self._reader = self._make_reader()
        except LibraryError:
            if not self._last:
                raise
            self._reader = None  # out of descriptors or processes, perhaps only for a while
            self._restart_later()

    def _make_reader(self) -> Reader:
        return Reader(
            self._root,
            lib.DTK_TIER_FAST,
            interval=self._interval,
            slow=self._slow,
            slow_every=self._slow_every,
            devices=self._keys,
            without=sorted(self._hung),
            processes=self._processes,
            backend=self._backend,
            library=self._library,
            aborted=self._aborted is not None,
        )

    def _replace(self, hung: Sequence[str]) -> Snapshot | None:
        """Another reader, without the cards that hung this one; what is known so far as a snapshot."""
        snapshot = self._make() if hung and self._assembly.ready else None
        if self._reader:
            self._reader.kill()
        for bdf in hung:
            self._hung.setdefault(bdf, _Hung(self._root, bdf, self._deadline))
        self._start_reader()
        return snapshot

    def _take_crash(self, crash: Crash) -> Snapshot | None:
        if self._assembly.changed:
            return self._replace(())
        if self._reader:
            self._assembly.log = self._reader.log()
            self._reader.kill()
            self._reader = None
        self._all_crashes += 1
        if self._abort_library():
            self._start_reader()
            return None
        self._crashes += 1
        if self._crashes > 8 and not self._last:
            raise crashed(crash) from crash
        self._restart_later()
        return None

    def _abort_library(self) -> bool:
        """Leave the vendor's library out for a while, if this reader had it."""
        ended = self._assembly.after_crash()
        if ended is not None:
            self._all_library += 1
            self._aborted = ended
            self._library_at = time.monotonic() + LIBRARY_PAUSE
        return ended is not None

    def _restart_later(self) -> None:
        self._restart_at = time.monotonic() + self._restart_delay
        self._restart_delay = min(2 * self._restart_delay, LAST_RESTART)

    def _probe_hung(self) -> bool:
        """Ask the cards that are left out, one at a time; true when one of them answers again."""
        busy = any(hung.reader for hung in self._hung.values())
        for bdf, hung in list(self._hung.items()):
            if hung.answers(may_start=not busy):
                hung.close()
                del self._hung[bdf]
                return True
            busy = busy or hung.reader is not None
        return False


class _Hung:
    """A card that hung a reader, asked now and then by a reader of its own."""

    def __init__(self, root: str, bdf: str, deadline: float) -> None:
        self._root, self._bdf, self._deadline = root, bdf, deadline
        self._delay = FIRST_PROBE
        self._next = time.monotonic() + self._delay
        self._abandoned = 0  # a reader that still hangs in it
        self._heard = 0.0
        self._assembly = Assembly(root, "")
        self.reader: Reader | None = None

    def answers(self, may_start: bool) -> bool:
        """Go on; true when the card has answered."""
        if self.reader:
            return self._listen(self.reader)
        now = time.monotonic()
        if may_start and now >= self._next and not (self._abandoned and reader.is_abandoned(self._abandoned)):
            self._assembly = Assembly(self._root, "")
            self._heard = now
            try:
                self.reader = Reader(self._root, lib.DTK_TIER_FAST, devices=[self._bdf])
            except LibraryError:
                self._give_up()
        return False

    def _listen(self, process: Reader) -> bool:
        try:
            for frame in process.frames(0):
                self._assembly.take(*frame)
                self._heard = time.monotonic()
        except (Crash, Error):
            if self._assembly.is_done:
                return True
            self._give_up()
            return False
        if self._assembly.is_done:
            return True
        if time.monotonic() >= self._heard + self._deadline:
            self._give_up()
        return False

    def _give_up(self) -> None:
        self._abandoned = self.close()
        self._delay = min(2 * self._delay, LAST_PROBE)
        self._next = time.monotonic() + self._delay

    def close(self) -> int:
        """End its reader; the process id of that."""
        pid = self.reader.kill() if self.reader else 0
        self.reader = None
        return pid
