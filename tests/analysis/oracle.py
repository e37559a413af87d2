"""What results must be, said slowly: sets and loops over plain events, one metric and one moment at a time.

Written from the rules (spec experiment-results 2, 3), sharing nothing with the product but the standard library.
"""

from __future__ import annotations

import calendar
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from tests.analysis.events import Event

MICRO = timedelta(microseconds=1)
UNIT = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass
class Setting:
    """An experiment, and the moment at which it is looked at. A capped look sees nothing after ``end``."""

    start: datetime
    end: datetime
    now: datetime
    variants: Sequence[str] = ("control", "test")
    flag: str = "flag"
    first_seen: bool = False
    custom_event: str | None = None
    group: int | None = None
    counts: Callable[[Event], bool] = lambda _event: True  # the test-account filters
    matured_only: bool = False
    zone: str = "UTC"
    capped: bool = False
    merged: Mapping[str, str] | None = None
    activation: str | None = None  # the name of the activation event
    breakdowns: tuple[str, ...] = ()  # properties of the first exposure
    only: tuple[str, ...] | None = None  # the one cell of the breakdowns that is looked at
    lookback: timedelta | None = None  # of the CUPED covariate
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # rows beside the events
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # properties of those of type 0 now
    log: Sequence[Event] = ()  # all events, where properties of sessions are asked for

    def property(self, event: Event, name: str) -> Any:
        """A property of an event; with ``group_0.`` or ``session.`` before its name of what it belongs to."""
        if name.startswith("session."):
            return self.of_session(event.properties.get("$session_id"), name.removeprefix("session."))
        if name.startswith("group_0."):
            return self.groups.get(event.groups.get(0) or "", {}).get(name.removeprefix("group_0."))
        return event.properties.get(name)

    def of_session(self, session: str | None, name: str) -> Any:
        since = self.start - (self.lookback or timedelta()) - UNIT["day"]
        found = [
            event
            for event in self.log
            if event.properties.get("$session_id") == session
            and since <= event.timestamp
            and not (self.capped and event.timestamp > self.end)
        ]
        return session_property(name, found) if session and found else None

    def entity(self, event: Event) -> str | None:
        if self.group is not None:
            return event.groups.get(self.group) or None
        return self.person(event) or None

    def person(self, event: Event) -> str:
        return (self.merged or {}).get(event.person, event.person)


@dataclass
class Unit:
    variant: str
    first: datetime
    exposures: list[Event]
    cell: tuple[str, ...] = ()


def uuid_of(event: Event) -> Any:
    assert event.uuid is not None
    return event.uuid


def identity_of(event: Event) -> Any:
    """What an event is told from all others by: uuids may be shared."""
    return uuid_of(event), event.event, event.person, event.timestamp


def variant_of(setting: Setting, event: Event) -> str | None:
    """The variant that an event exposes to; None when it is no exposure."""
    if not setting.start <= event.timestamp <= setting.end or not setting.counts(event):
        return None
    if setting.custom_event is None:
        if event.event != "$feature_flag_called" or event.properties.get("$feature_flag") != setting.flag:
            return None
        variant = event.properties.get("$feature_flag_response")
    else:
        if event.event != setting.custom_event:
            return None
        variant = event.properties.get(f"$feature/{setting.flag}")
    return variant if isinstance(variant, str) and variant in setting.variants else None


def units(setting: Setting, events: Sequence[Event]) -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for event in sorted(events, key=lambda event: (event.timestamp, uuid_of(event))):
        variant, entity = variant_of(setting, event), setting.entity(event)
        if variant is None or entity is None:
            continue
        unit = found.setdefault(entity, Unit(variant, event.timestamp, []))
        unit.exposures.append(event)
        if variant != unit.variant and not setting.first_seen:
            unit.variant = "$multiple"
    if setting.activation is not None:
        found = activated(setting, events, found)
    for unit in found.values():
        unit.cell = tuple(shown(setting.property(unit.exposures[0], name)) for name in setting.breakdowns)
    return {entity: unit for entity, unit in found.items() if setting.only in (None, unit.cell)}


