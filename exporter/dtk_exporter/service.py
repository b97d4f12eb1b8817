"""The running exporter: a watch over the cards, a server over its last view, and a configuration that may change."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import dtk
from dtk import document, sim

from . import compat, page
from .allocation import allocations
from .app import Application
from .book import View
from .collect import Own, collect
from .exposition import Bodies, Writer, encode
from .families import SOURCES
from .guard import Counters
from .options import Config
from .pods import PodResources
from .processes import biggest
from .server import Server
from .watch import Watch
from .webconfig import WebConfig

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Service"]

WRITERS_MAX = 8  # formats that are remembered; Prometheus asks for one
FIRST_SECONDS = 2.0  # beyond the deadline, for the first look


class Service:
    """dtk-exporter with one configuration after another."""

    def __init__(self, config: Config, stopping: threading.Event | None = None) -> None:
        """stopping: set when it is to end, so that nothing is waited for. Raises what is wrong with the configuration
        or the machine.
        """
        self._config = config
        self._stack = contextlib.ExitStack()
        self._errors: Counter[str] = Counter(dict.fromkeys(SOURCES, 0))
        self._bodies: Bodies[object] = Bodies()
        self._writers: dict[str, Writer] = {}  # by content type; used under the lock of the bodies
        self._render_seconds: float | None = None
        self._reload_good, self._reload_time = True, time.time()
        self._server: Server | None = None
        self._demo = str(self._stack.enter_context(sim.demo())) if config.demo else None
        self._late_view: tuple[int, object] = (0, object())
        self._stopping = stopping or threading.Event()
        try:
            self._pods = self._start_pods(config)
            self._watch = self._start_watch(config)
        except BaseException:
            self._stack.close()
            raise

    # ---- its life ----

    def check_web(self) -> None:
        """Raise what is wrong with the web configuration, as listen() would."""
        _web_config(self._config)

    def listen(self) -> list[str]:
        """Begin to serve. Returns the addresses. Raises what is wrong with them or with the web configuration."""
        self._server = self._start_server(self._config, _web_config(self._config))
        return self._server.addresses

    @property
    def is_listening(self) -> bool:
        """Not so when a reload could have neither the new addresses nor the old ones again."""
        return self._server is not None

    def reload(self, config: Config) -> None:
        """Go on with another configuration. Raises as the constructor does, and then goes on as before."""
        old = self._config
        if config.demo != old.demo:
            raise dtk.InvalidArgument("--demo cannot change while it runs", hint="start dtk-exporter again")
        watch, pods, web = self._watch, self._pods, _web_config(config)
        with contextlib.ExitStack() as undo:
            if _reads(config) != _reads(old):
                watch = self._start_watch(config)
                undo.callback(watch.close)
                watch.first(config.collect_deadline + FIRST_SECONDS, self._stopping)
            if (config.collect_pod_resources, config.root) != (old.collect_pod_resources, old.root):
                pods = self._start_pods(config)
                if pods:
                    undo.callback(pods.close)
            self._serve(config, web)
            undo.pop_all()
        if watch is not self._watch:
            self._watch.close()
            if config.root == old.root:
                watch.book.inherit(self._watch.book)
        if pods is not self._pods and self._pods:
            self._pods.close()
        self._watch, self._pods, self._config = watch, pods, config
        self._reload_good, self._reload_time = True, time.time()
        self._bodies.clear()

    def reload_failed(self) -> None:
        """The configuration was read again and is not good: it goes on with the old one."""
        self._reload_good = False
        self._bodies.clear()

    def close(self) -> None:
        """Free the ports and end the readers, whatever clients and cards do."""
        if self._server:
            self._server.close()
        self._watch.close()
        if self._pods:
            self._pods.close()
        self._stack.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _start_server(self, config: Config, web: WebConfig | None) -> Server:
        server = Server(Application(self), config.web_listen_address, web)
        try:
            server.start()
        except dtk.Error:
            server.close()
            raise
        return server

    def _serve(self, config: Config, web: WebConfig | None) -> None:
        """Serve as another configuration wants it. What cannot be had leaves the server as it was."""
        old = self._server
        if old is None:
            return
        if config.web_listen_address == self._config.web_listen_address and _has_tls(web) == _has_tls(old.web):
            old.web = web
            return
        old.close()  # its port must be free before it can be listened at again
        try:
            self._server = self._start_server(config, web)
        except dtk.Error:
            self._server = None
            self._server = self._start_server(self._config, old.web)
            raise

    def _start_watch(self, config: Config) -> Watch:
        return Watch(config, self._demo or config.root, self._errors)

    def _start_pods(self, config: Config) -> PodResources | None:
        if config.collect_pod_resources is None:
            return None
        root = self._demo or config.root or os.environ.get("DTK_SMI_ROOT") or "/"
        pods = PodResources(config.collect_pod_resources, root=root)
        pods.start()
        return pods

    # ---- what it serves ----

    def first(self) -> View | None:
        """The first view, None when none came by the deadline. Raises what keeps it away for good."""
        return self._watch.first(self._config.collect_deadline + FIRST_SECONDS, self._stopping)

    def _version(self, view: View | None) -> object:
        """What bodies belong to: a view as long as it is fresh. Without one the exporter's own numbers go on changing,
        and a body is good for a second.
        """
        if view is not None and view.is_fresh:
            return view
        now = int(time.monotonic())
        if now != self._late_view[0]:
            self._late_view = (now, object())
        return self._late_view[1]

    def metrics(self, accept: str, packed: bool) -> tuple[str, bytes]:
        """The page /metrics in the format that a client accepts: its type, and the body."""
        view = self._watch.book.view()
        content_type, encoder = encode(accept)

        def make() -> bytes:
            if content_type not in self._writers:
                if len(self._writers) >= WRITERS_MAX:
                    self._writers.clear()
                self._writers[content_type] = Writer(encoder)
            return self._render(view, self._writers[content_type])

        return content_type, self._bodies.get(self._version(view), ("metrics", content_type), make, packed)

    def _render(self, view: View | None, writer: Writer) -> bytes:
        begin = time.perf_counter()
        config = self._config
        most = config.collect_processes_max if config.collect_processes else None
        pods = self._pods.allocations if self._pods else ()
        body = writer.write(collect(view, self._own(), pods, most))
        self._render_seconds = time.perf_counter() - begin
        return body

    def _own(self) -> Own:
        cpu, memory = self._watch.reader_cost()
        counters = self._server.counters if self._server else Counters()
        return Own(
            errors={**self._errors, "kubelet": self._pods.errors if self._pods else 0},
            reader_cpu=cpu,
            reader_memory=memory,
            render_seconds=self._render_seconds,
            reload_good=self._reload_good,
            reload_time=self._reload_time,
            requests=dict(counters.requests),
            rejected=dict(counters.rejected),
        )

    def compat(self, packed: bool) -> bytes | None:
        """The page /metrics/compat; None when it was not asked for."""
        kind = self._config.compat
        if kind is None:
            return None
        view = self._watch.book.view()
        return self._bodies.get(self._version(view), ("compat", kind), lambda: self._render_compat(view, kind), packed)

    def _render_compat(self, view: View | None, kind: str) -> bytes:
        _, write = encode("")
        if view is None:
            return write(())
        snapshot, config = view.snapshot, self._config
        samples = {entry.uuid: entry.sample for entry in view.entries}
        table = snapshot.processes if config.collect_processes else None
        shown = biggest(table, config.collect_processes_max) if table else ()
        node = snapshot.system.hostname or platform.node()
        return write(compat.families(snapshot, kind, node, samples, self._pod_names(view), shown))

    def _pod_names(self, view: View) -> dict[str, tuple[str, str, str]]:
        """(namespace, pod, container) of each device that the kubelet gave to one."""
        devices = view.snapshot.devices
        rows = allocations((), devices, self._pods.allocations if self._pods else ())
        return {row.uuid: (row.namespace, row.pod, row.container) for row in rows}

    def devices(self, packed: bool) -> bytes | None:
        """The page /v1/devices; None when the values are not fresh. Its processes only where those are asked for: they
        are other people's. Their command lines never.
        """
        view = self._watch.book.view()
        if view is None or not view.is_fresh:
            return None

        def make() -> bytes:
            found = document.document(view.snapshot)
            if not self._config.collect_processes:
                found["processes"] = None
            for process in found["processes"] or ():
                process["command"] = None  # it may hold secrets
            return document.render(found).encode()

        return self._bodies.get(self._version(view), ("devices",), make, packed)

    def page(self) -> bytes:
        """The page /."""
        view, is_compat, late = self._watch.book.view(), self._config.compat is not None, self.lateness()
        return self._bodies.get(self._version(view), ("page",), lambda: page.render(view, late, is_compat), False)

    def lateness(self) -> str | None:
        """Why there are no fresh values, None when there are."""
        view = self._watch.book.view()
        if view is None:
            return "no look at the cards yet"
        if not view.is_fresh:
            return f"the last look at the cards was at {document.rfc3339(view.snapshot.timestamp)}"
        return None


def _web_config(config: Config) -> WebConfig | None:
    return WebConfig(config.web_config_file) if config.web_config_file else None


def _has_tls(web: WebConfig | None) -> bool:
    return web is not None and web.settings.tls is not None


def _reads(config: Config) -> tuple[object, ...]:
    """What of a configuration the watch depends on."""
    return (
        config.root,
        config.collect_interval,
        config.collect_slow_interval,
        config.collect_deadline,
        config.collect_backend,
    )
