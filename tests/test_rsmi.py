"""The vendor's library as a source of readings: one stand-in an ABI generation, what it says, and how it fails.

tests/test_witness.py asks the real one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import standin
from machines import device_directory
from smi import SMI, document, environment, smi
from standin import Standin, errors, expected, raw

import dtk

HYGON = ("HYGON62", "HYGON63")
NEW = ("AMD6", "AMD7", "HYGON63")
Look = Callable[..., dict[str, Any]]


@pytest.fixture
def look(machine: Callable[[str], Path], tmp_path: Path) -> Look:
    """The document that dtk-smi prints with a stand-in, and its exit status beside."""

    def take(library: Standin, *arguments: str, name: str = "k100_ai-2s", **variables: str) -> dict[str, Any]:
        variables = {"DTK_SMI_BACKEND": "rsmi", **variables}
        began = time.monotonic()
        done = standin.smi(machine(name), library, "--json", "--verbose", *arguments, **variables)
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "exit": done.returncode, "stderr": done.stderr, "seconds": time.monotonic() - began}

    return take


def fast_and_static(generation: str, device: int) -> dict[str, float | None]:
    """What a generation says of a device, by metric, in our units."""
    values: dict[str, float | None] = {
        name: expected(device, name)
        for name in (
            "utilization_gpu utilization_memory memory_total memory_used memory_visible_total memory_visible_used "
            "memory_gtt_total memory_gtt_used temperature_edge temperature_junction temperature_memory "
            "temperature_hbm0 temperature_hbm1 temperature_hbm2 temperature_hbm3 temperature_edge_critical "
            "temperature_edge_emergency temperature_junction_critical temperature_junction_emergency "
            "temperature_memory_critical temperature_memory_emergency power_average power_limit power_limit_min "
            "power_limit_max power_limit_default clock_gfx clock_memory clock_soc clock_fabric clock_gfx_max "
            "clock_memory_max clock_soc_max clock_fabric_max voltage_gfx fan_rpm fan_speed pcie_link_speed "
            "pcie_link_width pcie_replay_count"
        ).split()
    }
    values["memory_free"] = expected(device, "memory_total") - expected(device, "memory_used")
    values["energy"] = raw(device, "energy_count") / 2**16
    new = generation in NEW
    values["power_draw"] = expected(device, "power_current" if new else "power_average")
    values["power_current"] = expected(device, "power_socket") if new else None
    values["utilization_media"] = expected(device, "activity_mm") if new else None
    for ours, theirs in (("vr_gfx", "vr_gfx"), ("vr_soc", "vr_soc"), ("vr_memory", "vr_mem0")):
        values[f"temperature_{ours}"] = expected(device, f"temperature_{theirs}") if generation in HYGON else None
    values["temperature_core"] = expected(device, "temperature_core") if generation == "HYGON63" else None
    values["utilization_cu"] = expected(device, "cu_usage") if generation == "HYGON63" else None
    return values


# ---- values ----


@pytest.mark.parametrize("generation", standin.GENERATIONS)
def test_every_reading_of_a_generation(stand_in: Callable[..., Standin], look: Look, generation: str) -> None:
    library = stand_in(generation)
    found = look(library)
    assert (found["exit"], found["backend"], found["warnings"]) == (0, "rsmi", [])
    assert found["library"] | {"version": None} == {
        "status": "ok",
        "path": str(library.library),
        "origin": "DTK_SMI_ROCM_SMI_LIB",
        "version": None,
        "abi": standin.ABI[generation],
        "devices": 8,
        "matched": 8,
        "message": None,
        "log": None,
    }
    for device in found["devices"]:
        values = fast_and_static(generation, device["index"])
        read = {name: device["metrics"][name] for name in values}
        assert read == {name: value if value is None else pytest.approx(value) for name, value in values.items()}
        named = {name for name, source in device["sources"].items() if source.startswith("rsmi_dev_")}
        assert named == {name for name, value in values.items() if value is not None}
        assert all(device["reasons"][name] == "unsupported" for name, value in values.items() if value is None)


@pytest.mark.parametrize("generation", standin.GENERATIONS)
def test_the_slow_tier_of_a_generation(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], generation: str
) -> None:
    names = (
        "ecc_correctable ecc_uncorrectable ecc_deferred retired_pages pending_pages utilization_gpu_window "
        "utilization_cu_window utilization_wave_window memory_read_bandwidth memory_write_bandwidth "
        "link_receive_bandwidth link_send_bandwidth"
    ).split()
    query = ["query", ",".join(names), "--format", "json"]
    done = standin.smi(machine("k100_ai-2s"), stand_in(generation), *query, DTK_SMI_BACKEND="rsmi")
    assert done.returncode == 0, done.stderr
    hygon = generation == "HYGON63"
    for device, row in enumerate(json.loads(done.stdout)):
        links = raw(device, "xhcl_links")
        wanted = {
            "ecc_correctable": errors(device, "correctable"),
            "ecc_uncorrectable": errors(device, "uncorrectable"),
            "ecc_deferred": errors(device, "deferred") if hygon else None,
            "retired_pages": raw(device, "retired_pages"),
            "pending_pages": raw(device, "pending_pages"),
            "utilization_gpu_window": expected(device, "hcu_util") if hygon else None,
            "utilization_cu_window": expected(device, "cu_util") if hygon else None,
            "utilization_wave_window": expected(device, "wave_util") if hygon else None,
            "memory_read_bandwidth": raw(device, "df_read") * 1e6 if hygon else None,
            "memory_write_bandwidth": raw(device, "df_write") * 1e6 if hygon else None,
            "link_receive_bandwidth": sum(raw(device, "xhcl_received") + 10 * n for n in range(links)) * 1e6
            if hygon
            else None,
            "link_send_bandwidth": sum(raw(device, "xhcl_sent") + 10 * n for n in range(links)) * 1e6
            if hygon
            else None,
        }
        assert row == {name: None if value is None else pytest.approx(value) for name, value in wanted.items()}


def test_windows_are_asked_only_when_they_are_wanted(stand_in: Callable[..., Standin], look: Look) -> None:
    library = stand_in("HYGON63")
    look(library)
    assert not library.calls("rsmi_dev_hcu_util_get")
    assert not library.calls("rsmi_dev_df_bandwidth_get")


def test_windows_of_all_cards_fit_the_deadline(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path]
) -> None:
    """Eight cards, three windows of 0.1 s each: one after another they would take 2.4 s."""
    library = stand_in("HYGON63")
    query = "utilization_gpu_window,utilization_cu_window,utilization_wave_window"
    done = standin.smi(machine("k100_ai-2s"), library, "query", query, "--format", "csv", "--noheader")
    assert done.returncode == 0, done.stderr
    assert all(all(cell for cell in line.split(",")) for line in done.stdout.splitlines())
    assert {call.argument for call in library.calls("rsmi_dev_hcu_util_get")} == {100}


def test_a_deep_sleep_level_is_counted_like_the_library_does(stand_in: Callable[..., Standin], look: Look) -> None:
    found = look(stand_in("AMD7", "value deep_sleep * 1"))
    assert found["devices"][3]["metrics"]["clock_gfx"] == expected(3, "clock_gfx")


@pytest.mark.parametrize("generation", ["AMD5", "AMD7"])
def test_more_levels_than_there_is_room_for(stand_in: Callable[..., Standin], look: Look, generation: str) -> None:
    found = look(stand_in(generation, "value level * 4294967295"))
    device = found["devices"][0]
    assert device["metrics"]["clock_gfx"] is None
    assert device["reasons"]["clock_gfx"] == "unsupported"
    assert device["metrics"]["clock_gfx_max"] == expected(0, "clock_gfx_max")


def test_cards_are_matched_by_address_not_by_number(machine: Callable[[str], Path], tmp_path: Path, look: Look) -> None:
    with dtk.System(machine("k100_ai-2s")) as system:
        addresses = [card.bdf for card in system.cards()]
    library = standin.make(tmp_path, "HYGON63", list(reversed(addresses[1:])))
    found = look(library)
    assert (found["library"]["devices"], found["library"]["matched"]) == (7, 7)
    for index in range(1, 8):
        assert found["devices"][index]["metrics"]["fan_rpm"] == expected(7 - index, "fan_rpm")
    lost = found["devices"][0]
    assert lost["state"] == "failed"
    assert lost["details"]["fan_rpm"] == "the vendor's library does not list this card"


# ---- auto: the files first ----


def test_auto_asks_the_library_for_what_a_hygon_card_lacks(stand_in: Callable[..., Standin], look: Look) -> None:
    library = stand_in("HYGON63")
    found = look(library, DTK_SMI_BACKEND="auto")
    assert (found["exit"], found["library"]["abi"]) == (0, "hygon-6.3")
    for device in found["devices"]:
        assert device["metrics"]["utilization_cu"] == expected(device["index"], "cu_usage")
        assert device["sources"]["utilization_cu"] == "rsmi_dev_cu_usage_get"
        assert device["sources"]["power_draw"].startswith("hwmon/")
        assert device["metrics"]["power_draw"] != expected(device["index"], "power_current")
    assert not library.calls("rsmi_dev_power_get")


@pytest.mark.parametrize(
    "arguments", [(), ("-L",), ("query", "power_draw,memory_used,temperature.gpu"), ("ps",), ("map",)], ids=" ".join
)
def test_auto_does_not_load_it_for_what_the_files_have(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], arguments: tuple[str, ...]
) -> None:
    library = stand_in("HYGON63")
    done = standin.smi(machine("k100_ai-2s"), library, *arguments)
    assert done.returncode == 0
    assert not library.calls()


def test_auto_leaves_amd_cards_to_the_files(machine: Callable[[str], Path], tmp_path: Path, look: Look) -> None:
    library = standin.for_machine(tmp_path, "AMD7", machine("mi210"))
    found = look(library, name="mi210", DTK_SMI_BACKEND="auto")
    assert found["library"] is None
    assert not library.calls()


@pytest.mark.parametrize("generation", ["AMD5", "AMD6", "AMD7"])
def test_auto_asks_no_library_of_amd_about_hygon_cards(
    stand_in: Callable[..., Standin], look: Look, generation: str
) -> None:
    """It reads the same files, and AMD's older ones end the process over a card they do not know."""
    library = stand_in(generation, "abort rsmi_init *")
    found = look(library, DTK_SMI_BACKEND="auto")
    assert found["exit"] == 0
    (warning,) = found["warnings"]  # it was asked for by name
    assert "tells nothing of Hygon cards" in warning["text"]
    assert found["devices"][0]["reasons"]["utilization_cu"] == "unsupported"
    assert not library.calls("rsmi_init")


