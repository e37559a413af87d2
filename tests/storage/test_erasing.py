"""Erased events: gone from answers, from the file, and nothing else is."""

# ruff: noqa: S608 - names of our own

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from tests.storage.event_rows import NOW, event_row
from tests.storage.test_sealing import LIMITS, ask, everything, fill, seal_all

from hoglab.storage.event_store import (
    EventBatch,
    EventsBefore,
    EventsOfPersons,
    EventStoreUnavailableError,
    PersonOverride,
    QueryCancelledError,
)
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.once.known_keys import CHECKSUM_BYTES

MARK = "zq7Xmark93k"
SOMEBODY = UUID(int=20_000)  # neither the first nor the last by anything


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DuckDbEventStore]:
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="200MB")
    yield store
    store.close()


def add_somebody(store: DuckDbEventStore, count: int) -> int:
    """Events of somebody; their log offset."""
    offset = store.position() + 1
    rows = [
        event_row(
            offset,
            event="$pageview",
            distinct_id=f"user-19-{MARK}-{number}",
            person_id=SOMEBODY,
            properties=f'{{"a":{number},"secret":"{MARK}"}}'.encode(),
            person_properties=f'{{"a":{number},"email":"{MARK}"}}'.encode(),
            session_id=f"session-{MARK}",
            elements_chain=f"button:{MARK}",
        )
        for number in range(count)
    ]
    store.append(EventBatch(rows), log_offset=offset)
    return offset


