"""Typed columns of ClickHouse: properties that statements ask for again and again, with the values of their JSON."""

# ruff: noqa: S608 - texts of our own

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.clickhouse import ClickHouseServer
from tests.storage.event_rows import NOW, event_row
from tests.storage.event_stores import ClickHouseStores, append, query
from tests.waiting import wait_for

from hoglab.storage.event_store import EventBatch, PersonOverride

if TYPE_CHECKING:
    from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

KEYS = [
    *(
        "amount",
        "",
        " ",
        "a'b",
        'a"b',
        "a\\b",
        "a\\'b",
        "'; DROP TABLE event; --",
        "{v0:String}",
        "$v0",
        "${x}",
        "?",
    ),
    *(
        "a\nb\tc",
        "*",
        "a.b",
        "a/b~c",
        "$feature/exp-a",
        "ключ 🔑",
        "%",
        "[0]",
        "NULL",
        "`",
        "/*",
        "é" * 200,
    ),
]
VALUES: list[Any] = [
    *(3, 0, -2.5, 1e300, 2**53, 2**63, 2**64, 10**30, -(2**63), 1.0, 1e5, 0.1),
    *("", "text", "20.5", "null", "true", '"quoted"', "a\\b", "a'b", "two\nlines", "ключ 🔑", "\0", " 5"),
    *(True, False, None, [], [1, "a", None], {}, {"a": {"b": 1}}, "x" * 5_000),
]


@pytest.fixture(scope="module")
def stores(
    clickhouse: ClickHouseServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClickHouseStores]:
    with contextlib.closing(ClickHouseStores(clickhouse, tmp_path_factory.mktemp("typed"))) as stores:
        yield stores


@pytest.fixture
def store(stores: ClickHouseStores) -> Iterator[ClickHouseEventStore]:
    with contextlib.closing(stores.open()) as store:
        yield store  # type: ignore[misc]


def values(store: ClickHouseEventStore, where: str = "TRUE", relation: str = "resolved_events") -> list[str]:
    """All properties of each event as text and as number, as statements read them."""
    dialect, parameters = store.dialect, store.dialect.parameters()
    columns = [
        read(column, key, parameters)
        for key in KEYS
        for read in (dialect.property_text, dialect.json_number)
        for column in ("properties", "person_properties")
    ]
    sql = f"SELECT {', '.join(columns)} FROM {relation} WHERE {where} ORDER BY seq"
    return list(map(repr, query(store, sql, **parameters.values)))


def columns(store: ClickHouseEventStore, relation: str = "resolved_events") -> set[str]:
    found = query(
        store, f"SELECT name FROM system.columns WHERE database = currentDatabase() AND table = '{relation}'"
    )
    return {name for (name,) in found if name.startswith("typed_")}


def ask(store: ClickHouseEventStore, *keys: str) -> None:
    for key in keys:
        store.dialect.property_text("properties", key, store.dialect.parameters())


def typed(store: ClickHouseEventStore, *keys: str, now: datetime) -> None:
    """Ask for the properties at two times, the second of them ``now``."""
    for moment in (now - timedelta(hours=1), now):
        ask(store, *keys)
        store.typed_columns.maintain_columns(moment)


def test_columns_say_what_json_says(store: ClickHouseEventStore) -> None:
    """Before a column is written, when it is, and of events that came later: every key, every type of value."""
    now = datetime.now(UTC)

    def rows(log_offset: int) -> list[Any]:
        return [
            event_row(
                log_offset + place,
                uuid=UUID(int=log_offset + place),
                properties=json.dumps(dict.fromkeys(KEYS, value)).encode(),
                person_properties=json.dumps({key: [value] for key in KEYS}).encode(),
            )
            for place, value in enumerate([*VALUES, VALUES])
        ] + [event_row(log_offset + len(VALUES) + 1, uuid=UUID(int=log_offset + len(VALUES) + 1))]

    append(store, *rows(1))
    expected = values(store)
    assert len(set(expected)) > len(VALUES) - 5
    store.typed_columns.maintain_columns(now - timedelta(hours=1))
    assert values(store) == expected
    store.typed_columns.maintain_columns(now)
    assert len(columns(store)) == 4 * len(KEYS)
    append(store, *rows(1_000))
    assert values(store) == expected * 2
    wait_for(lambda: not store.typed_columns.maintain_columns(now))
    assert values(store) == values(store, relation="stored_events") == expected * 2
    for key in KEYS:
        assert store.dialect.property_text("properties", key, store.dialect.parameters()) in columns(store)


def written(store: ClickHouseEventStore) -> list[str]:
    """Months all parts of which have a typed column written, the newest first."""
    found = query(
        store,
        "SELECT partition_id FROM system.parts_columns WHERE database = currentDatabase() AND active "
        "AND table = 'event' GROUP BY 1 HAVING countIf(startsWith(column, 'typed_')) >= countIf(column = 'uuid') "
        "ORDER BY 1 DESC",
    )
    return [month for (month,) in found]


