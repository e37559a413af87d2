"""Operands that can never match, named before a filter is saved.

A filter with such an operand would be stored, compiled and false for everybody, and nobody would be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hoglab.filters import dates, semver
from hoglab.filters.evaluate import number_of, text_of
from hoglab.filters.model import FilterError
from hoglab.filters.searching import compile_search

MAX_SHOWN: Final = 100
"""Number of characters of an operand that a message repeats."""

PATTERNS: Final = frozenset({"regex", "not_regex"})
"""Operators that take a regular expression."""

SINGLE: Final = frozenset(
    {"icontains", "not_icontains", "starts_with", "not_starts_with", "ends_with", "not_ends_with"}
)
"""Operators that look for one text."""

MULTIPLE: Final = frozenset({"icontains_multi", "not_icontains_multi"})
"""Operators that take a list of texts and can do nothing with an empty one."""

_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Clock for relative dates: whether a text is one does not depend on it."""


PERSON_METADATA: Final = frozenset({"created_at"})
"""Keys of a person that are no properties."""


def key_problem(kind: str, key: str) -> str | None:
    """Return why a filter of a type that is compared as a property can never match with this key."""
    if not key:
        return "A filter needs the key of a property."
    if kind == "person_metadata" and key not in PERSON_METADATA:
        return (
            f"Persons have no {key[:MAX_SHOWN]} besides their properties, only {', '.join(PERSON_METADATA)}."
        )
    return None


def operand_problem(operator: str, value: Any) -> str | None:
    """Return why a filter with this operator and operand can never match, in words for its author.

    None for an operand that can be compared, and for operators that have no such rule.
    """
    rule = _RULES.get(operator)
    return None if rule is None else rule(operator, value)


def text_problem(operator: str, value: Any) -> str | None:
    """Return why a filter with this operand, or list of operands, cannot be looked for in texts.

    None for one that can be, and for operators that look for no text. Metrics and functions have this rule in common
    with flags, which take no list of patterns.
    """
    values = value if isinstance(value, list) else [value]
    if operator in PATTERNS and not all(isinstance(pattern, str) for pattern in values):
        return "must be a regular expression, as text"
    if operator in MULTIPLE and (not values or None in values):
        return "must be at least one text"
    if operator in SINGLE | MULTIPLE and any(isinstance(text, list | dict) for text in values):
        return "must be text"
    if operator in SINGLE and None in values:
        return "must be text"
    return None


def _shown(value: Any) -> str:
    return text_of(value)[:MAX_SHOWN]


def _number(operator: str, value: Any) -> str | None:
    if number_of(value) is not None:
        return None
    return f"Operator {operator} requires a number, got {_shown(value)}."


def _range(operator: str, value: Any) -> str | None:
    bounds = [number_of(bound) for bound in value] if isinstance(value, list) else []
    match bounds:
        case [float(low), float(high)] if low <= high:
            return None
    return f"Operator {operator} requires a list of two numbers, the lower first, got {_shown(value)}."


def _pattern(operator: str, value: Any) -> str | None:
    try:
        if isinstance(value, str) and compile_search(value) is not None:
            return None
    except FilterError as error:
        return f"Operator {operator} cannot use {_shown(value)}: {error.message}."
    return f"Operator {operator} requires a valid regular expression, got {_shown(value)}."


def _date(operator: str, value: Any) -> str | None:
    if isinstance(value, str) and dates.parse_filter_date(value, _NOW, UTC) is not None:
        return None
    return f"Operator {operator} requires a date, such as 2026-01-31, 2026-01-31T12:00:00Z or -7d, got {_shown(value)}."


def _version(operator: str, value: Any) -> str | None:
    if _VERSION_READERS.get(operator, semver.parse_version)(text_of(value)) is not None:
        return None
    return f"Operator {operator} requires a version, such as 1.2.3, got {_shown(value)}."


def _texts(operator: str, value: Any) -> str | None:
    return f"Operator {operator} requires at least one text." if text_problem(operator, value) else None


def _text(operator: str, value: Any) -> str | None:
    if isinstance(value, list) or text_problem(operator, value):
        return f"Operator {operator} requires a text, got {_shown(value)}."
    return None


_VERSION_READERS: Final[Mapping[str, Callable[[str], object | None]]] = {
    "semver_tilde": semver.tilde_range,
    "semver_caret": semver.caret_range,
    "semver_wildcard": semver.wildcard_range,
}

_RULES: Final[Mapping[str, Callable[[str, Any], str | None]]] = {
    **dict.fromkeys(("gt", "gte", "min", "lt", "lte", "max"), _number),
    **dict.fromkeys(("between", "not_between"), _range),
    **dict.fromkeys(PATTERNS, _pattern),
    **dict.fromkeys(("is_date_before", "is_date_after", "is_date_exact"), _date),
    **dict.fromkeys(
        ("semver_eq", "semver_neq", "semver_gt", "semver_gte", "semver_lt", "semver_lte"), _version
    ),
    **dict.fromkeys(_VERSION_READERS, _version),
    **dict.fromkeys(SINGLE, _text),
    **dict.fromkeys(MULTIPLE, _texts),
}
