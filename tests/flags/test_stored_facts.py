"""Flags that need what storage knows: properties, cohorts, bucketing ids (spec: sdk-wire 3.5, 3.9, 3.12)."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from hoglab.flags.evaluation import endpoint as evaluation
from hoglab.flags.matching import continuity
from hoglab.storage.database.tables import flag_hash_key_override as overrides
from hoglab.storage.database.tables import flag_log_in as log_ins

PRO = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}
HALVES = {
    "variants": [{"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50}]
}
KEY = "checkout-experiment"  # user-1 and user-2 hash into control, user-3 into test


def stored(server) -> list[tuple[str, str]]:
    with server.database.read() as connection:
        rows = connection.execute(sa.select(overrides.c.feature_flag_key, overrides.c.hash_key))
        return sorted((key, hash_key) for key, hash_key in rows)


def variant(server, distinct_id, **body):
    return server.flags(distinct_id, **body)["flags"][KEY]["variant"]


def test_stored_person_properties(server):
    server.create("f", {"groups": [{"properties": [PRO]}]})
    server.event("$set", "u", **{"$set": {"plan": "pro"}})
    assert server.flags("u")["flags"]["f"]["enabled"] is True
    assert server.flags("u", person_properties={"plan": "free"})["flags"]["f"]["enabled"] is False
    assert server.flags("nobody")["flags"]["f"]["enabled"] is False
    only = "/flags/?v=2&only_use_override_person_properties=true"
    assert server.flags("u", path=only)["flags"]["f"]["enabled"] is False
    server.event("$set", "u", **{"$set": {"plan": "free"}})
    assert server.flags("u")["flags"]["f"]["enabled"] is False


def test_the_place_of_the_request_counts_unless_it_says_not_to(server):
    swedes = {"key": "$geoip_country_code", "type": "person", "value": ["SE"], "operator": "exact"}
    server.create("f", {"groups": [{"properties": [swedes]}]})
    server.create("pros", {"groups": [{"properties": [PRO]}]})
    server.create("both", {"groups": [{"properties": [PRO, swedes]}]})

    def enabled(**asked) -> list[str]:
        return [key for key, flag in server.flags("u", **asked)["flags"].items() if flag["enabled"]]

    assert enabled(ip="89.160.20.112") == ["f"]
    assert enabled(ip="81.2.69.142") == []
    assert enabled(ip="10.0.0.1") == []
    assert enabled(ip="89.160.20.112", geoip_disable=True) == []
    assert enabled(ip="89.160.20.112", person_properties={"$geoip_country_code": "GB"}) == []
    # Where somebody is now beats where they were when their last event arrived, whatever is asked for first.
    server.event("$set", "u", **{"$set": {"plan": "pro", "$geoip_country_code": "GB"}})
    assert enabled(ip="89.160.20.112") == ["f", "pros", "both"]
    assert enabled(ip="89.160.20.112", geoip_disable=True) == ["pros"]
    only = "/flags/?v=2&only_use_override_person_properties=true"
    assert enabled(ip="89.160.20.112", path=only) == ["f"]


def test_stored_group_properties(server):
    big = {"key": "size", "type": "group", "group_type_index": 0, "value": "10", "operator": "gt"}
    server.create("f", {"groups": [{"properties": [big]}], "aggregation_group_type_index": 0})
    assert server.flags(groups={"company": "acme"})["flags"]["f"]["reason"]["code"] == "no_group_type"
    group = {"$group_type": "company", "$group_key": "acme", "$group_set": {"size": 20}}
    server.event("$groupidentify", "u", **group)
    assert server.flags(groups={"company": "acme"})["flags"]["f"]["enabled"] is True
    smaller = {"company": {"size": 3}}
    assert (
        server.flags(groups={"company": "acme"}, group_properties=smaller)["flags"]["f"]["enabled"] is False
    )


def test_static_and_dynamic_cohorts(server):
    server.event("$set", "in", **{"$set": {"plan": "pro"}})
    server.event("$set", "out", **{"$set": {"plan": "free"}})
    static = server.cohort(members={"in"})
    dynamic = server.cohort({"type": "AND", "values": [PRO]})
    for key, cohort_id in (("static", static), ("dynamic", dynamic)):
        leaf = {"key": "id", "type": "cohort", "value": cohort_id, "operator": "in"}
        server.create(key, {"groups": [{"properties": [leaf]}]})
    for distinct_id, expected in (("in", True), ("out", False), ("nobody", False)):
        answer = server.flags(distinct_id)
        assert {key: record["enabled"] for key, record in answer["flags"].items()} == {
            "static": expected,
            "dynamic": expected,
        }
        assert answer["errorsWhileComputingFlags"] is False


def test_a_changed_cohort_is_seen_by_the_next_request(server):
    cohort_id = server.cohort({"type": "AND", "values": [PRO]})
    leaf = {"key": "id", "type": "cohort", "value": cohort_id, "operator": "in"}
    server.create("f", {"groups": [{"properties": [leaf]}]})
    person = {"person_properties": {"plan": "pro"}}
    assert server.flags(**person)["flags"]["f"]["enabled"] is True
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE cohort SET deleted = true")
        tx.changed("cohorts", 1)
    answer = server.flags(**person)
    assert answer["flags"]["f"]["failed"] is True
    assert answer["errorsWhileComputingFlags"] is True


def test_continuity_over_login(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.create("other", ensure_experience_continuity=True)
    server.create("plain")
    # Anonymous, then identified: the variant stays although user-3 alone would be in test.
    assert variant(server, "user-1") == "control"
    server.event("$set", "user-3")
    assert variant(server, "user-3", **{"$anon_distinct_id": "user-1"}) == "control"
    assert stored(server) == [(KEY, "user-1"), ("other", "user-1")]
    assert variant(server, "user-3") == "control"
    # Another device: the stored id wins over the new anonymous one.
    assert variant(server, "user-3", **{"$anon_distinct_id": "bob@example.com"}) == "control"
    assert len(stored(server)) == 2


def test_continuity_without_a_person_stores_nothing(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    assert variant(server, "user-3", **{"$anon_distinct_id": "user-1"}) == "control"
    assert stored(server) == []
    assert variant(server, "user-3") == "control", "the log-in is remembered until it is ingested"


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_requests_before_the_log_in_is_ingested_flip_no_variant(server, is_known):
    """posthog-js sends `$identify` and asks for flags; the next page asks again without the anonymous id."""
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    seen = set()
    for number in range(40):
        visitor, user = f"visitor-{number}", f"member-{number}"
        if is_known:
            server.event("$set", user)
        before = variant(server, visitor)
        assert variant(server, user, **{"$anon_distinct_id": visitor}) == before
        assert variant(server, user) == before
        server.event("$identify", user, **{"$anon_distinct_id": visitor})
        assert variant(server, user) == before
        seen.add(before)
    assert seen == {"control", "test"}


def test_servers_send_the_anonymous_id_among_the_properties(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.event("$set", "user-3")
    assert variant(server, "user-3", person_properties={"$anon_distinct_id": "user-1"}) == "control"
    assert stored(server) == [(KEY, "user-1")]


def test_nobody_enters_or_leaves_a_holdout_by_logging_in(server):
    filters = {
        "groups": [{}],
        "multivariate": HALVES,
        "holdout": {"id": 7, "exclusion_percentage": 50},
    }
    server.create(KEY, filters, ensure_experience_continuity=True)
    seen = set()
    for number in range(40):
        visitor, user = f"visitor-{number}", f"member-{number}"
        before = variant(server, visitor)
        server.event("$identify", user, **{"$anon_distinct_id": visitor})
        server.evaluator._log_ins = continuity.RecentLogIns()
        assert variant(server, user) == before
        seen.add(before)
    assert seen == {"holdout-7", "control", "test"}


class TestRecentLogIns:
    def test_they_count_for_a_while(self):
        now = [0.0]
        recent = continuity.RecentLogIns(lambda: now[0])
        assert recent.known(1, "user") is None
        assert recent.add(1, "user", "visitor")
        assert not recent.add(1, "user", "other")
        assert recent.known(1, "user") == "visitor"
        assert recent.known(2, "user") is None
        now[0] = continuity.LOG_INS_KEPT_FOR_S
        assert recent.known(1, "user") == "visitor"
        now[0] += 1
        assert recent.known(1, "user") is None
        assert recent.add(1, "user", "other")
        assert recent.known(1, "user") == "other"

    def test_the_oldest_are_forgotten(self, monkeypatch):
        monkeypatch.setattr(continuity, "MAX_LOG_INS", 3)
        recent = continuity.RecentLogIns(lambda: 0.0)
        for number in range(5):
            recent.add(1, f"user-{number}", "visitor")
        known = [recent.known(1, f"user-{number}") for number in range(5)]
        assert known == [None, None, "visitor", "visitor", "visitor"]

    def test_ids_that_name_nobody_are_not_kept(self):
        recent = continuity.RecentLogIns(lambda: 0.0)
        long = "x" * (continuity.MAX_ID_LENGTH + 1)
        for distinct_id, sent in (("user", "user"), ("user", long), (long, "visitor")):
            assert not recent.add(1, distinct_id, sent)
            assert recent.known(1, distinct_id) is None


class TestSharedLogIns:
    def test_a_project_has_a_number_of_them_and_the_newest_count(self, server, monkeypatch):
        """Strangers who invent ids fill no table, and neither do they push out those of another project."""
        monkeypatch.setattr(continuity, "MAX_SHARED_LOG_INS", 20)
        monkeypatch.setattr(continuity, "SHARED_LOG_INS_COUNTED_EVERY", 5)
        second = server.accounts.create_project(server.project.organization_id, "Second")
        begin = datetime(2026, 11, 21, tzinfo=UTC)
        seconds = itertools.count()
        shared = continuity.SharedLogIns(
            server.database, lambda: begin + timedelta(milliseconds=next(seconds))
        )
        shared.add(second.id, "user", "visitor")
        count = sa.select(sa.func.count()).where(log_ins.c.project_id == server.project.id)
        for number in range(101):
            shared.add(server.project.id, f"user-{number}", f"visitor-{number}")
            with server.database.read() as connection:
                assert min(number + 1, 15) <= connection.scalar(count) <= 20
        assert shared.known(second.id, "user") == "visitor"
        known = [shared.known(server.project.id, f"user-{number}") for number in range(101)]
        assert known[-15:] == [f"visitor-{number}" for number in range(86, 101)]
        assert not any(known[:81])


def test_continuity_of_two_persons_prefers_the_known_one(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.event("$set", "user-1")
    variant(server, "user-1", **{"$anon_distinct_id": "user-2"})
    server.event("$set", "user-3")
    variant(server, "user-3", **{"$anon_distinct_id": "bob@example.com"})
    assert variant(server, "user-3", **{"$anon_distinct_id": "user-1"}) == "test"
    assert variant(server, "user-1", **{"$anon_distinct_id": "user-3"}) == "control"


ANONYMOUS = "$anon_distinct_id"
PERSONLESS = {"$process_person_profile": False}


@pytest.mark.parametrize("pageview", [PERSONLESS, {}], ids=["identified_only", "always"])
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_the_wire_order_of_posthog_js_flips_no_variant(server, pageview, is_known):
    # Flags are asked for at the log-in before, between and after the steps of ingestion.
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    seen = set()
    for number in range(100):
        visitor, user = f"visitor-{number}", f"member-{number}"
        if is_known:
            server.event("$set", user)
        before = variant(server, visitor)
        asked_at = number % 4
        if asked_at == 0:
            assert variant(server, user, **{ANONYMOUS: visitor}) == before
        server.event("$pageview", visitor, **pageview)
        if asked_at == 1:
            assert variant(server, user, **{ANONYMOUS: visitor}) == before
        server.event("$identify", user, **{ANONYMOUS: visitor})
        if asked_at == 2:
            assert variant(server, user, **{ANONYMOUS: visitor}) == before
        assert variant(server, user) == before
        assert variant(server, visitor) == before
        seen.add((before, variant(server, user)))
    assert seen == {("control", "control"), ("test", "test")}


def test_events_of_one_batch_flip_no_variant(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    before = {name: variant(server, name) for name in ("user-1", "user-3")}
    server.batch(
        ("$pageview", "user-1", {}),
        ("$identify", "known-a", {ANONYMOUS: "user-1"}),
        ("$identify", "known-b", {ANONYMOUS: "user-3"}),
        ("$merge_dangerously", "known-b", {"alias": "known-a"}),  # what the survivor has counts
        ("$identify", "known-b", {ANONYMOUS: "user-2"}),  # and the first log-in
    )
    assert stored(server) == [(KEY, "user-3")]
    assert variant(server, "known-b") == before["user-3"]


def test_a_log_in_stores_bucketing_ids_of_active_persisting_flags_alone(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.create("plain")
    server.create("off", ensure_experience_continuity=True, active=False)
    gone = server.create("gone", ensure_experience_continuity=True)
    assert server.patch(gone["id"], deleted=True).status_code == 200
    server.event("$create_alias", "user-1", alias="user-4")
    server.event("$identify", "user-2", **{ANONYMOUS: "null"})
    assert stored(server) == []
    server.event("$identify", "user-3", **{ANONYMOUS: "visitor"})
    assert stored(server) == [(KEY, "visitor")]
    # Refused as a merge of two people who are known, but the request for flags counts the log-in, too.
    server.event("$identify", "user-2", **{ANONYMOUS: "user-3"})
    assert stored(server) == [(KEY, "user-3"), (KEY, "visitor")]


@pytest.mark.files  # by a trigger as SQLite says it
def test_a_failure_to_store_fails_continuity_flags_alone(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.create("plain")
    server.event("$set", "user-3")
    with server.database.write() as tx:
        tx.connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE INSERT ON flag_hash_key_override BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    answer = server.flags("user-3", **{"$anon_distinct_id": "user-1"})
    assert answer["errorsWhileComputingFlags"] is True
    assert answer["flags"][KEY]["failed"] is True
    assert answer["flags"][KEY]["reason"]["code"] == "database_error"
    assert answer["flags"]["plain"]["enabled"] is True


def test_concurrent_logins_store_one_bucketing_id(server):
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.event("$set", "user-3")
    started = threading.Barrier(8)

    def login(number: int) -> None:
        started.wait()
        continuity.remember(server.database, 1, ("user-3", f"user-{number}"), [KEY], f"user-{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(login, range(8)))
    assert len(stored(server)) == 1


def test_storage_out_of_reach(server):
    server.create("stored", {"groups": [{"properties": [PRO]}]})
    server.create("plain")
    server.flags()
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE person RENAME TO gone")
    answer = server.flags()
    assert answer["errorsWhileComputingFlags"] is True
    assert answer["flags"]["stored"]["reason"]["code"] == "database_error"
    assert answer["flags"]["plain"]["enabled"] is True
    assert server.flags(person_properties={"plan": "pro"})["flags"]["stored"]["enabled"] is True


@pytest.mark.logs_exceptions
def test_flags_that_cannot_be_read_stay_as_they_were(server):
    server.create("f")
    server.flags()
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE feature_flag RENAME TO gone")
        tx.changed("flags", 1)
    assert server.flags()["flags"]["f"]["enabled"] is True
    assert server.client.get(f"/flags/definitions?token={server.token}").status_code == 200
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE gone RENAME TO feature_flag")
    server.create("g")
    assert set(server.flags()["flags"]) == {"f", "g"}


@pytest.mark.logs_exceptions
def test_flags_that_could_never_be_read_are_unavailable(server):
    with server.database.write() as tx:
        tx.connection.exec_driver_sql("ALTER TABLE feature_flag RENAME TO gone")
    answer = server.sdk.post("/flags/?v=2", json={"token": server.token, "distinct_id": "u"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_busy_database_is_not_waited_for(server, monkeypatch):
    monkeypatch.setattr(evaluation, "WRITE_TIMEOUT_S", 0.05)
    server.create(KEY, {"groups": [{}], "multivariate": HALVES}, ensure_experience_continuity=True)
    server.create("stored", {"groups": [{"properties": [PRO]}]})
    server.event("$set", "user-3", **{"$set": {"plan": "pro"}})
    with server.database.write():
        answer = server.flags("user-3", **{"$anon_distinct_id": "user-1"})
    assert answer["flags"][KEY]["reason"]["code"] == "timeout"
    assert answer["flags"][KEY]["failed"] is True
    assert answer["flags"]["stored"]["enabled"] is True  # readers do not wait for writers
    assert answer["errorsWhileComputingFlags"] is True


def test_zone_of_the_project_counts(server):
    server.create(
        "f",
        {
            "groups": [
                {
                    "properties": [
                        {"key": "at", "type": "person", "value": "2024-07-01", "operator": "is_date_exact"}
                    ]
                }
            ]
        },
    )
    moment = {"person_properties": {"at": "2024-06-30T22:00:00Z"}}
    assert server.flags(**moment)["flags"]["f"]["enabled"] is False
    server.accounts.update_project(1, {"timezone": "Europe/Berlin"})
    assert server.flags(**moment)["flags"]["f"]["enabled"] is True
