"""How contributions go on from what is known of each entity (spec experiment-results 11.4).

Beside its contributions a row of *state* is kept of each exposed entity: its variant, when it was exposed, the last
day on which it contributed, and its partials, all combined. New events that come after everything else of an entity,
and that leave its exposure as it was, are taken in from there: the state stands as one more row before the first
day, and what follows is computed as ever. All others are *touched*: computed again from their whole logs.

Statements read and write temporary tables, so that what they share is computed once:

- `RECENT`: the new events, and `KNOWN`: the states of entities with such events.
- `TOUCHED`: entities, which are then taken out of `KNOWN`, with the moment from which on their events matter: nothing
  before the first exposure does. `TOUCHED_EVENTS`: these events.
- `UNITS` and `STEPS`: the subqueries ``unit`` and ``step`` of touched entities, or of all of them.
- `FURTHER`: the partials per entity and day that come to the states in `KNOWN`, and these states.
- `GONE`: the contributions that touched entities had until now, taken back, and `CHANGED`: all that are new.

The column ``place`` of `KNOWN`, `FURTHER` and `GONE` is the row of the state, or of the contributions, which stays
where it is: nothing else is committed to the file from one to the other.

Most entities have one new row or day. For them what follows is told without windows, which cost several times as
much for partitions of two rows.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hoglab.analysis.query.exposures import flag_exposures
from hoglab.analysis.query.funnels import LAST_ROW, can_resume_funnel, resumed_progress, resumed_rows
from hoglab.analysis.query.model import FunnelMetric, MeanMetric, Metric, Question, RatioMetric
from hoglab.analysis.query.outcome import Outcome, states
from hoglab.analysis.query.scope import Scope, Statement
from hoglab.analysis.query.shared import lookback_us
from hoglab.analysis.query.statements import can_telescope
from hoglab.analysis.query.values import can_resume_value

EVENTS = "kept_events"
RECENT = "recent_events"
TOUCHED = "touched_entities"
TOUCHED_EVENTS = "touched_events"
KNOWN = "known_states"
UNITS = "kept_units"
STEPS = "kept_steps"
FURTHER = "further_partials"
EVER = -(2**62)
"""The moment of `TOUCHED` from which on all events matter."""
OLD = f"SELECT entity FROM {TOUCHED} WHERE since = {EVER}"
"""Touched entities of which all events matter, and `NEW`: others."""
NEW = f"SELECT entity FROM {TOUCHED} WHERE since > {EVER}"
GONE = "gone_contributions"
CHANGED = "changed_contributions"

_BEFORE_ALL, _BEFORE_NEW = -2, -1
"""Days before the grid's: of the row that stands for the state, and from which on an entity counts that has one."""
Subqueries = Sequence[tuple[str, str]]


def can_resume(metric: Metric) -> bool:
    """Whether an entity's combined partials tell all that its later events go on from.

    Not so for different values (they are a set), for retention, and for funnels that are strict or in any order.
    """
    match metric:
        case MeanMetric():
            resumable = can_resume_value(metric.value)
        case RatioMetric():
            resumable = can_resume_value(metric.numerator) and can_resume_value(metric.denominator)
        case FunnelMetric():
            resumable = can_resume_funnel(metric)
        case _:
            resumable = False
    return resumable and can_telescope(metric)


