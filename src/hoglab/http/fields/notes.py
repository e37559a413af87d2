"""Descriptions and examples of fields for the documents, by the names of the fields.

A model names the notes of its room (``notes = EXPERIMENT_NOTES``), so that what is written, changed and shown under
one name is described once. `SHARED` describes names that mean the same on every resource. A field that describes
itself (``Field(description=…)``) needs no note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Note(NamedTuple):
    """The description of a field, and a typical value where the type alone does not give one."""

    text: str
    example: Any = None


Notes = Mapping[str, Note | str]

_CLOSED = frozenset({"enum", "const"})


def annotate(properties: Mapping[str, dict[str, Any]], notes: Notes) -> None:
    """Add descriptions and examples to the properties of a JSON Schema that have none."""
    for name, schema in properties.items():
        known = notes.get(name, SHARED.get(name))
        if known is None:
            continue
        text, example = known if isinstance(known, Note) else (known, None)
        schema.setdefault("description", text)
        if example is not None and not _CLOSED & schema.keys():
            schema.setdefault("examples", [example])


_MOMENT = "2026-01-02T03:04:05.678901Z"
_UUID = "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"

SHARED: Notes = {
    "id": "Identifies the object.",
    "uuid": Note("Identifies the object everywhere.", _UUID),
    "team_id": "The project's id.",
    "created_at": Note("Creation time, in UTC.", _MOMENT),
    "updated_at": Note("Time of the last change, in UTC.", _MOMENT),
    "created_by": "The user who made it; null when that user is gone.",
    "last_modified_by": "The user who changed it last; null when that user is gone.",
    "deleted": "Whether it was deleted softly: lists leave it out, and PATCH with false brings it back.",
    "tags": Note("Free labels.", ["checkout"]),
    "user_access_level": Note("Access level of the caller: `viewer`, `editor` or `manager`.", "manager"),
    "_create_in_folder": "Kept for clients that set it; this server has no folders.",
    "limit": "Maximum number of results.",
    "offset": "Number of results to skip.",
    "search": "A part of the name.",
    "created_by_id": "The id of the user who made it.",
    "count": Note("Number of results on all pages together.", 1),
    "next": Note("The address of the next page; null on the last.", None),
    "previous": "The address of the page before; null on the first.",
    "results": "The page's items.",
    "distinct_id": Note("The id that SDKs know somebody by.", "user-17"),
    "first_name": Note("May be empty.", "Ada"),
    "last_name": Note("May be empty.", "Lovelace"),
    "email": Note("The address that the user signs in with.", "ada@example.com"),
    "is_email_verified": "Whether the address is known to be the user's; null when nobody asked.",
    "hedgehog_config": "Always null here; there for clients that read it.",
    "role_at_organization": Note("Role of the user, `engineering` for example.", "engineering"),
    "error": Note("Description of the error.", "Invalid state"),
    "detail": Note("Description of the error.", "Target team not found."),
    "timezone": Note("A name of the IANA time zone database.", "Europe/Berlin"),
    "person": "The person, as it is now; null when there is none.",
    "properties": Note("Free properties.", {"plan": "pro"}),
    "warnings": "Warnings about parts that have no effect, or an unexpected one; missing where there are none.",
    "is_identified": "Whether the person was identified, and is not only an anonymous visitor.",
}
"""Notes on names that mean the same wherever they stand."""
