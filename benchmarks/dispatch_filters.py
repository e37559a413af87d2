"""How many events a second can be held against the filters of many hog functions, on one core.

Filters and events follow research on real projects: nine filters of ten name an event and have up to two further
conditions (equality, number, text, pattern), and a few event names make up most of the traffic. Each line
compares the fused dispatcher with asking every compiled filter in turn, in the same run on the same events.

    python benchmarks/dispatch_filters.py
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from hoglab.filters.hog import CompiledFilter, FilterContext, FilterFailure, FusedDispatcher, build_filter

SEED = 20_260_101
ROUNDS = 5
EVENTS = 2_000

BROWSERS = ["Chrome", "Firefox", "Safari", "Edge", "Opera"]
PATHS = ["pricing", "docs", "blog", "signup", "login", "settings", "billing", "home", "search", "cart"]
COUNTRIES = [f"C{number}" for number in range(40)]
NAMED = ["$pageview", "$autocapture", "$pageleave", "$identify", *(f"event_{number}" for number in range(40))]
WEIGHTS = [40, 25, 10, 5, *([0.5] * 40)]

Event = dict[str, Any]


def make_condition(chance: random.Random) -> dict[str, Any]:
    """One property filter."""
    kind = chance.random()
    if kind < 0.4:
        return {"key": "$browser", "type": "event", "operator": "exact", "value": [chance.choice(BROWSERS)]}
    if kind < 0.6:
        return {"key": "country", "type": "person", "operator": "exact", "value": chance.choice(COUNTRIES)}
    if kind < 0.75:
        return {"key": "amount", "type": "event", "operator": "gt", "value": chance.randrange(1_000)}
    if kind < 0.9:
        return {
            "key": "$current_url",
            "type": "event",
            "operator": "icontains",
            "value": chance.choice(PATHS),
        }
    pattern = rf"example\.com/{chance.choice(PATHS)}(/\d+)?$"
    return {"key": "$current_url", "type": "event", "operator": "regex", "value": pattern}


def make_filter(chance: random.Random) -> dict[str, Any]:
    """The filters of one function."""
    conditions = [make_condition(chance) for _ in range(chance.randrange(3))]
    if chance.random() < 0.1:
        return {"properties": conditions or [make_condition(chance)]}
    name = chance.choices(NAMED, WEIGHTS)[0]
    return {"events": [{"id": name, "type": "events", "properties": conditions}]}


def make_event(chance: random.Random) -> Event:
    """The globals of one event."""
    person = {"id": "p", "properties": {"country": chance.choice(COUNTRIES), "email": "a@example.com"}}
    return {
        "event": chance.choices(NAMED, WEIGHTS)[0],
        "uuid": "01990000-0000-7000-8000-000000000001",
        "distinct_id": "u1",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "properties": {
            "$browser": chance.choice(BROWSERS),
            "$current_url": f"https://www.example.com/{chance.choice(PATHS)}/{chance.randrange(100)}",
            "amount": chance.randrange(1_000),
            "$lib": "web",
            "$screen_width": 1_920,
        },
        "elements_chain": "",
        "elements_chain_href": "",
        "elements_chain_texts": [],
        "elements_chain_ids": [],
        "elements_chain_elements": [],
        "person": person,
        "pdi": None,
        **{f"$group_{index}": None for index in range(5)},
        **{f"group_{index}": {"properties": {}} for index in range(5)},
        "variables": {},
    }


def seconds(run: Callable[[], object]) -> float:
    """The median time of a run."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ask_each(filters: Sequence[CompiledFilter], events: Sequence[Event]) -> int:
    """Ask every filter about every event; returns how many matches there were."""
    found = 0
    for event in events:
        for one in filters:
            try:
                found += one.matches(event)
            except FilterFailure:
                continue
    return found


def ask_fused(dispatcher: FusedDispatcher, events: Sequence[Event]) -> int:
    """The same through the dispatcher."""
    match = dispatcher.match
    return sum(len(match(event).matched) for event in events)


def main() -> None:
    """Print one line for each number of functions."""
    chance = random.Random(SEED)
    events = [make_event(chance) for _ in range(EVENTS)]
    everything = [make_filter(chance) for _ in range(1_000)]
    print(f"{'functions':>9} {'matches':>8} {'one by one':>12} {'fused':>12} {'ratio':>6} {'build':>8}")
    for count in (1, 10, 100, 1_000):
        filters = [CompiledFilter(build_filter(one, FilterContext())) for one in everything[:count]]
        dispatcher = FusedDispatcher(filters)
        building = seconds(lambda filters=filters: FusedDispatcher(filters))  # type: ignore[misc]
        some = events[: max(50, EVENTS // max(1, count // 20))]
        matches = ask_each(filters, some)
        assert matches == ask_fused(dispatcher, some), "the dispatcher must agree with the filters"
        each = len(some) / seconds(lambda filters=filters, some=some: ask_each(filters, some))  # type: ignore[misc]
        fused = len(events) / seconds(lambda dispatcher=dispatcher: ask_fused(dispatcher, events))  # type: ignore[misc]
        print(
            f"{count:>9,} {matches / len(some):>8.2f} {each:>10,.0f}/s {fused:>10,.0f}/s "
            f"{fused / each:>6.1f} {building * 1e3:>5.0f} ms"
        )


if __name__ == "__main__":
    main()
