"""Keeping secrets out of logs and errors (spec: hog-runtime 3, last paragraph)."""

from __future__ import annotations

import base64
import contextlib
import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from hoglab.hog.values import repr_value
from hoglab.patterns import IGNORECASE, Searched, alternatives, anchored, escape, searched

REPLACEMENT = "***REDACTED***"

MIN_LENGTH = 1
"""Shortest secret that is replaced as a text; blank ones never are."""

_SECRET_KEY = searched(
    r"authorization|cookie|token|secret|password|passcode|credential|api[-_]?key|private[-_]?key|signing[-_]?key",
    IGNORECASE,
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
MIN_ENCODED_BYTES = 6
"""Shortest secret that is found in base64 and hexadecimal digits."""
SHARED_CHARACTERS = 3
"""Number of characters that the encoded forms of two secrets that follow each other may share."""
PATTERNS = 1_000
"""Maximum number of sets of secrets whose patterns are remembered: most runs of a function have the same."""

_BASIC = anchored(r"Basic\s+([A-Za-z0-9+/]+={0,2})\s*", IGNORECASE)
_BASE64 = "[A-Za-z0-9+/_-]"
_IN_BASE64 = {"+": r"(?:\+|-|%2[bB])", "/": "(?:/|_|%2[fF])"}
"""Characters that Base64 for addresses has in place of two others."""
_LEFT_ALONE = ("", "/", "!~*'()", ";,/?:@&=+$!~*'()#")
"""Characters that encoders of addresses do not encode; the last two: encodeURLComponent, and encodeURI of browsers."""
_HEX_DIGITS = searched("%[0-9A-F]{2}")
_PREFIX = searched(r"^(?:Bearer|Basic|Token)\s+", IGNORECASE)

Redact = Callable[[str], str]


def redactor(
    schema: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, Any],
    request: Mapping[str, Any] | None = None,
) -> Redact:
    """Return a function that replaces the secrets among resolved inputs everywhere in a text.

    In the ``request`` of a webhook, headers and query parameters with the names of credentials are secrets too.
    """
    secrets = set(_secrets(schema, inputs))
    if request is not None:
        secrets.update(
            value
            for part in (request["headers"], request["query"])
            for name, value in part.items()
            if _SECRET_KEY.search(name) or name in _HEADERS
        )
    secrets = {secret for secret in secrets if len(secret.strip()) >= MIN_LENGTH}
    if not secrets:
        return _unchanged
    pattern = _pattern(frozenset(secrets))
    return lambda text: _replaced(pattern, text)


def _replaced(pattern: Searched[str], text: str) -> str:
    """Return a text without the matches of a pattern.

    A match may begin within the last characters of another: a digit of base64 may be the end of one secret and the
    beginning of the next.
    """
    kept: list[str] = []
    done = begin = 0
    while (match := pattern.search(text, begin)) is not None:
        start, end = match.span()
        if start >= done:
            kept += (text[done:start], REPLACEMENT)
        done = max(done, end)
        begin = max(start + 1, end - SHARED_CHARACTERS)
    return "".join((*kept, text[done:])) if kept else text


@lru_cache(maxsize=PATTERNS)
def _pattern(secrets: frozenset[str]) -> Searched[str]:
    """Return the pattern that matches any form of some secrets, the longest first."""
    parts = {secret for whole in secrets for secret in _parts(whole)}
    texts = {form for part in parts for form in _texts_of(part)}
    forms = [(len(text), escape(text)) for text in texts]
    for part in parts | {_in_json(part) for part in parts}:
        forms += _encoded(part)
    forms.sort(key=lambda form: (-form[0], form[1]))
    return alternatives(form for _, form in forms)


def _unchanged(text: str) -> str:
    return text


def _secrets(schema: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> Iterator[str]:
    hidden = {entry["key"] for entry in schema if entry.get("secret")}
    integrations = {entry["key"] for entry in schema if str(entry.get("type")).startswith("integration")}
    integrations -= {entry["key"] for entry in schema if entry.get("type") == "integration_field"}
    for key, value in inputs.items():
        if key in hidden or key in integrations or _SECRET_KEY.search(key):
            yield from _texts(value)
        elif isinstance(value, Mapping):
            for name, part in value.items():
                if isinstance(part, str) and str(name).lower() in _HEADERS:
                    yield part


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


def _parts(secret: str) -> Iterator[str]:
    """Yield a secret with and without its scheme and surroundings, and the user and password of Basic credentials."""
    for form in (secret, _PREFIX.sub("", secret)):
        for part in (form, form.strip()):
            if len(part) >= MIN_LENGTH:
                yield part
    basic = _BASIC.fullmatch(secret)
    if basic is not None:
        with contextlib.suppress(ValueError):
            credentials = base64.b64decode(basic[1], validate=True).decode()
            password = credentials.partition(":")[2]
            yield from (part for part in (credentials, password) if len(part) >= MIN_ENCODED_BYTES)


def _texts_of(secret: str) -> Iterator[str]:
    """Yield the forms that a secret may have in a text.

    As it is, inside JSON, as Hog prints it, inside HTML, and as a part of an address.
    """
    yield secret
    if secret.isascii() and secret.isalnum():
        return  # the replacements below change nothing
    inside = _in_json(secret)
    ascii_only = json.dumps(secret)[1:-1]
    yield from (inside, ascii_only, orjson.dumps(inside).decode()[1:-1], json.dumps(ascii_only)[1:-1])
    yield repr_value(secret)[1:-1]
    yield html.escape(secret)
    for form in (secret, inside):
        quoted = {quote_plus(form, errors="replace")}
        quoted |= {quote(form, safe=left_alone, errors="replace") for left_alone in _LEFT_ALONE}
        for address in quoted:
            yield address
            yield _HEX_DIGITS.sub(lambda match: match[0].lower(), address)
            yield quote(address, safe="")


def _in_json(text: str) -> str:
    return orjson.dumps(text.encode("utf-8", "replace").decode()).decode()[1:-1]


def _encoded(secret: str) -> list[tuple[int, str]]:
    """Return a secret in hexadecimal digits, and as part of base64 text at any offset.

    Short secrets have none of these forms, which would be found in any text.
    """
    data = secret.encode("utf-8", "replace")
    if len(data) < MIN_ENCODED_BYTES:
        return []
    forms = [(2 * len(data), f"(?i:{data.hex()})")]
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + data).decode()
        # The characters that hold nothing but bits of the secret; the one after them may hold a few, too.
        whole = text[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]
        middle = "".join(_IN_BASE64.get(character, character) for character in whole)
        forms.append((len(whole), f"{middle}{_BASE64}?(?:=|%3[dD]){{0,2}}"))
    return forms
