"""Ids of persons: which ones may be merged, and the id of a person who has none yet."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import uuid_utils
from msgspec import convert

from hoglab.patterns import DOTALL, anchored

PERSON_NAMESPACE = UUID("932979b4-65c3-4424-8467-0b66ec27bc22")
"""Namespace of derived person ids (spec: sdk-wire 1.11)."""
_NAMESPACE = uuid_utils.UUID(bytes=PERSON_NAMESPACE.bytes)
MAX_DISTINCT_ID_CHARS = 200

_ILLEGAL_ANY_CASE = frozenset(
    (
        "anonymous",
        "guest",
        "distinctid",
        "distinct_id",
        "id",
        "not_authenticated",
        "email",
        "undefined",
        "true",
        "false",
    )
)
_ILLEGAL = frozenset(("[object Object]", "NaN", "None", "none", "null", "0", "undefined"))
_QUOTED = anchored(r"'(.*)'|\"(.*)\"", DOTALL)


def derived_person_id(project_id: int, distinct_id: str) -> UUID:
    """Return the id of the person behind a distinct id, before and after the person exists (spec: sdk-wire 1.11)."""
    return derived_person_ids(project_id, [distinct_id])[0]


def derived_person_ids(project_id: int, distinct_ids: Iterable[str]) -> list[UUID]:
    """Return the ids of the persons behind distinct ids, three times as fast as `derived_person_id` for each."""
    names = [f"{project_id}:{distinct_id}".encode("utf-8", "replace") for distinct_id in distinct_ids]
    derived = [uuid_utils.uuid5(_NAMESPACE, name).bytes for name in names]  # type: ignore[arg-type]
    return convert(derived, list[UUID])


def can_merge(distinct_id: str) -> bool:
    """Return whether a distinct id may take part in a merge: not blank, and not a spelling of "nobody".

    Spec: sdk-wire 1.13, illegal ids.
    """
    quoted = _QUOTED.fullmatch(distinct_id)
    bare = distinct_id if quoted is None else (quoted[1] if quoted[1] is not None else quoted[2])
    return bool(bare.strip()) and bare not in _ILLEGAL and bare.lower() not in _ILLEGAL_ANY_CASE


def without_nul(name: str) -> str:
    """Return a name as all databases keep it: with U+FFFD for each NUL, which PostgreSQL lacks."""
    return name.replace("\0", "\ufffd")


def clean_distinct_id(value: object) -> str:
    """Return the distinct id that a value in an event's properties names; empty when it names none."""
    if value is None or value is False:
        return ""
    text = value if isinstance(value, str) else ("true" if value is True else str(value))
    return without_nul(text[:MAX_DISTINCT_ID_CHARS])
