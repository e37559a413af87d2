"""The circuit breaker: slow functions are slowed down, then stopped (spec: hog-runtime 6).

Each function has a bucket of tokens that fills with time and is emptied by what its runs cost, and by what is slow of
its filters and inputs. States and buckets are in memory; what changed is written every now and then, and new states
at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert

from hoglab.functions.status import DEGRADED_STATE, DISABLED_STATE, Status
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import DatabaseError, Rebuildable
from hoglab.storage.database.tables import watcher_state

if TYPE_CHECKING:
    from hoglab.delivery.runs.state import Timing
    from hoglab.storage.database import Database

HEALTHY_STATE = 1
FORCEFULLY_DEGRADED, FORCEFULLY_DISABLED = 11, 12
SETTABLE = frozenset(
    {HEALTHY_STATE, DEGRADED_STATE, DISABLED_STATE, FORCEFULLY_DEGRADED, FORCEFULLY_DISABLED}
)

BUCKET = 10_000
REFILL_PER_S = 10
LOWEST = -1
DEGRADED_AT = 0.8
LOCK = timedelta(seconds=60)
"""After a change of state the next automatic one has to wait this long."""
BUCKET_LIFE = timedelta(days=1)
"""A bucket that nothing was taken from for so long counts as full."""
RESET_TOKENS: Mapping[int, int] = {HEALTHY_STATE: BUCKET, DEGRADED_STATE: 8_000, DISABLED_STATE: 0}

COSTS = {"hog": (100, 50.0, 550.0), "async_function": (20, 100.0, 5_000.0)}
"""By kind of timing: cost, and the milliseconds at which it begins and at which it is full."""

_logger = structlog.get_logger(__name__)


def cost_of(timings: Iterable[Timing]) -> int:
    """What a finished run takes out of the bucket of its function."""
    total = 0
    for timing in timings:
        cost, lower, upper = COSTS[timing.kind]
        if timing.duration_ms > lower:
            total += _rounded(cost * (timing.duration_ms - lower) / (upper - lower))
    return total


def _rounded(number: float) -> int:
    """Rounded as JavaScript does it: a half goes up."""
    return int(number + 0.5)


@dataclass(frozen=True, slots=True)
class Watch:
    """State and bucket of one function, as they were at ``at``.

    Tokens have fractions, or runs that follow each other closely would never see the bucket fill.
    """

    state: int
    tokens: float
    at: datetime
    locked_until: datetime | None = None

    def refilled(self, now: datetime) -> float:
        """Tokens now. A clock that was set back takes none."""
        if now - self.at >= BUCKET_LIFE:
            return BUCKET
        return min(BUCKET, self.tokens + max(0.0, (now - self.at).total_seconds()) * REFILL_PER_S)

    def is_locked(self, now: datetime) -> bool:
        """Whether its state may not change by itself yet."""
        return self.locked_until is not None and timedelta() < self.locked_until - now <= LOCK

    @property
    def effective(self) -> int:
        """The state as far as running is concerned."""
        return {FORCEFULLY_DEGRADED: DEGRADED_STATE, FORCEFULLY_DISABLED: DISABLED_STATE}.get(
            self.state, self.state
        )


StateChange = Callable[[str, int, int], None]
"""Told of changes: function id, state before, state after."""


class Watcher:
    """Watches all functions. Used from any thread. ``database``: ``queue.db`` opened as a `Database`."""

    def __init__(
        self,
        database: Database,
        *,
        auto_disable: bool = True,
        now: Callable[[], datetime] = utc_now,
        on_change: StateChange = lambda _function_id, _before, _after: None,
    ) -> None:
        self._database = database
        self._auto_disable = auto_disable
        self._now = now
        self._on_change = on_change
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        with database.read() as connection:
            rows = connection.execute(select(watcher_state)).mappings()
            self._watches = {
                row["function_id"]: Watch(row["state"], row["tokens"], row["tokens_at"], row["locked_until"])
                for row in rows
            }

    # --- reading

    def statuses(self, function_ids: Collection[str]) -> Mapping[str, Status]:
        now = self._now()
        found: dict[str, Status] = {}
        for function_id in function_ids:
            watch = self._watches.get(function_id)
            if watch is not None:
                found[function_id] = {"state": watch.state, "tokens": math.floor(watch.refilled(now))}
        return found

    def effective_state(self, function_id: str) -> int:
        """The state as far as running is concerned."""
        watch = self._watches.get(function_id)
        return HEALTHY_STATE if watch is None else watch.effective

    def restrained(self) -> Mapping[str, int]:
        """The effective states of the functions that are slowed down or stopped, by id."""
        watches = list(self._watches.items())
        return {
            function_id: watch.effective for function_id, watch in watches if watch.state != HEALTHY_STATE
        }

    def is_disabled(self, function_id: str) -> bool:
        return self.effective_state(function_id) == DISABLED_STATE

    def is_degraded(self, function_id: str) -> bool:
        return self.effective_state(function_id) == DEGRADED_STATE

    # --- changing

    def observe(self, costs: Mapping[str, int]) -> None:
        """Take what finished runs of functions cost."""
        now = self._now()
        moved: list[tuple[str, int, int]] = []
        with self._lock:
            for function_id, cost in costs.items():
                watch = self._watches.get(function_id)
                if watch is None:
                    if cost == 0:
                        continue
                    watch = Watch(HEALTHY_STATE, BUCKET, now)
                elif cost == 0 and watch.state == HEALTHY_STATE:
                    continue
                tokens = watch.refilled(now) - cost
                after = self._next_state(watch, tokens / BUCKET, now)
                if after != watch.state:
                    moved.append((function_id, watch.state, after))
                    watch = replace(watch, state=after, locked_until=now + LOCK)
                self._watches[function_id] = replace(watch, tokens=max(tokens, LOWEST), at=now)
                self._changed.add(function_id)
        if moved:
            self.save()
        for move in moved:
            self._tell(*move)

    def _next_state(self, watch: Watch, rating: float, now: datetime) -> int:
        if watch.state >= DISABLED_STATE or watch.is_locked(now):
            return watch.state
        if rating < 0 and self._auto_disable:
            return DISABLED_STATE
        return DEGRADED_STATE if rating <= DEGRADED_AT else HEALTHY_STATE

    def function_saved(self, function_id: str) -> None:
        """An enabled function was saved: one that was stopped automatically may run again."""
        with self._lock:
            watch = self._watches.get(function_id)
            if watch is None or watch.state != DISABLED_STATE:
                return
            before = self._set(function_id, DEGRADED_STATE)
        self.save()
        self._tell(function_id, before, DEGRADED_STATE)

    def force(self, function_id: str, state: int) -> None:
        """Set a state by hand; those from 11 on stay until the next time."""
        with self._lock:
            before = self._set(function_id, state)
        self.save()
        if before != state:
            self._tell(function_id, before, state)

    def _tell(self, function_id: str, before: int, after: int) -> None:
        _logger.warning("function_state_changed", function_id=function_id, before=before, after=after)
        try:
            self._on_change(function_id, before, after)
        except DatabaseError as error:  # what the change brings about must not depend on its being told
            _logger.warning("function_state_change_not_told", function_id=function_id, reason=str(error))

    def _set(self, function_id: str, state: int) -> int:
        """Change a state; what it was before."""
        now = self._now()
        watch = self._watches.get(function_id)
        tokens = BUCKET if watch is None else watch.refilled(now)
        self._watches[function_id] = Watch(state, RESET_TOKENS.get(state, tokens), now, now + LOCK)
        self._changed.add(function_id)
        return HEALTHY_STATE if watch is None else watch.state

    def save(self) -> None:
        """Write what changed since the last time."""
        with self._lock:
            changed, self._changed = self._changed, set()
            rows = [(function_id, self._watches[function_id]) for function_id in changed]
        if not rows:
            return
        values = [
            {
                "function_id": function_id,
                "state": watch.state,
                "tokens": math.floor(watch.tokens),
                "tokens_at": watch.at,
                "locked_until": watch.locked_until,
            }
            for function_id, watch in rows
        ]
        statement = insert(watcher_state)
        update = {name: statement.excluded[name] for name in ("state", "tokens", "tokens_at", "locked_until")}
        try:
            with self._database.write(rebuildable=Rebuildable.FUNCTION_HEALTH) as tx:
                tx.execute(
                    statement.on_conflict_do_update(index_elements=["function_id"], set_=update), values
                )
        except BaseException:
            with self._lock:
                self._changed |= changed
            raise
