"""Batches of events against persons in PostgreSQL, beside bare statements that find and write the same rows.

A batch has a thousand events of as many distinct ids: a twentieth are new, and three in ten of the others set a
property anew. The reference does per batch what cannot be left out, with statements prepared once: find the persons,
insert new ones and their names, update those that changed, commit. Ours decides about each event besides, and keeps its
position. Both commit to disk.

Run: ``python -m benchmarks.people_postgres [--smoke]``; says so and ends where no PostgreSQL is installed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID, uuid5

import psycopg
from tests.people.conftest import add_projects
from tests.postgres import _programs
from tests.storage.own_postgres import own_server

from benchmarks.cost_per_million import _spent
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.event_log import SequenceNumber

GOAL = 0.6
BATCH = 1_000
KNOWN = 20_000
NEW_EVERY, CHANGED_EVERY = 20, 3
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMESPACE = UUID(int=7)
MORE = {f"property_{number}": "a value of some length" for number in range(10)}

_LOAD = """
SELECT named.distinct_id, person.id, person.properties, person.version FROM unnest(%b::text[]) AS asked (name)
JOIN hoglab.person_distinct_id AS named ON named.project_id = 2 AND named.distinct_id = asked.name
JOIN hoglab.person ON person.id = named.person_id
"""
_INSERT = """
INSERT INTO hoglab.person (project_id, uuid, properties, is_identified, version, created_at, last_seen_at)
SELECT 2, uuid, properties, false, 0, 0, 0 FROM unnest(%b::text[], %b::text[]) AS new (uuid, properties)
RETURNING id
"""
_NAME = """
INSERT INTO hoglab.person_distinct_id (project_id, distinct_id, person_id)
SELECT 2, * FROM unnest(%b::text[], %b::integer[])
"""
_UPDATE = """
UPDATE hoglab.person SET properties = new.properties, version = new.version, last_seen_at = 0
FROM unnest(%b::integer[], %b::text[], %b::bigint[]) AS new (id, properties, version) WHERE person.id = new.id
"""


@dataclass
class Event:
    """What is read of an event."""

    distinct_id: str
    properties: dict[str, Any]
    log_offset: SequenceNumber
    project_id: int = 1
    uuid: UUID = field(default_factory=lambda: UUID(int=random.getrandbits(128), version=4))
    event: str = "viewed"
    timestamp: datetime = NOW


def batch(number: int) -> list[tuple[str, dict[str, Any] | None]]:
    """Distinct ids, each once, and what each sets; the first batches make those who are known."""
    chosen = random.Random(number)
    first = number * BATCH
    if first < KNOWN:
        return [(f"user-{first + n}", {"count": 0, **MORE}) for n in range(BATCH)]
    known = chosen.sample(range(KNOWN), BATCH)
    return [
        (f"new-{number}-{n}", {"count": 0, **MORE})
        if n % NEW_EVERY == 0
        else (f"user-{user}", {"count": number} if n % CHANGED_EVERY == 0 else None)
        for n, user in enumerate(known)
    ]


def bare(connection: psycopg.Connection[Any], rows: list[tuple[str, dict[str, Any] | None]]) -> None:
    with connection.transaction():
        names = [name for name, _ in rows]
        found = {name: rest for name, *rest in connection.execute(_LOAD, (names,), prepare=True)}
        new = [(name, sets) for name, sets in rows if name not in found]
        changed = [
            (found[name][0], json.dumps({**json.loads(found[name][1]), **sets}), found[name][2] + 1)
            for name, sets in rows
            if sets and name in found
        ]
        if new:
            uuids = [str(uuid5(NAMESPACE, name)) for name, _ in new]
            texts = [json.dumps(sets) for _, sets in new]
            made = connection.execute(_INSERT, (uuids, texts), prepare=True).fetchall()
            ids = [id_ for (id_,) in made]
            connection.execute(_NAME, ([name for name, _ in new], ids), prepare=True)
        if changed:
            connection.execute(_UPDATE, [list(column) for column in zip(*changed, strict=True)], prepare=True)


def ours(people: PersonService, rows: list[tuple[str, dict[str, Any] | None]], number: int) -> None:
    events = [Event(name, {"$set": sets} if sets else {}, SequenceNumber(number + 1)) for name, sets in rows]
    people.apply(events, log_offset=SequenceNumber(number + 1))


def main() -> None:
    if _programs() is None:
        print("needs PostgreSQL")
        return
    known, batches = KNOWN // BATCH, 4 if "--smoke" in sys.argv else 100
    with own_server() as server:
        upgrade_databases(server.url)
        engine = int((Path(server.url.partition("host=")[2]) / "data/postmaster.pid").read_text().split()[0])
        database = Database.open(server.url)
        add_projects(database)
        people = PersonService(database)
        seconds: dict[str, list[float]] = {"bare": [], "ours": []}
        spent = {"bare": [0.0, 0.0], "ours": [0.0, 0.0]}
        with psycopg.connect(server.url) as connection:
            for number in range(known + batches):
                rows = batch(number)
                for name, taken in seconds.items():
                    before, started = (time.process_time(), _spent(engine, ended=True)), time.perf_counter()
                    if name == "bare":
                        bare(connection, rows)
                    else:
                        ours(people, rows, number)
                    if number >= known:
                        taken.append(time.perf_counter() - started)
                        spent[name][0] += time.process_time() - before[0]
                        spent[name][1] += _spent(engine, ended=True) - before[1]
        database.dispose()
    print(f"{os.cpu_count()} processors, {batches} batches of {BATCH} events, {KNOWN:,} persons")
    for name, all_ in seconds.items():
        process, engine_s = (value / batches / BATCH * 1e6 for value in spent[name])
        print(
            f"  {name:<5} {BATCH / median(all_):>9,.0f} events/s   processor {process:>6.1f} us an event, "
            f"PostgreSQL {engine_s:>6.1f} us"
        )
    total = {name: sum(values) for name, values in spent.items()}
    print(
        f"  ratio of bare to ours: clock {median(seconds['bare']) / median(seconds['ours']):.2f} (goal {GOAL}), "
        f"processor time {total['bare'] / total['ours']:.2f}"
    )


if __name__ == "__main__":
    main()
