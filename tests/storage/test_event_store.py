"""The event store: what goes in comes out once, whatever is sent again; queries cannot hurt it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import duckdb
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.storage.event_rows import NOW, event_row

from hoglab.storage.event_store import (
    EventBatch,
    EventRow,
    EventStore,
    EventStoreUnavailableError,
    PersonOverride,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store import duckdb as store_module
from hoglab.storage.event_store.arrow import ArrowTable
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.rows import table_of

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=20,
)
"""What properties may hold when they are written; no encoder takes half a surrogate pair."""

SLOW = "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE hash(a.range, b.range) = 3"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DuckDbEventStore]:
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="200MB")
    yield store
    store.close()


def append(store: EventStore, *rows: EventRow, log_offset: int | None = None) -> frozenset[UUID]:
    """Store rows; the uuids of those that are new."""
    new = store.append(EventBatch(rows), log_offset=log_offset or max(row.log_offset for row in rows))
    assert list(new) == sorted(new)
    return frozenset(rows[position].uuid for position in new)


def query(store: EventStore, sql: str, **parameters: object) -> list[tuple[object, ...]]:
    with store.reader() as reader:
        return reader.execute(sql, parameters or None)


class TestRows:
    def test_it_is_an_event_store(self, store: DuckDbEventStore) -> None:
        as_protocol: EventStore = store
        assert as_protocol.position() == 0

    def test_every_field_comes_back(self, store: DuckDbEventStore) -> None:
        full = event_row(
            3,
            project_id=7,
            event="$pageview",
            distinct_id="Zoë \x00 😀",
            timestamp=datetime(1969, 7, 20, 20, 17, 40, 5, tzinfo=UTC),
            properties='{"city":"Zürich"}'.encode(),
            person_id=uuid4(),
            person_properties=b'{"email":"a@b.example"}',
            person_created_at=NOW - timedelta(days=3),
            person_mode="propertyless",
            elements_chain='button.buy:text="x"',
            groups={0: "acme", 4: "eu"},
            feature_flag="exp",
            feature_flag_response="test",
            session_id="s1",
        )
        bare = event_row(3, person_id=None)
        assert append(store, full, bare) == {full.uuid, bare.uuid}
        with store.reader() as reader:
            rows = reader.execute("SELECT * FROM events ORDER BY seq")
            found = [dict(zip(reader.columns(), row, strict=True)) for row in rows]
        assert [each.pop("seq") for each in found] == [1, 2]
        for row, stored in zip((full, bare), found, strict=True):
            for index in range(5):
                assert stored.pop(f"group_{index}") == row.groups.get(index)
            for name, value in stored.items():
                expected = getattr(row, name)
                if isinstance(expected, datetime):
                    expected = expected.replace(tzinfo=None)
                assert (value.encode() if isinstance(expected, bytes) else value) == expected, name

    def test_seq_ascends_over_batches_and_restarts(self, tmp_path: Path) -> None:
        for offset in (1, 2):
            store = DuckDbEventStore(tmp_path / "events.duckdb")
            append(store, event_row(offset), event_row(offset))
            store.close()
        store = DuckDbEventStore(tmp_path / "events.duckdb")
        assert query(store, "SELECT seq, log_offset FROM events ORDER BY seq") == [
            (1, 1),
            (2, 1),
            (3, 2),
            (4, 2),
        ]
        assert store.position() == 2
        store.close()

    def test_a_large_batch_with_holes(self, store: DuckDbEventStore) -> None:
        rows = [
            event_row(
                1, session_id=None if number % 3 else f"s{number}", groups={} if number % 2 else {1: "x"}
            )
            for number in range(5000)
        ]
        assert len(append(store, *rows)) == 5000
        counts = "SELECT count(*), count(session_id), count(group_1), count(DISTINCT uuid) FROM events"
        assert query(store, counts) == [(5000, 1667, 2500, 5000)]


class TestResends:
    def test_an_event_is_stored_once(self, store: DuckDbEventStore) -> None:
        first, second = event_row(1), event_row(1)
        append(store, first, second)
        again = replace(first, log_offset=2, captured_at=NOW + timedelta(minutes=3), event="changed")
        third = event_row(2)
        assert append(store, again, third) == {third.uuid}
        assert query(store, "SELECT event, count(*) FROM events GROUP BY event") == [("signup", 3)]

    def test_the_first_of_one_batch_wins(self, store: DuckDbEventStore) -> None:
        first = event_row(1, event="first")
        append(store, first, replace(first, event="second"), replace(first, project_id=2, event="other"))
        assert query(store, "SELECT event FROM events ORDER BY seq") == [("first",), ("other",)]

    def test_projects_do_not_meet(self, store: DuckDbEventStore) -> None:
        first = event_row(1)
        append(store, first)
        assert append(store, replace(first, project_id=2, log_offset=2)) == {first.uuid}
        assert query(store, "SELECT project_id FROM events ORDER BY seq") == [(1,), (2,)]

    @pytest.mark.parametrize("later", [timedelta(minutes=1), timedelta(days=40)])
    @pytest.mark.parametrize("age", [timedelta(0), timedelta(days=2), timedelta(days=4000)])
    def test_however_old_the_event_and_however_late_the_resend(
        self, store: DuckDbEventStore, later: timedelta, age: timedelta
    ) -> None:
        first = event_row(1, timestamp=NOW - age)
        append(store, first)
        between = [event_row(2, captured_at=NOW + later, timestamp=NOW + later) for _ in range(10)]
        append(store, *between)
        assert append(store, replace(first, log_offset=3, captured_at=NOW + later)) == frozenset()

    def test_a_clock_that_is_ahead(self, store: DuckDbEventStore) -> None:
        first = event_row(1, timestamp=NOW + timedelta(days=300))
        append(store, first)
        assert (
            append(store, replace(first, log_offset=2, captured_at=NOW + timedelta(hours=23))) == frozenset()
        )

    @pytest.mark.parametrize("later", [timedelta(seconds=1), timedelta(hours=30), timedelta(days=400)])
    def test_a_resend_without_timestamp(self, store: DuckDbEventStore, later: timedelta) -> None:
        """Events without a timestamp get the moment of their capture, another one with each resend."""
        first = event_row(1, timestamp=NOW, captured_at=NOW)
        append(store, first)
        again = replace(first, log_offset=2, timestamp=NOW + later, captured_at=NOW + later)
        assert append(store, again) == frozenset()

    def test_a_clock_that_is_a_little_ahead(self, store: DuckDbEventStore) -> None:
        first = event_row(1, timestamp=NOW + timedelta(minutes=59))
        append(store, first)
        for offset, later in ((2, timedelta(minutes=1)), (3, timedelta(hours=3)), (4, timedelta(days=9))):
            assert append(store, replace(first, log_offset=offset, captured_at=NOW + later)) == frozenset()

    def test_resends_among_events_of_all_ages(self, store: DuckDbEventStore) -> None:
        ages = [
            timedelta(seconds=-30),
            timedelta(0),
            timedelta(minutes=30),
            timedelta(days=3),
            timedelta(days=900),
        ]
        rows = [event_row(1, timestamp=NOW - age) for age in ages]
        append(store, *rows)
        fresh = [event_row(2, timestamp=NOW - age, captured_at=NOW + timedelta(hours=2)) for age in ages]
        resent = [replace(row, log_offset=2, captured_at=NOW + timedelta(hours=2)) for row in rows]
        assert append(store, *resent, *fresh) == {row.uuid for row in fresh}

    @pytest.mark.parametrize("year", [1, 9999])
    def test_a_moment_at_the_ends_of_time(self, store: DuckDbEventStore, year: int) -> None:
        first = event_row(1, timestamp=datetime(year, 1, 1, tzinfo=UTC))
        append(store, first)
        assert append(store, replace(first, log_offset=2)) == frozenset()


class TestPosition:
    def test_a_batch_without_events_moves_it(self, store: DuckDbEventStore) -> None:
        assert not store.append(EventBatch(()), log_offset=5)
        assert store.position() == 5

    def test_a_batch_of_the_past_is_answered_and_not_written(self, store: DuckDbEventStore) -> None:
        old, new = event_row(1), event_row(2)
        append(store, old)
        resent = replace(old, log_offset=2)
        assert append(store, resent, new) == {new.uuid}
        # After a crash the same records come again: the answers are those of the first time.
        assert append(store, old) == {old.uuid}
        assert append(store, resent, new) == {new.uuid}
        assert append(store, old, resent, new, log_offset=2) == {old.uuid, new.uuid}
        assert query(store, "SELECT count(*) FROM events") == [(2,)]
        assert store.position() == 2

    def test_a_batch_that_overlaps_with_the_past(self, store: DuckDbEventStore) -> None:
        rows = [event_row(offset) for offset in range(1, 7)]
        append(store, *rows[:3])
        never_stored = event_row(2)  # not in the first attempt, so not stored for that record
        answer = append(store, rows[1], never_stored, *rows[2:], log_offset=9)
        assert answer == {row.uuid for row in rows[1:]}
        assert query(store, "SELECT count(*) FROM events") == [(6,)]
        assert store.position() == 9

    def test_a_row_beyond_its_batch_is_a_mistake(self, store: DuckDbEventStore) -> None:
        with pytest.raises(ValueError, match="above that of its batch"):
            append(store, event_row(7), log_offset=6)
        assert store.position() == 0


class TestHostileText:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (b'{"a":"cut \\ud83d"}', "cut \ufffd"),
            (b'{"a":"\\udc00x","b":"\\ud83d\\ude00"}', "\ufffdx"),
            (b'{"a":"\xff"}', "\ufffd"),
            (b'{"a":"\xed\xa0\x80"}', "\ufffd\ufffd\ufffd"),
            (b'{"a":"x\x01"}', None),
            (b"", None),
            (b'{"a":1} and more', None),
            (b'{"a":' + b"[" * 100_000, None),
            (b'{"a":' + b"9" * 400 + b"}", "9" * 400),
            (b'{"a":1e999}', "1e999"),
            (b'{"a":"\\u0000"}', "\x00"),
        ],
    )
    def test_no_event_makes_a_query_fail(
        self, store: DuckDbEventStore, text: bytes, value: str | None
    ) -> None:
        append(store, event_row(1), event_row(1, properties=text), event_row(1, person_properties=text))
        found = query(
            store,
            """SELECT properties ->> '$."a"', person_properties ->> '$."a"' FROM events ORDER BY seq""",
        )
        assert found == [(None, None), (value, None), (None, value)]

    def test_other_texts_with_half_a_surrogate_pair(self, store: DuckDbEventStore) -> None:
        append(store, event_row(1, event="\ud800", distinct_id="a\udfff", groups={0: "\ud800"}))
        assert query(store, "SELECT event, distinct_id, group_0 FROM events") == [("?", "a?", "?")]

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=5), min_size=1, max_size=20))
    def test_what_an_encoder_wrote_needs_no_check(self, documents: list[dict[str, Any]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = DuckDbEventStore(Path(folder) / "events.duckdb")
            texts = [orjson.dumps(document) for document in documents]
            rows = [event_row(1, properties=text, person_properties=text) for text in texts]
            store.append(EventBatch(rows, is_checked=True), log_offset=1)
            valid = "SELECT bool_and(json_valid(properties) AND json_valid(person_properties)) FROM events"
            assert query(store, valid) == [(True,)]
            found = query(store, "SELECT properties, person_properties FROM events ORDER BY seq")
            store.close()
        assert found == [(text.decode(), text.decode()) for text in texts]


PEOPLE = [UUID(int=number) for number in range(1, 7)]


def resolve(merges: list[tuple[int, int]]) -> dict[int, int]:
    """Straightforward merging: everybody has a final person; who takes over is alive."""
    final = {number: number for number in range(6)}
    for old, new in merges:
        if old == new:
            continue
        if final[new] == old:
            final[new] = new
        target = final[new]
        final = {who: target if who == old or person == old else person for who, person in final.items()}
    return {who: person for who, person in final.items() if who != person}


class TestPersonOverrides:
    def overrides(self, store: EventStore) -> dict[tuple[object, ...], object]:
        rows = query(store, "SELECT project_id, old_person_id, person_id FROM person_override")
        assert len({row[:2] for row in rows}) == len(rows)
        return {row[:2]: row[2] for row in rows}

    def test_events_of_a_merged_person_are_found_under_the_new_one(self, store: DuckDbEventStore) -> None:
        a, b, c, *_ = PEOPLE
        rows = [event_row(1, person_id=who, event=str(who.int)) for who in (a, b, c)]
        other = event_row(1, person_id=a, project_id=2)
        store.append(EventBatch([*rows, other], [PersonOverride(1, a, b)]), log_offset=1)
        store.append(EventBatch((), [PersonOverride(1, b, c)]), log_offset=2)
        resolved = "SELECT project_id, person_id FROM resolved_events ORDER BY seq"
        assert query(store, resolved) == [(1, c), (1, c), (1, c), (2, a)]
        assert query(store, "SELECT person_id FROM events ORDER BY seq") == [(a,), (b,), (c,), (a,)]
        assert query(store, "SELECT person_id FROM resolved_events WHERE person_id IS NULL") == []

    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5), max_size=6
        )
    )
    def test_merges_in_any_order_and_grouping(self, batches: list[list[tuple[int, int]]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = DuckDbEventStore(Path(folder) / "events.duckdb")
            for offset, batch in enumerate(batches, 1):
                merges = [PersonOverride(1, PEOPLE[old], PEOPLE[new]) for old, new in batch]
                store.append(EventBatch((), merges), log_offset=offset)
            expected = resolve([merge for batch in batches for merge in batch])
            assert self.overrides(store) == {(1, PEOPLE[old]): PEOPLE[new] for old, new in expected.items()}
            store.close()

    def test_when_somebody_became_another_person(self, store: DuckDbEventStore) -> None:
        """A row says from which position on it is so; merges that change nothing leave it alone."""
        a, b, c, d, *_ = PEOPLE
        store.append(EventBatch((), [PersonOverride(1, a, b)]), log_offset=3)
        store.append(EventBatch((), [PersonOverride(1, c, b)]), log_offset=5)
        store.append(EventBatch((), [PersonOverride(1, a, b), PersonOverride(2, a, b)]), log_offset=7)
        since = "SELECT project_id, old_person_id, log_offset FROM person_override ORDER BY ALL"
        assert query(store, since) == [(1, a, 3), (1, c, 5), (2, a, 7)]
        store.append(EventBatch((), [PersonOverride(1, b, d)]), log_offset=8)
        assert query(store, since) == [(1, a, 8), (1, b, 8), (1, c, 8), (2, a, 7)]
        store.append(EventBatch((), [PersonOverride(1, d, a)]), log_offset=9)
        assert query(store, since) == [(1, b, 9), (1, c, 9), (1, d, 9), (2, a, 7)]


class TestReaders:
    def test_parameters_and_columns(self, store: DuckDbEventStore) -> None:
        append(store, event_row(1))
        with store.reader() as reader:
            assert reader.columns() == []
            sql = "SELECT event AS name, timestamp FROM events WHERE timestamp < $before AND project_id = $project"
            assert reader.execute(sql, {"before": NOW, "project": 1}) == [
                ("signup", (NOW - timedelta(seconds=5)).replace(tzinfo=None))
            ]
            assert reader.columns() == ["name", "timestamp"]
            early = NOW.astimezone(timezone(timedelta(hours=5))) - timedelta(seconds=5)
            assert reader.execute(sql, {"before": early, "project": 1}) == []
            assert reader.execute("SELECT len($moments)", {"moments": [NOW, NOW]}) == [(2,)]

    def test_a_query_that_takes_too_long(self, store: DuckDbEventStore) -> None:
        with store.reader() as reader:
            with pytest.raises(QueryTimeoutError, match=r"longer than 0\.05 s"):
                reader.execute(SLOW, timeout_s=0.05)
            assert reader.execute("SELECT 1", timeout_s=30) == [(1,)]

    def test_every_query_has_a_time_limit(self, tmp_path: Path) -> None:
        store = DuckDbEventStore(tmp_path / "events.duckdb", query_timeout_s=0.05)
        with pytest.raises(QueryTimeoutError):
            query(store, SLOW)
        store.close()

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT length(string_agg(md5(i::VARCHAR), ',')) FROM range(3000000) t(i)",  # cannot spill
            "SELECT count(*) FROM (SELECT DISTINCT md5(i::VARCHAR) FROM range(3000000) t(i))",  # spills too much
        ],
    )
    def test_a_query_that_needs_too_much_memory(self, tmp_path: Path, sql: str) -> None:
        store = DuckDbEventStore(tmp_path / "events.duckdb", memory="60MB", max_spill_bytes=8 * 1024 * 1024)
        with pytest.raises(QueryMemoryError, match="Out of Memory"):
            query(store, sql)
        assert query(store, "SELECT 1") == [(1,)]
        assert append(store, event_row(1))
        store.close()

    @pytest.mark.parametrize(
        "sql",
        ["SELEC 1", "SELECT nothing FROM events", "SELECT 'x'::INTEGER", "SELECT $missing", "SELECT 1/0::"],
    )
    def test_a_query_that_the_engine_refuses(self, store: DuckDbEventStore, sql: str) -> None:
        with pytest.raises(QueryError) as caught:
            query(store, sql)
        assert "\n" not in str(caught.value)
        assert query(store, "SELECT 1") == [(1,)]

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM read_text('/etc/hostname')",
            "SELECT * FROM glob('/*')",
            "COPY (SELECT 1) TO '/tmp/never.csv'",
            "ATTACH '/tmp/never.duckdb' AS other",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET memory_limit = '64GB'",
            "SET enable_external_access = true",
            "SELECT * FROM rows",  # a variable of this test
        ],
    )
    def test_sql_reaches_nothing_outside_the_store(self, store: DuckDbEventStore, sql: str) -> None:
        rows = [1]
        with pytest.raises(QueryError):
            query(store, sql)
        assert rows == [1]

    def test_a_health_check_does_not_wait_for_the_writer(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writing, go_on = threading.Event(), threading.Event()

        def slowly(rows: Sequence[EventRow], first_seq: int) -> ArrowTable:
            writing.set()
            assert go_on.wait(20)
            return table_of(rows, first_seq)

        monkeypatch.setattr(store_module, "table_of", slowly)
        with ThreadPoolExecutor(1) as writer:
            written = writer.submit(append, store, event_row(1))
            assert writing.wait(20)
            store.check()
            assert not written.done()
            go_on.set()
            assert len(written.result()) == 1

    def test_a_stream_is_of_one_state_and_may_be_left(self, store: DuckDbEventStore) -> None:
        append(store, *(event_row(1, distinct_id=f"u{number}") for number in range(10_000)))
        with store.reader() as reader:
            stream = reader.stream("SELECT distinct_id FROM events ORDER BY seq", rows=100)
            first = next(stream)
            append(store, *(event_row(2) for _ in range(10)))
            assert len(first) == 100
            assert [name for (name,) in first] == [f"u{number}" for number in range(100)]
            assert 100 + sum(map(len, stream)) == 10_000
            left = reader.stream("SELECT * FROM events WHERE seq > $after", {"after": 5}, rows=1)
            next(left)
            left.close()
            assert reader.execute("SELECT count(*) FROM events") == [(10_010,)]
            assert [*reader.stream("SELECT 1 WHERE false")] == []
            with pytest.raises(QueryError):
                next(reader.stream("SELECT nothing FROM events"))

    def test_a_stream_that_is_interrupted_says_so(self, store: DuckDbEventStore) -> None:
        with store.reader() as reader:
            stream = reader.stream("SELECT range FROM range(1000000000)", rows=10)
            next(stream)
            reader.interrupt()
            with pytest.raises(QueryCancelledError):
                list(stream)
            assert reader.execute("SELECT 1") == [(1,)]

    def test_many_readers_beside_the_writer(self, store: DuckDbEventStore) -> None:
        done = threading.Event()

        def read(_: int) -> list[int]:
            counts: list[int] = []
            while not done.is_set():
                [(count, distinct)] = query(store, "SELECT count(*), count(DISTINCT uuid) FROM events")
                assert count == distinct
                assert isinstance(count, int)
                counts.append(count)
            return counts

        with ThreadPoolExecutor(6) as pool:
            readers = pool.map(read, range(6))
            try:
                for offset in range(1, 21):
                    append(store, *(event_row(offset) for _ in range(50)))
            finally:
                done.set()
            for counts in readers:
                assert counts == sorted(counts)
                assert all(count % 50 == 0 for count in counts)  # never half a batch


class TestLife:
    def test_checkpointing_empties_the_write_ahead_log(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        wal = tmp_path / "events.duckdb.wal"
        append(store, event_row(1))
        store.checkpoint()
        assert wal.stat().st_size > 0  # too small to be worth it
        append(store, *(event_row(2, properties=b'{"x":"%d%s"}' % (n, b"y" * 3000)) for n in range(500)))
        store.checkpoint()
        assert not wal.exists() or wal.stat().st_size < 10_000
        assert query(store, "SELECT count(*) FROM events") == [(501,)]

    def test_checkpointing_while_a_query_runs_does_not_fail(self, store: DuckDbEventStore) -> None:
        append(store, *(event_row(1, properties=b'{"x":"%s"}' % (b"y" * 3000)) for _ in range(500)))
        with store.reader() as reader:
            rows = reader._cursor.execute("SELECT * FROM events")
            assert rows.fetchone()
            store.checkpoint()
            assert rows.fetchone()
        assert append(store, event_row(2))

    def test_blocks_have_a_place_of_their_own(self, tmp_path: Path) -> None:
        store = DuckDbEventStore(tmp_path / "events.duckdb", memory="300MiB")
        place = "SELECT value FROM duckdb_settings() WHERE name = 'block_allocator_memory'"
        assert query(store, place) == [("300.0 MiB",)]
        store.close()

    def test_it_does_without_that_place_where_addresses_are_few(self, tmp_path: Path) -> None:
        """DuckDB reserves addresses for most of the machine's memory."""
        work = (
            "import resource, sys; from pathlib import Path; "
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)); "
            "from hoglab.storage.event_store.duckdb import DuckDbEventStore as Store; "
            "store = Store(Path(sys.argv[1]), memory='300MiB'); "
            "store.reader().__enter__().execute("
            "'CREATE TABLE t AS SELECT md5(i::VARCHAR) AS x FROM range(900000) AS r(i)'); "
            "store.close(); print('done')"
        )
        command = [sys.executable, "-c", work, str(tmp_path / "events.duckdb")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout == "done\n", done.stderr

    def test_a_nearly_full_disk_is_refused(self, tmp_path: Path) -> None:
        store = DuckDbEventStore(tmp_path / "events.duckdb", min_free_disk_bytes=1 << 60)
        with pytest.raises(EventStoreUnavailableError, match="nearly full"):
            append(store, event_row(1))
        with pytest.raises(EventStoreUnavailableError):
            store.check()
        assert query(store, "SELECT count(*) FROM events") == [(0,)]
        store._min_free_disk_bytes = 0
        store.check()
        assert append(store, event_row(1))
        store.close()

    def test_a_batch_that_fails_halfway_leaves_nothing(
        self, store: DuckDbEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise duckdb.IOException("no space left on device")

        first = event_row(1)
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "write_overrides", fail)
            with pytest.raises(EventStoreUnavailableError, match="no space left"):
                store.append(EventBatch([first], [PersonOverride(1, *PEOPLE[:2])]), log_offset=1)
        assert store.position() == 0
        assert query(store, "SELECT count(*) FROM events") == [(0,)]
        assert append(store, first) == {first.uuid}

    def test_a_closed_store_says_so(self, store: DuckDbEventStore) -> None:
        store.close()
        store.close()
        with pytest.raises(EventStoreUnavailableError, match="closed"):
            append(store, event_row(1))
        with pytest.raises(EventStoreUnavailableError, match="closed"):
            query(store, "SELECT 1")
        store.checkpoint()

    def test_closing_ends_running_queries(self, store: DuckDbEventStore) -> None:
        def run() -> str:
            with pytest.raises(EventStoreUnavailableError) as caught:
                query(store, SLOW)
            return str(caught.value)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run)
            pause = threading.Event()
            while not store._file._active:
                pause.wait(0.001)
            pause.wait(0.05)  # let it get from taking the cursor into the query
            store.close()
            assert "closed" in running.result(timeout=20)

    def test_a_file_in_use_by_another_process(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path\n"
            "from hoglab.storage.event_store import EventStoreUnavailableError\n"
            "from hoglab.storage.event_store.duckdb import DuckDbEventStore\n"
            "try: DuckDbEventStore(Path(sys.argv[1]))\n"
            "except EventStoreUnavailableError as error: print(error)"
        )
        path = tmp_path / "events.duckdb"
        done = subprocess.run(
            [sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True
        )
        assert done.stdout.startswith(f"{path} is in use by process ")

    def test_a_file_that_is_no_store(self, tmp_path: Path) -> None:
        path = tmp_path / "events.duckdb"
        path.write_text("notes " * 1000)
        with pytest.raises(EventStoreUnavailableError, match="cannot be opened") as caught:
            DuckDbEventStore(path)
        assert "\n" not in str(caught.value)

    def test_a_store_of_a_newer_program(self, tmp_path: Path) -> None:
        path = tmp_path / "events.duckdb"
        DuckDbEventStore(path).close()
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE store_state SET schema_version = 999")
        with pytest.raises(EventStoreUnavailableError, match="newer than this program knows"):
            DuckDbEventStore(path)

    @pytest.mark.parametrize("is_closed", [True, False])
    def test_a_store_of_the_first_version_is_upgraded(self, tmp_path: Path, is_closed: bool) -> None:
        """Once, whether or not the process that did it closed the file."""
        path, (a, b, c, *_) = tmp_path / "events.duckdb", PEOPLE
        store = DuckDbEventStore(path)
        store.append(EventBatch([event_row(1, person_id=a)], [PersonOverride(1, a, b)]), log_offset=1)
        store.close()
        with duckdb.connect(str(path)) as connection:
            connection.execute("ALTER TABLE person_override DROP COLUMN log_offset")
            connection.execute("UPDATE store_state SET schema_version = 1")
        program = (
            "import os, sys; from pathlib import Path\n"
            "from hoglab.storage.event_store.duckdb import DuckDbEventStore\n"
            "store = DuckDbEventStore(Path(sys.argv[1]))\n"
            "if sys.argv[2] == 'True': store.close()\n"
            "os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", program, str(path), str(is_closed)], check=True)
        store = DuckDbEventStore(path)
        since = "SELECT old_person_id, person_id, log_offset FROM person_override ORDER BY ALL"
        assert query(store, since) == [(a, b, 0)]
        store.append(EventBatch([event_row(2, person_id=c)], [PersonOverride(1, c, b)]), log_offset=2)
        assert query(store, since) == [(a, b, 0), (c, b, 2)]
        assert query(store, "SELECT person_id FROM resolved_events") == [(b,), (b,)]
        assert query(store, "SELECT schema_version FROM store_state") == [(3,)]
        store.close()

    def test_opening_and_writing_need_no_heavy_imports(self, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path\n"
            "from hoglab.storage.event_store.duckdb import DuckDbEventStore\n"
            "from hoglab.storage.event_store import EventBatch\n"
            "from tests.storage.event_rows import event_row\n"
            "store = DuckDbEventStore(Path(sys.argv[1]))\n"
            "assert store.append(EventBatch([event_row(1)]), log_offset=1)\n"
            "store.close()\n"
            "sys.exit(not {'pyarrow', 'pandas'}.isdisjoint(sys.modules))"
        )
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "e.duckdb")], check=False, cwd=root
        )
        assert done.returncode == 0
