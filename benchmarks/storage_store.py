"""Events per second into the event store, against inserting a prebuilt Arrow table into the same table.

The reference does the least that stores the same rows: the columns are built beforehand, nothing is checked,
one commit for each batch. `append` builds columns from rows, checks JSON, looks for resent events among
those stored since the events happened, and moves the log position in the same transaction.

Run: ``python -m benchmarks.storage_store [--smoke] [--rows N]``; N events are in the store beforehand
(default 2,000,000), spread over the 30 days before the new ones.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import orjson
from tests.embedded import EmbeddedEventStore

from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_store import EventBatch, EventRow
from hoglab.storage.event_store.rows import table_of
from hoglab.storage.event_store.sealed.sealing import SealingLimits

NOW = datetime.now(UTC)
FILL = """
INSERT INTO events BY NAME
SELECT i AS seq, 1 AS project_id, uuid() AS uuid, 'event ' || i % 26 AS event,
    'user-' || hash(i) % 400000 AS distinct_id,
    captured_at - to_seconds(hash(i) % 60) AS timestamp, captured_at,
    uuid() AS person_id, 'full' AS person_mode, 0 AS log_offset, '' AS elements_chain,
    '{"$current_url":"https://shop.example/' || hash(i) % 5000 || '","price":' || i % 977 || '}' AS properties,
    '{}' AS person_properties
FROM (SELECT i, $now::TIMESTAMP - to_seconds((($rows - i) * 2592000.0 / $rows)::BIGINT) AS captured_at
      FROM range($first::BIGINT, $last::BIGINT) AS numbers(i))
"""


def rows(count: int, offset: int, *, age: timedelta = timedelta(0)) -> list[EventRow]:
    """Events of about 600 bytes with 22 properties."""
    chance = random.Random(offset)
    return [
        EventRow(
            project_id=1,
            uuid=uuid.UUID(int=chance.getrandbits(128)),
            event=f"event {number % 26}",
            distinct_id=f"user-{chance.randrange(400_000)}",
            timestamp=NOW - age - timedelta(seconds=chance.random() * 30),
            captured_at=NOW,
            properties=orjson.dumps(
                {f"$property_{index}": f"value {chance.randrange(1000)}" for index in range(22)}
                | {"$sent_at": SENT_AT}
            ),
            person_id=uuid.UUID(int=chance.getrandbits(128)),
            person_properties=b'{"email":"someone@example.org"}',
            person_created_at=NOW,
            person_mode="full",
            elements_chain="",
            groups={0: "acme"} if number % 3 == 0 else {},
            log_offset=SequenceNumber(offset),
            feature_flag="experiment" if number % 20 == 0 else None,
            feature_flag_response="test" if number % 20 == 0 else None,
            session_id=f"session-{number % 500}",
        )
        for number in range(count)
    ]


SENT_AT = "2026-01-01T00:00:00Z"


class Bench:
    def __init__(self, folder: Path, fill: int) -> None:
        self.store = EmbeddedEventStore(folder / "events.duckdb")
        self.connection: Any = self.store._file.connection  # noqa: SLF001
        self.offset = 0
        step = 1_000_000
        for first in range(0, fill, step):
            last = min(first + step, fill)
            values = {"now": NOW.replace(tzinfo=None), "rows": fill, "first": first, "last": last}
            self.connection.execute(FILL, values)
        self.connection.execute("CHECKPOINT")

    def append(self, batch: list[EventRow]) -> int:
        return len(self.store.append(EventBatch(batch), log_offset=batch[0].log_offset))

    def batches(self, size: int, count: int, **options: Any) -> list[list[EventRow]]:
        made = [rows(size, self.offset + 1 + number, **options) for number in range(count)]
        self.offset += count
        return made

    def reference(self, size: int, count: int) -> float:
        tables = [table_of(batch, range(len(batch))) for batch in self.batches(size, count)]
        start = time.perf_counter()
        for table in tables:
            self.connection.register("prebuilt", table)
            self.connection.execute("INSERT INTO events BY NAME SELECT * FROM prebuilt")
        seconds = time.perf_counter() - start
        self.connection.unregister("prebuilt")
        return size * count / seconds

    def measure(self, size: int, count: int, **options: Any) -> tuple[float, float]:
        """Events per second, and the longest batch in milliseconds."""
        batches = self.batches(size, count, **options)
        worst, start = 0.0, time.perf_counter()
        for batch in batches:
            before = time.perf_counter()
            assert self.append(batch) == size
            worst = max(worst, time.perf_counter() - before)
        return size * count / (time.perf_counter() - start), worst * 1000

    def resent(self, size: int, count: int, *, is_sealed: bool = False, moved: bool = False) -> float:
        """Events per second; ``is_sealed``: of sealed events, ``moved``: from another address."""
        batches = self.batches(size, count)
        if moved:
            batches = [[from_address(row, "10.0.0.1") for row in batch] for batch in batches]
        for batch in batches:
            self.append(batch)
        while is_sealed and self.store.seal(SealingLimits(idle_rows=1, recent_rows=0), is_idle=True):
            pass
        again = [
            [sent_again(row, self.offset + 1 + number) for row in batch]
            for number, batch in enumerate(batches)
        ]
        if moved:
            again = [[from_address(row, "10.0.0.2") for row in batch] for batch in again]
        self.offset += count
        start = time.perf_counter()
        assert sum(map(self.append, again)) == 0
        return size * count / (time.perf_counter() - start)


def sent_again(row: EventRow, log_offset: int) -> EventRow:
    """Return the same event in a later record of the log, with the time of another request as capture adds it."""
    properties = row.properties.replace(SENT_AT.encode(), b"2026-01-01T00:05:00Z")
    return msgspec.structs.replace(row, log_offset=log_offset, properties=properties)


def from_address(row: EventRow, address: str) -> EventRow:
    """Return an event as capture notes it of a sender's address."""
    return msgspec.structs.replace(
        row, properties=orjson.dumps(orjson.loads(row.properties) | {"$ip": address})
    )


