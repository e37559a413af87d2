"""Exposures: people by variant and day, with the people held out (spec experiment-results 2.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from hoglab.analysis.definitions import MetricParser, inputs_asked, is_id, named_by_exposures
from hoglab.analysis.query.days import DayGrid, zone_of
from hoglab.analysis.query.model import CohortMembers, EventSource, MeanMeasure, Question, Span, Value
from hoglab.analysis.timeseries.query_cache import PreparedQuery
from hoglab.experiments.definitions import flag_config
from hoglab.experiments.definitions.fingerprint import Calculation
from hoglab.experiments.definitions.flag_config import HOLDOUT_PREFIX
from hoglab.experiments.definitions.phases import SETTLING, Phase, phases_between, shares_of
from hoglab.experiments.wire.presentation import live_key
from hoglab.http.errors import validation_error
from hoglab.http.fields.dates import parse_moment
from hoglab.statistics import StatisticsConfig, bias_risk, mismatch_of_phases, sample_ratio_mismatch

if TYPE_CHECKING:
    from hoglab.analysis.definitions import ExperimentInputs
    from hoglab.analysis.timeseries import ResultsService
    from hoglab.experiments.store import ExperimentRow
    from hoglab.http.identity import Project
    from hoglab.statistics import SampleRatioMismatch

MAX_EXPOSURE_ROWS = 5000
"""Maximum number of (day, variant) pairs in an exposure response; a longer one keeps only the last days."""


class ExposureCounts:
    """The counts of exposed people. Bad input, time-outs and memory limits are errors of the wire."""

    def __init__(self, service: ResultsService) -> None:
        self._service = service

    def of_query(self, project: Project, query: Mapping[str, Any]) -> PreparedQuery:
        """Prepare an ``ExperimentExposureQuery``. Raises `ApiError`."""
        return self._prepared(self._asked(project, query))

    def of(self, inputs: ExperimentInputs) -> PreparedQuery:
        """Return the exposures of a stored experiment."""
        return self._prepared(_Asked.of_plan(inputs))

    def counted(self, inputs: ExperimentInputs) -> dict[str, Any]:
        """Count the exposures of an experiment, unless a cached answer is fresh. Raises `ApiError`."""
        asked, queries = self.of(inputs), self._service.query_runner
        kept = queries.cached(asked, fresh=True) or queries.compute(asked)
        return kept.answer

    def _prepared(self, asked: _Asked) -> PreparedQuery:
        return PreparedQuery.of(
            asked.project, self._service.now(), asked.identity, lambda: self._counted(asked)
        )

    def _counted(self, asked: _Asked) -> dict[str, Any]:
        project = asked.project
        start, end, now = asked.start, asked.end, self._service.now()
        zone = zone_of(project.timezone)
        answer: dict[str, Any] = {
            "kind": "ExperimentExposureQuery",
            "timeseries": [],
            "total_exposures": {},
            "date_range": {
                "date_from": None if start is None else start.astimezone(zone).isoformat(),
                "date_to": None if end is None else end.astimezone(zone).isoformat(),
                "explicitDate": True,
            },
            "sample_ratio_mismatch": None,
            "phases": [],
            "bias_risk": None,
        }
        answer["holdout"] = None if asked.holdout_id is None else _held_out(asked.holdout_id, (), ())
        if start is None or start > now:
            return answer
        until = max(start, min(now, end) if end is not None else now)
        variants = asked.calculation.variants
        grid = DayGrid.between(start, until, zone, limit=MAX_EXPOSURE_ROWS // (len(variants) + 1))
        question = Question(
            exposures=MetricParser(asked.actions.get).exposures(project.id, asked.calculation),
            span=Span(start, until, now, grid),
            metric=MeanMeasure(Value(EventSource(()))),
            zone=project.timezone,
            cohorts=asked.cohorts,
        )
        counts = self._service.computer.exposures(question)
        totals = {key: sum(days) for key, days in counts.items()}
        days = [day.isoformat() for day in grid.days]
        answer["timeseries"] = [
            {"variant": key, "days": days, "exposure_counts": list(accumulate(new))}
            for key, new in counts.items()
        ]
        answer["total_exposures"] = totals
        ended = end is not None and end <= now
        phases = asked.phases(start, until)
        later = [phase.begin for phase in phases[1:]]
        by_phase = self._service.computer.exposures_by_phase(question, later, SETTLING) if later else [totals]
        tests = [
            sample_ratio_mismatch(counts, phase.shares)
            for counts, phase in zip(by_phase, phases, strict=True)
        ]
        mismatch = mismatch_of_phases(tests)
        answer["sample_ratio_mismatch"] = None if mismatch is None else mismatch_object(mismatch, ended=ended)
        answer["phases"] = [
            {
                "date_from": phase.begin.astimezone(zone).isoformat(),
                "shares": dict(phase.shares),
                "exposures": {key: counts.get(key, 0) for key in phase.shares},
                "mismatch": None if test is None else mismatch_object(test, ended=ended),
            }
            for phase, counts, test in zip(phases, by_phase, tests, strict=True)
        ]
        answer["bias_risk"] = _bias(totals, asked, phases[-1], ended=ended)
        if asked.holdout_id is not None:
            # They are no variant: a person who left the holdout and then saw a variant counts for both.
            alone = replace(question.exposures, variants=(f"{HOLDOUT_PREFIX}{asked.holdout_id}",))
            (new,) = self._service.computer.exposures(replace(question, exposures=alone)).values()
            answer["holdout"] = _held_out(asked.holdout_id, days, list(accumulate(new)))
        return answer

    def _asked(self, project: Project, query: Mapping[str, Any]) -> _Asked:
        """Return the parameters of the query, with defaults from the experiment."""
        inputs: ExperimentInputs | None = None
        if is_id(query.get("experiment_id")):
            inputs = inputs_asked(self._service.database, project, query)
        flag = query.get("feature_flag")
        flag = flag if isinstance(flag, Mapping) else {}
        key = flag.get("key")
        if inputs is not None and not key:
            key = inputs.calculation.feature_flag_key
        if not isinstance(key, str) or not key:
            raise validation_error("feature_flag key is required")
        given = query.get("exposure_criteria")
        criteria = dict(given) if isinstance(given, Mapping) and given else None
        given = flag.get("filters")
        filters = (
            dict(given) if isinstance(given, Mapping) and flag_config.variant_keys(dict(given)) else None
        )
        start, end = _moment(query, "start_date"), _moment(query, "end_date")
        if inputs is not None:
            own = _Asked.of_plan(inputs)
            start = start if "start_date" in query else own.start
            end = end if "end_date" in query else own.end
            filters = filters if filters is not None or inputs.flag is None else inputs.flag.filters
            criteria = criteria if criteria is not None else inputs.row.exposure_criteria
        with self._service.database.read() as connection:
            named = named_by_exposures(connection, project, criteria)
        return _Asked.of(project, key, filters or {}, criteria, start, end, inputs, named, _holdout_of(query))


@dataclass(frozen=True, slots=True)
class _Asked:
    """An exposure query with all its parameters."""

    project: Project
    calculation: Calculation
    filters: Mapping[str, Any]
    """The filters of the flag: what it asks for now, or as the query says."""
    stored_phases: Sequence[Mapping[str, Any]] | None
    """The phases of the experiment as they are stored; None: the shares of the flag hold all the time."""
    start: datetime | None
    end: datetime | None
    actions: Mapping[int, Any]
    cohorts: Mapping[int, CohortMembers]
    holdout_id: int | None

    @property
    def identity(self) -> object:
        """Key of everything that decides the counts."""
        return (
            "exposures",
            self.calculation,
            self.stored_phases or shares_of(self.filters),
            self.start,
            self.end,
            self.actions,
            self.cohorts,
            self.holdout_id,
        )

    def phases(self, start: datetime, end: datetime) -> list[Phase]:
        """Return the phases between two moments; the first one begins at the start."""
        return phases_between(self.stored_phases, self.filters, start, end, self.calculation.variants)

    @classmethod
    def of_plan(cls, inputs: ExperimentInputs) -> _Asked:
        """Return the parameters of the exposures of a stored experiment."""
        row, key = inputs.row, inputs.calculation.feature_flag_key
        filters = {} if inputs.flag is None else inputs.flag.filters
        return cls.of(
            inputs.project,
            key,
            filters,
            row.exposure_criteria,
            row.start_date,
            row.end_date,
            inputs,
            (inputs.actions, inputs.cohorts),
        )

    @classmethod
    def of(
        cls,
        project: Project,
        key: str,
        filters: dict[str, Any],
        criteria: Mapping[str, Any] | None,
        start: datetime | None,
        end: datetime | None,
        inputs: ExperimentInputs | None,
        named: tuple[Mapping[int, Any], Mapping[int, CohortMembers]],
        holdout_id: int | None = None,
    ) -> _Asked:
        row: ExperimentRow | None = None if inputs is None else inputs.row
        excluded = set(row.excluded_variants) if row is not None else set()
        variants = [variant for variant in flag_config.variant_keys(filters) if variant not in excluded]
        base = (
            inputs.calculation
            if inputs is not None
            else Calculation(
                start_date=start,
                feature_flag_key=live_key(key),
                variants=variants,
                statistics=StatisticsConfig(),
                test_account_filters=project.test_account_filters,
                timezone=project.timezone,
            )
        )
        calculation = replace(
            base,
            feature_flag_key=live_key(key),
            variants=variants,
            exposure_criteria=criteria,
            aggregation_group_type_index=filters.get("aggregation_group_type_index"),
        )
        # A query may ask about other shares than those of the experiment.
        flag = None if inputs is None else inputs.flag
        is_own = flag is not None and shares_of(filters) == shares_of(flag.filters)
        if holdout_id is None:
            # What the flag says is what people are shown.
            on_flag = (filters.get("holdout") or {}).get("id")
            holdout_id = on_flag if is_id(on_flag) else None if row is None else row.holdout_id
        stored = row.phases if row is not None and is_own else None
        return cls(project, calculation, filters, stored, start, end, *named, holdout_id)


def _held_out(holdout_id: int, days: Sequence[str], counts: Sequence[int]) -> dict[str, Any]:
    """Return the people of a holdout as a group of their own: it is no variant, and compared with nobody."""
    return {
        "id": holdout_id,
        "key": f"{HOLDOUT_PREFIX}{holdout_id}",
        "total": counts[-1] if counts else 0,
        "days": list(days),
        "exposure_counts": list(counts),
    }


def _holdout_of(query: Mapping[str, Any]) -> int | None:
    given = query.get("holdout")
    holdout_id = given.get("id") if isinstance(given, Mapping) else None
    return holdout_id if is_id(holdout_id) else None


def mismatch_object(mismatch: SampleRatioMismatch, *, ended: bool) -> dict[str, Any]:
    """Return the tests for a mismatch as on the wire."""
    return {
        "expected": mismatch.expected,
        "p_value": mismatch.p_value,
        "anytime_p_value": mismatch.anytime_p_value,
        "is_mismatch": mismatch.is_alarming(ended=ended),
    }


def _bias(totals: Mapping[str, int], asked: _Asked, phase: Phase, *, ended: bool) -> dict[str, Any] | None:
    criteria = asked.calculation.exposure_criteria or {}
    risk = bias_risk(
        totals,
        list(phase.shares.values()),
        excludes_multiple=criteria.get("multiple_variant_handling") != "first_seen",
        ended=ended,
    )
    return None if risk is None else {"multiple_variant_percentage": risk.multiple_variant_percentage}


def _moment(query: Mapping[str, Any], name: str) -> datetime | None:
    value = query.get(name)
    if value is None:
        return None
    try:
        return parse_moment(str(value))
    except ValueError:
        raise validation_error(f"{name} is not a date-time", name) from None
