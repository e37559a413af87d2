"""What the page of an experiment says and offers in each state, and the rarer kinds of metrics."""

from __future__ import annotations

import random
import re
import time
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.ui import scenario
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.ui.scenario import event, exposure, metric, node
from tests.waiting import PATIENCE_S

from hoglab.statistics.numbers import effect_text, number_text

PANEL = 400
"""People who take part in all experiments of `STATES`."""
STATES = {
    # State: rates of the primary metric and of a guardrail in both groups, people planned, the button beside it.
    "running": ((0.2, 0.2), (0.3, 0.3), 10_000, None),
    "better": ((0.1, 0.4), (0.3, 0.3), PANEL, "Ship test …"),
    "worse": ((0.4, 0.1), (0.3, 0.3), PANEL, "End …"),
    "mixed": ((0.1, 0.4), (0.5, 0.2), PANEL, None),
    "inconclusive": ((0.2, 0.2), (0.3, 0.3), PANEL, "End …"),
}
MARKS = """
() => [...document.querySelectorAll("tr[data-variant=test]")].map((row) => ({
  tone: row.className, words: row.querySelector(".change").innerText,
}))
"""
KEEP_SAVED = """
() => {
  const make = URL.createObjectURL
  URL.createObjectURL = (blob) => {
    blob.text().then((text) => (window.saved = text))
    return make(blob)
  }
}
"""
ACTIONS = {
    "launch": "Launch",
    "pause": "Pause",
    "resume": "Resume",
    "freeze_exposure": "Close to new people",
    "unfreeze_exposure": "Open to new people",
    "end": "End",
    "ship_variant": "Ship",
    "archive": "Archive",
    "unarchive": "Bring back",
    "reset": "Reset to draft",
}
LIVES: dict[str, tuple[str, ...]] = {
    "draft": (),
    "running": ("launch",),
    "paused": ("launch", "pause"),
    "closed to new people": ("launch", "freeze_exposure"),
    "ended": ("launch", "end"),
    "archived": ("launch", "end", "archive"),
}
"""States of an experiment, and what leads to them."""


def path_of(experiment: dict[str, Any], **query: str) -> str:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return f"/p/1/experiments/{experiment['id']}{text and '?' + text}"


@pytest.fixture(scope="module")
def states(lab: Lab) -> dict[str, dict[str, Any]]:
    """An experiment for each state of a verdict."""
    rng, start, sent, made = random.Random(3), scenario.start(), [], {}
    for state, (primary, secondary, planned, _) in STATES.items():
        flag = f"verdict-{state}"
        made[state] = scenario.launch(
            lab.client,
            f"Verdict {state}",
            flag,
            (("control", 50), ("test", 50)),
            metrics=[metric("Bought", "funnel", series=[node(f"bought {state}")])],
            metrics_secondary=[
                metric("Came back", "funnel", series=[node(f"returned {state}")], role="guardrail")
            ],
            running_time_calculation={"recommended_sample_size": planned, "recommended_running_time": 5},
        )
        for number in range(PANEL):
            person, at = f"panel-{number}", start + timedelta(minutes=number * 10)
            sent.append(exposure(person, flag, ("control", "test")[number % 2], at))
            for name, rates in (("bought", primary), ("returned", secondary)):
                if rng.random() < rates[number % 2]:
                    sent.append(event(f"{name} {state}", person, at + timedelta(hours=1)))
    lab.client.send(sent)
    for experiment in made.values():
        scenario.settle(lab.client, experiment, PANEL)
    return made


