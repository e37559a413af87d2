"""A limited number of requests to each host at a time, for whose places functions take turns.

Many functions post to the same few hosts; a flood of one of them is not to stand in line before all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from hoglab.delivery.bodies.line import Line


class Gates:
    """Used on one event loop. `leave` once for each `enter` that returned."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, Line[asyncio.Future[None]]] = {}

    async def enter(self, host: str, function_id: str) -> None:
        """Wait for a place."""
        if self._busy[host] < self._per_host:
            self._busy[host] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, Line()).append(function_id, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self.leave(host)
            raise

    def leave(self, host: str) -> None:
        """Hand the place to the next one who waits."""
        line = self._waiting.get(host)
        while line:
            turn = line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(host, None)
        self._busy[host] -= 1
        if not self._busy[host]:
            del self._busy[host]

    def hosts(self) -> frozenset[str]:
        """Those that have requests under way."""
        return frozenset(self._busy)
