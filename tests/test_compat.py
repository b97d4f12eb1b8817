"""/metrics/compat: the names, labels and units that dashboards for other exporters of Hygon cards query."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from machines import device_directory, hwmon_directory, put
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import dtk
from dtk_exporter import compat

Machine = Callable[[str], Path]
DATA = Path(__file__).parent / "data"
NODE = "node1"
CARD = {"device_id", "minor_number", "name", "node", "pcieBus_number", "container"}  # and the labels of a pod


class Series(NamedTuple):
    """A line of the page: labels of the card, and its own."""

    name: str
    labels: dict[str, str]
    more: dict[str, str]
    value: float


class Page(CollectorRegistry):
    """Families as a scrape gets them."""

    def __init__(self, families: Iterable[Metric], kind: str) -> None:
        super().__init__()
        self._families = list(families)
        self.text = generate_latest(self).decode()
        labels = card_labels(kind)
        self.series = [
            Series(
                sample.name,
                {label: text for label, text in sample.labels.items() if label in labels},
                {label: text for label, text in sample.labels.items() if label not in labels},
                sample.value,
            )
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        ]

    def collect(self) -> Iterator[Metric]:
        """For generate_latest()."""
        return iter(self._families)

    def values(self, minor: str, **more: str) -> dict[str, float]:
        """Of one card, by name: the series with these labels of their own."""
        found = [s for s in self.series if s.labels["minor_number"] == minor and s.more == more]
        assert len({s.name for s in found}) == len(found)
        return {s.name: s.value for s in found}


def card_labels(kind: str) -> set[str]:
    return CARD | {f"{kind}_pod_namespace", f"{kind}_pod_name"}


def page(root: Path, kind: str, **options: Any) -> Page:
    snapshot = dtk.take_snapshot(root, slow=True, processes=True)
    samples: Mapping[str, Mapping[str, object]] = {card.uuid: card.sample for card in snapshot.cards}
    assert snapshot.processes
    arguments = {"node": NODE, "samples": samples, "processes": snapshot.processes.processes} | options
    return Page(compat.families(snapshot, kind, **arguments), kind)


def everything(root: Path, kind: str) -> Page:
    """The page of cards that have every metric of the catalogue."""
    snapshot = dtk.take_snapshot(root)
    sample = {metric.name: float(metric.number) for metric in dtk.metrics.all()}
    return page(root, kind, samples={card.uuid: sample for card in snapshot.cards})


def listed(name: str) -> list[tuple[bool, list[str]]]:
    """Lines of a file of tests/data: is it served, and the words."""
    lines = (DATA / name).read_text().splitlines()
    words = [line.split() for line in lines if not line.startswith("#")]
    return [(line[0] != "-", line if line[0] != "-" else line[1:]) for line in words]


@pytest.mark.parametrize("kind", compat.KINDS)
@pytest.mark.parametrize("name", ["k100_ai-2s", "mi210", "mixed", "mi300x-cpx"])
def test_machines(name: str, kind: str, machine: Machine, golden: Callable[[str, str], None]) -> None:
    """A line a family and label of its own, a column a card."""
    series = page(machine(name), kind).series
    minors = sorted({s.labels["minor_number"] for s in series}, key=int)
    rows: dict[str, dict[str, float]] = {}
    for s in series:
        row = " ".join([s.name, *(f"{label}={text}" for label, text in sorted(s.more.items()))])
        rows.setdefault(row, {})[s.labels["minor_number"]] = s.value
    text = "".join(
        f"{row}: {' '.join(f'{values[minor]:.12g}' if minor in values else '-' for minor in minors)}\n"
        for row, values in rows.items()
    )
    golden(f"compat/{kind}-{name}.txt", text)


@pytest.mark.parametrize("kind", compat.KINDS)
def test_names_and_labels(kind: str, machine: Machine) -> None:
    """What both exporters have, and no other; all of it gauges, whose help says what dtk calls it."""
    whole = everything(machine("mixed"), kind)
    expected = {tuple(words) for is_served, words in listed("compat-families.txt") if is_served}
    assert {(s.name, *sorted(s.more)) for s in whole.series} == {row for row in expected if row[0].startswith(kind)}
    assert {frozenset(s.labels) for s in whole.series} == {frozenset(card_labels(kind))}
    assert set(re.findall(r"^# TYPE \S+ (\w+)$", whole.text, re.M)) == {"gauge"}
    known = {metric.family for metric in dtk.metrics.all()}
    for family in re.findall(r"^# HELP .* dtk_device_(\w+)", whole.text, re.M):
        assert family in known | {"ecc_block_errors_total"}


def test_dashboards(machine: Machine) -> None:
    """What their dashboards query has the labels that they use, or is known not to be answered."""
    served: dict[str, list[dict[str, str]]] = {}
    for kind in compat.KINDS:
        for s in everything(machine("mixed"), kind).series:
            served.setdefault(s.name, []).append(s.more)

    def has(labels: Mapping[str, str], label: str) -> bool:
        name, _, value = label.partition("=")
        return name in labels and value in ("", labels[name])

    for is_answered, (dashboard, name, *labels) in listed("compat-dashboards.txt"):
        found = [series for series in served.get(name, ()) if all(has(series, label) for label in labels)]
        assert bool(found) == is_answered, (dashboard, name)


def test_docs_name_every_family() -> None:
    text = (Path(__file__).parent.parent / "docs" / "compat.md").read_text()
    named = set(re.findall(r"`(v?[hd]cu_\w+)`", text)) - card_labels("hcu")
    assert {words[0] for _, words in listed("compat-families.txt")} == named


def test_units(copy_machine: Machine) -> None:
    """Theirs, of a card whose files say what is easy to check."""
    root, bdf = copy_machine("k100_ai-2s"), "0000:05:00.0"
    sensors, card = hwmon_directory(root, bdf), device_directory(root, bdf)
    for name, text in {
        "temp1_input": "61250",
        "temp2_input": "70500",
        "temp1_crit": "101000",
        "power1_average": "123456000",
        "power1_cap": "350000000",
        "freq1_input": "1234000000",
        "freq2_input": "987000000",
        "in0_input": "805",
    }.items():
        put(sensors, name, f"{text}\n")
    for name, text in {
        "gpu_busy_percent": "37",
        "mem_info_vram_total": "64000000000",
        "mem_info_vram_used": "16000000000",
        "mem_info_gtt_used": "25000000",
        "current_link_speed": "8.0 GT/s PCIe",
        "current_link_width": "4",
        "pcie_replay_count": "7",
        "power_dpm_force_performance_level": "profile_peak",
        "ras/umc_err_count": "ue: 2\nce: 11",
    }.items():
        put(card, name, f"{text}\n")
    hcu, dcu = page(root, "hcu"), page(root, "dcu")
    both = {
        "temp": 61.25,
        "power_usage": 123.456,
        "powercap": 350,
        "sclk": 1234,
        "utilizationrate": 37,
        "usedmemory_bytes": 16e9,
        "memorycap_bytes": 64e9,
        "compute_unit_count": 120,
    }
    assert dcu.values("0") == {f"dcu_{name}": value for name, value in both.items()}
    more = {
        "hcu_mclk": 987,
        "hcu_temp_edge_critical": 101,
        "hcu_available_memory_bytes": 48e9,
        "hcu_voltage_mv": 805,
        "hcu_pcie_clock": 8e9,
        "hcu_pcie_width": 4,
        "hcu_pcie_replay_count": 7,
        "hcu_ce_count_total": 11,
        "hcu_ue_count_total": 2,
    }
    assert hcu.values("0").items() >= ({f"hcu_{name}": value for name, value in both.items()} | more).items()
    assert hcu.values("0", sensor_type="junction")["hcu_sensor_temp"] == 70.5
    assert hcu.values("0", mem_type="gtt")["hcu_meminfo_used_bytes"] == 25e6
    assert hcu.values("0", level="stable_peak") == {"hcu_perf_level": 1}
    assert hcu.values("0", block_type="UMC") == {"hcu_ce_count": 11, "hcu_ue_count": 2}
    assert hcu.values("0", block_type="PCIEBIF") == {"hcu_ce_count": 0, "hcu_ue_count": 0}


def test_units_of_the_library(machine: Machine) -> None:
    """What only Hygon's library tells: MB/s, and both % and shares of 1."""
    root = machine("k100_ai-2s")
    (first, *_) = dtk.take_snapshot(root).cards
    sample = {
        "utilization_cu_window": 55.0,
        "memory_read_bandwidth": 3e9,
        "memory_write_bandwidth": 1e9,
        "link_send_bandwidth": 2.5e6,
    }
    whole = page(root, "hcu", samples={first.uuid: sample})
    values = whole.values("0")
    assert (values["hcu_cu_sampled_usage"], values["hcu_cu_util"]) == (55, pytest.approx(0.55))
    assert (values["hcu_df_bw_read"], values["hcu_df_bw_read_write"]) == (3000, 4000)
    assert whole.values("0", link_id="all") == {"hcu_hylink_send": 2.5}, "the sum of both directions is not known"


