"""The endpoints of experiments, holdouts and saved metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from starlette.responses import Response

from hoglab.experiments.actor import Actor
from hoglab.experiments.wire import schemas
from hoglab.http.fields.wire import DetailText, ErrorText
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import IntId, ResourceRouter, either

if TYPE_CHECKING:
    from hoglab.experiments.api.reading import ExperimentReads
    from hoglab.experiments.exposed import ExposureCohorts
    from hoglab.experiments.extras import ExperimentExtras
    from hoglab.experiments.holdouts import HoldoutService
    from hoglab.experiments.lifecycle import Lifecycle
    from hoglab.experiments.saved_metrics import SavedMetricService
    from hoglab.experiments.service import ExperimentService
    from hoglab.http.identity import Project
    from hoglab.http.management.call import Call
    from hoglab.http.responses import EncodedObject

READ, WRITE = "experiment:read", "experiment:write"
SCOPES = (READ, WRITE)


class _One(TypedDict):
    response: Any
    versioned: bool


ONE: _One = {"response": schemas.ExperimentOut, "versioned": True}
"""Options of operations that answer with one experiment."""


def actor(call: Call) -> Actor:
    """Return the caller of a request with project and time."""
    return Actor(call.project, call.principal, call.now, call.if_match)


def experiments_router(
    service: ExperimentService,
    reads: ExperimentReads,
    lifecycle: Lifecycle,
    extras: ExperimentExtras,
    exposure_cohorts: ExposureCohorts,
    *,
    project_by_id: Callable[[int], Project | None],
    eligible_flags: Callable[[Call], dict[str, Any]],
) -> ResourceRouter:
    """Return the routes of ``/experiments``."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.get("/", query=schemas.ExperimentListQuery, response=Paged[schemas.ExperimentOut])
    def list_experiments(call: Call) -> dict[str, Any]:
        """List experiments, newest first. Archived ones are left out unless asked for."""
        page = call.page()
        rows, count = reads.page(actor(call), call.query, limit=page.limit, offset=page.offset)
        return envelope(call, rows, count, page)

    @routes.post("/", body=schemas.ExperimentCreate, status=201, **ONE)
    def create_experiment(call: Call) -> dict[str, Any]:
        """Create an experiment. Its flag is created, or linked as it is when it exists."""
        return service.create(actor(call), call.validate(schemas.ExperimentCreate))

    @routes.get(
        "/requires_flag_implementation/",
        query=schemas.ImplementationQuery,
        response=schemas.ImplementationOut,
    )
    def requires_flag_implementation(call: Call) -> dict[str, Any]:
        """Return whether events of the given names still lack flag values."""
        return {"result": extras.requires_flag_implementation(actor(call), call.query)}

    @routes.get("/stats/", response=schemas.StatsOut)
    def stats(call: Call) -> dict[str, Any]:
        """Return the numbers of experiments recently launched, recently completed, and active."""
        return extras.stats(actor(call))

    @routes.get(
        "/eligible_feature_flags/",
        scope="feature_flag:read",
        query=schemas.EligibleQuery,
        response=schemas.EligibleFlagsOut,
        answers={400: ErrorText},
    )
    def eligible_feature_flags(call: Call) -> dict[str, Any]:
        """List the flags that can carry an experiment."""
        return eligible_flags(call)

    @routes.post(
        "/calculate_running_time/",
        scope=READ,
        body=schemas.RunningTimeBody,
        response=schemas.RunningTimeOut,
    )
    def calculate_running_time(call: Call) -> dict[str, Any]:
        """Calculate the sample size and the days that an effect needs."""
        return extras.running_time(call.validate(schemas.RunningTimeBody))

    def recall_experiment(call: Call, experiment_id: int) -> EncodedObject | None:
        return reads.recall(actor(call), experiment_id)

    @routes.get("/{experiment_id}/", recall=recall_experiment, **ONE)
    def read_experiment(call: Call, experiment_id: IntId) -> EncodedObject:
        """Read an experiment."""
        return reads.read(actor(call), experiment_id)

    @routes.patch("/{experiment_id}/", body=schemas.ExperimentPatch, **ONE)
    def patch_experiment(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Change the fields that are sent. ``deleted`` removes an experiment softly and brings it back."""
        service.check_reachable(call.project, experiment_id, call.body)
        return service.patch(actor(call), experiment_id, call.validate(schemas.ExperimentPatch))

    @routes.put("/{experiment_id}/", body=schemas.ExperimentCreate, **ONE)
    def put_experiment(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Replace an experiment: PATCH that needs ``name`` and ``feature_flag_key``; ``archived`` defaults to false."""
        service.check_reachable(call.project, experiment_id, call.body)
        sent = {"archived": False, **call.body}
        return service.patch(actor(call), experiment_id, call.validate(schemas.ExperimentCreate, sent))

    routes.forbid_delete("/{experiment_id}/")

    @routes.get("/{experiment_id}/records/", response=Paged[schemas.RecordOut])
    def list_records(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """List what was recorded: plans, amendments, alarms and decisions, newest first."""
        page = call.page()
        rows, count = reads.records(actor(call), experiment_id, limit=page.limit, offset=page.offset)
        return envelope(call, rows, count, page)

    @routes.post("/{experiment_id}/launch/", **ONE)
    def launch(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Start a draft now; its flag is switched on."""
        return lifecycle.launch(actor(call), experiment_id)

    @routes.post("/{experiment_id}/pause/", **ONE)
    def pause(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Switch the flag of a running experiment off."""
        return lifecycle.pause(actor(call), experiment_id)

    @routes.post("/{experiment_id}/resume/", **ONE)
    def resume(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Switch the flag of a paused experiment on again."""
        return lifecycle.resume(actor(call), experiment_id)

    @routes.post("/{experiment_id}/freeze_exposure/", heavy=True, **ONE)
    def freeze_exposure(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Close a running experiment to new people: only those who have seen a variant keep theirs."""
        return lifecycle.freeze_exposure(actor(call), experiment_id)

    @routes.post("/{experiment_id}/unfreeze_exposure/", **ONE)
    def unfreeze_exposure(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Open a frozen experiment to new people again."""
        return lifecycle.unfreeze_exposure(actor(call), experiment_id)

    @routes.post("/{experiment_id}/end/", body=schemas.EndBody, **ONE)
    def end(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """End a running experiment now; users keep their variants."""
        service.find(call.project, experiment_id)
        return lifecycle.end(actor(call), experiment_id, call.validate(schemas.EndBody))

    @routes.post("/{experiment_id}/reset/", **ONE)
    def reset(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make an experiment a draft again."""
        return lifecycle.reset(actor(call), experiment_id)

    @routes.post("/{experiment_id}/archive/", body=schemas.ArchiveBody, **ONE)
    def archive(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Archive a stopped experiment, and its flag where nothing else needs it."""
        service.find(call.project, experiment_id)
        body = call.validate(schemas.ArchiveBody)
        if body.disable_feature_flag:
            call.require("feature_flag:write")
        return lifecycle.archive(actor(call), experiment_id, body)

    @routes.post("/{experiment_id}/unarchive/", **ONE)
    def unarchive(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Bring an archived experiment back."""
        return lifecycle.unarchive(actor(call), experiment_id)

    @routes.post(
        "/{experiment_id}/ship_variant/",
        body=schemas.ShipVariantBody,
        **ONE,
    )
    def ship_variant(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Give one variant to everybody whom the flag reaches, and end the experiment if it runs."""
        service.find(call.project, experiment_id)
        return lifecycle.ship_variant(actor(call), experiment_id, call.validate(schemas.ShipVariantBody))

    @routes.post(
        "/{experiment_id}/duplicate/",
        body=schemas.DuplicateBody,
        answers={400: DetailText},
        **ONE,
    )
    def duplicate(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make a new draft like this one."""
        service.find(call.project, experiment_id)
        return lifecycle.duplicate(actor(call), experiment_id, call.validate(schemas.DuplicateBody))

    @routes.post(
        "/{experiment_id}/copy_to_project/",
        body=schemas.CopyBody,
        status=201,
        answers={400: DetailText, 403: DetailText, 404: DetailText},
        **ONE,
    )
    def copy_to_project(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make a new draft like this one in another project of the organization."""
        service.find(call.project, experiment_id)
        body = call.validate(schemas.CopyBody)
        target = project_by_id(body.target_team_id)
        return lifecycle.copy_to_project(actor(call), experiment_id, body, target)

    @routes.post(
        "/{experiment_id}/create_exposure_cohort_for_experiment/", response=schemas.ExposureCohortOut
    )
    def create_exposure_cohort(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Create a cohort of everybody who was exposed to the experiment."""
        return exposure_cohorts.create(actor(call), experiment_id)

    return routes


def holdouts_router(service: HoldoutService) -> ResourceRouter:
    """Return the routes of ``/experiment_holdouts``."""
    scopes = (
        either(READ, "experiment_holdout:read"),
        either(WRITE, "experiment_holdout:write"),
    )
    routes = ResourceRouter("/experiment_holdouts", tag="experiment_holdouts", scopes=scopes)

    @routes.get("/", response=Paged[schemas.HoldoutOut])
    def list_holdouts(call: Call) -> dict[str, Any]:
        """List holdouts, newest first."""
        page = call.page()
        rows, count = service.list(actor(call), limit=page.limit, offset=page.offset)
        return envelope(call, rows, count, page)

    @routes.post("/", body=schemas.HoldoutCreate, response=schemas.HoldoutOut, status=201)
    def create_holdout(call: Call) -> dict[str, Any]:
        """Create a holdout."""
        return service.create(actor(call), call.validate(schemas.HoldoutCreate))

    @routes.get("/{holdout_id}/", response=schemas.HoldoutOut)
    def read_holdout(call: Call, holdout_id: IntId) -> dict[str, Any]:
        """Read a holdout."""
        return service.read(actor(call), holdout_id)

    @routes.patch("/{holdout_id}/", body=schemas.HoldoutPatch, response=schemas.HoldoutOut)
    def patch_holdout(call: Call, holdout_id: IntId) -> dict[str, Any]:
        """Change the fields that are sent; the flags of all member experiments follow."""
        service.read(actor(call), holdout_id)
        return service.patch(actor(call), holdout_id, call.validate(schemas.HoldoutPatch))

    @routes.put("/{holdout_id}/", body=schemas.HoldoutCreate, response=schemas.HoldoutOut)
    def put_holdout(call: Call, holdout_id: IntId) -> dict[str, Any]:
        """Replace a holdout: PATCH that needs ``name``."""
        service.read(actor(call), holdout_id)
        return service.patch(actor(call), holdout_id, call.validate(schemas.HoldoutCreate))

    @routes.delete("/{holdout_id}/", status=204, errors=(400,))
    def delete_holdout(call: Call, holdout_id: IntId) -> Response:
        """Delete a holdout for good. One of a running experiment stays (400)."""
        service.delete(actor(call), holdout_id)
        return Response(status_code=204)

    return routes


def saved_metrics_router(service: SavedMetricService) -> ResourceRouter:
    """Return the routes of ``/experiment_saved_metrics``."""
    scopes = (
        either("experiment_saved_metric:read", READ),
        either("experiment_saved_metric:write", WRITE),
    )
    routes = ResourceRouter("/experiment_saved_metrics", tag="experiment_saved_metrics", scopes=scopes)

    @routes.get("/", response=Paged[schemas.SavedMetricOut])
    def list_saved_metrics(call: Call) -> dict[str, Any]:
        """List saved metrics by name."""
        page = call.page()
        rows, count = service.list(
            actor(call), search=call.query("search"), limit=page.limit, offset=page.offset
        )
        return envelope(call, rows, count, page)

    @routes.post("/", body=schemas.SavedMetricCreate, response=schemas.SavedMetricOut, status=201)
    def create_saved_metric(call: Call) -> dict[str, Any]:
        """Create a metric that experiments can share."""
        return service.create(actor(call), call.validate(schemas.SavedMetricCreate))

    @routes.get("/{metric_id}/", response=schemas.SavedMetricOut)
    def read_saved_metric(call: Call, metric_id: IntId) -> dict[str, Any]:
        """Read a saved metric."""
        return service.read(actor(call), metric_id)

    @routes.patch("/{metric_id}/", body=schemas.SavedMetricPatch, response=schemas.SavedMetricOut)
    def patch_saved_metric(call: Call, metric_id: IntId) -> dict[str, Any]:
        """Change the fields that are sent."""
        service.read(actor(call), metric_id)
        return service.patch(actor(call), metric_id, call.validate(schemas.SavedMetricPatch))

    @routes.put("/{metric_id}/", body=schemas.SavedMetricCreate, response=schemas.SavedMetricOut)
    def put_saved_metric(call: Call, metric_id: IntId) -> dict[str, Any]:
        """Replace a saved metric: PATCH that needs ``name``."""
        service.read(actor(call), metric_id)
        return service.patch(actor(call), metric_id, call.validate(schemas.SavedMetricCreate))

    @routes.delete("/{metric_id}/", status=204, errors=(400,))
    def delete_saved_metric(call: Call, metric_id: IntId) -> Response:
        """Delete a saved metric for good, and from its experiments. One of a running experiment stays (400)."""
        service.delete(actor(call), metric_id)
        return Response(status_code=204)

    return routes
