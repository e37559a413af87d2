"""The list of flags: which of them, in what order (spec: experiments-api 7.3.1, 8.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.flags.api.representation import is_eligible_for_experiment, status_of
from hoglab.flags.validation import variant_keys
from hoglab.http.fields.fields import parse_bool, parse_integer

if TYPE_CHECKING:
    from hoglab.flags.store import FlagRow, LinkedExperiment

ORDERS: Mapping[str, Callable[[FlagRow], Any]] = {
    "created_at": lambda row: row.created_at,
    "updated_at": lambda row: row.updated_at,
    "key": lambda row: row.key.lower(),
    "name": lambda row: row.name.lower(),
    "version": lambda row: row.version,
}
DEFAULT_ORDER = "-created_at"


@dataclass(frozen=True, slots=True)
class FlagListing:
    """The query parameters of a list of flags."""

    query: Mapping[str, str]
    now: datetime

    def select(
        self, rows: Iterable[FlagRow], linked: Mapping[int, Sequence[LinkedExperiment]]
    ) -> list[FlagRow]:
        """Return the flags that meet every filter, in order."""
        tests = list(self._tests(linked))
        chosen = [row for row in rows if all(test(row) for test in tests)]
        return ordered(chosen, self.query.get("order", DEFAULT_ORDER))

    def _tests(self, linked: Mapping[int, Sequence[LinkedExperiment]]) -> Iterable[Callable[[FlagRow], bool]]:
        query = self.query
        archived = parse_bool(query.get("archived")) is True
        yield lambda row: row.archived is archived
        search = query.get("search", "").strip().lower()
        if search:
            yield lambda row: search in row.key.lower() or search in row.name.lower()
        active = query.get("active", "")
        if active.upper() == "STALE":
            yield lambda row: status_of(row, self.now) == "STALE"
        elif (wanted := parse_bool(active)) is not None:
            yield lambda row: row.active is wanted
        author = parse_integer(query.get("created_by_id"))
        if author is not None:
            yield lambda row: row.created_by_id == author
        runtime = query.get("evaluation_runtime")
        if runtime:
            yield lambda row: row.evaluation_runtime == runtime
        kind = _KINDS.get(query.get("type", ""))
        if kind is not None:
            yield lambda row: kind(row, linked.get(row.id, ()))
        tags = _names(query.get("tags"))
        if tags:
            yield lambda row: not tags.isdisjoint(row.tags)
        excluded = _names(query.get("excluded_properties"))
        if excluded:
            yield lambda row: row.key not in excluded
        if parse_bool(query.get("eligible_for_experiment")) is True:
            yield is_eligible_for_experiment
        contexts = parse_bool(query.get("has_evaluation_contexts"))
        if contexts is not None:
            yield lambda row: bool(row.evaluation_contexts) is contexts


def ordered(rows: list[FlagRow], order: str) -> list[FlagRow]:
    """Return the flags in an order such as ``-created_at``; an unknown order counts as the default. Ties go by id."""
    key = ORDERS.get(order.removeprefix("-"))
    if key is None:
        order, key = DEFAULT_ORDER, ORDERS["created_at"]
    return sorted(rows, key=lambda row: (key(row), row.id), reverse=order.startswith("-"))


def _is_boolean(row: FlagRow, _linked: Sequence[LinkedExperiment]) -> bool:
    return not row.is_remote_configuration and not variant_keys(row.filters)


def _is_multivariant(row: FlagRow, _linked: Sequence[LinkedExperiment]) -> bool:
    return bool(variant_keys(row.filters))


def _has_experiment(_row: FlagRow, linked: Sequence[LinkedExperiment]) -> bool:
    return any(not experiment.deleted for experiment in linked)


def _is_remote_config(row: FlagRow, _linked: Sequence[LinkedExperiment]) -> bool:
    return bool(row.is_remote_configuration)


_KINDS: Mapping[str, Callable[[FlagRow, Sequence[LinkedExperiment]], bool]] = {
    "boolean": _is_boolean,
    "multivariant": _is_multivariant,
    "experiment": _has_experiment,
    "remote_config": _is_remote_config,
}


def _names(text: str | None) -> frozenset[str]:
    """Return the strings of a JSON list in a query parameter; nothing when it is not such a list."""
    try:
        values = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        return frozenset()
    return (
        frozenset(value for value in values if isinstance(value, str))
        if isinstance(values, list)
        else frozenset()
    )
