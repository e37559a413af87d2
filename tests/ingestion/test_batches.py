"""Records cut into batches, and batches made one ahead of who uses them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from tests.ingestion.conftest import NOW, record

from hoglab.ingestion.batches import Batch, BatchSize, Unreadable, ahead, batches_of
from hoglab.storage.event_log import LogRecord

ANY_BYTES = 1_000_000


def records_of(*sizes: int) -> list[LogRecord]:
    """Records with so many events each; one with none cannot be read."""
    made = []
    for offset, size in enumerate(sizes, 1):
        payload = (
            record(*({"event": f"e{offset}", "distinct_id": "u"} for _ in range(size))) if size else b"?"
        )
        made.append(LogRecord(offset, NOW, payload))
    return made


def offsets(batch: Batch | Unreadable) -> list[int] | str:
    if isinstance(batch, Unreadable):
        return f"{batch.record.offset} unreadable"
    assert [event.log_offset for event in batch.events] == sorted(event.log_offset for event in batch.events)
    assert {event.log_offset for event in batch.events} == {each.offset for each in batch.records}
    return [each.offset for each in batch.records]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), []),
        ((1, 2), [[1, 2]]),
        ((2, 2), [[1], [2]]),
        ((5, 1, 2), [[1], [2, 3]]),
        ((1, 0, 1), [[1], "2 unreadable", [3]]),
        ((0, 0, 1), ["1 unreadable", "2 unreadable", [3]]),
        ((1, 0), [[1], "2 unreadable"]),
    ],
)
def test_batches_keep_the_order_and_the_limit_of_events(
    sizes: tuple[int, ...], expected: list[object]
) -> None:
    batches = batches_of(records_of(*sizes), max_events=lambda: 3, max_json_bytes=ANY_BYTES)
    assert [offsets(batch) for batch in batches] == expected


def test_batches_keep_the_limit_of_bytes() -> None:
    records = records_of(3, 3, 3, 3)
    (alone,) = batches_of(records[:1], max_events=lambda: 100, max_json_bytes=ANY_BYTES)
    assert isinstance(alone, Batch)
    batches = batches_of(records, max_events=lambda: 100, max_json_bytes=2 * alone.json_bytes)
    assert [offsets(batch) for batch in batches] == [[1, 2], [3, 4]]
    batches = batches_of(records, max_events=lambda: 100, max_json_bytes=1)
    assert [offsets(batch) for batch in batches] == [[1], [2], [3], [4]]


def test_the_next_item_is_made_while_one_is_in_use() -> None:
    made = [threading.Event() for _ in range(5)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    with ThreadPoolExecutor(1) as worker:
        used = []
        for number in ahead(items(), worker):
            used.append(number)
            assert all(event.wait(20) for event in made[: number + 2])
            assert not any(event.is_set() for event in made[number + 2 :])  # one, and no more
    assert used == [0, 1, 2, 3, 4]


def test_nothing_is_made_ahead_of_nothing() -> None:
    with ThreadPoolExecutor(1) as worker:
        assert list(ahead(iter(()), worker)) == []


def test_who_stops_early_leaves_the_worker_idle() -> None:
    with ThreadPoolExecutor(1) as worker:
        assert list(islice(ahead(iter(range(9)), worker), 3)) == [0, 1, 2]
        assert list(ahead(iter("ab"), worker)) == ["a", "b"]


def test_an_error_of_the_worker_reaches_who_waits_for_the_item() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with ThreadPoolExecutor(1) as worker:
        following = ahead(items(), worker)
        assert next(following) == 1
        with pytest.raises(OSError, match="gone"):
            next(following)


def test_batches_become_smaller_while_their_events_are_slow() -> None:
    size = BatchSize(5_000, first=1_000, least=100, wanted_s=5.0)
    found = []
    for events, seconds in [
        (1_000, 0.0),
        (2_000, 1.0),
        (4_000, 40.0),
        (500, 5.0),
        (500, 400.0),
        (1, 0.001),
        (9, 0.0),
    ]:
        size.note(events, seconds)
        found.append(size())
    assert found == [2_000, 4_000, 500, 500, 100, 200, 400]
    assert BatchSize(10, first=1_000, least=100, wanted_s=5.0)() == 10
    small = BatchSize(10, first=1_000, least=100, wanted_s=5.0)
    small.note(10, 1e9)
    assert small() == 10
