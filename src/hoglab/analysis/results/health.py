"""Health of an experiment: what endangers it, in sentences that a person can act on.

`diagnose` is a pure function from facts to findings; `ExperimentHealth` collects the facts: the plan of the
experiment, its exposures, the events of its metrics, and what the activity log says of its flag.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hoglab.accounts import activity
from hoglab.analysis.definitions import ExperimentInputs, Named
from hoglab.analysis.errors import ComputationError, wire_error
from hoglab.analysis.execution import MULTIPLE_VARIANT, explained_failures
from hoglab.analysis.results.balance import PAST_ADVICE, Imbalance, PastImbalance, imbalances, past_imbalances
from hoglab.analysis.results.plan import underpowered
from hoglab.analysis.timeseries import store
from hoglab.experiments import store as experiments_store
from hoglab.experiments.definitions import flag_config, metrics
from hoglab.experiments.wire.presentation import is_frozen, live_key
from hoglab.flags.service import SCOPE as FLAG_SCOPE
from hoglab.http.fields.dates import format_moment
from hoglab.statistics import crossing_percentage
from hoglab.statistics.numbers import p_text, percent_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoglab.analysis.results.exposures import ExposureCounts
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.analysis.timeseries.store import Failure
    from hoglab.http.identity import Project
    from hoglab.statistics.verdict import PlannedPower
    from hoglab.storage.event_store import EventReader
    from hoglab.storage.event_store.dialects import Dialect

GRACE = timedelta(hours=1)
"""Time after the start for which an experiment may be without exposures and without events of its metrics."""
EDITS_LOOKED_AT = 200
"""Number of changes of the flag, newest first, that are searched for changes since the start."""
TIMEOUT_S = 10.0
MAX_EVENT_NAMES = 200

# Freezing the exposure closes a flag to new people on purpose: it moves nobody to another variant.
_FROZEN = "frozen"
# What of a flag decides who is in which variant.
_DECISIVE = ("multivariate", "groups", "aggregation_group_type_index", "holdout")

_EVENTS = """
SELECT event, count(*) FROM stored_events
WHERE project_id = $project AND timestamp >= $since AND event IN (SELECT unnest($names))
GROUP BY event
"""


class Severity(StrEnum):
    """Severity of a finding: results are wrong or missing; they may be; worth knowing."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """A danger to an experiment. ``code`` is for programs, ``message`` describes it and ``advice`` is what to do."""

    code: str
    severity: Severity
    message: str
    advice: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlagEdit:
    """A change, after the start, of the rules by which people get variants."""

    at: datetime
    by: str | None
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a launched experiment."""

    plan: ExperimentInputs
    now: datetime
    exposures: Mapping[str, int]
    """Exposed persons (or groups) by variant, and by ``$multiple``."""
    mismatch: Mapping[str, Any] | None
    """Tests for a sample ratio mismatch, as on the wire."""
    multiple_percentage: float | None
    """Share of exposed entities that saw several variants, where it may bias the results."""
    seen_events: Collection[str]
    """Events named by metrics that arrived since the start."""
    edits: Sequence[FlagEdit]
    sharing: Sequence[tuple[int, str]]
    """Id and name of other running experiments on the same flag."""
    unreadable: Uncomputable
    failures: Mapping[str, tuple[Failure, bool]]
    """Metrics, by uuid, whose last computation failed: the reason, and whether there is an older result."""
    imbalances: Sequence[Imbalance] = ()
    """Metrics that count different shares of the people of each variant."""
    past_imbalances: Sequence[PastImbalance] = ()
    """Metrics whose values before the exposure differ between variants."""
    underpowered: Sequence[tuple[Mapping[str, Any], PlannedPower]] = ()
    """Primary metrics on which the plan is too small for its own effect."""


@dataclass(frozen=True, slots=True)
class Uncomputable:
    """Parts of an experiment that can never be computed as they are defined, each with its reason."""

    exposures: str | None
    metrics: Mapping[str, str]
    """Reasons by the uuid of the metric."""


