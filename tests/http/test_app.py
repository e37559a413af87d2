"""The application around the endpoints: ids, logs, failures, probes, CORS, hot routes."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import httpx
import pytest
import structlog
from prometheus_client import REGISTRY, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from hoglab.http import errors
from hoglab.http.app import MAX_LOGGED
from hoglab.http.errors import ApiError, BareError
from hoglab.http.fields.wire import user_object
from hoglab.http.health import Problem
from hoglab.http.logs import configure_logging, redact_keys, redact_query
from hoglab.http.management.config import HttpConfig
from hoglab.http.requests.body import ClientGoneError, read_body
from hoglab.http.responses import encode_json, error_response
from hoglab.storage.database.errors import DatabaseBusyError, DatabaseFullError

WIDGETS = "/api/projects/1/widgets/"
ORIGIN = {"Origin": "https://shop.example.com"}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is logged, as lines of JSON."""
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    configure_logging("debug", "json", stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:], root.level = before


def lines(stream: io.StringIO, event: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [entry for entry in entries if entry["event"] == event]


class TestRequestIds:
    def test_given_and_kept(self, client: Any) -> None:
        first, second = (client.get(WIDGETS).headers["X-Request-Id"] for _ in range(2))
        assert first != second
        assert client.get(WIDGETS, headers={"X-Request-Id": "abc-1"}).headers["X-Request-Id"] == "abc-1"

    @pytest.mark.parametrize("sent", ["", "a b", "x" * 129, "a\tb", "é".encode("latin-1")])
    def test_odd_ones_are_replaced(self, client: Any, sent: Any) -> None:
        assert len(client.get("/nothing", headers={"X-Request-Id": sent}).headers["X-Request-Id"]) == 32


class TestLog:
    def test_one_line_without_secrets(self, client: Any, log: io.StringIO, first: Any) -> None:
        query = {"personal_api_key": client.key, "token": first.project_token, "a": "b c"}
        client.post(WIDGETS, params=query, json={"name": "secret name", "personal_api_key": client.key})
        [line] = lines(log, "request")
        assert line["method"] == "POST"
        assert line["path"] == WIDGETS
        assert line["query"] == "personal_api_key=***&token=***&a=b+c"
        assert line["status"] == 201
        assert line["project_id"] == 1
        assert line["duration_ms"] > 0
        assert line["client"] == "127.0.0.1"
        assert len(line["request_id"]) == 32
        assert len(line["key_id"]) == 36
        everything = log.getvalue()
        for secret in (client.key, first.project_token, "secret name"):
            assert secret not in everything

    def test_errors_are_logged_too(self, client: Any, log: io.StringIO) -> None:
        client.with_key(None).get(WIDGETS)
        client.get("/nothing")
        assert [line["status"] for line in lines(log, "request")] == [401, 404]

    def test_can_be_switched_off(self, make_client: Any, log: io.StringIO) -> None:
        make_client(HttpConfig(access_log=False)).get(WIDGETS)
        assert lines(log, "request") == []

    def test_probes_are_quiet(self, client: Any, log: io.StringIO) -> None:
        client.get("/_health")
        assert lines(log, "request") == []

    def test_other_libraries_log_the_same_way(self, log: io.StringIO) -> None:
        logging.getLogger("something").warning("look out %s", "below")
        [line] = lines(log, "look out below")
        assert line["level"] == "warning"

    def test_console_form(self) -> None:
        stream = io.StringIO()
        configure_logging("info", "console", stream)
        try:
            secret = "phx_inside_a_variable"
            structlog.get_logger().debug("hidden")
            structlog.get_logger().error("shown", exc_info=RuntimeError("burst phx_0123456789"))
        finally:
            structlog.reset_defaults()
        assert "shown" in stream.getvalue()
        assert "burst" in stream.getvalue()
        assert "hidden" not in stream.getvalue()
        assert "phx_0" not in stream.getvalue()
        assert secret not in stream.getvalue()

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            (b"", ""),
            (b"a=1&personal_api_key=phx_1&b=2", "a=1&personal_api_key=***&b=2"),
            (b"token=phc_1", "token=***"),
            (b"TOKEN=phc_1&TOKEN=x", "TOKEN=***&TOKEN=***"),
            (b"x=phx_0123456789ab", "x=phx_***"),
            (b"nottoken=1", "nottoken=1"),
            (b"\xff", "�"),
        ],
    )
    def test_redaction(self, query: bytes, text: str) -> None:
        assert redact_query(query) == text

    def test_keys_anywhere(self) -> None:
        assert redact_keys("/a/phx_0123456789/b phs_0123456789") == "/a/phx_***/b phs_***"


