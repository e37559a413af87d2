"""Endpoints of runs: their outcomes, and the health of functions. Ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.delivery.api.routes import READ, WRITE
from hoglab.delivery.api.schemas import RUN_STATUSES, FunctionHealthOut, RunPage, RunsQuery
from hoglab.delivery.runs import history as run_history
from hoglab.functions import store
from hoglab.http.errors import not_found, validation_error
from hoglab.http.management.routing import ResourceRouter, UuidId

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.http.management.call import Call
    from hoglab.storage.database import Database


def run_router(delivery: Delivery, database: Database) -> ResourceRouter:
    """Return the routes of ``/hog_functions/health`` and ``/hog_functions/{id}/runs``. ``database``: the metadata."""
    routes = ResourceRouter("/hog_functions", tag="hog_functions", scopes=(READ, WRITE))

    @routes.get("/health/", response=list[FunctionHealthOut], heavy=True)
    def health(call: Call) -> list[dict[str, Any]]:
        """Read the health of functions in the last 24 hours.

        Successes, failures, waiting runs, and the last error of functions that failed or wait for another attempt.
        Functions without activity are left out.
        """
        kept = delivery.stores.runs
        counts = run_history.counts(kept, call.project.id, delivery.now())
        unfinished = delivery.queue.counts.backlogs()
        failing = [
            function_id for function_id, (_, failed) in counts.items() if failed or function_id in unfinished
        ]
        with database.read() as metadata:
            known = set(store.by_ids(metadata, call.project.id, [*counts, *unfinished], full=False))
        waiting = [
            function_id for function_id in unfinished if function_id in known and function_id not in failing
        ]
        errors = run_history.last_errors(kept, [*failing, *waiting])
        return [
            {
                "id": function_id,
                "succeeded": counts.get(function_id, (0, 0))[0],
                "failed": counts.get(function_id, (0, 0))[1],
                "unfinished": unfinished.get(function_id, 0),
                "destination_away": delivery.breakers.is_open(function_id),
                "last_error": errors.get(function_id),
            }
            for function_id in sorted(known)
        ]

    @routes.get("/{function_id}/runs/", query=RunsQuery, response=RunPage, heavy=True)
    def runs(call: Call, function_id: UuidId) -> dict[str, Any]:
        """List the runs of a function, the newest first.

        A run that waits for another attempt is `running`, with the error of the last attempt and the time of the
        next.
        """
        with database.read() as metadata:
            row = store.get(metadata, call.project.id, function_id)
        if row is None or row["deleted"]:
            raise not_found()
        wanted = call.validate_query(RunsQuery)
        statuses = None if wanted.status is None else [status.strip() for status in wanted.status.split(",")]
        unknown = next((status for status in statuses or () if status not in RUN_STATUSES), None)
        if unknown is not None:
            raise validation_error(
                f"'{unknown}' is no status of a run: {', '.join(RUN_STATUSES)}.", "status", "invalid_choice"
            )
        listed = run_history.runs(delivery.stores.runs, call.project.id, function_id, statuses, wanted.limit)
        return {"count": len(listed), "next": None, "previous": None, "results": listed}

    return routes
