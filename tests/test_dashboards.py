"""The Grafana dashboards: what the generator makes, and every query of them answered by a real Prometheus."""

from __future__ import annotations

import http.server
import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from exporting import COMMAND
from prometheus import Prometheus
from prometheus_client.parser import text_string_to_metric_families
from smi import environment

import dtk
from dtk_exporter import families

PROJECT = Path(__file__).parent.parent
EXPOSITION = Path(__file__).parent / "data" / "exposition"
NAMES = ("node", "fleet")
BOARDS = {name: json.loads((PROJECT / "exporter" / "dashboards" / f"{name}.json").read_text()) for name in NAMES}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel, rows and what is folded away in them as well."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def titled(board: str, title: str) -> dict[str, Any]:
    """The only panel with that title."""
    (found,) = (panel for panel in panels(BOARDS[board]) if panel["title"] == title and panel["type"] != "row")
    return found


TARGETS = [
    pytest.param(name, panel, target, id=f"{name}-{panel['title']}-{target['refId']}")
    for name, board in BOARDS.items()
    for panel in panels(board)
    for target in panel.get("targets") or ()
]
EXPRESSIONS = {name: [t.values[2]["expr"] for t in TARGETS if t.values[0] == name] for name in NAMES}


# ---- what is in the files ----


def test_the_files_are_what_the_generator_makes() -> None:
    if importlib.util.find_spec("grafana_foundation_sdk") is None:
        pytest.skip("needs grafana-foundation-sdk, and so Python 3.11")
    command = [sys.executable, "tools/dashboards.py", "--check"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    ids, taken = set(), {}
    for panel in panels(BOARDS[name]):
        assert panel["id"] not in ids
        ids.add(panel["id"])
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_the_data_source_can_be_chosen(name: str) -> None:
    assert BOARDS[name]["templating"]["list"][0]["type"] == "datasource"
    for panel in panels(BOARDS[name]):
        for part in (panel, *panel.get("targets", ())) if panel["type"] != "row" else ():
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_says_what_it_shows(name: str) -> None:
    for panel in panels(BOARDS[name]):
        assert panel["title"]
        assert panel["type"] == "row" or (panel["description"] and panel["options"])


def test_the_catalogue_says_what_a_family_is() -> None:
    power = titled("node", "Power")
    assert power["description"] == dtk.metrics.get("power_draw").help
    assert power["fieldConfig"]["defaults"]["unit"] == "watt"
    every = titled("node", "Hottest sensor of each card")["description"]
    assert f"- **junction**: {dtk.metrics.get('temperature_junction').help}" in every.splitlines()


def test_the_node_shows_every_family_of_the_catalogue() -> None:
    shown = set(re.findall(r"dtk_device_(\w+)", " ".join(EXPRESSIONS["node"])))
    assert {metric.family for metric in dtk.metrics.all()} <= shown


def test_each_family_of_the_exporter_is_shown() -> None:
    shown = set(re.findall(r"\b(?:dtk|process)_\w+", " ".join(EXPRESSIONS["node"] + EXPRESSIONS["fleet"])))
    # The table of processes has their memory.
    details = {name for name in families.NAMES if name.startswith("dtk_process_")}
    assert set(families.NAMES) - details <= shown
    assert {name for name in shown if name.startswith("dtk_")} <= set(families.NAMES)


def test_the_pages_of_these_tests_are_as_the_exporter_makes_them() -> None:
    found: dict[str, set[tuple[str, ...]]] = {}
    for page in EXPOSITION.glob("*.prom"):
        for family in text_string_to_metric_families(page.read_text()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).add(tuple(sample.labels))
    ours = {name: labels for name, labels in found.items() if name.startswith("dtk_")}
    assert ours == {family.name: {family.labels} for family in families.FAMILIES}


def test_counters_are_taken_as_counters() -> None:
    for text in EXPRESSIONS["node"] + EXPRESSIONS["fleet"]:
        assert not re.search(r"\b(i?delta|deriv)\b", text)
        grown = set(re.findall(r"\b(?:rate|increase) ?\((\w+)", text))
        counters = set(re.findall(r"\w+_total\b", text))
        assert grown <= counters
        # What a block counted is shown as it stands.
        assert counters - {"dtk_device_ecc_block_errors_total"} <= grown


# ---- what Prometheus answers ----


class Exporter:
    """Serves a text as /metrics."""

    def __init__(self, text: str) -> None:
        exporter = self
        self.text = text

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def healthy(name: str) -> str:
    return (EXPOSITION / f"{name}.prom").read_text()


def faulty(name: str) -> str:
    """The same node after some faults: a card that is not up has lost its values."""
    changes = (EXPOSITION / f"{name}-faults.prom").read_text().splitlines()
    down = re.findall(r'^dtk_device_up\{uuid="(.*)"\} 0$', "\n".join(changes), re.M)
    stays = re.compile(r"dtk_device_(info|up|state|events_total|last_success_timestamp_seconds|allocation_info)\b")
    lines = [
        line
        for line in healthy(name).splitlines()
        if stays.match(line) or not any(f'"{uuid}"' in line for uuid in down)
    ]
    series = {line.rpartition(" ")[0]: line for line in (*lines, *changes)}
    return "\n".join(series.values()) + "\n"


def substitute(text: str, values: dict[str, str]) -> str:
    """Put values where Grafana would; a name it does not know stays."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], found[0]), text)


def chosen(values: list[str]) -> str:
    """Several values of a variable in a matcher, as Grafana's data source writes them."""
    return "(" + "|".join(re.escape(value).replace("\\", "\\\\") for value in values) + ")"


# Windows that fit what a test can wait for.
WINDOWS = {"__rate_interval": "4s", "__range": "20s"}


class Grafana:
    """Does what Grafana does with a dashboard, as far as its queries go."""

    def __init__(self, base: Prometheus) -> None:
        self._base = base
        self._choices = {name: list(self._all_choices(name)) for name in NAMES}

    def options(self, variable: dict[str, Any], values: dict[str, str]) -> dict[str, str]:
        """The values of a variable, by what is shown of them."""
        query = substitute(variable["query"]["query"], values)
        if found := re.fullmatch(r"label_values\((.*), (\w+)\)", query, re.S):
            return {value: value for value in self._base.labels(found[1], found[2])}
        (expression,) = re.fullmatch(r"query_result\((.*)\)", query, re.S).groups()
        pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))
        options = {}
        for series in self._base.query(expression):
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(series["metric"].items()))
            found = pattern.search(f"{{{labels}}} {series['value'][1]} {series['value'][0]}")
            options[found["text"]] = found["value"]
        return options

    def _all_choices(self, name: str) -> list[dict[str, str]]:
        """Values for the variables of a dashboard: one node after the other where it is for one, and all cards."""
        choices = [WINDOWS]
        for variable in BOARDS[name]["templating"]["list"][1:]:
            grown = []
            for before in choices:
                options = list(self.options(variable, before).values())
                if variable.get("multi"):
                    options = [variable.get("allValue") or chosen(options)]
                grown += [{**before, variable["name"]: option} for option in options]
            choices = grown
        return choices

    def ask(self, name: str, expression: str) -> list[dict[str, Any]]:
        """The series of a query, of all nodes."""
        found = []
        for values in self._choices[name]:
            text = substitute(expression, values).replace(":5m]", ":1s]")
            assert not re.search(r"\$\{?[a-z_]", text), text
            found += self._base.query(text)
        return found


