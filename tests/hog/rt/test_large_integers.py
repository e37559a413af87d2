"""Integers of 64 bits: exact from JSON to JSON and to text, whichever way they take through a program."""

from __future__ import annotations

import random

import orjson
import pytest

from hoglab import hog

EDGES = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**53) - 1, -(2**63), 10**16 + 1, 0, -1]
RANDOM = random.Random(4)
NUMBERS = EDGES + [RANDOM.randrange(-(2**63), 2**64) for _ in range(30)]

TEXTS = [
    "return toString(v)",
    "return concat('', v)",
    "return jsonStringify(v)",
    "return replaceAll(jsonStringify([v]), '[', '')",
    "return arrayStringConcat([v], ',')",
    "return toString(toInt(v))",
    "return toString(toInt(toString(v)))",
    "return toString(jsonParse(jsonStringify(v)))",
    "return toString(jsonParse(f'[\"\\\\ud800\", {v}]')[2])",
    "return jsonStringify(v, 2)",
]
VALUES = [
    "return v",
    "return {'a': [v]}.a[1]",
    "return jsonParse(jsonStringify({'1': v, 'a': [v]})).a[1]",
    "return jsonParse(jsonStringify({'v': v, 'half': 0.5, 'long': '\u00e9'})).v",
    "let copy := v return copy",
    "return f'{v}'",
    "return toFloat(v)",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_an_integer_of_64_bits_stays_what_it_is(number: int) -> None:
    for code in TEXTS:
        result = hog.run(code, {"v": number})
        assert result.error is None, code
        assert result.json.rstrip("]") == str(number), code
    for code in VALUES:
        result = hog.run(code, {"v": number})
        assert orjson.loads(orjson.dumps(result.json)) == number, code
    printed = hog.run("print(v, [v], {'a': v})", {"v": number}).printed[0]
    assert printed.count(str(number)) == 3


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_larger_ones_are_doubles(number: int) -> None:
    assert hog.run(f"return jsonParse('{number}')").json == float(number)
    assert hog.run(f"return toInt('{number}')").json == float(number)


def test_what_is_computed_is_a_double() -> None:
    for code in ("return v * 1", "return 9007199254740993"):
        assert hog.run(code, {"v": 2**53 + 1}).json == 2**53
