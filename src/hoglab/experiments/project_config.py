"""Defaults of the experiments of a project, and the time of their results (spec experiment-results 4.1, 7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.experiments.wire.schemas import ProjectConfigOut, ProjectConfigPatch
from hoglab.http.identity import Level, Project
from hoglab.http.management import access
from hoglab.http.management.routing import ResourceRouter

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.http.management.call import Call


def project_config_router(accounts: AccountService) -> ResourceRouter:
    """Return the routes of ``/experiments_config``."""
    routes = ResourceRouter(
        "/experiments_config", tag="experiments", scopes=("project:read", "project:write")
    )

    @routes.get("/", response=ProjectConfigOut)
    def read_project_config(call: Call) -> dict[str, Any]:
        """Read a project's settings for experiments."""
        return config_object(call.project)

    @routes.patch("/", body=ProjectConfigPatch, response=ProjectConfigOut)
    def patch_project_config(call: Call) -> dict[str, Any]:
        """Change a project's settings for experiments. Needs an admin.

        Method and confidence level apply to experiments that are created from now on. The defaults of CUPED
        and sequential testing apply at once to all experiments that do not say otherwise.
        """
        access.check_level(call.principal, Level.ADMIN)
        sent = call.validate(ProjectConfigPatch).sent()
        return config_object(accounts.update_experiment_defaults(call.project.id, sent))

    return routes


def config_object(project: Project) -> dict[str, Any]:
    """Return the settings as they go on the wire."""
    return {
        name: project.experiment_defaults.get(name, field.default)
        for name, field in ProjectConfigPatch.model_fields.items()
    }
