"""TLS of the exporter's HTTP server: who gets in, who keeps nobody out, and certificates that change."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from certificates import Authority, Pair
from web import (
    GET,
    ask,
    connect,
    ended,
    hashed,
    login,
    many,
    read,
    refused,
    replace,
    resources,
    serving,
    tls_section,
    trust,
    until,
    where,
)

if TYPE_CHECKING:
    from dtk_exporter.server import Server

Serve = Callable[..., "Server"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "web.config.yml"


@pytest.fixture
def serve(config: Path) -> Iterator[Serve]:
    """Starts a server with this web.config.yml."""
    with serving(config) as start:
        yield start


def test_versions(serve: Serve, authority: Authority) -> None:
    server = serve(tls_section(authority.server(), "min_version: TLS13"))
    assert ask(where(server), GET, trust(authority)).body == b"https"
    assert refused(where(server), trust(authority, maximum_version=ssl.TLSVersion.TLSv1_2))
    assert until(lambda: server.counters.rejected["tls"] == 1)


def test_plain_http_where_tls_is_spoken(serve: Serve, authority: Authority) -> None:
    server = serve(tls_section(authority.server()))
    for request in (GET, b"G", b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99999):
        answer = ask(where(server), request)
        assert (answer.status, answer.body) == (400, b"This port speaks HTTPS: use https://\n")
    assert until(lambda: server.counters.rejected == {"busy": 0, "malformed": 0, "timeout": 0, "tls": 3})


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_client_certificates(serve: Serve, authority: Authority, stranger: Authority, version: str) -> None:
    server = serve(
        tls_section(
            authority.server(),
            "client_auth_type: RequireAndVerifyClientCert",
            f"client_ca_file: {authority.certificate}",
            'client_allowed_sans: [prometheus.test, "2001:db8::1"]',
        )
    )

    def trusted(client: Pair | None) -> ssl.SSLContext:
        return trust(authority, client, maximum_version=ssl.TLSVersion[version])

    assert ask(where(server), GET, trusted(authority.client())).status == 200
    assert ask(where(server), GET, trusted(authority.client("x", "2001:DB8:0::1"))).status == 200
    for client in (None, stranger.client(), authority.client("somebody.test"), authority.server()):
        assert refused(where(server), trusted(client))
    assert until(lambda: server.counters.rejected["tls"] == 4)


def test_a_client_certificate_if_given(serve: Serve, authority: Authority, stranger: Authority) -> None:
    kind = ("client_auth_type: VerifyClientCertIfGiven", f"client_ca_file: {authority.certificate}")
    server = serve(tls_section(authority.server(), *kind))
    assert ask(where(server), GET, trust(authority)).status == 200
    assert ask(where(server), GET, trust(authority, authority.client())).status == 200
    assert refused(where(server), trust(authority, stranger.client()))


def test_the_end_of_an_answer_is_not_mistaken_for_an_attack(serve: Serve, authority: Authority) -> None:
    server = serve(tls_section(authority.server()))
    with socket.create_connection(where(server), timeout=5) as plain:
        sock = trust(authority).wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)
        with sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while sock.recv(65536):  # raises when TLS does not end as it should
                pass


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00", b"\x16\x03\x01\x00\x05junk!"])
def test_clients_that_do_not_shake_hands(serve: Serve, authority: Authority, sent: bytes) -> None:
    server = serve(tls_section(authority.server()), handshake_limit=1)
    tls = trust(authority)
    before = resources()
    with many(100, lambda: connect(where(server))) as clients:
        for client in clients:
            client.sendall(sent)
        for _ in range(5):
            began = time.monotonic()
            assert ask(where(server), GET, tls).status == 200
            assert time.monotonic() - began < 3
        if sent:
            ended(clients[0])
            assert until(lambda: server.counters.rejected["timeout"] + server.counters.rejected["tls"] == 100)
    assert until(lambda: resources() == before)


def test_clients_that_say_nothing_or_half_of_it_within_tls(serve: Serve, authority: Authority) -> None:
    server = serve(tls_section(authority.server()), request_limit=1)
    tls = trust(authority)
    before = resources()
    with many(20, lambda: connect(where(server), tls)) as clients:
        for client in clients[:10]:
            client.sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        assert ask(where(server), GET, tls).status == 200
        assert time.monotonic() - began < 3
        assert ended(clients[0]).startswith(b"HTTP/1.1 408 ")
    assert until(lambda: resources() == before)


def test_requests_that_come_together_within_tls(serve: Serve, authority: Authority) -> None:
    server = serve(tls_section(authority.server()))
    with connect(where(server), trust(authority)) as sock:
        sock.sendall(GET * 1000)
        received = b""
        while received.count(b"HTTP/1.1 200") < 1000:
            received += sock.recv(65536)
    assert received.count(b"https") == 1000


def test_certificates_and_passwords_rotate(
    serve: Serve, config: Path, authority: Authority, stranger: Authority
) -> None:
    pair = authority.server()
    server = serve(tls_section(pair) + f"basic_auth_users: {{alice: {hashed('old')}}}")
    assert ask(where(server), login("alice", "old"), trust(authority)).status == 200

    new = stranger.server()
    replace(pair.key, new.key.read_bytes())  # for a moment the two do not belong together
    assert ask(where(server), login("alice", "old"), trust(authority)).status == 200
    replace(pair.certificate, new.certificate.read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(where(server), trust(authority))
    with connect(where(server), trust(stranger)) as sock:
        sock.sendall(login("alice", "old"))
        assert read(sock).status == 200
        replace(config, tls_section(pair) + f"basic_auth_users: {{alice: {hashed('new')}}}")
        sock.sendall(login("alice", "old"))
        assert read(sock).status == 401
        sock.sendall(login("alice", "new"))
        assert read(sock).status == 200


def test_tls_is_not_turned_off_by_a_file(
    serve: Serve, config: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(tls_section(authority.server()))
    replace(config, f"basic_auth_users: {{alice: {hashed('right')}}}")
    for _ in range(2):
        assert ask(where(server), GET, trust(authority)).status == 401
        assert ask(where(server), login("alice", "right"), trust(authority)).status == 200
    (error,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert error == f"{config}: TLS is turned on or off by SIGHUP or a restart; the rest is in force"