class TestFailures:
    def test_defect_of_ours(self, client: Any, log: io.StringIO) -> None:
        response = client.post(WIDGETS + "trouble")
        assert response.status_code == 500
        assert response.json() == {
            "type": "server_error",
            "code": "error",
            "detail": "A server error occurred.",
            "attr": None,
        }
        [line] = lines(log, "unhandled_exception")
        assert "boiler burst" in line["exception"]
        assert "in trouble" in line["exception"]
        assert "phx_***" in line["exception"]
        assert "phx_0" not in log.getvalue()
        assert line["request_id"] == response.headers["X-Request-Id"]
        assert line["route"] == "/api/projects/{project_id}/widgets/trouble"
        assert [each["level"] for each in lines(log, "request")] == ["error"]

    @pytest.mark.parametrize(
        ("error", "status", "retry"),
        [
            (DatabaseBusyError("x"), 503, "2"),
            (DatabaseFullError("x"), 503, "30"),
            (RuntimeError("x"), 500, None),
        ],
    )
    @pytest.mark.logs_exceptions
    def test_known_errors(self, make_client: Any, error: Exception, status: int, retry: str | None) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise error

        response = make_client(hot={"/x": app}).get("/x")
        assert response.status_code == status
        assert set(response.json()) == {"type", "code", "detail", "attr"}
        assert response.headers.get("Retry-After") == retry

    @pytest.mark.logs_exceptions
    def test_failure_after_the_start_of_the_answer(self, make_client: Any) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise RuntimeError("too late")

        with pytest.raises(RuntimeError, match="too late"):
            request_raising(make_client(hot={"/x": app}), "/x")

    def test_client_that_went_away(self, make_client: Any, log: io.StringIO) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise ClientGoneError

        client = make_client(hot={"/x": app})
        messages: list[Any] = []

        async def go() -> None:
            async def send(message: Any) -> None:
                messages.append(message)

            await client.app({**SCOPE, "path": "/x"}, None, send)

        client.runner.run(go())
        assert messages[0]["status"] == 400  # it may have closed only its own direction
        assert lines(log, "unhandled_exception") == []

    def test_bare_errors(self) -> None:
        response = error_response(BareError(400, {"error": "Invalid limit or offset"}))
        assert (response.status_code, response.body) == (400, b'{"error":"Invalid limit or offset"}')
        assert error_response(BareError(405, None)).body == b""

    def test_further_keys_of_an_error(self) -> None:
        error = ApiError(409, "server_error", "conflict", "Changed.", extra={"current": 3})
        assert list(error.body or {}) == ["type", "code", "detail", "attr", "current"]
        assert str(error) == "409 conflict: Changed."

    def test_shorthands(self) -> None:
        generic = errors.validation_error("x", "a__b", code="invalid")
        assert (generic.code, generic.attr) == ("invalid_input", "a__b")
        assert errors.required("name").body == {
            "type": "validation_error",
            "code": "required",
            "detail": "This field is required.",
            "attr": "name",
        }
        assert errors.does_not_exist(5, "holdout_id").detail == 'Invalid pk "5" - object does not exist.'
        assert errors.role_too_low("editor").detail == "You do not have editor access to this resource."
        assert errors.conflict("x").status == 409


SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "raw_path": b"/",
    "query_string": b"",
    "headers": [(b"host", b"test")],
    "http_version": "1.1",
    "scheme": "http",
}


def request_raising(client: Any, path: str) -> None:
    async def go() -> None:
        async def send(message: Any) -> None: ...

        await client.app({**SCOPE, "path": path}, None, send)

    client.runner.run(go())


def test_answers_that_follow_from_events_tell_how_late_these_are(make_client: Any) -> None:
    client = make_client(lag_s=lambda: 12.34)
    assert client.get("/api/things/open/").headers["X-Hoglab-Ingestion-Lag"] == "12.3"
    assert "X-Hoglab-Ingestion-Lag" not in client.get("/api/things/").headers


