"""What programs ask of the host: requests to send, time to wait, events to capture (spec: hog-runtime 4.2-4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from hoglab.delivery.fetch import FetchFailure, FetchRequest
from hoglab.delivery.globals import milliseconds
from hoglab.functions.environments import DELIVERING
from hoglab.hog.env import host_function
from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.json_text import stringify
from hoglab.hog.rt.numbers import format_number
from hoglab.hog.rt.values import to_json
from hoglab.hog.run import Execution

IDEMPOTENCY_KEY = "Idempotency-Key"

MAX_SLEEP_S = 86_400.0
"""The longest `sleep`."""

MAX_CHAIN = 9
"""An event that this many functions in a row have led to may not lead to another captured event."""

CHAIN_PROPERTY = "$hog_function_execution_count"


class HostedExecution(Execution):
    """An execution whose program may capture one event. ``event``: the one that it runs on, as in globals."""

    run_id: str = ""
    event: Mapping[str, Any] = {}
    person: Mapping[str, Any] | None = None
    captured: dict[str, Any] | None = None
    called_capture = False
    loop_found = False


def _capture(context: Context, wanted: Any = None) -> None:
    execution = getattr(context, "owner", None)
    if not isinstance(execution, HostedExecution):
        raise HogRuntimeError("Unknown async function 'postHogCapture'")
    if execution.called_capture:
        raise HogRuntimeError(
            "postHogCapture was called more than once. Only one call is allowed per function"
        )
    given = to_json(wanted) if isinstance(wanted, dict) else {}
    name = given.get("event")
    if not isinstance(name, str) or not name:
        raise HogRuntimeError("[HogFunction] - postHogCapture call missing 'event' property")
    person = execution.person or {}
    distinct_id = given.get("distinct_id") or execution.event.get("distinct_id") or person.get("id")
    if not distinct_id:
        raise HogRuntimeError("[HogFunction] - postHogCapture call missing 'distinct_id' property")
    execution.called_capture = True
    before = (execution.event.get("properties") or {}).get(CHAIN_PROPERTY)
    count = before if isinstance(before, (int, float)) and not isinstance(before, bool) else 0
    if count > MAX_CHAIN:
        execution.loop_found = True
        return
    properties = given.get("properties")
    execution.captured = {
        "event": name,
        "distinct_id": distinct_id if isinstance(distinct_id, str) else stringify(distinct_id),
        # The same when the program is run again, so that the event is stored once.
        "uuid": str(uuid5(UUID(execution.run_id), "capture")),
        "timestamp": milliseconds(datetime.fromtimestamp(context.now(), UTC)),
        "properties": {
            **(properties if isinstance(properties, dict) else {}),
            CHAIN_PROPERTY: int(count) + 1,
        },
    }


PRINT_ROOM_CHARS = 20_000
"""Printed lines are kept longer than logs show them, so that a secret is replaced before a cut could split it."""

RUNNING = DELIVERING.with_functions(
    host_function("postHogCapture", _capture, min_args=0, max_args=1, needs_context=True)
).with_limits(replace(DELIVERING.limits, print_chars=PRINT_ROOM_CHARS))
"""What programs of destinations run in: capturing does not make them wait."""


def fetch_request(args: list[Any], key: str | None) -> FetchRequest | FetchFailure:
    """The request that a program's ``fetch(url, options)`` asks for. ``key`` becomes `IDEMPOTENCY_KEY`
    unless the program sets that header itself."""
    url = args[0] if args else None
    if not isinstance(url, str):
        return FetchFailure("invalid_url", "TypeError", "Invalid URL")
    options = args[1] if len(args) > 1 and isinstance(args[1], dict) else {}
    method = options.get("method") or "POST"
    headers = _headers(options.get("headers"))
    if key is not None and not any(name.lower() == "idempotency-key" for name in headers):
        headers[IDEMPOTENCY_KEY] = key
    return FetchRequest(url, str(method), headers, _body(options.get("body")))


def _headers(wanted: Any) -> dict[str, str]:
    if not wanted:
        return {"Content-Type": "application/json"}
    if not isinstance(wanted, dict):
        return {}
    headers = {}
    for name, value in wanted.items():
        if isinstance(value, str):
            headers[name] = value
        elif isinstance(value, bool):
            headers[name] = "true" if value else "false"
        elif isinstance(value, (int, float)):
            headers[name] = format_number(value)
    return headers


def _body(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    # What is false in JavaScript is no body; empty lists and objects are one.
    if value is None or value is False or value == 0:
        return None
    return stringify(value)


def sleep_seconds(args: list[Any]) -> float | None:
    """How long ``sleep(seconds)`` is to wait; None for what is no such time."""
    seconds = args[0] if args else None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return None
    return float(seconds) if 0 <= seconds <= MAX_SLEEP_S else None
