"""Plans and simulations in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from hoglab.reports.tables import light_table
from hoglab.statistics.numbers import MISSING, number_text

Json = Mapping[str, Any]
DAYS_OF_A_WEEK = 7


def plan_lines(name: str, plan: Json) -> Iterator[RenderableType]:
    """Yield lines with the people and days that a metric takes, and the effects it can detect after some weeks."""
    yield _history(name, plan["history"])
    needed = light_table(f"For {plan['power']:.0%} power ({plan['method']})")
    for column in ("Effect", "People in all", "Days"):
        needed.add_column(column, justify="right")
    for row in plan["effects"]:
        needed.add_row(f"{row['effect']:+.1%}", _count(row["people"]), _days(row["days"], row["people"]))
    yield needed
    detectable = light_table("What can be found")
    for column in ("After days", "People in all", "Least effect"):
        detectable.add_column(column, justify="right")
    for row in plan["detectable"]:
        effect = f"{row['effect']:+.1%}" if row["effect"] is not None else MISSING
        detectable.add_row(_count(row["days"]), _count(row["people"]), effect)
    yield detectable


def simulation_lines(name: str, simulation: Json) -> Iterator[RenderableType]:
    """Yield lines with the results of each method on the simulated experiments."""
    yield _history(name, simulation["history"])
    yield Text(
        f"{simulation['experiments']:,} experiments without an effect, and as many with one of "
        f"{simulation['effect']:+.1%}, on {simulation['people']:,} people each."
    )
    looks = simulation["looks"]
    table = light_table()
    table.add_column("Method", no_wrap=True)
    watched = f"watched {looks} times"
    columns = {
        "false_positives": "False positives",
        "false_positives_watched": f"… {watched}",
        "power": "Power",
        "power_watched": f"… {watched}",
        "coverage": "Interval holds the truth",
        "refused": "No statistics",
    }
    methods = simulation["methods"]
    if not any(row["refused"] for row in methods):
        del columns["refused"]
    for column in columns.values():
        table.add_column(column, justify="right")
    for row in methods:
        table.add_row(row["method"], *(f"{row[column_name]:.1%}" for column_name in columns))
    yield table
    yield Text(
        "Watched: stopped at the first significant look. Only the sequential method keeps its false positives then.",
        style="dim",
    )
    if any(row["method"] == "bayesian" for row in methods):
        yield Text(
            "The Bayesian method calls a difference on either side, each at its level: at 95 % it is fooled in one "
            "of ten experiments by design.",
            style="dim",
        )


def _history(name: str, history: Json) -> Text:
    known = len(history["people_per_day"])
    when = f"in {history['days']} days" + (
        f", the first of them {_counted(known, 'day')} ago" if known < history["days"] else ""
    )
    text = Text(name, style="bold").append(
        f"\n{history['people']:,} people did {history['event']} {when}; "
        f"the mean is {number_text(history['mean'])}.",
        style="not bold",
    )
    if known < DAYS_OF_A_WEEK:
        text.append(
            "\nThat is less than a week: how many come in a day is a rough guess.", style="not bold yellow"
        )
    return text


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def _days(days: int | None, people: int | None) -> str:
    return "more than ten years" if days is None and people is not None else _count(days)
