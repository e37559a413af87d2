"""Reading experiments: one, or a page of them.

What an experiment looks like on the wire is remembered as bytes until anything that it shows has changed. Each
change of that kind raises the version of a topic in its own transaction (`storage.database.changes`), and what is
remembered is only used under the very versions that it was read with, so it is never out of date.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orjson import Fragment

from hoglab.accounts import store as accounts
from hoglab.accounts.service import EVERYWHERE
from hoglab.experiments import store
from hoglab.experiments.listing import Query, list_experiments
from hoglab.experiments.presentation import experiment_state, load_related
from hoglab.http.errors import not_found
from hoglab.http.preconditions import tag_of
from hoglab.http.responses import EncodedObject, encode_json
from hoglab.storage.database import State, Subject, state_in

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.experiments.service import Actor
    from hoglab.http.identity import Principal
    from hoglab.storage.database import Database

MAX_REMEMBERED_BYTES = 32 * 1024 * 1024
"""How much of experiments is remembered; with more, everything is forgotten."""


def subjects(project_id: int) -> tuple[Subject, ...]:
    """Everything that a project's experiments show: users are announced with their keys."""
    return (
        ("experiments", project_id),
        ("flags", project_id),
        ("project", project_id),
        ("actions", project_id),
        ("cohorts", project_id),
        ("keys", EVERYWHERE),
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """An experiment on the wire, but for what depends on the caller."""

    beginning: bytes
    """The JSON up to the value of its last key."""
    tag: str
    created_by_id: int | None

    @classmethod
    def of(cls, state: Mapping[str, Any], created_by_id: int | None) -> Shown:
        encoded = encode_json(state)
        return cls(encoded[:-1] + b',"user_access_level":"', tag_of(encoded), created_by_id)

    def body(self, principal: Principal) -> bytes:
        """The whole JSON object, as this caller sees it."""
        return b'%b%b"}' % (self.beginning, principal.access_level(self.created_by_id).encode())


@dataclass(slots=True)
class _Remembered:
    """Experiments of a project in one state."""

    state: State
    by_id: dict[int, Shown] = field(default_factory=dict)


class ExperimentReads:
    """Answers with experiments of all projects. Used from any thread."""

    def __init__(self, database: Database, max_remembered_bytes: int = MAX_REMEMBERED_BYTES) -> None:
        self._database = database
        self._max_bytes = max_remembered_bytes
        self._projects: dict[int, _Remembered] = {}
        self._bytes = 0
        self._lock = threading.Lock()  # of changes of the two above

    def recall(self, actor: Actor, experiment_id: int) -> EncodedObject | None:
        """As `read`, from memory alone; None when that does not hold the experiment as it is now."""
        project_id = actor.project.id
        remembered = self._projects.get(project_id)
        if remembered is None or remembered.state != self._database.changes.state(subjects(project_id)):
            return None
        shown = remembered.by_id.get(experiment_id)
        return None if shown is None else EncodedObject(shown.body(actor.principal), shown.tag)

    def read(self, actor: Actor, experiment_id: int) -> EncodedObject:
        """The full form of an experiment. Raises 404."""
        with self._database.read() as connection:
            shown = self._shown(connection, actor.project.id, [experiment_id]).get(experiment_id)
        if shown is None:
            raise not_found()
        return EncodedObject(shown.body(actor.principal), shown.tag)

    def page(self, actor: Actor, query: Query, *, limit: int, offset: int) -> tuple[list[Fragment], int]:
        """A page in full form, and how many experiments match. Raises 400."""
        project_id = actor.project.id
        with self._database.read() as connection:
            ids, count = list_experiments(
                connection, project_id, query, limit=limit, offset=offset, now=actor.now
            )
            shown = self._shown(connection, project_id, ids)
        return [Fragment(shown[each].body(actor.principal)) for each in ids], count

    def _shown(self, connection: Connection, project_id: int, ids: Collection[int]) -> dict[int, Shown]:
        """Those of some experiments that exist and are not deleted, in the snapshot of a connection."""
        state = state_in(connection, subjects(project_id))
        remembered = self._projects.get(project_id)
        known = remembered.by_id if remembered is not None and remembered.state == state else {}
        found = {each: known[each] for each in ids if each in known}
        if len(found) < len(ids):
            fresh = _read(connection, project_id, [each for each in ids if each not in found])
            self._remember(project_id, state, fresh)
            found.update(fresh)
        return found

    def _remember(self, project_id: int, state: State, fresh: Mapping[int, Shown]) -> None:
        with self._lock:
            remembered = self._projects.get(project_id)
            if remembered is None or remembered.state < state:
                self._bytes -= _size(remembered.by_id) if remembered is not None else 0
                remembered = self._projects[project_id] = _Remembered(state)
            elif remembered.state > state:
                return  # somebody has read later than we did
            new = {number: shown for number, shown in fresh.items() if number not in remembered.by_id}
            remembered.by_id.update(new)
            self._bytes += _size(new)
            if self._bytes > self._max_bytes:
                self._projects, self._bytes = {}, 0


def _read(connection: Connection, project_id: int, ids: Collection[int]) -> dict[int, Shown]:
    # Not the project of the request: that one may be older than the versions under which this is remembered.
    project = accounts.project_by_id(connection, project_id)
    rows = store.visible(connection, project_id, ids)
    if project is None:
        return {}
    related = load_related(connection, project, rows)
    return {row.id: Shown.of(experiment_state(row, related, project), row.created_by_id) for row in rows}


def _size(shown: Mapping[int, Shown]) -> int:
    return sum(len(each.beginning) for each in shown.values())
