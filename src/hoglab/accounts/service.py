"""Organizations, projects, users and personal API keys: the rules."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zoneinfo import available_timezones

from uuid_utils import uuid7

from hoglab.accounts import store
from hoglab.accounts.errors import AccountError
from hoglab.accounts.keys import (
    SECRET_PREFIX,
    hash_key,
    mask_key,
    new_distinct_id,
    new_key,
    new_secret_key,
    new_token,
)
from hoglab.accounts.principals import PrincipalCache
from hoglab.accounts.scopes import EVERYTHING, KNOWN, scope_fault
from hoglab.accounts.usage import KeyUsage
from hoglab.http.fields.dates import format_moment, utc_now
from hoglab.http.identity import Level, Principal, Project, Unknown, User
from hoglab.storage.database.tables import project as project_table
from hoglab.storage.database.tables import user_session
from hoglab.storage.database.upsert import skip_ids

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from hoglab.storage.database import Database, Transaction

MAX_KEYS_PER_USER = 200
SECRET_SCOPES = ("feature_flag:read",)
"""Scopes of a project secret key."""
MAX_NAME_LENGTH = 200
MAX_LABEL_LENGTH = 40
MAX_SCOPES = 200

EVERYWHERE = 0
"""Project id under which changes that belong to no project are announced."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A personal API key and its value, which is not kept anywhere and cannot be shown again."""

    id: str
    value: str


RETENTION_SETTING = "event_retention_days"
"""The project setting that says how many days events are kept."""
SITE_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "app_urls": [],
        "recording_domains": None,
        "heatmaps_opt_in": None,
        "autocapture_exceptions_opt_in": None,
        "autocapture_web_vitals_opt_in": None,
        "session_recording_opt_in": False,
        "surveys_opt_in": None,
        "cookieless_server_hash_mode": 0,
    }
)
"""Project settings of products that are not here, with their defaults: kept and answered for tools."""
_SETTINGS = frozenset({RETENTION_SETTING, *SITE_SETTINGS})


