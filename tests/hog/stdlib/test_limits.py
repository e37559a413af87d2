"""Nothing in the library can hang the machine or fill its memory.  spec: hog-perf 3.1 rule 3, 3.2."""

import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from tests.hog.shapes import bomb, nested

from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt.context import Context, Limits, activate
from hoglab.hog.rt.values import HogDateTime, HogFunction
from hoglab.hog.stdlib import LIBRARY, Function

pytestmark = pytest.mark.usefixtures("no_collector")

MIB = 1 << 20
FUNCTIONS = sorted({f.name: f for f in LIBRARY.values()}.values(), key=lambda f: f.name)


def invoke(name: str, *args: Any, ctx: Context | None = None) -> Any:
    ctx = ctx or Context()
    former = activate(ctx)
    try:
        return LIBRARY[name].invoke(ctx, args)
    finally:
        activate(former)


BIG = "ab" * (4 * MIB)

# Calls whose result would be larger than the memory limit: refused before anything is built.
EXPLOSIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("range", (1e9,)),
    ("range", (-(2**53), 2**53)),
    ("range", (float("inf"),)),
    ("range", (0.5, 1e12)),
    ("replaceAll", (BIG, "a", "x" * 100)),
    ("replaceAll", (BIG, "", "x" * 100)),
    ("splitByString", ("", BIG)),
    ("splitByString", ("a", BIG)),
    ("arrayStringConcat", (["x"] * 1000, BIG)),
    ("encodeURLComponent", ("é" * (24 * MIB),)),
    ("base64Encode", ("a" * (40 * MIB),)),
    ("concat", tuple([BIG] * 9)),
    ("formatDateTime", (None, "%M" * (4 * MIB))),
    ("jsonStringify", ([BIG] * 10,)),
    ("toString", ([BIG] * 10,)),
    ("jsonParse", ("[" + "[]," * MIB + "0]",)),
    ("print", ()),
]


@pytest.mark.parametrize(("name", "args"), EXPLOSIONS, ids=[name for name, _ in EXPLOSIONS])
def test_explosions_are_refused_before_they_happen(name: str, args: tuple[Any, ...]) -> None:
    if name == "formatDateTime":
        args = (invoke("toDateTime", 0), args[1])
    if name == "print":
        ctx = Context()
        invoke("print", *[BIG] * 20, ctx=ctx)
        assert [len(line) for line in ctx.lines] == [10_000]
        return
    tracemalloc.start()
    try:
        with pytest.raises((HogLimit, HogRuntimeError), match=r"Memory limit|longer than|more than"):
            invoke(name, *args)
        # at worst a few copies of what the limit allows
        assert tracemalloc.get_traced_memory()[1] < 256 * MIB
    finally:
        tracemalloc.stop()


# Arguments that are hostile in some way; every function meets each of them in each place.
def hostile() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    mapping: dict[Any, Any] = {}
    mapping["self"] = mapping
    return [
        bomb(60),
        nested(10_000),
        cycle,
        mapping,
        "a" * (2 * MIB),
        "[" * 100_000,
        "9" * 100_000,
        "\ud83d",
        10**400,
        float("nan"),
        float("-inf"),
        HogFunction("deep", 1, 1, lambda x: [x]),
        list(range(100_000)),
    ]


HOSTILE = hostile()


@pytest.mark.parametrize("declared", FUNCTIONS, ids=lambda f: f.name)
def test_hostile_arguments_give_a_value_or_a_clear_failure_in_time(declared: Function) -> None:
    if declared.is_async or declared.max_args == 0:
        return
    places = max(1, declared.min_args)
    for place, (turn, bad) in product(range(places), enumerate(HOSTILE)):
        args: list[Any] = ["a" if turn % 2 else [1]] * places
        args[place] = bad
        message, failed = "", False
        started = time.thread_time()
        try:
            invoke(declared.name, *args, ctx=Context(Limits(time_s=0.02)))
        except HogLimit as reached:
            message = reached.message
        except HogRuntimeError as failure:
            message, failed = failure.message, True
        spent_s = time.thread_time() - started
        assert spent_s < 0.5, (place, type(bad), spent_s)
        assert len(message) < 500
        assert not (failed and declared.infallible)