def test_a_reading_that_a_driver_does_not_tell_comes_from_the_library(
    copy_machine: Callable[[str], Path], tmp_path: Path
) -> None:
    root = copy_machine("k100_ai-2s")
    library = standin.for_machine(tmp_path, "HYGON62", root)
    with dtk.System(root) as system:
        for card in system.cards():
            (device_directory(root, card.bdf) / "gpu_busy_percent").unlink()
    done = standin.smi(root, library, "query", "index,utilization_gpu,power_draw", "--format", "json")
    rows = json.loads(done.stdout)
    assert [row["utilization_gpu"] for row in rows] == [expected(index, "utilization_gpu") for index in range(8)]
    assert rows[2]["power_draw"] != expected(2, "power_average")
    assert "%" in standin.smi(root, library).stdout


def test_a_recorded_machine_never_meets_the_library(machine: Callable[[str], Path], tmp_path: Path) -> None:
    root = machine("k100_ai-2s")
    assert document(root=root)["backend"] == "kernel"
    done = smi("--json", root=root, DTK_SMI_BACKEND="rsmi")
    assert done.returncode == 3
    assert "the vendor's library reads this machine only" in done.stderr
    assert "DTK_SMI_BACKEND=kernel" in done.stderr


def test_a_backend_that_is_none(machine: Callable[[str], Path]) -> None:
    done = smi("-L", root=machine("k100_ai-2s"), DTK_SMI_BACKEND="nvml")
    assert done.returncode == 2
    assert "DTK_SMI_BACKEND" in done.stderr
    assert '"auto", "kernel" or "rsmi"' in done.stderr
    with pytest.raises(dtk.InvalidArgument, match="no backend 'nvml'"):
        dtk.System(machine("k100_ai-2s"), backend="nvml")