def shown(value: Any) -> str:
    """A property as breakdowns show it."""
    if value is None:
        return "$$_posthog_breakdown_null_$$"
    return value if isinstance(value, str) else json.dumps(value)


def activated(setting: Setting, events: Sequence[Event], flagged: Mapping[str, Unit]) -> dict[str, Unit]:
    """Those who got to the activation event after they saw their variant; that event is their exposure."""
    found = {}
    for entity, unit in flagged.items():
        mine = [
            event
            for event in sorted(events, key=lambda event: (event.timestamp, uuid_of(event)))
            if setting.entity(event) == entity
            and event.event == setting.activation
            and setting.counts(event)
            and unit.first <= event.timestamp <= setting.end
        ]
        if mine:
            found[entity] = Unit(unit.variant, min(event.timestamp for event in mine), mine)
    return found


def window(metric: Mapping[str, Any]) -> timedelta:
    length, unit = metric.get("conversion_window"), metric.get("conversion_window_unit")
    return length * UNIT[unit] if length and unit else timedelta()


def mature(setting: Setting, moment: datetime) -> bool:
    return not setting.matured_only or moment <= setting.end


def number(value: Any) -> float:
    if isinstance(value, bool) or value is None:
        return 0.0
    if isinstance(value, str):
        if NUMBER.fullmatch(value) is None:
            return 0.0
        value = float(value)
    if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e100:
        return 0.0
    return float(value)


def is_from(setting: Setting, node: Mapping[str, Any], event: Event) -> bool:
    if node.get("event") is not None and event.event != node["event"]:
        return False
    return all(
        CONDITIONS[f["key"]](event)
        if f["type"] == "hogql"
        else agrees(
            setting.property(
                event, {"group": "group_0.", "session": "session."}.get(f["type"], "") + f["key"]
            ),
            f,
        )
        for f in node.get("properties", ())
    )


def agrees(found: Any, condition: Mapping[str, Any]) -> bool:
    """Whether a property is what a filter wants; of a set any may be, and none may be what it does not want."""
    operator, wanted = condition.get("operator", "exact"), condition["value"]
    if operator == "is_not":
        return wanted not in found if isinstance(found, set) else bool(found != wanted)
    if operator == "is_not_set":
        return not found
    if operator == "is_date_before":
        return found is not None and datetime.fromisoformat(found) < datetime.fromisoformat(wanted)
    return wanted in found if isinstance(found, set) else bool(found == wanted)


CONDITIONS: Mapping[str, Callable[[Event], bool]] = {
    "event = 'purchase' and properties.size != 'small'": lambda event: (
        event.event == "purchase" and as_text(event.properties.get("size")) != "small"
    ),
    "not (properties['size'] = 'big')": lambda event: as_text(event.properties.get("size")) != "big",
}
"""What expressions in filters say of an event."""


def rows(
    setting: Setting,
    events: Sequence[Event],
    node: Mapping[str, Any],
    until: timedelta,
    *,
    inclusive: bool,
    key: str | None = None,
) -> dict[str, list[Event]]:
    """Events (or rows) of a node by entity, in order of time, up to ``until`` after the end.

    Those of tables belong to everybody with their key, and with a ``key`` events do so too.
    """
    before = (
        setting.end + MICRO if setting.capped else setting.end + until + (MICRO if inclusive else 0 * MICRO)
    )
    found: dict[str, list[Event]] = {}
    owners = owners_of(setting, events, node, key)
    for event in sorted(happened(setting, events, node), key=lambda event: (event.timestamp, uuid_of(event))):
        if setting.start <= event.timestamp < before and is_from(setting, node, event):
            for entity in owners(event):
                found.setdefault(entity, []).append(event)
    return found


def happened(setting: Setting, events: Sequence[Event], node: Mapping[str, Any]) -> Sequence[Event]:
    """The events, or the rows of the node's table as if they were some."""
    if "table_name" not in node:
        return events
    return [
        Event(
            as_text(row[node["data_warehouse_join_key"]]) or "",
            row[node["timestamp_field"]],
            "",
            row,
            UUID(int=place),
        )
        for place, row in enumerate(setting.tables[node["table_name"]], 1 << 100)
        if row[node["timestamp_field"]] is not None
    ]


