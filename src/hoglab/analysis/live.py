"""Results and exposures computed when asked for: the ``/query`` endpoint (spec experiment-results 0, 2.6, 5.1)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeGuard

from hoglab.actions.references import check_references
from hoglab.analysis.days import DayGrid, day_of, zone_of
from hoglab.analysis.definition import Reader
from hoglab.analysis.errors import ComputationError, DefinitionError, UnavailableError
from hoglab.analysis.experiment_plan import plan_answer
from hoglab.analysis.experiment_simulation import simulation_answer
from hoglab.analysis.legacy import legacy_answer
from hoglab.analysis.plan import Plan, plan
from hoglab.analysis.presentation import result_object
from hoglab.analysis.queries import FRESH_FOR, Kept, Prepared, Refresh, Status
from hoglab.analysis.query.model import Cohort, EventSource, MeanMetric, Metric, Question, Span, Value
from hoglab.analysis.query.statements import Answer
from hoglab.experiments import flag_config
from hoglab.experiments import store as experiments_store
from hoglab.experiments.fingerprint import Calculation
from hoglab.experiments.presentation import live_key
from hoglab.http.dates import format_offset, parse_moment
from hoglab.http.errors import STORE_RETRY_S, ApiError, not_found, unavailable, validation_error
from hoglab.statistics import StatisticsConfig, bias_risk, sample_ratio_mismatch

if TYPE_CHECKING:
    from hoglab.analysis.compute import Computer
    from hoglab.analysis.schemas import QueryBody
    from hoglab.analysis.service import ResultsService
    from hoglab.experiments.store import ExperimentRow
    from hoglab.http.identity import Project

MAX_EXPOSURE_ROWS = 5000
"""How many (day, variant) pairs an exposure response may have; of more days only the last ones are given."""

SILENT_FRESH_FOR = timedelta(minutes=1)
"""How long an answer is fresh that changes without any new event: users mature."""

MAX_FAMILY = 20
"""How many other primary metrics are computed beside one whose p-values are corrected; of further ones the newest
stored points count."""
FAMILY_BUDGET_S = 20.0
"""How long that may take; of those that are left the newest stored points count."""


class LiveResults:
    """Answers queries. Bad input, time-outs and memory limits are errors of the wire, never of the server."""

    def __init__(self, service: ResultsService) -> None:
        self._service = service

    def answer(self, project: Project, body: QueryBody) -> tuple[dict[str, Any], bool]:
        """The answer of one query, and whether it is a whole one; else it is being computed. Raises `ApiError`."""
        query = self._prepared(project, body.query)
        refresh = _refresh(body)
        queries = self._service.queries
        kept = None
        if not refresh.startswith("force_") or refresh is Refresh.FORCE_CACHE:
            anything = refresh in (Refresh.FORCE_CACHE, Refresh.LAZY_ASYNC)
            kept = queries.kept(query, fresh=not anything)
        if kept is not None or refresh is Refresh.FORCE_CACHE:
            return self._shown(project, query, kept, is_cached=True), True
        stale = queries.kept(query, fresh=False)
        if refresh in (Refresh.BLOCKING, Refresh.FORCE_BLOCKING) or (
            refresh is Refresh.ASYNC_EXCEPT_ON_CACHE_MISS and stale is None
        ):
            made = queries.blocking(query, project.id, body.client_query_id)
            return self._shown(project, query, made, is_cached=False), True
        status = queries.submit(query, project.id, body.client_query_id)
        shown = self._shown(project, query, None if refresh is Refresh.FORCE_ASYNC else stale, is_cached=True)
        return shown | {"query_status": self._status_object(status)}, False

    def check_named(self, project: Project, query: Mapping[str, Any]) -> None:
        """Raises 400 for a query about an action or a cohort that the project does not have."""
        identifier = query.get("experiment_id")
        with self._service.database.read() as connection:
            row = experiments_store.get(connection, project.id, identifier) if _is_id(identifier) else None
            links = [] if row is None else experiments_store.links(connection, [row.id]).get(row.id, [])
            stored = [] if row is None else [row.metrics, row.metrics_secondary, row.exposure_criteria]
            stored += [link.query for link in links]
            check_references(connection, project.id, {"query": query}, stored)

    def status(self, project: Project, query_id: str) -> tuple[dict[str, Any], int]:
        """An asynchronous query and the HTTP status that says how far it is. Raises 404."""
        found = self._service.queries.status(project.id, query_id)
        if found is None:
            raise not_found(f"Query {query_id} not found for project {project.id}")
        code = 202 if not found.complete else 400 if found.error is not None or found.cancelled else 200
        return {"query_status": self._status_object(found)}, code

    def cancel(self, project: Project, query_id: str) -> None:
        """Ask a query to end; one that has ended, or is unknown, is left alone."""
        self._service.queries.cancel(project.id, query_id)

    def _shown(
        self, project: Project, query: Prepared, kept: Kept | None, *, is_cached: bool
    ) -> dict[str, Any]:
        """An answer with what every query's answer carries; without an answer only that it is missing."""
        if kept is None:
            return {
                "cache_key": query.key,
                "is_cached": False,
                "last_refresh": format_offset(self._service.now()),
                "query_status": None,
                "timezone": project.timezone,
            }
        computed = format_offset(kept.computed_at)
        return query.finish(kept.answer) | {
            "cache_key": kept.key,
            "cache_target_age": format_offset(kept.computed_at + FRESH_FOR),
            "calculation_trigger": None,
            "is_cached": is_cached,
            "last_refresh": computed,
            "next_allowed_client_refresh": computed,
            "query_status": None,
            "timezone": project.timezone,
        }

    def _status_object(self, status: Status) -> dict[str, Any]:
        failed = status.cancelled or status.error is not None
        message = None
        if status.cancelled:
            message = "Query was cancelled"
        elif status.error is not None:
            message = str((status.error.body or {}).get("detail"))
        ended = status.ended_at
        return {
            "id": status.id,
            "team_id": status.project_id,
            "query_async": True,
            "complete": status.complete,
            "error": failed,
            "error_message": message,
            "results": None if status.kept is None else status.kept.answer,
            "start_time": format_offset(status.started_at),
            "pickup_time": None,
            "end_time": None if ended is None else format_offset(ended),
            "expiration_time": None,
            "task_id": None,
            "dashboard_id": None,
            "insight_id": None,
            "labels": None,
            "query_progress": None,
        }

    def _prepared(self, project: Project, query: Mapping[str, Any]) -> Prepared:
        """Understand a query. Raises `ApiError`."""
        try:
            match query.get("kind"):
                case "ExperimentQuery":
                    return self._result(project, query)
                case "ExperimentExposureQuery":
                    asked = self._asked(project, query)
                    return self._prepare(project, asked.identity, lambda: self._counted(project, asked))
                case "ExperimentPlanQuery":
                    return self._from_history(project, query, plan_answer)
                case "ExperimentSimulationQuery":
                    return self._from_history(project, query, simulation_answer)
                case "ExperimentTrendsQuery" | "ExperimentFunnelsQuery":
                    return self._legacy(project, query)
        except DefinitionError as error:
            raise validation_error(str(error)) from error
        raise validation_error(f"Queries of kind {query.get('kind')!r} are not supported.", "query")

    def _prepare(
        self, project: Project, identity: object, work: Callable[[], dict[str, Any]], **options: Any
    ) -> Prepared:
        """``identity`` holds everything that decides the answer, apart from events and the time of asking."""
        key = hashlib.sha256(repr((project.id, project.timezone, identity)).encode()).hexdigest()
        today = day_of(self._service.now(), zone_of(project.timezone))
        return Prepared(key, today, lambda: self._explained(work), **options)

    def _explained(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return work()
        except DefinitionError as error:
            raise validation_error(str(error)) from error
        except ComputationError as error:
            raise wire_error(error) from error

    # -- results ---------------------------------------------------------------------------------------

    def _result(self, project: Project, query: Mapping[str, Any]) -> Prepared:
        metric = query.get("metric")
        found = self._plan_asked(project, query, *([metric] if isinstance(metric, Mapping) else []))
        if not isinstance(metric, Mapping):
            raise validation_error("metric is required")
        family = self._service.others_of_family(found, metric)

        def compute() -> dict[str, Any]:
            span = found.span(self._service.now())
            if span is None:
                return _result_of(found, Answer({}), found.reader.metric(metric))
            return self._computed(project, found, metric, span, family)

        def finish(result: dict[str, Any]) -> dict[str, Any]:
            others = self._service.newest_of_family(found, metric)
            for other in family:
                kept = self._service.queries.kept(self._prepared_result(project, found, other), fresh=False)
                if kept is not None:
                    others[other["uuid"]] = kept.answer
            return self._service.corrected(found, metric, result, others)

        return self._prepared_result(project, found, metric, compute, finish=finish)

    def _prepared_result(
        self,
        project: Project,
        found: Plan,
        metric: Mapping[str, Any],
        compute: Callable[[], dict[str, Any]] = dict,
        **options: Any,
    ) -> Prepared:
        return self._prepare(
            project,
            ("result", found.identity, self._table_state(found, metric), json.dumps(metric, sort_keys=True)),
            compute,
            fresh_for=SILENT_FRESH_FOR if found.row.only_count_matured_users else FRESH_FOR,
            **options,
        )

    def _table_state(self, found: Plan, metric: object) -> str | None:
        """An answer that was computed from other files is no answer."""
        tables = found.tables_of(metric) if isinstance(metric, Mapping) else ()
        return self._service.computer.state_of_tables(tables)

    def _computed(
        self,
        project: Project,
        found: Plan,
        metric: Mapping[str, Any],
        span: Span,
        family: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """The result of a metric; those of its family that are not kept are computed and kept beside it."""
        question, queries = found.question(metric, span), self._service.queries
        missing = []
        for other in family[:MAX_FAMILY]:
            if queries.kept(self._prepared_result(project, found, other), fresh=True) is None:
                with suppress(DefinitionError):
                    missing.append((other, found.question(other, span)))
        deadline = time.monotonic() + FAMILY_BUDGET_S
        with self._service.computer.sharing([question, *(each for _, each in missing)]) as answer:
            result = _result_of(found, answer(question), question.metric)
            for other, asked in missing:
                if time.monotonic() >= deadline:
                    break
                work = partial(lambda asked: _result_of(found, answer(asked), asked.metric), asked)
                with suppress(ApiError):
                    queries.compute(self._prepared_result(project, found, other, work))
        return result

    def _legacy(self, project: Project, query: Mapping[str, Any]) -> Prepared:
        parts = [part for part in query.values() if isinstance(part, Mapping)]
        found = self._plan_asked(project, query, *parts)
        return self._prepare(
            project,
            ("legacy", found.identity, json.dumps(query, sort_keys=True)),
            lambda: legacy_answer(found, found.span(self._service.now()), query, self._service.computer),
        )

    def _from_history(
        self,
        project: Project,
        query: Mapping[str, Any],
        answer: Callable[[Plan, Mapping[str, Any], datetime, Computer], dict[str, Any]],
    ) -> Prepared:
        parts = [part for part in query.values() if isinstance(part, Mapping)]
        found = self._plan_asked(project, query, *parts)
        return self._prepare(
            project,
            (
                "history",
                found.identity,
                self._table_state(found, query.get("metric")),
                json.dumps(query, sort_keys=True),
            ),
            lambda: answer(found, query, self._service.now(), self._service.computer),
        )

    def _plan_asked(self, project: Project, query: Mapping[str, Any], *further: Mapping[str, Any]) -> Plan:
        identifier = query.get("experiment_id")
        if not _is_id(identifier):
            raise validation_error("experiment_id is required")
        return self._plan(project, identifier, *further)

    def _plan(self, project: Project, experiment_id: int, *further: Mapping[str, Any]) -> Plan:
        with self._service.database.read() as connection:
            row = experiments_store.get(connection, project.id, experiment_id)
            if row is None or row.deleted:
                raise validation_error(f"Experiment with id {experiment_id} not found")
            return plan(connection, project, row, further=further)

    # -- exposures -------------------------------------------------------------------------------------

    def exposures_of(self, found: Plan) -> dict[str, Any]:
        """The exposures of an experiment as it is stored. Raises `ApiError`."""
        flag, row = found.flag, found.row
        key = found.calculation.feature_flag_key
        filters = {} if flag is None else flag.filters
        asked = _Asked.of(
            found.project, key, filters, row.exposure_criteria, row.start_date, row.end_date, found
        )
        return self._explained(lambda: self._counted(found.project, asked))

    def _counted(self, project: Project, asked: _Asked) -> dict[str, Any]:
        start, end, now = asked.start, asked.end, self._service.now()
        zone = zone_of(project.timezone)
        answer: dict[str, Any] = {
            "kind": "ExperimentExposureQuery",
            "timeseries": [],
            "total_exposures": {},
            "date_range": {
                "date_from": None if start is None else start.astimezone(zone).isoformat(),
                "date_to": None if end is None else end.astimezone(zone).isoformat(),
                "explicitDate": True,
            },
            "sample_ratio_mismatch": None,
            "bias_risk": None,
        }
        if start is None or start > now:
            return answer
        until = max(start, min(now, end) if end is not None else now)
        variants = asked.calculation.variants
        grid = DayGrid.between(start, until, zone, limit=MAX_EXPOSURE_ROWS // (len(variants) + 1))
        question = Question(
            exposures=Reader(asked.actions.get).exposures(project.id, asked.calculation),
            span=Span(start, until, now, grid),
            metric=MeanMetric(Value(EventSource(()))),
            zone=project.timezone,
            cohorts=asked.cohorts,
        )
        counts = self._service.computer.exposures(question)
        totals = {key: sum(days) for key, days in counts.items()}
        days = [day.isoformat() for day in grid.days]
        answer["timeseries"] = [
            {"variant": key, "days": days, "exposure_counts": list(accumulate(new))}
            for key, new in counts.items()
        ]
        answer["total_exposures"] = totals
        answer["sample_ratio_mismatch"] = _mismatch(totals, asked)
        answer["bias_risk"] = _bias(totals, asked, ended=end is not None and end <= now)
        return answer

    def _asked(self, project: Project, query: Mapping[str, Any]) -> _Asked:
        """What the query says, with the experiment behind it where the query is silent."""
        flag = query.get("feature_flag")
        key = flag.get("key") if isinstance(flag, Mapping) else None
        if not isinstance(key, str) or not key:
            raise validation_error("feature_flag key is required")
        criteria = query.get("exposure_criteria")
        criteria = criteria if isinstance(criteria, Mapping) and criteria else None
        filters = flag.get("filters") if isinstance(flag, Mapping) else None
        filters = (
            filters if isinstance(filters, Mapping) and flag_config.variant_keys(dict(filters)) else None
        )
        found: Plan | None = None
        if _is_id(query.get("experiment_id")):
            found = self._plan(project, query["experiment_id"])
        start, end = _moment(query, "start_date"), _moment(query, "end_date")
        if found is not None:
            start = start if "start_date" in query else found.row.start_date
            end = end if "end_date" in query else found.row.end_date
            filters = filters if filters is not None or found.flag is None else found.flag.filters
            criteria = criteria if criteria is not None else found.row.exposure_criteria
        return _Asked.of(project, key, dict(filters or {}), criteria, start, end, found)


@dataclass(frozen=True, slots=True)
class _Asked:
    """An exposure query with everything filled in."""

    calculation: Calculation
    rollout: Mapping[str, float]
    start: datetime | None
    end: datetime | None
    actions: Mapping[int, Any]
    cohorts: Mapping[int, Cohort]

    @property
    def identity(self) -> object:
        """Everything that decides the counts."""
        return ("exposures", self.calculation, self.rollout, self.start, self.end, self.actions, self.cohorts)

    @classmethod
    def of(
        cls,
        project: Project,
        key: str,
        filters: dict[str, Any],
        criteria: Mapping[str, Any] | None,
        start: datetime | None,
        end: datetime | None,
        found: Plan | None,
    ) -> _Asked:
        row: ExperimentRow | None = None if found is None else found.row
        excluded = set(row.excluded_variants) if row is not None else set()
        variants = [variant for variant in flag_config.variant_keys(filters) if variant not in excluded]
        base = (
            found.calculation
            if found is not None
            else Calculation(
                start_date=start,
                feature_flag_key=live_key(key),
                variants=variants,
                statistics=StatisticsConfig(),
                test_account_filters=project.test_account_filters,
                timezone=project.timezone,
            )
        )
        calculation = replace(
            base,
            feature_flag_key=live_key(key),
            variants=variants,
            exposure_criteria=criteria,
            aggregation_group_type_index=filters.get("aggregation_group_type_index"),
        )
        rollout = {
            variant["key"]: float(variant.get("rollout_percentage") or 0)
            for variant in (filters.get("multivariate") or {}).get("variants") or []
            if isinstance(variant, Mapping) and variant.get("key") in variants
        }
        actions = {} if found is None else found.actions
        return cls(calculation, rollout, start, end, actions, {} if found is None else found.cohorts)


def _result_of(found: Plan, answer: Answer, metric: Metric) -> dict[str, Any]:
    calculation = found.calculation
    return result_object(answer, list(calculation.variants), calculation.statistics, metric)


def _mismatch(totals: Mapping[str, int], asked: _Asked) -> dict[str, Any] | None:
    found = sample_ratio_mismatch(totals, asked.rollout)
    return None if found is None else {"expected": found.expected, "p_value": found.p_value}


def _bias(totals: Mapping[str, int], asked: _Asked, *, ended: bool) -> dict[str, Any] | None:
    criteria = asked.calculation.exposure_criteria or {}
    found = bias_risk(
        totals,
        list(asked.rollout.values()),
        excludes_multiple=criteria.get("multiple_variant_handling") != "first_seen",
        ended=ended,
    )
    return None if found is None else {"multiple_variant_percentage": found.multiple_variant_percentage}


def wire_error(error: ComputationError) -> ApiError:
    """How a request learns that something could not be computed: 503 when the server is at fault, 429 when it may be
    asked again, else 400."""
    if isinstance(error, UnavailableError):
        return unavailable(str(error), STORE_RETRY_S)
    if error.retry:
        return ApiError(429, "throttled_error", "query_limit", str(error), headers={"Retry-After": "30"})
    return validation_error(str(error))


def _refresh(body: QueryBody) -> Refresh:
    """What a request asks for. Raises 400."""
    if body.async_:
        return Refresh.ASYNC
    match body.refresh:
        case None:
            return Refresh.BLOCKING
        case True:
            return Refresh.FORCE_BLOCKING
        case False:
            return Refresh.FORCE_CACHE
        case text if text in list(Refresh):
            return Refresh(text)
    raise validation_error(f'"{body.refresh}" is not a valid choice.', "refresh", "invalid_choice")


def _moment(query: Mapping[str, Any], name: str) -> datetime | None:
    value = query.get(name)
    if value is None:
        return None
    try:
        return parse_moment(str(value))
    except ValueError:
        raise validation_error(f"{name} is not a date-time", name) from None


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
