"""An experiment's results as data, read from the API's JSON; every form of a report is made of this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hoglab.statistics import BayesianConfig, Correction, DifferenceType, StatisticsConfig

Json = Mapping[str, Any]

FAILURES = {
    "not-enough-exposures": "fewer than 50 people",
    "not-enough-metric-data": "fewer than 5 conversions",
    "baseline-mean-is-zero": "zero in all",
}
"""Codes of ``validation_failures`` in words (spec experiment-results 4.4)."""
CORRECTIONS = {
    Correction.NONE: "not at all",
    Correction.HOLM: "Holm",
    Correction.BONFERRONI: "Bonferroni",
    Correction.BENJAMINI_HOCHBERG: "Benjamini–Hochberg",
}
NO_STATISTICS = "no statistics"


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a result: a variant with its sums, and how it compares with the baseline.

    ``mean`` is what the metric says of the variant: mean, rate, ratio or quantile. ``interval`` is that of the
    effect, a share (0.2 = +20 %) when the experiment compares relatively.
    """

    key: str
    size: int
    total: float | None
    mean: float | None
    interval: tuple[float, float] | None = None
    chance_to_win: float | None = None
    p_value: float | None = None
    """Corrected for several tests where the experiment asks for that; so is ``significant``."""
    significant: bool = False
    problem: str | None = None
    """Why there is no interval; None where there is one, and for the baseline."""
    row: Json = field(default_factory=dict)
    """The row as it is on the wire."""

    @property
    def effect(self) -> float | None:
        """The point estimate: intervals are symmetric around it (spec experiment-results 5.1)."""
        return None if self.interval is None else (self.interval[0] + self.interval[1]) / 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """One result: the baseline and the variants that are compared with it."""

    baseline: Group
    variants: tuple[Group, ...]

    @classmethod
    def of(
        cls, metric_type: str, baseline: Json, variants: Sequence[Json], config: StatisticsConfig
    ) -> Comparison:
        """Read the rows of a result, or of one cell of its breakdowns."""
        failures = baseline["validation_failures"]
        return cls(
            _group(metric_type, baseline, config),
            tuple(_group(metric_type, row, config, failures) for row in variants),
        )

    @property
    def groups(self) -> tuple[Group, ...]:
        """The baseline, then the others."""
        return (self.baseline, *self.variants)


_OF_FAILURES = frozenset({"metric_not_computable", "metric_failed"})
"""Codes of findings that say why a metric has no result."""


@dataclass(frozen=True, slots=True)
class MetricReport:
    """One metric with its result, or with the reason why there is none."""

    uuid: str | None
    name: str
    kind: str
    is_primary: bool
    wants_decrease: bool = False
    result: Comparison | None = None
    cells: Mapping[tuple[str, ...], Comparison] = field(default_factory=dict)
    """By the values of breakdowns."""
    error: str | None = None
    days: Mapping[str, Comparison] = field(default_factory=dict)
    """The result at the end of days, where it was asked for."""

    @property
    def is_share(self) -> bool:
        """Whether its means are shares of people."""
        return self.kind in ("funnel", "retention")

    def is_better(self, group: Group) -> bool | None:
        """Whether a significant effect is in the wanted direction; None when it is not significant."""
        if not group.significant or group.effect is None:
            return None
        return (group.effect < 0) == self.wants_decrease


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """An experiment, what endangers it, who saw it, and its metrics: the primary ones first."""

    experiment: Json
    config: StatisticsConfig
    findings: Sequence[Json]
    exposures: Json
    metrics: tuple[MetricReport, ...]
    made_at: datetime

    @property
    def is_relative(self) -> bool:
        return self.config.test.difference_type is DifferenceType.RELATIVE

    @property
    def level(self) -> float:
        """Of the intervals, e.g. 0.95."""
        test = self.config.test
        return test.ci_level if isinstance(test, BayesianConfig) else 1 - test.alpha

    def section(self, *, primary: bool) -> list[MetricReport]:
        """The metrics that the experiment is decided by, or the others."""
        return [metric for metric in self.metrics if metric.is_primary is primary]

    @property
    def methods(self) -> list[str]:
        """How to read the numbers, in sentences."""
        test = self.config.test
        if isinstance(test, BayesianConfig):
            said = ["Certainty: the chance to beat the baseline."]
        elif test.sequential_testing_enabled:
            said = ["Certainty: p-values and intervals that hold whenever they are looked at (sequential)."]
        else:
            said = ["Certainty: two-sided p-values, for a single look at the end."]
        groups = [
            group for metric in self.metrics if metric.result is not None for group in metric.result.groups
        ]
        corrected = any(group.row.get("adjusted_p_value") is not None for group in groups)
        if corrected and not isinstance(test, BayesianConfig):
            name = CORRECTIONS[self.config.correction]
            said.append(
                f"Those of primary metrics are corrected for their number ({name}); intervals are not corrected."
            )
        if any(group.row.get("covariate_sum") is not None for group in groups):
            said.append("CUPED: effects are adjusted by what people did before; means are as measured.")
        return said

    @property
    def warnings(self) -> list[tuple[str, str, str]]:
        """What a reader must know before any number: ``(severity, message, advice)``, worst first."""
        said = [(str(each["severity"]), str(each["message"]), str(each["advice"])) for each in self.findings]
        explained = {
            each["details"].get("metric_uuid") for each in self.findings if each["code"] in _OF_FAILURES
        }
        failed = [
            ("critical", f"“{metric.name}” could not be computed: {metric.error}", "")
            for metric in self.metrics
            if metric.error is not None and metric.uuid not in explained
        ]
        order = {"critical": 0, "warning": 1}
        return sorted([*said, *failed], key=lambda warning: order.get(warning[0], 2))