def test_new_events_come_with_them(store: ClickHouseEventStore) -> None:
    typed(store, "new", now=datetime.now(UTC))
    append(store, event_row(5_000, uuid=UUID(int=5_000), timestamp=NOW - timedelta(days=400)))
    assert f"{NOW - timedelta(days=400):%Y%m}" in written(store)


def test_one_question_makes_no_column(store: ClickHouseEventStore) -> None:
    before, now = columns(store), datetime.now(UTC)
    ask(store, "once")
    store.typed_columns.maintain_columns(now)
    store.typed_columns.maintain_columns(now + timedelta(hours=1))
    assert columns(store) == before
    ask(store, "once")
    store.typed_columns.maintain_columns(now + timedelta(hours=1))
    assert len(columns(store)) == len(before) + 1


@pytest.mark.parametrize("key", ["x" * 201, "nul\0", "\ud800"], ids=["long", "nul", "surrogate"])
def test_what_no_statement_can_name_stays_in_json(store: ClickHouseEventStore, key: str) -> None:
    before = columns(store)
    typed(store, key, now=datetime.now(UTC))
    assert columns(store) == before


def test_merged_persons_have_them_too(store: ClickHouseEventStore) -> None:
    typed(store, "plan", now=datetime.now(UTC))
    old, new = UUID(int=71), UUID(int=72)
    row = event_row(6_000, uuid=UUID(int=6_000), person_id=old, properties=b'{"plan":"pro"}')
    store.append(EventBatch([row], [PersonOverride(row.project_id, old, new)]), log_offset=6_000)
    column = store.dialect.property_text("properties", "plan", store.dialect.parameters())
    found = query(store, f"SELECT person_id, {column} FROM resolved_events WHERE log_offset = 6000")
    assert found == [(new, "pro")]


class TestOnAnEmptyStore:
    @pytest.fixture
    def stores(self, clickhouse: ClickHouseServer, tmp_path: Path) -> Iterator[ClickHouseStores]:
        with contextlib.closing(ClickHouseStores(clickhouse, tmp_path)) as stores:
            yield stores

    def test_columns_are_limited_and_go_when_nobody_asks(
        self, store: ClickHouseEventStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from hoglab.storage.event_store.clickhouse import typed_columns

        monkeypatch.setattr(typed_columns, "MAX_COLUMNS", 3)
        now = datetime.now(UTC)
        typed(store, "a", "b", now=now)
        first = columns(store)
        assert len(first) == 2
        typed(store, "c", "d", now=now + timedelta(days=20))
        assert columns(store) > first
        assert len(columns(store)) == 3
        later = now + timedelta(days=35)
        store.typed_columns.maintain_columns(later)
        assert len(columns(store)) == 1, "a and b were not asked for in thirty days"
        assert columns(store, "event") > columns(store), "another process may still read them"
        store.typed_columns.maintain_columns(later)
        assert len(columns(store)) == len(columns(store, "event")) == 2, "there is room for d now"
        ask(store, "a", "b")
        store.typed_columns.maintain_columns(later)
        assert len(columns(store)) == 3, "asked for again, there is room for one of them"

    def test_the_newest_month_is_written_first_and_the_next_process_goes_on(
        self, store: ClickHouseEventStore, stores: ClickHouseStores
    ) -> None:
        months = [NOW - timedelta(days=31 * number) for number in range(3)]
        append(
            store,
            *(event_row(place, uuid=UUID(int=place), timestamp=at) for place, at in enumerate(months, 1)),
        )
        now = datetime.now(UTC)
        typed(store, "a", now=now)

        names = [f"{at:%Y%m}" for at in months]
        wait_for(lambda: written(store) == names[:1])
        with contextlib.closing(stores.open()) as other:
            assert other.typed_columns.maintain_columns(now)  # type: ignore[attr-defined]
            wait_for(lambda: written(store) == names[:2])
            assert other.typed_columns.maintain_columns(now)  # type: ignore[attr-defined]
            wait_for(lambda: written(store) == names)
            assert not other.typed_columns.maintain_columns(now)  # type: ignore[attr-defined]


def test_upkeep_notes_what_was_asked_for(store: ClickHouseEventStore) -> None:
    ask(store, "noted", "noted")
    store.maintain_columns()
    assert query(store, "SELECT count() FROM property_use WHERE key = 'noted'") == [(1,)]


def test_what_another_process_asks_for_gets_a_column(
    stores: ClickHouseStores, store: ClickHouseEventStore
) -> None:
    before, now = columns(store), datetime.now(UTC)
    with contextlib.closing(stores.open()) as other:
        for moment in (now - timedelta(hours=1), now):
            ask(other, "asked elsewhere")  # type: ignore[arg-type]
            other.typed_columns.flush_usage(moment)  # type: ignore[attr-defined]
    store.typed_columns.maintain_columns(now)
    assert len(columns(store) - before) == 1
