"""Endpoints of samples: globals to test a function on. Ours; upstream, editors look for an event themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.delivery.api.routes import READ, WRITE, configured
from hoglab.delivery.api.schemas import RefusedTestOut, SampleBody, SampleOut
from hoglab.delivery.trials import Samples, TestRuns
from hoglab.http.fields.fields import parse_uuid
from hoglab.http.management.routing import ResourceRouter, TextId

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.functions.service import FunctionService
    from hoglab.http.management.call import Call
    from hoglab.storage.catching_up import CatchUp
    from hoglab.storage.database import Database
    from hoglab.storage.event_store import EventReader


def sample_router(
    delivery: Delivery,
    functions: FunctionService,
    database: Database,
    store: EventReader,
    catch_up: CatchUp | None = None,
) -> ResourceRouter:
    """Return the routes of ``/hog_functions/{id}/sample_globals``. ``database``: the metadata."""
    routes = ResourceRouter("/hog_functions", tag="hog_functions", scopes=(READ, WRITE))
    samples = Samples(delivery, TestRuns(delivery), store, catch_up)

    @routes.post(
        "/{function_id}/sample_globals/",
        scope=(READ, "query:read", "person:read", "group:read"),
        body=SampleBody,
        response=SampleOut,
        heavy=True,
        errors=(503,),
        answers={400: RefusedTestOut},
    )
    def sample_globals(call: Call, function_id: TextId) -> dict[str, Any]:
        """Read globals for a test run, from the newest event that a configuration's filters match.

        The id may be `new`. When none of the last ten thousand candidates matches, it is the newest of all; in a
        project without events it is an invented one.
        """
        body = call.validate(SampleBody)
        configuration, context = configured(
            call, parse_uuid(function_id), body.configuration, functions, database
        )
        sample = samples.find(call.project, configuration, context)
        return {"globals": sample.globals, "stored": sample.stored, "matches": sample.matches}

    return routes
