"""Log lines of functions as they are written, for those who follow them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import func, select

from hoglab.delivery.runs.telemetry import LogQuery, line_of
from hoglab.http.streams import ServerEvent
from hoglab.storage.database.errors import DatabaseError
from hoglab.storage.database.tables import log_entry

if TYPE_CHECKING:
    from sqlalchemy import Row

    from hoglab.storage.database import Database

POLL_S = 0.5
"""How often new lines are looked for while somebody follows."""
BATCH_LINES = 1_000
"""Most lines that are read at a time."""
MAX_WAITING = 1_000
"""Lines kept for a follower that is slow to take them; older ones are skipped, and it is told how many."""

_logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class _Follower:
    project_id: int
    function_id: str
    query: LogQuery
    waiting: deque[Row[tuple[object, ...]]] = field(default_factory=deque)
    skipped: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, row: Row[tuple[object, ...]]) -> None:
        if row.log_source_id != self.function_id or row.project_id != self.project_id:
            return
        if not self.query.takes(row.level, row.message, row.instance_id):
            return
        if len(self.waiting) >= MAX_WAITING:
            self.waiting.popleft()
            self.skipped += 1
        self.waiting.append(row)
        self.news.set()


class LiveLogs:
    """Reads new lines once for all followers, and only while there are any. For one event loop.

    Lines are found by their ids, which grow in the order of commits because one connection writes at a time.
    """

    def __init__(self, database: Database, *, poll_s: float = POLL_S) -> None:
        """``database``: the one that holds the log."""
        self._database = database
        self._poll_s = poll_s
        self._followers: set[_Follower] = set()
        self._place = 0
        self._reader: asyncio.Task[None] | None = None

    @property
    def followers(self) -> int:
        """How many there are."""
        return len(self._followers)

    @property
    def is_reading(self) -> bool:
        """Whether new lines are being looked for."""
        return self._reader is not None and not self._reader.done()

    async def follow(
        self, project_id: int, function_id: str, query: LogQuery, after_id: int | None = None
    ) -> AsyncGenerator[ServerEvent, None]:
        """Lines of one function from now on, or from behind the line ``after_id``, without end.

        Events are ``log`` with a line as its data, and ``skipped`` with the ``count`` of lines that came faster
        than they were taken. Of ``query``, only levels, search and instance count.
        """
        follower = _Follower(project_id, function_id, query)
        await self._add(follower)
        try:
            if after_id is not None:
                await self._catch_up(follower, after_id)
            while True:
                await follower.news.wait()
                follower.news.clear()
                if follower.skipped:
                    count, follower.skipped = follower.skipped, 0
                    yield ServerEvent("skipped", {"count": count})
                while follower.waiting:
                    row = follower.waiting.popleft()
                    yield ServerEvent("log", line_of(row), id=row.id)
        finally:
            self._followers.discard(follower)

    async def _add(self, follower: _Follower) -> None:
        if not self.is_reading:
            newest = await asyncio.to_thread(self._newest)
            if not self.is_reading:  # another follower may have been quicker
                self._place = newest
                self._reader = asyncio.create_task(self._run())
        self._followers.add(follower)

    async def _catch_up(self, follower: _Follower, after: int) -> None:
        """Put what was missed before what has come in since; what comes in later is newer than both."""
        newest = await asyncio.to_thread(self._newest)
        missed = _Follower(follower.project_id, follower.function_id, follower.query)
        while after < newest:
            rows = await asyncio.to_thread(self._read, [follower.function_id], after, newest)
            after = rows[-1].id if len(rows) == BATCH_LINES else newest
            for row in rows:
                missed.offer(row)
        follower.skipped += missed.skipped
        follower.waiting = missed.waiting + deque(row for row in follower.waiting if row.id > newest)
        follower.news.set()

    async def _run(self) -> None:
        """Hand out new lines until nobody follows any more."""
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._followers:
                return
            try:
                await self._look()
            except DatabaseError:
                _logger.exception("live_logs_not_read")

    async def _look(self) -> None:
        newest = await asyncio.to_thread(self._newest)
        while self._place < newest:
            functions = {follower.function_id for follower in self._followers}
            rows = await asyncio.to_thread(self._read, functions, self._place, newest)
            self._place = rows[-1].id if len(rows) == BATCH_LINES else newest
            for row in rows:
                for follower in self._followers:
                    follower.offer(row)

    def _newest(self) -> int:
        with self._database.read() as connection:
            return connection.execute(select(func.max(log_entry.c.id))).scalar() or 0

    def _read(self, function_ids: Collection[str], after: int, until: int) -> list[Row[tuple[object, ...]]]:
        column = log_entry.c
        with self._database.read() as connection:
            found = connection.execute(
                select(log_entry)
                .where(column.id > after, column.id <= until, column.log_source_id.in_(function_ids))
                .order_by(column.id)
                .limit(BATCH_LINES)
            )
            return list(found)
