"""Records that wait beside the event log: nobody waits for another's flood, nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.generated import examples
from tests.storage.engines import Engine, NewEngine, SqliteEngine

from hoglab.storage.catching_up import Awaiting, CatchUp
from hoglab.storage.database import Database, tables
from hoglab.storage.event_log import EventLogFullError, LogRecord, deferral
from hoglab.storage.event_log import log as event_log_module
from hoglab.storage.event_log.log import GroupCommitLog
from hoglab.storage.invocations.holding import DISPATCHING, hold_all

WINDOW = 64_000
FLOOD, OTHER = 1, 2


@contextmanager
def opened(engine: Engine, **limits: Any) -> Iterator[GroupCommitLog]:
    log = engine.log(**{"window_bytes": WINDOW, **limits})
    try:
        yield log
    finally:
        log.close()


def send(log: GroupCommitLog, owner: int | None, *payloads: bytes, **options: Any) -> list[int]:
    async def run() -> list[int]:
        return list(await asyncio.gather(*(log.append(each, owner=owner, **options) for each in payloads)))

    return asyncio.run(run())


def numbered(count: int, size: int = 1000, first: int = 0) -> list[bytes]:
    return [b"%d:" % number + b"x" * size for number in range(first, first + count)]


def number(record: LogRecord) -> int:
    return int(record.payload.partition(b":")[0])


def ingest(log: GroupCommitLog, position: int = 0, *, max_bytes: int = 8_000) -> list[LogRecord]:
    """Everything in the log and beside it, read and finished step by step."""
    done: list[LogRecord] = []
    while True:
        deferred = log.deferred_bytes()  # asked first: what waits now may be in the log after an empty read
        records = list(log.read(position, max_records=100, max_bytes=max_bytes))
        if records:
            done += records
            position = records[-1].offset
            log.commit("ingestion", position)
        elif not deferred:
            return done
        else:
            log.wait(position, 0.01)


def test_a_flood_stands_before_others_with_no_more_than_the_window(engine: Engine) -> None:
    with opened(engine) as log:
        offsets = send(log, FLOOD, *numbered(500))
        assert 0 in offsets
        assert log.deferred_bytes() > 400_000
        assert sum(map(bool, offsets)) * 1000 <= WINDOW / 2 + 1000
        (offset,) = send(log, OTHER, b"9:")
        assert offset == log.last_offset()
        assert log.pending_bytes() > 500_000
        before = log.read(0, max_records=1000, max_bytes=1 << 30)
        assert sum(len(record.payload) for record in before) <= WINDOW


def test_two_floods_leave_room_for_whoever_sends_little(engine: Engine) -> None:
    with opened(engine) as log:
        for _ in range(10):
            for owner in (FLOOD, OTHER):
                send(log, owner, *numbered(20))
        assert send(log, 3, *numbered(10)).count(0) == 0


def test_what_waits_goes_into_the_log_in_order_and_by_turns(engine: Engine) -> None:
    with opened(engine) as log:
        for first in range(0, 300, 50):
            for owner in (FLOOD, OTHER):
                send(
                    log, owner, *(b"%d:%d" % (each, owner) + b"x" * 1000 for each in range(first, first + 50))
                )
        done = ingest(log)
        assert [record.offset for record in done] == list(range(1, 601))
        for owner in (FLOOD, OTHER):
            mine = [record for record in done if record.payload.partition(b":")[2].startswith(b"%d" % owner)]
            assert list(map(number, mine)) == list(range(300))
        halfway = [record.payload.partition(b":")[2][:1] for record in done[:300]]
        assert min(halfway.count(b"1"), halfway.count(b"2")) > 60


def test_who_is_alone_waits_for_nobody(engine: Engine) -> None:
    with opened(engine) as log:
        assert send(log, FLOOD, *numbered(200), alone=True) == list(range(1, 201))
        assert send(log, None, *numbered(200)) == list(range(201, 401))


def test_who_is_alone_again_stays_in_order(engine: Engine) -> None:
    with opened(engine) as log:
        send(log, FLOOD, *numbered(200))
        assert send(log, FLOOD, *numbered(1, first=200), alone=True) == [0]
        assert list(map(number, ingest(log))) == list(range(201))


def test_all_of_it_survives_closing(engine: Engine) -> None:
    with opened(engine) as log:
        send(log, FLOOD, *numbered(300))
        waiting, pending = log.deferred_bytes(), log.pending_bytes()
    with opened(engine) as log:
        assert (log.deferred_bytes(), log.pending_bytes()) == (waiting, pending)
        assert send(log, FLOOD, *numbered(1, first=300)) == [
            0
        ]  # its records in the log are known to be its own
        (offset,) = send(log, OTHER, b"9:")
        assert offset == log.last_offset()
        done = [record for record in ingest(log) if record.offset != offset]
        assert list(map(number, done)) == list(range(301))


def test_what_waits_counts_for_the_bounds_of_the_log(engine: Engine) -> None:
    with opened(engine, max_backlog_bytes=400_000) as log:
        send(log, FLOOD, *numbered(190))
        with pytest.raises(EventLogFullError, match="of one project wait for ingestion"):
            send(log, FLOOD, *numbered(20))
        send(log, OTHER, *numbered(180))
        with pytest.raises(EventLogFullError, match="too many events wait for ingestion"):
            send(log, 3, b"x" * 40_000)
        assert send(log, FLOOD, b"9:", insist=True) == [0]


def test_the_oldest_that_waits_is_told(engine: Engine) -> None:
    with opened(engine) as log:
        assert log.oldest_after(0) is None
        send(log, FLOOD, *numbered(200))
        (oldest,) = log.read(0, max_records=1, max_bytes=1)
        assert log.oldest_after(0) == oldest.appended_at
        last = log.last_offset()
        first_deferred = log.oldest_after(last)
        assert first_deferred is not None
        assert first_deferred >= oldest.appended_at
        send(log, OTHER, b"9:")
        assert log.oldest_after(last) == first_deferred
        ingest(log)
        assert log.oldest_after(log.last_offset()) is None


def test_accepted_records_are_counted_once(engine: Engine) -> None:
    with opened(engine) as log:
        before = log.accepted()
        send(log, FLOOD, *numbered(200))
        assert log.accepted() - before == 200
        ingest(log)
        assert log.accepted() - before == 200


def test_what_was_acknowledged_ends_with_the_last_record_of_its_owner(engine: Engine) -> None:
    with opened(engine) as log:
        send(log, FLOOD, *numbered(200))
        token = log.read_token(FLOOD)
        assert token.deferred_until is not None
        assert log.resolve(token) is None
        send(log, OTHER, *numbered(3, first=1000))
        assert log.read_token(OTHER).deferred_until is None
        send(log, FLOOD, *numbered(200, first=200))
        done = ingest(log)
        offset = log.resolve(token)
        assert [number(record) for record in done if record.offset == offset] == [199]


def test_what_is_gone_from_the_log_is_behind_what_was_acknowledged(engine: Engine) -> None:
    with opened(engine) as log:
        send(log, FLOOD, *numbered(200))
        token = log.read_token(FLOOD)
        done = ingest(log)
        log.trim(done[-1].offset)
        assert log.resolve(token) == done[-1].offset
        send(log, OTHER, b"9:")
        assert log.resolve(token) == done[-1].offset


class Stored:
    """A store that is as far as a test says."""

    def __init__(self) -> None:
        self.offset = 0

    def position(self) -> int:
        return self.offset


def test_work_waits_for_events_that_are_deferred_and_for_none_of_others(engine: Engine) -> None:
    with opened(engine) as log:
        store = Stored()
        catch_up = CatchUp(log, store.position)
        awaiting: Awaiting[int] = Awaiting(catch_up, lambda owner: owner)
        send(log, FLOOD, *numbered(200))
        send(log, OTHER, b"9:")
        store.offset = log.last_offset()
        assert awaiting.ready([FLOOD, OTHER]) == [OTHER]
        assert catch_up.wait(OTHER, 0)
        assert not catch_up.wait(FLOOD, 0.05)
        ingest(log)
        assert awaiting.ready([FLOOD]) == []  # it is in the log now, and not stored
        store.offset = log.last_offset()
        assert awaiting.ready([FLOOD]) == [FLOOD]


def test_a_failure_is_tried_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log_module, "RETRY_ADMITTING_S", 0.01)
    failures = iter(range(3))

    def failing(*values: Any) -> deferral.Admitted:
        """Comes last, in the transaction."""
        if next(failures, None) is not None:
            raise OSError("disk I/O error")
        return deferral.Admitted(*values)

    monkeypatch.setattr(engine.log_module, "Admitted", failing)
    with opened(engine) as log:
        send(log, FLOOD, *numbered(200))
        assert list(map(number, ingest(log))) == list(range(200))
    assert next(failures, None) is None


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.integers(1, 3),
            st.lists(st.integers(1, 4000), min_size=1, max_size=30),
            st.booleans(),
        ),
        st.tuples(st.just("finish"), st.integers(1, 40)),
        st.tuples(st.just("reopen")),
    ),
    max_size=15,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=OPERATIONS)
def test_nothing_is_lost_doubled_or_reordered(
    new_engine: NewEngine, operations: list[tuple[Any, ...]]
) -> None:
    sent: dict[int, list[int]] = {}
    counter, position, done = 0, 0, []
    with new_engine() as engine:
        log = engine.log(window_bytes=20_000)
        for operation, *details in operations:
            if operation == "send":
                owner, sizes, alone = details
                payloads = [
                    b"%d:%d:" % (counter + place, owner) + b"x" * size for place, size in enumerate(sizes)
                ]
                sent.setdefault(owner, []).extend(range(counter, counter + len(sizes)))
                counter += len(sizes)
                send(log, owner, *payloads, alone=alone)
            elif operation == "finish":
                records = list(log.read(position, max_records=details[0], max_bytes=1 << 30))
                done += records
                position = records[-1].offset if records else position
                log.commit("ingestion", position)
            else:
                log.close()
                log = engine.log(window_bytes=20_000)
            assert log.accepted() == counter
        done += ingest(log, position)
        log.close()
    assert [record.offset for record in done] == list(range(1, counter + 1))
    for owner, numbers in sent.items():
        assert [number(each) for each in done if each.payload.split(b":")[1] == b"%d" % owner] == numbers


def test_a_restored_directory_runs_nothing_for_what_was_deferred(tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path)
    with opened(engine) as log:
        send(log, FLOOD, *numbered(200))
        assert log.deferred_bytes()
    database = Database.open(tmp_path / "hoglab.db")
    queue = Database.open(tmp_path / "queue.db", tables.queue_metadata)
    assert hold_all(database, queue, datetime(2026, 11, 1, tzinfo=UTC)).events == 200
    queue.dispose()
    database.dispose()
    with opened(engine) as log:
        assert log.deferred_bytes() == 0
        assert log.position(DISPATCHING) == log.last_offset() == 200
        assert list(map(number, ingest(log))) == list(range(200))
