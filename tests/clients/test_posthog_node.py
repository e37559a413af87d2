"""The unmodified posthog-node against a running server (spec sdk-wire 6)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.clients.node_client import NodeClient
from tests.clients.node_process import NodeProcess
from tests.clients.project import VARIANTS, Project, everyone, person
from tests.clients.tap import Fault, Tap, asks_again_for_one
from tests.conftest import StartServer

from hoglab.demo.server import ChildServer

pytestmark = pytest.mark.clients

USERS = 40
CLOCK_SKEW = timedelta(seconds=60)
"""By how much the server may correct moments here, where all use one clock: a body that is sent again keeps
its `sent_at`, so the time that it waited counts as skew."""


def captures(count: int, **message: Any) -> list[list[Any]]:
    return [
        [{"distinctId": f"user-{n}", "event": "viewed", "properties": {"n": n}, **message}]
        for n in range(count)
    ]


def assert_stored(project: Project, sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the SDK believes to have sent is what the store holds, all of it; returns the latter."""
    stored = project.events(len(sent))
    by_id = {event["id"]: event for event in stored}
    for event in sent:
        found = by_id.pop(event["uuid"])
        assert (found["event"], found["distinct_id"]) == (event["event"], event["distinct_id"])
        assert event["properties"].items() <= found["properties"].items()
        apart = datetime.fromisoformat(found["timestamp"]) - datetime.fromisoformat(event["timestamp"])
        assert abs(apart) < CLOCK_SKEW
    assert by_id == {}
    return stored


def test_concurrent_events_arrive_before_shutdown_ends(project: Project, node: NodeProcess) -> None:
    client = NodeClient(node, project, flushAt=7, flushInterval=60_000)
    client.together("capture", captures(200, sendFeatureFlags=False))
    sent = client.shut_down()
    assert len(sent) == 200
    stored = assert_stored(project, sent)
    assert {event["properties"]["$lib"] for event in stored} == {"posthog-node"}


def test_bodies_are_compressed_and_can_be_plain(project: Project, node: NodeProcess, tap: Tap) -> None:
    for options, encoding in (({}, "gzip"), ({"disableCompression": True}, None)):
        client = NodeClient(node, project, tap.url, **options)
        client.each("capture", captures(3))
        client.shut_down()
        request = tap.exchanges("/batch")[-1]
        assert request.headers.get("content-encoding") == encoding
        assert b'"viewed"' in (gzip.decompress(request.body) if encoding else request.body)
    project.events(6)


def test_people(project: Project, node: NodeProcess) -> None:
    client = NodeClient(node, project)
    client.call("capture", {"distinctId": "anon", "event": "before"})
    client.call(
        "identify",
        {"distinctId": "ann", "properties": {"$set": {"plan": "free"}, "$set_once": {"first": 1}}},
    )
    client.call("alias", {"distinctId": "ann", "alias": "anon"})
    client.call("setPersonProperties", {"distinctId": "ann", "properties": {"plan": "pro", "gone": 1}})
    client.call("unsetPersonProperties", {"distinctId": "ann", "properties": ["gone"]})
    client.call("identify", {"distinctId": "ann", "properties": {"$set_once": {"first": 2}}})
    assert_stored(project, client.shut_down())
    person = project.person("ann")
    assert person is not None
    assert set(person["distinct_ids"]) == {"ann", "anon"}
    assert person["properties"]["plan"] == "pro"
    assert person["properties"]["first"] == 1
    assert "gone" not in person["properties"]
    (before,) = project.events(1, event="before")
    assert before["person"]["id"] == person["id"]


def test_groups(project: Project, node: NodeProcess) -> None:
    client = NodeClient(node, project)
    client.call(
        "groupIdentify", {"groupType": "company", "groupKey": "acme", "properties": {"size": 3, "kind": "a"}}
    )
    client.call("groupIdentify", {"groupType": "company", "groupKey": "acme", "properties": {"size": 4}})
    client.call("capture", {"distinctId": "ann", "event": "bought", "groups": {"company": "acme"}})
    assert_stored(project, client.shut_down())
    (group,) = project.get("/groups/", group_type_index=0)["results"]
    assert (group["group_key"], group["group_properties"]) == ("acme", {"size": 4, "kind": "a"})
    (bought,) = project.events(1, event="bought")
    assert bought["properties"]["$groups"] == {"company": "acme"}
    assert bought["properties"]["$group_0"] == "acme"


