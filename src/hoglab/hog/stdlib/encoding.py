"""Library functions for base64 and percent encoding.  spec: hog-language 10.3."""

import base64
from functools import partial
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.patterns import searched
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.printing import js_string
from hoglab.hog.rt.text import clean
from hoglab.hog.rt.values import Value
from hoglab.hog.stdlib.registry import expect_string, function

declare = partial(function, category="strings")


@declare(
    "base64Encode",
    "text: string",
    returns="string",
    cost="growing",
    weight=2,
    context=True,
    doc="The UTF-8 bytes of the text in base64.",
    examples=(("base64Encode('hello')", "'aGVsbG8='"), ("base64Encode('é')", "'w6k='")),
)
def _base64_encode(ctx: Context, text: Value) -> str:
    source = clean(expect_string("base64Encode", text))
    ctx.grow(2 * len(source))
    return base64.b64encode(source.encode()).decode()


_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_NOT_BASE64: Final = bytes(set(range(128)) - set(_BASE64))
_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def decode_base64(text: str) -> bytes:
    """Decode base64 in either alphabet, read leniently: padding may miss, foreign characters are skipped."""
    digits = text.partition("=")[0].encode("ascii", "ignore").translate(_URL_SAFE, _NOT_BASE64)
    if len(digits) % 4 == 1:
        digits = digits[:-1]
    return base64.b64decode(digits + b"=" * (-len(digits) % 4))


@declare(
    "base64Decode",
    "text: string",
    returns="string",
    cost="linear",
    weight=8,
    context=True,
    doc="The text whose UTF-8 bytes the argument holds in base64. Characters that do not belong there are "
    "skipped, and padding may be left out.",
    examples=(
        ("base64Decode('aGVsbG8=')", "'hello'"),
        ("base64Decode('aGk')", "'hi'"),
        ("base64Decode('!!!')", "''"),
    ),
)
def _base64_decode(ctx: Context, text: Value) -> str:
    source = expect_string("base64Decode", text)
    ctx.grow(len(source))
    return decode_base64(source).decode("utf-8", "replace")


@declare(
    "tryBase64Decode",
    "text: any",
    returns="string",
    cost="linear",
    weight=8,
    context=True,
    infallible=True,
    doc="Like base64Decode, but empty for anything that is not a string.",
    examples=(("tryBase64Decode('aGVsbG8=')", "'hello'"), ("tryBase64Decode(null)", "''")),
)
def _try_base64_decode(ctx: Context, text: Value) -> str:
    return _base64_decode(ctx, text) if text.__class__ is str else ""


_KEPT: Final = "-_.!~*'()"


@declare(
    "encodeURLComponent",
    "text: any",
    returns="string",
    cost="growing",
    weight=32,
    context=True,
    doc="The text for use inside a URL: everything but letters, digits and - _ . ! ~ * ' ( ) is "
    "percent-encoded.",
    examples=(("encodeURLComponent('a b&c')", "'a%20b%26c'"), ("encodeURLComponent('é')", "'%C3%A9'")),
)
def _encode_url(ctx: Context, text: Value) -> str:
    source = clean(js_string(text))
    ctx.grow(3 * len(source))
    return quote(source, safe=_KEPT)


_ESCAPE_BYTES: Final = 100  # what decoding needs for each escape in passing
_ESCAPES: Final = searched(r"%(?![0-9A-Fa-f]{2})")


def _decoded(ctx: Context, text: str) -> str | None:
    ctx.grow(len(text) + _ESCAPE_BYTES * text.count("%"))
    if _ESCAPES.search(text):
        return None
    try:
        return unquote_to_bytes(clean(text)).decode("utf-8")
    except UnicodeDecodeError:
        return None


@declare(
    "decodeURLComponent",
    "text: any",
    returns="string",
    cost="linear",
    weight=8,
    context=True,
    doc="The text with percent-encoded characters put back; fails when they are malformed. A plus sign "
    "stays.",
    examples=(("decodeURLComponent('a%20b%26c')", "'a b&c'"), ("decodeURLComponent('a+b')", "'a+b'")),
)
def _decode_url(ctx: Context, text: Value) -> str:
    decoded = _decoded(ctx, js_string(text))
    if decoded is None:
        raise HogRuntimeError("Function decodeURLComponent got malformed text")
    return decoded


@declare(
    "tryDecodeURLComponent",
    "text: any",
    returns="string|null",
    cost="linear",
    weight=8,
    context=True,
    doc="Like decodeURLComponent, but null for malformed text and for null.",
    examples=(
        ("tryDecodeURLComponent('a%20b')", "'a b'"),
        ("tryDecodeURLComponent('%zz')", "null"),
        ("tryDecodeURLComponent(null)", "null"),
    ),
)
def _try_decode_url(ctx: Context, text: Value) -> str | None:
    return None if text is None else _decoded(ctx, js_string(text))
