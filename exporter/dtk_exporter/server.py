"""The HTTP server: a WSGI application behind cheroot's workers, as web.config.yml wants it."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cheroot import wsgi

import dtk

from .connection import LONGEST_HEAD, Connection
from .guard import Counters, Guard
from .listeners import BACKLOG, Listeners
from .text import describe

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from .tls import TLS
    from .webconfig import WebConfig

WORKERS = 10
SLOW_CLIENTS = WORKERS // 2  # workers that may wait for clients which do not read their answer
QUEUE = 256  # requests that wait for a worker
MOST_WAITING = 256  # connections that wait for their client
CLOSE_TIME = 0.5  # seconds for answers that are under way when the server closes

logger = logging.getLogger("dtk_exporter")


class Server:
    """Serves a WSGI application over HTTP/1.1, or HTTPS, at all of `addresses`.

        server = Server(application, ["127.0.0.1:9497"], WebConfig("web.config.yml"))
        server.start()
        ...
        server.close()

    It listens from the constructor on, which raises dtk.Error naming the address that cannot be had. `addresses` are
    afterwards those it listens on. Only GET and HEAD are answered. Clients that are silent, slow or malicious keep no
    worker from the others: a TLS handshake may take `handshake_limit` seconds, a request to arrive and its answer to
    be read each `request_limit`, and a connection may be idle for `idle_limit`. `counters` counts all of it.
    """

    def __init__(
        self,
        application: WSGIApplication,
        addresses: Sequence[str],
        web: WebConfig | None = None,
        *,
        handshake_limit: float = 3.0,
        request_limit: float = 10.0,
        idle_limit: float = 75.0,
    ) -> None:
        self.counters = Counters()
        self._guard = Guard(application, web, self.counters)
        self._listeners = Listeners(addresses)
        self.addresses = self._listeners.addresses
        self._http = HTTPServer(self._guard, self._listeners, handshake_limit, request_limit, idle_limit)
        self._started = self._closed = False

    @property
    def web(self) -> WebConfig | None:
        """The web.config.yml in force. Another may take its place, but not one that turns TLS on or off."""
        return self._guard.web

    @web.setter
    def web(self, web: WebConfig | None) -> None:
        self._guard.web = web

    def start(self) -> None:
        """Answer requests, in threads of its own."""
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._http.run, args=(started,), name="dtk-http", daemon=True).start()
        error = started.get()
        if error:
            raise dtk.Error(f"the HTTP server cannot start: {error}") from error
        self._started = True

    def close(self) -> None:
        """Free the ports and end all connections, within a second. An application that hangs is left behind."""
        if self._closed:
            return
        self._closed = True
        self._listeners.end()
        if not self._started:
            self._listeners.close()
            return
        # cheroot waits for its workers, for ever if need be.
        stopping = threading.Thread(target=self._http.stop, name="dtk-http-stop", daemon=True)
        stopping.start()
        stopping.join(CLOSE_TIME)
        self._http.cut_all()
        stopping.join(CLOSE_TIME / 2)


class HTTPServer(wsgi.Server):
    """cheroot's server, with listeners and connections of our own."""

    ConnectionClass = Connection
    max_request_header_size = LONGEST_HEAD
    keep_alive_conn_limit = None  # type: ignore[assignment]  # the oldest makes room, see put_conn()

    def __init__(
        self, guard: Guard, listeners: Listeners, handshake_limit: float, request_limit: float, idle_limit: float
    ) -> None:
        super().__init__(
            ("127.0.0.1", 0),  # not used: bind() gives the listeners
            guard,
            numthreads=WORKERS,
            server_name="dtk-exporter",
            request_queue_size=BACKLOG,
            timeout=int(idle_limit),
            shutdown_timeout=1,
            accepted_queue_size=QUEUE,
            accepted_queue_timeout=0,
        )
        self.counters = guard.counters
        self.handshake_limit, self.request_limit, self.idle_limit = handshake_limit, request_limit, idle_limit
        self.slow_clients = threading.BoundedSemaphore(SLOW_CLIENTS)
        self._guard, self._listeners = guard, listeners
        self._lock = threading.Lock()
        self._waiting: dict[Connection, None] = {}  # in the selector, the one that waits longest first
        self._busy: set[Connection] = set()  # in a worker
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._room = MOST_WAITING if descriptors < 0 else max(1, min(MOST_WAITING, descriptors // 4))  # < 0: no limit

    def tls(self) -> TLS | None:
        """What a new connection is wrapped with."""
        return _tls(self._guard.web)

    def run(self, started: queue.SimpleQueue[BaseException | None]) -> None:
        """Serve until stop(), in a thread that is a daemon, as then the workers are too."""
        try:
            os.environ.pop("LISTEN_PID", None)  # cheroot would take systemd's socket for its own
            self.prepare()
        except BaseException as error:  # noqa: BLE001 - start() raises it
            started.put(error)
            return
        started.put(None)
        self.serve()

    def bind(self, *_: object) -> Listeners:
        """What cheroot takes for its listening socket."""
        self.socket = self._listeners
        return self._listeners

    def process_conn(self, conn: Connection) -> None:
        """A new connection waits for its first byte; one that has something to read goes to a worker."""
        if conn.is_new:
            conn.is_new = False
            self.put_conn(conn)
            return
        if conn.evicted or conn.until < time.monotonic():
            conn.close()
            return
        self.forget(conn)
        try:
            self.requests.put(conn)
        except queue.Full:
            self.counters.reject("busy")
            conn.turn_away()

    def put_conn(self, conn: Connection) -> None:
        """Let a connection wait for its client. When too many do, the one that has waited longest is ended."""
        with self._lock:
            if len(self._waiting) >= self._room:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                oldest.evicted = True
                oldest.cut()  # which the selector notices
                self.counters.reject("busy")
            self._waiting[conn] = None
        try:
            super().put_conn(conn)
        except (OSError, ValueError):  # the kernel watches no more of them; cheroot would end the server
            conn.close()

    def forget(self, conn: Connection) -> bool:
        """The connection waits no longer. Whether it did."""
        with self._lock:
            waited = conn in self._waiting
            self._waiting.pop(conn, None)
            return waited

    @contextlib.contextmanager
    def busy_with(self, conn: Connection) -> Iterator[None]:
        """A worker is at this connection."""
        with self._lock:
            self._busy.add(conn)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(conn)

    def cut_all(self) -> None:
        """End what workers are at."""
        with self._lock:
            for conn in self._busy:
                conn.cut()

    def error_log(self, msg: str = "", level: int = logging.INFO, *_: object, **__: object) -> None:
        """One line for what should not be; none for clients that come and go as they like."""
        error = sys.exc_info()[1]
        if level >= logging.WARNING and not isinstance(error, OSError):
            logger.error("http: %s", describe(error) if error else msg)


def _tls(web: WebConfig | None) -> TLS | None:
    return web.settings.tls if web else None
