"""The event endpoints, the log, ingestion and the store as one process, to be killed by its test.

Run with a data directory; prints the port once it answers.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.apps import app_of
from tests.embedded import EmbeddedEventLog, EmbeddedEventStore

from hoglab.accounts.service import AccountService
from hoglab.capture import Capture, capture_routes
from hoglab.http.server import claim, serve, stop_on_signals
from hoglab.ingestion import IngestionLimits, LogIngestion, Quarantine
from hoglab.ingestion.steps import BatchSteps
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log.quarantine import QuarantineStore


async def main(folder: Path) -> None:
    database = Database.open(folder / "hoglab.db")
    accounts = AccountService(database)
    log = EmbeddedEventLog(folder / "queue.db")
    quarantine = Quarantine(QuarantineStore(Database.open(folder / "queue.db", queue_metadata)))
    store = EmbeddedEventStore(folder / "events.duckdb")
    steps = BatchSteps(
        store,
        PersonService(database),
        accounts.project,
        quarantine,
        limits=IngestionLimits(batch_events=200),  # many small batches: many places to be killed at
    )
    steps.at_rest.append(store.checkpoint)
    ingestion = LogIngestion.alone(log, steps)
    ingestion.start()
    app = app_of(accounts, hot=capture_routes(Capture(log, accounts.project_by_token)))
    stop = asyncio.Event()
    stop_on_signals(stop)
    with claim("127.0.0.1", 0) as address:
        await serve(app, address, stop=stop, ready=lambda address: print(address.port, flush=True))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
