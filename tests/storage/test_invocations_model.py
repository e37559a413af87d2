"""The invocation queue against a plain model of it, under any sequence of calls."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.generated import examples
from tests.storage.engines import NewEngine

from hoglab.storage.database import tables
from hoglab.storage.invocations import (
    ClaimedInvocation,
    ConsumerPosition,
    InvocationBatch,
    InvocationOutcome,
    InvocationQueue,
    NewInvocation,
)
from hoglab.storage.invocations.janitor import FINISHED_GRACE_S, HEARTBEAT_LIMIT_S, MAX_RESETS

IDS = [f"i{number}" for number in range(8)]
FUNCTIONS = ["f1", "f2"]
FINAL = {"completed", "failed", "cancelled"}


@dataclass
class Model:
    function_id: str
    priority: int
    scheduled_at: datetime
    state: bytes
    log_offset: int | None
    status: str = "available"
    token: str = ""
    heartbeat_at: datetime | None = None
    resets: int = 0
    finished_at: datetime | None = None


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, new_engine: NewEngine) -> None:
        super().__init__()
        self.opened = ExitStack()
        self.engine = self.opened.enter_context(new_engine())
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        self.queue = self.open()
        self.rows: dict[str, Model] = {}
        self.locks: list[tuple[str, str]] = []  # every lock that was ever given out
        self.ingested = self.dispatched = 0
        self.queue.enqueue(InvocationBatch(position=ConsumerPosition("ingestion", 0)))
        self.queue.enqueue(InvocationBatch(position=ConsumerPosition("delivery", 0)))

    def open(self) -> InvocationQueue:
        return self.engine.queue(now=lambda: self.now, jitter=lambda: 1.0)

    def teardown(self) -> None:
        self.queue.close()
        self.opened.close()

    @rule(
        chosen=st.lists(st.sampled_from(IDS), min_size=1, max_size=4),
        function_id=st.sampled_from(FUNCTIONS),
        priority=st.integers(-1, 2),
        delay_s=st.sampled_from([-5, 0, 30]),
        offset=st.none() | st.integers(1, 9),
    )
    def enqueue(
        self, chosen: list[str], function_id: str, priority: int, delay_s: int, offset: int | None
    ) -> None:
        scheduled_at = self.now + timedelta(seconds=delay_s)
        new = [
            NewInvocation(
                each,
                1,
                function_id,
                f"{each}@{self.now}".encode(),
                priority=priority,
                scheduled_at=scheduled_at,
                log_offset=offset,
            )
            for each in chosen
        ]
        unknown = dict.fromkeys(each for each in chosen if each not in self.rows)
        position = None if offset is None else ConsumerPosition("delivery", offset)
        assert self.queue.enqueue(InvocationBatch(new, position=position)) == len(unknown)
        self.dispatched = max(self.dispatched, offset or 0)
        for each in new:
            if each.id in unknown:
                unknown.pop(each.id)
                self.rows[each.id] = Model(function_id, priority, scheduled_at, each.state, offset)

    @rule(offset=st.integers(1, 3))
    def ingestion_goes_on(self, offset: int) -> None:
        self.queue.enqueue(InvocationBatch(position=ConsumerPosition("ingestion", offset)))
        self.ingested = max(self.ingested, offset)

    @rule(limit=st.integers(1, 4), excluded=st.lists(st.sampled_from(FUNCTIONS), max_size=1))
    def claim(self, limit: int, excluded: list[str]) -> None:
        due = [
            row
            for row in self.rows.values()
            if row.status == "available" and row.scheduled_at <= self.now and row.function_id not in excluded
        ]
        claimed = self.queue.claim(limit=limit, exclude_functions=excluded)
        assert [each.priority for each in claimed] == sorted(row.priority for row in due)[:limit]
        for priority in {each.priority for each in claimed}:
            self.shared(priority, due, [each for each in claimed if each.priority == priority])
        for each in claimed:
            row = self.rows[each.id]
            assert (row.status, row.function_id) == ("available", each.function_id)
            assert row.function_id not in excluded
            assert (each.state, each.reset_count) == (row.state, row.resets)
            self.lock(each)

    def shared(self, priority: int, due: list[Model], claimed: list[ClaimedInvocation]) -> None:
        """Of one priority, each function got its oldest, and none less than another while it had more."""
        got: dict[str, int] = {}
        left: dict[str, int] = {}
        for function_id in FUNCTIONS:
            waiting = sorted(
                row.scheduled_at for row in due if (row.priority, row.function_id) == (priority, function_id)
            )
            mine = [each.scheduled_at for each in claimed if each.function_id == function_id]
            assert mine == waiting[: len(mine)]
            got[function_id], left[function_id] = len(mine), len(waiting) - len(mine)
        for function_id, count in got.items():
            assert not left[function_id] or count >= max(got.values()) - 1

    def lock(self, claimed: ClaimedInvocation) -> None:
        row = self.rows[claimed.id]
        row.status, row.token, row.heartbeat_at = "running", claimed.lock_token, self.now
        self.locks.append((claimed.id, claimed.lock_token))

    def holds(self, id_: str, token: str) -> bool:
        row = self.rows.get(id_)
        return row is not None and row.status == "running" and row.token == token

    @precondition(lambda self: self.locks)
    @rule(
        data=st.data(),
        status=st.sampled_from([*sorted(FINAL), "available", "available", "available"]),
        delay_s=st.sampled_from([None, 0, 40]),
    )
    def finish(self, data: st.DataObject, status: str, delay_s: int | None) -> None:
        locks = data.draw(st.lists(st.sampled_from(self.locks[-6:]), min_size=1, max_size=4, unique=True))
        scheduled_at = None if delay_s is None else self.now + timedelta(seconds=delay_s)
        state = f"after {self.now}".encode()
        outcomes = [
            InvocationOutcome(*lock, status, state=state, scheduled_at=scheduled_at)  # type: ignore[arg-type]
            for lock in locks
        ]
        held = {lock[0] for lock in locks if self.holds(*lock)}
        assert self.queue.finish(outcomes) == held
        for row in (self.rows[each] for each in held):
            row.status, row.token = status, ""
            if status == "available":
                row.state, row.scheduled_at, row.resets = state, scheduled_at or self.now, 0
            else:
                row.finished_at = self.now

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        locks = dict(data.draw(st.lists(st.sampled_from(self.locks[-6:]), min_size=1, unique=True)))
        held = {each for each in locks.items() if self.holds(*each)}
        assert self.queue.heartbeat(locks) == {id_ for id_, _ in held}
        for id_, _ in held:
            self.rows[id_].heartbeat_at = self.now

    @rule(seconds=st.sampled_from([0.5, 5, HEARTBEAT_LIMIT_S + 1, 700]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        stalled = {
            id_: row
            for id_, row in self.rows.items()
            if row.status == "running"
            and row.heartbeat_at is not None
            and row.heartbeat_at < self.now - timedelta(seconds=HEARTBEAT_LIMIT_S)
        }
        reset, poisoned = self.queue.sweep()
        assert reset == sum(row.resets < MAX_RESETS for row in stalled.values())
        assert {each.id for each in poisoned} == {
            id_ for id_, row in stalled.items() if row.resets >= MAX_RESETS
        }
        for row in stalled.values():
            if row.resets < MAX_RESETS:
                row.status, row.token = "available", ""
                row.scheduled_at = self.now + timedelta(seconds=min(60 * 2**row.resets, 600))
                row.resets += 1
        for each in poisoned:
            self.lock(each)
        grace = timedelta(seconds=FINISHED_GRACE_S)
        self.rows = {
            id_: row
            for id_, row in self.rows.items()
            if row.finished_at is None
            or row.finished_at >= self.now - grace
            or (row.log_offset or 0) > min(self.ingested, self.dispatched)
        }

    @rule(limit=st.integers(1, 4), data=st.data())
    def work(self, limit: int, data: st.DataObject) -> None:
        """A turn as it mostly is, with nothing between claiming and finishing."""
        self.claim(limit, [])
        if self.locks:
            self.finish(data, data.draw(st.sampled_from(["completed", "available"])), None)
        self.time_passes(0.5)

    @precondition(lambda self: any(row.status == "running" for row in self.rows.values()))
    @rule()
    def workers_die(self) -> None:
        """What leads to resets and poison pills, which chance alone would rarely find."""
        self.time_passes(HEARTBEAT_LIMIT_S + 1)
        self.sweep()
        self.time_passes(700)
        self.claim(4, [])

    @rule(luck=st.integers(0, 5))
    def restart(self, luck: int) -> None:
        if luck:  # seldom: it takes every lock away
            return
        self.queue.close()
        self.queue = self.open()
        running = [row for row in self.rows.values() if row.status == "running"]
        assert self.queue.release_all() == len(running)
        for row in running:
            row.status, row.token, row.scheduled_at = "available", "", self.now

    @invariant()
    def counts_agree(self) -> None:
        available = [row for row in self.rows.values() if row.status == "available"]
        running = [row for row in self.rows.values() if row.status == "running"]
        assert self.queue.counts.backlog() == len(available) + len(running)
        unfinished = Counter(row.function_id for row in available + running)
        assert self.queue.counts.backlogs() == unfinished
        assert all(self.queue.counts.backlog_of(each) == unfinished[each] for each in FUNCTIONS)
        assert len(self.engine.rows(tables.invocation)) == len(self.rows)
        stats = self.queue.counts.stats()
        assert (stats.available, stats.running) == (len(available), len(running))
        first = min((row.scheduled_at for row in available), default=None)
        assert self.queue.counts.next_due() == first
        for each in FUNCTIONS:
            others = [row.scheduled_at for row in available if row.function_id != each]
            assert self.queue.counts.next_due(apart_from=[each]) == min(others, default=None)
            due = sum(moment <= self.now for moment in others)
            assert self.queue.counts.due(self.now, most=1_000, apart_from=[each]) == due
            assert self.queue.counts.due(self.now, most=2, apart_from=[each]) == min(due, 2)
        assert stats.oldest_due_at == (first if first is not None and first <= self.now else None)


def test_the_queue_does_what_the_model_does(new_engine: NewEngine) -> None:
    with new_engine() as engine:
        most = examples(40 if engine.name == "sqlite" else 15)  # which take four times as long each
    run_state_machine_as_test(
        lambda: QueueMachine(new_engine),
        settings=settings(
            max_examples=most,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
