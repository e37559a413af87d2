"""Names of metrics, and of their values: a rate, a mean of sums, a 90th percentile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hoglab.analysis.definitions.hogql import aggregated
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import Math

Json = Mapping[str, Any]

NO_LABEL = "value"
"""Label of a number of metrics of the former engine."""
_OF_MATH = {
    Math.TOTAL: "mean count",
    Math.SUM: "mean sum",
    Math.AVG: "mean average",
    Math.MIN: "mean minimum",
    Math.MAX: "mean maximum",
    Math.UNIQUE_SESSION: "mean sessions",
    Math.UNIQUE_PERSON: "mean persons",
    Math.UNIQUE_GROUP: "mean groups",
    Math.UNIQUE_VALUE: "mean distinct",
}
"""Names of the maths of a mean metric, which is the mean over people."""
_BOUNDS = ("lower_bound_percentile", "upper_bound_percentile")


def metrics_of(experiment: Json) -> Iterator[tuple[Json, bool, str]]:
    """Yield every metric of an experiment's JSON, whether it is a primary one, and what to call it."""
    for place, primary in (("metrics", True), ("metrics_secondary", False)):
        for metric in experiment.get(place) or ():
            yield metric, primary, name_of(metric)
    for link in experiment.get("saved_metrics") or ():
        primary = (link.get("metadata") or {}).get("type", "primary") == "primary"
        yield link["query"], primary, name_of(link["query"], link.get("name"))


def name_of(metric: Json, saved_as: str | None = None) -> str:
    """Return the metric's own name, the name of the saved metric, or a title made of its events."""
    return str(metric.get("name") or saved_as or title(metric))


def title(metric: Json) -> str:
    """Return the title of a metric without a name."""
    match metric.get("metric_type"):
        case "mean" | "quantile":
            return _node(metric.get("source"))
        case "funnel":
            return " → ".join(_node(step) for step in metric.get("series") or ())
        case "ratio":
            return f"{_node(metric.get('numerator'))} / {_node(metric.get('denominator'))}"
        case "retention":
            return f"{_node(metric.get('start_event'))} ↻ {_node(metric.get('completion_event'))}"
    return str(metric.get("kind"))


def value_label(metric: Json) -> str:
    """Return the label of a variant's number, by the maths of the metric, in two words at most."""
    match metric.get("metric_type"):
        case "funnel" | "retention":
            return "rate"
        case "ratio":
            return "ratio"
        case "quantile":
            return _quantile(metric.get("quantile_level"))
        case "mean":
            return _of_mean(metric)
    return NO_LABEL


def _of_mean(metric: Json) -> str:
    if metric.get("threshold") is not None and not any(metric.get(name) is not None for name in _BOUNDS):
        return "share above"
    source = metric.get("source")
    source = source if isinstance(source, Mapping) else {}
    math = source.get("math") or Math.TOTAL
    if math == "hogql":
        try:
            aggregate = aggregated(source.get("math_hogql"), "source")
        except DefinitionError:
            return "mean"
        return (
            f"mean {_quantile(aggregate.level)}"
            if aggregate.math is Math.QUANTILE
            else _OF_MATH[aggregate.math]
        )
    # An unknown math counts events.
    return _OF_MATH.get(math, _OF_MATH[Math.TOTAL])


def _quantile(level: object) -> str:
    if not isinstance(level, int | float):
        return "percentile"
    return "median" if level == 0.5 else f"p{100 * level:g}"


def _node(node: object) -> str:
    if not isinstance(node, Mapping):
        return "?"
    name = node.get("custom_name") or node.get("name") or node.get("event")
    name = str(name) if name is not None else f"action {node['id']}" if "id" in node else "any event"
    math, prop = node.get("math"), node.get("math_property")
    if math in (None, "total"):
        return name
    return f"{math} of {prop}, {name}" if prop else f"{math}, {name}"
