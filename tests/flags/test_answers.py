"""Evaluation answers by endpoint and version (spec: sdk-wire 2.1 to 2.4)."""

from __future__ import annotations

from uuid import UUID

import pytest

MULTI = {
    "groups": [{"properties": [], "rollout_percentage": 100}],
    "multivariate": {
        "variants": [{"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50}]
    },
    "payloads": {"test": '{"x": 2}', "control": "1"},
}
CONFIG_KEYS = {
    "supportedCompression",
    "hasFeatureFlags",
    "analytics",
    "autocapture_opt_out",
    "sessionRecording",
    "siteApps",
}


@pytest.fixture
def three(server):
    """The flags of the examples: on with a payload, two variants (user-3 is in test), off, and one switched off."""
    server.create("simple", {"groups": [{}], "payloads": {"true": '{"a": 1}'}})
    server.create("checkout-experiment", MULTI)
    server.create("off", {"groups": [{"properties": [{"key": "x", "type": "person", "value": "y"}]}]})
    server.create("inactive", active=False)
    return server


def test_legacy(three):
    for path in ("/flags/?v=1", "/flags?version=1", "/flags/?v=banana", "/flags/?config=false"):
        answer = three.flags("user-3", path=path)
        assert set(answer) == {
            "featureFlags",
            "featureFlagPayloads",
            "errorsWhileComputingFlags",
            "requestId",
            "evaluatedAt",
        }
        assert answer["featureFlags"] == {"simple": True, "checkout-experiment": "test", "off": False}
        assert answer["featureFlagPayloads"] == {"simple": '{"a": 1}', "checkout-experiment": '{"x": 2}'}
        assert answer["errorsWhileComputingFlags"] is False


def test_version_2(three):
    answer = three.flags("user-3")
    assert set(answer) == {"flags", "errorsWhileComputingFlags", "requestId", "evaluatedAt"}
    assert answer["flags"] == {
        "simple": {
            "key": "simple",
            "enabled": True,
            "variant": None,
            "reason": {
                "code": "condition_match",
                "condition_index": 0,
                "description": "Matched condition set 1",
            },
            "metadata": {
                "id": 1,
                "version": 1,
                "description": None,
                "payload": '{"a": 1}',
                "has_experiment": False,
            },
        },
        "checkout-experiment": {
            "key": "checkout-experiment",
            "enabled": True,
            "variant": "test",
            "reason": {
                "code": "condition_match",
                "condition_index": 0,
                "description": "Matched condition set 1",
            },
            "metadata": {
                "id": 2,
                "version": 1,
                "description": None,
                "payload": '{"x": 2}',
                "has_experiment": False,
            },
        },
        "off": {
            "key": "off",
            "enabled": False,
            "variant": None,
            "reason": {
                "code": "no_condition_match",
                "condition_index": 0,
                "description": "No matching condition set",
            },
            "metadata": {
                "id": 3,
                "version": 1,
                "description": None,
                "payload": None,
                "has_experiment": False,
            },
        },
    }
    assert UUID(answer["requestId"]).version == 7
    assert isinstance(answer["evaluatedAt"], int)


def test_typed(three):
    three.link(2, three.experiment(55, name="Checkout"))
    record = three.flags("user-3", path="/flags/?v=4")["flags"]["checkout-experiment"]
    assert record == {
        "key": "checkout-experiment",
        "value": "test",
        "enabled": True,
        "variant": "test",
        "reason": {"code": "condition_match", "condition_index": 0, "description": "Matched condition set 1"},
        "metadata": {
            "id": 2,
            "version": 1,
            "config_version": 1,
            "description": None,
            "payload": '{"x": 2}',
            "has_experiment": True,
            "variant_key": "test",
            "experiment_id": 55,
        },
    }
    assert three.flags("user-3", path="/flags/?v=99")["flags"]["off"]["value"] is False


def test_neither_version_nor_config_is_version_2_with_config(three):
    answer = three.flags("user-3", path="/flags/")
    assert answer["flags"]["simple"]["enabled"] is True
    assert set(answer) >= CONFIG_KEYS


@pytest.mark.parametrize("path", ["/flags/?v=2&config=true", "/flags/?v=2&config=1", "/flags/?config&v=2"])
def test_config_on_demand(three, path):
    answer = three.flags(path=path)
    assert set(answer) >= CONFIG_KEYS
    assert answer["hasFeatureFlags"] is True
    assert answer["supportedCompression"] == ["gzip", "gzip-js"]


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("", ["simple", "checkout-experiment"]),
        ("?v=1", ["simple", "checkout-experiment"]),
        ("?v=2", {"simple": True, "checkout-experiment": "test"}),
        ("?v=3", {"simple": True, "checkout-experiment": "test", "off": False}),
    ],
)
def test_decide(three, version, flags):
    answer = three.flags("user-3", path=f"/decide/{version}")
    assert answer["featureFlags"] == flags
    assert set(answer) >= CONFIG_KEYS | {"requestId", "evaluatedAt"}


