"""Ids of persons: which ones may be merged, and the id of a person who has none yet."""

from __future__ import annotations

import re
from hashlib import sha1
from uuid import UUID

from msgspec import convert

PERSON_NAMESPACE = UUID("932979b4-65c3-4424-8467-0b66ec27bc22")
"""Namespace of derived person ids (spec: sdk-wire 1.11)."""
_NAMESPACE_BYTES = PERSON_NAMESPACE.bytes
_KEPT_BITS = (1 << 128) - 1 & ~(0xF << 76) & ~(0x3 << 62)
_VERSION_5 = 0x5 << 76 | 0x2 << 62
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
_QUOTED = re.compile(r"'(.*)'|\"(.*)\"", re.DOTALL)


def derived_person_id(project_id: int, distinct_id: str) -> UUID:
    """The id of the person behind a distinct id, before and after the person exists (spec: sdk-wire 1.11)."""
    # UUIDv5 by hand: this runs for every new person and every event without one.
    name = f"{project_id}:{distinct_id}".encode("utf-8", "replace")
    value = int.from_bytes(sha1(_NAMESPACE_BYTES + name, usedforsecurity=False).digest()[:16])
    return convert(((value & _KEPT_BITS) | _VERSION_5).to_bytes(16), UUID)


def can_merge(distinct_id: str) -> bool:
    """Whether a distinct id may take part in a merge: not blank, and not a spelling of "nobody".

    Spec: sdk-wire 1.13, illegal ids.
    """
    quoted = _QUOTED.fullmatch(distinct_id)
    bare = distinct_id if quoted is None else (quoted[1] if quoted[1] is not None else quoted[2])
    return bool(bare.strip()) and bare not in _ILLEGAL and bare.lower() not in _ILLEGAL_ANY_CASE


def clean_distinct_id(value: object) -> str:
    """The distinct id that a value in an event's properties names; empty when it names none."""
    if value is None or value is False:
        return ""
    text = value if isinstance(value, str) else ("true" if value is True else str(value))
    return text[:MAX_DISTINCT_ID_CHARS].replace("\0", "\ufffd")