def diagnose(facts: Facts) -> list[Finding]:
    """Return all findings about a launched experiment, worst first."""
    findings = [
        *_about_flag(facts),
        *_about_exposures(facts),
        *_about_metrics(facts),
        *_about_counted(facts),
        *_about_plan(facts),
        *definition_findings(facts.plan, facts.unreadable),
        *_about_failures(facts),
    ]
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _about_flag(facts: Facts) -> Iterator[Finding]:
    row, flag = facts.plan.row, facts.plan.flag
    running = not row.is_stopped
    if flag is None or flag.deleted:
        yield Finding(
            "flag_deleted",
            Severity.CRITICAL if running else Severity.INFO,
            "The feature flag of this experiment has been deleted, so nobody gets a variant.",
            "Restore the flag, or end the experiment.",
        )
        return
    key = live_key(flag.key)
    if running and not flag.active:
        yield Finding(
            "flag_inactive",
            Severity.CRITICAL,
            f"The feature flag “{key}” is switched off, so nobody gets a variant.",
            "Resume the experiment, or end it.",
        )
    elif running and not _reaches_anybody(flag.filters):
        yield Finding(
            "flag_reaches_nobody",
            Severity.CRITICAL,
            f"No condition of the feature flag “{key}” has a rollout above 0%, so nobody gets a variant.",
            "Raise the rollout of a condition of the flag.",
        )
    if facts.edits:
        last = facts.edits[0]
        who = f" by {last.by}" if last.by else ""
        yield Finding(
            "flag_edited",
            Severity.WARNING,
            f"Who gets which variant was changed {_times(len(facts.edits))} since the start, last on "
            f"{format_moment(last.at)}{who}. People may have changed sides, and groups are no longer comparable.",
            "Reset the experiment and launch it again, or compare only people exposed after the change.",
            {
                "changes": [
                    {"at": format_moment(edit.at), "by": edit.by, "fields": list(edit.fields)}
                    for edit in facts.edits
                ]
            },
        )
    yield from _about_holdout(facts)
    if facts.sharing:
        names = ", ".join(f"“{name}” ({number})" for number, name in facts.sharing)
        yield Finding(
            "flag_shared",
            Severity.WARNING,
            f"The flag “{key}” carries other running experiments too: {names}. A change for one changes all.",
            "Give each experiment a flag of its own.",
            {"experiment_ids": [number for number, _ in facts.sharing]},
        )


def _about_holdout(facts: Facts) -> Iterator[Finding]:
    row, flag = facts.plan.row, facts.plan.flag
    on_flag = ((flag.filters if flag is not None else {}).get("holdout") or {}).get("id")
    if on_flag == row.holdout_id:
        return
    if row.holdout_id is None:
        message = f"The flag keeps the people of holdout {on_flag} out, but the experiment is in no holdout."
    elif on_flag is None:
        message = f"The experiment is in holdout {row.holdout_id}, but its flag lets the people of it in."
    else:
        message = f"The experiment is in holdout {row.holdout_id}, but its flag keeps out holdout {on_flag}."
    yield Finding(
        "holdout_conflict",
        Severity.WARNING,
        message,
        "Set the same holdout on both: reset the experiment, choose its holdout again, and launch it.",
        {"experiment_holdout_id": row.holdout_id, "flag_holdout_id": on_flag},
    )


def _about_exposures(facts: Facts) -> Iterator[Finding]:
    variants = facts.plan.calculation.variants
    counts = {key: facts.exposures.get(key, 0) for key in variants}
    total = sum(counts.values())
    if facts.unreadable.exposures is not None:
        return
    if total == 0:
        if _is_young(facts):
            return
        yield Finding(
            "no_exposures",
            Severity.CRITICAL,
            f"Nobody has been exposed since the start: no event {_exposure_event(facts.plan)} counts.",
            "Check that your code evaluates the flag, that the SDK sends events to this project, and that the "
            "exposure criteria and the filters of test accounts do not leave everybody out.",
        )
        return
    empty = [key for key, count in counts.items() if count == 0]
    if empty and not _is_young(facts):
        yield Finding(
            "variant_without_exposures",
            Severity.CRITICAL,
            f"Nobody has seen {listed(empty)}, while {total} people have seen other variants.",
            "Check the rollout of the variants and any condition that overrides the variant.",
            {"variants": empty},
        )
    if facts.mismatch is not None and facts.mismatch["is_mismatch"]:
        p_values = {name: facts.mismatch[name] for name in ("p_value", "anytime_p_value")}
        decisive = p_values["p_value" if facts.plan.row.is_stopped else "anytime_p_value"]
        yield Finding(
            "sample_ratio_mismatch",
            Severity.CRITICAL,
            f"The variants have not got the shares of people that the flag gives them ({p_text(decisive)}). "
            "Something loses or adds people on one side, so the results are not to be trusted.",
            "Look for redirects, crashes, bots, caching or exposure events that differ between the variants.",
            {**p_values, "exposures": counts},
        )
    crossing = crossing_percentage(facts.exposures)
    percentage = facts.multiple_percentage if crossing is None else crossing
    if percentage is not None:
        yield Finding(
            "multiple_variants",
            Severity.WARNING if crossing is None else Severity.CRITICAL,
            f"{percentage:.1f}% of the people have seen several variants and are left out of the comparison. "
            "Those who are left are no longer a random part of all people.",
            "Identify people before the flag is evaluated, or turn on persistence across authentication steps.",
            {"people": facts.exposures.get(MULTIPLE_VARIANT, 0)},
        )


