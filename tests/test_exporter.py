"""dtk-exporter through HTTP, on simulated machines: what it serves of cards that are well, and that are not."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from exporting import Exporter, Samples, exporting, once, samples
from machines import MACHINES, device_directory, put
from smi import validate

import dtk
from dtk import sim
from dtk_exporter import families

Get = Callable[[str], Path]
FROZEN = Path(__file__).parent / "data" / "released-families.txt"

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")


@pytest.fixture(scope="module")
def mi210(machine: Get) -> Iterator[Exporter]:
    with exporting(machine("mi210")) as exporter:
        yield exporter


def uuids(root: Path) -> list[str]:
    return [device.uuid for device in dtk.take_snapshot(root, slow=False).devices]


# ---- names ----


def test_names_and_labels_are_the_released_ones() -> None:
    now = [f"{f.name} {f.type} {','.join(f.labels)}" for f in families.FAMILIES]
    assert now == FROZEN.read_text().splitlines(), "dashboards and alerts query these: what is released stays"


def test_every_metric_of_the_catalogue_has_its_family() -> None:
    columns = {column.metric: column for column in families.CATALOGUE}
    assert set(columns) == {metric.name for metric in dtk.metrics.all()}
    for metric in dtk.metrics.all():
        family = columns[metric.name].family
        assert family.name == f"dtk_device_{metric.family}"
        assert family.type == metric.kind
        assert metric.help.rstrip(".") in family.help
    keys = [(column.family.name, column.label_value) for column in families.CATALOGUE]
    assert len(keys) == len(set(keys))


# ---- the page ----


def stable(text: str, root: Path) -> str:
    """A page without what differs from run to run: the exporter's own cost, times, and ages."""
    keep = []
    own = r"process_|python_|dtk_build_info|dtk_exporter_(reader|render|last|config|snap|http)|dtk_collect_duration"
    for line in text.splitlines():
        name = line.split()[2] if line.startswith("# ") else line
        if re.match(own, name):
            continue
        if re.match(r"dtk_(device_(last_success|sample_age)|process_start_time)", line):
            line = line.rsplit(" ", 1)[0] + " T"
        keep.append(line)
    return "\n".join(keep) + "\n"


@needs_promtool
@pytest.mark.parametrize("name", MACHINES)
def test_page_of_each_machine(machine: Get, golden: Callable[[str, str], None], name: str) -> None:
    done = once(machine(name), "--collect.processes")
    assert (done.returncode, done.stderr) == (0, "dtk-exporter: SIMULATED: these cards do not exist\n")
    golden(f"exporter/{name}.txt", stable(done.stdout, machine(name)))
    lint = subprocess.run(
        ["promtool", "check", "metrics"], input=done.stdout, capture_output=True, text=True, check=False
    )
    assert (lint.returncode, lint.stdout, lint.stderr) == (0, "", "")


def test_values_are_those_of_a_snapshot_in_base_units(machine: Get, mi210: Exporter) -> None:
    page = mi210.metrics()
    for device in dtk.take_snapshot(machine("mi210"), slow=True).devices:
        sample, uuid = device.sample, device.uuid
        assert page.one("dtk_device_utilization_ratio", uuid=uuid, engine="gpu") == sample.utilization_gpu / 100
        assert page.one("dtk_device_clock_hertz", uuid=uuid, domain="gfx") == sample.clock_gfx * 1e6
        assert page.one("dtk_device_voltage_volts", uuid=uuid, rail="gfx") == sample.voltage_gfx / 1000
        assert page.one("dtk_device_memory_used_bytes", uuid=uuid, kind="vram") == sample.memory_used
        assert page.one("dtk_device_energy_joules_total", uuid=uuid) == pytest.approx(sample.energy)
        assert page.one("dtk_device_ecc_errors_total", uuid=uuid, severity="correctable") == sample.ecc_correctable
        for name in sample:
            column = next(column for column in families.CATALOGUE if column.metric == name)
            if sample[name] is None and column.label_value is not None:
                label = column.family.labels[1]
                assert page.one(column.family.name, uuid=uuid, **{label: column.label_value}) is None


def test_every_device_has_state_and_identity(machine: Get, mi210: Exporter) -> None:
    page = mi210.metrics()
    for uuid in uuids(machine("mi210")):
        assert page.one("dtk_device_up", uuid=uuid) == 1
        assert set(page.of("dtk_device_state", uuid=uuid).values()) == {0, 1}
        assert len(page.of("dtk_device_info", uuid=uuid, card=uuid, partition="")) == 1
        assert set(page.of("dtk_device_events_total", uuid=uuid).values()) == {0}
        assert len(page.of("dtk_device_events_total", uuid=uuid)) == 6