def owners_of(
    setting: Setting, events: Sequence[Event], node: Mapping[str, Any], key: str | None = None
) -> Callable[[Event], Sequence[str]]:
    """To whom an event or a row belongs."""
    key = node.get("events_join_key", key)
    if key is None:
        return lambda event: [entity] if (entity := setting.entity(event)) is not None else []
    holders: dict[str, list[str]] = {}
    for entity, unit in units(setting, events).items():
        if text := key_text(key, unit.exposures[0]):
            holders.setdefault(text, []).append(entity)
    own = node.get("data_warehouse_join_key")
    if own is None:
        return lambda event: holders.get(key_text(key, event) or "", [])
    return lambda row: holders.get(as_text(row.properties[own]) or "", [])


def key_text(key: str, event: Event) -> str | None:
    if key == "distinct_id":
        return event.person
    return as_text(event.properties.get(key.removeprefix("properties.")))


NOTHING = object()
"""What an event gives that an aggregate passes over."""


def only_if(condition: Callable[[Event], bool], of: Callable[[Event], Any]) -> Callable[[Event], Any]:
    return lambda event: of(event) if condition(event) else NOTHING


def formula(setting: Setting, text: str) -> tuple[str, Callable[[Event], Any]]:
    """The aggregates over expressions that tests use, said again in Python."""
    return {
        "count(distinct group_0.properties.plan)": (
            "distinct",
            lambda event: as_text(setting.property(event, "group_0.plan")),
        ),
        "sum(if(group_0.properties['plan'] = 'pro', 2, 1))": (
            "sum",
            lambda event: 2 if setting.property(event, "group_0.plan") == "pro" else 1,
        ),
        "sum(toFloat(properties.amount) * 2)": (
            "sum",
            lambda event: 2 * number(event.properties.get("amount")),
        ),
        "max(if(properties.size = 'big', properties.amount, 1))": (
            "max",
            lambda event: event.properties.get("amount") if event.properties.get("size") == "big" else 1,
        ),
        "count(distinct properties.size)": ("distinct", lambda event: as_text(event.properties.get("size"))),
        "count(properties['amount'])": ("sum", lambda event: int(event.properties.get("amount") is not None)),
        "count()": ("sum", lambda _event: 1),
        "uniq(properties.size)": ("distinct", lambda event: as_text(event.properties.get("size"))),
        "countIf(properties.size = 'big')": ("sum", lambda event: int(event.properties.get("size") == "big")),
        "sumIf(properties.amount, properties.size != 'big')": (
            "sum",
            lambda event: 0 if event.properties.get("size") == "big" else event.properties.get("amount"),
        ),
        "quantile(0.9)(properties.amount)": ("0.9", lambda event: event.properties.get("amount")),
        "quantile(properties.amount)": ("0.5", lambda event: event.properties.get("amount")),
        "median(toFloat(properties.amount) / 2)": (
            "0.5",
            lambda event: number(event.properties.get("amount")) / 2,
        ),
        **{
            f"{name}If{level}(properties.amount, properties.size = 'big')": (
                how,
                only_if(
                    lambda event: event.properties.get("size") == "big",
                    lambda event: event.properties.get("amount"),
                ),
            )
            for name, level, how in (
                *(("avg", "", "avg"), ("min", "", "min"), ("max", "", "max")),
                *(("median", "", "0.5"), ("quantile", "(0.9)", "0.9")),
            )
        },
        "uniqIf(properties.size, properties.$session_id != 's1')": (
            "distinct",
            only_if(
                lambda event: event.properties.get("$session_id") != "s1",
                lambda event: as_text(event.properties.get("size")),
            ),
        ),
        **{
            f"{how}If(amount, kind = 'big')": (
                how,
                only_if(lambda row: row.properties["kind"] == "big", lambda row: row.properties["amount"]),
            )
            for how in ("avg", "min")
        },
        "uniqIf(kind, amount > 1)": (
            "distinct",
            only_if(
                lambda row: (row.properties["amount"] or 0) > 1, lambda row: as_text(row.properties["kind"])
            ),
        ),
        "sumIf(amount, kind = 'big')": (
            "sum",
            lambda row: row.properties["amount"] if row.properties["kind"] == "big" else 0,
        ),
        "quantile(0.3)(amount)": ("0.3", lambda row: row.properties["amount"]),
        "sum(toFloat(amount) * 2)": ("sum", lambda row: 2 * number(row.properties["amount"])),
        "max(if(kind = 'big', amount, 1))": (
            "max",
            lambda row: row.properties["amount"] if row.properties["kind"] == "big" else 1,
        ),
        "count(distinct kind)": ("distinct", lambda row: row.properties["kind"]),
        "properties.amount": ("sum", lambda event: event.properties.get("amount")),
    }[text]