def test_decide_4_has_records(three):
    answer = three.flags("user-3", path="/decide?v=4")
    assert answer["flags"]["checkout-experiment"]["variant"] == "test"
    assert set(answer) >= CONFIG_KEYS


def test_failed_flags(three):
    cohort = {
        "key": "id",
        "type": "cohort",
        "value": three.cohort({"type": "XOR", "values": []}),
        "operator": "in",
    }
    three.create("broken", {"groups": [{"properties": [cohort]}]})
    two = three.flags(path="/flags/?v=2")
    assert two["errorsWhileComputingFlags"] is True
    record = two["flags"]["broken"]
    assert (record["failed"], record["enabled"], record["variant"]) == (True, False, None)
    assert record["reason"]["code"] == "evaluation_error"
    assert record["reason"]["condition_index"] is None
    assert "failed" not in two["flags"]["simple"]
    typed = three.flags(path="/flags/?v=3")["flags"]["broken"]
    assert (typed["value"], typed["failed"]) == (None, True)
    assert "broken" not in three.flags(path="/flags/?v=1")["featureFlags"]


def test_request_id_is_taken_over_when_it_is_a_uuid(three):
    request_id = "0197a1c6-0000-7000-8000-000000000001"
    body = {"token": three.token, "distinct_id": "u"}
    answer = three.sdk.post("/flags/?v=2", json=body, headers={"X-Request-Id": request_id})
    assert answer.json()["requestId"] == request_id
    answer = three.sdk.post("/flags/?v=2", json=body, headers={"X-Request-Id": "mine"})
    assert answer.json()["requestId"] != "mine"


def test_disabled_flags_need_no_distinct_id(three):
    answer = three.sdk.post("/flags/?v=2&config=true", json={"token": three.token, "disable_flags": True})
    assert answer.status_code == 200
    assert answer.json()["flags"] == {}
    assert answer.json()["hasFeatureFlags"] is True


def test_only_requested_flags(three):
    for field in ("flag_keys_to_evaluate", "flag_keys"):
        assert set(three.flags(**{field: ["simple", "unknown"]})["flags"]) == {"simple"}
    assert three.flags(flag_keys_to_evaluate=[])["flags"] == {}


def test_unknown_flags_are_absent_and_empty_projects_answer(server):
    answer = server.flags()
    assert answer["flags"] == {}
    assert answer["errorsWhileComputingFlags"] is False


@pytest.mark.parametrize(
    ("body", "status", "code", "detail"),
    [
        ({"distinct_id": "u"}, 401, "invalid_api_key", "Project API key invalid."),
        ({"distinct_id": "u", "token": "phc_unknown"}, 401, "invalid_api_key", "Project API key invalid."),
        ({"distinct_id": "u", "token": 5}, 401, "invalid_api_key", "Project API key invalid."),
        ({"token": "T"}, 400, "malformed_data", "distinct_id"),
        ({"token": "T", "distinct_id": None}, 400, "malformed_data", "distinct_id"),
        ({"token": "T", "distinct_id": True}, 400, "malformed_data", "distinct_id"),
        ({"token": "T", "distinct_id": {}}, 400, "malformed_data", "distinct_id"),
        (
            {"token": "T", "distinct_id": "u", "person_properties": [1]},
            400,
            "malformed_data",
            "person_properties",
        ),
        ({"token": "T", "distinct_id": "u", "groups": "acme"}, 400, "malformed_data", "groups"),
        (
            {"token": "T", "distinct_id": "u", "flag_keys": ["a", 5]},
            400,
            "malformed_data",
            "flag_keys_to_evaluate",
        ),
        ([], 400, "malformed_data", "object"),
        ("text", 400, "malformed_data", "object"),
    ],
)
def test_errors(server, body, status, code, detail):
    if isinstance(body, dict) and body.get("token") == "T":
        body = {**body, "token": server.token}
    answer = server.sdk.post("/flags/?v=2", json=body)
    assert answer.status_code == status
    assert set(answer.json()) == {"type", "code", "detail", "attr"}
    assert answer.json()["type"] == ("authentication_error" if status == 401 else "validation_error")
    assert answer.json()["code"] == code
    assert detail in answer.json()["detail"]
    assert answer.json()["attr"] is None


@pytest.mark.parametrize("alias", ["token", "api_key", "$token"])
def test_token_aliases(server, alias):
    server.create("f")
    answer = server.sdk.post("/flags/?v=2", json={alias: f" {server.token} ", "$distinct_id": 5})
    assert answer.json()["flags"]["f"]["enabled"] is True