# Work on long arguments is charged: a loop of such calls ends by the step limit.
CHARGED: list[tuple[str, tuple[Any, ...]]] = [
    ("upper", (BIG,)),
    ("lower", (BIG,)),
    ("reverse", (BIG,)),
    ("trim", (BIG,)),
    ("substring", (BIG, 1)),
    ("replaceAll", (BIG, "a", "b")),
    ("replaceOne", (BIG, "x", "b")),
    ("position", (BIG, "x")),
    ("positionCaseInsensitive", (BIG, "x")),
    ("match", (BIG, "x")),
    ("extractRegex", (BIG, "x")),
    ("like", (BIG, "%x%")),
    ("ilike", (BIG, "%x%")),
    ("multiSearchAnyCaseInsensitive", (BIG, ["x"])),
    ("splitByString", ("x", BIG)),
    ("encodeURLComponent", (BIG,)),
    ("decodeURLComponent", (BIG,)),
    ("base64Encode", (BIG,)),
    ("base64Decode", (BIG,)),
    ("md5Hex", (BIG,)),
    ("sha256HmacChainHex", (["k", BIG],)),
    ("jsonParse", (f'"{BIG}"',)),
    ("isValidJSON", (BIG,)),
    ("jsonStringify", ([0] * MIB,)),
    ("toString", ([0] * (MIB // 4),)),
    ("concat", ([0] * (MIB // 4),)),
    ("keys", ([0] * MIB,)),
    ("values", ([0] * MIB,)),
    ("has", ([0] * MIB, "a")),
    ("in", ("a", [0] * MIB)),
    ("indexOf", ([0] * MIB, 1)),
    ("arrayPushBack", ([0] * MIB, 1)),
    ("arrayPopFront", ([0] * MIB,)),
    ("arrayReverse", ([0] * MIB,)),
    ("arraySort", ([0] * MIB,)),
    ("arrayStringConcat", ([0] * (MIB // 4),)),
    ("range", (MIB,)),
    ("arrayMap", (HogFunction("f", 1, 1, lambda x: x), [0] * MIB)),
    ("arrayFilter", (HogFunction("f", 1, 1, lambda x: x), [0] * MIB)),
    ("arrayExists", (HogFunction("f", 1, 1, lambda x: x), [0] * MIB)),
    ("arrayCount", (HogFunction("f", 1, 1, lambda x: x), [0] * MIB)),
    ("arrayReduce", (HogFunction("f", 2, 2, lambda _, x: x), [0] * MIB, 0)),
    ("inCohort", (1, [0] * MIB)),
]


@pytest.mark.parametrize(("name", "args"), CHARGED, ids=[name for name, _ in CHARGED])
def test_long_work_is_charged(name: str, args: tuple[Any, ...]) -> None:
    ctx = Context(Limits(memory_bytes=1 << 40))
    started = time.thread_time()
    invoke(name, *args, ctx=ctx)
    spent_s = time.thread_time() - started
    assert ctx.steps >= 2_000
    # A step stands for at most about a microsecond, so that the clock is read every 10 ms or so.
    assert spent_s / ctx.steps < 5e-6


SIZE = 200_000
LARGE: list[Any] = [
    "ab" * (SIZE // 2),
    "😀" * (SIZE // 2),
    "9" * SIZE,
    "[" + "1," * (SIZE // 2) + "1]",
    list(range(SIZE)),
    [str(number) for number in range(SIZE // 4)],
    [[1]] * (SIZE // 4),
    {str(number): number for number in range(SIZE // 8)},
]
TYPICAL: dict[str, Any] = {
    "unit": "day",
    "part": "year",
    "zone": "UTC",
    "encoding": "hex",
    "moment": HogDateTime(0),
}
OF_KIND: dict[str, Any] = {"array": [1], "number": 1, "integer": 1, "datetime": HogDateTime(0)}


def seconds_and_steps(name: str, args: list[Any]) -> tuple[float, int]:
    """Computing time of a call, and the steps it was charged for."""
    ctx = Context(Limits(time_s=0.2))
    started = time.thread_time()
    with suppress(HogLimit, HogRuntimeError, HogThrow):
        invoke(name, *args, ctx=ctx)
    return time.thread_time() - started, ctx.steps


@pytest.mark.parametrize(
    "declared", [f for f in FUNCTIONS if f.params and not f.is_async], ids=lambda f: f.name
)
def test_no_function_does_more_than_it_charges_for(declared: Function) -> None:
    """Each parameter in turn gets large arguments; the rest are ordinary ones."""
    each = HogFunction("f", 1, 1, lambda x: x)
    both = HogFunction("f", 2, 2, lambda _, x: x)
    for place, large in product(range(len(declared.params)), LARGE):
        args = [
            (both if declared.name == "arrayReduce" else each)
            if "function" in parameter.kinds
            else TYPICAL.get(parameter.name, OF_KIND.get(parameter.kinds[0], "a"))
            for parameter in declared.params[: max(declared.min_args, place + 1)]
        ]
        args[place] = large
        for _attempt in range(3):  # a measurement may be disturbed
            spent_s, steps = seconds_and_steps(declared.name, args)
            if spent_s < 0.01 + 5e-6 * steps:
                break
        else:
            pytest.fail(f"{spent_s:.3f} s for {steps} steps: place {place}, {large!r:.40}")


@pytest.mark.parametrize("name", ["arrayMap", "arrayFilter", "arrayExists", "arrayCount"])
def test_callbacks_cannot_run_for_ever(name: str) -> None:
    ctx = Context(Limits(max_steps=25_000))
    calls = 0

    def call(_: Any) -> bool:
        nonlocal calls
        calls += 1
        return False

    with pytest.raises(HogLimit, match="exceeded 25000 steps"):
        invoke(name, HogFunction("f", 1, 1, call), list(range(100_000)), ctx=ctx)
    assert calls <= 25_000
    assert ctx.tripped is not None


def test_small_calls_cost_no_steps() -> None:
    ctx = Context()
    for name, args in [("upper", ("a",)), ("concat", ("a", 1)), ("has", ([1], 1)), ("jsonParse", ("[1]",))]:
        invoke(name, *args, ctx=ctx)
    assert ctx.steps == 0


def test_memory_is_accounted_for_small_results_too() -> None:
    ctx = Context()

    def grow_without_end() -> None:
        upper: Callable[..., Any] = LIBRARY["upper"].impl
        for _ in range(10**7):
            upper(ctx, "x" * 100)

    with pytest.raises(HogLimit, match="Memory limit"):
        grow_without_end()
