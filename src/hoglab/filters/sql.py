"""Property filters as SQL conditions, for metrics and exposures (spec: experiment-results 1.6; hog-runtime 2.4).

A property is compared as text: strings as they are, numbers and booleans as JSON writes them, objects and arrays
as compact JSON. A filter value that is a number, or text of one, also equals a JSON number of the same size. A
missing property and JSON null are the same. Values from users reach the engine as bound parameters only; what
differs between engines is behind `PropertyDialect`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Final, Protocol

from hoglab.filters import dates
from hoglab.filters.elements import (
    HREF,
    ID,
    TEXT,
    only_id,
    parse_selector,
    selector_pattern,
    tag_pattern,
)
from hoglab.filters.evaluate import is_long_integer, number_of, text_of
from hoglab.filters.model import GROUP_TYPES, FilterError, PropertyFilter, PropertyGroup
from hoglab.filters.operands import text_problem
from hoglab.filters.searching import compile_regex

TRUE: Final = "TRUE"
FALSE: Final = "FALSE"

CHAIN: Final = "elements_chain"
"""The column of an event that holds the elements that were clicked."""

METADATA_COLUMNS: Final[Mapping[str, str]] = {
    "event": "event",
    "distinct_id": "distinct_id",
    CHAIN: CHAIN,
    **{f"$group_{index}": f"group_{index}" for index in range(GROUP_TYPES)},
}
"""Columns of an event that filters of type ``event_metadata`` reach."""


MAX_LENGTH: Final = 200_000
"""Maximum length of the conditions and expressions of one statement together, in characters of SQL.

An engine reads and plans all of them before it does anything that could be interrupted, in time that may grow with the
square of their number and in memory that it does not count."""

MAX_VALUES: Final = 10_000
"""Maximum number of values in one filter."""

Bindable = str | float | datetime | tuple[str, ...]
"""Types of the values that statements bind."""


class Parameters:
    """The values of one statement, and how much is written with them. `bind` returns how it refers to a value."""

    def __init__(self, reference: Callable[[str, Bindable], str] = lambda name, _value: f"${name}") -> None:
        """Create an empty collection.

        ``reference`` is the engine's form of a reference: ``$name``, or with its type.
        """
        self._reference = reference
        self._length = 0
        self._values: dict[str, Any] = {}
        self._names: dict[tuple[type, Any], str] = {}

    def bind(self, value: Bindable) -> str:
        """Return a reference to ``value``; equal values share one."""
        known = (type(value), value)
        name = self._names.get(known)
        if name is None:
            name = self._names[known] = f"v{len(self._values)}"
            self._values[name] = value
        return self._reference(name, value)

    def written(self, sql: str, place: str) -> str:
        """Return the text, which becomes part of the statement. Raises `FilterError` when that is too long with it."""
        self._length += len(sql)
        if self._length > MAX_LENGTH:
            reason = (
                f"too many filters, or too large ones: they make more than {MAX_LENGTH:,} characters of SQL"
            )
            raise FilterError(reason, place)
        return sql

    @property
    def values(self) -> dict[str, Any]:
        """The values that were bound so far, by name; a condition that was dropped may have been all that asked."""
        return dict(self._values)


class PropertyDialect(Protocol):
    """SQL of an engine for the few things that conditions are made of. All arguments are SQL."""

    def property_text(self, column: str, key: str, parameters: Parameters) -> str:
        """Return the property ``key`` (any text) of a JSON column as text; NULL when missing or JSON null."""
        ...

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        """Return the property as float64 when its JSON value is a number; else NULL."""
        ...

    def number(self, text: str) -> str:
        """Return text that is a decimal number as float64 (infinite beyond its range); NULL for any other text."""
        ...

    def contains(self, text: str, pattern: str, *, escapes: bool = False) -> str:
        """Return whether text matches a LIKE pattern, whatever the case.

        ``escapes``: a backslash takes the character behind it literally; without, it stands for itself.
        """
        ...

    def like(self, text: str, pattern: str) -> str:
        """Return whether text matches a LIKE pattern; nothing is an escape."""
        ...

    def matches(self, text: str, pattern: str) -> str:
        """Return whether an RE2 pattern is found in text."""
        ...

    def first_group(self, text: str, pattern: str) -> str:
        """Return contents of a pattern's (RE2) group where it is first found in text; empty when it is not."""
        ...

    def any_group(self, text: str, pattern: str, name: str, condition: str) -> str:
        """Return whether a condition, never NULL, holds for ``name`` being what the group holds anywhere in text."""
        ...

    def moment(self, text: str, zone: str) -> str:
        """Return text of a date-time, or of epoch seconds, as microseconds since the epoch; else NULL.

        ``zone`` names the time zone of texts without an offset.
        """
        ...


