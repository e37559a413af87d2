"""The types of inputs: which values are valid, and whether their texts are templates.

Spec: hog-functions-api 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_EMAIL_SENDERS = 10

Check = Callable[[Any], str | None]
"""Function that returns the problem of a value, None when there is none."""


@dataclass(frozen=True, slots=True)
class InputType:
    """One type of input. ``compiled``: texts inside the value are templates, except in its parts ``verbatim_keys``."""

    check: Check
    compiled: bool = False
    verbatim_keys: frozenset[str] = frozenset()


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _instance(kind: type | tuple[type, ...], message: str) -> Check:
    return lambda value: None if isinstance(value, kind) else message


def _anything(value: Any) -> str | None:  # noqa: ARG001 - the signature of a check
    return None


def _integration(value: Any) -> str | None:
    return None if _is_int(value) else "Value must be an Integration ID."


def _integrations(value: Any) -> str | None:
    if isinstance(value, list) and all(_is_int(item) for item in value):
        return None
    return "Value must be a list of Integration IDs."


def _strings(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return None
    return "Value must be a list of MCP connector IDs."


def _task_model(value: Any) -> str | None:
    if isinstance(value, dict):
        model, effort = value.get("model"), value.get("reasoning_effort")
        if isinstance(model, str) and model.strip() and (effort is None or isinstance(effort, str)):
            return None
    return (
        "Value must be an object with a non-empty 'model' string and an optional 'reasoning_effort' string."
    )


_WILDCARDS = frozenset({"4xx", "5xx"})


def _status_codes(value: Any) -> str | None:
    if not isinstance(value, list):
        return "Value must be a list of status codes."
    for status in value:
        if _is_int(status):
            if not 400 <= status <= 599:
                return "Status code numbers must be between 400 and 599."
        elif isinstance(status, str):
            if status.lower() not in _WILDCARDS:
                return "Wildcards must be '4xx' or '5xx'."
        else:
            return "Entries must be integers between 400 and 599 or wildcards '4xx' or '5xx'."
    return None


def _email(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "Value must be an email object."
    missing = [f"'{name}'" for name in ("from", "to", "subject") if not value.get(name)]
    if not value.get("text") and not value.get("html"):
        missing.append("either 'text' or 'html'")
    if missing:
        return f"Missing value{'s' if len(missing) > 1 else ''} for {', '.join(missing)}."
    return _sender(value["from"]) if isinstance(value["from"], dict) else None


def _sender(sender: Mapping[str, Any]) -> str | None:
    wrong = [
        f"'from.{name}'"
        for name in ("email", "name")
        if sender.get(name) is not None and not isinstance(sender[name], str)
    ]
    if wrong:
        return f"Expected string value{'s' if len(wrong) > 1 else ''} for {', '.join(wrong)}."
    ids = sender.get("integrationIds")
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(_is_int(item) for item in ids):
        return "Expected 'from.integrationIds' to be a list of Integration IDs."
    if len(ids) > MAX_EMAIL_SENDERS:
        return f"At most {MAX_EMAIL_SENDERS} email senders are allowed."
    return None


_DICTIONARY = _instance(dict, "Value must be a dictionary.")
_PLAIN = InputType(_anything)
_MAIL = InputType(_email, compiled=True, verbatim_keys=frozenset({"design"}))

TYPES: Mapping[str, InputType] = {
    "string": InputType(_instance(str, "Value must be a string."), compiled=True),
    "number": InputType(_instance((int, float), "Value must be a number.")),
    "boolean": InputType(
        _instance((bool, str), "Value must be a boolean or a template string."), compiled=True
    ),
    "dictionary": InputType(_DICTIONARY, compiled=True),
    "choice": _PLAIN,
    "json": InputType(_anything, compiled=True),
    "integration": InputType(_integration),
    "integration_multi": InputType(_integrations),
    "integration_field": _PLAIN,
    "email": _MAIL,
    "native_email": _MAIL,
    "posthog_assignee": _PLAIN,
    "posthog_business_hours": _PLAIN,
    "posthog_ticket_tags": InputType(_anything, compiled=True),
    "customer_analytics_account_properties": InputType(_DICTIONARY, compiled=True),
    "customer_analytics_account_relationships": InputType(_DICTIONARY, compiled=True),
    "non_failure_status_codes": InputType(_status_codes),
    "task_model": InputType(_task_model),
    "task_repository": InputType(_instance(str, "Value must be a repository name like your-org/your-repo.")),
    "task_mcp_installations": InputType(_strings),
}


def problem(entry: Mapping[str, Any], value: Any, templating: str | None) -> str | None:
    """Return the problem of a value that is not empty, None when there is none.

    ``entry`` is the input's entry in the schema, ``templating`` the item's.
    """
    if entry["type"] == "boolean":
        if entry.get("templating") is False:
            return None if isinstance(value, bool) else "Value must be a boolean."
        if isinstance(value, str) and templating == "liquid":
            return "Liquid templating is not supported for boolean fields. Use Hog templating instead."
    return TYPES[entry["type"]].check(value)
