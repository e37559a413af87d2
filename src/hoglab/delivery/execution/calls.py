"""Calls that programs make to the host: requests to send, time to wait (spec: hog-runtime 4.2, 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from hoglab.delivery.outbound import Email, FetchFailure, FetchRequest, MailFailure, MailLimits, email_of
from hoglab.hog.values import format_number, stringify

if TYPE_CHECKING:
    from hoglab.delivery.execution.program_run import PendingCall

SENDING = frozenset({"fetch", "sendEmail"})
"""Calls that send something."""

IDEMPOTENCY_KEY = "Idempotency-Key"

REDIRECTS: Mapping[Any, Literal["follow", "manual"]] = {"follow": "follow", "manual": "manual"}
"""Values of the option ``redirect`` of `fetch`."""

MAX_SLEEP_S = 86_400.0
"""Maximum duration of `sleep`, in seconds."""


def key_of(run_id: str, rerun: int, calls_made: int) -> str:
    """Return the idempotency key of a call, which begins with the run's id.

    It is the same for each attempt and different for all other calls. A run that is run again has other keys: its
    calls may differ by now, and a destination that honours keys would repeat its first answer and do nothing.
    ``rerun`` is the number of such runs.
    """
    return f"{run_id}-r{rerun}-{calls_made}" if rerun else f"{run_id}-{calls_made}"


def sent_by(
    call: PendingCall, key: str, limits: MailLimits
) -> FetchRequest | Email | FetchFailure | MailFailure:
    """Return the request or e-mail of a call of `SENDING`, or the failure to make it.

    ``key`` is the same for each attempt.
    """
    return fetch_request(call.args, key) if call.name == "fetch" else email_of(call.args, key, limits)


def fetch_request(args: list[Any], key: str | None) -> FetchRequest | FetchFailure:
    """Return the request that a program's ``fetch(url, options)`` asks for.

    ``key`` becomes `IDEMPOTENCY_KEY` unless the program sets that header itself, or logs in, which any number of
    runs may do together.
    """
    url = args[0] if args else None
    if not isinstance(url, str):
        return FetchFailure("invalid_url", "TypeError", "Invalid URL")
    options = args[1] if len(args) > 1 and isinstance(args[1], dict) else {}
    method = options.get("method") or "POST"
    headers = _headers(options.get("headers"))
    is_login = options.get("login") is True
    if key is not None and not is_login and not any(name.lower() == "idempotency-key" for name in headers):
        headers[IDEMPOTENCY_KEY] = key
    redirect = REDIRECTS.get(options.get("redirect") or "follow")
    if redirect is None:
        return FetchFailure("invalid_url", "TypeError", "The option redirect must be 'follow' or 'manual'")
    return FetchRequest(url, str(method), headers, _body(options.get("body")), redirect, is_login)


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
    # Values that are false in JavaScript are no body; empty lists and objects are one.
    if value is None or value is False or value == 0:
        return None
    return stringify(value)


def sleep_seconds(args: list[Any]) -> float | None:
    """Return the duration of ``sleep(seconds)``; None for an invalid one."""
    seconds = args[0] if args else None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return None
    return float(seconds) if 0 <= seconds <= MAX_SLEEP_S else None
