"""The unmodified PostHog Python SDK against a running server (spec sdk-wire 6)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from posthog import AsyncPosthog, Posthog
from tests.clients.project import VARIANTS, Project, everyone, person
from tests.clients.tap import Fault, Tap, asks_again_for_one, tapped
from tests.conftest import StartServer

from hoglab.demo.server import ChildServer

pytestmark = pytest.mark.clients

USERS = 60


@pytest.mark.parametrize("gzip", [False, True])
def test_events_arrive_as_they_were_sent(project: Project, gzip: bool) -> None:
    client = project.sdk(gzip=gzip)
    sent = {
        client.capture(
            "viewed", distinct_id=f"user-{n}", properties={"n": n, "text": "é\u2028", "deep": {"a": [1]}}
        )
        for n in range(250)
    }
    client.shutdown()
    stored = project.events(250, event="viewed")
    assert {event["id"] for event in stored} == sent
    for event in stored:
        properties = event["properties"]
        assert event["distinct_id"] == f"user-{properties['n']}"
        assert properties["text"] == "é\u2028"
        assert properties["deep"] == {"a": [1]}
        assert properties["$lib"] == "posthog-python"


def test_people_follow_set_and_set_once(project: Project) -> None:
    client = project.sdk()
    client.set(distinct_id="ann", properties={"plan": "free", "email": "ann@example.com"})
    client.set_once(distinct_id="ann", properties={"first": 1})
    client.set_once(distinct_id="ann", properties={"first": 2})
    client.capture("upgraded", distinct_id="ann", properties={"$set": {"plan": "pro"}})
    client.shutdown()
    project.events(4)
    (person,) = project.get("/persons/", distinct_id="ann")["results"]
    assert person["properties"]["plan"] == "pro"
    assert person["properties"]["first"] == 1
    assert project.get("/persons/", search="ann@example.com")["results"][0]["id"] == person["id"]


def test_flags_and_their_exposures(project: Project) -> None:
    project.flag("everyone")
    project.flag("nobody", groups=[{"properties": [], "rollout_percentage": 0}])
    project.flag("multi", multivariate=VARIANTS, payloads={"test": '{"x": 2}'})
    project.flag("pros", groups=everyone(person("plan", ["pro"])))
    client = project.sdk()
    seen = {}
    for number in range(USERS):
        user = f"user-{number}"
        plan = "pro" if number % 2 else "free"
        flags = client.evaluate_flags(user, person_properties={"plan": plan})
        assert flags.get_flag("everyone") is True
        assert flags.get_flag("nobody") is False
        assert flags.get_flag("missing") is None
        assert flags.is_enabled("pros") is (plan == "pro")
        seen[user] = flags.get_flag("multi")
        assert flags.get_flag_payload("multi") == ({"x": 2} if seen[user] == "test" else None)
    client.shutdown()
    assert set(seen.values()) == {"control", "test"}

    exposures = [
        event
        for event in project.events(USERS * 5, event="$feature_flag_called")
        if event["properties"]["$feature_flag"] == "multi"
    ]
    assert {
        event["distinct_id"]: event["properties"]["$feature_flag_response"] for event in exposures
    } == seen


def test_local_evaluation_equals_the_servers(project: Project) -> None:
    project.flag("half", groups=[{"properties": [], "rollout_percentage": 50}])
    project.flag("multi", multivariate=VARIANTS)
    remote = project.sdk()
    local = project.sdk(secret_key=project.server.api_key)
    local.load_feature_flags()
    for number in range(USERS):
        user = f"user-{number}"
        here = local.evaluate_flags(user, only_evaluate_locally=True)
        there = remote.evaluate_flags(user)
        for key in ("half", "multi"):
            assert here.get_flag(key) == there.get_flag(key), (key, user)


def test_a_stored_property_decides_when_none_is_sent(project: Project) -> None:
    project.flag("pros", groups=everyone(person("plan", "pro")))
    client = project.sdk()
    client.set(distinct_id="ann", properties={"plan": "pro"})
    client.flush()
    project.events(1)
    project.until(lambda: [1] if client.evaluate_flags("ann").is_enabled("pros") else [], 1)
    assert client.evaluate_flags("bob").is_enabled("pros") is False
    assert client.evaluate_flags("ann", person_properties={"plan": "free"}).is_enabled("pros") is False


def test_events_wait_for_a_server_that_restarts(start_server: StartServer) -> None:
    project = Project(start_server())
    client = project.sdk(max_retries=10, flush_interval=0.1)
    for number in range(20):
        client.capture("before", distinct_id=f"user-{number}")
    client.flush()
    project.server.stop()
    sent = {client.capture("during", distinct_id=f"user-{number}") for number in range(20)}
    project.server.start()
    client.shutdown()
    stored = project.events(20, event="during")
    assert {event["id"] for event in stored} == sent
    assert len(project.events(20, event="before")) == 20
    project.close()


def test_a_wrong_token_is_refused_for_good(project: Project) -> None:
    failures: list[Exception] = []
    client = Posthog(
        "phc_nobodyhasthistoken",
        host=project.server.url,
        on_error=lambda error, _batch: failures.append(error),
    )
    client.capture("x", distinct_id="d")
    client.shutdown()
    assert [getattr(error, "status", None) for error in failures] == [401]
    assert project.get("/events/")["results"] == []


def test_an_encrypted_remote_config_is_read_in_clear_with_a_key_only(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(data=tmp_path / "data")
    project = Project(server)
    project.post(
        "/feature_flags/",
        {
            "key": "limits",
            "is_remote_configuration": True,
            "has_encrypted_payloads": True,
            "filters": {
                "groups": [{"properties": [], "rollout_percentage": 100}],
                "payloads": {"true": '{"word": "open sesame"}'},
            },
        },
    )
    payload = project.sdk(secret_key=server.api_key).get_remote_config_payload("limits")
    assert payload == '{"word": "open sesame"}'
    assert "sesame" not in str(project.sdk().evaluate_flags("somebody").get_flag_payload("limits"))
    project.close()
    server.stop()
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not any(b"open sesame" in path.read_bytes() for path in files)


def test_the_javascript_sdk_is_served_from_a_folder(start_server: StartServer, tmp_path: Path) -> None:
    files = tmp_path / "dist"
    files.mkdir()
    (files / "array.js").write_text("window.posthog = []")
    server = start_server(HOGLAB_SDK_FILES=str(files))
    answer = httpx.get(f"{server.url}/static/array.js")
    assert (answer.status_code, answer.text) == (200, "window.posthog = []")
    assert "javascript" in answer.headers["content-type"]


def test_a_stranger_an_alias_and_a_group(project: Project) -> None:
    client = project.sdk()
    client.capture("anonymous")
    client.capture("before", distinct_id="first name")
    client.capture("after", distinct_id="second name")
    client.alias("first name", "second name")
    client.group_identify("company", "acme", {"size": 3})
    client.group_identify("company", "acme", {"kind": "shop"})
    client.capture("bought", distinct_id="second name", groups={"company": "acme"})
    client.shutdown()
    stored = {event["event"]: event for event in project.events(7)}
    assert stored["anonymous"]["properties"]["$process_person_profile"] is False
    assert stored["anonymous"]["person"] is None
    assert stored["before"]["person"]["id"] == stored["after"]["person"]["id"]
    assert stored["bought"]["properties"]["$group_0"] == "acme"
    (group,) = project.get("/groups/", group_type_index=0)["results"]
    assert group["group_properties"] == {"size": 3, "kind": "shop"}


def test_history_keeps_its_time(project: Project) -> None:
    client = project.sdk(historical_migration=True)
    long_ago = datetime(2019, 2, 3, 4, 5, 6, tzinfo=UTC)
    client.capture("then", distinct_id="ann", timestamp=long_ago)
    client.shutdown()
    (event,) = project.events(1)
    assert abs(datetime.fromisoformat(event["timestamp"]) - long_ago) < timedelta(seconds=30)


def capture_everything(client: Posthog) -> None:
    client.capture("viewed", distinct_id="ann", properties={"n": 1, "text": "é\u2028", "$session_id": "s-1"})
    client.capture("viewed", distinct_id="ann", properties={"$set": {"plan": "pro"}}, groups={"team": "a"})
    client.set_once(distinct_id="ann", properties={"first": 1})
    client.capture("no one")


def without_times(project: Project) -> list[dict[str, Any]]:
    """What is stored of `capture_everything`, but for what differs from one run to the next."""
    changing = {"$sent_at", "$ip"}
    return sorted(
        (
            {
                "event": event["event"],
                "who": event["distinct_id"] if event["event"] != "no one" else None,
                "properties": {k: v for k, v in event["properties"].items() if k not in changing},
            }
            for event in project.events(4)
        ),
        key=lambda event: json.dumps(event, sort_keys=True),
    )


def test_the_newer_protocol_stores_the_same(shared_server: ChildServer) -> None:
    plain = Project(shared_server)
    client = plain.sdk()
    capture_everything(client)
    client.shutdown()
    expected = without_times(plain)
    for compression in ("none", "gzip", "deflate"):
        project = Project(shared_server)
        with tapped(shared_server.url) as tap:
            client = Posthog(project.token, host=tap.url, capture_mode="v1", capture_compression=compression)
            capture_everything(client)
            client.shutdown()
            assert {each.status for each in tap.exchanges("/i/v1/analytics/events")} == {200}
            assert tap.exchanges("/batch") == []
        assert without_times(project) == expected
        project.close()
    plain.close()


@pytest.mark.parametrize("mode", ["v0", "v1"])
def test_refused_and_lost_answers_do_not_double_events(project: Project, tap: Tap, mode: str) -> None:
    path = "/batch" if mode == "v0" else "/i/v1/analytics/events"
    tap.inject(Fault(path, times=1, status=503))
    tap.inject(Fault(path))  # stored, but the SDK does not hear of it
    failures: list[Exception] = []
    client = Posthog(
        project.token,
        host=tap.url,
        capture_mode=mode,
        max_retries=5,
        on_error=lambda error, _batch: failures.append(error),
    )
    sent = {client.capture("viewed", distinct_id=f"user-{n}") for n in range(10)}
    client.shutdown()
    assert [each.status for each in tap.exchanges(path)] == [503, 0, 200]
    assert failures == []
    assert client.queue.empty()
    assert {event["id"] for event in project.events(10)} == sent


def test_the_newer_protocol_sends_one_event_of_a_batch_again(project: Project, tap: Tap) -> None:
    path = "/i/v1/analytics/events"
    tap.inject(Fault(path, change=asks_again_for_one))
    client = Posthog(project.token, host=tap.url, capture_mode="v1", flush_at=10, flush_interval=60)
    sent = {client.capture("viewed", distinct_id=f"user-{n}") for n in range(10)}
    client.shutdown()
    batches = [json.loads(each.body)["batch"] for each in tap.exchanges(path)]
    assert [len(each) for each in batches] == [10, 1]
    assert batches[1] == [batches[0][0]]
    assert {event["id"] for event in project.events(10)} == sent


def test_definitions_are_asked_for_and_asked_for_again(project: Project, tap: Tap) -> None:
    flag = project.flag("multi", multivariate=VARIANTS, payloads={"test": '{"x": 2}'})
    project.flag("pros", groups=everyone(person("plan", "pro")))
    client = Posthog(project.token, host=tap.url, secret_key=project.server.api_key, poll_interval=600)
    client.load_feature_flags()
    client.load_feature_flags()
    exchanges = tap.exchanges("/flags/definitions")
    assert {each.status for each in exchanges[1:]} == {304}
    assert "if-none-match" in exchanges[-1].headers
    found = client.evaluate_flags("user-1", person_properties={"plan": "pro"}, only_evaluate_locally=True)
    assert found.is_enabled("pros") is True
    assert found.get_flag("multi") in ("control", "test")
    project.change(flag, active=False)
    client.load_feature_flags()
    assert tap.exchanges("/flags/definitions")[-1].status == 200
    assert client.evaluate_flags("user-1", only_evaluate_locally=True).get_flag("multi") is False
    assert tap.exchanges("/flags/?") == []
    # What cannot be decided without knowing the person is asked for.
    assert client.evaluate_flags("user-1").get_flag("pros") is False
    assert len(tap.exchanges("/flags/?")) == 1
    client.shutdown()


def test_a_wrong_key_leaves_evaluation_to_the_server(project: Project, tap: Tap) -> None:
    project.flag("on")
    client = Posthog(project.token, host=tap.url, secret_key="phx_" + "wrong" * 8)
    client.load_feature_flags()
    assert {each.status for each in tap.exchanges("/flags/definitions")} == {401}
    assert client.evaluate_flags("ann").get_flag("on") is True
    client.shutdown()


def test_events_carry_the_flags_that_they_are_given(project: Project) -> None:
    project.flag("on")
    project.flag("multi", multivariate=VARIANTS)
    project.flag("off", groups=[{"properties": [], "rollout_percentage": 0}])
    client = project.sdk()
    flags = client.evaluate_flags("ann")
    client.capture("bought", distinct_id="ann", flags=flags)
    for _ in range(3):
        flags.get_flag("multi")
        client.evaluate_flags("ann").get_flag("multi")
    client.shutdown()
    (bought,) = project.events(1, event="bought")
    assert bought["properties"]["$feature/multi"] == flags.get_flag("multi")
    assert bought["properties"]["$feature/off"] is False
    assert set(bought["properties"]["$active_feature_flags"]) == {"on", "multi"}
    project.events(1, event="$feature_flag_called")


def test_a_client_that_is_disabled_sends_nothing(project: Project) -> None:
    silent = project.sdk(disabled=True)
    silent.capture("hidden", distinct_id="ann")
    silent.shutdown()
    speaking = project.sdk()
    speaking.capture("shown", distinct_id="ann")
    speaking.shutdown()
    assert [event["event"] for event in project.events(1)] == ["shown"]


def test_the_asynchronous_client(project: Project) -> None:
    project.flag("multi", multivariate=VARIANTS, payloads={"test": '{"x": 2}'})
    project.flag("pros", groups=everyone(person("plan", ["pro"])))
    failures: list[Any] = []

    async def use() -> tuple[set[Any], Any]:
        async with AsyncPosthog(
            project.token, host=project.server.url, on_error=lambda *given: failures.append(given)
        ) as client:
            sent = {
                client.capture("viewed", distinct_id=f"user-{n}", properties={"n": n}) for n in range(120)
            }
            client.set(distinct_id="ann", properties={"plan": "pro"})
            client.alias("anon", "ann")
            client.group_identify("company", "acme", {"size": 3})
            await client.flush()
            sent.add(await client.capture_immediate("viewed", distinct_id="last"))
            flags = await client.evaluate_flags("ann", person_properties={"plan": "pro"})
            assert flags.is_enabled("pros") is True
            return sent, flags.get_flag("multi")

    sent, variant = asyncio.run(use())
    assert failures == []
    assert {event["id"] for event in project.events(121, event="viewed")} == sent
    assert variant == project.sdk().evaluate_flags("ann").get_flag("multi", send_feature_flag_events=False)
    exposures = {
        event["properties"]["$feature_flag"]: event["properties"]["$feature_flag_response"]
        for event in project.events(2, event="$feature_flag_called")
    }
    assert exposures == {"pros": True, "multi": variant}
    found = project.person("ann")
    assert found is not None
    assert set(found["distinct_ids"]) == {"ann", "anon"}
    assert found["properties"]["plan"] == "pro"
