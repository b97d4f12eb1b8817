"""The WSGI application: what is where, served from memory whatever the cards do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from .service import Service

__all__ = ["Application"]

Answer = tuple[HTTPStatus, str, bytes, list[tuple[str, str]]]

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
# The page has a style of its own and nothing else.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Application:
    """Answers GET and HEAD, which is all the server lets through, out of the service's last view."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._routes: dict[str, Callable[[WSGIEnvironment], Answer]] = {
            "/": self._page,
            "/metrics": self._metrics,
            "/metrics/compat": self._compat,
            "/v1/devices": self._devices,
            "/-/healthy": lambda _: _text(HTTPStatus.OK, "dtk-exporter is running"),
            "/-/ready": self._ready,
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """WSGI."""
        route = self._routes.get(environ.get("PATH_INFO", ""), self._nothing)
        status, content_type, body, more = route(environ)
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        headers += [("X-Content-Type-Options", "nosniff"), *more]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _nothing(self, _: WSGIEnvironment) -> Answer:
        return _text(HTTPStatus.NOT_FOUND, f"nothing here; there are {' '.join(self._routes)}")

    def _page(self, _: WSGIEnvironment) -> Answer:
        return HTTPStatus.OK, HTML, self._service.page(), [("Content-Security-Policy", POLICY)]

    def _metrics(self, environ: WSGIEnvironment) -> Answer:
        packed = _takes_gzip(environ)
        content_type, body = self._service.metrics(environ.get("HTTP_ACCEPT", ""), packed)
        return HTTPStatus.OK, content_type, body, _encoding(packed)

    def _compat(self, environ: WSGIEnvironment) -> Answer:
        packed = _takes_gzip(environ)
        body = self._service.compat(packed)
        if body is None:
            return _text(HTTPStatus.NOT_FOUND, "start dtk-exporter with --compat dcu or --compat hcu")
        return HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4, body, _encoding(packed)

    def _devices(self, environ: WSGIEnvironment) -> Answer:
        packed = _takes_gzip(environ)
        body = self._service.devices(packed)
        if body is None:
            return self._ready(environ)
        return HTTPStatus.OK, JSON, body, _encoding(packed)

    def _ready(self, _: WSGIEnvironment) -> Answer:
        if (late := self._service.lateness()) is not None:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, late)
        return _text(HTTPStatus.OK, "the values are fresh")


def _text(status: HTTPStatus, text: str) -> Answer:
    return status, TEXT, f"{text}\n".encode(), []


def _encoding(packed: bool) -> list[tuple[str, str]]:
    return [("Vary", "Accept, Accept-Encoding"), *([("Content-Encoding", "gzip")] if packed else [])]


def _takes_gzip(environ: WSGIEnvironment) -> bool:
    for part in environ.get("HTTP_ACCEPT_ENCODING", "").split(","):
        name, _, quality = part.partition(";")
        if name.strip().lower() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
