"""Routes of ``/experiments/{id}/results`` and ``/experiments/results_summary``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.analysis.results.schemas import (
    ExperimentResultsOut,
    ResultsQuery,
    ResultSummaryOut,
    SummariesQuery,
)
from hoglab.http.management.routing import IntId, ResourceRouter

if TYPE_CHECKING:
    from hoglab.analysis.results.gathering import ExperimentResults
    from hoglab.analysis.results.summaries import ResultSummaries
    from hoglab.http.management.call import Call

SCOPES = ("experiment:read", "experiment:write")


def experiment_results_router(results: ExperimentResults, summaries: ResultSummaries) -> ResourceRouter:
    """Return the routes of an experiment's results, and of the summaries of many."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.get("/results_summary/", query=SummariesQuery, response=list[ResultSummaryOut])
    def results_summary(call: Call) -> list[dict[str, Any]]:
        """List the verdicts on several experiments, with the results of their first primary metrics, as far as known.

        Nothing is computed before the answer; verdicts that are missing or old are computed after it.
        """
        return summaries.read(call.project, call.validate_query(SummariesQuery).ids)

    @routes.get(
        "/{experiment_id}/results/",
        query=ResultsQuery,
        response=ExperimentResultsOut,
        heavy=True,
        versioned=True,
    )
    def experiment_results(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Read all metrics, exposures, health and the verdict of an experiment in one answer.

        Stored results are used where they are fresh, others are computed. After 15 seconds the answer names the
        parts that are still `pending`; their computation continues.
        """
        wanted = call.validate_query(ResultsQuery)
        return results.read(call.project, experiment_id, refresh=wanted.refresh)

    return routes
