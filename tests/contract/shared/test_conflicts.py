"""Writes of the API that the database undoes for the sake of others: done again, boundedly, and once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from tests.contract.conftest import Api

from hoglab.storage.database import locks
from hoglab.storage.database.locks import ATTEMPTS, repeat_conflicts

STATES = {"deadlock": "40P01", "serialization failure": "40001"}
MEAN = {
    "kind": "ExperimentMetric", "metric_type": "mean", "source": {"kind": "EventsNode", "event": "purchase"}
}  # fmt: skip
RULES = {"properties": {"type": "AND", "values": [{"type": "person", "key": "plan", "value": ["pro"]}]}}
WRITES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "flag": ("/feature_flags/", {"key": "f", "filters": {"groups": [{}]}}, {"name": "N"}),
    "experiment": (
        "/experiments/", {"name": "e", "feature_flag_key": "e", "metrics": [MEAN]}, {"name": "N"}
    ),
    "saved metric": ("/experiment_saved_metrics/", {"name": "s", "query": MEAN}, {"name": "N"}),
    "holdout": (
        "/experiment_holdouts/", {"name": "h", "filters": [{"properties": [], "rollout_percentage": 5}]},
        {"name": "N"},
    ),
    "cohort": ("/cohorts/", {"name": "c", "filters": RULES}, {"name": "N"}),
    "action": ("/actions/", {"name": "a", "steps": [{"event": "b"}]}, {"name": "N"}),
    "function": ("/hog_functions/", {"name": "f", "hog": "return 1"}, {"name": "N"}),
}  # fmt: skip


class UndoneError(Exception):
    """An error of a driver, with the state by which PostgreSQL tells it."""

    def __init__(self, state: str) -> None:
        super().__init__("undone for others")
        self.sqlstate = state


_watchers: list[Callable[[str], None]] = []
"""What looks at write statements of requests before they are executed."""


@sa.event.listens_for(sa.Engine, "before_cursor_execute")
def _watch(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
    """Tell write statements of API requests to the watchers.

    It listens for as long as this module is there: SQLAlchemy's lists of listeners must not change while the background
    of the server executes statements.
    """
    words = statement.split(None, 1)
    # What the background does meanwhile is no request's.
    if _watchers and words and words[0] in ("INSERT", "UPDATE", "DELETE") and _is_request():
        _watchers[-1](statement)


@contextmanager
def undone(state: str, fails: Callable[[int], bool]) -> Iterator[list[str]]:
    """Undo those write statements of API requests whose number ``fails``; the statements so far, as they began."""
    statements: list[str] = []

    def before(statement: str) -> None:
        statements.append(statement[:60])
        if fails(len(statements) - 1):
            raise UndoneError(state)

    _watchers.append(before)
    try:
        yield statements
    finally:
        _watchers.remove(before)


def _is_request() -> bool:
    return threading.current_thread().name.startswith("hoglab-http")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", WRITES)
def test_each_write_statement_may_be_undone(
    api: Api, monkeypatch: pytest.MonkeyPatch, name: str, state: str
) -> None:
    monkeypatch.setattr(locks, "RETRY_WITHIN_S", 0.0)
    path, body, change = WRITES[name]

    def make(text: str, key: str) -> Any:
        return api.ok("POST", path, _named(body, text), status=201, headers={"Idempotency-Key": key})

    make("first", str(uuid4()))  # with what only the first request does
    with undone(STATES[state], lambda _: False) as statements:
        make("second", str(uuid4()))
    assert len(statements) > 2
    before = api.ok("GET", path)["count"]
    for number in range(len(statements)):
        key = str(uuid4())
        with undone(STATES[state], lambda place, number=number: place == number) as seen:
            made = make(f"n{number}", key)
        assert len(seen) > len(statements), "the statement was done again"
        assert make(f"n{number}", key)["id"] == made["id"]
    assert api.ok("GET", path)["count"] == before + len(statements)
    with undone(STATES[state], lambda _: False) as statements:
        api.ok("PATCH", f"{path}{made['id']}/", change)
    for number in range(len(statements)):
        with undone(STATES[state], lambda place, number=number: place == number):
            changed = api.ok("PATCH", f"{path}{made['id']}/", {"name": f"C{number}"})
        assert changed["name"] == f"C{number}"


def test_it_is_given_up_after_a_while(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RETRY_WITHIN_S", 0.0)
    path, body, _ = WRITES["action"]
    with undone("40P01", lambda _: True) as statements:
        error = api.refused("POST", path, body, status=503)
    assert error["detail"] == "The database is busy."
    assert len(statements) == ATTEMPTS
    assert api.ok("GET", path)["count"] == 0


def test_other_failures_are_not_repeated(api: Api) -> None:
    path, body, _ = WRITES["action"]
    with undone("57014", lambda _: True) as statements:
        api.refused("POST", path, body, status=503)
    assert len(statements) == 1


def test_what_is_stored_in_part_is_not_done_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RETRY_WITHIN_S", 0.0)
    done: list[int] = []
    with api.database() as database:

        def work() -> None:
            with database.write():
                done.append(1)
            with database.write():
                raise UndoneError("40001")

        with pytest.raises(locks.DatabaseConflictError):
            repeat_conflicts(work)
    assert done == [1]


def _named(body: dict[str, Any], text: str) -> dict[str, Any]:
    return {**body, **{name: text for name in ("name", "key", "feature_flag_key") if name in body}}
