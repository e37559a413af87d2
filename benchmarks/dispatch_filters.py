"""How many events a second can be held against the filters of many hog functions, on one core.

Nine filters of ten name an event and have up to two further conditions (equality, number, text, pattern); a few
event names make up most of the traffic, and in the last line most of the filters too. Each line compares the fused
dispatcher with asking every compiled filter in turn, in the same run on the same events; both must find the same.
Times are computing time of one core.

    python benchmarks/dispatch_filters.py [--smoke] [--checked 100000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
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


def make_filter(chance: random.Random, *, dense: bool = True) -> dict[str, Any]:
    """The filters of one function; `dense`: functions prefer the events that happen most."""
    conditions = [make_condition(chance) for _ in range(chance.randrange(3))]
    if chance.random() < 0.1:
        return {"properties": conditions or [make_condition(chance)]}
    name = chance.choices(NAMED, WEIGHTS)[0] if dense else chance.choice(NAMED)
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
    """The median computing time of a run: other work on the machine is not counted."""
    times = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def check(filters: Sequence[CompiledFilter], dispatcher: FusedDispatcher, events: Sequence[Event]) -> int:
    """Ask every filter about every event, and see that the dispatcher says the same; returns how many match."""
    found = 0
    for event in events:
        alone: list[int] = []
        failed: list[tuple[int, str]] = []
        for place, one in enumerate(filters):
            try:
                if one.matches(event):
                    alone.append(place)
            except FilterFailure as failure:
                failed.append((place, str(failure)))
        fused = dispatcher.match(event)
        assert (list(fused.matched), list(fused.failed)) == (alone, failed), event
        found += len(alone)
    return found


def ask_fused(dispatcher: FusedDispatcher, events: Sequence[Event]) -> int:
    """The same through the dispatcher."""
    match = dispatcher.match
    return sum(len(match(event).matched) for event in events)


def main() -> int:
    """Print one line for each number of functions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="few events")
    parser.add_argument("--checked", type=int, default=1_000, help="events to ask every filter about")
    options = parser.parse_args()
    checked, timed = (50, 200) if options.smoke else (options.checked, EVENTS)
    print(f"{'functions':>15} {'matches':>8} {'one by one':>12} {'fused':>12} {'ratio':>6} {'build':>8}")
    for count, dense in ((1, False), (10, False), (100, False), (1_000, False), (1_000, True)):
        chance = random.Random(SEED)
        events = [make_event(chance) for _ in range(max(checked, timed))]
        filters = [
            CompiledFilter(build_filter(make_filter(chance, dense=dense), FilterContext()))
            for _ in range(count)
        ]
        building = seconds(lambda filters=filters: FusedDispatcher(filters))  # type: ignore[misc]
        dispatcher = FusedDispatcher(filters)
        start = time.thread_time()
        matches = check(filters, dispatcher, events[:checked])
        each = checked / (time.thread_time() - start)
        some = events[:timed]
        fused = timed / seconds(lambda dispatcher=dispatcher, some=some: ask_fused(dispatcher, some))  # type: ignore[misc]
        name = f"{count:,}{' dense' if dense else ''}"
        print(
            f"{name:>15} {matches / checked:>8.2f} {each:>10,.0f}/s {fused:>10,.0f}/s "
            f"{fused / each:>6.1f} {building * 1e3:>5.0f} ms"
        )
    print(f"The dispatcher and the filters alone agreed on every one of {checked:,} events.")
    print("Goals for 1,000 functions: 150,000 events/s, build within 100 ms.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