def test_flags_payloads_overrides_and_exposures(project: Project, node: NodeProcess) -> None:
    project.flag("on", payloads={"true": '{"a": [1, 2]}'})
    project.flag("off", groups=[{"properties": [], "rollout_percentage": 0}])
    project.flag("multi", multivariate=VARIANTS, payloads={"test": '"hello"'})
    project.flag("pros", groups=everyone(person("plan", ["pro"])))
    client = NodeClient(node, project)
    people = [f"user-{n}" for n in range(USERS)]
    seen = dict(zip(people, client.each("getFeatureFlag", [["multi", each] for each in people]), strict=True))
    assert set(seen.values()) == {"control", "test"}
    assert client.each("getFeatureFlag", [["multi", each] for each in people]) == list(seen.values())
    for distinct_id in people[:6]:
        for plan in ("pro", "free"):
            options = {"personProperties": {"plan": plan}}
            both = client.call("getAllFlagsAndPayloads", distinct_id, options)
            variant = seen[distinct_id]
            assert both["featureFlags"] == {
                "on": True, "off": False, "multi": variant, "pros": plan == "pro",
            }  # fmt: skip
            payloads = {"on": {"a": [1, 2]}, **({"multi": "hello"} if variant == "test" else {})}
            assert both["featureFlagPayloads"] == payloads
    assert client.call("isFeatureEnabled", "pros", "user-0", {"personProperties": {"plan": "pro"}}) is True
    assert client.call("getFeatureFlag", "missing", "user-0") is None
    client.call("overrideFeatureFlags", {"flags": {"multi": "mine"}})
    assert client.call("getFeatureFlag", "multi", "user-0") == "mine"
    sent = client.shut_down()

    stored = assert_stored(project, sent)
    exposures = [event["properties"] | {"who": event["distinct_id"]} for event in stored]
    found = {
        each["who"]: each["$feature_flag_response"]
        for each in exposures
        if each["$feature_flag"] == "multi" and each["$feature_flag_response"] != "mine"
    }
    assert found == seen
    (missing,) = [each for each in exposures if each["$feature_flag"] == "missing"]
    assert missing["$feature_flag_error"] == "flag_missing"
    counts = Counter((each["who"], each["$feature_flag"]) for each in exposures)
    assert counts["user-1", "multi"] == 1


def test_group_flags(project: Project, node: NodeProcess) -> None:
    large = {"key": "size", "type": "group", "group_type_index": 0, "value": "10", "operator": "gt"}
    client = NodeClient(node, project)
    client.call("groupIdentify", {"groupType": "company", "groupKey": "acme", "properties": {"size": 50}})
    client.call("groupIdentify", {"groupType": "company", "groupKey": "tiny", "properties": {"size": 2}})
    client.call("flush")
    project.events(2)
    project.flag("large", groups=everyone(large), aggregation_group_type_index=0)
    for company, expected in (("acme", True), ("tiny", False)):
        options = {"groups": {"company": company}}
        assert client.call("isFeatureEnabled", "large", "ann", options) is expected
    options = {"groups": {"company": "tiny"}, "groupProperties": {"company": {"size": 99}}}
    assert client.call("isFeatureEnabled", "large", "ann", options) is True
    assert client.call("isFeatureEnabled", "large", "ann") is False


