"""The addresses a server listens on, as the one socket that cheroot takes them for."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import socket
import time
from collections.abc import Sequence

import dtk

ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]*)):(\d{1,5})")
BACKLOG = 256
SEND_BUFFER = 256 << 10  # bytes that the kernel takes at once, so that a slow reader keeps no worker
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
HINTS = {
    errno.EADDRINUSE: "another program listens there, `ss -ltnp` shows which: end it, or listen on another port",
    errno.EACCES: "only root may listen on ports below 1024: take a higher one",
    errno.EADDRNOTAVAIL: "no network interface here has it: `ip address` lists those that may be given",
}


class Listeners:
    """Listens on all of `addresses`, from the constructor on. Raises dtk.Error that names the one that failed.

    An address is HOST:PORT, with an IPv6 address in brackets; without a host it is all interfaces, and port 0 is one
    that is free. The rest is what cheroot expects of its socket: readable when somebody connects, and accept().
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._epoll = select.epoll()
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._spare: int | None = _spare()
        self._sockets: dict[int, socket.socket] = {}
        self._ready: list[int] = []
        try:
            for address in addresses:
                listener = _listen(address)
                self._sockets[listener.fileno()] = listener
                self._epoll.register(listener, select.EPOLLIN)
        except BaseException:
            self.end()
            self.close()
            raise
        self.addresses = [_text(listener.getsockname()) for listener in self._sockets.values()]

    def end(self) -> None:
        """Free the ports. Whoever waits for connections is woken."""
        for listener in self._sockets.values():
            listener.close()
        if self._woken >= 0:
            os.close(self._woken)
            self._woken = -1

    def accept(self) -> tuple[socket.socket, object]:
        """The next connection; BlockingIOError when there is none. Each listener has its turn."""
        if not self._ready:
            self._ready = [descriptor for descriptor, _ in self._epoll.poll(0) if descriptor in self._sockets]
        while self._ready:
            listener = self._sockets[self._ready.pop(0)]
            try:
                return listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._shed(listener)
        raise BlockingIOError(errno.EAGAIN, "nobody connects")

    def _shed(self, listener: socket.socket) -> None:
        """No descriptor is left. End the connection that waits, with one kept for that: it would only be asked for
        again and again.
        """
        if self._spare is not None:
            os.close(self._spare)
            with contextlib.suppress(OSError):
                listener.accept()[0].close()
        else:
            time.sleep(0.05)
        self._spare = _spare()

    # ---- the rest of what cheroot does with its socket ----

    def fileno(self) -> int:
        """Readable when somebody connects."""
        return self._epoll.fileno()

    def settimeout(self, _: float) -> None:
        """accept() does not wait."""

    def listen(self, _: int) -> None:
        """They do."""

    def getsockname(self) -> tuple[str, int]:
        """Asked by cheroot when it stops, to wake itself by a connection. It is awake then: end() was called."""
        raise OSError(errno.EBADF, "closed")

    def close(self) -> None:
        """Close what is not a port."""
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._wake)
            if self._spare is not None:
                os.close(self._spare)


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def split_address(address: str) -> tuple[str, int]:
    """Host, "" for all interfaces, and port. Raises InvalidArgument for what is no address."""
    match = ADDRESS.fullmatch(address)
    if not match or int(match[3]) > 65535:
        raise dtk.InvalidArgument(
            "is no address", operation="listen", path=address, hint="such as 127.0.0.1:9497, :9497 or [::1]:9497"
        )
    return match[1] or match[2], int(match[3])


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    error: OSError | None = None
    for family, where in _resolve(address, host, port):
        try:
            return _bind(family, where)
        except OSError as failed:
            error = failed
            if failed.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                break
    assert error
    number = error.errno or 0
    kind = {errno.EACCES: dtk.PermissionDenied, errno.EADDRNOTAVAIL: dtk.InvalidArgument}.get(number, dtk.Error)
    raise kind(os.strerror(number), operation="listen", path=address, hint=HINTS.get(number)) from error


def _resolve(address: str, host: str, port: int) -> list[tuple[int, tuple[object, ...]]]:
    """Where to bind, the first that works: of a name its IPv4 address, of no host all of both kinds."""
    if not host:
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise dtk.InvalidArgument(
            f"the host {host!r} is not known",
            operation="listen",
            path=address,
            hint="`ip address` lists this machine's",
        ) from error
    return sorted(((family, where) for family, _, _, _, where in found), key=lambda each: each[0] != socket.AF_INET)


def _bind(family: int, where: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it,
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # and this
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        listener.setblocking(False)
        listener.bind(where)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _text(where: tuple[object, ...]) -> str:
    host, port = where[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
