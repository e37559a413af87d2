"""The endpoints of results (spec experiments-api 8.2, 8.3; experiment-results 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.analysis.api import schemas
from hoglab.analysis.api.live import LiveResults
from hoglab.analysis.results import (
    SCOPES,
    Briefs,
    BriefWriter,
    ExperimentHealth,
    ExperimentResults,
    ExposureCounts,
    LaunchChecks,
    ResultSummaries,
    experiment_results_router,
)
from hoglab.analysis.timeseries import Recalculations
from hoglab.experiments.definitions import metrics
from hoglab.http.fields.unknown_keys import warnings_of_body, with_warnings
from hoglab.http.fields.wire import DetailText
from hoglab.http.management.routing import IntId, ResourceRouter, TextId, either
from hoglab.http.responses import empty_response, json_response

if TYPE_CHECKING:
    from starlette.responses import Response

    from hoglab.analysis.timeseries import ResultsService
    from hoglab.http.management.call import Call
    from hoglab.storage.event_store import EventReader

_QUERY = either("query:read", "experiment:read")


def routers(service: ResultsService, events: EventReader) -> list[ResourceRouter]:
    """Return every router of this room."""
    exposures = ExposureCounts(service)
    live = LiveResults(service, exposures)
    health = ExperimentHealth(service, exposures, events)
    briefs = Briefs(service.now)
    writer = BriefWriter(
        service.query_runner, ExperimentResults.of(service, events, briefs=briefs, budget_s=None).read
    )
    return [
        results_router(service),
        recalculations_router(Recalculations(service)),
        query_router(live),
        health_router(health, LaunchChecks(service, events)),
        experiment_results_router(
            ExperimentResults.of(service, events, briefs=briefs),
            ResultSummaries(service, exposures, briefs, writer),
        ),
    ]


def health_router(health: ExperimentHealth, launch_checks: LaunchChecks) -> ResourceRouter:
    """Return the routes of ``/experiments/{id}/health`` and ``/experiments/{id}/launch_checks``."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.get("/{experiment_id}/health/", response=schemas.HealthOut, heavy=True, reads_events=True)
    def experiment_health(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """List findings about an experiment, each with what is wrong and what to do about it."""
        return health.examine(call.project, experiment_id)

    @routes.get(
        "/{experiment_id}/launch_checks/", response=schemas.LaunchChecksOut, heavy=True, reads_events=True
    )
    def read_launch_checks(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """List the conditions that an experiment should meet before its launch. The launch does not depend on them."""
        return launch_checks.read(call.project, experiment_id)

    return routes


def results_router(service: ResultsService) -> ResourceRouter:
    """Return the routes of ``/experiments/{id}/timeseries_results`` and ``/recalculate_timeseries``."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.get(
        "/{experiment_id}/timeseries_results/",
        query=schemas.TimeseriesQuery,
        response=schemas.TimeseriesOut,
        heavy=True,
        reads_events=True,
    )
    def timeseries_results(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """List the daily results of one metric. Today's are computed when they are older than a minute."""
        return service.timeseries(
            call.project, experiment_id, call.query("metric_uuid"), call.query("fingerprint")
        )

    @routes.post(
        "/{experiment_id}/recalculate_timeseries/",
        body=schemas.RecalculateBody,
        response=schemas.RecalculationOut,
        status=201,
        answers={200: schemas.RecalculationOut},
    )
    def recalculate_timeseries(call: Call, experiment_id: IntId) -> Response:
        """Recalculate all daily results of one metric. 200 with the running job when there is one."""
        job, created = service.recalculate(call.project, experiment_id, call.body)
        return json_response(job, 201 if created else 200)

    return routes


def recalculations_router(recalculations: Recalculations) -> ResourceRouter:
    """Return the routes of ``/experiments/{id}/metrics_recalculation``."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.post(
        "/{experiment_id}/metrics_recalculation/",
        body=schemas.MetricsRecalculationBody,
        response=schemas.MetricsRecalculationOut,
        status=201,
        answers={200: schemas.MetricsRecalculationOut},
    )
    def recalculate_metrics(call: Call, experiment_id: IntId) -> Response:
        """Compute all metrics of an experiment at one moment. 200 with the running job when there is one."""
        recalculations.check_found(call.project, experiment_id)
        body = call.validate(schemas.MetricsRecalculationBody)
        job, created = recalculations.request(call.project, experiment_id, body.trigger)
        return json_response(job, 201 if created else 200)

    @routes.get(
        "/{experiment_id}/metrics_recalculation/latest/",
        response=schemas.MetricsRecalculationResultsOut,
        answers={404: DetailText},
    )
    def latest_recalculation(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Read the newest results of all metrics: of the last completed job, else of the daily points."""
        return recalculations.latest(call.project, experiment_id)

    @routes.get(
        "/{experiment_id}/metrics_recalculation/{recalculation_id}/",
        response=schemas.MetricsRecalculationResultsOut,
        answers={404: DetailText},
    )
    def read_recalculation(call: Call, experiment_id: IntId, recalculation_id: TextId) -> dict[str, Any]:
        """Read a job and its results so far."""
        return recalculations.read(call.project, experiment_id, recalculation_id)

    return routes


def query_router(live: LiveResults) -> ResourceRouter:
    """Return the routes of ``/query``: live results and exposures."""
    routes = ResourceRouter("/query", tag="query", scopes=(_QUERY, _QUERY))

    @routes.post(
        "/",
        body=schemas.QueryBody,
        response=schemas.QueryOut,
        answers={202: schemas.QueryOut},
        heavy=True,
        reads_events=True,
    )
    def query(call: Call) -> Response:
        """Answer an ``ExperimentQuery`` or an ``ExperimentExposureQuery``, by computing or from a cached answer.

        ``refresh`` says when it is computed. A cached answer is fresh until a new event arrives. 202: the answer is
        being computed, see ``query_status``.
        """
        body = call.validate(schemas.QueryBody)
        live.check_named(call.project, body.query)
        answer, is_whole = live.answer(call.project, body)
        warnings = warnings_of_body(schemas.QueryBody, schemas.QueryOut, call.body)
        warnings += metrics.warnings_of(body.query.get("metric"), ("query", "metric"))
        return json_response(with_warnings(answer, warnings), 200 if is_whole else 202)

    @routes.get(
        "/{query_id}/",
        response=schemas.QueryStatusAnswer,
        answers={202: schemas.QueryStatusAnswer, 400: schemas.QueryStatusAnswer},
    )
    def query_status(call: Call, query_id: TextId) -> Response:
        """Read the progress of an asynchronous query, with its results once they are there. 202 while it runs."""
        answer, status = live.status(call.project, query_id)
        return json_response(answer, status)

    @routes.delete("/{query_id}/", status=204)
    def cancel_query(call: Call, query_id: TextId) -> Response:
        """Cancel a running query, by the id of its status or its ``client_query_id``."""
        live.cancel(call.project, query_id)
        return empty_response(204)

    return routes
