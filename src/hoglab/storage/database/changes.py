"""Notes of what changed, so that caches know when to forget.

Each (topic, project) has a version that grows with every change. The versions live in the
``change_version`` table, written in the transaction of the change itself, and are mirrored in memory,
where looking one up costs a dictionary access.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, get_args

import structlog
from sqlalchemy import Connection, bindparam, func, insert, select, update

from hoglab.storage.database.prepared import PreparedSelect, among, listed
from hoglab.storage.database.tables.activity import change_version

Topic = Literal[
    "project",
    "keys",
    "flags",
    "experiments",
    "functions",
    "actions",
    "cohorts",
    "people",
    "group_types",
    "internal_events",
]
TOPICS: frozenset[str] = frozenset(get_args(Topic))

Subject = tuple[Topic, int]
"""A topic of a project."""
State = tuple[int, ...]
"""The versions of some subjects. Of two of the same subjects the greater one is the later one."""

REMEMBERED = 1_000
"""Versions of a topic of a project of which is known what they are about."""

Listener = Callable[[int], object]

_log = structlog.get_logger(__name__)


class ChangeFeed:
    """The versions in memory and the listeners of this process."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, int], int] = {}
        self._total = 0  # their sum
        self._items: dict[tuple[str, int], OrderedDict[int, frozenset[str]]] = {}
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()

    def version(self, topic: Topic, project_id: int) -> int:
        """Return the number of changes of this topic of this project; 0 for none. Cheap enough for every request.

        A cache that reads the version first and its data afterwards never holds old data under a new
        version, because versions are raised only after the change is committed.
        """
        return self._versions.get((topic, project_id), 0)

    def state(self, subjects: Sequence[Subject]) -> State:
        """Return the versions of several subjects, as `version` gives them."""
        versions = self._versions
        return tuple([versions.get(subject, 0) for subject in subjects])

    def remember(self, topic: str, project_id: int, version: int, items: Collection[str] | None) -> None:
        """Note what a version is about, before it is published; None when its writer does not say."""
        if items is None:
            return
        with self._lock:
            known = self._items.setdefault((topic, project_id), OrderedDict())
            known[version] = frozenset(items)
            while len(known) > REMEMBERED:
                known.popitem(last=False)

    def items_between(self, topic: Topic, project_id: int, since: int, until: int) -> frozenset[str] | None:
        """Return the ids of what changed after version ``since`` up to version ``until``.

        The result is None when that is not known.
        """
        with self._lock:
            known: Mapping[int, frozenset[str]] = self._items.get((topic, project_id), {})
            if until - since > REMEMBERED or any(
                version not in known for version in range(since + 1, until + 1)
            ):
                return None
            return frozenset().union(*(known[version] for version in range(since + 1, until + 1)))

    def subscribe(self, topic: Topic, listener: Listener) -> Callable[[], None]:
        """Call ``listener(project_id)`` after each committed change of a topic, and return a function that ends this.

        Listeners run in the thread of the writer, before its `Database.write` block returns, and outside
        the transaction. An exception in one is logged and reaches nobody else.
        """
        check_topic(topic)
        with self._lock:
            self._listeners[topic] = (*self._listeners.get(topic, ()), listener)

        def unsubscribe() -> None:
            with self._lock:
                left = list(self._listeners.get(topic, ()))
                if listener in left:
                    left.remove(listener)
                self._listeners[topic] = tuple(left)

        return unsubscribe

    def refresh(self, connection: Connection) -> int:
        """Take over versions that another process wrote, notify of them, and return how many there were.

        A caller that comes while another thread notifies waits until that is done. Where there are none, one
        number is read: versions only ever rise.
        """
        with self._refreshing:
            known = self._total  # before the database is asked, which so has all of it
            if total_changes(connection) == known:
                return 0
            rows = connection.execute(
                select(change_version.c.topic, change_version.c.project_id, change_version.c.version)
            )
            fresh = self._take_over((topic, project_id, version) for topic, project_id, version in rows)
            self._notify(fresh)
        return len(fresh)

    def publish(self, committed: Sequence[tuple[str, int, int]]) -> None:
        """Take over (topic, project, version) triples that this process has committed, and notify of all of them.

        A `refresh` may have seen them first and still be telling of them, but their writer goes on only when
        everybody knows.
        """
        self._take_over(committed)
        self._notify([(topic, project_id) for topic, project_id, _ in committed])

    def _take_over(self, committed: Iterable[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Return topics and projects whose versions were not known."""
        fresh = []
        with self._lock:
            for topic, project_id, version in committed:
                before = self._versions.get((topic, project_id), 0)
                if before < version:
                    self._versions[topic, project_id] = version
                    self._total += version - before
                    fresh.append((topic, project_id))
        return fresh

    def _notify(self, changed: Sequence[tuple[str, int]]) -> None:
        for topic, project_id in changed:
            for listener in self._listeners.get(topic, ()):
                try:
                    listener(project_id)
                except Exception:
                    _log.exception("change_listener_failed", topic=topic, project_id=project_id)


def total_changes(connection: Connection) -> int:
    """Return the number of changes so far: of every topic, in all projects."""
    return int(connection.scalar(select(func.coalesce(func.sum(change_version.c.version), 0))) or 0)


_VERSIONS = PreparedSelect(
    select(change_version.c.topic, change_version.c.project_id, change_version.c.version).where(
        among(change_version.c.topic, bindparam("topics")),
        among(change_version.c.project_id, bindparam("projects")),
    )
)


def state_in(connection: Connection, subjects: Sequence[Subject]) -> State:
    """Return the versions of some subjects in the snapshot of a connection: those of the data that it shows.

    `ChangeFeed.state` may be ahead of a snapshot, or behind it for the moment between a commit and its notice.
    """
    topics, projects = zip(*subjects, strict=True)
    rows = _VERSIONS.rows(connection, topics=listed(topics), projects=listed(set(projects)))
    versions = {(topic, project_id): version for topic, project_id, version in rows}
    return tuple([versions.get(subject, 0) for subject in subjects])


def check_topic(topic: str) -> None:
    """Raise `ValueError` for a topic that does not exist, which is always a slip of the pen."""
    if topic not in TOPICS:
        raise ValueError(f"unknown topic {topic!r}: one of {', '.join(sorted(TOPICS))}")


def bump(connection: Connection, topic: str, project_id: int) -> tuple[str, int, int]:
    """Raise a version inside the transaction of ``connection``, and return what to publish after the commit."""
    row = change_version.c
    version = connection.scalar(
        update(change_version)
        .where(row.topic == topic, row.project_id == project_id)
        .values(version=row.version + 1)
        .returning(row.version)
    )
    if version is None:
        version = 1
        connection.execute(insert(change_version).values(topic=topic, project_id=project_id, version=version))
    return topic, project_id, int(version)
