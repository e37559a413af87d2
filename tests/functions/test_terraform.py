"""What the public Terraform provider relies on, replayed (spec: hog-functions-api 24).

`Resource` does what the provider does: it sends the configured attributes, decodes the answer strictly, strips
``bytecode`` and ``order``, keeps only what the configuration wrote, and calls any difference a drift.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
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


def decode(function: Any) -> None:
    """Strict types, as a compiled program reads them."""
    assert isinstance(function["id"], str)
    for name in ("type", "name", "description", "hog", "icon_url", "created_at", "updated_at"):
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
                assert written(seen, config) == config, name
        for key in self.sensitive:
            assert key in function["inputs"]
        for name in ("name", "description", "icon_url"):
            assert (function[name] or None) == (self.config.get(name) or None) or "template_id" in self.config
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


def test_create_rename_disable_destroy(api: Api) -> None:
    resource = Resource(api, **copy.deepcopy(WEBHOOK))
    resource.apply(name="Renamed")
    assert resource.apply(enabled=False)["enabled"] is False
    assert resource.apply(enabled=True)["enabled"] is True
    assert resource.apply(description=None)["description"] == ""
    resource.destroy()


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


def test_import_reads_everything_from_the_answer(api: Api) -> None:
    resource = Resource(api, **copy.deepcopy(WEBHOOK))
    read = resource.plan()
    imported = {name: read[name] for name in ATTRIBUTES if name in read and read[name] is not None}
    decode(read)
    answer = resource.api.patch(resource.path, imported)
    assert answer.status_code == 200
    assert {**answer.json(), "updated_at": None} == {**read, "updated_at": None}


def test_code_of_one_s_own_with_a_template(api: Api) -> None:
    resource = Resource(api, **{**copy.deepcopy(WEBHOOK), "hog": "print('mine')\n\n"})
    resource.apply(hog="let r := fetch(inputs.url)\nreturn r\n")


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
