"""What the public Terraform provider relies on, replayed (spec: hog-functions-api 24).

`Resource` does what the provider does: it sends the configured attributes and nothing else, to the paths it knows,
decodes the answer strictly, strips ``bytecode`` and ``order``, keeps only what the configuration wrote, and calls any
difference a drift.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

ATTRIBUTES = (
    "type",
    "name",
    "description",
    "enabled",
    "hog",
    "inputs_schema",
    "inputs",
    "filters",
    "masking",
    "mappings",
    "icon_url",
    "template_id",
    "execution_order",
)
JSON_ATTRIBUTES = ("inputs", "filters", "masking", "mappings", "inputs_schema")
DERIVED = {"bytecode", "order"}


STRINGS = ("type", "name", "description", "hog", "icon_url", "created_at", "updated_at")


def stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: stripped(part) for key, part in value.items() if key not in DERIVED}
    return [stripped(part) for part in value] if isinstance(value, list) else value


def written(value: Any, config: Any) -> Any:
    """Of a value, what the configuration wrote."""
    if isinstance(value, dict) and isinstance(config, dict):
        return {key: written(part, config[key]) for key, part in value.items() if key in config}
    if isinstance(value, list) and isinstance(config, list):
        return [written(part, config[at]) if at < len(config) else part for at, part in enumerate(value)]
    return value


def as_text(value: Any) -> str:
    """JSON, in which 1, 1.0 and true are different things; the order of keys counts for nothing."""
    return json.dumps(value, sort_keys=True)


def decode(function: Any) -> None:
    """Strict types, as a compiled program reads them."""
    assert isinstance(function["id"], str)
    for name in STRINGS:
        assert function[name] is None or isinstance(function[name], str)
    assert isinstance(function["enabled"], bool)
    assert all(isinstance(entry, dict) for entry in function["inputs_schema"])
    for name in ("inputs", "filters", "masking", "created_by"):
        assert function[name] is None or isinstance(function[name], dict)
    assert function["mappings"] is None or all(isinstance(one, dict) for one in function["mappings"])
    order = function["execution_order"]
    assert order is None or type(order) is int
    assert type(function["status"]["state"]) is int
    assert type(function["status"]["tokens"]) is int
    template = function["template"]
    if template is not None:
        assert all(isinstance(template[name], str) for name in ("id", "name", "type"))
        assert all(
            template[name] is None or isinstance(template[name], str)
            for name in ("description", "status", "icon_url")
        )


class Resource:
    """One ``posthog_hog_function``."""

    def __init__(self, api: Api, **config: Any) -> None:
        self.api = Api(api.app, api.key, api.runner, "/api/environments/1")
        self.config = config
        self.sensitive: dict[str, Any] = config.pop("sensitive_inputs", {})
        answer = self.api.post("/hog_functions/", self._request())
        assert answer.status_code == 201, answer.text
        assert answer.headers["content-type"].startswith("application/json")
        self.id: str = answer.json()["id"]
        self._check(answer.json())

    def _request(self) -> dict[str, Any]:
        body = {name: self.config[name] for name in ATTRIBUTES if name in self.config}
        if self.sensitive:
            body["inputs"] = {**body.get("inputs", {}), **self.sensitive}
        return copy.deepcopy(body)

    @property
    def path(self) -> str:
        return f"/hog_functions/{self.id}/"

    def apply(self, **changes: Any) -> dict[str, Any]:
        """Change the configuration (None removes an attribute) and send all of it again."""
        self.sensitive = changes.pop("sensitive_inputs", self.sensitive)
        for name, value in changes.items():
            if value is None:
                self.config.pop(name, None)
            else:
                self.config[name] = value
        body = self._request()
        if "description" not in self.config:
            body["description"] = ""
        answer = self.api.patch(self.path, body)
        assert answer.status_code == 200, answer.text
        self._check(answer.json())
        return self.plan()

    def plan(self) -> dict[str, Any]:
        """Read it again; any difference from the configuration is a drift."""
        answer = self.api.get(self.path)
        assert answer.status_code == 200
        self._check(answer.json())
        read: dict[str, Any] = answer.json()
        return read

    def _check(self, function: dict[str, Any]) -> None:
        decode(function)
        for name in JSON_ATTRIBUTES:
            if name in self.config:
                config = stripped(self.config[name])
                seen = stripped(function[name])
                if name == "inputs_schema":
                    by_key = {entry["key"]: entry for entry in seen}
                    seen = [by_key[entry["key"]] for entry in config]
                assert as_text(written(seen, config)) == as_text(config), name
        for key in self.sensitive:
            secret = any(one["key"] == key and one["secret"] for one in function["inputs_schema"])
            seen = function["inputs"][key]
            assert seen == {"secret": True} if secret else seen["value"] == self.sensitive[key]["value"]
        for name in ("name", "description", "icon_url"):
            if name in self.config or "template_id" not in self.config:
                assert (function[name] or None) == (self.config.get(name) or None), name
        for name in ("type", "enabled", "execution_order"):
            if name in self.config:
                assert function[name] == self.config[name]
        if "hog" in self.config:
            assert function["hog"].rstrip() == self.config["hog"].rstrip()

    def destroy(self) -> None:
        answer = self.api.patch(self.path, {"deleted": True})
        assert answer.status_code == 200
        assert isinstance(answer.json(), dict)
        assert self.api.get(self.path).status_code == 404
        assert self.api.patch(self.path, {"deleted": True}).status_code == 404


WEBHOOK: dict[str, Any] = {
    "type": "destination",
    "name": "Webhook",
    "description": "d",
    "enabled": True,
    "template_id": "template-webhook",
    "inputs": {
        "url": {"value": "https://example.com/hook"},
        "method": {"value": "POST"},
        "debug": {"value": False, "templating": "hog"},
    },
    "filters": {
        "source": "events",
        "events": [{"id": "$pageview", "name": "$pageview", "type": "events", "order": 0}],
    },
}


@rule("F24.1", "F24.2")
def test_create_rename_disable_destroy(api: Api) -> None:
    resource = Resource(api, **copy.deepcopy(WEBHOOK))
    resource.apply(name="Renamed")
    assert resource.apply(enabled=False)["enabled"] is False
    assert resource.apply(enabled=True)["enabled"] is True
    assert resource.apply(description=None)["description"] == ""
    resource.destroy()


@rule("F24.3")
def test_filters_with_two_events(api: Api) -> None:
    filters = {
        "events": [
            {"id": "$pageview", "name": "$pageview", "type": "events", "order": 0},
            {
                "id": "signup",
                "type": "events",
                "order": 1,
                "properties": [{"key": "n", "value": 1.0, "type": "event"}],
            },
        ],
        "filter_test_accounts": False,
        "properties": [{"key": "email", "type": "person", "operator": "icontains", "value": ["@a.io"]}],
    }
    resource = Resource(api, **{**copy.deepcopy(WEBHOOK), "filters": filters})
    resource.apply(filters={"events": filters["events"][:1]})


@rule("F24.1")
def test_import_reads_everything_from_the_answer(api: Api) -> None:
    resource = Resource(api, **copy.deepcopy(WEBHOOK))
    read = resource.plan()
    imported = {name: read[name] for name in ATTRIBUTES if name in read and read[name] is not None}
    decode(read)
    answer = resource.api.patch(resource.path, imported)
    assert answer.status_code == 200
    assert {**answer.json(), "updated_at": None} == {**read, "updated_at": None}


@rule("F24.6")
def test_code_of_one_s_own_with_a_template(api: Api) -> None:
    resource = Resource(api, **{**copy.deepcopy(WEBHOOK), "hog": "print('mine')\n\n"})
    resource.apply(hog="let r := fetch(inputs.url)\nreturn r\n")


@rule("F24.4", "F24.7")
def test_sensitive_inputs(api: Api) -> None:
    schema = [
        {"key": "url", "type": "string", "required": True},
        {"key": "method", "type": "string"},
        {"key": "apiKey", "type": "string", "secret": True, "required": True},
    ]
    resource = Resource(
        api,
        **{
            **copy.deepcopy(WEBHOOK),
            "hog": "fetch(inputs.url)",
            "inputs_schema": schema,
            "inputs": {"url": {"value": "https://example.com"}, "method": {"value": "{event.event}"}},
            "sensitive_inputs": {"apiKey": {"value": "k1"}},
        },
    )
    assert resource.plan()["inputs"]["apiKey"] == {"secret": True}
    resource.apply(inputs={"url": {"value": "https://example.com/2"}})
    resource.apply(sensitive_inputs={"apiKey": {"value": "k2"}})
    assert resource.plan()["inputs"]["apiKey"] == {"secret": True}
    resource.destroy()


@rule("F24.7")
def test_sensitive_inputs_alone_and_in_the_clear(api: Api) -> None:
    """What the schema does not call secret comes back in the clear; the provider ignores it."""
    config = {name: value for name, value in copy.deepcopy(WEBHOOK).items() if name != "inputs"}
    resource = Resource(api, **config, sensitive_inputs={"url": {"value": "https://example.com/secret"}})
    assert resource.plan()["inputs"]["url"]["value"] == "https://example.com/secret"


def test_mappings_and_masking(api: Api) -> None:
    mappings = [
        {
            "name": "m",
            "inputs_schema": [{"key": "a", "type": "string", "label": "A"}],
            "inputs": {"a": {"value": "", "templating": "hog"}},
            "filters": {"source": "events", "events": [{"id": "x", "type": "events"}]},
        }
    ]
    resource = Resource(
        api,
        type="destination",
        name="n",
        hog="print(inputs.a)",
        mappings=mappings,
        masking={"ttl": 60, "hash": "{person.id}", "threshold": None},
    )
    resource.apply(masking={"ttl": 120, "hash": "{person.id}"})


def test_transformations_with_an_order(api: Api) -> None:
    resource = Resource(
        api, type="transformation", name="t", hog="return event", enabled=True, execution_order=7
    )
    resource.apply(execution_order=3)
    resource.apply(enabled=False)
    assert resource.apply(enabled=True)["execution_order"] == 3


@pytest.mark.parametrize("source", ["events", "internal-events"])
def test_alert_destinations(api: Api, source: str) -> None:
    filters = {
        "source": source,
        "events": [{"id": "$insight_alert_firing", "type": "events"}],
        "properties": [{"key": "alert_id", "type": "event", "operator": "exact", "value": "0199-1"}],
    }
    resource = Resource(api, **{**copy.deepcopy(WEBHOOK), "type": "internal_destination", "filters": filters})
    resource.apply(name="x")
    resource.destroy()


@rule("F24.8", "F24.3")
def test_keys_named_order(api: Api) -> None:
    """The provider strips them everywhere; what it sends without them must mean the same."""
    inputs = {
        "url": {"value": "https://example.com"},
        "body": {"value": {"order": 7, "bytecode": "b", "list": [{"order": 1}]}},
    }
    resource = Resource(api, **{**copy.deepcopy(WEBHOOK), "inputs": inputs})
    assert resource.plan()["inputs"]["body"]["value"] == inputs["body"]["value"]
    events = [{"id": name, "type": "events", "order": 1 - at} for at, name in enumerate("ab")]
    kept = resource.apply(filters={"source": "events", "events": events})["filters"]
    assert kept["events"] == events
    bare = resource.apply(filters=stripped({"source": "events", "events": events}))["filters"]
    assert bare["bytecode"] == kept["bytecode"]


@rule("F24.2", "F24.5")
@pytest.mark.parametrize(
    "value", [None, False, 0, "", [], {}, 1.0, 1e21, 2**53, "1", " padded ", "\n", "{event.event}"]
)
def test_any_value_comes_back(api: Api, value: Any) -> None:
    schema = [{"key": "any", "type": "json"}]
    inputs = {"any": {"value": value, "templating": "hog"}}
    resource = Resource(
        api, type="destination", name="n", hog="print(1)", inputs_schema=schema, inputs=inputs
    )
    resource.apply(name="m")


@rule("F24.2")
@pytest.mark.parametrize(
    "item", [{"value": None}, {"templating": "hog"}, {"value": None, "templating": "liquid"}]
)
def test_inputs_that_are_nothing_come_back_as_they_were_written(api: Api, item: dict[str, Any]) -> None:
    """A null for the whole item would be a drift that no apply mends."""
    schema = [{"key": "none", "type": "string"}, {"key": "late", "type": "string"}]
    inputs = {"none": item, "late": {"value": "{inputs.none}!"}}
    mapping = {"name": "m", "inputs_schema": schema, "inputs": inputs}
    resource = Resource(
        api,
        type="destination",
        name="n",
        hog="print(1)",
        inputs_schema=schema,
        inputs=inputs,
        mappings=[mapping],
    )
    resource.apply(name="m")
    read = resource.apply(inputs={"late": {"value": "!"}})
    assert read["inputs"] == {
        "none": None,
        "late": {"value": "!", "bytecode": ["_H", 1, 32, "!"], "order": 0},
    }
    assert read["mappings"][0]["inputs"]["late"]["order"] == 0, "what is nothing has no place"


@rule("F24.4")
def test_a_schema_in_place_of_the_template_s(api: Api) -> None:
    """``method`` is a choice in the template and a text here; descriptions, labels and defaults are kept."""
    schema = [
        {"key": "url", "type": "string", "label": "Hook", "required": True, "description": "where to"},
        {"key": "method", "type": "string", "default": "POST", "hidden": True},
        {"key": "apiKey", "type": "string", "secret": True, "required": True, "templating": False},
    ]
    resource = Resource(
        api,
        **{
            **copy.deepcopy(WEBHOOK),
            "inputs_schema": schema,
            "inputs": {"url": {"value": "https://example.com"}, "method": {"value": "PUT"}},
            "sensitive_inputs": {"apiKey": {"value": "k1"}},
        },
    )
    resource.apply(inputs_schema=list(reversed(schema)))
    resource.apply(inputs={"url": {"value": "https://example.com/other"}, "method": {"value": "GET"}})
    assert "k1" not in json.dumps(resource.plan())
    resource.destroy()


@rule("F24.1")
def test_a_create_that_is_sent_again_makes_what_it_says(api: Api) -> None:
    """The provider sends a POST again after 429 and 5xx: then there are two functions, and never half of one."""
    for _ in range(2):
        Resource(api, **copy.deepcopy(WEBHOOK))
    listed = api.get("/hog_functions/?full=true").json()
    assert listed["count"] == 2
    for one in listed["results"]:
        decode(one)


@rule("F24.1")
def test_reading_and_destroying_what_is_gone(api: Api) -> None:
    """404 means gone, which the provider tolerates; anything else would be an error."""
    gone = "/hog_functions/0199a3d4-1f2e-7000-9c55-7d3a51c0ffee/"
    environment = Api(api.app, api.key, api.runner, "/api/environments/1")
    assert environment.get(gone).status_code == 404
    assert environment.patch(gone, {"deleted": True}).status_code == 404


def test_diagnostics_in_answers_are_no_drift(api: Api) -> None:
    doubtful = Resource(api, type="destination", name="d", hog="print(evnt.a)", inputs={}, inputs_schema=[])
    assert doubtful.apply(hog="print(event.propertes)")["hog"] == "print(event.propertes)"
    assert api.patch(doubtful.path, {"name": "e"}).json()["diagnostics"]