@dataclass(frozen=True, slots=True)
class Resuming:
    """The statements of a question. Each takes ``events``, a relation of kept events, or reads the tables above.

    ``subqueries`` are those of the question's statement up to the contributions, ``scope`` has their values; and
    ``state`` is the table of states.
    """

    scope: Scope
    outcome: Outcome
    subqueries: Subqueries
    state: str

    @property
    def question(self) -> Question:
        return self.scope.question

    def units(self, events: str) -> Statement:
        """``unit`` of all entities with events."""
        return self._computed("unit", events, {})

    def steps(self, events: str) -> Statement:
        """``step`` of entities in `UNITS`."""
        return self._computed("step", events, {"unit": f"SELECT * FROM {UNITS}"})

    def changes(self) -> Statement:
        """The contributions that follow from `UNITS` and `STEPS`."""
        texts = dict(self.subqueries)
        made = [("unit", f"SELECT * FROM {UNITS}"), ("step", f"SELECT * FROM {STEPS}")]
        return self._changes([*made, ("running", texts["running"])], texts["state"])

    def states(self) -> str:
        """The states that follow from `UNITS` and `STEPS`."""
        shown = [f"units.{name}" for name in self._unit_columns]
        shown += ["units.multiple_day IS NOT NULL AS switched", "steps.last_day"]
        shown += [f"steps.{name}" for name in self._partials]
        return (
            f"SELECT {', '.join(shown)} FROM {UNITS} AS units INNER JOIN ({self._totals(STEPS)}) AS steps "
            "ON steps.entity = units.entity"
        )

    def further(self) -> Statement:
        """The partials of entities in `KNOWN` that follow from their events in `RECENT`."""
        position = [name for name, _ in self.subqueries].index("moved") - 1
        partials, _ = self.subqueries[position]
        replaced = {"flagged": f"SELECT * FROM {KNOWN}", "unit": self._known_units}
        metric = self.question.metric
        named: list[tuple[str, str]] = []
        for name, sql in self.subqueries[: position + 1]:
            text = replaced.get(name, sql)
            if isinstance(metric, FunnelMetric) and name == "funnel_row":
                several = "SELECT entity FROM new_row GROUP BY entity HAVING count(*) > 1"
                named += [("new_row", text), ("several", several)]
                some = f"(SELECT * FROM {KNOWN} WHERE entity IN (SELECT entity FROM several))"
                rows = "SELECT * FROM new_row WHERE entity IN (SELECT entity FROM several)"
                text = f"{rows} UNION ALL {resumed_rows(metric, f'{some} AS known')}"
            elif isinstance(metric, FunnelMetric) and name == "progress":
                single = "(SELECT * FROM new_row WHERE entity NOT IN (SELECT entity FROM several))"
                text = f"{text} UNION ALL {resumed_progress(self.scope, metric, single, KNOWN)}"
            named.append((name, text))
        each = ", ".join(f"further.{name}" for name in self._partials)
        state = ", ".join(f"known.{name} AS known_{name}" for name in self._resumed_from)
        return self._statement(
            [(EVENTS, f"SELECT * FROM {RECENT}"), *named],
            f"SELECT further.entity, known.place, further.day, {each}, {state} FROM {partials} AS further "
            f"INNER JOIN {KNOWN} AS known ON known.entity = further.entity",
        )

    def further_changes(self) -> Statement:
        """The contributions that follow from `FURTHER`."""
        units = [name for name in self._unit_columns if name != "entity"]
        unit = ", ".join(f"{{0}}.known_{name} AS {name}" for name in units)
        unit += f", {_BEFORE_NEW} AS enter_day, CAST(NULL AS BIGINT) AS multiple_day"
        names = ", ".join(self._partials)
        before = ", ".join(f"any_value(known_{name})" for name in self._partials)
        pairs = ", ".join(
            f"{p.combined(f'known_{p.name}', p.name)} AS {p.name}_new, known_{p.name} AS {p.name}_old"
            for p in self.outcome.partials
        )
        several = f"(SELECT * FROM {FURTHER} WHERE entity IN (SELECT entity FROM several))"
        step = (
            f"SELECT entity, day, {names} FROM {several} AS chosen UNION ALL "
            f"SELECT entity, {_BEFORE_ALL}, {before} FROM {several} AS chosen GROUP BY entity"
        )
        running = (
            f"SELECT entity, day, {pairs}, {unit.format('single')} FROM {FURTHER} AS single "
            "WHERE entity NOT IN (SELECT entity FROM several) UNION ALL "
            f"SELECT each.*, {unit.format('known')} FROM after_several AS each INNER JOIN {several} AS known "
            "ON known.entity = each.entity AND known.day = each.day"
        )
        named = [
            ("several", f"SELECT entity FROM {FURTHER} GROUP BY entity HAVING count(*) > 1"),
            ("step", step),
            ("after_several", dict(self.subqueries)["running"]),
            ("running", running),
        ]
        return self._changes(named, states(self.scope, self.outcome, "running", "running"))

    def gone(self, contributions: str) -> str:
        """What the contributions of touched entities were until now, with the opposite sign.

        Those of whom not all events matter have just been exposed, and have none.
        """
        opposite = ", ".join(f"-{name} AS {name}" for name in self.outcome.statistics)
        return f"SELECT * REPLACE ({opposite}), rowid AS place FROM {contributions} WHERE entity IN ({OLD})"

    def update(self) -> str:
        """The statement that brings the states of entities in `FURTHER` up to date."""
        new = ", ".join(
            f"{p.name} = {p.combined(f'known.{p.name}', f'further.{p.name}')}" for p in self.outcome.partials
        )
        return (
            f"UPDATE {self.state} AS known SET last_day = greatest(known.last_day, further.last_day), {new} "
            f"FROM ({self._totals(FURTHER, 'place')}) AS further WHERE further.place = known.rowid"
        )

    def touched(self, exposed: str) -> Statement:
        """Entities that their events in `RECENT` do not let go on from their state, and since when events matter.

        They are: newly exposed ones; those with an exposure that is not after the first one, or to another variant;
        those who saw several variants already; those with an event on a day, or in funnels at a moment, before
        their last one; and where the time before the exposure matters, those with events of that time. ``exposed``
        are entities that may have been exposed.
        """
        scope, exposures = self.scope, self.question.exposures
        ts = scope.ts()
        other = "" if exposures.first_seen else " OR variant <> known_variant"
        before = f"{scope.day(ts)} < known_last_day"
        if isinstance(self.question.metric, FunnelMetric):
            before += f" OR {ts} <= known_{LAST_ROW}"
        earlier = f"{ts} >= known_t0 AND ({before})"
        if exposures.activation is not None:
            earlier += f" OR {ts} <= known_t0"
        elif lookback_us(self.question):
            earlier += f" OR {ts} < known_t0"
        also = ", known_variant, known_t0"
        since = f"{EVER}"
        if exposures.activation is None and not lookback_us(self.question):
            since = f"CASE WHEN known_t0 IS NULL THEN ts ELSE {EVER} END"
        newly_exposed = (
            f"SELECT entity, {since} AS since FROM ({flag_exposures(scope, also)}) AS exposed "
            f"WHERE known_t0 IS NULL OR ts <= known_t0{other}"
        )
        again = f"known_t0 IS NOT NULL AND (known_switched OR {earlier})"
        out_of_order = f"SELECT {scope.entity()}, {EVER} FROM {EVENTS} WHERE {again}"
        parts = [newly_exposed, out_of_order]
        if exposures.activation is not None:  # an activation of somebody who was shown the flag long ago
            parts.append(
                f"SELECT {scope.entity()}, {EVER} FROM {EVENTS} WHERE known_t0 IS NULL "
                f"AND {scope.entity()} IN (SELECT entity FROM ({exposed}) AS exposed)"
            )
        state = "".join(f", known.{name} AS known_{name}" for name in self._judged_by)
        every = f"{RECENT} AS recent LEFT JOIN {KNOWN} AS known ON known.entity = recent.{scope.entity()}"
        return self._statement([(EVENTS, f"SELECT recent.*{state} FROM {every}")], " UNION ALL ".join(parts))

    def known(self) -> str:
        """The states of entities with events in `RECENT`."""
        return (
            f"SELECT *, rowid AS place FROM {self.state} "
            f"WHERE entity IN (SELECT {self.scope.entity()} FROM {RECENT})"
        )

    @property
    def _judged_by(self) -> list[str]:
        """The columns of states that `touched` looks at."""
        funnel = [LAST_ROW] if isinstance(self.question.metric, FunnelMetric) else []
        return ["variant", "t0", "switched", "last_day", *funnel]

    @property
    def _resumed_from(self) -> list[str]:
        """The columns of states that `FURTHER` has."""
        return [*(name for name in self._unit_columns if name != "entity"), *self._partials]

    @property
    def _partials(self) -> list[str]:
        return [partial.name for partial in self.outcome.partials]

    @property
    def _known_units(self) -> str:
        """``unit`` of entities in `KNOWN`: they count on every day that there is."""
        columns = ", ".join(self._unit_columns)
        return (
            f"SELECT {columns}, {_BEFORE_NEW} AS enter_day, CAST(NULL AS BIGINT) AS multiple_day FROM {KNOWN}"
        )

    def _totals(self, steps: str, key: str = "entity") -> str:
        combined = ", ".join(f"{p.combine}({p.name}) AS {p.name}" for p in self.outcome.partials)
        return f"SELECT {key}, max(day) AS last_day, {combined} FROM {steps} GROUP BY {key}"

    def _changes(self, named: Subqueries, state: str) -> Statement:
        """``change`` without what changes nothing; ``named`` are the subqueries that ``state`` reads."""
        changed = " OR ".join(f"{name}_new <> {name}_old" for name in ("variant", *self.outcome.values))
        some = f"SELECT * FROM ({state}) AS every WHERE NOT counted OR {changed}"
        return self._statement(
            [*named, ("state", some), ("change", dict(self.subqueries)["change"])], "SELECT * FROM change"
        )

    @property
    def _unit_columns(self) -> list[str]:
        covariate = ["x"] if lookback_us(self.question) else []
        return ["entity", "variant", "t0", *self.scope.cell, *covariate]

    def _computed(self, wanted: str, events: str, replaced: dict[str, str]) -> Statement:
        """All subqueries up to one, some of them with another text."""
        end = [name for name, _ in self.subqueries].index(wanted) + 1
        named = [(name, replaced.get(name, sql)) for name, sql in self.subqueries[:end]]
        return self._statement([(EVENTS, events), *named], f"SELECT * FROM {wanted}")

    def _statement(self, subqueries: Subqueries, select: str) -> Statement:
        named = ",\n".join(
            f"{name} AS {'NOT MATERIALIZED ' if name == EVENTS else ''}(\n{text}\n)"
            for name, text in subqueries
        )
        sql = f"WITH {named}\n{select}"
        return Statement(sql, self.scope.parameters.used_in(sql))
