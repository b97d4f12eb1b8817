"""`dtk-smi doctor --crosscheck`: the real library agrees with the files, and what differs or fails is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import standin
from jsonschema import Draft202012Validator
from smi import SMI, environment, smi, widest
from test_backends import add_errors

import dtk
from dtk.crosscheck import agrees

SCHEMA = json.loads((Path(__file__).parent.parent / "docs/schema/dtk-crosscheck-1.schema.json").read_text())

Get = Callable[[str], Path]


def crosscheck(root: Path, *arguments: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, document and stderr."""
    done = rig.run(root, [SMI, "doctor", "--crosscheck", "--json", *arguments], environment(**variables))
    document = json.loads(done.stdout)
    Draft202012Validator(SCHEMA).validate(document)
    return done.returncode, document, done.stderr


def by_metric(document: dict[str, Any], uuid: str) -> dict[str, Any]:
    return {row["metric"]: row for row in document["crosscheck"] if row["uuid"] == uuid}


# ---- the real library ----


@pytest.fixture(params=["mi210", "k100_ai-2s"])
def node(request: pytest.FixtureRequest, copy_machine: Get) -> Path:
    """A machine with errors to count, in the form that every library takes."""
    root = copy_machine(request.param)
    add_errors(root, deferred=False)
    return root


def test_the_library_agrees(node: Path) -> None:
    rig.needs_library()
    code, document, stderr = crosscheck(node)
    assert (code, stderr) == (0, "")
    assert document["library"]["status"] == "ok"
    with dtk.System(node) as system:
        uuids = [card.uuid for card in system.cards()]
    assert [card["uuid"] for card in document["cards"]] == uuids
    for uuid in uuids:
        rows = by_metric(document, uuid)
        compared = {name for name, row in rows.items() if row["agree"] is not None}
        assert {row["agree"] for row in rows.values()} == {True, None}
        assert {"power_draw", "memory_used", "temperature_junction", "clock_gfx", "ecc_correctable"} <= compared
        assert rows["ecc_correctable"]["rsmi"] > 0
        assert rows["pcie_throughput"]["note"].startswith("not compared")
    if node.name == "mi210":
        assert "15.3" in by_metric(document, uuids[0])["energy"]["note"]


def test_as_a_table(node: Path) -> None:
    rig.needs_library()
    done = rig.run(node, [SMI, "doctor", "--crosscheck", "-d", "1"], environment())
    assert done.returncode == 0, done.stderr
    first, library, *rows = done.stdout.splitlines()
    assert first.startswith("all ")
    assert first.endswith(" readings that both have agree, on 1 card")
    assert "librocm_smi64" in library
    assert any("power_draw" in row and " yes" in row for row in rows)
    assert widest(done.stdout) <= 80


def test_a_library_that_cannot_count_errors(machine: Get) -> None:
    """Debian's ends the process over a row "de:"; all else is compared."""
    rig.needs_library()
    code, document, _ = crosscheck(machine("mi210"), "-d", "0")
    rows = {row["metric"]: row for row in document["crosscheck"]}
    if document["library"]["abi"] == "amd-5":
        assert (code, rows["ecc_correctable"]["note"]) == (5, "library: failed (library aborted)")
        assert [warning["code"] for warning in document["warnings"]] == ["library_aborted"]
    assert rows["power_draw"]["agree"] is True


# ---- what differs, and what fails ----


def test_what_differs(machine: Get, tmp_path: Path) -> None:
    root = machine("k100_ai-2s")
    with dtk.System(root) as system:
        card = system.cards()[0]
        total = card.memory().total
    library = standin.for_machine(tmp_path, "HYGON63", root, f"value memory_total 0 {total}")
    code, document, _ = crosscheck(root, "-d", "0", **library.env)
    rows = by_metric(document, card.uuid)
    assert code == 5
    assert (rows["memory_total"]["agree"], rows["power_limit"]["agree"]) == (True, False)
    assert rows["power_limit"]["rsmi"] == standin.expected(0, "power_limit")
    assert (rows["utilization_cu"]["agree"], rows["utilization_cu"]["kernel"]) == (None, None)
    assert rows["utilization_cu"]["rsmi"] == standin.expected(0, "cu_usage")
    assert rows["utilization_cu"]["note"] == "files: unsupported"
    text = standin.smi(root, library, "doctor", "--crosscheck", "-d", "0").stdout
    assert "readings differ" in text.splitlines()[0]
    assert " NO" in text


def test_a_library_that_ends_in_the_slow_tier(machine: Get, tmp_path: Path) -> None:
    library = standin.for_machine(tmp_path, "HYGON63", machine("k100_ai-2s"), "abort rsmi_dev_ecc_count_get *")
    code, document, stderr = crosscheck(machine("k100_ai-2s"), "-d", "0", **library.env)
    assert code == 5
    assert "ended the process" in stderr
    rows = {row["metric"]: row for row in document["crosscheck"]}
    assert rows["ecc_correctable"]["note"] == "library: failed (library aborted)"
    assert rows["power_draw"]["rsmi"] is not None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("status rsmi_init * 8", (12, "rsmi_init() failed with 8")),
        ("abort rsmi_init *", (12, "ended the process")),
        ("hang rsmi_init *", (11, "no answer by the deadline")),
    ],
)
def test_a_library_that_does_not_serve(machine: Get, tmp_path: Path, line: str, expected: tuple[int, str]) -> None:
    library = standin.for_machine(tmp_path, "HYGON63", machine("k100_ai-2s"), line)
    done = standin.smi(machine("k100_ai-2s"), library, "doctor", "--crosscheck")
    assert done.returncode == expected[0]
    assert expected[1] in done.stderr


def test_not_of_another_machine(machine: Get) -> None:
    done = smi("doctor", "--crosscheck", root=machine("mi210"))
    assert done.returncode == 3
    assert "reads this machine only" in done.stderr
    assert smi("doctor", "--crosscheck", "--demo").returncode == 3


# ---- when two readings agree ----


@pytest.mark.parametrize(
    ("name", "first", "library", "last", "agree"),
    [
        ("power_limit", 300.0, 300.0, 300.0, True),
        ("power_limit", 300.0, 301.0, 300.0, False),
        ("memory_total", 1 << 36, (1 << 36) + 1, 1 << 36, False),
        ("temperature_edge", 40.0, 42.5, 40.0, True),
        ("temperature_edge", 40.0, 44.0, 40.0, False),
        ("temperature_edge", 40.0, 50.0, 52.0, True),  # it rose meanwhile
        ("temperature_edge", 41.0, 41000.0, 41.0, False),
        ("power_draw", 200.0, 219.0, 200.0, True),
        ("power_draw", 200.0, 240.0, 200.0, False),
        ("utilization_gpu", 0.0, 9.0, 0.0, True),
        ("utilization_gpu", 0.0, 12.0, 0.0, False),
        ("pcie_replay_count", 5, 5, 5, True),
        ("pcie_replay_count", 5, 6, 7, True),
        ("pcie_replay_count", 5, 4, 5, False),
        ("clock_gfx", 1000.0, 1099.0, None, True),
    ],
)
def test_agreement(name: str, first: float, library: float, last: float | None, agree: bool) -> None:
    assert agrees(dtk.metrics.get(name), first, library, last) is agree
