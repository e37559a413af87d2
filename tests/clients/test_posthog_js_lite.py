"""The unmodified posthog-js-lite in a real browser; its core is that of PostHog's React Native SDK."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import VARIANTS, Project, everyone, person
from tests.clients.site import Site
from tests.clients.tab import Tab

pytestmark = pytest.mark.clients

START = """
async ({token, host}) => {
  const { PostHog } = await import("posthog-js-lite")
  window.posthog = new PostHog(token, { host, flushAt: 1, flushInterval: 100 })
  window.captured = []
  window.failed = []
  posthog.on("flush", (events) => captured.push(...events))
  posthog.on("error", (error) => failed.push(String(error)))
}
"""


@pytest.fixture
def tab(browser: NodeProcess, site: Site, project: Project) -> Tab:
    tab = Tab(browser, site.url)
    tab.run(START, {"token": project.token, "host": project.server.url})
    return tab


def assert_stored(tab: Tab, project: Project) -> list[dict[str, Any]]:
    """All that the SDK says to have sent is in the store, and nothing waits; returns the store's events."""
    tab.run("() => posthog.flush()")
    believed = tab.captured()
    stored = project.events(len(believed))
    by_id = {event["uuid"]: event for event in stored}
    for event in believed:
        found = by_id[event["uuid"]]
        assert (found["event"], found["distinct_id"]) == (event["event"], event["distinct_id"])
        for name, value in event["properties"].items():
            if name not in ("$set", "$set_once"):  # the server adds what it mirrors from the event
                assert found["properties"][name] == value, name
    assert tab.run("() => failed") == []
    assert tab.run("() => posthog.getPersistedProperty('queue') ?? []") == []
    return stored


def test_people_and_groups(tab: Tab, project: Project) -> None:
    tab.run("() => posthog.capture('looked', {text: '\\u2028é'})")
    stranger = tab.run("() => posthog.getAnonymousId()")
    tab.run("() => posthog.identify('ann', {plan: 'pro'})")
    tab.run("() => posthog.alias('ann-of-old')")
    tab.run("() => posthog.group('company', 'acme', {size: 3})")
    tab.run("() => posthog.capture('bought')")
    assert_stored(tab, project)
    ann = project.person("ann")
    assert ann is not None
    assert set(ann["distinct_ids"]) == {"ann", stranger, "ann-of-old"}
    assert ann["properties"]["plan"] == "pro"
    (looked,) = project.events(1, event="looked")
    assert looked["person"]["id"] == ann["id"]
    (bought,) = project.events(1, event="bought")
    assert bought["properties"]["$group_0"] == "acme"
    tab.run("() => posthog.reset()")
    assert tab.run("() => posthog.getDistinctId()") not in ("ann", stranger)


def test_flags(tab: Tab, project: Project) -> None:
    multi = project.flag("multi", multivariate=VARIANTS, payloads={"control": '{"a": 1}', "test": '{"a": 2}'})
    project.flag("pros", groups=everyone(person("plan", ["pro"])))
    flags = tab.run("() => posthog.reloadFeatureFlagsAsync()")
    assert flags["pros"] is False
    distinct_id = tab.run("() => posthog.getDistinctId()")
    expected = project.sdk().evaluate_flags(distinct_id).get_flag("multi", send_feature_flag_events=False)
    assert tab.run("() => posthog.getFeatureFlag('multi')") == flags["multi"] == expected
    assert tab.run("() => posthog.getFeatureFlagPayload('multi')") == {"a": 1 if expected == "control" else 2}
    tab.run("() => posthog.setPersonPropertiesForFlags({plan: 'pro'}, false)")
    assert tab.run("() => posthog.reloadFeatureFlagsAsync()")["pros"] is True
    tab.run("() => posthog.overrideFeatureFlag({multi: 'mine'})")
    assert tab.run("() => posthog.getFeatureFlag('multi')") == "mine"
    tab.run("() => posthog.overrideFeatureFlag(null)")
    project.change(multi, active=False)
    assert "multi" not in tab.run("() => posthog.reloadFeatureFlagsAsync()")
    exposures = [
        each["properties"]["$feature_flag_response"]
        for each in assert_stored(tab, project)
        if each["event"] == "$feature_flag_called"
    ]
    assert expected in exposures


def test_who_opts_out_is_left_alone(tab: Tab, project: Project) -> None:
    tab.run("() => posthog.optOut()")
    tab.run("() => posthog.capture('hidden')")
    tab.run("() => posthog.optIn()")
    tab.run("() => posthog.capture('shown')")
    tab.run("() => posthog.flush()")
    project.events(1, event="shown")
    assert project.get("/events/", event="hidden")["results"] == []
