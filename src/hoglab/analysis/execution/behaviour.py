"""Behaviour of people: rules of cohorts about events (spec: experiments-api 8.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hoglab.actions import store as actions
from hoglab.analysis.definitions import action_matches
from hoglab.analysis.errors import ComputationError, DefinitionError, wire_error
from hoglab.analysis.execution.statement_runner import explained_failures
from hoglab.analysis.query.days import zone_of
from hoglab.analysis.query.event_relation import RESOLVED_EVENTS, RelationRow
from hoglab.analysis.query.model import EventMatch
from hoglab.filters import FilterError, PropertyFilter, PropertyGroup, parse_filters
from hoglab.filters.dates import months_before
from hoglab.filters.sql import FilterScope, combined, group_condition
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import parse_moment, utc_now
from hoglab.people.cohorts import CohortError

if TYPE_CHECKING:
    from hoglab.http.identity import Project
    from hoglab.storage.catching_up import CatchUp
    from hoglab.storage.database import Database
    from hoglab.storage.event_store import EventReader
    from hoglab.storage.event_store.dialects import Dialect

TIMEOUT_S = 300.0
"""Time limit of the event store for finding the people who did something."""

REQUEST_TIMEOUT_S = 30.0
"""Time limit of the event store for finding people while a request waits for the answer."""

_MONTHS = {"month": 1, "year": 12}
_DAYS = {"day": 1, "week": 7}


def rule_problem(dialect: Dialect, rule: PropertyFilter) -> str | None:
    """Return the reason why the ``event_filters`` of a rule could not be calculated, with their place.

    None when they could. No event is read.
    """
    moment = utc_now()
    scope = FilterScope(RelationRow(dialect, dialect.parameters()), moment, zone_of("UTC"))
    try:
        group_condition(_event_filters(rule), scope)
    except FilterError as error:
        return f"event_filters: {error}"
    return None


def performers(
    database: Database, store: EventReader, now: Callable[[], datetime] = utc_now
) -> Callable[[Project, PropertyFilter], Iterable[UUID]]:
    """Return the function that finds the persons of a project who performed the event or action of a rule.

    Raises `CohortError` for rules about things that SQL cannot answer, and what the event store raises.
    """
    return _performers(database, store, now, TIMEOUT_S)


def performers_on_request(
    database: Database,
    store: EventReader,
    now: Callable[[], datetime] = utc_now,
    catch_up: CatchUp | None = None,
) -> Callable[[Project, PropertyFilter], Iterable[UUID]]:
    """Return the function `performers` with a shorter time limit, for a request that waits; it raises `ApiError`.

    With ``catch_up``, events acknowledged before count. Raises `NotCaughtUpError`.
    """
    performed = _performers(database, store, now, REQUEST_TIMEOUT_S)

    def answered(project: Project, rule: PropertyFilter) -> Iterable[UUID]:
        if catch_up is not None:
            catch_up.require(project.id)
        try:
            with explained_failures(REQUEST_TIMEOUT_S):
                return performed(project, rule)
        except CohortError as error:
            raise validation_error(str(error)) from error
        except ComputationError as error:
            raise wire_error(error) from error

    return answered


def _performers(
    database: Database, store: EventReader, now: Callable[[], datetime], timeout_s: float
) -> Callable[[Project, PropertyFilter], Iterable[UUID]]:

    def performed(project: Project, rule: PropertyFilter) -> Iterable[UUID]:
        sql, parameters = _statement(database, store.dialect, project, rule, now())
        with store.reader() as reader:
            rows = reader.execute(sql, parameters, timeout_s=timeout_s)
        return (person_id if isinstance(person_id, UUID) else UUID(str(person_id)) for (person_id,) in rows)

    return performed


def _statement(
    database: Database, dialect: Dialect, project: Project, rule: PropertyFilter, now: datetime
) -> tuple[str, Mapping[str, Any]]:
    parameters = dialect.parameters()
    scope = FilterScope(RelationRow(dialect, parameters), now, zone_of(project.timezone))
    try:
        matches = [_match_condition(match, scope) for match in _matches(database, project, rule)]
        filters = group_condition(_event_filters(rule), scope)
    except (FilterError, DefinitionError) as error:
        raise CohortError(f"The rule about {rule.key} cannot be calculated: {error}") from None
    conditions = [
        f"project_id = {parameters.bind(project.id)}",
        "person_id IS NOT NULL",
        combined("OR", matches),
        filters,
    ]
    since = _since(rule, now)
    if since is not None:
        conditions.append(f"timestamp >= {parameters.bind(since)}")
    sql = f"SELECT DISTINCT person_id FROM {RESOLVED_EVENTS} WHERE {combined('AND', conditions)}"  # noqa: S608
    return sql, parameters.values


def _event_filters(rule: PropertyFilter) -> PropertyGroup:
    return parse_filters(rule.extra.get("event_filters"), "event_filters")


def _matches(database: Database, project: Project, rule: PropertyFilter) -> Iterable[EventMatch]:
    if rule.extra.get("event_type") != "actions":
        return [EventMatch(rule.key)]
    action_id = int(rule.key) if rule.key.isdecimal() and len(rule.key) < 19 else 0
    with database.read() as connection:
        steps = actions.steps(connection, project.id, {action_id}).get(action_id)
    if steps is None:
        raise CohortError(f"Action {rule.key} does not exist.")
    return action_matches(steps)


def _match_condition(match: EventMatch, scope: FilterScope) -> str:
    named = [] if match.event is None else [f"event = {scope.parameters.bind(match.event)}"]
    return combined("AND", [*named, group_condition(match.filters, scope)])


def _since(rule: PropertyFilter, now: datetime) -> datetime | None:
    """Return the moment from which on events count; None for always."""
    explicit = rule.extra.get("explicit_datetime")
    if explicit is not None:
        return parse_moment(str(explicit))
    unit, count = rule.extra.get("time_interval"), rule.extra.get("time_value")
    if unit is None or count is None:
        return None
    try:
        if unit in _MONTHS:
            return months_before(now, int(count) * _MONTHS[unit])
        return now - timedelta(days=int(count) * _DAYS[unit])
    except OverflowError:
        return None
