"""The event log, of each engine: order, group commit, consumers, bounds and deletion."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.generated import examples
from tests.storage.engines import Engine, NewEngine
from tests.waiting import PATIENCE_S, wait_for

from hoglab.storage.event_log import EventLog, EventLogFullError, LogReader, LogWriter, Offset
from hoglab.storage.event_log import log as event_log_module
from hoglab.storage.event_log.backlog import Backlog
from hoglab.storage.event_log.log import MAX_RECORD_BYTES, GroupCommitLog
from hoglab.storage.event_log.sole import SoleReader

MANY = 1 << 40


@contextmanager
def opened(engine: Engine, **limits: Any) -> Iterator[GroupCommitLog]:
    log = engine.log(**limits)
    try:
        yield log
    finally:
        log.close()


@pytest.fixture
def log(engine: Engine) -> Iterator[GroupCommitLog]:
    with opened(engine) as log:
        yield log


def append(log: GroupCommitLog, *payloads: bytes) -> list[int]:
    async def run() -> list[int]:
        return list(await asyncio.gather(*(log.append(payload) for payload in payloads)))

    return asyncio.run(run())


def payloads(log: GroupCommitLog, after: int = 0) -> list[bytes]:
    return [record.payload for record in log.read(after, max_records=10_000, max_bytes=MANY)]


class TestAppendAndRead:
    def test_it_is_an_event_log(self, log: GroupCommitLog) -> None:
        as_protocol: EventLog = log
        assert as_protocol.stats().records == 0

    def test_it_is_a_log_of_one_partition(self, log: GroupCommitLog) -> None:
        writer: LogWriter = log
        assert (writer.partitions, writer.max_record_bytes) == (1, MAX_RECORD_BYTES)
        asyncio.run(writer.append_all([(0, b"a"), (0, b"b")]))
        reader: LogReader = SoleReader(log)
        assert reader.wait(Offset(0), 0)
        [first] = reader.read(Offset(0), max_records=1, max_bytes=MANY)
        [second] = reader.read(first.offset, max_records=9, max_bytes=MANY)
        assert (first.payload, second.payload, reader.reached) == (b"a", b"b", 0)
        assert not reader.wait(second.offset, 0)

    def test_an_empty_log(self, log: GroupCommitLog) -> None:
        assert log.read(0, max_records=10, max_bytes=10) == []
        assert not log.wait(0, 0)
        stats = log.stats()
        assert (stats.first_offset, stats.last_offset, stats.records, stats.bytes) == (0, 0, 0, 0)

    def test_records_come_back_in_the_order_of_their_offsets(self, log: GroupCommitLog) -> None:
        before = datetime.now(UTC)
        assert append(log, b"a", b"", b"\x00\xff") == [1, 2, 3]
        records = log.read(0, max_records=10, max_bytes=MANY)
        assert [(record.offset, record.payload) for record in records] == [
            (1, b"a"),
            (2, b""),
            (3, b"\x00\xff"),
        ]
        assert all(
            before - timedelta(seconds=1) < record.appended_at < datetime.now(UTC) for record in records
        )
        assert payloads(log, after=2) == [b"\x00\xff"]
        assert payloads(log, after=3) == []

    def test_reading_is_bounded_by_records_and_by_bytes_but_never_stuck(self, log: GroupCommitLog) -> None:
        append(log, b"x" * 10, b"y" * 10, b"z" * 10)
        assert len(log.read(0, max_records=2, max_bytes=MANY)) == 2
        assert len(log.read(0, max_records=10, max_bytes=20)) == 2
        assert len(log.read(0, max_records=10, max_bytes=19)) == 1
        assert len(log.read(0, max_records=10, max_bytes=1)) == 1

    def test_everything_survives_closing(self, engine: Engine) -> None:
        with opened(engine) as log:
            append(log, b"a", b"b")
            log.commit("c", 1)
        with opened(engine) as log:
            assert payloads(log) == [b"a", b"b"]
            assert log.position("c") == 1
            assert log.wait(1, 0)
            assert append(log, b"c") == [3]

    def test_offsets_are_never_given_out_again(self, engine: Engine) -> None:
        with opened(engine) as log:
            append(log, b"a", b"b")
            assert log.trim(2) == 2
            assert log.stats().last_offset == 2
        with opened(engine) as log:
            assert append(log, b"c") == [3]

    def test_loops_in_several_threads_append_together(self, log: GroupCommitLog) -> None:
        def produce(name: int) -> list[int]:
            return append(log, *(f"{name}-{number}".encode() for number in range(50)))

        with ThreadPoolExecutor(4) as pool:
            offsets = list(pool.map(produce, range(4)))
        stored = {record.offset: record.payload for record in log.read(0, max_records=1000, max_bytes=MANY)}
        assert sorted(offset for each in offsets for offset in each) == list(range(1, 201))
        for name, mine in enumerate(offsets):
            assert [stored[offset] for offset in mine] == [
                f"{name}-{number}".encode() for number in range(50)
            ]
            assert mine == sorted(mine)

    def test_requests_that_wait_together_are_committed_together(
        self, engine: Engine, log: GroupCommitLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        groups: list[int] = []
        store = log._store_group
        monkeypatch.setattr(log, "_store_group", lambda group: (groups.append(len(group)), store(group))[1])
        with engine.writing():  # another writer is busy, so they all have to wait
            producer = threading.Thread(target=append, args=(log, *[b"x"] * 100))
            producer.start()
            wait_for(lambda: log._waiting_bytes == 100)
        producer.join()
        assert sum(groups) == 100
        assert len(groups) <= 2  # the one that was taken first, and all the others

    def test_a_cancelled_producer_disturbs_nobody(self, log: GroupCommitLog) -> None:
        async def run() -> list[int]:
            tasks = [asyncio.create_task(log.append(b"%d" % number)) for number in range(10)]
            await asyncio.sleep(0)
            tasks[4].cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(done[4], asyncio.CancelledError)
            return [offset for offset in done if isinstance(offset, int)]

        assert len(asyncio.run(run())) == 9
        assert append(log, b"after")

    def test_a_producer_whose_loop_is_gone_disturbs_nobody(self, engine: Engine, log: GroupCommitLog) -> None:
        loop = asyncio.new_event_loop()
        with engine.writing():
            task = loop.create_task(log.append(b"lost"))
            loop.call_soon(loop.stop)
            loop.run_forever()
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.close()
        assert append(log, b"after")[0] in (1, 2)

    def test_a_record_that_is_too_large(self, log: GroupCommitLog) -> None:
        with pytest.raises(ValueError, match="larger than"):
            append(log, b"x" * (MAX_RECORD_BYTES + 1))
        assert append(log, b"ok") == [1]

    def test_waiting_ends_when_a_record_arrives(self, log: GroupCommitLog) -> None:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(log.wait, 0, 30)
            append(log, b"x")
            assert waiting.result(timeout=PATIENCE_S)
            assert not log.wait(1, 0.001)

    def test_waiting_ends_when_it_is_asked_to_even_if_that_was_before(self, log: GroupCommitLog) -> None:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(log.wait, 0, 600)
            log.wake()
            assert not waiting.result(timeout=PATIENCE_S)
        log.wake()
        assert not log.wait(0, 600)

    def test_offsets_that_were_skipped_or_deleted_are_not_waited_for_in_vain(
        self, log: GroupCommitLog
    ) -> None:
        log.advance_sequence(7)
        assert log.last_offset() == 7
        assert not log.wait(0, 0.001)
        assert append(log, b"x") == [8]
        assert log.wait(0, 0.001)
        log.trim(8)
        assert not log.wait(0, 0.001)
        log.advance_sequence(3)
        assert append(log, b"y") == [9]

    def test_skipping_in_a_new_log_lasts(self, engine: Engine) -> None:
        with opened(engine) as log:
            log.advance_sequence(70)
        with opened(engine) as log:
            assert log.last_offset() == 70
            assert append(log, b"x") == [71]

    def test_waiting_ends_when_the_log_is_closed(self, engine: Engine) -> None:
        with ThreadPoolExecutor(1) as pool, opened(engine) as log:
            waiting = pool.submit(log.wait, 0, 30)
            log.close()
            assert not waiting.result(timeout=PATIENCE_S)


class TestConsumers:
    def test_positions_belong_to_consumers_and_never_go_back(self, log: GroupCommitLog) -> None:
        append(log, b"a", b"b", b"c")
        assert log.position("one") == 0
        log.commit("one", 2)
        log.commit("two", 1)
        log.commit("one", 1)
        assert (log.position("one"), log.position("two"), log.position("three")) == (2, 1, 0)

    def test_trimming_stops_at_the_slowest_consumer(self, log: GroupCommitLog) -> None:
        append(log, b"aa", b"bb", b"cc")
        log.commit("fast", 3)
        log.commit("slow", 1)
        assert log.trim(3) == 2
        assert payloads(log) == [b"bb", b"cc"]
        log.commit("slow", 3)
        assert log.trim(3) == 4
        assert payloads(log) == []
        assert log.trim(3) == 0


class TestBounds:
    def test_a_full_backlog_is_refused_until_a_consumer_is_done(self, engine: Engine) -> None:
        with opened(engine, max_backlog_bytes=1000) as log:
            append(log, *[b"x" * 100] * 10)
            assert log.pending_bytes() == 1000
            with pytest.raises(EventLogFullError, match="wait for ingestion") as caught:
                append(log, b"x")
            assert caught.value.retry_after_s == 10
            with pytest.raises(EventLogFullError):
                append(log, b"x")  # and stays refused
            assert asyncio.run(log.append(b"y", insist=True)) == 11
            log.commit("consumer", 11)
            assert log.pending_bytes() == 0
            assert append(log, b"x") == [12]

    def test_one_owner_fills_half_of_the_backlog_and_leaves_the_rest_to_others(self, engine: Engine) -> None:
        async def send(owner: int | None, size: int, *, insist: bool = False) -> None:
            await log.append(b"x" * size, owner=owner, insist=insist)

        with opened(engine, max_backlog_bytes=1000) as log:
            for _ in range(5):
                asyncio.run(send(1, 100))
            with pytest.raises(EventLogFullError, match="of one project wait for ingestion") as caught:
                asyncio.run(send(1, 1))
            assert caught.value.retry_after_s == 10
            asyncio.run(send(2, 400))
            asyncio.run(send(1, 10, insist=True))
            asyncio.run(send(None, 80))
            with pytest.raises(EventLogFullError, match="too many events wait"):
                asyncio.run(send(3, 100))
            log.commit("consumer", log.last_offset())
            asyncio.run(send(1, 500))

    def test_one_owner_waits_for_the_disk_with_half_of_what_may_wait(self, engine: Engine) -> None:
        async def run() -> list[int | BaseException]:
            with engine.writing():
                sent = [asyncio.ensure_future(log.append(b"x" * 300, owner=owner)) for owner in (1, 1, 1, 2)]
                await asyncio.sleep(0)
            return await asyncio.gather(*sent, return_exceptions=True)

        with opened(engine, max_waiting_bytes=1200) as log:
            first, second, third, other = asyncio.run(run())
            assert not isinstance(first, Exception)
            assert not isinstance(second, Exception)
            assert isinstance(third, EventLogFullError)
            assert "of one project wait for the disk" in str(third)
            assert not isinstance(other, Exception)
            assert not log._waiting_by_owner

    def test_the_backlog_is_measured_again_when_the_log_is_opened(self, engine: Engine) -> None:
        with opened(engine) as log:
            append(log, *[b"x" * 100] * 200)
            log.commit("consumer", 128)
        with opened(engine, max_backlog_bytes=7300) as log:
            assert 7200 <= log.pending_bytes() <= 7300
            with pytest.raises(EventLogFullError):
                append(log, b"x" * 200)

    def test_too_much_waiting_for_the_disk_is_refused(self, engine: Engine) -> None:
        refused: list[int] = []

        async def produce(log: GroupCommitLog) -> None:
            tasks = [asyncio.create_task(log.append(b"x" * 100)) for _ in range(30)]
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            refused.extend(
                answer.retry_after_s for answer in answers if isinstance(answer, EventLogFullError)
            )

        with opened(engine, max_waiting_bytes=1000) as log:
            with engine.writing():
                producer = threading.Thread(target=lambda: asyncio.run(produce(log)))
                producer.start()
                wait_for(lambda: log._waiting_bytes >= 900)
            producer.join()
            assert refused
            assert set(refused) == {1}
            assert log.stats().records == 30 - len(refused)
            assert append(log, b"x" * 2000)  # a single large one is not locked out

    def test_a_closed_log_refuses_and_closing_again_is_harmless(self, engine: Engine) -> None:
        with opened(engine) as log:
            log.close()
            with pytest.raises(EventLogFullError, match="closed"):
                append(log, b"x")
            log.close()

    def test_closing_stores_what_waits(self, engine: Engine) -> None:
        with opened(engine) as log:
            with engine.writing():
                producer = threading.Thread(target=append, args=(log, b"a", b"b"))
                producer.start()
                wait_for(lambda: log._waiting_bytes == 2)
                closer = threading.Thread(target=log.close)
                closer.start()
            closer.join()
            producer.join()
        with opened(engine) as log:
            assert payloads(log) == [b"a", b"b"]


class TestTidying:
    def test_finished_records_go_when_they_are_old(self, engine: Engine) -> None:
        with opened(engine, keep_finished_s=3600) as log:
            append(log, b"a", b"b")
            log.commit("consumer", 2)
            log.tidy()
            assert log.stats().records == 2
            log._keep_finished_s = -1
            log.tidy()
            assert log.stats().records == 0

    def test_finished_records_go_when_they_are_many(self, engine: Engine) -> None:
        with opened(engine, max_backlog_bytes=6400, keep_finished_bytes=500) as log:
            append(log, *[b"x" * 100] * 20)
            log.commit("consumer", 12)
            log.tidy()
            stats = log.stats()
            assert (stats.first_offset, stats.records) == (8, 13)  # five finished ones and eight pending

    def test_pending_records_stay_however_old(self, engine: Engine) -> None:
        with opened(engine, keep_finished_s=-1, keep_finished_bytes=0) as log:
            append(log, b"a", b"b")
            log.tidy()
            log.commit("slow", 1)
            log.commit("fast", 2)
            log.tidy()
            assert b"b" in payloads(log)

    def test_it_happens_by_itself(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(event_log_module, "TIDY_EVERY_S", 0.001)
        with opened(engine, keep_finished_s=-1) as log:
            append(log, b"a", b"b")
            log.commit("consumer", 2)
            wait_for(lambda: log.stats().records == 0)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 5)), min_size=1, max_size=40),
    st.lists(st.integers(0, 220), max_size=6),
)
def test_the_backlog_never_undercounts_what_is_pending(
    groups: list[tuple[int, int]], marks: list[int]
) -> None:
    backlog, offset, sizes = Backlog(100), 0, []
    for size, records in groups:
        offset += records
        backlog.add(offset, size, offset, records)
        sizes.append((offset, size))
    for mark in sorted(marks):
        backlog.finish(mark)
        pending = sum(size for last, size in sizes if last > mark)
        assert pending <= backlog.pending_bytes <= pending + 300
        assert sum(map(backlog.pending_of, range(1, 6))) == backlog.pending_bytes
        assert backlog.pending_bytes + backlog.finished_bytes == sum(size for _, size in sizes)
        droppable = backlog.droppable(older_than=0, keep_bytes=0)
        assert droppable <= mark
    backlog.finish(offset)
    assert backlog.pending_bytes == 0
    backlog.drop(backlog.droppable(older_than=offset + 1, keep_bytes=1 << 60))
    assert backlog.finished_bytes == 0


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=300), min_size=1, max_size=8)),
        st.tuples(st.just("commit"), st.sampled_from(["one", "two"]), st.integers(0, 40)),
        st.tuples(st.just("trim"), st.integers(0, 40)),
        st.tuples(st.just("read"), st.integers(0, 40), st.integers(1, 10), st.integers(1, 900)),
        st.tuples(st.just("reopen")),
    ),
    max_size=12,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=OPERATIONS)
def test_the_log_behaves_like_a_list(new_engine: NewEngine, operations: list[tuple[Any, ...]]) -> None:
    stored: dict[int, bytes] = {}
    positions: dict[str, int] = {}
    last = 0
    with new_engine() as engine:
        log = engine.log()
        for operation, *details in operations:
            if operation == "append":
                offsets = append(log, *details[0])
                assert offsets == list(range(last + 1, last + 1 + len(details[0])))
                stored.update(zip(offsets, details[0], strict=True))
                last = offsets[-1]
            elif operation == "commit":
                positions[details[0]] = max(details[1], positions.get(details[0], 0))
                log.commit(*details)
            elif operation == "trim":
                up_to = min([details[0], *positions.values()])
                gone = [offset for offset in stored if offset <= up_to]
                assert log.trim(details[0]) == sum(len(stored.pop(offset)) for offset in gone)
            elif operation == "read":
                after, most, most_bytes = details
                expected = []
                for offset in sorted(offset for offset in stored if offset > after)[:most]:
                    if expected and sum(len(stored[one]) for one in [*expected, offset]) > most_bytes:
                        break
                    expected.append(offset)
                read = log.read(after, max_records=most, max_bytes=most_bytes)
                assert [(record.offset, record.payload) for record in read] == [
                    (offset, stored[offset]) for offset in expected
                ]
            else:
                log.close()
                log = engine.log()
            stats = log.stats()
            assert (stats.records, stats.bytes) == (len(stored), sum(map(len, stored.values())))
            assert stats.last_offset == last
            assert {name: log.position(name) for name in positions} == positions
        log.close()
