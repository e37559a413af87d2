"""An experiment's results as data, read from the API's JSON; every form of a report is made of this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hoglab.analysis.definitions import NO_LABEL, value_label
from hoglab.analysis.presentation import evidence_of
from hoglab.experiments.definitions.metrics import margin_of
from hoglab.statistics import BayesianConfig, Correction, DifferenceType, StatisticsConfig
from hoglab.statistics.numbers import MISSING, p_text, percent_text
from hoglab.statistics.verdict import Decision, Evidence

Json = Mapping[str, Any]

CORRECTIONS = {
    Correction.NONE: "not at all",
    Correction.HOLM: "Holm",
    Correction.BONFERRONI: "Bonferroni",
    Correction.BENJAMINI_HOCHBERG: "Benjamini–Hochberg",
}


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a result: a variant with its sums, and how it compares with the baseline.

    ``mean`` is the metric's value for the variant: mean, rate, ratio or quantile. The interval is that of the
    effect, a share (0.2 = +20 %) when the experiment compares relatively.
    """

    key: str
    size: int
    total: float | None
    mean: float | None
    evidence: Evidence
    row: Json = field(default_factory=dict)
    """The row as it is on the wire."""

    @property
    def interval(self) -> tuple[float, float] | None:
        return self.evidence.interval

    @property
    def effect(self) -> float | None:
        return self.evidence.effect

    @property
    def chance_to_win(self) -> float | None:
        return self.evidence.chance_to_win

    @property
    def p_value(self) -> float | None:
        """P-value, corrected for several tests where the experiment asks for that; ``significant`` is too."""
        return self.evidence.p_value

    @property
    def significant(self) -> bool:
        return self.evidence.is_significant

    @property
    def problem(self) -> str | None:
        """Reason for which there is no interval; None where there is one, and for the baseline."""
        return self.evidence.problem


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
        return cls(
            _group(metric_type, baseline, config),
            tuple(_group(metric_type, row, config, baseline) for row in variants),
        )

    @property
    def groups(self) -> tuple[Group, ...]:
        """The baseline, then the others."""
        return (self.baseline, *self.variants)


