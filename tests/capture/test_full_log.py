"""The log is full for a while: the real Python SDK comes back until everything is stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import posthog
import pytest
from tests.embedded import EmbeddedEventLog

from hoglab.capture.records import decode_record
from hoglab.http.server import Address
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log import log as log_module
from hoglab.storage.event_log.log import LogLimits

EVENTS = 120

pytestmark = [pytest.mark.clients, pytest.mark.faults]


class SmallLog(EmbeddedEventLog):
    """A log that is soon full, and says so once."""

    refused = threading.Event()

    async def append(self, payload: bytes, **options: Any) -> int:
        try:
            return await super().append(payload, **options)
        except EventLogFullError:
            self.refused.set()
            raise


@pytest.fixture
def log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedEventLog]:
    monkeypatch.setattr(log_module, "RETRY_BACKLOG_S", 1)
    opened = SmallLog(folder / "queue.db", limits=LogLimits(max_backlog_bytes=15_000))
    opened.refused.clear()
    yield opened
    opened.close()


def test_nothing_is_lost_while_the_log_is_full(server: Any, log: SmallLog, address: Address) -> None:
    client = posthog.Posthog(
        "phc_first_project", host=address.url, flush_at=10, flush_interval=0.05, max_retries=20
    )
    sent = {client.capture("e", distinct_id=f"u{n}", properties={"text": "x" * 300}) for n in range(EVENTS)}
    assert log.refused.wait(20)
    arrived: list[str | None] = []
    finished = threading.Event()

    def consume() -> None:
        position = 0
        while not finished.is_set() or log.last_offset() > position:
            for record in log.read(position, max_records=1, max_bytes=2**20):
                arrived.extend(event.uuid for event in decode_record(record.payload).envelope.events)
                position = record.offset
                log.commit("ingestion", position)
            finished.wait(0.01)

    consumer = threading.Thread(target=consume)
    consumer.start()
    client.shutdown()
    finished.set()
    consumer.join(20)
    assert sorted(str(each) for each in arrived) == sorted(str(each) for each in sent)
