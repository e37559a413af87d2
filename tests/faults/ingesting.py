"""A server whose processes ingest what is in its event log, and kill themselves between two steps.

The first makes a project with functions, and fills the log. Each of the others ingests three records at a time, until
it has done a step so many times; the last one ingests what is left, and tells what came of it. Started by
`test_ingestion_steps`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import sqlalchemy as sa
from pydantic import SecretStr
from tests.cluster import KEY, TOKEN
from tests.ingestion.conftest import record
from tests.waiting import wait_for

from hoglab.app.server import Hoglab
from hoglab.delivery.dispatch import EventDispatcher
from hoglab.ingestion import LogIngestion
from hoglab.people import PersonService
from hoglab.settings import Settings, rooms
from hoglab.storage.database import tables
from hoglab.storage.engines import EventFile
from hoglab.storage.event_log.log import GroupCommitLog

STEPS = {
    "persons": (PersonService, "apply"),
    "events": (EventFile, "append"),
    "invocations": (EventDispatcher, "dispatch"),
    "position": (GroupCommitLog, "commit"),
    "trimmed": (GroupCommitLog, "trim"),
}
"""What is done for each batch, in this order."""
FILL = "fill"
USERS = 16
FUNCTIONS = {
    "00000000-0000-7000-8000-000000000001": {},
    "00000000-0000-7000-8000-000000000002": {
        "masking": {"hash": "{event.event}", "ttl": 86_400, "threshold": 3},
    },
}


def opened(folder: Path, address: str) -> Hoglab:
    return Hoglab.open(
        Settings(
            data=folder,
            database_url=SecretStr(address) if address else None,
            role="core" if address else "all",
            bootstrap_api_key=KEY,
            bootstrap_project_token=TOKEN,
        )
    )


def fill(server: Hoglab) -> None:
    """Functions whose ids are always the same, and the log."""
    asyncio.run(make_functions(server))
    with server.engines.database.write() as tx:
        tx.execute(sa.delete(tables.hog_function_revision))
        made = list(
            tx.execute(sa.select(tables.hog_function.c.id).order_by(tables.hog_function.c.name)).scalars()
        )
        for old, new in zip(made, FUNCTIONS, strict=True):
            tx.execute(sa.update(tables.hog_function).where(tables.hog_function.c.id == old).values(id=new))

    async def append() -> None:
        for payload in records():
            await server.engines.log.append(payload)

    asyncio.run(append())


async def make_functions(server: Hoglab) -> None:
    transport = httpx.ASGITransport(server.http)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        for number, more in enumerate(FUNCTIONS.values()):
            body = {"type": "destination", "name": f"{number}", "enabled": True, "hog": "return 1", **more}
            answer = await client.post("/api/projects/1/hog_functions/", json=body)
            assert answer.status_code == 201, answer.text


def records() -> list[bytes]:
    """What visitors do before and after they say who they are; one goes by two names, and parts are sent again."""
    made: list[bytes] = []
    for user in range(USERS):
        anonymous, known, other = f"anon-{user}", f"user-{user}", f"other-{user}"
        events: list[dict[str, Any]] = [
            {
                "event": "step",
                "distinct_id": anonymous,
                "properties": {"$set": {"last": 1}, "$set_once": {"first": 1}},
            },
            {"event": "step", "distinct_id": other, "properties": {"$set_once": {"first": 2}}},
            {
                "event": "$identify",
                "distinct_id": known,
                "properties": {"$anon_distinct_id": anonymous, "$set": {"last": 3}},
            },
            {"event": "$create_alias", "distinct_id": known, "properties": {"alias": other}},
            {"event": "step", "distinct_id": other, "properties": {"$set": {"last": 5}}},
        ]
        for number, event in enumerate(events):
            event["uuid"] = str(UUID(int=user * 100 + number + 1))
        made += [record(*events[:2]), record(*events[2:]), record(events[1], events[4])]
    return made


def run(server: Hoglab, step: str | None, times: int) -> dict[str, Any]:
    """Ingest everything; what came of it."""
    log, last = server.engines.log, server.engines.log.stats().last_offset
    commit = GroupCommitLog.commit

    def commit_and_trim(self: GroupCommitLog, consumer: str, offset: int) -> None:
        commit(self, consumer, offset)
        self.trim(offset)

    if step == "trimmed":
        GroupCommitLog.commit = commit_and_trim  # type: ignore[method-assign]
    if step is not None:
        kill_after(*STEPS[step], times)
    [ingestion] = [each for each in server._background if isinstance(each, LogIngestion)]
    ingestion.start()
    wait_for(lambda: ingestion.position >= last)
    assert ingestion.stop(10)
    log.trim(last)
    return outcome(server)


def kill_after(owner: type, name: str, times: int) -> None:
    """Have the process die when it has called a method so many times."""
    method: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        done = method(*arguments, **options)
        calls += 1
        if calls == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(owner, name, called)


def outcome(server: Hoglab) -> dict[str, Any]:
    """Events, persons, invocations and counts of masking."""
    engines = server.engines
    with engines.store.reader() as reader:
        events = reader.execute(
            "SELECT uuid, event, distinct_id, person_id, properties, person_properties FROM resolved_events"
        )
    person, names = tables.person.c, tables.person_distinct_id.c
    with engines.database.read() as connection:
        persons = connection.execute(
            sa.select(names.distinct_id, person.uuid, person.properties, person.is_identified).where(
                names.person_id == person.id
            )
        ).all()
    invocation, masking = tables.invocation.c, tables.masking_counter.c
    with engines.queue_database.read() as connection:
        invocations = connection.execute(sa.select(invocation.id, invocation.function_id)).all()
        masked = connection.execute(sa.select(masking.function_id, masking.hash, masking.count)).all()
    found = {"events": events, "persons": persons, "invocations": invocations, "masked": masked}
    told: dict[str, Any] = {
        name: sorted([str(each) for each in row] for row in rows) for name, rows in found.items()
    }
    return told | {"waiting": engines.log.stats().records}


def work(folder: Path, address: str, step: str | None, times: int) -> None:
    """What one process does: with a step until it dies, else until everything is ingested."""
    server = opened(folder, address)
    if step == FILL:
        fill(server)
    else:
        told = run(server, step, times)
        print(json.dumps(told), flush=True)
    server.stop()


def main(folder: str, address: str, kills: str) -> None:
    """Have one process after the other work on a server; each is forked: to import takes longer than to work."""
    rooms.IngestionLimits = partial(rooms.IngestionLimits, read_records=3)  # type: ignore[misc,assignment]
    for step, times in [(FILL, 0), *json.loads(kills), (None, 0)]:
        child = os.fork()
        if child == 0:
            work(Path(folder), address, step, times)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != (-signal.SIGKILL if step in STEPS else 0):
            raise SystemExit(f"after {step} {times} the process ended with {ended}")


if __name__ == "__main__":
    main(*sys.argv[1:])
