"""Direct evaluation of property filters with the semantics of feature flags (spec: sdk-wire 3.6-3.8).

Filters are compiled once, when a flag is loaded, into predicates over one property value. A predicate is
total: it answers for any JSON value and for `MISSING`, and an operand that cannot be compared is no match.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, NamedTuple

import orjson

from hoglab.filters import dates, semver
from hoglab.filters.allowance import SHORT, charge_comparison
from hoglab.filters.model import PropertyFilter, PropertyGroup
from hoglab.filters.searching import compile_search
from hoglab.patterns import ASCII, IGNORECASE, anchored

Predicate = Callable[[Any], bool]
"""Takes a property value or `MISSING`."""

_Compiler = Callable[[Any, "EvaluationContext"], Predicate]

MAX_NUMBER_LENGTH = 1_100
"""Longest text that is read as a number: every double can be written out in full with fewer characters."""


class _Missing:
    """The property does not exist, which is not the same as null."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Context of predicates on dates: the clock, and the time zone of values without one."""

    now: Callable[[], datetime] = _utc_now
    zone: tzinfo = UTC


DEFAULT_CONTEXT: Final = EvaluationContext()


def compile_predicate(operator: str, value: Any, context: EvaluationContext = DEFAULT_CONTEXT) -> Predicate:
    """Return the test of one operator against one filter value. An unknown operator never matches.

    Raises `FilterError` for a pattern that may be valid elsewhere but is not run here (see `pattern_grammar`).
    """
    rule = _RULES.get(operator)
    if rule is None:
        return _never
    when_present = rule.compile(value, context)
    when_missing = rule.when_missing

    def predicate(property_value: Any) -> bool:
        if property_value is MISSING:
            return when_missing
        return when_present(property_value)

    return predicate


def compile_filter(
    property_filter: PropertyFilter, context: EvaluationContext = DEFAULT_CONTEXT
) -> Callable[[Mapping[str, Any]], bool]:
    """Return one filter as a test over a mapping of properties, negation included."""
    key = property_filter.key
    negated = property_filter.negation
    predicate = compile_predicate(property_filter.operator, property_filter.value, context)

    def matches(properties: Mapping[str, Any]) -> bool:
        return predicate(properties.get(key, MISSING)) is not negated

    return matches


def compile_group(
    group: PropertyGroup, context: EvaluationContext = DEFAULT_CONTEXT
) -> Callable[[Mapping[str, Any]], bool]:
    """Return a tree of filters as one test over a mapping of properties. An empty group matches."""
    tests = [
        compile_group(member, context)
        if isinstance(member, PropertyGroup)
        else compile_filter(member, context)
        for member in group.values
    ]
    if not tests:
        return lambda _properties: True
    if group.type == "AND":
        return lambda properties: all(test(properties) for test in tests)
    return lambda properties: any(test(properties) for test in tests)


