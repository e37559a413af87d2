"""Objects that several resources show in the same form."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar

from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.identity import User


class ErrorText(WireModel):
    """The short error of a few endpoints, for the documents: ``{"error": …}``."""

    error: str


class DetailText(WireModel):
    """The short error of a few endpoints, for the documents: ``{"detail": …}``."""

    detail: str


class FieldWarning(WireModel):
    """A part of an object or of a request that has no effect, or not the one that it seems to have."""

    notes: ClassVar[Notes] = {
        "code": Note("Code, for programs.", "unknown_field"),
        "attr": Note("Path of the field, in the form that errors have.", "filters__groups__0__roll_out"),
        "detail": Note(
            "Description for people.", "filters.groups[0].roll_out is not a known key and has no effect."
        ),
    }

    code: str
    attr: str
    detail: str


class UserOut(WireModel):
    """A user as others see them: ``created_by`` and the like, for the documents (spec: experiments-api 1.9)."""

    id: int
    uuid: str
    distinct_id: str | None
    first_name: str
    last_name: str
    email: str
    is_email_verified: bool | None
    hedgehog_config: dict[str, Any] | None
    role_at_organization: str | None


_KEYS = (
    "id",
    "uuid",
    "distinct_id",
    "first_name",
    "last_name",
    "email",
    "is_email_verified",
    "hedgehog_config",
    "role_at_organization",
)
_of_user = attrgetter(*_KEYS)


def user_object(user: User | Mapping[Any, Any] | None) -> dict[str, Any] | None:
    """Return the ``created_by`` object, or None for nobody (spec: experiments-api 1.9).

    Takes a `User` or anything that has the columns of the user table as keys (``result.mappings()``).
    """
    if user is None:
        return None
    values = _of_user(user) if isinstance(user, User) else (user[key] for key in _KEYS)
    shown = dict(zip(_KEYS, values, strict=True))
    shown["hedgehog_config"] = shown["hedgehog_config"] or None
    return shown
