"""Pytest plugin: processor time of each test, the slowest at the end, and a limit for tests that are not `slow`.

Processor time is measured, for it does not depend on what else the machine does. It is that of the worker and of the
processes that it has waited for, in the set-up, the call and the tear-down of a test. A fixture that several tests
share counts for the first of them. Collections of the whole heap count for nobody: they look at what all tests left.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

SLOWEST = 20
"""Number of tests that the end of a run names."""
_USED = pytest.StashKey[float]()
_COLLECTED = pytest.StashKey[float]()


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


def _children_s() -> float:
    """Return the seconds of processor time of the children that this process has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


class _Collections:
    """Seconds of processor time that belong to no test; a callback of the collector.

    They are those of collections of the whole heap, and of processes that a test left behind: a collection that
    removes a `subprocess.Popen` waits for its process, in whichever test it happens to begin.
    """

    def __init__(self) -> None:
        self.used_s = 0.0
        self._began_s = self._children_s = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_s, self._children_s = time.thread_time(), _children_s()
            return
        self.used_s += _children_s() - self._children_s
        if info["generation"] == OLDEST_GENERATION:
            self.used_s += time.thread_time() - self._began_s


OLDEST_GENERATION = 2
_collections = _Collections()
gc.callbacks.append(_collections)


def used_s() -> float:
    """Return the seconds of processor time of this process and of the children that it has waited for."""
    return time.process_time() + _children_s() - _collections.used_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Note when a test begins. Time of processes that earlier tests left to be reaped is nobody's."""
    subprocess._cleanup()  # type: ignore[attr-defined]
    item.stash[_USED], item.stash[_COLLECTED] = used_s(), _collections.used_s
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Add the processor time to the last report of a test, and fail the test if it took too much."""
    report = yield
    if call.when != "teardown":
        return report
    taken_s = used_s() - item.stash[_USED]
    collected_s = _collections.used_s - item.stash[_COLLECTED]
    report.user_properties = [
        *report.user_properties, ("processor_s", taken_s), ("collected_s", collected_s)
    ]  # fmt: skip
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
    collected_s = 0.0
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "processor_s" and report.when == "teardown":
                    times_s[report.nodeid] = value
                elif name == "collected_s" and report.when == "teardown":
                    collected_s += value
    ranked = sorted(times_s.items(), key=lambda pair: -pair[1])
    if path := config.getoption("--processor-times"):
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.writelines(f"{value:.3f}\t{nodeid}\n" for nodeid, value in ranked)
    if len(ranked) > SLOWEST:
        terminalreporter.section(f"{SLOWEST} slowest tests, seconds of processor time")
        for nodeid, value in ranked[:SLOWEST]:
            terminalreporter.write_line(f"{value:8.2f}  {nodeid}")
        terminalreporter.write_line(f"{sum(times_s.values()):8.0f}  all {len(times_s)} tests")
        terminalreporter.write_line(
            f"{collected_s:8.0f}  collections of the whole heap, and processes that tests left behind"
        )
