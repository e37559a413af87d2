"""A fair semaphore: places of several keys, of which nobody takes all, and who hangs takes none.

Those who share something (the places of a destination, threads, streams) are not to stand in line behind a flood of one
of them, and neither behind one whose places are never given back: see `thresholds`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from hoglab.fairness.fair_queue import FairQueue
from hoglab.fairness.thresholds import more_of_member, one_less, room_of_owner

MEMBER_PART = 3
"""Part of the places that a member has at most, unless another is asked for: a third."""


class TooManyWaitingError(Exception):
    """One owner has as much waiting work as it may have."""


class Holder(NamedTuple):
    """Holder of a place: an owner, and the member of it that is counted separately."""

    owner: Hashable = 0
    member: Hashable | None = None


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
    """Holders of the places of one key, and those that wait for one."""

    counted: int = 0
    held: int = 0
    of_member: Counter[Hashable] = field(default_factory=Counter)
    of_owner: Counter[Hashable] = field(default_factory=Counter)
    waiting: FairQueue[_Waiter] = field(default_factory=FairQueue)
    waiting_of: Counter[Hashable] = field(default_factory=Counter)
    waiting_of_member: Counter[Hashable] = field(default_factory=Counter)


class FairSemaphore:
    """``places`` for each key, of which a member has a third at most, and less the more are taken.

    A place that is held for longer than ``slow_s`` is not counted any more, which makes room for another, up to
    ``most`` in all; it goes on counting for the member and the owner that hold it. Used on one event loop; `leave`
    once for each place.
    """

    def __init__(
        self,
        places: int,
        *,
        most: int | None = None,
        slow_s: float | None = None,
        kept_free: int = 0,
        max_waiting: int | None = None,
        member_part: int = MEMBER_PART,
    ) -> None:
        """Divide ``places``; the last ``kept_free`` are for holders without any. ``slow_s``: None for never.

        ``max_waiting``: how often one owner may wait for a key, None for any number; members of an owner share that as
        they share places. ``member_part``: see `MEMBER_PART`.
        """
        self._places = places
        self._most = max(places, most or 0)
        self._slow_s = slow_s
        self._kept_free = kept_free
        self._max_waiting = max_waiting
        self._member_part = member_part
        self._keys: dict[str, _Holders] = {}
        self._counted: dict[Place, None] = {}  # in the order in which they were taken
        self._timer: asyncio.TimerHandle | None = None

    def try_enter(self, key: str, holder: Holder) -> Place | None:
        """Return a place, if there is one for this holder now."""
        place = Place(key, holder)
        holders = self._keys.setdefault(key, _Holders())
        if self._admits(holders, place):
            self._take(holders, place)
            return place
        return None

    async def enter(self, key: str, holder: Holder) -> Place:
        """Wait for a place. Raises `TooManyWaitingError`."""
        place = self.try_enter(key, holder)
        if place is not None:
            return place
        holders = self._keys[key]
        if not self._may_wait(holders, holder):
            raise TooManyWaitingError
        place = Place(key, holder)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        holders.waiting.append(holder.owner if holder.member is None else holder.member, (place, turn))
        holders.waiting_of[holder.owner] += 1
        holders.waiting_of_member[holder.member] += 1
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
        one_less(holders.of_member, place.holder.member)
        one_less(holders.of_owner, place.holder.owner)
        holders.held -= 1
        self._discount(holders, place)
        self._hand_on(holders)
        if not holders.held and not holders.waiting:
            del self._keys[place.key]

    def keys(self) -> frozenset[str]:
        """Return the keys that hold places."""
        return frozenset(self._keys)

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # --- shares

    def _admits(self, holders: _Holders, place: Place) -> bool:
        owner, member = place.holder
        free = min(self._places - holders.counted, self._most - holders.held)
        owner_has = holders.of_owner.get(owner, 0)
        if owner_has:
            free -= self._kept_free
        room = room_of_owner(free, owner_has)
        if free <= 0 or room <= 0:
            return False
        if member is None:
            return True
        has = holders.of_member.get(member, 0)
        return has < max(1, self._places // self._member_part) and more_of_member(has, room) > 0

    def _may_wait(self, holders: _Holders, holder: Holder) -> bool:
        if self._max_waiting is None:
            return True
        room = self._max_waiting - holders.waiting_of[holder.owner]
        if holder.member is None:
            return room > 0
        return more_of_member(holders.waiting_of_member[holder.member], room) > 0

    def _take(self, holders: _Holders, place: Place) -> None:
        holders.of_member[place.holder.member] += 1
        holders.of_owner[place.holder.owner] += 1
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
        """Give places to waiting members that may have one, in turn."""
        while holders.waiting:
            waiter = holders.waiting.pop_first(
                lambda waiter: waiter[1].done() or self._admits(holders, waiter[0])
            )
            if waiter is None:
                return
            place, turn = waiter
            one_less(holders.waiting_of, place.holder.owner)
            one_less(holders.waiting_of_member, place.holder.member)
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
