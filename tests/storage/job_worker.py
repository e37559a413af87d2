"""A process that does rounds of a few jobs for ever; ``done`` has a row for each round, which two cannot write.

Started by tests, which kill and pause it.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import sqlalchemy as sa

from hoglab.storage.database import Database, DatabaseError, Rebuildable
from hoglab.storage.job_leases import JobLeases, JobLostError, JobName

SUBJECTS = 3
LEASE_S = 1.0

done = sa.Table(
    "done",
    sa.MetaData(),
    sa.Column("subject", sa.Integer, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("pid", sa.Integer),
    sa.Column("was_left", sa.Boolean),
)


def main(address: str) -> None:
    """Work until it is killed."""
    database = Database.open(address)
    jobs = JobLeases(database, lease_s=LEASE_S)
    jobs.start()
    print("ready", flush=True)
    while True:
        for subject in range(SUBJECTS):
            with suppress(
                DatabaseError
            ):  # of a transaction that was ended because the process was paused in it
                work(database, jobs, subject)


def work(database: Database, jobs: JobLeases, subject: int) -> None:
    """Do the next round of a job, unless another process is at it."""
    with jobs.claimed(JobName("rounds", str(subject))) as lease:
        if lease is None:
            return
        with database.read() as connection:
            number = connection.scalar(
                sa.select(sa.func.count()).select_from(done).where(done.c.subject == subject)
            )
        time.sleep(0.05)  # most of the time it is at a job, whenever it is killed or paused
        row = {"subject": subject, "round": number, "pid": os.getpid(), "was_left": lease.was_left}
        try:
            with jobs.writing(lease, rebuildable=Rebuildable.RESULTS) as tx:
                tx.execute(sa.insert(done).values(row))
                jobs.end(tx, lease)
        except JobLostError:
            print("lost", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
