"""Cohorts of those who did something, from the events in the store (spec: experiments-api 8.1)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.events import Event, person_id, store_events
from tests.embedded import EmbeddedEventStore

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.analysis.execution.behaviour import performers
from hoglab.people.cohorts import CohortCalculator, CohortService
from hoglab.people.cohorts import store as cohort_store
from hoglab.storage.database import Database

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
PEOPLE = ("ann", "bob", "cem", "dot")


class Lab:
    """Four people, their events, and cohorts of them."""

    def __init__(self, path: Path) -> None:
        self.database = Database.open(path / "hoglab.db")
        self.store = EmbeddedEventStore(path / "events.duckdb")
        accounts = AccountService(self.database)
        bootstrap(self.database, accounts)
        project = accounts.project(1)
        assert project is not None
        self.project = project
        self.service = CohortService(self.database)
        behaviour = performers(self.database, self.store, now=lambda: NOW)
        self.calculator = CohortCalculator(self.database, behaviour=behaviour, now=lambda: NOW)
        with self.database.write() as tx:
            for number, name in enumerate(PEOPLE, 1):
                tx.connection.exec_driver_sql(
                    "INSERT INTO person (id, uuid, project_id, properties, created_at) VALUES (?, ?, 1, '{}', 0)",
                    (number, str(person_id(name))),
                )

    def happened(self, *events: tuple[str, str, int, dict[str, Any]], **more: Any) -> None:
        """Events as (person, name, days ago, properties)."""
        store_events(
            self.store,
            [
                Event(person, NOW - timedelta(days=days), name, properties)
                for person, name, days, properties in events
            ],
            **more,
        )

    def did(self, **rule: Any) -> tuple[set[str], str | None]:
        """Who is in the cohort of a rule, and what went wrong."""
        leaf = {"type": "behavioral", "value": "performed_event", "event_type": "events", **rule}
        filters = {"properties": {"type": "OR", "values": [{"type": "OR", "values": [leaf]}]}}
        made = self.service.create(self.project, None, {"name": "Rule", "filters": filters})
        self.calculator.run()
        with self.database.read() as connection:
            row = cohort_store.cohort_by_id(connection, 1, made.id)
            found = {PEOPLE[row_id - 1] for row_id in cohort_store.member_rows(connection, made.id)}
        assert row is not None
        return found, row.last_error_message

    def close(self) -> None:
        self.store.close()
        self.database.dispose()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    lab.happened(
        ("ann", "paid", 1, {"plan": "pro"}),
        ("bob", "paid", 20, {"plan": "pro"}),
        ("cem", "paid", 400, {"plan": "free"}),
        ("dot", "looked", 1, {"plan": "pro"}),
        ("nobody", "paid", 1, {"plan": "pro"}),
    )
    yield lab
    lab.close()


def test_by_event(lab):
    assert lab.did(key="paid") == ({"ann", "bob", "cem"}, None)
    assert lab.did(key="paid", negation=True) == ({"dot"}, None)
    assert lab.did(key="never") == (set(), None)


def test_since_a_moment(lab):
    assert lab.did(key="paid", explicit_datetime="2026-03-01T00:00:00+00:00")[0] == {"ann", "bob"}
    assert lab.did(key="paid", time_value=7, time_interval="day")[0] == {"ann"}
    assert lab.did(key="paid", time_value="3", time_interval="week")[0] == {"ann", "bob"}
    assert lab.did(key="paid", time_value=1, time_interval="year")[0] == {"ann", "bob"}
    assert lab.did(key="paid", time_value=9999, time_interval="year")[0] == {"ann", "bob", "cem"}


def test_with_filters_on_the_event(lab):
    plan = {"key": "plan", "type": "event", "value": ["pro"], "operator": "exact"}
    assert lab.did(key="paid", event_filters=[plan])[0] == {"ann", "bob"}


def test_persons_who_were_merged(lab):
    lab.happened(merges=[("ann", "dot")])
    assert lab.did(key="paid")[0] == {"bob", "cem", "dot"}


def test_by_action(lab):
    with lab.database.write() as tx:
        tx.connection.exec_driver_sql(
            "INSERT INTO action (id, project_id, name, description, steps, tags, deleted, created_at, updated_at) "
            "VALUES (5, 1, 'Look', '', '[{\"event\": \"looked\"}]', '[]', 0, 0, 0)"
        )
    assert lab.did(key="5", event_type="actions") == ({"dot"}, None)
    found, error = lab.did(key="6", event_type="actions")
    assert found == set()
    assert error == "Action 6 does not exist."


def test_what_sql_cannot_answer(lab):
    unknown = {"key": "x", "type": "hogql", "value": "1"}
    found, error = lab.did(key="paid", event_filters=[unknown])
    assert found == set()
    assert "cannot be calculated" in (error or "")
