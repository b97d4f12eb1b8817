"""pytest plugin: with DTK_TEST_REQUIRE=1 a test skipped because it "needs ..." something counts as failed.

So a machine that lacks a compiler or strace still runs the other tests, and CI cannot pass without them.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def fail_if_required(report: Report) -> Report:
    if os.environ.get("DTK_TEST_REQUIRE") == "1" and report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if reason.startswith("Skipped: needs "):
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: {reason}, and DTK_TEST_REQUIRE=1 does not allow that"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return fail_if_required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return fail_if_required((yield))
