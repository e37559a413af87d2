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
    """Return the tag of an object as it goes on the wire, with its quotation marks."""
    return tag_of(encode_json({name: shown[name] for name in shown if name not in _ABOUT_THE_CALLER}))


def tag_of(state: bytes) -> str:
    """Return the tag of an object's state, which is its JSON without what it says about the caller."""
    return f'"{hashlib.blake2b(state, digest_size=16).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class EntityTags:
    """The tags that a header names."""

    tags: frozenset[str]

    @classmethod
    def of(cls, header: str | None) -> EntityTags | None:
        """Return the tags of an ``If-Match`` or ``If-None-Match`` header; None when there is none."""
        if header is None:
            return None
        return cls(frozenset(tag.strip().removeprefix("W/") for tag in header.split(",")))

    def match(self, shown: Mapping[str, Any]) -> bool:
        """Return whether the object is in one of the named states."""
        return self.name(entity_tag(shown))

    def name(self, tag: str) -> bool:
        """Return whether the state with this tag is one of the named ones."""
        return _ANY in self.tags or tag in self.tags

    def require(self, shown: Mapping[str, Any]) -> None:
        """Raise 412 unless the object is in one of the named states. To be called where it is about to change."""
        if not self.match(shown):
            raise errors.precondition_failed(entity_tag(shown))
