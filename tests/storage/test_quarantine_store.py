"""Records that were put aside, on each engine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.storage.engines import Engine

from hoglab.storage.event_log.quarantine import QuarantinedRecord, QuarantineState, QuarantineStore

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def store(engine: Engine) -> QuarantineStore:
    return QuarantineStore(engine.database)


def record(offset: int, payload: bytes = b"\x00x", **fields: Any) -> QuarantinedRecord:
    values = {"project_id": 1, "reason": "because", "quarantined_at": NOW, "is_replaying": False}
    return QuarantinedRecord(offset, size=len(payload), **(values | fields))


def put(store: QuarantineStore, *records: QuarantinedRecord, payload: bytes = b"\x00x") -> None:
    for each in records:
        assert store.put(each, payload, 1_000) is None


def test_records_come_back_as_they_went_in(store: QuarantineStore) -> None:
    first, second = record(7), record(3, project_id=None, reason="no project")
    put(store, first, second)
    assert store.page(None, None, 0) == [second, first]
    assert store.page(None, 1, 1) == [first]
    assert store.get(7, None) == (first, b"\x00x")
    assert store.get(8, None) is None
    assert store.state() == QuarantineState(2, 4)


def test_one_that_comes_again_takes_its_place(store: QuarantineStore) -> None:
    put(store, record(7))
    store.replay(None, None)
    put(store, record(7, reason="still"))
    assert store.page(None, None, 0) == [record(7, reason="still")]
    assert store.replaying(10) == []


def test_what_does_not_fit_changes_nothing(store: QuarantineStore) -> None:
    large = record(1, b"x" * 90)
    assert store.put(large, b"x" * 90, 50) is None  # alone, whatever its size
    assert store.put(record(2), b"xx", 91) == QuarantineState(1, 90)
    assert store.page(None, None, 0) == [large]
    assert store.put(record(2), b"xx", 92) is None
    # One that comes again has its own room.
    assert store.put(large, b"x" * 90, 92) is None


def test_projects_have_their_own(store: QuarantineStore) -> None:
    put(store, record(1), record(2, project_id=2), record(3, project_id=None))
    assert [each.offset for each in store.page(2, None, 0)] == [2]
    assert [store.count(project_id) for project_id in (1, 2, 3, None)] == [1, 1, 0, 3]
    assert store.get(1, 2) is None
    assert store.replay([1, 2, 3], 2) == 1
    assert store.discard([2, 3], 1) == 0
    assert store.discard(None, 1) == 1
    assert [each.offset for each in store.page(None, None, 0)] == [2, 3]


def test_what_goes_back_to_the_log_is_in_order(store: QuarantineStore) -> None:
    put(store, record(5), record(2), record(9))
    assert store.replay([9, 2], None) == 2
    assert store.replaying(10) == [(2, b"\x00x"), (9, b"\x00x")]
    assert store.replaying(1) == [(2, b"\x00x")]
    assert [each.is_replaying for each in store.page(None, None, 0)] == [True, False, True]
