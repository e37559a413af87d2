"""How fast events go from the log through persons into the store, beside the store alone.

Fills a log with 100-event gzip batches (as `benchmarks.capture_batches` sends them), then times the real
loop until all are stored. The reference writes the same rows to another event store, ready-made: what is
left of its speed is what reading, normalising and resolving persons cost.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.capture_batches import EVENTS, TOKEN, make_batch
from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.capture.records import encode_record, new_header
from hoglab.ingestion import IngestedEvent, Ingestion, Parking
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log.sqlite import SqliteEventLog
from hoglab.storage.event_store import EventBatch, EventRow
from hoglab.storage.event_store.duckdb import DuckDbEventStore


class Keeper:
    """A dispatcher that runs nothing and keeps the rows, for the reference."""

    def __init__(self) -> None:
        self.rows: list[EventRow] = []
        self.offset = 0

    def position(self) -> int:
        return self.offset

    def dispatch(self, events: Sequence[IngestedEvent], *, log_offset: int) -> None:
        self.rows += [event.row for event in events]
        self.offset = log_offset

    def has_room(self) -> bool:
        return True


async def fill(log: SqliteEventLog, batches: int) -> None:
    for start in range(0, batches, 64):
        await asyncio.gather(
            *(log.append(record(number)) for number in range(start, min(start + 64, batches)))
        )


def record(number: int) -> bytes:
    header = new_header(
        project_id=1,
        received_at=datetime.now(UTC),
        is_gzip=True,
        is_engage=False,
        ip="127.0.0.1",
        sent_at_ms=None,
        max_event_bytes=1_000_000,
    )
    return encode_record(header, make_batch(number))


def run_loop(folder: Path, batches: int) -> tuple[float, float, list[EventRow]]:
    """Events per second by the clock and by processor time, and the rows that were stored."""
    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    bootstrap(database, accounts, project_token=TOKEN)
    queue = Database.open(folder / "queue.db", queue_metadata)
    log = SqliteEventLog(folder / "queue.db")
    store = DuckDbEventStore(folder / "events.duckdb")
    asyncio.run(fill(log, batches))
    keeper = Keeper()
    ingestion: Any = Ingestion(
        log, store, PersonService(database), accounts.project, Parking(queue), dispatcher=keeper
    )
    started_at, started_cpu = time.perf_counter(), time.process_time()
    ingestion.start()
    last = log.stats().last_offset
    while ingestion.position < last:
        time.sleep(0.01)
    seconds, cpu_seconds = time.perf_counter() - started_at, time.process_time() - started_cpu
    ingestion.stop(10)
    with store.reader() as reader:
        assert reader.execute("SELECT count(*) FROM events") == [(batches * EVENTS,)]
    for part in (log, store):
        part.close()
    queue.dispose()
    database.dispose()
    return batches * EVENTS / seconds, batches * EVENTS / cpu_seconds, keeper.rows


def store_only(folder: Path, rows: list[EventRow], size: int = 5_000) -> float:
    """Events per second of writing rows to a store, in batches as large as those of the loop."""
    store = DuckDbEventStore(folder / "reference.duckdb")
    started_at = time.perf_counter()
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        store.append(EventBatch(part), log_offset=part[-1].log_offset)
    seconds = time.perf_counter() - started_at
    store.close()
    return len(rows) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    options = parser.parse_args()
    batches = 50 if options.smoke else 1_500
    with tempfile.TemporaryDirectory() as folder:
        rate, cpu_rate, rows = run_loop(Path(folder), batches)
        reference = store_only(Path(folder), rows)
    persons = len({row.person_id for row in rows})
    print(f"{len(rows):,} events of {persons:,} persons, all new")
    print(f"  log to store     {rate:9,.0f} events/s ({cpu_rate:,.0f} per second of processor time)")
    print(f"  store alone      {reference:9,.0f} events/s")
    print(f"loop / store alone: {rate / reference:.2f}   (target 10,000 events/s, aim 25,000)")
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
