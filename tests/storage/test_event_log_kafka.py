"""The event log in Kafka: partitions, requests as wholes, bounds, and brokers that are away, killed or slow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests import waiting
from tests.kafka import Broker, new_topic, own_broker
from tests.waiting import PATIENCE_S

from hoglab.storage.database import DatabaseError
from hoglab.storage.database.errors import UnsupportedDatabaseError
from hoglab.storage.event_log import EventLogFullError, LogReader, LogWriter
from hoglab.storage.event_log import kafka as kafka_module
from hoglab.storage.event_log.kafka import KafkaEventLog
from hoglab.storage.event_log.kafka_partition import KafkaPartition
from hoglab.storage.event_log.kafka_topic import MAX_RECORD_BYTES, KafkaAddress

pytestmark = pytest.mark.timeout(900)  # of which a broker may need much to start
MANY = 1 << 30


wait_for = partial(waiting.wait_for, timeout_s=PATIENCE_S, every_s=0.02)


@pytest.fixture
def url(kafka: str) -> str:
    return f"kafka://{kafka}/{new_topic()}?partitions=3"


@contextmanager
def opened(url: str, finished: dict[int, int] | None = None, **limits: int) -> Iterator[KafkaEventLog]:
    done = {} if finished is None else finished
    log = KafkaEventLog(
        KafkaAddress.parse(url), finished=lambda: done, **{"max_backlog_bytes": MANY, **limits}
    )
    try:
        yield log
    finally:
        log.close()


@contextmanager
def reading(log: KafkaEventLog, number: int) -> Iterator[KafkaPartition]:
    partition = log.partition(number)
    try:
        yield partition
    finally:
        partition.close()


def append(log: KafkaEventLog, *requests: list[tuple[int, bytes]], insist: bool = False) -> None:
    async def run() -> None:
        await asyncio.gather(*(log.append_all(request, insist=insist) for request in requests))

    asyncio.run(run())


def everything(partition: LogReader, after: int = 0, count: int | None = None) -> list[bytes]:
    """What is in a partition: so many records, or all that come within a moment."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while partition.wait(after, 1.0) or (count is not None and time.monotonic() < deadline):
        for record in partition.read(after, max_records=1000, max_bytes=MANY):
            found.append(record.payload)
            after = record.offset
        if count is not None and len(found) >= count:
            break
    return found


