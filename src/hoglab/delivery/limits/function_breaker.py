"""The circuit breaker: slow functions are slowed down, then stopped (spec: hog-runtime 6).

Each function has a bucket of tokens that fills with time and is emptied by the cost of its runs, and of its slow
filters and inputs. States and buckets are stored; processes subtract costs from the stored bucket in one
transaction, now and then, and at once when that may change a state. Between that each process has an estimate in
memory, with its own costs.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from hoglab.background import BackgroundService
from hoglab.fairness.token_bucket import TokenBucket
from hoglab.functions.status import DEGRADED_STATE, DISABLED_STATE, Status
from hoglab.storage.database import DatabaseError
from hoglab.storage.invocations import BreakerState

if TYPE_CHECKING:
    from hoglab.delivery.runs.state import Timing
    from hoglab.storage.invocations import BreakerStates

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
"""Minimum time between a change of state and the next automatic one."""
BUCKET_LIFE = timedelta(days=1)
"""Time without costs after which a bucket counts as full."""
RESET_TOKENS: Mapping[int, int] = {HEALTHY_STATE: BUCKET, DEGRADED_STATE: 8_000, DISABLED_STATE: 0}

WATCH_S = 0.5
"""Interval in seconds at which processes that share circuit breakers tell each other the costs of functions."""
COSTS = {"hog": (100, 50.0, 550.0), "async_function": (20, 100.0, 5_000.0)}
"""Cost by kind of timing, and the milliseconds at which it begins and at which it is full."""

_logger = structlog.get_logger(__name__)


def cost_of(timings: Iterable[Timing]) -> int:
    """Return the cost of a finished run, in tokens of its function's bucket."""
    total = 0
    for timing in timings:
        cost, lower, upper = COSTS[timing.kind]
        if timing.duration_ms > lower:
            total += _rounded(cost * (timing.duration_ms - lower) / (upper - lower))
    return total


def _rounded(number: float) -> int:
    """Return a number rounded as in JavaScript: a half goes up."""
    return int(number + 0.5)


@dataclass(frozen=True, slots=True)
class FunctionBreaker:
    """State and bucket of one function at the moment ``at``.

    Tokens have fractions, or runs that follow each other closely would never see the bucket fill.
    """

    state: int
    tokens: float
    at: datetime
    locked_until: datetime | None = None

    def refilled(self, now: datetime) -> float:
        """Return the present tokens. A clock that was set back takes none."""
        if now - self.at >= BUCKET_LIFE:
            return BUCKET
        passed_s = (now - self.at).total_seconds()
        return TokenBucket(self.tokens, 0.0, REFILL_PER_S, BUCKET).left(passed_s)

    def is_locked(self, now: datetime) -> bool:
        """Return whether its state may not change automatically yet."""
        return self.locked_until is not None and timedelta() < self.locked_until - now <= LOCK

    @property
    def effective(self) -> int:
        """The state in which its runs are executed."""
        return {FORCEFULLY_DEGRADED: DEGRADED_STATE, FORCEFULLY_DISABLED: DISABLED_STATE}.get(
            self.state, self.state
        )


_HEALTHY = FunctionBreaker(HEALTHY_STATE, BUCKET, datetime.min.replace(tzinfo=UTC))

StateChange = Callable[[str, int, int], None]
"""Function that is called for changes: function id, state before, state after."""