# ---- processes ----


def test_how_busy_a_process_keeps_a_card(stand_in: Callable[..., Standin], machine: Callable[[str], Path]) -> None:
    root = machine("k100_ai-2s")
    with dtk.System(root) as system:
        used = [(process, use) for process in system.processes().processes for use in process.devices]
    lines = [
        f"process {process.host_pid} {use.device} 1 1 {10 * (number % 9) + 2}"
        for number, (process, use) in enumerate(used)
    ]
    library = stand_in("HYGON63", *lines)
    found = json.loads(standin.smi(root, library, "ps", "--use", "--json").stdout)
    uses = {
        (process["host_pid"], use["index"]): use["utilization"]
        for process in found["processes"]
        for use in process["devices"]
    }
    assert used
    for number, (process, use) in enumerate(used):
        assert uses[process.host_pid, use.device] == 10 * (number % 9) + 2
    assert " Use " in standin.smi(root, library, "ps", "--use").stdout
    before = len(library.calls())
    assert " Use " not in standin.smi(root, library, "ps").stdout
    assert len(library.calls()) == before


# ---- what goes wrong ----


@pytest.mark.parametrize(
    ("status", "reason", "detail"),
    [
        (1, "unsupported", None),
        (2, "unsupported", None),
        (3, "failed", "the vendor's library: file error (3)"),
        (4, "denied", "the vendor's library: no permission (4)"),
        (6, "failed", "the vendor's library: internal exception (6)"),
        (9, "unsupported", None),
        (14, "unsupported", None),
        (16, "failed", "the vendor's library: busy (16)"),
        (4294967295, "failed", "the vendor's library: error (65535)"),
    ],
)
def test_statuses_of_calls(
    stand_in: Callable[..., Standin], look: Look, status: int, reason: str, detail: str | None
) -> None:
    found = look(stand_in("HYGON63", f"status rsmi_dev_power_cap_get 2 {status}"), "-d", "2,3")
    broken, well = found["devices"]
    assert (broken["metrics"]["power_limit"], broken["reasons"]["power_limit"]) == (None, reason)
    assert broken["details"].get("power_limit") == detail
    assert well["metrics"]["power_limit"] == expected(3, "power_limit")


