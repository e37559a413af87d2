"""Wire formats of the accounts room."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from hoglab.accounts.service import MAX_LABEL_LENGTH, MAX_NAME_LENGTH, SITE_SETTINGS
from hoglab.http.fields.fields import (
    Bool,
    Int,
    JsonList,
    JsonObject,
    Moment,
    PrimaryKey,
    Text,
    Uuid,
    WireModel,
)
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.property_filters import Properties
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning, UserOut

NOTES: Notes = {
    "name": Note("Display name.", "Shop"),
    "organization": Note("The id of its organization.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
    "api_token": Note("The token that SDKs send; no secret.", "phc_…"),
    "secret_api_token": Note("The secret key, for local evaluation on servers.", "phs_…"),
    "test_account_filters": Note("Filters of test accounts, which `filterTestAccounts` leaves out.", []),
    "person_display_name_properties": "Properties whose first value names a person; null for the usual ones.",
    "event_retention_days": (
        "Number of days for which events are kept, if fewer than the server's; null: the server's."
    ),
    "anonymize_ips": "Whether the addresses of clients are forgotten.",
    **dict.fromkeys(SITE_SETTINGS, "Kept and answered for tools that manage it; has no effect here."),
    "slug": Note("Name for addresses, which tools accept in place of the id.", "acme-018f6c1e"),
    "joined_at": "Time when the user became a member.",
    "label": Note("Display name of the key.", "ci"),
    "scopes": Note(
        "Scopes of the key: `experiment:read`, `experiment:write`, …, or `*`.", ["experiment:read"]
    ),
    "scoped_teams": "The ids of the projects that it is limited to; null for all.",
    "scoped_organizations": "The ids of the organizations that it is limited to; null for all.",
    "expires_at": "Expiry time; null for never.",
    "user_id": "The id of the user whose key it is.",
    "value": "The key itself, when it was just made or rolled; else null.",
    "mask_value": Note("Enough of it to recognise it by.", "phx_...abcd"),
    "last_used_at": "Time of the last use, by the hour; null for never.",
    "last_rolled_at": "Time when the key got a new value; null if it has its first one.",
    "membership_level": Note("Level of the user's membership: 1 member, 8 admin, 15 owner.", 15),
    "projects": Note("Projects of the organization.", [{"id": 1, "name": "Shop"}]),
    "date_joined": "Creation time of the user.",
    "is_staff": "Always false here; there for clients that read it.",
    "team": "The current project.",
    "organizations": "Every organization of the user.",
    "scope": Note("Kinds of objects: `Experiment`, `FeatureFlag`, `HogFunction`, ….", "Experiment"),
    "item_id": Note("The id of the object.", "12"),
    "user": "User who made the change; null for the server itself. In a query: the uuid.",
    "activity": Note("Kind of change: `created`, `updated`, `deleted`, ….", "updated"),
    "detail": Note("Name of the object then, and its fields before and after.", {"name": "Button colour"}),
    "is_system": "Whether the server did it by itself.",
    "was_impersonated": "Always false here; there for clients that read it.",
    "unread": "Always false here; there for clients that read it.",
}


MAX_ADDRESSES = 100
"""Maximum number of addresses in a list of a project's settings."""
MAX_ADDRESS_LENGTH = 400
MAX_HASH_MODE = 32_767
"""Largest number that PostHog stores as a mode."""
Address = Text(max_length=MAX_ADDRESS_LENGTH)


class ProjectIn(WireModel):
    """A new project."""

    notes = NOTES

    name: Annotated[str, Text(max_length=MAX_NAME_LENGTH)]
    timezone: Annotated[str, Text(max_length=64)] = "UTC"


class ProjectChanges(WireModel):
    """Changes to a project; a field that is left out stays as it is."""

    notes = NOTES

    name: Annotated[str, Text(max_length=MAX_NAME_LENGTH)] = ""
    timezone: Annotated[str, Text(max_length=64)] = "UTC"
    test_account_filters: Annotated[list[dict[str, Any]], JsonList(JsonObject()), Keys(Properties)] = Field(
        default_factory=list
    )
    person_display_name_properties: Annotated[list[str], JsonList(Text(max_length=400))] | None = None
    anonymize_ips: Annotated[bool, Bool()] = False
    event_retention_days: Annotated[int, Int(min=1, max=36_500)] | None = None
    app_urls: Annotated[list[str], JsonList(Address, max_length=MAX_ADDRESSES)] = Field(default_factory=list)
    recording_domains: Annotated[list[str], JsonList(Address, max_length=MAX_ADDRESSES)] | None = None
    heatmaps_opt_in: Annotated[bool, Bool()] | None = None
    autocapture_exceptions_opt_in: Annotated[bool, Bool()] | None = None
    autocapture_web_vitals_opt_in: Annotated[bool, Bool()] | None = None
    session_recording_opt_in: Annotated[bool, Bool()] = False
    surveys_opt_in: Annotated[bool, Bool()] | None = None
    cookieless_server_hash_mode: Annotated[int, Int(min=0, max=MAX_HASH_MODE)] = 0


