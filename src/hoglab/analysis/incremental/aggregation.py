"""Incremental aggregation: results continue from the state of each entity (spec experiment-results 11.4).

Each exposed entity has a *history*: a row for each day on which anything changed for it, with its variant and its
partials at the end of that day, all combined. Its contribution to the statistics of a day follows from that row and
the one before. Its last row is in a table of *states*, with the times when it was exposed and when it left its
variant. Each entity has a number there, because numbers are found several times as fast as ids of persons.

An entity whose new events follow all its earlier ones, and leave its exposure unchanged, continues from its state.
An entity with events of an earlier day *goes back* to its history before that day and continues from there. All
others are *rebuilt* from the logs, from the first moment at which their events matter: nothing before the first
exposure does.

Statements read and write temporary tables, so that shared parts are computed once:

- `OTHERS`: entities to examine for another reason than new events. An entity may have several rows.
- `RECENT`: the new events of entities with a state, and possible exposures, if they may change anything.
- `KNOWN`: the states of their entities, and of `OTHERS`.
- `TOUCHED`: entities that do not continue from their state. Rebuilt ones are then removed from `KNOWN`, and those
  that go back have their former partials there. `TOUCHED_EVENTS`: the events of both that matter.
- `UNITS`: the subquery ``unit`` of rebuilt entities, or of all entities, with a number for each.
- `FURTHER`: the partials per entity and day that are added to those in `KNOWN`, and these.
- `NEW_DAYS`: the values of entities before and after each day, for all days that are new to the history.
- `OLD_DAYS`: these values for the days of touched entities in the history.

Entities are numbers in the last three. The column ``place`` is the row of the state or of the history. It does not
move, because nothing else is committed to the file in between.

Most entities have one new row or day. Their results are computed without windows, which cost several times as much
for partitions of two rows.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hoglab.analysis.query import MULTIPLE, Pipeline, flag_exposures, is_additive, variant_of_exposure
from hoglab.analysis.query.days import DAY_US
from hoglab.analysis.query.metrics.funnels import LAST_ROW, can_resume_funnel, resumed_progress, resumed_rows
from hoglab.analysis.query.metrics.outcome import RUNNING_DAYS, STANDING, Days, Outcome, running, valued
from hoglab.analysis.query.metrics.values import can_resume_value
from hoglab.analysis.query.model import FunnelMeasure, MeanMeasure, Metric, Question, RatioMeasure
from hoglab.analysis.query.scope import Scope, SqlStatement, Subquery

EVENTS = "logged_events"
ENTITY = "entity_key"
"""The column of `EVENTS` that has the entity, or NULL."""
OTHERS = "other_entities"
NUMBER = "known_number"
"""The column of `RECENT` that has the number of the entity, or NULL where it has no state."""
KNOWN = "known_states"
RECENT = "recent_events"
TOUCHED = "touched_entities"
TOUCHED_EVENTS = "touched_events"
UNITS = "kept_units"
FURTHER = "further_partials"
NEW_DAYS = "new_days"
OLD_DAYS = "old_days"
EVER = -(2**62)
"""The moment of `TOUCHED` that makes all events matter."""
REBUILT = f"SELECT entity FROM {TOUCHED} WHERE day IS NULL"
"""Entities that are rebuilt from the logs."""
REBUILT_NUMBERS = f"SELECT number FROM {TOUCHED} WHERE day IS NULL AND number IS NOT NULL"
"""Earlier numbers of entities that are rebuilt."""

_COUNTED = "counted_events"
"""Events of `EVENTS` that may be more than exposures. In funnels every exposure is the first step."""
_BEFORE_NEW = -1
"""A day before the grid's, on which an entity with a state enters."""


def can_resume(metric: Metric) -> bool:
    """Return whether an entity's later events can continue from its combined partials.

    They cannot for different values (they are a set), for retention, and for strict or unordered funnels.
    """
    match metric:
        case MeanMeasure():
            resumable = can_resume_value(metric.value)
        case RatioMeasure():
            resumable = can_resume_value(metric.numerator) and can_resume_value(metric.denominator)
        case FunnelMeasure():
            resumable = can_resume_funnel(metric)
        case _:
            resumable = False
    return resumable and is_additive(metric)


