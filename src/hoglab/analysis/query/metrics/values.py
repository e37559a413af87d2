"""Mean and ratio metrics: one or two numbers for each exposed entity (spec experiment-results 3.1, 3.2, 3.4)."""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from hoglab.analysis.query import expressions
from hoglab.analysis.query.metrics.outcome import Outcome, Partial, with_covariate
from hoglab.analysis.query.metrics.sessions import define_session_rows
from hoglab.analysis.query.metrics.tables import TableRows
from hoglab.analysis.query.model import Bounds, Math, MeanMeasure, Metric, RatioMeasure, TableSource, Value
from hoglab.analysis.query.scope import Scope, exclusive

MAX_MAGNITUDE = "1e100"
"""Magnitude above which a property counts as no number, so that no event makes sums of squares infinite."""

_DISTINCT = frozenset({Math.UNIQUE_SESSION, Math.UNIQUE_PERSON, Math.UNIQUE_GROUP, Math.UNIQUE_VALUE})
_EXACT = _DISTINCT | {Math.TOTAL}


def mean_outcome(metric: MeanMeasure) -> Outcome:
    """Return the outcome of a mean metric: its value, and its sums."""
    outcome = valued_outcome(metric.value, "a")
    return with_covariate(outcome, "{y}") if metric.covariate_us else outcome


def valued_outcome(value: Value, name: str) -> Outcome:
    """Return the outcome of one number ``y`` for each entity, and its sums."""
    return Outcome(
        _value_partials(value, name),
        {"y": _thresholded(value, _value_of(value, name))},
        {"n": "1", "s": "{y}", "ss": "{y} * {y}"},
        exact=_is_exact(value) and value.bounds is None,
        squares=("ss",),
    )


def define_sides(scope: Scope, metric: RatioMeasure) -> str:
    """Define the partials of both values of a ratio metric. ``unit`` must be defined."""
    sides = sides_of(metric)
    relations = {name: define_partials(scope, side, name, metric.window_us) for name, side in sides.items()}
    return _define_both(scope, ratio_outcome(metric), relations)


def bounds_of(metric: Metric) -> Mapping[str, Bounds]:
    """Return the percentile bounds of values by their names in the outcome."""
    values: Mapping[str, Value] = {}
    match metric:
        case MeanMeasure():
            values = {"y": metric.value}
        case RatioMeasure():
            values = sides_of(metric)
    return {name: value.bounds for name, value in values.items() if value.bounds is not None}


def sides_of(metric: RatioMeasure) -> dict[str, Value]:
    """Return both values by their names in the `ratio_outcome`."""
    return {"m": metric.numerator, "d": metric.denominator}


def ratio_outcome(metric: RatioMeasure) -> Outcome:
    """Return the outcome of two numbers for each entity: their sums, those of squares and product, and who counts."""
    sides = sides_of(metric)
    return Outcome(
        partials=tuple(partial for name, side in sides.items() for partial in _value_partials(side, name)),
        values={name: _value_of(side, name) for name, side in sides.items()},
        statistics={
            "n": "1",
            "s": "{m}",
            "ss": "{m} * {m}",
            "d": "{d}",
            "dd": "{d} * {d}",
            "md": "{m} * {d}",
            "counted": "CASE WHEN {d} <> 0 THEN 1 ELSE 0 END",
        },
        exact=all(_is_exact(side) and side.bounds is None for side in sides.values()),
        squares=("ss", "dd"),
    )


def _is_exact(value: Value) -> bool:
    return value.math in _EXACT or not _reads_number(value) or value.threshold is not None


def can_resume_value(value: Value) -> bool:
    """Return whether later events can continue from partials: not where distinct values are counted.

    A sum of numbers depends on their order in its last digit, which could cross a threshold.
    """
    return value.math not in _DISTINCT and (value.threshold is None or not _reads_number(value))


def _value_partials(value: Value, name: str) -> tuple[Partial, ...]:
    match value.math:
        case Math.MIN | Math.MAX:
            return (Partial(f"{name}_v", value.math.value, "NULL"),)
        case Math.AVG:
            return (Partial(f"{name}_v", "sum"), Partial(f"{name}_c", "sum"))
        case _:
            return (Partial(f"{name}_v", "sum"),)


def _value_of(value: Value, name: str) -> str:
    match value.math:
        case Math.MIN | Math.MAX:
            return f"coalesce({{{name}_v}}, 0)"
        case Math.AVG:
            return f"CASE WHEN {{{name}_c}} > 0 THEN {{{name}_v}} / {{{name}_c}} ELSE 0 END"
        case _:
            return f"{{{name}_v}}"


def _thresholded(value: Value, expression: str) -> str:
    if value.threshold is None or value.bounds is not None:
        return expression
    return f"CASE WHEN {expression} >= {value.threshold!r} THEN 1 ELSE 0 END"