def test_local_evaluation_asks_once_for_definitions_and_again_for_changes(
    project: Project, node: NodeProcess, tap: Tap
) -> None:
    flag = project.flag("multi", multivariate=VARIANTS, payloads={"test": '{"x": 1}'})
    project.flag("pros", groups=everyone(person("plan", "pro")))
    local = NodeClient(
        node, project, tap.url, personalApiKey=project.server.api_key, featureFlagsPollingInterval=600_000
    )
    assert local.call("waitForLocalEvaluationReady", 20_000) is True
    remote = NodeClient(node, project)
    people = [f"user-{n}" for n in range(USERS)]
    options = {"personProperties": {"plan": "pro"}, "onlyEvaluateLocally": True}
    here = local.each("getAllFlagsAndPayloads", [[each, options] for each in people])
    options = {"personProperties": {"plan": "pro"}}
    assert here == remote.each("getAllFlagsAndPayloads", [[each, options] for each in people])
    assert tap.exchanges("/flags/?") == []

    local.call("reloadFeatureFlags")
    first, second = tap.exchanges("/flags/definitions")
    assert (first.status, second.status) == (200, 304)
    assert "if-none-match" in second.headers
    project.change(flag, active=False)
    local.call("reloadFeatureFlags")
    assert tap.exchanges("/flags/definitions")[-1].status == 200
    assert local.call("getFeatureFlag", "multi", "user-1", {"onlyEvaluateLocally": True}) is False
    # What cannot be decided here is asked for.
    assert local.call("getFeatureFlag", "pros", "user-1") is False
    assert len(tap.exchanges("/flags/?")) == 1
    local.shut_down()
    remote.shut_down()


def test_a_wrong_key_leaves_evaluation_to_the_server(project: Project, node: NodeProcess) -> None:
    project.flag("on")
    client = NodeClient(node, project, personalApiKey="phx_" + "wrong" * 8)
    assert client.call("getFeatureFlag", "on", "ann") is True
    client.call("shutdown")
    assert any("401" in error or "invalid" in error.lower() for error in client.state()["errors"])


def test_remote_config(project: Project, node: NodeProcess) -> None:
    project.post(
        "/feature_flags/",
        {
            "key": "limits",
            "is_remote_configuration": True,
            "filters": {"groups": everyone(), "payloads": {"true": '{"rows": 5}'}},
        },
    )
    client = NodeClient(node, project, personalApiKey=project.server.api_key)
    assert client.call("getRemoteConfigPayload", "limits") == {"rows": 5}
    client.shut_down()


def test_a_client_that_opted_out_sends_nothing(project: Project, node: NodeProcess) -> None:
    client = NodeClient(node, project)
    client.call("disable")
    client.each("capture", captures(3))
    client.call("enable")
    client.call("capture", {"distinctId": "ann", "event": "after"})
    sent = client.shut_down()
    assert [event["event"] for event in sent] == ["after"]
    assert_stored(project, sent)


def test_refused_and_lost_answers_do_not_double_events(project: Project, node: NodeProcess, tap: Tap) -> None:
    tap.inject(Fault("/batch", times=2, status=503, headers={"Retry-After": "1"}))
    tap.inject(Fault("/batch"))  # stored, but the SDK does not hear of it
    client = NodeClient(node, project, tap.url, fetchRetryCount=5, fetchRetryDelay=50)
    client.each("capture", captures(10))
    sent = client.shut_down()
    assert [each.status for each in tap.exchanges("/batch")] == [503, 503, 0, 200]
    assert len(sent) == 10
    assert_stored(project, sent)


def test_a_batch_that_is_too_large_is_sent_in_halves(start_server: StartServer, node: NodeProcess) -> None:
    project = Project(start_server(HOGLAB_MAX_REQUEST_BYTES="100000"))
    client = NodeClient(node, project, flushAt=1000, flushInterval=60_000)
    client.each("capture", captures(64, properties={"text": "x" * 8_000}))
    sent = client.shut_down()
    assert len(sent) == 64
    assert_stored(project, sent)
    project.close()


def test_events_wait_for_a_server_that_restarts(start_server: StartServer, node: NodeProcess) -> None:
    project = Project(start_server())
    client = NodeClient(node, project, fetchRetryCount=600, fetchRetryDelay=100)
    client.each("capture", captures(5))
    client.call("flush")
    project.server.stop()
    client.each("capture", captures(20))
    project.server.start()
    sent = client.shut_down()
    assert len(sent) == 25
    assert_stored(project, sent)
    project.close()


# --- the v1 protocol (spec sdk-wire 1.15)

V1_PATH = "/i/v1/analytics/events"


