"""Exposed entities: who saw which variant, and since when (spec experiment-results 2.2, 2.3, 2.5)."""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from hoglab.analysis.query.days import micros
from hoglab.analysis.query.expressions import text_of
from hoglab.analysis.query.model import EventSource, group_column
from hoglab.analysis.query.scope import Scope, SqlStatement, exclusive
from hoglab.filters.model import FilterError
from hoglab.filters.sql import FALSE, combined

_BREAKDOWN_COLUMNS = {"event": "properties", "person": "person_properties"}

_SEVERAL = {"element": ": a click has several of them", "cohort": ": a person may belong to several"}
"""Reasons why one row has no single value of a type of breakdown."""

NO_VALUE = "$$_posthog_breakdown_null_$$"
"""Breakdown value of events without the property (spec experiment-results 3.9)."""

MULTIPLE = -1
"""The number of ``$multiple``; other variants have their place in the list, from 0."""


def exposure_condition(scope: Scope) -> str:
    """Return the condition that a row of events is an exposure, apart from its time."""
    exposures = scope.question.exposures
    if not exposures.variants:
        return FALSE
    parts = [exposure_of_any_variant(scope)]
    if exposures.variant_property is not None:
        keys = ", ".join(scope.bind(key) for key in exposures.variants)
        parts.append(f"{scope.property_text(exposures.variant_property)} IN ({keys})")
    return combined("AND", parts)


def exposure_of_any_variant(scope: Scope) -> str:
    """Return the condition that a row of events is an exposure, apart from its time and its variant."""
    exposures = scope.question.exposures
    parts = [scope.matches(exposures.source)]
    if exposures.flag_key is not None:
        parts.append(f"{scope.property_text('$feature_flag')} = {scope.bind(exposures.flag_key)}")
    parts.append(scope.filters(exposures.test_account_filters))
    return combined("AND", parts)


def step_zero(scope: Scope) -> str:
    """Return the condition that a row of events is step 0 of a funnel, an exposure or activation, without time."""
    exposures = scope.question.exposures
    return (
        exposure_condition(scope)
        if exposures.activation is None
        else activation_condition(scope, exposures.activation)
    )


def activation_condition(scope: Scope, activation: EventSource) -> str:
    """Return the condition that a row of events is an activation, apart from its time."""
    filters = scope.filters(scope.question.exposures.test_account_filters)
    return combined("AND", [scope.matches(activation), filters])


def flag_exposures(scope: Scope, also: str = "") -> str:
    """Return ``(entity, variant, ts[, uuid])``: one row for each event that shows an entity's variant.

    The uuid orders rows of one moment, where another column than the moment is read from the first of them.
    ``also`` are further columns of the events, each with a comma before it.
    """
    span = scope.question.span
    exposures = scope.question.exposures
    reads_first = exposures.first_seen or scope.carried or exposures.activation is not None
    uuid = f", {scope.column('uuid')}" if reads_first else ""
    return (
        f"SELECT {scope.entity()} AS entity, {variant_of_exposure(scope)} AS variant, {scope.ts()} AS ts"
        f"{uuid}{_carried_values(scope)}{also} FROM {scope.events} "
        f"WHERE {scope.within(span.start, exclusive(span.end))} AND {scope.has_entity()} "
        f"AND {exposure_condition(scope)}"
    )


def variant_of_exposure(scope: Scope) -> str:
    """Return the number of the variant that an exposure shows."""
    exposures = scope.question.exposures
    if not exposures.variants or exposures.variant_property is None:
        return "0"
    cases = " ".join(f"WHEN {scope.bind(key)} THEN {number}" for number, key in enumerate(exposures.variants))
    return f"CASE {scope.property_text(exposures.variant_property)} {cases} END"


