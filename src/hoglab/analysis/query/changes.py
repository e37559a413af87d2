"""Changes of points that are stored: events that come late, and merges of persons (spec experiment-results 11.5).

Both say of days of the span's grid up to where the event log reaches that changed them. A point is cumulative, so that
what changes a day changes those behind it as well.
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

MERGED = "moved_event"
"""The events of merged persons, in the place of all events: with ``former``, whom they belonged to before."""


def arrivals(scope: Scope, after: int, until: datetime) -> SqlStatement:
    """Return rows ``(day, newest)``: the days of events that came in late and may change a point.

    They are events up to ``until`` that came in log records behind ``after``; ``newest`` is the offset of the last of
    these records. What is read from before the start of the span is of the first day. An event of somebody who was not
    exposed is among them.
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


def any_merge(scope: Scope, after: int) -> SqlStatement:
    """Return one row when persons of the project were merged behind ``after``, else none."""
    project = scope.bind(scope.question.exposures.project_id)
    return scope.statement(
        "SELECT 1 AS found FROM person_override "
        f"WHERE project_id = {project} AND log_offset > {scope.bind(after)} LIMIT 1"
    )


def merges(question: Question, dialect: Dialect, after: int, until: datetime) -> SqlStatement | None:
    """Rows ``(day, newest)`` as of `arrivals`: from when on points are others for merges of persons behind ``after``.

    It is the day on which a second one of those who are one person now did something that counts, or the day of
    their first exposure, if that is later: before, they add the same whoever they are. Where who they are decides
    what counts it is the day of the first. None: merges never change the points.
    """
    scope = Scope(question, dialect, EventRelation(MERGED))
    conditions = _that_count(scope)
    # What is known of a session is what all its events tell, also those of others than the merged.
    compares_persons = question.shows_person_ids or "person_id" in scope.row.reads().columns
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
    """Define `MERGED`: all events of those who were merged behind ``after``, and of those who they are now.

    Somebody whose person changed several times since counts as having been alone.
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
    """Return conditions of which every event meets one that may expose an entity or count for the metric."""
    question = scope.question
    found = [
        exposure_condition(scope),
        *(scope.matches(source) for source in metric_sources(question.metric)),
    ]
    if question.exposures.activation is not None:
        found.append(scope.matches(question.exposures.activation))
    return found


def _counts_persons(question: Question) -> bool:
    return any(value.math is Math.UNIQUE_PERSON for value in values_of(question.metric))
