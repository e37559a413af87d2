"""Identities: the caller, and the project that is meant; the data behind every access check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from typing import Any, Protocol


class Level(IntEnum):
    """Level of a membership in an organization."""

    MEMBER = 1
    ADMIN = 8
    OWNER = 15


@dataclass(frozen=True, slots=True)
class Project:
    """One project: the fields of the project table."""

    id: int
    uuid: str
    organization_id: str
    name: str
    api_token: str
    timezone: str
    test_account_filters: list[dict[str, Any]]
    person_display_name_properties: list[str] | None
    anonymize_ips: bool
    experiment_defaults: dict[str, Any]
    settings: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class User:
    """One user: the fields of the user table."""

    id: int
    uuid: str
    distinct_id: str
    email: str
    first_name: str
    last_name: str
    is_email_verified: bool | None
    hedgehog_config: dict[str, Any] | None
    role_at_organization: str | None
    is_active: bool
    current_project_id: int | None
    created_at: datetime


def scope_satisfied(wanted: str, held: frozenset[str]) -> bool:
    """Return whether a key with the scopes ``held`` may do what needs ``wanted`` (spec: experiments-api 1.3).

    ``x:read`` is satisfied by ``x:read`` and ``x:write``, ``x:write`` by itself alone; ``*`` satisfies all.
    """
    if wanted in held or "*" in held:
        return True
    resource, _, action = wanted.partition(":")
    return action == "read" and f"{resource}:write" in held


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated caller: the user of a personal API key or a session, and its permissions."""

    user: User
    key_id: str | None
    """The key; of a session, the one that it was made from, if any."""
    scopes: frozenset[str]
    levels: Mapping[str, int] = field(default_factory=dict)
    """Membership level by organization id."""
    scoped_projects: frozenset[int] | None = None
    """The only projects that the key is for; None for all."""
    scoped_organizations: frozenset[str] | None = None
    """The only organizations that the key is for; None for all."""
    expires_at: datetime | None = None
    key_expires_at: datetime | None = None
    """Expiry of the key, also where the caller is a session of it; None for a key without one, or no key."""
    organization_id: str | None = None
    """The organization that `level` and `is_admin` speak about: that of the called project."""
    session_id: str | None = None
    """The session of a browser; None where the key itself was sent."""

    @property
    def credential(self) -> str:
        """The id of the credential that was sent; requests are counted by it."""
        return self.session_id or self.key_id or ""

    @property
    def level(self) -> int | None:
        """Membership level in the current organization; None for no member."""
        return None if self.organization_id is None else self.levels.get(self.organization_id)

    @property
    def is_admin(self) -> bool:
        """Whether the user is an admin or owner of the current organization."""
        return (self.level or 0) >= Level.ADMIN

    def has_scope(self, scope: str) -> bool:
        """Return whether the key holds a scope, or one that implies it."""
        return scope_satisfied(scope, self.scopes)

    def reaches_project(self, project: Project) -> bool:
        """Return whether key limits and membership let this principal into a project."""
        return (
            (self.scoped_projects is None or project.id in self.scoped_projects)
            and (self.scoped_organizations is None or project.organization_id in self.scoped_organizations)
            and project.organization_id in self.levels
        )

    @property
    def current_project_id(self) -> int | None:
        """The project that is meant when none is named: the only one the key is for, else the user's current one."""
        if self.scoped_projects is not None and len(self.scoped_projects) == 1:
            return next(iter(self.scoped_projects))
        return self.user.current_project_id

    def at(self, organization_id: str) -> Principal:
        """Return the principal with another current organization."""
        return (
            self
            if self.organization_id == organization_id
            else replace(self, organization_id=organization_id)
        )

    def access_level(self, created_by_id: int | None) -> str:
        """Return the ``user_access_level`` of an object: admins and its creator manage it, others edit it.

        spec: experiments-api 1.10
        """
        return "manager" if self.is_admin or created_by_id == self.user.id else "editor"


class Unknown:
    """Answer of `Authenticator` when its cache does not hold the credential."""


UNKNOWN = Unknown()


class Credentials(Protocol):
    """Turns secrets of one kind (keys, or what the cookies of sessions carry) into principals."""

    def recall(self, key: str, /) -> Principal | Unknown:
        """Return the principal of a secret that was seen lately, from memory: called on the event loop."""
        ...

    def authenticate(self, key: str, /) -> Principal | None:
        """Return the principal of a secret; None when it is unknown, revoked, expired, or its user is inactive.

        May read the database: called in a worker thread.
        """
        ...

    def used(self, principal: Principal, /) -> None:
        """Record that a secret was used. Called on the event loop: must only remember."""
        ...


class Authenticator(Credentials, Protocol):
    """Turns keys into principals and ids into projects."""

    def project(self, project_id: int) -> Project | None:
        """Return the project of an id, from memory; None when there is none."""
        ...