def holds_mark(folder: Path) -> bool:
    return any(MARK.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def the_others(store: DuckDbEventStore) -> list[tuple[object, ...]]:
    return [row for row in everything(store) if MARK not in str(row[4])]


class TestErasing:
    @pytest.mark.parametrize("sealed", [True, False])
    def test_what_was_corrected_is_gone_too(
        self, store: DuckDbEventStore, tmp_path: Path, sealed: bool
    ) -> None:
        """Also where the person has no event left in the segment that the former version was in."""
        fill(store, 600)
        secret = event_row(
            store.position() + 1,
            distinct_id="corrected",
            person_id=SOMEBODY,
            properties=f'{{"secret":"{MARK}"}}'.encode(),
        )
        store.append(EventBatch([secret]), log_offset=secret.log_offset)
        if sealed:
            seal_all(store)
        offset = secret.log_offset + 1
        store.append(EventBatch([replace(secret, log_offset=offset, properties=b"{}")]), log_offset=offset)
        assert holds_mark(tmp_path)
        others = [row for row in everything(store) if "corrected" not in map(str, row)]
        assert store.erase(EventsOfPersons(1, [SOMEBODY], ["corrected"], offset)) == 1
        assert everything(store) == others
        store.scrub()
        assert not holds_mark(tmp_path)
        assert everything(store) == others

    @pytest.mark.parametrize("sealed", ["not", "partly", "all"])
    def test_bytes_are_gone_and_all_others_stay(
        self, store: DuckDbEventStore, tmp_path: Path, sealed: str
    ) -> None:
        fill(store, 600)
        add_somebody(store, 50)
        ask(store, "FORCE CHECKPOINT")
        if sealed != "not":
            seal_all(store)
        if sealed == "partly":
            add_somebody(store, 30)
        fill(store, 600, seed=4)
        if sealed == "all":
            seal_all(store)
        # Besides what was written long ago, there is what is in the write-ahead log alone.
        offset = add_somebody(store, 10)
        assert holds_mark(tmp_path)
        others = the_others(store)
        events = EventsOfPersons(1, [SOMEBODY], ["nobody"], offset)
        assert store.erase(events) == (90 if sealed == "partly" else 60)
        assert everything(store) == others
        store.scrub()
        assert not holds_mark(tmp_path)
        assert everything(store) == others
        assert store.erase(events) == 0
        seal_all(store)
        assert everything(store) == others

    def test_blocks_that_become_free_are_overwritten(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        chance, offset = random.Random(1), 1
        letters = [chr(number) for number in range(0x4E00, 0x9FA5)]  # which no code makes shorter
        rows = [
            event_row(
                offset,
                person_id=SOMEBODY,
                properties=f'{{"a":"{"".join(chance.choices(letters, k=700))}","b":"{MARK}"}}'.encode(),
            )
            for _ in range(2_000)
        ]
        store.append(EventBatch(rows), log_offset=offset)
        fill(store, 100)
        ask(store, "FORCE CHECKPOINT")
        store.erase(EventsOfPersons(1, [SOMEBODY], [], offset))
        ask(store, "FORCE CHECKPOINT")
        assert holds_mark(tmp_path)
        store.scrub()
        assert not holds_mark(tmp_path)
        assert len(everything(store)) == 100

    def test_by_person_or_distinct_id_of_the_project_and_up_to_a_record(
        self, store: DuckDbEventStore
    ) -> None:
        kept = [
            event_row(1, project_id=2, person_id=SOMEBODY, distinct_id="gone"),
            event_row(1, person_id=None, distinct_id="other"),
            event_row(1, person_id=UUID(int=7), distinct_id="other"),
        ]
        gone = [
            event_row(1, person_id=None, distinct_id="gone"),
            event_row(1, person_id=UUID(int=7), distinct_id="gone"),
            event_row(1, person_id=SOMEBODY, distinct_id="other"),
        ]
        store.append(EventBatch([*kept, *gone]), log_offset=1)
        later = event_row(2, person_id=SOMEBODY, distinct_id="gone")
        store.append(EventBatch([later]), log_offset=2)
        assert store.distinct_ids_since(1, ["gone", "other"], 1) == {"gone"}
        assert store.erase(EventsOfPersons(1, [SOMEBODY], ["gone"], 1)) == 3
        left = {uuid for (uuid,) in ask(store, "SELECT uuid FROM stored_events")}
        assert left == {row.uuid for row in (*kept, later)}

    def test_old_events_go_by_whole_segments(self, store: DuckDbEventStore) -> None:
        fill(store, 1_500)
        seal_all(store)
        before = NOW + timedelta(seconds=800)
        others = ask(
            store,
            f"SELECT uuid FROM stored_events WHERE timestamp >= TIMESTAMP '{before:%Y-%m-%d %H:%M:%S.%f}' ORDER BY seq",
        )
        assert store.erase(EventsBefore(1, before)) == 1_500 - len(others)
        assert ask(store, "SELECT uuid FROM stored_events ORDER BY seq") == others
        [(rows, places)] = ask(
            store, "SELECT (SELECT count(*) FROM sealed_events), (SELECT count(*) FROM sealed_distinct_id)"
        )
        assert rows == places
        assert store.erase(EventsBefore(2, NOW + timedelta(days=9))) == 0

    def test_an_erased_event_may_come_again(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        rows = fill(store, 400)
        seal_all(store)
        assert store.erase(EventsBefore(1, NOW + timedelta(days=9))) == 400
        again = [event_row(50, uuid=row.uuid) for row in rows[:10]]
        assert len(store.append(EventBatch(again), log_offset=50)) == 10
        store.close()
        for path in (tmp_path / "events.duckdb.keys").iterdir():  # whose keys are read from events with gaps
            path.unlink()
        reopened = DuckDbEventStore(tmp_path / "events.duckdb")
        try:
            repeated = [event_row(51, uuid=row.uuid) for row in rows[:20]]
            assert len(reopened.append(EventBatch(repeated), log_offset=51)) == 10
        finally:
            reopened.close()

    def test_keys_of_events_with_gaps_are_kept_in_files(
        self, store: DuckDbEventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hoglab.storage.event_store.once.known_keys.MIN_FILE_KEYS", 1)
        rows = fill(store, 300)
        names = {row.distinct_id for row in rows}
        gone = sorted(names)[::2]
        left = 300 - store.erase(EventsOfPersons(1, [], gone, 3))
        assert 0 < left < 300
        store.close()
        folder = tmp_path / "events.duckdb.keys"
        for path in folder.iterdir():
            path.unlink()
        DuckDbEventStore(tmp_path / "events.duckdb").close()
        [path] = folder.iterdir()
        assert (path.name, path.stat().st_size) == (f"1-300-{left}.keys", left * 8 + CHECKSUM_BYTES)
        again = DuckDbEventStore(tmp_path / "events.duckdb")
        try:
            assert [path.name for path in folder.iterdir()] == [f"1-300-{left}.keys"]
            repeated = [replace(row, log_offset=51) for row in rows]
            assert len(again.append(EventBatch(repeated), log_offset=51)) == 300 - left
        finally:
            again.close()

    def test_an_export_that_still_reads_ends(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        fill(store, 600)
        offset = add_somebody(store, 50)
        store.erase(EventsOfPersons(1, [SOMEBODY], [], offset))
        with store.reader() as reader:
            lines = reader.stream("SELECT * FROM stored_events", rows=1)
            next(lines)
            with pytest.raises(EventStoreUnavailableError):  # it has not noticed yet
                store.scrub()
            with pytest.raises(QueryCancelledError):
                for _ in lines:
                    pass
        store.scrub()
        assert not holds_mark(tmp_path)

    def test_merges_of_somebody_are_forgotten(self, store: DuckDbEventStore) -> None:
        old, new, other = uuid4(), uuid4(), uuid4()
        merges = [PersonOverride(1, old, new), PersonOverride(1, other, UUID(int=3))]
        store.append(EventBatch([], merges), log_offset=1)
        store.forget_overrides(1, [new])
        assert ask(store, "SELECT old_person_id FROM person_override") == [(other,)]

    def test_a_file_does_not_stay_larger_for_it(self, store: DuckDbEventStore, tmp_path: Path) -> None:
        rows = fill(store, 2_000, step=500)
        seal_all(store, LIMITS)
        ask(store, "FORCE CHECKPOINT")
        names = sorted({row.distinct_id for row in rows})
        assert store.erase(EventsOfPersons(1, [], names[::3], store.position()))
        sizes = []
        for _ in range(4):
            store.scrub()
            sizes.append((tmp_path / "events.duckdb").stat().st_size)
        assert sizes[-1] <= sizes[1]
        assert sizes[-1] < 16 * 1024 * 1024
