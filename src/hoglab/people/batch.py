"""Changes that a batch of events makes to persons: the rules, over an in-memory picture of the persons they name.

`PeopleBatch` is filled from the database, sees every event in order, and afterwards knows what to write.
Nothing here touches the database. Rules: spec sdk-wire 1.11 (profiles), 1.12 (properties), 1.13 (merges).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

import msgspec
import orjson

from hoglab.people.identity import can_merge, clean_distinct_id, derived_person_ids
from hoglab.people.properties import (
    MAX_PROPERTIES_BYTES,
    mirror_initial_properties,
    trim,
    update,
)
from hoglab.storage.json_text import json_bytes

if TYPE_CHECKING:
    from hoglab.storage.event_log import SequenceNumber

FORCE_UPGRADE_AGE = timedelta(minutes=1)
"""A person this much older than a personless event takes over the event."""
PERSONLESS_FORBIDDEN = frozenset(("$identify", "$create_alias", "$merge_dangerously", "$groupidentify"))

PersonMode = Literal["full", "propertyless", "force_upgrade"]

MERGING_EVENTS = frozenset(("$identify", "$create_alias", "$merge_dangerously"))
"""Events that ask for a merge: with ``$anon_distinct_id`` the first, with ``alias`` the others."""
_LAST_SEEN_STEP = timedelta(hours=1)
_NO_PROPERTIES = b"{}"


class PersonEvent(Protocol):
    """Event as far as persons need it; its ``properties`` are changed in place."""

    project_id: int
    uuid: UUID
    event: str
    distinct_id: str
    timestamp: datetime
    properties: dict[str, Any]
    log_offset: SequenceNumber


@dataclass(frozen=True, slots=True)
class IngestionWarning:
    """Something in an event that was ignored, or the event itself, and why."""

    project_id: int
    type: str
    event_uuid: UUID
    details: dict[str, Any]


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """The person of an event, as the person was right after it."""

    person_id: UUID
    properties: bytes  # JSON
    created_at: datetime | None  # None: there is no such person (yet)
    mode: PersonMode


class PersonState(msgspec.Struct, eq=False, kw_only=True, gc=False):
    """One person while a batch is processed. ``row_id`` is None until the person is written.

    Garbage collection need not look at persons: nothing in one leads back to it, and neither do merges.
    """

    row_id: int | None
    uuid: UUID
    json: bytes
    """The properties as JSON text."""
    is_identified: bool = False
    version: int = 0
    created_at: datetime
    last_seen_at: datetime | None = None
    stored_version: int | None
    """The version before the batch; None for a person who was not stored."""
    changed: bool = False
    into: PersonState | None = None
    """Person that this one was merged into."""
    decoded: dict[str, Any] | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the person was there before the batch."""
        return self.stored_version is not None

    @property
    def properties(self) -> dict[str, Any]:
        """The properties. They are not changed in place, only replaced."""
        decoded = self.decoded
        if decoded is None:
            decoded = self.decoded = orjson.loads(self.json)
        return decoded

    def replace_properties(self, properties: dict[str, Any], json: bytes) -> None:
        self.decoded = properties
        self.json = json

    def root(self) -> PersonState:
        """Return the person that this one is now, after all merges of the batch."""
        person = self
        while person.into is not None:
            person = person.into
        return person


