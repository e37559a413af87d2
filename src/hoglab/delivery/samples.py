"""An event to try a function on: the newest one of the project that its filters let through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.delivery.explain import explain_configuration
from hoglab.functions.globals import filter_globals
from hoglab.storage.event_store.history import newest
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.delivery.test_runs import TestRuns
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.model import Configuration
    from hoglab.http.identity import Project
    from hoglab.storage.event_store import EventStore

LOOKED_AT = 200
"""How many of the newest events are asked about."""
TIMEOUT_S = 10.0

STORED_EVENTS = frozenset({"destination", "transformation", "site_destination"})
"""The types that see events of the store."""

INVENTED_EVENT = "$pageview"
INVENTED_PERSON = {"id": "00000000-0000-4000-8000-000000000000", "name": "Ada", "properties": {"name": "Ada"}}


@dataclass(frozen=True, slots=True)
class Sample:
    """``globals`` as test runs take them; ``stored``: whether there was such an event, ``matches``: whether the
    filters let it through."""

    globals: Mapping[str, Any]
    stored: bool
    matches: bool


class Samples:
    """Finds samples for functions."""

    def __init__(self, delivery: Delivery, tests: TestRuns, store: EventStore) -> None:
        self._delivery = delivery
        self._tests = tests
        self._store = store

    def find(self, project: Project, configuration: Configuration, context: FilterContext) -> Sample:
        """The newest event that matches; the newest of all when none of the last `LOOKED_AT` does; one that is made up
        when there are none. Raises as `Reader.execute`.
        """
        last: dict[str, Any] | None = None
        for globals_ in self._stored(project, configuration):
            if explain_configuration(configuration, context, filter_globals(globals_))["matches"]:
                return Sample(globals_, stored=True, matches=True)
            last = last or globals_
        stored = last is not None
        globals_ = last or self._invented(project, configuration)
        found = explain_configuration(configuration, context, filter_globals(globals_))
        return Sample(globals_, stored, found["matches"])

    def _stored(self, project: Project, configuration: Configuration) -> list[dict[str, Any]]:
        if (configuration.type or "destination") not in STORED_EVENTS:
            return []
        with self._store.reader() as reader:
            rows = newest(reader, project.id, LOOKED_AT, timeout_s=TIMEOUT_S)
        made = self._delivery.event_globals
        return [made.of(project, IngestedEvent(row, orjson.loads(row.properties))) for row in rows]

    def _invented(self, project: Project, configuration: Configuration) -> dict[str, Any]:
        """An event of the first name that the filters ask for."""
        parts = [configuration.filters, *(one.filters or {} for one in configuration.mappings or ())]
        names = [one.get("id") for part in parts for one in part.get("events") or ()]
        name = next((name for name in names if isinstance(name, str)), INVENTED_EVENT)
        event = {"event": name, "distinct_id": "ada", "properties": {"$current_url": "https://example.com/"}}
        return self._tests.globals_of(project, {"event": event, "person": INVENTED_PERSON}, None)
