"""Changes of points that are stored: events that come late, and merges of persons (spec experiment-results 11.5).

Both give, for days of the span's grid, the position in the event log of what changed them. A point is cumulative, so
that a change of a day also changes the days after it.
"""

# ruff: noqa: S608 - see scope.py

from __future__ import annotations

from datetime import datetime, timedelta

from hoglab.analysis.query.days import micros
from hoglab.analysis.query.event_relation import STORED_EVENTS, EventRelation
from hoglab.analysis.query.exposures import exposure_condition
from hoglab.analysis.query.model import Math, Question, metric_sources, of_sessions, values_of
from hoglab.analysis.query.scope import Scope, SqlStatement, exclusive
from hoglab.analysis.query.session_facts import SESSION_REACH
from hoglab.filters.sql import combined
from hoglab.storage.event_store.dialects import Dialect

CORRECTED = "event_correction"
"""The rows of events that others took the place of (see `hoglab.storage.event_store.EventStore`)."""
MERGED = "moved_event"
"""Events of merged persons, in place of all events: ``former`` has the person that they belonged to before."""


def arrivals(scope: Scope, after: int, until: datetime) -> SqlStatement:
    """Return rows ``(day, newest)``: the days of events that came in late and may change a point.

    They are events up to ``until`` in log records behind ``after``; ``newest`` is the offset of the last of these
    records. Events from before the start of the span belong to the first day. Events of entities without an
    exposure are among them.
    """
    question, metric = scope.question, scope.question.metric
    some = _that_count(scope)
    back = timedelta(microseconds=question.lookback_us)
    if of_sessions(metric) or question.session_properties:  # to which every event of them belongs
        some.append(f"{scope.property_text('$session_id')} <> ''")
        back = max(back, SESSION_REACH)
    return scope.statement(
        f"SELECT {scope.day(scope.ts())} AS day, max(log_offset) AS newest FROM {scope.events} "
        f"WHERE {scope.within(question.span.start - back, exclusive(until))} "
        f"AND log_offset > {scope.bind(after)} AND {combined('OR', some)} GROUP BY {scope.day(scope.ts())}"
    )


def corrections(question: Question, dialect: Dialect, after: int, until: datetime) -> SqlStatement:
    """Return rows ``(day, newest)`` as of `arrivals`: the days of what events were before they were corrected.

    Whether they counted is not known any more, so that any event of the project is among them.
    """
    scope = Scope(question, dialect, EventRelation(CORRECTED))
    back = max(timedelta(microseconds=question.lookback_us), SESSION_REACH)
    return scope.statement(
        f"SELECT {scope.day(scope.ts())} AS day, max(log_offset) AS newest FROM {scope.relation.name} "
        f"WHERE {scope.within(question.span.start - back, exclusive(until))} "
        f"AND log_offset > {scope.bind(after)} GROUP BY {scope.day(scope.ts())}"
    )


def any_merge(scope: Scope, after: int) -> SqlStatement:
    """Return one row when persons of the project were merged behind ``after``, else no row."""
    project = scope.bind(scope.question.exposures.project_id)
    return scope.statement(
        "SELECT 1 AS found FROM person_override "
        f"WHERE project_id = {project} AND log_offset > {scope.bind(after)} LIMIT 1"
    )


def merges(question: Question, dialect: Dialect, after: int, until: datetime) -> SqlStatement | None:
    """Return rows ``(day, newest)`` like `arrivals`: days from which merges behind ``after`` change points.

    It is the first day on which two of the persons merged into one did something that counts, or the day of their
    first exposure, if that is later: before, their contributions do not depend on the merge. Where the identity of
    a person decides what counts it is the first person's first day. None: merges never change the points.
    """
    scope = Scope(question, dialect, EventRelation(MERGED))
    conditions = _that_count(scope)
    # What is known of a session is what all its events tell, also those of others than the merged.
    compares_persons = question.shows_person_ids or "person_id" in scope.row.take_use().columns
    by_name = compares_persons or bool(question.session_properties)
    is_grouped = question.exposures.group_type_index is not None
    if is_grouped and not by_name and not _counts_persons(question):
        return None
    exposed = "TRUE"
    if by_name:  # what was of the one may not count for the other, and the other way round
        sources = [*question.exposures.sources, *metric_sources(question.metric)]
        conditions = list(dict.fromkeys(map(scope.may_come_from, sources)))
    elif not is_grouped:
        span = question.span
        within = f"{scope.ts()} BETWEEN {micros(span.start)} AND {micros(span.end)}"
        exposed = combined("AND", [exposure_condition(scope), within])
    _define_moved(scope, after)
    back = timedelta(microseconds=question.lookback_us)
    scope.define(
        "day_of_former",
        f"SELECT person_id, former, min({scope.day(scope.ts())}) AS day, "
        f"min(CASE WHEN {exposed} THEN {scope.day(scope.ts())} END) AS exposed FROM {scope.events} "
        f"WHERE {scope.within(question.span.start - back, exclusive(until))} AND {combined('OR', conditions)} "
        "GROUP BY person_id, former",
    )
    scope.define(
        "placed",
        "SELECT person_id, day, exposed, row_number() OVER (PARTITION BY person_id ORDER BY day) AS place "
        "FROM day_of_former",
    )
    scope.define(
        "changed",
        f"SELECT person_id, greatest(min(CASE WHEN place = {1 if by_name else 2} THEN day END), min(exposed)) AS day, "
        f"count(*) AS formers, count(exposed) AS exposures FROM placed GROUP BY person_id",
    )
    return scope.statement(
        "SELECT changed.day AS day, max(newly_merged.newest) AS newest "
        "FROM changed INNER JOIN newly_merged ON newly_merged.person_id = changed.person_id "
        f"WHERE changed.formers >= {1 if by_name else 2} AND changed.exposures > 0 GROUP BY changed.day"
    )


def _define_moved(scope: Scope, after: int) -> None:
    """Define `MERGED`: all events of persons merged behind ``after``, and of the persons that they belong to now.

    A distinct id whose person changed several times since counts as one that was alone.
    """
    project, offset = scope.bind(scope.question.exposures.project_id), scope.bind(after)
    scope.define(
        "newly_merged",
        "SELECT person_id, max(log_offset) AS newest FROM person_override "
        f"WHERE project_id = {project} AND log_offset > {offset} GROUP BY person_id",
    )
    scope.define(
        "concerned",
        "SELECT old_person_id AS stored, person_id AS became, "
        f"CASE WHEN log_offset > {offset} THEN old_person_id ELSE person_id END AS former FROM person_override "
        f"WHERE project_id = {project} AND person_id IN (SELECT person_id FROM newly_merged) "
        "UNION ALL SELECT person_id, person_id, person_id FROM newly_merged",
    )
    scope.define(
        MERGED,
        "SELECT events.* REPLACE (concerned.became AS person_id), concerned.former AS former "
        f"FROM {STORED_EVENTS} AS events INNER JOIN concerned ON concerned.stored = events.person_id",
    )


def _that_count(scope: Scope) -> list[str]:
    """Return conditions one of which every event meets that may expose an entity or count for the metric."""
    question = scope.question
    conditions = [
        exposure_condition(scope),
        *(scope.matches(source) for source in metric_sources(question.metric)),
    ]
    if question.exposures.activation is not None:
        conditions.append(scope.matches(question.exposures.activation))
    return conditions


def _counts_persons(question: Question) -> bool:
    return any(value.math is Math.UNIQUE_PERSON for value in values_of(question.metric))
