"""Sealed events: found again, whole, in any order, and told from those that are not by nothing but their room."""

# ruff: noqa: S608 - names of our own

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.generated import examples
from tests.storage.event_rows import NOW, event_row

from hoglab.people.properties import mirror_initial_properties
from hoglab.storage.event_store import EventBatch, EventRow, Wanted
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.duckdb_file import DuckDbReader
from hoglab.storage.event_store.export import EventSelection, copy_events, selected_lines
from hoglab.storage.event_store.history import TimeRange, newest
from hoglab.storage.event_store.mirrored import NAMES, restored, shortened, whole
from hoglab.storage.event_store.sealed import newest as newest_module
from hoglab.storage.event_store.sealed.newest import newest_events
from hoglab.storage.event_store.sealed.sealing import SealingLimits, digest, digest_of

LIMITS = SealingLimits(segment_rows=500, busy_rows=200, idle_rows=50, recent_rows=40)
NAMES_OF_EVENTS = ("$pageview", "$pageleave", "purchase", "rare")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DuckDbEventStore]:
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="200MB")
    yield store
    store.close()


def visitor_row(log_offset: int, number: int, chance: random.Random) -> EventRow:
    """An event as ingestion makes it of a browser's."""
    name = chance.choices(NAMES_OF_EVENTS, (60, 30, 9, 1))[0]
    person = chance.randrange(40)
    properties = {
        "$browser": "Chrome",
        "$os": chance.choice(["Linux", None, 'Ünix "7"\\']),
        "$current_url": f"https://shop.example/{chance.randrange(30)}?a=[1,2],{{}}",
        "$screen_height": 900,
        "amount": number,
        **({"$set": {"email": "a@b.example"}} if chance.random() < 0.1 else {}),
        "nested": {"$browser": "inner"} if chance.random() < 0.1 else None,
    }
    mirror_initial_properties(name, properties)
    properties["$group_0"] = "acme"
    return event_row(
        log_offset,
        event=name,
        distinct_id=f"user-{person}",
        person_id=UUID(int=person + 1),
        timestamp=NOW + timedelta(seconds=number - (3000 if chance.random() < 0.05 else 0)),
        properties=orjson.dumps(properties),
        person_properties=orjson.dumps({"$browser": "Chrome", "n": number}),
    )


def fill(store: DuckDbEventStore, count: int, *, seed: int = 0, step: int = 100) -> list[EventRow]:
    chance = random.Random(seed)
    rows: list[EventRow] = []
    for _ in range(0, count, step):
        offset = store.position() + 1
        batch = [visitor_row(offset, len(rows) + number, chance) for number in range(step)]
        store.append(EventBatch(batch), log_offset=offset)
        rows += batch
    return rows


def seal_all(store: DuckDbEventStore, limits: SealingLimits = LIMITS, *, is_idle: bool = True) -> int:
    turns = 0
    while store.seal(limits, is_idle=is_idle):
        turns += 1
        assert turns < 50
    return turns


def ask(store: DuckDbEventStore, sql: str) -> list[tuple[object, ...]]:
    with store.reader() as reader:
        return reader.execute(sql)


def everything(store: DuckDbEventStore) -> list[tuple[object, ...]]:
    return ask(store, "SELECT * EXCLUDE (place, properties) FROM resolved_events ORDER BY seq")


