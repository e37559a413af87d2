"""Pytest plugin: processor time of each test, the slowest at the end, and a limit for tests that are not `slow`.

Processor time is measured, for it does not depend on what else the machine does. It is that of the worker and of the
processes that it has waited for, in the set-up, the call and the tear-down of a test. A fixture that several tests
share counts for the first of them.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

SLOWEST = 20
"""Number of tests that the end of a run names."""
_BEGAN = pytest.StashKey["Reading"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of this plugin."""
    group = parser.getgroup("processor time")
    group.addoption(
        "--max-processor-s",
        type=float,
        default=None,
        help="Fail tests without the mark `slow` that take more seconds of processor time.",
    )
    group.addoption(
        "--processor-times",
        default=None,
        help="Write the processor time of every test to this file, a line each.",
    )


class Reading(NamedTuple):
    """A moment: seconds of processor time of this process and of children that it has waited for, and of the clock."""

    own_s: float
    children_s: float
    clock_s: float

    @staticmethod
    def now() -> Reading:
        """Return the present moment."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Reading(time.process_time(), children.ru_utime + children.ru_stime, time.monotonic())

    def used_s(self, until: Reading, processors: int = os.cpu_count() or 1) -> float:
        """Return the processor time that was used from this moment until another one.

        A process counts with all of its time when it is waited for, in whichever test that happens, so that one that
        earlier tests used is known by more time than all processors had meanwhile. No more than that counts.
        """
        most_s = (until.clock_s - self.clock_s) * processors
        return until.own_s - self.own_s + min(until.children_s - self.children_s, most_s)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Note when a test begins."""
    item.stash[_BEGAN] = Reading.now()
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add the processor time to the last report of a test, and fail the test if it took too much."""
    report = yield
    if call.when != "teardown":
        return report
    taken_s = item.stash[_BEGAN].used_s(Reading.now())
    report.user_properties = [*report.user_properties, ("processor_s", taken_s)]
    limit_s = item.config.getoption("--max-processor-s")
    if (
        limit_s is not None
        and taken_s > limit_s
        and item.get_closest_marker("slow") is None
        and report.passed
    ):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {taken_s:.1f} s of processor time; "
            f"without the mark `slow` it may take {limit_s:g} s"
        )
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the slowest tests, and write the times of all where a file was asked for."""
    times_s: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "processor_s" and report.when == "teardown":
                    times_s[report.nodeid] = value
    ranked = sorted(times_s.items(), key=lambda pair: -pair[1])
    if path := config.getoption("--processor-times"):
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.writelines(f"{value:.3f}\t{nodeid}\n" for nodeid, value in ranked)
    if len(ranked) > SLOWEST:
        terminalreporter.section(f"{SLOWEST} slowest tests, seconds of processor time")
        for nodeid, value in ranked[:SLOWEST]:
            terminalreporter.write_line(f"{value:8.2f}  {nodeid}")
        terminalreporter.write_line(f"{sum(times_s.values()):8.0f}  all {len(times_s)} tests")
