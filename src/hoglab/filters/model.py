"""The property filter as flags, metrics and functions store it, read from JSON.

A filter is ``{"key", "type", "operator", "value", …}``; lists of filters are ANDed and groups
``{"type": "AND"|"OR", "values": […]}`` nest. The model says nothing about what an operator means:
that differs between flags (spec: sdk-wire 3.6), functions (spec: hog-runtime 2.4) and metrics
(spec: experiment-results 1.6), and each use has its own module beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_GROUP_DEPTH = 32
"""Maximum depth of nested property groups."""

GROUP_TYPES = 5
"""Maximum number of types of groups in a project; they are known by their index, from 0."""

MAX_FILTERS = 1_000
"""Maximum number of filters and groups in one tree."""

_KNOWN_KEYS = frozenset({"key", "type", "operator", "value", "group_type_index", "negation"})
_COHORT_TYPES = frozenset({"cohort", "static-cohort", "precalculated-cohort", "dynamic-cohort"})

COHORT_OPERATORS = frozenset({"in", "exact", "not_in", "is_not"})
"""Operators that compare a person with a cohort in metrics and functions; flags and cohorts know no ``is_not``."""


class FilterError(ValueError):
    """A filter has a shape that cannot be understood.

    ``path`` says where, in the form that API errors use: ``properties[0].operator``.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """One leaf.

    ``operator`` is filled in when it was not sent: ``exact``, or ``in`` for cohorts. ``given`` holds the
    names that were sent, so that a use can tell a missing ``value`` from null and an incomplete filter
    from a complete one. ``extra`` keeps every key that this model does not know, as it was sent.
    """

    key: str
    type: str
    operator: str
    value: Any
    group_type_index: int | None = None
    negation: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    @property
    def is_cohort(self) -> bool:
        return self.type in _COHORT_TYPES

    @property
    def excludes_cohort(self) -> bool:
        """Whether the operator asks for persons outside of a cohort."""
        return self.operator in {"not_in", "is_not"}


@dataclass(frozen=True, slots=True)
class PropertyGroup:
    """A node: all (AND) or any (OR) of its values. No values at all matches everything."""

    type: Literal["AND", "OR"]
    values: tuple[PropertyFilter | PropertyGroup, ...]

    def leaves(self) -> Iterator[PropertyFilter]:
        """Yield every filter below this node, from left to right."""
        for value in self.values:
            if isinstance(value, PropertyGroup):
                yield from value.leaves()
            else:
                yield value


def parse_filter(raw: object, path: str = "", *, default_type: str = "event") -> PropertyFilter:
    """Read one leaf. Raises `FilterError` for a wrong shape; unknown types and operators are kept."""
    if not isinstance(raw, Mapping):
        raise FilterError(f"must be an object, got {_name(raw)}", path)
    kind = _text(raw, "type", path) or default_type
    operator = _text(raw, "operator", path) or ("in" if kind in _COHORT_TYPES else "exact")
    key = raw.get("key")
    if isinstance(key, (bool, float, Mapping, list)):
        raise FilterError(f"must be a string, got {_name(key)}", _join(path, "key"))
    index = raw.get("group_type_index")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise FilterError(f"must be an integer or null, got {_name(index)}", _join(path, "group_type_index"))
    negation = raw.get("negation")
    if negation is not None and not isinstance(negation, bool):
        raise FilterError(f"must be a boolean, got {_name(negation)}", _join(path, "negation"))
    return PropertyFilter(
        key="" if key is None else str(key),
        type=kind,
        operator=operator,
        value=raw.get("value"),
        group_type_index=index,
        negation=bool(negation),
        extra={name: value for name, value in raw.items() if name not in _KNOWN_KEYS},
        given=frozenset(raw),
    )


def parse_group(raw: object, path: str = "", *, default_type: str = "event") -> PropertyGroup:
    """Read a group ``{"type", "values"}``, ``{}`` (matches everything) or a plain list (ANDed)."""
    group, _ = _group(raw, path, default_type, depth=0, left=MAX_FILTERS)
    return group


def parse_filters(raw: object, path: str = "properties", *, default_type: str = "event") -> PropertyGroup:
    """Read what a ``properties`` field may hold: null, a list of filters and groups, or one group."""
    if raw is None:
        return PropertyGroup("AND", ())
    return parse_group(raw, path, default_type=default_type)


def _group(raw: object, path: str, default_type: str, *, depth: int, left: int) -> tuple[PropertyGroup, int]:
    if depth > MAX_GROUP_DEPTH:
        raise FilterError(f"groups nest deeper than {MAX_GROUP_DEPTH} levels", path)
    kind, values, place = _group_parts(raw, path)
    members: list[PropertyFilter | PropertyGroup] = []
    for index, value in enumerate(values):
        where = f"{place}[{index}]"
        left -= 1
        if left < 0:
            raise FilterError(f"holds more than {MAX_FILTERS} filters", path)
        if _is_group(value):
            member, left = _group(value, where, default_type, depth=depth + 1, left=left)
            members.append(member)
        else:
            members.append(parse_filter(value, where, default_type=default_type))
    return PropertyGroup(kind, tuple(members)), left


def _group_parts(raw: object, path: str) -> tuple[Literal["AND", "OR"], Sequence[object], str]:
    if isinstance(raw, list):
        return "AND", raw, path
    if not isinstance(raw, Mapping):
        raise FilterError(f"must be a list or an object, got {_name(raw)}", path)
    if not raw:
        return "AND", (), path
    kind = raw.get("type")
    values = raw.get("values")
    if not isinstance(values, list):
        raise FilterError(f"must be a list, got {_name(values)}", _join(path, "values"))
    if kind == "OR":
        return "OR", values, _join(path, "values")
    if kind == "AND":
        return "AND", values, _join(path, "values")
    raise FilterError("must be AND or OR", _join(path, "type"))


def _is_group(raw: object) -> bool:
    """Return whether a member of a group is itself a group (``{}`` is the empty group)."""
    if not isinstance(raw, Mapping):
        return False
    return not raw or raw.get("type") in ("AND", "OR") or ("values" in raw and "key" not in raw)


def _text(raw: Mapping[str, Any], name: str, path: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise FilterError(f"must be a string, got {_name(value)}", _join(path, name))
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _name(value: object) -> str:
    return type(value).__name__