def text_of(value: Any) -> str:
    """Return a value as text: strings as they are, everything else as compact JSON with sorted keys."""
    if isinstance(value, str):
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # deeper than 254 levels, or an integer of more than 64 bits inside
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def number_of(value: Any) -> float | None:
    """Return a value as finite float64: a number, or text of at most `MAX_NUMBER_LENGTH` characters that is one.

    None for everything else, booleans and numbers that are too large included, as posthog-python has it.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and (len(value) > MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(value)):
        return None
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


_NUMBER = anchored(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[+-]?[0-9]++)?", IGNORECASE | ASCII)


MAX_EXACT: Final = 2**53
"""Size from which on two integers may be one float64."""


def is_long_integer(value: Any) -> bool:
    """Return whether a value is an integer, or text of one, that float64 may not tell from its neighbours."""
    number = number_of(value)
    return number is not None and abs(number) >= MAX_EXACT and _INTEGER.fullmatch(text_of(value)) is not None


_INTEGER = anchored(r"[+-]?[0-9]++", ASCII)


def _never(_value: Any) -> bool:
    return False


def _negate(predicate: Predicate) -> Predicate:
    return lambda value: not predicate(value)


# --- equality -------------------------------------------------------------------------------------


def _is_truth_like(value: Any) -> bool:
    """Return booleans, the texts true and false, and lists of only such (so the empty list too)."""
    if isinstance(value, str):
        return value.lower() in {"true", "false"}
    if isinstance(value, list):
        return all(_is_truth_like(member) for member in value)
    return isinstance(value, bool)


def _is_true(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, list):
        charge_comparison(len(value))
        return all(_is_true(member) for member in value)
    return value is True


def _exact(value: Any, _context: EvaluationContext) -> Predicate:
    if _is_truth_like(value):
        wanted = _is_true(value)
        return lambda actual: _is_true(actual) is wanted
    if isinstance(value, list):
        texts = frozenset(text_of(member).lower() for member in value)
        return lambda actual: _counted(actual).lower() in texts
    text = text_of(value).lower()
    return lambda actual: _counted(actual).lower() == text


def _is_not(value: Any, context: EvaluationContext) -> Predicate:
    return _negate(_exact(value, context))


def _always(_value: Any, _context: EvaluationContext) -> Predicate:
    return lambda _actual: True


def _nowhere(_value: Any, _context: EvaluationContext) -> Predicate:
    return _never


# --- text -----------------------------------------------------------------------------------------


def _counted(value: Any, times: int = 1) -> str:
    """Return a value as text, charged to the request that compares it ``times`` times."""
    if isinstance(value, list | dict):
        charge_comparison(SHORT + 1)  # before it is written out, which takes longer than to compare it
    text = text_of(value)
    charge_comparison(len(text), times)
    return text


def _folded(value: Any, times: int = 1) -> bytes:
    """Return UTF-8 with only ASCII letters lower-cased: É and é stay different. ``times``: see `_counted`."""
    return _counted(value, times).encode("utf-8", "replace").lower()


def _icontains(value: Any, _context: EvaluationContext) -> Predicate:
    needle = _folded(value)
    return lambda actual: needle in _folded(actual)


def _icontains_multi(value: Any, _context: EvaluationContext) -> Predicate:
    needles = [_folded(member) for member in (value if isinstance(value, list) else [value])]

    def matches(actual: Any) -> bool:
        haystack = _folded(actual, len(needles))
        return any(needle in haystack for needle in needles)

    return matches


def _starts_with(value: Any, _context: EvaluationContext) -> Predicate:
    start = _folded(value)
    return lambda actual: _folded(actual).startswith(start)


def _ends_with(value: Any, _context: EvaluationContext) -> Predicate:
    end = _folded(value)
    return lambda actual: _folded(actual).endswith(end)


def _regex(value: Any, _context: EvaluationContext) -> Predicate:
    search = compile_search(text_of(value))
    if search is None:
        return _never
    return lambda actual: search(_counted(actual))


def _not_regex(value: Any, _context: EvaluationContext) -> Predicate:
    search = compile_search(text_of(value))
    if search is None:
        return _never
    return lambda actual: not search(_counted(actual))


# --- numbers --------------------------------------------------------------------------------------


def _comparison(compare: Callable[[float, float], bool]) -> _Compiler:
    def build(value: Any, _context: EvaluationContext) -> Predicate:
        bound = number_of(value)
        if bound is None:
            return _never

        def matches(actual: Any) -> bool:
            number = number_of(actual)
            return number is not None and compare(number, bound)

        return matches

    return build


def _bounds(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = number_of(value[0]), number_of(value[1])
    return (low, high) if low is not None and high is not None and low <= high else None


def _between(value: Any, _context: EvaluationContext) -> Predicate:
    bounds = _bounds(value)
    if bounds is None:
        return _never
    low, high = bounds

    def matches(actual: Any) -> bool:
        number = number_of(actual)
        return number is not None and low <= number <= high

    return matches


def _not_between(value: Any, _context: EvaluationContext) -> Predicate:
    bounds = _bounds(value)
    if bounds is None:
        return _never
    low, high = bounds

    def matches(actual: Any) -> bool:
        number = number_of(actual)
        return number is not None and not low <= number <= high

    return matches


# --- dates ----------------------------------------------------------------------------------------


def _date(
    compare: Callable[[datetime, datetime], bool],
) -> _Compiler:
    def build(value: Any, context: EvaluationContext) -> Predicate:
        if not isinstance(value, str):
            return _never
        relative = dates.is_relative(value)
        fixed = dates.parse_filter_date(value, context.now(), context.zone)
        if fixed is None:
            return _never

        def matches(actual: Any) -> bool:
            now = context.now()
            bound = dates.parse_filter_date(value, now, context.zone) if relative else fixed
            moment = dates.parse_property_date(actual, now, context.zone)
            return bound is not None and moment is not None and compare(moment, bound)

        return matches

    return build


# --- versions -------------------------------------------------------------------------------------


def _version(
    compare: Callable[[semver.Version, semver.Version], bool],
) -> _Compiler:
    def build(value: Any, _context: EvaluationContext) -> Predicate:
        bound = semver.parse_version(text_of(value))
        if bound is None:
            return _never

        def matches(actual: Any) -> bool:
            version = semver.parse_version(_counted(actual))
            return version is not None and compare(version, bound)

        return matches

    return build


def _version_range(
    parse: Callable[[str], semver.VersionRange | None],
) -> _Compiler:
    def build(value: Any, _context: EvaluationContext) -> Predicate:
        span = parse(text_of(value))
        if span is None:
            return _never

        def matches(actual: Any) -> bool:
            version = semver.parse_version(_counted(actual))
            return version is not None and version in span

        return matches

    return build


class _Rule(NamedTuple):
    """Result of an operator for a missing property, and its compiler for present ones."""

    when_missing: bool
    compile: _Compiler


def _negated(build: _Compiler) -> _Compiler:
    return lambda value, context: _negate(build(value, context))


_gte = _comparison(lambda actual, bound: actual >= bound)
_lte = _comparison(lambda actual, bound: actual <= bound)

_RULES: Final[Mapping[str, _Rule]] = {
    "is_set": _Rule(False, _always),
    "is_not_set": _Rule(True, _nowhere),
    "exact": _Rule(False, _exact),
    "is_not": _Rule(True, _is_not),
    "icontains": _Rule(False, _icontains),
    "not_icontains": _Rule(True, _negated(_icontains)),
    "icontains_multi": _Rule(False, _icontains_multi),
    "not_icontains_multi": _Rule(True, _negated(_icontains_multi)),
    "starts_with": _Rule(False, _starts_with),
    "not_starts_with": _Rule(True, _negated(_starts_with)),
    "ends_with": _Rule(False, _ends_with),
    "not_ends_with": _Rule(True, _negated(_ends_with)),
    "regex": _Rule(False, _regex),
    "not_regex": _Rule(True, _not_regex),
    "gt": _Rule(False, _comparison(lambda actual, bound: actual > bound)),
    "gte": _Rule(False, _gte),
    "min": _Rule(False, _gte),
    "lt": _Rule(False, _comparison(lambda actual, bound: actual < bound)),
    "lte": _Rule(False, _lte),
    "max": _Rule(False, _lte),
    "between": _Rule(False, _between),
    "not_between": _Rule(True, _not_between),
    "is_date_before": _Rule(False, _date(lambda actual, bound: actual < bound)),
    "is_date_after": _Rule(False, _date(lambda actual, bound: actual > bound)),
    "is_date_exact": _Rule(False, _date(lambda actual, bound: actual == bound)),
    "semver_eq": _Rule(False, _version(lambda actual, bound: actual == bound)),
    "semver_neq": _Rule(False, _version(lambda actual, bound: actual != bound)),
    "semver_gt": _Rule(False, _version(lambda actual, bound: actual > bound)),
    "semver_gte": _Rule(False, _version(lambda actual, bound: actual >= bound)),
    "semver_lt": _Rule(False, _version(lambda actual, bound: actual < bound)),
    "semver_lte": _Rule(False, _version(lambda actual, bound: actual <= bound)),
    "semver_tilde": _Rule(False, _version_range(semver.tilde_range)),
    "semver_caret": _Rule(False, _version_range(semver.caret_range)),
    "semver_wildcard": _Rule(False, _version_range(semver.wildcard_range)),
}

OPERATORS: Final[Sequence[str]] = tuple(_RULES)
"""Every operator that `compile_predicate` knows."""