# Whatever a scrape is called, and whatever else Prometheus says of a target.
JOBS = ("DCU nodes", "pods/dtk", "gone")
POD_LABELS = [
    {"target_label": label, "replacement": f"exporter-{label}"} for label in ("namespace", "pod", "container")
]


MACHINES = ("mi300x-cpx", "mixed")


def page(root: Path) -> str:
    """What dtk-exporter says of a simulated machine."""
    command = [COMMAND, "--root", str(root), "--once", "--collect.processes"]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=30).stdout


Started = tuple[Prometheus, list[Exporter]]


@pytest.fixture(scope="module")
def started(
    machine: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Started, Started, Started]]:
    """All at once, since a Prometheus takes 5 s to its first scrape."""
    with ExitStack() as stack:

        def start(name: str, *pages: str, **scrape: Any) -> Started:
            exporters = [Exporter(page) for page in pages]
            for exporter in exporters:
                stack.callback(exporter.close)
            targets = {job: [exporter.address] for job, exporter in zip(JOBS, exporters, strict=False)}
            base = stack.enter_context(Prometheus(tmp_path_factory.mktemp(name), targets, scrape=scrape))
            return base, exporters

        slurm, kubernetes = healthy("slurm"), healthy("kubernetes")
        yield (
            start("healthy", slurm, kubernetes),
            start("faults", slurm, kubernetes, slurm, relabel_configs=POD_LABELS),
            start("simulated", *(page(machine(name)) for name in MACHINES)),
        )


