"""Funnel metrics: the step that each exposed entity reached (spec experiment-results 3.3)."""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from itertools import combinations

from hoglab.analysis.query.exposures import step_zero
from hoglab.analysis.query.metrics.keyed_funnels import define_keyed_rows
from hoglab.analysis.query.metrics.outcome import Outcome, Partial, with_covariate
from hoglab.analysis.query.model import SECOND_US, EventSource, FunnelMeasure, FunnelOrder, tables_of
from hoglab.analysis.query.scope import Scope
from hoglab.filters.sql import combined

DEFAULT_WINDOW_US = 94_608_000 * SECOND_US
"""Longest conversion when the metric gives no window: three years."""

LAST_ROW = "last_ts"
"""Partial with the time of an entity's last row of the funnel, in microseconds."""


def funnel_outcome(metric: FunnelMeasure, *, resumable: bool) -> Outcome:
    """Return the step that an entity reached, and numbers of entities by step.

    ``resumable``: with the chains that later events continue.
    """
    count = len(metric.steps)
    chains = _chain_names(metric) if resumable and can_resume_funnel(metric) else ()
    outcome = Outcome(
        partials=(Partial("reached", "max"), *(Partial(name, "max", "NULL") for name in chains)),
        values={"reached": "{reached}"},
        statistics={
            "n": "1",
            **{
                f"step_{number}": f"CASE WHEN {{reached}} >= {number} THEN 1 ELSE 0 END"
                for number in range(1, count + 1)
            },
        },
        exact=True,
    )
    if metric.covariate_us:
        outcome = with_covariate(outcome, outcome.statistics[f"step_{count}"])
    return outcome


def define_progress(scope: Scope, metric: FunnelMeasure) -> None:
    """Define the step that each entity reached: on each day of a grid, else over the whole span.

    ``funnel_row`` must be defined.
    """
    window_us = metric.window_us or DEFAULT_WINDOW_US
    count = len(metric.steps)
    if scope.days is None and _is_plain(scope, metric):
        steps = [f"s{number} = 1" for number in range(count + 1)]
        reached = scope.dialect.reached_step("ts", steps, window_us)
        if reached is not None:
            scope.define("partial", f"SELECT entity, {reached} AS reached FROM funnel_row GROUP BY entity")
            return
    if metric.order is FunnelOrder.UNORDERED:
        progress = _define_unordered(scope, count, window_us)
    else:
        strict = metric.order is FunnelOrder.STRICT
        progress = _define_ordered(scope, count, window_us, strict=strict, resumable=_resumes(scope, metric))
    if scope.days is None:
        scope.define("partial", f"SELECT entity, max(reached) AS reached FROM {progress} GROUP BY entity")


def _is_plain(scope: Scope, metric: FunnelMeasure) -> bool:
    """Return whether steps come in order, and no row can be two of them."""
    exposures = scope.question.exposures
    first = exposures.source if exposures.activation is None else exposures.activation
    sources = [first, *(step for step in metric.steps if isinstance(step, EventSource))]
    return (
        metric.order is FunnelOrder.ORDERED
        and not scope.resumable
        and not tables_of(metric)
        and not any(first.may_overlap(second) for first, second in combinations(sources, 2))
    )


def _resumes(scope: Scope, metric: FunnelMeasure) -> bool:
    return scope.resumable and can_resume_funnel(metric)


def define_funnel_covariate(scope: Scope, metric: FunnelMeasure, units: str) -> None:
    """Define ``covariate(entity, x)``: 1 for a last step before the first exposure (spec experiment-results 3.8).

    The steps are events.
    """
    ts, last = scope.ts(), metric.steps[-1]
    assert isinstance(last, EventSource)  # noqa: S101 - definitions with tables have no covariate
    scope.define(
        "covariate",
        f"SELECT {units}.entity AS entity, 1 AS x "
        f"FROM {scope.events} INNER JOIN {units} ON {units}.entity = {scope.entity()} "
        f"WHERE {scope.before_exposures(metric.covariate_us)} AND {scope.matches(last)} "
        f"AND {ts} >= {units}.t0 - {metric.covariate_us} AND {ts} < {units}.t0 GROUP BY {units}.entity",
    )


