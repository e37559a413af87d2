"""The examples of the contract on a fresh server, as they stand there but for ids, moments, users and the port.

What the user's document says wins over the examples: ``_create_in_folder`` is in every full form, and items of lists
have fourteen fields, so no ``draft_updated_at``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import free_port
from tests.contract.rules import rule
from tests.embedded import EmbeddedQueueTables
from tests.forked import ForkedServer
from tests.waiting import PATIENCE_S

from hoglab.storage.invocations import AppMetric, InvocationQueue, LogEntry

MOMENT = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}Z$")
UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
USER_KEYS = (
    "id uuid distinct_id first_name last_name email is_email_verified hedgehog_config role_at_organization"
)
OURS = "_create_in_folder"


class Fresh:
    """A server of its own, and a client for its first project."""

    def __init__(self, data: Path) -> None:
        environment = {"HOGLAB_ACCESS_LOG": "false"}
        self.server = ForkedServer(data=data, host="127.0.0.1", port=free_port(), environment=environment)
        self.server.start()
        headers = {"Authorization": f"Bearer {self.server.api_key}"}
        self.client = httpx.Client(
            base_url=f"{self.server.url}/api/projects/1", headers=headers, timeout=PATIENCE_S
        )

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """The body of the answer; a text is sent as it stands."""
        content = body if isinstance(body, str) or body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        answer = self.client.request(method, path, content=content, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def while_stopped(self, change: Callable[[InvocationQueue], None]) -> None:
        """Write what only a runtime writes."""
        self.server.stop()
        queue = InvocationQueue(EmbeddedQueueTables(self.server.data / "queue.db"))
        change(queue)
        queue.close()
        self.server.start()

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    fresh = Fresh(tmp_path / "data")
    yield fresh
    fresh.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    """For the examples that do not mind what else is on the server."""
    fresh = Fresh(tmp_path_factory.mktemp("examples") / "data")
    yield fresh
    fresh.close()


def normalised(value: Any, key: str = "") -> Any:
    """Without what differs from server to server."""
    if key == "created_by":
        assert list(value) == USER_KEYS.split()
        return "user"
    if isinstance(value, dict):
        return {name: normalised(each, name) for name, each in value.items() if name != OURS}
    if isinstance(value, list):
        return [normalised(each) for each in value]
    if isinstance(value, str):
        value = "moment" if MOMENT.match(value) else "id" if UUID.match(value) else value
    return value


def assert_same(answer: Any, example: Any) -> None:
    """Equal as texts, so that the order of keys and the kind of numbers count too."""
    wanted = json.loads(example) if isinstance(example, str) else example
    assert json.dumps(normalised(answer), indent=1) == json.dumps(normalised(wanted), indent=1)


CREATE = """
{"type": "destination", "name": "Pageviews to hook", "description": "Forward pageviews", "enabled": true,
 "hog": "fetch(inputs.url);\\n",
 "inputs_schema": [
   {"key": "url", "type": "string", "label": "URL", "required": true},
   {"key": "headers", "type": "dictionary", "label": "Headers"},
   {"key": "debug", "type": "boolean", "label": "Debug"},
   {"key": "note", "type": "string"}],
 "inputs": {
   "url": {"value": "https://hooks.example.com/in", "templating": "hog"},
   "headers": {"value": {"X-Lib": "v={event.properties.$lib_version}"}},
   "debug": {"value": false, "templating": "hog"},
   "stray": {"value": "dropped"}},
 "filters": {"events": [{"id": "$pageview", "name": "$pageview", "type": "events", "order": 0}]}}"""
USER = """{"id": 1, "uuid": "0199a3d4-0000-7000-8000-000000000001", "distinct_id": "u-1", "first_name": "",
 "last_name": "", "email": "user@example.com", "is_email_verified": true, "hedgehog_config": null,
 "role_at_organization": null}"""
FILTERS = """{"source": "events", "events": [{"id": "$pageview", "name": "$pageview", "type": "events", "order": 0}],
 "bytecode": ["_H", 1, 32, "$pageview", 32, "event", 1, 1, 11]}"""
CREATED = f"""
{{"id": "0199a3d4-1f2e-7000-9c55-7d3a51c0ffee", "type": "destination", "name": "Pageviews to hook",
 "description": "Forward pageviews", "created_at": "2026-01-05T10:00:00.123456Z", "created_by": {USER},
 "updated_at": "2026-01-05T10:00:00.123470Z", "enabled": true, "deleted": false, "hog": "fetch(inputs.url);",
 "bytecode": ["_H", 1, 32, "url", 32, "inputs", 1, 2, 2, "fetch", 1, 35], "transpiled": null,
 "inputs_schema": [
   {{"type": "string", "key": "url", "label": "URL", "required": true, "secret": false, "hidden": false}},
   {{"type": "dictionary", "key": "headers", "label": "Headers", "required": false, "secret": false, "hidden": false}},
   {{"type": "boolean", "key": "debug", "label": "Debug", "required": false, "secret": false, "hidden": false}},
   {{"type": "string", "key": "note", "required": false, "secret": false, "hidden": false}}],
 "inputs": {{
   "url": {{"value": "https://hooks.example.com/in", "templating": "hog",
     "bytecode": ["_H", 1, 32, "https://hooks.example.com/in"], "order": 0}},
   "headers": {{"value": {{"X-Lib": "v={{event.properties.$lib_version}}"}},
     "bytecode": {{"X-Lib": ["_H", 1, 32, "v=", 32, "$lib_version", 32, "properties", 32, "event", 1, 3, 2,
       "concat", 2]}},
     "order": 1}},
   "debug": {{"value": false, "templating": "hog", "order": 2}},
   "note": null}},
 "filters": {FILTERS}, "masking": null, "mappings": null, "icon_url": null, "template": null, "template_id": null,
 "status": {{"state": 1, "tokens": 10000}}, "execution_order": null, "batch_export_id": null, "version": 1,
 "draft": null, "draft_updated_at": null}}"""
LISTED = f"""
{{"id": "0199a3d4-1f2e-7000-9c55-7d3a51c0ffee", "type": "destination", "name": "Pageviews to hook",
 "description": "Forward pageviews", "created_at": "2026-01-05T10:00:00.123456Z", "created_by": {USER},
 "updated_at": "2026-01-05T10:00:00.123470Z", "enabled": true, "hog": "fetch(inputs.url);", "filters": {FILTERS},
 "icon_url": null, "template": null, "status": {{"state": 1, "tokens": 10000}}, "execution_order": null,
 "search_match_type": "exact"}}"""


def refusal(detail: str, attr: str | None, code: str = "invalid_input") -> dict[str, Any]:
    return {"type": "validation_error", "code": code, "detail": detail, "attr": attr}


@rule("F25.1")
def test_1_create_a_custom_destination(shared: Fresh) -> None:
    made = shared.ask("POST", "/hog_functions/", CREATE, 201)
    assert [(each["code"], each["attr"]) for each in made.pop("warnings")] == [
        ("unknown_input", "inputs__stray")
    ]
    assert_same(made, CREATED)
    assert_same(shared.ask("GET", f"/hog_functions/{made['id']}/"), CREATED)


@rule("F25.2")
def test_2_minimal_create(shared: Fresh) -> None:
    made = shared.ask("POST", "/hog_functions/", {"name": "Fetch", "hog": "fetch(inputs.url);"}, 201)
    wanted = {
        "type": "destination",
        "enabled": False,
        "inputs_schema": [],
        "inputs": {},
        "filters": {"source": "events", "bytecode": ["_H", 1, 29]},
        "status": {"state": 0, "tokens": 0},
        "execution_order": None,
    }
    assert {name: made[name] for name in wanted} == wanted


@rule("F25.3")
def test_3_template_with_a_missing_required_input(shared: Fresh) -> None:
    body: dict[str, Any] = {"template_id": "template-webhook", "type": "destination"}
    refused = shared.ask("POST", "/hog_functions/", body, 400)
    assert_same(refused, refusal("This field is required.", "inputs__url"))
    body["inputs"] = {"url": {"value": "https://example.com"}}
    made = shared.ask("POST", "/hog_functions/", body, 201)
    template = shared.ask("GET", "/hog_function_templates/template-webhook/")
    for name in ("name", "description", "icon_url"):
        assert made[name] == template[name]
    assert made["hog"] == template["code"]
    assert [one["key"] for one in made["inputs_schema"]] == [one["key"] for one in template["inputs_schema"]]
    bytecode = ["_H", 1, 32, "https://example.com"]
    wanted = {"url": {"value": "https://example.com", "bytecode": bytecode, "order": 0}}
    assert_same(made["inputs"], wanted | dict.fromkeys(("method", "body", "headers", "debug")))


@rule("F25.4")
def test_4_secret_life_cycle(shared: Fresh) -> None:
    schema = [{"key": "token", "type": "string", "secret": True, "required": True}]
    body = {"hog": "return 1", "inputs_schema": schema, "inputs": {"token": {"value": "s3cr3t"}}}
    made = shared.ask("POST", "/hog_functions/", body, 201)
    masked = {"token": {"secret": True}}
    assert made["inputs"] == masked
    path = f"/hog_functions/{made['id']}/"
    for change in (
        {"inputs": {"token": {"secret": True}}},
        {"inputs": {"token": {"value": "n3w"}}},
        {"name": "x"},
    ):
        assert shared.ask("PATCH", path, change)["inputs"] == masked
    refused = shared.ask("POST", "/hog_functions/", {**body, "inputs": masked}, 400)
    detail = "No value is saved for this secret input. Enter the value again."
    assert_same(refused, refusal(detail, "inputs__token"))


@rule("F25.5")
def test_5_input_dependencies(shared: Fresh) -> None:
    body = """{"hog": "return 1", "inputs_schema": [{"key":"full","type":"string"},{"key":"base","type":"string"}],
     "inputs": {"full":{"value":"{inputs.base}/in"},"base":{"value":"https://x.io"}}}"""
    example = """
{"full": {"value": "{inputs.base}/in",
   "bytecode": ["_H", 1, 32, "base", 32, "inputs", 1, 2, 32, "/in", 2, "concat", 2], "order": 1},
 "base": {"value": "https://x.io", "bytecode": ["_H", 1, 32, "https://x.io"], "order": 0}}"""
    assert_same(shared.ask("POST", "/hog_functions/", body, 201)["inputs"], example)


@rule("F25.6")
def test_6_masking(shared: Fresh) -> None:
    masking: dict[str, Any] = {"ttl": 60, "threshold": 20, "hash": "{person.properties.email}"}
    made = shared.ask("POST", "/hog_functions/", {"hog": "return 1", "masking": masking}, 201)
    bytecode = ["_H", 1, 32, "email", 32, "properties", 32, "person", 1, 3]
    assert_same(made["masking"], {**masking, "bytecode": bytecode})
    refused = shared.ask(
        "POST", "/hog_functions/", {"hog": "return 1", "masking": {**masking, "ttl": 59}}, 400
    )
    detail = "Ensure this value is greater than or equal to 60."
    assert_same(refused, refusal(detail, "masking__ttl", "min_value"))


@rule("F25.7")
def test_7_mapping(shared: Fresh) -> None:
    body = """
{"type": "destination", "name": "Mapped", "hog": "print(inputs.message)",
 "mappings": [{"name": "Views",
   "inputs_schema": [{"key": "message", "type": "string", "label": "Message", "required": true}],
   "inputs": {"message": {"value": "{event.event}"}},
   "filters": {"events": [{"id": "$pageview", "type": "events"}]}}]}"""
    example = """
