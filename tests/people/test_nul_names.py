"""Names that are equal once a database has replaced what it cannot keep: they are one name before, on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa
from tests.ingestion.conftest import record

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.http.fields.dates import utc_now
from hoglab.ingestion.batches import batch_of
from hoglab.people import PersonService
from hoglab.storage.database import Database
from hoglab.storage.database.tables import group, group_type
from hoglab.storage.engines import upgrade_databases
from hoglab.storage.event_log import LogRecord

NAMES = ("a\0", "a\ufffd", "a\0", "\0a", "\ufffda", "\0\ufffd", "\ufffd\0", "\0\0", "\ufffd\ufffd")
"""Names of which the first three are one, the next two, and the last four."""
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "distinct id": lambda name: {"distinct_id": name},
    "anonymous id": lambda name: {
        "event": "$identify",
        "distinct_id": "ann",
        "properties": {"$anon_distinct_id": name},
    },
    "alias": lambda name: {
        "event": "$create_alias",
        "distinct_id": "ann",
        "properties": {"alias": name},
    },
    "group type": lambda name: identified(name, "acme"),
    "group key": lambda name: identified("company", name),
    "group of an event": lambda name: {"properties": {"$groups": {name: name}}},
    "property": lambda name: {"properties": {"$set": {name: name}, "$set_once": {name: name}}},
    "property of a group": lambda name: identified("company", "acme", {name: name}),
    "event": lambda name: {"event": name},
}


def identified(kind: str, key: str, properties: dict[str, Any] | None = None) -> dict[str, Any]:
    values = {"$group_type": kind, "$group_key": key, "$group_set": properties or {"seen": True}}
    return {"event": "$groupidentify", "properties": values}


class People:
    """Persons and groups on PostgreSQL, told of events in batches."""

    def __init__(self, address: str) -> None:
        self.database = Database.open(address)
        bootstrap(self.database, AccountService(self.database), project_token="phc_nul_project_token")
        self._offset = 0

    def tell(self, *events: dict[str, Any]) -> None:
        self._offset += 1
        whole = [{"event": "e", "distinct_id": "ann", "properties": {}, **event} for event in events]
        batch = batch_of(LogRecord(self._offset, utc_now(), record(*whole)))
        # A service of its own each time: what it remembers of others comes from the database.
        PersonService(self.database).apply(batch.events, log_offset=self._offset)

    def count(self, table: sa.Table) -> int:
        with self.database.read() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


@pytest.fixture
def people(postgres_url: str) -> Iterator[People]:
    upgrade_databases(postgres_url)
    people = People(postgres_url)
    yield people
    people.database.dispose()


@pytest.mark.parametrize("place", PLACES)
def test_names_with_nul_are_taken_together_and_again(people: People, place: str) -> None:
    told = PLACES[place]
    for name in NAMES[:3]:
        people.tell(told(name))
    for pair in pairwise(NAMES):
        people.tell(*map(told, pair))
    people.tell(*map(told, NAMES))


def test_groups_of_equal_names_are_one(people: People) -> None:
    people.tell(*(identified(name, "acme") for name in NAMES[:3]))
    people.tell(*(identified(NAMES[1], name) for name in NAMES[:3]))
    assert (people.count(group_type), people.count(group)) == (1, 2)