def define_mean_covariate(scope: Scope, value: Value, lookback_us: int, units: str) -> None:
    """Define ``covariate(entity, x)``: the value from before the first exposure (spec experiment-results 3.8)."""
    if isinstance(value.source, TableSource):
        span, ts = scope.question.span, "x_table.ts"
        condition = f"{ts} >= {units}.t0 - {lookback_us} AND {ts} < {units}.t0"
        since = span.start - timedelta(microseconds=lookback_us)
        rows = TableRows(scope, value.source).define_joined(
            value, "x", units, since, exclusive(span.end), condition
        )
    else:
        ts = scope.ts()
        rows = scope.define(
            "x_row",
            f"SELECT {units}.entity AS entity, {ts} AS ts, {value_of_event(scope, value)} AS x "
            f"FROM {scope.events} INNER JOIN {units} ON {units}.entity = {scope.entity()} "
            f"WHERE {scope.before_exposures(lookback_us)} AND {scope.matches(value.source)} "
            f"AND {ts} >= {units}.t0 - {lookback_us} AND {ts} < {units}.t0",
        )
    partial = _define_combined(scope, value, "x", rows, by_day=False)
    places = {p.name: f"coalesce({p.name}, {p.zero})" for p in _value_partials(value, "x")}
    x = _value_of(value, "x").format_map(places)
    scope.define("covariate", f"SELECT entity, {x} AS x FROM {partial}")


def define_partials(scope: Scope, value: Value, name: str, window_us: int) -> str:
    """Define ``<name>_partial(entity, …)``: the partials of one value.

    With a grid of days they are partials of each row, with its day.
    """
    rows = define_value_rows(scope, value, name, window_us)
    return _define_combined(scope, value, name, rows, by_day=scope.days is not None)


def define_value_rows(scope: Scope, value: Value, name: str, window_us: int) -> str:
    """Define ``<name>_row(entity, ts, x)``: contributions of events, sessions or table rows in entities' windows."""
    source = value.source
    ts = f"{name}_table.ts" if isinstance(source, TableSource) else scope.ts()
    within = f" AND {ts} < unit.t0 + {window_us}" if window_us else ""
    if isinstance(source, TableSource):
        since, before = scope.question.span.start, scope.read_until(window_us)
        condition = f"{ts} >= unit.t0{within}"
        return TableRows(scope, source).define_joined(value, name, "unit", since, before, condition)
    if value.session_property is not None:
        return define_session_rows(scope, value, source, name, window_us)
    # Joined before anything is read from JSON: only events of exposed entities are worth that.
    return scope.define(
        f"{name}_row",
        f"SELECT unit.entity AS entity, {ts} AS ts, {value_of_event(scope, value)} AS x "
        f"FROM {scope.events} INNER JOIN unit ON unit.entity = {scope.entity()} "
        f"WHERE {scope.within(scope.question.span.start, scope.read_until(window_us))} "
        f"AND {scope.matches(source)} AND {ts} >= unit.t0{within}",
    )


def _define_combined(scope: Scope, value: Value, name: str, rows: str, *, by_day: bool) -> str:
    """Define the partials of rows ``(entity, ts, x)``; those of one day are combined later, by `define_days`."""
    day = scope.day("ts")
    x = counted(value, "x")
    if is_of_different_ones(value):
        rows = scope.define(
            f"{name}_found",
            f"SELECT entity, x, min({day}) AS day FROM {rows} WHERE x IS NOT NULL AND x <> '' "
            "GROUP BY entity, x",
        )
        x, day = "1", "day"
    if by_day:
        columns = "".join(f", {text} AS {partial}" for partial, text in _of_a_row(value, name, x).items())
        return scope.define(f"{name}_partial", f"SELECT entity, {day} AS day{columns} FROM {rows}")
    columns = "".join(f", {text} AS {partial}" for partial, text in aggregates(scope, value, name, x).items())
    return scope.define(f"{name}_partial", f"SELECT entity{columns} FROM {rows} GROUP BY entity")


def aggregates(scope: Scope, value: Value, name: str, x: str) -> dict[str, str]:
    """Return the aggregation of each partial of a value over the values of its rows; distinct ones count as 1."""
    if value.math is Math.QUANTILE:
        return {f"{name}_v": scope.dialect.quantile(x, value.level)}
    combine = {partial.name: partial.combine for partial in _value_partials(value, name)}
    return {partial: f"{combine[partial]}({text})" for partial, text in _of_a_row(value, name, x).items()}


def _of_a_row(value: Value, name: str, x: str) -> dict[str, str]:
    """Return the partials of one row, which counts as ``x``."""
    if value.math is not Math.AVG:
        return {f"{name}_v": x}
    if not value.skips_null:
        return {f"{name}_v": x, f"{name}_c": "1"}
    return {f"{name}_v": f"coalesce({x}, 0)", f"{name}_c": f"CASE WHEN {x} IS NULL THEN 0 ELSE 1 END"}


