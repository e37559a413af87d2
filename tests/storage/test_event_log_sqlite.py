"""The event log in a SQLite file: a disk that fills up, and space that is given back."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.storage.test_event_log import append

from hoglab.settings import Settings
from hoglab.storage.database.errors import DatabaseFullError, explain
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log import sqlite as sqlite_module
from hoglab.storage.event_log.log import LogLimits
from hoglab.storage.event_log.sqlite import SqliteEventLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteEventLog]:
    with closing(SqliteEventLog(path)) as log:
        yield log


def assert_advised(text: str) -> None:
    """The line names settings that there are, by which an operator gets room."""
    fields = {f"HOGLAB_{name}".upper() for name in Settings.model_fields}
    named = set(re.findall(r"HOGLAB_\w+", text))
    assert named == {"HOGLAB_DATA", "HOGLAB_EVENT_RETENTION_DAYS"}
    assert named <= fields
    assert "\n" not in text


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), sqlite3.OperationalError()],
    ids=["system", "engine"],
)
def test_whatever_says_that_the_disk_is_full_is_explained_with_what_helps(error: Exception) -> None:
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
    known = explain(error, "the event log")
    assert isinstance(known, DatabaseFullError)
    assert_advised(str(known))


def test_a_nearly_full_disk_is_refused(path: Path) -> None:
    with closing(SqliteEventLog(path, min_free_disk_bytes=1 << 60)) as log:
        with pytest.raises(EventLogFullError, match="disk is nearly full") as caught:
            append(log, b"x")
        assert_advised(str(caught.value))
        assert caught.value.retry_after_s == 30
        with pytest.raises(EventLogFullError):
            log.check()
        log._min_free_disk_bytes = 0
        log.check()
        assert append(log, b"x") == [1]


def test_a_full_disk_fails_the_requests_and_not_the_log(log: SqliteEventLog) -> None:
    pages = log._appender.execute("PRAGMA page_count").fetchone()[0]
    log._appender.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(EventLogFullError, match="the disk is full") as caught:
        append(log, b"x" * 100_000)
    assert_advised(str(caught.value))
    assert log.stats().records == 0
    log._appender.execute("PRAGMA max_page_count=1000000")
    assert append(log, b"x" * 100_000) == [1]


def test_a_scarce_disk_keeps_nothing_that_is_finished(path: Path) -> None:
    with closing(SqliteEventLog(path)) as log:
        append(log, b"a")
        log.commit("consumer", 1)
        log._min_free_disk_bytes = log._free_disk_bytes()
        log.tidy()
        assert log.stats().records == 0


def test_the_file_shrinks_and_its_space_is_used_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "SPARE_BYTES", 1024 * 1024)

    def size(log: SqliteEventLog) -> int:
        log._keeper.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return path.stat().st_size

    with closing(SqliteEventLog(path, limits=LogLimits(keep_finished_s=-1))) as log:
        for _ in range(3):
            log.commit("consumer", append(log, *[b"x" * 100_000] * 100)[-1])
            assert 10_000_000 < size(log) < 14_000_000
            log.tidy()
            assert log.stats().records == 0
            assert size(log) < 2_000_000
