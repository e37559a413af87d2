"""No form of a secret is left in what a function says, wherever it stands (spec: hog-runtime 3)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.functions.secrets.redaction import MIN_ENCODED_BYTES, PATTERNS, REPLACEMENT, _pattern, redactor

SCHEMA = [{"key": "token", "type": "string", "secret": True}, {"key": "auth", "type": "dictionary"}]

SECRETS = st.text(st.characters(codec="utf-8"), min_size=MIN_ENCODED_BYTES, max_size=40).filter(
    lambda text: text.strip() == text
)
AROUND = st.text(st.characters(codec="utf-8"), max_size=9)


def in_base64(encode: Callable[[bytes], bytes], before: str, secret: str, after: str) -> tuple[str, str]:
    """What a program shows that encodes the secret with something around it, and the part that says nothing else."""
    shift, data = len(before.encode()), secret.encode()
    text = encode((before + secret + after).encode()).decode()
    return text, text[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]


FORMS: dict[str, Callable[[str, str, str], tuple[str, str]]] = {
    "as it is": lambda before, secret, after: (before + secret + after, secret),
    "JSON": lambda before, secret, after: (
        json.dumps({"a": before + secret + after}, ensure_ascii=False),
        json.dumps(secret, ensure_ascii=False)[1:-1],
    ),
    "ASCII JSON": lambda before, secret, after: (
        json.dumps([before, secret, after]),
        json.dumps(secret)[1:-1],
    ),
    "JSON in JSON": lambda before, secret, after: (
        json.dumps({"a": json.dumps([before, secret, after])}),
        json.dumps(json.dumps(secret)[1:-1])[1:-1],
    ),
    "base64": lambda *parts: in_base64(base64.b64encode, *parts),
    "base64 for addresses": lambda *parts: in_base64(base64.urlsafe_b64encode, *parts),
    "base64 in an address": lambda *parts: (
        quote(in_base64(base64.b64encode, *parts)[0], safe=""),
        quote(in_base64(base64.b64encode, *parts)[1], safe=""),
    ),
    "Basic": lambda before, secret, _after: in_base64(base64.b64encode, f"{before}:", secret, ""),
    "percent": lambda before, secret, after: (
        quote(before + secret + after, safe=""),
        quote(secret, safe=""),
    ),
    "form": lambda before, secret, after: (quote_plus(before + secret + after), quote_plus(secret)),
    "hexadecimal": lambda before, secret, after: (
        (before + secret + after).encode().hex(),
        secret.encode().hex(),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@given(before=AROUND, secret=SECRETS, after=AROUND)
def test_no_form_of_a_secret_is_left(form: str, before: str, secret: str, after: str) -> None:
    shown, part = FORMS[form](before, secret, after)
    assert part in shown
    left = redactor(SCHEMA, {"token": secret})(shown)
    assert REPLACEMENT in left
    # A part of a secret may repeat it in what was around it; nothing of the size of the secret is left.
    assert part not in left.replace(REPLACEMENT, "")


def test_what_follows_directly_is_found_too() -> None:
    """Encoded, the end of the first is the beginning of the second."""
    secret = "\x8000000\x80"
    shown, part = FORMS["base64 in an address"]("000000", secret, secret)
    assert part[1:] not in redactor(SCHEMA, {"token": secret})(shown)


@pytest.mark.parametrize(
    "secret", ['sk-live 42/+"ü', "AKIAIOSFODNN7EXAMPLE", "pa:ss", "-----KEY-----\nabc\ndef\n-----END-----"]
)
@pytest.mark.parametrize("user", ["", "a", "ab", "abc"])
def test_credentials_of_basic_are_found_either_way(secret: str, user: str) -> None:
    """A secret inside of them, and what they hold when they are the secret."""
    credentials = base64.b64encode(f"{user}:{secret}".encode()).decode()
    hide = redactor(SCHEMA, {"token": secret})
    core = in_base64(base64.b64encode, f"{user}:", secret, "")[1]
    if len(secret.encode()) >= MIN_ENCODED_BYTES:
        assert core not in hide(f"Authorization: Basic {credentials}")
        hide = redactor(SCHEMA, {"auth": {"Authorization": f"Basic {credentials}"}})
        assert hide(secret) == hide(f"Basic {credentials}") == REPLACEMENT


def test_short_secrets_are_found_as_texts_only() -> None:
    hide = redactor(SCHEMA, {"token": "abc"})
    assert hide("abc") == REPLACEMENT
    assert hide("YWJj 616263") == "YWJj 616263"


def test_patterns_are_made_once_for_the_same_secrets() -> None:
    _pattern.cache_clear()
    for _ in range(5):
        redactor(SCHEMA, {"token": "something secret"})
    assert (_pattern.cache_info().misses, _pattern.cache_info().maxsize) == (1, PATTERNS)
