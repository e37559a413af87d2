"""An event to test a function on: the newest one of the project that its filters match."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.delivery.dispatch import explain_configuration
from hoglab.filters.hog import build_filter
from hoglab.filters.model import FilterError
from hoglab.functions.runtime import filter_globals
from hoglab.storage.event_store.history import newest
from hoglab.storage.event_store.ingested import IngestedEvent

if TYPE_CHECKING:
    from hoglab.delivery.service import Delivery
    from hoglab.delivery.trials.runs import TestRuns
    from hoglab.filters.hog import FilterContext
    from hoglab.functions.configuration import Configuration
    from hoglab.http.identity import Project
    from hoglab.storage.catching_up import CatchUp
    from hoglab.storage.event_store import EventReader

PORTIONS = (200, 2_000, 8_000)
"""Numbers of events that are tried, newest first, before giving up: of events with names that the filters accept."""
SEARCH_S = 5.0
"""Duration of the search in seconds after which the next portion is left out."""
TIMEOUT_S = 10.0
"""Time limit of the event store for one portion, in seconds."""
CATCH_UP_S = 2.0
"""Time in seconds to wait for events that were accepted just before."""

STORED_EVENTS = frozenset({"destination", "transformation", "site_destination"})
"""The types that see events of the store."""

INVENTED_EVENT = "$pageview"
INVENTED_PERSON = {"id": "00000000-0000-4000-8000-000000000000", "name": "Ada", "properties": {"name": "Ada"}}


@dataclass(frozen=True, slots=True)
class Sample:
    """``globals`` as test runs take them.

    ``stored``: whether there was such an event, ``matches``: whether the filters match it.
    """

    globals: Mapping[str, Any]
    stored: bool
    matches: bool


class Samples:
    """Finds samples for functions."""

    def __init__(
        self, delivery: Delivery, tests: TestRuns, store: EventReader, catch_up: CatchUp | None = None
    ) -> None:
        self._delivery = delivery
        self._tests = tests
        self._store = store
        self._catch_up = catch_up

    def find(self, project: Project, configuration: Configuration, context: FilterContext) -> Sample:
        """Return the newest event that matches.

        The newest of all when none of `PORTIONS` does; an invented one when there are none. Raises the errors of
        `Reader.execute`.
        """
        last: dict[str, Any] | None = None
        if (configuration.type or "destination") in STORED_EVENTS:
            for globals_ in self._stored(project, _wanted_names(configuration, context)):
                if explain_configuration(configuration, context, filter_globals(globals_))["matches"]:
                    return Sample(globals_, stored=True, matches=True)
            last = next(self._stored(project, None), None)
        stored = last is not None
        globals_ = last or self._invented(project, configuration)
        explanation = explain_configuration(configuration, context, filter_globals(globals_))
        return Sample(globals_, stored, explanation["matches"])

    def _stored(self, project: Project, names: Collection[str] | None) -> Iterator[dict[str, Any]]:
        """Yield the globals of events, newest first, of some names or of any."""
        if self._catch_up is not None:
            self._catch_up.wait(project.id, CATCH_UP_S)
        event_globals, before, deadline = (
            self._delivery.context.event_globals,
            None,
            time.monotonic() + SEARCH_S,
        )
        for count in PORTIONS:
            with self._store.reader() as reader:
                rows = newest(reader, project.id, count, names=names, before=before, timeout_s=TIMEOUT_S)
            for before, row in rows:  # noqa: B007 - the last place is where the next portion begins
                yield event_globals.of(project, IngestedEvent(row, orjson.loads(row.properties)))
                if time.monotonic() >= deadline:
                    return
            if len(rows) < count:
                return

    def _invented(self, project: Project, configuration: Configuration) -> dict[str, Any]:
        """Return an invented event of the first name that the filters accept."""
        parts = [configuration.filters, *(mapping.filters or {} for mapping in configuration.mappings or ())]
        names = [entry.get("id") for part in parts for entry in part.get("events") or ()]
        name = next((name for name in names if isinstance(name, str)), INVENTED_EVENT)
        event = {"event": name, "distinct_id": "ada", "properties": {"$current_url": "https://example.com/"}}
        return self._tests.globals_of(project, {"event": event, "person": INVENTED_PERSON}, None)


def _wanted_names(configuration: Configuration, context: FilterContext) -> frozenset[str] | None:
    """Return the names of the events that can pass the filters; None when any may, or when they cannot be read."""
    parts = [configuration.filters]
    if configuration.mappings is not None:
        parts = [mapping.filters or {} for mapping in configuration.mappings if not mapping.disabled]
    names: frozenset[str] = frozenset()
    for part in parts:
        try:
            accepted = build_filter(part, context).event_names
        except FilterError:
            return None
        if accepted is None:
            return None
        names |= accepted
    return names
