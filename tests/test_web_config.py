"""web.config.yml: what it says, who gets in, and that it counts at once when it changes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt
import pytest
from certificates import Authority, Pair
from smi import environment
from web import GET, ask, connect, hashed, login, read, replace, serving, tls_section, trust, until, where

import dtk

if TYPE_CHECKING:
    from dtk_exporter.server import Server

Serve = Callable[..., "Server"]
NODE_EXPORTER = "prometheus-node-exporter"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "web.config.yml"


@pytest.fixture
def serve(config: Path) -> Iterator[Serve]:
    """Starts a server with this web.config.yml."""
    with serving(config) as start:
        yield start


# ---- what is wrong with a file ----

HASH = "$2y$10$" + "a" * 53


ERRORS = [
    ("basic_auth: {}", "basic_auth: no such key (did you mean basic_auth_users?)"),
    ("- a\n- b", "expected `key: value` lines"),
    ("nonsense", "expected `key: value` lines"),
    ("tls_server_config: yes", "tls_server_config: expected `key: value` lines below tls_server_config"),
    ("a: [b", "line 1: not YAML: expected ',' or ']'"),
    ("a: b\n\tc: d", "line 2: not YAML"),
    ("a: &x [*x]\nb: *y", "line 2: not YAML: found undefined alias"),
    ("rate_limit: {}\nrate_limit: {}", "line 1: not YAML: 'rate_limit' is given twice"),
    ("[" * 9999, "not YAML"),
    ("a: \x00", "not YAML"),
    ("tls_server_config: {cert_file: CERT}", "tls_server_config.key_file: is missing (cert_file needs it)"),
    ("tls_server_config: {key_file: KEY}", "tls_server_config.cert_file: is missing (key_file needs it)"),
    ("tls_server_config: {min_version: TLS12}", "tls_server_config.cert_file: is missing (TLS needs it)"),
    (
        "tls_server_config: {cert_file: none.pem, key_file: KEY}",
        "tls_server_config.cert_file: DIR/none.pem: No such file",
    ),
    ("tls_server_config: {cert_file: ., key_file: KEY}", "tls_server_config.cert_file: DIR: is not a regular file"),
    (
        "tls_server_config: {cert_file: CERT, key_file: pipe}",
        "tls_server_config.key_file: DIR/pipe: is not a regular file",
    ),
    (
        "tls_server_config: {cert_file: CERT, key_file: OTHERKEY}",
        "tls_server_config.key_file: OTHERKEY is not the key of CERT",
    ),
    ("tls_server_config: {cert_file: KEY, key_file: KEY}", "tls_server_config.cert_file: KEY and KEY cannot be used"),
    ("tls_server_config: {cert_file: CERT, key_file: SECRETKEY}", "the key without a password"),
    ("tls_server_config: {cert_file: [CERT], key_file: KEY}", "tls_server_config.cert_file: expected one value"),
    (
        "tls_server_config: {cert: x, key: y}",
        "tls_server_config.cert: not supported: Python's ssl reads it from a file (use cert_file)",
    ),
    ("http_server_config: {http2: maybe}", "http_server_config.http2: 'maybe' is neither"),
    ("http_server_config: {headers: {Server: x}}", "http_server_config.headers.Server: no such key"),
    ("http_server_config: {headers: {X-Frame-Options: allow}}", "'allow' is not allowed (allowed: deny, sameorigin)"),
    ('http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb"}}', "a header is printable ASCII"),
    (
        "basic_auth_users: {alice: secret}",
        "basic_auth_users.alice: is not a bcrypt hash (`htpasswd -nB alice` makes one)",
    ),
    ("basic_auth_users: {alice: }", "basic_auth_users.alice: is not a bcrypt hash"),
    (f"basic_auth_users: {{alice: {HASH.replace('10', '31')}}}", "the bcrypt cost 31 is not from 4 to 16"),
    (f"basic_auth_users: {{'a:b': {HASH}}}", "a user's name has no colon"),
    ("rate_limit: {interval: soon, burst: 1}", "rate_limit.interval: 'soon' is not a duration (such as 1s or 500ms)"),
    ("rate_limit: {interval: 1s, burst: many}", "rate_limit.burst: 'many' is not a number"),
    ("rate_limit: {interval: 1s}", "rate_limit.burst: is 0 or missing"),
]
TLS_ERRORS = [  # of what stands beside cert_file and key_file
    ("min_versoin: TLS13", "tls_server_config.min_versoin: no such key (did you mean min_version?)"),
    ("min_version: TLS10", "min_version: TLS10 is not offered"),
    ("max_version: TLS14", "max_version: no such version: 'TLS14'"),
    ("min_version: TLS13, max_version: TLS12", "max_version: TLS12 is below min_version TLS13"),
    ("cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]", "no such cipher suite: 'TLS_RSA_WITH_RC4_128_SHA'"),
    ("curve_preferences: [P256]", "no such curve: 'P256' (known: CurveP256,"),
    ("curve_preferences: [X25519, CurveP256]", "Python's ssl takes one curve"),
    ("prefer_server_cipher_suites: perhaps", "'perhaps' is neither true nor false"),
    ("client_auth_type: Sometimes", "client_auth_type: no such type: 'Sometimes'"),
    ("client_auth_type: RequireAnyClientCert", "without verifying it (use RequireAndVerifyClientCert)"),
    (
        "client_auth_type: VerifyClientCertIfGiven",
        "client_ca_file: is missing: client_auth_type VerifyClientCertIfGiven needs it",
    ),
    ("client_ca_file: CERT", "client_ca_file: needs a client_auth_type"),
    (
        "client_auth_type: RequireAndVerifyClientCert, client_ca_file: KEY",
        "client_ca_file: KEY has no certificate in PEM",
    ),
    ("client_allowed_sans: [a]", "client_allowed_sans: needs client_auth_type: RequireAndVerifyClientCert"),
]
ERRORS += [(f"tls_server_config: {{cert_file: CERT, key_file: KEY, {line}}}", says) for line, says in TLS_ERRORS]


@pytest.mark.parametrize(("content", "says"), ERRORS)
def test_errors_name_file_and_key(config: Path, authority: Authority, content: str, says: str) -> None:
    from dtk_exporter.webconfig import WebConfig

    os.mkfifo(config.parent / "pipe")
    pair, other, secret = authority.server(), authority.server(), authority.server(password=b"secret")
    names = {
        "OTHERKEY": str(other.key),
        "SECRETKEY": str(secret.key),
        "CERT": str(pair.certificate),
        "KEY": str(pair.key),
        "DIR": str(config.parent),
    }
    for name, path in names.items():
        content, says = content.replace(name, path), says.replace(name, path)
    config.write_text(content)
    with pytest.raises(dtk.Error) as caught:
        WebConfig(config)
    assert f"{config}: " in str(caught.value)
    assert says in str(caught.value)


def test_a_file_that_cannot_be_read(config: Path) -> None:
    from dtk_exporter.webconfig import WebConfig

    with pytest.raises(dtk.InvalidArgument, match=f"read: {config}: No such file or directory"):
        WebConfig(config)


@pytest.mark.parametrize(
    "content", ["", "---\n", "# nothing\n", "tls_server_config:\nbasic_auth_users: ~\nrate_limit: {}"]
)
def test_an_empty_file_asks_for_nothing(serve: Serve, content: str) -> None:
    assert ask(where(serve(content))).body == b"http"


def test_all_keys_that_are_known(serve: Serve, authority: Authority) -> None:
    shutil.copy(authority.server().certificate, authority.directory / "relative.pem")
    pair = authority.server()
    config = tls_section(
        Pair(Path(os.path.relpath(pair.certificate, "/")), pair.key),
        "client_auth_type: RequestClientCert",
        f"client_ca_file: {authority.certificate}",
        "client_allowed_sans: []",
        "min_version: TLS12",
        "max_version: TLS13",
        "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]",
        "curve_preferences: [CurveP256]",
        "prefer_server_cipher_suites: false",
    )
    config += """