def use_everything(client: NodeClient) -> list[dict[str, Any]]:
    """Events of every kind; returns what the SDK believes to have sent."""
    session = {"$session_id": "0197a3b2-0000-7000-8000-00000000000a", "$window_id": "w"}
    client.call("capture", {"distinctId": "ann", "event": "viewed", "properties": {"text": "é", **session}})
    client.call("capture", {"distinctId": "ann", "event": "bought", "groups": {"company": "acme"}})
    client.call(
        "capture", {"distinctId": "bob", "event": "quiet", "properties": {"$process_person_profile": False}}
    )
    client.call("identify", {"distinctId": "ann", "properties": {"$set": {"plan": "pro"}}})
    client.call("alias", {"distinctId": "ann", "alias": "anon"})
    client.call("groupIdentify", {"groupType": "company", "groupKey": "acme", "properties": {"size": 3}})
    return client.shut_down()


def comparable(event: dict[str, Any]) -> tuple[Any, ...]:
    made_up = {"$sent_at", "$geoip_disable"}
    properties = {name: value for name, value in event["properties"].items() if name not in made_up}
    return event["event"], event["distinct_id"], properties


def test_v1_stores_what_v0_stores(
    shared_server: ChildServer, node: NodeProcess, node_v1: NodeProcess, tap: Tap
) -> None:
    stored = []
    for process in (node, node_v1):
        project = Project(shared_server)
        sent = use_everything(NodeClient(process, project, tap.url))
        stored.append([comparable(event) for event in project.events(len(sent))])
        person = project.person("anon")
        assert person is not None
        assert set(person["distinct_ids"]) == {"ann", "anon"}
        assert person["properties"]["plan"] == "pro"
        assert project.person("bob") is None
        (group,) = project.get("/groups/", group_type_index=0)["results"]
        assert group["group_properties"] == {"size": 3}
        project.close()
    assert stored[1] == stored[0]
    assert {each.headers["content-encoding"] for each in tap.exchanges(V1_PATH)} == {"gzip"}


def test_v1_sends_again_what_the_server_could_not_take(
    project: Project, node_v1: NodeProcess, tap: Tap
) -> None:
    tap.inject(Fault(V1_PATH, times=2, status=503, headers={"Retry-After": "1"}))
    tap.inject(Fault(V1_PATH))  # stored, but the SDK does not hear of it
    client = NodeClient(node_v1, project, tap.url, fetchRetryCount=5, fetchRetryDelay=50)
    client.each("capture", captures(10))
    sent = client.shut_down()
    exchanges = tap.exchanges(V1_PATH)
    assert [each.status for each in exchanges] == [503, 503, 0, 200]
    assert [each.headers["posthog-attempt"] for each in exchanges] == ["1", "2", "3", "4"]
    assert len({each.headers["posthog-request-id"] for each in exchanges}) == 1
    assert len(sent) == 10
    assert_stored(project, sent)


def test_v1_sends_one_event_of_a_batch_again(project: Project, node_v1: NodeProcess, tap: Tap) -> None:
    tap.inject(Fault(V1_PATH, change=asks_again_for_one))
    client = NodeClient(node_v1, project, tap.url, flushAt=10, flushInterval=60_000, fetchRetryDelay=50)
    client.each("capture", captures(10))
    sent = client.shut_down()
    batches = [json.loads(gzip.decompress(each.body))["batch"] for each in tap.exchanges(V1_PATH)]
    assert [len(each) for each in batches] == [10, 1]
    assert batches[1] == [batches[0][0]]
    assert_stored(project, sent)


def test_v1_tells_which_events_were_dropped(project: Project, node_v1: NodeProcess) -> None:
    client = NodeClient(node_v1, project, flushAt=100, flushInterval=60_000)
    client.call("capture", {"distinctId": "ann", "event": "good"})
    client.call("capture", {"distinctId": "ann", "event": "n" * 201})
    client.call("capture", {"distinctId": "d" * 201, "event": "other"})
    client.call("shutdown")
    (error,) = client.state()["errors"]
    assert "event_name_too_long" in error
    assert "distinct_id_too_large" in error
    (event,) = project.events(1)
    assert event["event"] == "good"
