"""Library functions that call a function for each element.

Each call draws one tick of the budget.  An object stands for its values; null and everything else for
nothing. spec: hog-language 10.4, 9 (D4).
"""

from functools import partial
from typing import Final

from hoglab.hog.errors import HogThrow
from hoglab.hog.patterns import searched
from hoglab.hog.rt.access import values
from hoglab.hog.rt.calls import callback
from hoglab.hog.rt.coerce import eq
from hoglab.hog.rt.context import LONG, Context, charge
from hoglab.hog.rt.printing import is_truthy, js_string
from hoglab.hog.rt.values import CONTAINER_COST, VALUE_COST, HogError, HogTuple, Value
from hoglab.hog.stdlib.arrays import account
from hoglab.hog.stdlib.registry import function

declare = partial(function, category="arrays", cost="callback", context=True, pure=False, exact=True)


@declare(
    "arrayMap",
    "transform: function",
    "items: any",
    returns="array",
    doc="The results of a function for each element.",
    examples=(
        ("arrayMap(x -> x * 2, [1, 2, 3])", "[2, 4, 6]"),
        ("arrayMap(x -> x, {'a': 1, 'b': 2})", "[1, 2]"),
        ("arrayMap(x -> x, null)", "[]"),
    ),
)
def _map(ctx: Context, transform: Value, items: Value) -> list[Value]:
    elements = values(items)
    if not elements:
        return []
    call = callback(ctx, transform, 1)
    account(ctx, len(elements))
    results: list[Value] = []
    building = ctx.budget.building
    building.append(results)
    try:
        for element, _ in zip(elements, ctx.ticks, strict=False):
            result = call(element)
            cls = result.__class__
            if cls is str or cls is list or cls is dict or cls is HogTuple:
                ctx.grow(CONTAINER_COST + 2 * VALUE_COST * len(result))
            results.append(result)
    finally:
        building.pop()
    return results


@declare(
    "arrayFilter",
    "keep: function",
    "items: any",
    returns="array",
    doc="The elements for which a function gives something true.",
    examples=(("arrayFilter(x -> x > 1, [1, 2, 3])", "[2, 3]"), ("arrayFilter(x -> x, null)", "[]")),
)
def _filter(ctx: Context, keep: Value, items: Value) -> list[Value]:
    elements = values(items)
    if not elements:
        return []
    call = callback(ctx, keep, 1)
    account(ctx, len(elements))
    return [element for element, _ in zip(elements, ctx.ticks, strict=False) if is_truthy(call(element))]


@declare(
    "arrayExists",
    "test: function",
    "items: any",
    returns="boolean",
    doc="Whether a function gives something true for any element; it is not called beyond the first.",
    examples=(("arrayExists(x -> x > 2, [1, 2, 3])", "true"), ("arrayExists(x -> x, [])", "false")),
)
def _exists(ctx: Context, test: Value, items: Value) -> bool:
    elements = values(items)
    if not elements:
        return False
    call = callback(ctx, test, 1)
    return any(is_truthy(call(element)) for element, _ in zip(elements, ctx.ticks, strict=False))


@declare(
    "arrayCount",
    "test: function",
    "items: any",
    returns="integer",
    doc="The number of elements for which a function gives something true.",
    examples=(("arrayCount(x -> x > 1, [1, 2, 3])", "2"), ("arrayCount(x -> x, null)", "0")),
)
def _count(ctx: Context, test: Value, items: Value) -> int:
    elements = values(items)
    if not elements:
        return 0
    call = callback(ctx, test, 1)
    return sum(is_truthy(call(element)) for element, _ in zip(elements, ctx.ticks, strict=False))


@declare(
    "arrayReduce",
    "combine: function",
    "items: any",
    "initial: any",
    returns="any",
    doc="One value from all elements: a function combines the value so far, at first `initial`, with each "
    "element in turn.",
    examples=(
        ("arrayReduce((a, x) -> a + x, [1, 2, 3], 10)", "16"),
        ("arrayReduce((a, x) -> a + x, null, 0)", "0"),
    ),
)
def _reduce(ctx: Context, combine: Value, items: Value, initial: Value) -> Value:
    elements = values(items)
    if not elements:
        return initial
    call = callback(ctx, combine, 2)
    result = initial
    for element, _ in zip(elements, ctx.ticks, strict=False):
        result = call(result, element)
    return result


# Written in Hog officially, therefore of exact arity, though they call nothing.

_VERSION: Final = searched(r"(?<![0-9])[0-9]++(?:\.[0-9]++)+")
_MAX_VERSION_TEXT: Final = 1_000

_plain = partial(function, category="arrays", exact=True)


@_plain(
    "sortableSemver",
    "version: any",
    returns="array",
    cost="linear",
    doc="The numbers of the first version in a text; such arrays compare with <, > and =. Empty when "
    "there is none.",
    examples=(
        ("sortableSemver('v1.2.3-beta')", "[1, 2, 3]"),
        ("sortableSemver('1.10.0') > sortableSemver('1.9.0')", "true"),
        ("sortableSemver(null)", "[]"),
    ),
)
def _sortable_semver(version: Value) -> list[int]:
    if version is None:
        return []
    matched = _VERSION.search(js_string(version)[:_MAX_VERSION_TEXT])
    return [min(int(part), 2**53) for part in matched[0].split(".")] if matched else []


def _in_cohort(name: str, cohort: Value, cohorts: Value) -> bool:
    if cohorts is None:
        raise HogThrow(
            HogError("Error", f"{name}() requires cohort membership to be loaded for this evaluation")
        )
    members = cohorts if cohorts.__class__ is list or cohorts.__class__ is HogTuple else values(cohorts)
    for position, member in enumerate(members, 1):
        if position % LONG == 0:
            charge(LONG)
        if eq(cohort, member):
            return True
    return False


@_plain(
    "inCohort",
    "cohort: integer",
    "cohorts: array|null",
    returns="boolean",
    cost="linear",
    doc="Whether a cohort is among those that a person belongs to; throws an Error when these are not "
    "loaded.",
    examples=(("inCohort(5, [3, 5])", "true"), ("inCohort(5, [])", "false")),
)
def _is_in_cohort(cohort: Value, cohorts: Value) -> bool:
    return _in_cohort("inCohort", cohort, cohorts)


@_plain(
    "notInCohort",
    "cohort: integer",
    "cohorts: array|null",
    returns="boolean",
    cost="linear",
    doc="The opposite of inCohort.",
    examples=(
        ("notInCohort(5, [3, 5])", "false"),
        ("notInCohort(5, [])", "true"),
    ),
)
def _is_not_in_cohort(cohort: Value, cohorts: Value) -> bool:
    return not _in_cohort("notInCohort", cohort, cohorts)
