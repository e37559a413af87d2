"""Values of sessions, not of events: length, page views (spec experiment-results 3.5)."""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from hoglab.analysis.query.model import EventSource, Value
from hoglab.analysis.query.scope import Scope
from hoglab.analysis.query.session_facts import SESSION_REACH, measure_of_session


def define_session_rows(scope: Scope, value: Value, source: EventSource, name: str, window_us: int) -> str:
    """Define ``<name>_row(entity, ts, x)``: the sessions with a value that an exposed entity began in time."""
    ts = scope.ts()
    session = scope.property_text("$session_id")
    touched = scope.define(
        f"{name}_touched",
        f"SELECT {scope.entity()} AS entity, {session} AS session, min({ts}) AS ts FROM {scope.events} "
        f"WHERE {scope.within(scope.question.span.start, scope.read_until(window_us))} AND {scope.has_entity()} "
        f"AND {scope.matches(source)} AND {session} IS NOT NULL AND {session} <> '' "
        f"AND {scope.entity()} IN (SELECT entity FROM unit) GROUP BY {scope.entity()}, {session}",
    )
    sessions = _define_sessions(scope, value.session_property or "", name, touched, window_us)
    within = f" AND {touched}.ts < unit.t0 + {window_us}" if window_us else ""
    return scope.define(
        f"{name}_row",
        f"SELECT unit.entity AS entity, {touched}.ts AS ts, {sessions}.x AS x "
        f"FROM {touched} INNER JOIN unit ON unit.entity = {touched}.entity "
        f"INNER JOIN {sessions} ON {sessions}.session = {touched}.session "
        f"WHERE {touched}.ts >= unit.t0{within} AND {sessions}.x IS NOT NULL",
    )


def _define_sessions(scope: Scope, prop: str, name: str, touched: str, window_us: int) -> str:
    """Define ``<name>_session(session, x)``: the property of every session that was ``touched``."""
    session, measure = scope.property_text("$session_id"), measure_of_session(prop, scope.row)
    span = scope.question.span
    until = scope.read_until(window_us)
    return scope.define(
        f"{name}_session",
        f"SELECT {session} AS session, CAST({measure} AS DOUBLE) AS x FROM {scope.events} "
        f"WHERE {scope.within(span.start - SESSION_REACH, until if span.capped else until + SESSION_REACH)} "
        f"AND {session} IN (SELECT session FROM {touched}) GROUP BY {session}",
    )
