"""Faults that a server must expect have one line in its log, with a reason; others keep their traceback."""

from __future__ import annotations

import io
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import structlog
from sqlalchemy.exc import DBAPIError

from hoglab.background import BackgroundService
from hoglab.http.logs import EXPECTED_FAULTS, configure_logging
from hoglab.storage.database import errors


def below(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for lower in kind.__subclasses__():
        yield from below(lower)


def locked(folder: Path) -> Exception:
    """What SQLite's driver says of a file that another connection writes to."""
    first, second = (sqlite3.connect(folder / "x.db", isolation_level=None, timeout=0) for _ in (1, 2))
    first.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError) as raised:
        second.execute("BEGIN IMMEDIATE")
    first.close()
    second.close()
    return raised.value


def wrapped(error: Exception) -> Exception:
    return DBAPIError("SELECT 1", None, error)


SERIALIZATION, DEADLOCK, SHUTDOWN, LOST, NO_LOCK, TIMEOUT = (
    "40001",
    "40P01",
    "57P01",
    "08006",
    "55P03",
    "57014",
)
OF_DRIVERS = [
    psycopg.errors.lookup(state)("first\nsecond")
    for state in (SERIALIZATION, DEADLOCK, SHUTDOWN, LOST, NO_LOCK, TIMEOUT)
]
OF_DRIVERS += [psycopg.OperationalError("consuming input failed: server closed the connection\nunexpectedly")]
EXPECTED = [
    *(
        kind.__new__(kind, "it is so\nfor now")
        for top in EXPECTED_FAULTS
        for kind in below(top)
        if kind.__module__.startswith("hoglab")
    ),
    *OF_DRIVERS,
    *map(wrapped, OF_DRIVERS),
    ConnectionResetError(104, "Connection reset by peer"),
]
UNKNOWN = [
    ValueError("a mistake"),
    errors.DatabaseDamagedError("is damaged"),
    errors.DatabaseUnreadableError("cannot be read"),
    errors.NestedWriteError("nested"),
    sqlite3.IntegrityError("UNIQUE constraint failed"),
    wrapped(psycopg.errors.UniqueViolation("twice")),
    wrapped(psycopg.errors.UndefinedColumn("there is none")),
]


@pytest.fixture(params=["console", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    before, handlers, level = (
        structlog.get_config(),
        logging.getLogger().handlers[:],
        logging.getLogger().level,
    )
    stream = io.StringIO()
    configure_logging("info", request.param, stream)
    yield stream
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)


class Failing(BackgroundService):
    NAME = "failing"

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def round(self) -> float | None:
        self._stopping.set()
        raise self.error


def logged(log: io.StringIO, error: Exception) -> str:
    service = Failing(error)
    service._run()
    return log.getvalue()


@pytest.mark.parametrize("error", EXPECTED, ids=lambda error: f"{type(error).__name__} {error}"[:40])
def test_an_expected_fault_is_one_line_with_its_reason(log: io.StringIO, error: Exception) -> None:
    text = logged(log, error)
    assert text.count("\n") == 1
    assert "background_service_failed" in text
    assert "reason" in text
    assert "Traceback" not in text
    log.seek(0)
    log.truncate()
    logging.getLogger("a library").error("it failed", exc_info=error)
    assert log.getvalue().count("\n") == 1


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: type(error).__name__)
def test_an_unknown_fault_keeps_its_traceback(log: io.StringIO, error: Exception) -> None:
    assert "Traceback" in logged(log, error)


def test_a_file_that_is_locked_is_one_line(log: io.StringIO, tmp_path: Path) -> None:
    text = logged(log, locked(tmp_path))
    assert "is locked by another writer" in text
    assert text.count("\n") == 1


def test_the_reason_that_a_line_has_stays(log: io.StringIO) -> None:
    error = errors.DatabaseBusyError("busy")
    structlog.get_logger().error("it_failed", reason="its own", exc_info=error)
    assert "its own" in log.getvalue()
    assert "DatabaseBusyError" in log.getvalue()
    assert log.getvalue().count("\n") == 1