def define_funnel_rows(scope: Scope, metric: FunnelMeasure) -> None:
    """Define ``funnel_row(entity, ts, s0 … sk, ord)``: rows that are steps of exposed entities, after exposure.

    Rows at the same moment are taken by their lowest step, then by the set of their steps; rows that are equal in
    both are interchangeable. A resumable scope has also ``c0``, the chain that a row begins, and ``r1``…, which
    only rows of `resumed_rows` have.
    """
    steps = range(1, len(metric.steps) + 1)
    if tables_of(metric):
        define_keyed_rows(scope, metric)
    else:
        _define_entity_rows(scope, metric)
    names = [f"s{number}" for number in (0, *steps)]
    lowest = " ".join(f"WHEN {name} = 1 THEN {number}" for number, name in enumerate(names))
    mask = " + ".join(f"{name} * {1 << number}" for number, name in enumerate(names))
    chains = ""
    if _resumes(scope, metric):
        chains = ", CASE WHEN s0 = 1 THEN ts END AS c0"
        chains += "".join(f", CAST(NULL AS BIGINT) AS r{number}" for number in steps[:-1])
    scope.define(
        "funnel_row",
        f"SELECT unit.entity AS entity, ts, {', '.join(names)}, "
        f"(CASE {lowest} ELSE {len(names)} END) * {1 << len(names)} + {mask} AS ord{chains} "
        "FROM step_row INNER JOIN unit ON unit.entity = step_row.entity WHERE ts >= unit.t0",
    )


def _define_entity_rows(scope: Scope, metric: FunnelMeasure) -> None:
    """Define ``step_row(entity, ts, s0 … sk)``: events that are steps, each of its own entity."""
    span = scope.question.span
    before = scope.read_until(metric.window_us, inclusive=True)
    events = [step for step in metric.steps if isinstance(step, EventSource)]
    conditions = [scope.matches(step) for step in events]
    exposures = scope.question.exposures
    exposed = exposures.source if exposures.activation is None else exposures.activation
    flags = ", ".join(
        f"CASE WHEN {condition} THEN 1 ELSE 0 END AS s{number}"
        for number, condition in enumerate(conditions, 1)
    )
    if any(step.may_overlap(exposed) for step in events):
        is_exposure = combined(
            "AND", [f"{scope.column('timestamp')} <= {scope.bind(span.end)}", step_zero(scope)]
        )
        rows = (
            f"SELECT {scope.entity()} AS entity, {scope.ts()} AS ts, "
            f"CASE WHEN {is_exposure} THEN 1 ELSE 0 END AS s0, {flags} FROM {scope.events} "
            f"WHERE {scope.within(span.start, before)} AND {scope.has_entity()} "
            f"AND {combined('OR', [is_exposure, *conditions])}"
        )
    else:
        nothing = ", ".join(f"0 AS s{number}" for number in range(1, len(events) + 1))
        rows = (
            f"SELECT entity, ts, 1 AS s0, {nothing} FROM exposure "
            f"UNION ALL SELECT {scope.entity()}, {scope.ts()}, 0, {flags} FROM {scope.events} "
            f"WHERE {scope.within(span.start, before)} AND {scope.has_entity()} "
            f"AND {combined('OR', conditions)}"
        )
    scope.define("step_row", rows)


def _define_ordered(scope: Scope, count: int, window_us: int, *, strict: bool, resumable: bool) -> str:
    """Define chains: for each step, the start of the latest chain that reaches it with this row.

    The start of a chain never decreases over time, so "latest" is a running maximum. In a strict funnel a chain
    goes on only from the row just before, because any other row in between breaks it. ``resumable``: with the
    chains after each row, and with rows of `resumed_rows` among the others.
    """
    reach = "1 PRECEDING" if strict else "UNBOUNDED PRECEDING"
    order = f"(PARTITION BY entity ORDER BY ts, ord ROWS BETWEEN {reach} AND 1 PRECEDING)"
    relation, started = "funnel_row", "c0" if resumable else "CASE WHEN s0 = 1 THEN ts END"
    for number in range(1, count + 1):
        given = [f"s{later_}" for later_ in range(number, count + 1)]
        given += [f"c{earlier}" for earlier in range(0 if resumable else 1, number)]
        given += [f"r{later_}" for later_ in range(number, count)] if resumable else []
        columns = ", ".join(given)
        scope.define(
            f"before_{number}",
            f"SELECT entity, ts, ord, {columns}, max({started}) OVER {order} AS begun FROM {relation}",
        )
        begun = f"CASE WHEN s{number} = 1 AND ts - begun <= {window_us} THEN begun END"
        if resumable and number < count:
            begun = f"coalesce(r{number}, {begun})"
        relation = scope.define(
            f"chain_{number}",
            f"SELECT entity, ts, ord, {columns}, {begun} AS c{number} FROM before_{number}",
        )
        started = f"c{number}"
    reached = " ".join(f"WHEN c{number} IS NOT NULL THEN {number}" for number in range(count, 0, -1))
    progress = f"SELECT entity, {scope.day('ts')} AS day, CASE {reached} ELSE 0 END AS reached"
    if resumable:
        chains = "".join(f", c{number} AS begun_{number}" for number in range(count))
        progress += f"{chains}, ts AS {LAST_ROW}"
    return scope.define("progress", f"{progress} FROM {relation}{' WHERE ord >= 0' if resumable else ''}")