class FunctionBreakers:
    """The breakers of all functions. Used from any thread."""

    def __init__(
        self,
        store: BreakerStates,
        on_change: StateChange,
        now: Callable[[], datetime],
        *,
        auto_disable: bool = True,
    ) -> None:
        """Create the breakers, as they are stored. Without ``auto_disable`` they slow functions, and stop none."""
        self._store = store
        self._auto_disable = auto_disable
        self._now = now
        self._on_change = on_change
        self._storing = threading.RLock()  # held from a change of the stored breakers until it is known here
        self._lock = threading.Lock()  # guards all fields below
        self._costs: Counter[str] = Counter()  # not yet subtracted from the stored buckets
        self._stored = {kept.function_id: kept for kept in store.read()}
        self._breakers = {function_id: _in_memory(kept) for function_id, kept in self._stored.items()}

    # --- reading

    def statuses(self, function_ids: Collection[str]) -> Mapping[str, Status]:
        now = self._now()
        statuses: dict[str, Status] = {}
        for function_id in function_ids:
            breaker = self._breakers.get(function_id)
            if breaker is not None:
                statuses[function_id] = {"state": breaker.state, "tokens": math.floor(breaker.refilled(now))}
        return statuses

    def effective_state(self, function_id: str) -> int:
        """Return the state in which the function's runs are executed."""
        breaker = self._breakers.get(function_id)
        return HEALTHY_STATE if breaker is None else breaker.effective

    def restrained(self) -> Mapping[str, int]:
        """Return the effective states of the functions that are slowed down or stopped, by id."""
        breakers = list(self._breakers.items())
        return {
            function_id: breaker.effective
            for function_id, breaker in breakers
            if breaker.state != HEALTHY_STATE
        }

    def is_disabled(self, function_id: str) -> bool:
        return self.effective_state(function_id) == DISABLED_STATE

    def is_degraded(self, function_id: str) -> bool:
        return self.effective_state(function_id) == DEGRADED_STATE

    # --- changing

    def observe(self, costs: Mapping[str, int]) -> None:
        """Record the costs of finished runs."""
        now = self._now()
        may_move = False
        with self._lock:
            for function_id, cost in costs.items():
                breaker = self._breakers.get(function_id)
                if breaker is None:
                    if cost == 0:
                        continue
                    breaker = FunctionBreaker(HEALTHY_STATE, BUCKET, now)
                elif cost == 0 and breaker.state == HEALTHY_STATE:
                    continue
                tokens = max(LOWEST, breaker.refilled(now) - cost)
                may_move = may_move or self._next_state(breaker, tokens / BUCKET, now) != breaker.state
                self._breakers[function_id] = replace(breaker, tokens=tokens, at=now)
                self._costs[function_id] += cost
        if may_move:
            self.save()

    def _next_state(self, breaker: FunctionBreaker, rating: float, now: datetime) -> int:
        if breaker.state >= DISABLED_STATE or breaker.is_locked(now):
            return breaker.state
        if rating < 0 and self._auto_disable:
            return DISABLED_STATE
        return DEGRADED_STATE if rating <= DEGRADED_AT else HEALTHY_STATE

    def function_saved(self, function_id: str) -> None:
        """Let a saved, enabled function run again if it was stopped automatically."""
        if self._breakers.get(function_id, _HEALTHY).state == DISABLED_STATE:
            self._set(function_id, DEGRADED_STATE, only_from=DISABLED_STATE)

    def force(self, function_id: str, state: int) -> None:
        """Set a state by hand; states from 11 on stay until they are set again."""
        self._set(function_id, state)

    def _set(self, function_id: str, state: int, *, only_from: int | None = None) -> None:
        def decide(breaker: FunctionBreaker, _cost: int, now: datetime) -> FunctionBreaker:
            if only_from not in (None, breaker.state):
                return breaker
            return FunctionBreaker(state, RESET_TOKENS.get(state, breaker.refilled(now)), now, now + LOCK)

        self.save()
        self._store_changes({function_id: 0}, decide)

    def _tell(self, function_id: str, before: int, after: int) -> None:
        _logger.warning("function_state_changed", function_id=function_id, before=before, after=after)
        try:
            self._on_change(function_id, before, after)
        except DatabaseError as error:  # the change must not depend on whether it can be reported
            _logger.warning("function_state_change_not_told", function_id=function_id, reason=str(error))

    def save(self) -> None:
        """Subtract the costs since the last call from the stored buckets; a state may change by that."""
        with self._storing:
            with self._lock:
                costs, self._costs = self._costs, Counter()
            try:
                if costs:
                    self._store_changes(costs, self._charged)
            except BaseException:
                with self._lock:
                    self._costs.update(costs)
                raise

    def refresh(self) -> None:
        """Read the breakers that other processes stored."""
        with self._storing:
            kept = self._store.read()
            with self._lock:
                for state in kept:
                    if self._stored.get(state.function_id) != state:
                        self._take_over(state)

    def _charged(self, breaker: FunctionBreaker, cost: int, now: datetime) -> FunctionBreaker:
        tokens = max(LOWEST, breaker.refilled(now) - cost)
        state = self._next_state(breaker, tokens / BUCKET, now)
        locked_until = breaker.locked_until if state == breaker.state else now + LOCK
        return FunctionBreaker(state, tokens, now, locked_until)

    def _store_changes(
        self, costs: Mapping[str, int], decide: Callable[[FunctionBreaker, int, datetime], FunctionBreaker]
    ) -> None:
        """Change the stored breakers of some functions, and report states that change."""
        with self._storing:
            changed: list[BreakerState] = []
            moved: list[tuple[str, int, int]] = []

            def change(stored: Mapping[str, BreakerState]) -> list[BreakerState]:
                now = self._now()
                for function_id, cost in costs.items():
                    kept = stored.get(function_id)
                    before = FunctionBreaker(HEALTHY_STATE, BUCKET, now) if kept is None else _in_memory(kept)
                    own = self._estimate(function_id, kept)
                    after = decide(before, cost, now) if own is None else decide(own, 0, now)
                    if after.state != before.state:
                        moved.append((function_id, before.state, after.state))
                    changed.append(_to_store(function_id, after))
                return changed

            self._store.change(costs.keys(), change)
            with self._lock:
                for state in changed:
                    self._take_over(state)
        for move in moved:
            self._tell(*move)

    def _estimate(self, function_id: str, kept: BreakerState | None) -> FunctionBreaker | None:
        """Return the estimate of a breaker that no other process has changed: each cost was taken at its moment.

        Costs that arrived after storing began are left out.
        """
        with self._lock:
            own = self._breakers.get(function_id)
            if own is None or kept != self._stored.get(function_id):
                return None
            return replace(own, tokens=own.tokens + self._costs.get(function_id, 0))

    def _take_over(self, kept: BreakerState) -> None:
        """Estimate from the stored breakers and the costs that are not in them yet. To be called with `_lock`."""
        self._stored[kept.function_id] = kept
        breaker = _in_memory(kept)
        tokens = max(LOWEST, breaker.tokens - self._costs.get(kept.function_id, 0))
        self._breakers[kept.function_id] = replace(breaker, tokens=tokens)


class BreakerWatch(BackgroundService):
    """Background service that shares circuit breakers between processes."""

    NAME = "breaker-watch"

    def __init__(self, breakers: FunctionBreakers) -> None:
        super().__init__()
        self._breakers = breakers

    def round(self) -> float:
        """Write and read breakers, unless the database does not answer."""
        try:
            self._breakers.save()
            self._breakers.refresh()
        except DatabaseError as error:
            _logger.warning("function_breakers_not_shared", reason=str(error))
        return WATCH_S


def _in_memory(kept: BreakerState) -> FunctionBreaker:
    return FunctionBreaker(kept.state, kept.tokens, kept.tokens_at, kept.locked_until)


def _to_store(function_id: str, breaker: FunctionBreaker) -> BreakerState:
    """Return the bucket in whole tokens; a fraction is as good as the time that it takes to fill."""
    tokens = math.floor(breaker.tokens)
    at = breaker.at - timedelta(seconds=(breaker.tokens - tokens) / REFILL_PER_S)
    return BreakerState(function_id, breaker.state, tokens, at, breaker.locked_until)
