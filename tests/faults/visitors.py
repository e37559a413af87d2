"""Senders whose persons are known beforehand, and what must hold of a cluster after they have sent.

Whatever was acknowledged is stored once and delivered, in the order of each distinct id, and persons are those of one
process that does one thing after the other.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import sqlalchemy as sa
from tests.cluster import TOKEN
from tests.faults.test_processes_killed import Sender, Sink, stored, wait_for
from tests.ingestion.conftest import record

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.http.fields.dates import utc_now
from hoglab.ingestion.batches import batch_of
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import person, person_distinct_id
from hoglab.storage.event_log import LogRecord
from hoglab.storage.event_store.clickhouse.store import ClickHouseEventStore

SENDERS = 3
PEOPLE = 4
"""How many persons each sender sends events of."""

Persons = dict[frozenset[str], tuple[dict[str, Any], bool]]


class Visitor(Sender):
    """Sends events of a few people, who are told who they are after a while; each again until it is acknowledged."""

    def __init__(self, url: str, line: int, stop: threading.Event) -> None:
        super().__init__(url, line, stop)
        self.sent: list[dict[str, Any]] = []

    def run(self) -> None:
        try:
            number = 0
            while not self._stop_now.wait(0.02):
                who = f"{self._line}-{number % PEOPLE}-{number // (PEOPLE * 20)}"
                turn = number // PEOPLE % 20
                if turn < 4:
                    self._tell("hello", f"anon-{who}", number, {"$set_once": {"first": who}})
                elif turn == 4:
                    self._tell("$identify", f"user-{who}", number, {"$anon_distinct_id": f"anon-{who}"})
                else:
                    self._tell("hello", f"user-{who}", number, {"$set": {"number": number}})
                number += 1
        except BaseException as error:
            self.error = error

    def _tell(self, name: str, who: str, number: int, properties: dict[str, Any]) -> None:
        known = {"line": f"line-{who}", "number": number}
        event = {"uuid": str(uuid4()), "event": name, "distinct_id": who, "properties": known | properties}
        answer = self._post("/capture/", {"api_key": TOKEN, **event})
        if answer.status_code != 200:
            self.wrong.append(f"{answer.status_code} {answer.text}")
        self.sent.append(event)


def await_shares(url: str, shares: list[int]) -> None:
    """Wait until so many processes have so many partitions each."""

    def open_transactions() -> list[Any]:
        with psycopg.connect(url) as connection:
            return connection.execute(
                "SELECT state, wait_event, now() - xact_start, left(query, 200) FROM pg_stat_activity "
                "WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()

    def held() -> list[int]:
        with psycopg.connect(url) as connection:
            rows = connection.execute(
                "SELECT owner FROM hoglab_queue.log_lease WHERE owner IS NOT NULL"
            ).fetchall()
        return sorted(Counter(owner for (owner,) in rows).values())

    wait_for(lambda: held() == shares, lambda: f"{held()}, not {shares}; {open_transactions()}")


def check(
    api: httpx.Client,
    sink: Sink,
    sent: list[dict[str, Any]],
    events_url: str,
    postgres_url: str,
    folder: Path,
) -> None:
    """What must hold in the end. ``sent``: the events that were acknowledged, of each distinct id in order."""
    hellos = {each["uuid"] for each in sent if each["event"] == "hello"}
    wait_for(
        lambda: {each["uuid"] for each in sink.came} >= hellos,
        lambda: f"{len(hellos - {each['uuid'] for each in sink.came})} of {len(hellos)} were not delivered",
    )
    assert {each["uuid"] for each in sink.came} == hellos
    wait_for(lambda: set(stored(api, "hello")) >= hellos, lambda: "acknowledged events are lost")
    store = ClickHouseEventStore(events_url, folder / "keys", memory="1GB", query_timeout_s=60)
    with store.reader() as reader:
        rows = reader.execute("SELECT uuid, distinct_id, person_id FROM resolved_events ORDER BY seq")
    store.close()
    assert Counter(uuid for uuid, *_ in rows) == Counter(each["uuid"] for each in sent)
    for who in {each["distinct_id"] for each in sent}:
        mine = [uuid for uuid, name, _ in rows if name == who]
        assert mine == [each["uuid"] for each in sent if each["distinct_id"] == who], f"{who} was overtaken"
    database = Database.open(postgres_url)
    persons, ids = _persons(database), _ids(database)
    database.dispose()
    assert persons == _oracle(folder, sent)
    # Events are those of the persons who were merged, whichever process told the event store.
    assert {str(person_id) for _, who, person_id in rows if str(person_id) != ids[who]} == set()


def _oracle(folder: Path, sent: list[dict[str, Any]]) -> Persons:
    """The persons of one process that is told one event after the other."""
    database = Database.open(folder / "oracle.db")
    bootstrap(database, AccountService(database), project_token=TOKEN, api_key="phx_" + "k" * 43)
    people = PersonService(database)
    for offset, event in enumerate(sent, 1):
        batch = batch_of(LogRecord(offset, utc_now(), record(event)))
        people.apply(batch.events, log_offset=offset)
    persons = _persons(database)
    database.dispose()
    return persons


def _persons(database: Database) -> Persons:
    """The properties of persons, and whether they are identified, by their distinct ids."""
    asked = sa.select(
        person.c.id, person.c.properties, person.c.is_identified, person_distinct_id.c.distinct_id
    ).join(person_distinct_id, person_distinct_id.c.person_id == person.c.id)
    found: dict[int, tuple[set[str], dict[str, Any], bool]] = {}
    with database.read() as connection:
        for row_id, properties, is_identified, name in connection.execute(asked):
            found.setdefault(row_id, (set(), properties, bool(is_identified)))[0].add(name)
    return {frozenset(names): (properties, known) for names, properties, known in found.values()}


def _ids(database: Database) -> dict[str, str]:
    """The person's id of each distinct id."""
    asked = sa.select(person_distinct_id.c.distinct_id, person.c.uuid).join(
        person, person_distinct_id.c.person_id == person.c.id
    )
    with database.read() as connection:
        return {name: str(uuid) for name, uuid in connection.execute(asked)}
