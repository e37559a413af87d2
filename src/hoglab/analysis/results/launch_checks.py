"""Checks before the launch of an experiment: what would leave it without results, or would spoil them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hoglab.analysis.errors import ComputationError, wire_error
from hoglab.analysis.results.health import (
    Finding,
    Severity,
    Uncomputable,
    definition_findings,
    listed,
    seen_events,
    unreadable_parts,
)
from hoglab.experiments import store as experiments_store
from hoglab.experiments.definitions import flag_config, metrics
from hoglab.http.errors import WireError

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.http.identity import Project
    from hoglab.storage.event_store import EventReader

SEEN_WITHIN = timedelta(days=30)
"""Time within which events of metrics have to have come before the launch."""


@dataclass(frozen=True, slots=True)
class Check:
    """One condition for a launch."""

    code: str
    passed: bool
    is_blocking: bool
    """Whether there are no results, or wrong ones, while it is not met."""
    message: str
    """State of the condition in a sentence."""
    advice: str | None = None
    """Advice on meeting it; None where it is met."""


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Facts about a draft."""

    inputs: ExperimentInputs
    seen: Collection[str]
    """Events named by metrics that arrived in the last days."""
    sharing: Sequence[tuple[int, str]]
    """Id and name of running experiments on the same flag."""
    unreadable: Uncomputable


def checks_of(facts: LaunchFacts) -> list[Check]:
    """Return all checks, in the order in which an experiment is set up."""
    return [
        _split(facts.inputs),
        _flag_is_unshared(facts),
        _has_metric(facts.inputs),
        *_definitions(facts),
        *_has_events(facts),
        _flag_is_called(facts.inputs),
    ]


def _split(inputs: ExperimentInputs) -> Check:
    flag = inputs.flag
    filters = {} if flag is None else flag.filters
    shares = [float(variant.get("rollout_percentage") or 0) for variant in flag_config.variants_of(filters)]
    advice = "Correct the variants of the flag."
    if flag is None or flag.deleted:
        return Check(
            "split", False, True, "The experiment has no flag.", "Restore its flag, or link another one."
        )
    try:
        flag_config.check_suitable(filters)
    except WireError as error:
        return Check("split", False, True, str((error.body or {}).get("detail")), advice)
    if abs(sum(shares) - 100) > 0.01:
        text = f"The shares of the variants sum to {sum(shares):g}%, not to 100%."
        return Check("split", False, True, text, advice)
    return Check("split", True, True, f"The shares of the {len(shares)} variants sum to 100%.")


def _flag_is_unshared(facts: LaunchFacts) -> Check:
    if not facts.sharing:
        return Check("flag_unshared", True, True, "No running experiment shares the flag.")
    names = listed([name for _, name in facts.sharing], "and")
    return Check(
        "flag_unshared",
        False,
        True,
        f"The flag already decides the running experiment {names}: each would count the other's people.",
        "Give the experiment a flag of its own: duplicate it with another flag key.",
    )


def _has_metric(inputs: ExperimentInputs) -> Check:
    primary = [shown.name for shown in inputs.shown if shown.is_primary]
    if primary:
        return Check("has_metric", True, True, f"It is decided by {listed(primary, 'and')}.")
    text = "The experiment has no primary metric, so nothing decides it."
    return Check("has_metric", False, True, text, "Add a primary metric.")


def _definitions(facts: LaunchFacts) -> Iterator[Check]:
    for finding in definition_findings(facts.inputs, facts.unreadable):
        yield _failed(finding)


def _failed(finding: Finding) -> Check:
    is_critical = finding.severity is Severity.CRITICAL
    return Check(finding.code, False, is_critical, finding.message, finding.advice)


def _has_events(facts: LaunchFacts) -> Iterator[Check]:
    names = {name for metric in facts.inputs.metrics for name in metrics.event_names(metric)}
    if not names:
        return
    days = SEEN_WITHIN.days
    missing = sorted(names - set(facts.seen))
    if missing:
        text = f"No {listed(missing, 'or')} event came in the last {days} days, so metrics that count them stay empty."
        advice = "Check the names, and that your code sends them."
        yield Check("metric_events", False, False, text, advice)
    else:
        text = f"All events that the metrics count came in the last {days} days."
        yield Check("metric_events", True, False, text)


def _flag_is_called(inputs: ExperimentInputs) -> Check:
    flag = inputs.flag
    if flag is not None and flag.last_called_at is not None:
        return Check("flag_called", True, False, "Code has asked for the flag.")
    return Check(
        "flag_called",
        False,
        False,
        "No code has asked for the flag yet: nobody takes part before it does.",
        "Release the code that asks for the flag before the launch.",
    )


class LaunchChecks:
    """The checks before launches."""

    def __init__(self, service: ResultsService, events: EventReader) -> None:
        self._service = service
        self._events = events

    def read(self, project: Project, experiment_id: int) -> dict[str, Any]:
        """Return the answer of the ``launch_checks`` endpoint. Raises 404, and 429 when events cannot be read now."""
        inputs = self._service.plan_of(project, experiment_id)
        row = inputs.row
        with self._service.database.read() as connection:
            others = experiments_store.of_flags(connection, row.project_id, [row.feature_flag_id])
        try:
            seen = seen_events(self._events, inputs, self._service.now() - SEEN_WITHIN)
        except ComputationError as error:
            raise wire_error(error) from error
        facts = LaunchFacts(
            inputs=inputs,
            seen=seen,
            sharing=[(other.id, other.name) for other in others if other.is_running and other.id != row.id],
            unreadable=unreadable_parts(inputs, self._events.dialect),
        )
        checks = checks_of(facts)
        return {
            "experiment_id": row.id,
            "is_ready": all(check.passed or not check.is_blocking for check in checks),
            "checks": [asdict(check) for check in checks],
        }
