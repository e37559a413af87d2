"""Filters as the API takes, keeps and compiles them (spec: hog-functions-api 6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.accounts.service import AccountService

ALWAYS = ["_H", 1, 29]


def kept(api: Api, filters: Any, **body: Any) -> dict[str, Any]:
    made = api.create(filters=filters, **body)
    filters = dict(made["filters"])
    filters.pop("bytecode")
    return filters


@pytest.mark.parametrize("filters", [None, {}])
def test_no_filters(api: Api, filters: Any) -> None:
    assert api.create(filters=filters)["filters"] == {"source": "events", "bytecode": ALWAYS}


@rule("F6.3", "F1.11")
def test_everything_known_is_echoed_and_the_rest_dropped(api: Api) -> None:
    filters = {
        "source": "events",
        "events": [{"id": None, "name": "All", "type": "events", "order": 0, "extra": {"a": [1.0]}}],
        "actions": [],
        "properties": [{"key": "a", "value": "b", "operator": "exact", "type": "event", "label": None}],
        "filter_test_accounts": False,
    }
    sent = {**filters, "unknown": 1, "bytecode": [1], "bytecode_error": "x"}
    assert kept(api, sent) == filters


@rule("F6.4")
def test_sources_drop_what_they_do_not_know(api: Api) -> None:
    everything: dict[str, Any] = {
        "events": [{"id": "a"}],
        "actions": [],
        "properties": [{"key": "a", "value": "b"}],
        "data_warehouse": [{"table_name": "t"}, {"table_name": "Select a table"}],
    }
    assert sorted(kept(api, {**everything, "source": "events"})) == [
        "actions",
        "events",
        "properties",
        "source",
    ]
    assert sorted(kept(api, {**everything, "source": "person-updates"})) == ["properties", "source"]
    table = kept(api, {**everything, "source": "data-warehouse-table"})
    assert sorted(table) == ["data_warehouse", "properties", "source"]
    assert table["data_warehouse"] == [{"table_name": "t"}]


@rule("F6.5")
def test_a_view_must_be_chosen_before_enabling(api: Api) -> None:
    filters = {"source": "data-warehouse-view", "data_warehouse": [{"table_name": "Select a table"}]}
    error = api.refused(filters=filters, enabled=True)
    assert (error["attr"], error["detail"]) == ("filters", "Select the materialized view to trigger on.")
    assert kept(api, filters)["data_warehouse"] == []


@rule("F6.6")
def test_sources_of_internal_destinations(api: Api) -> None:
    assert kept(api, {}, type="internal_destination") == {"source": "internal-events"}
    assert kept(api, {"source": "events"}, type="internal_destination") == {"source": "events"}


@rule("F6.7")
def test_test_accounts_come_first(api: Api, accounts: AccountService) -> None:
    accounts.update_project(
        1,
        {
            "test_account_filters": [
                {"key": "email", "type": "person", "operator": "not_icontains", "value": "@posthog.com"}
            ]
        },
    )
    filters = {"events": [{"id": "$pageview", "type": "events"}], "filter_test_accounts": True}
    assert api.create(filters=filters)["filters"]["bytecode"] == [
        "_H", 1, 32, "%@posthog.com%", 32, "email", 32, "properties", 32, "person", 1, 3, 2, "toString", 1, 20,
        32, "$pageview", 32, "event", 1, 1, 11, 3, 2,
    ]  # fmt: skip


BROKEN: list[tuple[dict[str, Any], str]] = [
    (
        {"key": "(select 1)", "type": "hogql"},
        "properties[0]: Select queries are not allowed in filters",
    ),
    (
        {"key": "nope(1)", "type": "hogql"},
        "properties[0]: Filter compilation errors: Hog function `nope` is not implemented",
    ),
    ({"key": "session.x = 1", "type": "hogql"}, "properties[0]: Global variable not found: session.x"),
    (
        {"key": "a", "type": "session", "value": 5},
        "properties[0]: Filters of type session are not supported in real-time filters",
    ),
    (
        {"key": "a", "operator": "regex", "value": "("},
        "properties[0].value: Invalid regular expression: missing ): (",
    ),
    ({"key": "a", "operator": "gte", "value": "abc"}, "properties[0].value: must be a number"),
    (
        {"key": "a", "operator": "icontains_multi", "value": []},
        "properties[0].value: must be at least one text",
    ),
    (
        {"key": "a", "operator": "nonsense", "value": "x"},
        "properties[0]: Operator nonsense is not supported in filters",
    ),
]


@rule("F6.8")
@pytest.mark.parametrize(("leaf", "message"), BROKEN)
def test_filters_that_do_not_compile(api: Api, leaf: dict[str, Any], message: str) -> None:
    filters = {"properties": [leaf]}
    error = api.refused(filters=filters, enabled=True)
    assert (error["attr"], error["code"]) == ("filters__non_field_errors", "invalid_input")
    assert error["detail"] == f"Invalid filter configuration: {message}"
    stored = api.create(filters=filters)
    assert stored["filters"] == {"source": "events", **filters, "bytecode": None, "bytecode_error": message}
    assert api.change_refused(stored, enabled=True)["detail"] == error["detail"]
    assert api.change(stored, name="still possible while disabled")["name"]
    mended = api.change(stored, enabled=True, filters={})
    assert mended["filters"] == {"source": "events", "bytecode": ALWAYS}


@rule("F4.11", "F6.8")
def test_a_function_whose_filters_broke_can_be_disabled_and_deleted(
    api: Api, accounts: AccountService
) -> None:
    made = api.create(enabled=True, filters={"filter_test_accounts": True})
    accounts.update_project(1, {"test_account_filters": [{"key": "id", "type": "cohort", "value": 9}]})
    error = api.change_refused(made, name="x")
    assert error["detail"].startswith(
        "Invalid filter configuration: Your internal/test user filters include cohorts that can't be used in "
        "real-time filters: cohort 9 does not exist"
    )
    assert api.change(made, enabled=False)["filters"]["bytecode"] is None
    assert api.change(made, deleted=True, enabled=True)["deleted"] is True


@rule("F8.4")
def test_mappings_take_over_the_events(api: Api) -> None:
    filters = {
        "events": [{"id": "a"}],
        "actions": [],
        "properties": [{"key": "k", "value": "v"}],
        "filter_test_accounts": False,
    }
    without = {"source": "events", "properties": filters["properties"], "filter_test_accounts": False}
    assert kept(api, filters, mappings=[{"name": "m"}]) == without
    assert kept(api, filters, mappings=[])["events"] == [{"id": "a"}]
    made = api.create(filters=filters)
    emptied = api.change(made, mappings=[])
    assert emptied["mappings"] == []
    assert "events" not in emptied["filters"]


@rule("F8.2")
def test_broken_filters_of_a_mapping(api: Api) -> None:
    mapping = {"filters": {"properties": [{"key": "(", "type": "hogql"}]}}
    error = api.refused(mappings=[mapping], enabled=True)
    assert error["attr"] == "mappings__0__filters__non_field_errors"
    stored = api.create(mappings=[mapping])
    assert stored["mappings"][0]["filters"]["bytecode"] is None


@rule("F8.3")
def test_mappings_show_what_was_given(api: Api) -> None:
    mappings = [{}, {"name": "a"}, {"disabled": True, "inputs_schema": []}, {"filters": {}}]
    assert api.create(mappings=mappings)["mappings"] == [
        {},
        {"name": "a"},
        {"disabled": True, "inputs_schema": []},
        {"filters": {"source": "events", "bytecode": ALWAYS}},
    ]
