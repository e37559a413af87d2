"""The examples of spec hog-functions-api 25, word for word where a word is promised."""

from __future__ import annotations

import re
from typing import Any

from tests.functions.conftest import Api

PAGEVIEWS: dict[str, Any] = {
    "type": "destination",
    "name": "Pageviews to hook",
    "description": "Forward pageviews",
    "enabled": True,
    "hog": "fetch(inputs.url);\n",
    "inputs_schema": [
        {"key": "url", "type": "string", "label": "URL", "required": True},
        {"key": "headers", "type": "dictionary", "label": "Headers"},
        {"key": "debug", "type": "boolean", "label": "Debug"},
        {"key": "note", "type": "string"},
    ],
    "inputs": {
        "url": {"value": "https://hooks.example.com/in", "templating": "hog"},
        "headers": {"value": {"X-Lib": "v={event.properties.$lib_version}"}},
        "debug": {"value": False, "templating": "hog"},
        "stray": {"value": "dropped"},
    },
    "filters": {"events": [{"id": "$pageview", "name": "$pageview", "type": "events", "order": 0}]},
}


def test_25_1_create_a_custom_destination(api: Api) -> None:
    made = api.create(**PAGEVIEWS)
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made.pop("id")
    )
    for name in ("created_at", "updated_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", made.pop(name))
    author = made.pop("created_by")
    assert list(author) == [
        "id",
        "uuid",
        "distinct_id",
        "first_name",
        "last_name",
        "email",
        "is_email_verified",
        "hedgehog_config",
        "role_at_organization",
    ]
    assert made == {
        "type": "destination",
        "name": "Pageviews to hook",
        "description": "Forward pageviews",
        "enabled": True,
        "deleted": False,
        "hog": "fetch(inputs.url);",
        "bytecode": ["_H", 1, 32, "url", 32, "inputs", 1, 2, 2, "fetch", 1, 35],
        "transpiled": None,
        "inputs_schema": [
            {"type": "string", "key": "url", "label": "URL", "required": True, "secret": False, "hidden": False},
            {
                "type": "dictionary",
                "key": "headers",
                "label": "Headers",
                "required": False,
                "secret": False,
                "hidden": False,
            },
            {
                "type": "boolean",
                "key": "debug",
                "label": "Debug",
                "required": False,
                "secret": False,
                "hidden": False,
            },
            {"type": "string", "key": "note", "required": False, "secret": False, "hidden": False},
        ],
        "inputs": {
            "url": {
                "value": "https://hooks.example.com/in",
                "templating": "hog",
                "bytecode": ["_H", 1, 32, "https://hooks.example.com/in"],
                "order": 0,
            },
            "headers": {
                "value": {"X-Lib": "v={event.properties.$lib_version}"},
                "bytecode": {
                    "X-Lib": [
                        "_H", 1, 32, "v=", 32, "$lib_version", 32, "properties", 32, "event", 1, 3, 2, "concat", 2,
                    ]
                },
                "order": 1,
            },
            "debug": {"value": False, "templating": "hog", "order": 2},
            "note": None,
        },
        "filters": {
            "source": "events",
            "events": [{"id": "$pageview", "name": "$pageview", "type": "events", "order": 0}],
            "bytecode": ["_H", 1, 32, "$pageview", 32, "event", 1, 1, 11],
        },
        "masking": None,
        "mappings": None,
        "icon_url": None,
        "template": None,
        "template_id": None,
        "status": {"state": 1, "tokens": 10000},
        "execution_order": None,
        "_create_in_folder": None,
        "batch_export_id": None,
        "version": 1,
        "draft": None,
        "draft_updated_at": None,
    }  # fmt: skip


def test_25_2_minimal_create(api: Api) -> None:
    made = api.create(name="Fetch", hog="fetch(inputs.url);")
    assert made["type"] == "destination"
    assert made["enabled"] is False
    assert made["inputs_schema"] == []
    assert made["inputs"] == {}
    assert made["filters"] == {"source": "events", "bytecode": ["_H", 1, 29]}
    assert made["status"] == {"state": 0, "tokens": 0}
    assert made["execution_order"] is None


def test_25_3_template_with_a_missing_required_input(api: Api) -> None:
    assert api.refused(template_id="template-webhook", type="destination") == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "This field is required.",
        "attr": "inputs__url",
    }
    made = api.create(
        template_id="template-webhook", type="destination", inputs={"url": {"value": "https://example.com"}}
    )
    template = api.get("/hog_function_templates/template-webhook/").json()
    assert made["name"] == template["name"]
    assert made["description"] == template["description"]
    assert made["icon_url"] == template["icon_url"]
    assert made["hog"] == template["code"]
    assert [entry["key"] for entry in made["inputs_schema"]] == ["url", "method", "body", "headers", "debug"]
    assert made["template"] == template
    assert made["template_id"] == "template-webhook"
    assert made["inputs"] == {
        "url": {
            "value": "https://example.com",
            "bytecode": ["_H", 1, 32, "https://example.com"],
            "order": 0,
        },
        "method": None,
        "body": None,
        "headers": None,
        "debug": None,
    }