class AccountService:
    """Knows every key, user and project; implements `hoglab.http.identity.Authenticator`.

    Projects are held in memory as a whole, keys as they are used; both follow the database's change feed.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
        scope_objects: Set[str] = KNOWN,
    ) -> None:
        self._database = database
        self.now = now
        self._scope_objects = scope_objects
        self.usage = KeyUsage(database, now)
        self._known = PrincipalCache(lambda secure_value: self._read_principal(secure_value), now, clock)
        self._loading = threading.Lock()
        self._by_id: Mapping[int, Project] = {}
        self._by_token: Mapping[str, Project] = {}
        database.changes.subscribe("project", lambda _: self._load_projects())
        database.changes.subscribe("keys", lambda _: self._known.forget())
        self._load_projects()

    # Who is calling

    def recall(self, key: str) -> Principal | Unknown:
        """Return the principal of a key seen lately, from memory alone."""
        return self._known.recall(key)

    def authenticate(self, key: str) -> Principal | None:
        """Return the principal of a key; None when it is unknown, revoked, expired, or its user is inactive."""
        return self._known.authenticate(key)

    def _read_principal(self, secure_value: str) -> Principal | None:
        with self._database.read() as connection:
            row = store.key_by_hash(connection, secure_value)
            if row is None or not hmac.compare_digest(row["secure_value"], secure_value):
                return None
            return self.principal_of_key(connection, row)

    def principal_of_key(self, connection: Connection, key: Mapping[str, Any]) -> Principal | None:
        """Return the authenticated user of a key's row; None when it is expired, or its user is inactive."""
        if key["expires_at"] is not None and key["expires_at"] <= self.now():
            return None
        user = self.principal_of_user(connection, key["user_id"])
        if user is None:
            return None
        projects, organizations = key["scoped_projects"], key["scoped_organizations"]
        return replace(
            user,
            key_id=key["id"],
            scopes=frozenset(key["scopes"]),
            scoped_projects=frozenset(projects) if projects is not None else None,
            scoped_organizations=frozenset(organizations) if organizations is not None else None,
            expires_at=key["expires_at"],
            key_expires_at=key["expires_at"],
        )

    def principal_of_user(self, connection: Connection, user_id: int) -> Principal | None:
        """Return a user with all permissions; None when there is none, or an inactive one."""
        user = store.user_by_id(connection, user_id)
        if user is None or not user.is_active:
            return None
        levels = store.levels(connection, user.id)
        return Principal(
            user=user,
            key_id=None,
            scopes=frozenset({EVERYTHING}),
            levels=levels,
            organization_id=self._organization_of(user, levels),
        )

    def _organization_of(self, user: User, levels: Mapping[str, int]) -> str | None:
        """Return the organization that ``@current`` means: that of the user's current project, else the oldest."""
        current = self._by_id.get(user.current_project_id or 0)
        if current is not None and current.organization_id in levels:
            return current.organization_id
        return next(iter(levels), None)

    def used(self, principal: Principal) -> None:
        """Record that a key was used; written to the database later."""
        if principal.key_id is not None:
            self.usage.note(principal.key_id)

    # Projects

    def project(self, project_id: int) -> Project | None:
        """Return the project of an id, from memory."""
        return self._by_id.get(project_id)

    def project_by_token(self, token: str) -> Project | None:
        """Return the project of a token (``phc_…``), from memory: fast enough for every event request."""
        return self._by_token.get(token)

    def projects(self, organization_id: str | None = None) -> list[Project]:
        """Return the projects of one organization, or all, by id."""
        everything = self._by_id.values()
        return [project for project in everything if organization_id in (None, project.organization_id)]

    def has_several_projects(self) -> bool:
        """Return whether there is more than one project, from memory."""
        return len(self._by_id) > 1

    def _load_projects(self) -> None:
        with self._loading:
            with self._database.read() as connection:
                projects = store.projects(connection)
            self._by_token = {project.api_token: project for project in projects}
            self._by_id = {project.id: project for project in projects}
        # The permissions of a key depend on projects too.
        self._known.forget()

    def create_project(
        self, organization_id: str, name: str, *, token: str | None = None, timezone: str = "UTC"
    ) -> Project:
        """Make a project with a token of its own. Raises `AccountError`."""
        with self._database.write() as tx:
            return self.insert_project(tx, organization_id, name, token=token, timezone=timezone)

    def insert_project(
        self,
        tx: Transaction,
        organization_id: str,
        name: str,
        *,
        project_id: int | None = None,
        token: str | None = None,
        timezone: str = "UTC",
    ) -> Project:
        """Create a project like `create_project`, inside a caller's transaction."""
        now = self.now()
        values: dict[str, Any] = {
            "uuid": str(uuid4()),
            "organization_id": organization_id,
            "name": _name(name),
            "api_token": token or new_token(),
            "timezone": _timezone(timezone),
            "test_account_filters": [],
            "experiment_defaults": {},
            "settings": {},
            "created_at": now,
            "updated_at": now,
        }
        if project_id is not None:
            values["id"] = project_id
        project = store.insert_project(tx.connection, values)
        if project_id is not None:
            skip_ids(tx.connection, project_table, project_id)
        tx.changed("project", project.id)
        return project

    def update_project(self, project_id: int, values: Mapping[str, Any]) -> Project:
        """Change fields of a project. Raises `AccountError`, and `LookupError` when there is none."""
        changes = dict(values)
        if "name" in changes:
            changes["name"] = _name(changes["name"])
        if "timezone" in changes:
            changes["timezone"] = _timezone(changes["timezone"])
        with self._database.write() as tx:
            before = store.project_by_id(tx.connection, project_id)
            if before is None:
                raise LookupError(f"no project {project_id}")
            settings = {name: changes.pop(name) for name in _SETTINGS & changes.keys()}
            if settings:
                changes["settings"] = {**before.settings, **settings}
            project = store.update_project(tx.connection, project_id, {**changes, "updated_at": self.now()})
            assert project is not None  # noqa: S101 - it was read in this transaction
            tx.changed("project", project_id)
        return project

    def delete_project(self, project_id: int) -> None:
        """Delete a project: nobody reaches it any more, its token is refused, and its events are erased soon.

        Raises `AccountError` for the last project of an organization, and `LookupError` when there is no such project.
        """
        with self._database.write() as tx:
            remaining = store.projects(tx.connection)
            project = next((project for project in remaining if project.id == project_id), None)
            if project is None:
                raise LookupError(f"no project {project_id}")
            if sum(other.organization_id == project.organization_id for other in remaining) == 1:
                raise AccountError("The last project of an organization cannot be deleted.")
            now = self.now()
            settings = {**project.settings, store.DELETED_SETTING: format_moment(now)}
            store.update_project(tx.connection, project_id, {"settings": settings, "updated_at": now})
            tx.changed("project", project_id)

    def projects_ever(self) -> list[Project]:
        """Return every project, also deleted ones, from the database."""
        with self._database.read() as connection:
            return store.projects_ever(connection)

    def update_experiment_defaults(self, project_id: int, changes: Mapping[str, Any]) -> Project:
        """Change the defaults of a project's experiments; None removes a value, values that are not named stay.

        Raises `LookupError` when there is no such project.
        """
        with self._database.write() as tx:
            before = store.project_by_id(tx.connection, project_id)
            if before is None:
                raise LookupError(f"no project {project_id}")
            merged = {**before.experiment_defaults, **changes}
            defaults = {name: value for name, value in merged.items() if value is not None}
            after = replace(before, experiment_defaults=defaults, updated_at=self.now())
            stored = {"experiment_defaults": defaults, "updated_at": after.updated_at}
            store.update_project(tx.connection, project_id, stored)
            tx.changed("project", project_id)
        return after

    # Organizations and users

    def create_organization(self, name: str) -> str:
        """Make an organization without members. Return its id. Raises `AccountError`."""
        organization_id = str(uuid4())
        with self._database.write() as tx:
            store.insert_organization(tx.connection, organization_id, _name(name), self.now())
        return organization_id

    def organizations(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return organizations of some ids, oldest first."""
        with self._database.read() as connection:
            return store.organizations(connection, ids)

    def create_user(
        self, email: str, *, first_name: str = "", last_name: str = "", current_project_id: int | None = None
    ) -> User:
        """Make a user who is no member of anything yet. Raises `AccountError`."""
        with self._database.write() as tx:
            return self.insert_user(tx, email, first_name, last_name, current_project_id)

    def insert_user(
        self, tx: Transaction, email: str, first_name: str, last_name: str, current_project_id: int | None
    ) -> User:
        """Create a user like `create_user`, inside a caller's transaction."""
        if store.user_by_email(tx.connection, email) is not None:
            raise AccountError(f"There is already a user {email}.", "email")
        values = {
            "uuid": str(uuid4()),
            "distinct_id": new_distinct_id(),
            "email": email,
            "first_name": first_name,
            "last_name": last_name,
            "current_project_id": current_project_id,
            "created_at": self.now(),
        }
        return store.insert_user(tx.connection, values)

    def join(self, organization_id: str, user_id: int, level: Level = Level.MEMBER) -> None:
        """Make a user a member of an organization, or change the level of a member."""
        with self._database.write() as tx:
            store.delete_membership(tx.connection, organization_id, user_id)
            store.insert_membership(tx.connection, organization_id, user_id, level, self.now())
            tx.changed("keys", EVERYWHERE)

    def leave(self, organization_id: str, user_id: int) -> bool:
        """End a membership. Return False when there was none."""
        with self._database.write() as tx:
            tx.changed("keys", EVERYWHERE)
            return store.delete_membership(tx.connection, organization_id, user_id)

    def members(self, organization_id: str) -> list[tuple[User, int, datetime]]:
        """Return the users of an organization with their level and the time when they joined, oldest first."""
        with self._database.read() as connection:
            memberships = store.memberships(connection, organization_id)
            users = store.users(connection, [user_id for user_id, _, _ in memberships])
        return [(users[user_id], level, joined_at) for user_id, level, joined_at in memberships]

    def set_active(self, user_id: int, active: bool) -> None:
        """Let a user in, or lock them and their keys out, and end their sessions."""
        with self._database.write() as tx:
            store.update_user(tx.connection, user_id, {"is_active": active})
            if not active:
                store.delete_sessions(tx.connection, user_session.c.user_id == user_id)
            tx.changed("keys", EVERYWHERE)

    def users(self, ids: Sequence[int]) -> dict[int, User]:
        """Return users of some ids, by id."""
        with self._database.read() as connection:
            return store.users(connection, ids)

    def user_id(self, email: str) -> int:
        """Return the user with an e-mail address. Raises `AccountError` when there is none."""
        with self._database.read() as connection:
            user = store.user_by_email(connection, email)
        if user is None:
            raise AccountError(f"there is no user {email}")
        return user.id

    def owner_id(self) -> int:
        """Return the user for whom keys are made on the command line. Raises `AccountError` when there is none."""
        with self._database.read() as connection:
            user_id = store.owner_id(connection)
        if user_id is None:
            raise AccountError("there is no user yet")
        return user_id

    # Personal API keys

    def create_key(
        self,
        user_id: int,
        label: str,
        scopes: Sequence[str],
        *,
        scoped_projects: Sequence[int] | None = None,
        scoped_organizations: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        value: str | None = None,
    ) -> NewKey:
        """Make a key. Its value is in the answer and nowhere else. Raises `AccountError`."""
        with self._database.write() as tx:
            return self.insert_key(
                tx,
                user_id,
                label,
                scopes,
                scoped_projects=scoped_projects,
                scoped_organizations=scoped_organizations,
                expires_at=expires_at,
                value=value,
            )

    def insert_key(
        self,
        tx: Transaction,
        user_id: int,
        label: str,
        scopes: Sequence[str],
        *,
        scoped_projects: Sequence[int] | None = None,
        scoped_organizations: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        value: str | None = None,
    ) -> NewKey:
        """Create a key like `create_key`, inside a caller's transaction."""
        now = self.now()
        if store.count_keys(tx.connection, user_id) >= MAX_KEYS_PER_USER:
            raise AccountError(f"A user may have at most {MAX_KEYS_PER_USER} personal API keys.")
        if expires_at is not None and expires_at <= now:
            raise AccountError("The moment of expiry is in the past.", "expires_at")
        key = NewKey(str(uuid7()), value or new_key())
        store.insert_key(
            tx.connection,
            {
                "id": key.id,
                "user_id": user_id,
                "label": _label(label),
                "secure_value": hash_key(key.value),
                "mask_value": mask_key(key.value),
                "scopes": check_scopes(scopes, self._scope_objects),
                "scoped_projects": list(scoped_projects) if scoped_projects is not None else None,
                "scoped_organizations": list(scoped_organizations)
                if scoped_organizations is not None
                else None,
                "created_at": now,
                "expires_at": expires_at,
            },
        )
        tx.changed("keys", EVERYWHERE)
        return key

    def keys(self, user_id: int | None = None, key_id: str | None = None) -> list[dict[str, Any]]:
        """Return keys without their values, newest first: of one user, of one id, or all."""
        with self._database.read() as connection:
            return store.keys(connection, user_id, key_id)

    def personal_keys(self, user_id: int, key_id: str | None = None) -> list[dict[str, Any]]:
        """Return a user's own keys, without the secret keys of projects that this user made."""
        return [row for row in self.keys(user_id, key_id) if not row["mask_value"].startswith(SECRET_PREFIX)]

    def update_key(self, key_id: str, values: Mapping[str, Any]) -> None:
        """Change a key's label, scopes or limits. Raises `AccountError`; `LookupError` when there is none."""
        changes = dict(values)
        if "label" in changes:
            changes["label"] = _label(changes["label"])
        if "scopes" in changes:
            changes["scopes"] = check_scopes(changes["scopes"], self._scope_objects)
        with self._database.write() as tx:
            if not store.update_key(tx.connection, key_id, changes):
                raise LookupError(f"no key {key_id}")
            tx.changed("keys", EVERYWHERE)

    def roll_key(self, key_id: str) -> NewKey:
        """Give a key a new value; the old one stops working at once, and its sessions end.

        Raises `LookupError`.
        """
        value = new_key()
        changes = {
            "secure_value": hash_key(value),
            "mask_value": mask_key(value),
            "last_rolled_at": self.now(),
            "last_used_at": None,
        }
        with self._database.write() as tx:
            if not store.update_key(tx.connection, key_id, changes):
                raise LookupError(f"no key {key_id}")
            store.delete_sessions(tx.connection, user_session.c.key_id == key_id)
            tx.changed("keys", EVERYWHERE)
        return NewKey(key_id, value)

    # Project secret keys (spec: sdk-wire 4.1): keys of one project that may do nothing but read its flags.

    def secret_keys(self, project_id: int) -> list[dict[str, Any]]:
        """Return the secret keys of a project without their values, newest first: the current one and the backup."""
        return [
            row
            for row in self.keys()
            if row["mask_value"].startswith(SECRET_PREFIX) and row["scoped_projects"] == [project_id]
        ]

    def rotate_secret_key(self, project_id: int, user_id: int) -> NewKey:
        """Give a project a new secret key. The last one still works, as a backup; one before that does not.

        The key depends on the user's membership. Raises `AccountError`.
        """
        for row in self.secret_keys(project_id)[1:]:
            self.revoke_key(row["id"])
        return self.create_key(
            user_id,
            "Project secret key",
            SECRET_SCOPES,
            scoped_projects=[project_id],
            value=new_secret_key(),
        )

    def revoke_backup_secret_key(self, project_id: int) -> None:
        """Revoke the secret key before the current one."""
        for row in self.secret_keys(project_id)[1:]:
            self.revoke_key(row["id"])

    def revoke_key(self, key_id: str) -> bool:
        """Remove a key and its sessions for good. Return False when there is none."""
        with self._database.write() as tx:
            tx.changed("keys", EVERYWHERE)
            return store.delete_key(tx.connection, key_id)


def check_scopes(scopes: Sequence[str], objects: Set[str] = KNOWN) -> list[str]:
    """Return scopes without repetitions. Raises `AccountError` for none, too many, or an invalid one."""
    if not scopes:
        raise AccountError("A key needs at least one scope.", "scopes")
    if len(scopes) > MAX_SCOPES:
        raise AccountError(f"A key may have at most {MAX_SCOPES} scopes.", "scopes")
    for scope in scopes:
        fault = scope_fault(scope, objects)
        if fault is not None:
            raise AccountError(f"Invalid scope: {scope}. {fault}", "scopes")
    return list(dict.fromkeys(scopes))


def _name(text: str) -> str:
    name = text.strip()
    if not name:
        raise AccountError("A name may not be blank.", "name")
    if len(name) > MAX_NAME_LENGTH:
        raise AccountError(f"A name has at most {MAX_NAME_LENGTH} characters.", "name")
    return name


def _label(text: str) -> str:
    label = text.strip()
    if not label:
        raise AccountError("A key needs a label.", "label")
    if len(label) > MAX_LABEL_LENGTH:
        raise AccountError(f"A label has at most {MAX_LABEL_LENGTH} characters.", "label")
    return label


def _timezone(name: str) -> str:
    if name not in available_timezones():
        raise AccountError(f"{name} is not a known time zone.", "timezone")
    return name
