"""The event store in ClickHouse: what has no transactions is stored once all the same, whatever breaks in between."""

# ruff: noqa: S608 - texts of our own

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY
from tests.clickhouse import ClickHouseServer
from tests.storage.event_rows import NOW, event_row
from tests.storage.event_stores import ClickHouseStores, append, query
from tests.waiting import PATIENCE_S

from hoglab.storage.event_store import (
    EventBatch,
    EventRow,
    EventsBefore,
    EventsOfPersons,
    EventStore,
    EventStoreUnavailableError,
    PersonOverride,
)
from hoglab.storage.event_store.clickhouse.connection import Connection
from hoglab.storage.event_store.clickhouse.merging import write_merges
from hoglab.storage.event_store.clickhouse.partition import Partition
from hoglab.storage.event_store.clickhouse.schema import EVENTS

if TYPE_CHECKING:
    from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

PEOPLE = [UUID(int=number) for number in range(1, 4)]


@pytest.fixture
def stores(clickhouse: ClickHouseServer, tmp_path: Path) -> Iterator[ClickHouseStores]:
    with contextlib.closing(ClickHouseStores(clickhouse, tmp_path)) as stores:
        yield stores


@pytest.fixture
def store(stores: ClickHouseStores) -> Iterator[EventStore]:
    with contextlib.closing(stores.open()) as store:
        yield store


