"""SDKs of years past, unmodified: what is installed in applications speaks older forms of the wire.

Their requests go to ``/decide/`` and ``/api/feature_flag/local_evaluation``, and their events come one by one, in
arrays and in forms of base64 (spec: sdk-wire 1.3, 2.2, 4.1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import posthoganalytics
import pytest
from tests.clients.node_client import NodeClient
from tests.clients.node_process import NodeProcess
from tests.clients.project import VARIANTS, Project, everyone, person
from tests.clients.site import Site
from tests.clients.tab import FLAGS, Tab
from tests.clients.tap import Tap

pytestmark = pytest.mark.clients

USERS = [f"user-{number}" for number in range(20)]


def make_flags(project: Project) -> None:
    project.flag("on", payloads={"true": '{"a": 1}'})
    project.flag("multi", multivariate=VARIANTS)
    project.flag("pros", groups=everyone(person("plan", ["pro"])))


def variants(project: Project, *distinct_ids: str) -> list[Any]:
    """The variants of the flag `multi`, as the current SDK has them."""
    today = project.sdk()
    return [
        today.evaluate_flags(each).get_flag("multi", send_feature_flag_events=False) for each in distinct_ids
    ]


# --- posthog-python 3.5


def python_client(project: Project, url: str, **options: Any) -> posthoganalytics.Posthog:
    return posthoganalytics.Posthog(project.token, host=url, **options)


def test_python_events_and_people(project: Project, tap: Tap) -> None:
    client = python_client(project, tap.url, gzip=True)
    client.identify("ann", {"plan": "pro"})
    client.set_once("ann", {"first": 1})
    client.alias("ann", "ann-of-old")
    client.group_identify("company", "acme", {"seats": 3})
    client.capture("ann-of-old", "bought", {"text": "\u2028é"}, groups={"company": "acme"})
    client.shutdown()
    project.events(5)
    ann = project.person("ann")
    assert ann is not None
    assert set(ann["distinct_ids"]) == {"ann", "ann-of-old"}
    assert ann["properties"] == {"plan": "pro", "first": 1}
    (bought,) = project.events(1, event="bought")
    assert (bought["person"]["id"], bought["properties"]["$group_0"]) == (ann["id"], "acme")
    assert bought["properties"]["text"] == "\u2028é"
    assert {exchange.status for exchange in tap.exchanges("/batch")} == {200}


def test_python_flags(project: Project, tap: Tap) -> None:
    make_flags(project)
    client = python_client(project, tap.url)
    for user, variant in zip(USERS, variants(project, *USERS), strict=True):
        found = client.get_all_flags(user, person_properties={"plan": "pro"})
        assert found == {"on": True, "multi": variant, "pros": True}
    assert client.feature_enabled("pros", "user-1", person_properties={"plan": "free"}) is False
    assert client.get_feature_flag_payload("on", "user-1") == '{"a": 1}'
    assert {exchange.status for exchange in tap.exchanges("/decide")} == {200}
    client.shutdown()
    of_pros = json.dumps([{"key": "$feature_flag", "value": "pros"}])
    (exposure,) = project.events(1, event="$feature_flag_called", properties=of_pros)
    assert exposure["properties"]["$feature_flag_response"] is False


def test_python_local_evaluation(project: Project, tap: Tap) -> None:
    make_flags(project)
    client = python_client(project, tap.url, personal_api_key=project.server.api_key)
    for user, variant in zip(USERS, variants(project, *USERS), strict=True):
        found = client.get_all_flags(user, person_properties={"plan": "pro"}, only_evaluate_locally=True)
        assert found == {"on": True, "multi": variant, "pros": True}
    assert {exchange.status for exchange in tap.exchanges("/api/feature_flag/local_evaluation")} == {200}
    assert tap.exchanges("/decide") == []
    client.shutdown()


# --- posthog-node

NODE = ("posthog-node-2", "posthog-node-3")


@pytest.fixture(scope="module", params=NODE)
def older_node(request: pytest.FixtureRequest, node_modules: Path) -> Iterator[NodeProcess]:
    process = NodeProcess("node_driver.mjs", str(node_modules), request.param)
    yield process
    process.close()


def test_node_events_and_people(older_node: NodeProcess, project: Project, tap: Tap) -> None:
    client = NodeClient(older_node, project, tap.url)
    client.call("identify", {"distinctId": "ann", "properties": {"plan": "pro"}})
    client.call("alias", {"distinctId": "ann", "alias": "ann-of-old"})
    client.call("groupIdentify", {"groupType": "company", "groupKey": "acme", "properties": {"seats": 3}})
    client.call("capture", {"distinctId": "ann-of-old", "event": "bought", "groups": {"company": "acme"}})
    sent = client.shut_down("shutdownAsync")
    stored = project.events(4)
    assert sorted(event["event"] for event in sent) == sorted(event["event"] for event in stored)
    ann = project.person("ann")
    assert ann is not None
    assert set(ann["distinct_ids"]) == {"ann", "ann-of-old"}
    assert ann["properties"]["plan"] == "pro"
    (bought,) = project.events(1, event="bought")
    assert (bought["person"]["id"], bought["properties"]["$group_0"]) == (ann["id"], "acme")
    assert {exchange.status for exchange in tap.exchanges("/batch")} == {200}


def test_node_flags(older_node: NodeProcess, project: Project, tap: Tap) -> None:
    make_flags(project)
    client = NodeClient(older_node, project, tap.url)
    for user, variant in zip(USERS, variants(project, *USERS), strict=True):
        found = client.call("getAllFlags", user, {"personProperties": {"plan": "pro"}})
        assert found == {"on": True, "multi": variant, "pros": True}
    assert client.call("getFeatureFlag", "pros", "user-1", {"personProperties": {"plan": "free"}}) is False
    assert client.call("getFeatureFlagPayload", "on", "user-1") == {"a": 1}
    assert {exchange.status for exchange in tap.exchanges("/decide")} == {200}
    client.shut_down("shutdownAsync")
    of_pros = json.dumps([{"key": "$feature_flag", "value": "pros"}])
    (exposure,) = project.events(1, event="$feature_flag_called", properties=of_pros)
    assert exposure["properties"]["$feature_flag_response"] is False


def test_node_local_evaluation(older_node: NodeProcess, project: Project, tap: Tap) -> None:
    make_flags(project)
    client = NodeClient(older_node, project, tap.url, personalApiKey=project.server.api_key)
    local = {"onlyEvaluateLocally": True, "personProperties": {"plan": "pro"}, "sendFeatureFlagEvents": False}
    for user, variant in zip(USERS, variants(project, *USERS), strict=True):
        assert client.call("getFeatureFlag", "multi", user, local) == variant
        assert client.call("getFeatureFlag", "pros", user, local) is True
    assert {exchange.status for exchange in tap.exchanges("/api/feature_flag/local_evaluation")} == {200}
    assert tap.exchanges("/decide") == []
    client.shut_down("shutdownAsync")


# --- posthog-js

START = """
async ({module, token, host}) => {
  window.posthog = (await import(module)).default
  await new Promise((loaded) => posthog.init(token, { api_host: host, autocapture: false, loaded }))
}
"""
ASK_UNTIL_ANN_IS_A_PRO = "() => posthog.isFeatureEnabled('pros') || (posthog.reloadFeatureFlags(), false)"
BROWSER = ("posthog-js-1.29", "posthog-js-1.57", "posthog-js-1.116")


@pytest.mark.parametrize("package", BROWSER)
def test_a_visit(package: str, browser: NodeProcess, site: Site, project: Project, tap: Tap) -> None:
    make_flags(project)
    tab = Tab(browser, site.url)
    tab.run(START, {"module": f"/npm/{package}/dist/es.js", "token": project.token, "host": tap.url})
    stranger = tab.run("() => posthog.get_distinct_id()")
    tab.run(FLAGS)
    assert [tab.run("() => posthog.getFeatureFlag('multi')")] == variants(project, stranger)
    if package != "posthog-js-1.29":  # which knows no payloads
        assert tab.run("() => posthog.getFeatureFlagPayload('on')") == {"a": 1}
    tab.run("() => posthog.capture('looked', {text: '\\u2028é'})")
    tab.run("() => posthog.identify('ann', {plan: 'pro'})")
    tab.run("() => posthog.group('company', 'acme', {seats: 3})")
    tab.wait(ASK_UNTIL_ANN_IS_A_PRO)
    tab.run("() => posthog.capture('bought')")
    tab.leave()

    (looked,) = project.events(1, event="looked")
    (bought,) = project.events(1, event="bought")
    assert looked["properties"]["text"] == "\u2028é"
    assert looked["properties"]["$lib_version"].startswith(package.removeprefix("posthog-js-"))
    ann = project.person("ann")
    assert ann is not None
    assert set(ann["distinct_ids"]) == {"ann", stranger}
    assert ann["properties"]["plan"] == "pro"
    assert looked["person"]["id"] == bought["person"]["id"] == ann["id"]
    assert bought["properties"]["$group_0"] == "acme"
    project.events(1, event="$pageleave")
    assert {exchange.status for exchange in tap.exchanges("/decide")} == {200}
    assert {exchange.status for exchange in tap.exchanges("/e")} == {200}
