"""The endpoints of results (spec experiments-api 8.2, 8.3; experiment-results 0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.analysis import schemas
from hoglab.analysis.live import LiveResults
from hoglab.http.responses import json_response
from hoglab.http.routing import IntId, ResourceRouter, either

if TYPE_CHECKING:
    from starlette.responses import Response

    from hoglab.analysis.service import ResultsService
    from hoglab.http.call import Call

_QUERY = either("query:read", "experiment:read")
SCOPES = ("experiment:read", "experiment:write")


def routers(service: ResultsService) -> list[ResourceRouter]:
    """Every router of this room."""
    return [results_router(service), query_router(LiveResults(service))]


def results_router(service: ResultsService) -> ResourceRouter:
    """``/experiments/{id}/timeseries_results`` and ``/experiments/{id}/recalculate_timeseries``."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.get(
        "/{experiment_id}/timeseries_results/",
        query=schemas.TimeseriesQuery,
        response=schemas.TimeseriesOut,
        heavy=True,
    )
    def timeseries_results(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """The daily results of one metric. Today's are computed when they are older than a minute."""
        return service.timeseries(
            call.project, experiment_id, call.query("metric_uuid"), call.query("fingerprint")
        )

    @routes.post(
        "/{experiment_id}/recalculate_timeseries/",
        body=schemas.RecalculateBody,
        response=schemas.RecalculationOut,
        status=201,
    )
    def recalculate_timeseries(call: Call, experiment_id: IntId) -> Response:
        """Compute all daily results of one metric anew. 200 with the running job when there is one."""
        job, created = service.recalculate(call.project, experiment_id, call.body)
        return json_response(job, 201 if created else 200)

    return routes


def query_router(live: LiveResults) -> ResourceRouter:
    """``/query``: live results and exposures."""
    routes = ResourceRouter("/query", tag="query", scopes=(_QUERY, _QUERY))

    @routes.post("/", body=schemas.QueryBody, heavy=True)
    def query(call: Call) -> dict[str, Any]:
        """Compute an ``ExperimentQuery`` or an ``ExperimentExposureQuery`` now."""
        return live.answer(call.project, call.body)

    return routes
