"""Files as tables: what a pattern reaches, and what the engine that reads them may read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from hoglab.storage import table_files
from hoglab.storage.event_store import QueryError
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.table_files import (
    ColumnType,
    FileFormat,
    FileTable,
    TableDirectory,
    TableFileError,
    column_type,
)


@pytest.fixture
def directory(tmp_path: Path) -> TableDirectory:
    (tmp_path / "tables" / "deep").mkdir(parents=True)
    (tmp_path / "secret.csv").write_text("x\n1\n")
    for name in ("a.csv", "b.csv", "deep/c.csv"):
        (tmp_path / "tables" / name).write_text("x\n1\n")
    return TableDirectory(tmp_path / "tables")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.csv", ["a.csv"]),
        ("*.csv", ["a.csv", "b.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "deep/c.csv"]),
        ("deep/?.csv", ["deep/c.csv"]),
        ("./a.csv", ["a.csv"]),
    ],
)
def test_patterns_mean_files_inside(directory: TableDirectory, pattern: str, names: list[str]) -> None:
    assert directory.files(pattern) == tuple(str(directory.path / name) for name in names)


@pytest.mark.parametrize(
    "pattern",
    [
        *("../secret.csv", "deep/../../secret.csv", "/etc/passwd", "..", ".", "", "a\0b", "a\\b", "x" * 501),
        *("file:///etc/passwd", "https://example.com/a.csv", "s3://bucket/a.csv", "none.csv", "deep"),
    ],
)
def test_patterns_lead_nowhere_else(directory: TableDirectory, pattern: str) -> None:
    with pytest.raises(TableFileError):
        directory.files(pattern)


def test_links_are_not_followed(directory: TableDirectory, tmp_path: Path) -> None:
    (directory.path / "link.csv").symlink_to(tmp_path / "secret.csv")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "d.csv").write_text("x\n1\n")
    (directory.path / "away").symlink_to(tmp_path / "outside")
    for pattern in ("link.csv", "*.csv", "away/d.csv", "*/*.csv"):
        with pytest.raises(TableFileError, match="is a link, which is not followed"):
            directory.files(pattern)


@pytest.mark.parametrize("link", ["away", "deep/away"])
@pytest.mark.parametrize(
    "rest", ["d.csv", "none.csv", "*.csv", "inner/e.csv", "*/*.csv", "inner/none", "**/*.csv"]
)
@pytest.mark.parametrize("target", ["outside", "nowhere", "/etc", "secret.csv"])
def test_an_error_tells_nothing_of_what_is_behind_a_link(
    directory: TableDirectory, tmp_path: Path, link: str, rest: str, target: str
) -> None:
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    for name in ("d.csv", "inner/e.csv"):
        (tmp_path / "outside" / name).write_text("x\n1\n")
    (directory.path / "deep").mkdir(exist_ok=True)
    (directory.path / link).symlink_to(tmp_path / target)
    for pattern in (link, f"{link}/{rest}", f"{link[:-2]}*/{rest}"):
        with pytest.raises(TableFileError) as refused:
            directory.files(pattern)
        is_passed_over = "*" in pattern.removesuffix(rest) and target in ("nowhere", "secret.csv")
        assert str(refused.value) == (
            f"There is no file {pattern} in the directory of tables."
            if is_passed_over
            else f"{link} is a link, which is not followed."
        )


def test_the_directory_itself_may_be_reached_over_a_link(directory: TableDirectory, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(directory.path)
    assert TableDirectory(tmp_path / "linked").columns("a.csv", FileFormat.CSV) == (
        ("x", ColumnType.INTEGER),
    )


def test_names_that_the_engine_would_take_for_patterns(directory: TableDirectory) -> None:
    (directory.path / "odd[a].csv").write_text("x\n1\n")
    with pytest.raises(TableFileError, match="stands for others"):
        directory.files("odd*")


def test_how_many_files_a_table_may_have(directory: TableDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "MAX_FILES", 1)
    assert len(directory.files("a.csv")) == 1
    with pytest.raises(TableFileError, match="more than 1 files"):
        directory.files("*.csv")


def test_how_many_columns_a_table_may_have(
    directory: TableDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "MAX_COLUMNS", 0)
    with pytest.raises(TableFileError, match="more than 0 columns"):
        directory.columns("a.csv", FileFormat.CSV)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TableFileError, match="The directory of tables cannot be read"):
        TableDirectory(tmp_path / "nothing").files("*.csv")


def test_types_of_columns(directory: TableDirectory) -> None:
    table = pa.table(
        {
            "i": pa.array([1], pa.int32()),
            "u": pa.array([1], pa.uint64()),
            "f": pa.array([1.5], pa.float32()),
            "s": ["a"],
            "b": [True],
            "t": pa.array([0], pa.timestamp("ns", "Europe/Berlin")),
            "d": pa.array([0], pa.date32()),
            "l": [[1]],
            "o": [{"a": 1}],
            "x": pa.array([b"x"]),
        }
    )
    pyarrow.parquet.write_table(table, directory.path / "all.parquet")
    kinds = dict(directory.columns("all.parquet", FileFormat.PARQUET))
    assert list(kinds.values()) == [
        *("integer", "float", "float", "string", "boolean", "datetime", "date"),
        *("unknown", "unknown", "unknown"),
    ]
    assert [column_type(name) for name in ("DECIMAL(10,2)", "UUID", "TIME", "TIMESTAMP_NS")] == [
        *("float", "string", "unknown", "datetime"),
    ]


def test_what_cannot_be_read_names_no_place_outside(directory: TableDirectory) -> None:
    (directory.path / "bad.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(TableFileError, match=r"bad\.parquet cannot be read as Parquet") as refused:
        directory.columns("bad.parquet", FileFormat.PARQUET)
    assert str(directory.path) not in str(refused.value)


def test_a_look_is_taken_once_for_the_same_files(
    directory: TableDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    look = directory.columns
    monkeypatch.setattr(
        directory, "columns", lambda pattern, kind: looks.append(pattern) or look(pattern, kind)
    )
    table = FileTable("t", FileFormat.CSV, "*.csv", (("x", ColumnType.INTEGER),))
    for _ in range(3):
        assert len(directory.files_of(table)) == 2
    assert len(looks) == 1
    before = directory.state_of(table)
    assert directory.state_of(table) == before
    (directory.path / "b.csv").write_text("x\n1\n2\n")
    assert directory.state_of(table) != before
    directory.files_of(table)
    assert len(looks) == 2


def test_queries_of_the_event_store_read_tables_and_nothing_else(
    directory: TableDirectory, tmp_path: Path
) -> None:
    (directory.path / "link.csv").symlink_to(tmp_path / "secret.csv")
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="256MB", tables=directory)
    try:
        with store.reader() as reader:
            asked = "SELECT sum(x) FROM read_csv($files)"
            assert reader.execute(asked, {"files": list(directory.files("*/*.csv"))}) == [(1,)]
            for place in (
                tmp_path / "secret.csv",
                directory.path / ".." / "secret.csv",
                directory.path / "link.csv",
                Path("/etc/hostname"),
            ):
                with pytest.raises(QueryError):
                    reader.execute(asked, {"files": [str(place)]})
            with pytest.raises(QueryError):
                reader.execute("SET enable_external_access = true")
    finally:
        store.close()


def test_the_store_answers_after_a_query_broke_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that met an error inside itself answers nothing any more: readers open the file anew."""
    store = DuckDbEventStore(tmp_path / "events.duckdb", memory="256MB")
    try:
        with store.reader() as reader:
            broken = reader._file
            broken.explain(duckdb.InternalException("something is wrong inside"))
            assert broken.broken
        with store.reader() as reader:
            assert reader._file is not broken
            assert reader.execute("SELECT count(*) FROM events") == [(0,)]
    finally:
        store.close()
