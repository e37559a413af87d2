"""The results of an experiment on the screen: its numbers, plots, verdict, details and buttons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

from tests.ui import scenario
from tests.ui.conftest import Lab
from tests.ui.page import Page
from tests.ui.scenario import metric, node
from tests.waiting import PATIENCE_S

from hoglab.statistics.numbers import effect_text, mean_text, number_text, percent_text

ROWS = """
() => [...document.querySelectorAll("table.metrics tbody")].flatMap((body) =>
  [...body.querySelectorAll("tr[data-variant]")].map((row) => {
    const text = (name) => row.querySelector(`td.${name}`)?.innerText.trim() ?? null
    return {
      metric: body.id, variant: row.dataset.variant, tone: row.className,
      people: text("people"), value: text("value"), change: text("change"), certainty: text("certainty"),
    }
  }))
"""
FORESTS = """
() => {
  const ticks = [...document.querySelectorAll("thead svg.forest text")].slice(0, 9)
    .map((text) => ({at: Number(text.getAttribute("x")), says: text.textContent}))
  return [...document.querySelectorAll("svg.forest[data-low]")].map((svg) => ({
    ticks,
    low: Number(svg.dataset.low), high: Number(svg.dataset.high), effect: Number(svg.dataset.effect),
    bar: svg.querySelector("rect.bar").getBoundingClientRect().toJSON(),
    dot: svg.querySelector("circle")?.getBoundingClientRect().toJSON() ?? null,
    zero: svg.querySelector("line.zero").getBoundingClientRect().toJSON(),
    left: svg.getBoundingClientRect().left, width: svg.getBoundingClientRect().width,
    arrows: svg.querySelectorAll("path.arrow").length,
    label: svg.getAttribute("aria-label"),
  }))
}
"""


def whole(lab: Lab, experiment: dict[str, Any]) -> dict[str, Any]:
    """The results, once nothing is being computed."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := lab.results(experiment))["status"] != "complete":
        assert time.monotonic() < deadline, found["pending"]
        time.sleep(0.1)
    return found


def path_of(experiment: dict[str, Any]) -> str:
    return f"/p/1/experiments/{experiment['id']}"


def value_of(metric: dict[str, Any], row: dict[str, Any]) -> float | None:
    divisor = row[
        "denominator_sum" if metric["metric_type"] in ("ratio", "retention") else "number_of_samples"
    ]
    return row["sum"] / divisor if divisor else None


def plain(text: str | None) -> str | None:
    """A number with a hyphen for the minus sign, and without the arrow before it."""
    return None if text is None else re.sub(r"^[▲▼]\s*((better|worse):)?\s*", "", text.replace("−", "-"))


def test_13_3_1_numbers_are_those_of_the_api(page: Page, lab: Lab) -> None:
    results = whole(lab, lab.checkout)
    page.show(path_of(lab.checkout), "Secondary metrics")
    expected = []
    for each in results["metrics"]:
        is_share = each["metric_type"] in ("funnel", "retention")
        rows = [each["result"]["baseline"], *each["result"]["variant_results"]]
        for row in rows:
            effect = row.get("point_estimate")
            expected.append(
                {
                    "metric": each["uuid"],
                    "variant": row["key"],
                    "people": number_text(row["number_of_samples"]),
                    "value": mean_text(value_of(each, row), is_share=is_share),
                    "change": "baseline" if effect is None else effect_text(effect, relative=True),
                    "certainty": None if effect is None else percent_text(row["chance_to_win"]),
                }
            )
    shown = [{**row, "change": plain(row["change"])} for row in page.run(ROWS)]
    assert [{key: row[key] for key in expected[0]} for row in shown] == expected
    assert len(shown) == 15


def test_13_3_1_numbers_are_those_of_the_terminal(page: Page, lab: Lab) -> None:
    whole(lab, lab.checkout)
    command = [sys.executable, "-m", "hoglab", "experiment", "results", str(lab.checkout["id"])]
    command += ["--host", lab.server.url, "--key", lab.server.api_key]
    environment = {**os.environ, "COLUMNS": "220"}
    said = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert said.returncode == 0, said.stdout + said.stderr
    page.show(path_of(lab.checkout), "Secondary metrics")
    lines = iter(said.stdout.replace("−", "-").splitlines())
    for row in page.run(ROWS):  # in the same order
        words = [row["people"], row["value"], plain(row["change"]), row["certainty"]]
        line = next(line for line in lines if re.match(rf"\s+{row['variant']}\s", line))
        assert all(word in line for word in words if word), (words, line)