class KeyIn(WireModel):
    """A new personal API key."""

    notes = NOTES

    label: Annotated[str, Text(max_length=MAX_LABEL_LENGTH)]
    scopes: Annotated[list[str], JsonList(Text(max_length=100))]
    scoped_teams: Annotated[list[int], JsonList(PrimaryKey())] | None = None
    scoped_organizations: Annotated[list[str], JsonList(Uuid())] | None = None
    expires_at: Annotated[datetime, Moment()] | None = None


class KeyChanges(WireModel):
    """Changes to a key; a field that is left out stays as it is."""

    notes = NOTES

    label: Annotated[str, Text(max_length=MAX_LABEL_LENGTH)] = ""
    scopes: Annotated[list[str], JsonList(Text(max_length=100))] = Field(default_factory=list)
    scoped_teams: Annotated[list[int], JsonList(PrimaryKey())] | None = None
    scoped_organizations: Annotated[list[str], JsonList(Uuid())] | None = None


class ActivityQuery(WireModel):
    """Filter for entries of the activity log."""

    notes = {**NOTES, "scopes": "Several kinds of objects, joined by commas."}  # noqa: RUF012

    scope: Annotated[str, Text()] | None = None
    scopes: Annotated[str, Text()] | None = None
    item_id: Annotated[str, Text()] | None = None
    user: Annotated[str, Uuid()] | None = None
    limit: Annotated[int, Int()] | None = None
    offset: Annotated[int, Int()] | None = None


class ProjectOut(WireModel):
    """A project."""

    notes = NOTES

    id: int
    uuid: str
    organization: str
    name: str
    api_token: str
    timezone: str
    test_account_filters: list[dict[str, Any]]
    person_display_name_properties: list[str] | None
    anonymize_ips: bool
    event_retention_days: int | None
    app_urls: list[str]
    recording_domains: list[str] | None
    heatmaps_opt_in: bool | None
    autocapture_exceptions_opt_in: bool | None
    autocapture_web_vitals_opt_in: bool | None
    session_recording_opt_in: bool
    surveys_opt_in: bool | None
    cookieless_server_hash_mode: int
    created_at: datetime
    updated_at: datetime
    user_access_level: str
    warnings: list[FieldWarning] = Field(default_factory=list)


class ProjectSecretOut(ProjectOut):
    """A project with its new secret key, which is shown this once."""

    secret_api_token: str
    secret_api_token_backup: str | None
    """The previous key, masked: it still works."""


class OrganizationOut(WireModel):
    """An organization that the user is a member of. ``membership_level``: 1 member, 8 admin, 15 owner."""

    notes = NOTES

    id: str
    name: str
    slug: str
    created_at: datetime
    membership_level: int
    projects: list[dict[str, Any]]


class MemberOut(WireModel):
    """A member of an organization. ``level``: 1 member, 8 admin, 15 owner."""

    notes = NOTES

    id: str = Field(description="The id of the membership.")
    user: UserOut
    level: int = Field(description="Level of the membership.", examples=[15])
    joined_at: datetime
    updated_at: datetime
    is_2fa_enabled: bool = Field(description="Always false here; there for clients that read it.")
    has_social_auth: bool = Field(description="Always false here; there for clients that read it.")


class RoleOut(WireModel):
    """A role; there are none here."""

    id: str
    name: str = Field(description="Display name of the role.")


class InvitationOut(WireModel):
    """An invitation; there are none here."""

    id: str
    target_email: str = Field(description="Address that was invited.")


class MeOut(WireModel):
    """The user behind the key."""

    notes = {**NOTES, "organization": "The current organization."}  # noqa: RUF012

    id: int
    uuid: str
    distinct_id: str
    first_name: str
    last_name: str
    email: str
    is_email_verified: bool | None
    hedgehog_config: dict[str, Any] | None
    role_at_organization: str | None
    date_joined: datetime
    is_staff: bool
    team: ProjectOut | None
    organization: OrganizationOut | None
    organizations: list[OrganizationOut]


class KeyOut(WireModel):
    """A personal API key. ``value`` is there when the key was just made or rolled, else null."""

    notes = NOTES

    id: str
    user_id: int
    label: str
    value: str | None
    mask_value: str
    scopes: list[str]
    scoped_teams: list[int] | None
    scoped_organizations: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    last_rolled_at: datetime | None
    warnings: list[FieldWarning] = Field(default_factory=list)


class ActivityOut(WireModel):
    """One entry of the activity log."""

    notes = NOTES

    id: str
    user: dict[str, Any] | None
    activity: str
    scope: str
    item_id: str
    detail: dict[str, Any]
    created_at: datetime
    is_system: bool
    was_impersonated: bool
    unread: bool
