"""Actions on the wire."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from hoglab.http.fields.fields import Bool, Choice, JsonAny, JsonList, Text, WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.property_filters import Properties
from hoglab.http.fields.unknown_keys import Keys
from hoglab.http.fields.wire import FieldWarning, UserOut

MAX_STEPS = 100
MAX_TAGS = 100
MAX_TEXT = 4_000

Matching = Annotated[str, Choice("exact", "contains", "regex")]
Part = Annotated[str, Text(max_length=MAX_TEXT, blank=True, trim=False)]


NOTES: Notes = {
    "name": Note("Display name.", "Bought something"),
    "description": "Description of the action.",
    "steps": Note("Ways to match, any of which suffices; see `StepIn`.", [{"event": "purchase"}]),
}


class StepIn(WireModel):
    """One way to match: every part that is given must fit. Without any part every event matches."""

    closed = True
    unused = frozenset({"id", "name", "isNew", "selector_regex"})

    event: Part | None = Field(None, description="Name of the event; null or missing for any.")
    properties: Annotated[Any, JsonAny(), Keys(Properties)] = Field(
        None,
        description="Property filters that the event must match.",
        examples=[[{"key": "plan", "type": "event", "value": "pro"}]],
    )
    url: Part | None = Field(None, description="Pattern that `$current_url` must match.")
    url_matching: Matching | None = Field(None, description="Comparison of `url`; default `contains`.")
    selector: Part | None = Field(None, description="CSS selector of the element, for `$autocapture`.")
    tag_name: Part | None = None
    text: Part | None = Field(None, description="Text of the element, for `$autocapture`.")
    text_matching: Matching | None = Field(None, description="Comparison of `text`; default `exact`.")
    href: Part | None = Field(None, description="Link of the element, for `$autocapture`.")
    href_matching: Matching | None = Field(None, description="Comparison of `href`; default `exact`.")


class ActionPatch(WireModel):
    """Changes to an action; all fields are optional."""

    notes = NOTES

    name: Annotated[str, Text(max_length=400)] = ""
    description: Annotated[str, Text(blank=True, max_length=MAX_TEXT)] = ""
    steps: Annotated[list[Any], JsonList(max_length=MAX_STEPS), Keys(list[StepIn])] = Field(
        default_factory=list, description="Ways to match, any of which suffices; see `StepIn`."
    )
    tags: Annotated[list[str], JsonList(Text(max_length=255), max_length=MAX_TAGS)] = Field(
        default_factory=list
    )
    deleted: Annotated[bool, Bool()] = False


class ActionIn(ActionPatch):
    """A new action."""

    name: Annotated[str, Text(max_length=400)]


class ActionListQuery(WireModel):
    """Filters of the list of actions."""

    search: str | None = Field(None, description="A part of the name")
    limit: str | None = None
    offset: str | None = None


class ActionOut(WireModel):
    """An action in full."""

    notes = NOTES

    id: int
    name: str | None
    description: str
    tags: list[str]
    steps: list[dict[str, Any]]
    deleted: bool
    team_id: int
    is_action: bool = Field(description="Always true; tells actions from events in mixed lists.")
    bytecode_error: str | None = Field(
        description="Reason for which hog functions cannot use the action; null when they can."
    )
    created_by: UserOut | None
    created_at: datetime
    updated_at: datetime
    user_access_level: str
    warnings: list[FieldWarning] = Field(default_factory=list)