def test_13_3_2_forest_positions(page: Page, lab: Lab) -> None:
    results = whole(lab, lab.checkout)
    page.show(path_of(lab.checkout), "Secondary metrics")
    shown = page.run(FORESTS)
    rows = [row for each in results["metrics"] for row in each["result"]["variant_results"]]
    assert len(shown) == len(rows) == 10
    named = [tick for tick in shown[0]["ticks"] if tick["says"].endswith("%")]
    one, other = named[0], named[-1]

    def said(tick: dict[str, Any]) -> float:
        return float(tick["says"].replace("−", "-").rstrip("%")) / 100

    per_pixel = (said(other) - said(one)) / (other["at"] - one["at"]) if said(other) != said(one) else 0.0
    if len(named) > 2 and named[2]["at"] < named[1]["at"]:  # the second table's ticks follow the first one's
        other = named[1]
        per_pixel = (said(other) - said(one)) / (other["at"] - one["at"])
    assert per_pixel > 0
    assert (
        len({(round(each["zero"]["left"] - each["left"], 2), each["width"]) for each in shown}) == 1
    )  # one axis
    for each, row in zip(shown, rows, strict=True):
        low, high = row["credible_interval"]

        def effect_at(x: float, shown: dict[str, Any] = each) -> float:
            return said(one) + (x - shown["left"] - one["at"]) * per_pixel

        zero = each["zero"]["left"] + each["zero"]["width"] / 2
        assert abs(effect_at(zero)) <= per_pixel
        if not each["arrows"]:
            assert abs(effect_at(each["bar"]["left"]) - low) <= per_pixel
            assert abs(effect_at(each["bar"]["right"]) - high) <= per_pixel
        if each["dot"]:
            middle = each["dot"]["left"] + each["dot"]["width"] / 2
            assert abs(effect_at(middle) - row["point_estimate"]) <= per_pixel
        assert effect_text(low, relative=True) in each["label"].replace("−", "-")


def test_13_3_3_nothing_wins_while_something_critical_stands(page: Page, lab: Lab) -> None:
    results = whole(lab, lab.lopsided)
    assert results["metrics"][0]["result"]["variant_results"][0]["significant"] is True
    page.show(path_of(lab.lopsided), "Do not decide.")
    page.see("withheld")
    rows = page.run(ROWS)
    assert {row["tone"] for row in rows} == {"unclear"}
    assert {row["certainty"] for row in rows} == {None, "withheld"}
    marks = page.run(
        "() => document.querySelectorAll('.forest.better, .forest.worse, .better, .worse').length"
    )
    assert marks == 0
    text = page.text()
    assert not re.search(r"[▲▼★*]|winner|does better", text)


def test_13_3_4_srm_warning(page: Page, lab: Lab) -> None:
    page.show(path_of(lab.lopsided), "The groups have the wrong sizes (p < 0.0001)")
    page.see("control: expected 5,000, seen 5,500; test: expected 5,000, seen 4,500.")
    page.see("Look for redirects")
    page.click("text=Show the problem")
    page.see("critical")
    assert page.address().endswith("?tab=health")


def test_13_3_5_an_opened_metric(page: Page, lab: Lab) -> None:
    results = whole(lab, lab.checkout)
    funnel, revenue = results["metrics"][:2]
    page.show(f"{path_of(lab.checkout)}?open={funnel['uuid']}", "Day by day")
    page.see("complete “saw basket”, then “entered address”, then “checkout completed”")
    page.until("() => document.querySelectorAll('svg path.line').length === 2")
    steps = page.until(
        "() => [...document.querySelectorAll('table.steps tbody tr')]"
        ".map((row) => [...row.querySelectorAll('td.number')].map((cell) => cell.innerText))"
    )
    baseline = funnel["result"]["baseline"]
    reached = [baseline["number_of_samples"], *baseline["step_counts"]]
    assert [row[0] for row in steps[::3]] == [number_text(count) for count in reached]
    assert [row[1] for row in steps[::3]] == [percent_text(count / reached[0]) for count in reached]
    assert [row[2] for row in steps[3::3]] == [
        percent_text(count / before) for before, count in pairwise(reached)
    ]
    page.press("ArrowLeft", "svg[tabindex]")
    page.until("() => document.querySelector('.reading strong')")
    page.press("Enter", f"button[aria-controls='metric-{revenue['uuid']}']")
    page.see("The sum of “amount” of “checkout completed”, per person.")
    assert revenue["uuid"] in page.address()
    samples = page.until(
        "(id) => document.querySelector(`[id='${id}'] table.samples tbody tr`)?.innerText",
        f"metric-{revenue['uuid']}",
    )
    assert number_text(revenue["result"]["baseline"]["number_of_samples"]) in samples


