"""Header fields of an e-mail, from texts that strangers may have written (RFC 5322, RFC 2047).

The standard library decodes words that look encoded (``=?utf-8?b?…?=``) when a header is set, and some of its
releases write what was in them, line breaks included, as it is (CVE-2024-6923). Here nothing is decoded: a text is
either plain and written as it is, or encoded as a whole, so that no text becomes a second header.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from email.headerregistry import Address

from hoglab.patterns import anchored, searched

WORD_BYTES = 45
"""Bytes of UTF-8 in an encoded word, which makes it 72 characters long; RFC 2047 (2) allows 75."""
PLAIN_CHARACTERS = 60
"""Longest text that stands as it is, so that its line has no more than the 78 characters of RFC 5322 (2.1.1)."""

_PLAIN = anchored(rf"[ -~]{{0,{PLAIN_CHARACTERS}}}")
_SPECIAL = searched(r'[\\"]')


def text_field(name: str, text: str) -> bytes:
    """Return the line or lines of a header whose value is unstructured text, such as a subject."""
    return fixed_field(name, *([text] if _is_plain(text) else _encoded_words(text)))


def address_field(name: str, address: Address) -> bytes:
    """Return the line or lines of a header whose value is one address, with its display name where it has one."""
    angled = f"<{address.addr_spec}>"
    label = address.display_name
    if not label:
        return fixed_field(name, angled)
    if _is_plain(label):
        return fixed_field(name, '"' + _SPECIAL.sub(r"\\\g<0>", label) + '"', angled)
    return fixed_field(name, *_encoded_words(label), angled)


def fixed_field(name: str, *lines: str) -> bytes:
    """Return a header folded between the given lines, written as they are.

    Raises `ValueError` for what is no printable ASCII.
    """
    for line in (name, *lines):
        if not (line.isascii() and line.isprintable()):
            raise ValueError(f"{name} has a character that no header may have")
    return (name + ": " + "\r\n ".join(lines) + "\r\n").encode("ascii")


def _is_plain(text: str) -> bool:
    """Return whether a header may hold a text as it is: no reader takes a part of it for an encoded word."""
    return _PLAIN.fullmatch(text) is not None and "=?" not in text


def _encoded_words(text: str) -> list[str]:
    return [f"=?utf-8?b?{base64.b64encode(part).decode()}?=" for part in _parts(text)]


def _parts(text: str) -> Iterator[bytes]:
    """Yield the UTF-8 of a text in parts of at most `WORD_BYTES`, none of which splits a character."""
    part = b""
    for character in text:
        encoded = character.encode()
        if len(part) + len(encoded) > WORD_BYTES:
            yield part
            part = b""
        part += encoded
    yield part
