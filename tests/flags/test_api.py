"""The management API of feature flags (spec: experiments-api 4.6, 7.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from tests.flags.requests import URL, error, group, post

from hoglab.storage.database.tables import activity_log, feature_flag

AB = {
    "variants": [{"key": "a", "name": "A", "rollout_percentage": 50}, {"key": "b", "rollout_percentage": 50}]
}
KEYS = [
    "id",
    "name",
    "key",
    "filters",
    "deleted",
    "active",
    "archived",
    "created_by",
    "created_at",
    "updated_at",
    "version",
    "last_modified_by",
    "ensure_experience_continuity",
    "experiment_set",
    "experiment_set_metadata",
    "surveys",
    "features",
    "can_edit",
    "tags",
    "evaluation_contexts",
    "usage_dashboard",
    "analytics_dashboards",
    "has_enriched_analytics",
    "user_access_level",
    "is_remote_configuration",
    "has_encrypted_payloads",
    "status",
    "evaluation_runtime",
    "bucketing_identifier",
    "last_called_at",
    "is_used_in_replay_settings",
    "is_eligible_for_experiment",
    "is_simple_flag",
    "rollout_percentage",
    "evaluation_tags",
]


def log(server, flag_id):
    with server.database.read() as connection:
        rows = connection.execute(
            sa.select(activity_log.c.activity, activity_log.c.detail)
            .where(activity_log.c.scope == "FeatureFlag", activity_log.c.item_id == str(flag_id))
            .order_by(activity_log.c.created_at, activity_log.c.id)
        )
        return [(name, [change["field"] for change in detail.get("changes", ())]) for name, detail in rows]


# --- create and read ------------------------------------------------------------------------------


def test_create(server):
    answer = post(
        server,
        key="a-flag",
        name="  About it ",
        filters={"groups": [{"rollout_percentage": 30}]},
        tags=["x", "x"],
    )
    assert answer.status_code == 201
    flag = answer.json()
    assert sorted(flag) == sorted(KEYS)
    expected = {
        "key": "a-flag",
        "name": "About it",
        "filters": {
            "groups": [{"rollout_percentage": 30, "properties": [], "aggregation_group_type_index": None}],
            "aggregation_group_type_index": None,
        },
        "active": True,
        "archived": False,
        "deleted": False,
        "version": 1,
        "ensure_experience_continuity": False,
        "experiment_set": [],
        "experiment_set_metadata": [],
        "tags": ["x"],
        "evaluation_contexts": [],
        "evaluation_tags": [],
        "evaluation_runtime": "all",
        "bucketing_identifier": None,
        "has_encrypted_payloads": False,
        "is_remote_configuration": False,
        "status": "ACTIVE",
        "user_access_level": "manager",
        "is_simple_flag": True,
        "rollout_percentage": 30,
        "is_eligible_for_experiment": False,
        "usage_dashboard": None,
        "surveys": [],
        "features": [],
    }
    assert {key: flag[key] for key in expected} == expected
    assert flag["created_by"]["email"] == "owner@localhost"
    assert flag["last_modified_by"] == flag["created_by"]
    assert server.client.get(f"{URL}{flag['id']}/").json() == flag
    assert server.client.get(f"/api/environments/@current/feature_flags/{flag['id']}").json() == flag


def test_multivariate_flag(server):
    flag = server.create(
        "ab", {"groups": [{}], "multivariate": AB, "payloads": {"a": {"x": [1]}, "b": '"text"'}}
    )
    assert flag["filters"]["payloads"] == {"a": '{"x":[1]}', "b": '"text"'}
    assert (flag["is_eligible_for_experiment"], flag["is_simple_flag"], flag["rollout_percentage"]) == (
        True,
        False,
        None,
    )


def test_linked_experiments(server):
    flag = server.create("f")
    server.link(
        flag["id"],
        server.experiment(3, "Old", deleted=True),
        server.experiment(4, "New", is_running=True),
    )
    shown = server.client.get(f"{URL}{flag['id']}").json()
    assert shown["experiment_set"] == [4]
    assert shown["experiment_set_metadata"] == [{"id": 4, "name": "New", "is_running": True}]


def test_missing_flags(server):
    for flag_id in ("99", "abc", "-1", "9" * 40):
        assert server.client.get(f"{URL}{flag_id}/").status_code == 404
        assert server.client.patch(f"{URL}{flag_id}/", json={}).status_code == 404


def test_flags_of_other_projects_are_missing(server):
    other = server.accounts.create_project(server.project.organization_id, "Other")
    flag = server.create("f")
    assert server.client.get(f"/api/projects/{other.id}/feature_flags/{flag['id']}").status_code == 404
    answer = server.client.post(
        f"/api/projects/{other.id}/feature_flags", json={"key": "f", "filters": group()}
    )
    assert answer.status_code == 201


def test_delete_is_refused_without_a_body(server):
    for flag_id in (server.create("f")["id"], 999):
        answer = server.client.request("DELETE", f"{URL}{flag_id}/")
        assert (answer.status_code, answer.content) == (405, b"")


def test_scopes(server):
    key = server.accounts.create_key(server.accounts.owner_id(), "k", ["feature_flag:read"]).value
    headers = {"Authorization": f"Bearer {key}"}
    assert server.sdk.get(URL, headers=headers).status_code == 200
    refused = server.sdk.post(URL, json={}, headers=headers)
    assert refused.json()["detail"] == "API key missing required scope 'feature_flag:write'"


# --- update ---------------------------------------------------------------------------------------


def test_patch_merges_filters_by_key(server):
    flag = server.create(
        "f", {"groups": [{"rollout_percentage": 10}], "multivariate": AB, "payloads": {"a": "1"}}
    )
    unchanged = server.patch(flag["id"], filters={}).json()
    assert unchanged["filters"] == flag["filters"]
    changed = server.patch(flag["id"], filters={"payloads": {"b": "2"}}).json()
    assert changed["filters"] == {**flag["filters"], "payloads": {"b": "2"}}
    assert server.patch(flag["id"], filters={"groups": []}).json()["filters"]["groups"] == []
    assert (
        error(server.patch(flag["id"], filters={"multivariate": None}))[0]
        == "cross_field.payload_key_not_true"
    )


def test_patch_of_the_aggregation_alone_reaches_the_conditions(server):
    flag = server.create("f", {"groups": [{}, {"aggregation_group_type_index": 1}]})
    assert flag["filters"]["aggregation_group_type_index"] is None
    kept = server.patch(flag["id"], filters={"aggregation_group_type_index": 1}).json()["filters"]
    assert kept["aggregation_group_type_index"] == 1
    assert [each["aggregation_group_type_index"] for each in kept["groups"]] == [1, 1]


def test_versions_count_updates(server):
    flag = server.create("f")
    for version in (2, 3):
        changed = server.patch(flag["id"], name=f"n{version}", version=1).json()
        assert changed["version"] == version
    assert changed["updated_at"] > flag["updated_at"]
    assert changed["created_at"] == flag["created_at"]


def test_echo_of_a_whole_flag_changes_nothing(server):
    flag = server.create(
        "f", {"groups": [{"rollout_percentage": 10}], "multivariate": AB, "payloads": {"a": "1"}}
    )
    for method in ("PATCH", "PUT"):
        echoed = server.client.request(method, f"{URL}{flag['id']}/", json=flag)
        assert echoed.status_code == 200
        ignored = {"version", "updated_at"}
        assert {k: v for k, v in echoed.json().items() if k not in ignored} == {
            k: v for k, v in flag.items() if k not in ignored
        }
    assert log(server, flag["id"]) == [("created", [])]


def test_put_needs_a_key(server):
    flag = server.create("f", {"groups": [{"rollout_percentage": 10}]}, name="keep")
    answer = server.client.request("PUT", f"{URL}{flag['id']}/", json={"name": "n"})
    assert error(answer) == ("required", "key", "This field is required.")


def kept_payload(server, flag_id) -> str:
    with server.database.read() as connection:
        return server.service.get(connection, 1, flag_id).filters["payloads"]["true"]


def test_encrypted_payloads_are_write_only(server):
    remote = {"is_remote_configuration": True, "has_encrypted_payloads": True}
    flag = server.create("f", {"groups": [{}], "payloads": {"true": '"secret"'}}, **remote)
    config = f"{URL}f/remote_config"
    assert flag["filters"]["payloads"] == {"true": '"********* (encrypted)"'}
    sealed = kept_payload(server, flag["id"])
    assert "secret" not in sealed
    assert server.client.get(config).json() == '"secret"'
    # What was shown may be sent back without harm.
    server.patch(flag["id"], filters=flag["filters"], name="n")
    assert kept_payload(server, flag["id"]) == sealed
    server.patch(flag["id"], filters={"payloads": {"true": '"new"'}})
    assert "new" not in kept_payload(server, flag["id"])
    assert server.client.get(config).json() == '"new"'
    # Encryption may be given up and taken up again.
    server.patch(flag["id"], has_encrypted_payloads=False)
    assert kept_payload(server, flag["id"]) == '"new"'
    server.patch(flag["id"], has_encrypted_payloads=True)
    assert "new" not in kept_payload(server, flag["id"])
    assert server.client.get(config).json() == '"new"'
    assert "new" not in server.client.get(URL).text
    server.cipher.change_key()
    assert server.client.get(config).status_code == 409


def test_what_looks_like_an_encrypted_payload_is_encrypted_too(server):
    remote = {"is_remote_configuration": True, "has_encrypted_payloads": True}
    server.create("f", {"groups": [{}], "payloads": {"true": '{"$sealed": "x"}'}}, **remote)
    assert server.client.get(f"{URL}f/remote_config").json() == '{"$sealed": "x"}'


def test_history(server):
    flag = server.create("f")
    server.patch(flag["id"], name="n", active=False)
    server.patch(flag["id"], deleted=True)
    server.patch(flag["id"], deleted=False)
    assert log(server, flag["id"]) == [
        ("created", []),
        ("updated", ["name", "active"]),
        ("deleted", ["deleted"]),
        ("restored", ["deleted"]),
    ]


# --- experiments protect their flags --------------------------------------------------------------


def test_running_experiments_protect_the_flag(server):
    flag = server.create("f", {"groups": [{}], "multivariate": AB})
    server.link(flag["id"], server.experiment(12, "Name", is_running=True))
    assert error(server.patch(flag["id"], deleted=True)) == (
        "invalid_input",
        None,
        (
            'Cannot delete a feature flag that is linked to running experiment(s): "Name" (ID: 12). '
            "Please stop the experiment(s) before deleting the flag."
        ),
    )
    only_a = {"multivariate": {"variants": [{"key": "a", "rollout_percentage": 100}]}}
    assert error(server.patch(flag["id"], filters=only_a)) == (
        "invalid_input",
        "filters",
        (
            "Cannot remove variant(s) 'b' from a feature flag that is linked to running experiment(s): "
            '"Name" (ID: 12). Please stop the experiment(s) before removing variants.'
        ),
    )
    refusal = (
        "invalid_input",
        "key",
        (
            'Cannot change the key of a feature flag that is linked to running experiment(s): "Name" (ID: 12). '
            "Please stop the experiment(s) before changing the key."
        ),
    )
    assert error(server.patch(flag["id"], key="g")) == refusal
    assert error(server.client.request("PUT", f"{URL}{flag['id']}/", json={"key": "g"})) == refusal
    assert server.client.get(f"{URL}{flag['id']}/").json()["key"] == "f"
    assert server.patch(flag["id"], key="f", name="The same key").status_code == 200
    third = {"multivariate": {"variants": [*AB["variants"], {"key": "c", "rollout_percentage": 0}]}}
    assert server.patch(flag["id"], filters=third).status_code == 200
    server.link(flag["id"], server.experiment(12, is_running=True, deleted=True), server.experiment(13))
    assert server.patch(flag["id"], filters=only_a).status_code == 200
    assert server.patch(flag["id"], key="g").status_code == 200
    assert server.patch(flag["id"], deleted=True).status_code == 200


# --- deletion, restoring, reuse of keys -----------------------------------------------------------


def test_soft_deletion_and_restoring(server):
    flag = server.create("f")
    deleted = server.patch(flag["id"], deleted=True).json()
    assert (deleted["deleted"], deleted["key"], deleted["status"]) == (True, "f", "DELETED")
    assert server.client.get(f"{URL}{flag['id']}").status_code == 404
    assert server.client.get(URL).json()["count"] == 0
    for body in ({}, {"name": "n"}, {"deleted": True}, {"deleted": "yes"}):
        assert server.patch(flag["id"], **body).status_code == 404
    restored = server.patch(flag["id"], deleted="false", name="back").json()
    assert (restored["deleted"], restored["key"], restored["name"]) == (False, "f", "back")


def test_flags_with_experiments_are_renamed_on_deletion(server):
    flag = server.create("f")
    server.link(flag["id"], server.experiment(5, deleted=True))
    assert server.patch(flag["id"], deleted=True).json()["key"] == f"f:deleted:{flag['id']}"
    assert server.patch(flag["id"], deleted=False).json()["key"] == "f"
    server.patch(flag["id"], deleted=True)
    server.create("f")
    server.create("f-2")
    assert server.patch(flag["id"], deleted=False).json()["key"] == "f-3"


def test_the_key_of_a_deleted_flag_is_free(server):
    first = server.create("f")
    server.patch(first["id"], deleted=True)
    second = server.create("f")
    assert second["id"] != first["id"]
    assert server.patch(first["id"], deleted=False).status_code == 404


def test_a_key_that_an_experiment_still_needs(server):
    first = server.create("f")
    server.patch(first["id"], deleted=True)
    server.link(first["id"], server.experiment(3))
    assert error(post(server, key="f", filters=group())) == (
        "invalid_input",
        None,
        (
            "Cannot reuse key 'f': a soft-deleted flag with this key is still referenced by active experiment(s) "
            "with ID(s): 3. Please contact support."
        ),
    )
    server.link(first["id"], server.experiment(3, deleted=True))
    server.create("f")
    assert server.patch(first["id"], deleted=False).json()["key"] == "f-2"


# --- list -----------------------------------------------------------------------------------------


@pytest.fixture
def many(server):
    server.create("alpha", name="first thing", tags=["red"])
    server.create("beta", {"groups": [{}], "multivariate": AB}, name="Second", evaluation_contexts=["docs"])
    server.create("gamma", active=False, evaluation_runtime="server", tags=["red", "blue"])
    server.create("delta", is_remote_configuration=True)
    archived = server.create("old", active=False)
    server.patch(archived["id"], archived=True)
    gone = server.create("gone")
    server.patch(gone["id"], deleted=True)
    server.link(2, server.experiment(9))
    return server


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", "delta gamma beta alpha"),
        ("archived=true", "old"),
        ("archived=false", "delta gamma beta alpha"),
        ("search=ETA", "beta"),
        ("search=thing", "alpha"),
        ("active=true", "delta beta alpha"),
        ("active=false", "gamma"),
        ("active=STALE", ""),
        ("type=boolean", "gamma alpha"),
        ("type=multivariant", "beta"),
        ("type=experiment", "beta"),
        ("type=remote_config", "delta"),
        ("type=other", "delta gamma beta alpha"),
        ("created_by_id=1", "delta gamma beta alpha"),
        ("created_by_id=77", ""),
        ("evaluation_runtime=server", "gamma"),
        ('tags=["blue"]', "gamma"),
        ('tags=["blue","red"]', "gamma alpha"),
        ("tags=rubbish", "delta gamma beta alpha"),
        ('excluded_properties=["beta","alpha"]', "delta gamma"),
        ("eligible_for_experiment=true", "beta"),
        ("has_evaluation_contexts=true", "beta"),
        ("has_evaluation_contexts=false", "delta gamma alpha"),
        ("order=key", "alpha beta delta gamma"),
        ("order=-key", "gamma delta beta alpha"),
        ("order=created_at", "alpha beta gamma delta"),
        ("order=name", "gamma delta alpha beta"),
        ("order=banana", "delta gamma beta alpha"),
        ("limit=2", "delta gamma"),
        ("limit=2&offset=2", "beta alpha"),
        ("limit=x&offset=-5", "delta gamma beta alpha"),
    ],
)
def test_list(many, query, keys):
    answer = many.client.get(f"{URL}?{query}")
    assert answer.status_code == 200
    assert [flag["key"] for flag in answer.json()["results"]] == keys.split()
    for flag in answer.json()["results"]:
        assert flag == many.client.get(f"{URL}{flag['id']}/").json()


def test_list_envelope(many):
    page = many.client.get(f"{URL}?limit=2").json()
    assert (page["count"], page["previous"]) == (4, None)
    assert page["next"] == "http://test/api/projects/1/feature_flags/?limit=2&offset=2"


def test_stale_flags(server):
    for key, filters in (
        ("everybody", {"groups": [{"rollout_percentage": 100}]}),
        ("some", {"groups": [{"rollout_percentage": 99}]}),
        ("split", {"groups": [{}], "multivariate": AB}),
        (
            "shipped",
            {"groups": [{}], "multivariate": {"variants": [{"key": "a", "rollout_percentage": 100}]}},
        ),
        ("called", {"groups": [{}]}),
        ("forgotten", {"groups": [{"rollout_percentage": 5}]}),
    ):
        server.create(key, filters)
    server.create("off", active=False)
    now = datetime.now(UTC)
    with server.database.write() as tx:
        column = feature_flag.c
        tx.execute(sa.update(feature_flag).values(created_at=now - timedelta(days=31)))
        tx.execute(sa.update(feature_flag).where(column.key == "called").values(last_called_at=now))
        long_ago = now - timedelta(days=40)
        tx.execute(sa.update(feature_flag).where(column.key == "forgotten").values(last_called_at=long_ago))
        tx.changed("flags", 1)
    found = server.client.get(f"{URL}?active=STALE&order=key").json()["results"]
    assert [flag["key"] for flag in found] == ["everybody", "forgotten", "shipped"]
    assert {flag["status"] for flag in found} == {"STALE"}
