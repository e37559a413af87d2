"""Write-ahead logs that were damaged or cut off: what SQLite leaves out of them without a word is noticed."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hoglab.storage.database.sqlite.log_damage import lost_commits

COMMITS = 60
FILES = ("a.db", "a.db-wal", "a.db-shm")


@pytest.fixture(scope="module", params=[4096, 65536], ids=["small pages", "large pages"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a killed process: its log was begun anew twice, and part of the last one is in the file already."""
    folder = tmp_path_factory.mktemp("log")
    dice = random.Random(1)
    connection = sqlite3.connect(folder / "a.db", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {request.param}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    for part in range(3):
        for _ in range(COMMITS if part < 2 else COMMITS // 2):
            connection.execute("INSERT INTO t VALUES (?)", (dice.randbytes(dice.randrange(9000)),))
        if part < 2:
            connection.execute("PRAGMA wal_checkpoint")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES ('never committed')")
    kept = folder / "kept"
    kept.mkdir()
    for name in FILES:
        shutil.copy(folder / name, kept / name)
    connection.close()
    return kept


def content(folder: Path) -> object:
    connection = sqlite3.connect(folder / "a.db")
    try:
        return connection.execute("SELECT count(*), sum(length(x)) FROM t").fetchone()
    finally:
        connection.close()


def flip(log: Path, dice: random.Random) -> None:
    data = bytearray(log.read_bytes())
    data[dice.choice((dice.randrange(len(data)), dice.randrange(60)))] ^= 1 << dice.randrange(8)
    log.write_bytes(data)


def cut(log: Path, dice: random.Random) -> None:
    os.truncate(log, dice.randrange(log.stat().st_size))


@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("damage", [flip, cut])
def test_whatever_is_missing_is_told(
    left: Path, tmp_path: Path, damage: Callable[[Path, random.Random], None], *, has_index: bool
) -> None:
    shutil.copytree(left, tmp_path / "right")
    right, dice, wrong = content(tmp_path / "right"), random.Random(2), 0
    for number in range(40):
        folder = tmp_path / str(number)
        shutil.copytree(left, folder)
        if not has_index:
            (folder / "a.db-shm").unlink()
        damage(folder / "a.db-wal", dice)
        told = lost_commits(folder / "a.db")
        is_wrong = content(folder) != right
        wrong += is_wrong
        if damage is flip or has_index:  # without the index a cut off end leaves no trace
            assert (told is not None) == is_wrong
        else:
            assert told is None
    assert wrong > 10


def test_a_sound_log_and_none_lack_nothing(left: Path, tmp_path: Path) -> None:
    shutil.copytree(left, tmp_path / "all")
    assert lost_commits(tmp_path / "all" / "a.db") is None
    content(tmp_path / "all")  # works the log into the file
    assert not (tmp_path / "all" / "a.db-wal").exists()
    assert lost_commits(tmp_path / "all" / "a.db") is None
    assert lost_commits(tmp_path / "nothing.db") is None


def test_what_was_never_finished_is_not_missed(left: Path, tmp_path: Path) -> None:
    """Frames that are torn, or that no commit ended, as a power cut leaves them."""
    for name in FILES[:2]:
        shutil.copy(left / name, tmp_path / name)
    whole = (left / "a.db-wal").read_bytes()
    page = int.from_bytes(whole[8:12], "big")
    frame = bytearray(whole[-(page + 24) :])
    frame[4:8] = bytes(4)  # not the end of a commit
    for rest in (frame, frame[:500], bytes(page + 24)):
        (tmp_path / "a.db-wal").write_bytes(whole + rest)
        assert lost_commits(tmp_path / "a.db") is None


def test_a_log_in_the_file_already_may_be_damaged(left: Path, tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(left / name, tmp_path / name)
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("PRAGMA wal_checkpoint").fetchall()
    folder = tmp_path / "later"
    folder.mkdir()
    for name in FILES:
        shutil.copy(tmp_path / name, folder / name)
    connection.close()
    flip(folder / "a.db-wal", random.Random(3))
    assert lost_commits(folder / "a.db") is None
