"""The endpoints of the accounts room.

Rules that PostHog's documents leave open are ours: a key may hand on no more than it has itself, in scopes and in time,
it changes and revokes no key that may do more, and keys that are limited to some projects or organizations neither make
nor see keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hoglab.accounts import activity
from hoglab.accounts.organization_routes import (
    CheckFilters,
    delete_project,
    organizations_router,
    update_project,
)
from hoglab.accounts.schemas import (
    ActivityOut,
    ActivityQuery,
    KeyChanges,
    KeyIn,
    KeyOut,
    MeOut,
    ProjectChanges,
    ProjectOut,
    ProjectSecretOut,
)
from hoglab.accounts.service import SECRET_SCOPES
from hoglab.accounts.views import call_service, me_object, page_of, project_object, visible_projects
from hoglab.http import errors
from hoglab.http.fields.dates import format_moment
from hoglab.http.identity import Level, Principal, scope_satisfied
from hoglab.http.management import access
from hoglab.http.management.pagination import Paged, envelope
from hoglab.http.management.routing import ANY_KEY, ResourceRouter

if TYPE_CHECKING:
    from datetime import datetime

    from hoglab.accounts.service import AccountService
    from hoglab.http.management.call import Call
    from hoglab.http.management.routing import UuidId
    from hoglab.storage.database import Database

_PROJECT_SCOPES = ("project:read", "project:write")


def routers(
    accounts: AccountService, database: Database, check_account_filters: CheckFilters
) -> list[ResourceRouter]:
    """Return every router of the room."""
    return [
        _project(accounts, check_account_filters),
        _projects(accounts),
        organizations_router(accounts, check_account_filters),
        _users(accounts),
        _keys(accounts),
        _activity(database),
    ]


# Projects


def _project(accounts: AccountService, check_account_filters: CheckFilters) -> ResourceRouter:
    router = ResourceRouter("", tag="projects", scopes=_PROJECT_SCOPES)

    @router.get("/", response=ProjectOut)
    async def read_project(call: Call) -> dict[str, Any]:
        """Read a project."""
        return project_object(call.project, call.principal)

    @router.patch("/", body=ProjectChanges, response=ProjectOut)
    def change_project(call: Call) -> dict[str, Any]:
        """Change a project. Needs an admin."""
        return update_project(accounts, check_account_filters, call, call.project)

    @router.delete("/", status=204)
    def remove_project(call: Call) -> None:
        """Delete a project. Needs an admin.

        The token and the paths of the project stop working at once, and its events are erased within an hour. The last
        project of an organization is not deleted.
        """
        delete_project(accounts, call, call.project)

    @router.patch("/rotate_secret_token", response=ProjectSecretOut, shows_secret=True)
    def rotate_secret_token(call: Call) -> dict[str, Any]:
        """Give a project a new secret key for local evaluation of flags; the last one stays valid as a backup.

        Needs an admin, and a key that may itself read flags and does not expire, as the secret key does not.
        """
        access.check_level(call.principal, Level.ADMIN)
        check_grant(call.principal, SECRET_SCOPES, None)
        key = call_service(accounts.rotate_secret_key, call.project.id, call.principal.user.id)
        backup = accounts.secret_keys(call.project.id)[1:]
        return {
            **project_object(call.project, call.principal),
            "secret_api_token": key.value,
            "secret_api_token_backup": backup[0]["mask_value"] if backup else None,
        }

    @router.patch("/delete_secret_token_backup", response=ProjectOut)
    def delete_secret_token_backup(call: Call) -> dict[str, Any]:
        """Revoke the secret key before the current one. Needs what making one needs."""
        access.check_level(call.principal, Level.ADMIN)
        check_grant(call.principal, SECRET_SCOPES, None)
        accounts.revoke_backup_secret_key(call.project.id)
        return project_object(call.project, call.principal)

    return router


def _projects(accounts: AccountService) -> ResourceRouter:
    router = ResourceRouter("/api/projects", tag="projects", scopes=_PROJECT_SCOPES, project_scoped=False)

    @router.get("/", response=Paged[ProjectOut], limited_keys=True)
    def list_projects(call: Call) -> dict[str, Any]:
        """List the projects that the key reaches."""
        return page_of(
            call,
            [
                project_object(project, call.principal)
                for project in visible_projects(accounts, call.principal)
            ],
        )

    return router


# Users


def _users(accounts: AccountService) -> ResourceRouter:
    router = ResourceRouter(
        "/api/users", tag="users", scopes=("user:read", "user:write"), project_scoped=False
    )

    @router.get("/@me", response=MeOut, limited_keys=True)
    def read_me(call: Call) -> dict[str, Any]:
        """Read the user behind the key."""
        return me_object(accounts, call.principal)

    return router


# Personal API keys


def key_object(key: Mapping[str, Any], value: str | None = None) -> dict[str, Any]:
    """Return a personal API key as the wire shows it."""
    return {
        "id": key["id"],
        "user_id": key["user_id"],
        "label": key["label"],
        "value": value,
        "mask_value": key["mask_value"],
        "scopes": key["scopes"],
        "scoped_teams": key["scoped_projects"],
        "scoped_organizations": key["scoped_organizations"],
        "created_at": key["created_at"],
        "expires_at": key["expires_at"],
        "last_used_at": key["last_used_at"],
        "last_rolled_at": key["last_rolled_at"],
    }


def _keys(accounts: AccountService) -> ResourceRouter:
    router = ResourceRouter(
        "/api/personal_api_keys",
        tag="personal API keys",
        scopes=("personal_api_key:read", "personal_api_key:write"),
        project_scoped=False,
    )

    def own_key(call: Call, key_id: str) -> Mapping[str, Any]:
        keys = accounts.personal_keys(call.principal.user.id, key_id)
        if not keys:
            raise errors.not_found()
        return keys[0]

    def weaker_key(call: Call, key_id: str) -> Mapping[str, Any]:
        """Return a key that the caller may change: it may do no more than the caller."""
        key = own_key(call, key_id)
        check_grant(call.principal, key["scopes"], key["expires_at"])
        return key

    @router.get("/", response=list[KeyOut])
    def list_keys(call: Call) -> list[dict[str, Any]]:
        """List the user's keys, newest first, without their values."""
        return [key_object(key) for key in accounts.personal_keys(call.principal.user.id)]

    @router.post("/", body=KeyIn, response=KeyOut, status=201, shows_secret=True)
    def create_key(call: Call) -> dict[str, Any]:
        """Create a key. Its value is in this answer and cannot be read again."""
        body = call.validate(KeyIn)
        check_grant(call.principal, body.scopes, body.expires_at)
        _check_limits(call.principal, body.scoped_teams, body.scoped_organizations, accounts)
        key = call_service(
            accounts.create_key,
            call.principal.user.id,
            body.label,
            body.scopes,
            scoped_projects=body.scoped_teams,
            scoped_organizations=body.scoped_organizations,
            expires_at=body.expires_at,
        )
        return key_object(own_key(call, key.id), key.value)

    @router.get("/@current", response=KeyOut, scope=ANY_KEY, limited_keys=True)
    def read_current_key(call: Call) -> dict[str, Any]:
        """Read the key that sends the request, without its value: tools ask it what they may do. 404 for a session."""
        if call.principal.key_id is None:
            raise errors.not_found()
        key = key_object(own_key(call, call.principal.key_id))
        # PostHog's toolkit takes lists alone here, and an empty one for no limit.
        return {**key, **{name: key[name] or [] for name in ("scoped_teams", "scoped_organizations")}}

    @router.get("/{key_id}", response=KeyOut)
    def read_key(call: Call, key_id: UuidId) -> dict[str, Any]:
        """Read a key, without its value."""
        return key_object(own_key(call, key_id))

    @router.patch("/{key_id}", body=KeyChanges, response=KeyOut)
    def update_key(call: Call, key_id: UuidId) -> dict[str, Any]:
        """Change the label, scopes or limits of a key."""
        key = weaker_key(call, key_id)
        body = call.validate(KeyChanges)
        changes = body.sent()
        if "scoped_teams" in changes:
            changes["scoped_projects"] = changes.pop("scoped_teams")
        after = {**key, **changes}
        check_grant(call.principal, after["scopes"], key["expires_at"])
        _check_limits(call.principal, after["scoped_projects"], after["scoped_organizations"], accounts)
        if changes:
            call_service(accounts.update_key, key_id, changes)
        return key_object(own_key(call, key_id))

    @router.post("/{key_id}/roll", response=KeyOut, shows_secret=True)
    def roll_key(call: Call, key_id: UuidId) -> dict[str, Any]:
        """Give a key a new value; the old one stops working at once."""
        weaker_key(call, key_id)
        rolled = accounts.roll_key(key_id)
        return key_object(own_key(call, key_id), rolled.value)

    @router.delete("/{key_id}", status=204)
    def revoke_key(call: Call, key_id: UuidId) -> None:
        """Revoke a key; it stops working at once."""
        weaker_key(call, key_id)
        accounts.revoke_key(key_id)

    return router