def as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def aggregated(how: str, numbers: Sequence[float]) -> float:
    match how:
        case "avg":
            return math.fsum(numbers) / len(numbers)
        case "min":
            return min(numbers)
        case "max":
            return max(numbers)
        case "sum" | "total":
            return math.fsum(numbers)
    ordered = sorted(numbers)  # a quantile: how is its level
    rank = float(how) * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (rank - math.floor(rank)) * (high - low)


def session_values(
    setting: Setting, events: Sequence[Event], metric: Mapping[str, Any], node: Mapping[str, Any]
) -> dict[str, float]:
    """The number of every exposed entity with a session that its matching events began in its window."""
    length = window(metric)
    day = timedelta(days=1)
    last = setting.end + MICRO if setting.capped else setting.end + length + day
    sessions: dict[str, list[Event]] = {}
    for event in events:
        name = event.properties.get("$session_id")
        if name and setting.start - day <= event.timestamp < last:
            sessions.setdefault(name, []).append(event)
    result = {}
    found = rows(setting, events, node, length, inclusive=False)
    for entity, unit in units(setting, events).items():
        if length and not mature(setting, unit.first + length):
            continue
        began: dict[str, datetime] = {}
        for event in found.get(entity, []):
            if name := event.properties.get("$session_id"):
                began.setdefault(name, event.timestamp)
        mine = [
            number
            for name, first in began.items()
            if first >= unit.first
            and (not length or first < unit.first + length)
            and (number := session_property(node["math_property"], sessions[name])) is not None
        ]
        if mine:
            result[entity] = aggregated(node["math"], mine)
    return result


def session_property(name: str, found: Sequence[Event]) -> Any:
    moments = [event.timestamp for event in found]
    views, clicks = (sum(event.event == each for event in found) for each in ("$pageview", "$autocapture"))
    match name:
        case "$session_duration":
            return (max(moments) - min(moments)) / timedelta(seconds=1)
        case "$pageview_count":
            return views
        case "$is_bounce":
            short = max(moments) - min(moments) < timedelta(seconds=10)
            return (views == 1 and not clicks and short) if views else None
        case "$start_timestamp":
            return f"{min(moments).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case "$end_timestamp":
            return f"{max(moments).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case "$urls":
            return {url for event in found if (url := as_text(event.properties.get("$current_url")))}
        case "$channel_type":
            return channel(lambda key: first_of(found, key))
        case "$entry_utm_source":
            return first_of(found, "utm_source")
        case "$end_pathname":
            begin = min(moments)  # mirrored there, the last one is the first one
            mirrored = [replace(event, timestamp=begin - (event.timestamp - begin)) for event in found]
            return first_of(mirrored, "$pathname")
    raise AssertionError(name)


def first_of(found: Sequence[Event], key: str) -> str | None:
    having = [event for event in found if as_text(event.properties.get(key)) not in (None, "")]
    if not having:
        return None
    return as_text(min(having, key=lambda event: (event.timestamp, uuid_of(event))).properties[key])


PLACES = {
    **dict.fromkeys(["google", "www.google.com", "google.co.uk"], "Search"),
    **dict.fromkeys(["facebook", "m.facebook.com"], "Social"),
    **dict.fromkeys(["youtube.com"], "Video"),
    **dict.fromkeys(["email", "mail.google.com"], "Email"),
}
MEDIUMS = {"email": "Email", "social": "Social", "banner": "Display", "cpm": "Display", "video": "Video"}


