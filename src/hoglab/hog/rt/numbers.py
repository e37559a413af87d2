"""Numbers as text and text as numbers, by JavaScript's rules.  spec: hog-language 8.3."""

from typing import Any, Final

from hoglab.hog.patterns import anchored

MAX_SAFE_INTEGER: Final = 2**53
"""Largest magnitude up to which every integer is exact in an IEEE double."""

LEAST_STORED: Final = -(2**63)
MOST_STORED: Final = 2**64 - 1
"""Range of integers that JSON of the host brings, ids above all: they stay exact in values, in JSON and as text."""

NAN: Final = float("nan")
INFINITY: Final = float("inf")

# White space of JavaScript's trim(): Python's str.strip() has a different set.
SPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

# Possessive quantifiers: without them a long run of digits takes quadratic time to refuse.
_DECIMAL = anchored(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_RADIX = anchored(r"0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)")
_INTEGER_START = anchored(r"([+-]?)(?:0[xX]([0-9a-fA-F]*)|([0-9]+))")
_INFINITIES = {"Infinity": INFINITY, "+Infinity": INFINITY, "-Infinity": -INFINITY}
_STORED_DIGITS = 20  # more digits than integers of 64 bits have
_SAFE_DIGITS = 15  # every integer with this number of digits is exact in a double


def tidy(number: int | float) -> int | float:
    """Return the number as an int when it is integral and within ±2^53, else unchanged.

    Spec: hog-language 9 (D1).
    """
    if number.__class__ is float and number.is_integer() and -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER:
        return int(number)
    return number


def to_double(number: int | float) -> float:
    """Return the nearest double; an infinity for integers beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return INFINITY if number > 0 else -INFINITY


def exact(value: Any) -> Any:
    """Return the value unchanged; integers beyond ±2^53 become doubles."""
    if value.__class__ is int and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return to_double(value)
    return value


def format_number(number: int | float) -> str:
    """Return the number as JavaScript prints it: shortest round-trip digits, exponent from 1e21 up and below 1e-6.

    Integers of 64 bits have all of their digits, which JavaScript cannot keep.
    """
    if number.__class__ is int:
        if LEAST_STORED <= number <= MOST_STORED:
            return str(number)
        number = to_double(number)
    if number - number != 0:
        if number != number:
            return "NaN"
        return "Infinity" if number > 0 else "-Infinity"
    text = repr(number)
    if "e" not in text:
        if text.endswith(".0"):
            return "0" if number == 0 else text[:-2]
        return text
    return _with_javascript_exponent(text)


def _with_javascript_exponent(text: str) -> str:
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent_text = text.lstrip("-").partition("e")
    exponent = int(exponent_text)
    digits = mantissa.replace(".", "")
    if -7 < exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if 0 <= exponent < 21:
        return sign + digits.ljust(exponent + 1, "0")
    return f"{sign}{mantissa}e{exponent:+d}"


def number_from_text(text: str) -> int | float:
    """Read a text as JavaScript's Number does: NaN unless the whole trimmed text is a number, 0 when it is empty."""
    text = text.strip(SPACE)
    if not text:
        return 0
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    if _DECIMAL.fullmatch(text):
        return tidy(float(text))
    if _RADIX.fullmatch(text):
        return tidy(to_double(_radix_integer(text)))
    return _INFINITIES.get(text, NAN)


def _radix_integer(text: str) -> int:
    base = {"x": 16, "b": 2, "o": 8}[text[1].lower()]
    return int(text[2:], base)


def integer_prefix(text: str) -> int | float | None:
    """Read the integer that a text starts with, as JavaScript's parseInt does.

    The result is exact up to 64 bits, and None when the text starts with none.
    """
    matched = _INTEGER_START.match(text.lstrip(SPACE))
    if matched is None:
        return None
    sign, hexadecimal, decimal = matched.groups()
    number: int | float
    if hexadecimal is not None:
        if not hexadecimal:
            return None
        number = tidy(to_double(int(hexadecimal, 16)))
    else:
        number = _stored_integer(decimal)
    return -number if sign == "-" else number


def _stored_integer(digits: str) -> int | float:
    """Return the number that decimal digits write: exact up to 64 bits, beyond them the nearest double."""
    if len(digits) > _STORED_DIGITS:
        return tidy(float(digits))
    number = int(digits)
    return number if number <= MOST_STORED else to_double(number)


def float_prefix(text: str) -> int | float | None:
    """Read the number that a text starts with, as JavaScript's parseFloat does.

    The result is None when the text starts with none.
    """
    text = text.lstrip(SPACE)
    matched = _DECIMAL.match(text)
    if matched is not None:
        return tidy(float(matched[0]))
    for name, number in _INFINITIES.items():
        if text.startswith(name):
            return number
    return None