def test_13_3_6_buttons_by_state(page: Page, lab: Lab) -> None:
    made = lab.client.call(
        "POST",
        "experiments/",
        {
            "name": "Steps of a life",
            "feature_flag_key": "steps-of-a-life",
            "metrics": [metric("M", "mean", source=node("m"))],
        },
    )

    def state() -> dict[str, Any]:
        found: dict[str, Any] = lab.client.call("GET", f"experiments/{made['id']}/")
        return found

    def step(name: str, says: str, status: str) -> None:
        page.button(f"{name} …")
        page.see(says)
        page.click(f'dialog >> role=button[name="{name}"]')
        page.until("() => !document.querySelector('dialog')")
        deadline = time.monotonic() + PATIENCE_S
        while state()["status"] != status:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    page.show(path_of(made), "Not launched yet")
    step("Launch", "is switched on: people get their variants from now on.", "running")
    page.see("running")
    step("Pause", "is switched off", "paused")
    assert state()["feature_flag"]["active"] is False
    step("Resume", "is switched on again", "running")
    page.button("End …")
    page.see("people keep their variants until one is shipped")
    page.tell("choose", selector='dialog >> label:has-text("Conclusion") ~ select', text="Won")
    page.fill("dialog textarea", "Nobody came, but we like it")
    page.click('dialog >> role=button[name="End"]')
    page.see("Nothing: people keep the variants that they have.")
    page.see("Won: Nobody came, but we like it")
    assert (state()["conclusion"], state()["status"]) == ("won", "stopped")
    # 13.3.6: nothing is chosen beforehand, and the verdict is beside the choice.
    page.button("Ship …")
    page.see(lab.results(made)["verdict"]["headline"])
    assert page.run("() => document.querySelectorAll('dialog input:checked').length") == 0
    assert page.run("() => document.querySelector('dialog .button.danger').disabled")
    page.click('dialog label:has-text("test")')
    page.see("control 50%, test 50%")
    page.see("control 0%, test 100%")
    page.click('dialog >> role=button[name="Ship"]')
    page.until("() => !document.querySelector('dialog')")
    page.see("Shipped by")
    page.see("The decision differs from the verdict.")
    page.show(f"{path_of(made)}?tab=history", "shipped “test”")
    page.show(path_of(made), "Shipped by")
    shares = [
        each["rollout_percentage"] for each in state()["feature_flag"]["filters"]["multivariate"]["variants"]
    ]
    assert shares == [0, 100]
    page.button("Undo …")
    page.see("The flag gets the rules again that it had before")
    page.see("control 0%, test 100%")
    page.see("control 50%, test 50%")
    page.click('dialog >> role=button[name="Undo"]')
    page.see("The flag has been changed since.")
    restored = state()["feature_flag"]["filters"]["multivariate"]["variants"]
    assert [variant["rollout_percentage"] for variant in restored] == [50, 50]
    assert (state()["conclusion"], state()["status"]) == ("won", "stopped")
    step("Archive", "leaves the list", "stopped")
    page.see("archived")
    page.button("Bring back …")
    page.see("in the list again")
    page.press("Escape")
    assert state()["archived"] is True  # the default of a dialog is that nothing happens


def test_13_3_7_methods_are_named_and_a_goal_turns_colours_not_signs(page: Page, lab: Lab) -> None:
    source = node("bought")
    made = lab.client.call(
        "POST",
        "experiments/",
        {
            "name": "Less is better",
            "feature_flag_key": "less-is-better",
            "metrics": [metric("Bought less", "funnel", series=[source]) | {"goal": "decrease"}],
            "stats_config": {"method": "frequentist", "frequentist": {"sequential_testing_enabled": True}},
            "exposure_criteria": {
                "exposure_config": {
                    "kind": "ExperimentEventExposureConfig",
                    "event": "seen less",
                    "properties": [],
                }
            },
        },
    )
    lab.client.call("POST", f"experiments/{made['id']}/launch/")
    lab.client.call("PATCH", f"experiments/{made['id']}/", {"start_date": scenario.start().isoformat()})
    at = scenario.start()
    events = []
    for number in range(4_000):
        variant = ("control", "test")[number % 2]
        person = f"less-{number}"
        events.append(scenario.event("seen less", person, at, {"$feature/less-is-better": variant}))
        if number % 20 < (10 if variant == "test" else 4):
            events.append(scenario.event("bought", person, at.replace(hour=13)))
    lab.client.send(events)
    scenario.settle(lab.client, made, 4_000)
    page.show(
        path_of(made),
        "Frequentist, sequential: p-values and 95% intervals are valid at every look.",
    )
    page.see("The test for harm is valid at any time: you may act on it now.")
    page.see("Changes are relative")
    page.see("less is better")
    row = page.run(ROWS)[1]
    assert row["tone"] == "worse"
    assert re.fullmatch(r"▼\s*(worse:)?\s*\+[\d.]+%", row["change"])
