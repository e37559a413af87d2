"""Inputs, masking, code and templates, where the suites in ``tests/functions`` leave something to say (F5 to F11)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.conftest import Api
from tests.contract.functions.test_functions import PATH, at, make, no
from tests.contract.rules import rule

FIRST_TEMPLATES = {
    "destination": {
        "template-webhook": set(),
        "template-slack": set(),
        "template-discord": set(),
        "template-microsoft-teams": set(),
        "template-zapier": set(),
        "template-make": set(),
        "template-hubspot": {"access_token"},
        "template-customerio": {"token"},
        "template-braze": {"apiKey"},
        "template-klaviyo-event": {"apiKey"},
        "template-intercom": set(),
        "template-google-pubsub": set(),
        "template-aws-kinesis": {"aws_access_key_id", "aws_secret_access_key"},
        "template-posthog-replicator": set(),
        "template-linear": set(),
    },
    "transformation": {
        "template-blank-transformation": set(),
        "template-geoip": set(),
        "template-drop-events": set(),
        "template-filter-properties": set(),
        "template-ip-anonymization": set(),
        "template-pii-hashing": set(),
        "template-url-masking": set(),
        "template-remove-null-properties": set(),
        "template-bot-detection": set(),
    },
    "source_webhook": {"template-source-webhook": set()},
}
"""By type and id, the inputs that must at least be secret."""


def text(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "type": "string", **more}


class TestOrder:
    @rule("F5.11")
    def test_secrets_count_and_unset_inputs_do_not(self, api: Api) -> None:
        made = make(
            api,
            inputs_schema=[text("a"), text("unset"), text("token", secret=True), text("b")],
            inputs={
                "a": {"value": "{inputs.b}{inputs.token}{inputs.unset}{inputs.stranger}"},
                "token": {"value": "t"},
                "b": {"value": "b"},
            },
        )
        orders = {key: item["order"] for key, item in made["inputs"].items() if item and "order" in item}
        assert orders == {"a": 2, "b": 1}
        assert made["inputs"]["token"] == {"secret": True}
        assert made["inputs"]["unset"] is None

    @rule("F5.1")
    @pytest.mark.parametrize(
        "values",
        [
            {"a": "{inputs.a}"},
            {"a": "{inputs.b}", "b": "{inputs.a}"},
            {"a": "{inputs.b}", "b": "{inputs.c}", "c": "x{inputs.a.deeper}"},
        ],
    )
    def test_circles(self, api: Api, values: dict[str, str]) -> None:
        error = api.refused(
            "POST",
            PATH,
            {
                "hog": "return 1",
                "inputs_schema": [text(key) for key in values],
                "inputs": {key: {"value": value} for key, value in values.items()},
            },
        )
        assert error == {
            "type": "validation_error",
            "code": "invalid_input",
            "detail": "Circular dependency detected in input_deps.",
            "attr": "inputs",
        }


class TestMasking:
    @rule("F7.2")
    def test_threshold_and_bytecode(self, api: Api) -> None:
        base = {"ttl": 86_400, "hash": "{event.event}", "bytecode": [1]}
        for threshold in ({}, {"threshold": None}, {"threshold": 0}, {"threshold": -5}, {"threshold": 10**6}):
            made = make(api, masking={**base, **threshold})
            bytecode = ["_H", 1, 32, "event", 32, "event", 1, 2]
            assert made["masking"] == {"ttl": 86_400, **threshold, "hash": base["hash"], "bytecode": bytecode}
            assert api.ok("PATCH", at(made), {"name": "x"})["masking"] == made["masking"]
        assert no(api, masking={"ttl": 60, "hash": "h", "threshold": "x"}) == (
            "invalid_input",
            "masking__threshold",
        )


class TestCode:
    @rule("F9.4")
    @pytest.mark.parametrize("kind", ["transformation", "internal_destination", "source_webhook"])
    def test_fetch_compiles_everywhere(self, api: Api, kind: str) -> None:
        made = make(api, type=kind, hog="fetch('https://example.com')")
        assert made["bytecode"] == ["_H", 1, 32, "https://example.com", 2, "fetch", 1, 35]

    @rule("F9.4")
    def test_fetch_fails_where_it_is_not_to_be_had(self, api: Api) -> None:
        configuration = {"type": "transformation", "hog": "fetch('https://example.com') return event"}
        body = {"configuration": configuration, "globals": {"event": {"event": "e", "distinct_id": "d"}}}
        answer = api.ok("POST", f"{PATH}new/invocations/", body)
        assert (answer["status"], answer["result"]) == ("error", None)
        assert "fetch" in answer["errors"][0]

    @rule("F9.1")
    @pytest.mark.parametrize(
        ("code", "bytecode"),
        [
            ("fetch(inputs.url);", ["_H", 1, 32, "url", 32, "inputs", 1, 2, 2, "fetch", 1, 35]),
            ("return event", ["_H", 1, 32, "event", 1, 1, 38]),
            ("print('a')", ["_H", 1, 32, "a", 2, "print", 1, 35]),
        ],
    )
    def test_bytecode(self, api: Api, code: str, bytecode: list[Any]) -> None:
        assert make(api, hog=code)["bytecode"] == bytecode


class TestCatalogue:
    @rule("F11.6")
    @pytest.mark.parametrize("kind", FIRST_TEMPLATES)
    def test_the_first_templates(self, api: Api, kind: str) -> None:
        listed = api.ok("GET", f"/hog_function_templates/?type={kind}&limit=1000")["results"]
        found = {one["id"]: one for one in listed}
        for template_id, secrets in FIRST_TEMPLATES[kind].items():
            template = found[template_id]
            marked = {entry["key"] for entry in template["inputs_schema"] if entry.get("secret")}
            assert marked >= secrets, template_id
            assert template["free"] is True
