"""Quantile metrics: the values at three ranks of each variant, and the clustering of values by entity.

Source: spec experiment-results 10 (quantile metric); `hoglab.statistics.samples.quantiles` for the ranks.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoglab.analysis.query.metrics.outcome import Total, define_values
from hoglab.analysis.query.metrics.values import counted, define_partials, define_value_rows, valued_outcome
from hoglab.analysis.query.model import QuantileMeasure
from hoglab.analysis.query.scope import Scope
from hoglab.statistics import QuantileSample, Ratio, cluster_factor, quantile_ranks
from hoglab.statistics.refusal import RefusalError

_PICKED = ("n", "q", "low", "l0", "l1", "high", "u0", "u1", "tie")
_SUMS = ("entities", "b", "bb", "s", "ss", "bs")


def define_quantile_rows(scope: Scope, metric: QuantileMeasure) -> None:
    """Define the rows with values: each event of an entity, or all of them together. ``unit`` must be defined."""
    if scope.days is not None:
        raise ValueError("quantiles of two days do not add up, so days cannot be told in one pass")
    if metric.per_event:
        define_value_rows(scope, metric.value, "a", metric.window_us)
    else:
        define_partials(scope, metric.value, "a", metric.window_us)


def define_quantile_values(scope: Scope, metric: QuantileMeasure, rows: str) -> None:
    """Define ``valued(entity, variant, cell…, y)``, the values of `define_quantile_rows`."""
    if not metric.per_event:
        outcome = valued_outcome(metric.value, "a")
        define_values(scope, outcome, rows, required=metric.value.session_property is not None)
        return
    some = f" WHERE {rows}.x IS NOT NULL" if metric.value.skips_null else ""
    scope.define(
        "valued",
        f"SELECT unit.entity AS entity, unit.variant AS variant{scope.cell_of('unit')}, "
        f"{counted(metric.value, f'{rows}.x')} AS y "
        f"FROM unit INNER JOIN {rows} ON {rows}.entity = unit.entity{some}",
    )


def define_quantiles(scope: Scope, metric: QuantileMeasure) -> Total:
    """Return rows ``(variant, cell…, n, q, bounds…, tie, cluster sums…)``. ``valued`` must be defined."""
    values = _without_zeros(scope, metric)
    key = ["variant", *scope.cell]
    _define_ranked(scope, metric, values, key)
    names = ", ".join(key)
    _define_picked(scope, names)
    if not metric.per_event:
        nothing = ", ".join(f"0 AS {name}" for name in _SUMS)
        return Total(f"{names}, {', '.join(_PICKED)}, {nothing}", "picked")
    _define_clusters(scope, values, key)
    shown = ", ".join(f"picked.{name} AS {name}" for name in (*key, *_PICKED))
    sums = ", ".join(f"cluster_sums.{name} AS {name}" for name in _SUMS)
    same = " AND ".join(f"cluster_sums.{name} = picked.{name}" for name in key)
    return Total(f"{shown}, {sums}", "picked", f" INNER JOIN cluster_sums ON {same}")


def quantile_values(scope: Scope, metric: QuantileMeasure, people: int, limit: int) -> str:
    """Return a query for rows ``(entity, value)`` of a number of entities, chosen without regard to their values.

    One row with NULL for an entity without values. ``valued`` must be defined.
    """
    values = _without_zeros(scope, metric)
    order = scope.dialect.scattered("CAST(entity AS VARCHAR)")
    chosen = scope.define("chosen_unit", f"SELECT entity FROM unit ORDER BY {order} LIMIT {people}")
    return (
        f"SELECT CAST({chosen}.entity AS VARCHAR) AS entity, CAST({values}.y AS DOUBLE) AS y FROM {chosen} "
        f"LEFT JOIN {values} ON {values}.entity = {chosen}.entity ORDER BY entity, y LIMIT {limit}"
    )


def quantile_sample(metric: QuantileMeasure, numbers: Sequence[Any]) -> QuantileSample:
    """Compute the statistics of one row of the answer, without its key."""
    size, quantile, low, l0, l1, high, u0, u1, tie, *clusters = numbers
    factor, people = 1.0, int(size)
    if metric.per_event:
        entities, *sums = clusters
        people = int(entities)
        try:
            factor = cluster_factor(metric.level, Ratio(int(entities), *map(float, sums)))
        except RefusalError:
            factor = float("nan")  # all values are of one entity: nothing is known about others
    lower, upper = _between(low, l0, l1), _between(high, u0, u1)
    return QuantileSample(int(size), metric.level, float(quantile), lower, upper, factor, int(tie), people)


def _between(rank: float, at: float, after: float | None) -> float:
    """Return the value at a rank that may lie between two."""
    return float(at) if after is None else float(at) + (rank - int(rank)) * (float(after) - float(at))


def _without_zeros(scope: Scope, metric: QuantileMeasure) -> str:
    if not metric.ignore_zeros:
        return "valued"
    return scope.define("counted_values", "SELECT * FROM valued WHERE y <> 0")


def _define_ranked(scope: Scope, metric: QuantileMeasure, values: str, key: list[str]) -> None:
    """Define ``placed``: every value with its rank from 1, and the relevant ranks of its variant."""
    names = ", ".join(key)
    scope.define(
        "ranked",
        f"SELECT {names}, y, row_number() OVER (PARTITION BY {names} ORDER BY y) AS place, "
        f"count(*) OVER (PARTITION BY {names}) AS size FROM {values}",
    )
    level = metric.level
    # The half-width of the ranks for one value; that of n values is √n times as much.
    half = (quantile_ranks(level, 1).upper - level) if level else 0.0
    middle = f"CAST({level!r} AS DOUBLE) * size"
    scope.define(
        "placed",
        f"SELECT {names}, y, place, size, 1 + least(size - 1, CAST(floor({middle}) AS BIGINT)) AS q_place, "
        f"greatest(1.0, least(CAST(size AS DOUBLE), {middle} - {half!r} * sqrt(size))) AS low, "
        f"greatest(1.0, least(CAST(size AS DOUBLE), {middle} + {half!r} * sqrt(size))) AS high FROM ranked",
    )


def _define_picked(scope: Scope, names: str) -> None:
    """Define ``picked``: of each variant the values at the ranks, and the size of the largest tie between these."""
    places = ", ".join(
        f"max(CASE WHEN place = {place} THEN y END) AS {name}"
        for name, place in (
            *(("q", "q_place"), ("l0", "floor(low)"), ("l1", "floor(low) + 1")),
            *(("u0", "floor(high)"), ("u1", "floor(high) + 1")),
        )
    )
    scope.define(
        "around",
        f"SELECT {names}, y, max(size) AS n, max(low) AS low, max(high) AS high, count(*) AS tie, {places} "
        f"FROM placed WHERE place BETWEEN floor(low) AND floor(high) + 1 GROUP BY {names}, y",
    )
    picked = ", ".join(f"max(around.{name}) AS {name}" for name in _PICKED)
    scope.define("picked", f"SELECT {names}, {picked} FROM around GROUP BY {names}")


def _define_clusters(scope: Scope, values: str, key: list[str]) -> None:
    """Define ``cluster_sums``: over entities, sums of their numbers of values, and of values up to the quantile."""
    names = ", ".join(key)
    same = " AND ".join(f"picked.{name} = {values}.{name}" for name in key)
    shown = ", ".join(f"{values}.{name} AS {name}" for name in key)
    grouped = ", ".join(f"{values}.{name}" for name in key)
    scope.define(
        "cluster",
        f"SELECT {shown}, {values}.entity AS entity, "
        f"sum(CASE WHEN {values}.y <= picked.q THEN 1.0 ELSE 0.0 END) AS b, CAST(count(*) AS DOUBLE) AS s "
        f"FROM {values} INNER JOIN picked ON {same} GROUP BY {grouped}, {values}.entity",
    )
    scope.define(
        "cluster_sums",
        f"SELECT {names}, count(*) AS entities, sum(b) AS b, sum(b * b) AS bb, sum(s) AS s, sum(s * s) AS ss, "
        f"sum(b * s) AS bs FROM cluster GROUP BY {names}",
    )