_IS_BETTER = {Decision.BETTER: True, Decision.WORSE: False}
WITHHELD = "withheld"
"""Text that replaces a p-value or a chance to win while there is a critical finding."""
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
    """Results of the cells, by the values of breakdowns."""
    error: str | None = None
    days: Mapping[str, Comparison] | None = None
    """Results at the end of each day; None where they were not asked for."""
    value_label: str = NO_LABEL
    """Name of a variant's number, such as a rate or a mean of sums."""
    withheld: bool = False
    """Whether nothing may be marked as significant: a critical finding is about the experiment or the metric."""
    margin: float | None = None
    """The loss that a guardrail allows, as a share of the baseline; None for another metric."""

    @property
    def title(self) -> str:
        """The name, with the role of a guardrail."""
        if self.margin is None:
            return self.name
        return (
            f"{self.name} (guardrail, margin {self.margin * 100:g}%)"
            if self.margin
            else f"{self.name} (guardrail)"
        )

    @property
    def is_share(self) -> bool:
        """Whether its means are shares of people."""
        return self.kind in ("funnel", "retention")

    def is_better(self, group: Group) -> bool | None:
        """Return whether a significant effect is in the wanted direction; None for one not significant or withheld."""
        if self.withheld:
            return None
        return _IS_BETTER.get(group.evidence.direction(wants_decrease=self.wants_decrease))

    def is_significant(self, group: Group) -> bool:
        """Return whether a group is to be marked as significant."""
        return group.significant and not self.withheld

    def certainty(self, group: Group) -> str:
        """Describe how certain it is that there is an effect."""
        if self.withheld and group.interval is not None:
            return WITHHELD
        if group.chance_to_win is not None:
            return percent_text(group.chance_to_win)
        return MISSING if group.p_value is None else p_text(group.p_value)

    @property
    def without_course(self) -> str | None:
        """Reason why there is no course over days to draw, and when there will be one; None when there is one."""
        if self.days is None or self.result is None:
            return None
        if any(group.interval is not None for day in self.days.values() for group in day.variants):
            if len(self.days) > 1:
                return None
            return (
                f"The course over days is drawn from the second daily point on; so far there is {len(self.days)}. "
                "There is one for each day, made on schedule (at 02:00 UTC, unless the project says otherwise) and "
                "whenever results are asked for."
            )
        return "There is no course over days: on no day enough was known for an interval."


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """An experiment, what endangers it, who saw it, and its metrics, the primary ones first."""

    experiment: Json
    config: StatisticsConfig
    findings: Sequence[Json]
    exposures: Json
    metrics: tuple[MetricReport, ...]
    made_at: datetime
    verdict: Json | None = None
    """Verdict as the API has it; None before the start, and while something is still computed."""

    @property
    def is_relative(self) -> bool:
        return self.config.inference_config.difference_type is DifferenceType.RELATIVE

    @property
    def level(self) -> float:
        """Confidence level of the intervals, e.g. 0.95."""
        return self.config.level

    def section(self, *, primary: bool) -> list[MetricReport]:
        """Return the metrics that the experiment is decided by, or the others."""
        return [metric for metric in self.metrics if metric.is_primary is primary]

    @property
    def exposed(self) -> Mapping[str, int]:
        """People by variant, and people who saw several variants; without the people held out."""
        totals: Mapping[str, int] = self.exposures.get("total_exposures") or {}
        return totals

    @property
    def held_out(self) -> tuple[str, int] | None:
        """The people of the holdout, by its key; None without a holdout."""
        holdout = self.exposures.get("holdout")
        return None if holdout is None else (holdout["key"], holdout["total"])

    def decision(self, metric: MetricReport, group: Group) -> str | None:
        """Return the decision of the verdict on a variant and a metric.

        The result is None for the baseline, and while there is no verdict.
        """
        for decided in (self.verdict or {}).get("metrics", ()):
            if decided["metric_uuid"] == metric.uuid:
                for decision in decided["variants"]:
                    if decision["variant"] == group.key:
                        return str(decision["decision"])
        return None

    @property
    def methods(self) -> list[str]:
        """Explanations of the numbers, in sentences."""
        test = self.config.inference_config
        if isinstance(test, BayesianConfig):
            said = ["Certainty: the chance to beat the baseline."]
        elif test.sequential_testing_enabled:
            said = ["Certainty: p-values and intervals that hold whenever they are looked at (sequential)."]
        elif test.monitoring is not None:
            moments = (
                "planned analyses" if self.config.is_group_sequential else "any time until the planned end"
            )
            said = [
                f"Certainty: p-values of a single look; the verdict uses stricter ones, which hold at {moments}."
            ]
        else:
            said = ["Certainty: two-sided p-values, for a single look at the end."]
        if any(metric.withheld for metric in self.metrics):
            said.append("It is withheld while something critical is wrong.")
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
    def further_warnings(self) -> list[tuple[str, str, str]]:
        """Warnings that the headline of the verdict does not contain."""
        headline = "" if self.verdict is None else str(self.verdict["headline"])
        return [warning for warning in self.warnings if warning[1] not in headline]

    @property
    def warnings(self) -> list[tuple[str, str, str]]:
        """Warnings that a reader must know before any number: ``(severity, message, advice)``, worst first."""
        said = [
            (str(finding["severity"]), str(finding["message"]), str(finding["advice"]))
            for finding in self.findings
        ]
        explained = {
            finding["details"].get("metric_uuid")
            for finding in self.findings
            if finding["code"] in _OF_FAILURES
        }
        failed = [
            ("critical", f"“{metric.name}” could not be computed: {metric.error}", "")
            for metric in self.metrics
            if metric.error is not None and metric.uuid not in explained
        ]
        order = {"critical": 0, "warning": 1}
        return sorted([*said, *failed], key=lambda warning: order.get(warning[0], 2))


def is_comparable(metric: Json) -> bool:
    """Return whether the present engine has results for a metric; those of the former one have another form."""
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
    withheld: bool = False,
) -> MetricReport:
    """Return a metric and its result as the API gives it, with its daily points by date."""
    kind = str(metric.get("metric_type") or metric.get("kind"))

    def read(result: Json) -> Comparison:
        return Comparison.of(kind, result["baseline"], result["variant_results"], config)

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
        days=None if days is None else {day: read(point) for day, point in days.items() if point is not None},
        value_label=value_label(metric),
        withheld=withheld,
        margin=None if primary else margin_of(metric),
    )


def _group(metric_type: str, row: Json, config: StatisticsConfig, baseline: Json | None = None) -> Group:
    return Group(
        key=row["key"],
        size=row["number_of_samples"],
        total=None if metric_type == "quantile" else row["sum"],
        mean=_mean(metric_type, row),
        evidence=evidence_of(row, config, metric_type, baseline),
        row=row,
    )


def _mean(metric_type: str, row: Json) -> float | None:
    if metric_type == "quantile":
        return row.get("quantile") if row["number_of_samples"] else None
    divisor = row["denominator_sum"] if metric_type in ("ratio", "retention") else row["number_of_samples"]
    return row["sum"] / divisor if divisor and row["sum"] is not None else None
