"""dtk-smi as people and scripts call it: the installed command, on machines of the project's own and recorded ones."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import CORPUS, MACHINES, device_directory, put
from smi import SMI, bare, document, environment, output, smi, stable, validate, widest

import dtk
import dtk_cli

Get = Callable[[str], Path]
Golden = Callable[[str, str], None]
CASES = sorted(path.name for path in (CORPUS / "machines").glob("*"))
every_machine = pytest.mark.parametrize("name", MACHINES)
K100, MI210 = "0000:05:00.0", "0000:03:00.0"  # the first cards of k100_ai-2s and mi210


# ---- the views ----


@every_machine
def test_list(machine: Get, golden: Golden, name: str) -> None:
    lines = output("-L", root=machine(name))
    golden(f"cli/list-{name}.txt", lines)
    with dtk.System(machine(name)) as system:
        found = re.findall(r"^ *GPU (\d+): .+ \(UUID: (\S+)\) (\S+)$", lines, re.M)
        assert found == [(str(device.index), device.uuid, device.bdf) for device in system.devices()]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("k100_ai-2s", "-d 0"), ("mi210", "-d 7"), ("mi300x-cpx", "-d 3 --verbose"), ("apu", ""), ("radeon", "")],
)
def test_json(machine: Get, golden: Golden, name: str, arguments: str) -> None:
    text = output("--json", *arguments.split(), root=machine(name))
    golden(f"cli/{name}.json", stable(text, machine(name)))


@every_machine
@pytest.mark.parametrize("verbose", [False, True], ids=["plain", "verbose"])
def test_document_is_what_dtk_says(machine: Get, name: str, verbose: bool) -> None:
    got = document(*["--verbose"] * verbose, root=machine(name))
    validate(got)
    with dtk.System(machine(name)) as system:
        info = system.info
        assert got["hostname"] == info.hostname
        assert got["simulated"] is info.simulated is True
        assert got["driver"] == info.drivers
        assert got["warnings"] == []
        assert [entry["pid"] for entry in got["processes"]] == [entry.pid for entry in system.processes().processes]
        for entry, device in zip(got["devices"], system.devices(), strict=True):
            agree(entry, device, verbose, "uuid drm_render kfd_node gpu_id hip_index partition")
            assert (entry["index"], entry["card"]) == (device.index, device.card_index)
        for entry, card in zip(got["cards"], system.cards(), strict=True):
            agree(entry, card, verbose, "numa_node")
            assert entry["index"] == card.card_index
            assert entry["devices"] == [d.index for d in system.devices() if d.card_index == card.card_index]


def agree(entry: dict[str, Any], device: dtk.Device, verbose: bool, further: str) -> None:
    """An entry of the document has the values that the Python API gives; the machines stand still."""
    for key in ["bdf", "name", "serial", "drm_card", "driver", *further.split()]:
        assert entry[key] == getattr(device, key), key
    sample = device.sample()
    assert entry["info"] == device.info()
    assert entry["state"] == sample.state
    assert list(entry["metrics"]) == [metric.name for metric in dtk.metrics.all() if metric.tier != "slow"]
    assert entry["metrics"] == {name: list(v) if isinstance(v, tuple) else v for name, v in sample.items()}
    assert entry["reasons"] == {name: sample.reason(name) for name, value in sample.items() if value is None}
    assert ("sources" in entry) is verbose
    if verbose:
        assert entry["sources"] == {name: sample.source(name) for name, v in sample.items() if v is not None}


def test_whole_card_stands_in_both_lists_with_one_sample(machine: Get) -> None:
    got = document(root=machine("mi210"))
    for card, device in zip(got["cards"], got["devices"], strict=True):
        same = card.keys() & device.keys() - {"index"}
        assert {"metrics", "reasons", "timestamp", "state", "info"} <= same
        assert {key: card[key] for key in same} == {key: device[key] for key in same}


def test_partition_leaves_what_is_the_cards_to_the_card(machine: Get) -> None:
    got = document("-d", "3", root=machine("mi300x-cpx"))
    (card,), (partition,) = got["cards"], got["devices"]
    assert card["devices"] == list(range(8))
    assert card["metrics"]["power_draw"] > 0
    assert (partition["partition"], partition["card"]) == (3, card["index"])
    assert partition["metrics"]["power_draw"] is None
    assert partition["reasons"]["power_draw"] == "on_card"


@pytest.mark.parametrize("case", CASES)
def test_recorded_machine(corpus: Get, case: str) -> None:
    root = corpus(case)
    got = document("--verbose", root=root)
    validate(got)
    assert got["devices"]
    assert got["simulated"] is False
    assert len(output("-L", root=root).splitlines()) >= len(got["devices"])
    table = output(root=root)
    assert "recorded machine below" in table
    assert widest(table) <= 80


# ---- which device ----


@pytest.mark.parametrize("name", ["k100_ai-2s", "mi210", "apu", "radeon", "mixed"])
def test_every_name_of_a_device_selects_it(machine: Get, name: str) -> None:
    with dtk.System(machine(name)) as system:
        device = system.devices()[-1]
        keys = [str(device.index), device.uuid, device.uuid[:-1], device.bdf, device.bdf.removeprefix("0000:")]
        keys += [f"card{device.drm_card}", f"renderD{device.drm_render}", f"kfd:{device.kfd_node}"]
        keys += [f"gpu_id:{device.gpu_id}", f"hip:{device.hip_index}"]
        keys += [f"serial:{device.serial}"] if device.serial else []
    assert "None" not in "".join(keys)
    for key in keys:
        assert re.findall(r"UUID: (\S+)\)", output("-L", "-d", key, root=machine(name))) == [device.uuid], key


def test_name_of_a_partitioned_card_selects_its_partitions(machine: Get) -> None:
    root = machine("mi300x-cpx")
    with dtk.System(root) as system:
        card, devices = system.cards()[0], system.devices()
        for key in (card.bdf, f"card{card.drm_card}", f"serial:{card.serial}"):
            assert output("-L", "-d", key, root=root) == output("-L", root=root)
        for key in (devices[5].uuid, f"renderD{devices[5].drm_render}", f"kfd:{devices[5].kfd_node}"):
            assert [entry["index"] for entry in document("-d", key, root=root)["devices"]] == [5]


@pytest.mark.parametrize(
    "arguments",
    ["-d 5,2 --json", "--json -d 2,5", "-d 5 --json -d 2", "--json --device=5 --device 2,5", "-d2 --json -d5"],
)
def test_device_option_goes_anywhere(machine: Get, arguments: str) -> None:
    done = smi(*arguments.split(), "--root", str(machine("mi210")))
    got = json.loads(done.stdout)
    assert [entry["index"] for entry in got["devices"]] == [entry["index"] for entry in got["cards"]] == [2, 5]


def test_root_option_wins(machine: Get) -> None:
    for arguments in (["--root", str(machine("apu")), "-L"], ["-L", f"--root={machine('apu')}"]):
        assert output(*arguments, root=machine("mi210")) == output("-L", root=machine("apu"))


# ---- exit status ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--frobnicate", "unrecognized arguments: --frobnicate"),
        ("-L --json", "not allowed with"),
        ("-d 0 1", "no command '1'"),
        ("qeury index", "did you mean query?"),
        ("--demo --root /", "--demo"),
        ("--deadline 0", "no number of seconds"),
        ("--deadline soon", "no number of seconds"),
        ("-L -l 1", "-l goes with"),
        ("--json -n 2", "-l goes with"),
        ("-n 0", "no count"),
        ("-d", "expected one argument"),
        ("-d 0,,1", "an empty key"),
        ("-d what:ever", "keys are an index"),
        ("-d GPU-", "say which"),
        ("-d 99,what:ever", "what:ever"),
        ("--verbose", "--verbose goes with --json"),
        ("--vers", "unrecognized arguments: --vers"),
        ("--root /nowhere/at/all", "--root"),
        ("--root /proc/self", "--root"),
        ("--root=", "an empty name"),
    ],
)
def test_bad_usage_is_2(machine: Get, arguments: str, message: str) -> None:
    done = smi(*arguments.split(), root=machine("mi210"))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("dtk-smi: ")
    assert len(done.stderr.splitlines()) == 1 or done.stderr.splitlines()[1].startswith("  ")
    assert "Traceback" not in done.stderr


def test_bad_root_in_the_environment_is_2(tmp_path: Path) -> None:
    done = smi("-L", root=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "DTK_SMI_ROOT" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "sys/" in done.stderr


def test_no_such_device_is_6(machine: Get) -> None:
    for key in ("8", "GPU-0123456789abcdef", "0000:ff:00.0", "card77", "serial:none", "0,99"):
        done = smi("--json", "-d", key, root=machine("mi210"))
        assert (done.returncode, done.stdout) == (6, ""), key
        assert "0 to 7" in done.stderr


def test_no_permission_is_4(tmp_path: Path) -> None:
    root = tmp_path / "locked"
    (root / "sys").mkdir(parents=True)
    root.chmod(0)
    done = subprocess.run(
        [*bare(), SMI, "-L", "--root", str(root)], env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert str(root) in done.stderr


def test_output_that_cannot_be_written_is_1(machine: Get) -> None:
    for arguments in ("-L", "--json", "", "--help", "--cflags"):
        for redirection, message in ((">/dev/full", "No space left"), (">&-", "stdout is closed")):
            script = f"{shlex.quote(SMI)} {arguments} {redirection}"
            env = environment(DTK_SMI_ROOT=str(machine("mi210")))
            done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 1, script
            assert re.fullmatch(rf"dtk-smi: [^\n]*{message}[^\n]*\n", done.stderr), script


def test_closed_stderr_does_not_spill_into_stdout(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    script = f"{shlex.quote(SMI)} --root {shlex.quote(str(tmp_path))} 2>&-"
    done = subprocess.run(["sh", "-c", script], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (10, "", "")


BUG = "import sys, dtk_cli.bare as b, dtk_cli.front as f; b.run = lambda _: 1 / 0; sys.exit(f.front(sys.argv[1:]))"


def test_bug_is_1_and_no_traceback_unless_asked_for(machine: Get) -> None:
    def run(**variables: str) -> tuple[int, str, str]:
        env = environment(DTK_SMI_ROOT=str(machine("apu")), **variables)
        done = subprocess.run(
            [sys.executable, "-I", "-c", BUG, "-L"], env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = run()
    assert (code, out) == (1, "")
    assert err.splitlines()[0] == "dtk-smi: internal error: ZeroDivisionError: division by zero"
    assert len(err.splitlines()) == 2
    code, out, err = run(DTK_SMI_DEBUG="1")
    assert (code, out) == (1, "")
    assert "Traceback" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (dtk.Error, 1),
        (dtk.InvalidArgument, 2),
        (dtk.NotSupported, 3),
        (dtk.PermissionDenied, 4),
        (dtk.DeviceNotFound, 6),
        (dtk.DeviceLost, 6),
        (dtk.NoDriver, 9),
        (dtk.Timeout, 11),
        (dtk.LibraryError, 12),
    ],
)
def test_every_error_has_its_exit_status(error: type[dtk.Error], code: int) -> None:
    from dtk_cli.exit import exit_code

    assert exit_code(error("text")) == code


def test_first_of_several_errors() -> None:
    from dtk_cli.exit import first

    order = [dtk.InvalidArgument, dtk.LibraryError, dtk.NoDriver, dtk.DeviceNotFound, dtk.PermissionDenied, dtk.Timeout]
    errors = [kind("text") for kind in order]
    while errors:
        assert first(errors[::-1]) is errors.pop(0)


# ---- manners ----


def test_reader_that_goes_away(machine: Get) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for arguments in (["-L"], ["--json"], [], ["query", "index", "-l", "0.1"], ["ps"], ["show"], ["fields"], ["map"]):
        env = environment(DTK_SMI_ROOT=str(machine("mi210")))
        done = subprocess.run([SMI, *arguments], env=env, stdout=writer, stderr=subprocess.PIPE, check=False)
        assert done.returncode == -signal.SIGPIPE
        assert b"Traceback" not in done.stderr
    os.close(writer)


def test_interrupt_is_quiet(machine: Get) -> None:
    """While it waits for its reader, since the document is larger than a pipe; and soon after the start."""
    env = environment(DTK_SMI_ROOT=str(machine("mi300x-cpx")))
    pipe = subprocess.PIPE
    with subprocess.Popen([SMI, "--json", "--verbose"], env=env, stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert process.stdout.read(1) == b"{"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT  # in a shell 130
        assert process.stderr
        assert process.stderr.read() == b""
    with subprocess.Popen([sys.executable, "-X", "importtime", SMI], env=env, stdout=pipe, stderr=pipe) as process:
        assert process.stderr
        assert any(b"argparse" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=str,
)
def test_ascii_where_nothing_else_fits(copy_machine: Get, variables: dict[str, str]) -> None:
    root = copy_machine("mi300x-cpx")
    (bdf,) = {entry["bdf"] for entry in document(root=root)["cards"]}
    put(device_directory(root, bdf), "product_name", "Größe 海光\n")
    for arguments in ([], ["-L"], ["--json"], ["--help"], ["query", "name"], ["show"], ["map"], ["fields"], ["ps"]):
        text = output(*arguments, root=root, **variables)
        assert text.isascii() or variables == {"PYTHONIOENCODING": "latin-1"}
        assert arguments or widest(text) == 80
    assert "\\u6d77\\u5149" in output("-L", root=root, **variables)
    assert "`- partition 7" in output(root=root, **variables)


@pytest.mark.parametrize(
    "name",
    [
        b"\x1b]0;title\x07\x1b[31mred\x1b[0m",
        b"two\nlines\tand\ra return",
        b"\xff\xfe not UTF-8 \x80",
        "\u202eright to left, \u200bnothing".encode(),
        "海光 深算 K100_AI 人工智能加速卡 六十四吉字节".encode(),
        b"x" * 3000,
        b'"quoted" \\ {json}',
    ],
    ids=["escape", "lines", "bytes", "bidi", "wide", "long", "quoted"],
)
def test_odd_names(copy_machine: Get, name: bytes) -> None:
    root = copy_machine("k100_ai-2s")
    put(device_directory(root, K100), "product_name", name + b"\n")
    table, lines = output(root=root), output("-L", root=root)
    assert len(lines.splitlines()) == 8
    assert widest(table) == 80
    for text in (table, lines):
        assert all(c.isprintable() for c in text.replace("\n", ""))
    got = document(root=root)
    validate(got)
    with dtk.System(root) as system:
        assert got["devices"][0]["name"] == system.devices()[0].name


def test_start_up_imports_little(machine: Get) -> None:
    """Scripts call these in loops; each of these modules costs milliseconds."""
    heavy = {
        "rich",
        "typer",
        "psutil",
        "textual",
        "typing",
        "dataclasses",
        "inspect",
        "shutil",
        "subprocess",
        "logging",
    }
    for arguments, others in (
        (["-L"], {"json", "datetime"}),
        (["--json"], set()),
        ([], {"json", "datetime"}),
        (["query", "index,power_draw", "--format", "csv"], {"json", "datetime", "difflib"}),
        (["ps"], {"json", "datetime"}),
        (["--query-gpu=index", "--format=csv"], {"json", "datetime"}),
    ):
        command = [sys.executable, "-X", "importtime", SMI, *arguments]
        env = environment(DTK_SMI_ROOT=str(machine("mi210")))
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import")}
        assert "dtk" in imported
        assert not imported & (heavy | others), arguments


# ---- what is missing, and what is wrong ----


def test_asleep_card_has_no_number(copy_machine: Get) -> None:
    root = copy_machine("k100_ai-2s")
    put(device_directory(root, K100), "power/runtime_status", "suspended\n")
    got = document(root=root)
    validate(got)
    assert got["devices"][0]["state"] == "asleep"
    assert set(got["devices"][0]["metrics"].values()) == {None}
    assert set(got["devices"][0]["reasons"].values()) == {"asleep"}
    assert [entry["state"] for entry in got["devices"][1:]] == ["ok"] * 7


def test_damaged_table_of_the_firmware_is_a_warning(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    put(device_directory(root, MI210), "gpu_metrics", b"\0" * 120)
    done = smi("--json", root=root)
    got = json.loads(done.stdout)
    validate(got)
    (warning,) = got["warnings"]
    assert MI210 in warning["text"]
    assert (done.returncode, done.stderr) == (0, "")
    done = smi(root=root)
    assert done.returncode == 0
    assert done.stderr == f"dtk-smi: warning: {warning['text']}\n"


def test_missing_values_alone_are_0(copy_machine: Get) -> None:
    root = copy_machine("mi210")
    for entry in device_directory(root, MI210).iterdir():
        if entry.is_file() and entry.name.startswith(("gpu_", "mem_", "pp_", "pcie_", "current_")):
            entry.unlink()
    assert document(root=root)["devices"][0]["metrics"]["utilization_gpu"] is None
    output(root=root)


# ---- the rest ----


def test_version_and_build_flags() -> None:
    assert output("--version") == f"dtk-smi {dtk.__version__}\n"
    cflags, libs = output("--cflags"), output("--libs")
    assert output("--libs", "--cflags") == f"{cflags.strip()} {libs}"
    assert Path(cflags.strip().removeprefix("-I"), "dtk.h").is_file()
    assert Path(libs.split()[0]).is_file()


def test_library_that_cannot_be_loaded_is_12(tmp_path: Path) -> None:
    for package in (dtk, dtk_cli):
        source = Path(package.__file__).parent
        shutil.copytree(source, tmp_path / source.name)
    (tmp_path / "dtk/_native/lib/libdtk.so.0").unlink()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from dtk_cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (12, "")
    assert done.stderr.startswith("dtk-smi: load libdtk: libdtk.so.0: ")
    assert "install dtk-smi again" in done.stderr
    assert done.stderr.count("\n") == 1