[{"name": "Views",
  "inputs_schema": [{"type": "string", "key": "message", "label": "Message", "required": true, "secret": false,
    "hidden": false}],
  "inputs": {"message": {"value": "{event.event}", "bytecode": ["_H", 1, 32, "event", 32, "event", 1, 2], "order": 0}},
  "filters": {"source": "events", "events": [{"id": "$pageview", "type": "events"}],
    "bytecode": ["_H", 1, 32, "$pageview", 32, "event", 1, 1, 11]}}]"""
    assert_same(shared.ask("POST", "/hog_functions/", body, 201)["mappings"], example)


@rule("F25.8")
def test_8_test_run(shared: Fresh) -> None:
    event = """{"uuid": "0199a3d4-aaaa-7000-8000-000000000009", "event": "$pageview", "distinct_id": "d1",
     "timestamp": "2026-01-05T10:00:00Z", "properties": {}}"""
    body = f"""
{{"configuration": {{"type": "destination", "name": "t",
  "hog": "let r := fetch(inputs.url, {{'method': 'POST'}});\\nprint('status', r.status)",
  "inputs_schema": [{{"key": "url", "type": "string", "required": true}}],
  "inputs": {{"url": {{"value": "https://hooks.example.com/in"}}}}}},
 "globals": {{"event": {event}}}, "mock_async_functions": true}}"""
    example = """
{"result": null, "status": "success", "errors": [],
 "logs": [
  {"level": "info", "timestamp": "2026-01-05T10:00:01.000Z",
   "message": "Async function 'fetch' was mocked with arguments:"},
  {"level": "info", "timestamp": "2026-01-05T10:00:01.000Z",
   "message": "fetch('https://hooks.example.com/in', {\\n  \\"method\\": \\"POST\\"\\n})"},
  {"level": "info", "timestamp": "2026-01-05T10:00:01.001Z", "message": "status, 200"},
  {"level": "debug", "timestamp": "2026-01-05T10:00:01.002Z", "message": "Function completed in 1.2ms."}]}"""
    answer = shared.ask("POST", "/hog_functions/new/invocations/", body)
    last = answer["logs"][-1]
    assert re.match(r"Function completed in \d+(\.\d+)?ms\.", last["message"])
    last["message"] = "Function completed in 1.2ms."
    assert_same(answer, example)
    for code, result in (("return event", "0199a3d4-aaaa-7000-8000-000000000009"), ("return null", None)):
        run = {"configuration": {"type": "transformation", "name": "t", "hog": code}}
        answer = shared.ask(
            "POST", "/hog_functions/new/invocations/", {**run, "globals": {"event": json.loads(event)}}
        )
        assert answer["status"] == "success"
        assert (answer["result"] and answer["result"]["uuid"]) == result
        assert result is None or list(answer["result"])[:2] == ["uuid", "event"]


@rule("F25.9", "F25.10")
def test_9_and_10_logs_and_metrics(fresh: Fresh) -> None:
    made = fresh.ask("POST", "/hog_functions/", {"hog": "return 1"}, 201)["id"]
    run = "0199a3d5-0001-7000-8000-000000000001"
    now = datetime.now(UTC)

    def happen(queue: InvocationQueue) -> None:
        start = now - timedelta(hours=1)  # older lines are removed when a server starts
        later = start + timedelta(milliseconds=1)
        queue.write_logs(
            [
                LogEntry(1, made, run, start, "info", "sending"),
                LogEntry(1, made, run, later, "error", "Webhook failed with status 500"),
                LogEntry(1, made, run, later + timedelta(milliseconds=1), "debug", "left out by level"),
            ]
        )
        counts = ((2, "succeeded", 10), (1, "succeeded", 12), (1, "failed", 1), (0, "succeeded", 4))
        queue.write_metrics(
            [
                AppMetric(
                    1,
                    made,
                    "failure" if name == "failed" else "success",
                    name,
                    count,
                    now - timedelta(days=back),
                )
                for back, name, count in counts
            ]
        )

    fresh.while_stopped(happen)
    path = f"/hog_functions/{made}"
    assert_same(
        fresh.ask("GET", f"{path}/logs/?limit=2&level=INFO,ERROR"),
        f"""
{{"count": 2, "next": null, "previous": null, "results": [
 {{"log_source_id": "{made}", "instance_id": "{run}", "timestamp": "2026-01-05T10:01:00.002000Z", "level": "ERROR",
   "message": "Webhook failed with status 500"}},
 {{"log_source_id": "{made}", "instance_id": "{run}", "timestamp": "2026-01-05T10:01:00.001000Z", "level": "INFO",
   "message": "sending"}}]}}""",
    )
    days = [(now - timedelta(days=back)).strftime("%Y-%m-%d") for back in (2, 1, 0)]
    assert fresh.ask("GET", f"{path}/metrics/?after=-2d&breakdown_by=name&interval=day") == {
        "labels": days,
        "series": [{"name": "failed", "values": [0, 1, 0]}, {"name": "succeeded", "values": [10, 12, 4]}],
    }
    totals = fresh.ask("GET", f"{path}/metrics/totals/?breakdown_by=name")
    assert totals == {"totals": {"succeeded": 26, "failed": 1}}


@rule("F25.11")
def test_11_rearrange(shared: Fresh) -> None:
    def make(name: str) -> str:
        body = {"type": "transformation", "name": name, "hog": "return event"}
        made: str = shared.ask("POST", "/hog_functions/", body, 201)["id"]
        return made

    a, b, c = (make(name) for name in "ABC")
    moved = shared.ask("PATCH", "/hog_functions/rearrange/", {"orders": {b: 1, a: 2}})
    assert [(one["id"], one["execution_order"]) for one in moved] == [(b, 1), (a, 2), (c, 3)]
    assert_same(
        shared.ask("PATCH", "/hog_functions/rearrange/", {}, 400), refusal("No orders provided", None)
    )


@rule("F25.12")
def test_12_delete_and_restore(shared: Fresh) -> None:
    path = f"/hog_functions/{shared.ask('POST', '/hog_functions/', {'hog': 'return 1'}, 201)['id']}/"
    assert shared.ask("DELETE", path, status=405) is None
    assert shared.ask("PATCH", path, {"deleted": True})["deleted"] is True
    shared.ask("GET", path, status=404)
    assert shared.ask("PATCH", path, {"deleted": False})["deleted"] is False
    assert shared.ask("GET", path)["deleted"] is False


@rule("F25.13")
def test_13_list(fresh: Fresh) -> None:
    app = "export function onLoad() {}"
    for body in (
        {"type": "site_app", "name": "A hook on the page", "hog": app, "enabled": True},
        {"name": "Another hook", "hog": "return 1", "enabled": True},
        {"name": "A hook that is off", "hog": "return 1"},
        {"type": "transformation", "name": "A hook of another type", "hog": "return event", "enabled": True},
    ):
        fresh.ask("POST", "/hog_functions/", body, 201)
    fresh.ask("POST", "/hog_functions/", CREATE, 201)
    query = "type=destination,site_app&enabled=true&search=hook&limit=1"
    page = fresh.ask("GET", f"/hog_functions/?{query}")
    base = f"{fresh.server.url}/api/projects/1/hog_functions/"
    assert (page["count"], page["previous"]) == (3, None)
    assert page["next"] == f"{base}?enabled=true&limit=1&offset=1&search=hook&type=destination%2Csite_app"
    query = "type=destination,site_app&enabled=true&search=pageviews to hook&limit=1"
    assert_same(fresh.ask("GET", f"/hog_functions/?{query}")["results"], f"[{LISTED}]")