class PeopleBatch:
    """The persons of one project during a batch.

    ``distinct_ids`` are the ids that the events name; ``known`` are the persons of those that have one.
    """

    def __init__(self, project_id: int, distinct_ids: Iterable[str], known: dict[str, PersonState]) -> None:
        self.project_id = project_id
        self.warnings: list[IngestionWarning] = []
        self.new_distinct_ids: dict[str, PersonState] = {}
        self.overrides: dict[UUID, PersonState] = {}
        """Old person ids whose events belong to another person from now on."""
        self._visitors: list[tuple[PersonState, str]] = []
        self._known = known
        strangers = [distinct_id for distinct_id in distinct_ids if distinct_id not in known]
        self._derived = dict(zip(strangers, derived_person_ids(project_id, strangers), strict=True))
        self._created: list[PersonState] = []
        self._loaded = list({id(person): person for person in known.values()}.values())
        self.merged: list[PersonState] = []

    def persons(self) -> Iterator[PersonState]:
        """Yield every person that the batch knows, merged ones included."""
        yield from self._loaded
        yield from self._created

    def visitors(self) -> dict[int, str]:
        """Return the anonymous id under which each person who logged in was known before, by the person's row.

        The first login counts; after a merge that of the surviving person. The persons must be written already.
        """
        survivors_first = sorted(self._visitors, key=lambda visitor: visitor[0].into is not None)
        first: dict[int, str] = {}
        for person, anonymous_id in survivors_first:
            row_id = person.root().row_id
            if row_id is not None:
                first.setdefault(row_id, anonymous_id)
        return first

    def touched(self) -> dict[int, int]:
        """Return ids and versions of the stored persons that changed, were merged, took in another, or logged in."""
        persons = [person for person in self._loaded if person.changed or person.into is not None]
        persons += (person.root() for person, _ in self._visitors)
        persons += (person.root() for person in self.new_distinct_ids.values())
        persons += (person.root() for person in self.overrides.values())
        return {
            person.row_id: person.stored_version
            for person in persons
            if person.row_id and person.stored_version is not None
        }

    def process(self, event: PersonEvent) -> Resolution | None:
        """Apply one event. Return None when it must be dropped."""
        choice = event.properties.get("$process_person_profile", True)
        if choice is False:
            return self._personless(event)
        if choice is not True:
            self._warn(event, "invalid_process_person_profile", {"value": choice})
        if event.event == "$groupidentify":
            _strip_person_updates(event.properties)
        else:
            mirror_initial_properties(event.event, event.properties)
        person = self._merged_person(event) if event.event in MERGING_EVENTS else None
        if person is None:
            person = self._find(event.distinct_id) or self._create(event.distinct_id, event.timestamp)
        self._update(person, event)
        self._see(person, event.timestamp)
        return Resolution(person.uuid, person.json, person.created_at, "full")

    def recall(self, event: PersonEvent) -> Resolution | None:
        """Return the result that `process` had for an event that was applied before, as far as it is known.

        Nothing changes. The person is as it is now, not as it was right after the event.
        """
        if event.properties.get("$process_person_profile", True) is False:
            warned = len(self.warnings)
            resolution = self._personless(event)
            del self.warnings[warned:]
            return resolution
        person = self._find(event.distinct_id)
        if person is None:  # deleted since
            return self.process(event)
        if event.event == "$groupidentify":
            _strip_person_updates(event.properties)
        else:
            mirror_initial_properties(event.event, event.properties)
        return Resolution(person.uuid, person.json, person.created_at, "full")

    def _warn(self, event: PersonEvent, kind: str, details: dict[str, Any]) -> None:
        self.warnings.append(IngestionWarning(self.project_id, kind, event.uuid, details))

    # --- personless events

    def _personless(self, event: PersonEvent) -> Resolution | None:
        if event.event in PERSONLESS_FORBIDDEN:
            kind = "invalid_event_when_process_person_profile_is_false"
            self._warn(event, kind, {"event": event.event, "distinct_id": event.distinct_id})
            return None
        _strip_person_updates(event.properties)
        person = self._find(event.distinct_id)
        if person is None:
            return Resolution(self._derived[event.distinct_id], _NO_PROPERTIES, None, "propertyless")
        if person.created_at + FORCE_UPGRADE_AGE < event.timestamp:
            return Resolution(person.uuid, person.json, person.created_at, "force_upgrade")
        return Resolution(person.uuid, _NO_PROPERTIES, None, "propertyless")

    # --- persons and their distinct ids

    def _find(self, distinct_id: str) -> PersonState | None:
        person = self._known.get(distinct_id)
        if person is None or person.into is None:
            return person
        return person.root()

    def _create(self, distinct_id: str, at: datetime) -> PersonState:
        person = PersonState(
            row_id=None,
            uuid=self._derived[distinct_id],
            json=_NO_PROPERTIES,
            decoded={},
            created_at=at,
            stored_version=None,
            changed=True,
        )
        self._created.append(person)
        self._known[distinct_id] = person
        self.new_distinct_ids[distinct_id] = person
        return person

    def _attach(self, distinct_id: str, person: PersonState) -> None:
        """Give a person a distinct id that had none; personless events may be stored under its derived id."""
        self._known[distinct_id] = person
        self.new_distinct_ids[distinct_id] = person
        derived = self._derived[distinct_id]
        if derived != person.uuid:
            self.overrides[derived] = person

    # --- merges

    def _merged_person(self, event: PersonEvent) -> PersonState | None:
        """Return the person of one of `MERGING_EVENTS` after its merge; None when the event asks for none."""
        properties = event.properties
        if event.event == "$identify" and "$anon_distinct_id" in properties:
            other_id = clean_distinct_id(properties["$anon_distinct_id"])
        elif event.event != "$identify" and properties.get("alias"):
            other_id = clean_distinct_id(properties["alias"])
        else:
            return None
        into_id = event.distinct_id
        if other_id == into_id:
            return None
        for distinct_id in (into_id, other_id):
            if not can_merge(distinct_id):
                details = {
                    "illegalDistinctId": distinct_id,
                    "otherDistinctId": other_id if distinct_id is into_id else into_id,
                    "eventUuid": str(event.uuid),
                }
                self._warn(event, "cannot_merge_with_illegal_distinct_id", details)
                return None
        person = self._merge(other_id, into_id, event)
        if event.event == "$identify":
            self._visitors.append((person, other_id))
        if not person.is_identified:
            person.is_identified = True
            person.changed = True
        return person

    def _merge(self, other_id: str, into_id: str, event: PersonEvent) -> PersonState:
        into, other = self._find(into_id), self._find(other_id)
        if into is None and other is None:
            into = self._create(into_id, event.timestamp)
        if into is None and other is not None:
            self._attach(into_id, other)
            return other
        assert into is not None  # noqa: S101 - one of the two exists by now
        if other is None:
            self._attach(other_id, into)
        elif other is not into:
            if other.is_identified and event.event != "$merge_dangerously":
                details = {
                    "sourcePersonDistinctId": other_id,
                    "targetPersonDistinctId": into_id,
                    "eventUuid": str(event.uuid),
                }
                self._warn(event, "cannot_merge_already_identified", details)
            else:
                self._absorb(other, into)
        return into

    def _absorb(self, other: PersonState, into: PersonState) -> None:
        properties = {**other.properties, **into.properties}
        json = json_bytes(properties)
        if len(json) > MAX_PROPERTIES_BYTES:
            properties = trim(properties)
            json = json_bytes(properties)
        into.replace_properties(properties, json)
        into.created_at = min(into.created_at, other.created_at)
        into.version = max(into.version, other.version)
        into.changed = True
        other.into = into
        self.merged.append(other)
        self.overrides[other.uuid] = into

    # --- properties

    def _update(self, person: PersonState, event: PersonEvent) -> None:
        changes = event.properties
        if not ("$set" in changes or "$set_once" in changes or "$unset" in changes):
            return
        outcome = update(person.properties, event.event, changes)
        if outcome is None:
            return
        properties, written = outcome
        json = json_bytes(properties)
        if len(json) > MAX_PROPERTIES_BYTES:
            if len(person.json) <= MAX_PROPERTIES_BYTES:
                details = {"personId": str(person.uuid), "distinctId": event.distinct_id, "bytes": len(json)}
                self._warn(event, "person_properties_size_violation", details)
                return
            properties = trim(properties)
            json = json_bytes(properties)
            written = True
        person.replace_properties(properties, json)
        person.changed = person.changed or written

    def _see(self, person: PersonState, at: datetime) -> None:
        last = person.last_seen_at
        if last is None or at - last >= _LAST_SEEN_STEP:
            person.last_seen_at = at.replace(minute=0, second=0, microsecond=0)
            person.changed = True


def _strip_person_updates(properties: dict[str, Any]) -> None:
    for name in ("$set", "$set_once", "$unset"):
        properties.pop(name, None)
