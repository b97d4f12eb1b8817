"""Run the installed dtk-exporter as a process of its own, and ask it over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from smi import environment

COMMAND = str(Path(sys.executable).with_name("dtk-exporter"))


def run(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command, env = [COMMAND, "--root", str(root), *arguments], environment(**variables)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)


def once(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One page, and what else it prints."""
    return run(root, "--once", *arguments, **variables)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """A page of /metrics: {(name, labels): value}."""

    def of(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The samples of a name that have these labels: {other labels: value}."""
        wanted = set(labels.items())
        return {
            tuple(sorted(found - wanted)): value
            for (known, found), value in self.items()
            if known == name and wanted <= found
        }

    def one(self, name: str, **labels: str) -> float | None:
        """The value of the one sample with these labels, None when there is none."""
        found = list(self.of(name, **labels).values())
        assert len(found) <= 1, f"{name}{labels}: {len(found)} samples"
        return found[0] if found else None


def samples(text: str) -> Samples:
    found = Samples()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


class Exporter:
    """dtk-exporter on a free port of 127.0.0.1. tls: how to speak to it."""

    def __init__(
        self,
        *arguments: str,
        root: Path | None = None,
        tls: ssl.SSLContext | None = None,
        listen: str = "127.0.0.1:0",
        **variables: str,
    ):
        where = ["--root", str(root)] if root else []
        where += ["--web.listen-address", listen] if listen else []
        command = [COMMAND, *where, *arguments]
        self._tls = tls
        self.log: list[str] = []
        self._port: int | None = None
        self._listening = threading.Event()
        self.process = subprocess.Popen(command, env=environment(**variables), stderr=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if found := re.search(r"listening on .*:(\d+)$", line.rstrip()):
                self._port = int(found[1])
                self._listening.set()
        self._listening.set()

    @property
    def port(self) -> int:
        assert self._listening.wait(20)
        assert self._port, self.log
        return self._port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def listens_at(self, address: str) -> None:
        """It was told to listen somewhere else."""
        self._port = int(address.rpartition(":")[2])

    def get(self, path: str, method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str) -> Answer:
        tls = tls or self._tls
        if tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=10, context=tls
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def metrics(self) -> Samples:
        answer = self.get("/metrics")
        assert answer.status == 200
        return samples(answer.text)

    def until(self, condition: Callable[[Samples], object], seconds: float = 15) -> Samples:
        """The first page for which the condition holds."""
        end = time.monotonic() + seconds
        while True:
            found = self.metrics()
            if condition(found):
                return found
            assert time.monotonic() < end, f"not within {seconds} s: {self.log}"
            time.sleep(0.05)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(5)
        finally:
            self.process.kill()
            self.process.wait()
            self._thread.join(5)
            if self.process.stderr:
                self.process.stderr.close()

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()


@contextlib.contextmanager
def exporting(root: Path, *arguments: str, **options: str) -> Iterator[Exporter]:
    """One that looks often, so that tests need not wait."""
    quick = ["--collect.interval", "0.2", "--collect.slow-interval", "0.4", "--collect.deadline", "1"]
    with Exporter(*quick, *arguments, root=root, **options) as exporter:
        exporter.until(lambda page: page.one("dtk_exporter_snapshots_total"))
        yield exporter
