"""Functions that call functions.  spec: hog-language 10.4, 5.7."""

from collections.abc import Callable
from typing import Any

import pytest

from hoglab.hog.errors import HogLimit, HogRuntimeError, HogThrow
from hoglab.hog.rt.context import Context, Limits
from hoglab.hog.rt.values import HogError, HogFunction, HogTuple
from hoglab.hog.stdlib import LIBRARY

Evaluate = Callable[..., Any]


def test_any_closure_will_do(evaluate: Evaluate) -> None:
    assert evaluate("arrayMap(toString, [1, null, 'a'])") == ["1", "null", "a"]
    assert evaluate("arrayMap(concat, [1, 2])") == ["1", "2"]
    assert evaluate("arrayFilter(notEmpty, ['', 'a', [], 0])") == ["a", 0]
    assert evaluate("arrayMap(x -> y -> x, [1])")[0].name == "lambda"


def test_missing_parameters_are_null_and_surplus_arguments_refused(evaluate: Evaluate) -> None:
    assert evaluate("arrayMap((a, b) -> [a, b], [1])") == [[1, None]]
    with pytest.raises(HogRuntimeError, match=r"Too many arguments\. Passed 1, expected 0"):
        evaluate("arrayMap(() -> 1, [1])")
    with pytest.raises(HogRuntimeError, match="Function replaceAll requires at least 3 arguments"):
        evaluate("arrayMap(replaceAll, ['a'])")


@pytest.mark.parametrize("name", ["arrayMap", "arrayFilter", "arrayExists", "arrayCount"])
def test_something_that_is_no_function(name: str, evaluate: Evaluate) -> None:
    with pytest.raises(HogRuntimeError, match=r"^Invalid closure: 5$"):
        evaluate(f"{name}(5, [1])")
    evaluate(f"{name}(5, [])")


@pytest.mark.parametrize("items", [[1, 2, 3], HogTuple([1, 2, 3]), {"a": 1, "b": 2, "c": 3}])
def test_containers_stand_for_their_values(items: Any, evaluate: Evaluate) -> None:
    assert evaluate("arrayMap(x -> x * 2, items)", items=items) == [2, 4, 6]
    assert evaluate("arrayFilter(x -> x > 1, items)", items=items) == [2, 3]
    assert evaluate("arrayReduce((a, x) -> a * 10 + x, items, 0)", items=items) == 123
    assert type(evaluate("arrayMap(x -> x, items)", items=items)) is list


@pytest.mark.parametrize("items", ["abc", None, 5, True])
def test_other_values_stand_for_nothing(items: Any, evaluate: Evaluate) -> None:
    assert evaluate("arrayMap(x -> x, items)", items=items) == []
    assert evaluate("arrayFilter(x -> x, items)", items=items) == []
    assert evaluate("arrayCount(x -> true, items)", items=items) == 0
    assert evaluate("arrayExists(x -> true, items)", items=items) is False
    assert evaluate("arrayReduce((a, x) -> x, items, 'start')", items=items) == "start"


def test_exists_stops_at_the_first(evaluate: Evaluate) -> None:
    seen: list[Any] = []
    test = HogFunction("t", 1, 1, lambda x: seen.append(x) or x == 2)
    assert evaluate("arrayExists(test, [1, 2, 3])", test=test) is True
    assert seen == [1, 2]


def test_changes_during_the_walk_are_not_seen() -> None:
    items: list[Any] = [1, 2]

    def grow(x: Any) -> Any:
        items.append(x)
        return x

    assert LIBRARY["arrayMap"].invoke(Context(), [HogFunction("g", 1, 1, grow), items]) == [1, 2]


def test_every_call_draws_a_tick(evaluate: Evaluate) -> None:
    ctx = Context()
    evaluate("arrayMap(x -> x, items)", ctx, items=list(range(500)))
    assert ctx.steps >= 500


def test_results_count_while_they_are_being_built() -> None:
    """The list under construction is in no variable of the program, where the memory check looks."""
    ctx = Context(Limits(memory_bytes=1_000_000))
    ctx.budget.live_roots = list
    make = HogFunction("make", 1, 1, lambda x: {"a": x})
    with pytest.raises(HogLimit, match="Memory limit"):
        LIBRARY["arrayMap"].invoke(ctx, [make, [0] * 50_000])
    assert ctx.budget.building == []


def test_what_callbacks_throw_goes_through(evaluate: Evaluate) -> None:
    def throw(_: Any) -> Any:
        raise HogThrow(HogError("Error", "from inside"))

    with pytest.raises(HogThrow, match="from inside"):
        evaluate("arrayMap(f, [1])", f=HogFunction("f", 1, 1, throw))


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        ("v1.2.3-beta", [1, 2, 3]),
        ("release 2.0 of 3.1", [2, 0]),
        ("1", []),
        ("", []),
        (None, []),
        (1.5, [1, 5]),
        ("1..2.3", [2, 3]),
        ("9" * 30 + ".1", [2**53, 1]),
        ("1" * 100_000, []),
    ],
)
def test_sortable_semver(version: Any, parts: list[int], evaluate: Evaluate) -> None:
    assert evaluate("sortableSemver(v)", v=version) == parts


def test_versions_compare(evaluate: Evaluate) -> None:
    assert evaluate("sortableSemver('1.9') < sortableSemver('1.10.0')") is True
    assert evaluate("sortableSemver('v1.2') = sortableSemver('1.2')") is True


def test_cohorts(evaluate: Evaluate) -> None:
    assert evaluate("inCohort('5', [5])") is True  # compared like the operator =
    assert evaluate("notInCohort(5, [])") is True
    for name in ("inCohort", "notInCohort"):
        with pytest.raises(HogThrow) as thrown:
            evaluate(f"{name}(5, null)")
        message = f"{name}() requires cohort membership to be loaded for this evaluation"
        assert thrown.value.error.message == message
        assert thrown.value.error.type == "Error"
