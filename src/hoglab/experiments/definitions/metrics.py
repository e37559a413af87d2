"""Metric definitions: which are accepted, and how they keep their uuids (spec experiments-api 3.8).

A metric is stored as the JSON of the request; the models below only validate it.
"""

# Annotations of models are evaluated by Pydantic, so they are not postponed here.

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeGuard
from uuid import uuid4

from pydantic import (
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from hoglab.experiments.definitions.reference import METRIC_FIELDS
from hoglab.http.errors import from_details, validation_error
from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.property_filters import Properties
from hoglab.http.fields.unknown_keys import Keys, Path, WarningEntry, hint, shown_path, unknown_keys, warning

MAX_METRICS = 200
"""Maximum number of metrics in one list."""
MAX_LISTED_ERRORS = 15
LEGACY_KINDS = frozenset({"ExperimentTrendsQuery", "ExperimentFunnelsQuery"})
KIND = "ExperimentMetric"
GUARDRAIL = "guardrail"
"""Role of a metric that a better variant must not harm."""
NODE_KINDS = frozenset({"EventsNode", "ActionsNode", "ExperimentDataWarehouseNode"})
"""Kinds of the nodes that a metric is computed from."""
PROPERTY_MATH = frozenset({"sum", "avg", "min", "max"})
"""The maths that need a property."""
_VALUES = ("source", "numerator", "denominator")
_SOURCES = ("source", "numerator", "denominator", "start_event", "completion_event")

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
PropertyFilters = Annotated[list[dict[str, Any]], Keys(Properties)] | None
WindowUnit = Literal["second", "minute", "hour", "day", "week", "month"]
Math = Literal["total", "sum", "avg", "min", "max", "unique_session", "dau", "unique_group", "hogql"]
Percentile = Annotated[Number, Field(ge=0, le=1)]


class _Closed(WireModel):
    """An object that has the fields below and no others."""

    model_config = ConfigDict(extra="forbid")
    notes = METRIC_FIELDS


class Breakdown(_Closed):
    """A property by whose values the results are split."""

    unused = frozenset({"histogram_bin_count", "normalize_url"})

    property: Any = None
    type: Any = None
    group_type_index: Any = None


class BreakdownFilter(_Closed):
    """Breakdowns of results."""

    unused = frozenset(
        {
            "breakdown",
            "breakdown_group_type_index",
            "breakdown_hide_other_aggregation",
            "breakdown_histogram_bin_count",
            "breakdown_limit",
            "breakdown_normalize_url",
            "breakdown_path_cleaning",
            "breakdown_type",
        }
    )

    breakdowns: list[Breakdown] | None = None


class _Node(_Closed):
    name: StrictStr | None = None
    custom_name: StrictStr | None = None
    properties: PropertyFilters = None
    fixedProperties: PropertyFilters = None  # noqa: N815 - wire name
    math: Math | None = None
    math_property: StrictStr | None = None
    math_property_type: StrictStr | None = None
    math_property_revenue_currency: dict[str, Any] | None = None
    math_hogql: StrictStr | None = None
    math_group_type_index: Annotated[StrictInt, Field(ge=0, le=4)] | None = None
    math_multiplier: float | None = None
    optionalInFunnel: StrictBool | None = None  # noqa: N815 - wire name
    version: float | None = None
    response: dict[str, Any] | None = None


class EventsNode(_Node):
    """Events of one name; of any name when ``event`` is null."""

    kind: Literal["EventsNode"]
    event: StrictStr | None = None
    limit: StrictInt | None = None
    orderBy: list[StrictStr] | None = None  # noqa: N815 - wire name


class ActionsNode(_Node):
    """Events that an action matches."""

    kind: Literal["ActionsNode"]
    id: StrictInt


class ExperimentDataWarehouseNode(_Node):
    """Rows of a table beside the events."""

    kind: Literal["ExperimentDataWarehouseNode"]
    table_name: StrictStr
    timestamp_field: StrictStr
    events_join_key: StrictStr
    data_warehouse_join_key: StrictStr


Source = Annotated[EventsNode | ActionsNode | ExperimentDataWarehouseNode, Field(discriminator="kind")]


class OutlierHandling(_Closed):
    """Percentile bounds of one side of a ratio."""

    lower_bound_percentile: Percentile | None = None
    upper_bound_percentile: Percentile | None = None
    ignore_zeros: StrictBool | None = None


class _Metric(_Closed):
    kind: Literal["ExperimentMetric"]
    uuid: StrictStr | None = None
    name: StrictStr | None = None
    fingerprint: StrictStr | None = None
    goal: Literal["increase", "decrease"] | None = None
    role: Literal["guardrail", "secondary"] | None = None
    margin: Annotated[Number, Field(ge=0, lt=1)] | None = None
    conversion_window: StrictInt | None = None
    conversion_window_unit: WindowUnit | None = None
    breakdownFilter: Annotated[dict[str, Any], Keys(BreakdownFilter)] | None = None  # noqa: N815 - wire name
    isSharedMetric: StrictBool | None = None  # noqa: N815 - wire name
    sharedMetricId: float | None = None  # noqa: N815 - wire name
    version: float | None = None
    response: dict[str, Any] | None = None

    @field_validator("margin")
    @classmethod
    def _of_guardrails(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("role") != GUARDRAIL:
            raise ValueError("only a guardrail has a margin: set role to guardrail, too")
        return value


class MeanMetric(_Metric):
    """Mean of one value of each person: how often, how much, how many."""

    metric_type: Literal["mean"]
    source: Source
    lower_bound_percentile: Percentile | None = None
    upper_bound_percentile: Percentile | None = None
    ignore_zeros: StrictBool | None = None
    threshold: Number | None = None


class FunnelMetric(_Metric):
    """Share of people who go through all steps, the first of which follows the exposure."""

    metric_type: Literal["funnel"]
    series: list[Source]
    funnel_order_type: Literal["ordered", "unordered", "strict"] | None = None


class RatioMetric(_Metric):
    """Sum of one value over the sum of another."""

    metric_type: Literal["ratio"]
    numerator: Source
    denominator: Source
    numerator_outlier_handling: OutlierHandling | None = None
    denominator_outlier_handling: OutlierHandling | None = None


class RetentionMetric(_Metric):
    """Share of people who come back: of those with a start event, those with a completion in the window."""

    metric_type: Literal["retention"]
    start_event: Source
    completion_event: Source
    retention_window_start: StrictInt
    retention_window_end: StrictInt
    retention_window_unit: WindowUnit
    start_handling: Literal["first_seen", "last_seen"]


class QuantileMetric(_Metric):
    """A quantile of one value of each entity, or of the values of all events; not known to PostHog's clients."""

    metric_type: Literal["quantile"]
    source: Source
    quantile_level: Annotated[Number, Field(gt=0, lt=1)]
    quantile_unit: Literal["entity", "event"] | None = None
    ignore_zeros: StrictBool | None = None


_AnyMetric = MeanMetric | FunnelMetric | RatioMetric | RetentionMetric | QuantileMetric
ExperimentMetric = Annotated[
    _AnyMetric, Field(discriminator="metric_type", description="A metric; `metric_type` says of which kind.")
]
_METRIC: TypeAdapter[_AnyMetric] = TypeAdapter(ExperimentMetric)


class LegacyMetric(WireModel):
    """A metric of the former engine, which is stored but not computed."""

    model_config = ConfigDict(extra="allow")
    notes = METRIC_FIELDS

    kind: Literal["ExperimentTrendsQuery", "ExperimentFunnelsQuery"]


StoredMetric = _AnyMetric
"""Models of stored metrics; one that fits none of them, of the former engine, is kept unchanged."""


def validate_metrics(value: Any, attr: str) -> list[dict[str, Any]]:
    """Validate a list of metrics and return it unchanged. Raises the first error as 400 with ``attr``."""
    if not isinstance(value, list):
        raise validation_error("Metrics must be a list", attr)
    if len(value) > MAX_METRICS:
        raise validation_error(f"An experiment can have at most {MAX_METRICS} metrics", attr)
    for index, metric in enumerate(value):
        _validate_metric(metric, index, attr)
    return value


def _validate_metric(metric: Any, index: int, attr: str) -> None:
    where = f"Invalid metric at index {index}: "
    if not isinstance(metric, dict):
        raise validation_error(f"{where}must be a dict", attr)
    kind = metric.get("kind")
    if isinstance(kind, str) and kind in LEGACY_KINDS:
        raise validation_error(
            f"{where}legacy metric kind '{kind}' is no longer supported for new experiments. Use '{KIND}' instead.",
            attr,
        )
    if kind != KIND:
        raise validation_error(f"{where}metric kind must be '{KIND}'", attr)
    if metric.get("metric_type") == "funnel" and not metric.get("series"):
        raise validation_error(
            f"{where}funnel metrics require at least one step. "
            "The experiment exposure event is added as the initial step automatically.",
            attr,
        )
    if (problem := schema_problem(metric)) is not None:
        raise validation_error(f"{where}{problem}", attr)
    if attr == "metrics" and metric.get("role") is not None:
        raise validation_error(
            f"{where}role: a metric of this list is a primary one; a {metric['role']} belongs in metrics_secondary.",
            attr,
        )


def schema_problem(metric: Mapping[str, Any]) -> str | None:
    """Return the problem of a metric's shape, as one line; None without one.

    The problem has its place inside the metric, and the code and text that the wire has for it elsewhere.
    """
    try:
        _METRIC.validate_python(metric)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        guesses = {unknown.path: unknown.guess for unknown in unknown_keys(StoredMetric, metric)}
        shown = [_problem(details, guesses) for details in problems[:MAX_LISTED_ERRORS]]
        hint = ""
        if any(e["type"] == "extra_forbidden" and e["loc"][-2:] == ("EventsNode", "id") for e in problems):
            hint = (
                " EventsNode does not accept an 'id' field. To reference an event, use {'kind': 'EventsNode', "
                "'event': '<event_name>'} (omit 'id'). To reference an action, switch to {'kind': 'ActionsNode', "
                "'id': <integer_action_id>} (omit 'event')."
            )
        return f"{shown}.{hint}"
    return None


def _problem(details: ErrorDetails, guesses: Mapping[Path, str | None]) -> dict[str, Any]:
    """Return a finding of the models as clients expect it: the place, and the code and the text of the wire."""
    refused = from_details(details)
    place: list[str | int] = []
    of_node = False
    for part in details["loc"][1:]:  # the first part says which of the types the metric has
        # Below a node the models put its kind, which is no part of the way to the value.
        is_tag = part in NODE_KINDS and not of_node and bool(place)
        if is_tag and (isinstance(place[-1], int) or place[-1] in _SOURCES):
            of_node = True
        else:
            place.append(part)
    if details["type"].startswith("union_tag_"):
        place.append(details["ctx"]["discriminator"].strip("'"))
    text = refused.detail
    if details["type"] == "extra_forbidden":
        text = f"This key is not known here{hint(guesses.get(tuple(place)))}"
    return {"loc": tuple(place), "type": refused.code, "msg": text}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A part of a metric that has another effect than it seems to have. ``code`` is for programs."""

    code: str
    place: str
    """Path to the part, with dots."""
    text: str


def mistake_in(metric: Mapping[str, Any]) -> Mistake | None:
    """Return the first part of a metric that nobody means as it is computed; None without one.

    The results of such a metric count events instead of a property (spec experiment-results 1.6), or all time instead
    of no time, or nothing at all.
    """
    return next(_mistakes(metric), None)


def _mistakes(metric: Mapping[str, Any]) -> Iterator[Mistake]:
    for name in _VALUES:
        node = metric.get(name)
        if isinstance(node, Mapping) and node.get("math") in PROPERTY_MATH and not node.get("math_property"):
            text = f"{node['math']} needs the property to compute with; without one events are counted."
            yield Mistake("missing_property", f"{name}.math_property", text)
    yield from _nameless_events(metric, "")
    yield from _mistakes_of_windows(metric)
    for place in ("", "numerator_outlier_handling", "denominator_outlier_handling"):
        handling = metric.get(place) if place else metric
        if isinstance(handling, Mapping):
            yield from _mistakes_of_bounds(handling, f"{place}." if place else "")


def _nameless_events(value: Any, path: str) -> Iterator[Mistake]:
    if isinstance(value, Mapping):
        if value.get("kind") == "EventsNode" and value.get("event") == "":
            text = "no event has an empty name; leave it out to count every event."
            yield Mistake("nameless_event", f"{path}event", text)
        for key, part in value.items():
            yield from _nameless_events(part, f"{path}{key}.")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _nameless_events(part, f"{path.rstrip('.')}[{index}].")


def _mistakes_of_windows(metric: Mapping[str, Any]) -> Iterator[Mistake]:
    length, unit = metric.get("conversion_window"), metric.get("conversion_window_unit")
    if _is_number(length) and length <= 0:
        text = "a window has to be 1 at least; leave it out to count everything that follows the exposure."
        yield Mistake("meaningless_window", "conversion_window", text)
    elif length is not None and unit is None:
        text = "a window needs its unit; without one everything that follows the exposure is counted."
        yield Mistake("meaningless_window", "conversion_window_unit", text)
    first, last = (metric.get(f"retention_window_{edge}") for edge in ("start", "end"))
    if _is_number(first) and first < 0:
        text = "people cannot return before they start; 0 is the unit of time in which they start."
        yield Mistake("meaningless_window", "retention_window_start", text)
    elif _is_number(first) and _is_number(last) and last < first:
        text = f"the window ends ({last}) before it starts ({first}), so nobody can return in it."
        yield Mistake("meaningless_window", "retention_window_end", text)


def _mistakes_of_bounds(handling: Mapping[str, Any], path: str) -> Iterator[Mistake]:
    lower, upper = (handling.get(f"{side}_bound_percentile") for side in ("lower", "upper"))
    if _is_number(upper) and upper == 0:
        text = "an upper bound of 0 replaces every value by the smallest; leave it out to bound nothing."
        yield Mistake("meaningless_bounds", f"{path}upper_bound_percentile", text)
    elif _is_number(lower) and lower == 1:
        text = "a lower bound of 1 replaces every value by the largest; leave it out to bound nothing."
        yield Mistake("meaningless_bounds", f"{path}lower_bound_percentile", text)
    elif _is_number(lower) and _is_number(upper) and upper <= lower:
        text = f"the upper bound ({upper:g}) has to be above the lower bound ({lower:g})."
        yield Mistake("meaningless_bounds", f"{path}upper_bound_percentile", text)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def warnings_of(metric: Any, path: Path) -> list[WarningEntry]:
    """Return warnings about parts of a stored metric that have another effect than they seem to have.

    ``path`` leads to it.
    """
    mistakes = _mistakes(metric) if isinstance(metric, Mapping) else ()
    placed = [((*path, *mistake.place.split(".")), mistake) for mistake in mistakes]
    return [warning(mistake.code, place, f"{shown_path(place)}: {mistake.text}") for place, mistake in placed]


def margin_of(metric: Mapping[str, Any]) -> float | None:
    """Return the loss that a guardrail allows, as a share of the baseline, 0 by default; None for another metric."""
    return float(metric.get("margin") or 0.0) if metric.get("role") == GUARDRAIL else None


def is_legacy(metric: Any) -> bool:
    """Return whether a metric has one of the two kinds of the former engine."""
    return isinstance(metric, dict) and metric.get("kind") in LEGACY_KINDS


def sources(metric: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield every event, action or table node of a metric of any kind."""
    for _, node in placed_sources(metric):
        yield node


def placed_sources(metric: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the nodes of a metric with their places: ``numerator``, ``series[1]``."""
    for name in _SOURCES:
        if isinstance(node := metric.get(name), dict):
            yield name, node
    series = metric.get("series")
    if isinstance(series, list):
        for index, node in enumerate(series):
            if isinstance(node, dict):
                yield f"series[{index}]", node


def action_ids(metrics: Iterable[Any]) -> set[int]:
    """Return the ids of the actions that metrics refer to."""
    return {
        node["id"]
        for metric in metrics
        if isinstance(metric, dict)
        for node in sources(metric)
        if node.get("kind") == "ActionsNode" and isinstance(node.get("id"), int)
    }


def table_names(metrics: Iterable[Any]) -> set[str]:
    """Return the names of the tables beside the events that metrics refer to."""
    return {
        node["table_name"]
        for metric in metrics
        if isinstance(metric, dict)
        for node in sources(metric)
        if node.get("kind") == "ExperimentDataWarehouseNode" and isinstance(node.get("table_name"), str)
    }


def event_names(metric: Mapping[str, Any]) -> set[str]:
    """Return the names of the events that a metric itself names."""
    return {
        node["event"]
        for node in sources(metric)
        if node.get("kind") == "EventsNode" and isinstance(node.get("event"), str)
    }


def with_action_names(metric: dict[str, Any], names: Mapping[int, str | None]) -> dict[str, Any]:
    """Return the metric with the present names of its actions."""
    if not names or not any(
        node.get("kind") == "ActionsNode" and node.get("id") in names for node in sources(metric)
    ):
        return metric

    def named(value: Any) -> Any:
        if isinstance(value, dict) and value.get("kind") == "ActionsNode" and value.get("id") in names:
            return {**value, "name": names[value["id"]]}
        if isinstance(value, list):
            return [named(item) for item in value]
        return value

    return {key: named(value) for key, value in metric.items()}


def assign_uuids(lists: Sequence[list[dict[str, Any]]], taken: Iterable[str]) -> list[list[dict[str, Any]]]:
    """Return the metric lists with a uuid on every metric, unique over all lists and ``taken``.

    The first metric with a uuid keeps it; a later one silently gets a new uuid (spec experiments-api 3.8).
    """
    seen = set(taken)
    result = []
    for metrics in lists:
        fresh = []
        for metric in metrics:
            uuid = metric.get("uuid")
            if not isinstance(uuid, str) or not uuid or uuid in seen:
                uuid = str(uuid4())
            seen.add(uuid)
            fresh.append({**metric, "uuid": uuid})
        result.append(fresh)
    return result


def uuids(metrics: Iterable[Any] | None) -> list[str]:
    """Return the uuids of metrics that have one, in order."""
    return [m["uuid"] for m in metrics or () if isinstance(m, Mapping) and isinstance(m.get("uuid"), str)]
