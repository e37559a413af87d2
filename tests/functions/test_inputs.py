"""Inputs: values, templates, defaults, order (spec: hog-functions-api 5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.functions.configuration.inputs import Inputs, SentItem, build_inputs
from hoglab.functions.environments import TEMPLATES
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.templating.hog_templates import TemplateDialect
from hoglab.storage.database import Database

EMAIL = {"from": {"email": "a@example.com"}, "to": {"email": "b@example.com"}, "subject": "s", "text": "t"}

ACCEPTED: list[tuple[str, Any]] = [
    ("string", "x"),
    ("number", 1),
    ("number", 1.5),
    ("number", True),
    ("boolean", True),
    ("boolean", "{event.properties.on}"),
    ("dictionary", {"a": 1}),
    ("choice", ["anything"]),
    ("json", [1, {"a": "{event}"}]),
    ("integration", 5),
    ("integration_multi", [1, 2]),
    ("integration_field", {"x": 1}),
    ("email", EMAIL),
    ("native_email", EMAIL),
    ("posthog_assignee", 1),
    ("non_failure_status_codes", [404, "5xx", "4XX"]),
    ("task_model", {"model": "m"}),
    ("task_repository", "a/b"),
    ("task_mcp_installations", ["a"]),
]

REFUSED: list[tuple[str, Any, str]] = [
    ("string", 5, "Value must be a string."),
    ("string", ["a"], "Value must be a string."),
    ("number", "5", "Value must be a number."),
    ("boolean", 5, "Value must be a boolean or a template string."),
    ("dictionary", ["a"], "Value must be a dictionary."),
    ("integration", "5", "Value must be an Integration ID."),
    ("integration", True, "Value must be an Integration ID."),
    ("integration_multi", [True], "Value must be a list of Integration IDs."),
    ("integration_multi", 5, "Value must be a list of Integration IDs."),
    ("email", "a@example.com", "Value must be an email object."),
    ("email", {"from": 1, "subject": "s", "text": "t"}, "Missing value for 'to'."),
    ("email", {"to": 1}, "Missing values for 'from', 'subject', either 'text' or 'html'."),
    ("email", {**EMAIL, "from": {"email": 5}}, "Expected string value for 'from.email'."),
    (
        "email",
        {**EMAIL, "from": {"email": 5, "name": 5}},
        "Expected string values for 'from.email', 'from.name'.",
    ),
    (
        "email",
        {**EMAIL, "from": {"integrationIds": ["1"]}},
        "Expected 'from.integrationIds' to be a list of Integration IDs.",
    ),
    (
        "email",
        {**EMAIL, "from": {"integrationIds": list(range(11))}},
        "At most 10 email senders are allowed.",
    ),
    ("non_failure_status_codes", "404", "Value must be a list of status codes."),
    ("non_failure_status_codes", [600], "Status code numbers must be between 400 and 599."),
    ("non_failure_status_codes", ["3xx"], "Wildcards must be '4xx' or '5xx'."),
    (
        "non_failure_status_codes",
        [4.5],
        "Entries must be integers between 400 and 599 or wildcards '4xx' or '5xx'.",
    ),
    (
        "task_model",
        {"model": " "},
        "Value must be an object with a non-empty 'model' string and an optional 'reasoning_effort' string.",
    ),
    ("task_repository", 5, "Value must be a repository name like your-org/your-repo."),
    ("task_mcp_installations", [5], "Value must be a list of MCP connector IDs."),
]


def with_input(kind: str, value: Any, **entry: Any) -> dict[str, Any]:
    return {"inputs_schema": [{"key": "a", "type": kind, **entry}], "inputs": {"a": {"value": value}}}


@rule("F5.5", "F24.5")
@pytest.mark.parametrize(("kind", "value"), ACCEPTED)
def test_values_are_kept_exactly(api: Api, kind: str, value: Any) -> None:
    shown = api.create(**with_input(kind, value))["inputs"]["a"]
    assert shown["value"] == value
    assert type(shown["value"]) is type(value)
    assert shown["order"] == 0


@rule("F5.5")
@pytest.mark.parametrize(("kind", "value", "detail"), REFUSED)
def test_values_of_the_wrong_kind(api: Api, kind: str, value: Any, detail: str) -> None:
    error = api.refused(**with_input(kind, value))
    assert (error["attr"], error["detail"]) == ("inputs__a", detail)


@rule("F5.6")
@pytest.mark.parametrize("kind", ["string", "number", "dictionary", "integration", "email", "boolean"])
@pytest.mark.parametrize("value", ["", 0, False, {}, []])
def test_empty_values_are_stored_unchecked(api: Api, kind: str, value: Any) -> None:
    made = api.create(**with_input(kind, value))
    assert made["inputs"]["a"] == {"value": value, "order": 0}
    assert type(made["inputs"]["a"]["value"]) is type(value)


@rule("F5.6")
@pytest.mark.parametrize("value", [0, False, {}, []])
def test_what_satisfies_required(api: Api, value: Any) -> None:
    api.create(**with_input("json", value, required=True))


@rule("F5.6")
@pytest.mark.parametrize("inputs", [{}, {"a": {}}, {"a": {"value": ""}}, {"a": {"value": None}}])
def test_what_does_not_satisfy_required(api: Api, inputs: dict[str, Any]) -> None:
    schema = [{"key": "a", "type": "string", "required": True}]
    error = api.refused(inputs_schema=schema, inputs=inputs)
    assert (error["attr"], error["detail"]) == ("inputs__a", "This field is required.")


@rule("F5.7")
def test_defaults_fill_in_required_inputs_only(api: Api) -> None:
    schema = [
        {"key": "a", "type": "string", "required": True, "default": "{event.event}"},
        {"key": "b", "type": "string", "default": "x"},
        {"key": "c", "type": "string", "required": True, "default": "y"},
    ]
    made = api.create(inputs_schema=schema, inputs={"c": {"value": "z"}})
    assert made["inputs"]["a"]["value"] == "{event.event}"
    assert made["inputs"]["a"]["bytecode"] == ["_H", 1, 32, "event", 32, "event", 1, 2]
    assert made["inputs"]["b"] is None
    assert made["inputs"]["c"]["value"] == "z"


@rule("F5.9")
def test_compiled_forms(api: Api) -> None:
    value = {
        "url": "https://x.io",
        "list": ["{event}", 1, True, None, {"deep": "a{event.event}"}],
        "{not.a.template}": 1.5,
    }
    made = api.create(**with_input("json", value))
    assert made["inputs"]["a"]["bytecode"] == {
        "url": ["_H", 1, 32, "https://x.io"],
        "list": [
            ["_H", 1, 32, "event", 1, 1],
            1,
            True,
            None,
            {"deep": ["_H", 1, 32, "a", 32, "event", 32, "event", 1, 2, 2, "concat", 2]},
        ],
        "{not.a.template}": 1.5,
    }
    on = api.create(**with_input("boolean", True))
    assert on["inputs"]["a"]["bytecode"] is True
    number = api.create(**with_input("number", 5))
    assert "bytecode" not in number["inputs"]["a"]


def test_the_design_of_a_mail_is_no_template(api: Api) -> None:
    value = {**EMAIL, "design": {"body": "{{ broken"}}
    made = api.create(**with_input("email", value))["inputs"]["a"]
    assert made["value"] == value
    assert sorted(made["bytecode"]) == ["from", "subject", "text", "to"]


@rule("F5.8")
@pytest.mark.parametrize(
    ("schema", "sent", "shown", "compiled"),
    [
        ({}, {}, None, True),
        ({}, {"templating": "hog"}, "hog", True),
        ({"templating": True}, {}, "hog", True),
        ({"templating": "hog"}, {}, "hog", True),
        ({"templating": False}, {}, None, False),
        ({"templating": False}, {"templating": "hog"}, "hog", False),
        ({}, {"templating": "liquid"}, "liquid", False),
        ({"templating": "liquid"}, {}, "liquid", False),
    ],
)
def test_templating(
    api: Api, schema: dict[str, Any], sent: dict[str, Any], shown: str | None, compiled: bool
) -> None:
    made = api.create(
        inputs_schema=[{"key": "a", "type": "string", **schema}], inputs={"a": {"value": "x", **sent}}
    )["inputs"]["a"]
    assert made.get("templating") == shown
    assert ("bytecode" in made) is compiled


@rule("F5.3")
def test_liquid_is_stored_as_it_is(api: Api) -> None:
    """Not even looked at: what is wrong with it is told when it is rendered."""
    item = {"value": {"b": "{{ event.event", "c": ["{% if %}"]}, "templating": "liquid"}
    made = api.create(inputs_schema=[{"key": "a", "type": "json"}], inputs={"a": item})
    assert made["inputs"]["a"] == {**item, "order": 0}
    boolean = api.refused(
        inputs_schema=[{"key": "a", "type": "boolean"}],
        inputs={"a": {"value": "{{ x }}", "templating": "liquid"}},
    )
    assert boolean["detail"] == (
        "Liquid templating is not supported for boolean fields. Use Hog templating instead."
    )
    strict = api.refused(**with_input("boolean", "{event.x}", templating=False))
    assert strict["detail"] == "Value must be a boolean."


TEMPLATE_ERRORS: list[tuple[str, str, str]] = [
    ("destination", "{event.", "Invalid template: "),
    (
        "destination",
        "{{ event.event }}",
        (
            "Invalid template: this field uses single-curly templating like {person.properties.email}. "
            "Liquid-style {{ ... }} syntax is not supported here. ("
        ),
    ),
    (
        "destination",
        "{event.properties.user-id}",
        (
            "Hyphens are not supported in identifiers and are interpreted as subtraction. "
            "Use bracket notation: event.properties['user-id']"
        ),
    ),
    (
        "transformation",
        "{person.properties.email} {groups.a} {person.id}",
        (
            "Invalid template: Variable not available in transformations: groups, person. "
            "Transformations only have access to project, event, and inputs."
        ),
    ),
    ("destination", "{nope(1)}", "Invalid template: Hog function `nope` is not implemented"),
]


@rule("F5.12", "F5.13", "F9.3")
@pytest.mark.parametrize(("kind", "value", "detail"), TEMPLATE_ERRORS)
def test_template_errors(api: Api, kind: str, value: str, detail: str) -> None:
    error = api.refused(type=kind, **with_input("string", value))
    assert error["attr"] == "inputs__a"
    assert error["detail"].startswith(detail)


@rule("F5.13")
def test_transformations_may_name_what_they_have(api: Api) -> None:
    value = (
        "{project.id} {event.event} {inputs.b} {lower(event.event)} {arrayMap(x -> lower(x), [event.event])}"
    )
    api.create(
        type="transformation",
        inputs_schema=[{"key": "a", "type": "string"}, {"key": "b", "type": "string"}],
        inputs={"a": {"value": value}},
    )


@rule("F5.14")
def test_records_of_tables_are_event_properties(api: Api) -> None:
    filters = {"source": "data-warehouse-table", "data_warehouse": [{"table_name": "t"}]}
    made = api.create(filters=filters, **with_input("string", "{record.plan} {upper(record.name)}"))
    assert made["inputs"]["a"]["bytecode"] == [
        "_H", 1, 32, "plan", 32, "properties", 32, "event", 1, 3, 32, " ",
        32, "name", 32, "properties", 32, "event", 1, 3, 2, "upper", 1, 2, "concat", 3,
    ]  # fmt: skip


@rule("F5.4", "F1.11")
def test_schema_entries_keep_what_was_sent(api: Api) -> None:
    entry = {
        "key": "a",
        "type": "choice",
        "label": "",
        "choices": [{"label": "A", "value": "a", "extra": [1]}],
        "searchable": True,
        "default": None,
        "description": "d",
        "integration": "slack",
        "integration_key": "k",
        "integration_field": "f",
        "requires_field": "r",
        "requiredScopes": "s",
        "templating": False,
    }
    made = api.create(inputs_schema=[{**entry, "unknown": 1}])
    assert made["inputs_schema"] == [{**entry, "required": False, "secret": False, "hidden": False}]


@rule("F5.15")
def test_of_two_entries_with_one_key_the_last_counts(api: Api) -> None:
    schema = [{"key": "a", "type": "number"}, {"key": "a", "type": "string"}]
    made = api.create(inputs_schema=schema, inputs={"a": {"value": "x"}})
    assert len(made["inputs_schema"]) == 2
    assert made["inputs"]["a"]["value"] == "x"


def test_changing_inputs_replaces_them(api: Api) -> None:
    schema = [{"key": "a", "type": "string"}, {"key": "b", "type": "string"}]
    made = api.create(inputs_schema=schema, inputs={"a": {"value": "1"}, "b": {"value": "2"}})
    changed = api.change(made, inputs={"b": {"value": "3"}})
    assert changed["inputs"]["a"] is None
    assert changed["inputs"]["b"]["value"] == "3"
    assert changed["inputs"]["b"]["order"] == 0
    kept = api.change(made, name="x")
    assert kept["inputs"] == changed["inputs"]


def test_a_change_of_kind_that_python_takes_for_equal_is_stored(api: Api) -> None:
    made = api.create(**with_input("json", {"flag": 1}))
    changed = api.change(made, inputs={"a": {"value": {"flag": True}}})
    assert changed["inputs"]["a"]["value"]["flag"] is True
    assert changed["version"] == 2
    assert api.get(f"/hog_functions/{made['id']}/").json()["inputs"]["a"]["value"]["flag"] is True


@rule("F4.13")
def test_removed_keys_lose_their_values(api: Api) -> None:
    schema = [{"key": "a", "type": "string"}, {"key": "b", "type": "string"}]
    made = api.create(inputs_schema=schema, inputs={"a": {"value": "1"}, "b": {"value": "2"}})
    smaller = api.change(made, inputs_schema=schema[:1])
    assert list(smaller["inputs"]) == ["a"]
    again = api.change(made, inputs_schema=schema)
    assert again["inputs"]["b"] is None


@rule("F4.14")
def test_schema_attributes_that_editors_drop_are_filled_back_in(api: Api) -> None:
    entry = {"key": "a", "type": "integration", "integration": "slack", "requiredScopes": "s", "label": "A"}
    made = api.create(inputs_schema=[entry], mappings=[{"name": "m", "inputs_schema": [entry]}])
    bare = {"key": "a", "type": "integration"}
    changed = api.change(made, inputs_schema=[bare], mappings=[{"name": "m", "inputs_schema": [bare]}])
    for schema in (changed["inputs_schema"], changed["mappings"][0]["inputs_schema"]):
        assert schema[0]["integration"] == "slack"
        assert schema[0]["requiredScopes"] == "s"
        assert "label" not in schema[0]
    other = api.change(made, inputs_schema=[{"key": "a", "type": "string"}])
    assert "integration" not in other["inputs_schema"][0]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists))
def test_any_json_value_is_accepted_or_refused_with_its_place(value: Any) -> None:
    try:
        built = build_inputs(
            [{"key": "a", "type": "json"}], {"a": SentItem(value, True)}, Inputs(), TemplateDialect(TEMPLATES)
        )
    except InvalidFunctionError as error:
        refused = error.path
    else:
        assert value is None or built.plain["a"]["value"] == value
        return
    assert refused == ("inputs", "a")


def test_secrets_stay_with_their_mapping_wherever_it_stands(
    api: Api, box: SecretBox, database: Database
) -> None:
    def mapping(event: str, **item: Any) -> dict[str, Any]:
        return {
            "filters": {"events": [{"id": event, "type": "events"}]},
            "inputs_schema": [{"key": "hook", "type": "string", "secret": True}],
            "inputs": {"hook": item},
        }

    made = api.create(mappings=[mapping("a", value="of a"), mapping("b", value="of b")])
    kept = mapping("b", secret=True)
    for mappings in ([kept], [mapping("c", value="of c"), kept]):
        api.change(made, mappings=mappings)
        with database.read() as connection:
            sealed = connection.exec_driver_sql("SELECT encrypted_inputs FROM hog_function").scalar()
        secrets = box.unseal(bytes(sealed)).mappings  # type: ignore[arg-type]
        assert secrets[str(len(mappings) - 1)]["hook"]["value"] == "of b"


def test_what_a_mapping_was_called_or_numbered_does_not_keep_its_new_secret(
    api: Api, database: Database
) -> None:
    def mapping(*, secret: bool) -> dict[str, Any]:
        return {
            "filters": {"events": [{"id": "a", "type": "events"}]},
            "inputs_schema": [{"key": "hook", "type": "string", "secret": secret}],
            "inputs": {"hook": {"value": "told-before"}},
        }

    made = api.create(mappings=[mapping(secret=False), {"filters": {}}])
    api.change(made, mappings=[{"filters": {}}, mapping(secret=True)])
    with database.read() as connection:
        for table, column in (("hog_function_revision", "content"), ("activity_log", "detail")):
            for (content,) in connection.exec_driver_sql(f"SELECT {column} FROM {table}"):  # noqa: S608
                assert "told-before" not in str(content)