def can_resume_funnel(metric: FunnelMeasure) -> bool:
    """Return whether later rows can continue from chains alone."""
    return metric.order is FunnelOrder.ORDERED and not tables_of(metric)


def resumed_rows(metric: FunnelMeasure, states: str) -> str:
    """Return rows of ``funnel_row`` that stand for all earlier ones: the chains of an entity, at its last row."""
    count = len(metric.steps)
    flags = ", ".join("0" for _ in range(count + 1))
    chains = ", ".join(f"begun_{number}" for number in range(count))
    return f"SELECT entity, {LAST_ROW}, {flags}, -1, {chains} FROM {states}"


def resumed_progress(scope: Scope, metric: FunnelMeasure, rows: str, states: str, also: str) -> str:
    """Return ``progress`` of entities with one row after the rows in their state; ``also`` are further columns."""
    window_us = metric.window_us or DEFAULT_WINDOW_US
    steps = range(1, len(metric.steps) + 1)
    met = {
        number: f"one.s{number} = 1 AND one.ts - known.begun_{number - 1} <= {window_us}" for number in steps
    }
    reached = " ".join(f"WHEN {met[number]} THEN {number}" for number in reversed(steps))
    chains = "".join(
        f", CASE WHEN {met[number]} THEN known.begun_{number - 1} END AS begun_{number}"
        for number in steps[:-1]
    )
    return (
        f"SELECT one.entity, {scope.day('one.ts')} AS day, CASE {reached} ELSE 0 END AS reached, "
        f"one.c0 AS begun_0{chains}, one.ts AS {LAST_ROW}{also} "
        f"FROM ({rows}) AS one INNER JOIN ({states}) AS known ON known.entity = one.entity"
    )


def _chain_names(metric: FunnelMeasure) -> tuple[str, ...]:
    return (*(f"begun_{number}" for number in range(len(metric.steps))), LAST_ROW)


def _define_unordered(scope: Scope, count: int, window_us: int) -> str:
    """Define for every row as the start when each step was first seen after it, within the window.

    The first occurrence after it lies in the window when any does, so no frame of the window's length is needed,
    which ClickHouse supports up to 32 bits only.
    """
    frame = "(PARTITION BY entity ORDER BY ts RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"
    steps = range(count + 1)
    seen = ", ".join(
        f"min(CASE WHEN s{number} = 1 THEN ts END) OVER {frame} AS f{number}" for number in steps
    )
    scope.define("next_row", f"SELECT entity, ts, {seen} FROM funnel_row")
    kept = ", ".join(
        f"CASE WHEN f{number} - ts <= {window_us} THEN f{number} END AS w{number}" for number in steps
    )
    scope.define("window_row", f"SELECT entity, {kept} FROM next_row")
    firsts = [f"w{number}" for number in steps]
    parts = []
    for number in range(1, count + 1):
        at = scope.dialect.nth_smallest(firsts, number + 1)
        parts.append(f"SELECT entity, {at} AS ts, {number} AS reached FROM window_row")
    scope.define("completed", " UNION ALL ".join(parts))
    return scope.define(
        "progress",
        f"SELECT entity, {scope.day('ts')} AS day, reached FROM completed WHERE ts IS NOT NULL",
    )
