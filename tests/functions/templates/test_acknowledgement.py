"""What each template takes for an acknowledgement: every answer that its service does not give is a failure."""

from __future__ import annotations

from typing import Any

import pytest
from tests.delivery.conftest import House, prepared
from tests.functions.templates.cases import CASES, Case
from tests.functions.templates.receiver import Hosts
from tests.functions.templates.test_cases import (
    RUN_ID,
    geoip_database,
    hosts,
    house,
    mailbox,
)

from hoglab.delivery.trials.runs import TestRuns
from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.runtime.compile import compile_configuration

__all__ = ["geoip_database", "hosts", "house", "mailbox", "prepared"]  # fixtures

ANYTHING = {"make", "n8n", "webhook"}
"""Templates whose destination is the user's own, which may answer with anything."""
NOTHING = {
    "customerio",
    "discord",
    "hubspot-event",
    "intercom-event",
    "klaviyo-event",
    "linkedin-ads",
    "microsoft-teams",
    "salesforce-update",
}
"""Templates whose service acknowledges without a body, or may."""

PAGE = "<!doctype html><title>Sign in</title>"
ELSEWHERE = {"Location": "https://elsewhere.example/in?token=hidden"}
REFUSALS: list[dict[str, Any]] = [
    *({"status": status, "headers": ELSEWHERE} for status in (300, 301, 302, 303, 305, 307, 308)),
    {"status": 304},
    {"status": 307},
    *({"status": status, "body": PAGE} for status in (401, 404, 425, 429, 502, 520, 524, 529)),
]
ERRORS_INSIDE: list[dict[str, Any]] = [
    {"status": 200, "body": PAGE},
    *(
        {"status": 200, "body": body}
        for body in (
            {"success": False},
            {"error": "not now"},
            {"ok": False},
            {"code": 500},
            {"message": "no"},
            ["not now"],
            0,
            "no",
            {"meta": {"error": "unauthorized"}},
            {"data": None},
            {"status": 0},
        )
    ),
    {"status": 200, "body": {"error": "not now", "errors": ["not now"], "success": False, "status": "error"}},
]


def working() -> list[Case]:
    """Return of each template one case in which it delivers."""
    cases: dict[str, Case] = {}
    for case in CASES:
        if case.requests and "error" not in case.given:
            cases.setdefault(case.template.folder, case)
    return list(cases.values())


def errors_of(case: Case, house: House, hosts: Hosts, last: dict[str, Any]) -> list[str]:
    """Return the errors of a case whose last request gets another answer."""
    hosts.answer_with([*case.responses[:-1], last])
    configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
    function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    runs = TestRuns(house.delivery)
    answer = runs.run(house.project, function, case.globals, run_id=RUN_ID, mock=False).answer()
    assert not hosts.answers
    errors: list[str] = answer["errors"]
    return errors


def unacknowledged(folder: str) -> list[dict[str, Any]]:
    """Return answers that acknowledge nothing to a template."""
    answers = list(REFUSALS)
    if folder not in ANYTHING:
        answers += ERRORS_INSIDE
        if folder not in NOTHING:
            answers.append({"status": 204})
    return answers


@pytest.mark.parametrize("case", working(), ids=lambda case: case.template.folder)
def test_nothing_but_an_acknowledgement_counts_as_delivered(
    case: Case, house: House, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.lead_here(monkeypatch)
    for last in unacknowledged(case.template.folder):
        errors = errors_of(case, house, hosts, last)
        assert errors, last
        if "headers" in last and case.template.folder != "google-sheets":
            assert any("redirected to https://elsewhere.example/in" in text for text in errors), last
            assert not any("hidden" in text for text in errors)


def test_the_templates_without_a_body_are_templates() -> None:
    assert {case.template.folder for case in working()} >= ANYTHING | NOTHING


NO_LOGIN: list[dict[str, Any]] = [
    {"status": 200, "body": PAGE},
    {"status": 200, "body": {"error": "invalid_grant"}},
    {"status": 204},
    {"status": 401, "body": {"error": "invalid_client"}},
]
"""Answers to a request for a log-in that hold no token."""


@pytest.mark.parametrize("folder", ["google-ads", "google-pubsub", "salesforce-create", "salesforce-update"])
def test_nothing_is_sent_without_a_log_in(
    folder: str, house: House, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.lead_here(monkeypatch)
    case = next(case for case in working() if case.template.folder == folder)
    for answer in NO_LOGIN:
        hosts.answer_with([answer])
        configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
        function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
        runs = TestRuns(house.delivery)
        result = runs.run(house.project, function, case.globals, run_id=RUN_ID, mock=False).answer()
        assert any("refused to log in" in text for text in result["errors"]), answer


LATER = [
    ("tiktok-ads", {"status": 200, "body": {"code": 40100}}),
    ("tiktok-ads", {"status": 200, "body": {"code": 51000}}),
    ("slack", {"status": 200, "body": {"ok": False, "error": "ratelimited"}}),
    (
        "microsoft-teams",
        {"status": 200, "body": "failed with error: Microsoft Teams endpoint returned HTTP error 429"},
    ),
    ("meta-ads", {"status": 400, "body": {"error": {"code": 80004}}}),
    ("meta-ads", {"status": 400, "body": {"error": {"code": 2, "is_transient": True}}}),
    ("aws-kinesis", {"status": 400, "body": {"__type": "ProvisionedThroughputExceededException"}}),
    ("aws-kinesis", {"status": 400, "body": {"__type": "com.amazonaws#ThrottlingException"}}),
    ("salesforce-create", {"status": 403, "body": [{"errorCode": "REQUEST_LIMIT_EXCEEDED"}]}),
    ("salesforce-update", {"status": 400, "body": [{"errorCode": "UNABLE_TO_LOCK_ROW"}]}),
    ("github", {"status": 403, "body": {"message": "You have exceeded a secondary rate limit"}}),
    ("linear", {"status": 400, "body": {"errors": [{"extensions": {"code": "RATELIMITED"}}]}}),
]
"""Answers with which a service asks to come again, without a status that says so."""


@pytest.mark.parametrize(("folder", "last"), LATER, ids=lambda value: value if isinstance(value, str) else "")
def test_a_service_that_is_busy_is_asked_again(
    folder: str, last: dict[str, Any], house: House, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.lead_here(monkeypatch)
    case = next(case for case in working() if case.template.folder == folder)
    assert "RetryError(" in errors_of(case, house, hosts, last)[-1]
