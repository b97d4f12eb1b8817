"""The kernel's files and the vendor's real library give the same readings of a simulated machine.

The library is Debian's, or any that $DTK_SMI_TEST_ROCM_SMI names: whoever has a newer one of AMD's or Hygon's runs

    make test PYTEST_ARGS=tests/test_backends.py DTK_SMI_TEST_ROCM_SMI=/opt/rocm/lib/librocm_smi64.so
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
from machines import device_directory, hwmon_directory, put
from smi import SMI, environment

import dtk
from dtk import sim

SEED, TICK = 3, 40
MODELS = {"mi210": ["mi210:8"], "mi300x": ["mi300x:4"], "k100_ai": ["k100_ai:8"]}

# The library of ROCm 5 on an MI300X: it looks for cards under consecutive numbers, and so finds only the first, and it
# ends the process over a gpu_metrics that it does not know.
OLD_MODELS = {"mi300x": ["mi300x:1"]}
OLD_CRASHES = {"mi300x": "energy pcie_link_speed pcie_link_width " + " ".join(f"temperature_hbm{n}" for n in range(4))}

# What every library tells of each model; some tell more.
COMMON = {
    "mi210": """
        utilization_gpu utilization_memory memory_total memory_used memory_free memory_visible_total
        memory_visible_used memory_gtt_total memory_gtt_used temperature_edge temperature_junction temperature_memory
        temperature_hbm0 temperature_hbm1 temperature_hbm2 temperature_hbm3 temperature_edge_critical
        temperature_edge_emergency temperature_junction_critical temperature_junction_emergency
        temperature_memory_critical temperature_memory_emergency power_draw power_average power_limit power_limit_min
        power_limit_max power_limit_default energy clock_gfx clock_memory clock_soc clock_fabric clock_gfx_max
        clock_memory_max clock_soc_max clock_fabric_max voltage_gfx pcie_link_speed pcie_link_width pcie_replay_count
        ecc_correctable ecc_uncorrectable retired_pages pending_pages
    """,
    "mi300x": """
        utilization_gpu utilization_memory memory_total memory_used memory_free memory_visible_total
        memory_visible_used memory_gtt_total memory_gtt_used temperature_junction temperature_memory
        temperature_junction_critical temperature_junction_emergency temperature_memory_critical
        temperature_memory_emergency power_limit power_limit_min power_limit_max power_limit_default clock_gfx
        clock_memory clock_soc clock_fabric clock_gfx_max clock_memory_max clock_soc_max clock_fabric_max
        pcie_replay_count ecc_correctable ecc_uncorrectable retired_pages pending_pages
    """,
    "k100_ai": """
        utilization_gpu memory_total memory_used memory_free memory_visible_total memory_visible_used memory_gtt_total
        memory_gtt_used temperature_edge temperature_junction temperature_memory power_draw power_average power_limit
        clock_gfx clock_memory clock_soc clock_gfx_max clock_memory_max clock_soc_max pcie_link_speed pcie_link_width
        ecc_correctable ecc_uncorrectable retired_pages pending_pages
    """,
}

Rows = list[dict[str, Any]]


def library() -> str:
    """The library under test."""
    named = os.environ.get("DTK_SMI_TEST_ROCM_SMI")
    if not named:
        rig.needs_library()
    return named or rig.library_path() or ""


def readings(root: Path, backend: str, names: list[str]) -> Rows:
    command = [SMI, "query", ",".join(["bdf", *names]), "--format", "json", "--deadline", "10"]
    variables = environment(DTK_SMI_BACKEND=backend, DTK_SMI_ROCM_SMI_LIB=library())
    done = rig.run(root, command, variables)
    assert done.returncode == 0, done.stderr
    rows: Rows = json.loads(done.stdout)
    return rows


def add_labels(root: Path) -> None:
    """Labels of two sensors that no MI300X has: without them the library of ROCm 5 does not start. There is no reading
    behind them.
    """
    with dtk.System(root) as system:
        for card in system.cards():
            (hwmon_directory(root, card.bdf) / "temp1_label").write_text("edge\n")
            (hwmon_directory(root, card.bdf) / "in0_label").write_text("vddgfx\n")


def add_errors(root: Path, deferred: bool) -> None:
    """Errors of some blocks and bad pages, on each card others. At a row "de:" the library of ROCm 5 ends the process,
    and Hygon's older one calls the block unsupported.
    """
    with dtk.System(root) as system:
        for number, card in enumerate(system.cards(), 1):
            directory = device_directory(root, card.bdf) / "ras"
            for factor, block in enumerate(("umc", "gfx", "sdma"), 1):
                rows = f"ue: {number * factor}\nce: {100 * number * factor}\n" + "de: 0\n" * deferred
                put(directory, f"{block}_err_count", rows)
            for path in directory.glob("*_err_count"):
                rows = path.read_text()
                put(directory, path.name, rows if deferred else re.sub(r"^de: .*\n", "", rows, flags=re.MULTILINE))
            pages = "".join(f"0x{page:08x} : 0x00001000 : {'RPF'[page % 3]}\n" for page in range(3 * number + 1))
            put(directory, "gpu_vram_bad_pages", pages)


@pytest.fixture(scope="module")
def abi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the library under test, as dtk tells it."""
    root = tmp_path_factory.mktemp("backends") / "abi"
    sim.write(root, ["mi210:1"], SEED, TICK)
    command = [SMI, "--json"]
    done = rig.run(root, command, environment(DTK_SMI_BACKEND="rsmi", DTK_SMI_ROCM_SMI_LIB=library()))
    found: str = json.loads(done.stdout)["library"]["abi"]
    return found


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, abi: str) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(model: str) -> Path:
        if abi.startswith("hygon") and not model.startswith("k100"):
            pytest.skip("Hygon's library lists Hygon's cards")
        if model not in made:
            made[model] = tmp_path_factory.mktemp("backends") / model
            old = abi in ("amd-5", "hygon-6.2")
            sim.write(made[model], (OLD_MODELS.get(model) if old else None) or MODELS[model], SEED, TICK)
            add_errors(made[model], deferred=not old)
            if old and model == "mi300x":
                add_labels(made[model])
        return made[model]

    return get


