"""Taking records out of a topic of Kafka into the log in PostgreSQL: each once, in order, and told of to who waits."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import waiting
from tests.faults.seed import SEED
from tests.kafka import Broker, new_topic, own_broker
from tests.postgres import PostgresServer

from hoglab.capture.records import encode_record, new_header
from hoglab.capture.relay import LogRelay, RelayedLog
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import DatabaseError
from hoglab.storage.directory import DataDirectory
from hoglab.storage.engines import EngineOptions, Engines, upgrade_databases
from hoglab.storage.event_log import EventLogFullError, LogRecord
from hoglab.storage.event_log.kafka import KafkaEventLog
from hoglab.storage.event_log.partitions import Relayed
from hoglab.storage.table_files import TableDirectory

pytestmark = pytest.mark.timeout(600)  # of which a broker may need much to start
PATIENCE_S = 60.0
OWNER = 5


wait_for = partial(waiting.wait_for, timeout_s=PATIENCE_S, every_s=0.02)


@pytest.fixture
def options(kafka: str, postgres_url: str, tmp_path: Path) -> EngineOptions:
    upgrade_databases(postgres_url)
    return EngineOptions(
        tables=TableDirectory(tmp_path),
        database_url=postgres_url,
        event_log_url=f"kafka://{kafka}/{new_topic()}?partitions=3",
    )


@contextmanager
def opened(options: EngineOptions, tmp_path: Path) -> Iterator[Engines]:
    with (
        DataDirectory.open(tmp_path / "data", create=True) as directory,
        Engines.on(directory, options) as engines,
    ):
        yield engines


@pytest.fixture
def engines(options: EngineOptions, tmp_path: Path) -> Iterator[Engines]:
    with opened(options, tmp_path) as engines:
        yield engines


@contextmanager
def running(engines: Engines) -> Iterator[LogRelay]:
    relay = relay_of(engines)
    relay.start()
    try:
        yield relay
    finally:
        relay.stop(PATIENCE_S)


def relay_of(engines: Engines) -> LogRelay:
    assert engines.relayed is not None
    return LogRelay(engines.relayed, has_several_projects=lambda: False)


def relayed(engines: Engines) -> Relayed:
    assert engines.relayed is not None
    return engines.relayed


def record(text: str) -> bytes:
    header = new_header(
        project_id=OWNER,
        received_at=utc_now(),
        is_gzip=False,
        is_engage=False,
        ip=None,
        sent_at_ms=None,
        max_event_bytes=1_000_000,
    )
    return encode_record(header, text.encode())


def accept(engines: Engines, *records: tuple[int, bytes]) -> None:
    assert isinstance(engines.accepting, KafkaEventLog)
    asyncio.run(engines.accepting.append_all(records))


def texts(engines: Engines) -> list[str]:
    records = engines.log.read(0, max_records=100_000, max_bytes=1 << 30)
    return [_text(each) for each in records]


def _text(each: LogRecord) -> str:
    return each.payload[each.payload.rindex(b"#") :].decode()


def test_each_record_is_taken_over_once_in_the_order_of_its_partition(
    options: EngineOptions, tmp_path: Path
) -> None:
    sent = [(number % 3, f"#{number % 3}-{number}") for number in range(300)]
    for start in range(0, 300, 100):  # a restart goes on where it was left
        with opened(options, tmp_path) as engines:
            accept(engines, *((partition, record(text)) for partition, text in sent[start : start + 100]))
            with running(engines):
                wait_for(lambda start=start: len(texts(engines)) >= start + 100)
            found = texts(engines)
    assert sorted(found) == sorted(text for _, text in sent)
    for partition in range(3):
        mine = [text for text in found if text.startswith(f"#{partition}-")]
        assert mine == [text for number, text in sent if number == partition]


def test_what_is_taken_over_belongs_to_its_project_or_nobody(engines: Engines) -> None:
    accept(engines, (0, record("#fine")), (1, b"\xff#damaged"))
    with running(engines):
        wait_for(lambda: len(texts(engines)) == 2)
    with engines.queue_database.read() as connection:
        owners = connection.exec_driver_sql("SELECT owner FROM event_log_record").scalars()
        assert sorted(owners, key=str) == [OWNER, None]


def test_a_relay_that_lost_its_partitions_writes_nothing(engines: Engines) -> None:
    """It was paused between reading and storing; another one took the partitions over meanwhile."""
    paused, other = relay_of(engines), relay_of(engines)
    where = relayed(engines)
    accept(engines, (0, record("#once")))
    store, tried = where.target.append_within, []

    def hindered(connection: Any, records: Any) -> None:
        tried.append(records)
        store(connection, records)
        if len(tried) == 1:
            raise ConnectionError("the process stops here")

    paused._target = _With(where.target, append_within=hindered)  # type: ignore[assignment]
    with pytest.raises(ConnectionError):
        wait_for(lambda: paused.round() is None)
    assert texts(engines) == []  # neither the record nor the position was stored
    where.leases.give_up(range(3))
    paused._renew_at = time.monotonic() + 600  # it does not know yet
    with ExitStack() as ended:
        ended.callback(other._close_all)
        ended.callback(paused._close_all)
        accept(engines, (0, record("#twice")))
        wait_for(lambda: paused.round() is not None and paused.fault is not None)
        assert "read by another process" in str(paused.fault)
        wait_for(lambda: other.round() is not None and texts(engines) == ["#once", "#twice"])


class _With:
    """Something with some of its methods replaced."""

    def __init__(self, inner: Any, **methods: Any) -> None:
        self._inner = inner
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_the_log_behind_is_kept_short(
    options: EngineOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoglab.capture.relay.MAX_BYTES", 50_000)
    limited = replace(options, event_log_bytes=100_000)
    with opened(limited, tmp_path) as engines:
        assert isinstance(engines.accepting, KafkaEventLog)
        for number in range(4):
            asyncio.run(engines.accepting.append_all([(0, record(f"#{number}" + "x" * 60_000))], insist=True))
        relay = relay_of(engines)
        with ExitStack() as ended:
            ended.callback(relay._close_all)
            wait_for(lambda: relay.round() is not None and engines.log.pending_bytes() > 100_000)
            before = len(texts(engines))
            assert before < 4
            full_until = time.monotonic() + 1
            while time.monotonic() < full_until:  # it could take the rest over meanwhile
                relay.round()
            assert len(texts(engines)) == before
            assert relay.fault is None
            assert engines.accepting.pending_bytes() > 0
            engines.log.commit("ingestion", engines.log.last_offset())
            wait_for(lambda: relay.round() is not None and len(texts(engines)) > before)


class TestWaiting:
    def test_what_was_accepted_counts_when_it_was_taken_over(self, engines: Engines) -> None:
        log = RelayedLog(relayed(engines))
        accept(engines, (0, record("#a")), (2, record("#b")))
        asked = log.acknowledged(OWNER)
        for _ in range(3):
            assert log.offset_of(asked) is None
        with running(engines):
            wait_for(lambda: log.offset_of(asked) is not None)
        assert log.offset_of(asked) == 2
        assert sorted(texts(engines)) == ["#a", "#b"]
        assert log.offset_of(asked) == 2  # and it stays so
        assert log.trim(0) == 0

    def test_later_records_are_not_waited_for(self, engines: Engines) -> None:
        log = RelayedLog(relayed(engines))
        with running(engines):
            accept(engines, (0, record("#a")))
            asked = log.acknowledged(OWNER)
            wait_for(lambda: log.offset_of(asked) is not None)
        first = log.offset_of(asked)
        accept(engines, (0, record("#b")))  # that nobody takes over
        assert log.offset_of(asked) == first
        assert log.offset_of(log.acknowledged(OWNER)) is None


@pytest.mark.slow
@pytest.mark.faults
class TestFaults:
    def test_a_database_that_is_away_is_waited_for(
        self, engines: Engines, postgres: PostgresServer, postgres_url: str
    ) -> None:
        with running(engines) as relay:
            accept(engines, (0, record("#before")))
            wait_for(lambda: texts(engines) == ["#before"])
            postgres.close(postgres_url)
            for number in range(20):  # requests are accepted all the same
                accept(engines, (number % 3, record(f"#{number}")))
            wait_for(lambda: relay.fault is not None)
            postgres.reopen(postgres_url)
            wait_for(lambda: relay.fault is None)

            def taken_over() -> bool:
                try:
                    return len(texts(engines)) == 21
                except DatabaseError:
                    return False

            wait_for(taken_over)
            assert sorted(texts(engines)) == sorted(["#before", *(f"#{number}" for number in range(20))])

    def test_a_broker_that_was_killed_is_read_again(
        self, options: EngineOptions, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("broker")
        with own_broker(folder) as broker:
            broker.start()
            there = replace(options, event_log_url=f"kafka://{broker.address}/events?partitions=3")
            with opened(there, tmp_path) as engines, running(engines):
                sent = _sent_over_a_crash(engines, broker)
                wait_for(lambda: set(sent) <= set(texts(engines)))
                found = texts(engines)
                assert all(found.count(text) == 1 for text in sent)


def _sent_over_a_crash(engines: Engines, broker: Broker) -> list[str]:
    """What was acknowledged before and after a crash of the broker."""
    chance, sent = random.Random(SEED), []

    def send(text: str) -> bool:
        try:
            accept(engines, (chance.randrange(3), record(text)))
        except EventLogFullError:
            return False
        sent.append(text)
        return True

    for number in range(30):
        assert send(f"#before-{number}")
    broker.kill()
    assert not send("#lost")
    broker.start()
    wait_for(lambda: send("#again"))
    for number in range(30):
        wait_for(lambda number=number: send(f"#after-{number}"))
    return sent