def test_a_sum_of_errors_is_whole_or_none(stand_in: Callable[..., Standin], machine: Callable[[str], Path]) -> None:
    """A block of memory that is not supported would make the sum too low; one that no card need have does not."""
    root, query = machine("k100_ai-2s"), ["query", "ecc_correctable", "--format", "json"]
    library = stand_in("HYGON63", "value ecc_enabled * 15", "status rsmi_dev_ecc_count_get 1 2")
    rows = json.loads(standin.smi(root, library, *query, DTK_SMI_BACKEND="rsmi").stdout)
    assert [row["ecc_correctable"] for row in rows[:3]] == [errors(0, "correctable"), None, errors(2, "correctable")]


def test_a_missing_function_makes_its_readings_unsupported(stand_in: Callable[..., Standin], look: Look) -> None:
    without = ("rsmi_dev_power_get", "rsmi_dev_cu_usage_get", "rsmi_dev_temp_metric_get", "rsmi_shut_down")
    found = look(stand_in("HYGON63", without=without))
    device = found["devices"][1]
    assert device["metrics"]["power_draw"] == expected(1, "power_average")
    for name in ("utilization_cu", "temperature_edge", "temperature_core"):
        assert (device["metrics"][name], device["reasons"][name]) == (None, "unsupported")
    assert device["metrics"]["fan_rpm"] == expected(1, "fan_rpm")


