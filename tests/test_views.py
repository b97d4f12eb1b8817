"""`dtk-smi ps`, `show`, `map`, `fields` and `--demo`, and what hides devices from a program."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machines import MACHINES, device_directory, put
from smi import SMI, document, environment, output, smi, terminal, validate, widest

import dtk
from dtk import visibility

Get = Callable[[str], Path]
every_machine = pytest.mark.parametrize("name", MACHINES)


# ---- ps ----


@every_machine
def test_ps_tells_what_the_api_tells(machine: Get, name: str) -> None:
    got = json.loads(output("ps", "--json", root=machine(name)))
    with dtk.System(machine(name)) as system:
        table = system.processes("all")
    assert (got["hidden"], got["hidden_reason"], got["truncated"]) == (table.hidden, table.hidden_reason, False)
    assert got["sources"] == table.sources
    assert got["unattributed"].keys() == table.unattributed.keys()
    for entry, process in zip(got["processes"], table.processes, strict=True):
        assert {key: entry[key] for key in entry if key not in ("start_time", "devices")} == {
            key: value for key, value in process._asdict().items() if key not in ("start_time", "devices")
        }
        assert [(use["uuid"], use["index"], use["memory_used"]) for use in entry["devices"]] == [
            (usage.uuid, usage.device, usage.memory_used) for usage in process.devices
        ]


@every_machine
def test_processes_of_the_document(machine: Get, name: str) -> None:
    got = document(root=machine(name))
    validate(got)
    with dtk.System(machine(name)) as system:
        expected = system.processes().processes
    assert [(entry["pid"], entry["user"]) for entry in got["processes"]] == [(p.pid, p.user) for p in expected]


def processes_of(root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output("ps", "--json", root=root))["processes"]
    return found


def test_ps_as_a_table_and_csv(machine: Get) -> None:
    root = machine("k100_ai-2s")
    pairs = {(use["index"], entry["pid"]) for entry in processes_of(root) for use in entry["devices"]}
    assert pairs
    table = output("ps", root=root)
    assert widest(table) <= 80
    assert {tuple(map(int, line.split()[:2])) for line in table.splitlines()[2:] if line.split()[0].isdigit()} == pairs
    lines = list(csv.DictReader(io.StringIO(output("ps", "--format", "csv", root=root)), strict=True))
    assert {(int(line["index"]), int(line["pid"])) for line in lines} == pairs
    assert all(int(line["memory_used"]) > 0 and line["command"] for line in lines)


def test_ps_of_a_device_and_of_a_user(machine: Get) -> None:
    root = machine("k100_ai-2s")
    everybody = processes_of(root)
    process = everybody[0]
    (user,) = {process["user"]}
    got = json.loads(output("ps", "--json", "--user", user, root=root))["processes"]
    assert [entry["pid"] for entry in got] == [entry["pid"] for entry in everybody if entry["user"] == user]
    assert json.loads(output("ps", "--json", "--user", str(process["uid"]), root=root))["processes"] == got
    assert json.loads(output("ps", "--json", "--user", "nobody-at-all", root=root))["processes"] == []
    index = process["devices"][0]["index"]
    got = json.loads(output("ps", "--json", "-d", str(index), root=root))["processes"]
    assert {use["index"] for entry in got for use in entry["devices"]} == {index}
    assert process["pid"] in [entry["pid"] for entry in got]


def test_ps_says_where_a_process_runs(machine: Get) -> None:
    wide = terminal("ps", root=machine("k100_ai-2s"), size=(140, 40), NO_COLOR="1")
    assert "Where" in wide.splitlines()[0]
    assert re.search(r"(job \d+|pod [0-9a-f]{8}|docker [0-9a-f]{12}|containerd [0-9a-f]{12})", wide)


def test_ps_tree_hangs_processes_below_what_started_them() -> None:
    from dtk_cli.text import Screen
    from dtk_cli.tree import branches

    def process(pid: int, parent: int | None) -> dtk.Process:
        unknown = dict.fromkeys(dtk.Process._fields)
        return dtk.Process(**{**unknown, "pid": pid, "parent": parent, "devices": ()})  # type: ignore[arg-type]

    found = [process(10, 5), process(11, 5), process(20, 1), process(30, 20), process(31, 30), process(40, None)]
    with open(os.devnull, "w", encoding="utf-8") as stream:
        lines = [f"{prefix}{node.pid}" for node, prefix in branches(found, Screen(stream), live=False)]
    assert lines == ["5", "├─ 10", "└─ 11", "20", "└─ 30", "   └─ 31", "40"]


def test_ps_tree(machine: Get) -> None:
    root = machine("k100_ai-2s")
    text = output("ps", "--format", "tree", root=root)
    assert widest(text) <= 80
    for entry in processes_of(root):
        assert re.search(rf"^ *{entry['pid']}  ", text, re.M)


def test_ps_in_a_loop(machine: Get) -> None:
    root = machine("k100_ai-2s")
    text = output("ps", "-l", "0.2", "-n", "2", root=root)
    assert text.count("VRAM GiB") == 2
    lines = output("ps", "--format", "csv", "-l", "0.2", "-n", "2", root=root).splitlines()
    assert [line.startswith("timestamp,pid") for line in lines].count(True) == 1
    assert (len(lines) - 1) % 2 == 0
    assert smi("ps", "--json", "-l", "1", root=root).returncode == 2


def test_engine_use_between_two_looks() -> None:
    from dtk_cli.ps import Engines

    def usage(gfx: int, **more: int) -> Any:
        return SimpleNamespace(uuid="GPU-1", engine_times={"gfx": gfx, **more})

    def look(monotonic: float, use: Any) -> Any:
        process = SimpleNamespace(pid=1, start_ticks=2, devices=(use,))
        return SimpleNamespace(monotonic=monotonic, processes=SimpleNamespace(processes=(process,)))

    engines = Engines()
    process = SimpleNamespace(pid=1, start_ticks=2)
    for moment, use, expected in (
        (10.0, usage(5 * 10**9), ""),
        (12.0, usage(6 * 10**9, dma=10**8), "gfx 50%"),
        (14.0, usage(6 * 10**9, dma=3 * 10**8), "dma 10%"),
        (16.0, usage(10**9), ""),  # files were closed
    ):
        engines.next(look(moment, use))
        assert engines.busiest(process, use) == expected  # type: ignore[arg-type]


# ---- show ----


@every_machine
def test_show_has_every_value(machine: Get, name: str) -> None:
    root = machine(name)
    text = output("show", "0", root=root)
    with dtk.System(root) as system:
        device = system.devices()[0]
        sample = device.sample(slow=True)
        for metric, value in sample.items():
            assert re.search(rf"\b{metric}\b", text), metric
            assert (value is None) or re.search(rf"^  {metric} +\S", text, re.M), metric
        for known in (device.uuid, device.bdf, device.serial, device.arch, *device.info().values()):
            assert known is None or str(known) in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_show_of_a_partition_has_its_card(machine: Get) -> None:
    text = output("show", "3", root=machine("mi300x-cpx"))
    assert [line for line in text.splitlines() if re.match(r"(GPU|Card) \d+: ", line)] == [
        "Card 0: AMD Instinct MI300X OAM",
        "GPU 3: AMD Instinct MI300X OAM, partition 3 of card 0",
    ]


def test_show_takes_keys_in_both_ways(machine: Get) -> None:
    root = machine("mi210")
    assert output("show", "1,2", root=root) == output("show", "1", "-d", "2", root=root)
    assert smi("show", "99", root=root).returncode == 6
    assert output("show", root=root).count("GPU 7: ") == 1


def test_show_and_device_have_the_memory_banks(copy_machine: Get) -> None:
    root = copy_machine("k100_ai-2s")
    with dtk.System(root) as system:
        directory, other = (device_directory(root, card.bdf) for card in system.cards()[:2])
    put(directory, "mem_banks/0/properties", "ce_count 5\nue_count: 0x1\nstate good\n")
    put(directory, "mem_banks/1/properties", "\x1b[31m 7\n")
    put(other, "mem_banks/0/properties", b"\xff\xfe")
    assert "memory bank 0" in (text := output("show", "0", root=root))
    assert re.search(r"^  memory bank 0 +ce_count 5, ue_count 1$", text, re.MULTILINE)
    assert "\x1b" not in text
    assert "memory bank" not in output("show", "1", root=root)
    with dtk.System(root) as system:
        first, second, third, *_ = system.devices()
        assert first.memory_banks()["0"] == {"ce_count": 5, "ue_count": 1}
        assert second.memory_banks() == {}
        with pytest.raises(dtk.NotSupported):
            third.memory_banks()


# ---- map ----


@every_machine
def test_map_has_every_name(machine: Get, name: str) -> None:
    root = machine(name)
    got = json.loads(output("map", "--json", root=root))
    text = output("map", root=root)
    assert max(map(len, text.splitlines())) <= 80
    with dtk.System(root) as system:
        for entry, device in zip(got["devices"], system.devices(), strict=True):
            for key in ("index", "uuid", "bdf", "serial", "partition", "drm_card", "drm_render", "kfd_node", "gpu_id"):
                assert entry[key] == getattr(device, key)
            assert entry["visible_index"] == entry["hip_index"] == device.hip_index
            assert device.uuid in text


def test_map_tells_what_the_variables_do(machine: Get) -> None:
    root = machine("mi210")
    with dtk.System(root) as system:
        uuids = {device.hip_index: device.uuid for device in system.devices()}
    variables = {"ROCR_VISIBLE_DEVICES": f"{uuids[5]},{uuids[2]}", "HIP_VISIBLE_DEVICES": "1"}
    got = json.loads(output("map", "--json", root=root, **variables))
    assert {
        entry["uuid"]: entry["visible_index"] for entry in got["devices"] if entry["visible_index"] is not None
    } == {uuids[2]: 0}
    assert got["notes"] == [
        f"ROCR_VISIBLE_DEVICES={uuids[5]},{uuids[2]} leaves 2 devices",
        "HIP_VISIBLE_DEVICES=1 leaves 1 device",
    ]
    lines = output("map", root=root, **variables).splitlines()
    assert sum(line.endswith(" hidden") for line in lines) == 7
    only = output("map", "-d", "0", root=root, **variables).splitlines()
    assert only[2].split() == lines[2].split()
    assert len(only) == len(lines) - 7
    assert output("map", root=root, GPU_DEVICE_ORDINAL="0").splitlines()[-1].startswith("GPU_DEVICE_ORDINAL=0: OpenCL")


CARDS = ["GPU-a000000000000000", "GPU-b000000000000000", "GPU-c000000000000000", "GPU-d000000000000000"]
FULL_C = "GPU-c000000000000000"


@pytest.mark.parametrize(
    ("rocr", "hip", "cuda", "sees"),
    [
        (None, None, None, "ABCD"),
        ("", None, None, ""),
        ("2,0", None, None, "CA"),
        ("2,3", "0", None, "C"),
        ("2,3", "2", None, ""),
        ("GPU-c", "GPU-c", None, "C"),
        ("2", "2", None, ""),
        (None, "", "1", "B"),
        (None, "3", "1", "D"),
        (None, "-1", None, ""),
        ("0,0,1", None, None, "A"),
        (None, "0,0,1", None, "AB"),
        ("0,9,1", None, None, "A"),
        (None, "0,9,1", None, "A"),
        # how each reads its list
        ("0x1,010", None, None, "B"),
        (" 2 , gpu-A ", None, None, "CA"),
        ("GPU", None, None, ""),
        ("GPU-", None, None, ""),
        ("1x", None, None, ""),
        ("+1", None, None, "B"),
        ("-1", None, None, ""),
        ("0,1,2,3,0", None, None, "ABCD"),
        ("3,", None, None, ""),
        (FULL_C, None, None, "C"),
        (FULL_C + "0", None, None, ""),
        (None, "01", None, ""),
        (None, " 1", None, ""),
        (None, "gpu-c", None, ""),
        (None, f"{FULL_C},1", None, "CB"),
        ("3,2,1", "GPU-b,0", None, "BD"),
        (None, "1,,2", None, "B"),
        ("2,3", "", "1", "D"),
    ],
)
def test_truth_table_of_visibility(rocr: str | None, hip: str | None, cuda: str | None, sees: str) -> None:
    values = {"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip, "CUDA_VISIBLE_DEVICES": cuda}
    environment = {name: value for name, value in values.items() if value is not None}
    view = visibility.hip(CARDS, environment)
    assert "".join("ABCD"[agent] for agent in view.agents) == sees
    assert len(view.notes) >= bool(rocr) + bool(hip)


def test_visibility_by_uuid_wants_exactly_one() -> None:
    partitions = ["GPU-a000000000000000"] * 2 + ["", "GPU-b000000000000000"]
    assert visibility.hip(partitions, {"ROCR_VISIBLE_DEVICES": "GPU-b,GPU-a"}).agents == [3]
    assert visibility.hip(partitions, {"ROCR_VISIBLE_DEVICES": "2,0"}).agents == [2, 0]
    assert visibility.hip(partitions, {"HIP_VISIBLE_DEVICES": "GPU-a"}).agents == [0]
    assert visibility.opencl(CARDS, {"GPU_DEVICE_ORDINAL": "1", "ROCR_VISIBLE_DEVICES": "3,2"}).agents == [2]


# ---- fields ----


@every_machine
def test_fields_say_what_is_there(machine: Get, name: str) -> None:
    root = machine(name)
    got = {entry["name"]: entry for entry in json.loads(output("fields", "--json", root=root))}
    assert [name for name in got if name in {m.name for m in dtk.metrics.all()}] == [m.name for m in dtk.metrics.all()]
    with dtk.System(root) as system:
        for number, device in enumerate(system.devices()):
            sample = device.sample(slow=True)
            for metric in dtk.metrics.all():
                entry = got[metric.name]
                here = entry["devices"][number]
                assert (entry["unit"] or "", entry["tier"], entry["help"]) == (metric.unit, metric.tier, metric.help)
                assert here["source"] == sample.source(metric.name)
                assert here["reason"] == sample.reason(metric.name)
                expected = sample[metric.name] is not None or (False if here["reason"] == "unsupported" else None)
                assert here["supported"] is expected
    text = output("fields", root=root)
    assert max(map(len, text.splitlines())) <= 80
    assert len(terminal("fields", root=root, size=(200, 60)).splitlines()) == len(got) + 2


def test_fields_by_pattern(machine: Get) -> None:
    root = machine("mi210")
    names = [entry["name"] for entry in json.loads(output("fields", "power", "--json", root=root))]
    assert {"power_draw", "power_limit"} <= set(names)
    assert all("power" in name for name in names)
    assert [entry["name"] for entry in json.loads(output("fields", "clocks.sm", "--json", root=root))] == ["clock_gfx"]
    assert {"temperature_edge", "temperature_memory"} <= {
        line.split()[0] for line in output("fields", "temperature_*", root=root).splitlines()
    }
    done = smi("fields", "nonsense", root=root)
    assert (done.returncode, done.stdout) == (2, "")


def test_fields_tell_denied_and_asleep_from_absent(copy_machine: Get) -> None:
    root = copy_machine("apu")
    put(device_directory(root, "0000:64:00.0"), "power/runtime_status", "suspended\n")
    (power,) = json.loads(output("fields", "power_draw", "--json", root=root))
    assert (power["devices"][0]["supported"], power["devices"][0]["reason"]) == (None, "asleep")
    assert output("fields", "power_draw", root=root).splitlines()[2].split()[3:] == ["?", "asleep"]


def test_fields_of_a_partition_that_only_its_card_has(machine: Get) -> None:
    lines = output("fields", "power_draw", root=machine("mi300x-cpx")).splitlines()
    assert lines[2].split() == ["power_draw", "W", "fast", "card", "on_card"]


def test_fields_without_cards_are_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    done = smi("fields", "power_draw", root=tmp_path)
    assert done.returncode == 10
    assert done.stdout.splitlines()[2].split() == ["power_draw", "W", "fast"]


# ---- a late card ----


def test_card_that_misses_the_deadline_is_11(mounted: Any) -> None:
    node = mounted("mi210:4")
    node.set("hang=2")
    try:
        for arguments in (["--json"], ["query", "index,power_draw", "--format", "json"], ["show", "2"], ["ps"], []):
            began = time.monotonic()
            done = smi(*arguments, "--deadline", "1", root=node.root)
            assert time.monotonic() - began < 5  # and not for ever; test_monitor measures
            assert done.returncode == 11, done.stderr
            assert re.search("no answer by the deadline: .*0000:43:00.0", done.stderr)
        assert re.search(r"^  2  .* stale$", done.stdout, re.M)
        done = smi("--json", "--deadline", "3", root=node.root)
        got = json.loads(done.stdout)
        validate(got)
        assert [entry["state"] for entry in got["devices"]] == ["ok", "ok", "stale", "ok"]
        assert got["warnings"] == [{"code": "stale", "text": "no answer by the deadline: 0000:43:00.0"}]
        assert smi("query", "power_draw", "-d", "0,1", "--deadline", "4", root=node.root).returncode == 0
    finally:
        node.clear()


# ---- a simulated node ----


@pytest.mark.parametrize(
    "arguments",
    [
        "--demo",
        "--demo -L",
        "ps --demo",
        "query index --demo --format csv",
        "--demo show 0",
        "map --demo",
        "fields --demo",
    ],
)
def test_demo(arguments: str) -> None:
    done = smi(*arguments.split())
    assert done.returncode == 0
    assert "SIMULATED" in done.stdout + done.stderr
    path = re.search(r"machine below (\S+)", done.stdout + done.stderr)
    assert path
    assert not Path(path[1]).exists()


def test_demo_in_a_document_says_simulated() -> None:
    got = json.loads(output("--json", "--demo"))
    validate(got)
    assert got["simulated"] is True
    assert len(got["devices"]) == 8
    assert got["processes"]


def test_demo_lives_and_goes_with_the_command() -> None:
    command = [SMI, "query", "index,power_draw", "--demo", "--format", "ndjson", "-l", "0.5", "-d", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        assert process.stderr
        watts = set()
        while len(watts) < 2:
            watts.add(json.loads(process.stdout.readline())["power_draw"])
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == -signal.SIGINT
        path = Path(process.stderr.read().split()[-1])
    for _ in range(50):
        if not path.exists():
            break
        time.sleep(0.1)
    assert not path.exists()
