"""Pages as text: they are those of prometheus-client, whatever stood on the page before; bodies are made once."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from dtk_exporter.exposition import Bodies, Page, Writer, encode
from dtk_exporter.families import BY_NAME

FORMATS = ("", "application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0;escaping=allow-utf-8")
NAMES = (
    "dtk_device_up",
    "dtk_device_state",
    "dtk_device_events_total",
    "dtk_build_info",
    "dtk_exporter_snapshots_total",
)

Row = tuple[str, tuple[str, ...], float]


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Samples of some families, with label values as bad as a driver may write them."""
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        count = len(BY_NAME[name].labels)
        labels = st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=6)] * count)
        for one in draw(st.lists(labels, unique=True, max_size=4)):
            found.append((name, one, draw(st.floats() | st.integers(0, 2**64))))
    return found


def peer(found: list[Row], accept: str) -> bytes:
    """What prometheus-client writes of the same."""
    metrics = []
    for name, family in BY_NAME.items():
        samples = [
            Sample(name, dict(zip(family.labels, labels, strict=True)), value)
            for n, labels, value in found
            if n == name
        ]
        if samples:
            metric = Metric(name.removesuffix("_total"), family.help, family.type)
            metric.samples = samples
            metrics.append(metric)
    return encode(accept)[1](metrics)


@given(pages=st.lists(rows(), min_size=1, max_size=3))
@pytest.mark.parametrize("accept", FORMATS)
def test_a_page_is_what_prometheus_client_writes(accept: str, pages: list[list[Row]]) -> None:
    writer = Writer(encode(accept)[1])
    for found in pages:
        page = Page()
        for name, labels, value in found:
            page.put(name, value, *labels)
        assert writer.write(page) == peer(found, accept)


def test_what_has_no_value_is_not_there() -> None:
    page = Page()
    page.put("dtk_device_up", None, "GPU-1")
    assert Writer(encode("")[1]).write(page) == b""


def test_a_body_is_made_once_for_all_who_ask() -> None:
    bodies: Bodies[object] = Bodies()
    made: list[object] = []
    views = [object(), object()]

    def make() -> bytes:
        made.append(None)
        return b"x" * 1000

    def ask(view: object) -> None:
        assert bodies.get(view, ("metrics", "text"), make, False) == b"x" * 1000
        assert len(bodies.get(view, ("metrics", "text"), make, True)) < 100

    for view in views:
        threads = [threading.Thread(target=ask, args=(view,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(made) == 2
