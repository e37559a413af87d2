"""How fast events go from the log through persons into the store, beside the store alone.

Fills a log with 100-event gzip batches (as `benchmarks.capture_batches` sends them), then times the real
loop until all are stored: without functions, with a hundred that about one event in a hundred matches, whose
invocations are queued, and with a thousand that match none. The reference writes the same rows to another event
store, ready-made: what is left of its speed is what reading, normalising, resolving persons and dispatching cost.

``--memory`` instead judges whether the memory of the process stays as it is over many events, and fails if it grows.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import harmonic_mean, linear_regression
from typing import Any

import sqlalchemy as sa
from tests.embedded import EmbeddedEventLog, EmbeddedEventStore

from benchmarks.capture_batches import EVENTS, make_batch
from benchmarks.delivery_throughput import FORWARD, House
from hoglab.accounts.service import AccountService
from hoglab.app import calm_garbage_collector
from hoglab.capture.records import encode_record, new_header
from hoglab.ingestion import IngestedEvent, LogIngestion, Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.people import PersonService
from hoglab.storage.database.tables import person
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_log.quarantine import QuarantineStore
from hoglab.storage.event_store import EventBatch, EventRow
from hoglab.storage.event_store.duckdb import MEMORY

MIB = 1024 * 1024

REFERENCE_ROWS = 20_000
FUNCTIONS = 100
IDLE_FUNCTIONS = 1_000

ROUND_EVENTS = 50_000
SAMPLES = 20
ENGINE_MEMORY = "256MB"
MAX_GROWTH_BYTES = 32 * MIB
"""More than the samples scatter, and less than a hundred bytes kept for every tenth event of five million."""


class Keeper:
    """A dispatcher that runs nothing and keeps some rows, for the reference."""

    def __init__(self) -> None:
        self.rows: list[EventRow] = []
        self.offset = SequenceNumber(0)

    def position(self) -> SequenceNumber:
        return self.offset

    def dispatch(
        self, events: Sequence[IngestedEvent], *, log_offset: SequenceNumber | None, done: object = None
    ) -> None:
        del done  # there are no partitions
        if len(self.rows) < REFERENCE_ROWS:
            self.rows += [event.row for event in events]
        self.offset = log_offset or self.offset

    def dry_run(self, events: Sequence[IngestedEvent]) -> None:
        """Nothing can fail."""

    def has_capacity(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing waits."""


async def fill(log: EmbeddedEventLog, numbers: range) -> None:
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


def add_functions(house: House, count: int, first_page: int = 1_000) -> None:
    """Destinations that each wait for one kind of event on one page; those from page 100,000 on wait in vain."""
    for number in range(count):
        name = ["$pageview", "purchase", "$feature_flag_called"][number % 3]
        page = {
            "key": "$current_url",
            "type": "event",
            "operator": "icontains",
            "value": f"/{first_page + number}",
        }
        house.create(
            hog=FORWARD,
            filters={"events": [{"id": name, "type": "events", "properties": [page]}]},
            inputs_schema=[{"key": "url", "type": "string"}],
            inputs={"url": {"value": "https://a.example/{event.event}"}},
        )


def run_loop(
    folder: Path,
    batches: int,
    functions: int = 0,
    rounds: int = 2,
    *,
    first_page: int = 1_000,
    memory: str = MEMORY,
    after_round: Callable[[Speed, EmbeddedEventStore], object] = lambda _speed, _store: None,
) -> tuple[list[Speed], list[EventRow]]:
    """The speed of each round, and, without functions, the rows stored first. Later rounds meet known persons.

    ``memory`` is the engine's.
    """
    house = House(folder)
    accounts = AccountService(house.database)
    add_functions(house, functions, first_page)
    log = EmbeddedEventLog(folder / "queue.db")
    store = EmbeddedEventStore(folder / "events.duckdb", memory=memory)
    people, keeper = PersonService(house.database), Keeper()
    dispatcher: Any = house.delivery.dispatcher if functions else keeper
    speeds, known = [], 0
    for round_ in range(rounds):
        asyncio.run(fill(log, range(round_ * batches, (round_ + 1) * batches)))
        quarantine = Quarantine(QuarantineStore(house.queue_database))
        steps = BatchSteps(store, people, accounts.project, quarantine, dispatcher=dispatcher)
        steps.at_rest.append(store.checkpoint)
        ingestion = LogIngestion.alone(log, steps)
        started_at, started_cpu = time.perf_counter(), time.process_time()
        ingestion.start()
        while ingestion.position < log.last_offset():
            time.sleep(0.01)
        seconds, cpu_seconds = time.perf_counter() - started_at, time.process_time() - started_cpu
        ingestion.stop(10)
        events = batches * EVENTS
        with house.database.read() as connection:
            persons = connection.execute(sa.select(sa.func.count()).select_from(person)).scalar_one()
        speeds.append(
            Speed(events / seconds, events / cpu_seconds, persons - known, house.queue.counts.backlog())
        )
        known = persons
        after_round(speeds[-1], store)
    with store.reader() as reader:
        assert reader.execute("SELECT count(*) FROM events") == [(rounds * batches * EVENTS,)]
    for part in (log, store, house):
        part.close()
    return speeds, keeper.rows


