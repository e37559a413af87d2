"""Library functions for hashes and message authentication.  spec: hog-language 10.5."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import charge, reading_units
from hoglab.hog.rt.text import clean
from hoglab.hog.rt.values import HogTuple, Value
from hoglab.hog.stdlib.registry import expect_string, function

declare = partial(function, category="crypto", cost="linear")


def _base64url(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


_ENCODINGS: Final[dict[str, Callable[[bytes], str]]] = {
    "hex": bytes.hex,
    "base64": lambda digest: base64.b64encode(digest).decode(),
    "base64url": _base64url,
    "binary": lambda digest: digest.decode("latin-1"),
}


def _encoded(digest: bytes, encoding: Value) -> str:
    encode = _ENCODINGS["hex"] if encoding is None else None
    if encoding.__class__ is str:
        encode = _ENCODINGS.get(encoding)
    if encode is None:
        raise HogRuntimeError(f"Unknown encoding, expected one of {', '.join(_ENCODINGS)}")
    return encode(digest)


def _bytes(name: str, text: Value) -> bytes:
    return clean(expect_string(name, text)).encode()


def _hash(name: str, algorithm: Callable[..., Any], text: Value, encoding: Value) -> str | None:
    if text is None:
        return None
    return _encoded(algorithm(_bytes(name, text), usedforsecurity=False).digest(), encoding)


@declare(
    "md5Hex",
    "text: string|null",
    returns="string|null",
    doc="The MD5 hash of the text's UTF-8 bytes in hexadecimal; null for null.",
    examples=(("md5Hex('hello')", "'5d41402abc4b2a76b9719d911017c592'"), ("md5Hex(null)", "null")),
)
def _md5_hex(text: Value) -> str | None:
    return _hash("md5Hex", hashlib.md5, text, None)


@declare(
    "sha1Hex",
    "text: string|null",
    returns="string|null",
    doc="The SHA-1 hash of the text's UTF-8 bytes in hexadecimal; null for null.",
    examples=(
        ("sha1Hex('hello')", "'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'"),
        ("sha1Hex(null)", "null"),
    ),
)
def _sha1_hex(text: Value) -> str | None:
    return _hash("sha1Hex", hashlib.sha1, text, None)


@declare(
    "sha256Hex",
    "text: string|null",
    returns="string|null",
    doc="The SHA-256 hash of the text's UTF-8 bytes in hexadecimal; null for null.",
    examples=(
        ("sha256Hex('hello')", "'2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824'"),
        ("sha256Hex(null)", "null"),
    ),
)
def _sha256_hex(text: Value) -> str | None:
    return _hash("sha256Hex", hashlib.sha256, text, None)


@declare(
    "md5",
    "text: string|null",
    "encoding?: string",
    returns="string|null",
    doc="The MD5 hash in an encoding: hex (the default), base64, base64url without padding, or binary.",
    examples=(
        ("md5('hello', 'base64')", "'XUFAKrxLKna5cZ2REBfFkg=='"),
        ("md5('hello')", "'5d41402abc4b2a76b9719d911017c592'"),
        ("md5(null, 'base64')", "null"),
    ),
)
def _md5(text: Value, encoding: Value = None) -> str | None:
    return _hash("md5", hashlib.md5, text, encoding)


@declare(
    "sha1",
    "text: string|null",
    "encoding?: string",
    returns="string|null",
    doc="The SHA-1 hash in an encoding, as for md5.",
    examples=(
        ("sha1('hello', 'base64url')", "'qvTGHdzF6KLavt4PO0gs2a6pQ00'"),
        ("sha1('hello')", "'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'"),
    ),
)
def _sha1(text: Value, encoding: Value = None) -> str | None:
    return _hash("sha1", hashlib.sha1, text, encoding)


@declare(
    "sha256",
    "text: string|null",
    "encoding?: string",
    returns="string|null",
    doc="The SHA-256 hash in an encoding, as for md5.",
    examples=(
        ("sha256('hello', 'base64')", "'LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ='"),
        ("length(sha256('hello', 'binary'))", "32"),
    ),
)
def _sha256(text: Value, encoding: Value = None) -> str | None:
    return _hash("sha256", hashlib.sha256, text, encoding)


_HMAC_UNITS: Final = 4
"""Cost of the HMAC of a short text."""


def _chain(name: str, algorithm: str, items: Value, encoding: Value) -> str:
    if items.__class__ is not list and items.__class__ is not HogTuple:
        raise HogRuntimeError(f"Function {name} expects an array of strings")
    if len(items) < 2:
        raise HogRuntimeError("Data array must contain at least two elements.")
    key = _bytes(name, items[0])
    for item in items[1:]:
        charge(_HMAC_UNITS + reading_units(item))
        key = hmac.digest(key, _bytes(name, item), algorithm)
    return _encoded(key, encoding)


@declare(
    "sha256HmacChainHex",
    "items: array",
    returns="string",
    doc="The HMAC-SHA-256, in hexadecimal, of the second string with the first as key; the digest is then "
    "the key for the third, and so on.",
    examples=(
        (
            "sha256HmacChainHex(['key', 'msg'])",
            "'2d93cbc1be167bcb1637a4a23cbff01a7878f0c50ee833954ea5221bb1b8c628'",
        ),
        (
            "sha256HmacChainHex(['a', 'b', 'c'])",
            "'afb366b1e7d0ffd4e7c273ecd31eb15ce01301c2c39155f3a8ddd8190ef26edc'",
        ),
    ),
)
def _sha256_chain_hex(items: Value) -> str:
    return _chain("sha256HmacChainHex", "sha256", items, None)


@declare(
    "sha1HmacChainHex",
    "items: array",
    returns="string",
    doc="Like sha256HmacChainHex with SHA-1.",
    examples=(
        ("sha1HmacChainHex(['k', 'm'])", "'772b71c8a2997e768be01d9711e4a4f34a24ef33'"),
        ("sha1HmacChainHex(('k', 'm', '')) = sha1HmacChainHex(['k', 'm'])", "false"),
    ),
)
def _sha1_chain_hex(items: Value) -> str:
    return _chain("sha1HmacChainHex", "sha1", items, None)


@declare(
    "sha256HmacChain",
    "items: array",
    "encoding?: string",
    returns="string",
    doc="Like sha256HmacChainHex, in an encoding as for md5.",
    examples=(
        ("sha256HmacChain(['k', 'm'], 'base64')", "'tgCQ4wUil661oICInOL8S8qVfnVvrrTffTGADKHncew='"),
        ("sha256HmacChain(['k', 'm'], 'base64url')", "'tgCQ4wUil661oICInOL8S8qVfnVvrrTffTGADKHncew'"),
    ),
)
def _sha256_chain(items: Value, encoding: Value = None) -> str:
    return _chain("sha256HmacChain", "sha256", items, encoding)


@declare(
    "sha1HmacChain",
    "items: array",
    "encoding?: string",
    returns="string",
    doc="Like sha256HmacChain with SHA-1.",
    examples=(
        ("sha1HmacChain(['k', 'm'])", "'772b71c8a2997e768be01d9711e4a4f34a24ef33'"),
        ("sha1HmacChain(['k', 'm'], 'hex') = sha1HmacChainHex(['k', 'm'])", "true"),
    ),
)
def _sha1_chain(items: Value, encoding: Value = None) -> str:
    return _chain("sha1HmacChain", "sha1", items, encoding)
