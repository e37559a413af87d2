"""What is kept beside the queue: what runs leave behind, dead letters, jobs, circuit breakers, on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed
from tests.storage.engines import Engine
from tests.storage.test_invocations import START, Clock, invocation

from hoglab.storage.database import tables
from hoglab.storage.invocations import (
    AppMetric,
    BreakerState,
    DeadLetter,
    DeadLetterSelection,
    ErasedPersons,
    HourlyCount,
    HourQuery,
    InvocationBatch,
    InvocationQueue,
    InvocationResult,
    InvocationStores,
    JobKind,
    JobOverError,
    JobRunsError,
    JobStep,
    LogEntry,
    LogQuery,
    ReplayJob,
    ResultSelection,
)
from hoglab.storage.invocations.sql import stores_of


@pytest.fixture
def queue(engine: Engine) -> Iterator[InvocationQueue]:
    queue = engine.queue(now=Clock())
    yield queue
    queue.close()


@pytest.fixture
def stores(engine: Engine, queue: InvocationQueue) -> InvocationStores:
    return stores_of(queue, engine.database)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class TestLogs:
    @pytest.fixture(autouse=True)
    def lines(self, stores: InvocationStores) -> None:
        entries = [
            (1, "f", "a", "info", "begins 100%"),
            (1, "f", "a", "error", "Straße is closed"),
            (1, "f", "b", "warn", "1000 more"),
            (1, "g", "c", "error", "elsewhere"),
            (2, "f", "d", "info", "of another project"),
        ]
        stores.runs.write_logs(
            [
                LogEntry(project, source, instance, at(number), level, message)
                for number, (project, source, instance, level, message) in enumerate(entries)
            ]
        )

    def messages(self, stores: InvocationStores, **wanted: Any) -> list[str]:
        return [line.message for line in stores.runs.logs(1, "f", LogQuery(**wanted))]

    def test_the_newest_of_a_function_come_first(self, stores: InvocationStores) -> None:
        assert self.messages(stores) == ["1000 more", "Straße is closed", "begins 100%"]
        assert self.messages(stores, limit=2, offset=1) == ["Straße is closed"]

    @pytest.mark.parametrize(
        ("wanted", "messages"),
        [
            ({"after": at(1)}, ["1000 more"]),
            ({"before": at(1)}, ["begins 100%"]),
            ({"levels": ["INFO", "WARN"]}, ["1000 more", "begins 100%"]),
            ({"search": "STRA"}, ["Straße is closed"]),
            ({"search": "100%"}, ["begins 100%"]),
            ({"search": "1_00"}, []),
            ({"instance_id": "a"}, ["Straße is closed", "begins 100%"]),
        ],
        ids=str,
    )
    def test_those_that_are_wanted(
        self, stores: InvocationStores, wanted: dict[str, Any], messages: list[str]
    ) -> None:
        assert self.messages(stores, **wanted) == messages

    def test_new_ones_are_found_by_their_ids(self, stores: InvocationStores) -> None:
        last = stores.runs.last_log_id()
        assert stores.runs.new_logs(["f", "g"], last, last, 10) == []
        stores.runs.write_logs([LogEntry(1, name, "x", at(9), "info", name) for name in ("f", "g", "h")])
        now = stores.runs.last_log_id()
        assert now > last
        new = stores.runs.new_logs(["f", "g"], last, now, 10)
        assert [line.message for line in new] == ["f", "g"]
        assert [line.id for line in new] == sorted(line.id for line in new)
        assert [line.message for line in stores.runs.new_logs(["f", "g"], last, now, 1)] == ["f"]
        assert stores.runs.new_logs(["f", "g"], last, new[0].id, 10) == new[:1]

    def test_the_last_errors(self, stores: InvocationStores) -> None:
        errors = stores.runs.last_errors(["f", "g", "h"], 10)
        assert {name: line.message for name, line in errors.items()} == {
            "f": "Straße is closed",
            "g": "elsewhere",
        }
        assert stores.runs.last_errors(["f"], 1).keys() <= {"f"}


class TestMetrics:
    def test_counts_of_a_function_by_the_hour(self, stores: InvocationStores) -> None:
        def metric(kind: str, name: str, count: int, hours: int = 0, **more: Any) -> AppMetric:
            return AppMetric(1, more.pop("function", "f"), kind, name, count, at(hours * 3600), **more)

        stores.runs.write_metrics(
            [
                metric("success", "succeeded", 2),
                metric("success", "filtered", 1),
                metric("failure", "failed", 4),
            ]
        )
        stores.runs.write_metrics(
            [
                metric("success", "succeeded", 3),
                metric("success", "succeeded", 7, hours=2),
                metric("success", "succeeded", 1, function="g"),
                metric("success", "succeeded", 1, instance_id="i"),
            ]
        )

        def counts(**wanted: Any) -> set[HourlyCount]:
            query = HourQuery(**{"since": START, "until": at(3600), **wanted})
            return set(stores.runs.hourly_counts(1, "f", query))

        assert counts() == {HourlyCount("success", START, 7), HourlyCount("failure", START, 4)}
        assert counts(by_name=True, kinds=["success"]) == {
            HourlyCount("succeeded", START, 6),
            HourlyCount("filtered", START, 1),
        }
        assert counts(names=["succeeded"], instance_id="i") == {HourlyCount("success", START, 1)}
        assert counts(since=at(7200), until=at(7200)) == {HourlyCount("success", at(7200), 7)}
        assert stores.runs.counts(1, ["succeeded"], START) == {("f", "succeeded"): 13, ("g", "succeeded"): 1}
        assert stores.runs.counts(2, ["succeeded"], START) == {}


def result(id_: str, due: float | None, **fields: Any) -> InvocationResult:
    values = {
        "project_id": 1,
        "function_id": "f",
        "status": "failed",
        "attempts": 1,
        "version": 1,
        "scheduled_at": None if due is None else at(due),
        "invocation_globals": b"\x00{}",
    }
    return InvocationResult(id_, **(values | fields))


class TestResults:
    @pytest.fixture(autouse=True)
    def results(self, queue: InvocationQueue) -> None:
        rows = [
            result("r0", 0, error_kind="timeout", error_message="50% of it", attempts=3),
            result(
                "r1", 1, status="succeeded", duration_ms=12, is_retry=True, distinct_id="d", person_id="p"
            ),
            result("r2", 2, invocation_globals=None),
            result("r3", 2, error_message="50 of it", version=9),
            result("r4", 3, status="running"),
            result("r5", None),
            result("other", 1, function_id="g"),
        ]
        queue.enqueue(InvocationBatch(results=rows))

    def wanted(self, **fields: Any) -> ResultSelection:
        return ResultSelection(1, "f", **{"statuses": ["failed", "succeeded", "running"], **fields})

    def test_those_that_were_due_last_come_first(self, stores: InvocationStores) -> None:
        newest = stores.runs.results(1, "f", ["succeeded", "running"], 10)
        assert newest == [
            result("r4", 3, status="running"),
            result(
                "r1", 1, status="succeeded", duration_ms=12, is_retry=True, distinct_id="d", person_id="p"
            ),
        ]
        assert len(stores.runs.results(1, "f", None, 10)) == 6
        assert len(stores.runs.results(1, "f", None, 2)) == 2
        assert stores.runs.last_version() == 9

    @pytest.mark.parametrize(
        ("fields", "count"),
        [
            ({}, 5),
            ({"statuses": ["failed"]}, 3),
            ({"error_kinds": ["timeout"]}, 1),
            ({"message_part": "50%"}, 1),
            ({"message_part": "OF IT"}, 2),
            ({"max_attempts": 2}, 4),
            ({"invocation_ids": ["r0", "r5", "other"]}, 1),
            ({"since": at(2)}, 3),
            ({"until": at(2)}, 2),
        ],
        ids=str,
    )
    def test_those_that_are_wanted(
        self, stores: InvocationStores, fields: dict[str, Any], count: int
    ) -> None:
        assert stores.runs.extent(self.wanted(**fields))[0] == count

    def test_how_many_can_be_run_again(self, stores: InvocationStores) -> None:
        assert stores.runs.repeatable(self.wanted(), None) == (5, 3)
        assert stores.runs.repeatable(self.wanted(), 2) == (2, 2)
        assert stores.runs.extent(self.wanted()) == (5, at(3))
        assert stores.runs.extent(self.wanted(statuses=["cancelled"])) == (0, None)

    def test_a_page_holds_all_that_were_due_at_once(self, stores: InvocationStores) -> None:
        page, up_to = stores.runs.page(self.wanted(), at(-1), at(3), size=3, limit=None)
        assert ([row.invocation_id for row in page], up_to) == (["r0", "r1", "r2", "r3"], at(2))
        page, up_to = stores.runs.page(self.wanted(), up_to, at(3), size=3, limit=None)
        assert ([row.invocation_id for row in page], up_to) == (["r4"], at(3))
        page, _ = stores.runs.page(self.wanted(), at(-1), at(3), size=3, limit=1)
        assert [row.invocation_id for row in page] == ["r0"]

    def test_when_those_that_wait_are_gone_on_with(
        self, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        later, running = invocation(scheduled_at=at(60)), invocation()
        queue.enqueue(InvocationBatch([later, running]))
        queue.claim()
        assert stores.runs.next_attempts([later.id, running.id, "unknown"]) == {later.id: at(60)}


def letter(id_: str, failed: float, **fields: Any) -> DeadLetter:
    values = {
        "project_id": 1,
        "function_id": "f",
        "source": "events",
        "step": "filter",
        "reason": "because",
        "event_uuid": "u",
        "event": "e",
        "distinct_id": "d",
        "payload": b"\x00payload",
    }
    return DeadLetter(id_, **(values | fields), failed_at=at(failed))


class TestDeadLetters:
    @pytest.fixture(autouse=True)
    def letters(self, queue: InvocationQueue) -> None:
        kept = [
            letter("l0", 0, reason="100% wrong"),
            letter("l1", 1, function_id=None, step="parse"),
            letter("l2", 2, step="process"),
            letter("l3", 1, project_id=2),
        ]
        queue.enqueue(InvocationBatch(dead=kept))

    def ids(self, stores: InvocationStores, **wanted: Any) -> list[str]:
        letters, count = stores.dead_letters.page(1, DeadLetterSelection(**wanted), 10, 0)
        assert count == len(letters)
        return [each.id for each in letters]

    def test_what_fails_again_counts_an_attempt(
        self, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        queue.enqueue(InvocationBatch(dead=[letter("l1", 9, function_id=None, step="parse", reason="still")]))
        [again] = stores.dead_letters.read(["l1", "unknown"])
        assert (again.function_id, again.reason, again.payload) == (None, "still", b"\x00payload")
        assert (again.attempts, again.first_failed_at, again.failed_at) == (2, at(1), at(9))
        assert self.ids(stores) == ["l1", "l2", "l0"]

    @pytest.mark.parametrize(
        ("wanted", "ids"),
        [
            ({"function_id": "f"}, ["l2", "l0"]),
            ({"ids": ["l0", "l1", "l3"]}, ["l1", "l0"]),
            ({"steps": ["parse", "process"]}, ["l2", "l1"]),
            ({"reason_part": "100%"}, ["l0"]),
            ({"reason_part": "BECAUSE"}, ["l2", "l1"]),
            ({"since": at(1), "until": at(2)}, ["l1"]),
        ],
        ids=str,
    )
    def test_those_that_are_wanted(
        self, stores: InvocationStores, wanted: dict[str, Any], ids: list[str]
    ) -> None:
        assert self.ids(stores, **wanted) == ids
        assert stores.dead_letters.oldest(1, DeadLetterSelection(**wanted), 10) == ids[::-1]
        assert stores.dead_letters.discard(1, DeadLetterSelection(**wanted)) == len(ids)
        assert self.ids(stores, **wanted) == []
        assert stores.dead_letters.known(["l0", "l1", "l2", "l3"]) == {"l0", "l1", "l2", "l3"} - set(ids)

    def test_pages(self, stores: InvocationStores) -> None:
        letters, count = stores.dead_letters.page(1, DeadLetterSelection(), 1, 1)
        assert ([each.id for each in letters], count) == (["l1"], 3)

    def test_what_was_tried_again_is_forgotten(
        self, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        queue.enqueue(InvocationBatch(retried=["l0", "l2", "unknown"]))
        assert self.ids(stores) == ["l1"]
        assert queue.counts.stats().dead_letters == 2


def job(id_: str, created: float = 0, **fields: Any) -> ReplayJob:
    values: dict[str, Any] = {
        "project_id": 1,
        "function_id": "f",
        "status": "running",
        "dry_run": False,
        "since": at(-60),
        "until": START,
        "cursor": 10,
        "last_seq": 50,
        "total": 40,
        "created_at": at(created),
    }
    return ReplayJob(id=id_, **(values | fields))


class TestJobs:
    def test_they_come_back_as_they_went_in(self, stores: InvocationStores) -> None:
        backfill = job("b", max_events=7, dry_run=True)
        rerun = job("r", 1, selection={"statuses": ["failed"], "message_part": None}, error="so")
        for each in (backfill, rerun):
            stores.jobs.begin(each, alone=False)
            assert stores.jobs.get(each.kind, 1, "f", each.id) == each
        assert (backfill.kind, rerun.kind) == (JobKind.BACKFILL, JobKind.RERUN)
        assert stores.jobs.get(JobKind.RERUN, 1, "f", "b") is None
        assert stores.jobs.get(JobKind.BACKFILL, 2, "f", "b") is None
        assert stores.jobs.running() == [backfill, rerun]

    def test_one_at_a_time_of_a_kind_where_that_is_wanted(self, stores: InvocationStores) -> None:
        stores.jobs.begin(job("a"), alone=True)
        with pytest.raises(JobRunsError):
            stores.jobs.begin(job("b"), alone=True)
        stores.jobs.begin(job("c", function_id="g"), alone=True)
        stores.jobs.begin(job("d", selection={}), alone=True)
        assert stores.jobs.finish("a", "cancelled", at(1))
        stores.jobs.begin(job("b"), alone=True)

    def test_pages_of_the_newest_first(self, stores: InvocationStores) -> None:
        for number in range(3):
            stores.jobs.begin(job(f"j{number}", number), alone=False)
        stores.jobs.begin(job("other", selection={}), alone=False)
        jobs, count = stores.jobs.page(JobKind.BACKFILL, 1, "f", 2, 0)
        assert ([each.id for each in jobs], count) == (["j2", "j1"], 3)
        jobs, count = stores.jobs.page(JobKind.BACKFILL, 1, "f", 2, 2)
        assert ([each.id for each in jobs], count) == (["j0"], 3)

    def test_a_step_is_done_once_with_what_it_enqueues_or_without(
        self, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        stores.jobs.begin(job("j"), alone=True)
        first = JobStep("j", 10, 20, seen=5, already_run=1, dead_letters=2)
        assert queue.enqueue(InvocationBatch([invocation(), invocation()], step=first)) == 2
        with pytest.raises(JobOverError):
            queue.enqueue(InvocationBatch([invocation()], step=first))
        with pytest.raises(JobOverError):
            stores.jobs.advance(first, 1)
        assert queue.counts.backlog() == 2
        stores.jobs.advance(JobStep("j", 20, 30, seen=4, already_run=2, dead_letters=1), 3)
        after = replace(job("j"), cursor=30, seen=9, queued=5, already_run=3, dead_letters=3)
        assert stores.jobs.running() == [after]

        assert stores.jobs.finish("j", "failed", at(9), "broken")
        assert not stores.jobs.finish("j", "completed", at(10))
        over = replace(after, status="failed", finished_at=at(9), error="broken")
        assert stores.jobs.get(JobKind.BACKFILL, 1, "f", "j") == over
        assert stores.jobs.running() == []
        with pytest.raises(JobOverError):
            queue.enqueue(InvocationBatch([invocation()], step=JobStep("j", 30, 40)))


def test_breakers_are_kept_with_their_newest_state(stores: InvocationStores) -> None:
    assert stores.breakers.read() == []
    first = [BreakerState("f", 1, 10_000, START), BreakerState("g", 2, 0, at(1), locked_until=at(60))]
    stores.breakers.change(["f", "g"], lambda known: [] if known else first)
    newer = BreakerState("g", 1, 5, at(2))
    stores.breakers.change(["g", "h"], lambda known: [newer] if known == {"g": first[1]} else [])
    assert {state.function_id: state for state in stores.breakers.read()} == {"f": first[0], "g": newer}


class TestErasing:
    PERSONS = ErasedPersons(1, {"p"}, {"d"}, {"event"}, log_offset=5, requested_at=at(10))

    def erase(self, stores: InvocationStores) -> bool:
        return stores.erasing.erase(self.PERSONS, lambda state: state.replace(b"d", b"") or None)

    def test_invocations_keep_who_else_is_in_them(
        self, engine: Engine, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        kept = {
            "other": invocation(state=b"x"),
            "later": invocation(state=b"d", log_offset=6),
            "elsewhere": invocation(state=b"d", project_id=2),
        }
        both, alone = invocation(state=b"dx", log_offset=5), invocation(state=b"d")
        queue.enqueue(InvocationBatch([*kept.values(), both, alone]))
        assert self.erase(stores)
        states = {row.id: row.state for row in engine.rows(tables.invocation)}
        assert states == {**{each.id: each.state for each in kept.values()}, both.id: b"x"}

    def test_what_is_at_work_is_waited_for(
        self, engine: Engine, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        queue.enqueue(InvocationBatch([invocation(state=b"dx")]))
        queue.claim()
        assert not self.erase(stores)
        assert [row.state for row in engine.rows(tables.invocation)] == [b"dx"]
        queue.release_all()
        assert self.erase(stores)
        assert [row.state for row in engine.rows(tables.invocation)] == [b"x"]

    def test_nothing_that_runs_left_tells_of_them(
        self, engine: Engine, queue: InvocationQueue, stores: InvocationStores
    ) -> None:
        about = result("r", 0, person_id="p", distinct_id="d", error_message="d said", parent_run_id="batch")
        other = result("s", 0, person_id="q", distinct_id="x", parent_run_id="job")
        instances = ["r", "batch", "event", "s", "job"]
        queue.enqueue(
            InvocationBatch(
                results=[about, changed(about, invocation_id="t", parent_run_id="job"), other],
                logs=[LogEntry(1, "f", instance, at(0), "info", instance) for instance in instances],
                dead=[letter("gone", 0), letter("kept", 0, distinct_id="x"), letter("far", 0, project_id=2)],
            )
        )
        stores.jobs.begin(job("job"), alone=False)
        assert self.erase(stores)
        assert {row.message for row in engine.rows(tables.log_entry)} == {"s", "job"}
        assert {row.id for row in engine.rows(tables.dead_event)} == {"kept", "far"}
        rows = {row.invocation_id: row for row in engine.rows(tables.invocation_result)}
        assert (rows["s"].distinct_id, rows["s"].invocation_globals) == ("x", b"\x00{}")
        for erased in (rows["r"], rows["t"]):
            private = ("person_id", "distinct_id", "error_message", "invocation_globals")
            assert [getattr(erased, name) for name in private] == [None] * 4
            assert erased.status == "failed"
        stores.erasing.purge()
