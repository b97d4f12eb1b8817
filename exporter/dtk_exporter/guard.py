"""What stands between the server and the application: who may ask what, what is added, what is counted."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from .text import describe

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from .webconfig import Settings, WebConfig

Answer = tuple[str, list[tuple[str, str]], bytes]
logger = logging.getLogger("dtk_exporter")


class Counters:
    """What was answered, by status code, and what was turned away, by reason."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.rejected = dict.fromkeys(("busy", "malformed", "timeout", "tls"), 0)
        self._lock = threading.Lock()

    def answer(self, code: str) -> None:
        """Count an answer."""
        with self._lock:
            self.requests[code] = self.requests.get(code, 0) + 1

    def reject(self, reason: str) -> None:
        """Count a client that got no answer from the application: busy, malformed, timeout or tls."""
        with self._lock:
            self.rejected[reason] += 1


class Guard:
    """A WSGI application around another: rate limit, users and methods before it, headers and errors after it.

    The order is that of Prometheus' own exporters: who may not ask learns nothing about what is there.
    """

    def __init__(self, application: WSGIApplication, web: WebConfig | None, counters: Counters) -> None:
        self.application, self.web, self.counters = application, web, counters

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer a request."""
        web = self.web
        settings = web.settings if web else None
        refused = _refuse_client(environ, web, settings) if web and settings else None
        status, headers, body = refused or _refuse_request(environ) or self._ask(environ)
        if not any(name.lower() == "content-length" for name, _ in headers):
            headers.append(("Content-Length", str(len(body))))
        extra = settings.headers if settings else {}
        start_response(status, [header for header in headers if header[0] not in extra] + list(extra.items()))
        self.counters.answer(status[:3])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _ask(self, environ: WSGIEnvironment) -> Answer:
        """The application's answer as a whole, so that an error on the way is still a 500."""
        started: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _: Any = None) -> Any:
            started[:] = [status, list(headers)]

        try:
            body = b"".join(self.application(environ, start))
            status, headers = started
            return status, headers, body
        except Exception as error:  # noqa: BLE001 - whatever it is, the server goes on
            logger.error("%s %r: %s", environ["REQUEST_METHOD"], environ["PATH_INFO"], describe(error))
            return _refuse("500 Internal Server Error")


def _refuse_client(environ: WSGIEnvironment, web: WebConfig, settings: Settings) -> Answer | None:
    if settings.rate_limit and not settings.rate_limit.allows():
        return _refuse("429 Too Many Requests", ("Retry-After", "1"))
    if not settings.users:
        return None
    allowed = web.auth.check(settings.users, environ.get("HTTP_AUTHORIZATION", ""))
    if allowed is None:
        return _refuse("503 Service Unavailable", ("Retry-After", "1"))
    realm = 'Basic realm="dtk-exporter", charset="UTF-8"'
    return None if allowed else _refuse("401 Unauthorized", ("WWW-Authenticate", realm))


def _refuse_request(environ: WSGIEnvironment) -> Answer | None:
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return _refuse("405 Method Not Allowed", ("Allow", "GET, HEAD"))
    if environ.get("CONTENT_LENGTH", "0").strip("0") or "HTTP_TRANSFER_ENCODING" in environ:
        return _refuse("413 Content Too Large")
    return None


def _refuse(status: str, *headers: tuple[str, str]) -> Answer:
    return status, [("Content-Type", "text/plain; charset=utf-8"), *headers], f"{status[4:]}\n".encode()