def test_methods_and_cors(server):
    origin = {"Origin": "https://shop.example"}
    for path in ("/flags/", "/flags", "/decide/", "/decide"):
        get = server.sdk.get(path, headers=origin)
        assert get.status_code == 200
        assert set(get.json()) == {
            "supportedCompression",
            "config",
            "toolbarParams",
            "isAuthenticated",
            "sessionRecording",
        }
        head = server.sdk.request("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
        options = server.sdk.request(
            "OPTIONS",
            path,
            headers={
                **origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "x-a",
            },
        )
        assert (options.status_code, options.content) == (204, b"")
        assert options.headers["access-control-allow-headers"] == "x-a"
        put = server.sdk.request("PUT", path, headers=origin)
        assert (put.status_code, put.headers["allow"]) == (405, "GET, POST, OPTIONS, HEAD")
        bad = server.sdk.post(path, json={}, headers=origin)
        for answer in (get, options, put, bad):
            assert answer.headers["access-control-allow-origin"] == "https://shop.example"
            assert answer.headers["access-control-allow-credentials"] == "true"
            assert answer.headers["vary"] == "Origin"


def test_a_change_is_seen_by_the_next_request(server):
    flag = server.create("f", {"groups": [{"rollout_percentage": 0}]})
    for share in (100, 0, 100):
        server.patch(flag["id"], filters={"groups": [{"rollout_percentage": share}]})
        assert server.flags()["flags"]["f"]["enabled"] is (share == 100)
    assert server.flags()["flags"]["f"]["metadata"]["version"] == 4
    server.patch(flag["id"], active=False)
    assert server.flags()["flags"] == {}


def test_experiment_links_are_seen_by_the_next_request(server):
    flag = server.create("f")
    assert server.flags()["flags"]["f"]["metadata"]["has_experiment"] is False
    server.link(flag["id"], server.experiment(7, deleted=True), server.experiment(9))
    metadata = server.flags(path="/flags/?v=3")["flags"]["f"]["metadata"]
    assert (metadata["has_experiment"], metadata["experiment_id"]) == (True, 9)


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"User-Agent": "posthog-python/7.91.1"}, {}, {"any", "server"}),
        ({"User-Agent": "posthog-node/5.70.0"}, {"evaluation_runtime": "server"}, {"any", "server"}),
        ({"User-Agent": "curl/8.0"}, {}, {"any", "server"}),
        ({"User-Agent": "Mozilla/5.0 (X11) Chrome/156"}, {}, {"any", "client"}),
        ({"User-Agent": "posthog-ios/3.0"}, {}, {"any", "client"}),
        ({"User-Agent": "posthog-server/2.3.1"}, {}, {"any", "server"}),
        ({"User-Agent": "posthog-rs/0.3.5"}, {}, {"any", "server"}),
        ({"User-Agent": "posthog-server/2.3.1", "Sec-Fetch-Mode": "cors"}, {}, {"any", "server"}),
        ({"User-Agent": "thing", "Sec-Fetch-Mode": "cors"}, {}, {"any"}),
        ({"User-Agent": "node", "Sec-Fetch-Mode": "cors"}, {}, {"any"}),
        ({"User-Agent": "thing", "Sec-Fetch-Site": "same-origin"}, {}, {"any", "client"}),
        ({"User-Agent": "thing"}, {}, {"any"}),
        ({"User-Agent": "Mozilla/5.0"}, {"evaluation_runtime": "server"}, {"any", "server"}),
        ({"User-Agent": "Mozilla/5.0"}, {"evaluation_runtime": "all"}, {"any"}),
    ],
)
def test_runtime(server, headers, body, expected):
    server.create("any")
    server.create("client", evaluation_runtime="client")
    server.create("server", evaluation_runtime="server")
    answer = server.sdk.post(
        "/flags/?v=2", json={"token": server.token, "distinct_id": "u", **body}, headers=headers
    )
    assert set(answer.json()["flags"]) == expected


def test_contexts(server):
    server.create("everywhere")
    server.create("docs", evaluation_contexts=["docs"])
    assert set(server.flags()["flags"]) == {"everywhere", "docs"}
    for field in ("evaluation_contexts", "evaluation_environments"):
        assert set(server.flags(**{field: ["app"]})["flags"]) == {"everywhere"}
        assert set(server.flags(**{field: ["app", "docs"]})["flags"]) == {"everywhere", "docs"}
        assert set(server.flags(**{field: []})["flags"]) == {"everywhere", "docs"}


def test_survey_flags_only(server):
    server.create("survey-targeting-abc")
    server.create("other")
    answer = server.flags(path="/flags/?v=2&only_evaluate_survey_feature_flags=true")
    assert set(answer["flags"]) == {"survey-targeting-abc"}
