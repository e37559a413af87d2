"""Facts of a session: aggregates over the events with the same ``$session_id``; nothing else is stored.

Metrics take values of sessions (spec experiment-results 3.5), filters and breakdowns use them (1.6, 3.9).
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from hoglab.analysis.query.channels import PARTS, channel_of
from hoglab.analysis.query.event_relation import RelationRow
from hoglab.filters.model import FilterError
from hoglab.filters.sql import ComputedField, FilterField
from hoglab.storage.event_store.dialects import Dialect

SESSION_REACH = timedelta(days=1)
"""Time before and after the range in which events of the same session are searched; SDKs end a
session after a day."""
BOUNCE_US = 10_000_000
"""A session shorter than this, with one page view and no click, is a bounce."""

_Aggregate = Callable[[RelationRow], str]


def measure_of_session(name: str, row: RelationRow) -> str:
    """Return a property of sessions that is a number, as an aggregate over their events. Raises `FilterError`."""
    measure = _MEASURES.get(name)
    if measure is None:
        raise FilterError(f"the session property {name} is not known, or is no number", name)
    return measure(row)


def facts_of_sessions(columns: Mapping[str, str], events: str, condition: str, row: RelationRow) -> str:
    """Return a relation ``(session, …)`` of sessions of ``events``, with a column for each property.

    Raises `FilterError` for unknown properties.
    """
    own = [name for name in columns if name != CHANNEL]
    parts = {
        name: f"part_{place}" for place, name in enumerate([*own, *(PARTS if CHANNEL in columns else ())])
    }
    facts = "".join(f", {_fact(name, row)} AS {part}" for name, part in parts.items())
    shown = (
        {**parts, CHANNEL: channel_of(parts, row.dialect, row.parameters)} if CHANNEL in columns else parts
    )
    session = row.column("session_id")
    return (
        f"SELECT session{''.join(f', {shown[name]} AS {column}' for name, column in columns.items())} "
        f"FROM (SELECT {session} AS session{facts} FROM {events} WHERE {condition} GROUP BY {session}) AS part"
    )


def reads_properties(names: Iterable[str]) -> bool:
    """Return whether any of these properties of sessions uses more of an event than its name and its time."""
    return not _OF_COLUMNS.issuperset(names)


def _fact(name: str, row: RelationRow) -> str:
    """Return any property of sessions but the channel, as an aggregate over their events. Raises `FilterError`."""
    aggregate = _FACTS.get(name)
    if aggregate is None:
        known = ", ".join(sorted({*_FACTS, CHANNEL}))
        raise FilterError(f"sessions are known by their events alone, which tell of a session: {known}", name)
    return aggregate(row)


def field_of_session(name: str, column: str, dialect: Dialect) -> FilterField:
    """Return the field that a filter compares, from the column of a fact; breakdowns show its text."""
    if name == "$is_bounce":
        return ComputedField(f"CASE WHEN {column} = 1 THEN 'true' WHEN {column} = 0 THEN 'false' END", column)
    if name == "$urls":
        visited_url = "visited_url"
        return ComputedField(
            visited_url,
            dialect.number(visited_url),
            any_item=lambda condition: dialect.any_item(column, visited_url, condition),
        )
    if name in _MOMENTS:
        return ComputedField(dialect.text_of_moment(column), f"{column} / 1000000")
    if name in _MEASURES:
        return ComputedField(dialect.text_of_number(column), column, column)
    return ComputedField(column, dialect.number(column))


def _ts(row: RelationRow) -> str:
    return row.dialect.micros(row.column("timestamp"))


def _duration_us(row: RelationRow) -> str:
    return f"(max({_ts(row)}) - min({_ts(row)}))"


def _duration(row: RelationRow) -> str:
    return f"{_duration_us(row)} / 1000000"


def _count(event: str) -> _Aggregate:
    return lambda row: (
        f"sum(CASE WHEN {row.column('event')} = {row.parameters.bind(event)} THEN 1 ELSE 0 END)"
    )


def _urls(row: RelationRow) -> str:
    return row.dialect.different_texts(row.text("properties", "$current_url"))


def _number_of_urls(row: RelationRow) -> str:
    return f"count(DISTINCT {row.text('properties', '$current_url')})"


def _moment(extreme: str) -> _Aggregate:
    return lambda row: f"{extreme}({_ts(row)})"


def _bounce(row: RelationRow) -> str:
    views, clicks = (_count(event)(row) for event in ("$pageview", "$autocapture"))
    # Without a page view, as in applications and on servers, nothing could bounce.
    return (
        f"CASE WHEN {views} = 0 THEN NULL "
        f"WHEN {views} = 1 AND {clicks} = 0 AND {_duration_us(row)} < {BOUNCE_US} THEN 1 ELSE 0 END"
    )


def _of_first(key: str, order: str = "") -> _Aggregate:
    """Return a property of the first event that has it; with a minus sign as ``order`` of the last one."""

    def aggregate(row: RelationRow) -> str:
        text = f"coalesce({row.text('properties', key)}, '')"
        lacks = f"CASE WHEN {text} = '' THEN 1 ELSE 0 END"
        first = row.dialect.first_by(text, [lacks, f"{order}{_ts(row)}", row.column("uuid")])
        return f"nullif({first}, '')"

    return aggregate


_MEASURES: Mapping[str, _Aggregate] = {
    "$session_duration": _duration,
    "$pageview_count": _count("$pageview"),
    "$autocapture_count": _count("$autocapture"),
    "$screen_count": _count("$screen"),
    "$num_uniq_urls": _number_of_urls,
    "$is_bounce": _bounce,
}
_MOMENTS: Mapping[str, _Aggregate] = {"$start_timestamp": _moment("min"), "$end_timestamp": _moment("max")}
_PLACES = {"current_url": "$current_url", "pathname": "$pathname", "hostname": "$host"}
_CAMPAIGN = (
    *("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"),
    *("gclid", "gad_source", "gclsrc", "dclid", "gbraid", "wbraid", "fbclid", "msclkid", "twclid"),
    *("li_fat_id", "mc_cid", "igshid", "ttclid", "_kx", "irclid"),
)
_TEXTS: Mapping[str, _Aggregate] = {
    **{f"$entry_{name}": _of_first(key) for name, key in _PLACES.items()},
    **{f"$end_{name}": _of_first(key, "-") for name, key in _PLACES.items()},
    "$entry_referring_domain": _of_first("$referring_domain"),
    "$entry_referrer": _of_first("$referrer"),
    **{f"$entry_{name}": _of_first(name) for name in _CAMPAIGN},
}
_OF_COLUMNS = (_MEASURES.keys() | _MOMENTS.keys()) - {"$num_uniq_urls"}
_FACTS: Mapping[str, _Aggregate] = {**_MEASURES, **_MOMENTS, **_TEXTS, "$urls": _urls}
CHANNEL = "$channel_type"
"""The property that follows from other ones."""
