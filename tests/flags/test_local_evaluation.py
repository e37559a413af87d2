"""Definitions for SDKs that evaluate on their own (spec: sdk-wire 4)."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from hoglab.flags.evaluation.local_evaluation import etag_matches

PRO = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}
BIG = {"key": "size", "type": "person", "value": "5", "operator": "gt"}
NEW, OLD = "/flags/definitions", "/api/feature_flag/local_evaluation/"


def member_of(cohort_id, operator="in"):
    return {"key": "id", "type": "cohort", "value": cohort_id, "operator": operator}


def get(server, path=NEW, query="&send_cohorts", **headers):
    return server.client.get(f"{path}?token={server.token}{query}", headers=headers)


def by_key(answer):
    return {flag["key"]: flag for flag in answer.json()["flags"]}


def test_shape(server):
    server.event("$groupidentify", "u", **{"$group_type": "company", "$group_key": "acme"})
    flag = server.create(
        "multi",
        {
            "groups": [{"properties": [], "rollout_percentage": 100, "variant": None}],
            "multivariate": {
                "variants": [{"key": "a", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]
            },
            "payloads": {"b": '{"x": 2}'},
        },
        evaluation_contexts=["app"],
    )
    server.link(flag["id"], server.experiment(5))
    answer = get(server)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, must-revalidate"
    assert answer.json() == {
        "flags": [
            {
                "id": flag["id"],
                "team_id": 1,
                "name": "",
                "key": "multi",
                "active": True,
                "deleted": False,
                "version": 1,
                "ensure_experience_continuity": False,
                "has_encrypted_payloads": False,
                "evaluation_runtime": "all",
                "evaluation_contexts": ["app"],
                "evaluation_tags": ["app"],
                "bucketing_identifier": None,
                "has_experiment": True,
                "filters": {
                    "groups": [
                        {
                            "properties": [],
                            "rollout_percentage": 100,
                            "variant": None,
                            "aggregation_group_type_index": None,
                        }
                    ],
                    "multivariate": {
                        "variants": [
                            {"key": "a", "rollout_percentage": 50},
                            {"key": "b", "rollout_percentage": 50},
                        ]
                    },
                    "payloads": {"b": '{"x": 2}'},
                    "aggregation_group_type_index": None,
                    "holdout": None,
                    "early_exit": False,
                },
            }
        ],
        "group_type_mapping": {"0": "company"},
        "cohorts": {},
        "property_matching_version": 1,
        "minimal_flag_called_events": False,
    }


def test_empty_project(server):
    answer = get(server).json()
    assert (answer["flags"], answer["group_type_mapping"], answer["cohorts"]) == ([], {}, {})


def test_which_flags(server):
    server.create("inactive", active=False)
    server.create("client", evaluation_runtime="client")
    server.create("remote", is_remote_configuration=True)
    gone = server.create("deleted")
    server.patch(gone["id"], deleted=True)
    assert set(by_key(get(server))) == {"inactive", "client"}


def test_encrypted_payloads_are_redacted(server):
    server.create("f", {"groups": [{}], "payloads": {"true": '"secret"'}}, has_encrypted_payloads=True)
    assert "secret" not in get(server).text


def test_dependencies_are_by_key_and_in_order(server):
    def on(*ids):
        leaves = [
            {"type": "flag", "key": str(i), "value": True, "operator": "flag_evaluates_to"} for i in ids
        ]
        return {"groups": [{"properties": leaves}]}

    base = server.create("base")
    mid = server.create("mid", on(base["id"]))
    server.create("top", on(mid["id"], base["id"]))
    doomed = server.create("doomed")
    broken = server.create("broken", on(doomed["id"]))
    server.create("above", on(broken["id"]))
    loop = server.create("loop")
    with server.database.write() as tx:  # the API refuses this
        filters = json.dumps(on(loop["id"]))
        change = sa.text("UPDATE feature_flag SET filters = :filters WHERE key = 'loop'")
        tx.connection.execute(change, {"filters": filters})
        tx.connection.execute(sa.text("UPDATE feature_flag SET deleted = TRUE WHERE key = 'doomed'"))
        tx.changed("flags", 1)
    flags = by_key(get(server))
    first, second = flags["top"]["filters"]["groups"][0]["properties"]
    assert (first["key"], first["dependency_chain"]) == ("mid", ["base", "mid"])
    assert (second["key"], second["dependency_chain"]) == ("base", ["base"])
    assert "dependency_chain" not in flags["broken"]["filters"]["groups"][0]["properties"][0]
    assert flags["above"]["filters"]["groups"][0]["properties"][0]["dependency_chain"] == []
    assert flags["loop"]["filters"]["groups"][0]["properties"][0]["dependency_chain"] == []


def test_cohorts(server):
    leaf = server.cohort({"type": "AND", "values": [PRO]})
    static = server.cohort(members=[])
    behavioural = server.cohort(
        {"type": "AND", "values": [{"type": "behavioral", "key": "x", "value": "performed_event"}]}
    )
    outer = server.cohort({"type": "OR", "values": [member_of(leaf), member_of(static)]})
    server.cohort({"type": "AND", "values": [BIG]})
    empty = server.cohort({})
    server.create(
        "f", {"groups": [{"properties": [member_of(outer), member_of(empty), member_of(behavioural)]}]}
    )
    cohorts = get(server).json()["cohorts"]
    assert set(cohorts) == {str(leaf), str(outer), str(empty)}
    assert cohorts[str(leaf)] == {"type": "AND", "values": [PRO]}
    assert cohorts[str(empty)] == {}


def test_old_path_sends_cohorts_on_demand(server):
    simple = server.cohort(
        {"type": "OR", "values": [{"type": "AND", "values": [PRO, BIG]}, {"type": "AND", "values": [BIG]}]}
    )
    nested = server.cohort({"type": "AND", "values": [member_of(simple)]})
    negated = server.cohort({"type": "AND", "values": [{**PRO, "negation": True}]})
    other = {"key": "country", "type": "person", "value": "de", "operator": "exact"}
    server.create(
        "simple", {"groups": [{"properties": [other, member_of(simple)], "rollout_percentage": 50}, {}]}
    )
    server.create("nested", {"groups": [{"properties": [member_of(nested)]}]})
    server.create("negated", {"groups": [{"properties": [member_of(negated)]}]})
    server.create("not-in", {"groups": [{"properties": [member_of(simple, "not_in")]}]})
    server.create(
        "two", {"groups": [{"properties": [member_of(simple)]}, {"properties": [member_of(simple)]}]}
    )

    answer = get(server, OLD, "")
    assert answer.json()["cohorts"] == {}
    flags = by_key(answer)
    groups = flags["simple"]["filters"]["groups"]
    assert [group["properties"] for group in groups] == [[other, PRO, BIG], [other, BIG], []]
    assert [group.get("rollout_percentage") for group in groups] == [50, 50, None]
    for key in ("nested", "negated", "not-in", "two"):
        assert flags[key]["filters"]["groups"][0]["properties"][0]["type"] == "cohort"

    for query in ("&send_cohorts", "&send_cohorts=true", "&send_cohorts=1"):
        with_cohorts = get(server, OLD, query)
        assert with_cohorts.json() == get(server).json()
    assert get(server, NEW, "").json() == get(server).json()


def test_entity_tag(server):
    flag = server.create("f")
    first = get(server)
    etag = first.headers["etag"]
    assert etag.startswith('W/"')
    for tag in (etag, etag.removeprefix("W/"), etag.removeprefix("W/").strip('"'), f'"x", {etag}', "*"):
        same = get(server, **{"If-None-Match": tag})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == etag
    assert get(server, **{"If-None-Match": 'W/"other"'}).status_code == 200
    server.patch(flag["id"], name="renamed")
    changed = get(server, **{"If-None-Match": etag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag
    server.event("$groupidentify", "u", **{"$group_type": "company", "$group_key": "acme"})
    assert get(server).headers["etag"] != changed.headers["etag"]


@pytest.mark.parametrize(
    ("header", "matches"),
    [('W/"a"', True), ('"a"', True), ("a", True), ('W/"b", W/"a"', True), ("", False), ('W/"ab"', False)],
)
def test_entity_tag_forms(header, matches):
    assert etag_matches(header, b'W/"a"') is matches


def key_with(server, scopes, **limits):
    return server.accounts.create_key(server.accounts.owner_id(), "k", scopes, **limits).value


def test_keys(server):
    server.create("f")

    def status(authorization, token=server.token, path=NEW):
        headers = {} if authorization is None else {"Authorization": f"Bearer {authorization}"}
        answer = server.sdk.get(f"{path}?token={token}" if token else path, headers=headers)
        return answer.status_code, answer.json().get("code")

    for path in (NEW, OLD):
        assert status(server.key, path=path) == (200, None)
        for scopes in (["feature_flag:read"], ["feature_flag:write"], ["*"]):
            assert status(key_with(server, scopes), path=path) == (200, None)
        assert status(None, path=path) == (401, "authentication_failed")
        assert status("phx_" + "x" * 43, path=path) == (401, "authentication_failed")
        assert status(server.token, path=path) == (401, "authentication_failed")
        assert status(key_with(server, ["experiment:read"]), path=path) == (403, "permission_denied")
        assert status(server.key, token="phc_unknown", path=path) == (401, "invalid_api_key")
        assert status(server.key, token=None, path=path) == (200, None)


def test_key_of_another_project(server):
    organization = server.project.organization_id
    other = server.accounts.create_project(organization, "Other")
    limited = key_with(server, ["*"], scoped_projects=[other.id])
    headers = {"Authorization": f"Bearer {limited}"}
    assert server.sdk.get(f"{NEW}?token={server.token}", headers=headers).status_code == 403
    assert server.sdk.get(f"{NEW}?token={other.api_token}", headers=headers).status_code == 200
    assert server.sdk.get(NEW, headers=headers).json()["flags"] == []


def test_methods(server):
    for path in (NEW, OLD):
        assert server.sdk.request("HEAD", path).status_code == 200
        assert server.sdk.request("OPTIONS", path).status_code == 204
        refused = server.sdk.post(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, OPTIONS, HEAD")


def test_project_secret_keys(server):
    """Spec: sdk-wire 4.1. The current key and the one before it open the definitions of their project alone."""
    server.create("f")
    keys = [server.accounts.rotate_secret_key(1, server.accounts.owner_id()).value for _ in range(3)]
    other = server.accounts.create_project(server.project.organization_id, "Other")
    assert all(key.startswith("phs_") for key in keys)

    def status(path, key):
        return server.sdk.get(path, headers={"Authorization": f"Bearer {key}"}).status_code

    for path in ("/flags/definitions", "/api/feature_flag/local_evaluation/"):
        assert [status(f"{path}?token={server.token}", key) for key in keys] == [401, 200, 200]
        assert status(path, keys[-1]) == 200
        assert status(f"{path}?token={other.api_token}", keys[-1]) == 403


def test_a_project_secret_key_reads_remote_configuration(server):
    server.create("conf", {"groups": [{}], "payloads": {"true": '{"a": 1}'}}, is_remote_configuration=True)
    other = server.accounts.create_project(server.project.organization_id, "Other")
    expected = {1: (200, '{"a": 1}'), other.id: (404, None)}  # @current is the project of the key
    for project_id, (status, payload) in expected.items():
        key = server.accounts.rotate_secret_key(project_id, server.accounts.owner_id()).value
        path = "/api/projects/@current/feature_flags/conf/remote_config"
        answer = server.sdk.get(path, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status
        assert payload is None or answer.json() == payload