def test_init_that_fails_explains_itself(stand_in: Callable[..., Standin], look: Look) -> None:
    library = stand_in("HYGON63", "status rsmi_init * 8")
    found = look(library)
    assert (found["exit"], found["library"]["status"]) == (12, "library")
    assert "/dev/shm/rocm_smi*" in found["stderr"]
    assert "sys/class/kfd" in found["stderr"]
    assert {device["state"] for device in found["devices"]} == {"failed"}
    found = look(library, DTK_SMI_BACKEND="auto")
    assert (found["exit"], found["devices"][0]["state"]) == (0, "ok")
    assert found["devices"][0]["reasons"]["utilization_cu"] == "failed"
    assert [warning["code"] for warning in found["warnings"]] == ["library_failed"]


def test_a_name_that_leads_nowhere_is_said(
    stand_in: Callable[..., Standin], look: Look, machine: Callable[[str], Path]
) -> None:
    library = stand_in("HYGON63")
    found = look(library, DTK_SMI_BACKEND="auto", DTK_SMI_ROCM_SMI_LIB="/nowhere/librocm_smi64.so")
    assert (found["exit"], found["devices"][0]["state"]) == (0, "ok")
    (warning,) = found["warnings"]
    assert "/nowhere/librocm_smi64.so: there is no such file" in warning["text"]
    done = standin.smi(
        machine("k100_ai-2s"), library, "show", "-d", "0", DTK_SMI_ROCM_SMI_LIB="/nowhere/librocm_smi64.so"
    )
    assert (done.returncode, done.stderr) == (0, f"dtk-smi: warning: {warning['text']}\n")


@pytest.mark.parametrize("behaviour", ["abort", "throw", "exit"])
@pytest.mark.parametrize("call", ["rsmi_init", "rsmi_dev_fan_rpms_get"])
def test_a_library_that_ends_the_process(
    stand_in: Callable[..., Standin], look: Look, behaviour: str, call: str
) -> None:
    library = stand_in("HYGON63", f"{behaviour} {call} *{' 7' if behaviour == 'exit' else ''}")
    found = look(library)
    assert (found["exit"], found["library"]["status"]) == (12, "aborted")
    assert [warning["code"] for warning in found["warnings"]] == ["library_aborted"]
    for device in found["devices"]:
        assert (device["state"], device["details"]["fan_rpm"]) == ("failed", "library aborted")
    if behaviour == "throw":
        assert "out_of_range" in found["library"]["log"]
    assert len(library.calls("rsmi_init")) == 1, "it was tried again"


def test_auto_goes_on_without_a_library_that_ended(stand_in: Callable[..., Standin], look: Look) -> None:
    found = look(stand_in("HYGON63", "abort rsmi_dev_cu_usage_get 0"), DTK_SMI_BACKEND="auto")
    assert (found["exit"], found["library"]["status"]) == (0, "aborted")
    for device in found["devices"]:
        assert device["state"] == "ok"
        assert device["metrics"]["power_draw"] is not None
        told = (device["metrics"]["utilization_cu"], device["details"].get("utilization_cu"))
        assert told in [(None, "library aborted"), (expected(device["index"], "cu_usage"), None)]
    assert found["devices"][0]["reasons"]["utilization_cu"] == "failed"


def test_a_library_that_ends_costs_no_processes(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path]
) -> None:
    library = stand_in("HYGON63", "abort rsmi_dev_proc_usage_get *")
    done = standin.smi(machine("k100_ai-2s"), library, "ps", "--use")
    assert done.returncode == 0
    assert "ended the process that asked it" in done.stderr
    assert "use is not known" in done.stdout
    assert len(done.stdout.splitlines()) > 4


def test_a_library_that_hangs_costs_no_processes(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path]
) -> None:
    library = stand_in("HYGON63", "hang rsmi_dev_proc_usage_get *")
    done = standin.smi(machine("k100_ai-2s"), library, "ps", "--use", "--json")
    assert json.loads(done.stdout)["processes"]


def test_a_file_that_hangs_the_linker(machine: Callable[[str], Path], tmp_path: Path) -> None:
    """It then holds locks for ever that a new thread needs."""
    os.mkfifo(tmp_path / "librocm_smi64.so")
    done = rig.run(machine("k100_ai-2s"), [SMI, "--json"], environment(LD_LIBRARY_PATH=str(tmp_path)))
    assert {device["state"] for device in json.loads(done.stdout)["devices"]} == {"ok"}


