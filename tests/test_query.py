"""`dtk-smi query`, and nvidia-smi's query as an alias."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import MACHINES, device_directory, put
from smi import SMI, environment, output, smi

import dtk
from dtk_cli import names
from dtk_cli.nvidia_names import ALIASES, OURS, QUESTIONS

Get = Callable[[str], Path]
K100 = "0000:05:00.0"


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), strict=True))


# ---- fields ----


@pytest.mark.parametrize("name", MACHINES)
def test_every_metric_is_a_field_with_the_values_of_the_api(machine: Get, name: str) -> None:
    fields = [metric.name for metric in dtk.metrics.all()]
    found = json.loads(output("query", ",".join(fields), "--format", "json", root=machine(name)))
    with dtk.System(machine(name)) as system:
        for entry, device in zip(found, system.devices(), strict=True):
            sample = device.sample(slow=True)
            assert list(entry) == fields
            assert entry == {name: list(v) if isinstance(v, tuple) else v for name, v in sample.items()}


def test_every_name_of_a_device_is_a_field(machine: Get) -> None:
    root = machine("mixed")
    found = json.loads(output("query", ",".join(names.IDENTITY), "--format", "json", root=root))
    with dtk.System(root) as system:
        for entry, device in zip(found, system.devices(), strict=True):
            for name in ("index", "uuid", "bdf", "name", "serial", "driver", "arch", "partition", "numa_node"):
                assert entry[name] == getattr(device, name), name
            for name in ("drm_card", "drm_render", "kfd_node", "gpu_id", "hip_index", "compute_units"):
                assert entry[name] == getattr(device, name), name
            assert entry["driver_version"] == system.info.drivers[device.driver or ""]
            assert (entry["card"], entry["state"], entry["hostname"]) == (device.card_index, "ok", system.info.hostname)
            assert {key: entry[key] for key in device.info() if key != "arch"} == {
                key: value for key, value in device.info().items() if key != "arch"
            }
            assert int(entry["device_id"], 16) == device.device_id
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["timestamp"])


def test_name_and_serial_do_not_depend_on_what_else_is_asked(machine: Get) -> None:
    root = machine("mi210")
    alone = output("query", "name,serial", "--format", "csv", "--noheader", root=root)
    beside = output("query", "name,serial,power_draw", "--format", "csv", "--noheader", root=root)
    assert [line[:2] for line in rows(alone)] == [line[:2] for line in rows(beside)]
    with dtk.System(root) as system:
        assert rows(alone) == [[device.name, device.serial] for device in system.devices()]


def test_aliases_select_ours_with_our_name_and_unit(machine: Get) -> None:
    root = machine("mi210")
    theirs = "memory.used,clocks.sm,clocks.gr,clocks.mem,pci.bus_id,gpu_name,temperature.gpu,power.draw"
    ours = "memory_used,clock_gfx,clock_gfx,clock_memory,bdf,name,temperature_gpu,power_draw"
    for form in ("csv", "table"):
        assert output("query", theirs, "--format", form, root=root) == output(
            "query", ours, "--format", form, root=root
        )
    found = json.loads(output("query", "memory.used,index", "--format", "json", "-d", "0", root=root))
    assert list(found[0]) == ["memory.used", "index"]  # keyed as it was asked
    assert found[0]["memory.used"] > 1 << 20  # in bytes, as memory_used is


def test_every_alias_leads_to_a_field() -> None:
    fields = names.all_fields()
    assert set(OURS.values()) <= set(fields)
    assert not set(OURS) & set(fields)
    assert set(ALIASES.values()) <= set(QUESTIONS)


@pytest.mark.parametrize(
    ("name", "edge", "sensor"),
    [("mi210", True, "temperature_edge"), ("k100_ai-2s", False, "temperature_junction")],
)
def test_temperature_of_the_gpu_is_edge_else_junction(copy_machine: Get, name: str, edge: bool, sensor: str) -> None:
    root = copy_machine(name)
    if not edge:
        for label in device_directory(root, K100).glob("hwmon/*/temp*_label"):
            if label.read_text() == "edge\n":
                label.with_name(label.name.replace("label", "input")).unlink()
    found = json.loads(output("query", f"temperature.gpu,{sensor}", "--format", "json", "-d", "0", root=root))
    assert found[0]["temperature.gpu"] == found[0][sensor] is not None


def test_unknown_field_names_what_comes_close(machine: Get) -> None:
    done = smi("query", "index,powr_draw", root=machine("apu"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "dtk-smi: no field 'powr_draw'"
    assert "power_draw" in done.stderr.splitlines()[1]
    done = smi("query", "index,,name", root=machine("apu"))
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [
        "query index,name --root {root} -d 1",
        "--root {root} -d 1 query index,name",
        "-d 1 query --root={root} index name",
        "query -d1 --root {root} index, name",
        "--deadline 2 --root {root} query index,name --device=1",
    ],
)
def test_options_stand_before_and_behind_the_command(machine: Get, arguments: str) -> None:
    done = smi(*arguments.format(root=machine("mi210")).split())
    assert done.stdout.splitlines()[2:] == ["    1  AMD Instinct MI210"]


# ---- formats ----


def test_csv_is_rfc_4180(copy_machine: Get) -> None:
    root = copy_machine("k100_ai-2s")
    put(device_directory(root, K100), "product_name", 'a "quoted", name\n')
    text = output("query", "index,name,memory_used,power_current,throttle_status", "--format", "csv", root=root)
    found = rows(text)
    assert found[0] == ["index", "name", "memory_used [B]", "power_current [W]", "throttle_status"]
    assert found[1][:2] == ["0", 'a "quoted", name']
    assert int(found[1][2]) > 0
    assert found[1][3:] == ["", ""]  # the card tells neither: nothing, never 0
    assert len(found) == 9
    assert "\r" not in text


def test_bits_of_csv_are_told_from_missing(machine: Get) -> None:
    found = rows(output("query", "throttle_status", "--format", "csv", "--noheader", root=machine("mi210")))
    assert {line[0] for line in found} <= {"none"} | {"ppt0", "temp_hotspot"}
    listed = json.loads(output("query", "throttle_status", "--format", "json", root=machine("mi210")))
    assert [line[0] for line in found] == [" ".join(entry["throttle_status"]) or "none" for entry in listed]


@pytest.mark.parametrize("form", ["table", "csv"])
def test_header_and_units_may_be_left_out(machine: Get, form: str) -> None:
    arguments = ("query", "index,power_draw", "--format", form, "-d", "0")
    full = output(*arguments, root=machine("mi210")).splitlines()
    bare = output(*arguments, "--nounits", root=machine("mi210")).splitlines()
    assert "power_draw [W]" in full[0]
    assert bare[0].replace(",", " ").split() == ["index", "power_draw"]
    assert output(*arguments, "--noheader", root=machine("mi210")).split() == full[-1].split()


@pytest.mark.parametrize(
    "arguments",
    ["--format json --noheader", "--format ndjson --nounits", "--format json -l 1", "--format xml", "-n 0", "-l -1"],
)
def test_options_that_do_not_go_together_are_2(machine: Get, arguments: str) -> None:
    done = smi("query", "index", *arguments.split(), root=machine("apu"))
    assert (done.returncode, done.stdout) == (2, "")


def test_table_says_why(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    put(device_directory(root, "0000:03:00.0"), "power/runtime_status", "suspended\n")
    lines = output("query", "index,power_draw,fan_speed", root=root).splitlines()
    assert lines[2].split() == ["0", "asleep", "asleep"]
    assert lines[3].split()[2] == "-"


@pytest.mark.parametrize(("form", "expected"), [("json", "[]\n"), ("csv", "index\n"), ("ndjson", ""), ("table", "")])
def test_machine_without_cards(tmp_path: Path, form: str, expected: str) -> None:
    (tmp_path / "sys").mkdir()
    done = smi("query", "index", "--format", form, root=tmp_path)
    assert (done.returncode, done.stdout) == (10, expected)
    assert "no Hygon DCU and no AMD GPU" in done.stderr


# ---- again and again ----


def test_lines_come_at_once(machine: Get) -> None:
    env = environment(DTK_SMI_ROOT=str(machine("mi210")))
    command = [SMI, "query", "index,power_draw", "--format", "ndjson", "-l", "0.3", "-d", "1,2"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(6)]
        began = time.monotonic()
        lines += [process.stdout.readline() for _ in range(2)]
        assert time.monotonic() - began < 2
        process.kill()
    assert [json.loads(line)["index"] for line in lines] == [1, 2] * 4


def test_header_of_csv_comes_once(machine: Get) -> None:
    text = output("query", "index", "--format", "csv", "-l", "0.1", "-n", "3", "-d", "0", root=machine("mi210"))
    assert text == "index\n0\n0\n0\n"


def test_count_alone_is_one_a_second(machine: Get) -> None:
    began = time.monotonic()
    text = output("query", "index", "--format", "csv", "--noheader", "-n", "2", "-d", "0", root=machine("mi210"))
    assert text == "0\n0\n"
    assert time.monotonic() - began > 0.9


def test_head_and_redirection(machine: Get, tmp_path: Path) -> None:
    env = environment(DTK_SMI_ROOT=str(machine("mi210")))
    script = f"{SMI} query index,name --format csv -l 0.1 2>{tmp_path}/err | head -3"
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout.splitlines() == ["index,name", "0,AMD Instinct MI210", "1,AMD Instinct MI210"]
    assert "Traceback" not in (tmp_path / "err").read_text()
    script = f"{SMI} query index --format json >{tmp_path}/out 2>/dev/null; {SMI} --json 2>/dev/null | tail -1"
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "}\n"
    assert len(json.loads((tmp_path / "out").read_text())) == 8


# ---- what it costs ----


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_one_card_asked_costs_one_cards_reads(machine: Get, tmp_path: Path) -> None:
    def opened(*arguments: str) -> list[str]:
        trace = tmp_path / "trace"
        command = ["strace", "-f", "-qq", "-e", "trace=openat,openat2", "-o", str(trace), SMI, *arguments]
        env = environment(DTK_SMI_ROOT=str(machine("mi210")))
        subprocess.run(command, env=env, capture_output=True, check=True, timeout=60)
        return re.findall(
            r'"(?:[^"]*/)?(gpu_busy_percent|power1_average|gpu_metrics|temp1_input|[^"/]*_max)"', trace.read_text()
        )

    fields = "power_draw,utilization_gpu,temperature_edge"
    one = opened("query", fields, "-d", "0")
    assert one
    assert len(opened("query", fields)) == 8 * len(one)
    assert not [name for name in one if name.endswith("_max")]  # nothing of the static tier
    assert len(opened("-d", "0")) * 8 == len(opened())


# ---- nvidia-smi's ----


def test_options_with_a_value_are_known_to_the_front_door() -> None:
    """What follows one of them is not taken for the command."""
    from dtk_cli.front import COMMANDS, load
    from dtk_cli.options import VALUED

    for name in (None, "nvidia", *COMMANDS):
        for action in load(name).build_parser()._actions:
            if action.nargs != 0 and action.nargs != "?":
                assert set(action.option_strings) <= VALUED, name


def nvidia(fields: str, form: str, *arguments: str, root: Path) -> list[str]:
    return output(f"--query-gpu={fields}", f"--format={form}", *arguments, root=root).splitlines()


COMMON = (
    "index,uuid,name,memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu,power.draw,power.limit,"
    "clocks.sm,clocks.mem,pci.bus_id,driver_version"
)


def test_what_scripts_ask_most(machine: Get) -> None:
    root = machine("k100_ai-2s")
    with dtk.System(root) as system:
        device = system.devices()[2]
        sample, version = device.sample(), system.info.drivers["hycu"]
    assert None not in (sample.memory_total, sample.memory_used, sample.memory_free)
    mebibytes = [(number or 0) >> 20 for number in (sample.memory_total, sample.memory_used, sample.memory_free)]
    bare = [
        "2", device.uuid, device.name, *map(str, mebibytes), f"{sample.utilization_gpu:.0f}",
        f"{sample.temperature_edge:.0f}", f"{sample.power_draw:.2f}", f"{sample.power_limit:.2f}",
        f"{sample.clock_gfx:.0f}", f"{sample.clock_memory:.0f}", f"0000{device.bdf}".upper(), version,
    ]  # fmt: skip
    assert nvidia(COMMON, "csv,noheader,nounits", root=root)[2] == ", ".join(bare)
    units = ["", "", "", " MiB", " MiB", " MiB", " %", "", " W", " W", " MHz", " MHz", "", ""]
    full = ", ".join(value + unit for value, unit in zip(bare, units, strict=True))
    assert nvidia(COMMON, "csv,noheader", root=root)[2] == full
    assert nvidia(COMMON, "csv", root=root)[0] == (
        "index, uuid, name, memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%], "
        "temperature.gpu, power.draw [W], power.limit [W], clocks.current.sm [MHz], clocks.current.memory [MHz], "
        "pci.bus_id, driver_version"
    )
    assert nvidia(COMMON, "csv,nounits", root=root)[0] == (
        "index, uuid, name, memory.total, memory.used, memory.free, utilization.gpu, temperature.gpu, power.draw, "
        "power.limit, clocks.current.sm, clocks.current.memory, pci.bus_id, driver_version"
    )


def test_header_is_the_canonical_name(machine: Get) -> None:
    line = nvidia(
        "clocks.gr,gpu_uuid,clocks_throttle_reasons.active,gpu.power.draw.average", "csv", root=machine("apu")
    )
    assert line[0] == "clocks.current.graphics [MHz], uuid, clocks_event_reasons.active, power.draw.average [W]"


@pytest.mark.parametrize("name", MACHINES)
def test_every_field_of_theirs_is_answered_or_missing(machine: Get, name: str) -> None:
    asked = [*QUESTIONS, *ALIASES]
    for line in nvidia(",".join(asked), "csv,noheader,nounits", root=machine(name)):
        values = dict(zip(asked, line.split(", "), strict=True))
        assert values["pstate"] == values["compute_mode"] == values["clocks.applications.gr"] == "[N/A]"
        assert "" not in values.values()
        assert re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0", values["pci.bus_id"])
        assert re.fullmatch(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", values["timestamp"])
        assert re.fullmatch(r"0x[0-9A-F]{8}", values["pci.device_id"])
        assert values["clocks.sm"] == values["clocks.current.sm"] == values["clocks.gr"]


def test_137_fields_are_known() -> None:
    """As many as nvidia's driver 590 has that also a recent card answers."""
    assert len(QUESTIONS) >= 137


