"""The files that people install: they name options and files that exist, and ask for no more than is needed."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtk_exporter.options import OPTIONS, PREFIX, Config, build_parser, load

TOP = Path(__file__).parent.parent
DEPLOY = TOP / "exporter" / "deploy"
EXPORTER = Path(sys.executable).with_name("dtk-exporter")
FLAGS = {option.name for option in OPTIONS} | {"config.file"}
VARIABLES = {option.variable for option in OPTIONS} | {f"{PREFIX}CONFIG_FILE"}


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


# ---- options ----


@pytest.mark.parametrize("name", sorted(path.name for path in DEPLOY.iterdir()))
def test_options_exist(name: str) -> None:
    content = text(name)
    assert set(re.findall(r"(?<![\w-])--((?:web|collect|config|root|demo|compat)[\w.-]*)", content)) <= FLAGS
    assert set(re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", content)) <= VARIABLES


def test_example_file_says_the_defaults(tmp_path: Path) -> None:
    assert load({"config.file": str(DEPLOY / "dtk-exporter.toml")}, {}) == Config()
    everything = tmp_path / "all.toml"
    everything.write_text(re.sub(r"^#(?=[a-z])", "", text("dtk-exporter.toml"), flags=re.M), encoding="utf-8")
    config = load({"config.file": str(everything)}, {})
    given = {row.name for row in dataclasses.fields(Config) if row.default != getattr(config, row.name)}
    assert given == {"compat", "web_config_file", "collect_pod_resources", "collect_backend"}


def test_environment_file() -> None:
    lines = text("dtk-exporter.env").splitlines()
    assert all(not line or line.startswith("#") for line in lines), "it changes nothing as it comes"
    pairs = dict(line[1:].split("=", 1) for line in lines if line.startswith(f"#{PREFIX}"))
    del pairs[f"{PREFIX}CONFIG_FILE"]
    assert load({}, pairs) == Config(web_listen_address=(":9497",), collect_processes=True)


# ---- systemd ----


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the command that is installed here."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze (Debian's systemd)")
    path = tmp_path / "dtk-exporter.service"
    content = text("dtk-exporter.service")
    assert content.count("ExecStart=/usr/bin/dtk-exporter\n") == 1
    path.write_text(content.replace("/usr/bin/dtk-exporter", str(EXPORTER)), encoding="utf-8")
    return path


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text("dtk-exporter.service").splitlines():
        if "=" in line and line[0] not in "#[":
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def analyze(*arguments: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_unit_is_valid(unit: Path) -> None:
    assert analyze("verify", str(unit)) == ""


def test_unit_exposes_little(unit: Path) -> None:
    analyze("security", "--offline=yes", "--threshold=20", str(unit))  # of 100; a plain unit has 96


def test_unit_hides_nothing_that_is_read() -> None:
    found = settings()
    assert not found.keys() & {"PrivateDevices", "ProtectProc", "ProcSubset", "PrivateUsers", "PrivateNetwork"}
    assert found["DeviceAllow"] == ["char-drm rw"]
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


REFUSE_EXECUTABLE = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, as MemoryDenyWriteExecute= does
    print("needs Linux 6.3", end="")
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_exporter_needs_no_writable_code(machine: Callable[[str], Path]) -> None:
    command = [str(EXPORTER), "--once", "--root", str(machine("k100_ai-2s"))]
    done = subprocess.run(
        [sys.executable, "-c", REFUSE_EXECUTABLE, *command], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "dtk_device_up" in done.stdout


def sets_of_calls() -> dict[str, set[str]]:
    """systemd's sets of system calls, by name; a set in a set is given by its name."""
    sets: dict[str, set[str]] = {}
    for line in analyze("syscall-filter").splitlines():
        name = line.strip()
        if line.startswith("@"):
            current = sets.setdefault(name, set())
        elif sets and name and not name.startswith("#") and line.startswith(" "):
            current.add(name)
    return sets


def calls_of(name: str, sets: dict[str, set[str]]) -> Iterator[str]:
    for entry in sets.get(name, {name}):
        yield from calls_of(entry, sets) if entry in sets else [entry]


def test_exporter_calls_what_the_unit_allows(machine: Callable[[str], Path], tmp_path: Path) -> None:
    for need, package in (("strace", "strace"), ("systemd-analyze", "systemd")):
        if not shutil.which(need):
            pytest.skip(f"needs {need} (Debian's {package})")
    sets = sets_of_calls()
    allowed: set[str] = set()
    for value in settings()["SystemCallFilter"]:
        calls = {call for name in value.lstrip("~").split() for call in calls_of(name, sets)}
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    log = tmp_path / "calls"
    command = [str(EXPORTER), "--once", "--root", str(machine("k100_ai-2s"))]
    subprocess.run(["strace", "-f", "-qq", "-o", str(log), *command], capture_output=True, check=True, timeout=60)
    made = set(re.findall(r"^\d+ +(\w+)\(", log.read_text(errors="replace"), flags=re.M))
    assert len(made) > 20
    assert made <= allowed, f"not allowed: {made - allowed}"


# ---- containers ----


def test_dockerfile() -> None:
    lines = text("Dockerfile").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if re.match(r"[A-Z]+ ", line)]
    sources = [word for step, rest in steps if step == "COPY" for word in rest.split()[:-1]]
    ignored = text("Dockerfile.dockerignore").splitlines()
    for source in sources:
        assert (TOP / source).exists(), source
        assert f"!{source}" in ignored, source
    last = dict(steps[len(steps) - [step for step, _ in reversed(steps)].index("FROM") :])
    assert last["USER"] == "65534:65534"
    assert last["ENTRYPOINT"] == '["dtk-exporter"]'
    assert last["EXPOSE"] == "9497"
    assert last["ENV"].endswith("=:9497")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all(text(name)))


def test_daemonset() -> None:
    namespace, daemonset = documents("daemonset.yaml")
    assert (namespace["kind"], daemonset["kind"], daemonset["apiVersion"]) == ("Namespace", "DaemonSet", "apps/v1")
    assert daemonset["metadata"]["namespace"] == namespace["metadata"]["name"]
    spec, template = daemonset["spec"], daemonset["spec"]["template"]
    assert spec["selector"]["matchLabels"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"]) == "9497"
    build_parser().parse_args(container["args"])
    for probe, path in (("livenessProbe", "/-/healthy"), ("readinessProbe", "/-/ready")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in template["spec"]["volumes"]}
    assert all(mount["readOnly"] for mount in mounts.values())
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert template["spec"]["automountServiceAccountToken"] is False


def test_podmonitor_finds_the_daemonset() -> None:
    _, daemonset = documents("daemonset.yaml")
    (monitor,) = documents("podmonitor.yaml")
    assert monitor["metadata"]["namespace"] == daemonset["metadata"]["namespace"]
    assert monitor["spec"]["selector"] == daemonset["spec"]["selector"]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]] == [container["ports"][0]["name"]]
