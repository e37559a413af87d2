"""The test cases of functions: an event, and the expected outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hoglab.delivery.trials.runs import MissingEventError, TestRuns, TrialReport
from hoglab.functions.runtime import compile_configuration
from hoglab.functions.service import TestFailure
from hoglab.hog import HogSourceError

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration import Configuration
    from hoglab.http.identity import Project


class TestCases:
    """Runs the test cases of a configuration, as `TestRuns` runs it, without a single real request."""

    __test__ = False  # the name is the domain's, and no test class

    def __init__(self, delivery: Delivery) -> None:
        self._runs = TestRuns(delivery)

    def __call__(
        self, project: Project, configuration: Configuration, context: FilterContext
    ) -> TestFailure | None:
        """Return the first case that fails, None when all pass."""
        try:
            function = compile_configuration(
                configuration,
                context,
                function_id=str(uuid4()),
                project_id=project.id,
                limits=self._runs.limits,
            )
        except HogSourceError as error:
            return TestFailure(0, error.message, TrialReport().answer())
        for index, case in enumerate(configuration.x_tests):
            try:
                globals_ = self._runs.globals_of(project, case["globals"], None)
            except MissingEventError:
                return TestFailure(index, "its globals have no event", TrialReport().answer())
            report = self._runs.run(
                project,
                function,
                globals_,
                run_id=str(uuid4()),
                mock=True,
                responses=case.get("responses", ()),
            )
            wrong = _difference(case.get("expect", {}), report)
            if wrong is not None:
                return TestFailure(index, wrong, report.answer())
        return None


def _difference(expected: Mapping[str, Any], report: TrialReport) -> str | None:
    """Return the first difference from the expected outcome."""
    answer = report.answer()
    status = expected.get("status", "success")
    if answer["status"] != status:
        return f"the status is {answer['status']}, not {status}"
    if "result" in expected and not _same(report.result, expected["result"]):
        return "the result is another"
    requests = expected.get("requests")
    if requests is not None:
        if len(requests) != len(report.requests):
            return f"{len(report.requests)} requests were made, not {len(requests)}"
        for at, (wanted, sent) in enumerate(zip(requests, report.requests, strict=True)):
            for part, value in wanted.items():
                if not _fits(part, value, sent[part]):
                    return f"the {part} of request {at + 1} is another"
    for text in expected.get("logs") or ():
        if not any(text in line["message"] for line in report.logs):
            return f"nothing was logged that holds '{text}'"
    return None


def _fits(part: str, wanted: Any, actual: Any) -> bool:
    if wanted is None:
        return True
    if part == "headers":
        lower = (
            {str(name).lower(): value for name, value in actual.items()}
            if isinstance(actual, Mapping)
            else {}
        )
        return all(_same(lower.get(name.lower()), value) for name, value in wanted.items())
    return _same(actual, wanted)


def _same(actual: Any, wanted: Any) -> bool:
    """Return whether two JSON values are the same: 1 and 1.0 are, 1 and true are not."""
    if isinstance(actual, bool) or isinstance(wanted, bool):
        return actual is wanted
    if isinstance(actual, Mapping) and isinstance(wanted, Mapping):
        return actual.keys() == wanted.keys() and all(_same(actual[name], wanted[name]) for name in actual)
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(_same, actual, wanted))
    return bool(actual == wanted)
