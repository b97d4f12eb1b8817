"""A real Prometheus that scrapes what a test serves, and answers what the test asks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the environment names
_LISTENS = re.compile(r'msg="?Listening on"?.* address=(\S+)')


class QueryError(Exception):
    """Prometheus refused a query, and says why."""


class Prometheus:
    """A Prometheus, from `with` on until its end. The test is skipped where none is installed.

    It scrapes for the first time after 5 s, whatever the interval.

    targets: addresses to scrape; or for each job its addresses.
    rules: files with rules.
    alertmanager: address that alerts are sent to.
    scrape: further settings of the scrape, by Prometheus' names: scheme, tls_config, basic_auth, metrics_path …
    interval: between scrapes, and between evaluations of rules.
    """

    def __init__(
        self,
        directory: Path,
        targets: Sequence[str] | Mapping[str, Sequence[str]],
        *,
        rules: Sequence[Path] = (),
        alertmanager: str | None = None,
        scrape: Mapping[str, Any] | None = None,
        interval: str = "250ms",
    ) -> None:
        if not shutil.which("prometheus"):
            pytest.skip("needs prometheus")
        jobs = targets if isinstance(targets, Mapping) else {"dtk": targets}
        self._directory = directory
        self._config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(path.resolve()) for path in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}], **(scrape or {})}
                for job, addresses in jobs.items()
            ],
        }
        if alertmanager:
            managers = [{"static_configs": [{"targets": [alertmanager]}]}]
            self._config["alerting"] = {"alertmanagers": managers}
        self.url = ""

    def __enter__(self) -> Prometheus:
        self._directory.mkdir(parents=True, exist_ok=True)
        config, log = self._directory / "prometheus.yml", self._directory / "prometheus.log"
        config.write_text(json.dumps(self._config))  # which is YAML too
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ]
        with log.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, cwd=self._directory)
        try:
            self._wait_until_ready(log)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # nobody needs its data
        self._process.wait()

    def _wait_until_ready(self, log: Path) -> None:
        limit = time.monotonic() + 20
        while time.monotonic() < limit and self._process.poll() is None:
            if not self.url and (found := _LISTENS.search(log.read_text())):
                self.url = f"http://{found[1]}"
            try:
                if self.url and _DIRECT.open(f"{self.url}/-/ready", timeout=5).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"Prometheus does not get ready:\n{log.read_text()}")

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the HTTP API; QueryError if it is an error."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with _DIRECT.open(address, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(json.load(error).get("error", error.reason)) from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query: [{"metric": labels, "value": [time, text]}]."""
        data = self.get("query", query=expression)
        assert data["resultType"] == "vector", f"not a vector: {expression}"
        return data["result"]

    def labels(self, selector: str, label: str) -> list[str]:
        """The values of a label among the series of a selector."""
        return self.get(f"label/{label}/values", **{"match[]": selector})

    def wait_for(self, expression: str, timeout: float = 20) -> list[dict[str, Any]]:
        """The series of a query, as soon as there are any."""
        limit = time.monotonic() + timeout
        while not (found := self.query(expression)):
            if time.monotonic() > limit:
                targets = [
                    (target["scrapeUrl"], target["health"], target["lastError"])
                    for target in self.get("targets")["activeTargets"]
                ]
                raise AssertionError(f"no data within {timeout:g} s: {expression}\ntargets: {targets}")
            time.sleep(0.1)
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing."""
        return self.get("alerts")["alerts"]
