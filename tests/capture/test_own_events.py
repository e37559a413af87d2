"""Events that the server itself makes: those that hog functions capture."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.embedded import EmbeddedEventLog

from hoglab.accounts.service import AccountService
from hoglab.capture.records import decode_record
from hoglab.capture.service import Capture
from hoglab.delivery.execution.capturing import CaptureRefusedError
from hoglab.storage.database import Database, tables
from hoglab.storage.event_log.log import LogLimits

EVENT = {"event": "echo", "distinct_id": "ada", "uuid": "01a20360-0a0b-73fb-a4c1-8fb03226bf01"}


def capture_into(database: Database, log: EmbeddedEventLog, event: dict[str, Any], **options: Any) -> None:
    accounts = AccountService(database)
    with database.read() as connection:
        project_id = connection.execute(select(tables.project.c.id)).scalars().first()
    assert project_id is not None
    capture = Capture(log, accounts.project_by_token, accounts.project)
    try:
        asyncio.run(capture.accept_own(project_id, event, **options))
    finally:
        capture.close()


def events_of(log: EmbeddedEventLog) -> list[str]:
    records = log.read(0, max_records=10, max_bytes=1 << 20)
    return [one.event for record in records for one in decode_record(record.payload).envelope.events]


def test_what_may_never_be_stored_is_refused_for_good(database: Database, log: EmbeddedEventLog) -> None:
    for event in ({**EVENT, "properties": {"text": "x" * 1_000_000}}, {**EVENT, "event": 7}):
        with pytest.raises(CaptureRefusedError) as caught:
            capture_into(database, log, event)
        assert not caught.value.for_now
    assert events_of(log) == []


def test_an_event_that_nobody_can_send_again_is_taken_however_much_waits(
    database: Database, folder: Path
) -> None:
    log = EmbeddedEventLog(folder / "queue.db", limits=LogLimits(max_backlog_bytes=1))
    try:
        with pytest.raises(CaptureRefusedError, match="retry") as caught:
            capture_into(database, log, EVENT)
        assert caught.value.for_now
        capture_into(database, log, EVENT, insist=True)
        assert events_of(log) == ["echo"]
    finally:
        log.close()
