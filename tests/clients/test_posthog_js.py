"""The unmodified posthog-js in a real browser, on a site of another origin (spec sdk-wire 6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.node_process import NodeProcess
from tests.clients.project import VARIANTS, Project, everyone, person
from tests.clients.site import Site
from tests.clients.tab import Tab
from tests.clients.tap import Exchange, Fault, Tap

pytestmark = pytest.mark.clients

HALF = [{"properties": [], "rollout_percentage": 50}]
ROBOT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/140.0.0.0"
OPEN_TO_ALL = {"Access-Control-Allow-Origin": "*"}

ASKED_SINCE_LOGIN = (
    "() => performance.getEntriesByType('resource').filter((e) => e.name.includes('/flags/')).length > 1"
)
"""The answer to the second request for flags, the one after ``identify``, is complete."""
SEES_SESSION = (
    "(session) => document.cookie.includes(session) && JSON.stringify(localStorage).includes(session)"
)
"""A page sees the session that another one of its browser began: pages are processes, and hear of it later."""


class Shop:
    """Pages of the site with posthog-js started for a project."""

    def __init__(self, browser: NodeProcess, site: Site, project: Project) -> None:
        self._browser = browser
        self._site = site
        self.project = project

    def visit(
        self, path: str = "/", *, host: str | None = None, like: Tab | None = None, **options: Any
    ) -> Tab:
        """Open a page and start posthog-js on it; one that is ``like`` another is of the same browser, and later."""
        tab = Tab(self._browser, self._site.url + path, like=like)
        if like is not None:
            session_id = like.wait("() => captured.length && posthog.get_session_id()")
            tab.wait(SEES_SESSION, session_id)
        tab.start(self.project.token, host or self.project.server.url, **options)
        return tab

    def visit_as_robot(self) -> Tab:
        tab = Tab(self._browser, self._site.url, userAgent=ROBOT)
        tab.start(self.project.token, self.project.server.url)
        return tab

    def address(self, path: str) -> str:
        return self._site.url + path


@pytest.fixture
def shop(browser: NodeProcess, site: Site, project: Project) -> Shop:
    return Shop(browser, site, project)


def assert_stored(project: Project, believed: list[dict[str, Any]], more: int = 0) -> list[dict[str, Any]]:
    """Each event that the SDK says to have captured is in the store, once and as it was; returns all there."""
    stored = project.events(len(believed) + more)
    by_id = {event["id"]: event for event in stored}
    for event in believed:
        found = by_id.pop(event["uuid"])
        assert found["event"] == event["event"]
        assert found["distinct_id"] == event["properties"]["distinct_id"]
        for name, value in event["properties"].items():
            if name in ("$set", "$set_once"):  # the server adds what it mirrors from the event
                assert value.items() <= found["properties"][name].items()
            elif not name.startswith("$elements"):
                assert found["properties"][name] == value, name
    assert len(by_id) == more
    return stored


def test_surveys_that_are_not_here_are_no_error(shop: Shop) -> None:
    tab = shop.visit(disable_surveys=False)
    tab.wait("() => window.__PosthogExtensions__.generateSurveys")
    (script,) = tab.requests("/surveys.js")
    assert script["status"] == 200
    assert tab.errors() == []


def test_a_visit(shop: Shop) -> None:
    project = shop.project
    project.flag("on")
    project.flag("multi", multivariate=VARIANTS)
    project.flag("never", groups=[{"properties": [], "rollout_percentage": 0}])
    tab = shop.visit()
    flags = tab.flags()
    assert flags.keys() == {"on", "multi"}
    assert tab.run("() => posthog.getFeatureFlag('multi')") == flags["multi"]
    assert tab.run("() => posthog.isFeatureEnabled('never')") is False
    tab.click("#buy")
    tab.run("() => posthog.capture('bought', {price: 9.5, text: '\\u2028é'})")
    tab.wait("() => captured.some((event) => event.event === '$autocapture')")
    believed = tab.captured()
    assert_stored(project, believed)
    tab.leave()

    stored = assert_stored(project, believed, more=1)
    assert {event["event"] for event in stored} == {
        "$pageview", "$feature_flag_called", "$autocapture", "bought", "$pageleave",
    }  # fmt: skip
    assert len({event["distinct_id"] for event in stored}) == 1
    (clicked,) = project.events(1, event="$autocapture")
    assert clicked["elements_chain"].startswith("button.big.red:")
    assert 'attr__data-attr="buy-button"' in clicked["elements_chain"]
    exposures = {
        event["properties"]["$feature_flag"]: event["properties"]["$feature_flag_response"]
        for event in project.events(2, event="$feature_flag_called")
    }
    assert exposures == {"multi": flags["multi"], "never": False}
    # The server evaluates the same for this person when another SDK asks.
    assert (
        project.sdk()
        .evaluate_flags(stored[0]["distinct_id"])
        .get_flag("multi", send_feature_flag_events=False)
        == flags["multi"]
    )
    assert tab.errors() == []
    assert {each["status"] for each in tab.requests(project.server.url)} == {200}
    assert tab.requests("/config.js")
    assert {each["headers"]["content-type"] for each in tab.requests("/i/v0/e/")} == {"text/plain"}


def test_strangers_have_no_person_until_they_are_identified(shop: Shop) -> None:
    project = shop.project
    tab = shop.visit()
    stranger = tab.run("() => posthog.get_distinct_id()")
    tab.run("() => posthog.capture('looked')")
    (looked,) = project.events(1, event="looked")
    assert looked["properties"]["$process_person_profile"] is False
    assert project.get("/persons/")["results"] == []

    tab.run("() => posthog.identify('ann', {plan: 'free'}, {first: 1})")
    tab.run("() => posthog.setPersonProperties({plan: 'pro'}, {first: 2})")
    tab.run("() => posthog.alias('ann-of-old')")
    tab.run("() => posthog.group('company', 'acme', {size: 3})")
    tab.run("() => posthog.capture('bought')")
    assert_stored(project, tab.captured())
    (ann,) = project.get("/persons/")["results"]
    assert set(ann["distinct_ids"]) == {"ann", stranger, "ann-of-old"}
    assert (ann["properties"]["plan"], ann["properties"]["first"]) == ("pro", 1)
    assert {each["person"]["id"] for each in project.events(1, event="looked")} == {ann["id"]}
    (bought,) = project.events(1, event="bought")
    assert bought["properties"]["$group_0"] == "acme"
    (group,) = project.get("/groups/", group_type_index=0)["results"]
    assert group["group_properties"] == {"size": 3}

    tab.run("() => posthog.reset()")
    tab.run("() => posthog.capture('somebody else')")
    (other,) = project.events(1, event="somebody else")
    assert other["distinct_id"] not in {"ann", stranger}
    assert other["person"] is None
    assert "$groups" not in other["properties"] or other["properties"]["$groups"] == {}


def test_payloads_overrides_and_reload(shop: Shop) -> None:
    project = shop.project
    multi = project.flag("multi", multivariate=VARIANTS, payloads={"control": '{"a": 1}', "test": '{"a": 2}'})
    project.flag("pros", groups=everyone(person("plan", ["pro"])))
    large = {"key": "size", "type": "group", "group_type_index": 0, "value": "10", "operator": "gt"}
    project.sdk().group_identify("company", "acme", {"size": 99})
    project.until(lambda: project.get("/groups/", group_type_index=0)["results"], 1)
    project.flag("large", groups=everyone(large), aggregation_group_type_index=0)
    tab = shop.visit()
    variant = tab.flags()["multi"]
    assert tab.run("() => posthog.getFeatureFlagResult('multi').payload") == {
        "a": 1 if variant == "control" else 2
    }

    assert tab.run("() => posthog.isFeatureEnabled('pros')") is False
    tab.run("() => posthog.setPersonPropertiesForFlags({plan: 'pro'})")
    tab.wait("() => posthog.isFeatureEnabled('pros')")
    assert tab.run("() => posthog.isFeatureEnabled('large')") is False
    tab.run("() => posthog.group('company', 'acme')")
    tab.wait("() => posthog.isFeatureEnabled('large')")

    tab.run("() => posthog.featureFlags.overrideFeatureFlags({flags: {multi: 'mine'}})")
    assert tab.run("() => posthog.getFeatureFlag('multi')") == "mine"
    tab.run("() => posthog.featureFlags.overrideFeatureFlags(false)")
    assert tab.run("() => posthog.getFeatureFlag('multi')") == variant

    project.change(multi, active=False)
    tab.run("() => posthog.reloadFeatureFlags()")
    tab.wait("() => posthog.getFeatureFlag('multi') === undefined")
    assert tab.errors() == []


def test_bootstrapped_flags_hold_until_the_servers_are_asked_for(shop: Shop) -> None:
    project = shop.project
    project.flag("multi", multivariate=VARIANTS)
    bootstrap = {"distinctID": "ann", "isIdentifiedID": True, "featureFlags": {"multi": "from the page"}}
    tab = shop.visit(bootstrap=bootstrap)
    assert tab.run("() => posthog.getFeatureFlag('multi')") == "from the page"
    tab.run("() => posthog.reloadFeatureFlags()")
    value = tab.wait("() => ['control', 'test'].find((each) => each === posthog.getFeatureFlag('multi'))")
    expected = project.sdk().evaluate_flags("ann").get_flag("multi", send_feature_flag_events=False)
    assert value == expected
    exposures = project.events(2, event="$feature_flag_called")
    seen = [(each["properties"]["$feature_flag_response"], each["distinct_id"]) for each in exposures]
    assert seen == [(expected, "ann"), ("from the page", "ann")]


def test_an_experience_continues_after_the_login(shop: Shop) -> None:
    project = shop.project
    project.post(
        "/feature_flags/",
        {
            "key": "same",
            "ensure_experience_continuity": True,
            "filters": {"groups": everyone(), "multivariate": VARIANTS},
        },
    )
    users = {"control": "user of control", "test": "user of test"}
    sdk = project.sdk()
    for user in users.values():  # what a login keeps, it keeps for a person that is known
        sdk.set(distinct_id=user, properties={"plan": "pro"})
    sdk.flush()
    project.events(2, event="$set")
    while users:  # a stranger of each kind logs in
        tab = shop.visit()
        before = tab.flags()["same"]
        user = users.pop(before, None)
        if user is None:
            continue
        tab.run("(user) => posthog.identify(user)", user)
        tab.wait(ASKED_SINCE_LOGIN)
        assert tab.run("() => posthog.getFeatureFlag('same')") == before
        elsewhere = shop.visit()  # another device, another anonymous id
        elsewhere.flags()
        elsewhere.run("(user) => posthog.identify(user)", user)
        elsewhere.wait(ASKED_SINCE_LOGIN)
        elsewhere.wait("(value) => posthog.getFeatureFlag('same') === value", before)


def test_who_opts_out_is_left_alone(shop: Shop) -> None:
    project = shop.project
    tab = shop.visit(capture_pageview=False)
    tab.run("() => posthog.opt_out_capturing()")
    tab.run("() => posthog.capture('hidden')")
    tab.click("#buy")
    tab.run("() => posthog.opt_in_capturing()")
    tab.run("() => posthog.capture('shown')")
    project.events(1, event="shown")
    stored = {each["event"] for each in project.get("/events/")["results"]}
    assert not {"hidden", "$autocapture"} & stored


def test_robots_are_not_counted(shop: Shop) -> None:
    shop.project.flag("on")
    tab = shop.visit_as_robot()
    assert tab.flags() == {"on": True}
    tab.run("() => posthog.capture('from a robot')")
    assert tab.captured() == []
    shop.project.sdk().capture("from a person", distinct_id="ann")
    (only,) = shop.project.events(1)
    assert only["event"] == "from a person"


def test_without_configuration_it_captures_and_evaluates_all_the_same(shop: Shop, tap: Tap) -> None:
    project = shop.project
    project.flag("on")
    for path in ("config.js", "config"):
        gone = Fault(f"/array/{project.token}/{path}", times=9, status=404, headers=OPEN_TO_ALL)
        tap.inject(gone)

    def posts() -> list[Exchange]:
        return [each for each in tap.exchanges("/e/") if each.method == "POST"]

    def behind_an_event(answer: bytes) -> bytes:
        """In one body with the first event, which is compressed before it is known that there is no configuration,
        the second one would be compressed, too."""
        project.until(posts, 1)
        return answer

    tap.inject(Fault("/flags", change=behind_an_event))
    tab = shop.visit(host=tap.url, request_queue_config={"flush_interval_ms": 250})
    assert tab.flags() == {"on": True}
    tab.run("() => posthog.capture('bought')")
    assert_stored(project, tab.captured())
    assert posts()[-1].headers["content-type"] == "application/json"
    assert {each.status for each in tap.exchanges("/e/") if each.method == "OPTIONS"} == {200}
    flags = [each for each in tap.exchanges("/flags") if each.method == "POST"]
    assert "compression=base64" in flags[0].path
    assert flags[0].headers["content-type"] == "application/x-www-form-urlencoded"


def test_flags_that_cannot_be_had_leave_their_mark_on_exposures(shop: Shop, tap: Tap) -> None:
    shop.project.flag("on")
    tap.inject(Fault("/flags", times=9, status=500, headers=OPEN_TO_ALL))
    tab = shop.visit(host=tap.url)
    shop.project.until(lambda: [each for each in tap.exchanges("/flags") if each.method == "POST"][:1], 1)
    tab.run("() => new Promise((done) => posthog.onFeatureFlags(done))")
    tab.run("() => posthog.getFeatureFlag('on')")
    (exposure,) = shop.project.events(1, event="$feature_flag_called")
    assert "api_error_500" in exposure["properties"]["$feature_flag_error"]


def test_refused_and_lost_answers_do_not_double_events(shop: Shop, tap: Tap) -> None:
    project = shop.project
    project.flag("on")
    tab = shop.visit(host=tap.url, capture_pageview=False)
    tab.flags()
    tap.inject(Fault("/i/v0/e", times=1, status=503, headers=OPEN_TO_ALL | {"Retry-After": "1"}))
    tap.inject(Fault("/i/v0/e"))  # stored, but the SDK does not hear of it
    tab.run("() => posthog.capture('first')")
    project.until(lambda: [each for each in tap.exchanges("/i/v0/e") if each.status == 503], 1)
    tab.run("() => posthog.capture('second')")
    project.until(lambda: [each for each in tap.exchanges("/i/v0/e") if each.status == 0], 1)
    project.until(lambda: [each for each in tap.exchanges("/i/v0/e") if each.status == 200], 2)
    assert_stored(project, tab.captured())


def test_two_pages_of_one_browser_are_one_visitor(shop: Shop) -> None:
    first = shop.visit()
    second = shop.visit("/basket", like=first)
    assert first.run("() => posthog.get_distinct_id()") == second.run("() => posthog.get_distinct_id()")
    views = shop.project.events(2, event="$pageview")
    assert {each["properties"]["$pathname"] for each in views} == {"/", "/basket"}
    assert len({each["distinct_id"] for each in views}) == 1
    assert len({each["properties"]["$session_id"] for each in views}) == 1
