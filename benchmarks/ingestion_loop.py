"""How fast events go from the log through persons into the store, beside the store alone.

Fills a log with 100-event gzip batches (as `benchmarks.capture_batches` sends them), then times the real
loop until all are stored: without functions, and with a hundred that about one event in a hundred matches, whose
invocations are queued. The reference writes the same rows to another event store, ready-made: what is
left of its speed is what reading, normalising, resolving persons and dispatching cost.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa

from benchmarks.capture_batches import EVENTS, make_batch
from benchmarks.delivery_throughput import FORWARD, House
from hoglab.accounts.service import AccountService
from hoglab.app import calm_garbage_collector
from hoglab.capture.records import encode_record, new_header
from hoglab.ingestion import IngestedEvent, Ingestion, Parking
from hoglab.people import PersonService
from hoglab.storage.database.tables import person
from hoglab.storage.event_log.sqlite import SqliteEventLog
from hoglab.storage.event_store import EventBatch, EventRow
from hoglab.storage.event_store.duckdb import MEMORY, DuckDbEventStore

REFERENCE_ROWS = 20_000
FUNCTIONS = 100


class Keeper:
    """A dispatcher that runs nothing and keeps some rows, for the reference."""

    def __init__(self) -> None:
        self.rows: list[EventRow] = []
        self.offset = 0

    def position(self) -> int:
        return self.offset

    def dispatch(self, events: Sequence[IngestedEvent], *, log_offset: int) -> None:
        if len(self.rows) < REFERENCE_ROWS:
            self.rows += [event.row for event in events]
        self.offset = log_offset

    def has_room(self) -> bool:
        return True


async def fill(log: SqliteEventLog, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, 64):
        part = range(start, min(start + 64, numbers.stop))
        await asyncio.gather(*(log.append(record(number)) for number in part))


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


@dataclass(frozen=True)
class Speed:
    """Events per second by the clock, and by processor time of the whole process."""

    clock: float
    processor: float
    new_persons: int
    backlog: int


def add_functions(house: House, count: int) -> None:
    """Destinations that each wait for one kind of event on one page."""
    for number in range(count):
        name = ["$pageview", "purchase", "$feature_flag_called"][number % 3]
        page = {
            "key": "$current_url",
            "type": "event",
            "operator": "icontains",
            "value": f"/{1_000 + number}",
        }
        house.create(
            hog=FORWARD,
            filters={"events": [{"id": name, "type": "events", "properties": [page]}]},
            inputs_schema=[{"key": "url", "type": "string"}],
            inputs={"url": {"value": "https://a.example/{event.event}"}},
        )


def run_loop(
    folder: Path, batches: int, functions: int = 0, rounds: int = 2, *, memory_every: int = 0
) -> tuple[list[Speed], list[EventRow]]:
    """The speed of each round, and, without functions, the rows stored first. Later rounds meet known persons."""
    house = House(folder)
    accounts = AccountService(house.database)
    add_functions(house, functions)
    log = SqliteEventLog(folder / "queue.db")
    # The engine's cache may fill up to its limit: a small one shows sooner whether anything else grows.
    store = DuckDbEventStore(folder / "events.duckdb", memory="256MB" if memory_every else MEMORY)
    people, keeper = PersonService(house.database), Keeper()
    dispatcher = house.delivery.dispatcher if functions else keeper
    speeds, known = [], 0
    for round_ in range(rounds):
        asyncio.run(fill(log, range(round_ * batches, (round_ + 1) * batches)))
        parking = Parking(house.queue_database)
        ingestion = Ingestion(log, store, people, accounts.project, parking, dispatcher=dispatcher)
        started_at, started_cpu = time.perf_counter(), time.process_time()
        ingestion.start()
        while ingestion.position < log.last_offset():
            time.sleep(0.01)
        seconds, cpu_seconds = time.perf_counter() - started_at, time.process_time() - started_cpu
        ingestion.stop(10)
        events = batches * EVENTS
        with house.database.read() as connection:
            persons = connection.execute(sa.select(sa.func.count()).select_from(person)).scalar_one()
        speeds.append(Speed(events / seconds, events / cpu_seconds, persons - known, house.queue.backlog()))
        known = persons
        if memory_every and (round_ + 1) % memory_every == 0:
            print(
                f"  {(round_ + 1) * events:10,} events   {speeds[-1].clock:9,.0f} events/s   "
                f"{resident_bytes() / 2**20:7,.0f} MiB",
                flush=True,
            )
    with store.reader() as reader:
        assert reader.execute("SELECT count(*) FROM events") == [(rounds * batches * EVENTS,)]
    for part in (log, store, house):
        part.close()
    return speeds, keeper.rows


def store_only(folder: Path, rows: list[EventRow], size: int = 5_000) -> float:
    """Events per second of writing rows to a store, in batches as large as those of the loop."""
    store = DuckDbEventStore(folder / "reference.duckdb")
    started_at = time.perf_counter()
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        store.append(EventBatch(part, is_checked=True), log_offset=part[-1].log_offset)
    seconds = time.perf_counter() - started_at
    store.close()
    return len(rows) / seconds


def resident_bytes() -> int:
    """Memory of this process that is its own: pages of mapped files do not count."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    parser.add_argument(
        "--memory", type=int, metavar="EVENTS", help="only show the memory while so many are ingested"
    )
    options = parser.parse_args()
    calm_garbage_collector()
    if options.memory:
        rounds = max(1, options.memory // 50_000)
        with tempfile.TemporaryDirectory() as folder:
            run_loop(Path(folder), 500, FUNCTIONS, rounds, memory_every=max(1, rounds // 20))
        return
    batches = 50 if options.smoke else 1_000
    with tempfile.TemporaryDirectory() as folder:
        plain, rows = run_loop(Path(folder), batches)
        reference = store_only(Path(folder), rows)
    with tempfile.TemporaryDirectory() as folder:
        dispatched, _ = run_loop(Path(folder), batches, FUNCTIONS)
    events = batches * EVENTS
    print(f"{events:,} events a round; target 10,000 events/s on one core, aim 25,000")
    print(f"  store alone, rows ready-made      {reference:9,.0f} events/s")
    for title, speeds in (("no function", plain), (f"{FUNCTIONS} functions", dispatched)):
        for speed in speeds:
            print(
                f"  log to dispatch, {title:>13}, {speed.new_persons:6,} new persons {speed.clock:9,.0f} events/s "
                f"({speed.processor:,.0f} per second of processor time)   "
                f"ratio to store alone {speed.clock / reference:.2f}   {speed.backlog:,} invocations queued"
            )
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
