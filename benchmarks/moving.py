"""How long it takes to move a directory with a million events into PostgreSQL and back, and its events into ClickHouse.

The directory is filled by a server that ingests the events: persons, their distinct ids, the event log. Both moves
are the command `hoglab migrate-to` in a process of its own. At the end every table has the digest that it had at first,
and the events have theirs by project and day. The reference copies the two database files and reads them once: what
the move costs above that is reading rows, sending them, writing their indexes, and comparing both sides.

The events move to ClickHouse by a command for them alone, and come back with everything else. Their reference is the
engine's own copy of them into another file. ClickHouse is its engine behind an adapter (`tests.clickhouse`), whose own
time the processor seconds of the command do not have.

Run: ``python -m benchmarks.moving [--smoke]``; says so and ends where no PostgreSQL is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import psycopg
from tests.clickhouse import running
from tests.postgres import _programs
from tests.storage.own_postgres import own_server

from benchmarks.capture_batches import EVENTS
from benchmarks.second_process import ingested, prepared, worker
from hoglab.storage.moving.location import Location
from hoglab.storage.moving.rows import Digest

WAIT_S = 0.2


class Cost(NamedTuple):
    """Seconds by the clock and of processors, and the most memory of the process in MB."""

    seconds: float
    processor_s: float
    peak_mb: float

    def line(self) -> str:
        return f"{self.seconds:7.1f} s, processor {self.processor_s:7.1f} s, memory {self.peak_mb:5.0f} MB"


def filled(folder: Path, events: int) -> None:
    """A directory with so many events, ingested."""
    prepared(folder, events // EVENTS)
    with worker(folder, ingests=True) as server:
        while ingested(server.url) < events:
            time.sleep(WAIT_S)


def moved(target: str, folder: Path, *more: str) -> Cost:
    """What one move costs."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "hoglab", "migrate-to", target, "--data", str(folder), *more]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"migrate-to {target} failed")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def digests(folder: Path) -> dict[str, Digest]:
    """Those of all tables."""
    found = {}
    with Location(folder / "hoglab.db", folder / "queue.db", "it").opened() as opened:
        for database, table in opened.tables():
            with database.read() as connection:
                found[table.name] = table.digest(connection)
    return found


def events_of(folder: Path) -> list[Any]:
    """The number of events and the exclusive or of their uuids' digests, by project and day."""
    query = (
        "SELECT project_id, timestamp::DATE, count(*), bit_xor(hash(uuid)) FROM stored_events "
        "GROUP BY ALL ORDER BY ALL"
    )
    with duckdb.connect(str(folder / "events.duckdb"), read_only=True) as connection:
        return connection.execute(query).fetchall()


def copied(folder: Path, to: Path) -> float:
    """Seconds that a copy of the database files takes, read once more."""
    started = time.perf_counter()
    to.mkdir()
    for name in ("hoglab.db", "queue.db"):
        shutil.copy(folder / name, to)
        with (to / name).open("rb") as file:
            while file.read(1 << 20):
                pass
    return time.perf_counter() - started


def engines_copy(folder: Path, to: Path) -> float:
    """Seconds that the engine takes for a copy of the events in a file of its own."""
    started = time.perf_counter()
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(f"ATTACH '{to}' AS target")
        connection.execute("CREATE TABLE target.copied AS SELECT * FROM stored_events ORDER BY seq")
    return time.perf_counter() - started


def events_moved(folder: Path, root: Path, url: str, stored: list[Any]) -> None:
    """Print what it costs to move events to ClickHouse and back."""
    events = sum(day[2] for day in stored)
    reference = engines_copy(folder, root / "copied.duckdb")
    with running(root / "clickhouse") as clickhouse:
        store = clickhouse.database()
        moved(url, folder)
        there = moved(url, folder, "--event-store", store)
        back = moved("directory", folder, "--database-url", url, "--event-store", store)
    print(f"events: {events:,}; the engine's own copy {reference:.1f} s")
    for name, cost in (("events there", there), ("everything back", back)):
        rate, ratio = events / cost.seconds, reference / cost.seconds
        print(f"{name:<15} {cost.line()}, {rate:,.0f} events/s, ratio of the copy to it {ratio:.3f}")
    if events_of(folder) != stored:
        raise SystemExit("events are not the same after coming back")


def database_beside(url: str) -> str:
    """The address of a new database of a server."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE beside")
    return url.replace("/postgres?", "/beside?")


def main() -> None:
    if _programs() is None:
        print("needs PostgreSQL")
        return
    events = 2_000 if "--smoke" in sys.argv else 1_000_000
    with tempfile.TemporaryDirectory(dir=".") as root, own_server() as server:
        folder = Path(root) / "data"
        filled(folder, events)
        before, stored = digests(folder), events_of(folder)
        size = sum((folder / name).stat().st_size for name in ("hoglab.db", "queue.db"))
        rows = sum(each.rows for each in before.values())
        reference = copied(folder, Path(root) / "copy")
        print(
            f"{os.cpu_count()} processors; {sum(day[2] for day in stored):,} events, {rows:,} rows beside them in "
            f"{len(before)} tables, {size / 1e6:,.0f} MB; bare copy {reference:.1f} s"
        )
        there = moved(server.url, folder)
        back = moved("directory", folder, "--database-url", server.url)
        for name, cost in (("there", there), ("back", back)):
            rate, ratio = rows / cost.seconds, reference / cost.seconds
            print(f"{name:<5} {cost.line()}, {rate:,.0f} rows/s, ratio of the bare copy to it {ratio:.2f}")
        after = digests(folder)
        different = [name for name, digest in before.items() if after[name] != digest]
        if different or events_of(folder) != stored:
            raise SystemExit(f"not the same after coming back: {', '.join(different) or 'events'}")
        print("digests: equal, of all tables and of events by project and day")
        events_moved(folder, Path(root).absolute(), database_beside(server.url), stored)


if __name__ == "__main__":
    main()