http_server_config:
  http2: true
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Content-Type-Options: nosniff
    X-Frame-Options: deny
    X-XSS-Protection: ""
    Content-Security-Policy: default-src 'none'
basic_auth_users: {}
rate_limit: {interval: 1ms, burst: 100}
"""
    server = serve(config.replace("cert_file: ", "cert_file: " + "../" * 20))  # relative to the file
    tls12 = trust(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
    with connect(where(server), tls12) as sock:
        assert sock.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"  # type: ignore[attr-defined]
        sock.sendall(GET)
        answer = read(sock)
    assert answer.body == b"https"
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert answer.headers["x-frame-options"] == "deny"
    assert answer.headers["content-security-policy"] == "default-src 'none'"
    assert "x-xss-protection" not in answer.headers


# ---- users ----


def test_users(serve: Serve) -> None:
    long = "x" * 80
    server = serve(
        f"""
basic_auth_users:
  alice: {hashed("wonderland")}
  爱丽丝: {hashed("仙境")}
  0123: {hashed("a:b").replace("$2b$", "$2y$")}
  no: {hashed("no").replace("$2b$", "$2a$")}
  long: {hashed(long)}
"""
    )
    users = [("alice", "wonderland"), ("爱丽丝", "仙境"), ("0123", "a:b"), ("no", "no"), ("long", long)]
    for user, password in users * 2:
        assert ask(where(server), login(user, password)).status == 200
    for user, password in (("alice", "Wonderland"), ("alice", ""), ("bob", "wonderland"), ("", ""), ("long", "x")):
        answer = ask(where(server), login(user, password))
        assert (answer.status, answer.body) == (401, b"Unauthorized\n")
        assert answer.headers["www-authenticate"].startswith("Basic realm=")
    for header in ("", "Basic", "Basic !", "Basic YQ==", "Bearer x", "Basic " + "A" * 9999, "Basic \xff"):
        request = f"GET /-/healthy HTTP/1.1\r\nHost: x\r\nAuthorization: {header}\r\n\r\n".encode("latin-1")
        assert ask(where(server), request).status == 401
    assert ask(where(server), GET).status == 401
    assert ask(where(server), b"POST / HTTP/1.0\r\n\r\n").status == 401


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that bcrypt was asked about, one after another."""
    asked = []
    compare = bcrypt.checkpw
    comparing = threading.Lock()

    def checkpw(password: bytes, stored: bytes) -> bool:
        asked.append(password if comparing.acquire(blocking=False) else b"another at the same time")
        try:
            return compare(password, stored)
        finally:
            with contextlib.suppress(RuntimeError):
                comparing.release()

    monkeypatch.setattr("dtk_exporter.auth.bcrypt.checkpw", checkpw)
    return asked


