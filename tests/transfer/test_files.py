"""Reading rows, and where the unreadable ones stand."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import brotli
import duckdb
import pytest

from hoglab.transfer import files
from hoglab.transfer.files import FileError, RowFile


def made(folder: Path, name: str, content: bytes) -> RowFile:
    (folder / name).write_bytes(content)
    return RowFile(folder / name)


def test_json_lines(tmp_path: Path) -> None:
    text = b'{"event": "a"}\n\n[1]\nnot json\n"\xff"\n{"event": "b"}'
    for name, content in (
        ("x.jsonl", text),
        ("x.ndjson.gz", gzip.compress(text)),
        ("x.jsonl.br", brotli.compress(text)),
    ):
        file = made(tmp_path, name, content)
        rows = list(file.rows())
        assert [(row.line, row.value) for row in rows] == [
            (1, {"event": "a"}), (3, None), (4, None), (5, None), (6, {"event": "b"}),
        ]  # fmt: skip
        assert rows[1].problem == "the row is not a JSON object"
        assert "not valid JSON" in rows[2].problem
        assert file.done == file.size


def test_a_line_without_end_is_refused_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_ROW_BYTES", 50)
    file = made(tmp_path, "x.jsonl", b'{"event": "' + b"x" * 500 + b'"}\n{"event": "b"}\n')
    first, second = file.rows()
    assert (first.line, first.value) == (1, None)
    assert "longer than 50 bytes" in first.problem
    assert second == (2, {"event": "b"}, "")


def test_csv(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbfevent,properties\na,"{""x"": ""one\ntwo""}"\nb\n\nc,\xff\n'
    for name, content in (
        ("x.csv", text),
        ("x.csv.gz", gzip.compress(text)),
        ("x.csv.br", brotli.compress(text)),
    ):
        rows = list(made(tmp_path, name, content).rows())
        assert rows[0] == (2, {"event": "a", "properties": '{"x": "one\ntwo"}'}, "")
        assert (rows[1].line, rows[1].value) == (4, None)
        assert "1 fields instead of 2" in rows[1].problem
        assert rows[2].line == 6


def test_parquet_with_typed_columns(tmp_path: Path) -> None:
    path = tmp_path / "it's.parquet"
    duckdb.sql(
        "SELECT uuid() AS uuid, 'e' AS event, {a: i, b: [1, 2]} AS properties, "
        "TIMESTAMP '2025-01-01 01:02:03.5' AS timestamp FROM range(5000) t(i)"
    ).write_parquet(str(path))
    file = RowFile(path)
    rows = list(file.rows())
    assert (len(rows), file.size, file.done) == (5000, 5000, 5000)
    assert rows[41].value is not None
    assert rows[41].line == 42
    assert rows[41].value["properties"] == {"a": 41, "b": [1, 2]}
    assert rows[41].value["timestamp"].startswith("2025-01-01 01:02:03.5")


@pytest.mark.parametrize("compression", ["zstd", "gzip", "brotli", "lz4", "snappy"])
def test_parquet_is_known_by_its_content(tmp_path: Path, compression: str) -> None:
    """Batch exports of PostHog name their files so."""
    path = tmp_path / f"2025-01-01-2025-01-02.parquet.{compression}"
    duckdb.sql("SELECT 'e' AS event FROM range(3)").write_parquet(str(path), compression=compression)
    assert [row.value for row in RowFile(path).rows()] == [{"event": "e"}] * 3


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.xlsx", b"", "expected"),
        ("x.parquet", b"PAR1 not really", "cannot be read"),
        ("x.jsonl.gz", gzip.compress(b'{"event": "a"}\n' * 9999)[:-20], "cannot be read"),
        ("x.csv.gz", b"not gzip", "cannot be read"),
        ("x.jsonl.br", brotli.compress(b'{"event": "a"}\n' * 9999)[:-3], "cannot be read"),
        ("x.csv.br", b"not brotli", "cannot be read"),
        ("x.parquet", b"", "expected"),
        ("x.json", b'[{"event": "a"}]', "one object on each line"),
        ("x.csv", b"name,time\na,b\n", "no column `event`"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    with pytest.raises(FileError, match=reason):
        list(made(tmp_path, name, content).rows())


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        RowFile(tmp_path / "x.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.br", "csv", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    """Peak memory of processes that read a file of 62 MB and one of a twentieth of that."""
    peaks = []
    for rows in (60_000, 3_000):
        path = tmp_path / f"{rows}.{kind}"
        count = duckdb.sql("SELECT unnest(range($rows)) AS i", params={"rows": rows})
        found = count.project(
            "'e' AS event, 'd' || i AS distinct_id, repeat(md5(i::VARCHAR), 32) AS properties"
        )
        if kind == "parquet":
            found.write_parquet(str(path), row_group_size=2_048)
        elif kind == "csv":
            found.write_csv(str(path))
        else:
            duckdb.sql(f"COPY (FROM found) TO '{path}' (FORMAT json)")
        if kind.endswith(".br"):
            path.write_bytes(brotli.compress(path.read_bytes(), quality=1))
        script = (
            "import sys; from pathlib import Path; from hoglab.transfer.files import RowFile; "
            "assert sum(row.value is not None for row in RowFile(Path(sys.argv[1])).rows()) == int(sys.argv[2]); "
            "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(path), str(rows)], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout) // 1024)
    assert peaks[0] - peaks[1] < 45, peaks
