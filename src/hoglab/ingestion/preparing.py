"""What happens to a batch of events before it is stored: transformations, persons, and the rows that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prometheus_client import Counter

from hoglab.ingestion.normalise import Event, row_of
from hoglab.people.identity import clean_distinct_id
from hoglab.storage.event_store import EventRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.ingestion.batches import Batch
    from hoglab.ingestion.flag_calls import FlagCalls
    from hoglab.people import PersonService
    from hoglab.storage.event_log import LogRecord
    from hoglab.storage.event_store import PersonOverride

RESENT = Counter("hoglab_ingestion_resent_events", "Events that were stored already.")
_DROPPED = Counter("hoglab_ingestion_dropped_events", "Events dropped on purpose.", ["reason"])


class KnownProject(Protocol):
    """What ingestion needs of a project."""

    @property
    def anonymize_ips(self) -> bool: ...


class Transformer(Protocol):
    """Changes or drops events before anything else sees them (spec: hog-runtime 7.2)."""

    def transform(self, project_id: int, events: list[Event]) -> list[Event]:
        """The events that are left, in order. ``event``, ``distinct_id`` and ``properties`` may be changed."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is left to be stored of log records up to ``last``: a row for each event, in the same order."""

    rows: Sequence[EventRow]
    events: Sequence[Event]
    last: LogRecord


class Preparation:
    """Makes batches ready for the store. Used by the ingestion thread alone.

    Persons are changed for good here, before the events are stored. A batch that is prepared again, because it did
    not get into the store, changes no person a second time.
    """

    def __init__(
        self,
        people: PersonService,
        project: Callable[[int], KnownProject | None],
        *,
        transformer: Transformer | None = None,
        flag_calls: FlagCalls | None = None,
    ) -> None:
        self._people = people
        self._project = project
        self._transformer = transformer
        self._flag_calls = flag_calls

    def prepare(self, batch: Batch, on_merged: Callable[[Sequence[PersonOverride]], object]) -> Prepared:
        """The rows of a batch, whose events are changed. ``on_merged`` is told of merges as soon as they are made."""
        events = self._transform(self._known(batch.events))
        last = batch.records[-1]
        applied = self._people.apply(events, log_offset=last.offset, warnings=batch.warnings)
        on_merged(applied.overrides)
        anonymous = {each for each in {event.project_id for event in events} if self._hides_ips(each)}
        rows: list[EventRow] = []
        kept: list[Event] = []
        for event, attribution in zip(events, applied.attributions, strict=True):
            if attribution is None:
                _DROPPED.labels("personless").inc()
                continue
            rows.append(row_of(event, attribution, anonymize_ip=event.project_id in anonymous))
            kept.append(event)
        if self._flag_calls is not None:
            self._flag_calls.note(kept)
        return Prepared(rows, kept, last)

    def _known(self, events: Sequence[Event]) -> list[Event]:
        """Without events of projects that are gone, and without repetitions inside the batch."""
        seen: set[tuple[int, int]] = set()
        kept: list[Event] = []
        gone = {each for each in {event.project_id for event in events} if self._project(each) is None}
        for event in events:
            key = (event.project_id, event.uuid.int)  # hashing a UUID itself takes longer
            if event.project_id in gone:
                _DROPPED.labels("project").inc()
            elif key in seen:
                RESENT.inc()
            else:
                seen.add(key)
                kept.append(event)
        return kept

    def _transform(self, events: list[Event]) -> list[Event]:
        if self._transformer is None:
            return events
        by_project: dict[int, list[Event]] = {}
        for event in events:
            by_project.setdefault(event.project_id, []).append(event)
        kept: list[Event] = []
        for project_id, ours in by_project.items():
            before = {id(event): event.distinct_id for event in ours}
            left = self._transformer.transform(project_id, ours)
            if len(left) < len(ours):
                _DROPPED.labels("transformation").inc(len(ours) - len(left))
            for event in left:
                event.distinct_id = clean_distinct_id(event.distinct_id) or before[id(event)]
            kept += left
        return kept

    def _hides_ips(self, project_id: int) -> bool:
        project = self._project(project_id)
        return project is not None and project.anonymize_ips
