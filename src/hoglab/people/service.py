"""Persons and groups of all projects: what events do to them, and reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import Counter
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from hoglab.filters.model import GROUP_TYPES
from hoglab.http.fields.dates import utc_now
from hoglab.people import store
from hoglab.people.batch import MERGING_EVENTS, IngestionWarning, PeopleBatch, PersonEvent, Resolution
from hoglab.people.groups import GroupBatch
from hoglab.people.identity import clean_distinct_id
from hoglab.people.person_cache import PersonCache
from hoglab.people.person_states import load_persons
from hoglab.people.reading import PersonView, group_properties, person_for
from hoglab.storage.database import DatabaseConflictError, Rebuildable
from hoglab.storage.event_store import PersonOverride
from hoglab.storage.versioned_cache import VersionedCache

if TYPE_CHECKING:
    from hoglab.storage.database import Database, Transaction
    from hoglab.storage.event_log import SequenceNumber

WARNING_RETENTION = timedelta(days=30)


class Attribution(msgspec.Struct, frozen=True, gc=False):
    """Person and groups of an event."""

    person: Resolution
    groups: Mapping[int, str]  # group type index -> group key


def _free(connection: Connection) -> None:
    """Allow writing: a log of one process needs no fence."""
    del connection


@dataclass(frozen=True, slots=True)
class LogStage:
    """Stage of ingestion with its own position in the log: of all events, or of the events of one partition.

    ``fence`` raises, in the transaction of a write, when the turn is another process's now.
    """

    name: str = "people"
    fence: Callable[[Connection], None] = _free


ALL_EVENTS = LogStage()

CONFLICTS = Counter(
    "hoglab_person_conflicts",
    "Batches of events applied again, because another process changed the same persons meanwhile.",
)
SHARED_ATTEMPTS = 3
"""Attempts to apply a batch beside other processes; after them it is applied while nobody else writes."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of a batch: for each event its attribution, or None when it is to be dropped."""

    attributions: list[Attribution | None]
    overrides: list[PersonOverride]


class _TakenBackError(Exception):
    """Ends a transaction that was only a trial."""


