"""String functions where the frozen answers do not reach.  spec: hog-language 10.3, 9 (D4, D15)."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.text import joined, units, utf16_length
from hoglab.hog.stdlib import LIBRARY

CTX = Context()
TEXT = st.text(st.sampled_from("ab,é😀\n ") | st.characters())


def call(name: str, *args: Any) -> Any:
    return LIBRARY[name].invoke(CTX, args)


@given(TEXT, st.integers(-3, 12), st.none() | st.integers(-3, 12))
def test_substring_counts_utf16_units(text: str, start: int, length: int | None) -> None:
    part = call("substring", text, start, length)
    if start < 1 or (length is not None and length < 0):
        assert part == ""
        return
    end = None if length is None else start - 1 + length
    assert units(part) == units(joined(units(text)[start - 1 : end]))


@given(TEXT)
def test_reverse_twice_is_the_text(text: str) -> None:
    assert call("reverse", call("reverse", text)) == joined(text)
    assert call("length", call("reverse", text)) == call("length", text) == utf16_length(text)


@given(TEXT, TEXT)
def test_position_finds_what_substring_cuts(text: str, wanted: str) -> None:
    place = call("position", text, wanted)
    assert (place > 0) == (wanted in text)
    if place:
        assert call("substring", text, place, utf16_length(wanted)) == joined(wanted)


@given(TEXT, st.sampled_from([",", "", "ab", "😀"]))
def test_split_and_join(text: str, separator: str) -> None:
    parts = call("splitByString", separator, text)
    assert joined(call("arrayStringConcat", parts, separator)) == joined(text)
    for most in (0, 1, 2):
        assert call("splitByString", separator, text, most) == parts[:most]


@given(TEXT, st.text(max_size=2), st.text(max_size=2))
def test_replacing_is_literal(text: str, search: str, replacement: str) -> None:
    if not search:  # found around every unit, as in JavaScript
        text = units(text)
    assert joined(call("replaceAll", text, search, replacement)) == joined(text.replace(search, replacement))
    assert joined(call("replaceOne", text, search, replacement)) == joined(
        text.replace(search, replacement, 1)
    )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_encodings_can_be_undone(text: str) -> None:
    assert call("base64Decode", call("base64Encode", text)) == text
    assert call("tryBase64Decode", call("base64Encode", text)) == text
    encoded = call("encodeURLComponent", text)
    assert encoded.isascii()
    assert call("decodeURLComponent", encoded) == call("tryDecodeURLComponent", encoded) == text


@given(st.text())
def test_lenient_decoders_take_any_text(text: str) -> None:
    call("base64Decode", text)
    call("tryDecodeURLComponent", text)


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("order 42", r"(\d+)", "42"),
        ("order 42", r"\d+", "42"),
        ("abc", "(b)(c)", "b"),
        ("abc", "(x)?b", "b"),
        ("abc", "()b", ""),
        ("abc", "x", ""),
        ("abc", "", ""),
        (None, "a", ""),
        ("a", None, ""),
        (12345, "3.", "34"),
        ("Ünï😀", "(ï.)", "ï😀"),
    ],
)
def test_extract_regex(text: Any, pattern: Any, found: str) -> None:
    assert call("extractRegex", text, pattern) == found


def test_patterns_are_checked() -> None:
    for name in ("match", "extractRegex"):
        with pytest.raises(HogRuntimeError, match="Invalid regular expression"):
            call(name, "a", "(")


@pytest.mark.parametrize("name", ["lower", "upper", "reverse", "trim", "trimLeft", "trimRight"])
def test_only_strings_and_null_are_accepted(name: str) -> None:
    assert call(name, None) is None
    for value in (5, True, [], {}):
        with pytest.raises(HogRuntimeError, match=f"Function {name} expects a string, got"):
            call(name, value)


def test_halves_of_characters_never_leave_the_program(evaluate: Callable[[str], Any]) -> None:
    """Cutting a character in two is allowed; JSON text shows U+FFFD in its place, and joining the halves
    heals it.
    """
    assert evaluate("jsonStringify(substring('😀', 1, 1))") == '"\ufffd"'
    assert evaluate("jsonStringify(concat(substring('😀', 1, 1), substring('😀', 2, 1)))") == '"😀"'
    assert evaluate("base64Encode(substring('😀', 1, 1))") == "77+9"
    assert evaluate("encodeURLComponent(substring('😀', 1, 1))") == "%EF%BF%BD"
    assert evaluate("sha256Hex(substring('😀', 1, 1)) = sha256Hex(substring('😁', 1, 1))") is True
