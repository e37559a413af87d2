"""Reading stored events back, in whatever engine they are: the newest, those of a time, all of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace
from tests.storage.event_rows import NOW, event_row
from tests.storage.event_stores import ClickHouseStores, DuckDbStores, uuids

from hoglab.analysis.definitions.flag_properties import flag_property_seen
from hoglab.storage.event_store import EventBatch, EventRow, EventStore, PersonOverride, Wanted
from hoglab.storage.event_store.export import EventSelection, selected_lines
from hoglab.storage.event_store.history import TimeRange, newest

ADA, EVE = UUID(int=1), UUID(int=2)
ROWS = [
    event_row(
        1 + number // 3,
        event=("signup", "purchase", "page's \\ view")[number % 3],
        distinct_id=f"user-{number % 4}",
        timestamp=NOW - timedelta(hours=number * 7 % 50),
        person_id=None if number % 5 == 0 else ADA,
        properties=orjson.dumps({"number": number, **({"$feature/x": "a"} if number == 4 else {})}),
        person_created_at=NOW if number % 2 else None,
        groups={1: "acme"} if number % 7 == 0 else {},
        session_id="s" if number % 3 else None,
    )
    for number in range(60)
]
OTHERS = [event_row(21, project_id=2) for _ in range(3)]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    stores: Any
    if request.param == "duckdb":
        stores = DuckDbStores(folder)
    else:
        stores = ClickHouseStores(request.getfixturevalue("clickhouse"), folder)
    store = stores.open()
    store.append(EventBatch(ROWS[:30]), log_offset=10)
    store.append(EventBatch([*ROWS[30:], *OTHERS], [PersonOverride(1, ADA, EVE)]), log_offset=21)
    yield store
    store.close()
    if isinstance(stores, ClickHouseStores):
        stores.close()


def by_time(rows: list[EventRow]) -> list[UUID]:
    """The newest first, of one moment those that came last."""
    return [row.uuid for _, row in sorted(enumerate(rows), key=lambda each: (each[1].timestamp, each[0]))][
        ::-1
    ]


class TestNewest:
    def test_pages(self, store: EventStore) -> None:
        expected = by_time(ROWS)
        for limit, offset in ((10, 0), (10, 55), (100, 0), (1, 59), (5, 60)):
            found = store.newest_events(Wanted(1), ["uuid"], limit=limit, offset=offset, timeout_s=60)
            assert uuids(uuid for (uuid,) in found) == expected[offset : offset + limit]

    def test_bounds_are_exclusive(self, store: EventStore) -> None:
        after, before = NOW - timedelta(hours=30), NOW - timedelta(hours=10)
        wanted = Wanted(1, "event = $event", {"event": "page's \\ view"}, after=after, before=before)
        expected = by_time(
            [row for row in ROWS if row.event == "page's \\ view" and after < row.timestamp < before]
        )
        found = store.newest_events(wanted, ["uuid", "whole_properties"], limit=100, timeout_s=60)
        assert uuids(uuid for uuid, _ in found) == expected
        texts = {row.uuid: row.properties.decode() for row in ROWS}
        assert [text for _, text in found] == [texts[uuid] for uuid in expected]

    def test_one_by_its_id(self, store: EventStore) -> None:
        row = ROWS[17]
        wanted = Wanted(1, f"uuid = {store.dialect.uuid('$uuid')}", {"uuid": str(row.uuid)})
        found = store.newest_events(wanted, ["event", "distinct_id", "timestamp"], limit=2, timeout_s=60)
        assert found == [(row.event, row.distinct_id, row.timestamp.replace(tzinfo=None))]


class TestHistory:
    def test_the_last_that_came(self, store: EventStore) -> None:
        with store.reader() as reader:
            found = newest(reader, 1, 5)
            assert [row.uuid for _, row in found] == [row.uuid for row in reversed(ROWS[-5:])]
            seqs = [seq for seq, _ in found]
            assert seqs == sorted(seqs, reverse=True)
            before = newest(reader, 1, 100, names=["signup", "purchase"], before=seqs[-1])
            expected = [row.uuid for row in reversed(ROWS[:-5]) if row.event != "page's \\ view"]
            assert [row.uuid for _, row in before] == expected
            assert newest(reader, 1, 5, names=[]) == []
            assert newest(reader, 3, 5) == []

    def test_windows_of_a_time_give_whole_events(self, store: EventStore) -> None:
        since, until = NOW - timedelta(hours=40), NOW - timedelta(hours=3)
        expected = [
            replace(row, person_id=EVE if row.person_id == ADA else row.person_id)
            for row in ROWS
            if since <= row.timestamp < until
        ]
        wanted = TimeRange(1, since, until)
        with store.reader() as reader:
            extent = wanted.extent(reader)
            assert extent is not None
            assert extent.count == len(expected)
            middle = (extent.first_seq + extent.last_seq) // 2
            found = wanted.window(reader, extent.first_seq - 1, middle)
            found += wanted.window(reader, middle, extent.last_seq)
            assert [row for _, row in found] == expected
            assert TimeRange(9, since, until).extent(reader) is None


def test_all_as_lines(store: EventStore) -> None:
    before = NOW.replace(tzinfo=None) - timedelta(hours=5)
    selection = EventSelection(project_id=1, before=before)
    expected = [row for row in ROWS if row.timestamp.replace(tzinfo=None) < before]
    with store.reader() as reader, selected_lines(reader, selection, store.dialect) as (count, parts):
        lines = [orjson.loads(line) for part in parts for line in part]
    assert count == len(lines) == len(expected)
    for row, line in zip(expected, lines, strict=True):
        assert line == {
            "uuid": str(row.uuid),
            "event": row.event,
            "properties": row.properties.decode(),
            "elements_chain": "",
            "distinct_id": row.distinct_id,
            "team_id": 1,
            "person_id": None if row.person_id is None else str(EVE),
            "person_properties": "{}",
            "timestamp": str(row.timestamp.replace(tzinfo=None)),
            "created_at": str(row.captured_at.replace(tzinfo=None)),
        }


def test_whether_events_carry_flags(store: EventStore) -> None:
    seen = flag_property_seen(store)
    since = NOW - timedelta(days=3)
    assert seen(1, ["signup", "purchase"], since, 1000)
    assert not seen(1, ["signup", "page's \\ view"], since, 1000)
    assert not seen(1, ["purchase"], ROWS[4].timestamp + timedelta(seconds=1), 1000)