def metrics_of(experiment: Json) -> Iterator[tuple[Json, bool, str]]:
    """Every metric of an experiment's JSON, whether it is a primary one, and what to call it."""
    for place, primary in (("metrics", True), ("metrics_secondary", False)):
        for metric in experiment.get(place) or ():
            yield metric, primary, metric.get("name") or title(metric)
    for link in experiment.get("saved_metrics") or ():
        primary = (link.get("metadata") or {}).get("type") != "secondary"
        yield link["query"], primary, link["query"].get("name") or link.get("name") or title(link["query"])


def is_comparable(metric: Json) -> bool:
    """Whether results of the present engine exist for a metric; the kinds of the former one have others."""
    return isinstance(metric.get("metric_type"), str)


def metric_report(
    metric: Json,
    name: str,
    *,
    primary: bool,
    config: StatisticsConfig,
    result: Json | None = None,
    error: str | None = None,
    days: Mapping[str, Json | None] | None = None,
) -> MetricReport:
    """A metric and its result as the API gives it, with its daily points by date."""
    kind = str(metric.get("metric_type") or metric.get("kind"))

    def read(found: Json) -> Comparison:
        return Comparison.of(kind, found["baseline"], found["variant_results"], config)

    return MetricReport(
        uuid=metric.get("uuid"),
        name=name,
        kind=kind,
        is_primary=primary,
        wants_decrease=metric.get("goal") == "decrease",
        result=None if result is None else read(result),
        cells={
            tuple(cell["breakdown_value"]): Comparison.of(kind, cell["baseline"], cell["variants"], config)
            for cell in (result or {}).get("breakdown_results") or ()
        },
        error=error,
        days={day: read(point) for day, point in (days or {}).items() if point is not None},
    )


def title(metric: Json) -> str:
    """What a metric without a name is about."""
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


def _node(node: object) -> str:
    if not isinstance(node, Mapping):
        return "?"
    name = node.get("custom_name") or node.get("name") or node.get("event")
    name = str(name) if name is not None else f"action {node['id']}" if "id" in node else "any event"
    math, prop = node.get("math"), node.get("math_property")
    if math in (None, "total"):
        return name
    return f"{math} of {prop}, {name}" if prop else f"{math}, {name}"


def _group(
    metric_type: str, row: Json, config: StatisticsConfig, baseline_failures: Sequence[str] = ()
) -> Group:
    interval = row.get("credible_interval") or row.get("confidence_interval")
    complete = interval is not None and None not in interval
    corrected = row.get("adjusted_p_value")
    problem = None
    if not complete and "method" in row:
        own = [FAILURES.get(code, code) for code in row["validation_failures"]]
        behind = [f"baseline: {FAILURES.get(code, code)}" for code in baseline_failures]
        problem = ", ".join(own or behind) or NO_STATISTICS
    return Group(
        key=row["key"],
        size=row["number_of_samples"],
        total=None if metric_type == "quantile" else row["sum"],
        mean=_mean(metric_type, row),
        interval=(interval[0], interval[1]) if interval is not None and complete else None,
        chance_to_win=row.get("chance_to_win"),
        p_value=row.get("p_value") if corrected is None else corrected,
        significant=_is_significant(row, config),
        problem=problem,
        row=row,
    )


def _is_significant(row: Json, config: StatisticsConfig) -> bool:
    """As the row says; with a corrected p-value that one decides."""
    corrected = row.get("adjusted_p_value")
    if corrected is None or isinstance(config.test, BayesianConfig):
        return bool(row.get("significant"))
    return bool(corrected < config.test.alpha)


def _mean(metric_type: str, row: Json) -> float | None:
    if metric_type == "quantile":
        return row.get("quantile") if row["number_of_samples"] else None
    divisor = row["denominator_sum"] if metric_type in ("ratio", "retention") else row["number_of_samples"]
    return row["sum"] / divisor if divisor and row["sum"] is not None else None