@pytest.mark.parametrize("model", MODELS)
def test_both_backends_say_the_same(simulated: Callable[[str], Path], model: str, abi: str) -> None:
    root = simulated(model)
    crashes = OLD_CRASHES.get(model, "").split() if abi == "amd-5" else []
    names = [
        metric.name
        for metric in dtk.metrics.all()
        if any(source.startswith("rsmi_") for source in metric.sources) and metric.name not in crashes
    ]
    kernel, rsmi = (readings(root, backend, names) for backend in ("kernel", "rsmi"))
    assert len(kernel) == len(rsmi) > 0
    for ours, theirs in zip(kernel, rsmi, strict=True):
        both = {name for name in names if ours[name] is not None and theirs[name] is not None}
        assert {name: theirs[name] for name in both} == {name: pytest.approx(ours[name], rel=1e-12) for name in both}
        assert set(COMMON[model].split()) - both == set()
        # What only the library tells would be a 0 or a field of something else.
        assert [name for name in names if ours[name] is None and theirs[name] is not None] == []
        assert theirs["bdf"] == ours["bdf"]


def test_an_old_library_that_does_not_know_a_card_explains_itself(tmp_path: Path, abi: str) -> None:
    if abi != "amd-5":
        pytest.skip("this library knows an MI300X")
    sim.write(tmp_path / "mi300x", MODELS["mi300x"], SEED, TICK)
    command = [SMI, "--json"]
    done = rig.run(tmp_path / "mi300x", command, environment(DTK_SMI_BACKEND="rsmi", DTK_SMI_ROCM_SMI_LIB=library()))
    found = json.loads(done.stdout)
    assert (done.returncode, found["library"]["status"]) == (12, "library")
    assert "rsmi_init() failed with 8" in done.stderr
    assert found["library"]["log"].startswith("Exception caught")
