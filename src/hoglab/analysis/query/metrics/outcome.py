"""Statistics of a variant from the partials of its entities: over a whole span, or for the end of each day.

A metric gives a relation of *partials*: numbers per entity (and day) that combine by sum, min or max. The values
of an entity follow from its combined partials, and the statistics of a variant are sums over its entities.

For a series nothing is computed twice: only days on which something changed for an entity are computed, its former
contribution is subtracted from the former variant and its new one is added to the new variant. The changes of a
variant, summed up to a day, are its statistics at the end of that day (spec experiment-results 11.3).
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hoglab.analysis.query.exposures import MULTIPLE
from hoglab.analysis.query.scope import Scope, Subquery


@dataclass(frozen=True, slots=True)
class Partial:
    """A column of partials: the function that combines two of them, and the value of an empty one."""

    name: str
    combine: str  # sum, min or max
    zero: str = "0"

    def combined(self, first: str, second: str) -> str:
        """Combine two partials; the embedded engine's extremes ignore NULL."""
        return {
            "sum": f"{first} + {second}",
            "max": f"greatest({first}, {second})",
            "min": f"least({first}, {second})",
        }[self.combine]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Values and statistics made of partials. Expressions are format strings over the names before them.

    ``values`` of an entity are over partials and columns of ``unit``, ``statistics`` over values.
    ``exact`` statistics are whole numbers. ``squares`` are the statistics that measure the size of a contribution.
    """

    partials: tuple[Partial, ...]
    values: Mapping[str, str]
    statistics: Mapping[str, str]
    exact: bool = False
    squares: tuple[str, ...] = ()

    def evaluated(self, place: str, unit: str = "unit") -> dict[str, str]:
        """Return the expression of each value.

        ``place`` is the format of a partial's column, ``unit`` a relation with the columns of ``unit``.
        """
        places = {
            partial.name: f"coalesce({place.format(name=partial.name)}, {partial.zero})"
            for partial in self.partials
        }
        places["unit"] = unit
        return {name: expression.format_map(places) for name, expression in self.values.items()}

    def stated(self, place: str = "{name}") -> dict[str, str]:
        """Return the expression of each statistic; ``place`` is the format of a value's column."""
        places = {name: place.format(name=name) for name in self.values}
        return {name: expression.format_map(places) for name, expression in self.statistics.items()}


def with_covariate(outcome: Outcome, y: str) -> Outcome:
    """Return the outcome with the sums that CUPED needs; ``unit`` has a column ``x``."""
    return replace(
        outcome,
        values={**outcome.values, "x": "{unit}.x"},
        statistics={**outcome.statistics, "cx": "{x}", "cxx": "{x} * {x}", "cyx": f"({y}) * {{x}}"},
        exact=False,
        squares=(*outcome.squares, "cxx"),
    )


@dataclass(frozen=True, slots=True)
class Total:
    """The end of a statement: ``columns`` of a relation of contributions, and the clauses after its name."""

    columns: str
    relation: str
    rest: str = ""

    def over(self, relation: str | None = None) -> str:
        """Return the query over its relation, or over another one with the same columns."""
        source = self.relation if relation is None else f"{relation} AS {self.relation}"
        return f"SELECT {self.columns} FROM {source}{self.rest}"


def total_of_values(scope: Scope, outcome: Outcome, values: str) -> Total:
    """Return rows ``(variant, cell…, statistics…)`` of a relation with a variant and the values of every entity.

    Where the scope asks for entities, return rows with the contribution of each of them.
    """
    statistics = outcome.stated()
    if scope.entities is not None:
        contribution = ", ".join(f"CAST({text} AS DOUBLE) AS {name}" for name, text in statistics.items())
        order = scope.dialect.scattered(f"CAST({values}.entity AS VARCHAR)")
        return Total(contribution, values, f" ORDER BY {order} LIMIT {scope.entities}")
    key = ", ".join(["variant", *scope.cell])
    return Total(", ".join([key, *total_columns(scope, outcome)]), values, f" GROUP BY {key}")


def total_columns(scope: Scope, outcome: Outcome, prefix: str = "") -> list[str]:
    """Return the statistics as columns of a statement over the values of all entities; ``prefix`` is of both names."""
    stated = outcome.stated(f"{prefix}{{name}}")
    return [f"{_sum(scope, outcome)(text)} AS {prefix}{name}" for name, text in stated.items()]


def define_values(scope: Scope, outcome: Outcome, partials: str, *, required: bool = False) -> str:
    """Define ``valued(entity, variant, values…)`` over the whole span.

    Every entity, also those without partials unless they are ``required``.
    """
    values = outcome.evaluated(partials + ".{name}")
    columns = ", ".join(f"{text} AS {name}" for name, text in values.items())
    return scope.define(
        "valued",
        f"SELECT unit.entity AS entity, unit.variant AS variant{scope.cell_of('unit')}, {columns} "
        f"FROM unit {'INNER' if required else 'LEFT'} JOIN {partials} ON {partials}.entity = unit.entity",
    )


@dataclass(frozen=True, slots=True)
class Days:
    """The subqueries that compute the days of entities, in this order."""

    moved: Subquery
    """``(entity, day, partials…)``: the changes of a day, with the days on which the entity is exposed or leaves."""
    step: Subquery
    """One row for each entity and day with changes."""
    running: Subquery
    """Partials up to that day, and up to the day before: see `running`."""
    state: Subquery
    """Variant and values after and before that day."""
    change: Subquery
    """``(entity, variant, cell…, day, statistics…)``: gains and losses of that day."""

    @property
    def subqueries(self) -> tuple[Subquery, ...]:
        return (self.moved, self.step, self.running, self.state, self.change)


