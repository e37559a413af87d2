"""Results and exposures computed when asked for: the ``/query`` endpoint (spec experiment-results 0, 2.6, 5.1)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from hoglab.actions.references import check_references
from hoglab.analysis.api.legacy import legacy_answer
from hoglab.analysis.api.schemas import KINDS
from hoglab.analysis.definitions import (
    METRIC_TYPES,
    ExperimentInputs,
    PlannedInputs,
    inputs_asked,
    is_computed,
    is_id,
    listed,
    named_cohorts,
    planned_inputs,
)
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.hogql import check_hogql, hogql_answer, read_hogql, unwrapped
from hoglab.analysis.planning import plan_answer, simulation_answer
from hoglab.analysis.presentation import result_object
from hoglab.analysis.query import Answer
from hoglab.analysis.query.model import Metric, Span
from hoglab.analysis.results import ExposureCounts
from hoglab.analysis.timeseries.query_cache import (
    CANCELLED,
    FRESH_FOR,
    CachedAnswer,
    PreparedQuery,
    RefreshMode,
)
from hoglab.analysis.trends import read_trends, trends_answer
from hoglab.experiments import store as experiments_store
from hoglab.http.errors import ApiError, not_found, validation_error
from hoglab.http.fields.dates import format_offset

if TYPE_CHECKING:
    from hoglab.analysis.api.schemas import QueryBody
    from hoglab.analysis.execution import Computer
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.analysis.timeseries.query_status import QueryStatus
    from hoglab.http.identity import Project

SILENT_FRESH_FOR = timedelta(minutes=1)
"""Time for which an answer is fresh that changes without any new event, as users mature."""

TRENDS_FRESH_FOR = timedelta(minutes=1)
"""Time for which an answer is fresh whose range ends now."""

MAX_FAMILY = 20
"""Maximum number of other primary metrics computed beside one whose p-values are corrected; of others the newest
stored points count."""
FAMILY_BUDGET_S = 20.0
"""Time limit for computing other primary metrics; of the remaining ones the newest stored points count."""


class LiveResults:
    """The answers to queries. Bad input, time-outs and memory limits are errors of the wire, never of the server."""

    def __init__(self, service: ResultsService, exposures: ExposureCounts | None = None) -> None:
        self._service = service
        self._exposures = exposures or ExposureCounts(service)

    def answer(self, project: Project, body: QueryBody) -> tuple[dict[str, Any], bool]:
        """Return the answer of one query, and whether it is complete; an incomplete one is being computed.

        Raises `ApiError`.
        """
        query = self._prepared(project, body.query)
        refresh = _refresh(body)
        queries = self._service.query_runner
        kept = None
        if not refresh.startswith("force_") or refresh is RefreshMode.FORCE_CACHE:
            anything = refresh in (RefreshMode.FORCE_CACHE, RefreshMode.LAZY_ASYNC)
            kept = queries.cached(query, fresh=not anything)
        if kept is not None or refresh is RefreshMode.FORCE_CACHE:
            return self._shown(project, query, kept, is_cached=True), True
        stale = queries.cached(query, fresh=False)
        if refresh in (RefreshMode.BLOCKING, RefreshMode.FORCE_BLOCKING) or (
            refresh is RefreshMode.ASYNC_EXCEPT_ON_CACHE_MISS and stale is None
        ):
            computed = queries.blocking(query, project.id, body.client_query_id)
            return self._shown(project, query, computed, is_cached=False), True
        status = queries.ask(query, project.id, body.query, body.client_query_id)
        shown = self._shown(
            project, query, None if refresh is RefreshMode.FORCE_ASYNC else stale, is_cached=True
        )
        return shown | {"query_status": self._status_object(status)}, False

    def check_named(self, project: Project, query: Mapping[str, Any]) -> None:
        """Raise 400 for a query about an action or a cohort that the project does not have."""
        identifier = query.get("experiment_id")
        with self._service.database.read() as connection:
            row = experiments_store.get(connection, project.id, identifier) if is_id(identifier) else None
            links = [] if row is None else experiments_store.links(connection, [row.id]).get(row.id, [])
            stored = [] if row is None else [row.metrics, row.metrics_secondary, row.exposure_criteria]
            stored += [link.query for link in links]
            check_references(connection, project.id, {"query": query}, stored)

    def status(self, project: Project, query_id: str) -> tuple[dict[str, Any], int]:
        """Return an asynchronous query and the HTTP status that says how far it is. Raises 404."""
        query = self._service.query_runner.status(project.id, query_id, partial(self._prepared, project))
        if query is None:
            raise not_found(f"Query {query_id} not found for project {project.id}")
        code = 202 if not query.complete else 400 if query.error is not None or query.cancelled else 200
        return {"query_status": self._status_object(query)}, code

    def cancel(self, project: Project, query_id: str) -> None:
        """Cancel a query; one that has ended, or is unknown, is left alone."""
        self._service.query_runner.cancel(project.id, query_id)

    def _shown(
        self, project: Project, query: PreparedQuery, kept: CachedAnswer | None, *, is_cached: bool
    ) -> dict[str, Any]:
        """Return an answer with the fields common to all queries; without an answer, only that it is missing."""
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

    def _status_object(self, status: QueryStatus) -> dict[str, Any]:
        failed = status.cancelled or status.error is not None
        ended = status.ended_at
        return {
            "id": status.id,
            "team_id": status.project_id,
            "query_async": True,
            "complete": status.complete,
            "error": failed,
            "error_message": CANCELLED if status.cancelled else status.error,
            "results": status.results,
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

    def _prepared(self, project: Project, query: Mapping[str, Any]) -> PreparedQuery:
        """Prepare the computation of a query. Raises `ApiError`."""
        try:
            query = unwrapped(query)
            match query.get("kind"):
                case "ExperimentQuery":
                    return self._result(project, query)
                case "ExperimentExposureQuery":
                    return self._exposures.of_query(project, query)
                case "ExperimentPlanQuery":
                    return self._from_history(project, query, plan_answer)
                case "ExperimentSimulationQuery":
                    return self._from_history(project, query, simulation_answer)
                case "TrendsQuery":
                    return self._trends(project, query)
                case "HogQLQuery":
                    return self._hogql(project, query)
                case "ExperimentTrendsQuery" | "ExperimentFunnelsQuery":
                    return self._legacy(project, query)
        except DefinitionError as error:
            raise validation_error(str(error)) from error
        raise validation_error(
            f"Queries of kind {query.get('kind')!r} are not supported; there are {listed(KINDS)}.",
            "query__kind",
            "invalid_choice",
        )

    def _prepare(
        self, project: Project, identity: object, work: Callable[[], dict[str, Any]], **options: Any
    ) -> PreparedQuery:
        return PreparedQuery.of(project, self._service.now(), identity, work, **options)

    # -- results ---------------------------------------------------------------------------------------

    def _result(self, project: Project, query: Mapping[str, Any]) -> PreparedQuery:
        given = query.get("metric")
        inputs = self._inputs_asked(project, query, *([given] if isinstance(given, Mapping) else []))
        metric = _metric_asked(inputs, query)
        family = inputs.others_of_family(metric)

        def compute() -> dict[str, Any]:
            span = inputs.span(self._service.now())
            if span is None:
                return _result_of(inputs, Answer({}), inputs.reader.metric(metric))
            return self._computed(project, inputs, metric, span, family)

        def finish(result: dict[str, Any]) -> dict[str, Any]:
            others = self._service.newest_of_family(inputs, metric) if family else {}
            for other in family:
                kept = self._service.query_runner.cached(
                    self._prepared_result(project, inputs, other), fresh=False
                )
                if kept is not None:
                    others[other["uuid"]] = kept.answer
            return inputs.corrected(metric, result, others)

        return self._prepared_result(project, inputs, metric, compute, finish=finish)

    def _prepared_result(
        self,
        project: Project,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        compute: Callable[[], dict[str, Any]] = dict,
        **options: Any,
    ) -> PreparedQuery:
        return self._prepare(
            project,
            (
                "result",
                inputs.identity,
                self._table_state(inputs, metric),
                json.dumps(metric, sort_keys=True),
            ),
            compute,
            fresh_for=SILENT_FRESH_FOR if inputs.row.only_count_matured_users else FRESH_FOR,
            **options,
        )

    def _table_state(self, inputs: ExperimentInputs | PlannedInputs, metric: object) -> str | None:
        """Return the digest of a metric's files, as an answer from other files does not count; None without tables."""
        tables = inputs.tables_of(metric) if isinstance(metric, Mapping) else ()
        return self._service.computer.state_of_tables(tables)

    def _computed(
        self,
        project: Project,
        inputs: ExperimentInputs,
        metric: Mapping[str, Any],
        span: Span,
        family: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Compute the result of a metric; results of its family that are not cached are computed and cached with it."""
        question, queries = inputs.question(metric, span), self._service.query_runner
        missing = []
        for other in family[:MAX_FAMILY]:
            if queries.cached(self._prepared_result(project, inputs, other), fresh=True) is None:
                with suppress(DefinitionError):
                    missing.append((other, inputs.question(other, span)))
        deadline = time.monotonic() + FAMILY_BUDGET_S
        with self._service.computer.sharing(
            [question, *(missing_question for _, missing_question in missing)]
        ) as answer:
            result = _result_of(inputs, answer(question), question.metric)
            for other, asked in missing:
                if time.monotonic() >= deadline:
                    break
                work = partial(lambda asked: _result_of(inputs, answer(asked), asked.metric), asked)
                with suppress(ApiError):
                    queries.compute(self._prepared_result(project, inputs, other, work))
        return result

    def _legacy(self, project: Project, query: Mapping[str, Any]) -> PreparedQuery:
        parts = [part for part in query.values() if isinstance(part, Mapping)]
        inputs = self._inputs_asked(project, query, *parts)
        return self._prepare(
            project,
            ("legacy", inputs.identity, json.dumps(query, sort_keys=True)),
            lambda: legacy_answer(inputs, inputs.span(self._service.now()), query, self._service.computer),
        )

    def _trends(self, project: Project, query: Mapping[str, Any]) -> PreparedQuery:
        now = self._service.now()
        with self._service.database.read() as connection:
            cohorts = named_cohorts(connection, project.id, [query, project.test_account_filters])
        asked = read_trends(project, query, now, cohorts)
        return self._prepare(
            project,
            ("trends", json.dumps([query, project.test_account_filters], sort_keys=True), cohorts),
            lambda: trends_answer(self._service.computer.runner, project.id, asked, now),
            fresh_for=TRENDS_FRESH_FOR,
        )

    def _hogql(self, project: Project, query: Mapping[str, Any]) -> PreparedQuery:
        now, asked = self._service.now(), read_hogql(query)
        check_hogql(self._service.computer.runner.dialect, project, asked, now)
        return self._prepare(
            project,
            ("hogql", json.dumps([query.get("query"), query.get("values")], sort_keys=True)),
            lambda: hogql_answer(self._service.computer.runner, project, asked, str(query["query"]), now),
            is_cacheable=False,
        )

    def _from_history(
        self,
        project: Project,
        query: Mapping[str, Any],
        answer: Callable[[PlannedInputs, Mapping[str, Any], datetime, Computer], dict[str, Any]],
    ) -> PreparedQuery:
        parts = [part for name, part in query.items() if name != "experiment" and isinstance(part, Mapping)]
        inputs = planned_inputs(self._service.database, project, query, *parts)
        return self._prepare(
            project,
            (
                "history",
                inputs.identity,
                self._table_state(inputs, query.get("metric")),
                json.dumps(query, sort_keys=True),
            ),
            lambda: answer(inputs, query, self._service.now(), self._service.computer),
        )

    def _inputs_asked(
        self, project: Project, query: Mapping[str, Any], *further: Mapping[str, Any]
    ) -> ExperimentInputs:
        return inputs_asked(self._service.database, project, query, *further)


def _metric_asked(inputs: ExperimentInputs, query: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metric of a query: the one given, the experiment's with its uuid, or the first primary one.

    Raises 400.
    """
    metric = query.get("metric")
    if metric is not None and not isinstance(metric, Mapping):
        raise validation_error("metric must be an object", "metric")
    if metric and "metric_type" in metric:
        return metric
    uuid = (metric or {}).get("uuid") or query.get("metric_uuid")
    if uuid is None and metric:
        raise validation_error(
            f"metric needs a metric_type: there are {listed(METRIC_TYPES)}; or the uuid of a metric of the experiment",
            "metric",
        )
    own = [shown_metric for shown_metric in inputs.shown if is_computed(shown_metric.metric)]
    if uuid is None:
        first = next((shown_metric.metric for shown_metric in own if shown_metric.is_primary), None)
        if first is not None:
            return first
        raise validation_error("metric is required: the experiment has no primary metric", "metric")
    for shown in own:
        if shown.metric["uuid"] == uuid:
            return shown.metric
    names = (
        listed([f"{shown_metric.metric['uuid']} ({shown_metric.name})" for shown_metric in own])
        if own
        else "none"
    )
    raise validation_error(f"The experiment has no metric with uuid {uuid}; it has {names}", "metric_uuid")


def _result_of(inputs: ExperimentInputs, answer: Answer, metric: Metric) -> dict[str, Any]:
    calculation = inputs.calculation
    return result_object(answer, list(calculation.variants), calculation.statistics, metric)


def _refresh(body: QueryBody) -> RefreshMode:
    """Read the refresh mode of a request. Raises 400."""
    if body.async_:
        return RefreshMode.ASYNC
    match body.refresh:
        case None:
            return RefreshMode.BLOCKING
        case True:
            return RefreshMode.FORCE_BLOCKING
        case False:
            return RefreshMode.FORCE_CACHE
        case text if text in list(RefreshMode):
            return RefreshMode(text)
    raise validation_error(f'"{body.refresh}" is not a valid choice.', "refresh", "invalid_choice")
