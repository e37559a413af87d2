"""``x_delivery``: how functions want to be delivered (spec: hog-runtime 11, hog-functions-api 23)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.functions.conftest import Api

FULL = {
    "retry": {"attempts": 10, "base_ms": 500, "max_ms": 60_000, "max_age_s": 86_400},
    "order_key": "{person.id}",
    "rate_limit": {"per_s": 2.5},
}


def versions(api: Api, function: dict[str, Any]) -> list[int]:
    page = api.get(f"/hog_functions/{function['id']}/revisions/").json()["results"]
    return [each["version"] for each in page]


def test_it_is_stored_as_sent_and_shown_when_it_is_set(api: Api) -> None:
    plain = api.create()
    assert "x_delivery" not in plain
    function = api.create(x_delivery=FULL)
    assert function["x_delivery"] == FULL
    assert api.get(f"/hog_functions/{function['id']}/").json()["x_delivery"] == FULL
    partial = api.change(function, x_delivery={"rate_limit": {"per_s": 7}})
    assert partial["x_delivery"] == {"rate_limit": {"per_s": 7}}
    assert api.change(function, name="Other")["x_delivery"] == {"rate_limit": {"per_s": 7}}
    for nothing in (None, {}, {"retry": None}):
        api.change(function, x_delivery={"rate_limit": {"per_s": 7}})
        assert "x_delivery" not in api.change(function, x_delivery=nothing)


def test_batches_are_stored_as_sent(api: Api) -> None:
    for batch in ({"max_events": 2}, {"max_events": 1_000, "max_wait_ms": 60_000}):
        assert api.create(x_delivery={"batch": batch})["x_delivery"] == {"batch": batch}


def test_lists_do_not_show_it(api: Api) -> None:
    api.create(x_delivery=FULL)
    [item] = api.get("/hog_functions/").json()["results"]
    assert "x_delivery" not in item


def test_changes_are_versions_that_can_be_gone_back_to(api: Api) -> None:
    function = api.create()
    limited = api.change(function, x_delivery={"rate_limit": {"per_s": 1}})
    assert limited["version"] == function["version"] + 1
    other = api.change(function, x_delivery={"rate_limit": {"per_s": 2}})
    path = f"/hog_functions/{function['id']}/revisions/{limited['version']}"
    [change] = api.get(f"{path}/diff/").json()["changes"]
    assert (change["field"], change["before"], change["after"]) == (
        "x_delivery", {"rate_limit": {"per_s": 1}}, {"rate_limit": {"per_s": 2}},
    )  # fmt: skip
    back = api.post(f"{path}/rollback/", {}).json()
    assert (back["version"], back["x_delivery"]) == (other["version"] + 1, {"rate_limit": {"per_s": 1}})
    first = api.post(f"/hog_functions/{function['id']}/revisions/{function['version']}/rollback/", {}).json()
    assert "x_delivery" not in first


@pytest.mark.parametrize(
    ("sent", "attr", "code"),
    [
        ("fast", "x_delivery", "not_a_dict"),
        ({"retry": {"attempts": 0}}, "x_delivery__retry__attempts", "min_value"),
        ({"retry": {"attempts": 51}}, "x_delivery__retry__attempts", "max_value"),
        ({"retry": {"base_ms": "soon"}}, "x_delivery__retry__base_ms", "invalid_input"),
        ({"retry": {"max_ms": 86_400_001}}, "x_delivery__retry__max_ms", "max_value"),
        ({"retry": {"max_age_s": 0}}, "x_delivery__retry__max_age_s", "min_value"),
        ({"retry": {"base_ms": 500, "max_ms": 100}}, "x_delivery__retry__max_ms", "invalid_input"),
        ({"rate_limit": {"per_s": 0}}, "x_delivery__rate_limit__per_s", "min_value"),
        ({"rate_limit": {"per_s": 10_001}}, "x_delivery__rate_limit__per_s", "max_value"),
        ({"rate_limit": {}}, "x_delivery__rate_limit__per_s", "required"),
        ({"batch": {}}, "x_delivery__batch__max_events", "required"),
        ({"batch": {"max_events": 1}}, "x_delivery__batch__max_events", "min_value"),
        ({"batch": {"max_events": 1_001}}, "x_delivery__batch__max_events", "max_value"),
        ({"batch": {"max_events": 2, "max_wait_ms": 60_001}}, "x_delivery__batch__max_wait_ms", "max_value"),
        ({"batch": {"max_events": 2}, "order_key": "x"}, "x_delivery__order_key", "invalid_input"),
        ({"order_key": "{person.id"}, "x_delivery__order_key", "invalid_input"),
        ({"order_key": "{fetch('x')}"}, "x_delivery__order_key", "invalid_input"),
        ({"order_key": 5 * ["x"]}, "x_delivery__order_key", "invalid_input"),
        ({"order_key": "x" * 2_001}, "x_delivery__order_key", "max_length"),
    ],
)
def test_what_makes_no_sense_is_refused(api: Api, sent: Any, attr: str, code: str) -> None:
    error = api.refused(x_delivery=sent)
    assert (error["type"], error["attr"], error["code"]) == ("validation_error", attr, code)


@pytest.mark.parametrize("kind", ["transformation", "source_webhook", "site_app"])
def test_only_destinations_are_delivered(api: Api, kind: str) -> None:
    hog = "export function onLoad() {}" if kind == "site_app" else "return event"
    error = api.refused(type=kind, hog=hog, x_delivery={"rate_limit": {"per_s": 1}})
    assert (error["attr"], error["detail"]) == (
        "x_delivery", "Delivery options are only allowed for destinations.",
    )  # fmt: skip
