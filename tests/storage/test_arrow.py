"""Columns handed over through the Arrow C stream arrive as they were, and are released afterwards."""

from __future__ import annotations

import gc
import threading
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.storage.event_store import arrow
from hoglab.storage.event_store.arrow import ArrowTable

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | TEXT,
        st.none() | st.uuids(),
        st.none() | st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
        TEXT,
    ),
    min_size=1,
    max_size=40,
)


def table_of(rows: list[tuple[Any, ...]]) -> ArrowTable:
    number, small, text, uuid, moment, encoded = zip(*rows, strict=True)
    return ArrowTable(
        {
            "number": arrow.integers(number),
            "small": arrow.small_integers(small),
            "text": arrow.texts(text),
            "uuid": arrow.uuids(uuid),
            "moment": arrow.microseconds(moment),
            "encoded": arrow.encoded_texts([value.encode() for value in encoded]),
        }
    )


@given(ROWS)
def test_an_independent_reader_understands_every_column(rows: list[tuple[Any, ...]]) -> None:
    read = pa.table(table_of(rows))
    read.validate(full=True)
    assert read.schema.field("uuid").type == pa.uuid()
    assert read.schema.field("moment").type == pa.timestamp("us")
    columns = [read.column(name) for name in ("number", "small", "text", "uuid", "moment", "encoded")]
    columns[4] = columns[4].cast(pa.int64())
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == rows


def test_the_engine_understands_every_column_and_releases_everything() -> None:
    rows = [
        (1, -5, "Zoë", UUID(int=7), 0, "{}"),
        (None, None, None, None, None, ""),
        (2**62, 5, "a\x00b", UUID(int=2**128 - 1), 1_790_000_000_123_456, "ß"),
    ]
    table = table_of(rows)
    gc.collect()
    before = arrow.held()
    with duckdb.connect() as connection:
        connection.register("incoming", table)
        for _ in range(3):  # as often as it likes
            found = connection.execute(
                "SELECT * REPLACE (epoch_us(moment) AS moment) FROM incoming"
            ).fetchall()
            assert found == rows
        connection.unregister("incoming")
    del table
    gc.collect()
    assert arrow.held() == before


def test_many_rows_with_nulls_in_odd_places() -> None:
    values = [None if number % 7 == 3 else number for number in range(10_001)]
    table = ArrowTable({"n": arrow.integers(values), "t": arrow.texts([str(value) for value in values])})
    with duckdb.connect() as connection:
        connection.register("incoming", table)
        assert connection.execute("SELECT n FROM incoming").fetchall() == [(value,) for value in values]
        count = "SELECT count(*), count(n), count(DISTINCT t) FROM incoming"
        assert connection.execute(count).fetchall() == [(10_001, 10_001 - 1429, 10_001 - 1429 + 1)]


def test_lone_surrogates_become_question_marks() -> None:
    read = pa.table(ArrowTable({"t": arrow.texts(["ok", "\ud800x", "é\udfff"])}))
    assert read.column("t").to_pylist() == ["ok", "?x", "é?"]


def test_threads_hand_over_at_the_same_time() -> None:
    with duckdb.connect() as connection:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                cursor = connection.cursor()
                for turn in range(100):
                    numbers = list(range(turn, turn + 50))
                    cursor.register("incoming", ArrowTable({"n": arrow.integers(numbers)}))
                    assert cursor.execute("SELECT sum(n) FROM incoming").fetchall() == [(sum(numbers),)]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_columns_must_have_the_same_length() -> None:
    with pytest.raises(ValueError, match="same length"):
        ArrowTable({"a": arrow.integers([1]), "b": arrow.integers([1, 2])})
    with pytest.raises(ValueError, match="same length"):
        ArrowTable({})