def store_only(folder: Path, rows: list[EventRow], size: int = 5_000) -> float:
    """Events per second of writing rows to a store, in batches as large as those of the loop."""
    store = EmbeddedEventStore(folder / "reference.duckdb")
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


# --- memory


@dataclass(frozen=True)
class Sample:
    """Memory of the process after so many events: all of it, and what the engine of the store accounts for."""

    events: int
    resident: int
    engine: int


class Memory:
    """Takes samples of a long run, at most `SAMPLES`, and judges them."""

    def __init__(self, rounds: int) -> None:
        self.samples: list[Sample] = []
        self._every = max(1, rounds // SAMPLES)
        self._speeds: list[Speed] = []

    def after_round(self, speed: Speed, store: EmbeddedEventStore) -> None:
        self._speeds.append(speed)
        if len(self._speeds) % self._every:
            return
        with store.reader() as reader:
            [(engine,)] = reader.execute("SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()")
        sample = Sample(len(self._speeds) * ROUND_EVENTS, resident_bytes(), engine)
        self.samples.append(sample)
        last = self._speeds[-self._every :]
        print(
            f"  {sample.events:10,} events   {harmonic_mean(speed.clock for speed in last):9,.0f} events/s   "
            f"{sample.resident / MIB:7,.0f} MiB, {engine / MIB:,.0f} of them pages of the store",
            flush=True,
        )

    def growth(self) -> float:
        """Bytes by which the last three quarters of the run grew: the rise of the line through their samples.

        Without the pages of the store, which come and go up to a limit of their own.
        """
        judged = self.samples[len(self.samples) // 4 :]
        slope, _ = linear_regression(
            [sample.events for sample in judged], [sample.resident - sample.engine for sample in judged]
        )
        return slope * (judged[-1].events - judged[0].events)


def judge_memory(events: int) -> bool:
    """Ingest so many events and say whether memory stays as it is."""
    rounds = max(8, events // ROUND_EVENTS)
    memory = Memory(rounds)
    with tempfile.TemporaryDirectory() as folder:
        # A small cache of the engine is full early, and leaves the more to see of everything else.
        run_loop(
            Path(folder),
            ROUND_EVENTS // EVENTS,
            FUNCTIONS,
            rounds,
            memory=ENGINE_MEMORY,
            after_round=memory.after_round,
        )
    growth = memory.growth()
    flat = growth <= MAX_GROWTH_BYTES
    print(
        f"growth over the last three quarters, without pages of the store: {growth / MIB:+,.0f} MiB, "
        f"at most {MAX_GROWTH_BYTES / MIB:,.0f} allowed: {'flat' if flat else 'MEMORY GROWS'}"
    )
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    parser.add_argument(
        "--memory", type=int, metavar="EVENTS", help="only judge the memory while so many are ingested"
    )
    options = parser.parse_args()
    calm_garbage_collector()
    if options.memory:
        sys.exit(0 if judge_memory(options.memory) else 1)
    batches = 50 if options.smoke else 1_000
    with tempfile.TemporaryDirectory() as folder:
        plain, rows = run_loop(Path(folder), batches)
        reference = store_only(Path(folder), rows)
    with tempfile.TemporaryDirectory() as folder:
        dispatched, _ = run_loop(Path(folder), batches, FUNCTIONS)
    with tempfile.TemporaryDirectory() as folder:
        idle, _ = run_loop(Path(folder), batches, IDLE_FUNCTIONS, first_page=100_000)
    events = batches * EVENTS
    print(f"{events:,} events a round; target 10,000 events/s on one core, aim 25,000")
    print(f"  store alone, rows ready-made      {reference:9,.0f} events/s")
    kinds = (
        ("no function", plain),
        (f"{FUNCTIONS} functions", dispatched),
        (f"{IDLE_FUNCTIONS:,} that match nothing", idle),
    )
    for title, speeds in kinds:
        for speed in speeds:
            print(
                f"  log to dispatch, {title:>24}, {speed.new_persons:6,} new persons {speed.clock:9,.0f} events/s "
                f"({speed.processor:,.0f} per second of processor time)   "
                f"ratio to store alone {speed.clock / reference:.2f}   {speed.backlog:,} invocations queued"
            )
    print(
        f"{IDLE_FUNCTIONS:,} functions of which none matches, by processor time, of the speed without functions: "
        + ", ".join(f"{one.processor / other.processor:.2f}" for one, other in zip(idle, plain, strict=True))
    )
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
