"""The invocation queue: what is enqueued is run at least once, under one lock at a time, and then goes."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.storage.engines import Engine
from tests.waiting import PATIENCE_S

from hoglab.storage.database import from_micros, tables
from hoglab.storage.invocations import (
    AppMetric,
    ClaimedInvocation,
    ConsumerPosition,
    InvocationBatch,
    InvocationOutcome,
    InvocationQueue,
    InvocationResult,
    LogEntry,
    MaskingCount,
    MaskingMovedError,
    NewInvocation,
    janitor,
)
from hoglab.storage.invocations.janitor import FINISHED_GRACE_S, HEARTBEAT_LIMIT_S, MAX_RESETS
from hoglab.storage.invocations.traces import RESULT_RETENTION_DAYS, TRACE_RETENTION_DAYS

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_ids = itertools.count()


class Clock:
    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(engine: Engine, clock: Clock) -> Iterator[InvocationQueue]:
    queue = engine.queue(now=clock, jitter=lambda: 0.5)
    yield queue
    queue.close()


def invocation(**fields: Any) -> NewInvocation:
    values = {"id": f"i{next(_ids)}", "project_id": 1, "function_id": "f1", "state": b"start"}
    return NewInvocation(**(values | fields))


def outcome(claimed: ClaimedInvocation, status: Any = "completed", **fields: Any) -> InvocationOutcome:
    return InvocationOutcome(claimed.id, claimed.lock_token, status, **fields)


def claim_ids(queues: InvocationQueue, **options: Any) -> list[str]:
    return [each.id for each in queues.claim(**options)]


class TestEnqueueAndClaim:
    def test_what_is_claimed_is_what_was_enqueued(self, queue: InvocationQueue, clock: Clock) -> None:
        new = invocation(project_id=3, parent_run_id="p", priority=2, state=b"\x00\xff")
        assert queue.enqueue(InvocationBatch([new])) == 1
        clock.advance(1)
        [claimed] = queue.claim()
        assert claimed == ClaimedInvocation(
            id=new.id,
            project_id=3,
            function_id="f1",
            parent_run_id="p",
            queue="hog",
            priority=2,
            scheduled_at=START,
            reset_count=0,
            state=b"\x00\xff",
            lock_token=claimed.lock_token,
            created_at=START,
        )
        assert len(claimed.lock_token) == 36
        assert queue.claim() == []

    def test_a_known_id_is_skipped_in_every_state(self, queue: InvocationQueue) -> None:
        new = invocation()
        assert queue.enqueue(InvocationBatch([new, new])) == 1
        assert queue.enqueue(InvocationBatch([replace(new, state=b"other")])) == 0
        [claimed] = queue.claim()
        assert claimed.state == b"start"
        assert queue.enqueue(InvocationBatch([new])) == 0
        queue.finish([outcome(claimed)])
        assert queue.enqueue(InvocationBatch([new])) == 0
        assert queue.claim() == []

    def test_order_is_by_priority_and_then_by_time(self, queue: InvocationQueue, clock: Clock) -> None:
        def at(seconds: int) -> datetime:
            return START + timedelta(seconds=seconds)

        late = invocation(scheduled_at=at(2))
        early = invocation(scheduled_at=at(1))
        retry = invocation(scheduled_at=at(0), priority=1)
        urgent = invocation(scheduled_at=at(3), priority=-1)
        queue.enqueue(InvocationBatch([late, early, retry, urgent]))
        clock.advance(10)
        assert claim_ids(queue, limit=3) == [urgent.id, early.id, late.id]
        assert claim_ids(queue, limit=3) == [retry.id]

    def test_nothing_is_claimed_before_its_time(self, queue: InvocationQueue, clock: Clock) -> None:
        later = invocation(scheduled_at=START + timedelta(seconds=5))
        queue.enqueue(InvocationBatch([later]))
        assert queue.counts.next_due() == START + timedelta(seconds=5)
        assert claim_ids(queue) == []
        clock.advance(5)
        assert claim_ids(queue) == [later.id]
        assert queue.counts.next_due() is None

    def test_queues_and_excluded_functions_are_apart(self, queue: InvocationQueue) -> None:
        one, two = invocation(function_id="f1"), invocation(function_id="f2")
        other = invocation(queue="hogoverflow")
        queue.enqueue(InvocationBatch([one, two, other]))
        assert claim_ids(queue, exclude_functions=["f1", "f9"]) == [two.id]
        assert claim_ids(queue) == [one.id]
        assert claim_ids(queue, queue="email") == []
        assert queue.counts.next_due() == START
        assert claim_ids(queue, queue="hogoverflow") == [other.id]

    def test_functions_and_projects_take_turns(self, queue: InvocationQueue) -> None:
        """However long one line is, who comes last is served in the next round."""
        queue.enqueue(InvocationBatch([invocation(function_id="flood") for _ in range(1_000)]))
        queue.enqueue(InvocationBatch([invocation(function_id="small") for _ in range(3)]))
        queue.enqueue(
            InvocationBatch(
                [invocation(function_id=f"many{n}", project_id=2) for n in range(40) for _ in range(5)]
            )
        )
        queue.enqueue(InvocationBatch([invocation(function_id="alone", project_id=3) for _ in range(50)]))
        claimed = queue.claim(limit=30)
        per_project = Counter(each.project_id for each in claimed)
        assert per_project == {1: 10, 2: 10, 3: 10}
        assert Counter(each.function_id for each in claimed if each.project_id == 1) == {
            "small": 3,
            "flood": 7,
        }
        seen = {each.function_id for each in claimed if each.project_id == 2}
        while len(seen) < 40:  # no function waits for a second turn of another
            again = [each.function_id for each in queue.claim(limit=30) if each.project_id == 2]
            assert not seen.intersection(again[: 40 - len(seen)])
            seen.update(again)

    def test_what_is_left_over_goes_to_who_has_more(self, queue: InvocationQueue) -> None:
        queue.enqueue(InvocationBatch([invocation(function_id="flood") for _ in range(100)]))
        queue.enqueue(InvocationBatch([invocation(function_id=f"f{n}") for n in range(20)]))
        claimed = Counter(each.function_id for each in queue.claim(limit=100))
        assert claimed["flood"] == 80
        assert len(claimed) == 21

    def test_what_is_next_of_its_key_is_not_late(self, queue: InvocationQueue, clock: Clock) -> None:
        queue.enqueue(InvocationBatch([invocation(order_key="a"), invocation(order_key="a")]))
        [first] = queue.claim()
        clock.advance(100)
        queue.finish([outcome(first)])
        assert queue.counts.next_due() == clock()

    def test_a_restart_knows_who_waits_for_whom(self, engine: Engine, clock: Clock) -> None:
        ours = [invocation(order_key="a") for _ in range(3)]
        queue = engine.queue(now=clock)
        queue.enqueue(InvocationBatch(ours))
        queue.claim()
        queue.close()
        queue = engine.queue(now=clock)
        assert queue.counts.backlogs() == {"f1": 3}
        queue.release_all()
        done = []
        while claimed := queue.claim():
            queue.finish([outcome(one) for one in claimed])
            done.append([one.id for one in claimed])
        assert done == [[one.id] for one in ours]
        assert queue.counts.backlog() == 0
        queue.close()

    def test_one_key_is_worked_on_in_order(self, queue: InvocationQueue, clock: Clock) -> None:
        a1, b1, a2, free, a3 = (
            invocation(order_key="a"),
            invocation(order_key="b"),
            invocation(order_key="a"),
            invocation(),
            invocation(order_key="a"),
        )
        other = invocation(order_key="a", function_id="f2")
        queue.enqueue(InvocationBatch([a1, b1, a2, free, a3, other]))
        claimed = {each.id: each for each in queue.claim()}
        assert set(claimed) == {a1.id, b1.id, free.id, other.id}
        assert claim_ids(queue) == []
        # The first one waits for its next attempt: the others of its key wait for it.
        queue.finish(
            [outcome(claimed[a1.id], "available", scheduled_at=START + timedelta(seconds=60), priority=1)]
        )
        clock.advance(30)
        assert claim_ids(queue) == []
        clock.advance(60)
        [again] = queue.claim()
        assert again.id == a1.id
        queue.finish([outcome(again, "failed")])
        assert queue.arrivals.wait(0)  # the end of one is news for the next
        [second] = queue.claim()
        assert second.id == a2.id
        queue.finish([outcome(second)])
        assert claim_ids(queue) == [a3.id]

    @pytest.mark.parametrize("jump_s", [3600, -3600])
    def test_a_clock_that_is_set_changes_no_wait_and_loses_no_lock(
        self, engine: Engine, clock: Clock, jump_s: int
    ) -> None:
        passed = 0.0
        queue = engine.queue(now=clock, steady=lambda: passed)
        waiting, working = invocation(scheduled_at=START + timedelta(seconds=60)), invocation()
        queue.enqueue(InvocationBatch([waiting, working]))
        [claimed] = queue.claim()
        clock.advance(jump_s)
        assert queue.sweep() == (0, [])
        assert queue.heartbeat({claimed.id: claimed.lock_token}) == {claimed.id}
        assert claim_ids(queue) == []
        assert queue.counts.next_due() == clock() + timedelta(seconds=60)
        clock.advance(61)
        passed += 61
        queue.sweep()
        assert claim_ids(queue) == [waiting.id]
        queue.close()

    @pytest.mark.parametrize("jump_s", [3600, -3600])
    def test_what_is_due_stays_due_when_the_clock_is_set(
        self, engine: Engine, clock: Clock, jump_s: int
    ) -> None:
        """Nobody swept meanwhile: whoever comes to the queue first notices."""
        queue = engine.queue(now=clock, steady=lambda: 0.0)
        before, after = invocation(), invocation()
        queue.enqueue(InvocationBatch([before]))
        clock.advance(jump_s)
        queue.enqueue(InvocationBatch([after]))
        assert sorted(claim_ids(queue)) == sorted([before.id, after.id])
        queue.close()

    @pytest.mark.parametrize("jump_s", [3600, -3600])
    def test_a_wait_that_begins_after_the_clock_was_set_is_no_longer_for_it(
        self, engine: Engine, clock: Clock, jump_s: int
    ) -> None:
        queue = engine.queue(now=clock, steady=lambda: 0.0)
        queue.enqueue(InvocationBatch([invocation()]))
        [claimed] = queue.claim()
        clock.advance(jump_s)
        due = clock() + timedelta(seconds=2)
        queue.finish([outcome(claimed, "available", scheduled_at=due)])
        queue.sweep()
        assert queue.counts.next_due() == due
        queue.close()

    def test_a_clock_that_was_set_back_while_nobody_looked_makes_nothing_wait(
        self, engine: Engine, clock: Clock
    ) -> None:
        queue = engine.queue(now=clock)
        due, waiting = invocation(), invocation(scheduled_at=START + timedelta(seconds=60))
        queue.enqueue(InvocationBatch([due, waiting], position=ConsumerPosition("dispatch", 1)))
        queue.close()
        clock.advance(-30 * 86_400)
        queue = engine.queue(now=clock)
        assert claim_ids(queue) == [due.id]
        assert queue.counts.next_due() == clock() + timedelta(seconds=60)
        queue.close()

    @pytest.mark.parametrize("jump_s", [3600, -3600])
    def test_windows_of_masking_stay_as_long_as_they_were(
        self, engine: Engine, clock: Clock, jump_s: int
    ) -> None:
        queue = engine.queue(now=clock, steady=lambda: 0.0)
        over, open_ = ("f", "over"), ("f", "open")
        ends = {over: START - timedelta(seconds=1), open_: START + timedelta(seconds=60)}
        queue.enqueue(InvocationBatch(masking=[MaskingCount(*key, 1, at) for key, at in ends.items()]))
        clock.advance(jump_s)
        [found] = queue.masking_counts([over, open_])
        assert (found.hash, found.expires_at) == ("open", clock() + timedelta(seconds=60))
        queue.close()

    def test_who_counted_on_what_others_changed_meanwhile_enqueues_nothing(
        self, engine: Engine, clock: Clock
    ) -> None:
        with closing(engine.queue(now=clock)) as one, closing(engine.queue(now=clock)) as two:
            ends = clock() + timedelta(seconds=60)

            def count(queue: InvocationQueue, number: int, before: int) -> None:
                masking = [MaskingCount("f", "h", number, ends, before), MaskingCount("g", "h", 1, ends)]
                queue.enqueue(InvocationBatch([invocation()], masking=masking[: 2 if before == 0 else 1]))

            count(one, 1, 0)
            with pytest.raises(MaskingMovedError):
                count(two, 1, 0)
            count(two, 3, 1)
            with pytest.raises(MaskingMovedError):
                count(one, 2, 1)
            found = two.masking_counts([("f", "h"), ("g", "h")])
            assert {each.function_id: each.count for each in found} == {"f": 3, "g": 1}
            assert one.counts.backlog() + two.counts.backlog() >= 2
            assert len(one.claim()) == 2
            clock.advance(61)
            ends = clock() + timedelta(seconds=60)
            count(one, 1, 0)
            assert [each.count for each in two.masking_counts([("f", "h")])] == [1]

    def test_two_workers_never_get_the_same(self, queue: InvocationQueue) -> None:
        new = [invocation() for _ in range(600)]
        queue.enqueue(InvocationBatch(new))

        def work(_: int) -> list[str]:
            mine: list[str] = []
            while claimed := queue.claim(limit=7):
                assert queue.finish([outcome(each) for each in claimed]) == {each.id for each in claimed}
                mine += [each.id for each in claimed]
            return mine

        with ThreadPoolExecutor(4) as pool:
            shares = list(pool.map(work, range(4)))
        assert sorted(itertools.chain(*shares)) == sorted(each.id for each in new)
        assert queue.counts.backlog() == 0


class TestTurns:
    def test_a_suspended_run_comes_back_with_its_state(self, queue: InvocationQueue, clock: Clock) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        [first] = queue.claim()
        again = START + timedelta(seconds=60)
        queue.finish([outcome(first, "available", state=b"half", scheduled_at=again, priority=1)])
        assert queue.claim() == []
        clock.advance(60)
        [second] = queue.claim()
        assert (second.id, second.state, second.priority) == (first.id, b"half", 1)
        assert second.lock_token != first.lock_token

    def test_what_is_not_said_stays(self, queue: InvocationQueue) -> None:
        queue.enqueue(InvocationBatch([invocation(priority=2)]))
        queue.finish([outcome(queue.claim()[0], "available")])
        [again] = queue.claim()
        assert (again.state, again.priority, again.scheduled_at) == (b"start", 2, START)

    @pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
    def test_a_finished_run_never_comes_back(
        self, queue: InvocationQueue, clock: Clock, engine: Engine, status: str
    ) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        [claimed] = queue.claim()
        assert queue.finish([outcome(claimed, status)]) == {claimed.id}
        [row] = engine.rows(tables.invocation)
        assert (row.status, row.finished_at, row.state, row.lock_token) == (status, START, b"", None)
        assert queue.finish([outcome(claimed, "available")]) == frozenset()
        assert queue.release_all() == 0
        assert queue.claim() == []

    def test_a_lost_lock_changes_nothing(self, queue: InvocationQueue, clock: Clock) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        [slow] = queue.claim()
        clock.advance(HEARTBEAT_LIMIT_S + 1)
        assert queue.sweep().reset == 1
        assert queue.heartbeat({slow.id: slow.lock_token}) == frozenset()
        assert queue.finish([outcome(slow)]) == frozenset()
        clock.advance(600)
        [fresh] = queue.claim()
        assert queue.finish([outcome(slow, "failed")]) == frozenset()
        assert queue.finish([outcome(fresh), outcome(slow)]) == {fresh.id}

    def test_whoever_lost_the_lock_does_not_tell_the_result(
        self, queue: InvocationQueue, engine: Engine
    ) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        [slow] = queue.claim()
        queue.release_all()
        [fresh] = queue.claim()
        done = InvocationResult(fresh.id, 1, "f1", "succeeded", attempts=1, version=11)
        beside = replace(done, invocation_id="another", version=12)
        late = replace(done, status="failed", version=12)
        assert queue.finish([outcome(fresh)], results=[done]) == {fresh.id}
        assert queue.finish([outcome(slow, "failed")], results=[late, beside]) == frozenset()
        told = {row.invocation_id: (row.status, row.version) for row in engine.rows(tables.invocation_result)}
        assert told == {fresh.id: ("succeeded", 11), "another": ("succeeded", 12)}

    def test_whoever_lost_a_run_on_many_events_does_not_tell_how_they_fared(
        self, queue: InvocationQueue, engine: Engine
    ) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        [slow] = queue.claim()
        queue.release_all()
        [fresh] = queue.claim()
        done = [
            InvocationResult(name, 1, "f1", "succeeded", attempts=1, version=11, parent_run_id=fresh.id)
            for name in ("first", "second")
        ]
        late = [replace(each, status="failed", version=12) for each in done]
        assert queue.finish([outcome(fresh)], results=done) == {fresh.id}
        assert queue.finish([outcome(slow, "failed")], results=late) == frozenset()
        told = {row.invocation_id: (row.status, row.version) for row in engine.rows(tables.invocation_result)}
        assert told == {"first": ("succeeded", 11), "second": ("succeeded", 11)}

    def test_traces_are_written_even_when_the_lock_was_lost(
        self, queue: InvocationQueue, engine: Engine
    ) -> None:
        lost = InvocationOutcome("unknown", "token", "completed")
        assert queue.finish([lost], logs=[line("said")]) == frozenset()
        assert [row.message for row in engine.rows(tables.log_entry)] == ["said"]


class TestGathering:
    def test_groups_are_full_or_have_one_that_is_due(self, queue: InvocationQueue, clock: Clock) -> None:
        later = START + timedelta(minutes=1)
        waiting = [
            invocation(queue="wait", function_id=function, scheduled_at=later, state=f"{place}".encode())
            for function, number in (("f1", 5), ("f2", 1), ("f3", 2))
            for place in range(number)
        ]
        queue.enqueue(InvocationBatch(waiting))
        groups: list[list[bytes]] = []

        def merge(some: list[ClaimedInvocation]) -> tuple[NewInvocation, list[InvocationResult]]:
            groups.append([each.state for each in some])
            return invocation(function_id=some[0].function_id), []

        assert sorted(queue.gathering("wait")) == ["f1", "f2", "f3"]
        assert queue.gather("wait", {"f1": 2, "f2": 2}, merge) == 2
        assert groups == [[b"0", b"1"], [b"2", b"3"]]
        assert queue.counts.backlogs() == {"f1": 3, "f2": 1, "f3": 2}
        clock.advance(60)
        assert queue.gather("wait", {"f1": 2, "f2": 2}, merge) == 2
        assert groups[2:] == [[b"4"], [b"0"]]
        assert queue.gathering("wait") == ["f3"]

    def test_a_group_of_which_nothing_is_made_holds_up_no_other(self, queue: InvocationQueue) -> None:
        queue.enqueue(InvocationBatch([invocation(queue="wait") for _ in range(6)]))
        sizes: list[int] = []

        def merge(some: list[ClaimedInvocation]) -> tuple[NewInvocation | None, list[InvocationResult]]:
            sizes.append(len(some))
            return invocation() if len(sizes) == 3 else None, []

        assert queue.gather("wait", {"f1": 2}, merge) == 1
        assert sizes == [2, 2, 2]
        assert queue.counts.backlog() == 1


class TestJanitor:
    def test_a_beating_worker_keeps_its_work(self, queue: InvocationQueue, clock: Clock) -> None:
        queue.enqueue(InvocationBatch([invocation(), invocation()]))
        beating, silent = queue.claim()
        for _ in range(4):
            clock.advance(HEARTBEAT_LIMIT_S - 1)
            assert queue.heartbeat({beating.id: beating.lock_token}) == {beating.id}
            queue.sweep()
        assert queue.finish([outcome(beating)]) == {beating.id}
        assert queue.finish([outcome(silent)]) == frozenset()

    def test_back_off_grows_and_too_many_resets_are_a_poison_pill(
        self, queue: InvocationQueue, clock: Clock
    ) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        waits = []
        for resets in range(MAX_RESETS):
            [claimed] = queue.claim()
            assert claimed.reset_count == resets
            clock.advance(HEARTBEAT_LIMIT_S + 1)
            assert queue.sweep() == (1, [])
            due = queue.counts.next_due()
            assert due is not None
            waits.append((due - clock()).total_seconds())
            clock.advance(waits[-1])
        assert waits == [30, 60, 120]  # half of 60, 120 and 240 s
        [last] = queue.claim()
        clock.advance(HEARTBEAT_LIMIT_S + 1)
        reset, [poisoned] = queue.sweep()
        assert reset == 0
        assert (poisoned.id, poisoned.state, poisoned.reset_count) == (last.id, b"start", MAX_RESETS)
        # Who swept has the lock, and says how it ended; if it cannot, the next one is asked.
        assert queue.finish([outcome(last)]) == frozenset()
        assert queue.sweep() == (0, [])
        clock.advance(HEARTBEAT_LIMIT_S + 1)
        reset, [poisoned] = queue.sweep()
        assert queue.finish([outcome(poisoned, "failed")]) == {poisoned.id}
        assert queue.counts.backlog() == 0

    def test_progress_resets_the_count(self, queue: InvocationQueue, clock: Clock) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        queue.claim()
        clock.advance(HEARTBEAT_LIMIT_S + 1)
        queue.sweep()
        clock.advance(600)
        [claimed] = queue.claim()
        assert claimed.reset_count == 1
        queue.finish([outcome(claimed, "available")])
        assert queue.claim()[0].reset_count == 0

    def test_a_finished_run_goes_after_its_grace(
        self, queue: InvocationQueue, clock: Clock, engine: Engine
    ) -> None:
        queue.enqueue(InvocationBatch([invocation() for _ in range(3)]))
        queue.finish([outcome(each) for each in queue.claim(limit=2)])
        clock.advance(FINISHED_GRACE_S)
        queue.sweep()
        assert len(engine.rows(tables.invocation)) == 3
        clock.advance(1)
        queue.sweep()
        assert len(engine.rows(tables.invocation)) == 1

    def test_a_finished_run_stays_while_its_log_record_may_be_read_again(
        self, queue: InvocationQueue, clock: Clock, engine: Engine
    ) -> None:
        log = engine.log()
        log.commit("ingestion", 4)
        new = invocation(log_offset=5)
        assert queue.enqueue(InvocationBatch([new], position=ConsumerPosition("delivery", 5))) == 1
        queue.finish([outcome(each) for each in queue.claim()])
        clock.advance(3600)
        queue.sweep()
        assert (
            queue.enqueue(InvocationBatch([new], position=ConsumerPosition("delivery", 5))) == 0
        )  # the batch came again
        log.commit("ingestion", 5)
        queue.sweep()
        assert queue.enqueue(InvocationBatch([new])) == 1  # forgotten
        log.close()

    def test_sweeping_goes_over_many_in_small_steps(
        self, queue: InvocationQueue, clock: Clock, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(janitor, "SWEEP_ROWS", 3)
        queue.enqueue(InvocationBatch([invocation() for _ in range(20)]))
        claimed = queue.claim()
        queue.finish([outcome(each) for each in claimed[:10]])
        clock.advance(HEARTBEAT_LIMIT_S + 1)
        assert queue.sweep().reset == 10
        assert len(engine.rows(tables.invocation)) == 10


class TestRestart:
    def test_running_ones_are_due_at_once(self, engine: Engine, clock: Clock) -> None:
        queue = engine.queue(now=clock)
        queue.enqueue(InvocationBatch([invocation() for _ in range(5)]))
        claimed = queue.claim(limit=3)
        queue.close()
        queue = engine.queue(now=clock)
        assert queue.counts.backlog() == 5
        assert queue.release_all() == 3
        again = queue.claim()
        assert len(again) == 5
        assert queue.finish([outcome(each) for each in claimed]) == frozenset()  # of the former process
        queue.close()

    def test_restarts_are_not_held_against_what_was_in_flight(self, queue: InvocationQueue) -> None:
        queue.enqueue(InvocationBatch([invocation()]))
        for _ in range(5 * MAX_RESETS):
            assert len(queue.claim()) == 1
            assert queue.release_all() == 1
        assert queue.sweep().poisoned == []
        assert [one.reset_count for one in queue.claim()] == [0]

    def test_positions_of_consumers(self, queue: InvocationQueue, engine: Engine) -> None:
        assert queue.position("delivery") == 0
        queue.enqueue(InvocationBatch(position=ConsumerPosition("delivery", 7)))
        queue.enqueue(InvocationBatch(position=ConsumerPosition("delivery", 6)))
        assert queue.position("delivery") == 7
        log = engine.log()
        assert log.position("delivery") == 7
        log.close()


def line(message: str, **fields: Any) -> LogEntry:
    values = {"project_id": 1, "log_source_id": "f1", "instance_id": "i", "timestamp": START, "level": "info"}
    return LogEntry(**(values | fields), message=message)


def metric(name: str = "triggered", count: int = 1, **fields: Any) -> AppMetric:
    values = {"project_id": 1, "app_source_id": "f1", "metric_kind": "other", "timestamp": START}
    return AppMetric(**(values | fields), metric_name=name, count=count)


class TestTraces:
    def test_lines_of_a_run_are_in_order_and_apart(self, queue: InvocationQueue, engine: Engine) -> None:
        first = [
            line("1"),
            line("other", instance_id="j"),
            line("2"),
            line("3", timestamp=START - timedelta(hours=1)),
        ]
        queue.write_logs(first)
        queue.enqueue(
            InvocationBatch(
                [invocation()], logs=[line("4"), line("5", timestamp=START + timedelta(seconds=1))]
            )
        )
        rows = engine.rows(tables.log_entry)
        mine = {row.message: row.timestamp - START for row in rows if row.instance_id == "i"}
        assert mine == {
            "1": timedelta(0),
            "2": timedelta(milliseconds=1),
            "3": timedelta(milliseconds=2),
            "4": timedelta(milliseconds=3),
            "5": timedelta(seconds=1),
        }
        [other] = [row for row in rows if row.instance_id == "j"]
        assert (other.timestamp, other.level, other.log_source) == (START, "info", "hog_function")

    def test_metrics_are_added_up_by_the_hour(self, queue: InvocationQueue, engine: Engine) -> None:
        later = START + timedelta(minutes=59, seconds=59)
        queue.write_metrics([metric(), metric(count=4, timestamp=later), metric("fetch")])
        queue.enqueue(
            InvocationBatch(metrics=[metric(count=10), metric(timestamp=START + timedelta(hours=1))])
        )
        rows = {(row.metric_name, row.hour): row.count for row in engine.rows(tables.app_metric)}
        assert rows == {
            ("triggered", START): 15,
            ("fetch", START): 1,
            ("triggered", START + timedelta(hours=1)): 1,
        }

    def test_the_newer_result_of_a_run_stays(self, queue: InvocationQueue, engine: Engine) -> None:
        running = InvocationResult("i1", 1, "f1", "running", attempts=1, version=10, started_at=START)
        done = replace(running, status="succeeded", version=12, finished_at=START, duration_ms=210)
        queue.enqueue(InvocationBatch(results=[running]))
        queue.finish([], results=[done, replace(running, version=11)])
        [row] = engine.rows(tables.invocation_result)
        assert (row.status, row.version, row.duration_ms, row.started_at) == ("succeeded", 12, 210, START)

    def test_a_run_is_repeated_for_its_present_result_alone(self, queue: InvocationQueue) -> None:
        failed = InvocationResult("i1", 1, "f1", "failed", attempts=1, version=10)
        again = NewInvocation("i1", 1, "f1", b"again", repeats=10)
        assert queue.enqueue(InvocationBatch([again])) == 0, "there is no such result"
        queue.enqueue(InvocationBatch(results=[failed]))
        assert queue.enqueue(InvocationBatch([again])) == 1
        assert queue.enqueue(InvocationBatch([again])) == 0, "it is under way"
        [claimed] = queue.claim()
        done = replace(failed, status="succeeded", version=11)
        queue.finish([InvocationOutcome("i1", claimed.lock_token, "completed")], results=[done])
        assert queue.enqueue(InvocationBatch([again])) == 0
        assert queue.enqueue(InvocationBatch([replace(again, repeats=11)])) == 1

    def test_traces_go_when_their_time_is_over(
        self, queue: InvocationQueue, clock: Clock, engine: Engine
    ) -> None:
        def counts() -> list[int]:
            kept = (tables.log_entry, tables.app_metric, tables.invocation_result)
            return [len(engine.rows(table)) for table in kept]

        version = int(START.timestamp() * 1e6)
        assert from_micros(version) == START
        queue.enqueue(
            InvocationBatch(
                [],
                logs=[line("x")],
                metrics=[metric()],
                results=[InvocationResult("i1", 1, "f1", "succeeded", attempts=1, version=version)],
            )
        )
        queue.sweep()
        assert counts() == [1, 1, 1]
        for days, left in (
            (RESULT_RETENTION_DAYS, [1, 1, 0]),
            (TRACE_RETENTION_DAYS, [0, 0, 0]),
        ):
            clock.moment = START + timedelta(days=days, seconds=1)
            queue.sweep()
            assert counts() == left

    def test_logs_and_metrics_are_kept_for_as_long_as_is_wanted(self, engine: Engine, clock: Clock) -> None:
        with closing(engine.queue(now=clock, trace_days=7)) as queue:
            queue.enqueue(InvocationBatch(logs=[line("x")], metrics=[metric()]))
            left = []
            for days in (6, 8):
                clock.moment = START + timedelta(days=days)
                queue.sweep()
                kept = (tables.log_entry, tables.app_metric)
                left.append([len(engine.rows(table)) for table in kept])
        assert left == [[1, 1], [0, 0]]


class TestWaiting:
    def test_work_that_came_since_the_last_claim_is_not_slept_over(self, queue: InvocationQueue) -> None:
        assert queue.claim() == []
        queue.enqueue(InvocationBatch([invocation()]))
        assert queue.arrivals.wait(30)
        assert not queue.arrivals.wait(0.001)
        queue.arrivals.wake()
        assert queue.arrivals.wait(30)

    def test_a_sleeping_worker_is_woken(self, queue: InvocationQueue) -> None:
        ready = threading.Event()

        def work() -> bool:
            queue.claim()
            ready.set()
            return queue.arrivals.wait(30)

        with ThreadPoolExecutor(1) as pool:
            woken = pool.submit(work)
            ready.wait()
            queue.enqueue(InvocationBatch([invocation()]))
            assert woken.result(timeout=PATIENCE_S)

    def test_stats(self, queue: InvocationQueue, clock: Clock) -> None:
        assert queue.counts.stats() == (stats := queue.counts.stats())
        assert (stats.available, stats.running, stats.oldest_due_at) == (0, 0, None)
        queue.enqueue(
            InvocationBatch(
                [invocation(scheduled_at=START + timedelta(seconds=5)), invocation(), invocation()]
            )
        )
        queue.claim(limit=1)
        clock.advance(2)
        stats = queue.counts.stats()
        assert (stats.available, stats.running, stats.oldest_due_at) == (2, 1, START)
        assert queue.counts.backlog() == 3
        queue.claim()
        assert queue.counts.stats().oldest_due_at is None