class CuttingProxy:
    """A TCP proxy before the server. The inserts that are cut off get to the server, and its answers to nobody."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._before = self._times = 0
        self._is_holding = False
        self._has_held = False
        self._released = threading.Event()
        self.cuts = 0
        self.late = threading.Event()
        """Set when an insert was answered that had been held."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, number: int, *, times: int = 1_000) -> None:
        """Cut off the answers of the insert that is the ``number``-th from now on, and of so many from then on."""
        with self._lock:
            self._before, self._times = number - 1, times

    def hold(self, number: int) -> None:
        """Keep the ``number``-th insert from now on until `release`; nothing else of its client gets there any more."""
        self.arm(number)
        self._is_holding = True

    def release(self) -> None:
        """Let the server have what is held."""
        self._released.set()

    def disarm(self) -> None:
        self.arm(1, times=0)

    def _is_cut(self) -> bool:
        with self._lock:
            if self._before:
                self._before -= 1
                return False
            self._times -= 1
            return self._times >= 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(self._target)
        is_cut, is_held = threading.Event(), threading.Event()
        answers = threading.Thread(target=self._answers, args=(server, client, is_cut, is_held), daemon=True)
        answers.start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if b"POST /?" in data and b"octet-stream" in data and self._is_cut():
                    is_cut.set()
                    if self._is_holding:
                        data = self._kept(client, data, is_held)
                server.sendall(data)
        server.close()

    def _kept(self, client: socket.socket, request: bytes, is_held: threading.Event) -> bytes:
        """The whole request, after it was released; who sent it is gone by then. Of later ones nothing."""
        with self._lock:
            is_first, self._has_held = not self._has_held, True
        if not is_first:
            client.shutdown(socket.SHUT_RDWR)
            return b""
        is_held.set()
        while not request.endswith(b"\r\n0\r\n\r\n"):
            request += client.recv(1 << 20)
        client.shutdown(socket.SHUT_RDWR)
        assert self._released.wait(PATIENCE_S)
        return request

    def _answers(
        self, server: socket.socket, client: socket.socket, is_cut: threading.Event, is_held: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if is_cut.is_set():
                    self.cuts += 1
                    if is_held.is_set():
                        self.late.set()
                    with contextlib.suppress(OSError):
                        client.shutdown(socket.SHUT_RDWR)
                    break
                client.sendall(data)
        client.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or it accepts one more
        self._listener.close()


@pytest.fixture
def proxy(clickhouse: ClickHouseServer) -> Iterator[CuttingProxy]:
    with contextlib.closing(CuttingProxy(clickhouse.host_and_port)) as proxy:
        yield proxy


def through(proxy: CuttingProxy, stores: ClickHouseStores) -> ClickHouseEventStore:
    from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

    database = stores.url.rpartition("/")[2]
    credentials = stores.url.partition("://")[2].rpartition("@")[0]
    url = f"clickhouse://{credentials}@127.0.0.1:{proxy.port}/{database}"
    return ClickHouseEventStore(url, stores.keys, memory="200MB", query_timeout_s=60)


def of_months(log_offset: int, months: int = 2) -> list[EventRow]:
    return [event_row(log_offset, timestamp=NOW - timedelta(days=35 * month)) for month in range(months)]


def _counted(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


class TestOnce:
    # Two chunks of events, the merge, the position.
    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    @pytest.mark.parametrize("way", ["the client tries again", "the same process", "the next process"])
    def test_an_insert_whose_answer_is_lost(
        self, stores: ClickHouseStores, proxy: CuttingProxy, number: int, way: str
    ) -> None:
        store = through(proxy, stores)
        first, rows = event_row(1), [*of_months(2), *of_months(3)]
        append(store, first)
        resent = replace(first, log_offset=3)
        batch = EventBatch([*rows, resent], [PersonOverride(1, *PEOPLE[:2])])
        repairs = _counted("hoglab_event_store_repairs_total")
        if way == "the client tries again":
            proxy.arm(number, times=1)
            new = list(store.append(batch, log_offset=3))
        else:
            proxy.arm(number)
            with pytest.raises(EventStoreUnavailableError) as caught:
                store.append(batch, log_offset=3)
            assert "\n" not in str(caught.value)
            proxy.disarm()
            if way == "the next process":
                store.close()
                store = through(proxy, stores)
            new = list(store.append(batch, log_offset=3))
        assert proxy.cuts >= 1
        assert new == [0, 1, 2, 3]
        # What the client sent again was answered, and a process that finds the position has nothing to look for.
        repaired = way == "the same process" or (way == "the next process" and number < 4)
        assert (_counted("hoglab_event_store_repairs_total") > repairs) == repaired
        last = event_row(4)
        assert append(store, last, replace(rows[0], log_offset=4)) == {last.uuid}
        found = query(store, "SELECT uuid, count(*), min(seq) FROM stored_events GROUP BY uuid")
        assert len(found) == 6
        assert all(count == 1 for _, count, _ in found)
        assert len({seq for _, _, seq in found}) == 6
        merges = query(store, "SELECT old_person_id, person_id FROM person_override")
        assert merges == [(PEOPLE[0], PEOPLE[1])]
        assert store.position() == 4
        store.close()

    @pytest.mark.parametrize("bounds", [(4, 9), (6, 9), (9,)])
    def test_a_batch_begun_by_a_process_that_died_may_end_elsewhere(
        self, stores: ClickHouseStores, proxy: CuttingProxy, bounds: tuple[int, ...]
    ) -> None:
        """The next process reads the log in other portions, and finds some events there."""
        store = through(proxy, stores)
        records = {offset: of_months(offset) for offset in range(1, 10)}

        def batch(first: int, last: int) -> EventBatch:
            return EventBatch([row for offset in range(first, last + 1) for row in records[offset]])

        assert len(store.append(batch(1, 2), log_offset=2)) == 4
        proxy.arm(1)
        with pytest.raises(EventStoreUnavailableError):
            store.append(batch(3, 6), log_offset=6)
        proxy.disarm()
        store.close()
        store = through(proxy, stores)
        assert store.position() == 2
        assert query(store, "SELECT count(*) FROM stored_events") == [(8,)]  # a chunk is there as a whole
        for before, last in pairwise((2, *bounds)):
            again = batch(before + 1, last)
            assert list(store.append(again, log_offset=last)) == list(range(len(again.rows)))
        assert query(
            store, "SELECT count(*), count(DISTINCT uuid), count(DISTINCT seq) FROM stored_events"
        ) == [(18, 18, 18)]
        store.close()

    @pytest.mark.parametrize("number", [1, 2])
    def test_an_insert_of_a_process_that_died_gets_there_late(
        self, stores: ClickHouseStores, proxy: CuttingProxy, number: int
    ) -> None:
        """The next process has stored the same batch meanwhile, which it knows to be begun."""
        died = through(proxy, stores)
        batch = EventBatch([*of_months(1), *of_months(2)])
        proxy.hold(number)
        with pytest.raises(EventStoreUnavailableError):
            died.append(batch, log_offset=2)
        died.close()
        store = stores.open()
        assert list(store.append(batch, log_offset=2)) == [0, 1, 2, 3]
        assert not proxy.late.is_set()
        proxy.release()
        assert proxy.late.wait(60)
        append(store, event_row(3))
        assert query(store, "SELECT count(*), count(DISTINCT uuid) FROM stored_events") == [(5, 5)]
        store.close()

    def test_a_month_of_which_some_chunks_are_there_gets_the_others(
        self, stores: ClickHouseStores, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that are missing have tokens of their own, whichever of the batch they are."""
        from hoglab.storage.event_store.clickhouse import partition

        monkeypatch.setattr(partition, "CHUNK_ROWS", 2)
        batch = EventBatch([event_row(1), *(event_row(2) for _ in range(6))])
        died = through(proxy, stores)
        proxy.hold(3)
        with pytest.raises(EventStoreUnavailableError):
            died.append(batch, log_offset=2)
        died.close()
        store = stores.open()
        assert query(store, "SELECT count(*) FROM stored_events") == [(4,)]
        assert list(store.append(batch, log_offset=2)) == list(range(7))
        assert query(store, "SELECT count(*), count(DISTINCT uuid) FROM stored_events") == [(7, 7)]
        store.close()
        proxy.release()

    def test_what_is_stored_is_known_without_digests(self, stores: ClickHouseStores) -> None:
        store = stores.open()
        rows = [event_row(offset) for offset in (1, 2, 2, 5)]
        append(store, *rows)
        store.close()
        shutil.rmtree(stores.keys)
        store = stores.open()
        new = event_row(6)
        assert append(store, *(replace(row, log_offset=6) for row in rows), new) == {new.uuid}
        store.close()

    def test_partitions_have_positions_of_their_own(self, stores: ClickHouseStores) -> None:
        store = stores.open()
        first, other = event_row(7), event_row(2, log_partition=3)
        append(store, first)
        assert append(store, other, log_partition=3, first_seq=100) == {other.uuid}
        with pytest.raises(ValueError, match="another partition"):
            append(store, event_row(9), log_partition=3)
        again = event_row(1, log_partition=3)
        assert append(store, again, other, log_offset=2, log_partition=3) == {other.uuid}
        store.close()
        store = stores.open()
        assert [store.position(partition) for partition in (0, 1, 3)] == [7, 0, 2]
        assert append(store, replace(other, log_offset=3), log_partition=3) == frozenset()
        found = query(store, "SELECT log_partition, log_offset FROM stored_events ORDER BY seq")
        assert found == [(0, 7), (3, 2)]
        store.close()

    def test_a_partition_that_another_process_wrote_is_read_again(self, stores: ClickHouseStores) -> None:
        """Also what of it is sent again. What a process did that was paused meanwhile adds nothing."""
        mine, other = event_row(5, log_partition=3), event_row(6, log_partition=3)
        paused, store = stores.open(), stores.open()
        assert append(paused, mine, log_partition=3, first_seq=10) == {mine.uuid}
        assert append(store, other, log_partition=3, first_seq=20) == {other.uuid}
        assert append(paused, other, log_partition=3, first_seq=20) == {other.uuid}
        later = event_row(7, log_partition=3)
        assert append(store, later, log_partition=3, first_seq=30) == {later.uuid}
        assert paused.position(3) == 6
        paused.forget(3)
        assert paused.position(3) == 7
        assert append(paused, replace(later, log_offset=8), log_partition=3, first_seq=40) == frozenset()
        assert query(store, "SELECT log_offset, seq FROM stored_events ORDER BY seq") == [
            (5, 10),
            (6, 20),
            (7, 30),
        ]
        for each in (paused, store):
            each.close()

    def test_of_merges_the_one_counts_that_persons_learned_of_last(self, store: EventStore) -> None:
        """Whichever of the processes that write them is faster, and whoever of them knew what others wrote."""
        a, b, c, d = (UUID(int=number) for number in range(4))
        later = [PersonOverride(1, b, c, version=20), PersonOverride(1, a, c, version=20)]
        store.append(EventBatch((), later), log_offset=2, log_partition=1)
        write_merges(_Unaware(store), [PersonOverride(1, a, b, version=10)], 0, 1)  # type: ignore[arg-type]
        found = query(store, "SELECT old_person_id, person_id FROM person_override ORDER BY old_person_id")
        assert [tuple(map(str, row)) for row in found] == [(str(a), str(c)), (str(b), str(c))]
        store.append(EventBatch((), [PersonOverride(1, c, d, version=30)]), log_offset=3)
        found = query(store, "SELECT person_id FROM person_override")
        assert {str(person) for (person,) in found} == {str(d)}

    def test_rehearsing_leaves_nothing(self, store: EventStore) -> None:
        store.dry_run([event_row(1, properties=b"no json"), event_row(1)])
        assert query(store, "SELECT count(*) FROM stored_events") == [(0,)]
        assert store.position() == 0


class _Unaware:
    """The connection of a store, as who uses it who has read the merges that there are before others wrote some."""

    def __init__(self, store: EventStore) -> None:
        self._connection = store._connection  # type: ignore[attr-defined]

    def rows(self, *_: object) -> list[Any]:
        return []

    def insert(self, *arguments: Any) -> None:
        self._connection.insert(*arguments)


class TestParts:
    def test_clocks_that_are_wrong_make_no_parts(self, store: EventStore) -> None:
        years = [event_row(1, timestamp=NOW.replace(year=year)) for year in range(1950, 2100)]
        append(store, *years, event_row(1))
        parts = query(
            store,
            "SELECT DISTINCT partition FROM system.parts "
            "WHERE database = currentDatabase() AND table = 'event' AND active",
        )
        assert len(parts) == 5  # long ago, three of the last two years, and what is still to come
        store.maintain_columns()
        before = _counted("hoglab_event_store_parts")
        append(store, event_row(2))
        store.maintain_columns()
        assert (before, _counted("hoglab_event_store_parts")) == (1, 2)

    @pytest.mark.parametrize("year", [1950, 1969, 2149, 2290])
    def test_the_index_knows_all_moments(self, store: EventStore, year: int) -> None:
        moment = NOW.replace(year=year)
        append(store, *(event_row(1, timestamp=NOW.replace(year=each)) for each in (1950, 1969, 2149, 2290)))
        bounds = {"after": moment - timedelta(days=1), "before": moment + timedelta(days=1)}
        sql = (
            "SELECT timestamp FROM stored_events "
            "WHERE project_id = 1 AND timestamp > $after AND timestamp < $before"
        )
        assert query(store, sql, **bounds) == [(moment.replace(tzinfo=None),)]


class TestErasing:
    def test_what_is_erased_is_gone_at_once(self, store: EventStore) -> None:
        """Also for who asks what is stored of a log record."""
        somebody, others = PEOPLE[0], PEOPLE[1]
        rows = [
            event_row(1, person_id=somebody),
            event_row(1, person_id=others, distinct_id="it's \\ him"),
            event_row(1, person_id=others),
            event_row(1, person_id=None),
            event_row(2, person_id=somebody),
        ]
        append(store, *rows)
        events = EventsOfPersons(1, [somebody], ["it's \\ him"], 1)
        assert set(store.uuids(events)) == {rows[0].uuid, rows[1].uuid}
        assert store.distinct_ids_since(1, ["user-1", "nobody"], 1) == {"user-1"}
        assert store.erase(events) == 2
        assert query(store, "SELECT count(*) FROM stored_events") == [(3,)]
        assert append(store, *rows) == {row.uuid for row in rows[2:]}
        assert store.erase(EventsBefore(1, NOW)) == 3
        assert store.erase(EventsBefore(1, NOW)) == 0

    def test_the_position_of_the_whole_store_is_the_newest_of_all_partitions(self, store: EventStore) -> None:
        assert store.position() == 0
        store.append(EventBatch([event_row(3)]), log_offset=3)
        store.append(EventBatch([event_row(7, log_partition=1)]), log_offset=7, log_partition=1)
        assert [store.position(), store.position(0), store.position(1)] == [7, 3, 7]

    def test_merges_are_forgotten(self, store: EventStore) -> None:
        a, b, c = PEOPLE
        store.append(EventBatch((), [PersonOverride(1, a, b), PersonOverride(2, a, b)]), log_offset=1)
        store.forget_overrides(1, [b])
        assert query(store, "SELECT project_id, person_id FROM person_override") == [(2, b)]
        store.append(EventBatch((), [PersonOverride(1, a, c)]), log_offset=2)
        assert query(store, "SELECT person_id FROM person_override WHERE project_id = 1") == [(c,)]


class TestNeighbours:
    def test_who_goes_on_with_a_batch_ends_no_inserts_of_another_database(
        self, clickhouse: ClickHouseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inserts: dict[str, list[str]] = {}
        ended: list[str] = []
        insert, kill, advance = Connection.insert, Connection.kill, Partition.advance

        def noting(self: Connection, table: str, *arguments: Any) -> None:
            if table == EVENTS:
                inserts.setdefault(self.database, []).append(arguments[-1]["query_id"])
            insert(self, table, *arguments)

        def ending(self: Connection, condition: str, *, wait: bool) -> int:
            ended.append(condition.split("'")[1])
            return kill(self, condition, wait=wait)

        def cut_off(*_: Any) -> None:
            monkeypatch.setattr(Partition, "advance", advance)
            raise EventStoreUnavailableError("gone")

        monkeypatch.setattr(Connection, "insert", noting)
        monkeypatch.setattr(Connection, "kill", ending)
        for folder in (tmp_path / "one", tmp_path / "other"):
            with (
                contextlib.closing(ClickHouseStores(clickhouse, folder)) as stores,
                contextlib.closing(stores.open()) as store,
            ):
                monkeypatch.setattr(Partition, "advance", cut_off)
                with pytest.raises(EventStoreUnavailableError):
                    append(store, event_row(1))
                append(store, event_row(1))
        assert len(ended) == len(inserts) == 2
        for prefix, own, others in zip(ended, inserts.values(), reversed(inserts.values()), strict=True):
            assert all(each.startswith(prefix) for each in own)
            assert not any(each.startswith(prefix) for each in others)


class TestServer:
    def test_a_server_that_is_away(self, stores: ClickHouseStores, proxy: CuttingProxy) -> None:
        store = through(proxy, stores)
        proxy.close()
        store._connection._pool.clear()  # connections that are open already
        with pytest.raises(EventStoreUnavailableError, match="does not answer") as caught:
            store.check()
        assert "\n" not in str(caught.value)
        with pytest.raises(EventStoreUnavailableError):
            append(store, event_row(1))
        with pytest.raises(EventStoreUnavailableError, match="does not answer"):
            through(proxy, stores)
        store.close()

    def test_tables_of_a_newer_program(self, stores: ClickHouseStores) -> None:
        stores.open().close()
        stores.server.execute(f"INSERT INTO {stores.url.rpartition('/')[2]}.schema_version VALUES (999)")
        with pytest.raises(EventStoreUnavailableError, match="newer than this program knows"):
            stores.open()

    def test_tables_of_an_older_program_are_upgraded(self, stores: ClickHouseStores) -> None:
        """Events are corrected like those of this version."""
        store, first = stores.open(), event_row(1)
        append(store, first)
        store.close()
        name = stores.url.rpartition("/")[2]
        for statement in (
            f"DROP VIEW {name}.stored_events",
            f"DROP VIEW {name}.resolved_events",
            f"DROP TABLE {name}.event_correction",
            f"ALTER TABLE {name}.event DROP COLUMN first_offset",
            f"ALTER TABLE {name}.event_rehearsal DROP COLUMN first_offset",
            f"ALTER TABLE {name}.schema_version DELETE WHERE version = 3 SETTINGS mutations_sync = 2",
        ):
            stores.server.execute(statement)
        store = stores.open()
        assert not append(store, replace(first, log_offset=2, properties=b'{"now":1}'))
        assert query(store, "SELECT first_offset, properties FROM stored_events") == [(1, '{"now":1}')]
        store.close()

    def test_a_step_that_was_cut_off_is_taken_again(self, stores: ClickHouseStores) -> None:
        name = stores.url.rpartition("/")[2]
        stores.server.execute(f"CREATE DATABASE {name}")
        stores.server.execute(
            f"CREATE TABLE {name}.ingest_position (log_partition UInt16, log_offset Int64, "
            "next_seq Int64) ENGINE = ReplacingMergeTree(log_offset) ORDER BY log_partition"
        )
        store = stores.open()
        assert append(store, event_row(1))
        store.close()

    @pytest.mark.parametrize(
        "url",
        ["clickhouse://host", "clickhouse:///hoglab", "clickhouse://host:x/hoglab", "clickhouse://h/a-b"],
    )
    def test_an_address_that_is_none(self, clickhouse: ClickHouseServer, tmp_path: Path, url: str) -> None:
        from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

        with pytest.raises(EventStoreUnavailableError, match="address of the event store"):
            ClickHouseEventStore(url, tmp_path, memory="1GB", query_timeout_s=1)

    def test_readers_write_nothing(self, store: EventStore) -> None:
        for sql in ("CREATE TABLE x (a Int8) ENGINE = Memory", "DROP TABLE event", "TRUNCATE TABLE event"):
            with pytest.raises(Exception, match="READONLY"):
                query(store, sql)

    def test_temporary_tables_are_of_one_reader(self, store: EventStore) -> None:
        with store.reader() as one, store.reader() as other:
            one.execute(store.dialect.drop_table("mine"))
            one.execute(store.dialect.temporary_table("mine", "SELECT 17 AS x"))
            assert one.execute("SELECT x FROM mine") == [(17,)]
            with pytest.raises(Exception, match="mine"):
                other.execute("SELECT x FROM mine")
            one.execute(store.dialect.drop_table("mine"))


@pytest.mark.parametrize(
    ("sql", "values", "expected"),
    [
        ("a = $a", {"a": 1}, ("a = {a:Int64}", {"a": 1})),
        ("'$a' || $a", {"a": "x"}, ("'$a' || {a:String}", {"a": "x"})),
        (
            r"'it\'s $a' || '' || $a || `$a`",
            {"a": "x"},
            (r"'it\'s $a' || '' || {a:String} || `$a`", {"a": "x"}),
        ),
        (
            "$a AND {b:String} = $c",
            {"a": True, "b": "$a", "d": 1},
            ("{a:Bool} AND {b:String} = $c", {"a": "true", "b": "$a"}),
        ),
        ("has($l, x)", {"l": [PEOPLE[0]]}, ("has({l:Array(UUID)}, x)", {"l": [str(PEOPLE[0])]})),
        ("$t", {"t": NOW}, ("{t:DateTime64(6, 'UTC')}", {"t": "2026-03-01 12:00:00.123456"})),
        ("1", {"t": NOW}, ("1", None)),
    ],
)
def test_values_are_named_as_the_engine_wants_it(
    clickhouse: ClickHouseServer, sql: str, values: dict[str, Any], expected: tuple[str, Any]
) -> None:
    from hoglab.storage.event_store.clickhouse.reader import prepared

    assert prepared(sql, values) == expected