def read_until(stop: threading.Event, store: EmbeddedEventStore, waits: list[float]) -> None:
    sql = "SELECT event, date_trunc('day', timestamp), count(*) FROM events GROUP BY ALL"
    while not stop.wait(0.05):
        start = time.perf_counter()
        with store.reader() as reader:
            reader.execute(sql)
        waits.append((time.perf_counter() - start) * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--rows", type=int, default=2_000_000)
    options = parser.parse_args()
    fill = 20_000 if options.smoke else options.rows
    with tempfile.TemporaryDirectory(dir=".") as folder:
        bench = Bench(Path(folder), fill)
        bench.measure(100, 3)
        print(f"event store with {fill:,} events: events/s, ratio to inserting a prebuilt Arrow table")
        for size, count in ((100, 30), (1_000, 20), (10_000, 8)):
            count = 2 if options.smoke else count
            reference = bench.reference(size, count)
            print(f"{size:>7,} a batch  prebuilt Arrow table   {reference:>9,.0f}   1.00")

            def show(name: str, rate: float, more: str = "", size: int = size, by: float = reference) -> None:
                print(f"{size:>7,} a batch  {name:<21}  {rate:>9,.0f}   {rate / by:.2f}   {more}")

            rate, worst = bench.measure(size, count)
            show("append", rate, f"longest batch {worst:,.0f} ms")
            stop, waits = threading.Event(), list[float]()
            reader = threading.Thread(target=read_until, args=(stop, bench.store, waits))
            reader.start()
            rate, worst = bench.measure(size, count)
            stop.set()
            reader.join()
            slowest = f"queries up to {max(waits):,.0f} ms" if waits else ""
            show("append beside reader", rate, f"longest batch {worst:,.0f} ms, {slowest}")
            rate, worst = bench.measure(size, count, age=timedelta(days=30))
            show("append 30 days late", rate, f"longest batch {worst:,.0f} ms")
            show("resent", bench.resent(size, count))
            show("resent, other address", bench.resent(size, count, moved=True))
            show("resent, sealed", bench.resent(size, count, is_sealed=True))
        bench.store.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest resident size of the process: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
