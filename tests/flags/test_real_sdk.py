"""An unmodified PostHog SDK against the running server: remote and local evaluation, remote configuration."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from hoglab.http.server import Address, claim, serve

posthog = pytest.importorskip("posthog")

pytestmark = pytest.mark.clients

PRO = {"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}
AB = {"variants": [{"key": "control", "rollout_percentage": 50}, {"key": "test", "rollout_percentage": 50}]}


@pytest.fixture
def address(server) -> Iterator[str]:
    """The address of the application on a real socket."""
    addresses: list[Address] = []
    running = threading.Event()
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def ready(address: Address) -> None:
        addresses.append(address)
        running.set()

    async def run() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        with claim("127.0.0.1", 0) as address:
            await serve(server.app, address, stop=stop, ready=ready)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert running.wait(20)
    yield addresses[0].url
    loop, stop = stops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)


@pytest.fixture
def make_client(server, address):
    clients = []

    def make(**options):
        client = posthog.Posthog(server.token, host=address, send=False, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.shutdown()


@pytest.fixture
def flags(server):
    server.create("on", {"groups": [{}], "payloads": {"true": '{"a": 1}'}})
    server.create("checkout-experiment", {"groups": [{}], "multivariate": AB, "payloads": {"test": "[1, 2]"}})
    server.create("pros", {"groups": [{"properties": [PRO]}]})
    server.create("held-out", {"groups": [{}], "holdout": {"id": 42, "exclusion_percentage": 50}})
    server.create("off", active=False)
    return server


def test_remote_evaluation(flags, make_client):
    client = make_client()
    found = client.evaluate_flags("user-3", person_properties={"plan": "pro"})
    read = {key: found.get_flag(key, send_feature_flag_events=False) for key in found.keys}
    assert read == {"on": True, "checkout-experiment": "test", "pros": True, "held-out": True}
    assert found.get_flag_payload("on") == {"a": 1}
    assert found.get_flag_payload("checkout-experiment") == [1, 2]
    assert found.get_flag("unknown", send_feature_flag_events=False) is None
    assert client.evaluate_flags("user-1", flag_keys=["held-out"]).get_flag("held-out") == "holdout-42"


def test_stored_properties_reach_the_sdk(flags, make_client):
    client = make_client()
    assert client.evaluate_flags("user-3").is_enabled("pros") is False
    flags.event("$set", "user-3", **{"$set": {"plan": "pro"}})
    assert client.evaluate_flags("user-3").is_enabled("pros") is True


def test_failed_flags_are_reported_as_failed(flags, make_client):
    cohort = {
        "key": "id",
        "type": "cohort",
        "value": flags.cohort({"type": "XOR", "values": []}),
        "operator": "in",
    }
    flags.create("broken", {"groups": [{"properties": [cohort]}]})
    found = make_client().evaluate_flags("user-3")
    assert found.get_flag("broken", send_feature_flag_events=False) is None
    assert found.get_flag("on", send_feature_flag_events=False) is True


def test_local_evaluation_gives_the_same_values(flags, make_client):
    base = next(
        flag for flag in flags.client.get("/api/projects/1/feature_flags/?search=pros").json()["results"]
    )
    depends = {"type": "flag", "key": str(base["id"]), "value": True, "operator": "flag_evaluates_to"}
    flags.create("dependent", {"groups": [{"properties": [depends]}]})
    cohort = flags.cohort({"type": "AND", "values": [PRO]})
    leaf = {"key": "id", "type": "cohort", "value": cohort, "operator": "in"}
    flags.create("cohort", {"groups": [{"properties": [leaf]}]})
    client = make_client(secret_key=flags.key)
    client.load_feature_flags()
    assert len(client.feature_flags) == 7
    for distinct_id in ("user-1", "user-2", "user-3"):
        for plan in ("pro", "free"):
            person = {"plan": plan}
            local = client.evaluate_flags(distinct_id, person_properties=person, only_evaluate_locally=True)
            remote = make_client().evaluate_flags(distinct_id, person_properties=person)
            for key in remote.keys:
                mine = local.get_flag(key, send_feature_flag_events=False)
                assert mine == remote.get_flag(key, send_feature_flag_events=False), key
            assert local.get_flag("off", send_feature_flag_events=False) is False
    # The next poll finds nothing new, and one after a change does.
    client.load_feature_flags()
    assert len(client.feature_flags) == 7
    flags.create("new")
    client.load_feature_flags()
    assert len(client.feature_flags) == 8


def test_remote_configuration(flags, make_client):
    flags.create(
        "settings",
        {"groups": [{}], "payloads": {"true": '{"limit": 5}'}},
        is_remote_configuration=True,
        has_encrypted_payloads=True,
    )
    client = make_client(secret_key=flags.key)
    assert client.get_remote_config_payload("settings") == '{"limit": 5}'
