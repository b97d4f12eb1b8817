"""web.config.yml of Prometheus' exporters: TLS, users, headers, rate limit.

One file serves all exporters of a machine, so every key of the format is known here. What Python's ssl cannot do is
refused, with an error that says so: the inline `cert`, `key` and `client_ca`, `client_auth_type: RequireAnyClientCert`,
more than one of `curve_preferences`, TLS 1.0 and 1.1. Taken without an effect: `http2`, for the server speaks HTTP/1.1.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import threading
import time
from collections.abc import Mapping

import dtk

from .auth import BasicAuth
from .tls import KEYS as TLS_KEYS
from .tls import TLS, read_tls
from .yamlfile import Section, read_yaml

SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
HEADERS: dict[str, tuple[str, ...]] = {  # those that may be set, and to what (anything, if nothing is named)
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
LOWEST_COST, HIGHEST_COST = 4, 16  # of bcrypt; 16 is seconds, 31 is a day
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

Fingerprint = tuple[int, ...] | None
logger = logging.getLogger("dtk_exporter")


class RateLimit:
    """A token bucket: `burst` requests at once, then one each `interval` seconds, whoever they are from."""

    def __init__(self, interval: float, burst: int) -> None:
        self.interval, self.burst = interval, burst
        self._lock = threading.Lock()
        self._tokens, self._at = float(burst), time.monotonic()

    def allows(self) -> bool:
        """Whether one more request is within the limit."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self.burst, self._tokens + (now - self._at) / self.interval)
            self._at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a web.config.yml says."""

    tls: TLS | None
    headers: Mapping[str, str]
    users: Mapping[bytes, bytes]
    rate_limit: RateLimit | None


class WebConfig:
    """A web.config.yml and the files it names, as they are now.

    Raises dtk.Error when it cannot be used at the start. Later changes count from the next request on. While a file is
    bad the last good settings stay in force, and the error is logged once; so do they for a file that became empty,
    which is what a half-written file looks like. Whether there is TLS at all is settled until SIGHUP.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self.auth = BasicAuth()
        self._lock = threading.Lock()
        self._seen: dict[str, Fingerprint] = {}
        self._settings = _load(self.path, self._seen)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        if any(_fingerprint(path) != then for path, then in self._seen.items()):
            with self._lock:
                if any(_fingerprint(path) != then for path, then in self._seen.items()):
                    self._reload()
        return self._settings

    def _reload(self) -> None:
        seen: dict[str, Fingerprint] = {}
        try:
            new = _load(self.path, seen, may_be_empty=False)
        except dtk.Error as error:
            logger.error("%s; what was read before stays in force", error)
        else:
            logger.info("%s: read again", self.path)
            tls = self._settings.tls
            if (new.tls is None) != (tls is None):
                logger.error("%s: TLS is turned on or off by SIGHUP or a restart; the rest is in force", self.path)
                new = dataclasses.replace(new, tls=tls)
            self._settings = new
        self._seen = seen


def _fingerprint(path: str) -> Fingerprint:
    """What changes with a file: another file in its place, other content, or who may read it."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _load(path: str, seen: dict[str, Fingerprint], may_be_empty: bool = True) -> Settings:
    """Read the file and those it names; `seen` tells afterwards which they were, and when."""

    def watch(file: str) -> str:
        seen[file] = _fingerprint(file)
        return file

    document = read_yaml(watch(path), SECTIONS)
    if not document.values and not may_be_empty:
        raise dtk.InvalidArgument("is empty", path=path)
    http = document.section("http_server_config", ("http2", "headers"))
    http.flag("http2", True)
    return Settings(
        tls=read_tls(document.section("tls_server_config", TLS_KEYS), watch),
        headers=_headers(http.section("headers", tuple(HEADERS))),
        users=_users(document.section("basic_auth_users", None)),
        rate_limit=_rate_limit(document.section("rate_limit", ("interval", "burst"))),
    )


def _headers(section: Section) -> dict[str, str]:
    headers = {}
    for name in section.values:
        value = section.text(name)
        if HEADERS[name] and value not in HEADERS[name]:
            raise section.error(name, f"{value!r} is not allowed", f"allowed: {', '.join(HEADERS[name])}")
        if not value.isascii() or not value.isprintable():
            raise section.error(name, "a header is printable ASCII")
        if value:
            headers[name] = value
    return headers


def _users(section: Section) -> dict[bytes, bytes]:
    users = {}
    for name in section.values:
        stored = section.text(name)
        match = HASH.fullmatch(stored)
        if not match:
            raise section.error(name, "is not a bcrypt hash", f"`htpasswd -nB {name}` makes one")
        if not LOWEST_COST <= int(match[1]) <= HIGHEST_COST:
            raise section.error(
                name, f"the bcrypt cost {match[1]} is not from {LOWEST_COST} to {HIGHEST_COST}", "10 is usual"
            )
        if ":" in name:
            raise section.error(name, "a user's name has no colon")
        users[name.encode()] = stored.encode()
    return users


def _rate_limit(section: Section) -> RateLimit | None:
    interval = _duration(section, "interval")
    burst = section.text("burst", "0")
    if not re.fullmatch(r"\d{1,9}", burst):
        raise section.error("burst", f"{burst!r} is not a number of requests")
    if interval and not int(burst):
        raise section.error("burst", "is 0 or missing: no request would be answered")
    return RateLimit(interval, int(burst)) if interval else None


def _duration(section: Section, key: str) -> float:
    """Seconds, of a duration as Go writes it."""
    text = section.text(key, "0")
    if text == "0":
        return 0.0
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise section.error(key, f"{text!r} is not a duration", "such as 1s or 500ms")
    return float(sum(float(number) * SECONDS[unit] for number, unit in parts))