def define_exposures(scope: Scope) -> None:
    """Define ``flagged(entity, variant, t0)``: who saw which variant, and since when.

    Define before it ``exposure(entity, ts)``, or ``flag_exposure`` where an activation counts: the events that show
    it. Where tables replace both, read these.
    """
    exposures, tables = scope.question.exposures, scope.relation.exposures
    name_of_rows = "exposure" if exposures.activation is None else "flag_exposure"
    if tables is not None and tables.stand_for(scope.question):
        for name, table in zip((name_of_rows, "flagged"), tables.names, strict=True):
            scope.define(name, f"SELECT * FROM {table}")
        return
    rows = scope.define(name_of_rows, flag_exposures(scope))
    if _switch_by_day(scope):
        first_uuid = f", {scope.dialect.first_by('uuid', ['ts', 'uuid'])} AS uuid" if scope.carried else ""
        scope.define(
            "seen",
            f"SELECT entity, variant, min(ts) AS ts{_first_carried(scope)}{first_uuid} "
            f"FROM {rows} GROUP BY entity, variant",
        )
        scope.define(
            "flagged",
            f"SELECT entity, {scope.dialect.first_by('variant', ['ts'])} AS variant, min(ts) AS t0, "
            f"count(*) AS variants{_first_carried(scope)} FROM seen GROUP BY entity",
        )
        return
    variant = (
        scope.dialect.first_by("variant", ["ts", "uuid"])
        if exposures.first_seen
        else f"CASE WHEN min(variant) = max(variant) THEN min(variant) ELSE {MULTIPLE} END"
    )
    scope.define(
        "flagged",
        f"SELECT entity, {variant} AS variant, min(ts) AS t0{_first_carried(scope)} FROM {rows} GROUP BY entity",
    )


def define_units(scope: Scope, maturity_us: int = 0, *, name: str = "unit") -> None:
    """Define ``unit(entity, variant, t0)``: one row for each exposed entity; ``name`` is another name for it.

    With a grid of days also ``enter_day``, from which on the entity counts, and ``multiple_day``, from which on it
    is ``$multiple`` (NULL: never). ``maturity_us``: entities count only after that time from their first exposure.
    ``flagged`` must be defined. With an activation ``exposure(entity, ts)`` is defined before it, so that the
    events of step 0 of funnels always have this name.
    """
    relation, multiple_day = "flagged", "NULL"
    if _switch_by_day(scope):
        scope.define(
            "switched",
            "SELECT seen.entity AS entity, min(seen.ts) AS ts "
            "FROM seen INNER JOIN flagged ON flagged.entity = seen.entity "
            "WHERE flagged.variants > 1 AND seen.variant <> flagged.variant GROUP BY seen.entity",
        )
        relation = "flagged LEFT JOIN switched ON switched.entity = flagged.entity"
        multiple_day = f"CASE WHEN switched.ts IS NOT NULL THEN {scope.day('switched.ts')} END"
    exposed, activation = "flagged", scope.question.exposures.activation
    if activation is not None:
        _define_activations(scope, activation)
        relation += " INNER JOIN activated ON activated.entity = flagged.entity"
        exposed = "activated"
    t0 = f"{exposed}.t0"
    columns = f"flagged.entity AS entity, flagged.variant AS variant, {t0} AS t0{scope.carried_of(exposed)}"
    if scope.days is not None:
        enter = scope.day(f"({t0} + {maturity_us})" if maturity_us else t0)
        columns += f", {enter} AS enter_day, CAST({multiple_day} AS BIGINT) AS multiple_day"
    mature = f" WHERE {t0} + {maturity_us} <= {micros(scope.question.span.end)}" if maturity_us else ""
    scope.define(name, f"SELECT {columns} FROM {relation}{mature}")


def _switch_by_day(scope: Scope) -> bool:
    """Return whether entities leave their variant on the day on which they see another one."""
    return scope.days is not None and not scope.question.exposures.first_seen


def _define_activations(scope: Scope, activation: EventSource) -> None:
    """Define the entities with the activation event, and its first time (spec experiment-results 2.4)."""
    span = scope.question.span
    ts = scope.ts()
    scope.define(
        "exposure",
        f"SELECT flagged.entity AS entity, {ts} AS ts, {scope.column('uuid')}{_carried_values(scope)} "
        f"FROM {scope.events} INNER JOIN flagged ON flagged.entity = {scope.entity()} "
        f"WHERE {scope.within(span.start, exclusive(span.end))} "
        f"AND {activation_condition(scope, activation)} AND {ts} >= flagged.t0",
    )
    scope.define(
        "activated", f"SELECT entity, min(ts) AS t0{_first_carried(scope)} FROM exposure GROUP BY entity"
    )


