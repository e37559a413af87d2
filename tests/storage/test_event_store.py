"""The event store: what goes in comes out once, whatever is sent again; queries cannot hurt it."""

# ruff: noqa: S608 - texts of our own

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.generated import examples
from tests.storage.event_rows import NOW, event_row
from tests.storage.event_stores import ClickHouseStores, DuckDbStores, Stores, append, query, uuids

from hoglab.storage.event_store import (
    EventBatch,
    EventStore,
    PersonOverride,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

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


@pytest.fixture(params=["duckdb", "clickhouse"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """An empty place for a store, of each engine in turn."""
    if request.param == "duckdb":
        yield DuckDbStores(tmp_path)
        return
    with closing(ClickHouseStores(request.getfixturevalue("clickhouse"), tmp_path)) as stores:
        yield stores


@pytest.fixture
def store(stores: Stores) -> Iterator[EventStore]:
    store = stores.open()
    yield store
    store.close()


class TestRows:
    def test_it_is_an_event_store(self, store: EventStore) -> None:
        as_protocol: EventStore = store
        assert as_protocol.position() == 0

    def test_every_field_comes_back(self, store: EventStore) -> None:
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
            rows = reader.execute("SELECT * FROM stored_events ORDER BY seq")
            found = [dict(zip(reader.columns(), row, strict=True)) for row in rows]
        first, second = (each.pop("seq") for each in found)
        assert first < second
        for row, stored in zip((full, bare), found, strict=True):
            for index in range(5):
                assert stored.pop(f"group_{index}") == row.groups.get(index)
            for name in ("place", "whole_properties", "log_partition", "log_index", "month"):
                stored.pop(name, None)  # where an engine has them
            stored["uuid"] = uuids([stored["uuid"]])[0]
            for name, value in stored.items():
                expected = getattr(row, name)
                if isinstance(expected, datetime):
                    expected = expected.replace(tzinfo=None)
                assert (value.encode() if isinstance(expected, bytes) else value) == expected, name

    def test_seq_ascends_over_batches_and_restarts(self, stores: Stores) -> None:
        for offset in (1, 2):
            store = stores.open()
            append(store, event_row(offset), event_row(offset))
            store.close()
        store = stores.open()
        found = query(store, "SELECT seq, log_offset FROM stored_events ORDER BY seq")
        assert [offset for _, offset in found] == [1, 1, 2, 2]
        assert len({seq for seq, _ in found}) == 4
        assert store.position() == 2
        store.close()

    def test_a_large_batch_with_holes(self, store: EventStore) -> None:
        rows = [
            event_row(
                1, session_id=None if number % 3 else f"s{number}", groups={} if number % 2 else {1: "x"}
            )
            for number in range(5000)
        ]
        assert len(append(store, *rows)) == 5000
        counts = "SELECT count(*), count(session_id), count(group_1), count(DISTINCT uuid) FROM stored_events"
        assert query(store, counts) == [(5000, 1667, 2500, 5000)]

    def test_a_batch_of_large_events(self, store: EventStore) -> None:
        """Of more than a client sends at once."""
        large = b'{"text":"%s"}' % (b"x" * 3_000)
        rows = [event_row(1, properties=large, distinct_id=f"user-{number}") for number in range(3_000)]
        assert len(append(store, *rows)) == 3_000
        assert query(store, "SELECT count(*), count(DISTINCT distinct_id) FROM stored_events") == [
            (3_000, 3_000)
        ]


class TestResends:
    def test_an_event_is_stored_once(self, store: EventStore) -> None:
        first, second = event_row(1), event_row(1)
        append(store, first, second)
        sent = b'{"plan":"pro","$sent_at":"2026-03-01T12:03:00.000Z"}'
        again = replace(first, log_offset=2, captured_at=NOW + timedelta(minutes=3), properties=sent)
        third = event_row(2)
        assert append(store, again, third) == {third.uuid}
        assert query(store, "SELECT properties, count(*) FROM stored_events GROUP BY properties") == [
            ('{"plan":"pro"}', 3)
        ]
        assert query(store, "SELECT count(*) FROM event_correction") == [(0,)]

    @pytest.mark.parametrize("together", [True, False])
    @pytest.mark.parametrize(
        "other",
        [
            {"project_id": 2},
            {"event": "other"},
            {"distinct_id": "user-2"},
            {"timestamp": NOW - timedelta(days=1)},
            {"timestamp": NOW + timedelta(hours=12)},  # the next day in UTC
        ],
        ids=lambda other: next(iter(other)),
    )
    def test_different_events_with_one_uuid_are_all_stored(
        self, store: EventStore, other: dict[str, Any], together: bool
    ) -> None:
        first = event_row(1)
        second = replace(first, log_offset=2, **other)
        if together:
            assert list(store.append(EventBatch([first, second]), log_offset=2)) == [0, 1]
        else:
            append(store, first)
            assert append(store, second) == {first.uuid}
        assert query(store, "SELECT count(*) FROM stored_events") == [(2,)]
        assert store.append(EventBatch([first, second]), log_offset=2) == [0, 1]  # as when it is replayed

    @pytest.mark.parametrize("together", [True, False])
    def test_the_last_of_equal_events_counts(self, store: EventStore, together: bool) -> None:
        first = event_row(1, properties=b'{"plan":"free"}')
        second = replace(
            first, log_offset=2, properties=b'{"plan":"pro"}', timestamp=NOW - timedelta(minutes=3)
        )
        if together:
            assert list(store.append(EventBatch([first, second]), log_offset=2)) == [0]
        else:
            append(store, first)
            assert append(store, second) == frozenset()
        columns = "properties, log_offset, first_offset"
        assert query(store, f"SELECT {columns} FROM stored_events") == [('{"plan":"pro"}', 2, 1)]
        assert list(store.append(EventBatch([first, second]), log_offset=2)) == [
            0
        ]  # it was new with the first

    @pytest.mark.parametrize("later", [timedelta(minutes=1), timedelta(days=40)])
    @pytest.mark.parametrize("age", [timedelta(0), timedelta(days=2), timedelta(days=4000)])
    def test_however_old_the_event_and_however_late_the_resend(
        self, store: EventStore, later: timedelta, age: timedelta
    ) -> None:
        first = event_row(1, timestamp=NOW - age)
        append(store, first)
        between = [event_row(2, captured_at=NOW + later, timestamp=NOW + later) for _ in range(10)]
        append(store, *between)
        assert append(store, replace(first, log_offset=3, captured_at=NOW + later)) == frozenset()

    def test_a_clock_that_is_ahead(self, store: EventStore) -> None:
        first = event_row(1, timestamp=NOW + timedelta(days=300))
        append(store, first)
        assert (
            append(store, replace(first, log_offset=2, captured_at=NOW + timedelta(hours=23))) == frozenset()
        )

    @pytest.mark.parametrize("later", [timedelta(seconds=1), timedelta(hours=11)])
    def test_a_resend_without_timestamp(self, store: EventStore, later: timedelta) -> None:
        """Events without a timestamp get the moment of their capture: of several the first one's stays."""
        first = event_row(1, timestamp=NOW, captured_at=NOW)
        append(store, first)
        again = replace(first, log_offset=2, timestamp=NOW + later, captured_at=NOW + later)
        assert append(store, again) == frozenset()
        assert query(store, "SELECT timestamp FROM stored_events") == [(NOW.replace(tzinfo=None),)]

    def test_a_clock_that_is_a_little_ahead(self, store: EventStore) -> None:
        first = event_row(1, timestamp=NOW + timedelta(minutes=59))
        append(store, first)
        for offset, later in ((2, timedelta(minutes=1)), (3, timedelta(hours=3)), (4, timedelta(days=9))):
            assert append(store, replace(first, log_offset=offset, captured_at=NOW + later)) == frozenset()

    def test_resends_among_events_of_all_ages(self, store: EventStore) -> None:
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
    def test_a_moment_at_the_ends_of_time(self, store: EventStore, year: int) -> None:
        first = event_row(1, timestamp=datetime(year, 1, 1, tzinfo=UTC))
        append(store, first)
        assert append(store, replace(first, log_offset=2)) == frozenset()


class TestPosition:
    def test_a_batch_without_events_moves_it(self, store: EventStore) -> None:
        assert not store.append(EventBatch(()), log_offset=5)
        assert store.position() == 5

    def test_a_batch_of_the_past_is_answered_and_not_written(self, store: EventStore) -> None:
        old, new = event_row(1), event_row(2)
        append(store, old)
        resent = replace(old, log_offset=2)
        assert append(store, resent, new) == {new.uuid}
        # After a crash the same records come again: the answers are those of the first time.
        assert append(store, old) == {old.uuid}
        assert append(store, resent, new) == {new.uuid}
        assert append(store, old, resent, new, log_offset=2) == {old.uuid, new.uuid}
        assert query(store, "SELECT count(*) FROM stored_events") == [(2,)]
        assert store.position() == 2

    def test_a_batch_that_overlaps_with_the_past(self, store: EventStore) -> None:
        rows = [event_row(offset) for offset in range(1, 7)]
        append(store, *rows[:3])
        never_stored = event_row(2)  # not in the first attempt, so not stored for that record
        answer = append(store, rows[1], never_stored, *rows[2:], log_offset=9)
        assert answer == {row.uuid for row in rows[1:]}
        assert query(store, "SELECT count(*) FROM stored_events") == [(6,)]
        assert store.position() == 9

    def test_a_row_beyond_its_batch_is_a_mistake(self, store: EventStore) -> None:
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
    def test_no_event_makes_a_query_fail(self, store: EventStore, text: bytes, value: str | None) -> None:
        append(store, event_row(1), event_row(1, properties=text), event_row(1, person_properties=text))
        parameters = store.dialect.parameters()
        texts = [
            store.dialect.property_text(column, "a", parameters)
            for column in ("properties", "person_properties")
        ]
        found = query(
            store, f"SELECT {', '.join(texts)} FROM stored_events ORDER BY seq", **parameters.values
        )
        assert found == [(None, None), (value, None), (None, value)]

    def test_other_texts_with_half_a_surrogate_pair(self, store: EventStore) -> None:
        append(store, event_row(1, event="\ud800", distinct_id="a\udfff", groups={0: "\ud800"}))
        assert query(store, "SELECT event, distinct_id, group_0 FROM stored_events") == [("?", "a?", "?")]

    @settings(
        max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=5), min_size=1, max_size=20))
    def test_what_an_encoder_wrote_comes_back(
        self, store: EventStore, documents: list[dict[str, Any]]
    ) -> None:
        texts = [orjson.dumps(document) for document in documents]
        offset = store.position() + 1
        rows = [event_row(offset, properties=text, person_properties=text) for text in texts]
        store.append(EventBatch(rows, is_checked=True), log_offset=offset)
        where = f"WHERE log_offset = {offset} ORDER BY seq"
        found = query(store, f"SELECT properties, person_properties FROM stored_events {where}")
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
    def overrides(self, store: EventStore, project: int) -> dict[tuple[object, ...], object]:
        where = f"WHERE project_id = {project}"
        rows = query(store, f"SELECT project_id, old_person_id, person_id FROM person_override {where}")
        assert len({row[:2] for row in rows}) == len(rows)
        return {row[:2]: row[2] for row in rows}

    def test_events_of_a_merged_person_are_found_under_the_new_one(self, store: EventStore) -> None:
        a, b, c, *_ = PEOPLE
        rows = [event_row(1, person_id=who, event=str(who.int)) for who in (a, b, c)]
        other = event_row(1, person_id=a, project_id=2)
        store.append(EventBatch([*rows, other], [PersonOverride(1, a, b)]), log_offset=1)
        store.append(EventBatch((), [PersonOverride(1, b, c)]), log_offset=2)
        resolved = "SELECT project_id, person_id FROM resolved_events ORDER BY seq"
        assert query(store, resolved) == [(1, c), (1, c), (1, c), (2, a)]
        assert query(store, "SELECT person_id FROM stored_events ORDER BY seq") == [(a,), (b,), (c,), (a,)]
        assert query(store, "SELECT person_id FROM resolved_events WHERE person_id IS NULL") == []

    @settings(
        max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        st.lists(
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5), max_size=6
        )
    )
    def test_merges_in_any_order_and_grouping(
        self, store: EventStore, batches: list[list[tuple[int, int]]]
    ) -> None:
        project = store.position() + 1  # of this example alone
        for offset, batch in enumerate([[], *batches], project):
            merges = [PersonOverride(project, PEOPLE[old], PEOPLE[new]) for old, new in batch]
            store.append(EventBatch((), merges), log_offset=offset)
        expected = resolve([merge for batch in batches for merge in batch])
        found = self.overrides(store, project)
        assert found == {(project, PEOPLE[old]): PEOPLE[new] for old, new in expected.items()}

    def test_when_somebody_became_another_person(self, store: EventStore) -> None:
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
    def test_parameters_and_columns(self, store: EventStore) -> None:
        append(store, event_row(1))
        with store.reader() as reader:
            assert reader.columns() == []
            sql = (
                "SELECT event AS name, timestamp FROM stored_events "
                "WHERE timestamp < $before AND project_id = $project"
            )
            assert reader.execute(sql, {"before": NOW, "project": 1}) == [
                ("signup", (NOW - timedelta(seconds=5)).replace(tzinfo=None))
            ]
            assert reader.columns() == ["name", "timestamp"]
            early = NOW.astimezone(timezone(timedelta(hours=5))) - timedelta(seconds=5)
            assert reader.execute(sql, {"before": early, "project": 1}) == []
            assert reader.execute("SELECT length($moments)", {"moments": [NOW, NOW]}) == [(2,)]

    def test_a_query_that_takes_too_long(self, stores: Stores, store: EventStore) -> None:
        with store.reader() as reader:
            with pytest.raises(QueryTimeoutError, match=r"longer than 0\.05 s"):
                reader.execute(stores.slow, timeout_s=0.05)
            assert reader.execute("SELECT 1", timeout_s=30) == [(1,)]

    def test_every_query_has_a_time_limit(self, stores: Stores) -> None:
        store = stores.open(query_timeout_s=0.05)
        with pytest.raises(QueryTimeoutError):
            query(store, stores.slow)
        store.close()

    def test_a_query_that_needs_too_much_memory(self, stores: Stores) -> None:
        store = stores.open(memory="60MB")
        with pytest.raises(QueryMemoryError):
            query(store, stores.too_large)
        assert query(store, "SELECT 1") == [(1,)]
        assert append(store, event_row(1))
        store.close()

    @pytest.mark.parametrize(
        "sql",
        [
            "SELEC 1",
            "SELECT nothing FROM stored_events",
            "SELECT 'x'::INTEGER",
            "SELECT $missing",
            "SELECT 1/0::",
        ],
    )
    def test_a_query_that_the_engine_refuses(self, store: EventStore, sql: str) -> None:
        with pytest.raises(QueryError) as caught:
            query(store, sql)
        assert "\n" not in str(caught.value)
        assert query(store, "SELECT 1") == [(1,)]

    def test_a_stream_is_of_one_state_and_may_be_left(self, store: EventStore) -> None:
        append(store, *(event_row(1, distinct_id=f"u{number}") for number in range(10_000)))
        with store.reader() as reader:
            stream = reader.stream("SELECT distinct_id FROM stored_events ORDER BY seq", rows=100)
            first = next(stream)
            append(store, *(event_row(2) for _ in range(10)))
            assert len(first) == 100
            assert [name for (name,) in first] == [f"u{number}" for number in range(100)]
            assert 100 + sum(map(len, stream)) == 10_000
            left = reader.stream("SELECT * FROM stored_events WHERE seq > $after", {"after": 5}, rows=1)
            next(left)
            left.close()
            assert reader.execute("SELECT count(*) FROM stored_events") == [(10_010,)]
            assert [*reader.stream("SELECT 1 WHERE false")] == []
            with pytest.raises(QueryError):
                next(reader.stream("SELECT nothing FROM stored_events"))

    def test_a_query_that_is_interrupted_says_so(self, stores: Stores, store: EventStore) -> None:
        with store.reader() as reader, ThreadPoolExecutor(1) as pool:
            running = pool.submit(reader.execute, stores.slow)
            while not running.done():
                reader.interrupt()
            with pytest.raises(QueryCancelledError):
                running.result()
            assert reader.execute("SELECT 1") == [(1,)]

    def test_a_stream_that_is_interrupted_says_so(self, stores: Stores, store: EventStore) -> None:
        with store.reader() as reader:
            stream = reader.stream(stores.endless, rows=10)
            next(stream)
            reader.interrupt()
            with pytest.raises(QueryCancelledError):
                list(stream)
            assert reader.execute("SELECT 1") == [(1,)]

    def test_many_readers_beside_the_writer(self, store: EventStore) -> None:
        done = threading.Event()

        def read(_: int) -> list[int]:
            counts: list[int] = []
            # Bounded, for how long the writer takes depends on the machine.
            while not done.wait(0.01) and len(counts) < 100:
                [(count, distinct)] = query(store, "SELECT count(*), count(DISTINCT uuid) FROM stored_events")
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