def test_a_verdict_is_remembered(serve: Serve, comparisons: list[bytes]) -> None:
    server = serve(f"basic_auth_users: {{alice: {hashed('right')}}}")
    for _ in range(20):
        assert ask(where(server), login("alice", "right")).status == 200
        assert ask(where(server), login("alice", "wrong")).status == 401
        assert ask(where(server), login("bob", "right")).status == 401
    assert comparisons == [b"right", b"wrong", b"right"]  # who is unknown costs the same


def test_many_guesses_keep_nobody_out_who_is_known(serve: Serve, comparisons: list[bytes]) -> None:
    server = serve(f"basic_auth_users: {{alice: {hashed('right', 12)}}}")
    assert ask(where(server), login("alice", "right")).status == 200
    guesses: list[int] = []
    times: list[float] = []
    end = time.monotonic() + 1.5

    def guess(number: int) -> None:
        while time.monotonic() < end:
            number += 100
            guesses.append(ask(where(server), login("alice", f"guess {number}")).status)

    guessers = [threading.Thread(target=guess, args=(number,)) for number in range(20)]
    for guesser in guessers:
        guesser.start()
    while time.monotonic() < end:
        began = time.monotonic()
        assert ask(where(server), login("alice", "right")).status == 200
        times.append(time.monotonic() - began)
    for guesser in guessers:
        guesser.join()
    assert set(guesses) == {401, 503}
    assert b"another at the same time" not in comparisons
    assert sorted(times)[len(times) // 2] < 0.4


def test_the_rate_limit(serve: Serve) -> None:
    server = serve("rate_limit: {interval: 1h30m, burst: 3}")
    answers = [ask(where(server)) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[3].headers["retry-after"] == "1"


# ---- changes ----


@pytest.mark.parametrize("bad", ["a: [", "", "basic_auth_users: {alice: secret}", None])
def test_a_file_that_becomes_bad_changes_nothing(
    serve: Serve, config: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    good = f"basic_auth_users: {{alice: {hashed('right')}}}"
    server = serve(good)
    if bad is None:
        config.unlink()
    else:
        config.write_text(bad)
    for _ in range(3):
        assert ask(where(server), login("alice", "right")).status == 200
        assert ask(where(server), GET).status == 401
    (error,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert str(config) in error
    assert error.endswith("; what was read before stays in force")
    replace(config, "http_server_config: {}")
    assert ask(where(server), GET).status == 200


def test_another_file_takes_its_place(serve: Serve, config: Path) -> None:
    from dtk_exporter.webconfig import WebConfig

    server = serve("")
    other = config.with_name("other.yml")
    other.write_text(f"basic_auth_users: {{alice: {hashed('right')}}}")
    server.web = WebConfig(other)
    assert ask(where(server), GET).status == 401
    server.web = None
    assert ask(where(server), GET).status == 200


# ---- the same file, read by an exporter of Prometheus ----


@pytest.fixture
def node_exporter(config: Path, tmp_path: Path) -> Iterator[Callable[[], tuple[str, int]]]:
    if not shutil.which(NODE_EXPORTER):
        pytest.skip(f"needs {NODE_EXPORTER}")
    with contextlib.ExitStack() as stack:

        def start() -> tuple[str, int]:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address: tuple[str, int] = free.getsockname()
            process = subprocess.Popen(
                [
                    NODE_EXPORTER,
                    f"--web.config.file={config}",
                    f"--web.listen-address={address[0]}:{address[1]}",
                    "--collector.disable-defaults",
                    "--collector.time",
                ],
                env=environment(),
                stderr=stack.enter_context(open(tmp_path / "node_exporter.log", "wb")),
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

            def listens() -> bool:
                assert process.poll() is None, (tmp_path / "node_exporter.log").read_text()
                with contextlib.suppress(OSError), connect(address):
                    return True
                return False

            assert until(listens)
            return address

        yield start


def test_prometheus_exporters_say_the_same(
    serve: Serve,
    node_exporter: Callable[[], tuple[str, int]],
    authority: Authority,
    stranger: Authority,
) -> None:
    server = serve(
        tls_section(
            authority.server(),
            "client_auth_type: RequireAndVerifyClientCert",
            f"client_ca_file: {authority.certificate}",
            "min_version: TLS12",
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]",
            "prefer_server_cipher_suites: true",
            "curve_preferences: [CurveP256]",
        )
        + f"""
http_server_config:
  headers:
    X-Frame-Options: deny
basic_auth_users:
  alice: {hashed("right")}
  long: {hashed("x" * 80)}
"""
    )

    def verdict(address: tuple[str, int], request: bytes, tls: ssl.SSLContext | None) -> object:
        try:
            answer = ask(address, request, tls)
        except ssl.SSLError as error:  # not a reset: the client is told
            return "alert" if "ALERT" in str(error.reason) else error
        return answer.status, answer.headers.get("x-frame-options"), answer.headers.get("www-authenticate", "")[:5]

    mine, theirs = where(server), node_exporter()
    good, tls12, tls13 = authority.client(), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    contexts = {
        "right": trust(authority, good),
        "right, TLS 1.2": trust(authority, good, maximum_version=tls12),
        "none, TLS 1.2": trust(authority, maximum_version=tls12),
        "none, TLS 1.3": trust(authority, minimum_version=tls13),
        "wrong authority": trust(authority, stranger.client(), maximum_version=tls12),
        "a server's": trust(authority, authority.server(), maximum_version=tls12),
        "wrong curve": trust(authority, good),
        "wrong cipher": trust(authority, good, maximum_version=tls12),
        "no TLS": None,
    }
    contexts["wrong curve"].set_ecdh_curve("secp384r1")  # type: ignore[union-attr]
    contexts["wrong cipher"].set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")  # type: ignore[union-attr]
    requests = {
        "right": login("alice", "right"),
        "wrong": login("alice", "wrong"),
        "unknown": login("bob", "right"),
        "long": login("long", "x" * 80),
        "none": GET,
    }
    for name, tls in contexts.items():
        for user, request in requests.items() if name.startswith("right") else [("right", requests["right"])]:
            ours = verdict(mine, request, tls)
            assert ours == verdict(theirs, request, tls), (name, user)
            if name.startswith("right"):
                assert ours == ((200, "deny", "") if user in ("right", "long") else (401, "deny", "Basic"))
            else:
                assert ours == ("alert" if tls else (400, None, ""))
