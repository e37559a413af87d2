"""Whatever is called in a program pays for what it reads, and so ends within its limit.  spec: hog-runtime 4.1."""

import time
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from tests.hog.stdlib.test_limits import FUNCTIONS, TYPICAL, invoke

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.functions.environments import DELIVERING, MASKING_HASHES, TEMPLATES, transforming
from hoglab.hog.env import Environment
from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt.context import CHUNK, Context, Limits, reading_units
from hoglab.hog.rt.values import HogFunction
from hoglab.hog.stdlib import Function

pytestmark = pytest.mark.usefixtures("no_collector")

CALLED = [one for one in FUNCTIONS if one.params and not one.is_async]
READING = [one for one in CALLED if one.cost != "constant"]
CONSTANT = [one for one in CALLED if one.cost == "constant"]

SIZE = 200_000
LARGE: dict[str, Any] = {
    "spaces": " " * SIZE,
    "letters": "ab" * (SIZE // 2),
    "halves": "\ud83d" * (SIZE // 20),
    "numbers": list(range(SIZE)),
    "texts": ["text"] * SIZE,
    "members": dict.fromkeys(map(str, range(SIZE // 4))),
}
EACH = HogFunction("f", 1, 1, lambda _x: False)
BOTH = HogFunction("f", 2, 2, lambda a, _x: a)


def arguments(declared: Function, place: int, value: Any) -> list[Any]:
    """Ordinary arguments with a large one among them."""
    args = []
    for at, parameter in enumerate(declared.params[: max(declared.min_args, place + 1)]):
        if at == place and "function" not in parameter.kinds:
            args.append(value)
        elif "function" in parameter.kinds:
            args.append(BOTH if declared.name == "arrayReduce" else EACH)
        else:
            args.append(TYPICAL.get(parameter.name, "a"))
    return args


def paid(declared: Function, args: list[Any]) -> int:
    ctx = Context(Limits(time_s=60.0))
    with suppress(HogLimit, HogRuntimeError, HogThrow):
        invoke(declared.name, *args, ctx=ctx)
    return ctx.steps


@pytest.mark.parametrize("declared", READING, ids=lambda one: one.name)
def test_every_function_pays_for_what_it_reads(declared: Function) -> None:
    """Also where it refuses its arguments, and where nothing is left of them."""
    for place, (name, value) in product(range(len(declared.params)), LARGE.items()):
        args = arguments(declared, place, value)
        if args[place] is value:
            assert paid(declared, args) >= reading_units(value) * declared.weight > 0, (place, name)


@pytest.mark.parametrize("declared", CONSTANT, ids=lambda one: one.name)
def test_what_pays_nothing_takes_no_longer_for_large_arguments(declared: Function) -> None:
    for place, (name, value) in product(range(len(declared.params)), LARGE.items()):
        args = arguments(declared, place, value)
        took = []
        for _attempt in range(5):
            started = time.thread_time()
            steps = paid(declared, args)
            took.append(time.thread_time() - started)
        # To write a container into an error takes its time, but is charged for, as everywhere.
        assert min(took) < 0.001 + 5e-6 * steps, (place, name, min(took))


# --- the same in programs, wherever they run

LIMIT_S = 0.02
GRACE_S = 0.5
"""One operation, on a machine that has other things to do."""

GLOBALS: dict[str, Any] = {
    **dict.fromkeys(FILTER.roots or ()),
    "properties": {**LARGE, "json": "[" + "1," * (SIZE // 2) + "1]"},
    "inputs": {},
    "project": {},
}


def called(declared: Function, kind: str) -> str:
    """A call with large arguments of one kind."""
    args = []
    for parameter in declared.params:
        if parameter.optional and parameter.name not in ("others", "values", "value", "character"):
            break
        if "function" in parameter.kinds:
            args.append("(a, b) -> a" if declared.name == "arrayReduce" else "x -> false")
        elif parameter.name in TYPICAL and parameter.name != "moment":
            args.append(f"'{TYPICAL[parameter.name]}'")
        else:
            args.append("toDateTime(0)" if parameter.name == "moment" else f"properties.{kind}")
    return f"{declared.name}({', '.join(args)})"


def evaluated(environment: Environment, text: str) -> float:
    """The computing time of an expression that never ends by itself."""
    limits = Limits(time_s=LIMIT_S, memory_bytes=environment.limits.memory_bytes)
    program = hog.compile_expression(text, environment.with_limits(limits))
    program.function  # noqa: B018 - is compiled once, and not paid for
    started = time.thread_time()
    with suppress(HogLimit, HogRuntimeError, HogThrow):
        hog.evaluate(program, GLOBALS)
    return time.thread_time() - started


def executed(environment: Environment, text: str) -> float:
    limits = Limits(time_s=LIMIT_S, memory_bytes=environment.limits.memory_bytes)
    program = hog.compile_program(text, environment)
    program.function  # noqa: B018
    execution = hog.Execution(program, GLOBALS, limits=limits)
    started = time.thread_time()
    execution.start()
    return time.thread_time() - started


@pytest.mark.parametrize("declared", CALLED, ids=lambda one: one.name)
def test_a_program_that_calls_it_for_ever_ends_within_its_limit(declared: Function) -> None:
    kinds = {"spaces", "halves", "texts"}
    for kind in sorted(kinds):
        call = called(declared, kind)
        print_free = declared.name not in FILTER.functions
        loop = f"while (true) {{ let made := {call} }}"
        assert executed(DELIVERING, loop) < LIMIT_S + GRACE_S, call
        if print_free:
            continue
        again = f"arrayExists(y -> {call} = 'never', range(100000))"
        assert evaluated(FILTER, again) < LIMIT_S + GRACE_S, call
    assert executed(transforming(), loop) < LIMIT_S + GRACE_S


@pytest.mark.parametrize(
    "environment", [FILTER, TEMPLATES, MASKING_HASHES], ids=["filter", "input", "masking"]
)
@pytest.mark.parametrize(
    "text",
    [
        "trim(properties.spaces) = '{}'",
        "properties.letters ilike '%x{}%'",
        "properties.letters like '%x{}_y%'",
        "properties.letters =~ 'x{}.*y'",
        "properties.letters =~* 'x{}'",
        "match(properties.letters, '[ab]*a[ab]{{{}}}c')",
        "properties.letters in ['{}', lower(properties.letters)]",
        "'{}' in properties.texts",
        "'x{}' in properties.letters",
        "properties.numbers = properties.numbers and {}",
        "properties.letters < concat(properties.letters, '{}')",
        "jsonParse(properties.json) = {}",
        "toString(properties.numbers) = '{}'",
        "length(properties.halves) = {}",
    ],
)
def test_long_texts_without_loops_end_within_their_limit(environment: Environment, text: str) -> None:
    """Many operations, none of which is repeated: their number is bounded by the text, their work is not."""
    whole = " or ".join(text.format(100 + number) for number in range(300))
    assert evaluated(environment, whole) < LIMIT_S + GRACE_S


def test_what_waits_to_be_put_together_is_memory() -> None:
    """A list, a text or a call that is not complete yet holds what was made for it."""
    many = ", ".join(["reverse(properties.letters)"] * 200)
    for text in (
        f"[{many}] = []",
        f"length(concat({many})) = 1",
        f"length(arrayMap(x -> [{many}], [1])) = 1",
    ):
        program = hog.compile_expression(text, FILTER)
        with pytest.raises(HogLimit, match="Memory limit of 16777216 bytes exceeded"):
            hog.evaluate(program, GLOBALS)


def test_little_work_needs_no_budget() -> None:
    """The fast way of filters: nothing is measured as long as nothing long is met."""
    program = hog.compile_expression("lower(event) = 'a' and properties.plan ilike '%p%'", FILTER)
    assert program.generated.bounded
    assert hog.evaluate(program, {**GLOBALS, "event": "A", "properties": {"plan": "pro"}}) is True
    ctx = Context()
    ctx.charge(CHUNK)
    assert ctx.steps == CHUNK
