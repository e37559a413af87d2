"""Reading experiments: one, or a page of them.

The JSON of an experiment is remembered as bytes until anything that it shows has changed. Each change of that kind
raises the version of a topic in its own transaction (`storage.database.changes`), and remembered bytes are used only
under the versions that they were read with, so they are never out of date. When experiments or flags of the project
have changed, a digest of the stored rows tells which experiments changed.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orjson import Fragment

from hoglab.accounts import store as accounts
from hoglab.accounts.service import EVERYWHERE
from hoglab.experiments import store
from hoglab.experiments.api.listing import Query, list_experiments
from hoglab.experiments.records import store as records
from hoglab.experiments.wire.presentation import experiment_state, load_related
from hoglab.http.errors import not_found
from hoglab.http.fields.wire import user_object
from hoglab.http.management.preconditions import tag_of
from hoglab.http.responses import EncodedObject, encode_json
from hoglab.storage.database import State, Subject, state_in

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.experiments.actor import Actor
    from hoglab.http.identity import Principal
    from hoglab.storage.database import Database

MAX_REMEMBERED_BYTES = 32 * 1024 * 1024
"""Maximum size of remembered experiments; above it all of them are forgotten."""


DIGESTED = 2
"""Number of the first `subjects` for which a digest tells which experiment changed."""


def subjects(project_id: int) -> tuple[Subject, ...]:
    """Return the topics of everything that a project's experiments show: users are announced with their keys."""
    return (
        ("experiments", project_id),  # and their holdouts and saved metrics
        ("flags", project_id),
        ("project", project_id),
        ("actions", project_id),
        ("cohorts", project_id),
        ("keys", EVERYWHERE),
    )


@dataclass(frozen=True, slots=True)
class ShownExperiment:
    """JSON of an experiment, without the part that depends on the caller."""

    beginning: bytes
    """The JSON up to the value of its last key."""
    tag: str
    created_by_id: int | None

    @classmethod
    def of(cls, state: Mapping[str, Any], created_by_id: int | None) -> ShownExperiment:
        encoded = encode_json(state)
        return cls(encoded[:-1] + b',"user_access_level":"', tag_of(encoded), created_by_id)

    def body(self, principal: Principal) -> bytes:
        """Return the whole JSON object, as this caller sees it."""
        return b'%b%b"}' % (self.beginning, principal.access_level(self.created_by_id).encode())


@dataclass(frozen=True, slots=True)
class _Remembered:
    """JSON of an experiment in one state, and a digest of the rows that it was made from."""

    state: State
    digest: bytes
    shown: ShownExperiment


class ExperimentReads:
    """Readers of experiments of all projects. Used from any thread."""

    def __init__(self, database: Database, max_remembered_bytes: int = MAX_REMEMBERED_BYTES) -> None:
        self._database = database
        self._max_bytes = max_remembered_bytes
        self._remembered: dict[tuple[int, int], _Remembered] = {}  # by project and id
        self._bytes = 0
        self._lock = threading.Lock()  # of changes of the two above

    def recall(self, actor: Actor, experiment_id: int) -> EncodedObject | None:
        """Return an experiment from memory alone; None when its present state is not remembered."""
        project_id = actor.project.id
        known = self._remembered.get((project_id, experiment_id))
        if known is None or known.state != self._database.changes.state(subjects(project_id)):
            return None
        return EncodedObject(known.shown.body(actor.principal), known.shown.tag)

    def read(self, actor: Actor, experiment_id: int) -> EncodedObject:
        """Return the full form of an experiment. Raises 404."""
        with self._database.read() as connection:
            shown = self._shown(connection, actor.project.id, [experiment_id]).get(experiment_id)
        if shown is None:
            raise not_found()
        return EncodedObject(shown.body(actor.principal), shown.tag)

    def page(self, actor: Actor, query: Query, *, limit: int, offset: int) -> tuple[list[Fragment], int]:
        """Return a page in full form, and how many experiments match. Raises 400."""
        project_id = actor.project.id
        with self._database.read() as connection:
            ids, count = list_experiments(
                connection, project_id, query, limit=limit, offset=offset, now=actor.now
            )
            shown = self._shown(connection, project_id, ids)
        return [Fragment(shown[experiment_id].body(actor.principal)) for experiment_id in ids], count

    def records(
        self, actor: Actor, experiment_id: int, *, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return a page of the records of an experiment, newest first, and how many there are. Raises 404."""
        with self._database.read() as connection:
            row = store.get(connection, actor.project.id, experiment_id)
            if row is None or row.deleted:
                raise not_found()
            page, count = records.page(connection, experiment_id, limit=limit, offset=offset)
            authors = accounts.users(connection, (record.user_id for record in page))
        return [
            {
                "id": record.id,
                "kind": record.kind,
                "created_at": record.created_at,
                "created_by": user_object(authors.get(record.user_id or 0)),
                "detail": record.detail,
            }
            for record in page
        ], count

    def _shown(
        self, connection: Connection, project_id: int, ids: Collection[int]
    ) -> dict[int, ShownExperiment]:
        """Return the given experiments that exist and are not deleted, in the snapshot of a connection."""
        state = state_in(connection, subjects(project_id))
        shown: dict[int, ShownExperiment] = {}
        for identifier in ids:
            known = self._remembered.get((project_id, identifier))
            if known is not None and known.state == state:
                shown[identifier] = known.shown
        if len(shown) < len(ids):
            fresh = self._fresh(
                connection,
                project_id,
                [experiment_id for experiment_id in ids if experiment_id not in shown],
                state,
            )
            self._remember(project_id, fresh)
            shown.update((experiment_id, remembered.shown) for experiment_id, remembered in fresh.items())
        return shown

    def _fresh(
        self, connection: Connection, project_id: int, ids: Collection[int], state: State
    ) -> dict[int, _Remembered]:
        fresh: dict[int, _Remembered] = {}
        digests = store.digests(connection, project_id, ids)
        for identifier, digest in digests.items():
            known = self._remembered.get((project_id, identifier))
            if known is not None and known.digest == digest and known.state[DIGESTED:] == state[DIGESTED:]:
                fresh[identifier] = _Remembered(state, digest, known.shown)
        changed = [experiment_id for experiment_id in digests if experiment_id not in fresh]
        for identifier, shown in _read(connection, project_id, changed).items() if changed else ():
            fresh[identifier] = _Remembered(state, digests[identifier], shown)
        return fresh

    def _remember(self, project_id: int, fresh: Mapping[int, _Remembered]) -> None:
        with self._lock:
            for identifier, new in fresh.items():
                old = self._remembered.get((project_id, identifier))
                if old is not None and old.state > new.state:
                    continue  # somebody has read later than we did
                self._bytes += len(new.shown.beginning) - (0 if old is None else len(old.shown.beginning))
                self._remembered[project_id, identifier] = new
            if self._bytes > self._max_bytes:
                self._remembered, self._bytes = {}, 0


def _read(connection: Connection, project_id: int, ids: Collection[int]) -> dict[int, ShownExperiment]:
    # Not the project of the request: that one may be older than the versions under which this is remembered.
    project = accounts.project_by_id(connection, project_id)
    rows = store.visible(connection, project_id, ids)
    if project is None:
        return {}
    related = load_related(connection, project, rows)
    return {
        row.id: ShownExperiment.of(experiment_state(row, related, project), row.created_by_id) for row in rows
    }
