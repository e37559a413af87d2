"""What comes and goes on the wire in the accounts room."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from hoglab.accounts.service import MAX_LABEL_LENGTH, MAX_NAME_LENGTH
from hoglab.http.fields import Bool, Int, JsonList, JsonObject, Moment, PrimaryKey, Text, Uuid, WireModel


class ProjectIn(WireModel):
    """A new project."""

    name: Annotated[str, Text(max_length=MAX_NAME_LENGTH)]
    timezone: Annotated[str, Text(max_length=64)] = "UTC"


class ProjectChanges(WireModel):
    """What may be changed about a project; what is not sent stays."""

    name: Annotated[str, Text(max_length=MAX_NAME_LENGTH)] = ""
    timezone: Annotated[str, Text(max_length=64)] = "UTC"
    test_account_filters: Annotated[list[dict[str, Any]], JsonList(JsonObject())] = Field(
        default_factory=list
    )
    person_display_name_properties: Annotated[list[str], JsonList(Text(max_length=400))] | None = None
    anonymize_ips: Annotated[bool, Bool()] = False


class KeyIn(WireModel):
    """A new personal API key."""

    label: Annotated[str, Text(max_length=MAX_LABEL_LENGTH)]
    scopes: Annotated[list[str], JsonList(Text(max_length=100))]
    scoped_teams: Annotated[list[int], JsonList(PrimaryKey())] | None = None
    scoped_organizations: Annotated[list[str], JsonList(Uuid())] | None = None
    expires_at: Annotated[datetime, Moment()] | None = None


class KeyChanges(WireModel):
    """What may be changed about a key; what is not sent stays."""

    label: Annotated[str, Text(max_length=MAX_LABEL_LENGTH)] = ""
    scopes: Annotated[list[str], JsonList(Text(max_length=100))] = Field(default_factory=list)
    scoped_teams: Annotated[list[int], JsonList(PrimaryKey())] | None = None
    scoped_organizations: Annotated[list[str], JsonList(Uuid())] | None = None


class ActivityQuery(WireModel):
    """Which entries of the log to list."""

    scope: Annotated[str, Text()] | None = None
    scopes: Annotated[str, Text()] | None = None
    item_id: Annotated[str, Text()] | None = None
    user: Annotated[str, Uuid()] | None = None
    limit: Annotated[int, Int()] | None = None
    offset: Annotated[int, Int()] | None = None


class ProjectOut(BaseModel):
    """A project."""

    id: int
    uuid: str
    organization: str
    name: str
    api_token: str
    timezone: str
    test_account_filters: list[dict[str, Any]]
    person_display_name_properties: list[str] | None
    anonymize_ips: bool
    created_at: datetime
    updated_at: datetime
    user_access_level: str


class OrganizationOut(BaseModel):
    """An organization that the user is a member of. ``membership_level``: 1 member, 8 admin, 15 owner."""

    id: str
    name: str
    created_at: datetime
    membership_level: int
    projects: list[dict[str, Any]]


class UserOut(BaseModel):
    """The user behind the key."""

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


class KeyOut(BaseModel):
    """A personal API key. ``value`` is there when the key was just made or rolled, else null."""

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


class ActivityOut(BaseModel):
    """One entry of the activity log."""

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