def check_grant(principal: Principal, scopes: Iterable[str], expires_at: datetime | None) -> None:
    """Raise 403 where a key, or a session, with these scopes until this moment could do more than the caller."""
    for scope in sorted(scopes):
        if not scope_satisfied(scope, principal.scopes):
            raise errors.permission_denied(f"API key cannot grant scope '{scope}', which it does not have")
    ends_at = principal.key_expires_at
    if ends_at is not None and (expires_at is None or expires_at > ends_at):
        raise errors.permission_denied(
            f"API key cannot grant more time than it has itself: it expires at {format_moment(ends_at)}"
        )


def _check_limits(
    principal: Principal,
    projects: Sequence[int] | None,
    organizations: Sequence[str] | None,
    accounts: AccountService,
) -> None:
    """Raise 400 for limits that name what the user does not reach."""
    for project_id in projects or ():
        project = accounts.project(project_id)
        if project is None or not principal.reaches_project(project):
            raise errors.does_not_exist(project_id, "scoped_teams")
    for organization_id in organizations or ():
        if organization_id not in principal.levels:
            raise errors.does_not_exist(organization_id, "scoped_organizations")


# Activity log


def _activity(database: Database) -> ResourceRouter:
    router = ResourceRouter("/activity_log", tag="activity log", scopes=("activity_log:read",) * 2)

    @router.get("/", query=ActivityQuery, response=Paged[ActivityOut])
    def list_activity(call: Call) -> dict[str, Any]:
        """List who changed what, newest first."""
        scopes = [*call.query_list("scope"), *",".join(call.query_list("scopes")).split(",")]
        page = call.page()
        with database.read() as connection:
            items, count = activity.entries(
                connection,
                call.project.id,
                limit=page.limit,
                offset=page.offset,
                scopes=[scope for scope in scopes if scope],
                item_id=call.query("item_id") or None,
                user_uuid=call.query("user") or None,
            )
        return envelope(call, items, count)

    return router