def channel(first: Callable[[str], str | None]) -> str:
    """By which way a session came, of the places and media that tests use."""
    campaign, medium, source = (
        (first(f"utm_{name}") or "").lower() for name in ("campaign", "medium", "source")
    )
    referrer, gad = first("$referring_domain") or "", first("gad_source")
    if "cross-network" in campaign:
        return "Cross Network"
    paid = medium in ("cpc", "cpm") or medium.startswith("paid") or bool(first("gclid") or gad)
    if not paid and referrer == "$direct" and not medium and source in ("", "direct") and not first("fbclid"):
        return "Direct"
    shops = "shopping" in campaign or re.search("(^|[^a-z]|e)shop", campaign)
    places = {**PLACES, "mail.google.com": "Search"} if paid else PLACES  # nobody pays for mail
    ways = [places.get(source), "Shopping" if shops else None, MEDIUMS.get(medium), places.get(referrer)]
    known = [way for way in ways if way is not None and not (paid and way == "Email")]
    if known:
        return known[0] if known[0] in ("Email", "Display") else f"{'Paid' if paid else 'Organic'} {known[0]}"
    if paid and gad == "1":
        return "Paid Search"
    if "video" in campaign:
        return "Paid Video" if paid else "Organic Video"
    if medium.endswith("push") and not paid:
        return "Push"
    if first("fbclid"):
        return "Paid Social" if paid else "Organic Social"
    if paid:
        return "Paid Unknown"
    return {"$direct": "Direct", "": "Unknown"}.get(referrer, "Referral")


def value(setting: Setting, node: Mapping[str, Any], found: Sequence[Event]) -> float:
    """One entity's number from its events."""
    math_, prop = node.get("math", "total"), node.get("math_property")
    if math_ == "hogql":
        how, of = formula(setting, node["math_hogql"])
        if how == "distinct":
            return len({of(event) for event in found} - {None, "", NOTHING})
        return aggregated(how, numbers) if (numbers := numbers_of(setting, node, found)) else 0.0
    if math_ == "unique_session":
        return len({e.properties.get("$session_id") for e in found} - {None, ""})
    if math_ == "unique_group":
        return len({e.groups.get(node["math_group_type_index"]) for e in found} - {None, ""})
    if math_ == "dau":
        return len({setting.person(e) for e in found} - {""})
    numbers = [1.0 for _ in found] if math_ == "total" or prop is None else numbers_of(setting, node, found)
    return aggregated(math_, numbers) if numbers else 0.0


def numbers_of(setting: Setting, node: Mapping[str, Any], found: Sequence[Event]) -> list[float]:
    """The number of each event that has one to give."""
    if node.get("math") == "hogql":
        _, of = formula(setting, node["math_hogql"])
        return [number(each) for each in map(of, found) if each is not NOTHING]
    return [number(event.properties.get(node.get("math_property"))) for event in found]


def values(
    setting: Setting, events: Sequence[Event], metric: Mapping[str, Any], node: Mapping[str, Any]
) -> dict[str, float]:
    """The number of every exposed and mature entity."""
    if str(node.get("math_property_type")) == "session_properties":
        return session_values(setting, events, metric, node)
    length = window(metric)
    found = rows(setting, events, node, length, inclusive=False)
    result = {}
    for entity, unit in units(setting, events).items():
        if length and not mature(setting, unit.first + length):
            continue
        mine = [
            event
            for event in found.get(entity, [])
            if event.timestamp >= unit.first and (not length or event.timestamp < unit.first + length)
        ]
        result[entity] = value(setting, node, mine)
    return result