def _about_metrics(facts: Facts) -> Iterator[Finding]:
    own = facts.plan.metrics
    if not own:
        yield Finding(
            "no_metrics",
            Severity.WARNING,
            "The experiment has no metric, so there is nothing to compare.",
            "Add a metric; it is computed from the start of the experiment on.",
        )
    if _is_young(facts):
        return
    for metric in own:
        missing = sorted(metrics.event_names(metric) - set(facts.seen_events))
        if not missing:
            continue
        yield Finding(
            "metric_without_events",
            Severity.WARNING,
            f"The metric “{_name(metric)}” has no data: no {listed(missing)} event came since the start.",
            "Check the name of the event and that your code sends it.",
            {"metric_uuid": metric["uuid"], "events": missing},
        )


def _about_counted(facts: Facts) -> Iterator[Finding]:
    for past in facts.past_imbalances:
        details = {"metric_uuid": past.metric["uuid"], "variant": past.variant, "p_value": past.p_value}
        text = past.message(_name(past.metric))
        yield Finding("pre_period_imbalance", Severity.WARNING, text, PAST_ADVICE, details)
    for imbalance in facts.imbalances:
        shares = [f"{share:.1%} of “{key}”" for key, share in imbalance.shares.items()]
        yield Finding(
            "denominator_imbalance",
            Severity.CRITICAL,
            f"The metric “{_name(imbalance.metric)}” counts only some of the people, and not as many in each variant: "
            f"{', '.join(shares[:-1])} and {shares[-1]} ({p_text(imbalance.p_value)}). The variant itself changes who "
            "is counted, so those who are counted are not alike, and a difference between them is no effect.",
            imbalance.advice,
            {
                "metric_uuid": imbalance.metric["uuid"],
                "p_value": imbalance.p_value,
                "counted": dict(imbalance.counted),
                "exposed": dict(imbalance.exposed),
            },
        )


def _about_plan(facts: Facts) -> Iterator[Finding]:
    if facts.plan.row.is_stopped:
        return
    for metric, plan in facts.underpowered:
        yield Finding(
            "underpowered_plan",
            Severity.WARNING,
            f"The plan is too small: {plan.people:,} people find a true change of “{_name(metric)}” by "
            f"{plan.effect:.0%} in {percent_text(plan.power)} of experiments only, so much do its values vary. "
            f"Finding it in 80 % takes {plan.people_needed:,} people.",
            "Plan for more people or a larger change before you read a result, or make the values vary less: bound "
            "large ones by a percentile, or use CUPED. That no difference is found then says little.",
            {
                "metric_uuid": metric["uuid"],
                "people_planned": plan.people,
                "effect": plan.effect,
                "power": plan.power,
                "people_needed": plan.people_needed,
            },
        )


def definition_findings(inputs: ExperimentInputs, unreadable: Uncomputable) -> Iterator[Finding]:
    """Yield the findings about parts of an experiment that can never be computed, or have no effect."""
    if unreadable.exposures is not None:
        yield Finding(
            "exposures_not_computable",
            Severity.CRITICAL,
            "It cannot be said who is exposed, so there are no results: " + _sentence(unreadable.exposures),
            "Correct the exposure criteria, or the project's filters of test accounts.",
            {"reason": unreadable.exposures},
        )
    for metric in inputs.metrics:
        reason = unreadable.metrics.get(metric["uuid"])
        if reason is not None:
            yield Finding(
                "metric_not_computable",
                Severity.CRITICAL,
                f"The metric “{_name(metric)}” cannot be computed: " + _sentence(reason),
                "Correct the metric, or what it names; it is then computed from the start of the experiment on.",
                {"metric_uuid": metric["uuid"], "reason": reason},
            )
    for warning in inputs.warnings:
        yield Finding(
            warning["code"],
            Severity.WARNING,
            warning["detail"],
            "Correct it, or take it out: what the experiment does is not what it says.",
            {"attr": warning["attr"]},
        )