class Row(Protocol):
    """The row that conditions are about: what each of them asks for is read from it, and nothing else."""

    @property
    def dialect(self) -> PropertyDialect: ...

    @property
    def parameters(self) -> Parameters:
        """The values of the statement."""
        ...

    def column(self, name: str) -> str:
        """Return a column of an event."""
        ...

    def text(self, column: str, key: str) -> str:
        """Return the property ``key`` (any text) of a JSON column as text; NULL when missing or JSON null."""
        ...

    def number(self, column: str, key: str) -> str:
        """Return the property's text as float64 where it is a decimal number; else NULL."""
        ...

    def json_number(self, column: str, key: str) -> str:
        """Return the property as float64 when its JSON value is a number; else NULL."""
        ...

    def depend_on_now(self) -> None:
        """Declare that conditions on the row depend on the time of evaluation."""
        ...


class FilterField(Protocol):
    """The left side of a condition, in SQL: as text, as text that is read as a number, and as a JSON number.

    Of a list these are one item of it: a condition holds when it holds for any, a negative one when it does for all.
    """

    @property
    def text(self) -> str: ...

    @property
    def number(self) -> str: ...

    @property
    def json_number(self) -> str | None:
        """The JSON number; None for a field that never is one."""
        ...

    @property
    def any_item(self) -> Callable[[str], str] | None:
        """A function of a list: whether a condition over an item, never NULL, holds for any of them; may be NULL."""
        ...