class TestSealing:
    def test_nothing_changes_but_the_room(self, store: DuckDbEventStore) -> None:
        fill(store, 1_000)
        before = everything(store)
        assert seal_all(store)
        assert everything(store) == before
        assert ask(store, "SELECT count(*) FROM events") == [(LIMITS.recent_rows,)]
        assert ask(store, "SELECT count(*) FROM sealed_events") == [(960,)]

    def test_properties_are_kept_without_their_copies(self, store: DuckDbEventStore) -> None:
        fill(store, 400)
        seal_all(store)
        [(short, long)] = ask(
            store,
            "SELECT sum(length(properties)), sum(length(whole_properties)) FROM stored_events WHERE place >= 0",
        )
        assert isinstance(short, int)
        assert isinstance(long, int)
        assert short < 0.7 * long

    def test_a_segment_is_sorted_and_has_its_places(self, store: DuckDbEventStore) -> None:
        fill(store, 400)
        seal_all(store)
        rows = ask(store, "SELECT event, person_id, timestamp, seq FROM sealed_events ORDER BY place")
        assert rows == sorted(rows)  # type: ignore[type-var]
        assert ask(
            store,
            "SELECT count(*) FROM sealed_events AS e JOIN sealed_distinct_id AS i ON i.place = e.place "
            "WHERE i.digest = (md5_number_lower(project_id || ' ' || distinct_id) >> 32)::UINTEGER",
        ) == [(360,)]

    @given(st.integers(1, 2**31 - 1), st.text())
    def test_a_digest_is_the_same_in_both_languages(self, project_id: int, distinct_id: str) -> None:
        distinct_id = distinct_id.encode(errors="replace").decode()
        found = duckdb.execute(f"SELECT {digest('$1::INTEGER', '$2')}", [project_id, distinct_id]).fetchall()
        assert found == [(digest_of(project_id, distinct_id),)]

    def test_the_newest_events_stay_as_they_came(self, store: DuckDbEventStore) -> None:
        fill(store, 100)
        assert store.seal(LIMITS, is_idle=False) == 0
        assert store.seal(LIMITS, is_idle=True) == 60
        assert store.seal(LIMITS, is_idle=True) == 0

    def test_small_segments_are_merged(self, store: DuckDbEventStore) -> None:
        for part in range(8):
            fill(store, 100, seed=part)
            store.seal(LIMITS, is_idle=True)
        seal_all(store)
        sizes = ask(store, "SELECT last_place - first_place + 1 FROM sealed_segment ORDER BY first_seq")
        assert len(sizes) <= 3
        assert sum(size for (size,) in sizes) == 760  # type: ignore[misc]
        assert max(size for (size,) in sizes) <= LIMITS.segment_rows  # type: ignore[type-var]
        ranges = ask(store, "SELECT first_seq, last_seq FROM sealed_segment ORDER BY first_seq")
        assert [first for first, _ in ranges] == [1, *(last + 1 for _, last in ranges[:-1])]  # type: ignore[operator]

    def test_what_is_left_takes_no_room_of_what_is_gone(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hoglab.storage.event_store.sealed.sealing.SPARSE_ROWS", 100)
        fill(store, 400)
        store.checkpoint()
        ask(store, "FORCE CHECKPOINT")
        before = everything(store)
        seal_all(store)
        kept = "SELECT max(start + count) FROM pragma_storage_info('events')"
        assert ask(store, kept) == [(LIMITS.recent_rows,)]
        assert everything(store) == before
        fill(store, 100, seed=3)
        assert ask(store, "SELECT count(*), max(seq) FROM stored_events") == [(500, 500)]

    def test_resent_events_are_known(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        rows = fill(store, 400)
        seal_all(store)
        again = [replace(row, log_offset=99) for row in rows[:50]]
        assert store.append(EventBatch(again), log_offset=99) == []
        repeated = [row for row in rows if row.log_offset == 2]
        assert len(store.append(EventBatch(repeated), log_offset=2)) == 100
        store.close()
        for path in (tmp_path / "events.duckdb.keys").iterdir():
            path.unlink()
        reopened = DuckDbEventStore(tmp_path / "events.duckdb")
        try:
            again = [replace(row, log_offset=100) for row in rows]
            assert reopened.append(EventBatch(again), log_offset=100) == []
        finally:
            reopened.close()

    def test_a_failure_leaves_everything(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 400)
        before = everything(store)
        monkeypatch.setattr(
            "hoglab.storage.event_store.sealed.sealing.digest", lambda *_: "no_such_function()"
        )
        with pytest.raises(Exception, match="no_such_function"):
            store.seal(LIMITS, is_idle=True)
        assert everything(store) == before
        assert ask(store, "SELECT count(*) FROM sealed_events") == [(0,)]
        monkeypatch.undo()
        assert store.seal(LIMITS, is_idle=True) == 360

    def test_readers_and_the_writer_go_on_meanwhile(self, store: DuckDbEventStore) -> None:
        fill(store, 400)
        with store.reader() as reader:
            reader.execute("BEGIN TRANSACTION")
            assert reader.execute("SELECT count(*) FROM stored_events") == [(400,)]
            seal_all(store)
            fill(store, 100, seed=9)
            assert reader.execute("SELECT count(*), count(DISTINCT seq) FROM stored_events") == [(400, 400)]
            reader.execute("COMMIT")
            assert reader.execute("SELECT count(*), count(DISTINCT seq) FROM stored_events") == [(500, 500)]


COLUMNS = ("seq", "uuid", "event", "distinct_id", "timestamp", "whole_properties")


class TestNewest:
    """Every way of reading gives what a plain sort of all events gives."""

    @pytest.mark.parametrize("sealed", [False, True])
    def test_any_condition(self, store: DuckDbEventStore, sealed: bool) -> None:
        fill(store, 1_500)
        store.append(EventBatch([event_row(50, project_id=2, event="alone")]), log_offset=50)
        if sealed:
            seal_all(store)
        at = NOW + timedelta(seconds=700)
        cases = [
            Wanted(1),
            Wanted(2),
            Wanted(3),
            Wanted(1, "event = $event", {"event": "rare"}),
            Wanted(1, "event = $event", {"event": "$pageview"}),
            Wanted(1, "event = $event", {"event": "never"}),
            Wanted(1, after=at),
            Wanted(1, before=at),
            Wanted(1, after=NOW, before=at),
            Wanted(1, after=at, before=NOW),
            Wanted(1, before=NOW - timedelta(days=400)),
            Wanted(1, before=datetime(1, 1, 1, tzinfo=UTC)),
            Wanted(1, "distinct_id = 'user-3'", distinct_ids=["user-3"]),
            Wanted(1, "distinct_id = 'user-3'", distinct_ids=["user-3"], after=NOW, before=at),
            Wanted(1, "distinct_id = 'nobody'", distinct_ids=["nobody"]),
            Wanted(1, "distinct_id = ''", distinct_ids=[]),
            Wanted(1, "contains(whole_properties, '$set_once')"),
            Wanted(
                1, "distinct_id = 'user-3' AND contains(whole_properties, '$set')", distinct_ids=["user-3"]
            ),
        ]
        for wanted in cases:
            for limit, offset in ((1, 0), (100, 0), (7, 30), (2_000, 0)):
                assert self.found(store, wanted, limit, offset) == self.expected(
                    store, wanted, limit, offset
                ), wanted

    def found(
        self, store: DuckDbEventStore, wanted: Wanted, limit: int, offset: int = 0
    ) -> list[tuple[object, ...]]:
        with store.reader() as reader:
            return newest_events(reader, wanted, COLUMNS, limit=limit, offset=offset, timeout_s=30)

    def expected(
        self, store: DuckDbEventStore, wanted: Wanted, limit: int, offset: int
    ) -> list[tuple[object, ...]]:
        bounds = [
            f"timestamp {sign} TIMESTAMP '{bound.replace(tzinfo=None).isoformat()}'"
            for sign, bound in ((">", wanted.after), ("<", wanted.before))
            if bound is not None
        ]
        where = " AND ".join([f"project_id = {wanted.project_id}", wanted.condition, *bounds])
        sql = (
            f"SELECT {', '.join(COLUMNS)} FROM stored_events WHERE {where} "
            f"ORDER BY timestamp DESC, seq DESC LIMIT {limit} OFFSET {offset}"
        )
        with store.reader() as reader:
            return reader.execute(sql, dict(wanted.parameters) or None)

    def test_somebody_with_more_events_than_the_index_is_asked_for(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 1_000)
        seal_all(store)
        monkeypatch.setattr("hoglab.storage.event_store.sealed.newest.MAX_PLACES", 5)
        wanted = Wanted(1, "distinct_id = 'user-3'", distinct_ids=["user-3"])
        assert self.found(store, wanted, 10) == self.expected(store, wanted, 10, 0)

    def test_sealed_rows_of_somebody_are_looked_for_once_and_restored_outside_of_the_engine(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 1_000)
        seal_all(store)
        statements: list[str] = []
        execute = DuckDbReader.execute

        def noting(reader: DuckDbReader, sql: str, *args: Any, **named: Any) -> Any:
            statements.append(sql)
            return execute(reader, sql, *args, **named)

        monkeypatch.setattr(DuckDbReader, "execute", noting)
        assert self.found(store, Wanted(1, "distinct_id = 'user-3'", distinct_ids=["user-3"]), 100)
        assert not [sql for sql in statements if "regexp" in sql]  # 2 ms to plan, 0.1 ms for each event
        # Of each of these the engine reads the places of all events: more the more are stored.
        assert len([sql for sql in statements if "place IN" in sql and "sealed_events" in sql]) == 1

    def test_two_distinct_ids_with_one_digest_are_told_apart(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 400)
        monkeypatch.setattr("hoglab.storage.event_store.sealed.sealing.digest", lambda *_: "7::UINTEGER")
        monkeypatch.setattr("hoglab.storage.event_store.sealed.newest.digest_of", lambda *_: 7)
        seal_all(store)
        wanted = Wanted(1, "distinct_id = 'user-3'", distinct_ids=["user-3"])
        assert self.found(store, wanted, 10) == self.expected(store, wanted, 10, 0)

    def test_events_that_are_sealed_meanwhile_are_found(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store, 400)
        expected = self.expected(store, Wanted(1), 300, 0)
        rows = newest_module.rows_at

        def sealed_before(*args: Any) -> Any:
            assert seal_all(store)
            return rows(*args)

        monkeypatch.setattr(newest_module, "rows_at", sealed_before)
        assert self.found(store, Wanted(1), 300) == expected

    def test_history_reads_sealed_events(self, store: DuckDbEventStore) -> None:
        rows = fill(store, 400)
        seal_all(store)
        with store.reader() as reader:
            found = newest(reader, 1, 390)
            assert [row.uuid for _, row in found] == [row.uuid for row in reversed(rows[10:])]
            span = TimeRange(1, NOW - timedelta(days=1), NOW + timedelta(days=1))
            extent = span.extent(reader)
            assert extent is not None
            assert (extent.first_seq, extent.last_seq, extent.count) == (1, 400, 400)
            window = span.window(reader, 100, 200)
        assert [seq for seq, _ in window] == list(range(101, 201))
        assert [row.properties for _, row in window] == [row.properties for row in rows[100:200]]


class TestExport:
    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_sealed_events_are_exported_in_the_order_of_their_ingestion(
        self, store: DuckDbEventStore, tmp_path: Path, file_format: str
    ) -> None:
        rows = fill(store, 1_200)
        seal_all(store)
        selection = EventSelection(project_id=1)
        with store.reader() as reader, selected_lines(reader, selection, store.dialect) as (count, parts):
            lines = [orjson.loads(line) for part in parts for line in part]
        assert count == 1_200
        expected = [(str(row.uuid), row.properties.decode()) for row in rows]
        assert [(line["uuid"], line["properties"]) for line in lines] == expected
        store.close()
        target = tmp_path / f"out.{file_format}"
        assert copy_events(tmp_path / "events.duckdb", target, selection, file_format=file_format) == 1_200
        assert not list(tmp_path.glob("*.sorting*"))
        reader_of = {"json": "read_json", "parquet": "read_parquet"}[file_format]
        again = DuckDbEventStore(tmp_path / "other.duckdb")
        again.close()
        with duckdb.connect() as connection:
            found = connection.execute(f"SELECT uuid::VARCHAR FROM {reader_of}('{target}')").fetchall()
        assert [uuid for (uuid,) in found] == [str(row.uuid) for row in rows]


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield an engine without a file, for all examples: to open one takes longer than to ask it."""
    with duckdb.connect() as connection:
        yield connection


class TestCopies:
    @settings(max_examples=examples(150), deadline=None)
    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from([*NAMES[:12], "$set", "$set_once", "$lib", "x", ',"$set":{', "$initial_os"]),
                st.none()
                | st.booleans()
                | st.integers(-5, 5)
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(st.sampled_from('a",{}[]:\\$é😀\n'), max_size=8)
                | st.dictionaries(st.sampled_from(["$os", "$browser", "a"]), st.integers(0, 3), max_size=2)
                | st.lists(st.text('ab,"', max_size=3), max_size=2),
                max_size=8,
            ),
            min_size=1,
            max_size=8,
        )
    )
    def test_any_text_comes_back_letter_by_letter(
        self, engine: duckdb.DuckDBPyConnection, documents: list[dict[str, object]]
    ) -> None:
        texts = []
        for number, document in enumerate(documents):
            if number % 2:
                mirror_initial_properties("$pageview", document)
            texts.append(orjson.dumps(document).decode())
        self.check(engine, texts)

    def test_text_that_is_no_json_comes_back(self, engine: duckdb.DuckDBPyConnection) -> None:
        self.check(
            engine, ["{}", "", '{"$set":{', ',"$set":{},"$set_once":{}}', '{"a":1,"$set":{},"$set_once":{}}']
        )

    @settings(max_examples=examples(150), deadline=None)
    @given(
        st.lists(
            st.lists(
                st.sampled_from(['"', "\\", "\n", "é", "😀", "n", "1", '"$os":', '"$os":"', ',"', "}", ","])
            ).map("".join),
            min_size=1,
            max_size=8,
        )
    )
    def test_text_that_looks_like_pairs_comes_back(
        self, engine: duckdb.DuckDBPyConnection, heads: list[str]
    ) -> None:
        values = "(SELECT unnest($texts::VARCHAR[]) AS properties, unnest($at::INTEGER[]) AS copied_at)"
        asked = {"texts": [f"{head}rest" for head in heads], "at": [len(head) for head in heads]}
        found = engine.execute(f"SELECT {whole('properties', 'copied_at')} FROM {values}", asked).fetchall()
        assert [restored(f"{head}rest", len(head)) for head in heads] == [text for (text,) in found]

    def check(self, engine: duckdb.DuckDBPyConnection, texts: list[str]) -> None:
        values = "(SELECT unnest($texts::VARCHAR[]) AS properties, unnest(range(len($texts))) AS place)"
        found = engine.execute(
            f"SELECT {whole('properties', 'copied_at')}, properties, copied_at FROM ({shortened(values)}) "
            "ORDER BY place",
            {"texts": texts},
        ).fetchall()
        assert [text for text, _, _ in found] == texts
        assert [restored(properties, copied_at) for _, properties, copied_at in found] == texts
