"""Globals of hog functions: the data of an event that they see (spec: hog-runtime 1)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import orjson

from hoglab.filters.hog.environment import GROUP_ROOTS, PERSON_ROOTS
from hoglab.people.reading import display_name

if TYPE_CHECKING:
    from hoglab.functions.runtime import CompiledFunction
    from hoglab.http.identity import Project
    from hoglab.people import PersonService
    from hoglab.storage.event_store.ingested import IngestedEvent

GROUP_CACHE_S = 10.0
"""Maximum age in seconds of the properties of a group that functions see."""
GROUP_CACHE_SIZE = 10_000
GROUP_CACHE_BYTES = 16 * 1024 * 1024
"""Limits of the cache of groups: their number, and bytes of their properties as JSON; the oldest are dropped."""

NO_PERSON: Mapping[str, Any] = {"id": "", "name": "", "url": "", "properties": {}}
"""The person of an event without one, so that ``person.properties.x`` is null instead of an error."""

_UNESCAPED = "!~*'()"  # what encodeURIComponent leaves alone besides letters, digits and _.-


def milliseconds(moment: datetime) -> str:
    """Return a moment like ``2026-01-01T00:00:00.000Z``."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def encoded(text: str) -> str:
    """Return a text percent-encoded as one component of an address."""
    return quote(text, safe=_UNESCAPED)


@dataclass(frozen=True, slots=True)
class Site:
    """Addresses of projects in globals."""

    url: str

    def project_url(self, project_id: int) -> str:
        return f"{self.url.rstrip('/')}/project/{project_id}"

    def project(self, project: Project) -> dict[str, Any]:
        return {"id": project.id, "name": project.name, "url": self.project_url(project.id)}

    def source(self, function: CompiledFunction) -> dict[str, Any]:
        url = f"{self.project_url(function.project_id)}/functions/{function.id}"
        page = "" if function.type == "source_webhook" else "/configuration/"
        return {"name": function.label, "url": url + page}

    def event_url(self, project_id: int, uuid: str, timestamp: str) -> str:
        return f"{self.project_url(project_id)}/events/{encoded(uuid)}/{encoded(timestamp)}"

    def person(
        self, project: Project, person_id: str, distinct_id: str, properties: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": person_id,
            "name": display_name(properties, distinct_id, project.person_display_name_properties),
            "url": f"{self.project_url(project.id)}/person/{encoded(distinct_id)}",
            "properties": properties,
        }


class _KnownGroup(NamedTuple):
    """Properties of a group, when they expire, and their bytes as JSON."""

    until: float
    properties: dict[str, Any]
    size: int


class GroupProperties:
    """Properties of groups, kept for a moment so that a batch does not read the same ones again and again."""

    def __init__(self, people: PersonService, clock: Callable[[], float] = time.monotonic) -> None:
        self._people = people
        self._clock = clock
        self._known: OrderedDict[tuple[int, int, str], _KnownGroup] = OrderedDict()
        self.bytes = 0
        """Size of all remembered properties, as JSON."""

    def get(self, project_id: int, index: int, key: str) -> dict[str, Any]:
        name, now = (project_id, index, key), self._clock()
        known = self._known.get(name)
        if known is not None and known.until > now:
            return known.properties
        properties = self._people.group_properties(project_id, index, key) or {}
        self._keep(name, _KnownGroup(now + GROUP_CACHE_S, properties, len(orjson.dumps(properties))))
        return properties

    def _keep(self, name: tuple[int, int, str], group: _KnownGroup) -> None:
        former = self._known.pop(name, None)
        self.bytes += group.size - (0 if former is None else former.size)
        self._known[name] = group
        while len(self._known) > GROUP_CACHE_SIZE or self.bytes > GROUP_CACHE_BYTES:
            _, oldest = self._known.popitem(last=False)
            self.bytes -= oldest.size


def has_person(event: IngestedEvent) -> bool:
    """Return whether the event belongs to a person with a profile; personless events do not."""
    return event.row.person_id is not None and event.row.person_mode != "propertyless"


def quick_globals(event: IngestedEvent, groups: GroupProperties, reads: Set[str]) -> dict[str, Any]:
    """Return the part of the globals that filters with the roots ``reads`` need.

    For `hoglab.functions.runtime.globals.filter_globals`.
    """
    row = event.row
    seen: dict[str, Any] = {
        "event": row.event,
        "distinct_id": row.distinct_id,
        "properties": event.properties,
        "elements_chain": row.elements_chain,
    }
    if "uuid" in reads:
        seen["uuid"] = str(row.uuid)
    if "timestamp" in reads:
        seen["timestamp"] = milliseconds(row.timestamp)
    globals_: dict[str, Any] = {"event": seen}
    if row.groups and not reads.isdisjoint(GROUP_ROOTS):  # filters know them by index
        globals_["groups"] = {
            index: {"id": key, "index": index, "properties": groups.get(row.project_id, index, key)}
            for index, key in row.groups.items()
        }
    if not reads.isdisjoint(PERSON_ROOTS) and has_person(event):
        globals_["person"] = {"id": str(row.person_id), "properties": event.person_properties}
    return globals_


class EventGlobals:
    """Makes the globals of one event that all functions see: all but ``source`` and ``inputs``."""

    def __init__(self, site: Site, people: PersonService) -> None:
        self._site = site
        self._people = people
        self.groups = GroupProperties(people)

    def of(self, project: Project, event: IngestedEvent) -> dict[str, Any]:
        row = event.row
        uuid, timestamp = str(row.uuid), milliseconds(row.timestamp)
        globals_: dict[str, Any] = {
            "project": self._site.project(project),
            "event": {
                "uuid": uuid,
                "event": row.event,
                "distinct_id": row.distinct_id,
                "properties": event.properties,
                "elements_chain": row.elements_chain,
                "timestamp": timestamp,
                "captured_at": milliseconds(row.captured_at),
                "url": self._site.event_url(project.id, uuid, timestamp),
            },
            "groups": self.groups_of(project.id, event.row.groups) if event.row.groups else {},
        }
        if has_person(event):
            globals_["person"] = self._site.person(
                project, str(row.person_id), row.distinct_id, event.person_properties
            )
        return globals_

    def groups_of(self, project_id: int, keys: Mapping[int, str]) -> dict[str, Any]:
        """Return the groups with these keys, by the names of their types; ``keys`` are by the types' indexes."""
        url = self._site.project_url(project_id)
        return {
            group_type: {
                "id": keys[index],
                "type": group_type,
                "index": index,
                "url": f"{url}/groups/{index}/{encoded(keys[index])}",
                "properties": self.groups.get(project_id, index, keys[index]),
            }
            for group_type, index in self._people.group_types(project_id).items()
            if index in keys
        }

    def late_person(self, project: Project, distinct_id: str) -> dict[str, Any]:
        """Return the person of an event that had none when it was stored: looked up now, else a stand-in."""
        known = self._people.person_for(project.id, distinct_id)
        if known is None:
            return dict(NO_PERSON)
        return self._site.person(project, str(known.uuid), distinct_id, known.properties)