def test_partition_has_no_sensors(machine: Get) -> None:
    line = nvidia(
        "index,memory.total,power.draw,temperature.gpu", "csv,noheader", "-i", "3", root=machine("mi300x-cpx")
    )
    assert line == ["3, 24576 MiB, [N/A], [N/A]"]


def test_devices_by_any_key(machine: Get) -> None:
    root = machine("mi210")
    with dtk.System(root) as system:
        keys = ["1", system.devices()[1].uuid, system.devices()[1].bdf, f"0000{system.devices()[1].bdf}".upper()]
    for key in keys:
        assert nvidia("index,count", "csv,noheader", "-i", key, root=root) == ["1, 8"], key
    assert nvidia("index", "csv,noheader", "--id=0,2", root=root) == ["0", "2"]
    assert smi("--query-gpu=index", "--format=csv", "-i", "9", root=root).returncode == 6


def test_unknown_field_of_theirs(machine: Get) -> None:
    assert output("--query-gpu", "index", "--format", "csv", root=machine("apu")) == "index\n0\n"
    done = smi("--query-gpu=index,nope", "--format=csv", root=machine("apu"))
    assert (done.returncode, done.stdout) == (2, 'Field "nope" is not a valid field to query.\n')


@pytest.mark.parametrize("arguments", [[], ["--format=xml"], ["--format=csv,bold"], ["--format=noheader"]])
def test_format_must_be_csv(machine: Get, arguments: list[str]) -> None:
    done = smi("--query-gpu=index", *arguments, root=machine("apu"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "csv" in done.stderr


@pytest.mark.parametrize("option", [["-l", "1"], ["-l1"], ["--loop=1"], ["-lms", "200"], ["--loop-ms=200"]])
def test_their_loops(machine: Get, option: list[str]) -> None:
    lines = nvidia("index", "csv", *option, "-n", "2", "-i", "0", root=machine("mi210"))
    assert lines == ["index", "0", "0"]


def test_list_of_their_fields() -> None:
    lines = output("--help-query-gpu").splitlines()
    assert '"memory.used"' in lines
    assert len(lines) == len(QUESTIONS)