def clamped(numbers: Mapping[str, float], bounds: Mapping[str, Any]) -> dict[str, float]:
    lower, upper = bounds.get("lower_bound_percentile"), bounds.get("upper_bound_percentile")
    pool = sorted(numbers.values())
    high_pool = [each for each in pool if each != 0] if bounds.get("ignore_zeros") else pool
    low = pool[min(math.floor(lower * len(pool)), len(pool) - 1)] if lower is not None and pool else -math.inf
    high = (
        high_pool[min(math.floor(upper * len(high_pool)), len(high_pool) - 1)]
        if upper is not None and high_pool
        else math.inf
    )
    return {entity: min(max(low, each), high) for entity, each in numbers.items()}


def statistics(
    setting: Setting, events: Sequence[Event], metric: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The sufficient statistics by variant; a variant that nobody saw is missing."""
    if metric["metric_type"] == "quantile":
        return quantile(setting, events, metric)
    everybody = units(setting, events)
    per_entity = {
        "mean": mean,
        "ratio": ratio,
        "funnel": funnel,
        "retention": retention,
    }[metric["metric_type"]](setting, events, metric, everybody)
    result: dict[str, dict[str, Any]] = {}
    for entity, numbers in per_entity.items():
        variant = everybody[entity].variant
        if variant != "$multiple":
            group = result.setdefault(variant, dict.fromkeys(["n", *numbers], 0))
            group["n"] += 1
            for name, each in numbers.items():
                group[name] += each
    return result


def quantile(
    setting: Setting, events: Sequence[Event], metric: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The quantile of each variant with the values around its ranks (the 95 % interval), and how entities cluster."""
    length, per_event = window(metric), metric.get("quantile_unit") == "event"
    one = values(setting, events, metric, metric["source"])
    found = rows(setting, events, metric["source"], length, inclusive=False)
    groups: dict[str, list[list[float]]] = {}
    for entity, unit in units(setting, events).items():
        if entity not in one or unit.variant == "$multiple":
            continue
        mine = [one[entity]]
        if per_event:
            during = [
                event
                for event in found.get(entity, [])
                if event.timestamp >= unit.first and (not length or event.timestamp < unit.first + length)
            ]
            mine = numbers_of(setting, metric["source"], during)
        if metric.get("ignore_zeros"):
            mine = [each for each in mine if each != 0]
        if mine:
            groups.setdefault(unit.variant, []).append(mine)
    return {
        variant: at_level(clusters, metric["quantile_level"], per_event)
        for variant, clusters in groups.items()
    }


def at_level(clusters: Sequence[Sequence[float]], level: float, per_event: bool) -> dict[str, Any]:
    ordered = sorted(each for values in clusters for each in values)
    size = len(ordered)
    half = 1.959963984540054 * math.sqrt(level * (1 - level) / size)
    found = {"n": size, "level": level, "quantile": ordered[min(math.floor(level * size), size - 1)]}
    places = []
    for name, rank in (("lower", size * (level - half)), ("upper", size * (level + half))):
        rank = min(max(rank, 1.0), float(size))
        places += [math.floor(rank) - 1, math.floor(rank)]
        low = ordered[math.floor(rank) - 1]
        high = ordered[min(math.floor(rank), size - 1)]
        found[f"quantile_{name}"] = low + (rank - math.floor(rank)) * (high - low)
    found["people_counted"] = len(clusters)
    between = ordered[min(places) : max(places) + 1]
    found["largest_tie"] = max(between.count(value) for value in between)
    found["cluster_factor"] = clustered(clusters, level, found["quantile"]) if per_event else 1.0
    return found


def clustered(clusters: Sequence[Sequence[float]], level: float, at: float) -> float:
    """The variance of the share of values up to the quantile between entities, over that of independent values."""
    entities = len(clusters)
    if entities < 2:
        return math.nan
    below = [sum(each <= at for each in values) for values in clusters]
    sizes = [len(values) for values in clusters]
    share = sum(below) / sum(sizes)
    residuals = [b - share * s for b, s in zip(below, sizes, strict=True)]
    average = sum(sizes) / entities
    variance = sum(each * each for each in residuals) / (entities - 1) / entities / average**2
    return variance / (level * (1 - level) / sum(sizes))


def mean(setting: Setting, events: Sequence[Event], metric: Any, everybody: Any) -> dict[str, Any]:
    numbers = values(setting, events, metric, metric["source"])
    if metric.get("lower_bound_percentile") is not None or metric.get("upper_bound_percentile") is not None:
        numbers = clamped(numbers, metric)
    elif metric.get("threshold") is not None:
        numbers = {entity: float(each >= metric["threshold"]) for entity, each in numbers.items()}
        setting = replace(setting, lookback=None)
    if metric["source"].get("math_property_type") == "session_properties":
        setting = replace(setting, lookback=None)
    return {
        entity: {"sum": y, "sum_squares": y * y}
        | covariates(y, before(setting, events, metric["source"], entity, everybody[entity].first), value)
        for entity, y in numbers.items()
    }


Before = tuple[Setting, Mapping[str, Any], list[Event]]


def before(
    setting: Setting, events: Sequence[Event], node: Mapping[str, Any], entity: str, first: datetime
) -> Before | None:
    """One entity's events of a node in the time before its exposure; None without CUPED."""
    if setting.lookback is None:
        return None
    owners = owners_of(setting, events, node)
    found = [
        event
        for event in happened(setting, events, node)
        if entity in owners(event)
        and is_from(setting, node, event)
        and first - setting.lookback <= event.timestamp < first
    ]
    return setting, node, found


def covariates(y: float, found: Before | None, x_of: Callable[..., float]) -> dict[str, float]:
    if found is None:
        return {}
    x = x_of(*found)
    return {"covariate_sum": x, "covariate_sum_squares": x * x, "covariate_sum_product": x * y}


def ratio(setting: Setting, events: Sequence[Event], metric: Any, everybody: Any) -> dict[str, Any]:
    sides, length = [], window(metric)
    for name in ("numerator", "denominator"):
        numbers = values(setting, events, metric, metric[name])
        handling = metric.get(f"{name}_outlier_handling")
        sides.append(clamped(numbers, handling) if handling else numbers)
    return {
        entity: {
            "sum": (m := sides[0].get(entity, 0.0)),
            "sum_squares": m * m,
            "denominator_sum": (d := sides[1].get(entity, 0.0)),
            "denominator_sum_squares": d * d,
            "numerator_denominator_sum_product": m * d,
            "people_counted": int(d != 0),
        }
        for entity, unit in everybody.items()
        if not length or mature(setting, unit.first + length)
    }


def funnel(
    setting: Setting, events: Sequence[Event], metric: Any, everybody: dict[str, Unit]
) -> dict[str, Any]:
    length = window(metric)
    limit = length or timedelta(seconds=94_608_000)
    steps = metric["series"]
    last = len(steps)
    keys = [node["events_join_key"] for node in steps if "table_name" in node]
    key = keys[0] if keys else None
    found = [rows(setting, events, node, length, inclusive=True, key=key) for node in steps]
    result = {}
    for entity, unit in everybody.items():
        if length and not mature(setting, unit.first + length):
            continue
        matched: dict[Any, tuple[Event, list[int]]] = {}
        for event in unit.exposures:
            matched.setdefault(identity_of(event), (event, []))[1].append(0)
        for number_, by_entity in enumerate(found, 1):
            for event in by_entity.get(entity, []):
                matched.setdefault(identity_of(event), (event, []))[1].append(number_)
        mine = sorted(
            matched.values(), key=lambda row: (row[0].timestamp, min(row[1]), sum(1 << j for j in row[1]))
        )
        order = metric.get("funnel_order_type") or "ordered"
        if order == "unordered":
            reached = furthest_unordered(mine, unit.first, limit)
        else:
            reached = furthest_ordered(mine, last, limit, strict=order == "strict")
        counts = [int(reached >= step) for step in range(1, last + 1)]
        has_covariate = order != "unordered" and not keys
        last_before = before(setting, events, steps[-1], entity, unit.first) if has_covariate else None
        result[entity] = {
            "sum": counts[-1],
            **{f"step_{step}": count for step, count in enumerate(counts, 1)},
            **covariates(counts[-1], last_before, lambda _setting, _node, found: float(bool(found))),
        }
    return result


def furthest_ordered(
    mine: Sequence[tuple[Event, list[int]]], last: int, limit: timedelta, *, strict: bool
) -> int:
    entry: list[datetime | None] = [None] * (last + 1)
    furthest = 0
    for event, matched in mine:
        reached: dict[int, datetime] = {}
        for j in sorted(matched, reverse=True):
            if j == 0:
                reached[0] = event.timestamp
                continue
            began = entry[j - 1]
            if began is not None and event.timestamp - began <= limit:
                reached[j] = began
                furthest = max(furthest, j)
        if strict:
            entry = [reached.get(j) for j in range(last + 1)]
        else:
            entry = [reached.get(j, entry[j]) for j in range(last + 1)]
    return furthest


def furthest_unordered(mine: Sequence[tuple[Event, list[int]]], first: datetime, limit: timedelta) -> int:
    best = 0
    later = [row for row in mine if row[0].timestamp >= first]
    for begin, _ in later:
        seen = {
            step
            for event, matched in later
            if begin.timestamp <= event.timestamp <= begin.timestamp + limit
            for step in matched
        }
        best = max(best, len(seen) - 1)
    return best


def retention(
    setting: Setting, events: Sequence[Event], metric: Any, everybody: dict[str, Unit]
) -> dict[str, Any]:
    length = window(metric)
    a, b = metric["retention_window_start"], metric["retention_window_end"]
    unit_name = metric["retention_window_unit"]
    reach = b * UNIT[unit_name]
    starts = rows(setting, events, metric["start_event"], length, inclusive=False)
    completions = rows(setting, events, metric["completion_event"], length + reach, inclusive=False)
    result = {}
    for entity, unit in everybody.items():
        mine = [
            event
            for event in starts.get(entity, [])
            if event.timestamp >= unit.first and (not length or event.timestamp <= unit.first + length)
        ]
        if not mine:
            continue
        if metric.get("start_handling") == "last_seen":
            moment = max(event.timestamp for event in mine)
        else:
            moment = min(event.timestamp for event in mine)
        starts_then = [e for e in mine if e.timestamp == moment]
        if "table_name" not in metric["start_event"]:  # events are told apart; of rows any may be the start
            starts_then = [min(starts_then, key=uuid_of)]
        if not mature(setting, moment + reach):
            continue
        same_rows = place_of(metric["start_event"]) == place_of(metric["completion_event"])
        came_back = any(
            event.timestamp >= moment
            and not (same_rows and identity_of(event) == identity_of(start))
            and returned(moment, event.timestamp, a, b, unit_name, ZoneInfo(setting.zone))
            for start in starts_then
            for event in completions.get(entity, [])
        )
        result[entity] = {"sum": int(came_back)}
    return result


def place_of(node: Mapping[str, Any]) -> tuple[Any, Any]:
    """Where the rows of a node are: nodes of one place may have rows in common."""
    return node.get("table_name"), node.get("timestamp_field")


def returned(start: datetime, back: datetime, a: int, b: int, unit: str, zone: ZoneInfo) -> bool:
    if unit == "day":
        days = (back.astimezone(zone).date() - start.astimezone(zone).date()).days
        return a <= days <= b
    if unit == "hour":
        start, back = (
            moment
            - timedelta(
                minutes=moment.astimezone(zone).minute,
                seconds=moment.second,
                microseconds=moment.microsecond,
            )
            for moment in (start, back)
        )
    if unit == "month":
        return months_later(start, a) <= back <= months_later(start, b) and back <= start + b * UNIT["month"]
    return start + a * UNIT[unit] <= back <= start + b * UNIT[unit]


def months_later(moment: datetime, months: int) -> datetime:
    index = moment.year * 12 + moment.month - 1 + months
    year, month = index // 12, index % 12 + 1
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))


def new_exposures(setting: Setting, events: Sequence[Event]) -> dict[str, dict[str, int]]:
    """Entities by variant and day of their first exposure."""
    result: dict[str, dict[str, int]] = {}
    for unit in units(setting, events).values():
        day = unit.first.astimezone(ZoneInfo(setting.zone)).date().isoformat()
        days = result.setdefault(unit.variant, {})
        days[day] = days.get(day, 0) + 1
    return result
