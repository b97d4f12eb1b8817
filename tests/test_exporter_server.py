"""The exporter's HTTP server, asked by clients of every kind. TLS and users: test_web_config.py."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from web import GET, ask, connect, ended, many, read, resources, until, where

import dtk

if TYPE_CHECKING:
    from dtk_exporter.server import Server

Serve = Callable[..., "Server"]
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"
LARGE = b"x" * (8 << 20)  # more than the kernel takes


def hello(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
    """The application of these tests."""
    path = environ["PATH_INFO"]
    if path == "/fails":
        raise LookupError("no such\nthing")
    body = LARGE if path == "/large" else b"hello " + path.encode("latin-1")
    start("200 OK" if path in ("/", "/large") else "404 Not Found", [("Content-Type", "text/plain")])
    return [body]


@pytest.fixture
def serve(caplog: pytest.LogCaptureFixture) -> Iterator[Serve]:
    """Starts a server. What a client does is never worth a line of the log."""
    from dtk_exporter.server import Server

    with contextlib.ExitStack() as stack:

        def start(application: Any = hello, *addresses: str, **options: Any) -> Server:
            server = Server(application, addresses or ["127.0.0.1:0"], **options)
            stack.callback(server.close)
            server.start()
            return server

        yield start
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [error for error in errors if "/fails" not in error] == []


# ---- addresses ----


def test_several_addresses(serve: Serve) -> None:
    server = serve(hello, "127.0.0.1:0", "localhost:0", ":0")
    assert [address.rpartition(":")[0] for address in server.addresses] == ["127.0.0.1", "127.0.0.1", "[::]"]
    for index in range(3):
        assert ask(("127.0.0.1", where(server, index)[1])).body == b"hello /"


def test_ipv6(serve: Serve) -> None:
    interfaces = Path("/proc/net/if_inet6")
    if not interfaces.exists() or not interfaces.read_text():
        pytest.skip("no IPv6 here")
    server = serve(hello, "[::1]:0")
    assert server.addresses[0].startswith("[::1]:")
    assert ask(where(server)).status == 200


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("9497", "such as 127.0.0.1:9497"),
        ("::1:9497", r"such as .*\[::1\]:9497"),
        ("127.0.0.1:70000", "is no address"),
        ("127.0.0.1:", "is no address"),
        ("no.such.host.invalid:9497", "host 'no.such.host.invalid' is not known"),
        ("a..b:9497", "is not known"),
        ("192.0.2.1:9497", "no network interface here has it"),
    ],
)
def test_addresses_that_cannot_be_had(address: str, says: str) -> None:
    from dtk_exporter.server import Server

    before = resources()
    with pytest.raises(dtk.Error, match=says) as caught:
        Server(hello, ["127.0.0.1:0", address])
    assert f"listen: {address}: " in str(caught.value)
    del caught
    assert resources() == before


def test_a_port_in_use(serve: Serve) -> None:
    from dtk_exporter.server import Server

    address = serve().addresses[0]
    with pytest.raises(dtk.Error, match=f"{address}: Address already in use .*ss -ltnp"):
        Server(hello, [address])


# ---- requests ----


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (b"\r\nGET / HTTP/1.0\r\n\r\n", 200),
        (b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /?a=%zz&b HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /%2e%2e/%2fetc HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /%f0%zz% HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET //large HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://[/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /# HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"GET / HTTP/1.1\r\n folded: first\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / FTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", 405),
        (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"CONNECT [ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 999_999 + b"\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\n" + b"Many: x\r\n" * 99_999 + b"\r\n", 413),
        (b"GET /" + b"x" * 999_999, 414),
        (b"GET /fails HTTP/1.1\r\nHost: x\r\n\r\n", 500),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, bytes) else "",
)
def test_requests(serve: Serve, request_: bytes, status: int) -> None:
    server = serve(request_limit=1)
    answer = ask(where(server), request_)
    assert answer.status == status
    assert b"Traceback" not in answer.body
    assert len(answer.body) < 300
    assert answer.headers.get("server", "dtk-exporter") == "dtk-exporter"
    assert answer.headers.get("allow") == ("GET, HEAD" if status == 405 else None)
    assert until(lambda: server.counters.requests == {str(status): 1})
    malformed = status in (400, 414, 501, 505) or (status == 413 and len(request_) > 9999)
    assert until(lambda: server.counters.rejected["malformed"] == malformed)


def test_head_is_the_answer_without_a_body(serve: Serve) -> None:
    server = serve()
    with connect(where(server)) as sock:
        for path, length in ((b"/", "7"), (b"/large", str(len(LARGE)))):
            sock.sendall(b"HEAD " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = read(sock, "HEAD")
            assert (answer.status, answer.headers["content-length"], answer.body) == (200, length, b"")


def test_connections_are_kept(serve: Serve) -> None:
    server = serve()
    with connect(where(server)) as sock:
        for _ in range(3):
            sock.sendall(GET)
            assert read(sock).status == 200
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n")
        assert read(sock).headers["connection"] == "close"
        assert ended(sock) == b""
    with connect(where(server)) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
        assert ended_after(sock, 2)


def ended_after(sock: socket.socket, count: int) -> bool:
    """Whether so many answers come, and nothing more for a moment."""
    sock.settimeout(0.2)
    received = b""
    with contextlib.suppress(TimeoutError):
        while chunk := sock.recv(65536):
            received += chunk
    return received.count(b"HTTP/1.1 200 OK") == count == received.count(b"hello /")


def test_requests_that_come_together_are_answered_one_by_one(serve: Serve) -> None:
    server = serve()
    with connect(where(server)) as sock:
        sock.sendall(GET * 1000 + HALF)
        assert ended_after(sock, 1000)
        sock.sendall(b"\r\n")
        assert ended_after(sock, 1)


def test_a_body_is_no_second_request(serve: Serve) -> None:
    server = serve()
    for method in (b"GET", b"POST"):
        for body in (b"Content-Length: %d" % len(GET), b"Transfer-Encoding: chunked"):
            with connect(where(server)) as sock:
                sock.sendall(method + b" / HTTP/1.1\r\nHost: x\r\n" + body + b"\r\n\r\n" + GET)
                assert ended(sock).count(b"HTTP/1.1") == 1


def test_a_client_that_ends_its_side_is_answered(serve: Serve) -> None:
    with connect(where(serve())) as sock:
        sock.sendall(GET)
        sock.shutdown(socket.SHUT_WR)
        assert read(sock).status == 200
        assert ended(sock) == b""


def test_an_error_of_the_application_is_one_line(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(where(serve()), b"GET /fails HTTP/1.0\r\n\r\n").body == b"Internal Server Error\n"
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage().startswith("GET '/fails': LookupError: no such thing (test_exporter_server.py:")
    assert record.exc_info is None


# ---- clients that are silent, slow, or too many ----


def quick(server: Server, seconds: float = 3) -> bool:
    """Whether somebody else is answered meanwhile."""
    began = time.monotonic()
    return ask(where(server)).status == 200 and time.monotonic() - began < seconds


@pytest.mark.parametrize("sent", [b"", b"G", HALF, GET + HALF], ids=["silent", "a byte", "half", "one and a half"])
def test_clients_that_do_not_go_on(serve: Serve, sent: bytes) -> None:
    server = serve(request_limit=1)
    before = resources()
    with many(100, lambda: connect(where(server))) as clients:
        for client in clients:
            client.sendall(sent)
        assert all(quick(server) for _ in range(10))
        if sent == HALF:
            assert ended(clients[0]).startswith(b"HTTP/1.1 408 ")
            assert until(lambda: server.counters.rejected["timeout"] == 100)
        assert quick(server)
    assert until(lambda: resources() == before)


def test_a_trickle_does_not_extend_the_time(serve: Serve) -> None:
    server = serve(request_limit=1)
    began = time.monotonic()
    with connect(where(server)) as sock:
        sock.sendall(HALF)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < began + 5:
                sock.sendall(b"x")
                time.sleep(0.05)
    assert 0.5 < time.monotonic() - began < 4


def test_clients_that_do_not_read(serve: Serve) -> None:
    server = serve(request_limit=1)
    before = resources()
    with many(15, lambda: connect(where(server))) as clients:
        for client in clients:
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert quick(server)  # some are given their second, the others are turned away
        rejected = server.counters.rejected
        assert until(lambda: rejected["timeout"] + rejected["busy"] == 15)
        assert rejected["timeout"] > 0
        assert rejected["busy"] > 0
        assert len(ended(clients[0])) < len(LARGE)
    assert until(lambda: resources() == before)


def test_clients_that_ask_again_and_again_and_do_not_read(serve: Serve) -> None:
    server = serve()  # with its own limits
    with many(20, lambda: connect(where(server))) as clients:
        for client in clients:
            client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        for _ in range(5):
            assert quick(server)


def test_a_small_answer_waits_for_no_reader(serve: Serve) -> None:
    server = serve()
    with many(30, lambda: connect(where(server))) as clients:
        for client in clients:
            client.sendall(GET * 100)
        assert quick(server)


def test_clients_that_go_at_once(serve: Serve) -> None:
    server = serve()
    before = resources()
    for number in range(500):
        sock = connect(where(server))
        if number % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            sock.sendall(GET if number % 4 == 1 else HALF)
        sock.close()
    assert quick(server)
    assert until(lambda: resources() == before)


def test_an_idle_connection_is_closed(serve: Serve) -> None:
    with connect(where(serve(idle_limit=1))) as sock:
        sock.sendall(GET)
        read(sock)
        assert ended(sock) == b""


def test_the_longest_silent_makes_room(serve: Serve) -> None:
    server = serve()
    before = resources()
    with many(300, lambda: connect(where(server))) as clients:
        assert quick(server)
        assert clients[0].recv(1) == b""
        assert until(lambda: server.counters.rejected["busy"] >= 44)
        clients[299].sendall(GET)
        assert read(clients[299]).status == 200
    assert until(lambda: resources() == before)


def test_more_requests_than_can_wait(serve: Serve) -> None:
    release = threading.Event()

    def hang(environ: Any, start: Any) -> list[bytes]:
        release.wait(30)
        return hello(environ, start)

    server = serve(hang)

    def request() -> socket.socket:
        sock = connect(where(server))
        sock.sendall(GET)
        return sock

    with many(300, request) as clients:
        assert until(lambda: server.counters.rejected["busy"] == 300 - 256 - 10)
        release.set()
        answers = [read(client).status for client in clients]
    assert (answers.count(200), answers.count(503)) == (266, 34)


def test_no_descriptor_is_left(serve: Serve) -> None:
    server = serve()
    clients = [socket.socket() for _ in range(20)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        cpu = time.process_time()
        for client in clients:
            client.settimeout(5)
            client.connect(where(server))
        assert [ended(client) for client in clients] == [b""] * 20
        assert time.process_time() - cpu < 0.5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
        for client in clients:
            client.close()
    assert quick(server)


# ---- the end ----


def test_close_under_load(serve: Serve) -> None:
    before = resources()
    release = threading.Event()

    def slow(environ: Any, start: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/hangs":
            release.wait(30)
        return hello(environ, start)

    server = serve(slow)
    sent = [b"", HALF, GET, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /hangs HTTP/1.1\r\nHost: x\r\n\r\n"]
    with many(50, lambda: connect(where(server))) as clients:
        for number, client in enumerate(clients):
            client.sendall(sent[number % len(sent)])
        time.sleep(0.2)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 1
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(where(server))
            again.listen()
        release.set()
        assert all(len(ended(client)) < len(LARGE) for client in clients)
    assert until(lambda: resources() == before)


def test_close_before_start_and_twice() -> None:
    from dtk_exporter.server import Server

    before = resources()
    server = Server(hello, ["127.0.0.1:0"])
    server.close()
    server.close()
    assert resources() == before
