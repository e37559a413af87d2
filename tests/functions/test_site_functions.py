"""Functions that run in browsers (spec: hog-functions-api 5.5, 6.1, 9, hog-runtime 7.3)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.functions import store
from hoglab.functions.runtime.recompile import Recompiler
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.functions.site.functions import SiteFunctions
from hoglab.storage.database import Database

SOURCE = "export function onEvent({ inputs, posthog }: any) { posthog.seen(inputs) }"
PAGEVIEW = {"events": [{"id": "$pageview", "type": "events"}]}


def site_app(api: Api, **body: Any) -> dict[str, Any]:
    return api.create(**{"type": "site_app", "name": "App", "hog": SOURCE, "enabled": True, **body})


@rule("F5.10", "F9.5")
def test_what_is_compiled(api: Api) -> None:
    made = site_app(
        api,
        inputs_schema=[
            {"key": "hello", "type": "string"},
            {"key": "body", "type": "json"},
            {"key": "token", "type": "string", "secret": True},
        ],
        inputs={
            "hello": {"value": "Hello {arrayMap(a -> a, [1, 2, 3])}!"},
            "body": {"value": {"a": ["{inputs.hello}", 1]}},
            "token": {"value": "s3cr3t"},
        },
        filters=PAGEVIEW,
    )
    assert made["bytecode"] is None
    assert made["inputs"]["hello"]["transpiled"]["code"] == (
        'concat("Hello ", arrayMap(__lambda((a) => a), [1, 2, 3]), "!")'
    )
    assert {"__lambda", "concat", "arrayMap"} <= set(made["inputs"]["hello"]["transpiled"]["stl"])
    assert made["inputs"]["body"]["order"] == 2
    assert "bytecode" not in made["inputs"]["hello"]
    assert made["inputs"]["token"] == {"secret": True}
    assert made["filters"] == {
        "source": "events",
        **PAGEVIEW,
        "transpiled": {"lang": "ts", "code": '(__getGlobal("event") == "$pageview")', "stl": []},
    }
    assert made["transpiled"].startswith("(function() {")
    assert "s3cr3t" not in made["transpiled"]


@rule("F4.15")
def test_every_change_is_transpiled(api: Api) -> None:
    made = site_app(api, inputs_schema=[{"key": "a", "type": "string"}], inputs={"a": {"value": "one"}})
    assert '"one"' in made["transpiled"]
    assert '"two"' in api.change(made, inputs={"a": {"value": "two"}})["transpiled"]
    assert "$pageview" in api.change(made, filters=PAGEVIEW)["transpiled"]
    assert "fresh" in api.change(made, hog=SOURCE.replace("seen", "fresh"))["transpiled"]


def test_mappings_of_site_destinations(api: Api) -> None:
    made = api.create(
        type="site_destination",
        hog=SOURCE,
        mappings=[
            {
                "name": "Views",
                "inputs_schema": [
                    {"key": "m", "type": "string"},
                    {"key": "d", "type": "string", "default": "fallback"},
                ],
                "inputs": {"m": {"value": "{event.event}"}},
                "filters": PAGEVIEW,
            }
        ],
    )
    mapping = made["mappings"][0]
    assert mapping["filters"]["transpiled"]["lang"] == "ts"
    assert (
        mapping["inputs"]["m"]["transpiled"]["code"] == '__getProperty(__getGlobal("event"), "event", true)'
    )
    assert '"fallback"' in made["transpiled"]


@rule("F9.5")
@pytest.mark.parametrize(
    ("body", "attr", "detail"),
    [
        ({"hog": "export function ("}, "hog", "Error in TypeScript code"),
        ({"hog": "import a from 'b'"}, "hog", "Error in TypeScript code"),
        (
            {"inputs_schema": [{"key": "a", "type": "string"}], "inputs": {"a": {"value": "{event."}}},
            "inputs__a",
            "Invalid template: ",
        ),
        ({"mappings": [{"name": "x"}]}, "mappings", "Mappings are only allowed for destinations."),
    ],
)
def test_what_is_refused(api: Api, body: dict[str, Any], attr: str, detail: str) -> None:
    error = api.refused(**{"type": "site_app", "hog": SOURCE, **body})
    assert error["attr"] == attr
    assert error["detail"].startswith(detail)
    if attr == "hog":
        assert error["extra"].keys() == {"message", "line", "column"}


def test_filters_that_no_browser_can_evaluate(api: Api) -> None:
    filters = {"properties": [{"key": "nope(1)", "type": "hogql"}]}
    error = api.refused(type="site_app", hog=SOURCE, enabled=True, filters=filters)
    assert error["attr"] == "filters__non_field_errors"
    made = site_app(api, enabled=False, filters=filters)
    assert made["filters"]["bytecode_error"]
    assert (made["filters"]["transpiled"], made["transpiled"]) == (None, None)


def test_what_is_served(api: Api, database: Database) -> None:
    served = SiteFunctions(database)
    assert served(1) == ()
    first, second = site_app(api), site_app(api, hog=SOURCE.replace("seen", "second"))
    api.create(enabled=True)
    site_app(api, enabled=False)
    assert [one.id for one in served(1)] == [first["id"], second["id"]]
    assert [one.code for one in served(1)] == [first["transpiled"], second["transpiled"]]
    api.change(first, enabled=False)
    assert [one.id for one in served(1)] == [second["id"]]
    api.change(second, deleted=True)
    assert served(1) == ()


def test_filters_follow_what_they_speak_about(
    api: Api, database: Database, service: FunctionService, box: SecretBox
) -> None:
    made = site_app(api, filters={"filter_test_accounts": True})
    with database.write() as tx:
        tx.connection.exec_driver_sql(
            "update project set test_account_filters = ?",
            ('[{"key": "plan", "type": "event", "operator": "exact", "value": "internal-zz"}]',),
        )
        tx.changed("project", 1)
    assert Recompiler(database, box).recompile(1) == 1
    changed = api.get(f"/hog_functions/{made['id']}/").json()
    assert "internal-zz" in changed["filters"]["transpiled"]["code"]
    assert "internal-zz" in changed["transpiled"]
    assert (changed["version"], changed["updated_at"]) == (made["version"], made["updated_at"])
    with database.read() as connection:
        row = store.get(connection, 1, made["id"])
    assert row is not None
    assert service is not None
    assert not box.unseal(row["encrypted_inputs"])