def whole(partition: LogReader, end: int) -> list[bytes]:
    """What is in a partition up to an offset."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while partition.reached < end:
        assert time.monotonic() < deadline
        partition.wait(partition.reached, 0.5)
        found += [
            each.payload for each in partition.read(partition.reached, max_records=1000, max_bytes=MANY)
        ]
    return found


def read_to_the_end(log: KafkaEventLog, partition: LogReader, number: int) -> int:
    """Where a reader is that has read everything: behind the commit of the last transaction."""
    deadline = time.monotonic() + PATIENCE_S
    while not 0 < log.ends()[number] == partition.reached or partition.wait(partition.reached, 0.5):
        assert time.monotonic() < deadline
        partition.read(partition.reached, max_records=1000, max_bytes=MANY)
    return partition.reached


def test_it_is_a_partitioned_log(url: str) -> None:
    with opened(url) as log:
        as_protocol: LogWriter = log
        assert as_protocol.partitions > 1
        assert (log.partitions, log.max_record_bytes) == (3, MAX_RECORD_BYTES)


class TestAppendAndRead:
    @pytest.mark.parametrize("transactions", ["on", "off"])
    def test_records_are_in_their_partitions_in_order(self, url: str, transactions: str) -> None:
        with opened(f"{url}&transactions={transactions}") as log:
            for number in range(20):
                append(log, [(0, b"a%d" % number), (2, b"c%d" % number)])
            with reading(log, 0) as first, reading(log, 1) as second, reading(log, 2) as third:
                assert everything(first, count=20) == [b"a%d" % number for number in range(20)]
                assert everything(third, count=20) == [b"c%d" % number for number in range(20)]
                assert not second.wait(0, 0)
                assert second.read(0, max_records=10, max_bytes=MANY) == []

    def test_offsets_rise_and_reading_goes_on_behind_any(self, url: str) -> None:
        with opened(url) as log, reading(log, 1) as partition:
            for number in range(10):
                append(log, [(1, b"%d" % number)])
            everything(partition, count=10)
            partition.wait(0, PATIENCE_S)
            records = list(partition.read(0, max_records=100, max_bytes=MANY))
            while len(records) < 10:
                records += partition.read(records[-1].offset, max_records=100, max_bytes=MANY)
            offsets = [record.offset for record in records]
            assert offsets[0] >= 1
            assert offsets == sorted(set(offsets))
            assert max(log.ends().values()) >= offsets[-1]
            for number in (3, 8, 0):  # back and forth
                wait_for(lambda number=number: partition.wait(offsets[number], 1))
                (record,) = partition.read(offsets[number], max_records=1, max_bytes=MANY)
                assert record.payload == b"%d" % (number + 1)

    def test_a_reader_reaches_the_end_behind_the_last_commit_and_goes_on_from_there(self, url: str) -> None:
        with opened(url) as log, reading(log, 0) as partition:
            append(log, [(0, b"a")])
            append(log, [(0, b"b")])
            end = read_to_the_end(log, partition, 0)
            assert end > 2  # two records, and what commits them
            append(log, [(0, b"c")])
            wait_for(lambda: partition.wait(end, 1))
            assert partition.reached == end  # what has arrived and was not given out does not count
            (record,) = partition.read(end, max_records=10, max_bytes=MANY)
            assert record.payload == b"c"
            assert partition.reached >= record.offset > end

    def test_reading_is_bounded_by_records_and_by_bytes_but_never_stuck(self, url: str) -> None:
        with opened(url) as log, reading(log, 0) as partition:
            append(log, [(0, b"x" * 10), (0, b"y" * 10), (0, b"z" * 10)])

            def read(**limits: int) -> int:
                wait_for(lambda: partition.wait(0, 1))
                return len(partition.read(0, **{"max_records": 10, "max_bytes": MANY, **limits}))

            assert read(max_records=2) == 2
            assert read(max_bytes=20) == 2
            assert read(max_bytes=19) == 1
            assert read(max_bytes=1) == 1

    def test_requests_that_wait_together_share_a_transaction(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened(url) as log:
            groups: list[int] = []
            store, go_on = log._store, threading.Event()

            def noted(group: Any) -> None:
                groups.append(len(group))
                assert go_on.wait(PATIENCE_S)
                store(group)

            monkeypatch.setattr(log, "_store", noted)
            producer = threading.Thread(target=append, args=(log, *[[(0, b"x")]] * 100))
            producer.start()
            wait_for(lambda: log._waiting_bytes == 100)
            go_on.set()
            producer.join()
            assert sum(groups) == 100
            assert len(groups) <= 2

    def test_a_reader_that_waits_is_woken(self, url: str) -> None:
        with opened(url) as log, reading(log, 0) as partition:
            waiting = threading.Thread(target=partition.wait, args=(0, PATIENCE_S * 10))
            waiting.start()
            partition.wake()
            waiting.join(PATIENCE_S)
            assert not waiting.is_alive()

    def test_another_process_finds_the_topic_as_it_is(self, url: str) -> None:
        with opened(url) as log, opened(url) as other:
            append(log, [(0, b"a")])
            append(other, [(0, b"b")])
            with reading(other, 0) as partition:
                assert everything(partition, count=2) == [b"a", b"b"]

    def test_what_was_begun_and_not_committed_is_not_read(self, url: str, kafka: str) -> None:
        """A process that was killed amid a transaction: what it wrote is never seen, what comes later is."""
        with opened(url) as log:
            topic = log._address.topic
            killed = Producer(
                {"bootstrap.servers": kafka, "transactional.id": "k", "transaction.timeout.ms": 1000}
            )
            killed.init_transactions(PATIENCE_S)
            killed.begin_transaction()
            killed.produce(topic, b"lost", partition=0)
            killed.flush(PATIENCE_S)
            append(log, [(0, b"kept")])
            with reading(log, 0) as partition:
                assert everything(partition, count=1) == [b"kept"]


class TestBounds:
    def test_a_record_above_what_the_topic_takes_is_a_mistake(self, url: str) -> None:
        with opened(url) as log, pytest.raises(ValueError, match="larger than"):
            append(log, [(0, b"x" * (MAX_RECORD_BYTES + 1))])

    def test_the_largest_record_is_taken(self, url: str) -> None:
        with opened(url) as log, reading(log, 0) as partition:
            append(log, [(0, b"x" * (log.max_record_bytes - 1024))])
            assert len(everything(partition, count=1)[0]) == log.max_record_bytes - 1024

    def test_a_backlog_that_nobody_reads_is_refused_and_taken_when_it_is_done(self, url: str) -> None:
        finished: dict[int, int] = {}
        with opened(url, finished, max_backlog_bytes=5000) as log:
            for _ in range(5):
                append(log, [(0, b"x" * 1000)])
            with pytest.raises(EventLogFullError, match="wait for ingestion") as caught:
                append(log, [(0, b"x" * 1000)])
            assert caught.value.retry_after_s == 10
            append(log, [(1, b"x" * 1000)], insist=True)
            for number in (0, 1):
                with reading(log, number) as partition:
                    finished[number] = read_to_the_end(log, partition, number)
            wait_for(lambda: log.pending_bytes() == 0)
            append(log, [(0, b"x" * 1000)])

    def test_what_another_process_appended_counts(self, url: str) -> None:
        with opened(url) as log, opened(url, max_backlog_bytes=5000) as other:
            append(log, *[[(0, b"x" * 1000)]] * 20)
            wait_for(lambda: other.pending_bytes() > 5000)
            with pytest.raises(EventLogFullError, match="wait for ingestion"):
                append(other, [(0, b"x")])

    def test_what_waits_for_the_brokers_is_bounded(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with opened(url, max_waiting_bytes=100) as log:
            go_on, store = threading.Event(), log._store
            monkeypatch.setattr(log, "_store", lambda group: (go_on.wait(PATIENCE_S), store(group))[1])

            async def run() -> None:
                taken = asyncio.create_task(log.append_all([(0, b"x" * 60)]))
                await asyncio.to_thread(wait_for, lambda: not log._waiting and log._waiting_bytes == 60)
                waits = asyncio.create_task(log.append_all([(0, b"x" * 30)]))
                await asyncio.sleep(0)
                with pytest.raises(EventLogFullError, match="wait for the brokers"):
                    await log.append_all([(0, b"x" * 30)])
                go_on.set()
                await asyncio.gather(taken, waits)

            asyncio.run(run())

    def test_a_closed_log_refuses(self, url: str) -> None:
        with opened(url) as log:
            log.close()
            with pytest.raises(EventLogFullError, match="closed"):
                append(log, [(0, b"x")])


class TestAddress:
    def test_what_it_says(self) -> None:
        found = KafkaAddress.parse(
            "kafka://b1:9092,b2:9092/events?partitions=64&transactions=off&sasl.password=x%26y"
        )
        assert (found.brokers, found.topic, found.partitions, found.transactions) == (
            "b1:9092,b2:9092",
            "events",
            64,
            False,
        )
        assert found.settings()["sasl.password"] == "x&y"
        assert "x&y" not in repr(found)
        assert KafkaAddress.parse("kafka://b/t").partitions == 16

    @pytest.mark.parametrize(
        ("url", "complaint"),
        [
            ("kafka://b1:9092", "must look like"),
            ("kafka:///t", "must look like"),
            ("nats://b/t", "must look like"),
            ("kafka://b/t/u", "more than one /"),
            ("kafka://me:secret@b/t", "sasl.username"),
            ("kafka://b/t?partitions=0", "from 1 to 1024"),
            ("kafka://b/t?partitions=1025", "from 1 to 1024"),
            ("kafka://b/t?partitions=x", "whole numbers"),
            ("kafka://b/t?transactions=maybe", "on or off"),
            ("kafka://b/t?acks=0", "parameter that is none"),
        ],
    )
    def test_what_is_none(self, url: str, complaint: str) -> None:
        with pytest.raises(UnsupportedDatabaseError, match=complaint) as caught:
            KafkaAddress.parse(url)
        assert "secret" not in str(caught.value)

    def test_the_number_of_partitions_stays(self, url: str) -> None:
        with opened(url):
            pass
        with pytest.raises(DatabaseError, match="3 partitions, not 4"), opened(url.replace("=3", "=4")):
            pass

    def test_brokers_that_are_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hoglab.storage.event_log.kafka_topic.ANSWER_S", 0.5)
        with pytest.raises(DatabaseError, match="does not answer"), opened("kafka://127.0.0.1:9/t"):
            pass


def partitions_of(payload: bytes) -> tuple[int, int]:
    """Where a writer of the test below puts its records, by their numbers."""
    number = int(payload.rpartition(b"-")[2])
    return number % 3, (number + 1) % 3


@pytest.mark.slow
class TestFaults:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Broker]:
        with own_broker(tmp_path) as broker:
            broker.start()
            yield broker

    def test_nothing_that_was_acknowledged_is_lost_while_the_broker_is_killed(self, broker: Broker) -> None:
        """Writers go on over two crashes and an absence; each record is there once, unless its writer was refused.

        Of those that were refused nothing is there twice; why there may be a part: `hoglab.storage.event_log.kafka`.
        """
        kept: list[bytes] = []
        refused: list[bytes] = []
        stopping = threading.Event()

        def write(log: KafkaEventLog, name: int) -> None:
            async def run() -> None:
                number = 0
                while not stopping.is_set():
                    payload = b"%d-%d" % (name, number)
                    try:
                        await log.append_all([(part, payload) for part in partitions_of(payload)])
                        kept.append(payload)
                    except EventLogFullError:
                        refused.append(payload)
                        await asyncio.to_thread(stopping.wait, 0.05)
                    number += 1

            asyncio.run(run())

        with opened(f"kafka://{broker.address}/events?partitions=3") as log:
            writers = [threading.Thread(target=write, args=(log, name)) for name in range(4)]
            for writer in writers:
                writer.start()
            for _ in range(2):
                enough = len(kept) + 50
                wait_for(lambda enough=enough: len(kept) > enough)
                broker.kill()
                missing = len(refused) + 20
                wait_for(lambda missing=missing: len(refused) > missing)
                broker.start()
            enough = len(kept) + 50
            wait_for(lambda: len(kept) > enough)
            stopping.set()
            for writer in writers:
                writer.join()
            assert not log._failing
            ends = log.ends()  # whoever leads the partitions now
            stored: Counter[tuple[int, bytes]] = Counter()
            for number in range(3):
                with reading(log, number) as partition:
                    stored.update((number, payload) for payload in whole(partition, ends[number]))
        expected = {(part, payload) for payload in kept for part in partitions_of(payload)}
        assert not expected - stored.keys()
        assert (
            not stored.keys()
            - expected
            - {(part, payload) for payload in refused for part in partitions_of(payload)}
        )
        assert set(stored.values()) == {1}

    def test_a_broker_that_does_not_answer_is_not_waited_for_long(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened(f"kafka://{broker.address}/events?partitions=3") as log, reading(log, 0) as partition:
            append(log, [(0, b"before")])
            monkeypatch.setattr(kafka_module, "ACKNOWLEDGED_WITHIN_S", 1.0)
            broker.pause()
            try:
                with pytest.raises(EventLogFullError, match="does not acknowledge") as caught:
                    append(log, [(0, b"while")])
                assert caught.value.retry_after_s == 5
                with pytest.raises(EventLogFullError, match="does not acknowledge"):
                    log.check()  # at once
            finally:
                monkeypatch.undo()
                broker.resume()

            def again() -> bool:
                try:
                    append(log, [(0, b"after")])
                except EventLogFullError:
                    return False
                return True

            wait_for(again)
            found = everything(partition)
            assert (found[0], found[-1]) == (b"before", b"after")
            assert found.count(b"after") == 1

    def test_a_reader_says_when_records_were_deleted_before_it_read_them(self, broker: Broker) -> None:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        with opened(f"kafka://{broker.address}/events?partitions=3") as log:
            append(log, *[[(0, b"%d" % number)] for number in range(5)])
            admin = AdminClient({"bootstrap.servers": broker.address})
            deleted = admin.delete_records([TopicPartition("events", 0, log.ends()[0])])
            for each in deleted.values():
                each.result()
            with reading(log, 0) as partition, pytest.raises(DatabaseError, match="deleted before"):
                wait_for(lambda: partition.wait(0, 1))
