"""What others rely on: the catalogue never renumbers, and everything derived from it agrees with it."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dtk
from dtk._native import ffi, lib
from dtk.attributes import MetricAttributes

HERE = Path(__file__).parent
METRICS = dtk.metrics.all()
PYTHON_TYPES = {"f64": "float", "i64": "int", "u64": "int", "bits": "tuple[str, ...]"}
UNITS = {"%", "B", "C", "W", "J", "MHz", "mV", "GT/s", "rpm", "B/s", ""}


def names(metric: dtk.Metric) -> str:
    return metric.name


# ---- the catalogue ----


def test_released_metrics_never_change() -> None:
    released = [line.split() for line in (HERE / "data" / "released-metrics.txt").read_text().splitlines()]
    now = [[str(metric.number), metric.name, metric.type] for metric in METRICS]
    assert now[: len(released)] == released, "a released metric may not change; new rows go at the end of metrics.def"


def test_numbers_and_names_are_unique() -> None:
    assert [metric.number for metric in METRICS] == list(range(lib.DTK_METRIC_COUNT))
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    series = {(metric.family, metric.label, metric.label_value) for metric in METRICS}
    assert len(series) == len(METRICS), "two metrics would be one exporter series"


@pytest.mark.parametrize("metric", METRICS, ids=names)
def test_a_row_is_complete(metric: dtk.Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.family)
    assert metric.help.endswith(".")
    assert metric.unit in UNITS
    assert metric.type in PYTHON_TYPES
    assert metric.sources
    assert all(metric.sources)
    assert bool(metric.window) == (metric.tier != "static")
    assert bool(metric.label) == bool(metric.label_value)
    assert (metric.kind == "counter") == metric.family.endswith("_total")


def test_metrics_by_name() -> None:
    for metric in METRICS:
        assert dtk.metrics.get(metric.name) is metric
        assert lib.dtk_metric_find(metric.name.encode()) == metric.number
    assert lib.dtk_metric_find(b"nope") == -lib.DTK_NOT_FOUND
    assert lib.dtk_metric_describe(lib.DTK_METRIC_COUNT) == ffi.NULL
    with pytest.raises(KeyError, match="did you mean power_draw"):
        dtk.metrics.get("power_drw")


def test_throttle_bits_have_names() -> None:
    number = dtk.metrics.get("throttle_status").number
    bits = [lib.dtk_bit_name(number, bit) for bit in range(64)]
    known = [ffi.string(name).decode() for name in bits if name]
    assert len(set(known)) == len(known) > 20
    assert not any(name.startswith("bit_") for name in known)
    assert lib.dtk_bit_name(dtk.metrics.get("power_draw").number, 0) == ffi.NULL


# ---- what is derived from it ----


def test_generated_files_are_up_to_date() -> None:
    script = HERE.parent / "tools" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stub_and_class_have_an_attribute_for_each_metric() -> None:
    tree = ast.parse((HERE.parent / "dtk" / "attributes.pyi").read_text())
    (stub,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    properties = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert list(properties) == [metric.name for metric in METRICS]
    for metric in METRICS:
        returns = properties[metric.name].returns
        assert returns is not None
        assert ast.unparse(returns) == f"{PYTHON_TYPES[metric.type]} | None"
        assert metric.help in (ast.get_docstring(properties[metric.name]) or "")
        assert metric.help in getattr(MetricAttributes, metric.name).__doc__


def test_records_cover_the_catalogue() -> None:
    """Every metric but the voltages, which only a Sample has, is a field of a record."""
    source = inspect.getsource(dtk.Device)
    used = set(re.findall(r"sample\.(\w+)", source))
    missing = {metric.name for metric in METRICS if not metric.name.startswith("voltage_")} - used
    assert not missing


def test_public_names_are_there_and_documented() -> None:
    for name in dtk.__all__:
        thing = getattr(dtk, name)
        assert name == "__version__" or inspect.getdoc(thing), name


def test_version_is_the_distribution_s() -> None:
    assert dtk.__version__ == importlib.metadata.version("dtk-smi")


# ---- importing ----


def test_import_is_cheap() -> None:
    """No module that costs more than dtk itself, and nothing of the file system but the package."""
    code = "import sys; before = set(sys.modules); import dtk; print(*sorted(set(sys.modules) - before))"
    modules = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _with_path(code)], capture_output=True, text=True, check=True
    )
    heavy = {"typing", "dataclasses", "json", "re", "enum", "threading", "pathlib", "rich", "typer", "psutil", "cffi"}
    assert not heavy & set(modules.stdout.split())


def _with_path(code: str) -> str:
    return f"import sys; sys.path[:0] = {sys.path!r}; {code}"
