"""Operators of a hog function's filter (spec: hog-runtime 2.4).

A condition is built for a *field* (any expression) and a JSON value. A missing property and one that is null
are the same to a running program. Where the plain expression would answer the wrong thing for them (the text
of null is ``null``, its number is 0), and only there, a test for null is put in front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hoglab.filters.evaluate import is_long_integer, number_of
from hoglab.filters.evaluate import text_of as json_text
from hoglab.filters.hog.conditions import (
    NOTHING,
    NUMBER_TEXT,
    ORDER,
    Leaf,
    among,
    both,
    contains,
    either,
    is_not_set,
    is_set,
    matches,
    negated,
    ordered,
    plain,
    text_of,
)
from hoglab.filters.hog.tree import Scalar, array, call, compare, concat, const, tuple_
from hoglab.filters.model import FilterError
from hoglab.filters.operands import text_problem
from hoglab.filters.semver import caret_range, parse_version, wildcard_range
from hoglab.hog import HogRuntimeError, nodes
from hoglab.hog.values import (
    HogDateTime,
    compile_regex,
    format_number,
    ilike,
    read_instant,
    to_number,
)
from hoglab.patterns import ASCII, anchored

if TYPE_CHECKING:
    from hoglab.hog.nodes import Expr


@dataclass(frozen=True, slots=True)
class Operand:
    """The right side of a condition: its JSON value and where errors about it are reported."""

    value: Any
    path: str
    timezone: str = "UTC"
    path_cleaning: bool = False
    """Whether the project rewrites paths before it compares them."""

    def error(self, message: str) -> FilterError:
        return FilterError(message, f"{self.path}.value" if self.path else "value")

    def one(self, value: Any) -> Operand:
        return Operand(value, self.path, self.timezone, self.path_cleaning)

    def values(self) -> list[Any]:
        """Return the values of a list, or the one value."""
        return self.value if isinstance(self.value, list) else [self.value]

    def scalar(self) -> Scalar:
        if isinstance(self.value, (list, dict)):
            raise self.error("must be a string, a number or a boolean")
        value: Scalar = self.value
        return value

    def text(self) -> str:
        """Return the value as the text that a pattern is built from."""
        value = self.scalar()
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None:
            return ""
        return format_number(value)


Build = Callable[["Expr", Operand], Leaf]


def condition(field: Expr, operator: str, operand: Operand) -> Leaf:
    """Return the condition of one property filter. Raises `FilterError` for what cannot be evaluated."""
    build = OPERATORS.get(operator)
    if build is None:
        raise FilterError(f"Operator {operator} is not supported in filters", operand.path)
    values = operand.value
    if problem := text_problem(operator, values):
        raise operand.error(problem)
    if not isinstance(values, list) or operator in _RANGES:
        return build(field, operand)
    if not values:
        return NOTHING
    if len(values) == 1:
        return build(field, operand.one(values[0]))
    listed = _LISTED.get(operator)
    if listed is not None:
        return listed(field, operand)
    conditions = [build(field, operand.one(value)) for value in values]
    return both(conditions) if operator in _NEGATIVE else either(conditions)


# --- null ---


def _false_when_null(field: Expr, built: Leaf, *, answer: bool) -> Leaf:
    """Return `built`, guarded if it would be true for null (`answer` says whether it would)."""
    return both([is_set(field), built]) if answer else built


def _true_when_null(field: Expr, built: Leaf, *, answer: bool) -> Leaf:
    return built if answer else either([is_not_set(field), built])


# --- equality ---


def _exact(field: Expr, operand: Operand) -> Leaf:
    """Return whether a property equals a value, or one of several: as a text, or as the number that a text spells.

    Metrics compare alike. The language's ``=`` would take false for any text, an empty text for 0, and true for 1.
    """
    return either(_equals(field, operand, negated=False))


def _is_not(field: Expr, operand: Operand) -> Leaf:
    return both(_equals(field, operand, negated=True))


def _equals(field: Expr, operand: Operand, *, negated: bool) -> list[Leaf]:
    """Return conditions of which one holds if a property equals one of some values; ``negated``: all, if none."""
    scalars = [operand.one(value).scalar() for value in operand.values()]
    texts = {text: _spelt(text) for text in (json_text(scalar) for scalar in scalars if scalar is not None)}
    long = [text for text in texts if is_long_integer(text)]
    conditions = []
    if None in scalars:
        conditions.append(is_set(field) if negated else is_not_set(field))
    if texts:
        conditions.append(among(field, texts, negated=negated))
    if long:
        op = "not in" if negated else "in"
        conditions.append(plain(compare(op, text_of(field), tuple_(long))))
    return conditions


def _spelt(text: str) -> float | bool | None:
    """Return the boolean or number that a text spells, None for a long integer: constants of programs are float64."""
    if text in ("true", "false"):
        return text == "true"
    return None if number_of(text) is None or is_long_integer(text) else to_number(text)


def _cleaned_path(field: Expr, operand: Operand) -> Leaf:
    if operand.path_cleaning:
        raise FilterError("Path cleaning rules are not supported in filters", operand.path)
    return _exact(field, operand)


# --- text ---


def _has_wildcards(operand: Operand) -> bool:
    """Return whether the text to look for has characters that would stand for others in a pattern of ``ilike``."""
    return not _WILDCARDS.isdisjoint(operand.text())


_WILDCARDS = frozenset("%_")


def _icontains(field: Expr, operand: Operand) -> Leaf:
    if _has_wildcards(operand):  # which `multiSearchAny` takes literally, as flags do
        return _icontains_multi(field, operand)
    pattern = f"%{operand.text()}%"
    return _false_when_null(field, contains(field, pattern), answer=ilike("null", pattern))


def _not_icontains(field: Expr, operand: Operand) -> Leaf:
    if _has_wildcards(operand):
        return _not_icontains_multi(field, operand)
    pattern = f"%{operand.text()}%"
    return _true_when_null(field, contains(field, pattern, negated=True), answer=not ilike("null", pattern))


def _needles(operand: Operand) -> list[str]:
    return [operand.one(value).text() for value in operand.values()]


def _searched(op: str, field: Expr, needles: list[str]) -> Leaf:
    return plain(compare(op, call("multiSearchAnyCaseInsensitive", text_of(field), array(needles)), const(1)))


def _icontains_multi(field: Expr, operand: Operand) -> Leaf:
    needles = _needles(operand)
    found_in_null = any(needle.lower() in "null" for needle in needles)
    return _false_when_null(field, _searched("==", field, needles), answer=found_in_null)


def _not_icontains_multi(field: Expr, operand: Operand) -> Leaf:
    needles = _needles(operand)
    found_in_null = any(needle.lower() in "null" for needle in needles)
    return _true_when_null(field, _searched("!=", field, needles), answer=not found_in_null)


def _pattern(operand: Operand) -> tuple[str, bool]:
    """Return the pattern, and whether it is found in the text of null."""
    pattern = operand.text()
    try:
        return pattern, bool(pattern) and compile_regex(pattern).search("null")
    except HogRuntimeError as error:
        raise operand.error(error.message) from None


def _found(field: Expr, pattern: str) -> Leaf:
    """Return whether a pattern is found in a property.

    `match` alone finds nothing in an empty text, and no empty pattern.
    """
    if not pattern:
        return is_set(field)
    in_text = matches(field, pattern)
    return either([in_text, among(field, {"": None})]) if compile_regex(pattern).search("") else in_text


def _regex(field: Expr, operand: Operand) -> Leaf:
    pattern, in_null = _pattern(operand)
    return _false_when_null(field, _found(field, pattern), answer=in_null)


def _not_regex(field: Expr, operand: Operand) -> Leaf:
    pattern, in_null = _pattern(operand)
    return _true_when_null(field, negated(_found(field, pattern)), answer=not in_null)


# --- order ---


def _ordered(op: str) -> Build:
    def build(field: Expr, operand: Operand) -> Leaf:
        bound = _number(operand.scalar())
        if bound is None:
            raise operand.error("must be a number")
        return ordered(op, field, bound)

    return build


def _bounds(operand: Operand) -> tuple[float, float]:
    match operand.value:
        case [low, high]:
            bounds = _number(low), _number(high)
            if bounds[0] is not None and bounds[1] is not None and bounds[0] <= bounds[1]:
                return bounds[0], bounds[1]
    raise operand.error("must be two numbers, the smaller one first")


def _number(value: Any) -> float | None:
    """Return a value as the number that flags read in it, None for others."""
    if number_of(value) is None:
        return None
    return value if isinstance(value, (int, float)) else to_number(value)


def _between(field: Expr, operand: Operand) -> Leaf:
    low, high = _bounds(operand)
    return both([ordered(">=", field, low), ordered("<=", field, high)])


def _not_between(field: Expr, operand: Operand) -> Leaf:
    low, high = _bounds(operand)
    return either([ordered("<", field, low), ordered(">", field, high)])


# --- dates ---

_RELATIVE_DATE = anchored(r"-?(\d{1,5})([hdwmqysHDWMQY])", ASCII)
_UNITS = {
    "h": ("hour", 1),
    "d": ("day", 1),
    "w": ("week", 1),
    "m": ("month", 1),
    "q": ("month", 3),
    "y": ("year", 1),
    "s": ("second", 1),
    "M": ("minute", 1),
}


_NUMBER_IN_BLANKS = rf"^\s*{NUMBER_TEXT[1:-1]}\s*$"


def _instant(text: Expr, timezone: str) -> Expr:
    return call("toDateTime", text) if timezone == "UTC" else call("toDateTime", text, const(timezone))


def _instant_of(field: Expr, timezone: str) -> Expr:
    """Return the instant that a property means: numbers and their texts are seconds since 1970, other texts dates."""
    text = text_of(field)
    is_number = call("match", text, const(_NUMBER_IN_BLANKS))
    epoch = call("toDateTime", call("toFloat", field))
    return nodes.If(0, 0, ((is_number, epoch),), _instant(text, timezone))


def _date_operand(operand: Operand) -> Expr | None:
    """Return the instant to compare with, None when the value is no date. Relative ones are counted when it runs."""
    text = operand.text().strip()
    relative = _RELATIVE_DATE.fullmatch(text)
    if relative is None:
        return None if read_instant(text) is None else _instant(const(text), operand.timezone)
    unit, times = _UNITS[relative[2] if relative[2] in _UNITS else relative[2].lower()]
    now: Expr = call("now")
    if operand.timezone != "UTC":
        now = call("toTimeZone", now, const(operand.timezone))
    return call("dateAdd", const(unit), const(-int(relative[1]) * times), now)


_SOME_INSTANT = HogDateTime(datetime(2020, 1, 1, tzinfo=UTC).timestamp(), "UTC")


def _dated(op: str) -> Build:
    def build(field: Expr, operand: Operand) -> Leaf:
        wanted = _date_operand(operand)
        if wanted is None:
            raise operand.error("must be a date, such as 2026-01-31, 2026-01-31T12:00:00Z or -7d")
        instant = _instant_of(field, operand.timezone)
        no_date_answers = op in ORDER and ORDER[op](None, _SOME_INSTANT)
        return _false_when_null(instant, plain(compare(op, instant, wanted)), answer=no_date_answers)

    return build


# --- versions ---

_VERSION_TEXT = r"^\s*[vV]?(\d{1,15}(?:\.\d{1,15}){0,2})\s*(?:[-+].*)?$"
_THREE_PARTS = r"^(\d+\.\d+\.\d+)"

Core = tuple[int, int, int]


def _is_version(field: Expr) -> Leaf:
    return matches(field, _VERSION_TEXT)


def _version(field: Expr) -> Expr:
    """Return three numbers that compare as a version: missing parts are filled with zeros."""
    numbers = call("extractRegex", text_of(field), const(_VERSION_TEXT))
    padded = concat(numbers, const(".0.0"))
    return call("sortableSemver", call("extractRegex", padded, const(_THREE_PARTS)))


def _core(operand: Operand) -> Core:
    version = parse_version(operand.text())
    if version is None:
        raise operand.error("must be a version such as 1.2.3")
    return version.core


def _versioned(op: str) -> Build:
    def build(field: Expr, operand: Operand) -> Leaf:
        return both([_is_version(field), plain(compare(op, _version(field), array(_core(operand))))])

    return build


def _semver_neq(field: Expr, operand: Operand) -> Leaf:
    return negated(_versioned("==")(field, operand))


def _version_range(find: Callable[[Operand], tuple[Core, Core | None]]) -> Build:
    def build(field: Expr, operand: Operand) -> Leaf:
        low, high = find(operand)
        version = _version(field)
        inside = [_is_version(field), plain(compare(">=", version, array(low)))]
        if high is not None:
            inside.append(plain(compare("<", version, array(high))))
        return both(inside)

    return build


def _tilde(operand: Operand) -> tuple[Core, Core]:
    """Return the bounds of a range: ``~1.2.3`` leaves the last part free, ``~1`` the last two."""
    major, minor, patch = _core(operand)
    named = operand.text().split("-")[0].split("+")[0].count(".") + 1
    return (major, minor, patch), (major + 1, 0, 0) if named == 1 else (major, minor + 1, 0)


def _caret(operand: Operand) -> tuple[Core, Core | None]:
    low = _core(operand)
    version_range = caret_range(".".join(map(str, low)))
    high = None if version_range is None else version_range.high
    return low, None if high is None else high.core


def _wildcard(operand: Operand) -> tuple[Core, Core | None]:
    version_range = wildcard_range(operand.text())
    if version_range is None:
        raise operand.error("must be a version pattern such as 1.2.*")
    return version_range.low.core, version_range.high.core if version_range.high else None


OPERATORS: Mapping[str, Build] = {
    "exact": _exact,
    "is_not": _is_not,
    "is_set": lambda field, _: is_set(field),
    "is_not_set": lambda field, _: is_not_set(field),
    "icontains": _icontains,
    "not_icontains": _not_icontains,
    "icontains_multi": _icontains_multi,
    "not_icontains_multi": _not_icontains_multi,
    "regex": _regex,
    "not_regex": _not_regex,
    "gt": _ordered(">"),
    "gte": _ordered(">="),
    "lt": _ordered("<"),
    "lte": _ordered("<="),
    "min": _ordered(">="),
    "max": _ordered("<="),
    "between": _between,
    "not_between": _not_between,
    "in": _exact,
    "not_in": _is_not,
    "is_date_exact": _dated("=="),
    "is_date_before": _dated("<"),
    "is_date_after": _dated(">"),
    "is_cleaned_path_exact": _cleaned_path,
    "semver_eq": _versioned("=="),
    "semver_neq": _semver_neq,
    "semver_gt": _versioned(">"),
    "semver_gte": _versioned(">="),
    "semver_lt": _versioned("<"),
    "semver_lte": _versioned("<="),
    "semver_tilde": _version_range(_tilde),
    "semver_caret": _version_range(_caret),
    "semver_wildcard": _version_range(_wildcard),
}

VALUELESS = frozenset({"is_set", "is_not_set"})
"""Operators that look at no value."""

_RANGES = frozenset({"between", "not_between"})
_NEGATIVE = frozenset(
    {"is_not", "not_icontains", "not_icontains_multi", "not_regex", "not_in", "semver_neq", "is_not_set"}
)
_LISTED: Mapping[str, Build] = {
    "exact": _exact,
    "in": _exact,
    "is_not": _is_not,
    "not_in": _is_not,
    "icontains": _icontains_multi,
    "not_icontains": _not_icontains_multi,
    "icontains_multi": _icontains_multi,
    "not_icontains_multi": _not_icontains_multi,
}
