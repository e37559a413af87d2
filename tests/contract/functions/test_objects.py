"""What every answer about hog functions has in common, and how functions come and go (rules F1 to F4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.contract.conftest import Api, Laboratory
from tests.contract.functions.test_functions import PATH, UNKNOWN, at, make
from tests.contract.rules import rule
from tests.functions.mmdb import database as mmdb

from hoglab.storage.database import tables

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
AUTHOR = (
    "id uuid distinct_id first_name last_name email is_email_verified hedgehog_config role_at_organization"
)
WEBHOOK = {"template_id": "template-webhook", "inputs": {"url": {"value": "https://example.com"}}}


class TestPaths:
    @rule("F1.9")
    @pytest.mark.parametrize("prefix", ["projects", "environments"])
    @pytest.mark.parametrize("slash", ["", "/"])
    def test_nothing_redirects(self, api: Api, prefix: str, slash: str) -> None:
        made = make(api, type="transformation", hog="return event")
        base = f"/api/{prefix}/{api.project_id}/hog_functions"
        for method, tail, body, status in (
            ("GET", "", None, 200),
            ("POST", "", {"name": "n", "hog": "return 1"}, 201),
            ("GET", f"/{made['id']}", None, 200),
            ("PATCH", f"/{made['id']}", {"name": "m"}, 200),
            ("PUT", f"/{made['id']}", {"name": "o"}, 200),
            ("DELETE", f"/{made['id']}", None, 405),
            ("PATCH", "/rearrange", {"orders": {made["id"]: 1}}, 200),
            ("GET", f"/{made['id']}/metrics/totals", None, 200),
            ("POST", f"/{made['id']}/broadcast", {}, 400),
        ):
            answer = api.call(method, f"{base}{tail}{slash}", body)
            assert answer.status_code == status, (method, tail, answer.text)

    @rule("F1.10")
    def test_words_are_no_ids(self, api: Api) -> None:
        assert api.refused("GET", f"{PATH}icon/")["detail"] == "id is required"
        assert api.ok("GET", f"{PATH}icons/") == []
        assert api.ok("GET", f"{PATH}masked_secrets/") == []
        assert api.refused("PATCH", f"{PATH}rearrange/", {})["detail"] == "No orders provided"
        assert api.ok("GET", f"{at(make(api))}metrics/totals/").keys() == {"totals"}

    @rule("F2.7")
    def test_warehouse_webhooks(self, api: Api) -> None:
        made = make(api, enabled=True)
        with api.database() as database, database.write() as tx:
            kind = {"type": "warehouse_source_webhook"}
            tx.execute(
                update(tables.hog_function).where(tables.hog_function.c.id == made["id"]).values(**kind)
            )
        assert api.ok("GET", PATH)["count"] == 0
        assert api.ok("GET", f"{PATH}?type=warehouse_source_webhook")["count"] == 0
        assert api.ok("GET", f"{PATH}?search=n")["count"] == 0
        assert api.refused("GET", at(made), status=404)["detail"] == "Not found."
        assert api.refused("PATCH", at(made), {"name": "x"}, status=404)
        for tail in ("logs/", "metrics/", "metrics/totals/", "status/", "revisions/"):
            assert api.call("GET", at(made) + tail).status_code == 404, tail


class TestForm:
    @rule("F1.8", "F3.4", "F3.5")
    def test_moments_authors_and_ids(self, api: Api) -> None:
        first, second = make(api), make(api)
        for name in ("created_at", "updated_at"):
            assert MOMENT.fullmatch(first[name])
        assert list(first["created_by"]) == AUTHOR.split()
        assert first["created_by"]["id"] == api.ok("GET", "/api/users/@me/")["id"]
        assert first["id"] < second["id"]
        assert first["id"][14] == "7"

    @rule("F3.6", "F3.7")
    def test_what_is_stored_otherwise(self, api: Api) -> None:
        made = make(api, mappings=[], _create_in_folder="A/B", base_updated_at="2020-01-01T00:00:00Z")
        assert (made["mappings"], made["_create_in_folder"]) == (None, "A/B")
        assert "base_updated_at" not in made

    @rule("F3.8", "F2.6")
    def test_templates_in_functions(self, api: Api) -> None:
        made = api.ok("POST", PATH, {**WEBHOOK, "type": "internal_destination"}, status=201)
        assert made["template"] == api.ok("GET", "/hog_function_templates/template-webhook/")
        assert (made["type"], made["template_id"]) == ("internal_destination", "template-webhook")
        plain = make(api)
        assert (plain["template"], plain["template_id"]) == (None, None)
        older = {**made["template"], "code": "return 'older'"}
        with api.database() as database, database.write() as tx:
            mine = tables.hog_function.c.id == made["id"]
            tx.execute(update(tables.hog_function).where(mine).values(template=older))
        assert api.ok("GET", at(made))["template"] == older


class TestLife:
    @rule("F4.20")
    def test_functions_of_hidden_templates(self, api: Api) -> None:
        made = api.ok("POST", PATH, {**WEBHOOK, "enabled": True}, status=201)
        with api.database() as database, database.write() as tx:
            template = {**made["template"], "status": "hidden"}
            mine = tables.hog_function.c.id == made["id"]
            tx.execute(update(tables.hog_function).where(mine).values(template=template))
        for body in ({"name": "x"}, {"enabled": True}, {"deleted": False}):
            error = api.refused("PATCH", at(made), body)
            assert (error["attr"], error["code"]) == ("enabled", "invalid_input")
        assert api.ok("PATCH", at(made), {"enabled": False})["enabled"] is False
        assert api.ok("PATCH", at(made), {"name": "edited"})["name"] == "edited"
        assert api.refused("PATCH", at(made), {"enabled": True})["attr"] == "enabled"
        assert api.ok("PATCH", at(made), {"deleted": True, "enabled": True})["deleted"] is True

    @rule("F4.23")
    def test_new_projects_have_no_functions(self, api: Api) -> None:
        assert api.ok("GET", PATH)["count"] == 0

    @rule("F4.23")
    def test_places_are_added_by_a_function(
        self, open_laboratory: Callable[..., Laboratory], tmp_path: Path
    ) -> None:
        path = tmp_path / "city.mmdb"
        path.write_bytes(mmdb("89.160.20.0/24", {"country": {"iso_code": "SE", "names": {"en": "Sweden"}}}))
        api = open_laboratory(geoip_database=path).api()
        (default,) = api.ok("GET", f"{PATH}?full=true")["results"]
        assert (default["template_id"], default["type"]) == ("template-geoip", "transformation")
        assert (default["enabled"], default["execution_order"]) == (True, 1)
        make(api, type="transformation", name="Mine", hog="return event", enabled=True)

        def places(event: str, **more: Any) -> tuple[Any, Any]:
            """What came of an event: its country, and which functions it went through."""
            properties = {"$ip": "89.160.20.112", **more}
            api.capture({"event": event, "distinct_id": "ada", "properties": properties})
            (stored,) = api.ok("GET", f"/events/?event={event}")["results"]
            labels = stored["properties"]["$transformations_succeeded"]
            return stored["properties"].get("$geoip_country_code"), [one.split(" ")[0] for one in labels]

        assert places("known") == ("SE", ["GeoIP", "Mine"])
        assert places("unwanted", **{"$geoip_disable": True}) == (None, ["GeoIP", "Mine"])
        (ada,) = api.ok("GET", "/persons/?distinct_id=ada")["results"]
        assert ada["properties"]["$initial_geoip_country_name"] == "Sweden"
        api.ok("PATCH", at(default), {"enabled": False})
        assert places("switched off") == (None, ["Mine"])
        api.ok("PATCH", at(default), {"enabled": True, "execution_order": 1})
        assert places("on again") == ("SE", ["GeoIP", "Mine"])
        api.ok("PATCH", at(default), {"deleted": True})
        api.ok("PATCH", f"/api/projects/{api.project_id}/", {"name": "renamed"})
        assert places("deleted") == (None, ["Mine"])

    @rule("F4.10")
    def test_the_template_stays(self, api: Api) -> None:
        made = api.ok("POST", PATH, WEBHOOK, status=201)
        for template_id in ("template-slack", "nothing", None):
            changed = api.ok("PATCH", at(made), {"template_id": template_id})
            assert (changed["template_id"], changed["hog"]) == ("template-webhook", made["hog"])

    @rule("F4.15")
    @pytest.mark.parametrize(
        "change",
        [
            {"hog": "export function onEvent() { posthog.other() }"},
            {"inputs": {"a": {"value": "two"}}},
            {"inputs_schema": [{"key": "b", "type": "string", "default": "x"}]},
            {"filters": {"events": [{"id": "bought", "type": "events"}]}},
            {"mappings": [{"name": "m", "filters": {"events": [{"id": "seen", "type": "events"}]}}]},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_browser_code_follows(self, api: Api, change: dict[str, Any]) -> None:
        made = make(
            api,
            type="site_destination",
            hog="export function onEvent() {}",
            inputs_schema=[{"key": "a", "type": "string"}],
            inputs={"a": {"value": "one"}},
        )
        assert api.ok("PATCH", at(made), change)["transpiled"] != made["transpiled"]
        assert api.ok("GET", at(made))["transpiled"] != made["transpiled"]

    @rule("F4.4", "F1.4")
    @pytest.mark.parametrize(
        ("method", "tail"),
        [
            ("GET", ""),
            ("GET", "logs/"),
            ("GET", "metrics/"),
            ("GET", "metrics/totals/"),
            ("GET", "status/"),
            ("GET", "revisions/"),
            ("POST", "broadcast/"),
            ("POST", "rerun/"),
            ("POST", "enable_backfills/"),
        ],
    )
    def test_operations_on_what_is_gone(self, api: Api, method: str, tail: str) -> None:
        made = make(api)
        api.ok("PATCH", at(made), {"deleted": True})
        for path in (at(made), f"{PATH}{UNKNOWN}/", f"{PATH}nonsense/"):
            assert api.call(method, path + tail, {} if method == "POST" else None).status_code == 404