def test_25_4_secret_life_cycle(api: Api) -> None:
    schema = [{"key": "token", "type": "string", "secret": True, "required": True}]
    made = api.create(inputs_schema=schema, inputs={"token": {"value": "s3cr3t"}})
    masked = {"token": {"secret": True}}
    assert made["inputs"] == masked
    assert api.change(made, inputs={"token": {"secret": True}})["inputs"] == masked
    assert api.change(made, inputs={"token": {"value": "n3w"}})["inputs"] == masked
    assert api.change(made, name="x")["inputs"] == masked
    assert api.refused(inputs_schema=schema, inputs={"token": {"secret": True}}) == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "No value is saved for this secret input. Enter the value again.",
        "attr": "inputs__token",
    }


def test_25_5_input_dependencies(api: Api) -> None:
    made = api.create(
        inputs_schema=[{"key": "full", "type": "string"}, {"key": "base", "type": "string"}],
        inputs={"full": {"value": "{inputs.base}/in"}, "base": {"value": "https://x.io"}},
    )
    assert made["inputs"] == {
        "full": {
            "value": "{inputs.base}/in",
            "bytecode": ["_H", 1, 32, "base", 32, "inputs", 1, 2, 32, "/in", 2, "concat", 2],
            "order": 1,
        },
        "base": {"value": "https://x.io", "bytecode": ["_H", 1, 32, "https://x.io"], "order": 0},
    }


def test_25_6_masking(api: Api) -> None:
    masking = {"ttl": 60, "threshold": 20, "hash": "{person.properties.email}"}
    bytecode = ["_H", 1, 32, "email", 32, "properties", 32, "person", 1, 3]
    assert api.create(masking=masking)["masking"] == {**masking, "bytecode": bytecode}
    assert api.refused(masking={**masking, "ttl": 59}) == {
        "type": "validation_error",
        "code": "min_value",
        "detail": "Ensure this value is greater than or equal to 60.",
        "attr": "masking__ttl",
    }


def test_25_7_mapping(api: Api) -> None:
    made = api.create(
        type="destination",
        name="Mapped",
        hog="print(inputs.message)",
        mappings=[
            {
                "name": "Views",
                "inputs_schema": [{"key": "message", "type": "string", "label": "Message", "required": True}],
                "inputs": {"message": {"value": "{event.event}"}},
                "filters": {"events": [{"id": "$pageview", "type": "events"}]},
            }
        ],
    )
    assert made["mappings"] == [
        {
            "name": "Views",
            "inputs_schema": [
                {
                    "type": "string",
                    "key": "message",
                    "label": "Message",
                    "required": True,
                    "secret": False,
                    "hidden": False,
                }
            ],
            "inputs": {
                "message": {
                    "value": "{event.event}",
                    "bytecode": ["_H", 1, 32, "event", 32, "event", 1, 2],
                    "order": 0,
                }
            },
            "filters": {
                "source": "events",
                "events": [{"id": "$pageview", "type": "events"}],
                "bytecode": ["_H", 1, 32, "$pageview", 32, "event", 1, 1, 11],
            },
        }
    ]


def test_25_11_rearrange(api: Api) -> None:
    a, b, c = (api.create(type="transformation", name=name, hog="return event") for name in "ABC")
    assert [one["execution_order"] for one in (a, b, c)] == [1, 2, 3]
    answer = api.patch("/hog_functions/rearrange/", {"orders": {b["id"]: 1, a["id"]: 2}})
    assert answer.status_code == 200
    assert [(one["name"], one["execution_order"]) for one in answer.json()] == [("B", 1), ("A", 2), ("C", 3)]
    refused = api.patch("/hog_functions/rearrange/", {})
    assert refused.status_code == 400
    assert refused.json() == {
        "type": "validation_error",
        "code": "invalid_input",
        "detail": "No orders provided",
        "attr": None,
    }


def test_25_12_delete_and_restore(api: Api) -> None:
    made = api.create(name="x")
    path = f"/hog_functions/{made['id']}/"
    refused = api.request("DELETE", path)
    assert (refused.status_code, refused.content) == (405, b"")
    assert api.get(path).status_code == 200
    assert api.change(made, deleted=True)["deleted"] is True
    assert api.get(path).status_code == 404
    assert api.patch(path, {"name": "y"}).status_code == 404
    assert api.change(made, deleted=False)["deleted"] is False
    assert api.get(path).status_code == 200


def test_25_13_list(api: Api) -> None:
    made = api.create(**PAGEVIEWS)
    api.create(name="Second hook", enabled=True)
    api.create(name="Third hook", enabled=True)
    api.create(name="Disabled hook")
    answer = api.get("/hog_functions/?type=destination,site_app&enabled=true&search=hook&limit=1&offset=0")
    listed = answer.json()
    assert listed["count"] == 3
    assert listed["next"] == (
        "http://localhost:8000/api/projects/1/hog_functions/"
        "?enabled=true&limit=1&offset=1&search=hook&type=destination%2Csite_app"
    )
    assert listed["previous"] is None
    assert list(listed["results"][0]) == [
        "id",
        "type",
        "name",
        "description",
        "created_at",
        "created_by",
        "updated_at",
        "enabled",
        "hog",
        "filters",
        "icon_url",
        "template",
        "status",
        "execution_order",
        "search_match_type",
    ]
    found = api.get("/hog_functions/?search=Pageviews to hook").json()["results"]
    assert [(one["id"], one["search_match_type"]) for one in found] == [(made["id"], "exact")]
