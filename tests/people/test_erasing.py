"""Deleting persons while functions are at work on them, alone and together with others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from hoglab.delivery.runs.state import Item, RunState, decode_state, encode_state, raw_json, without_persons
from hoglab.people import PersonService
from hoglab.people.erasing import JOB, ErasedFrom, PersonErasing
from hoglab.people.reading import PersonView
from hoglab.storage.database import Database
from hoglab.storage.database.tables import (
    flag_log_in,
    invocation,
    log_entry,
    person,
    person_distinct_id,
    person_erasure,
    queue_metadata,
)
from hoglab.storage.database.types import to_micros
from hoglab.storage.event_log import ReadToken
from hoglab.storage.event_store import ErasableEvents, ErasableStore
from hoglab.storage.invocations.sql.erasing import RunErasing
from hoglab.storage.job_leases import JobLeases

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SOMEBODY, EVENT = uuid4(), uuid4()


class NoLog:
    """A log that ends at 7. ``deferred``: whether records that came in before wait for an offset."""

    deferred = False

    def read_token(self, owner: int) -> ReadToken:
        return ReadToken(owner, 3, 1) if self.deferred else ReadToken(owner, 7)

    def resolve(self, token: ReadToken) -> int | None:
        assert token == ReadToken(1, 0, to_micros(NOW))
        return None if self.deferred else 7

    def trim(self, up_to: int) -> int:
        return 0


class OneEvent:
    """A store of one event, of somebody."""

    def uuids(self, events: ErasableEvents) -> list[UUID]:
        return [EVENT]

    def erase(self, events: ErasableEvents) -> int:
        return 1

    def forget_overrides(self, project_id: int, person_ids: Sequence[UUID]) -> None: ...

    def distinct_ids_since(self, project_id: int, distinct_ids: Sequence[str], log_offset: int) -> set[str]:
        return set()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Database]:
    queue = Database.open(tmp_path / "queue.db", queue_metadata)
    yield queue
    queue.dispose()


@pytest.fixture
def log() -> NoLog:
    return NoLog()


@pytest.fixture
def erasing(database: Database, queue: Database, log: NoLog) -> PersonErasing:
    """Somebody was deleted, and is to be erased."""
    erasing = PersonErasing(
        database,
        JobLeases(database),
        log,
        lambda: 7,
        ErasedFrom(
            RunErasing(queue),
            without_persons,
            ErasableStore(OneEvent()),
            PersonService(database).known,
            lambda: None,
        ),
        lambda: NOW,
    )
    with database.write() as tx:
        values = {"uuid": str(SOMEBODY), "project_id": 1, "properties": {}, "created_at": NOW}
        tx.connection.execute(sa.insert(person).values(id=1, **values))
        tx.connection.execute(
            sa.insert(person_distinct_id).values(project_id=1, distinct_id="somebody", person_id=1)
        )
    view = PersonView(1, SOMEBODY, {}, False, NOW, None)
    erasing.delete(1, [view], delete_events=True, user_id=None)
    return erasing


def about(distinct_id: str, **more: Any) -> RunState:
    person_id = str(SOMEBODY if distinct_id == "somebody" else uuid4())
    return RunState(raw_json({"of": distinct_id}), "e", distinct_id, person_id, **more)


def item(distinct_id: str) -> Item:
    return Item(f"of-{distinct_id}", raw_json({"of": distinct_id}), "e", distinct_id)


def batch(*distinct_ids: str, **more: Any) -> RunState:
    return about(distinct_ids[0], items=[item(each) for each in distinct_ids], **more)


def add(queue: Database, state: RunState, *, status: str = "available", log_offset: int | None = 5) -> str:
    run_id = str(uuid4())
    row = {
        "id": run_id, "project_id": 1, "function_id": "f", "queue": "hog", "priority": 0, "scheduled_at": NOW,
        "status": status, "state": encode_state(state), "created_at": NOW, "log_offset": log_offset,
    }  # fmt: skip
    with queue.write() as tx:
        tx.connection.execute(sa.insert(invocation), row)
    return run_id


def waiting(queue: Database) -> dict[str, RunState]:
    with queue.read() as connection:
        return {
            row.id: decode_state(row.state)
            for row in connection.execute(sa.select(invocation.c.id, invocation.c.state))
        }


def test_others_in_the_same_run_stay(erasing: PersonErasing, queue: Database) -> None:
    add(queue, about("somebody"))
    add(queue, batch("somebody", "somebody"))
    other, later = add(queue, about("other")), add(queue, about("somebody"), log_offset=8)
    mixed = add(queue, batch("somebody", "other", "third", journal=raw_json(["somebody"]), attempts=2))
    assert erasing.carry_out() == 1
    found = waiting(queue)
    assert found.keys() == {other, later, mixed}
    left = found[mixed]
    assert [each.id for each in left.items] == ["of-other", "of-third"]
    assert (left.distinct_id, left.attempts) == ("other", 0)
    assert b"somebody" not in encode_state(left)


class TestDeferredRecords:
    @pytest.fixture
    def log(self) -> NoLog:
        log = NoLog()
        log.deferred = True
        return log

    def test_they_are_waited_for_and_what_comes_later_stays(
        self, erasing: PersonErasing, log: NoLog, queue: Database
    ) -> None:
        add(queue, about("somebody"), log_offset=7)
        later = add(queue, about("somebody"), log_offset=8)
        assert erasing.carry_out() == 0
        assert len(waiting(queue)) == 2
        log.deferred = False
        assert erasing.carry_out() == 1
        assert waiting(queue).keys() == {later}


def test_runs_that_are_under_way_are_waited_for(erasing: PersonErasing, queue: Database) -> None:
    run_id = add(queue, batch("somebody", "other"), status="running")
    assert erasing.carry_out() == 0
    assert [len(state.items) for state in waiting(queue).values()] == [2]
    with queue.write() as tx:
        tx.connection.execute(sa.update(invocation).values(status="available"))
    assert erasing.carry_out() == 1
    assert [each.id for each in waiting(queue)[run_id].items] == ["of-other"]


def test_one_project_does_not_wait_for_the_runs_of_another(
    erasing: PersonErasing, database: Database, queue: Database
) -> None:
    add(queue, batch("somebody", "other"), status="running")
    with database.write() as tx:
        values = {"uuid": str(uuid4()), "project_id": 2, "properties": {}, "created_at": NOW}
        tx.connection.execute(sa.insert(person).values(id=2, **values))
    erasing.delete(
        2, [PersonView(2, UUID(values["uuid"]), {}, False, NOW, None)], delete_events=True, user_id=None
    )
    assert erasing.carry_out() == 1
    with database.read() as connection:
        done = sa.select(person_erasure.c.project_id).where(person_erasure.c.finished_at.is_not(None))
        assert connection.scalars(done).all() == [2]


def test_lines_go_by_the_event_that_they_are_about(erasing: PersonErasing, queue: Database) -> None:
    with queue.write() as tx:
        for instance in (EVENT, uuid4()):
            values = {"project_id": 1, "log_source": "hog_function", "log_source_id": "f", "timestamp": NOW}
            line = {"instance_id": str(instance), "level": "info", "message": "said"}
            tx.connection.execute(sa.insert(log_entry), values | line)
    assert erasing.carry_out() == 1
    with queue.read() as connection:
        [left] = connection.scalars(sa.select(log_entry.c.instance_id))
    assert left != str(EVENT)


def test_log_ins_go_by_either_of_their_ids(erasing: PersonErasing, database: Database) -> None:
    known = [
        (1, "somebody", "visitor"),
        (1, "later", "somebody"),
        (1, "other", "visitor"),
        (2, "somebody", "x"),
    ]
    with database.write() as tx:
        for project_id, distinct_id, anonymous_id in known:
            row = {"project_id": project_id, "distinct_id": distinct_id, "anonymous_id": anonymous_id}
            tx.connection.execute(sa.insert(flag_log_in).values(expires_at=NOW, **row))
    erasing.carry_out()
    with database.read() as connection:
        left = connection.execute(sa.select(flag_log_in.c.project_id, flag_log_in.c.distinct_id)).all()
    assert sorted(map(tuple, left)) == [(1, "other"), (2, "somebody")]


def test_what_another_process_erases_is_left_to_it(
    erasing: PersonErasing, database: Database, queue: Database
) -> None:
    add(queue, about("somebody"))
    with JobLeases(database).claimed(JOB):
        assert erasing.carry_out() == 0
        assert len(waiting(queue)) == 1
    assert erasing.carry_out() == 1
