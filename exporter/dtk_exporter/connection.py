"""A client's connection, on which no worker ever waits for the client to send.

cheroot's own connections are read by the worker that answers them, so ten clients that send half a request, or half a
TLS handshake, stop the server. Here a worker takes in what has arrived and hands the connection back to cheroot's
selector, which waits for more in no thread. cheroot sees a request when its head is whole, and its answer is sent when
it is whole: its parser and its gateway never touch the socket. Only public names of cheroot are used or replaced.
"""

from __future__ import annotations

import contextlib
import io
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from cheroot.server import HeaderReader, HTTPConnection, HTTPRequest

if TYPE_CHECKING:
    from .server import HTTPServer
    from .tls import TLS

LONGEST_HEAD = 16 << 10  # bytes of a request line and headers
RECORD = 16 << 10  # bytes that TLS decrypts at once: whoever asks for so many leaves none where no selector sees them
LONGEST_REST = 1 << 20  # bytes that are read and thrown away, so that a client sees why it was refused
REST_TIME = 2.0  # seconds for that
HEAD_END = re.compile(rb"\n\r?\n")
TARGET = re.compile(rb"(/(?!/)|https?://|\*$)[!\"$-~]*", re.IGNORECASE)
HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
ONCE = {b"Authorization", b"Content-Length", b"Host", b"Transfer-Encoding"}
TLS_HANDSHAKE = b"\x16"  # the first byte of every TLS connection
NOT_TLS = b"This port speaks HTTPS: use https://\n"


class _Received(io.BytesIO):
    """What cheroot reads a head from; has_data() tells it whether another request has arrived."""

    def __init__(self, connection: Connection, head: bytes = b"") -> None:
        super().__init__(head)
        self._connection = connection

    def has_data(self) -> bool:
        return self._connection.is_whole()


