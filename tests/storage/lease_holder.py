"""A process that reads partitions as long as it holds them; its work is a row for each record: partition, offset.

Started by tests, which kill and pause it. It says what it holds, one line for each change.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import psycopg

from hoglab.storage.event_log.leases import LogLeases, finish_within
from hoglab.storage.event_log.partitions import LeaseLostError, PartitionDone, PartitionLease


def main(url: str, partitions: int, lease_s: float, records: int) -> None:
    """Work until everything is done, and then until it is killed."""

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(url, autocommit=True)

    leases = LogLeases(connect, "a test", partitions=partitions, lease_s=lease_s)
    connection = connect()
    shown: set[int] | None = None
    while True:
        held, surplus = leases.renew()
        leases.give_up(surplus)
        mine = {partition: lease for partition, lease in held.items() if partition not in surplus}
        if set(mine) != shown:
            shown = set(mine)
            print("holds", *sorted(shown), flush=True)
        before = leases.positions()
        for partition, lease in mine.items():
            work(connection, lease, before[partition], records)
        time.sleep(0.05)


def work(connection: psycopg.Connection[Any], lease: PartitionLease, done: int, records: int) -> None:
    """Process a few records of a partition, each in a transaction of its own."""
    for offset in range(done + 1, min(done + 10, records) + 1):
        try:
            with connection.transaction():
                finish_within(connection, PartitionDone(lease, offset))
                connection.execute(
                    "INSERT INTO done VALUES (%s, %s, %s)", (lease.partition, offset, lease.epoch)
                )
        except LeaseLostError:
            print("lost", lease.partition, flush=True)
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
