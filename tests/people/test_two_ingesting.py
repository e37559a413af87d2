"""Two who ingest at once on one database: persons end as if one had applied the same batches, in some order."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.databases import Template, template
from tests.generated import examples
from tests.people.conftest import NOW, add_projects
from tests.people.test_service import Event, identify, made, merge, outcome, steps

from hoglab.people import LogStage, PersonService, store
from hoglab.people.batch import PeopleBatch
from hoglab.storage.database import Database
from hoglab.storage.database.tables import (
    ingestion_progress,
    ingestion_warning,
    person,
    person_override,
)

Script = Sequence[tuple[str, str, str, dict[str, int]]]
Batch = list[Event]


@pytest.fixture(scope="module")
def on_server(request: pytest.FixtureRequest) -> Template:
    return template(request, "people", add_projects, engine="postgresql")


@pytest.fixture
def opened(on_server: Template, tmp_path: Path) -> Iterator[list[Database]]:
    """One database as two processes have it open."""
    with on_server.copied(tmp_path) as address:
        opened = [Database.open(address) for _ in range(2)]
        yield opened
        for database in opened:
            database.dispose()


@pytest.fixture
def services(opened: list[Database]) -> list[PersonService]:
    return [PersonService(database, now=lambda: NOW) for database in opened]


@pytest.fixture
def alone(prepared: Template, tmp_path: Path) -> Iterator[Database]:
    """A database for the oracle."""
    folder = tmp_path / "alone"
    folder.mkdir()
    with prepared.copied(folder) as address:
        database = Database.open(address)
        yield database
        database.dispose()


def empty(database: Database) -> None:
    with database.write() as tx:
        for table in (person_override, ingestion_warning, ingestion_progress, person):
            tx.execute(sa.delete(table))


def apply(service: PersonService, batch: Batch) -> None:
    for event in batch:
        event.log_offset = 1
    stage = LogStage(f"people-{id(service)}")  # of a partition, which is ingested beside others
    service.apply(copy.deepcopy(batch), log_offset=1, stage=stage)  # properties are changed in place


@pytest.fixture
def no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each who ingests nothing is applied twice, and so it needs not be known how far it came."""
    monkeypatch.setattr(store, "load_position", lambda _connection, _stage: 0)


def batches(script: Script, first: int) -> list[Batch]:
    """Two events each. Every event gets a number of its own."""
    events = [made(step, first + index) for index, step in enumerate(script)]
    return [events[start : start + 2] for start in range(0, len(events), 2)]


def orders(one: list[Batch], other: list[Batch]) -> Iterator[list[Batch]]:
    """Every order of batches that keeps those of each."""
    count = len(one) + len(other)
    for places in itertools.combinations(range(count), len(one)):
        left, right = iter(one), iter(other)
        yield [next(left) if place in places else next(right) for place in range(count)]


def ending(database: Database, service: PersonService) -> Any:
    seen, overrides, warned = outcome(database, service)
    for name, view in seen.items():
        if view is not None:
            uuid, properties, is_identified, created_at = view
            seen[name] = uuid, tuple(sorted(properties.items())), is_identified, created_at
    return frozenset(seen.items()), frozenset(overrides), frozenset(warned)


def ingest_at_once(services: Sequence[PersonService], work: Sequence[list[Batch]]) -> None:
    """Each service applies its batches, beside the other."""
    barrier = threading.Barrier(len(services))

    def run(service: PersonService, mine: list[Batch]) -> None:
        barrier.wait(60)
        for batch in mine:
            apply(service, batch)

    with ThreadPoolExecutor(len(services)) as pool:
        for running in [pool.submit(run, *each) for each in zip(services, work, strict=True)]:
            running.result(60)


scripts = st.lists(steps, min_size=1, max_size=5)