class _Headers(HeaderReader):
    """Headers as the RFC wants them; cheroot's own reader fails when the first line is folded."""

    def __call__(self, rfile: Any, hdict: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
        headers = {} if hdict is None else hdict
        while (line := rfile.readline()) != b"\r\n":
            name, colon, value = line.partition(b":")
            if not (colon and line.endswith(b"\r\n") and HEADER_NAME.fullmatch(name)):
                raise ValueError("a header line is malformed")
            name, value = name.title(), value.strip()
            if name in headers:
                if name in ONCE:
                    raise ValueError(f"{name.decode()} is given twice")
                value = headers[name] + b", " + value
            headers[name] = value
        if not headers.get(b"Content-Length", b"0").isdigit():
            raise ValueError("Content-Length is not a number")
        wish = headers.get(b"Connection", b"").lower()
        if wish:  # cheroot compares the letters as they are
            headers[b"Connection"] = {b"keep-alive": b"Keep-Alive"}.get(wish, b"close" if b"close" in wish else wish)
        headers.pop(b"Expect", None)  # no body is waited for
        return headers


class Request(HTTPRequest):
    """A request: as cheroot parses it, a little stricter."""

    header_reader = _Headers()
    conn: Connection

    def __init__(self, server: HTTPServer, conn: Connection) -> None:
        super().__init__(server, conn, proxy_mode=True)  # a server accepts absolute URIs, says RFC 9112

    def read_request_line(self) -> bool:
        """The request line; False when it is none."""
        try:
            if not super().read_request_line():  # type: ignore[no-untyped-call]
                return False
            sound = self.method == b"CONNECT" or TARGET.fullmatch(self.uri)
        except ValueError:  # of urlsplit
            sound = False
        if not sound:
            self.simple_response("400 Bad Request", "the request target is malformed")
            return False
        self.scheme = b"https" if self.conn.tls else b"http"
        return True

    def parse_request(self) -> None:
        """Everything before the body. Bodies are not read, so nothing can follow one."""
        super().parse_request()
        headers = self.inheaders
        if self.ready and self.response_protocol == "HTTP/1.1" and b"Host" not in headers:
            self.ready = False
            self.simple_response("400 Bad Request", "the Host header is missing")
        if b"Transfer-Encoding" in headers or headers.get(b"Content-Length", b"0").strip(b"0"):
            self.close_connection = True

    def simple_response(self, status: object, msg: str | bytes = "") -> None:
        """The answer to what is no request, after which the connection ends."""
        code, _, reason = str(status).partition(" ")
        body = (msg.encode(errors="replace") if isinstance(msg, str) else msg or reason.encode()) + b"\n"
        self.close_connection = True
        self.conn.wfile.write(plain_response(f"{code} {reason}", body))
        self.conn.server.counters.answer(code)
        if code != "500":
            self.conn.server.counters.reject("malformed")


def plain_response(status: str, body: bytes) -> bytes:
    """An answer that cheroot does not make."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


class Connection(HTTPConnection):
    """A connection that takes steps: communicate() does what can be done without waiting for the client.

    Wherever more must come first, the socket's BlockingIOError ends the step.
    """

    RequestHandlerClass = Request
    server: HTTPServer

    def __init__(self, server: HTTPServer, sock: socket.socket, *_: object) -> None:
        super().__init__(server, sock, lambda *_: io.BytesIO())
        sock.settimeout(0)
        self.rfile = _Received(self)
        self.tls: TLS | None = server.tls()
        self.is_new = True
        self.evicted = False
        self._secure = self.tls is None  # TLS is in place, or not wanted
        self._bytes = bytearray()  # what came and was not yet answered
        self._answered = False
        self._rest: int | None = None  # when nothing more is answered: how many bytes are still thrown away
        # It is closed then, unless it has got one step further.
        self.until = time.monotonic() + (server.request_limit if self._secure else server.handshake_limit)

    @property
    def last_used(self) -> float:
        """Makes cheroot close it at `until`, also when somebody sets the clock, by which cheroot goes."""
        timeout: int = self.server.timeout
        return time.time() + self.until - time.monotonic() - timeout

    @last_used.setter
    def last_used(self, _: object) -> None:
        pass

    def communicate(self) -> bool:
        """One step. False when the connection has ended."""
        if not self.server.ready:
            return False
        with self.server.busy_with(self):
            try:
                return self._step()
            except BlockingIOError:
                return True
            except TimeoutError:
                self.server.counters.reject("timeout")
            except (OSError, ValueError):  # clients go as they like
                pass
            return False

    def _step(self) -> bool:
        if self._rest is not None:
            return self._throw_away()
        if not self._secure and not self._shake_hands():
            return self._end()
        self._receive()
        self.rfile, self.wfile = _Received(self, self._take_head()), io.BytesIO()
        keep = bool(super().communicate())  # type: ignore[no-untyped-call]
        self._send(self.wfile.getvalue())
        self._answered = True
        self.until = time.monotonic() + self.server.idle_limit
        return keep or self._end()

    # ---- what comes ----

    def _shake_hands(self) -> bool:
        """Put TLS in place. False when that cannot be, and the client has been told."""
        assert self.tls
        try:
            if not isinstance(self.socket, ssl.SSLSocket):
                first = self.socket.recv(1, socket.MSG_PEEK)
                if first and first != TLS_HANDSHAKE:
                    self.socket.send(plain_response("400 Bad Request", NOT_TLS))
                    raise ConnectionAbortedError
                self.socket = self.tls.wrap(self.socket)
            self.tls.shake_hands(self.socket)
        except BlockingIOError:
            raise
        except (OSError, ValueError):
            self.server.counters.reject("tls")
            return False
        self._secure = True
        self.until = time.monotonic() + self.server.request_limit
        return True

    def _receive(self) -> None:
        """Take in what has arrived, until a head is whole."""
        while not self.is_whole():
            chunk = self.socket.recv(RECORD)
            if not chunk:
                raise ConnectionResetError
            if not self._bytes:
                self.until = min(self.until, time.monotonic() + self.server.request_limit)
            self._bytes += chunk

    def is_whole(self) -> bool:
        """Whether there is a head to parse, or something that never becomes one."""
        if not self._bytes:
            return False
        return (
            not (self._bytes[:1].isalpha() or self._bytes[:1].isspace())
            or len(self._bytes) > LONGEST_HEAD
            or HEAD_END.search(self._bytes) is not None
        )

    def _take_head(self) -> bytes:
        end = HEAD_END.search(self._bytes)
        head = bytes(self._bytes[: end.end() if end else None])
        del self._bytes[: len(head)]
        return head

    # ---- what goes ----

    def _send(self, answer: bytes) -> None:
        """Send it, within the time limit however slowly the client reads. What the kernel does not take at once keeps a
        worker, so that only some of them may be kept so.
        """
        rest = memoryview(answer)
        with contextlib.suppress(BlockingIOError):
            while rest:
                rest = rest[self.socket.send(rest) :]
        if not rest:
            return
        if not self.server.slow_clients.acquire(blocking=False):
            self.server.counters.reject("busy")
            raise ConnectionAbortedError
        try:
            self._send_slowly(rest)
        finally:
            self.server.slow_clients.release()

    def _send_slowly(self, rest: memoryview) -> None:
        deadline = time.monotonic() + self.server.request_limit
        while rest:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            rest = rest[self.socket.send(rest) :]
            if rest and time.monotonic() >= deadline:
                raise TimeoutError
        self.socket.settimeout(0)

    def _end(self) -> bool:
        """Say that nothing more comes. What the client still sends is thrown away for a moment: to close at once would
        reset the connection, and the client might lose the answer.
        """
        self._bytes.clear()
        self._rest = LONGEST_REST
        self.until = time.monotonic() + REST_TIME
        if self._secure and isinstance(self.socket, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):  # the client's goodbye, mostly, has not come yet
                self.socket.unwrap()
        socket.socket.shutdown(self.socket, socket.SHUT_WR)
        return self._throw_away()

    def _throw_away(self) -> bool:
        assert self._rest is not None
        while self._rest > 0:
            chunk = socket.socket.recv(self.socket, 64 << 10)  # below TLS, if there is any
            if not chunk:
                break
            self._rest -= len(chunk)
        return False

    def cut(self) -> None:
        """Make whoever waits for this connection find that it has ended."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it. Raises nothing: the worker, and with it the server, would end too."""
        if self.server.forget(self) and self._rest is None:  # its time is over
            if self._bytes:
                with contextlib.suppress(OSError, ValueError):
                    self.socket.send(plain_response("408 Request Timeout", b"the request did not come in time\n"))
            if self._bytes or not self._answered:
                self.server.counters.reject("timeout")
        self.cut()
        self.socket.close()

    def turn_away(self) -> None:
        """Close it, with the reason where that costs nothing."""
        if self.tls is None:
            with contextlib.suppress(OSError):
                self.socket.recv(LONGEST_HEAD)
                self.socket.send(plain_response("503 Service Unavailable", b"too many requests are waiting\n"))
        self.close()