class TestProbes:
    def test_up(self, client: Any) -> None:
        nobody = client.with_key(None)
        for path in ("/_health", "/_liveness", "/_readiness"):
            assert nobody.get(path).json() == {"status": "ok"}
            assert nobody.request("HEAD", path).content == b""
        assert nobody.get("/").json()["name"] == "hoglab"
        assert nobody.post("/_health").status_code == 405

    def test_not_ready(self, make_client: Any) -> None:
        problems = [Problem("event log", "cannot be written")]
        client = make_client(checks=lambda: problems)
        response = client.get("/_readiness")
        reasons = ["event log: cannot be written"]
        assert (response.status_code, response.json()) == (503, {"status": "not ready", "reasons": reasons})
        health = client.get("/_health")
        assert (health.status_code, health.json()) == (200, {"status": "degraded", "problems": reasons})
        assert client.get("/_liveness").json() == {"status": "ok"}
        problems.clear()
        assert client.get("/_readiness").status_code == 200

    def test_problem_that_does_not_block(self, make_client: Any) -> None:
        client = make_client(checks=lambda: [Problem("delivery", "stands still", blocks=False)])
        response = client.get("/_readiness")
        assert (response.status_code, response.json()) == (
            200,
            {"status": "ok", "degraded": ["delivery: stands still"]},
        )
        assert client.get("/_health").json()["problems"] == ["delivery: stands still"]

    @pytest.mark.logs_exceptions
    def test_check_that_fails(self, make_client: Any) -> None:
        def check() -> list[Problem]:
            raise OSError("the disk is gone")

        response = make_client(checks=check).get("/_readiness")
        assert (response.status_code, response.json()["reasons"]) == (
            503,
            ["health: the check failed: OSError"],
        )

    def test_metrics_count_problems(self, make_client: Any) -> None:
        found = [
            Problem("disk", "is full"),
            Problem("disk", "is slow"),
            Problem("clock", "is late", blocks=False),
        ]
        text = (
            make_client(checks=lambda: found)
            .with_key(None)
            .get("/metrics", headers={"Host": "localhost"})
            .text
        )
        assert 'hoglab_problems{blocking="yes",component="disk"} 2.0' in text
        assert 'hoglab_problems{blocking="no",component="clock"} 1.0' in text

    def test_who_reads_metrics_while_problems_are_counted_sees_those_of_before(
        self, make_client: Any
    ) -> None:
        counted = 'hoglab_problems{blocking="yes",component="disk"} 1.0'
        seen: list[bool] = []

        class Reader:
            """Whether a problem blocks; whoever asks for it has somebody else read the metrics meanwhile."""

            reads = False

            def __bool__(self) -> bool:
                if self.reads:
                    self.reads = False
                    seen.append(counted in generate_latest(REGISTRY).decode())
                return True

        reader = Reader()
        client = make_client(checks=lambda: [Problem("disk", "is full", blocks=cast(bool, reader))])
        assert counted in client.with_key(None).get("/metrics", headers={"Host": "localhost"}).text
        reader.reads = True
        assert counted in client.with_key(None).get("/metrics", headers={"Host": "localhost"}).text
        assert seen == [True]

    def test_metrics(self, client: Any) -> None:
        client.get(WIDGETS + "3/")
        client.get(WIDGETS + "99/")
        text = client.with_key(None).get("/metrics", headers={"Host": "localhost"}).text
        route = 'method="GET",route="/api/projects/{project_id}/widgets/{widget_id}"'
        assert f"hoglab_http_request_seconds_count{{{route}}}" in text
        assert f'hoglab_http_requests_total{{{route},status="404"}}' in text
        assert "process_resident_memory_bytes" in text
        assert "hoglab_problems{" not in text
        assert "/widgets/99" not in text


async def hot(scope: Any, receive: Any, send: Any) -> None:
    body = await read_body(scope, receive, limit_bytes=10)
    if scope["method"] == "OPTIONS":
        raise errors.method_not_allowed("OPTIONS")
    await JSONResponse({"got": len(body)})(scope, receive, send)


async def config(request: Any) -> Any:
    if request.path_params["token"] == "gone":
        raise HTTPException(404)
    return PlainTextResponse(request.path_params["token"])