@dataclass(frozen=True, slots=True)
class IncrementalAggregation:
    """Statements of a question. Each takes ``events``, a relation of stored events, or reads the tables above.

    ``pipeline`` has their stages; ``history`` and ``state`` are the tables of entities.
    """

    pipeline: Pipeline
    history: str
    state: str

    @property
    def scope(self) -> Scope:
        return self.pipeline.scope

    @property
    def outcome(self) -> Outcome:
        return self.pipeline.outcome

    @property
    def days_of_entities(self) -> Days:
        days = self.pipeline.days
        assert days is not None  # noqa: S101 - what can be resumed adds up
        return days

    @property
    def question(self) -> Question:
        return self.scope.question

    # -- entities that are rebuilt ---------------------------------------------------------------------

    def units(self, events: str, *, first: str = "1") -> SqlStatement:
        """Return the statement for ``unit`` of all entities with events, numbered from ``first`` on."""
        number = f"CAST({first} - 1 + row_number() OVER () AS INTEGER) AS number"
        return self._statement(
            [Subquery(EVENTS, events), *self.pipeline.units.subqueries], f"SELECT *, {number} FROM unit"
        )

    @property
    def next_number(self) -> str:
        """First number that no entity has."""
        return f"(SELECT coalesce(max(number), 0) + 1 FROM {self.state})"

    def days(self, events: str) -> SqlStatement:
        """Return the statement for the `NEW_DAYS` of entities in `UNITS`."""
        rows = f"SELECT entity, day, {running(self.outcome)}, {self._last_day} FROM step"
        units, days = self.pipeline.units, self.days_of_entities
        named = [
            Subquery(EVENTS, events),
            *units.exposures.subqueries,
            *units.entry,
            *units.covariate,
            Subquery(units.unit.name, f"SELECT * FROM {UNITS}"),
            *self._funnel_rows,
            *self.pipeline.partials.subqueries,
            days.moved,
            days.step,
            Subquery(days.running.name, rows),
        ]
        partials = ", ".join(f"running.{name}" for name in self._before_and_after)
        return self._statement(
            named,
            f"SELECT unit.number AS entity, CAST(NULL AS BIGINT) AS place, running.day, {', '.join(STANDING)}"
            f"{_items('unit.{}', self._carried)}, {partials}, running.is_last "
            "FROM running INNER JOIN unit ON unit.entity = running.entity WHERE running.day >= unit.enter_day",
        )

    def new_states(self) -> str:
        """Return the statement for the states of entities in `UNITS`, with the last of their `NEW_DAYS`."""
        shown = [f"units.{name}" for name in self._unit_columns]
        shown += ["units.number", "units.multiple_day", "days.day AS last_day"]
        shown += [f"days.{name}_new AS {name}" for name in self._partials]
        return (
            f"SELECT {', '.join(shown)} FROM {UNITS} AS units INNER JOIN {NEW_DAYS} AS days "
            "ON days.entity = units.number AND days.is_last"
        )

    # -- who goes on, and from where -------------------------------------------------------------------

    def recent(self, events: str, *, exposures_apart: bool) -> str:
        """Return the statement for `RECENT`, of events with the number of their log; log 0 may have exposures.

        With ``exposures_apart`` its events are exposures and nothing else.
        """
        exposed = "TRUE"
        if exposures_apart and not self._counts_exposures:
            variant = variant_of_exposure(self.scope)
            changes = f"{self.scope.ts()} <= known.t0 OR {variant} IS DISTINCT FROM known.variant"
            exposed = f"known.number IS NULL OR {changes}"
        return (
            f"SELECT events.*, known.number AS {NUMBER} FROM ({events}) AS events LEFT JOIN {self.state} AS known "
            f"ON known.entity = events.{ENTITY} "
            f"WHERE CASE WHEN events.log = 0 THEN {exposed} ELSE known.number IS NOT NULL END"
        )

    @property
    def _counts_exposures(self) -> bool:
        """Whether an exposure may change something that is after the first one and to the same variant."""
        return (
            isinstance(self.question.metric, FunnelMeasure) or self.question.exposures.activation is not None
        )

    def known(self, *, others: bool) -> str:
        """Return the statement for the states of entities with events in `RECENT`, and of ``others`` if given."""
        numbers = f"SELECT {NUMBER} FROM {RECENT}"
        if others:
            numbers += (
                f" UNION ALL SELECT number FROM {self.state} WHERE entity IN (SELECT entity FROM {OTHERS})"
            )
        return f"SELECT * EXCLUDE (entity), rowid AS place FROM {self.state} WHERE number IN ({numbers})"

    def touched(self, recent: str, counted: str, exposed: str, *, others: bool) -> SqlStatement:
        """Return the statement for `TOUCHED`: entities that ``recent`` events keep from continuing, and ``others``.

        Entities that go back have a ``day`` to go back to; they have an event on a day, or in funnels at a moment,
        before their last one. Rebuilt are newly exposed entities; entities with an exposure that is not after the
        first one, or is to another variant; and where the time before the exposure matters, entities with events of
        that time. ``since`` is the moment from which their events matter. ``counted`` are recent events that are
        not exposures alone, ``exposed`` entities that may have been exposed.
        """
        parts = list(self._reasons(exposed))
        if others:
            parts.append(
                f"SELECT other.entity, known.number, {EVER}, NULL FROM {OTHERS} AS other "
                f"LEFT JOIN {self.state} AS known ON known.entity = other.entity"
            )
        counts_all = isinstance(self.question.metric, FunnelMeasure)
        named = [
            Subquery(EVENTS, self._beside_known(recent)),
            Subquery(_COUNTED, self._beside_known(recent if counts_all else counted)),
            Subquery("reason", " UNION ALL ".join(parts)),
        ]
        return self._statement(
            named,
            f"SELECT entity, max(number) AS number, coalesce(min(since), {self._begin_of_day('min(day)')}) AS since, "
            "CASE WHEN min(since) IS NULL THEN min(day) END AS day FROM reason GROUP BY entity",
        )

    def _beside_known(self, recent: str) -> str:
        """Return recent events with the states of their entities."""
        known = _items("known.{0} AS known_{0}", self._judged_by)
        return f"SELECT recent.*{known} FROM ({recent}) AS recent LEFT JOIN {KNOWN} AS known ON number = {NUMBER}"

    def _reasons(self, exposed: str) -> Iterator[str]:
        """Yield queries of rows ``(entity, number, since, day)``: events that do not let their entities continue."""
        scope, exposures = self.scope, self.question.exposures
        ts, day = scope.ts(), scope.day(scope.ts())
        looks_back = exposures.activation is not None or self.question.lookback_us > 0
        first, rebuilt = (EVER, EVER) if looks_back else ("ts", "least(ts, known_t0)")
        changes = "ts <= known_t0"
        if not exposures.first_seen:
            other = f"variant <> known_variant AND {scope.day('ts')} < coalesce(known_multiple_day, {2**31})"
            changes += f" OR ({other})"
        exposures_known = flag_exposures(scope, _items("known_{}", self._judged_by))
        yield (
            f"SELECT entity, known_number AS number, CASE WHEN known_t0 IS NULL THEN {first} ELSE {rebuilt} END "
            f"AS since, CAST(NULL AS INTEGER) AS day FROM ({exposures_known}) AS exposed "
            f"WHERE known_t0 IS NULL OR {changes}"
        )
        late = f"{day} < known_last_day"
        if isinstance(self.question.metric, FunnelMeasure):
            late += f" OR {ts} <= known_{LAST_ROW}"
        begun = f"{day} <= greatest({scope.day('known_t0')}, known_multiple_day)"
        whose = f"SELECT {ENTITY}, known_number"
        yield (
            f"{whose}, CASE WHEN {begun} THEN {EVER if looks_back else 'known_t0'} END, "
            f"CASE WHEN NOT ({begun}) THEN {day} END FROM {_COUNTED} WHERE {ts} >= known_t0 AND ({late})"
        )
        if looks_back:
            before = f"{ts} <= known_t0" if exposures.activation is not None else f"{ts} < known_t0"
            yield f"{whose}, {EVER}, NULL FROM {EVENTS} WHERE {before}"
        if exposures.activation is not None:  # an activation of somebody who was shown the flag long ago
            yield (
                f"{whose}, {EVER}, NULL FROM {EVENTS} WHERE known_t0 IS NULL "
                f"AND {ENTITY} IN (SELECT entity FROM ({exposed}) AS exposed)"
            )

    def _begin_of_day(self, day: str) -> str:
        """Return a moment, in microseconds, at or before the start of a day of the grid, by the day's number."""
        grid = self.scope.days
        assert grid is not None  # noqa: S101 - others are not kept
        ahead = max(step.offset_us for step in grid.offsets)
        return f"(({grid.first_number} + CAST({day} AS BIGINT)) * {DAY_US} - {ahead})"

    def old_days(self) -> str:
        """Return the statement for `OLD_DAYS`, the history of touched entities with the values before each day."""
        window = "OVER (PARTITION BY days.entity ORDER BY days.day, days.increment)"
        before = "".join(
            f", days.{name} AS {name}_new, lag(days.{name}) {window} AS {name}_old" for name in self._partials
        )
        return (
            f"SELECT days.entity, days.rowid AS place, days.day, lag(days.day) {window} IS NOT NULL AS counted, "
            f"days.variant AS variant_new, lag(days.variant) {window} AS variant_old"
            f"{_items('days.{}', self._carried)}{before}, "
            f"touched.day IS NULL OR days.day >= touched.day AS is_gone, "
            f"lead(days.day) {window} AS next_day, touched.day AS from_day "
            f"FROM {self.history} AS days INNER JOIN {TOUCHED} AS touched ON touched.number = days.entity"
        )

    def go_back(self) -> str:
        """Return the statement that restores earlier partials in `KNOWN` for entities that go back."""
        new = ", ".join(f"{name} = days.{name}_new" for name in self._partials)
        return (
            f"UPDATE {KNOWN} AS known SET {new} FROM {OLD_DAYS} AS days WHERE days.entity = known.number "
            "AND NOT days.is_gone AND (days.next_day IS NULL OR days.next_day >= days.from_day)"
        )

    # -- going on --------------------------------------------------------------------------------------

    def further(self, recent: str, *, back: bool) -> SqlStatement:
        """Return the statement for the partials that are added to entities in `KNOWN`.

        They are computed from ``recent`` events, or from `TOUCHED_EVENTS` for entities that go ``back``.
        """
        partials = self.pipeline.partials
        known = ["variant", *self._carried, *self._partials]
        also = f", known.place{_items('known.{0} AS known_{0}', known)}"
        combined = "".join(f", {p.combine}({p.name}) AS {p.name}" for p in self.outcome.partials)
        select = (
            f"SELECT further.entity, further.day{_items('further.{}', self._partials)}{also} "
            f"FROM (SELECT entity, day{combined} FROM {partials.name} GROUP BY entity, day) AS further "
            f"INNER JOIN ({self._known}) AS known ON known.entity = further.entity"
        )
        if isinstance(self.question.metric, FunnelMeasure):
            single = "SELECT * FROM new_row WHERE entity NOT IN (SELECT entity FROM several)"
            select += " UNION ALL " + resumed_progress(
                self.scope, self.question.metric, single, self._known, also
            )
        units = self.pipeline.units
        named = [
            Subquery(EVENTS, self._events_of_known(recent, back=back)),
            *units.exposures.before,
            units.exposures.giving(self._known),
            *units.entry,
            *units.covariate,
            Subquery(units.unit.name, self._known_units),
            *self._further_funnel_rows,
            *partials.subqueries,
        ]
        return self._statement(named, select)

    @property
    def _funnel_rows(self) -> Sequence[Subquery]:
        rows = self.pipeline.funnel_rows
        return () if rows is None else rows.subqueries

    @property
    def _further_funnel_rows(self) -> Sequence[Subquery]:
        """Rows of a funnel for entities with several new ones, after a row that stands for their state."""
        rows, metric = self.pipeline.funnel_rows, self.question.metric
        if rows is None or not isinstance(metric, FunnelMeasure):
            return ()
        some = "entity IN (SELECT entity FROM several)"
        states = f"(SELECT * FROM ({self._known}) AS every WHERE {some}) AS known"
        return (
            *rows.before,
            Subquery("new_row", rows.sql),
            Subquery("several", "SELECT entity FROM new_row GROUP BY entity HAVING count(*) > 1"),
            rows.giving(f"SELECT * FROM new_row WHERE {some} UNION ALL {resumed_rows(metric, states)}"),
        )

    def further_days(self) -> SqlStatement:
        """Return the statement for the `NEW_DAYS` of entities in `FURTHER`."""
        same = "TRUE AS counted, {0}.known_variant AS variant_new, {0}.known_variant AS variant_old"
        same += _items("{{0}}.known_{0} AS {0}", self._carried)
        pairs = ", ".join(
            f"{p.combined(f'known_{p.name}', p.name)} AS {p.name}_new, known_{p.name} AS {p.name}_old"
            for p in self.outcome.partials
        )
        several = f"(SELECT * FROM {FURTHER} WHERE entity IN (SELECT entity FROM several))"
        before = ", ".join(f"any_value(known_{name})" for name in self._partials)
        step = (
            f"SELECT entity, day, {', '.join(self._partials)} FROM {several} AS chosen UNION ALL "
            f"SELECT entity, {_BEFORE_NEW}, {before} FROM {several} AS chosen GROUP BY entity"
        )
        partials = ", ".join(f"running.{name}" for name in self._before_and_after)
        return self._statement(
            [
                Subquery("several", f"SELECT entity FROM {FURTHER} GROUP BY entity HAVING count(*) > 1"),
                Subquery("step", step),
                Subquery(
                    "running", f"SELECT entity, day, {running(self.outcome)}, {self._last_day} FROM step"
                ),
            ],
            f"SELECT entity, place, day, {same.format('single')}, {pairs}, TRUE AS is_last "
            f"FROM {FURTHER} AS single WHERE entity NOT IN (SELECT entity FROM several) UNION ALL "
            f"SELECT running.entity, known.place, running.day, {same.format('known')}, {partials}, running.is_last "
            f"FROM running INNER JOIN {several} AS known "
            "ON known.entity = running.entity AND known.day = running.day",
        )

    # -- what is kept and summed -----------------------------------------------------------------------

    def recorded(self, increment: int) -> str:
        """Return the statement for the rows of `NEW_DAYS` that the history records."""
        partials = _items("{0}_new AS {0}", self._partials)
        return (
            f"SELECT entity, day, CAST({increment} AS INTEGER) AS increment, variant_new AS variant"
            f"{_items('{}', self._carried)}{partials} FROM {NEW_DAYS}"
        )

    def update(self) -> str:
        """Return the statement that updates the states of entities in `FURTHER`."""
        new = "".join(f", {name} = days.{name}_new" for name in self._partials)
        return (
            f"UPDATE {self.state} AS known SET last_day = days.day{new} "
            f"FROM (SELECT * FROM {NEW_DAYS} WHERE is_last AND place IS NOT NULL) AS days "
            "WHERE days.place = known.rowid"
        )

    def changes(self, *, gone: bool) -> str:
        """Return the contributions of `NEW_DAYS`, and with ``gone`` the loss of those of `OLD_DAYS` that are gone."""
        gained = self._changes(NEW_DAYS)
        if not gone:
            return gained
        opposite = ", ".join(f"-{name} AS {name}" for name in self.outcome.statistics)
        lost = self._changes(f"(SELECT * FROM {OLD_DAYS} WHERE is_gone)")
        return f"{gained} UNION ALL SELECT * REPLACE ({opposite}) FROM ({lost}) AS gone"

    def exposures_per_day(self) -> SqlStatement:
        """Return rows as `hoglab.analysis.query.exposures.exposures_per_day` does."""
        key = f"{self.scope.day('t0')}, CASE WHEN multiple_day IS NULL THEN variant ELSE {MULTIPLE} END"
        return SqlStatement(f"SELECT {key}, count(*) FROM {self.state} GROUP BY {key}", {})

    # -- parts -----------------------------------------------------------------------------------------

    @property
    def _judged_by(self) -> list[str]:
        """Columns of states that `touched` reads."""
        funnel = [LAST_ROW] if isinstance(self.question.metric, FunnelMeasure) else []
        return ["number", "variant", "t0", "multiple_day", "last_day", *funnel]

    @property
    def _partials(self) -> list[str]:
        return [partial.name for partial in self.outcome.partials]

    @property
    def _before_and_after(self) -> list[str]:
        return [f"{name}_{suffix}" for name in self._partials for suffix in ("new", "old")]

    @property
    def _last_day(self) -> str:
        return f"lead(day) OVER ({RUNNING_DAYS}) IS NULL AS is_last"

    @property
    def _known(self) -> str:
        """`KNOWN` with numbers for entities, and with their present variants."""
        now = f"CASE WHEN multiple_day IS NULL THEN variant ELSE {MULTIPLE} END"
        return f"SELECT * REPLACE ({now} AS variant), number AS entity FROM {KNOWN}"

    @property
    def _known_units(self) -> str:
        """Rows of ``unit`` for entities in `KNOWN`, which count on every day of the grid."""
        columns = ", ".join(self._unit_columns)
        return (
            f"SELECT {columns}, {_BEFORE_NEW} AS enter_day, CAST(NULL AS BIGINT) AS multiple_day "
            f"FROM ({self._known}) AS known"
        )

    def _events_of_known(self, recent: str, *, back: bool) -> str:
        """Return the events with which entities in `KNOWN` continue, by their numbers."""
        continuing = (
            f"SELECT * EXCLUDE ({NUMBER}) REPLACE ({NUMBER} AS {ENTITY}) FROM ({recent}) AS recent "
            f"WHERE {NUMBER} IS NOT NULL"
        )
        if not back:
            return continuing
        return (
            f"{continuing} AND {NUMBER} NOT IN (SELECT number FROM {TOUCHED} WHERE day IS NOT NULL) UNION ALL "
            f"SELECT events.* REPLACE (touched.number AS {ENTITY}) FROM {TOUCHED_EVENTS} AS events "
            f"INNER JOIN {TOUCHED} AS touched ON touched.entity = events.{ENTITY} "
            f"WHERE {self.scope.day(self.scope.ts())} >= touched.day"
        )

    def _changes(self, days: str) -> str:
        """Return ``change`` of days, without rows that change nothing."""
        changed = " OR ".join(f"{name}_new <> {name}_old" for name in ("variant", *self.outcome.values))
        columns = ", ".join(["entity", "day", "counted", "variant_new", "variant_old", *self.scope.cell])
        state = f"SELECT {columns}, {', '.join(valued(self.outcome, 'days', 'days'))} FROM {days} AS days"
        some = f"SELECT * FROM ({state}) AS every WHERE NOT counted OR {changed}"
        return f"SELECT * FROM (WITH state AS ({some}) {self.days_of_entities.change.sql}) AS changes"

    @property
    def _carried(self) -> list[str]:
        """Columns of an entity besides its partials that decide its contributions."""
        covariate = ["x"] if self.question.lookback_us else []
        return [*self.scope.cell, *covariate]

    @property
    def _unit_columns(self) -> list[str]:
        return ["entity", "variant", "t0", *self._carried]

    def _statement(self, subqueries: Iterable[Subquery], select: str) -> SqlStatement:
        named = ",\n".join(
            f"{part.name} AS {'NOT MATERIALIZED ' if part.name in (EVENTS, _COUNTED) else ''}(\n{part.sql}\n)"
            for part in subqueries
        )
        sql = f"WITH {named}\n{select}"
        return SqlStatement(sql, self.scope.parameters.values)


def _items(item: str, names: Sequence[str]) -> str:
    """Write further items of a list, one for each name."""
    return "".join(f", {item.format(name)}" for name in names)