def _about_failures(facts: Facts) -> Iterator[Finding]:
    for metric in facts.plan.metrics:
        known = facts.failures.get(metric["uuid"])
        # Where it cannot be computed at all that is why it failed, and no news.
        if (
            known is None
            or metric["uuid"] in facts.unreadable.metrics
            or facts.unreadable.exposures is not None
        ):
            continue
        failure, has_result = known
        shown = "An older result is shown." if has_result else "There is no result."
        at = format_moment(failure.at)
        yield Finding(
            "metric_failed",
            Severity.WARNING if has_result else Severity.CRITICAL,
            f"The last computation of the metric “{_name(metric)}” failed on {at}: "
            f"{_sentence(failure.reason)} {shown}",
            "It is tried again at the next scheduled time, and when its results are asked for. If it goes on failing, "
            "give the server more memory or time, or make the metric look at fewer events.",
            {"metric_uuid": metric["uuid"], "reason": failure.reason, "failed_at": at},
        )


def _name(metric: Mapping[str, Any]) -> str:
    return str(metric.get("name") or metric["metric_type"])


def _sentence(reason: str) -> str:
    return reason if reason.endswith(".") else f"{reason}."


def _is_young(facts: Facts) -> bool:
    start = facts.plan.row.start_date
    return start is None or facts.now < start + GRACE


def _reaches_anybody(filters: Mapping[str, Any]) -> bool:
    groups = filters.get("groups") or []
    return any(group.get("rollout_percentage") is None or group["rollout_percentage"] > 0 for group in groups)