def define_days(scope: Scope, outcome: Outcome, partials: str) -> Days:
    """Define `Days` of a relation of partials ``(entity, day, …)``, which may have several rows for a day."""
    return Days(*scope.collect(lambda scope: _define_days(scope, outcome, partials)))


def _define_days(scope: Scope, outcome: Outcome, partials: str) -> None:
    names = ", ".join(partial.name for partial in outcome.partials)
    zeros = ", ".join(partial.zero for partial in outcome.partials)
    scope.define(
        "moved",
        f"SELECT entity, day, {names} FROM {partials} "
        f"UNION ALL SELECT entity, CASE WHEN twice.first = 1 THEN enter_day ELSE multiple_day END, {zeros} "
        f"FROM unit CROSS JOIN {_TWICE} WHERE twice.first = 1 OR multiple_day > enter_day",
    )
    combined = ", ".join(f"{p.combine}({p.name}) AS {p.name}" for p in outcome.partials)
    scope.define("step", f"SELECT entity, day, {combined} FROM moved GROUP BY entity, day")
    scope.define("running", f"SELECT entity, day, {running(outcome)} FROM step")
    columns = ", ".join([*STANDING, *valued(outcome, "running", "unit")])
    scope.define(
        "state",
        f"SELECT running.entity AS entity, running.day AS day, {columns}{scope.cell_of('unit')} "
        "FROM running INNER JOIN unit ON unit.entity = running.entity WHERE running.day >= unit.enter_day",
    )
    kind = (
        "BIGINT" if outcome.exact else "DOUBLE"
    )  # unsigned and signed numbers have no common type everywhere
    gained, lost = (
        {name: f"CAST({text} AS {kind})" for name, text in outcome.stated(place).items()}
        for place in ("{name}_new", "{name}_old")
    )
    cell = "".join(f", {name}" for name in scope.cell)
    changes = "".join(
        f", CASE WHEN twice.first = 1 THEN {gained[name]} ELSE -{lost[name]} END AS {name}" for name in gained
    )
    scope.define(
        "change",
        f"SELECT entity, CASE WHEN twice.first = 1 THEN variant_new ELSE variant_old END AS variant{cell}, "
        f"day{changes} FROM state CROSS JOIN {_TWICE} WHERE twice.first = 1 OR counted",
    )


def total_of_days(scope: Scope, outcome: Outcome) -> Total:
    """Return rows ``(variant, cell…, day, changes of statistics…)`` of `Days.change`.

    A day may have several rows: contributions of another magnitude are summed separately. Otherwise a large one would
    leave a rounding error in all others when its entity leaves the variant on a later day.
    """
    key = ", ".join(["variant", *scope.cell, "day"])
    summed = ", ".join(f"{_sum(scope, outcome)(name)} AS {name}" for name in outcome.statistics)
    apart = "".join(f", {_magnitude(f'change.{name}')}" for name in outcome.squares if not outcome.exact)
    return Total(f"{key}, {summed}", "change", f" GROUP BY {key}{apart} ORDER BY variant, day")


_TWICE = "(SELECT 1 AS first UNION ALL SELECT 0 AS first) AS twice"
"""A relation that gives each row of another one twice.

Engines plan a subquery at each place that names it, with everything that it names in turn: naming one twice takes
twice as long.
"""

RUNNING_DAYS = "PARTITION BY entity ORDER BY day"
"""Windows over the days of an entity."""

STANDING = (
    "running.day > unit.enter_day AS counted",
    f"CASE WHEN running.day >= unit.multiple_day THEN {MULTIPLE} ELSE unit.variant END AS variant_new",
    f"CASE WHEN running.day > unit.multiple_day THEN {MULTIPLE} ELSE unit.variant END AS variant_old",
)
"""Columns that say whether an entity counted before a day, and its variant after and before it."""


def running(outcome: Outcome) -> str:
    """Return the columns of partials up to a day of an entity (``…_new``) and up to the day before (``…_old``)."""
    return ", ".join(
        f"{p.combine}({p.name}) OVER ({RUNNING_DAYS} ROWS BETWEEN UNBOUNDED PRECEDING AND {end}) "
        f"AS {p.name}_{suffix}"
        for p in outcome.partials
        for suffix, end in (("new", "CURRENT ROW"), ("old", "1 PRECEDING"))
    )


def valued(outcome: Outcome, rows: str, unit: str) -> list[str]:
    """Return the columns of values before and after a day, from the `running` columns of ``rows``."""
    return [
        f"{text} AS {name}_{suffix}"
        for suffix in ("new", "old")
        for name, text in outcome.evaluated(f"{rows}.{{name}}_{suffix}", unit).items()
    ]


MAGNITUDE_BITS = 20
"""Number of powers of 2 by which squares summed together may differ; 33 bits remain for the least of them."""


def _magnitude(square: str) -> str:
    return f"CASE WHEN {square} = 0 THEN 0 ELSE floor(log2(abs({square})) / {MAGNITUDE_BITS}) END"


def _sum(scope: Scope, outcome: Outcome) -> Callable[[str], str]:
    return (lambda text: f"sum({text})") if outcome.exact else scope.dialect.sum_numbers
