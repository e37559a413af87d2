"""Numbers as text and back, by JavaScript's rules.  spec: hog-language 8.3."""

import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.rt.numbers import (
    MAX_SAFE_INTEGER,
    float_prefix,
    format_number,
    integer_prefix,
    number_from_text,
    tidy,
)

VECTORS = json.loads(Path(__file__).with_name("number_vectors.json").read_text())


@pytest.mark.parametrize(("bits", "text"), VECTORS["formatted"])
def test_doubles_print_as_in_javascript(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert format_number(number) == text


def printed(number: float | None) -> str:
    return "NaN" if number is None else format_number(number)


@pytest.mark.parametrize(("text", "number", "integer", "fraction"), VECTORS["read"])
def test_texts_are_read_as_in_javascript(text: str, number: str, integer: str, fraction: str) -> None:
    assert format_number(number_from_text(text)) == number
    is_stored = (
        text.isascii() and text.isdigit() and int(text) < 2**64
    )  # exact, where JavaScript has a double
    assert printed(integer_prefix(text)) == (format_number(int(text)) if is_stored else integer)
    assert printed(float_prefix(text)) == fraction


@given(st.floats())
def test_every_double_survives_its_text(number: float) -> None:
    again = number_from_text(format_number(number))
    assert again == number or (math.isnan(number) and math.isnan(again))


@given(st.integers())
def test_integers_print_as_doubles_do(number: int) -> None:
    text = format_number(number)
    if abs(number) <= MAX_SAFE_INTEGER:
        assert text == str(number)
    else:
        assert float(text) == float(number)


def test_integers_beyond_the_doubles_are_infinite() -> None:
    assert format_number(10**400) == "Infinity"
    assert format_number(-(10**400)) == "-Infinity"


@given(st.text())
def test_any_text_is_read_without_failure(text: str) -> None:
    number_from_text(text)
    integer_prefix(text)
    float_prefix(text)


def test_long_texts_are_read_in_reasonable_time() -> None:
    digits = "9" * 1_000_000
    assert number_from_text(digits) == math.inf
    assert integer_prefix(digits) == math.inf
    assert float_prefix(digits + "x") == math.inf
    assert number_from_text("0x" + "f" * 1_000_000) == math.inf
    assert math.isnan(number_from_text("1" * 100_000 + "x"))


@pytest.mark.parametrize(
    ("number", "result", "cls"),
    [
        (1.0, 1, int),
        (1.5, 1.5, float),
        (-0.0, 0, int),
        (2.0**53, 2**53, int),
        (2.0**54, 2.0**54, float),
        (3, 3, int),
    ],
)
def test_integral_results_are_kept_as_integers(number: float, result: float, cls: type) -> None:
    assert tidy(number) == result
    assert type(tidy(number)) is cls


def test_text_reading_keeps_integers_exact() -> None:
    assert type(number_from_text("12")) is int
    assert type(number_from_text("1e3")) is int
    assert type(number_from_text("1.5")) is float