def is_of_different_ones(value: Value) -> bool:
    """Return whether a value is the number of distinct sessions, people, groups, or values."""
    return value.math in _DISTINCT


def counted(value: Value, x: str) -> str:
    """Return the number that a row counts as: 0 where it has none, or one out of range.

    The number is NULL for a row that is ignored.
    """
    if not _reads_number(value):
        return x
    other = f"WHEN {x} IS NOT NULL THEN 0" if value.skips_null else "ELSE 0"
    return f"CASE WHEN abs({x}) <= {MAX_MAGNITUDE} THEN {x} {other} END"


def _reads_number(value: Value) -> bool:
    """Return whether events contribute anything else than 1."""
    given = value.property is not None or value.expression is not None or value.session_property is not None
    return value.math not in _EXACT and given


def value_of_event(scope: Scope, value: Value) -> str:
    """Return the contribution of one event; NULL for a property that is missing or no number."""
    match value.math:
        case Math.UNIQUE_SESSION:
            return scope.property_text("$session_id")
        case Math.UNIQUE_PERSON:
            return f"CAST({scope.column('person_id')} AS VARCHAR)"
        case Math.UNIQUE_GROUP if value.group_type_index is not None:
            return scope.column(f"group_{value.group_type_index}")
        case Math.UNIQUE_VALUE if value.expression is not None:
            return expressions.text_of(value.expression, scope, "math_hogql")
    if value.expression is not None and _reads_number(value):
        return expressions.number_of(value.expression, scope, "math_hogql")
    if value.property is None or not _reads_number(value):
        return "1"
    return scope.row.number("properties", value.property)


def _define_both(scope: Scope, outcome: Outcome, relations: dict[str, str]) -> str:
    """Define the partials of both sides of a ratio in one relation, by day as in `define_partials`."""
    by_day = ", day" if scope.days is not None else ""
    parts = []
    for name, relation in relations.items():
        columns = ", ".join(
            p.name if p.name.startswith(f"{name}_") else f"{p.zero} AS {p.name}" for p in outcome.partials
        )
        parts.append(f"SELECT entity{by_day}, {columns} FROM {relation}")
    either = scope.define("either_side", " UNION ALL ".join(parts))
    if by_day:
        return either
    combined = ", ".join(f"{p.combine}({p.name}) AS {p.name}" for p in outcome.partials)
    return scope.define("both_sides", f"SELECT entity, {combined} FROM {either} GROUP BY entity")


def define_clamped(scope: Scope, valued: str, names: Iterable[str], bounds: Mapping[str, Bounds]) -> str:
    """Define ``clamped``: values within percentiles of all entities of a cell, ``$multiple`` included.

    Spec experiment-results 3.2.
    """
    clamped = {name: f"{valued}.{name}" for name in names}
    joins = ""
    for name, bound in bounds.items():
        sides = (
            ("greatest", f"{name}_low", bound.lower, True),
            ("least", f"{name}_high", bound.upper, not bound.ignore_zeros),
        )
        for extreme, relation, level, zeros in sides:
            if level is None:
                continue
            _define_quantile(scope, relation, valued, name, level, zeros=zeros)
            same = (
                " AND ".join(
                    f"{relation}.{column_name} = {valued}.{column_name}" for column_name in scope.cell
                )
                or "TRUE"
            )
            joins += f" LEFT JOIN {relation} ON {same}"
            clamped[name] = f"{extreme}(coalesce({relation}.bound, {clamped[name]}), {clamped[name]})"
    columns = ", ".join(f"{text} AS {name}" for name, text in clamped.items())
    return scope.define(
        "clamped",
        f"SELECT {valued}.entity AS entity, {valued}.variant AS variant{scope.cell_of(valued)}, {columns} "
        f"FROM {valued}{joins}",
    )


def _define_quantile(scope: Scope, name: str, valued: str, column: str, level: float, *, zeros: bool) -> None:
    """Define ``<name>(cell…, bound)``: the value at rank floor(level·N), without interpolation."""
    some = "" if zeros else f" WHERE {column} <> 0"
    cell = "".join(f", {column_name}" for column_name in scope.cell)
    partition = f"PARTITION BY {', '.join(scope.cell)}" if scope.cell else ""
    scope.define(
        f"{name}_ranked",
        f"SELECT {column} AS v{cell}, row_number() OVER ({partition} ORDER BY {column}) AS place, "
        f"count(*) OVER ({partition}) AS size FROM {valued}{some}",
    )
    grouped = f" GROUP BY {', '.join(scope.cell)}" if scope.cell else ""
    scope.define(
        name,
        f"SELECT max(v) AS bound{cell} FROM {name}_ranked "
        f"WHERE place = 1 + least(size - 1, CAST(floor(CAST({level!r} AS DOUBLE) * size) AS BIGINT)){grouped}",
    )
