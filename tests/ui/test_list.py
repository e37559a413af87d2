"""The list of experiments: its figures, orders, filters and warnings, and how it stands a thousand."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.ui import scenario
from tests.ui.conftest import PEOPLE, Lab
from tests.ui.page import Page
from tests.waiting import PATIENCE_S

from hoglab.statistics.numbers import effect_text, number_text, percent_text

NAMES = "() => [...document.querySelectorAll('tbody [data-row]')].map((each) => each.innerText)"
LINE = """
(name) => [...document.querySelectorAll("tbody tr")].map((row) => row.innerText)
  .find((text) => text.includes(name) && text.includes("%"))
"""
SAYS = """
([name, words]) => [...document.querySelectorAll("tbody tr")].map((row) => row.innerText)
  .some((text) => text.includes(name) && text.includes(words))
"""
ORDERED = """
(names) => {
  const shown = [...document.querySelectorAll("tbody [data-row]")].map((each) => each.innerText)
  return JSON.stringify(shown.filter((each) => names.includes(each))) === JSON.stringify(names)
}
"""
FOREST = """
() => {
  const rows = [...document.querySelectorAll("tbody tr")]
  const svg = rows.find((row) => row.innerText.includes("One-page")).querySelector("svg")
  return [svg.dataset.low, svg.dataset.high, svg.querySelectorAll(".zero").length]
}
"""
WORDS = {"keep_running": "Too early", "write_plan": "Nobody said how long"}
MANY = 1_000
COPY = """
INSERT INTO experiment ({columns})
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
SELECT {values} FROM experiment, numbers WHERE experiment.id = ?
"""


def best_of(lab: Lab, experiment: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """The largest effect on the first primary metric, and whose it is."""
    rows = lab.results(experiment)["metrics"][0]["result"]["variant_results"]
    return max(((row["point_estimate"], row) for row in rows), key=lambda found: found[0])


def test_13_2_1_figures_are_those_of_the_api(page: Page, lab: Lab) -> None:
    before = len(page.requests("results_summary"))
    page.show("/p/1/experiments", "Lopsided")
    effect, best = best_of(lab, lab.checkout)
    code = lab.results(lab.checkout)["verdict"]["next_action"]["code"]
    page.until(SAYS, ["One-page checkout", WORDS[code]])
    line = page.until(LINE, "One-page checkout").replace("−", "-")
    age = datetime.now(UTC) - datetime.fromisoformat(lab.checkout["start_date"])
    # A whole day may have ended since the page was drawn.
    assert any(f"\t{days} days\t" in line for days in {age.days, (age - timedelta(minutes=1)).days})
    for text in (
        "running",
        "one-page-checkout",
        number_text(PEOPLE),
        effect_text(effect, relative=True),
        best["key"],
        percent_text(best["chance_to_win"]),
    ):
        assert text in line
    low, high, zero = page.run(FOREST)
    assert [float(low), float(high)] == best["credible_interval"]
    assert zero == 1
    # 13.2.4: what endangers an experiment is said in its row, where nothing is certain then; nothing is marked here.
    page.until(SAYS, ["Lopsided", "Groups not comparable"])
    lopsided = page.until(LINE, "Lopsided")
    assert "withheld" in lopsided
    assert re.search(r"Needs you\s+Groups not comparable", lopsided)
    assert "Groups not comparable" not in line
    assert "best of 2: " in line
    assert page.run("() => document.querySelectorAll('.better, .worse').length") == 0
    # What is not known yet is asked for again, always of all rows at once.
    asked = [each["url"] for each in page.requests("results_summary")[before:]]
    assert len(set(asked)) == 1
    assert len([each for each in page.requests("/results/") if "/experiments/" in each["url"]]) == 0


def test_13_2_1_every_column_sorts_both_ways(page: Page, lab: Lab) -> None:
    page.show("/p/1/experiments", "Lopsided")
    experiments = lab.client.call("GET", "experiments/")["results"]
    (first, second), others = (lab.checkout["name"], lab.lopsided["name"]), len(experiments) - 2
    names = sorted([each["name"].replace("\u202e", "\\u202e") for each in experiments], key=str.lower)
    by_effect = (
        [first, second] if best_of(lab, lab.checkout) > best_of(lab, lab.lopsided) else [second, first]
    )
    # In which order the two are after the first click, and after the second; None: that is another's business.
    expected = {
        "Name": ([second, first], [first, second]),
        "Status": None,
        "Age": None,
        "People": ([second, first], [first, second]),
        "Verdict": None,
        "First primary metric": (by_effect, by_effect[::-1]),
        "Certainty": ([first, second], [first, second]),  # what is withheld is last, whatever the direction
        "Created by": None,
    }
    texts = "() => [...document.querySelectorAll('thead button')].map((each) => each.innerText)"
    assert page.run(texts) == list(expected)
    for column, orders in expected.items():
        largest_first = column in ("Age", "People", "Verdict", "First primary metric", "Certainty")
        for at, arrow in enumerate("↓↑" if largest_first else "↑↓"):
            page.click(f'thead button:has-text("{column}")')
            page.see(f"{column} {arrow}")
            page.until("(count) => document.querySelectorAll('tbody tr').length === count", others + 2)
            if orders is not None:
                page.until(ORDERED, orders[at])
        if column == "Name":
            assert page.run(NAMES) == names[::-1]
            assert page.address().endswith("order=-name")


def test_13_2_1_filters_are_in_the_address(page: Page, lab: Lab) -> None:
    page.show("/p/1/experiments", "Lopsided")
    page.fill("input[type=search]", "lops")
    page.gone("One-page checkout")
    assert "search=lops" in page.address()
    page.tell("reload")
    page.see("Lopsided")
    page.gone("One-page checkout")
    page.fill("input[type=search]", "")
    page.see("One-page checkout")
    for label, choice, part in (
        ("Status", "Ended", "status=stopped"),
        ("Status", "Any", ""),
        ("Archive", "Archived", "archived=true"),
        ("Archive", "Not archived", ""),
    ):
        page.tell("choose", selector=f'label:has-text("{label}") select', text=choice)
        (page.gone if part else page.see)("One-page checkout")
        assert part in page.address()
    page.tell("choose", selector='label:has-text("Created by") select', text="Me")
    page.see("One-page checkout")
    assert "by=me" in page.address()


@pytest.fixture
def many(lab: Lab) -> dict[str, Any]:
    """A project with a thousand experiments of one flag, every tenth of somebody else."""
    project: dict[str, Any] = lab.client.call(
        "POST", "/api/organizations/@current/projects/", {"name": "Many"}
    )
    client = scenario.Client(lab.server.url, lab.server.api_key, project["api_token"], project["id"])
    source = scenario.metric("M", "mean", source=scenario.node("m"))
    body = {"name": "Trial 0", "feature_flag_key": "many", "metrics": [source]}
    first = client.call("POST", "experiments/", body)
    client.close()
    with closing(sqlite3.connect(lab.server.data / "hoglab.db", timeout=PATIENCE_S)) as database, database:
        other = database.execute(
            "INSERT INTO user (uuid, distinct_id, email, first_name, created_at) VALUES (?, ?, ?, ?, 0)",
            ("0" * 36, "other", "other@example.com", "Somebody else"),
        ).lastrowid
        columns = [row[1] for row in database.execute("PRAGMA table_info(experiment)") if row[1] != "id"]
        own = {
            "name": "'Trial ' || n",
            "created_by_id": f"CASE WHEN n % 10 = 0 THEN {other} ELSE created_by_id END",
            "created_at": "created_at + n",
        }
        values = ", ".join(own.get(each, each) for each in columns)
        database.execute(COPY.format(columns=", ".join(columns), values=values), (MANY - 1, first["id"]))
    return project


def test_13_2_2_a_thousand_experiments(page: Page, lab: Lab, many: dict[str, Any]) -> None:
    own = f"/api/projects/{many['id']}/experiments/"
    page.show("/p/1/experiments", "Lopsided")
    for attempt in range(3):
        before = len(page.requests(own))
        page.show(f"/p/{many['id']}/experiments?status={'' if attempt else 'draft'}", "Trial 999")
        page.see("1,000 experiments")
        page.see("no result yet")  # what is stored of the rows has come, too
        asked = [each["url"] for each in page.requests(own)[before:]]
        assert len(asked) <= 2, asked
    assert page.run("() => document.querySelectorAll('tbody tr').length") <= 60
    # Sorted by what only results know, in so few requests as there are hundreds.
    before = len(page.requests("results_summary"))
    page.click('thead button:has-text("People")')
    page.see("People ↓")
    page.until("() => !document.querySelector('.skeleton')")
    page.see("1,000 experiments")
    assert len(page.requests("results_summary")) - before <= MANY / 100
    # Who made them can be chosen once they were seen.
    page.tell("choose", selector='label:has-text("Created by") select', text="Somebody else")
    page.see("99 experiments")
    page.click('thead button:has-text("Name")')
    page.see("Name ↑")
    page.until("() => document.querySelector('tbody [data-row]').innerText === 'Trial 10'")


def test_13_2_2_a_summary_is_of_few_experiments_that_are_there(lab: Lab) -> None:
    headers = {"Authorization": f"Bearer {lab.server.api_key}"}
    url = f"{lab.server.url}/api/projects/1/experiments/results_summary/"
    first, second = lab.checkout["id"], lab.lopsided["id"]
    with httpx.Client(headers=headers) as http:
        found = http.get(url, params={"ids": f"{second},999999,{first}"}).json()
        assert [each["experiment_id"] for each in found] == [second, first]
        assert [each["withholds_decisions"] for each in found] == [True, False]
        for ids in ("", "x", "1,,2", "-1", ",".join(map(str, range(1, 102)))):
            refused = http.get(url, params={"ids": ids})
            assert (refused.status_code, refused.json()["attr"]) == (400, "ids"), ids
        other = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "Other"})
        elsewhere = url.replace("/projects/1/", f"/projects/{other['id']}/")
        assert http.get(elsewhere, params={"ids": str(first)}).json() == []


def test_13_2_3_nothing_yet_says_what_would_be_here(page: Page, lab: Lab) -> None:
    made = lab.client.call("POST", "/api/organizations/@current/projects/", {"name": "Empty"})
    page.show(f"/p/{made['id']}/experiments", "No experiments yet")
    page.see("An experiment shows people different variants")
    page.see("curl")
    page.see("feature_flag_key")


def test_13_2_4_a_list_shows_people_who_came_after_the_last_count(page: Page, lab: Lab) -> None:
    """Nobody has opened the page of the experiment, whose stored result has nobody."""
    body = {"name": "Just begun", "feature_flag_key": "just-begun", "metrics": []}
    body["metrics"] = [scenario.metric("M", "mean", source=scenario.node("m"))]
    made = lab.client.call("POST", "experiments/", body)
    lab.client.call("POST", f"experiments/{made['id']}/launch/")
    now = datetime.now(UTC)
    exposures = [
        scenario.exposure(f"new-{number}", "just-begun", ("control", "test")[number % 2], now)
        for number in range(300)
    ]
    lab.client.send([*exposures, scenario.event("m", "new-0", now)])
    lab.client.settled("m")
    page.show("/p/1/experiments", "Just begun")
    row = "() => [...document.querySelectorAll('tbody tr')].map((each) => each.innerText)"
    row += ".find((text) => text.includes('Just begun'))"
    deadline = time.monotonic() + PATIENCE_S
    while "\t300\t" not in page.run(row):
        assert "no people yet" not in page.run(row)
        assert time.monotonic() < deadline, page.run(row)
        time.sleep(0.1)


def test_13_2_4_wrong_sizes_are_known_before_exposures_are_counted_again(lab: Lab) -> None:
    lab.server.stop()
    lab.server.start()
    (found,) = lab.client.call("GET", "experiments/results_summary/", ids=str(lab.lopsided["id"]))
    assert (found["people"], found["withholds_decisions"]) == (10_000, True)
