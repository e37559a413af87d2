"""Every declaration is complete, and every example in it is true."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.functions.environments import DELIVERING, TRANSFORMATION
from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.calls import callback
from hoglab.hog.rt.context import Context
from hoglab.hog.rt.printing import repr_value
from hoglab.hog.stdlib import LIBRARY, Function
from hoglab.hog.stdlib.conversion import type_name
from hoglab.hog.stdlib.registry import function, parameter

FUNCTIONS = sorted({f.name: f for f in LIBRARY.values()}.values(), key=lambda f: f.name)
EXAMPLES = [(f, source, printed) for f in FUNCTIONS for source, printed in f.examples]

# spec: hog-language 10, without `run` (needs a team's data) and `import` (a special form of the compiler).
SPECIFIED = [
    "toString",
    "toUUID",
    "toInt",
    "toFloat",
    "typeof",
    "ifNull",
    "isNull",
    "isNotNull",
    "coalesce",
    "assumeNotNull",
    "empty",
    "notEmpty",
    "equals",
    "notEquals",
    "greater",
    "greaterOrEquals",
    "less",
    "lessOrEquals",
    "and",
    "or",
    "not",
    "if",
    "multiIf",
    "in",
    "min2",
    "max2",
    "plus",
    "minus",
    "floor",
    "round",
    "range",
    "randomFloat",
    "generateUUIDv4",
    "sleep",
    "print",
    "HogError",
    "Error",
    "RetryError",
    "NotImplementedError",
    "concat",
    "length",
    "lower",
    "upper",
    "reverse",
    "substring",
    "startsWith",
    "position",
    "positionCaseInsensitive",
    "replaceOne",
    "replaceAll",
    "trim",
    "trimLeft",
    "trimRight",
    "splitByString",
    "match",
    "extractRegex",
    "like",
    "ilike",
    "notLike",
    "notILike",
    "base64Encode",
    "base64Decode",
    "tryBase64Decode",
    "encodeURLComponent",
    "decodeURLComponent",
    "tryDecodeURLComponent",
    "multiSearchAnyCaseInsensitive",
    "tuple",
    "keys",
    "values",
    "has",
    "indexOf",
    "arrayPushBack",
    "arrayPushFront",
    "arrayPopBack",
    "arrayPopFront",
    "arrayReverse",
    "arraySort",
    "arrayReverseSort",
    "arrayStringConcat",
    "arrayMap",
    "arrayFilter",
    "arrayExists",
    "arrayCount",
    "arrayReduce",
    "sortableSemver",
    "inCohort",
    "notInCohort",
    "jsonParse",
    "jsonStringify",
    "isValidJSON",
    "JSONHas",
    "JSONLength",
    "JSONExtractBool",
    "JSONExtractInt",
    "JSONExtractFloat",
    "JSONExtractString",
    "JSONExtractArrayRaw",
    "JSONExtract",
    "md5Hex",
    "sha1Hex",
    "sha256Hex",
    "md5",
    "sha1",
    "sha256",
    "sha256HmacChainHex",
    "sha1HmacChainHex",
    "sha256HmacChain",
    "sha1HmacChain",
    "isIPAddressInRange",
    "now",
    "today",
    "toDateTime",
    "toDate",
    "toUnixTimestamp",
    "toUnixTimestampMilli",
    "fromUnixTimestamp",
    "fromUnixTimestampMilli",
    "toTimeZone",
    "formatDateTime",
    "toYear",
    "toMonth",
    "toYYYYMM",
    "extract",
    "dateTrunc",
    "toStartOfDay",
    "toStartOfHour",
    "toStartOfMonth",
    "toStartOfWeek",
    "dateAdd",
    "addDays",
    "dateDiff",
    "toIntervalDay",
    "toIntervalHour",
    "toIntervalMinute",
    "toIntervalMonth",
]

# Least and largest number of arguments where they are not what the parameters suggest at first sight.
ARITIES = {
    "toString": (1, 2),
    "coalesce": (1, None),
    "and": (1, None),
    "multiIf": (3, None),
    "floor": (1, 2),
    "range": (1, 2),
    "print": (0, None),
    "Error": (0, 2),
    "HogError": (1, 3),
    "substring": (2, 3),
    "position": (2, 3),
    "splitByString": (2, 3),
    "trim": (1, 2),
    "tuple": (0, None),
    "arraySort": (1, None),
    "arrayStringConcat": (1, 2),
    "arrayMap": (2, 2),
    "arrayReduce": (3, 3),
    "jsonStringify": (1, 2),
    "JSONHas": (1, None),
    "JSONExtract": (2, None),
    "md5": (1, 2),
    "now": (0, 1),
    "today": (0, 0),
    "toDateTime": (1, 2),
    "formatDateTime": (2, 3),
    "dateTrunc": (2, 3),
    "toStartOfDay": (1, 2),
    "toStartOfHour": (1, 1),
    "dateAdd": (3, 3),
    "if": (3, 3),
}


def test_the_library_is_the_specified_one() -> None:
    assert sorted(LIBRARY) == sorted(SPECIFIED)


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        (hog.ANY, set()),
        (DELIVERING, set()),
        (FILTER, {"print", "sleep"}),
        (hog.TEMPLATE, {"print", "sleep"}),
        (TRANSFORMATION, {"sleep"}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_the_texts_of_each_purpose_may_use(environment: hog.Environment, missing: set[str]) -> None:
    assert set(SPECIFIED) - environment.functions.keys() == missing


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_declaration_is_complete(declared: Function) -> None:
    assert declared.doc.endswith(".")
    assert len(declared.examples) >= (1 if declared.is_async else 2)
    names = [p.name for p in declared.params]
    assert len(set(names)) == len(names)
    assert [p.optional for p in declared.params] == sorted(p.optional for p in declared.params)
    assert declared.signature.startswith(f"{declared.name}(")
    if declared.cost == "growing":
        assert declared.needs_context, "what can grow must be accounted for"


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_the_implementation_takes_what_is_declared(declared: Function) -> None:
    context = [None] if declared.needs_context else []
    signature = inspect.signature(declared.impl)
    signature.bind(*context, *[None] * declared.min_args)
    if declared.max_args is None:
        signature.bind(*context, *[None] * 40)
    else:
        signature.bind(*context, *[None] * declared.max_args)
        with pytest.raises(TypeError):
            signature.bind(*context, *[None] * (declared.max_args + 1))


@pytest.mark.parametrize(
    ("declared", "source", "printed"),
    [row for row in EXAMPLES if not row[0].is_async],
    ids=[f"{f.name}: {source}" for f, source, _ in EXAMPLES if not f.is_async],
)
def test_example(declared: Function, source: str, printed: str, evaluate: Callable[[str], Any]) -> None:
    assert repr_value(evaluate(source)) == printed
    assert f"{declared.name}(" in source


@pytest.mark.parametrize(
    ("source", "printed"), [row[1:] for row in EXAMPLES], ids=[source for _, source, _ in EXAMPLES]
)
def test_example_as_a_program(source: str, printed: str) -> None:
    result = hog.run(f"return {source}", host={"sleep": lambda _seconds: None})
    assert result.error is None
    assert repr_value(result.value) == printed


@pytest.mark.parametrize(("name", "arity"), ARITIES.items())
def test_arity(name: str, arity: tuple[int, int | None]) -> None:
    declared = LIBRARY[name]
    assert (declared.min_args, declared.max_args) == arity


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("trim", 0, "Function trim requires at least 1 arguments"),
        ("trim", 3, "Function trim requires at most 2 arguments"),
        ("replaceAll", 2, "Function replaceAll requires at least 3 arguments"),
        ("today", 1, "Function today requires at most 0 arguments"),
        ("arrayMap", 1, "Function arrayMap requires exactly 2 arguments"),
        ("arrayReduce", 4, "Function arrayReduce requires exactly 3 arguments"),
        ("sortableSemver", 2, "Function sortableSemver requires exactly 1 arguments"),
    ],
)
def test_wrong_number_of_arguments(name: str, count: int, message: str) -> None:
    assert LIBRARY[name].arity_error(count) == message
    with pytest.raises(HogRuntimeError) as failure:
        LIBRARY[name].invoke(Context(), [None] * count)
    assert str(failure.value) == message


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_results_are_of_the_declared_kind(declared: Function, evaluate: Callable[[str], Any]) -> None:
    """Examples that are one call of the function give a value of a declared kind."""
    for source, _ in declared.examples if not declared.is_async else ():
        if source.startswith(f"{declared.name}(") and source.endswith(")") and source.count(")") == 1:
            kind = type_name(evaluate(source))
            wanted = set(declared.returns)
            if "number" in wanted:
                wanted |= {"integer", "float"}
            assert "any" in wanted or kind in wanted, source


def test_a_name_can_be_declared_only_once() -> None:
    register = function("upper", category="strings", returns="string", doc="Again.")
    with pytest.raises(ValueError, match="declared twice"):
        register(lambda: "")


@pytest.mark.parametrize("text", ["x: colour", "x", "x: string|nothing"])
def test_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown kinds"):
        parameter(text)


def test_short_forms_of_parameters() -> None:
    assert str(parameter("text: string|null")) == "text: string|null"
    assert str(parameter("limit?: integer")) == "limit?: integer"
    assert str(parameter("rest...: any")) == "rest...: any"
    assert parameter("rest...: any").variadic


def test_library_functions_are_values() -> None:
    ctx = Context()
    upper = LIBRARY["upper"].as_value(ctx)
    assert repr_value(upper) == "fn<upper(1)>"
    assert callback(ctx, upper, 1)("a") == "A"
    assert repr_value(LIBRARY["concat"].as_value(ctx)) == "fn<concat(0)>"
    with pytest.raises(HogRuntimeError, match="Function upper requires at least 1 arguments"):
        callback(ctx, upper, 0)()