@pytest.fixture(scope="module")
def scraped(started: tuple[Started, Started, Started]) -> Grafana:
    """Two healthy nodes: cards of Hygon under Slurm; a partitioned and a whole card of AMD under Kubernetes."""
    base, _ = started[0]
    base.wait_for("count(count_over_time(dtk_build_info[1m]) > 4) == 2")
    return Grafana(base)


@pytest.fixture(scope="module")
def faults(started: tuple[Started, Started, Started]) -> Grafana:
    """The same nodes, on which then things happened; and one that went away."""
    base, nodes = started[1]
    base.wait_for("count(count_over_time(dtk_build_info[1m]) > 4) == 3")
    nodes[0].text, nodes[1].text = faulty("slurm"), faulty("kubernetes")
    nodes[2].close()
    base.wait_for("count(count_over_time((dtk_device_up == 0)[1m:250ms]) > 4) == 2")
    return Grafana(base)


@pytest.fixture(scope="module")
def simulated(started: tuple[Started, Started, Started]) -> Grafana:
    """What dtk-exporter itself says of simulated machines."""
    base, _ = started[2]
    base.wait_for("count(count_over_time(dtk_build_info[1m]) > 4) == 2")
    return Grafana(base)


@pytest.mark.parametrize(("name", "panel", "target"), TARGETS)
def test_a_query_finds_something(
    scraped: Grafana, faults: Grafana, name: str, panel: dict[str, Any], target: dict[str, Any]
) -> None:
    found = scraped.ask(name, target["expr"])
    after = faults.ask(name, target["expr"])
    # Where all is well a panel may be empty if it says what that means, and then it has to show the faults.
    assert found or ("noValue" in panel["fieldConfig"]["defaults"] and after)
    labels = {label for series in found + after for label, value in series["metric"].items() if value}
    assert set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) <= labels