def test_partitions_and_their_card(machine: Get) -> None:
    with exporting(machine("mi300x-cpx")) as exporter:
        page = exporter.metrics()
    (card,) = dtk.take_snapshot(machine("mi300x-cpx")).cards
    parts = page.of("dtk_device_info", card=card.uuid)
    assert len(parts) == 9
    assert page.one("dtk_device_power_watts", uuid=card.uuid)
    assert page.one("dtk_device_power_watts", uuid=f"{card.uuid}/p3") is None
    assert page.one("dtk_device_utilization_ratio", uuid=f"{card.uuid}/p3", engine="gpu") is not None


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,*/*;q=0.1", "application/openmetrics-text; version=1.0.0"),
        ("nonsense;;;=", "text/plain; version=0.0.4"),
    ],
)
def test_formats(mi210: Exporter, accept: str, content_type: str) -> None:
    answer = mi210.get("/metrics", Accept=accept)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(content_type)
    assert answer.text.endswith("# EOF\n") == ("openmetrics" in content_type)


def test_gzip(mi210: Exporter) -> None:
    for path in ("/metrics", "/v1/devices"):
        packed = mi210.get(path, Accept_Encoding="br, gzip;q=0.8")
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.body) < len(gzip.decompress(packed.body)) / 4
        assert "content-encoding" not in mi210.get(path, Accept_Encoding="gzip;q=0").headers


def test_document_of_devices(mi210: Exporter) -> None:
    document = json.loads(mi210.get("/v1/devices").text)
    validate(document)
    assert len(document["devices"]) == 8
    assert document["processes"] is None  # other people's


def test_paths(mi210: Exporter) -> None:
    for path in ("/", "/metrics", "/v1/devices", "/-/healthy", "/-/ready"):
        answer = mi210.get(path)
        assert answer.status == 200
        head = mi210.get(path, "HEAD")
        assert (head.status, head.body) == (200, b"")
    for path in (
        "/metrics/",
        "//metrics",
        "/metrics/compat",
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/v1",
        "/metrics%00",
    ):
        assert mi210.get(path).status in (400, 404)
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"):
        answer = mi210.get("/metrics", method)
        assert answer.status in (405, 501)


def test_counts_its_own_answers(mi210: Exporter) -> None:
    mi210.get("/nowhere")
    page = mi210.until(lambda page: page.one("dtk_exporter_http_requests_total", code="404"))
    assert (page.one("dtk_exporter_http_requests_total", code="200") or 0) > 0
    assert page.one("process_resident_memory_bytes")
    assert page.one("dtk_exporter_reader_resident_memory_bytes")
    assert page.one("dtk_build_info", version=dtk.__version__) == 1
    assert page.one("dtk_exporter_simulated") == 1


# ---- faults ----


def alive(root: Path, *cards: str) -> sim.Simulator:
    return sim.Simulator(root, sim.assemble(cards, 1))


def test_a_lost_card_goes_and_comes_back(tmp_path: Path) -> None:
    node = alive(tmp_path / "node", "mi210:2")
    lost, other = uuids(tmp_path / "node")
    with exporting(tmp_path / "node") as exporter:
        sim.set_faults(tmp_path / "node", ["lost=0"])
        node.advance()
        page = exporter.until(lambda page: page.one("dtk_device_up", uuid=lost) == 0)
        assert page.one("dtk_device_state", uuid=lost, state="lost") == 1
        assert page.one("dtk_device_events_total", uuid=lost, type="lost") == 1
        assert page.one("dtk_device_last_success_timestamp_seconds", uuid=lost)
        assert values_of(page, lost) == set()
        assert any(lost in line and "lost" in line for line in exporter.log)
        assert page.one("dtk_device_up", uuid=other) == 1
        assert values_of(page, other)
        sim.set_faults(tmp_path / "node", [])
        node.advance()
        page = exporter.until(lambda page: page.one("dtk_device_up", uuid=lost) == 1)
        assert page.one("dtk_device_events_total", uuid=lost, type="back") == 1
        assert values_of(page, lost)


def values_of(page: Samples, uuid: str) -> set[str]:
    """The families of the catalogue that have a sample of a device."""
    names = {column.family.name for column in families.CATALOGUE}
    return {name for name, labels in page if name in names and ("uuid", uuid) in labels}


def test_a_hung_card_leaves_the_others_fresh(mounted: Callable[[str], sim.Mounted]) -> None:
    node = mounted("mi210:2")
    everyone = uuids(node.root)
    hung = everyone[1]
    with exporting(node.root, "--collect.interval", "0.5") as exporter:
        node.set("hang=1")
        page = exporter.until(lambda page: page.one("dtk_device_up", uuid=hung) == 0)
        assert values_of(page, hung) == set()
        assert page.one("dtk_device_state", uuid=hung, state="unknown") == 1
        assert page.one("dtk_device_events_total", uuid=hung, type="hung") == 1
        begin = time.monotonic()
        ages, waits = [], []
        while time.monotonic() < begin + 2:
            asked = time.monotonic()
            answer = exporter.get("/metrics")
            waits.append(time.monotonic() - asked)
            page = samples(answer.text)
            ages += [page.one("dtk_device_sample_age_seconds", uuid=uuid) for uuid in everyone if uuid != hung]
        assert None not in ages
        assert max(age or 0 for age in ages) < 2  # it has hung for three seconds
        assert statistics.median(waits) < 0.2  # who waits for it waits each time
        assert exporter.get("/-/ready").status == 200
        stopped = time.monotonic()
        assert exporter.stop() == 0
        assert time.monotonic() - stopped < 1
        with socket.create_server(("127.0.0.1", exporter.port)):
            pass  # the port is free
        node.clear()


def test_a_hung_card_comes_back(mounted: Callable[[str], sim.Mounted]) -> None:
    node = mounted("mi210:2")
    hung = uuids(node.root)[0]
    with exporting(node.root) as exporter:
        node.set("hang=0")
        exporter.until(lambda page: page.one("dtk_device_up", uuid=hung) == 0)
        node.clear()
        exporter.until(lambda page: page.one("dtk_device_up", uuid=hung) == 1)


def test_a_reader_that_is_killed_is_a_counter(machine: Get) -> None:
    with exporting(machine("mi210")) as exporter:
        (reader,) = psutil.Process(exporter.process.pid).children()
        os.kill(reader.pid, signal.SIGKILL)
        page = exporter.until(lambda page: page.one("dtk_collect_errors_total", source="reader_crash") == 1)
        assert page.one("dtk_collect_errors_total", source="reader_hang") == 0
        before = page.one("dtk_exporter_snapshots_total") or 0
        page = exporter.until(lambda page: (page.one("dtk_exporter_snapshots_total") or 0) > before)
        assert set(page.of("dtk_device_up").values()) == {1}


def test_old_values_go_when_nobody_looks(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    with exporting(root) as exporter:
        away = root.rename(root.with_name("away"))
        (reader,) = psutil.Process(exporter.process.pid).children()
        reader.kill()
        page = exporter.until(lambda page: set(page.of("dtk_device_up").values()) == {0})
        assert page.of("dtk_device_power_watts") == page.of("dtk_device_allocation_info") == {}
        assert set(page.of("dtk_device_state", state="unknown").values()) == {1}
        assert all(page.of("dtk_device_last_success_timestamp_seconds").values())
        assert exporter.get("/-/ready").status == exporter.get("/v1/devices").status == 503
        assert exporter.get("/-/healthy").status == 200
        assert (page.one("dtk_collect_errors_total", source="monitor") or 0) >= 1
        asked = page.one("dtk_exporter_http_requests_total", code="200") or 0
        exporter.until(lambda page: (page.one("dtk_exporter_http_requests_total", code="200") or 0) > asked)
        away.rename(root)
        exporter.until(lambda page: set(page.of("dtk_device_up").values()) == {1})


def test_memory_errors_and_heat_degrade(tmp_path: Path) -> None:
    node = alive(tmp_path / "node", "mi210:2")
    broken, warm = uuids(tmp_path / "node")
    with exporting(tmp_path / "node") as exporter:
        for _ in range(3):
            sim.set_faults(tmp_path / "node", ["ecc:uncorrectable=0", "throttle:137438953472=1"])  # temp_core
            node.advance()
            time.sleep(0.3)
        page = exporter.until(lambda page: page.one("dtk_device_state", uuid=broken, state="degraded") == 1)
        assert page.one("dtk_device_ecc_errors_total", uuid=broken, severity="uncorrectable")
        assert (
            page.one("dtk_device_ecc_block_errors_total", uuid=broken, severity="uncorrectable", block="umc")
            is not None
        )
        assert (page.one("dtk_device_events_total", uuid=broken, type="ecc") or 0) >= 1
        page = exporter.until(
            lambda page: (page.one("dtk_device_throttle_seconds_total", uuid=warm, reason="thermal") or 0) > 0
        )
        assert page.of("dtk_device_throttle_active", uuid=warm)
        assert page.one("dtk_device_state", uuid=warm, state="degraded") == 1


def test_values_that_cannot_be_read_are_counted(mounted: Callable[[str], sim.Mounted]) -> None:
    node = mounted("mi210")
    sick, well = uuids(node.root)[:2]
    with exporting(node.root) as exporter:
        assert set(exporter.metrics().of("dtk_device_read_errors").values()) == {0}
        node.set("eio=0")
        page = exporter.until(lambda page: not page.of("dtk_device_temperature_celsius", uuid=sick))
        assert (page.one("dtk_device_read_errors", uuid=sick, reason="failed") or 0) > 3
        assert page.one("dtk_device_up", uuid=sick) == 1
        assert page.one("dtk_device_state", uuid=sick, state="degraded") == 1
        assert page.one("dtk_device_state", uuid=well, state="ok") == 1
        assert re.search(r"failed: \w+ and \d+ more", exporter.get("/").text)


def test_a_narrow_link_degrades(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    narrow, other, idle = uuids(root)[:3]
    for device, use in zip(dtk.take_snapshot(root).devices, (90, 90, 0), strict=False):
        directory = device_directory(root, device.bdf).relative_to(root.resolve())
        put(root, f"{directory}/gpu_busy_percent", f"{use}\n")
        if device.index != 1:
            put(root, f"{directory}/current_link_width", "8\n")
    with exporting(root) as exporter:
        page = exporter.metrics()
    assert page.one("dtk_device_state", uuid=idle, state="degraded") == 0  # an idle link may be narrow
    assert page.one("dtk_device_state", uuid=narrow, state="degraded") == 1
    assert page.one("dtk_device_state", uuid=other, state="degraded") == 0


def test_a_sleeping_card_is_up_without_values(tmp_path: Path) -> None:
    node = alive(tmp_path / "node", "mi210:2")
    asleep = uuids(tmp_path / "node")[0]
    sim.set_faults(tmp_path / "node", ["suspended=0"])
    node.advance()
    with exporting(tmp_path / "node") as exporter:
        page = exporter.metrics()
    assert page.one("dtk_device_up", uuid=asleep) == 1
    assert page.one("dtk_device_asleep", uuid=asleep) == 1
    assert page.one("dtk_device_state", uuid=asleep, state="ok") == 1
    assert page.one("dtk_device_power_watts", uuid=asleep) is None


def test_no_cards_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with exporting(tmp_path) as exporter:
        page = exporter.metrics()
        assert page.of("dtk_device_up") == {}
        assert exporter.get("/-/ready").status == 200
        assert "no cards" in exporter.get("/").text


# ---- processes and allocation ----


def test_processes_are_asked_for_and_capped(machine: Get) -> None:
    table = dtk.take_snapshot(machine("k100_ai-2s"), processes=True).processes
    assert table is not None
    assert len(table.processes) > 2
    page = once(machine("k100_ai-2s")).stdout
    assert "dtk_process_" not in page
    with exporting(machine("k100_ai-2s"), "--collect.processes", "--collect.processes-max", "2") as exporter:
        found = exporter.metrics()
    assert len(found.of("dtk_process_info")) == 2
    assert found.one("dtk_exporter_processes_dropped") == len(table.processes) - 2
    biggest = max(table.processes, key=lambda process: sum(usage.memory_used or 0 for usage in process.devices))
    assert found.of("dtk_process_info", pid=str(biggest.pid))
    assert sum(found.of("dtk_device_processes").values()) == sum(len(process.devices) for process in table.processes)


def test_series_of_ended_processes_go(copy_machine: Get) -> None:
    root = copy_machine("k100_ai-2s")
    with exporting(root, "--collect.processes") as exporter:
        before = {dict(labels)["pid"] for labels in exporter.metrics().of("dtk_process_info")}
        (ended, *_) = sorted(before)
        for path in (f"sys/class/kfd/kfd/proc/{ended}", f"proc/{ended}"):
            shutil.rmtree(root / path)
        page = exporter.until(lambda page: not page.of("dtk_process_info", pid=ended))
        assert page.of("dtk_process_memory_used_bytes", pid=ended) == {}
        assert {dict(labels)["pid"] for labels in page.of("dtk_process_info")} == before - {ended}


def test_allocation_by_cgroup(machine: Get) -> None:
    table = dtk.take_snapshot(machine("k100_ai-2s"), processes=True).processes
    assert table is not None
    with exporting(machine("k100_ai-2s")) as exporter:
        page = exporter.metrics()
    jobs = {(usage.uuid, p.slurm_job) for p in table.processes if p.slurm_job for usage in p.devices}
    pods = {(usage.uuid, p.pod) for p in table.processes if p.pod for usage in p.devices}
    assert jobs
    assert pods
    rows = [dict(labels) for labels in page.of("dtk_device_allocation_info")]
    assert {(row["uuid"], row["job_id"]) for row in rows if row["source"] == "slurm"} == jobs
    assert {(row["uuid"], row["pod_uid"]) for row in rows if row["source"] == "k8s"} == pods
