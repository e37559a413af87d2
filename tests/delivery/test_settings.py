"""Limits that the operator sets, at a server that is really started with them (spec: hog-runtime 4.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.conftest import StartServer
from tests.delivery.conftest import Receiver, receiver
from tests.waiting import PATIENCE_S

from hoglab.settings import SettingsError, load

__all__ = ["receiver"]  # a fixture

LIMITS = {
    "HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.0/8",
    "HOGLAB_FETCH_TIMEOUT_S": "0.5",
    "HOGLAB_FETCH_MAX_REQUEST_BYTES": "2048",
    "HOGLAB_FETCH_MAX_RESPONSE_BYTES": "1024",
    "HOGLAB_FUNCTION_TIME_S": "0.3",
    "HOGLAB_FUNCTION_CALLS": "2",
    "HOGLAB_FUNCTION_PROGRAM_BYTES": str(2 << 20),
    "HOGLAB_FILTER_TIME_S": "0.2",
}
SLOW = "length(arrayMap(a -> length(arrayMap(b -> a * b, range(3000))), range(3000)))"


def test_every_limit_acts(start_server: StartServer, receiver: Receiver) -> None:
    server = start_server(**LIMITS)

    def tried(hog: str, kind: str = "destination", **configuration: Any) -> dict[str, Any]:
        """What a test run comes to."""
        answer = httpx.post(
            f"{server.url}/api/projects/1/hog_functions/new/invocations/",
            json={
                "configuration": {"type": kind, "name": "f", "hog": hog, **configuration},
                "globals": {"event": {"event": "a", "distinct_id": "u", "properties": {}}},
                "mock_async_functions": False,
            },
            headers={"Authorization": f"Bearer {server.api_key}"},
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    def printed(hog: str) -> list[str]:
        return [line["message"] for line in tried(hog)["logs"] if line["level"] == "info"]

    def answer(request: web.Request, _number: int) -> Any:
        return asyncio.sleep(60) if request.path == "/hangs" else web.Response(text="x" * 3000)

    receiver.answer = answer
    url = receiver.url
    assert printed(f"print(length(fetch('{url}', {{'body': '{'a' * 2048}'}}).body))") == ["1024"]
    assert printed(f"print(fetch('{url}', {{'body': '{'a' * 2049}'}}).body)") == [
        "TypeError: Request body exceeds 2048 bytes"
    ]
    assert printed(f"print(fetch('{url}/hangs').body)") == ["TimeoutError: The request timed out after 0.5 s"]
    [error] = tried(f"let i := 0 while (i < 3) {{ fetch('{url}') i := i + 1 }}")["errors"]
    assert error.startswith("Exceeded maximum number of async steps: 2")
    for kind in ("destination", "transformation"):
        [error] = tried("while (true) {} return event", kind)["errors"]
        assert "Execution timed out after 0.3 seconds." in error
        [error] = tried("let a := range(100000) let b := range(100000) return event", kind)["errors"]
        assert "Memory limit of 2097152 bytes exceeded." in error
    filters = {"properties": [{"type": "hogql", "key": f"{SLOW} = 0"}]}
    schema = [{"key": "slow", "type": "string"}]
    for slow in (
        {"filters": filters},
        {"inputs_schema": schema, "inputs": {"slow": {"value": f"{{{SLOW}}}"}}},
    ):
        for kind in ("destination", "transformation"):
            assert "Execution timed out after 0.2 seconds." in str(tried("return event", kind, **slow))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("FILTER_TIME_S", "0", "greater than 0"),
        ("FILTER_TIME_S", "11", "less than or equal to 10"),
        ("FILTER_TIME_S", "soon", "valid number"),
        ("FUNCTION_PROGRAM_BYTES", "1000", "greater than or equal to 1048576"),
        ("FUNCTION_PROGRAM_BYTES", str(1 << 30), "above 536870912, half of HOGLAB_FUNCTION_MEMORY_BYTES"),
    ],
)
def test_what_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(f"HOGLAB_{name}", value)
    with pytest.raises(SettingsError, match=f"HOGLAB_{name}: .*{reason}"):
        load()
