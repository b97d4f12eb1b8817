"""The rules for Prometheus: promtool passes them and their tests, and they keep to the families and to the runbook."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtk import events, throttle
from dtk_cli.front import COMMANDS, load
from dtk_cli.names import find
from dtk_cli.query import split_fields
from dtk_exporter import families

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "exporter" / "alerts"
RULES = FOLDER / "dtk.rules.yml"
TESTS = sorted(FOLDER.glob("*.test.yml"))
RUNBOOK = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")

GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALL = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in ALL if "alert" in rule}
RECORDS = {rule["record"] for rule in ALL if "record" in rule}

SELECTOR = re.compile(r"(?<![\w:])(up|dtk_\w+|[a-z]+(?:_[a-z]+)*:[\w:]+)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("[^"]*"|%q)')
TARGET = {"job", "instance", "rack"}  # labels that Prometheus puts
VALUES = {
    "dtk_device_state": set(families.STATES),
    "dtk_device_events_total": set(events.KINDS),
    "dtk_device_throttle_seconds_total": set(throttle.REASONS),
    "dtk_collect_errors_total": set(families.SOURCES),
} | {
    name: {str(column.label_value) for column in families.CATALOGUE if column.family.name == name}
    for name in {column.family.name for column in families.CATALOGUE if column.label_value}
}


def promtool(*arguments: str | Path) -> str:
    if not shutil.which("promtool"):
        pytest.skip("needs promtool, of the package prometheus")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def selectors(text: str) -> list[tuple[str, dict[str, str]]]:
    """Names and matchers of the series that an expression, or a template, asks for."""
    return [
        (found[1], {label: value.strip('"') for label, _, value in MATCHER.findall(found[2] or "")})
        for found in SELECTOR.finditer(text)
    ]


def cases() -> list[dict[str, Any]]:
    """Every case of an alert in the tests for promtool."""
    tests = [test for path in TESTS for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]]
    return [case for test in tests for case in test.get("alert_rule_test", ())]


def test_promtool_finds_nothing_to_say() -> None:
    output = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert re.fullmatch(rf"Checking .*\n\s+SUCCESS: {len(ALL)} rules found\n\s*", output)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_rules_do_what_their_tests_say(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", path)


@pytest.mark.parametrize("name", ALERTS)
def test_alert_has_a_case_in_which_it_fires_and_an_innocent_one(name: str) -> None:
    fires = [bool(case.get("exp_alerts")) for case in cases() if case["alertname"] == name]
    assert set(fires) == {True, False}


def test_cases_are_of_alerts_that_there_are() -> None:
    assert {case["alertname"] for case in cases()} == set(ALERTS)


def check_series(name: str, labels: dict[str, str]) -> None:
    """A series is one that the exporter serves: its name, its labels, and the values of those that are fixed."""
    if name == "up" or name in RECORDS:
        return
    assert name in families.NAMES
    own = {label.removeprefix("exported_"): value for label, value in labels.items() if label not in TARGET}
    assert own.keys() <= {*families.BY_NAME[name].labels}, name
    for label in {label for label in own if label != "uuid" and own[label] != "%q"}:  # %q: the alert's own
        assert name not in VALUES or {*own[label].split("|")} <= VALUES[name], f"{name} {label}"


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.get("alert") or rule["record"])
def test_rule_asks_for_what_the_exporter_serves(rule: dict[str, Any]) -> None:
    found = selectors(rule["expr"])
    assert found
    for text in rule.get("annotations", {}).values():
        found += [selector for query in re.findall(r'printf "(.*?)"', text) for selector in selectors(query)]
    for name, labels in found:
        check_series(name, labels)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_tests_feed_what_the_exporter_serves(path: Path) -> None:
    for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
        for series in test["input_series"]:
            (found,) = selectors(series["series"])
            check_series(*found)


def test_every_record_is_of_some_use() -> None:
    used = {name for rule in ALL for name, _ in selectors(rule["expr"])}
    assert used >= RECORDS


@pytest.mark.parametrize("name", ALERTS)
def test_alert_says_enough_to_act(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    texts = rule["annotations"]
    assert texts["runbook"] == f"docs/alerts.md#{name.lower()}"
    assert texts["summary"]
    assert texts["description"].endswith((".", "}"))
    if "uuid" in texts["summary"]:
        assert "group_left (model, pci_address) instance_uuid:dtk_device_info:group" in rule["expr"]
        assert texts["device"]


def test_runbook_has_every_alert_and_no_other() -> None:
    headings = re.findall(r"^### (\w+)$", RUNBOOK, re.M)
    assert headings == list(dict.fromkeys(headings))
    assert set(headings) == set(ALERTS)
    for section in re.split(r"^### ", RUNBOOK, flags=re.M)[1:]:
        words = re.findall(r"^\*\*(\w+)[.*]", section, re.M)
        assert words == ["Means", "Confirm", "Do", "Harmless"], section.splitlines()[0]


def test_runbook_names_commands_and_fields_that_there_are() -> None:
    commands = [shlex.split(text) for text in re.findall(r"`(?:sudo )?dtk-smi ?([^`]*)`", RUNBOOK)]
    assert len(commands) > 20
    for words in commands:
        name = words[0] if words and words[0] in COMMANDS else None
        args = load(name).build_parser().parse_args(words[1:] if name else words)
        if name == "query":
            assert find(split_fields(args.fields))


def test_runbook_names_options_of_the_exporter() -> None:
    from dtk_exporter.options import OPTIONS

    named = set(re.findall(r"`--([a-z]+\.[a-z-]+)", RUNBOOK))
    assert named
    assert named <= {option.name for option in OPTIONS}
