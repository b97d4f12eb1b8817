"""tls_server_config of a web.config.yml as an ssl context, and the handshake that never waits."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dtk

from .yamlfile import Section, beside, content_of

KEYS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "curve_preferences",
    "prefer_server_cipher_suites",
    "cert",
    "key",
    "client_ca",
)
INLINE = {"cert": "cert_file", "key": "key_file", "client_ca": "client_ca_file"}
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
# The exporter makes no use of who the client is, so to ask and not to verify is not to ask.
CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
TLS13_CIPHERS = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}  # always offered
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}


class TLSSocket(ssl.SSLSocket):
    """Says like any other socket that nothing has come yet."""

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:  # noqa: D102 - socket's
        try:
            return super().recv(size, flags)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: D102 - socket's
        try:
            return super().send(data, flags)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def do_handshake(self, block: bool = False) -> None:  # noqa: D102 - socket's
        try:
            super().do_handshake(block)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None


@dataclass(frozen=True)
class TLS:
    """What a new connection is wrapped with."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str]

    def wrap(self, sock: socket.socket) -> TLSSocket:
        """The socket with TLS on it, before the handshake."""
        wrapped = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        assert isinstance(wrapped, TLSSocket)
        return wrapped

    def shake_hands(self, sock: ssl.SSLSocket) -> None:
        """As much of the handshake as has arrived. BlockingIOError: more must come. Another OSError: it failed."""
        sock.do_handshake()
        if self.allowed_sans and self.allowed_sans.isdisjoint(_sans(sock)):
            raise ssl.SSLError("the client's certificate has no allowed subject alternative name")


def read_tls(section: Section, watch: Callable[[str], str]) -> TLS | None:
    """What tls_server_config asks for; None where it asks for nothing.

    `watch` is called with each file before it is read.
    """
    if not section.values:
        return None
    for key, instead in INLINE.items():
        if section.text(key):
            raise section.error(key, "not supported: Python's ssl reads it from a file", f"use {instead}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = TLSSocket
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(section, context)
    _set_ciphers(section, context)
    _load_certificate(section, context, watch)
    _set_client_auth(section, context, watch)
    sans = section.texts("client_allowed_sans")
    if sans and context.verify_mode != ssl.CERT_REQUIRED:
        raise section.error("client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert")
    return TLS(context, frozenset(_normal(san) for san in sans))


def _set_versions(section: Section, context: ssl.SSLContext) -> None:
    lowest, highest = section.text("min_version", "TLS12"), section.text("max_version", "TLS13")
    for key, version in (("min_version", lowest), ("max_version", highest)):
        if version in ("TLS10", "TLS11"):
            raise section.error(key, f"{version} is not offered: OpenSSL regards it as broken", "use TLS12 or TLS13")
        if version not in VERSIONS:
            raise section.error(key, f"no such version: {version!r}", "known: TLS12, TLS13")
    if VERSIONS[lowest] > VERSIONS[highest]:
        raise section.error("max_version", f"{highest} is below min_version {lowest}")
    context.minimum_version, context.maximum_version = VERSIONS[lowest], VERSIONS[highest]


def _set_ciphers(section: Section, context: ssl.SSLContext) -> None:
    wanted = section.texts("cipher_suites")
    for name in wanted:
        if name not in CIPHERS and name not in TLS13_CIPHERS:
            known = ", ".join((*CIPHERS, *sorted(TLS13_CIPHERS)))
            raise section.error("cipher_suites", f"no such cipher suite: {name!r}", f"known: {known}")
    ciphers = [CIPHERS[name] for name in wanted if name in CIPHERS]
    if ciphers:
        context.set_ciphers(":".join(ciphers))
    elif wanted:
        if context.maximum_version == ssl.TLSVersion.TLSv1_2:
            raise section.error("cipher_suites", "none of them is for max_version TLS12")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not section.flag("prefer_server_cipher_suites", True):
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    curves = section.texts("curve_preferences")
    for name in curves:
        if name not in CURVES:
            raise section.error("curve_preferences", f"no such curve: {name!r}", f"known: {', '.join(CURVES)}")
    if len(curves) > 1:
        raise section.error("curve_preferences", "not supported: Python's ssl takes one curve", "name one, or none")
    if curves:
        try:
            context.set_ecdh_curve(CURVES[curves[0]])
        except (ValueError, ssl.SSLError):
            raise section.error("curve_preferences", f"{curves[0]}: this OpenSSL does not offer it") from None


def _load_certificate(section: Section, context: ssl.SSLContext, watch: Callable[[str], str]) -> None:
    files = []
    for key, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if not section.text(key):
            raise section.error(key, "is missing", f"{other} needs it" if section.text(other) else "TLS needs it")
        files.append(_file(section, key, watch))
    try:
        # The password is for an encrypted key: without it, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(files[0], files[1], password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise section.error("key_file", f"{files[1]} is not the key of {files[0]}") from None
        raise section.error(
            "cert_file",
            f"{files[0]} and {files[1]} cannot be used: {error.reason or 'not PEM'}",
            "they are PEM, the key without a password",
        ) from None


def _set_client_auth(section: Section, context: ssl.SSLContext, watch: Callable[[str], str]) -> None:
    kind, has_ca = section.text("client_auth_type"), bool(section.text("client_ca_file"))
    if kind in ("RequireAnyClientCert", "RequireClientCert"):
        raise section.error(
            "client_auth_type",
            f"{kind} is not supported: Python's ssl cannot ask for a certificate without verifying it",
            "use RequireAndVerifyClientCert",
        )
    if kind not in CLIENT_AUTH:
        known = ", ".join(name for name in CLIENT_AUTH if name)
        raise section.error("client_auth_type", f"no such type: {kind!r}", f"known: {known}")
    mode = CLIENT_AUTH[kind]
    if has_ca and kind in ("", "NoClientCert"):
        raise section.error("client_ca_file", "needs a client_auth_type", "such as RequireAndVerifyClientCert")
    if mode != ssl.CERT_NONE and not has_ca:
        raise section.error("client_ca_file", f"is missing: client_auth_type {kind} needs it")
    if has_ca:
        path = _file(section, "client_ca_file", watch)
        try:
            context.load_verify_locations(path)
        except ssl.SSLError:
            raise section.error("client_ca_file", f"{path} has no certificate in PEM") from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate one may be trusted by itself
    context.verify_mode = mode


def _file(section: Section, key: str, watch: Callable[[str], str]) -> str:
    """The path of a file that can be read."""
    path = watch(beside(section.path, section.text(key)))
    try:
        content_of(path)
    except dtk.Error as error:
        raise section.error(key, f"{path}: {error.args[0]}") from None
    return path


def _sans(sock: ssl.SSLSocket) -> set[str]:
    certificate: dict[str, Any] = sock.getpeercert() or {}
    kinds = ("DNS", "IP Address", "email", "URI")
    return {_normal(value) for kind, value in certificate.get("subjectAltName", ()) if kind in kinds}


def _normal(san: str) -> str:
    """An IP address in its one short form, anything else as it is."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(san.strip()))
    return san