def exposures_per_day(scope: Scope) -> SqlStatement:
    """Return rows ``(day, variant, entities)``: entities by the day of their first exposure (spec 2.6).

    The question's span must have days. Variants are numbers, ``$multiple`` is `MULTIPLE`.
    """
    define_exposures(scope)
    define_units(scope)
    variant = f"CASE WHEN multiple_day IS NULL THEN variant ELSE {MULTIPLE} END"
    return scope.statement(
        f"SELECT enter_day, {variant} AS shown, count(*) AS entities FROM unit GROUP BY enter_day, {variant}"
    )


def exposures_by_phase(scope: Scope, begins: Sequence[datetime], settling: timedelta) -> SqlStatement:
    """Return rows ``(phase, variant, entities)``: entities by the phase of their first exposure to the flag.

    ``begins`` are the beginnings of the phases after the first one, number 0. An entity counts for the variant that it
    saw before its phase ended, and is `MULTIPLE` where it saw several until then. One whose first exposure is within
    ``settling`` after a beginning is left out. The question's span has no days.
    """
    define_exposures(scope)
    define_units(scope)
    steps = [(micros(begin), micros(begin + settling)) for begin in begins]
    phase = " ".join(
        f"WHEN flagged.t0 < {begin} THEN {number} WHEN flagged.t0 < {settled} THEN -1"
        for number, (begin, settled) in enumerate(steps)
    )
    end = " ".join(f"WHEN flagged.t0 < {begin} THEN {begin}" for begin, _ in steps)
    variant, source, shown = "flagged.variant", "flagged", ""
    if not scope.question.exposures.first_seen:
        rows = "exposure" if scope.question.exposures.activation is None else "flag_exposure"
        variant = f"CASE WHEN min(r.variant) = max(r.variant) THEN min(r.variant) ELSE {MULTIPLE} END"
        source = f"flagged INNER JOIN {rows} AS r ON r.entity = flagged.entity"
        last = micros(exclusive(scope.question.span.end))
        shown = f" WHERE r.ts < CASE {end} ELSE {last} END GROUP BY flagged.entity, flagged.t0"
    scope.define(
        "phased",
        f"SELECT flagged.entity AS entity, CASE {phase} ELSE {len(steps)} END AS phase, {variant} AS variant "
        f"FROM {source}{shown}",
    )
    return scope.statement(
        "SELECT phased.phase AS phase, phased.variant AS variant, count(*) AS entities FROM phased "
        "INNER JOIN unit ON unit.entity = phased.entity GROUP BY phased.phase, phased.variant"
    )


def _carried_values(scope: Scope) -> str:
    """Return the values of breakdowns and the keys of tables on a row of events, as further items of a list."""
    items = []
    for name, breakdown in zip(scope.cell, scope.question.exposures.breakdowns, strict=True):
        index, column = breakdown.group_type_index, _BREAKDOWN_COLUMNS.get(breakdown.type)
        if index is not None and index in scope.question.groups:
            column = group_column(index)
        if breakdown.type == "session":
            known = scope.of_session(breakdown.property)
            if known.any_item is not None:
                reason = (
                    f"breakdowns by {breakdown.property} are not supported: a session has several of them"
                )
                raise FilterError(reason, breakdown.property)
            text = known.text
        elif breakdown.expression is not None:
            text = text_of(breakdown.expression, scope, "the HogQL of a breakdown")
        elif column is not None:
            text = scope.row.text(column, breakdown.property)
        else:
            reason = _SEVERAL.get(breakdown.type, "")
            raise FilterError(f"breakdowns by {breakdown.type} are not supported{reason}", breakdown.property)
        items.append(f", coalesce({text}, {scope.bind(NO_VALUE)}) AS {name}")
    for name, key in zip(scope.carried[len(items) :], scope.question.join_keys, strict=True):
        items.append(f", coalesce({text_of(key.expression, scope, 'events_join_key')}, '') AS {name}")
    return "".join(items)


def _first_carried(scope: Scope) -> str:
    """Return the values of breakdowns and keys of the first row, as further items of a list."""
    return "".join(f", {scope.dialect.first_by(name, ['ts', 'uuid'])} AS {name}" for name in scope.carried)
