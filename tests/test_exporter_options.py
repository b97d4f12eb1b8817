"""dtk-exporter's options, its configuration, and its life: flags, environment, files, signals, exit status."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from certificates import Authority
from exporting import COMMAND, Exporter, exporting, once, run
from smi import environment

import dtk
from dtk import sim

Get = Callable[[str], Path]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def wait_for_log(exporter: Exporter, words: str, times: int) -> None:
    end = time.monotonic() + 10
    while sum(words in line for line in exporter.log) < times:
        assert time.monotonic() < end, exporter.log
        time.sleep(0.02)


def test_flag_before_environment_before_file(tmp_path: Path, machine: Get) -> None:
    file = tmp_path / "exporter.toml"
    file.write_text(
        '[collect]\ninterval = 2\ndeadline = 0.7\nprocesses = true\n[web]\nlisten-address = ["127.0.0.1:0"]\n'
    )
    from dtk_exporter.options import load

    config = load({"config.file": str(file), "collect.interval": 4.0}, {"DTK_SMI_EXPORTER_COLLECT_DEADLINE": "0.3"})
    assert (config.collect_interval, config.collect_deadline, config.collect_processes) == (4.0, 0.3, True)
    assert config.web_listen_address == ("127.0.0.1:0",)
    assert "dtk_process_info" in once(machine("mi210"), "--config.file", str(file)).stdout
    assert "dtk_process_info" in once(machine("mi210"), DTK_SMI_EXPORTER_COLLECT_PROCESSES="true").stdout


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["--collect.interval", "0"], {}, "--collect.interval"),
        (["--collect.interval", "nan"], {}, "--collect.interval"),
        (["--web.listen-address", "nonsense"], {}, "nonsense"),
        (["--web.listen-address", "127.0.0.1:99999"], {}, "99999"),
        (["--compat", "nvidia"], {}, "--compat"),
        (["--collect.processes-max", "-1"], {}, "processes-max"),
        (["--nonsense"], {}, "--nonsense"),
        (["--demo"], {}, "--demo"),
        ([], {"DTK_SMI_EXPORTER_COLLECT_INTERVAL": "soon"}, "DTK_SMI_EXPORTER_COLLECT_INTERVAL"),
        ([], {"DTK_SMI_EXPORTER_COLECT_INTERVAL": "1"}, "DTK_SMI_EXPORTER_COLECT_INTERVAL"),
        (["--config.file", "/nonexistent.toml"], {}, "/nonexistent.toml"),
        (["--web.config.file", "/nonexistent.yml"], {}, "/nonexistent.yml"),
    ],
)
def test_bad_options(machine: Get, arguments: list[str], variables: dict[str, str], words: str) -> None:
    command = [COMMAND, "--root", str(machine("mi210")), "--web.listen-address", "127.0.0.1:0", *arguments]
    done = subprocess.run(
        command, env=environment(**variables), capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not re.search("no TOML|not YAML", done.stderr)  # what is not there is neither


BAD_TOML = ("[collect\n", "[collect]\nintervall = 1\n", "[collect]\ninterval = -1\n", "\xff\0")
DEEP_TOML = ("a=" + "[" * 99999, "a=" + "9" * 5000)  # what its parser gives up on


@pytest.mark.parametrize("content", [*BAD_TOML, *DEEP_TOML], ids=lambda content: content[:20])
def test_bad_file(machine: Get, tmp_path: Path, content: str) -> None:
    file = tmp_path / "exporter.toml"
    file.write_bytes(content.encode("latin-1"))
    done = once(machine("mi210"), "--config.file", str(file))
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr


def test_no_machine(tmp_path: Path) -> None:
    done = once(tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr


def test_port_in_use(machine: Get) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(machine("mi210"), "--web.listen-address", f"127.0.0.1:{port}")
    assert done.returncode != 0
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


def test_reload(machine: Get, tmp_path: Path) -> None:
    file = tmp_path / "exporter.toml"
    file.write_text("[collect]\nprocesses = false\n")
    with exporting(machine("k100_ai-2s"), "--config.file", str(file)) as exporter:
        assert exporter.metrics().of("dtk_process_info") == {}
        file.write_text("[collect]\nprocesses = true\n")
        exporter.process.send_signal(signal.SIGHUP)
        exporter.until(lambda page: page.of("dtk_process_info"))
        file.write_text("nonsense")
        exporter.process.send_signal(signal.SIGHUP)
        page = exporter.until(lambda page: page.one("dtk_exporter_config_last_reload_successful") == 0)
        assert page.of("dtk_process_info")
        assert any(str(file) in line for line in exporter.log)
        file.write_text("compat = 'dcu'\n")
        exporter.process.send_signal(signal.SIGHUP)
        exporter.until(lambda page: page.one("dtk_exporter_config_last_reload_successful") == 1)
        assert exporter.get("/metrics/compat").status == 200
    assert exporter.process.returncode == 0


def test_reload_with_a_bad_web_configuration(machine: Get, tmp_path: Path) -> None:
    file = tmp_path / "web.config.yml"
    file.write_text("http_server_config: {http2: false}\n")
    with exporting(machine("apu"), "--web.config.file", str(file)) as exporter:
        file.write_text("basic_auth_users: {prometheus: secret}\n")
        exporter.process.send_signal(signal.SIGHUP)
        exporter.until(lambda page: page.one("dtk_exporter_config_last_reload_successful") == 0)
        assert any("bcrypt" in line for line in exporter.log)
    done = once(machine("apu"), "--web.config.file", str(file))
    assert done.returncode == 2
    assert "bcrypt" in done.stderr


def test_reload_turns_tls_on_and_off(machine: Get, tmp_path: Path, authority: Authority) -> None:
    file, pair = tmp_path / "web.config.yml", authority.server()
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    file.write_text("http_server_config: {http2: false}\n")
    with exporting(machine("apu"), "--web.config.file", str(file), "--web.listen-address", free_address()) as exporter:
        file.write_text(f"tls_server_config: {{cert_file: {pair.certificate}, key_file: {pair.key}}}\n")
        exporter.process.send_signal(signal.SIGHUP)
        wait_for_log(exporter, "configuration was read again", 1)
        assert exporter.get("/metrics", tls=trust).status == 200
        file.write_text("http_server_config: {http2: false}\n")
        exporter.process.send_signal(signal.SIGHUP)
        wait_for_log(exporter, "configuration was read again", 2)
        assert exporter.get("/metrics").status == 200


def test_paths_of_a_file_are_relative_to_it(machine: Get, tmp_path: Path) -> None:
    (tmp_path / "web.config.yml").write_text("nonsense: 1\n")
    (tmp_path / "exporter.toml").write_text('web.config.file = "web.config.yml"\n')
    done = once(machine("apu"), "--config.file", str(tmp_path / "exporter.toml"))
    assert done.returncode == 2
    assert str(tmp_path / "web.config.yml") in done.stderr


def test_log_says_what_was_found(machine: Get) -> None:
    with exporting(machine("mi210")) as exporter:
        wait_for_log(exporter, f"version {dtk.__version__}, 8 AMD Instinct MI210, driver amdgpu", 1)


def test_demo_says_that_it_is_simulated() -> None:
    with Exporter("--demo") as exporter:
        exporter.until(lambda page: len(page.of("dtk_device_up")) == 8)
        assert exporter.metrics().one("dtk_exporter_simulated") == 1
        assert "SIMULATED" in exporter.get("/").text
        assert any("SIMULATED" in line for line in exporter.log)


# ---- its life ----


def test_reload_keeps_lost_cards_and_counts(tmp_path: Path) -> None:
    root, file = tmp_path / "node", tmp_path / "exporter.toml"
    node = sim.Simulator(root, sim.assemble(["mi210:2"], 1))
    lost = dtk.take_snapshot(root).devices[0].uuid
    file.write_text("[collect]\nprocesses-max = 5\n")
    with exporting(root, "--config.file", str(file)) as exporter:
        sim.set_faults(root, ["lost=0"])
        node.advance()
        before = exporter.until(lambda page: page.one("dtk_device_up", uuid=lost) == 0)
        file.write_text("[collect]\nbackend = 'kernel'\n")
        exporter.process.send_signal(signal.SIGHUP)
        wait_for_log(exporter, "the configuration was read again", 1)
        snapshots = before.one("dtk_exporter_snapshots_total") or 0
        page = exporter.until(lambda page: (page.one("dtk_exporter_snapshots_total") or 0) > snapshots)
        page = exporter.until(lambda page: page.of("dtk_device_state", uuid=lost))
        assert page.one("dtk_device_state", uuid=lost, state="lost") == 1
        assert page.one("dtk_device_events_total", uuid=lost, type="lost") == 1


def test_refused_reload_changes_nothing_and_a_good_one_mends_it(machine: Get, tmp_path: Path) -> None:
    file, web, first, second = tmp_path / "exporter.toml", tmp_path / "web.yml", free_address(), free_address()
    good = f'web.config.file = "{web}"\nweb.listen-address = '
    web.write_text("http_server_config: {http2: false}\n")
    file.write_text(f'{good}"{first}"\n')
    with Exporter("--config.file", str(file), root=machine("apu"), listen="") as exporter:
        assert exporter.address == first

        def reload(words: str, times: int) -> None:
            exporter.process.send_signal(signal.SIGHUP)
            wait_for_log(exporter, words, times)

        web.write_text("nonsense: 1\n")
        file.write_text(f'{good}"{second}"\n')
        reload("the old configuration stays", 1)
        assert exporter.get("/-/healthy").status == 200
        web.write_text("http_server_config: {http2: false}\n")
        file.write_text(f'{good}"{second}"\ncollect.backend = "rsmi"\n')
        reload("the old configuration stays", 2)
        assert exporter.get("/-/healthy").status == 200
        file.write_text(f'{good}"{second}"\n')
        reload("the configuration was read again", 1)
        with pytest.raises(ConnectionRefusedError):
            exporter.get("/-/healthy")
        exporter.listens_at(second)
        assert exporter.get("/-/healthy").status == 200


def test_silent_clients_keep_nobody_waiting(machine: Get, tmp_path: Path, authority: Authority) -> None:
    web, pair = tmp_path / "web.config.yml", authority.server()
    web.write_text(f"tls_server_config: {{cert_file: {pair.certificate}, key_file: {pair.key}}}\n")
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    options = ["--web.config.file", str(web), "--collect.interval", "0.2"]
    with contextlib.ExitStack() as stack:
        exporter = stack.enter_context(Exporter(*options, root=machine("mi210"), tls=trust))
        before = exporter.until(lambda page: page.one("dtk_exporter_snapshots_total"))
        threads = psutil.Process(exporter.process.pid).num_threads()
        for number in range(200):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", exporter.port)))
            if number % 2:
                client.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # the beginning of a hello
        begin = time.monotonic()
        for _ in range(10):
            page = exporter.metrics()
        assert time.monotonic() - begin < 2
        exporter.until(lambda page: (page.one("dtk_exporter_snapshots_total") or 0) > 5)
        assert max(page.of("dtk_device_sample_age_seconds").values()) < 1
        assert psutil.Process(exporter.process.pid).num_threads() <= threads
        assert set(before.of("dtk_device_up").values()) == {1}


def test_it_ends_at_once_while_it_waits_for_a_first_look(mounted: Callable[[str], sim.Mounted]) -> None:
    node = mounted("mi210:2")
    node.set("hang=proc/*", "hang=sys/class/kfd/*", "hang=sys/devices/virtual/kfd/*")
    with Exporter("--collect.deadline", "20", root=node.root) as exporter:
        assert exporter.get("/-/ready").status == 503
        begin = time.monotonic()
        assert exporter.stop() == 0
        assert time.monotonic() - begin < 1
    node.clear()


@pytest.mark.parametrize("where", ["/dev/full", "closed"])
def test_a_page_that_cannot_be_written(machine: Get, where: str) -> None:
    end = ">&-" if where == "closed" else f"> {where}"
    command = ["sh", "-c", f'"$0" --once --root "$1" {end}', COMMAND, str(machine("apu"))]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert "cannot write the page" in done.stderr
    assert "Traceback" not in done.stderr
