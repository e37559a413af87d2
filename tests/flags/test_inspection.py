"""Reads of what flags do, as PostHog's tools ask for them: status, history, values with reasons."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from tests.flags.conftest import Server

from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import tables

BASE = "/api/projects/1/feature_flags"
PRO = {"key": "plan", "type": "person", "operator": "exact", "value": "pro"}


def get(server: Server, path: str, status: int = 200, **query: Any) -> Any:
    answer = server.client.get(f"{BASE}/{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


class TestReasons:
    def test_are_those_of_the_sdk(self, server: Server) -> None:
        """For people with and without stored properties, groups, variants, dependencies and flags of one run time."""
        halves = [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]
        server.event("$identify", "pro", **{"$set": {"plan": "pro"}})
        server.event("$identify", "free", **{"$set": {"plan": "free"}})
        server.event("$groupidentify", "pro", **{"$group_type": "company", "$group_key": "acme"})
        base = server.create("paid", {"groups": [{"properties": [PRO]}, {"rollout_percentage": 10}]})
        server.create("split", {"groups": [{}], "multivariate": {"variants": halves}})
        depends = {"key": str(base["id"]), "type": "flag", "operator": "flag_evaluates_to", "value": True}
        server.create("follows", {"groups": [{"properties": [depends]}]})
        server.create("company", {"groups": [{}], "aggregation_group_type_index": 0})
        server.create("kept", ensure_experience_continuity=True)
        for number in range(20):
            distinct_id = {0: "pro", 1: "free"}.get(number, f"user-{number}")
            groups = {"company": "acme"} if number % 2 else {}
            sdk = server.flags(distinct_id, groups=groups)["flags"]
            shown = get(
                server,
                "evaluation_reasons/",
                distinct_id=distinct_id,
                groups='{"company": "acme"}' if groups else "",
            )
            assert shown == {
                key: {
                    "value": flag["enabled"] if flag["variant"] is None else flag["variant"],
                    "evaluation": {
                        "reason": flag["reason"]["code"],
                        "condition_index": flag["reason"]["condition_index"],
                    },
                }
                for key, flag in sdk.items()
            }

    def test_tell_of_flags_that_a_run_time_or_nobody_gets(self, server: Server) -> None:
        server.create("server-only", evaluation_runtime="server")
        server.create("client-only", evaluation_runtime="client")
        server.create("off", active=False)
        shown = get(server, "evaluation_reasons/", distinct_id="ann")
        assert {key: reason["value"] for key, reason in shown.items()} == {
            "server-only": True,
            "client-only": True,
            "off": False,
        }
        assert shown["off"]["evaluation"] == {"reason": "disabled", "condition_index": None}

    def test_store_nothing(self, server: Server) -> None:
        server.event("$identify", "ann", **{"$set": {"plan": "pro"}})
        server.create("kept", ensure_experience_continuity=True)
        get(server, "evaluation_reasons/", distinct_id="ann")
        with server.database.read() as connection:
            override = tables.flag_hash_key_override
            assert connection.scalar(sa.select(sa.func.count()).select_from(override)) == 0

    @pytest.mark.parametrize(
        ("query", "attr"),
        [
            ({}, "distinct_id"),
            ({"distinct_id": "x" * 201}, "distinct_id"),
            ({"distinct_id": "ann", "groups": "company"}, "groups"),
            ({"distinct_id": "ann", "groups": "[1]"}, "groups"),
            ({"distinct_id": "ann", "groups": '{"company": {}}'}, "groups"),
            ({"distinct_id": "ann", "groups": "x" * 4_001}, "groups"),
        ],
    )
    def test_need_a_person(self, server: Server, query: dict[str, str], attr: str) -> None:
        assert get(server, "evaluation_reasons/", 400, **query)["attr"] == attr


def test_my_flags_are_those_of_the_key(server: Server) -> None:
    with server.database.read() as connection:
        owner = connection.scalar(sa.select(tables.user.c.distinct_id))
    mine = {"key": "distinct_id", "type": "person", "operator": "exact", "value": owner}
    server.create("mine", {"groups": [{"properties": [mine]}]})
    server.create("others", {"groups": [{"rollout_percentage": 0}]})
    server.create("off", active=False)
    shown = get(server, "my_flags/")
    assert [(entry["feature_flag"]["key"], entry["value"]) for entry in shown] == [
        ("off", False),
        ("others", False),
        ("mine", True),
    ]
    assert shown[2]["feature_flag"] == get(server, f"{shown[2]['feature_flag']['id']}/")


class TestStatus:
    def test_says_why(self, server: Server) -> None:
        flag_id = server.create("on")["id"]
        assert get(server, f"{flag_id}/status/") == {
            "status": "active",
            "reason": "The flag is on, and younger than 30 days.",
        }
        server.patch(flag_id, active=False)
        assert get(server, f"{flag_id}/status/")["status"] == "inactive"
        server.patch(flag_id, deleted=True)
        assert get(server, f"{flag_id}/status/") == {"status": "deleted", "reason": "The flag is deleted."}
        get(server, f"{flag_id + 1}/status/", 404)

    @pytest.mark.parametrize(
        ("groups", "called_days_ago", "expected"),
        [
            ([{}], None, ("stale", "The flag gives everybody the same value, and is older than 30 days.")),
            (
                [{"rollout_percentage": 50}],
                None,
                ("active", "The flag is on, and its values differ between people."),
            ),
            ([{"rollout_percentage": 50}], 40, ("stale", "No SDK has called the flag for 40 days.")),
            ([{}], 2, ("active", "The flag is on, and SDKs call it.")),
        ],
    )
    def test_of_an_old_flag(
        self,
        server: Server,
        groups: list[dict[str, Any]],
        called_days_ago: int | None,
        expected: tuple[str, str],
    ) -> None:
        flag_id = server.create("old", {"groups": groups})["id"]
        called = None if called_days_ago is None else utc_now() - timedelta(days=called_days_ago)
        with server.database.write() as tx:
            times = {"created_at": utc_now() - timedelta(days=90), "last_called_at": called}
            tx.execute(
                sa.update(tables.feature_flag).where(tables.feature_flag.c.id == flag_id).values(**times)
            )
            tx.changed("flags", 1)
        shown = get(server, f"{flag_id}/status/")
        assert (shown["status"], shown["reason"]) == expected
        assert get(server, f"{flag_id}/")["status"] == expected[0].upper()


class TestHistory:
    def test_has_pages(self, server: Server) -> None:
        first, second = server.create("first")["id"], server.create("second")["id"]
        for rollout in range(12):
            server.patch(first, filters={"groups": [{"rollout_percentage": rollout}]})
        page = get(server, f"{first}/activity/")
        assert (len(page["results"]), page["total_count"], page["previous"]) == (10, 13, None)
        assert {entry["item_id"] for entry in page["results"]} == {str(first)}
        last = server.client.get(page["next"]).json()
        assert [entry["activity"] for entry in last["results"]] == ["updated", "updated", "created"]
        assert last["next"] is None
        assert server.client.get(last["previous"]).json()["results"] == page["results"]
        everything = get(server, "activity/", limit=100)
        assert everything["total_count"] == 14
        assert {entry["item_id"] for entry in everything["results"]} == {str(first), str(second)}

    def test_of_what_is_not_there(self, server: Server) -> None:
        get(server, "17/activity/", 404)
        assert get(server, "activity/") == {"results": [], "next": None, "previous": None, "total_count": 0}

    @pytest.mark.parametrize("query", [{"page": "0"}, {"page": "x"}, {"limit": "101"}, {"limit": "-1"}])
    def test_refuses_pages_that_are_none(self, server: Server, query: dict[str, str]) -> None:
        assert get(server, "activity/", 400, **query)["attr"] in query
