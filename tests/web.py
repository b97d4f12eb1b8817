"""Ask the exporter's HTTP server over sockets, as well-behaved clients and others do."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import bcrypt
from certificates import Authority, Pair

if TYPE_CHECKING:
    from dtk_exporter.server import Server

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def hashed(password: str, cost: int = 4) -> str:
    """What a web.config.yml has of a password."""
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(cost)).decode()


def login(user: str, password: str) -> bytes:
    """A request of a user's."""
    credentials = base64.b64encode(f"{user}:{password}".encode())
    return b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + credentials + b"\r\n\r\n"


def tls_section(pair: Pair, *lines: str) -> str:
    """tls_server_config of a web.config.yml."""
    return "\n  ".join(("tls_server_config:", f"cert_file: {pair.certificate}", f"key_file: {pair.key}", *lines)) + "\n"


def scheme(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
    """An application that says by what scheme it was asked."""
    start("200 OK", [])
    return [environ["wsgi.url_scheme"].encode()]


@contextlib.contextmanager
def serving(config: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers, each with what the web.config.yml is to say."""
    from dtk_exporter.server import Server
    from dtk_exporter.webconfig import WebConfig

    with contextlib.ExitStack() as stack:

        def start(content: str, **options: Any) -> Server:
            config.write_text(content)
            server = Server(scheme, ["127.0.0.1:0"], WebConfig(config), **options)
            stack.callback(server.close)
            server.start()
            return server

        yield start


def where(server: Server, index: int = 0) -> tuple[str, int]:
    host, _, port = server.addresses[index].rpartition(":")
    return host.strip("[]"), int(port)


def trust(authority: Authority, client: Pair | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
    """What a client needs to speak TLS: whom it trusts, and its own certificate."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if client:
        context.load_cert_chain(client.certificate, client.key)
    for name, version in versions.items():
        setattr(context, name, version)
    return context


def connect(address: tuple[str, int], tls: ssl.SSLContext | None = None, timeout: float = 10) -> socket.socket:
    sock = socket.create_connection(address, timeout=timeout)
    return tls.wrap_socket(sock, server_hostname="localhost") if tls else sock


def read(sock: socket.socket, method: str = "GET") -> Answer:
    """The next answer on a connection."""
    with contextlib.closing(http.client.HTTPResponse(sock, method=method)) as response:
        response.begin()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def ask(
    address: tuple[str, int], request: bytes = GET, tls: ssl.SSLContext | None = None, method: str = "GET"
) -> Answer:
    """One request on a connection of its own."""
    with connect(address, tls) as sock:
        sock.sendall(request)
        return read(sock, method)


def refused(address: tuple[str, int], tls: ssl.SSLContext) -> bool:
    """Whether the server refuses TLS, and says so. In TLS 1.3 the client hears of it when it reads."""
    try:
        ask(address, GET, tls)
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)
    except http.client.RemoteDisconnected:  # who the certificate is for is looked at after the handshake
        return True
    return False


def ended(sock: socket.socket) -> bytes:
    """All that still comes until the server ends the connection."""
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := sock.recv(65536):
            received += chunk
    return received


@contextlib.contextmanager
def many(count: int, open_one: Callable[[], Any]) -> Iterator[list[Any]]:
    """So many clients at once."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open_one()) for _ in range(count)]


def until(condition: Callable[[], object], seconds: float = 5) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def resources() -> tuple[int, int]:
    """Threads and descriptors of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def replace(path: Path, content: bytes | str) -> None:
    """Another file in its place, as tools that rotate certificates do it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.replace(path)
