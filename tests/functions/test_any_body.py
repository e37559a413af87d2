"""Whatever is sent, the answer is a success or a refusal that names a place; never a failure of the server."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.functions.conftest import Api
from tests.generated import examples

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
PIECES = st.sampled_from(
    ["{event.event}", "{", "{{ x }}", "\\", "{inputs.a}", "fetch(inputs.a)", "return event", "\0"]
)
KEYS = st.sampled_from(["a", "b", ""])
ENTRIES = st.fixed_dictionaries(
    {
        "key": KEYS | JSON,
        "type": st.sampled_from(["string", "json", "email", "boolean", "integration"]) | JSON,
    },
    optional={"required": st.booleans() | JSON, "secret": st.booleans(), "default": JSON, "templating": JSON},
)
ITEMS = st.fixed_dictionaries(
    {}, optional={"value": PIECES | JSON, "templating": PIECES | JSON, "secret": JSON}
)
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "key": PIECES | JSON,
        "type": st.sampled_from(["event", "person", "group", "hogql", "element", "cohort"]) | JSON,
        "operator": st.sampled_from(["exact", "regex", "gt", "between", "in", "is_date_before", "semver_eq"])
        | JSON,
        "value": PIECES | JSON,
        "group_type_index": JSON,
        "negation": JSON,
    },
)
EVENTS = st.fixed_dictionaries({"id": PIECES | JSON}, optional={"properties": JSON})
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(["events", "data-warehouse-view"]) | JSON,
        "events": st.lists(
            st.fixed_dictionaries({"id": PIECES | JSON}, optional={"properties": JSON}), max_size=2
        )
        | JSON,
        "actions": st.lists(st.fixed_dictionaries({"id": JSON}), max_size=2) | JSON,
        "properties": st.lists(LEAVES, max_size=3) | JSON,
        "filter_test_accounts": JSON,
    },
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["destination", "transformation", "site_app"]) | JSON,
        "name": JSON,
        "description": JSON,
        "enabled": st.booleans() | JSON,
        "deleted": st.booleans() | JSON,
        "hog": PIECES | JSON,
        "inputs_schema": st.lists(ENTRIES, max_size=3) | JSON,
        "inputs": st.dictionaries(KEYS, ITEMS | JSON, max_size=3) | JSON,
        "filters": FILTERS | JSON,
        "masking": st.fixed_dictionaries({"ttl": JSON, "hash": PIECES | JSON}) | JSON,
        "mappings": st.lists(
            st.fixed_dictionaries(
                {},
                optional={"name": JSON, "inputs_schema": st.lists(ENTRIES, max_size=2), "filters": FILTERS},
            ),
            max_size=2,
        )
        | JSON,
        "icon_url": JSON,
        "template_id": st.sampled_from(["template-webhook", "x"]) | JSON,
        "execution_order": JSON,
        "base_updated_at": JSON,
        "_create_in_folder": JSON,
    },
)


def check(answer: Any, success: int) -> None:
    assert answer.status_code in (success, 400, 404), answer.text
    if answer.status_code == 400:
        error = answer.json()
        assert set(error) >= {"type", "code", "detail", "attr"}
        assert error["detail"]


@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BODIES)
def test_any_body(api: Api, body: dict[str, Any]) -> None:
    check(api.post("/hog_functions/", body), 201)
    made = api.create(
        inputs_schema=[{"key": "a", "type": "string"}, {"key": "b", "type": "json", "secret": True}],
        inputs={"b": {"value": {"x": "y"}}},
    )
    check(api.patch(f"/hog_functions/{made['id']}/", body), 200)
    check(api.patch("/hog_functions/rearrange/", body), 200)


PARAMETERS = [
    "search",
    "type",
    "enabled",
    "id",
    "created_by",
    "created_at",
    "filters",
    "filter_groups",
    "limit",
    "offset",
    "full",
]
VALUES = st.text(max_size=12) | st.sampled_from(
    ["true", "[]", "{}", '[{"a":1}]', "-1", "99999999999999999999"]
)


@settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(st.sampled_from(PARAMETERS), VALUES, max_size=4))
def test_any_query(api: Api, query: dict[str, str]) -> None:
    check(api.get("/hog_functions/", params=query), 200)