@pytest.mark.parametrize("state", STATES)
def test_13_3_3_what_is_known_and_the_next_action(
    page: Page, lab: Lab, states: dict[str, dict[str, Any]], state: str
) -> None:
    verdict = lab.results(states[state])["verdict"]
    assert verdict["state"] == state
    page.show(path_of(states[state]), verdict["headline"])
    page.see(verdict["next_action"]["text"])
    card = page.run("() => document.querySelector('.verdict').className")
    assert state in card.split()
    buttons = page.run(
        "() => [...document.querySelectorAll('.verdict .button')].map((each) => each.innerText)"
    )
    wanted = STATES[state][3]
    assert buttons == ([] if wanted is None else [wanted])
    harm = "The test for harm is valid at any time: you may act on it now."
    page.see(harm if state == "worse" else "The method is valid for one look, at the planned end")
    bought, returned = page.run(MARKS)
    tones = {"better": ("better", "unclear"), "worse": ("worse", "unclear"), "mixed": ("better", "worse")}
    assert (bought["tone"], returned["tone"]) == tones.get(state, ("unclear", "unclear"))
    for row in (bought, returned):  # never by colour alone
        arrow = {"better": "▲", "worse": "▼", "unclear": ""}[row["tone"]]
        assert re.match(rf"{arrow}\s*({row['tone']}:)?\s*[+−0]", row["words"]), row
    # The button that stands out is the verdict's step.
    primary = page.run(
        "() => [...document.querySelectorAll('.button.primary')].map((each) => each.innerText)"
    )
    assert primary == ([] if wanted is None else ["Ship …" if "Ship" in wanted else "End …"])
    if wanted is not None:  # the step is a button, and its dialog does nothing by itself
        page.button(wanted)
        page.see("Release to everybody" if "Ship" in wanted else "people keep their variants")
        said = page.run("() => document.querySelector('dialog blockquote').innerText")
        assert verdict["headline"] in said
        if "Ship" in wanted:
            effects = page.run(
                "() => [...document.querySelectorAll('dialog .choice')].map((each) => each.innerText)"
            )
            assert "baseline" in effects[0]
            assert re.search(r"[+−][\d.]+%", bought["words"])[0] in effects[1]
        page.press("Escape")
        page.until("() => !document.querySelector('dialog')")
        assert lab.client.call("GET", f"experiments/{states[state]['id']}/")["status"] == "running"
    page.click("summary:has-text('Reasons')")
    for reason in verdict["reasons"]:
        page.see(reason["text"])


