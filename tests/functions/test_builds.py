"""A request builds a function once; again where something that it depends on was changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update
from tests.functions.conftest import Api

from hoglab.filters.hog import FilterContext
from hoglab.functions import store
from hoglab.functions.configuration import Builder, Configuration
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.http.fields.dates import utc_now
from hoglab.http.identity import Project
from hoglab.storage.database import Database
from hoglab.storage.database.tables.functions import action

PAID = {"events": [{"id": "paid", "type": "events"}]}
TESTS = [{"name": "any", "globals": {"event": {"event": "paid"}}, "expect": {}}]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Configuration]:
    """Every configuration that is built from now on."""
    builds: list[Configuration] = []
    build = Builder.build

    def counted(builder: Builder) -> Configuration:
        builds.append(build(builder))
        return builds[-1]

    monkeypatch.setattr(Builder, "build", counted)
    return builds


def test_a_request_builds_once(api: Api, builds: list[Configuration]) -> None:
    function = api.create(filters=PAID, inputs_schema=[{"key": "url", "type": "string"}])
    assert len(builds) == 1
    api.change(function, name="named")
    assert len(builds) == 2
    assert api.get(f"/hog_functions/{function['id']}/").json()["name"] == "named"


def changed_meanwhile(
    make_api: Callable[[FunctionService], Api],
    database: Database,
    box: SecretBox,
    change: Callable[[Any], None],
) -> Api:
    """Return an API where ``change`` is made, with a connection, between the build of a request and its transaction."""

    def check(project: Project, built: Configuration, context: FilterContext) -> None:
        with database.write() as tx:
            change(tx.connection)

    return make_api(FunctionService(database, box, check_tests=check))


def test_a_change_of_the_same_function_meanwhile_stays(
    api: Api,
    make_api: Callable[[FunctionService], Api],
    database: Database,
    box: SecretBox,
    builds: list[Configuration],
) -> None:
    function = api.create(name="old", description="old", x_tests=TESTS)
    builds.clear()

    def describe(connection: Any) -> None:
        store.change(connection, function["id"], {"description": "new"})

    changed_meanwhile(make_api, database, box, describe).change(function, name="named")
    assert len(builds) == 2
    stored = api.get(f"/hog_functions/{function['id']}/").json()
    assert (stored["name"], stored["description"]) == ("named", "new")


def test_an_action_that_changes_meanwhile_is_in_the_filters(
    api: Api,
    make_api: Callable[[FunctionService], Api],
    database: Database,
    box: SecretBox,
    builds: list[Configuration],
) -> None:
    with database.write() as tx:
        times = dict.fromkeys(("created_at", "updated_at"), utc_now())
        created = {"project_id": 1, "name": "pays", "steps": [{"event": "paid"}], "tags": [], **times}
        action_id = tx.connection.execute(action.insert().values(created)).inserted_primary_key[0]

    def rename(connection: Any) -> None:
        connection.execute(update(action).values(steps=[{"event": "refunded"}]))

    filters = {"actions": [{"id": action_id, "type": "actions"}]}
    function = api.create(x_tests=TESTS)
    builds.clear()
    changed_meanwhile(make_api, database, box, rename).change(function, filters=filters)
    assert len(builds) == 2
    stored = api.get(f"/hog_functions/{function['id']}/").json()
    assert "refunded" in stored["filters"]["bytecode"]
    assert "paid" not in stored["filters"]["bytecode"]