def _exposure_event(inputs: ExperimentInputs) -> str:
    config = (inputs.row.exposure_criteria or {}).get("exposure_config") or {}
    name = config.get("event") or config.get("name")
    return (
        f"“{name}”" if name else f"“$feature_flag_called” of the flag “{inputs.calculation.feature_flag_key}”"
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def listed(names: Sequence[str], joint: str = "or") -> str:
    """Return names in quotation marks, joined by commas and a word before the last one."""
    quoted = [f"“{name}”" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {joint} {quoted[-1]}"


# -- collecting the facts ------------------------------------------------------------------------------------------


class ExperimentHealth:
    """Examinations of experiments."""

    def __init__(self, service: ResultsService, exposures: ExposureCounts, events: EventReader) -> None:
        self._service = service
        self._exposures = exposures
        self._events = events

    def examine(self, project: Project, experiment_id: int) -> dict[str, Any]:
        """Return the answer of the ``health`` endpoint. Raises 404, and 429 when the events cannot be read now."""
        inputs = self._service.plan_of(project, experiment_id)
        now = self._service.now()
        try:
            findings = self.findings(inputs, lambda: self._exposures.counted(inputs))
        except ComputationError as error:
            raise wire_error(error) from error
        return {
            "experiment_id": inputs.row.id,
            "status": status_of(findings),
            "checked_at": format_moment(now),
            "findings": [asdict(finding) for finding in findings],
        }

    def findings(self, inputs: ExperimentInputs, exposures: Callable[[], Mapping[str, Any]]) -> list[Finding]:
        """Return all findings about an experiment, worst first.

        ``exposures`` is called where they can be counted, and its errors are raised. Raises `ComputationError` when
        the events cannot be read.
        """
        now, start = self._service.now(), inputs.row.start_date
        unreadable = unreadable_parts(inputs, self._events.dialect)
        if start is None or start > now:
            return [*definition_findings(inputs, unreadable), _NOT_STARTED]
        counted = _NONE_COUNTED if unreadable.exposures is not None else exposures()
        return diagnose(self._facts(inputs, start, now, unreadable, counted))

    def _facts(
        self,
        inputs: ExperimentInputs,
        start: datetime,
        now: datetime,
        unreadable: Uncomputable,
        exposures: Mapping[str, Any],
    ) -> Facts:
        bias = exposures["bias_risk"]
        row, totals = inputs.row, exposures["total_exposures"]
        with self._service.database.read() as connection:
            results = _newest_results(connection, inputs, unreadable)
            entries, _ = activity.entries(
                connection,
                row.project_id,
                limit=EDITS_LOOKED_AT,
                offset=0,
                scopes=[FLAG_SCOPE],
                item_id=str(row.feature_flag_id),
            )
            others = experiments_store.of_flags(connection, row.project_id, [row.feature_flag_id])
        # With other shares than at first people of one variant have had less time than those of another.
        has_one_split = len(exposures.get("phases") or ()) <= 1
        return Facts(
            plan=inputs,
            now=now,
            exposures=totals,
            mismatch=exposures["sample_ratio_mismatch"],
            multiple_percentage=None if bias is None else bias["multiple_variant_percentage"],
            seen_events=seen_events(self._events, inputs, start),
            edits=[edit for entry in entries if (edit := _edit(entry, start, row.end_date)) is not None],
            sharing=[(other.id, other.name) for other in others if other.is_running and other.id != row.id],
            unreadable=unreadable,
            failures=self._failures(inputs),
            imbalances=list(imbalances(inputs, totals, results)) if has_one_split else (),
            past_imbalances=list(past_imbalances(inputs, results)),
            underpowered=list(underpowered(inputs, results)),
        )

    def _failures(self, inputs: ExperimentInputs) -> dict[str, tuple[Failure, bool]]:
        failed = {}
        for metric in inputs.metrics:
            key = inputs.key(metric)
            failure = self._service.series.last_failure(key)
            if failure is not None:
                failed[metric["uuid"]] = failure, self._service.series.has_result(key)
        return failed


def seen_events(events: EventReader, inputs: ExperimentInputs, since: datetime) -> set[str]:
    """Return the events named by the metrics that arrived since a moment. Raises `ComputationError`."""
    names = sorted({name for metric in inputs.metrics for name in metrics.event_names(metric)})
    if not names:
        return set()
    values = {"project": inputs.project.id, "since": since, "names": names[:MAX_EVENT_NAMES]}
    with explained_failures(TIMEOUT_S), events.reader() as reader:
        return {row[0] for row in reader.execute(_EVENTS, values, timeout_s=TIMEOUT_S)}


def _newest_results(
    connection: Connection, inputs: ExperimentInputs, unreadable: Uncomputable
) -> dict[str, Mapping[str, Any]]:
    """Return the newest stored results of the metrics that can be computed, by uuid."""
    points = {
        metric["uuid"]: store.newest_result(connection, inputs.key(metric))
        for metric in inputs.metrics
        if metric["uuid"] not in unreadable.metrics
    }
    return {uuid: point.result for uuid, point in points.items() if point is not None and point.result}


def unreadable_parts(inputs: ExperimentInputs, dialect: Dialect) -> Uncomputable:
    """Return the parts of an experiment that can never be computed as they are defined."""
    named = Named(inputs.project.id, inputs.reader, inputs.cohorts, dialect)
    problems = {metric["uuid"]: named.metric_problem(metric) for metric in inputs.metrics}
    return Uncomputable(
        exposures=named.exposure_problem(
            inputs.row.exposure_criteria or {}, inputs.calculation.test_account_filters
        ),
        metrics={uuid: reason for uuid, reason in problems.items() if reason is not None},
    )


_NONE_COUNTED: Mapping[str, Any] = {
    "total_exposures": {},
    "sample_ratio_mismatch": None,
    "bias_risk": None,
}
_NOT_STARTED = Finding(
    "not_started",
    Severity.INFO,
    "The experiment has not started yet, so nothing is measured.",
    "Launch it when your code evaluates its flag.",
)


def _edit(entry: Mapping[str, Any], start: datetime, end: datetime | None) -> FlagEdit | None:
    """Return a change of the rules for variants while the experiment ran; None for any other entry of the log."""
    at: datetime = entry["created_at"]
    if at <= start or (end is not None and at >= end):
        return None
    for change in entry["detail"]["changes"] or ():
        if change["field"] != "filters":
            continue
        before, after = change["before"] or {}, change["after"] or {}
        decisive = {name: (_decides(before, name), _decides(after, name)) for name in _DECISIVE}
        fields = tuple(
            name for name, values in decisive.items() if _FROZEN not in values and values[0] != values[1]
        )
        if fields:
            author = entry["user"]
            return FlagEdit(at, None if author is None else author["email"], fields)
    return None


def _decides(filters: Mapping[str, Any], name: str) -> Any:
    """Return the part of a flag's filters that decides variants, without names and the like."""
    if name == "multivariate":
        return {
            variant["key"]: variant.get("rollout_percentage") for variant in flag_config.variants_of(filters)
        }
    if name == "groups" and is_frozen(filters):
        return _FROZEN
    return filters.get(name)


def status_of(findings: Sequence[Finding]) -> str:
    """Return the severity of the worst finding; notes alone leave an experiment healthy."""
    severities = {finding.severity for finding in findings}
    worst = next((level for level in (Severity.CRITICAL, Severity.WARNING) if level in severities), None)
    return "healthy" if worst is None else worst.value