METHODS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "absolute, Bayesian": (
        {"method": "bayesian", "bayesian": {"ci_level": 0.9, "difference_type": "ABSOLUTE"}},
        ("Bayesian: ", "with 90% probability", "Changes are absolute"),
    ),
    "frequentist with a correction": (
        {"method": "frequentist", "frequentist": {"alpha": 0.01}, "multiple_testing_correction": "holm"},
        ("two-sided p-values and 99% intervals for a single look", "Changes are relative", "(Holm)"),
    ),
    "frequentist without one": (
        {"method": "frequentist"},
        ("95% intervals", "p-values are not corrected for the number of metrics."),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_13_3_7_method_level_difference_and_correction_are_named(page: Page, lab: Lab, name: str) -> None:
    config, said = METHODS[name]
    made = scenario.launch(
        lab.client,
        name,
        f"method-{len(name)}",
        (("control", 50), ("test", 50)),
        metrics=[metric("M", "mean", source=node("nothing of this"))],
        stats_config=config,
    )
    page.show(path_of(made), "Primary metrics")
    for text in said:
        page.see(text)


@pytest.fixture(scope="module")
def rare(lab: Lab) -> dict[str, Any]:
    """An experiment with CUPED, a breakdown, a quantile, and a metric of which nobody has enough."""
    spent = node("spent", math="sum", math_property="amount")
    made = scenario.launch(
        lab.client,
        "Adjusted",
        "adjusted",
        (("control", 50), ("test", 50)),
        metrics=[
            metric("Spent", "mean", source=spent)
            | {"breakdownFilter": {"breakdowns": [{"property": "plan", "type": "event"}]}},
            metric("Nobody does", "mean", source=node("nobody does")),
            metric("Median spent", "quantile", source=spent, quantile_level=0.5),
        ],
        stats_config={"method": "bayesian", "cuped": {"enabled": True, "lookback_days": 7}},
    )
    rng, start, sent = random.Random(5), scenario.start(), []
    for number in range(200):
        person, at = f"adjusted-{number}", start + timedelta(hours=2, minutes=number)
        usual = rng.lognormvariate(3, 0.4)
        properties = {"plan": ("free", "pro")[number % 3 == 0]}
        sent.append(event("spent", person, start - timedelta(days=2), {"amount": usual}))
        shown = exposure(person, "adjusted", ("control", "test")[number % 2], at)
        sent.append(shown | {"properties": {**shown["properties"], **properties}})
        amount = {"amount": usual * rng.uniform(0.9, 1.2), **properties}
        sent.append(event("spent", person, at + timedelta(hours=3), amount))
    lab.client.send(sent)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = lab.client.call("GET", f"experiments/{made['id']}/results/", refresh="true")
        exposed = sum(((found["exposures"] or {}).get("total_exposures") or {}).values())
        if found["status"] == "complete" and exposed == 200:
            return {**made, "results": lab.results(made)}
        assert time.monotonic() < deadline, found["pending"]
        time.sleep(0.2)


def test_13_3_5_cuped_breakdowns_quantiles_and_why_there_is_no_result(
    page: Page, rare: dict[str, Any]
) -> None:
    spent, nobody, median = rare["results"]["metrics"]
    opened = ",".join(each["uuid"] for each in (spent, nobody, median))
    page.show(path_of(rare, open=opened), "Breakdown")
    page.see("CUPED: effects are adjusted by people's earlier behaviour; values are as measured.")

    def table(metric: dict[str, Any], name: str) -> str:
        code = "([id, name]) => [...document.querySelectorAll(`[id='metric-${id}'] h3`)]"
        code += ".find((each) => each.innerText === name)?.parentElement.innerText"
        text: str = page.until(code, [metric["uuid"], name])
        return text.replace("−", "-")

    samples = table(spent, "Samples")
    assert "Before (CUPED)" in samples
    for row in (spent["result"]["baseline"], *spent["result"]["variant_results"]):
        assert row["covariate_sum"] > 0
        assert f"{row['covariate_sum']:.6g}" in samples.replace(",", "")
        assert f"{row['sum']:.6g}" in samples.replace(",", "")
    cells = table(spent, "Breakdown")
    assert {tuple(each["breakdown_value"]) for each in spent["result"]["breakdown_results"]} == {
        ("free",),
        ("pro",),
    }
    for cell in spent["result"]["breakdown_results"]:
        for row in cell["variants"]:
            assert number_text(row["number_of_samples"]) in cells
            for bound in row["credible_interval"] or ():
                assert effect_text(bound, relative=True) in cells
    assert "Fewer than 50 people." in cells  # of those on the rarer plan
    reason = "Baseline: its value is zero, so there is no relative change."
    assert nobody["result"]["baseline"]["validation_failures"] == ["baseline-mean-is-zero"]
    assert reason in page.run(
        "(id) => document.getElementById(id).querySelector('.why').innerText", nobody["uuid"]
    )
    assert f"test: {reason}" in table(nobody, "What it counts")
    page.see("The chart appears once two days have an interval; so far 0 days have one.")
    assert "Quantile" in table(median, "Samples")
    assert "50th percentile" in table(median, "What it counts")


def test_13_3_6_buttons_are_what_the_api_allows(page: Page, lab: Lab) -> None:
    """In each state: what is offered says beforehand what it does, and what is not offered the API refuses."""
    headers = {"Authorization": f"Bearer {lab.server.api_key}"}
    with httpx.Client(headers=headers, base_url=f"{lab.server.url}/api/projects/1/experiments/") as http:
        for state, steps in LIVES.items():
            body = {"name": f"Life {state}", "feature_flag_key": f"life-{state.replace(' ', '-')}"}
            body["metrics"] = [metric("M", "mean", source=node("m"))]
            made = lab.client.call("POST", "experiments/", body)
            for step in steps:
                lab.client.call("POST", f"experiments/{made['id']}/{step}/")
            page.show(path_of(made), f"Life {state}")
            page.until(
                "(state) => [...document.querySelectorAll('h1 .badge')].some((each) => each.textContent === state)",
                state,
            )
            shown = page.run(
                "() => [...document.querySelectorAll('.page-head .actions button')].map((each) => each.textContent)"
            )
            offered = {key for key, name in ACTIONS.items() if f"{name} …" in shown}
            assert "Duplicate …" in shown
            # Nothing is done by a refused action, so that all can be tried on one experiment.
            tried = {
                action: http.post(f"{made['id']}/{action}/", json={"variant_key": "test"}).status_code
                for action in sorted(ACTIONS.keys() - offered)
            }
            assert [action for action, status in tried.items() if not 400 <= status < 500] == [], state


def test_13_3_8_results_are_computed_anew_and_nobody_has_to_wait(page: Page, lab: Lab) -> None:
    page.show(path_of(lab.checkout), "Secondary metrics")
    page.see("Computed")
    before = len(page.requests("refresh=true"))
    page.button("Refresh")
    page.until("() => document.querySelector('.freshness').innerText.includes('Refresh')")
    page.asked("refresh=true", before + 1)
    page.see("Computed")


def test_13_3_10_results_as_a_table_and_on_paper(page: Page, lab: Lab) -> None:
    page.show(path_of(lab.lopsided), "Primary metrics")
    page.run(KEEP_SAVED)
    page.button("Download as CSV")
    lines = page.until("() => window.saved").splitlines()
    assert lines[0].startswith("metric,type,primary,variant,people,value")
    (row,) = lab.results(lab.lopsided)["metrics"][0]["result"]["variant_results"]
    cells = lines[2].split(",")
    assert cells[:5] == ["Bought", "funnel", "yes", "test", str(row["number_of_samples"])]
    assert [float(each) for each in cells[7:9]] == row["credible_interval"]
    assert cells[9:] == ["", ""]  # certainty is withheld here too
    page.tell("paper")
    hidden = "(name) => [...document.querySelectorAll(name)].every((each) => each.getBoundingClientRect().width === 0)"
    for name in (".side", ".actions", ".tabs", ".freshness .button"):
        assert page.run(hidden, name), name
    assert not page.run(hidden, "table.metrics")
