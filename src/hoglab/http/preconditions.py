"""Optimistic concurrency: entity tags, ``If-Match`` and ``If-None-Match`` (RFC 9110, section 13).

A representation's tag is a digest of its JSON. Weak and strong spellings of a tag are taken as equal, because
proxies that compress answers weaken tags on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hoglab.http import errors
from hoglab.http.responses import encode_json

_ANY = "*"
# Not part of the state: it says what the caller may do with the object.
_ABOUT_THE_CALLER = frozenset({"user_access_level"})


def entity_tag(shown: Mapping[str, Any]) -> str:
    """The tag of an object as it goes on the wire, with its quotation marks."""
    state = {name: value for name, value in shown.items() if name not in _ABOUT_THE_CALLER}
    return f'"{hashlib.blake2b(encode_json(state), digest_size=16).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class EntityTags:
    """The tags that a header names."""

    tags: frozenset[str]

    @classmethod
    def of(cls, header: str | None) -> EntityTags | None:
        """The tags of an ``If-Match`` or ``If-None-Match`` header; None when there is none."""
        if header is None:
            return None
        return cls(frozenset(tag.strip().removeprefix("W/") for tag in header.split(",")))

    def match(self, shown: Mapping[str, Any]) -> bool:
        """Whether the object is in one of the named states."""
        return _ANY in self.tags or entity_tag(shown) in self.tags

    def require(self, shown: Mapping[str, Any]) -> None:
        """Raises 412 unless the object is in one of the named states. To be called where it is about to change."""
        if not self.match(shown):
            raise errors.precondition_failed(entity_tag(shown))