def test_units_of_processes(machine: Machine) -> None:
    """By card: of a partitioned one, all its partitions together."""
    root = machine("mi300x-cpx")
    snapshot = dtk.take_snapshot(root, processes=True)
    assert snapshot.processes
    (process,) = (p for p in snapshot.processes.processes if len(p.devices) > 1)
    labels = {"pid": str(process.pid), "process_name": str(process.name)}
    memory = sum(usage.memory_used or 0 for usage in process.devices)
    (card,) = snapshot.cards
    busy = 100 * sum(usage.compute_units or 0 for usage in process.devices) / 304
    assert page(root, "hcu").values("0", **labels) == {
        "hcu_process_vram_used_bytes": memory,
        "hcu_process_vram_usage_rate": pytest.approx(100 * memory / (card.sample.memory_total or 0)),
        "hcu_process_sdma_used": sum(usage.sdma_time or 0 for usage in process.devices) / 1000,
        "hcu_process_cu_occupancy": pytest.approx(busy),
        "hcu_process_hcu_percent": pytest.approx(busy),
    }
    assert "hcu_process" not in page(root, "hcu", processes=()).text


def test_labels(machine: Machine) -> None:
    """A card is counted in PCI order; it has its serial number, or without one its uuid; pods; odd names survive."""
    root, node = machine("mixed"), 'a "node"\\ of\nmine'
    cards = dtk.take_snapshot(root).cards
    whole = page(root, "hcu", node=node, pods={cards[1].uuid: ("default", "train-0", "worker")})
    labels = {s.labels["minor_number"]: s.labels for s in whole.series}
    assert [labels[str(number)]["pcieBus_number"] for number in range(6)] == [card.bdf for card in cards]
    assert [labels[str(number)]["name"] for number in range(6)] == [card.name for card in cards]
    assert [labels[str(number)]["device_id"] for number in range(6)] == [card.serial or card.uuid for card in cards]
    assert len({labels[str(number)]["device_id"] for number in range(6)}) == 6
    for number, card in labels.items():
        pod = tuple(card[name] for name in ("hcu_pod_namespace", "hcu_pod_name", "container"))
        assert pod == (("default", "train-0", "worker") if number == "1" else ("", "", ""))
        assert card["node"] == node


@pytest.mark.parametrize("kind", compat.KINDS)
def test_card_without_values_has_no_series(kind: str, machine: Machine) -> None:
    root = machine("k100_ai-2s")
    samples = {card.uuid: card.sample for card in dtk.take_snapshot(root).cards}
    del samples[next(iter(samples))]
    assert {s.labels["minor_number"] for s in page(root, kind, samples=samples).series} == set("1234567")
    assert page(root, kind, samples={}).text == ""


@pytest.mark.parametrize("kind", compat.KINDS)
def test_prometheus_reads_it(kind: str, machine: Machine) -> None:
    """promtool finds fault with their names and labels, and with nothing else."""
    if not (promtool := shutil.which("promtool")):
        pytest.skip("needs promtool")
    text = everything(machine("mixed"), kind).text
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
    assert result.returncode == 3, result.stderr
    assert {line.split(maxsplit=1)[1] for line in result.stderr.splitlines()} <= {
        "label names should be written in 'snake_case' not 'camelCase'",
        'non-histogram and non-summary metrics should not have "_count" suffix',
        'non-counter metrics should not have "_total" suffix',
    }