@pytest.mark.parametrize("backend", ["rsmi", "auto"])
def test_init_that_hangs(stand_in: Callable[..., Standin], look: Look, backend: str) -> None:
    found = look(stand_in("HYGON63", "hang rsmi_init *"), DTK_SMI_BACKEND=backend)
    assert found["seconds"] < 2.5
    assert (found["exit"], found["library"]["status"]) == (11, "stale")
    for device in found["devices"]:
        assert device["reasons"]["utilization_cu"] == "stale"
        assert (device["state"], device["metrics"]["memory_used"] is None) == (
            ("stale", True) if backend == "rsmi" else ("ok", False)
        )


@pytest.mark.parametrize("backend", ["rsmi", "auto"])
def test_a_call_that_hangs_costs_its_card_only(stand_in: Callable[..., Standin], look: Look, backend: str) -> None:
    found = look(stand_in("HYGON63", "hang rsmi_dev_cu_usage_get 3"), DTK_SMI_BACKEND=backend)
    assert found["seconds"] < 2.5
    assert found["exit"] == 11
    for device in found["devices"]:
        if device["index"] == 3:
            assert device["reasons"]["utilization_cu"] == "stale"
        else:
            assert device["metrics"]["utilization_cu"] == expected(device["index"], "cu_usage")
    assert found["devices"][3]["state"] == ("stale" if backend == "rsmi" else "ok")


def test_what_it_prints_reaches_nobody_but_the_log(stand_in: Callable[..., Standin], look: Look) -> None:
    lines = ("print rsmi_init * WARN: something is deprecated", "flood rsmi_dev_fan_rpms_get 1")
    found = look(stand_in("HYGON63", *lines))
    assert found["exit"] == 0
    assert "deprecated" not in found["stderr"]
    assert found["library"]["log"].startswith("WARN: something is deprecated")
    assert len(found["library"]["log"]) <= 16384
    assert found["devices"][1]["metrics"]["fan_rpm"] == expected(1, "fan_rpm")


def test_a_number_that_cannot_be_true(stand_in: Callable[..., Standin], look: Look) -> None:
    found = look(stand_in("HYGON63", "value temperature_edge 0 2112000", "value utilization_gpu 0 4294967295"))
    device = found["devices"][0]
    assert (device["reasons"]["temperature_edge"], device["reasons"]["utilization_gpu"]) == ("failed", "unsupported")


@pytest.mark.parametrize(
    ("lines", "metric", "reason"),
    [
        (["value temperature_edge 0 -1"], "temperature_edge", "unsupported"),
        (["value power_average 0 4294967295"], "power_average", "unsupported"),
        (["value pcie_replay_count 0 4294967295"], "pcie_replay_count", "unsupported"),
        (["value levels 0 4294967295"], "clock_gfx_max", "unsupported"),
        (["value memory_used 0 70000000000"], "memory_free", "failed"),
        (["value umc_correctable 0 -1"], "ecc_correctable", "unsupported"),
        (["value gfx_uncorrectable 0 -1"], "ecc_correctable", "unsupported"),
        (["value retired_pages 0 5000"], "retired_pages", "failed"),
        (["value xhcl_received 0 -55"], "link_receive_bandwidth", "failed"),
    ],
)
def test_no_number_is_made_of_none(
    stand_in: Callable[..., Standin], machine: Callable[[str], Path], lines: list[str], metric: str, reason: str
) -> None:
    command = ["query", metric, "--format", "csv", "--noheader", "-d", "0,1"]
    text = standin.smi(machine("k100_ai-2s"), stand_in("HYGON63", *lines), *command, DTK_SMI_BACKEND="rsmi")
    first, second = text.stdout.split("\n")[:2]
    assert (first, text.returncode) == ('""', 0)
    assert float(second) > 0
    table = standin.smi(machine("k100_ai-2s"), stand_in("HYGON63", *lines), "query", metric, DTK_SMI_BACKEND="rsmi")
    assert table.stdout.splitlines()[2].strip() == ("err" if reason == "failed" else "-")