@dataclass(frozen=True, slots=True)
class ComputedField:
    """A `FilterField` of expressions."""

    text: str
    number: str
    json_number: str | None = None
    any_item: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class PropertyField:
    """A `FilterField` that is a property of a row, of which each form is read where a condition asks for it."""

    row: Row
    column: str
    key: str

    @property
    def text(self) -> str:
        return self.row.text(self.column, self.key)

    @property
    def number(self) -> str:
        return self.row.number(self.column, self.key)

    @property
    def json_number(self) -> str:
        return self.row.json_number(self.column, self.key)

    @property
    def any_item(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class FilterScope:
    """Row on which filters are evaluated. ``now`` and ``zone`` give relative and zoneless dates their meaning."""

    row: Row
    now: datetime
    zone: tzinfo
    columns: Mapping[str, str] = field(
        default_factory=lambda: {
            "event": "properties",
            "feature": "properties",
            "person": "person_properties",
        }
    )
    """JSON column by type of filter."""
    group_columns: Mapping[int, str] = field(default_factory=dict)
    """JSON column of the properties of the event's group, by the index of its type."""
    cohort: Callable[[PropertyFilter], str] | None = None
    """The condition of a cohort filter, where cohorts can be looked up."""
    session: Callable[[str], FilterField] | None = None
    """A property of the event's session, where sessions can be looked up. Raises `FilterError`."""
    expression: Callable[[PropertyFilter], str] | None = None
    """The condition of a filter of type ``hogql``, which may be NULL, where expressions can be translated."""
    field_of: Callable[[PropertyFilter], FilterField] | None = None
    """Field that a filter is about, where that is no event. Raises `FilterError`."""

    @property
    def dialect(self) -> PropertyDialect:
        return self.row.dialect

    @property
    def parameters(self) -> Parameters:
        return self.row.parameters


def group_condition(group: PropertyGroup, scope: FilterScope) -> str:
    """Return a tree of filters as one condition that is never NULL.

    Raises `FilterError` for types and operators that SQL cannot answer.
    """
    parts = []
    for value in group.values:
        part = (
            group_condition(value, scope)
            if isinstance(value, PropertyGroup)
            else filter_condition(value, scope)
        )
        parts.append(part)
    return combined("AND" if group.type == "AND" else "OR", parts)


def combined(operator: str, parts: list[str]) -> str:
    """Return conditions joined by AND or OR; no condition at all is true."""
    neutral, decided = (TRUE, FALSE) if operator == "AND" else (FALSE, TRUE)
    if not parts:
        return TRUE
    if decided in parts:
        return decided
    left = [part for part in parts if part != neutral]
    if not left:
        return neutral
    return left[0] if len(left) == 1 else "(" + f" {operator} ".join(left) + ")"


def filter_condition(condition: PropertyFilter, scope: FilterScope) -> str:
    """Return one filter as a condition that is never NULL. Raises `FilterError`."""
    if condition.is_cohort:
        if scope.cohort is None:
            raise FilterError("cohorts cannot be used here", condition.key)
        return scope.cohort(condition)
    if condition.type == "flag":
        return TRUE
    if condition.type == "hogql" and scope.expression is not None:
        clause = f"coalesce({scope.expression(condition)}, {FALSE})"
        return f"(NOT {clause})" if condition.negation else clause
    if condition.type == "element" and scope.field_of is None:
        clause = _element_condition(condition, scope)
    else:
        clause = _over_values(condition, _rule(condition), _field(condition, scope), scope)
    return f"(NOT {clause})" if condition.negation else clause


def _element_condition(condition: PropertyFilter, scope: FilterScope) -> str:
    """Return condition on the elements that were clicked (spec: hog-runtime 2.7).

    ``href`` is the first one of the chain, empty without any; of texts one must meet the condition, whatever it is.
    """
    dialect, parameters = scope.dialect, scope.parameters
    chain = scope.row.column(CHAIN)
    match condition.key:
        case "href":
            text = dialect.first_group(chain, parameters.bind(HREF))
            return _over_values(condition, _rule(condition), _text_field(text, scope), scope)
        case "text":
            holds = _over_values(condition, _rule(condition), _text_field(_CLICKED, scope), scope)
            return dialect.any_group(chain, parameters.bind(TEXT), _CLICKED, holds)
        case "selector" | "tag_name" as key:
            test = _selects if key == "selector" else _has_tag
            rules = {"exact": _Rule(test), "is_not": _Rule(_negated(test), when_missing=True)}
            rule = rules.get(condition.operator)
            if rule is None:
                raise FilterError(f"the operator {condition.operator} is not supported for it", key)
            return _over_values(condition, rule, _text_field(chain, scope), scope)
    raise FilterError("elements have no such property", condition.key)


_CLICKED: Final = "clicked_text"


def _text_field(text: str, scope: FilterScope) -> FilterField:
    """Return the field that is nothing but text."""
    return ComputedField(text, scope.dialect.number(text))


def _field(condition: PropertyFilter, scope: FilterScope) -> FilterField:
    if scope.field_of is not None:
        return scope.field_of(condition)
    kind, key = condition.type, condition.key
    if kind == "event_metadata" or (kind == "person" and key == "distinct_id"):
        column = METADATA_COLUMNS.get(key)
        if column is None:
            raise FilterError(f"{key} is no column of events", key)
        return _text_field(scope.row.column(column), scope)
    if kind in ("event", "feature") and key == "$elements_chain":  # which events keep in a column of its own
        return _text_field(scope.row.column(CHAIN), scope)
    if kind == "session" and scope.session is not None:
        return scope.session(key)
    index = condition.group_type_index
    column = (
        scope.group_columns.get(-1 if index is None else index)
        if kind == "group"
        else scope.columns.get(kind)
    )
    if column is None:
        raise FilterError(f"filters of type {kind} are not supported in metrics", key)
    return PropertyField(scope.row, column, key)


_Test = Callable[[FilterField, Any, FilterScope], str]


@dataclass(frozen=True, slots=True)
class _Rule:
    """An operator: the test of one value, and what a missing property gives."""

    test: _Test
    when_missing: bool = False
    takes_list: bool = False
    valueless: bool = False


def _rule(condition: PropertyFilter) -> _Rule:
    rule = _RULES.get(condition.operator)
    if rule is None:
        raise FilterError(f"the operator {condition.operator} is not supported in metrics", condition.key)
    return rule


def _over_values(condition: PropertyFilter, rule: _Rule, field_: FilterField, scope: FilterScope) -> str:
    """Return a list of values is any of them, for negative operators none of them; an empty list says nothing."""
    clause = _over_one(condition, rule, field_, scope)
    if field_.any_item is None:
        return clause
    if rule.when_missing:
        return f"(NOT coalesce({field_.any_item(f'(NOT {clause})')}, FALSE))"
    return f"coalesce({field_.any_item(clause)}, FALSE)"


def _over_one(condition: PropertyFilter, rule: _Rule, field_: FilterField, scope: FilterScope) -> str:
    values = (
        condition.value if isinstance(condition.value, list) and not rule.takes_list else [condition.value]
    )
    written = partial(scope.parameters.written, place=condition.key)
    if problem := text_problem(condition.operator, condition.value):
        raise FilterError(problem, condition.key)
    if rule.valueless:
        return written(rule.test(field_, None, scope))
    if len(values) > MAX_VALUES:
        raise FilterError(f"a filter can have at most {MAX_VALUES:,} values", condition.key)
    if len(values) > 1 and rule.test in (_equals, _differs):
        same = written(_equals_any(field_, values, scope))
        return same if rule.test is _equals else f"(NOT {same})"
    missing = TRUE if rule.when_missing else FALSE
    try:
        tests = [written(f"coalesce({rule.test(field_, value, scope)}, {missing})") for value in values]
    except FilterError as error:
        raise FilterError(error.message, error.path or condition.key) from None
    return combined("AND" if rule.when_missing else "OR", tests) if tests else TRUE


def _equals_any(field_: FilterField, values: list[Any], scope: FilterScope) -> str:
    """Return the condition of `_equals` for any of several values; never NULL."""
    bind = scope.parameters.bind
    present = [value for value in values if value is not None]
    numbers = [number for value in present if (number := _comparable(value)) is not None]
    parts = [f"{field_.text} IS NULL"] if len(present) < len(values) else []
    if present:
        parts.append(_in(field_.text, [bind(text_of(value)) for value in present]))
    if numbers and (json_number := field_.json_number) is not None:
        parts.append(_in(json_number, list(map(bind, numbers))))
    return combined("OR", parts)


def _in(side: str, values: list[str]) -> str:
    return f"coalesce({side} IN ({', '.join(dict.fromkeys(values))}), FALSE)"


def _equals(field_: FilterField, value: Any, scope: FilterScope) -> str:
    if value is None:
        return f"{field_.text} IS NULL"
    same = f"{field_.text} = {scope.parameters.bind(text_of(value))}"
    number = _comparable(value)
    if number is None or (json_number := field_.json_number) is None:
        return same
    return f"({same} OR coalesce({json_number} = {scope.parameters.bind(number)}, FALSE))"


def _comparable(value: Any) -> float | None:
    """Return the number that a value is compared with as one; None: as text alone."""
    return None if is_long_integer(value) else number_of(value)


def _differs(field_: FilterField, value: Any, scope: FilterScope) -> str:
    if value is None:
        return f"{field_.text} IS NOT NULL"
    return f"NOT {_equals(field_, value, scope)}"


def _contains(field_: FilterField, value: Any, scope: FilterScope) -> str:
    return _has_text(field_, "%", value, "%", scope)


def _starts(field_: FilterField, value: Any, scope: FilterScope) -> str:
    return _has_text(field_, "", value, "%", scope)


def _ends(field_: FilterField, value: Any, scope: FilterScope) -> str:
    return _has_text(field_, "%", value, "", scope)


_WILDCARDS: Final = str.maketrans({character: f"\\{character}" for character in r"\%_"})


def _has_text(field_: FilterField, before: str, value: Any, behind: str, scope: FilterScope) -> str:
    """Return the condition that a text is in a field; ``%`` and ``_`` in it stand for themselves, as in flags."""
    text = text_of(value)
    escaped = text.translate(_WILDCARDS)
    pattern = scope.parameters.bind(f"{before}{escaped}{behind}")
    return scope.dialect.contains(field_.text, pattern, escapes=escaped != text)


def _like(field_: FilterField, value: Any, scope: FilterScope) -> str:
    return scope.dialect.like(field_.text, scope.parameters.bind(text_of(value)))


def _matches(field_: FilterField, value: Any, scope: FilterScope) -> str:
    pattern = text_of(value)
    if compile_regex(pattern) is None:
        raise FilterError(f"{pattern!r} is not a valid regular expression", "")
    return scope.dialect.matches(field_.text, scope.parameters.bind(pattern))


def _selects(field_: FilterField, value: Any, scope: FilterScope) -> str:
    parts = parse_selector(text_of(value))
    identifier = only_id(parts)
    if identifier is None:
        some = f"{field_.text} <> ''"  # in a chain of no elements the pattern of any element finds one
        return f"({some} AND {_matches(field_, selector_pattern(parts), scope)})"
    same = f"{_CLICKED} = {scope.parameters.bind(identifier)}"
    return scope.dialect.any_group(field_.text, scope.parameters.bind(ID), _CLICKED, same)


def _has_tag(field_: FilterField, value: Any, scope: FilterScope) -> str:
    return _matches(field_, tag_pattern(text_of(value)), scope)


def _negated(test: _Test) -> _Test:
    return lambda field_, value, scope: f"NOT {test(field_, value, scope)}"


def _compared(operator: str) -> _Test:
    def test(field_: FilterField, value: Any, scope: FilterScope) -> str:
        number = number_of(value)
        if number is None:
            raise FilterError("must be a number", "")
        return f"{field_.number} {operator} {scope.parameters.bind(number)}"

    return test


def _between(field_: FilterField, value: Any, scope: FilterScope) -> str:
    low, high = _bounds(value, scope)
    return f"{field_.number} BETWEEN {low} AND {high}"


def _not_between(field_: FilterField, value: Any, scope: FilterScope) -> str:
    low, high = _bounds(value, scope)
    return f"({field_.number} < {low} OR {field_.number} > {high})"


def _bounds(value: Any, scope: FilterScope) -> tuple[str, str]:
    numbers = [number_of(item) for item in value] if isinstance(value, list) else []
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None or not numbers[0] <= numbers[1]:
        raise FilterError("must be a list of two numbers in ascending order", "")
    return scope.parameters.bind(numbers[0]), scope.parameters.bind(numbers[1])


def _dated(operator: str) -> _Test:
    def test(field_: FilterField, value: Any, scope: FilterScope) -> str:
        text = text_of(value)
        moment = dates.parse_filter_date(text, scope.now, scope.zone)
        if dates.is_relative(text):
            scope.row.depend_on_now()
        if moment is None:
            raise FilterError("must be a date, such as 2026-01-31, 2026-01-31T12:00:00Z or -7d", "")
        bound = scope.parameters.bind(round(moment.timestamp() * 1_000_000))
        zone = scope.parameters.bind(str(scope.zone))
        return f"{scope.dialect.moment(f'trim({field_.text})', zone)} {operator} {bound}"

    return test


_RULES: Final[Mapping[str, _Rule]] = {
    "exact": _Rule(_equals),
    "in": _Rule(_equals),
    "is_not": _Rule(_differs, when_missing=True),
    "not_in": _Rule(_differs, when_missing=True),
    "is_set": _Rule(lambda field_, _value, _scope: f"{field_.text} IS NOT NULL", valueless=True),
    "is_not_set": _Rule(
        lambda field_, _value, _scope: f"{field_.text} IS NULL", when_missing=True, valueless=True
    ),
    "icontains": _Rule(_contains),
    "not_icontains": _Rule(_negated(_contains), when_missing=True),
    "icontains_multi": _Rule(_contains),
    "not_icontains_multi": _Rule(_negated(_contains), when_missing=True),
    "starts_with": _Rule(_starts),
    "not_starts_with": _Rule(_negated(_starts), when_missing=True),
    "ends_with": _Rule(_ends),
    "not_ends_with": _Rule(_negated(_ends), when_missing=True),
    "like": _Rule(_like),
    "regex": _Rule(_matches),
    "not_regex": _Rule(_negated(_matches), when_missing=True),
    "gt": _Rule(_compared(">")),
    "gte": _Rule(_compared(">=")),
    "min": _Rule(_compared(">=")),
    "lt": _Rule(_compared("<")),
    "lte": _Rule(_compared("<=")),
    "max": _Rule(_compared("<=")),
    "between": _Rule(_between, takes_list=True),
    "not_between": _Rule(_not_between, takes_list=True),
    "is_date_exact": _Rule(_dated("=")),
    "is_date_before": _Rule(_dated("<")),
    "is_date_after": _Rule(_dated(">")),
}

OPERATORS: Final = tuple(_RULES)
"""Every operator that `filter_condition` knows."""
