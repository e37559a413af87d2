"""A fair semaphore for each destination (host and port): nobody takes all of its places, and who hangs takes none.

Many functions post to the same few hosts. A flood of one of them is not to stand in line before all others, and
neither is one whose requests are never answered: see `shares`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from hoglab.delivery.limits.fair_queue import FairQueue
from hoglab.delivery.limits.shares import more_of_function, one_less, room_of_project

FUNCTION_PART = 3
"""A function has no more than this part of the places: a third."""


class Holder(NamedTuple):
    """On whose account something is used."""

    project_id: int = 0
    function_id: str = ""


NOBODY = Holder()
"""For what is no function's."""


@dataclass(slots=True, eq=False)
class Place:
    """One that is held. ``counts``: among the places of its key; no longer once it is held for long."""

    key: str
    holder: Holder
    since: float = 0.0
    counts: bool = True


_Waiter = tuple[Place, "asyncio.Future[None]"]


@dataclass(slots=True)
class _Holders:
    """Who holds and who waits for the places of one key."""

    counted: int = 0
    held: int = 0
    of_function: Counter[str] = field(default_factory=Counter)
    of_project: Counter[int] = field(default_factory=Counter)
    waiting: FairQueue[_Waiter] = field(default_factory=FairQueue)


class FairSemaphore:
    """``places`` for each key, of which a function has a third at most, and less the more are taken.

    A place that is held for longer than ``slow_s`` is not counted any more, which makes room for another, up to
    ``most`` in all; it goes on counting for the function and the project that hold it. Used on one event loop; `leave`
    once for each `enter` that returned.
    """

    def __init__(self, places: int, *, most: int | None = None, slow_s: float | None = None) -> None:
        """``slow_s``: None for never."""
        self._places = places
        self._most = max(places, most or 0)
        self._slow_s = slow_s
        self._keys: dict[str, _Holders] = {}
        self._counted: dict[Place, None] = {}  # in the order in which they were taken
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, key: str, holder: Holder) -> Place:
        """Wait for a place."""
        place = Place(key, holder)
        holders = self._keys.get(key)
        if holders is None:
            holders = self._keys[key] = _Holders()
        if self._admits(holders, place):
            self._take(holders, place)
            return place
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        holders.waiting.append(holder.function_id, (place, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self.leave(place)
            raise
        return place

    def leave(self, place: Place) -> None:
        """Give a place back, to those whose turn it is."""
        holders = self._keys[place.key]
        one_less(holders.of_function, place.holder.function_id)
        one_less(holders.of_project, place.holder.project_id)
        holders.held -= 1
        self._discount(holders, place)
        self._hand_on(holders)
        if not holders.held and not holders.waiting:
            del self._keys[place.key]

    def keys(self) -> frozenset[str]:
        """Those that have requests under way."""
        return frozenset(self._keys)

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # --- shares

    def _admits(self, holders: _Holders, place: Place) -> bool:
        free = min(self._places - holders.counted, self._most - holders.held)
        has = holders.of_function.get(place.holder.function_id, 0)
        if free <= 0 or has >= max(1, self._places // FUNCTION_PART):
            return False
        return (
            more_of_function(has, room_of_project(free, holders.of_project.get(place.holder.project_id, 0)))
            > 0
        )

    def _take(self, holders: _Holders, place: Place) -> None:
        holders.of_function[place.holder.function_id] += 1
        holders.of_project[place.holder.project_id] += 1
        holders.counted += 1
        holders.held += 1
        if self._slow_s is None:
            return
        loop = asyncio.get_running_loop()
        place.since = loop.time()
        self._counted[place] = None
        if self._timer is None:
            self._timer = loop.call_later(self._slow_s, self._look)

    def _hand_on(self, holders: _Holders) -> None:
        """Let in who waits and may have a place, one function after the other."""
        while holders.waiting:
            found = holders.waiting.pop_first(
                lambda waiter: waiter[1].done() or self._admits(holders, waiter[0])
            )
            if found is None:
                return
            place, turn = found
            if not turn.done():  # else it was cancelled
                self._take(holders, place)
                turn.set_result(None)

    # --- those who hang

    def _discount(self, holders: _Holders, place: Place) -> None:
        if place.counts:
            place.counts = False
            holders.counted -= 1
            self._counted.pop(place, None)

    def _look(self) -> None:
        """Stop counting those that are held for long, and come again when the next one may be."""
        self._timer = None
        loop, slow_s = asyncio.get_running_loop(), self._slow_s or 0.0
        while self._counted:
            place = next(iter(self._counted))
            if place.since + slow_s > loop.time():
                self._timer = loop.call_at(place.since + slow_s, self._look)
                return
            holders = self._keys[place.key]
            self._discount(holders, place)
            self._hand_on(holders)