class TestHotRoutes:
    @pytest.fixture
    def sdk(self, make_client: Any) -> Any:
        return make_client(
            hot={"/batch": hot, "/i/v0/e/": hot},
            sdk=[Route("/array/{token}/config", config)],
            public=[Route("/public/webhooks/{token}", config)],
        ).with_key(None)

    def test_with_and_without_slash(self, sdk: Any) -> None:
        for path in ("/batch", "/batch/", "/i/v0/e", "/i/v0/e/"):
            assert sdk.post(path, content=b"abc").json() == {"got": 3}
        assert sdk.post("/batch//").status_code == 404

    def test_patterns(self, sdk: Any) -> None:
        assert sdk.get("/array/T/config").text == "T"
        assert sdk.get("/public/webhooks/W").text == "W"
        assert sdk.post("/array/T/config").status_code == 405
        response = sdk.get("/array/gone/config")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("POST", "/batch", 200),
            ("POST", "/i/v0/e/?x=12345678901", 413),
            ("GET", "/array/T/config", 200),
            ("GET", "/array/gone/config", 404),
        ],
    )
    def test_cors_on_every_answer(self, sdk: Any, method: str, path: str, status: int) -> None:
        content = b"a" * 11 if status == 413 else b"abc"
        response = sdk.request(method, path, content=content, headers=ORIGIN)
        assert response.status_code == status
        assert response.headers["Access-Control-Allow-Origin"] == ORIGIN["Origin"]
        assert response.headers["Access-Control-Allow-Credentials"] == "true"
        assert response.headers["Access-Control-Allow-Methods"] == "GET, POST, OPTIONS"
        assert response.headers["Vary"] == "Origin"

    @pytest.mark.parametrize("path", ["/batch/", "/array/T/config"])
    def test_preflight(self, sdk: Any, path: str) -> None:
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-a, content-type",
        }
        response = sdk.request("OPTIONS", path, headers={**ORIGIN, **asked})
        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["Access-Control-Allow-Origin"] == ORIGIN["Origin"]
        assert response.headers["Access-Control-Allow-Headers"] == "x-a, content-type"
        assert response.headers["Access-Control-Max-Age"] == "86400"

    def test_options_that_is_no_preflight(self, sdk: Any) -> None:
        assert sdk.request("OPTIONS", "/batch/").status_code == 405

    def test_no_cors_elsewhere(self, sdk: Any) -> None:
        for path in ("/public/webhooks/W", WIDGETS, "/_health", "/nothing"):
            assert "Access-Control-Allow-Origin" not in sdk.get(path, headers=ORIGIN).headers
        assert "Access-Control-Allow-Origin" not in sdk.post("/batch").headers


class TestLifespan:
    def test_start_and_stop(self, client: Any) -> None:
        steps: list[str] = []

        received = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            steps.append("receive")
            return next(received)

        async def send(message: Any) -> None:
            steps.append(message["type"])

        asyncio.run(client.app({"type": "lifespan"}, receive, send))
        assert steps == [
            "receive",
            "lifespan.startup.complete",
            "receive",
            "lifespan.shutdown.complete",
        ]

    def test_websockets_are_refused(self, client: Any) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(client.app({"type": "websocket"}, None, send))
        assert sent == [{"type": "websocket.close", "code": 1000}]


class TestEncoding:
    def test_json_of_the_wire(self) -> None:
        class Model(BaseModel):
            a: int = 1

        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        value = {
            "nan": [float("nan"), float("inf"), -float("inf")],
            "text": "é/<>",
            "moment": [moment, moment.replace(microsecond=0)],
            "uuid": UUID(int=1),
            "set": {1},
            "tuple": (1, 2),
            "decimal": Decimal("1.5"),
            "model": Model(),
            5: None,
        }
        text = (
            '{"nan":[null,null,null],"text":"é/<>",'
            '"moment":["2026-01-02T03:04:05.678901Z","2026-01-02T03:04:05Z"],'
            '"uuid":"00000000-0000-0000-0000-000000000001","set":[1],"tuple":[1,2],"decimal":1.5,'
            '"model":{"a":1},"5":null}'
        )
        assert encode_json(value) == text.encode()

    @pytest.mark.parametrize("value", [b"bytes", object()])
    def test_what_has_no_form(self, value: Any) -> None:
        with pytest.raises(TypeError, match="not JSON serializable"):
            encode_json(value)

    def test_users(self, accounts: Any, first: Any) -> None:
        user = accounts.users([accounts.owner_id()])[accounts.owner_id()]
        shown = user_object(user)
        assert shown is not None
        assert list(shown) == [
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
        assert shown["hedgehog_config"] is None
        assert user_object(None) is None


class TestThreads:
    def test_slow_handlers_keep_no_quick_one_waiting(self, make_client: Any) -> None:
        """With all slow threads busy, keys are checked and quick handlers answer."""
        client = make_client(HttpConfig(handler_threads=1, heavy_threads=1))
        gate = client.gate

        async def go() -> None:
            headers = {"Authorization": f"Bearer {client.key}"}
            transport = httpx.ASGITransport(client.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://test", headers=headers
            ) as http:
                slow = asyncio.gather(*(http.get(WIDGETS + "slow/") for _ in range(3)))
                await asyncio.to_thread(gate.entered.wait, 10)
                assert (await http.get(WIDGETS + "3/")).status_code == 200
                assert not slow.done()
                gate.open.set()
                assert [answer.status_code for answer in await slow] == [200] * 3

        client.runner.run(go())

    def test_log_lines_are_not_too_long(self, client: Any, log: io.StringIO) -> None:
        client.get("/" + "a" * 5000, params={"q": "b" * 5000})
        [line] = lines(log, "request")
        assert len(line["path"]) == len(line["query"]) == MAX_LOGGED
