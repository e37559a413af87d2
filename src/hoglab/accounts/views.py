"""Accounts on the wire: projects, organizations and users as answers show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hoglab.accounts.errors import AccountError
from hoglab.accounts.service import RETENTION_SETTING, SITE_SETTINGS
from hoglab.http import errors
from hoglab.http.fields.wire import user_object
from hoglab.http.management import access
from hoglab.http.management.pagination import envelope
from hoglab.patterns import searched

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.http.identity import Principal, Project
    from hoglab.http.management.call import Call

_NO_SLUG = searched("[^a-z0-9]+")


def project_object(project: Project, principal: Principal) -> dict[str, Any]:
    """Return a project as the wire shows it."""
    admin = principal.at(project.organization_id).is_admin
    return {
        "id": project.id,
        "uuid": project.uuid,
        "organization": project.organization_id,
        "name": project.name,
        "api_token": project.api_token,
        "timezone": project.timezone,
        "test_account_filters": project.test_account_filters,
        "person_display_name_properties": project.person_display_name_properties,
        "anonymize_ips": project.anonymize_ips,
        "event_retention_days": project.settings.get(RETENTION_SETTING),
        **{name: project.settings.get(name, default) for name, default in SITE_SETTINGS.items()},
        "created_at": project.created_at,
        "updated_at": project.updated_at,
        "user_access_level": "manager" if admin else "editor",
    }


def visible_projects(accounts: AccountService, principal: Principal) -> list[Project]:
    """Return the projects that a caller reaches."""
    return [project for project in accounts.projects() if principal.reaches_project(project)]


def organization_id_of(call: Call, segment: str) -> str:
    """Return the organization that a path segment means; 403 when the key, 404 when the user does not reach it."""
    principal = call.principal
    organization_id = principal.organization_id if segment == "@current" else segment
    if organization_id is None or (segment != "@current" and organization_id not in principal.levels):
        raise errors.not_found("Organization not found.")
    access.check_organization_limit(principal, organization_id)
    return organization_id


def organization_object(
    organization: Mapping[str, Any], principal: Principal, projects: Sequence[Project]
) -> dict[str, Any]:
    """Return an organization in wire format, with those of its projects that the caller reaches."""
    organization_id = organization["id"]
    return {
        "id": organization_id,
        "name": organization["name"],
        "slug": slug(organization["name"], organization_id),
        "created_at": organization["created_at"],
        "membership_level": principal.levels[organization_id],
        "projects": [
            {
                "id": project.id,
                "uuid": project.uuid,
                "name": project.name,
                "organization": organization_id,
                "timezone": project.timezone,
            }
            for project in projects
            if project.organization_id == organization_id
        ],
    }


def slug(name: str, organization_id: str) -> str:
    """Return the name of an organization for addresses; unique, as names are not."""
    words = _NO_SLUG.sub("-", name.lower()).strip("-")
    return f"{words}-{organization_id[:8]}".removeprefix("-")


def organization_objects(accounts: AccountService, principal: Principal) -> list[dict[str, Any]]:
    """Return the organizations that a caller reaches, in wire format."""
    limit = principal.scoped_organizations
    ids = [id_ for id_ in principal.levels if limit is None or id_ in limit]
    projects = visible_projects(accounts, principal)
    organizations = accounts.organizations(ids)
    return [organization_object(organization, principal, projects) for organization in organizations]


def me_object(accounts: AccountService, principal: Principal) -> dict[str, Any]:
    """Return the calling user in wire format."""
    user = principal.user
    organizations = organization_objects(accounts, principal)
    current = [
        organization for organization in organizations if organization["id"] == principal.organization_id
    ]
    project = accounts.project(user.current_project_id or 0)
    reached = project is not None and principal.reaches_project(project)
    return {
        **(user_object(user) or {}),
        "date_joined": user.created_at,
        "is_staff": False,
        "team": project_object(project, principal) if project is not None and reached else None,
        "organization": current[0] if current else None,
        "organizations": organizations,
    }


def page_of(call: Call, everything: Sequence[Any]) -> dict[str, Any]:
    """Return a page of a list that is completely in memory."""
    page = call.page()
    return envelope(call, everything[page.offset : page.offset + page.limit], len(everything))


def call_service(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call the service; what it refuses becomes a 400."""
    try:
        return function(*arguments, **options)
    except AccountError as error:
        raise errors.validation_error(str(error), error.attr) from error
