"""Values that belong to a session, not to an event: its length, its page views (spec experiment-results 3.5).

A session is what events with the same ``$session_id`` tell of it; nothing else is stored.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from hoglab.analysis.query.model import EventSource, Value
from hoglab.analysis.query.scope import Scope
from hoglab.filters.model import FilterError

SESSION_REACH = timedelta(days=1)
"""How far before and after the time that is looked at events of the same session are searched; SDKs end a
session after a day."""
BOUNCE_US = 10_000_000
"""A session shorter than this, with one page view and no click, is a bounce."""


def define_session_rows(scope: Scope, value: Value, source: EventSource, name: str, window_us: int) -> str:
    """``<name>_row(entity, ts, x)``: one row for each session that an exposed entity began in its window."""
    ts = scope.ts()
    session = scope.dialect.property_text("properties", "$session_id", scope.parameters)
    touched = scope.define(
        f"{name}_touched",
        f"SELECT {scope.entity()} AS entity, {session} AS session, min({ts}) AS ts FROM {scope.events} "
        f"WHERE {scope.within(scope.question.span.start, scope.read_until(window_us))} AND {scope.has_entity()} "
        f"AND {scope.matches(source)} AND {session} IS NOT NULL AND {session} <> '' "
        f"GROUP BY {scope.entity()}, {session}",
    )
    sessions = _define_sessions(scope, value.session_property or "", name, session, window_us)
    within = f" AND {touched}.ts < unit.t0 + {window_us}" if window_us else ""
    return scope.define(
        f"{name}_row",
        f"SELECT unit.entity AS entity, {touched}.ts AS ts, {sessions}.x AS x "
        f"FROM {touched} INNER JOIN unit ON unit.entity = {touched}.entity "
        f"INNER JOIN {sessions} ON {sessions}.session = {touched}.session WHERE {touched}.ts >= unit.t0{within}",
    )


def _define_sessions(scope: Scope, prop: str, name: str, session: str, window_us: int) -> str:
    """``<name>_session(session, x)``: the property of every session that may be asked for."""
    measure = _MEASURES.get(prop)
    if measure is None:
        raise FilterError(f"the session property {prop} is not known, or is no number", prop)
    span = scope.question.span
    until = scope.read_until(window_us)
    return scope.define(
        f"{name}_session",
        f"SELECT {session} AS session, CAST({measure(scope)} AS DOUBLE) AS x FROM {scope.events} "
        f"WHERE {scope.within(span.start - SESSION_REACH, until if span.capped else until + SESSION_REACH)} "
        f"AND {session} IS NOT NULL AND {session} <> '' GROUP BY {session}",
    )


def _duration_us(scope: Scope) -> str:
    return f"(max({scope.ts()}) - min({scope.ts()}))"


def _duration(scope: Scope) -> str:
    return f"{_duration_us(scope)} / 1000000"


def _count(event: str) -> Callable[[Scope], str]:
    return lambda scope: f"sum(CASE WHEN event = {scope.bind(event)} THEN 1 ELSE 0 END)"


def _urls(scope: Scope) -> str:
    url = scope.dialect.property_text("properties", "$current_url", scope.parameters)
    return f"count(DISTINCT {url})"


def _bounce(scope: Scope) -> str:
    views, clicks = _count("$pageview")(scope), _count("$autocapture")(scope)
    return f"CASE WHEN {views} = 1 AND {clicks} = 0 AND {_duration_us(scope)} < {BOUNCE_US} THEN 1 ELSE 0 END"


_MEASURES: dict[str, Callable[[Scope], str]] = {
    "$session_duration": _duration,
    "$pageview_count": _count("$pageview"),
    "$autocapture_count": _count("$autocapture"),
    "$screen_count": _count("$screen"),
    "$num_uniq_urls": _urls,
    "$is_bounce": _bounce,
}

SESSION_PROPERTIES = tuple(_MEASURES)
"""The session properties that are numbers."""
