"""The endpoints below organizations: their projects, and their members, roles and invitations as lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from hoglab.accounts.schemas import (
    InvitationOut,
    MemberOut,
    OrganizationOut,
    ProjectChanges,
    ProjectIn,
    ProjectOut,
    RoleOut,
)
from hoglab.accounts.views import (
    call_service,
    organization_id_of,
    organization_object,
    organization_objects,
    page_of,
    project_object,
    visible_projects,
)
from hoglab.http import errors
from hoglab.http.fields.unknown_keys import refuse, within
from hoglab.http.fields.wire import user_object
from hoglab.http.identity import Level, Project
from hoglab.http.management import access
from hoglab.http.management.pagination import Paged
from hoglab.http.management.routing import ResourceRouter

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.http.management.call import Call
    from hoglab.http.management.routing import TextId

CheckFilters = Callable[[Project, list[dict[str, Any]]], None]
"""Raises 400 for filters of test accounts that the project cannot have."""


def update_project(
    accounts: AccountService, check_account_filters: CheckFilters, call: Call, project: Project
) -> dict[str, Any]:
    """Change a project as a request asks, and return it in wire format. Raises 403 below an admin, and 400."""
    access.check_level(call.principal.at(project.organization_id), Level.ADMIN)
    changes = call.validate(ProjectChanges).sent()
    if "test_account_filters" in changes:
        stored = {"test_account_filters": project.test_account_filters}
        refuse(within(ProjectChanges, changes), within(ProjectChanges, stored))
        check_account_filters(project, changes["test_account_filters"])
    return project_object(call_service(accounts.update_project, project.id, changes), call.principal)


def delete_project(accounts: AccountService, call: Call, project: Project) -> None:
    """Delete a project. Raises 403 below an admin, and 400 for the last project of the organization."""
    access.check_level(call.principal.at(project.organization_id), Level.ADMIN)
    call_service(accounts.delete_project, project.id)


def organizations_router(accounts: AccountService, check_account_filters: CheckFilters) -> ResourceRouter:
    """Return the routes of ``/api/organizations``."""
    router = ResourceRouter(
        "/api/organizations",
        tag="organizations",
        scopes=("organization:read", "organization:write"),
        project_scoped=False,
    )

    @router.get("/", response=Paged[OrganizationOut], limited_keys=True)
    def list_organizations(call: Call) -> dict[str, Any]:
        """List the organizations that the key reaches."""
        return page_of(call, organization_objects(accounts, call.principal))

    @router.get("/{organization_id}", response=OrganizationOut, limited_keys=True)
    def read_organization(call: Call, organization_id: TextId) -> dict[str, Any]:
        """Read an organization, by id or as ``@current``."""
        identifier = organization_id_of(call, organization_id)
        projects = visible_projects(accounts, call.principal)
        return organization_object(accounts.organizations([identifier])[0], call.principal, projects)

    @router.get(
        "/{organization_id}/projects", scope="project:read", response=Paged[ProjectOut], limited_keys=True
    )
    def list_organization_projects(call: Call, organization_id: TextId) -> dict[str, Any]:
        """List the projects of an organization."""
        identifier = organization_id_of(call, organization_id)
        projects = [
            project
            for project in visible_projects(accounts, call.principal)
            if project.organization_id == identifier
        ]
        return page_of(call, [project_object(project, call.principal) for project in projects])

    @router.post(
        "/{organization_id}/projects",
        scope="project:write",
        body=ProjectIn,
        response=ProjectOut,
        status=201,
        limited_keys=True,
    )
    def create_project(call: Call, organization_id: TextId) -> dict[str, Any]:
        """Create a project. Needs an admin, and a key that is not limited to some projects."""
        identifier = organization_id_of(call, organization_id)
        if call.principal.scoped_projects is not None:
            raise errors.permission_denied("API keys with scoped projects cannot create projects.")
        access.check_level(call.principal.at(identifier), Level.ADMIN)
        body = call.validate(ProjectIn)
        project = call_service(accounts.create_project, identifier, body.name, timezone=body.timezone)
        return project_object(project, call.principal)

    def project_of(call: Call, organization: str, segment: str) -> Project:
        identifier = organization_id_of(call, organization)
        project_id = access.requested_project_id(segment, call.principal)
        access.check_project_limit(call.principal, project_id)
        project = accounts.project(project_id)
        if project is None or project.organization_id != identifier:
            raise errors.project_not_found()
        return project

    @router.get(
        "/{organization_id}/projects/{project}", scope="project:read", response=ProjectOut, limited_keys=True
    )
    def read_organization_project(call: Call, organization_id: TextId, project: TextId) -> dict[str, Any]:
        """Read a project."""
        return project_object(project_of(call, organization_id, project), call.principal)

    @router.patch(
        "/{organization_id}/projects/{project}",
        scope="project:write",
        body=ProjectChanges,
        response=ProjectOut,
        limited_keys=True,
    )
    def update_organization_project(call: Call, organization_id: TextId, project: TextId) -> dict[str, Any]:
        """Change a project. Needs an admin."""
        return update_project(
            accounts, check_account_filters, call, project_of(call, organization_id, project)
        )

    @router.delete(
        "/{organization_id}/projects/{project}", scope="project:write", status=204, limited_keys=True
    )
    def delete_organization_project(call: Call, organization_id: TextId, project: TextId) -> None:
        """Delete a project, as ``DELETE /api/projects/{project_id}/`` does."""
        delete_project(accounts, call, project_of(call, organization_id, project))

    @router.get(
        "/{organization_id}/members",
        scope="organization_member:read",
        response=Paged[MemberOut],
        limited_keys=True,
    )
    def list_members(call: Call, organization_id: TextId) -> dict[str, Any]:
        """List the members of an organization, oldest membership first."""
        identifier = organization_id_of(call, organization_id)
        members = [
            {
                "id": str(uuid5(UUID(identifier), user.uuid)),
                "user": user_object(user),
                "level": level,
                "joined_at": joined_at,
                "updated_at": joined_at,
                "is_2fa_enabled": False,
                "has_social_auth": False,
            }
            for user, level, joined_at in accounts.members(identifier)
        ]
        return page_of(call, members)

    @router.get("/{organization_id}/roles", response=Paged[RoleOut], limited_keys=True)
    def list_roles(call: Call, organization_id: TextId) -> dict[str, Any]:
        """List the roles of an organization: there are none here, only the levels of members."""
        organization_id_of(call, organization_id)
        return page_of(call, [])

    @router.get(
        "/{organization_id}/invites",
        scope="organization_member:read",
        response=Paged[InvitationOut],
        limited_keys=True,
    )
    def list_invitations(call: Call, organization_id: TextId) -> dict[str, Any]:
        """List the open invitations: there are none here."""
        organization_id_of(call, organization_id)
        return page_of(call, [])

    return router