@pytest.mark.usefixtures("no_position")
@settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(scripts, scripts)
def test_persons_are_those_of_one_order(
    opened: list[Database], services: list[PersonService], alone: Database, one: Script, other: Script
) -> None:
    oracle = PersonService(alone, now=lambda: NOW)
    expected = set()
    for order in orders(batches(one, 0), batches(other, 100)):
        empty(alone)
        for batch in order:
            apply(oracle, batch)
        expected.add(ending(alone, oracle))
    empty(opened[0])
    ingest_at_once(services, [batches(one, 0), batches(other, 100)])
    assert ending(opened[1], services[1]) in expected


@pytest.mark.usefixtures("no_position")
def test_a_visitor_belongs_to_who_they_turn_out_to_be_whoever_is_first(services: list[PersonService]) -> None:
    """Events of a visitor with one who ingests, with the other that the visitor is somebody known."""
    for number in range(12):
        visitor, user = f"visitor-{number}", f"user-{number}"
        events = [[Event("seen", visitor, {"$set_once": {"first": number}})] for _ in range(2)]
        known = [[identify(visitor, user, **{"$set": {"plan": "pro"}})], [merge(f"laptop-{number}", user)]]
        ingest_at_once(services, [events, known])
        found = [services[0].person_for(1, name) for name in (visitor, user, f"laptop-{number}")]
        assert {each and each.uuid for each in found} == {found[0] and found[0].uuid}
        assert found[0] is not None
        assert found[0].is_identified
        assert found[0].properties["plan"] == "pro"


def group_event(number: int, kind: str, **properties: Any) -> Event:
    described = {"$group_type": kind, "$group_key": "acme", "$group_set": properties}
    return Event("$groupidentify", f"visitor-{number}", described)


@pytest.mark.usefixtures("no_position")
def test_group_types_get_numbers_one_after_the_other(services: list[PersonService]) -> None:
    kinds = ["organization", "project", "instance", "customer", "sixth"]
    work = [
        [[group_event(first, kind)] for kind in order] for first, order in enumerate((kinds, kinds[::-1]))
    ]
    ingest_at_once(services, work)
    with services[0]._database.read() as connection:
        stored = store.load_group_types(connection, 1)
    assert sorted(stored) == sorted(kinds)
    assert sorted(stored.values()) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("no_position")
def test_what_both_say_of_a_group_is_kept(opened: list[Database], services: list[PersonService]) -> None:
    for number in range(25):
        for database in opened:
            database.refresh_changes()  # or the group type is new for one of them
        said = [{f"{first}-{number}": number} for first in range(2)]
        ingest_at_once(
            services,
            [[[group_event(first, "organization", **each)]] for first, each in enumerate(said)],
        )
    expected = {f"{first}-{number}": number for first in range(2) for number in range(25)}
    assert services[0].group_properties(1, 0, "acme") == expected


@pytest.mark.usefixtures("no_position")
def test_a_batch_whose_person_was_changed_meanwhile_is_applied_anew(
    services: list[PersonService], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(services[0], [identify("laptop", "user", **{"$set": {"first": 1}})])
    claim, late = store.claim_persons, [[Event("seen", "laptop", {"$set": {"other": 2}})]]

    def overtaken(connection: sa.Connection, batch: PeopleBatch) -> None:
        while late:
            apply(services[1], late.pop())
        claim(connection, batch)

    monkeypatch.setattr(store, "claim_persons", overtaken)
    apply(services[0], [Event("seen", "user", {"$set": {"own": 3}})])
    found = services[0].person_for(1, "user")
    assert found is not None
    assert found.properties == {"first": 1, "other": 2, "own": 3}


def test_a_batch_waits_for_those_who_write_alone_only(
    opened: list[Database], services: list[PersonService]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with opened[0].write(shared=True) as tx:
            tx.execute(sa.select(person))
            pool.submit(apply, services[1], [Event("seen", "beside")]).result(20)
        with opened[0].write() as tx:
            tx.execute(sa.select(person))
            waiting = pool.submit(apply, services[1], [Event("seen", "behind")])
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
        waiting.result(20)
