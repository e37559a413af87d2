"""Keeping secrets out of logs and errors (spec: hog-runtime 3, last paragraph)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from hoglab.hog.rt.printing import repr_value

REPLACEMENT = "***REDACTED***"

MIN_LENGTH = 1
"""Shortest secret that is replaced; blank ones never are."""

_SECRET_KEY = re.compile(
    r"authorization|cookie|token|secret|password|passcode|credential|api[-_]?key|private[-_]?key|signing[-_]?key",
    re.IGNORECASE,
)
_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
        "api-key",
        "x-auth-token",
        "access-token",
        "x-auth",
        "token",
        "secret",
        "x-secret",
    }
)
_PREFIX = re.compile(r"^(?:Bearer|Basic|Token)\s+", re.IGNORECASE)

Redact = Callable[[str], str]


def redactor(
    schema: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, Any],
    request: Mapping[str, Any] | None = None,
) -> Redact:
    """A function that replaces the secrets among resolved inputs wherever they stand in a text.

    Of the ``request`` of a webhook, what its headers and its query say under the names of credentials is one too.
    """
    secrets = set(_secrets(schema, inputs))
    if request is not None:
        secrets.update(
            form
            for part in (request["headers"], request["query"])
            for name, value in part.items()
            if _SECRET_KEY.search(name) or name in _HEADERS
            for form in _forms(value)
        )
    if not secrets:
        return _unchanged
    pattern = re.compile("|".join(re.escape(secret) for secret in sorted(secrets, key=len, reverse=True)))
    return lambda text: pattern.sub(REPLACEMENT, text)


def _unchanged(text: str) -> str:
    return text


def _secrets(schema: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> Iterator[str]:
    hidden = {entry["key"] for entry in schema if entry.get("secret")}
    integrations = {entry["key"] for entry in schema if str(entry.get("type")).startswith("integration")}
    integrations -= {entry["key"] for entry in schema if entry.get("type") == "integration_field"}
    for key, value in inputs.items():
        if key in hidden or key in integrations or _SECRET_KEY.search(key):
            for text in _texts(value):
                yield from _forms(text)
        elif isinstance(value, Mapping):
            for name, part in value.items():
                if isinstance(part, str) and str(name).lower() in _HEADERS:
                    yield from _forms(part)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, (int, float)):
        yield str(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)


def _forms(text: str) -> Iterator[str]:
    """A secret as it may stand in a text: with and without its scheme, as it is, inside JSON, as Hog prints it, and
    as a part of an address."""
    for form in (text, _PREFIX.sub("", text)):
        if len(form.strip()) >= MIN_LENGTH:
            yield form
            yield form.strip()
            yield orjson.dumps(form.encode("utf-8", "replace").decode()).decode()[1:-1]
            yield repr_value(form)[1:-1]
            if form.isascii() and form.isalnum():
                continue  # what follows changes nothing
            yield quote_plus(form, errors="replace")
            for left_alone in ("", "/", "!~*'()"):  # the last: by encodeURLComponent
                yield quote(form, safe=left_alone, errors="replace")
