"""Events as they are stored, for those who follow them."""

# ruff: noqa: S608 - names of our own, and conditions that filters became

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from hoglab.http.fields.dates import format_moment
from hoglab.http.streams import MAX_WAITING, MAX_WAITING_BYTES, POLL_S, Follower, LiveFeed, ServerEvent
from hoglab.ingestion.warnings import warning_object
from hoglab.storage.database import DatabaseError
from hoglab.storage.database.tables import ingestion_warning
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

if TYPE_CHECKING:
    from hoglab.http.identity import Project
    from hoglab.storage.database import Database
    from hoglab.storage.event_store import EventReader, Reader

SHOWN_PER_S = 50
"""Most events a second that a follower gets, the newest; how many others there were, it is told."""
RESUMED = timedelta(seconds=60)
"""Maximum age of events for a follower that was away."""
RATE_EVERY_S = 1.0
MAX_WARNINGS = 100
"""Most warnings of one look."""
TIMEOUT_S = 2.0
"""Time limit of one statement: others wait for it."""

_FAILURES = (DatabaseError, EventStoreUnavailableError, QueryError, QueryMemoryError, QueryTimeoutError)

Row = tuple[Any, ...]
Show = Callable[["Project", Sequence[Row]], list[dict[str, Any]]]
"""Makes events, as the API lists them, of rows with the columns that were asked for."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """Query for live events: a project, and SQL over a row of ``stored_events AS events`` with its parameters."""

    project: Project
    condition: str = "TRUE"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, str, str]:
        """Key of the query: equal for queries that one statement answers."""
        return self.project.id, self.condition, repr(sorted(self.parameters.items()))


@dataclass(eq=False, kw_only=True)
class _EventFollower(Follower):
    query: LiveQuery
    shown: int = 0

    def offer(self, event: ServerEvent) -> None:
        super().offer(event)
        self.shown += event.type == "event"


@dataclass(slots=True)
class _Look:
    """Result of one look at the new events."""

    events: dict[tuple[int, str, str], tuple[list[ServerEvent], int]]
    """Events by the key of a query, the oldest first, and the number of further ones."""
    received: dict[int, tuple[int, datetime]]
    """Number of events by project, and when the newest was accepted."""
    warnings: list[Any]


class LiveEvents(LiveFeed[_EventFollower]):
    """Reads new events once for all followers, and only while there are any. For one event loop."""

    def __init__(
        self,
        store: EventReader,
        database: Database,
        columns: Sequence[str],
        show: Show,
        *,
        newest: Callable[[], int] | None = None,
        poll_s: float = POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read events of ``store``; ``newest`` tells up to which place all are stored where the store does not know."""
        super().__init__(poll_s)
        self._newest_place = newest
        self._store = store
        self._database = database
        self._columns = ", ".join(columns)
        self._show = show
        self._clock = clock
        self._place = 0
        self._warned = 0
        self._last_event_at: dict[int, datetime] = {}
        self._received: dict[int, int] = {}
        self._rated_at = 0.0

    def follow(self, query: LiveQuery, after: int | None = None) -> AsyncGenerator[ServerEvent, None]:
        """Return events from now on, without end; from behind the one with the id ``after``, if that was a moment ago.

        Events are ``event``, ``skipped`` with the ``count`` of those that came faster than they are shown, ``rate``
        every second, and ``warning`` with what ingestion has to say about an event.
        """
        return self._follow(lambda: _EventFollower(self._place, query=query), after)

    async def _begin(self) -> None:
        self._place, self._warned = await asyncio.to_thread(self._newest)
        self._rated_at, self._received = self._clock(), {}

    async def _catch_up(self, follower: _EventFollower, after: int) -> None:
        events, left_out = await asyncio.to_thread(self._missed, follower.query, after, follower.began_at)
        follower.offer_missed(events, left_out)

    async def _look(self) -> None:
        try:
            await self._hand_out()
        except _FAILURES as error:
            _log.warning("live_events_not_read", error=str(error))
        self._rate()

    async def _hand_out(self) -> None:
        queries = {follower.query.key: follower.query for follower in self._followers}
        self._place, self._warned, look = await asyncio.to_thread(
            self._read, list(queries.values()), self._place
        )
        for project_id, (count, newest) in look.received.items():
            self._received[project_id] = self._received.get(project_id, 0) + count
            self._last_event_at[project_id] = newest
        for follower in self._followers:
            events, left_out = look.events.get(follower.query.key, ([], 0))
            follower.skipped += left_out
            for event in events:
                follower.offer(event)
            for row in look.warnings:
                if row.project_id == follower.query.project.id:
                    follower.offer(ServerEvent("warning", warning_object(row)))

    def _rate(self) -> None:
        seconds = self._clock() - self._rated_at
        if seconds < RATE_EVERY_S:
            return
        for follower in self._followers:
            project_id = follower.query.project.id
            last = self._last_event_at.get(project_id)
            rates = {
                "received_per_s": round(self._received.get(project_id, 0) / seconds),
                "shown_per_s": round(follower.shown / seconds),
                "last_event_at": None if last is None else format_moment(last),
            }
            follower.shown = 0
            follower.offer(ServerEvent("rate", rates))
        self._rated_at, self._received = self._clock(), {}

    # In a thread

    def _newest(self) -> tuple[int, int]:
        with self._store.reader() as reader:
            place = self._place_in(reader)
        with self._database.read() as connection:
            return place, connection.scalar(sa.select(sa.func.max(ingestion_warning.c.id))) or 0

    def _place_in(self, reader: Reader) -> int:
        if self._newest_place is not None:
            return self._newest_place()
        [(place,)] = reader.execute(_NEWEST, timeout_s=TIMEOUT_S)
        return int(place)

    def _read(self, queries: Sequence[LiveQuery], after: int) -> tuple[int, int, _Look]:
        projects = sorted({query.project.id for query in queries})
        look = _Look({}, {}, [])
        with self._store.reader() as reader:
            newest = self._place_in(reader)
            if newest > after:
                received = (
                    f"SELECT project_id, count(*), max(captured_at) FROM stored_events WHERE seq > {after} "
                    f"AND seq <= {newest} AND project_id IN ({', '.join(map(str, projects))}) GROUP BY project_id"
                )
                for project_id, count, moment in reader.execute(received, timeout_s=TIMEOUT_S):
                    look.received[project_id] = (count, moment.replace(tzinfo=UTC))
            for query in queries:
                if query.project.id in look.received:
                    limit = round(SHOWN_PER_S * POLL_S)
                    look.events[query.key] = self._matching(reader, query, after, newest, limit)
        new = ingestion_warning.c.id > self._warned
        of_projects = ingestion_warning.c.project_id.in_(projects)
        with self._database.read() as connection:
            warnings = sa.select(ingestion_warning).where(new, of_projects).order_by(ingestion_warning.c.id)
            look.warnings = list(connection.execute(warnings.limit(MAX_WARNINGS)))
        return newest, max([self._warned, *(row.id for row in look.warnings)]), look

    def _missed(self, query: LiveQuery, after: int, until: int) -> tuple[list[ServerEvent], int]:
        since = (datetime.now(UTC) - RESUMED).replace(tzinfo=None)
        young = f"({query.condition}) AND captured_at >= $since"
        recent = LiveQuery(query.project, young, {**query.parameters, "since": since})
        with self._store.reader() as reader:
            return self._matching(reader, recent, max(0, after), until, MAX_WAITING)

    def _matching(
        self, reader: Reader, query: LiveQuery, after: int, until: int, limit: int
    ) -> tuple[list[ServerEvent], int]:
        """Return the newest events of a query, the oldest of them first, and how many are left out.

        One that fails finds nothing: others are not to wait for it.
        """
        try:
            rows, left_out = self._rows(reader, query, after, until, limit)
            return self._events(query, rows), left_out
        except _FAILURES as error:
            _log.warning("live_events_not_read", project_id=query.project.id, error=str(error))
            return [], 0

    def _rows(
        self, reader: Reader, query: LiveQuery, after: int, until: int, limit: int
    ) -> tuple[list[Row], int]:
        newest = (
            f"SELECT count(*) OVER () AS matching, seq, {self._columns}, {_SIZE} AS size "
            f"FROM stored_events AS events "
            f"WHERE project_id = {query.project.id} AND seq > {after} AND seq <= {until} AND ({query.condition}) "
            f"ORDER BY seq DESC LIMIT {limit}"
        )
        weighed = f"SELECT *, sum(size) OVER (ORDER BY seq DESC) - size AS before FROM ({newest}) AS newest"
        sql = (
            f"SELECT matching, seq, {self._columns} FROM ({weighed}) AS weighed "
            f"WHERE before <= {MAX_WAITING_BYTES} ORDER BY seq DESC"
        )
        rows = reader.execute(sql, dict(query.parameters) or None, timeout_s=TIMEOUT_S)
        count = rows[0][0] if rows else 0
        return [row[1:] for row in reversed(rows)], count - len(rows)

    def _events(self, query: LiveQuery, rows: Sequence[Row]) -> list[ServerEvent]:
        shown = self._show(query.project, [row[1:] for row in rows])
        return [ServerEvent("event", data, id=row[0]) for row, data in zip(rows, shown, strict=True)]


_NEWEST = "SELECT next_seq - 1 FROM store_state"
_SIZE = "coalesce(length(whole_properties), 0) + coalesce(length(elements_chain), 0)"