class PersonService:
    """Persons, distinct ids and groups in the metadata database. Used from any thread."""

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now
        self.known = PersonCache()
        """The cache of persons; every change that is made here is reported to it."""
        self._group_types: VersionedCache[dict[str, int]] = VersionedCache(database, ["group_types"])

    # --- what events do

    def apply(
        self,
        events: Sequence[PersonEvent],
        *,
        log_offset: SequenceNumber,
        warnings: Sequence[IngestionWarning] = (),
        stage: LogStage = ALL_EVENTS,
    ) -> Applied:
        """Resolve the persons and groups of a batch of events (in log order) and write all changes, durably.

        One transaction with a handful of statements for each project in the batch. The events' properties are
        changed in place: mirrored initial properties, ``$group_N``, removal of person updates that do not count.
        ``log_offset`` is the offset of the last event. Events up to `position` were applied before (and something
        failed after that): they are attributed, but change no person again. Further ``warnings`` are written along.
        Raises what the fence of the ``stage`` raises.

        Batches of partitions are applied beside the batches of other processes. Where these changed, or created,
        the same persons meanwhile, the batch is applied again: applying events once more changes no event further.
        """
        attempts = 0 if stage is ALL_EVENTS or self._names_new_group_types(events) else SHARED_ATTEMPTS
        for _ in range(attempts):
            with suppress(DatabaseConflictError, IntegrityError):
                return self._write(events, log_offset, warnings, stage, shared=True)
            CONFLICTS.inc()
        return self._write(events, log_offset, warnings, stage, shared=False)

    def _write(
        self,
        events: Sequence[PersonEvent],
        log_offset: SequenceNumber,
        warnings: Sequence[IngestionWarning],
        stage: LogStage,
        *,
        shared: bool,
    ) -> Applied:
        with self.known.changing() as touch, self._database.write(shared=shared) as tx:
            stage.fence(tx.connection)
            return self._apply(tx, touch, events, stage.name, log_offset, warnings, shared=shared)

    def _names_new_group_types(self, events: Sequence[PersonEvent]) -> bool:
        """Return whether events may create group types, which get their numbers one after the other."""
        for event in events:
            named = event.properties.get("$groups")
            names = set(named) if isinstance(named, dict) else set()
            if event.event == "$groupidentify":
                names.add(str(event.properties.get("$group_type")))
            if names:
                known = self.group_types(event.project_id)
                if len(known) < GROUP_TYPES and not names <= known.keys():
                    return True
        return False

    def dry_run(
        self, events: Sequence[PersonEvent], *, log_offset: SequenceNumber, stage: LogStage = ALL_EVENTS
    ) -> list[Attribution | None]:
        """Apply events like `apply` and roll it back. Return to whom the events would be attributed."""
        with suppress(_TakenBackError), self.known.changing() as touch, self._database.write() as tx:
            attributions = self._apply(tx, touch, events, stage.name, log_offset, ()).attributions
            raise _TakenBackError
        return attributions

    def named_in(self, events: Sequence[PersonEvent]) -> set[tuple[int, str]]:
        """Return the projects and distinct ids of all persons that events are about."""
        return {(event.project_id, name) for event in events for name in _names([event]) if name}

    def _apply(
        self,
        tx: Transaction,
        touch: Callable[[Iterable[int]], None],
        events: Sequence[PersonEvent],
        stage: str,
        log_offset: SequenceNumber,
        warnings: Sequence[IngestionWarning],
        *,
        shared: bool = False,
    ) -> Applied:
        by_project: dict[int, list[PersonEvent]] = {}
        for event in events:
            by_project.setdefault(event.project_id, []).append(event)
        attributions: dict[int, Iterator[Attribution | None]] = {}
        overrides: list[PersonOverride] = []
        raised = list(warnings)
        applied = store.load_position(tx.connection, stage)
        for project_id, ours in by_project.items():
            names = _names(ours)
            loaded = load_persons(tx.connection, project_id, names)
            touch(state.row_id for state in loaded.values() if state.row_id is not None)
            people = PeopleBatch(project_id, names, loaded)
            results, moved = self._apply_project(
                tx, people, ours, (applied, log_offset), raised, shared=shared
            )
            overrides += moved
            attributions[project_id] = iter(results)
        if raised:
            store.save_warnings(tx.connection, raised, self._now())
        if log_offset > applied:
            store.save_position(tx.connection, stage, log_offset)
        return Applied([next(attributions[event.project_id]) for event in events], overrides)

    def _apply_project(
        self,
        tx: Transaction,
        people: PeopleBatch,
        events: Sequence[PersonEvent],
        offsets: tuple[SequenceNumber, SequenceNumber],  # applied before, and of this batch
        warnings: list[IngestionWarning],
        *,
        shared: bool,
    ) -> tuple[list[Attribution | None], list[PersonOverride]]:
        connection = tx.connection
        applied, log_offset = offsets
        project_id = people.project_id
        # The only writer may be about to create group types, so it counts the stored ones.
        types = self.group_types(project_id) if shared else store.load_group_types(connection, project_id)
        groups = GroupBatch(types)
        results: list[Attribution | None] = []
        for event in events:
            again = event.log_offset <= applied
            person = people.recall(event) if again else people.process(event)
            results.append(None if person is None else Attribution(person, groups.process(event)))
        if shared:
            store.claim_persons(connection, people)
        store.save_persons(connection, people)
        moved: list[PersonOverride] = []
        if people.overrides:
            final = {old: person.root().uuid for old, person in people.overrides.items()}
            moved = store.save_overrides(connection, project_id, final, log_offset)
        warnings += people.warnings
        if groups.new_types:
            store.save_group_types(connection, project_id, groups.new_types)
            tx.changed("group_types", project_id)
        if groups.changes:
            warnings += store.save_groups(connection, project_id, groups.changes)
        return results, moved

    def position(self, stage: LogStage = ALL_EVENTS) -> SequenceNumber:
        """Return the log offset up to which events were applied; 0 when none were."""
        with self._database.read() as connection:
            return store.load_position(connection, stage.name)

    def overrides_after(
        self, log_offset: SequenceNumber, until: SequenceNumber | None = None
    ) -> list[PersonOverride]:
        """Return the merges that log records after ``log_offset`` caused, up to ``until``.

        A crash may have kept them from the event store.
        """
        with self._database.read() as connection:
            return store.load_overrides(connection, log_offset, until)

    def forget_old_warnings(self) -> int:
        """Delete warnings older than `WARNING_RETENTION`, and return how many they were."""
        with self._database.write(rebuildable=Rebuildable.EXPIRED) as tx:
            return store.delete_warnings(tx.connection, self._now() - WARNING_RETENTION)

    # --- reading

    def person_for(self, project_id: int, distinct_id: str) -> PersonView | None:
        """Return the person behind a distinct id; None when there is none. One indexed point read."""
        with self._database.read() as connection:
            return person_for(connection, project_id, distinct_id)

    def group_properties(self, project_id: int, index: int, key: str) -> dict[str, Any] | None:
        """Return the properties of a group; None when there is no such group. One indexed point read."""
        with self._database.read() as connection:
            return group_properties(connection, project_id, index, key)

    def group_types(self, project_id: int) -> Mapping[str, int]:
        """Return the group types of a project and their indexes. They are kept in memory until the version changes."""

        def load(*_: object) -> dict[str, int]:
            with self._database.read() as connection:
                return store.load_group_types(connection, project_id)

        return self._group_types.get(project_id, load)


def _names(events: Sequence[PersonEvent]) -> set[str]:
    """Return every distinct id that events name, as author or in a merge."""
    names = {event.distinct_id for event in events}
    for event in events:
        if event.event in MERGING_EVENTS:
            other = "$anon_distinct_id" if event.event == "$identify" else "alias"
            names.add(clean_distinct_id(event.properties.get(other)))
    return names