@pytest.mark.parametrize(("name", "panel", "target"), TARGETS)
def test_a_query_finds_what_the_exporter_serves(
    started: tuple[Started, Started, Started],
    simulated: Grafana,
    name: str,
    panel: dict[str, Any],
    target: dict[str, Any],
) -> None:
    served = set(re.findall(r"^\w+", "\n".join(exporter.text for exporter in started[2][1]), re.M))
    asked = set(re.findall(r"\b(?:dtk|process)_\w+", target["expr"]))
    found = simulated.ask(name, target["expr"])
    # Not every machine has every family.
    assert found or not asked <= served or "noValue" in panel["fieldConfig"]["defaults"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_its_columns(scraped: Grafana, faults: Grafana, name: str) -> None:
    for panel in panels(BOARDS[name]):
        if panel["type"] != "table":
            continue
        (shown,) = (t["options"]["indexByName"] for t in panel["transformations"] if t["id"] == "organize")
        joined = len(panel["targets"]) > 1
        for target in panel["targets"]:
            series = scraped.ask(name, target["expr"]) + faults.ask(name, target["expr"])
            labels = {label for entry in series for label in entry["metric"]}
            assert labels <= set(shown), panel["title"]
        values = {f"Value #{target['refId']}" for target in panel["targets"]} if joined else {"Value"}
        assert {column for column in shown if column.startswith("Value")} <= values


def one(grafana: Grafana, board: str, title: str) -> float:
    """The number that a panel shows."""
    (series,) = grafana.ask(board, titled(board, title)["targets"][0]["expr"])
    return float(series["value"][1])


def table(grafana: Grafana, board: str, title: str) -> list[dict[str, str]]:
    """The labels of a table's rows."""
    return [series["metric"] for series in grafana.ask(board, titled(board, title)["targets"][0]["expr"])]


def test_cards_are_chosen_by_name_and_found_by_uuid(scraped: Grafana) -> None:
    variables = BOARDS["node"]["templating"]["list"]
    node, device, card = (next(v for v in variables if v["name"] == name) for name in ("instance", "device", "card"))
    names = {}
    for instance in scraped.options(node, {}):
        names |= scraped.options(device, {"instance": instance})
        partition = chosen(["GPU-d921642bddfcaaed/p0"])
        cards = scraped.options(card, {"instance": instance, "device": partition})
        assert set(cards) <= {"GPU-d921642bddfcaaed"}
    assert names["1 K100_AI"] == "GPU-e7153f777a90a9d6"
    assert names["1 AMD Instinct MI300X OAM"] == "GPU-d921642bddfcaaed/p1"


def test_sums_count_no_partition_twice(scraped: Grafana) -> None:
    assert one(scraped, "fleet", "Cards") == 4
    used, total = 2 * 51539607552 + 15854161920 + 46208503808, 3 * 68702699520 + 51539607552
    assert one(scraped, "fleet", "Memory used") == pytest.approx(used / total)
    assert one(scraped, "fleet", "Utilization") == pytest.approx((0.88 + 0.64 + 0.42 + 0.87) / 4)


def test_sensors_of_a_partitioned_card_are_shown_under_its_address(scraped: Grafana) -> None:
    power = titled("node", "Power")["targets"][0]["expr"]
    shown = {(s["metric"]["index"], s["metric"]["model"]): s["value"][1] for s in scraped.ask("node", power)}
    assert shown["0000:0a:00.0", "AMD Instinct MI300X OAM"] == "393"
    assert len(shown) == 4
    overview = titled("node", "Cards")["targets"]
    powers = [scraped.ask("node", target["expr"]) for target in overview if "power_watts" in target["expr"]]
    by_uuid = {series["metric"]["uuid"]: series["value"][1] for series in powers[0]}
    assert by_uuid["GPU-d921642bddfcaaed/p0"] == by_uuid["GPU-d921642bddfcaaed/p1"] == "393"


def test_who_has_a_card_is_seen_whatever_labels_a_target_has(scraped: Grafana, faults: Grafana) -> None:
    for grafana in (scraped, faults):
        rows = table(grafana, "node", "Who has which card")
        slurm = next(row for row in rows if row["source"] == "slurm")
        assert (slurm["job_id"], slurm["user"], slurm["model"]) == ("4711", "ling", "K100_AI")
        pod = next(row for row in rows if row["source"] == "k8s")
        assert (pod["namespace"], pod["pod"], pod["container"]) == ("research", "train-0", "main")
        assert "job_id" not in pod
        assert not {"namespace", "pod"} & slurm.keys()


def test_what_is_not_well_is_listed(scraped: Grafana, faults: Grafana) -> None:
    assert not table(scraped, "fleet", "Devices not well")
    rows = table(faults, "fleet", "Devices not well")
    assert {(row["model"], row["index"], row["state"]) for row in rows} == {
        ("K100_AI", "0", "degraded"),
        ("K100_AI", "1", "lost"),
        ("AMD Instinct MI300X OAM", "1", "unknown"),
    }
    assert [row["job"] for row in table(faults, "fleet", "Nodes that do not answer")] == ["gone"]
    assert one(faults, "fleet", "Not well") == 3
