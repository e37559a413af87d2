"""Capture into an event log of several partitions: Kafka, beside PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.kafka import new_topic
from tests.waiting import PATIENCE_S

from hoglab.capture.decoding import Query
from hoglab.capture.partitioning import partition_of
from hoglab.capture.records import decode_record
from hoglab.capture.refusal import Refusal
from hoglab.capture.service import Capture, CaptureLimits, PathRules, Request
from hoglab.capture.v1 import V1Head
from hoglab.storage.engines import EngineOptions, SharedEngines, upgrade_databases
from hoglab.storage.event_log.kafka import KafkaEventLog
from hoglab.storage.table_files import TableDirectory

MIB = 1024 * 1024
pytestmark = pytest.mark.timeout(900)  # of which a broker may need much to start
RULES = PathRules(body_limit=20 * MIB, event_limit=20 * MIB)


@dataclass
class Project:
    id: int = 5
    api_token: str = "phc_t"


@pytest.fixture
def options(kafka: str, postgres_url: str, tmp_path: Path) -> EngineOptions:
    upgrade_databases(postgres_url)
    return EngineOptions(
        tables=TableDirectory(tmp_path),
        database_url=postgres_url,
        event_log_url=f"kafka://{kafka}/{new_topic()}?partitions=4",
    )


@pytest.fixture
def log(options: EngineOptions) -> Iterator[KafkaEventLog]:
    with SharedEngines.on_server(options) as engines:
        assert isinstance(engines.accepting, KafkaEventLog)
        yield engines.accepting


@pytest.fixture
def capture(log: KafkaEventLog) -> Iterator[Capture]:
    capture = Capture(
        log,
        lambda token: Project() if token == "phc_t" else None,
        lambda number: Project() if number == 5 else None,
        limits=CaptureLimits(event=20 * MIB),
    )
    yield capture
    capture.close()


def send(capture: Capture, body: Any) -> int:
    request = Request(orjson.dumps(body), Query(), b"application/json", b"", "10.0.0.1")
    return asyncio.run(capture.accept(request, RULES))


def stored(log: KafkaEventLog, count: int) -> Counter[tuple[int, str, str]]:
    """Partition, distinct id and name of the events in the log, once there are so many."""
    found: Counter[tuple[int, str, str]] = Counter()
    readers = [log.partition(number) for number in range(log.partitions)]
    positions = [0] * log.partitions
    deadline = time.monotonic() + PATIENCE_S
    while found.total() < count and time.monotonic() < deadline:
        for number, reader in enumerate(readers):
            reader.wait(positions[number], 0.1)
            for record in reader.read(positions[number], max_records=1000, max_bytes=64 * MIB):
                positions[number] = record.offset
                events = decode_record(record.payload).envelope.events
                found.update((number, event.distinct_id, event.event or "") for event in events)
    for reader in readers:
        reader.close()
    return found


def test_the_events_of_a_request_are_in_the_partitions_of_their_distinct_ids(
    capture: Capture, log: KafkaEventLog
) -> None:
    names = [f"u{number}" for number in range(30)]
    batch = [{"event": "seen", "distinct_id": name} for name in names]
    assert send(capture, {"api_key": "phc_t", "batch": batch}) == 30
    expected = Counter((partition_of(5, name, 4), name, "seen") for name in names)
    assert len({partition for partition, _, _ in expected}) == 4
    assert stored(log, 30) == expected


def test_every_way_in_leads_there(capture: Capture, log: KafkaEventLog) -> None:
    send(capture, {"api_key": "phc_t", "event": "single", "distinct_id": "u1"})
    event = {
        "event": "v1",
        "uuid": "0199c2f6-7a50-7000-8000-000000000001",
        "distinct_id": "u2",
        "timestamp": "2026-11-21T00:00:00Z",
        "properties": {},
    }
    head = V1Head("phc_t", "", b"", "2026-11-21T00:00:00Z", "library", "1.0")
    body = orjson.dumps({"batch": [event]})
    asyncio.run(capture.accept_v1(body, head, ip=None))
    own = {"event": "own", "distinct_id": "u3", "uuid": event["uuid"]}
    asyncio.run(capture.accept_own(5, own, insist=True))
    assert stored(log, 3) == Counter(
        (partition_of(5, name, 4), name, event)
        for name, event in (("u1", "single"), ("u2", "v1"), ("u3", "own"))
    )


def test_an_event_that_the_topic_does_not_take_is_refused_and_a_request_that_is_too_large_is_not(
    capture: Capture, log: KafkaEventLog
) -> None:
    log.max_record_bytes = 100_000
    large = {"event": "e", "distinct_id": "u", "properties": {"t": "x" * 60_000}}
    assert send(capture, {"api_key": "phc_t", "batch": [large] * 5}) == 5
    assert stored(log, 5).total() == 5
    with pytest.raises(Refusal) as caught:
        send(capture, {"api_key": "phc_t", "batch": [{**large, "properties": {"t": "x" * 200_000}}]})
    assert caught.value.status == 413


def test_a_log_that_is_full_asks_to_come_back(capture: Capture, log: KafkaEventLog) -> None:
    log.close()
    with pytest.raises(Refusal) as caught:
        send(capture, {"api_key": "phc_t", "event": "e", "distinct_id": "u"})
    assert (caught.value.status, caught.value.retry_after_s) == (503, 5)


def test_the_client_is_asked_for_where_it_is_missing() -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\nfrom hoglab.storage.event_log import kafka_topic"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'hoglab[kafka]'" in found.stderr


@pytest.mark.parametrize("client", ["confluent_kafka", "xxhash", "psycopg", "clickhouse_connect"])
def test_a_server_of_a_directory_needs_no_client_of_another_engine(client: str) -> None:
    program = f"import sys; sys.modules['{client}'] = None\nimport hoglab.app"
    subprocess.run([sys.executable, "-c", program], check=True)
