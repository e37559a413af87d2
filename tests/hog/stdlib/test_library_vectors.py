"""The library against recorded answers of the official machine, for where there is no node.

`tests/hog/oracles` compares with the machine itself, and lists the differences.

`library_vectors.json` holds calls as Hog expressions with their printed result as @posthog/hogvm 1.0.71
gives it; null stands for a call that fails.
"""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from hoglab import hog
from hoglab.hog.errors import HogLimit, HogRuntimeError
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.rt.values import HogDate, HogDateTime, HogError, HogTuple
from hoglab.hog.stdlib import LIBRARY

VECTORS: list[tuple[str, str | None]] = json.loads(
    Path(__file__).with_name("library_vectors.json").read_text()
)["calls"]


def function_name(vector: tuple[str, str | None]) -> str:
    return vector[0].partition("(")[0]


BY_FUNCTION = {
    name: list(calls) for name, calls in groupby(sorted(VECTORS, key=function_name), function_name)
}


def outcome(evaluate: Callable[[str], Any], source: str) -> str | None:
    try:
        return repr_value(evaluate(source))
    except (HogRuntimeError, HogLimit):
        return None


@pytest.mark.parametrize("name", BY_FUNCTION)
def test_calls_agree_with_the_official_machine(name: str, evaluate: Callable[[str], Any]) -> None:
    different = [
        (source, official, mine)
        for source, official in BY_FUNCTION[name]
        if (mine := outcome(evaluate, source)) != official
    ]
    assert different == []


CLASSES: dict[str, tuple[type, ...]] = {
    "any": (object,),
    "array": (list,),
    "boolean": (bool,),
    "date": (HogDate,),
    "datetime": (HogDateTime,),
    "error": (HogError,),
    "float": (float,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
    "tuple": (HogTuple,),
}


@pytest.mark.parametrize("name", BY_FUNCTION)
def test_results_are_of_the_declared_kinds(name: str, evaluate: Callable[[str], Any]) -> None:
    """The compiler infers kinds from the declarations, so that a wrong one would make wrong code."""
    classes = [cls for kind in LIBRARY[name].returns for cls in CLASSES[kind]]
    for source, official in BY_FUNCTION[name]:
        if official is not None:
            value = evaluate(source)
            assert type(value) in classes or object in classes, source


@pytest.mark.parametrize("name", BY_FUNCTION)
def test_compiled_calls_agree_too(name: str) -> None:
    different = []
    for source, official in BY_FUNCTION[name]:
        result = hog.run(f"return {source}")
        mine = None if result.error else repr_value(result.value)
        if mine != official:
            different.append((source, official, mine))
    assert different == []
