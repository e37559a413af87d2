"""The form of an experiment: it plans, keeps what is typed, shows faults at their fields, and changes safely."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.node_process import NodeProcess
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.ui.scenario import metric, node
from tests.waiting import PATIENCE_S, wait_for

CHOOSE = """
([label, value, last]) => {
  const nameOf = (each) => each.ariaLabel || each.labels[0]?.innerText.split("\\n")[0]
  const found = [...document.querySelectorAll("select")].filter((each) => nameOf(each) === label)
  const select = last ? found.at(-1) : found[0]
  select.value = value
  select.dispatchEvent(new Event("change", {bubbles: true}))
  return select.value === value
}
"""
"""Choose in the first or the last of the selects of a label."""
LAST_FIELD = """
([label, text]) => {
  const nameOf = (each) => each.ariaLabel || each.labels[0]?.innerText
  const found = [...document.querySelectorAll("input")].filter((each) => nameOf(each) === label)
  const input = found.at(-1)
  input.value = text
  input.dispatchEvent(new Event("input", {bubbles: true}))
  return true
}
"""
STOP = """
() => {
  const bar = document.querySelector(".save-bar").getBoundingClientRect()
  const at = document.activeElement
  const hidden = !at.closest(".save-bar") && at.closest(".flag-main") && at.getBoundingClientRect().bottom > bar.top + 1
  return {name: (at.ariaLabel || at.innerText || "").trim(), hidden: Boolean(hidden)}
}
"""
"""What has the focus, and whether the bar to save hides it."""
MOST_STOPS = 60
PLAN = "() => document.querySelector('.plan:not(.old) .plan-length')?.innerText"
SUMMARY = "() => document.querySelector('aside').innerText"
KEYS = "(text) => [...document.querySelectorAll('input')].some((each) => each.value === text)"


def begin(page: Page) -> None:
    """Open a form that nothing is typed into."""
    page.show("/p/1/experiments", "New experiment")
    page.run("() => sessionStorage.clear()")
    page.click('main a:has-text("New experiment")')
    page.see("What and why")


def field(page: Page, name: str, text: str) -> None:
    page.fill(f'role=textbox[name="{name}"] >> nth=0', text)


def last_field(page: Page, name: str, text: str) -> None:
    assert page.run(LAST_FIELD, [name, text])


def choose(page: Page, label: str, value: str, *, last: bool = False) -> None:
    assert page.run(CHOOSE, [label, value, last]), (label, value)


def summary(page: Page, text: str) -> None:
    page.until(f"(text) => ({SUMMARY})().replaceAll('\\n', ' ').includes(text)", text)


def add_conversion(page: Page, event: str = "checkout completed") -> None:
    page.button("Add a primary metric")
    last_field(page, "Step 1: event", event)


def saved(lab: Lab, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.client.call("GET", "experiments/", search=name)["results"]
    return found


def draft(lab: Lab, name: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "feature_flag_key": name.lower().replace(" ", "-"), **fields}
    made: dict[str, Any] = lab.client.call("POST", "experiments/", body)
    return made


def stored(lab: Lab, made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = lab.client.call("GET", f"experiments/{made['id']}/")
    return found


def test_13_4_1_the_form_is_reached_from_list_palette_and_a_project_without_experiments(
    page: Page, lab: Lab
) -> None:
    begin(page)
    page.show("/p/1/experiments", "Lopsided")
    page.palette()
    page.tell("type", text="new exp")
    page.until("() => document.querySelector('[role=option]')?.innerText.includes('New experiment')")
    page.press("Enter")
    page.see("What and why")
    other = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "Without experiments"})
    page.show(f"/p/{other['id']}/experiments", "No experiments yet")
    page.click('a:has-text("Plan the first experiment")')
    page.see("What and why")


def test_13_4_1_one_page_with_a_live_summary_loses_nothing_on_reload(page: Page, lab: Lab) -> None:
    begin(page)
    field(page, "Name", "Express payment, again")
    page.until(KEYS, "express-payment-again")
    summary(page, "Everyone who reaches code that asks for “express-payment-again” gets “control” 50%")
    summary(page, "No primary metric decides it.")
    page.button("Add a variant")
    summary(page, "“control” 33.34%, “test” 33.33% or “test-2” 33.33%")
    field(page, "Share of people who may take part, in percent", "40")
    page.button("Add a condition")
    page.fill('[aria-label="Property"]', "plan")
    page.fill('[aria-label="Value"]', "pro")
    summary(
        page,
        "40% of the people who reach code that asks for “express-payment-again”, where the person's plan is pro,",
    )
    add_conversion(page)
    summary(page, "A variant ships when it does better than “control” in “Conversion to checkout completed”.")
    page.click("text=Decide at any time")
    page.tell("reload")
    page.see("This is what you had not saved yet.")
    summary(page, "40% of the people who reach code")
    summary(page, "“test-2” 33.33%")
    summary(page, "Its verdict may be acted on at any time")
    page.button("Start over")
    summary(page, "Everyone who reaches code that asks for “…”")
    page.tell("reload")
    page.see("What and why")
    assert "had not saved" not in page.text()


def test_13_4_1_a_key_is_checked_while_typing_and_an_eligible_flag_can_be_taken_over(
    page: Page, lab: Lab
) -> None:
    variants = [{"key": key, "rollout_percentage": share} for key, share in (("old", 20), ("new", 80))]
    flag = lab.client.call(
        "POST",
        "feature_flags/",
        {
            "key": "taken-over",
            "filters": {"groups": [{"rollout_percentage": 60}], "multivariate": {"variants": variants}},
        },
    )
    begin(page)
    field(page, "Name", "Taken over")
    page.see("There is a flag of this key already.")
    choose(page, "Flag", "taken-over")
    summary(
        page,
        "People whom the flag reaches and who reach code that asks for “taken-over” get “old” 20% or “new” 80%.",
    )
    page.see("The flag stays as it is: 60% of everybody")
    page.button("Save draft")
    page.see("Not launched yet")
    (made,) = saved(lab, "Taken over")
    assert made["feature_flag"]["id"] == flag["id"]
    assert made["feature_flag"]["version"] == flag["version"]


def test_13_4_2_every_kind_of_metric_with_how_often_its_events_came(page: Page, lab: Lab) -> None:
    begin(page)
    field(page, "Name", "All kinds")
    add_conversion(page, "saw basket")
    page.button("Add a step")
    last_field(page, "Step 2: event", "checkout completed")
    query = (
        "select count() as events, uniq(person_id) as people from events "
        "where event = 'saw basket' and timestamp > now() - interval 30 day"
    )
    answer = lab.client.call("POST", "query/", {"query": {"kind": "HogQLQuery", "query": query}})
    ((events, people),) = answer["results"]
    page.see(f"last 30 days: {events:,} events by {people:,} people")
    last_field(page, "Window", "3")
    page.button("Add a filter to step 2")
    page.fill('[aria-label="Property"]', "amount")
    choose(page, "Operator", "gt")
    page.fill('[aria-label="Value"]', "30")
    page.see("events with this filter")
    page.until("() => document.querySelector('datalist option[value=amount]')")
    page.button("Done with Conversion to checkout completed")
    page.see("then “checkout completed”. It counts within 3 days of the exposure. More is better.")

    page.button("Add a metric")
    choose(page, "Kind", "mean", last=True)
    choose(page, "Role", "guardrail", last=True)
    choose(page, "Better is", "decrease", last=True)
    last_field(page, "Counts: event", "ticket opened")
    last_field(page, "Loss that is allowed, in percent", "2.5")

    page.button("Add a metric")
    choose(page, "Kind", "ratio", last=True)
    last_field(page, "Total of: event", "checkout completed")
    choose(page, "Total of: what counts", "sum", last=True)
    last_field(page, "Total of: property", "amount")
    last_field(page, "Divided by: event", "checkout completed")
    last_field(page, "Upper percentile", "99")

    page.button("Add a metric")
    choose(page, "Kind", "retention", last=True)
    last_field(page, "Starts with: event", "saw basket")
    last_field(page, "Comes back with: event", "came back")
    last_field(page, "From", "2")

    page.button("Add a metric")
    choose(page, "Kind", "quantile", last=True)
    last_field(page, "Counts: event", "checkout completed")
    choose(page, "Counts: what counts", "avg", last=True)
    last_field(page, "Counts: property", "amount")
    last_field(page, "Percentile", "95")
    last_field(page, "Name", "Large orders")
    assert page.axe() == []
    page.button("Save draft")
    page.see("Not launched yet")
    (made,) = saved(lab, "All kinds")
    conversion = made["metrics"][0]
    assert [step["event"] for step in conversion["series"]] == ["saw basket", "checkout completed"]
    assert conversion["series"][1]["properties"] == [
        {"type": "event", "key": "amount", "operator": "gt", "value": "30"}
    ]
    assert (conversion["conversion_window"], conversion["conversion_window_unit"]) == (3, "day")
    tickets, order, back, large = made["metrics_secondary"]
    assert (tickets["metric_type"], tickets["role"], tickets["margin"], tickets["goal"]) == (
        "mean",
        "guardrail",
        0.025,
        "decrease",
    )
    assert order["numerator"]["math_property"] == "amount"
    assert order["numerator_outlier_handling"] == {"upper_bound_percentile": 0.99}
    assert (back["retention_window_start"], back["completion_event"]["event"]) == (2, "came back")
    assert (large["quantile_level"], large["name"]) == (0.95, "Large orders")


def test_13_4_2_shared_metrics_and_actions_can_be_picked(page: Page, lab: Lab) -> None:
    query = metric("Baskets", "mean", source=node("saw basket"))
    shared = lab.client.call("POST", "experiment_saved_metrics/", {"name": "Baskets", "query": query})
    action = lab.client.call("POST", "actions/", {"name": "Paid", "steps": [{"event": "checkout completed"}]})
    begin(page)
    field(page, "Name", "Picked")
    page.until("() => document.querySelector('[aria-label=\"Add a shared metric\"]')")
    choose(page, "Add a shared metric", str(shared["id"]))
    page.see("The number of “saw basket”, per person.")
    page.button("Add a metric")
    choose(page, "Step 1: kind", "ActionsNode")
    page.until("() => document.querySelector('[aria-label=\"Step 1: action\"]')")
    choose(page, "Step 1: action", str(action["id"]))
    page.button("Save draft")
    page.see("Not launched yet")
    (made,) = saved(lab, "Picked")
    assert [(link["saved_metric"], link["metadata"]) for link in made["saved_metrics"]] == [
        (shared["id"], {"type": "primary"})
    ]
    assert made["metrics_secondary"][0]["series"][0]["id"] == action["id"]


def test_13_4_3_the_plan_is_that_of_the_planner_and_is_saved(page: Page, lab: Lab) -> None:
    begin(page)
    field(page, "Name", "Planned")
    page.see("Complete a primary metric first")
    add_conversion(page)
    field(page, "Smallest effect worth knowing, in percent", "20")
    described = {
        "parameters": {
            "feature_flag_variants": [{"key": key, "split_percent": 50} for key in ("control", "test")]
        },
        "stats_config": {"method": "frequentist"},
    }
    asked = {
        "kind": "ExperimentPlanQuery",
        "metric": metric("m", "funnel", series=[node("checkout completed")]),
        "experiment": described,
        "effects": [0.2],
        "history_days": 28,
    }
    answer = lab.client.call("POST", "query/", {"query": asked})
    (needed,) = answer["effects"]
    page.until(f"(text) => ({PLAN})()?.includes(text)", f"{needed['people']:,} people")
    page.see(f"from {answer['history']['mean']:.2%} to {answer['history']['mean'] * 1.2:.2%}")
    page.until("() => document.querySelector('svg circle.chosen')")
    weeks = max(1, -(-needed["days"] // 7)) * 7
    summary(page, f"Its verdict comes after {weeks} days and {needed['people']:,} people.")
    page.button("Save draft")
    page.see("Not launched yet")
    (made,) = saved(lab, "Planned")
    assert made["running_time_calculation"] == {
        "minimum_detectable_effect": 20,
        "recommended_running_time": weeks,
        "recommended_sample_size": needed["people"],
    }


def test_13_4_3_a_plan_that_takes_too_long_has_levers(page: Page, lab: Lab) -> None:
    begin(page)
    field(page, "Name", "Too long")
    page.button("Add a variant")
    add_conversion(page)
    field(page, "Smallest effect worth knowing, in percent", "5")
    page.see("What makes it shorter")
    page.until("() => document.querySelectorAll('.levers strong').length >= 2")
    before = page.until(PLAN)
    page.button("Do this: Compare test alone with control")
    page.until(f"(text) => ({PLAN})() !== undefined && ({PLAN})() !== text", before)
    summary(page, "“control” 50% or “test” 50%")


def test_13_4_3_without_a_history_the_calculator_plans(page: Page, lab: Lab) -> None:
    begin(page)
    field(page, "Name", "Nothing before")
    add_conversion(page, "never seen before")
    page.see("no event of this name")
    page.see("There is no history to plan from.")
    field(page, "Conversion to never seen before now, in percent", "12")
    field(page, "New people a day", "500")
    body = {
        "metric_type": "funnel",
        "minimum_detectable_effect": 10,
        "baseline_value": 0.12,
        "exposure_rate_per_day": 500,
    }
    answer = lab.client.call("POST", "experiments/calculate_running_time/", body)
    page.see(
        f"{answer['recommended_running_time_days']} days with {answer['recommended_sample_size']:,} people"
    )


def test_13_4_4_faults_stand_at_their_fields(page: Page, lab: Lab) -> None:
    begin(page)
    page.button("Save draft")
    page.see("This cannot be saved yet. Give the experiment a name. Give the flag a key.")
    field(page, "Name", "Faulty")
    field(page, "Share of variant 1 in percent", "60")
    page.see("The shares sum to 110%. They must sum to 100%.")
    page.button("Equal shares")
    page.button("Add a primary metric")
    page.see("Name the event of each step.")
    choose(page, "Kind", "mean")
    last_field(page, "Counts: event", "checkout completed")
    choose(page, "Counts: what counts", "hogql")
    last_field(page, "Counts: expression", "sum(")
    page.button("Save draft")
    page.until("() => document.querySelector('.metric-draft > .fault')?.innerText.length > 20")
    assert page.axe() == []
    assert saved(lab, "Faulty") == []
    page.show("/p/1/experiments", "New experiment")  # the form asks for its plan a moment after each change
    page.begin()  # the refusals were asked for


def test_13_4_4_saving_twice_makes_one_experiment(page: Page, lab: Lab) -> None:
    begin(page)
    field(page, "Name", "Only once")
    page.run(
        "() => { const save = [...document.querySelectorAll('button')].find((each) => each.innerText === 'Save draft');"
        " save.click(); save.click() }"
    )
    page.see("Not launched yet")
    assert len(saved(lab, "Only once")) == 1


def test_a_draft_is_changed_and_nothing_of_others_is_overwritten(page: Page, lab: Lab) -> None:
    made = draft(lab, "To change", metrics=[metric("Bought", "funnel", series=[node("checkout completed")])])
    page.show(f"/p/1/experiments/{made['id']}", "Not launched yet")
    page.click('a:has-text("Edit")')
    page.see("Bought")
    field(page, "Hypothesis", "It helps.")
    page.button("Add a condition")
    page.fill('[aria-label="Property"]', "plan")
    page.fill('[aria-label="Value"]', "pro")
    lab.client.call("PATCH", f"experiments/{made['id']}/", {"name": "Changed by somebody"})
    page.button("Save draft")
    page.see("Somebody else changed this experiment meanwhile")
    page.see("Changed by somebody")
    assert stored(lab, made)["description"] in (None, "")
    page.button("Keep my edits and compare again")
    page.begin()  # the refusal was asked for
    page.button("Save draft")
    page.see("Not launched yet")
    found = stored(lab, made)
    assert (found["name"], found["description"]) == ("To change", "It helps.")
    (group,) = found["feature_flag"]["filters"]["groups"]
    assert [(each["key"], each["value"]) for each in group["properties"]] == [("plan", ["pro"])]


def test_changes_of_a_running_experiment_say_what_they_mean(page: Page, lab: Lab) -> None:
    made = draft(
        lab,
        "Running to change",
        parameters={"rollout_percentage": 20},
        metrics=[metric("Bought", "funnel", series=[node("checkout completed")])],
    )
    lab.client.call("POST", f"experiments/{made['id']}/launch/")
    page.show(f"/p/1/experiments/{made['id']}/edit", "Bought")
    page.see("Variants stay as they are while people have them")
    assert page.run("() => document.querySelector('[aria-label=\"Key of variant 1\"]').disabled")
    field(page, "Share of people who may take part, in percent", "50")
    field(page, "Share of variant 1 in percent", "40")
    field(page, "Share of variant 2 in percent", "60")
    page.click("text=Decide at any time")
    page.button("Review and save …")
    page.see("A new split begins a new phase")
    page.see("Amends the plan")
    page.see("People keep their variants, and results stay comparable.")
    assert page.axe() == []
    page.click('dialog >> role=button[name="Save"]')
    page.see("Saved Running to change.")
    found = stored(lab, made)
    assert found["parameters"]["rollout_percentage"] == 50
    assert [each["split_percent"] for each in found["parameters"]["feature_flag_variants"]] == [40, 60]
    assert found["stats_config"]["frequentist"]["sequential_testing_enabled"] is True


@pytest.mark.clients
def test_13_4_an_experiment_is_planned_launched_read_and_shipped(page: Page, lab: Lab) -> None:
    """The whole way of a stranger: everything in the browser, but what the users of the product do by an SDK."""
    from posthog import Posthog

    begin(page)
    field(page, "Name", "Whole way")
    field(page, "Hypothesis", "Fewer fields bring more people to payment.")
    add_conversion(page)
    field(page, "Smallest effect worth knowing, in percent", "30")
    page.until(PLAN)
    page.button("Save and launch …")
    page.see("No running experiment shares the flag.")
    page.see("It is decided by “Conversion to checkout completed”.")
    page.see("No code has asked for the flag yet")
    assert page.axe() == []
    page.click('dialog >> role=button[name="Launch"]')
    page.see("Launch: done.")
    (made,) = saved(lab, "Whole way")
    assert made["status"] == "running"

    sdk = Posthog(lab.client.token, host=lab.server.url)
    got: dict[str, int] = {}
    for number in range(80):
        person = f"whole-way-{number}"
        flags = sdk.evaluate_flags(person)
        variant = str(flags.get_flag("whole-way"))
        got[variant] = got.get(variant, 0) + 1
        if variant == "test" or number % 4 == 0:
            sdk.capture("checkout completed", distinct_id=person, properties={"amount": 30}, flags=flags)
    sdk.shutdown()
    assert set(got) == {"control", "test"}

    def counted() -> bool:
        found = lab.client.call("GET", f"experiments/{made['id']}/results/", refresh="true")
        totals = (found["exposures"] or {}).get("total_exposures") or {}
        rows = [
            row["number_of_samples"]
            for each in found["metrics"]
            if each["result"]
            for row in (each["result"]["baseline"], *each["result"]["variant_results"])
        ]
        return dict(totals) == got and sum(rows) == 80

    wait_for(counted, PATIENCE_S)
    page.show(f"/p/1/experiments/{made['id']}", "Conversion to checkout completed")
    page.see(f"{got['test']}")
    page.click("summary:has-text('More')")
    page.button("Ship …")
    page.click("dialog >> input[type=radio] >> nth=1")
    page.click('dialog >> role=button[name="Ship"]')
    page.see("Shipped by")
    found = stored(lab, made)
    shares = {
        each["key"]: each["rollout_percentage"]
        for each in found["feature_flag"]["filters"]["multivariate"]["variants"]
    }
    assert sorted(shares.values()) == [0, 100]
    assert found["end_date"] is not None


def test_13_9_1_the_form_by_keyboard_alone(page: Page, lab: Lab) -> None:
    begin(page)
    page.press("Tab", 'role=textbox[name="Name"]')
    page.press("Shift+Tab")
    page.tell("type", text="By keyboard")
    page.until(KEYS, "by-keyboard")
    for _ in range(MOST_STOPS):
        page.press("Tab")
        stop = page.run(STOP)
        assert not stop["hidden"], stop
        if stop["name"] == "Save draft":
            break
    assert stop["name"] == "Save draft"
    page.press("Enter")
    page.see("Not launched yet")
    assert len(saved(lab, "By keyboard")) == 1


def test_a_key_without_the_scope_cannot_save(lab: Lab, browser: NodeProcess) -> None:
    key = lab.client.call(
        "POST",
        "/api/personal_api_keys/",
        {"label": "reads only", "scopes": ["experiment:read", "query:read"]},
    )
    page = Page(browser, lab.server.url, "/login")
    page.log_in(key["value"])
    page.show("/p/1/experiments/new", "What and why")
    page.see("it lacks the scope experiment:write")
    page.end()
