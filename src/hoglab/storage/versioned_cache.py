"""What is made of the data of projects, and kept in memory until these data change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from hoglab.storage.database import Database
    from hoglab.storage.database.changes import State, Subject, Topic

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Kept(Generic[ValueT]):
    """A value of a project. ``state``: the versions of the topics before it was made; ``beside``: see `get`."""

    subjects: tuple[Subject, ...]
    state: State
    beside: Hashable
    value: ValueT


class VersionedCache(Generic[ValueT]):
    """One value for each project, made when it is first asked for and after each change; used from any thread.

    A change that was committed before a call is seen by it: versions are read before the data, so that old data never
    pass for new ones. While nothing changes, a value costs the comparison of a few numbers.
    """

    def __init__(self, database: Database, topics: Sequence[Topic]) -> None:
        """Keep values that depend on ``topics``."""
        self._changes = database.changes
        self._topics = tuple(topics)
        self._kept: dict[int, Kept[ValueT]] = {}
        self._locks: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()  # of the locks

    def current(self, project_id: int, beside: Hashable = None) -> Kept[ValueT] | None:
        """Return what is kept of a project, None when it is not up to date; cheap enough for every request."""
        kept = self._kept.get(project_id)
        if kept is None or kept.state != self._changes.state(kept.subjects) or kept.beside != beside:
            return None
        return kept

    def get(
        self,
        project_id: int,
        load: Callable[[State, Kept[ValueT] | None], ValueT],
        beside: Hashable = None,
    ) -> ValueT:
        """Return the up-to-date value of a project. One thread at a time makes it, and the others wait for it.

        ``load`` makes it of the data, which have at least the versions that it is given, with the help of what was
        kept before. When it raises, that stays, and the next call tries again. ``beside`` is what else the value
        depends on, apart from the topics.
        """
        kept = self.current(project_id, beside)
        if kept is not None:
            return kept.value
        with self._lock:
            lock = self._locks.setdefault(project_id, threading.Lock())
        with lock:
            kept = self.current(project_id, beside)
            if kept is None:
                subjects = tuple((topic, project_id) for topic in self._topics)
                state = self._changes.state(subjects)
                value = load(state, self._kept.get(project_id))
                kept = self._kept[project_id] = Kept(subjects, state, beside, value)
        return kept.value

    def last(self, project_id: int) -> Kept[ValueT] | None:
        """Return what is kept of a project, whether it is up to date or not."""
        return self._kept.get(project_id)

    def values(self) -> list[ValueT]:
        """Return the values of all projects, whether they are up to date or not."""
        return [kept.value for kept in list(self._kept.values())]
