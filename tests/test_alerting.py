"""The whole chain, with real parts: a card that is sick, dtk-exporter behind TLS and a password, Prometheus with the
project's rules, and Alertmanager, which must hear of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from certificates import Authority
from exporting import Exporter
from machines import needs_fuse
from prometheus import Prometheus

import dtk
from dtk import sim
from dtk.sim.run import keep_alive

RULES = Path(__file__).parent.parent / "exporter" / "alerts" / "dtk.rules.yml"
USER, PASSWORD = "prometheus", "correct horse"

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("prometheus-alertmanager")),
    reason="needs prometheus and prometheus-alertmanager",
)


@contextlib.contextmanager
def alive(tmp_path: Path) -> Iterator[sim.Mounted]:
    """Eight cards that live, much faster than they would, behind a mount where they can hang."""
    needs_fuse()
    simulator = sim.Simulator(tmp_path / "below", sim.assemble(["mi210:8"], 1))
    stop = threading.Event()
    thread = threading.Thread(target=keep_alive, args=(simulator, 0.1, stop))
    thread.start()
    try:
        with sim.mount(tmp_path / "below", tmp_path / "mounted") as mounted:
            yield mounted
    finally:
        stop.set()
        thread.join()


def web_config(tmp_path: Path, authority: Authority) -> Path:
    pair = authority.server()
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    path = tmp_path / "web.config.yml"
    path.write_text(
        f"tls_server_config:\n  cert_file: {pair.certificate}\n  key_file: {pair.key}\n"
        f"basic_auth_users:\n  {USER}: {hashed}\n"
    )
    return path


def quick_rules(tmp_path: Path) -> Path:
    """The rules, but that nobody waits: what takes minutes takes a second, and windows are some seconds long."""
    text = re.sub(r"^( +for): \w+$", r"\1: 1s", RULES.read_text(), flags=re.M)
    text = re.sub(r"\[(?:5m|10m|15m|1h|2h)\]", "[5s]", text)
    path = tmp_path / "quick.rules.yml"
    path.write_text(text)
    return path


@contextlib.contextmanager
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    (tmp_path / "alertmanager.yml").write_text(
        "route: {receiver: nobody, group_wait: 1s}\nreceivers: [{name: nobody}]\n"
    )
    command = [
        "prometheus-alertmanager",
        f"--config.file={tmp_path / 'alertmanager.yml'}",
        f"--storage.path={tmp_path / 'alertmanager'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r'Listening on"? address=(\S+)', line):
                    break
            else:
                raise AssertionError("Alertmanager did not start")
            drain = threading.Thread(target=process.stderr.read, daemon=True)
            drain.start()
            yield found[1]
        finally:
            process.kill()
            process.wait()
            drain.join(5)


def received(address: str) -> list[dict[str, Any]]:
    """The labels of the alerts that Alertmanager has."""
    with urllib.request.urlopen(f"http://{address}/api/v2/alerts", timeout=10) as answer:
        return [alert["labels"] | {"annotations": alert["annotations"]} for alert in json.load(answer)]


def wait(condition: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.2)


def test_alertmanager_hears_of_sick_cards_while_one_hangs(tmp_path: Path, authority: Authority) -> None:
    config = web_config(tmp_path, authority)
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    scrape = {
        "scheme": "https",
        "tls_config": {"ca_file": str(authority.certificate)},
        "basic_auth": {"username": USER, "password": PASSWORD},
    }
    options = ["--web.config.file", str(config), "--collect.interval", "0.3", "--collect.slow-interval", "0.6"]
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(alive(tmp_path))
        uuids = [device.uuid for device in dtk.take_snapshot(node.root, slow=False).devices]
        exporter = stack.enter_context(Exporter(*options, root=node.root, tls=trust))
        manager = stack.enter_context(alertmanager(tmp_path))
        prometheus = stack.enter_context(
            Prometheus(
                tmp_path / "prometheus",
                [exporter.address],
                rules=[quick_rules(tmp_path)],
                alertmanager=manager,
                scrape=scrape,
                interval="500ms",
            )
        )
        assert exporter.get("/metrics").status == 401
        prometheus.wait_for("count(dtk_device_up == 1) == 8", 30)
        node.set("lost=0", "hang=1", "throttle:17179869184=2", "ecc:uncorrectable=3")  # bit 34: temp_mem
        wanted = {
            ("DtkDeviceLost", uuids[0]),
            ("DtkDeviceHung", uuids[1]),
            ("DtkDeviceHot", uuids[2]),
            ("DtkDeviceThrottled", uuids[2]),
            ("DtkDeviceEccUncorrectable", uuids[3]),
        }

        def heard() -> set[tuple[str, str]]:
            return {(alert["alertname"], alert.get("uuid", "")) for alert in received(manager)}

        wait(lambda: wanted <= heard(), 60)
        alerts = received(manager)
        lost = next(alert for alert in alerts if alert["alertname"] == "DtkDeviceLost")
        assert lost["model"]
        assert lost["pci_address"]
        assert lost["annotations"]["runbook"] == "docs/alerts.md#dtkdevicelost"
        throttled = next(alert for alert in alerts if alert["alertname"] == "DtkDeviceThrottled")
        assert throttled["reason"] == "thermal"
        # The card that hangs has not made the others old, and the well ones are left alone.
        well = {uuid for _, uuid in heard() if uuid in uuids[4:]}
        assert well == set()
        fresh = prometheus.query("dtk_device_up == 1 and time() - dtk_device_last_success_timestamp_seconds < 5")
        assert {row["metric"]["uuid"] for row in fresh} == {*uuids[2:]}
        node.clear()
        prometheus.wait_for("count(dtk_device_up == 1) == 8", 30)
