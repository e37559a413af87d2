"""What it costs that every answered write is on disk, and what sharing the wait for the disk brings.

One transaction inserts a row of 1 KB and raises a version. Writers do one after the other. The reference commits the
same without waiting for the disk; "a sync for each" syncs for each commit while the file is locked, as SQLite does by
itself (``synchronous=FULL``). The same again as if the disk took 5 ms for a sync, as many do: this one may answer from
a cache.

Run: ``python -m benchmarks.management_writes [--smoke]``
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from unittest.mock import patch
from uuid import uuid4

import sqlalchemy as sa

from hoglab.storage.database import Database, Rebuildable, tables
from hoglab.storage.database.locks import write_lock

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TEXT = "x" * 1_000
WRITERS = (1, 8, 32)
SLOW_SYNC_S = 0.005


def statements(tx: sa.Connection, name: str) -> None:
    tx.execute(sa.insert(tables.organization).values(id=name, name=TEXT, created_at=NOW))


def grouped(database: Database) -> Callable[[str], None]:
    def write(name: str) -> None:
        with database.write() as tx:
            statements(tx.connection, name)
            tx.changed("flags", 1)

    return write


def unsynced(database: Database) -> Callable[[str], None]:
    def write(name: str) -> None:
        with database.write(rebuildable=Rebuildable.KEY_USAGE) as tx:
            statements(tx.connection, name)
            tx.changed("flags", 1)

    return write


def alone(database: Database, path: Path) -> Callable[[str], None]:
    """The same, with a sync of its own for each commit, during which nobody else may write."""
    unsynced_write, lock = unsynced(database), write_lock(path)

    def write(name: str) -> None:
        unsynced_write(name)
        with lock.turn():
            wal = os.open(f"{path}-wal", os.O_RDWR)
            os.fdatasync(wal)
            os.close(wal)

    return write


def rate(write: Callable[[str], None], writers: int, seconds: float) -> float:
    """Transactions per second of some writers together."""
    until = time.monotonic() + seconds
    counts = [0] * writers

    def work(number: int) -> None:
        while time.monotonic() < until:
            write(str(uuid4()))
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - started)


def compare(database: Database, path: Path, seconds: float, rounds: int) -> None:
    ways = {"unsynced": unsynced(database), "alone": alone(database, path), "grouped": grouped(database)}
    for writers in WRITERS:
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, write in ways.items():
                found[name].append(rate(write, writers, seconds))
        fastest = median(found["unsynced"])
        ratios = {name: median(each) / fastest for name, each in found.items()}
        print(
            f"  {writers:2} writers: {fastest:7,.0f}/s unsynced; a sync for each {ratios['alone']:.2f}; "
            f"shared syncs {ratios['grouped']:.2f} ({ratios['grouped'] / ratios['alone']:.1f}x of a sync for each)"
        )


def main() -> None:
    smoke = "--smoke" in sys.argv
    seconds, rounds = (0.2, 1) if smoke else (1.0, 5)
    print("management writes a second; ratios to writing without waiting for the disk")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "hoglab.db"
        database = Database.open(path)
        print("this disk")
        compare(database, path, seconds, rounds)
        sync = os.fdatasync

        def slow_sync(descriptor: int) -> None:
            sync(descriptor)
            time.sleep(SLOW_SYNC_S)

        print(f"a sync takes {SLOW_SYNC_S * 1000:g} ms")
        with patch("os.fdatasync", slow_sync):
            compare(database, path, seconds, rounds)
        database.dispose()


if __name__ == "__main__":
    main()
