"""The event log in Kafka: acknowledged requests with a transaction for each group, against groups without.

Client, broker and benchmark share the machine. The goal is one of latency: with transactions, 99 of 100 requests are
acknowledged within 50 ms while the machine has nothing else to do.

Run: ``python -m benchmarks.storage_kafka [--smoke]``; says so and ends where no broker can be started.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.kafka import can_start, own_broker

from benchmarks.storage_log import PRODUCERS, produce
from hoglab.storage.event_log.kafka import KafkaEventLog
from hoglab.storage.event_log.kafka_topic import KafkaAddress

GOAL_MS = 50
SIZES = (600, 60_000)
"""Bytes of a record: a browser's request, and one of a server with a hundred events."""


def measure(broker: str, transactions: str, size: int, seconds: float) -> tuple[float, str]:
    url = f"kafka://{broker}/log-{transactions}-{size}?transactions={transactions}"
    payload = os.urandom(size)
    log = KafkaEventLog(KafkaAddress.parse(url), finished=dict, max_backlog_bytes=1 << 50)

    async def append(record: bytes) -> int:
        await log.append_all([(record[0] % log.partitions, record)])
        return 0

    async def run() -> list[float]:
        await append(payload)  # connects
        return await produce(append, payload, seconds)

    start = time.perf_counter()
    waits = sorted(asyncio.run(run()))
    rate = len(waits) / (time.perf_counter() - start)
    log.close()
    middle, late = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
    text = f"{rate:>9,.0f} requests/s   p50 {middle:>6.1f} ms  p99 {late:>6.1f} ms (goal: <= {GOAL_MS})"
    return rate, text


def main() -> None:
    if not can_start():
        print("event log in Kafka: needs Java, and `make setup` with Maven present")
        return
    seconds = 0.5 if "--smoke" in sys.argv else 5.0
    print(f"event log in Kafka: acknowledged requests, {PRODUCERS} producers, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder, own_broker(Path(folder)) as broker:
        broker.start()
        for size in SIZES:
            reference, text = measure(broker.address, "off", size, seconds)
            print(f"{size:>6} bytes  without       {text}   1.00")
            rate, text = measure(broker.address, "on", size, seconds)
            print(f"{size:>6} bytes  transactions  {text}   {rate / reference:.2f}")


if __name__ == "__main__":
    main()
