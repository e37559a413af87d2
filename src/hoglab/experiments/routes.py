"""The endpoints of experiments, holdouts and saved metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from hoglab.experiments import schemas
from hoglab.experiments.service import Actor
from hoglab.http.pagination import envelope
from hoglab.http.routing import IntId, ResourceRouter, either

if TYPE_CHECKING:
    from hoglab.experiments.extras import ExperimentExtras
    from hoglab.experiments.holdouts import HoldoutService
    from hoglab.experiments.lifecycle import Lifecycle
    from hoglab.experiments.saved_metrics import SavedMetricService
    from hoglab.experiments.service import ExperimentService
    from hoglab.http.call import Call
    from hoglab.http.identity import Project

READ, WRITE = "experiment:read", "experiment:write"
SCOPES = (READ, WRITE)


def actor(call: Call) -> Actor:
    """Who calls, where and when."""
    return Actor(call.project, call.principal, call.now)


def experiments_router(
    service: ExperimentService,
    lifecycle: Lifecycle,
    extras: ExperimentExtras,
    *,
    project_by_id: Callable[[int], Project | None],
    eligible_flags: Callable[[Call], dict[str, Any]],
) -> ResourceRouter:
    """``/experiments``."""
    routes = ResourceRouter("/experiments", tag="experiments", scopes=SCOPES)

    @routes.get("/", query=schemas.ListQuery, response=schemas.ExperimentPage)
    def list_experiments(call: Call) -> dict[str, Any]:
        """List experiments, newest first. Archived ones are left out unless asked for."""
        page = call.page()
        rows, count = service.page(actor(call), call.query, limit=page.limit, offset=page.offset)
        return envelope(call, rows, count, page)

    @routes.post("/", body=schemas.ExperimentCreate, response=schemas.ExperimentOut, status=201)
    def create_experiment(call: Call) -> dict[str, Any]:
        """Create an experiment. Its flag is created, or linked as it is when it exists."""
        return service.create(actor(call), call.validate(schemas.ExperimentCreate))

    @routes.get(
        "/requires_flag_implementation/",
        query=schemas.ImplementationQuery,
        response=schemas.ImplementationOut,
    )
    def requires_flag_implementation(call: Call) -> dict[str, Any]:
        """Whether events of the given names still lack flag values."""
        return {"result": extras.requires_flag_implementation(actor(call), call.query)}

    @routes.get("/stats/", response=schemas.StatsOut)
    def stats(call: Call) -> dict[str, Any]:
        """How many experiments were launched and completed lately."""
        return extras.stats(actor(call))

    @routes.get("/eligible_feature_flags/", scope="feature_flag:read")
    def eligible_feature_flags(call: Call) -> dict[str, Any]:
        """Flags that can carry an experiment."""
        return eligible_flags(call)

    @routes.post(
        "/calculate_running_time/",
        scope=READ,
        body=schemas.RunningTimeBody,
        response=schemas.RunningTimeOut,
    )
    def calculate_running_time(call: Call) -> dict[str, Any]:
        """Sample size and days that an effect needs."""
        return extras.running_time(call.validate(schemas.RunningTimeBody))

    @routes.get("/{experiment_id}/", response=schemas.ExperimentOut)
    def read_experiment(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Read an experiment."""
        return service.read(actor(call), experiment_id)

    @routes.patch("/{experiment_id}/", body=schemas.ExperimentPatch, response=schemas.ExperimentOut)
    def patch_experiment(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Change what is sent. ``deleted`` removes an experiment softly and brings it back."""
        return service.patch(actor(call), experiment_id, call.validate(schemas.ExperimentPatch))

    @routes.put("/{experiment_id}/", body=schemas.ExperimentCreate, response=schemas.ExperimentOut)
    def put_experiment(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Like PATCH; ``name`` and ``feature_flag_key`` are needed, a missing ``archived`` is false."""
        sent = {"archived": False, **call.body}
        return service.patch(actor(call), experiment_id, call.validate(schemas.ExperimentCreate, sent))

    routes.forbid_delete("/{experiment_id}/")

    @routes.post("/{experiment_id}/launch/", response=schemas.ExperimentOut)
    def launch(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Start a draft now; its flag is switched on."""
        return lifecycle.launch(actor(call), experiment_id)

    @routes.post("/{experiment_id}/pause/", response=schemas.ExperimentOut)
    def pause(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Switch the flag of a running experiment off."""
        return lifecycle.pause(actor(call), experiment_id)

    @routes.post("/{experiment_id}/resume/", response=schemas.ExperimentOut)
    def resume(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Switch the flag of a paused experiment on again."""
        return lifecycle.resume(actor(call), experiment_id)

    @routes.post("/{experiment_id}/end/", body=schemas.EndBody, response=schemas.ExperimentOut)
    def end(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """End a running experiment now; users keep their variants."""
        return lifecycle.end(actor(call), experiment_id, call.validate(schemas.EndBody))

    @routes.post("/{experiment_id}/reset/", response=schemas.ExperimentOut)
    def reset(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make an experiment a draft again."""
        return lifecycle.reset(actor(call), experiment_id)

    @routes.post("/{experiment_id}/archive/", body=schemas.ArchiveBody, response=schemas.ExperimentOut)
    def archive(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Put a stopped experiment away, and its flag where nothing else needs it."""
        body = call.validate(schemas.ArchiveBody)
        if body.disable_feature_flag:
            call.require("feature_flag:write")
        return lifecycle.archive(actor(call), experiment_id, body)

    @routes.post("/{experiment_id}/unarchive/", response=schemas.ExperimentOut)
    def unarchive(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Bring an archived experiment back."""
        return lifecycle.unarchive(actor(call), experiment_id)

    @routes.post(
        "/{experiment_id}/ship_variant/", body=schemas.ShipVariantBody, response=schemas.ExperimentOut
    )
    def ship_variant(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Give one variant to everybody whom the flag reaches, and end the experiment if it runs."""
        return lifecycle.ship_variant(actor(call), experiment_id, call.validate(schemas.ShipVariantBody))

    @routes.post("/{experiment_id}/duplicate/", body=schemas.DuplicateBody, response=schemas.ExperimentOut)
    def duplicate(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make a new draft like this one."""
        return lifecycle.duplicate(actor(call), experiment_id, call.validate(schemas.DuplicateBody))

    @routes.post(
        "/{experiment_id}/copy_to_project/",
        body=schemas.CopyBody,
        response=schemas.ExperimentOut,
        status=201,
    )
    def copy_to_project(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make a new draft like this one in another project of the organization."""
        body = call.validate(schemas.CopyBody)
        target = project_by_id(body.target_team_id)
        return lifecycle.copy_to_project(actor(call), experiment_id, body, target)

    @routes.post("/{experiment_id}/create_exposure_cohort_for_experiment/")
    def create_exposure_cohort(call: Call, experiment_id: IntId) -> dict[str, Any]:
        """Make a cohort of everybody who was exposed to the experiment."""
        return extras.create_exposure_cohort(actor(call), experiment_id)

    return routes


def holdouts_router(service: HoldoutService) -> ResourceRouter:
    """``/experiment_holdouts``."""
    scopes = (
        either(READ, "experiment_holdout:read"),
        either(WRITE, "experiment_holdout:write"),
    )
    routes = ResourceRouter("/experiment_holdouts", tag="experiment_holdouts", scopes=scopes)

    @routes.get("/", response=schemas.HoldoutPage)
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
        """Change what is sent; the flags of all member experiments follow."""
        return service.patch(actor(call), holdout_id, call.validate(schemas.HoldoutPatch))

    @routes.put("/{holdout_id}/", body=schemas.HoldoutCreate, response=schemas.HoldoutOut)
    def put_holdout(call: Call, holdout_id: IntId) -> dict[str, Any]:
        """Like PATCH; ``name`` is needed."""
        return service.patch(actor(call), holdout_id, call.validate(schemas.HoldoutCreate))

    @routes.delete("/{holdout_id}/", status=204)
    def delete_holdout(call: Call, holdout_id: IntId) -> Response:
        """Remove a holdout for good."""
        service.delete(actor(call), holdout_id)
        return Response(status_code=204)

    return routes


def saved_metrics_router(service: SavedMetricService) -> ResourceRouter:
    """``/experiment_saved_metrics``."""
    scopes = (
        either("experiment_saved_metric:read", READ),
        either("experiment_saved_metric:write", WRITE),
    )
    routes = ResourceRouter("/experiment_saved_metrics", tag="experiment_saved_metrics", scopes=scopes)

    @routes.get("/", response=schemas.SavedMetricPage)
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
        """Change what is sent."""
        return service.patch(actor(call), metric_id, call.validate(schemas.SavedMetricPatch))

    @routes.put("/{metric_id}/", body=schemas.SavedMetricCreate, response=schemas.SavedMetricOut)
    def put_saved_metric(call: Call, metric_id: IntId) -> dict[str, Any]:
        """Like PATCH; ``name`` is needed."""
        return service.patch(actor(call), metric_id, call.validate(schemas.SavedMetricCreate))

    @routes.delete("/{metric_id}/", status=204)
    def delete_saved_metric(call: Call, metric_id: IntId) -> Response:
        """Remove a saved metric for good; experiments lose it."""
        service.delete(actor(call), metric_id)
        return Response(status_code=204)

    return routes
