"""Log lines of functions as they are written, for followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from hoglab.delivery.runs.telemetry import shown_line
from hoglab.http.streams import POLL_S, Follower, LiveFeed, ServerEvent
from hoglab.storage.database.errors import DatabaseError

if TYPE_CHECKING:
    from hoglab.storage.invocations import LogLine, LogQuery, RunStore

BATCH_LINES = 1_000
"""Maximum number of lines that are read at a time."""

_logger = structlog.get_logger(__name__)


@dataclass(eq=False, kw_only=True)
class _LogFollower(Follower):
    project_id: int
    function_id: str
    query: LogQuery

    def wants(self, line: LogLine) -> bool:
        is_theirs = line.log_source_id == self.function_id and line.project_id == self.project_id
        return is_theirs and self.query.takes(line)


class LiveLogs(LiveFeed[_LogFollower]):
    """Reads new lines once for all followers, and only while there are any. For one event loop.

    Lines are found by their ids, which grow in the order of commits: `RunStore.last_log_id` ensures that where
    several processes write.
    """

    def __init__(self, store: RunStore, *, poll_s: float = POLL_S) -> None:
        super().__init__(poll_s)
        self._store = store
        self._place = 0

    def follow(
        self, project_id: int, function_id: str, query: LogQuery, after_id: int | None = None
    ) -> AsyncGenerator[ServerEvent, None]:
        """Yield lines of one function from now on, or from behind the line ``after_id``, without end.

        Events are ``log`` with a line as its data, and ``skipped`` with the ``count`` of lines that came faster
        than they were read. Of ``query``, only levels, search and instance count.
        """

        def begin() -> _LogFollower:
            return _LogFollower(self._place, project_id=project_id, function_id=function_id, query=query)

        return self._follow(begin, after_id)

    async def _begin(self) -> None:
        self._place = await asyncio.to_thread(self._store.last_log_id)

    async def _catch_up(self, follower: _LogFollower, after: int) -> None:
        missed = Follower(after)
        while after < follower.began_at:
            lines = await asyncio.to_thread(self._read, [follower.function_id], after, follower.began_at)
            after = lines[-1].id if len(lines) == BATCH_LINES else follower.began_at
            for line in lines:
                if follower.wants(line):
                    missed.offer(_event(line))
        follower.offer_missed(missed.waiting, missed.skipped)

    async def _look(self) -> None:
        try:
            newest = await asyncio.to_thread(self._store.last_log_id)
            while self._place < newest:
                functions = {follower.function_id for follower in self._followers}
                lines = await asyncio.to_thread(self._read, functions, self._place, newest)
                self._place = lines[-1].id if len(lines) == BATCH_LINES else newest
                for line in lines:
                    for follower in self._followers:
                        if follower.wants(line):
                            follower.offer(_event(line))
        except DatabaseError:
            _logger.exception("live_logs_not_read")

    def _read(self, function_ids: Collection[str], after: int, until: int) -> list[LogLine]:
        return self._store.new_logs(function_ids, after, until, BATCH_LINES)


def _event(line: LogLine) -> ServerEvent:
    return ServerEvent("log", shown_line(line), id=line.id)
