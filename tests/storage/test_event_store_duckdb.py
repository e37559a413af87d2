"""The event store in a DuckDB file: its life, and what only a file and an engine in this process have."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from tests.storage.event_rows import event_row
from tests.storage.event_stores import append, query
from tests.waiting import PATIENCE_S

from hoglab.storage.event_store import (
    EventBatch,
    EventRow,
    EventStoreUnavailableError,
    PersonOverride,
    QueryError,
    QueryMemoryError,
)
from hoglab.storage.event_store import duckdb as store_module
from hoglab.storage.event_store.arrow import ArrowTable
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.rows import table_of
from hoglab.storage.event_store.sealed.sealing import SealingLimits

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

PEOPLE = [UUID(int=number) for number in range(1, 7)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DuckDbEventStore]:
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="200MB")
    yield store
    store.close()


class TestHostileText:
    @settings(max_examples=examples(40), deadline=None)
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


class TestReaders:
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

        def slowly(rows: Sequence[EventRow], places: Sequence[int]) -> ArrowTable:
            writing.set()
            assert go_on.wait(20)
            return table_of(rows, places)

        monkeypatch.setattr(store_module, "table_of", slowly)
        with ThreadPoolExecutor(1) as writer:
            written = writer.submit(append, store, event_row(1))
            assert writing.wait(20)
            store.check()
            assert not written.done()
            go_on.set()
            assert len(written.result()) == 1


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
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.stdout == "done\n", done.stderr

    def test_a_nearly_full_disk_is_refused(self, tmp_path: Path) -> None:
        store = DuckDbEventStore(tmp_path / "events.duckdb", min_free_disk_bytes=1 << 60)
        with pytest.raises(
            EventStoreUnavailableError, match=r"nearly full.*HOGLAB_DATA.*HOGLAB_EVENT_RETENTION_DAYS"
        ):
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
            assert "closed" in running.result(timeout=PATIENCE_S)

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
        assert query(store, "SELECT schema_version FROM store_state") == [(4,)]
        store.close()

    def test_a_store_of_the_third_version_is_upgraded(self, tmp_path: Path) -> None:
        """Sealed and recent events are corrected like those of this version."""
        path, limits = tmp_path / "events.duckdb", SealingLimits(segment_rows=100, idle_rows=1, recent_rows=0)
        rows = [event_row(number) for number in range(1, 9)]
        store = DuckDbEventStore(path)
        store.append(EventBatch(rows[:4]), log_offset=4)
        store.seal(limits, is_idle=True)
        store.append(EventBatch(rows[4:]), log_offset=8)
        store.close()
        with duckdb.connect(str(path)) as connection:
            connection.execute(
                "DROP VIEW resolved_events; DROP VIEW stored_events; DROP TABLE event_correction"
            )
            connection.execute("ALTER TABLE events DROP COLUMN first_offset")
            connection.execute("ALTER TABLE sealed_events DROP COLUMN first_offset")
            connection.execute("UPDATE store_state SET schema_version = 3")
        store = DuckDbEventStore(path)
        later = [replace(row, log_offset=9, properties=b'{"now":1}') for row in rows[::2]]
        assert store.append(EventBatch(later), log_offset=9) == []
        store.seal(limits, is_idle=True)
        found = query(store, "SELECT log_offset, first_offset, properties FROM stored_events ORDER BY ALL")
        old = [(number, 0, '{"plan":"pro"}') for number in (2, 4, 6, 8)]
        assert found == [*old, *((9, number, '{"now":1}') for number in (1, 3, 5, 7))]
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
