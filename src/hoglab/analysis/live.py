"""Results and exposures computed when asked for: the ``/query`` endpoint (spec experiment-results 0, 2.6, 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeGuard
from uuid import uuid4

from hoglab.analysis.actions import Actions
from hoglab.analysis.days import DayGrid, zone_of
from hoglab.analysis.definition import Reader
from hoglab.analysis.errors import ComputationError, DefinitionError
from hoglab.analysis.legacy import legacy_answer
from hoglab.analysis.plan import Plan, plan
from hoglab.analysis.presentation import result_object
from hoglab.analysis.query.model import Cohort, EventSource, MeanMetric, Question, Span, Value
from hoglab.analysis.query.statements import Answer
from hoglab.experiments import flag_config
from hoglab.experiments import store as experiments_store
from hoglab.experiments.fingerprint import Calculation
from hoglab.experiments.presentation import live_key
from hoglab.http.dates import format_offset, parse_moment
from hoglab.http.errors import ApiError, validation_error
from hoglab.statistics import StatisticsConfig, bias_risk, sample_ratio_mismatch

if TYPE_CHECKING:
    from hoglab.analysis.service import ResultsService
    from hoglab.experiments.store import ExperimentRow
    from hoglab.http.identity import Project

MAX_EXPOSURE_ROWS = 5000
"""How many (day, variant) pairs an exposure response may have; of more days only the last ones are given."""


class LiveResults:
    """Answers queries. Bad input, time-outs and memory limits are errors of the wire, never of the server."""

    def __init__(self, service: ResultsService) -> None:
        self._service = service

    def answer(self, project: Project, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of one query with what every query's answer carries. Raises `ApiError`."""
        query = body.get("query")
        if not isinstance(query, Mapping):
            raise validation_error("This field is required.", "query", "required")
        match query.get("kind"):
            case "ExperimentQuery":
                answer = self._explained(lambda: self._result(project, query))
            case "ExperimentExposureQuery":
                answer = self._explained(lambda: self._exposures(project, query))
            case "ExperimentTrendsQuery" | "ExperimentFunnelsQuery":
                answer = self._explained(lambda: self._legacy(project, query))
            case other:
                raise validation_error(f"Queries of kind {other!r} are not supported.", "query")
        return answer | {
            "cache_key": str(uuid4()),
            "cache_target_age": None,
            "calculation_trigger": None,
            "is_cached": False,
            "last_refresh": format_offset(self._service.now()),
            "next_allowed_client_refresh": format_offset(self._service.now()),
            "query_status": None,
            "timezone": project.timezone,
        }

    def _explained(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return work()
        except DefinitionError as error:
            raise validation_error(str(error)) from error
        except ComputationError as error:
            raise wire_error(error) from error

    # -- results ---------------------------------------------------------------------------------------

    def _result(self, project: Project, query: Mapping[str, Any]) -> dict[str, Any]:
        identifier = query.get("experiment_id")
        if not _is_id(identifier):
            raise validation_error("experiment_id is required")
        metric = query.get("metric")
        if not isinstance(metric, Mapping):
            raise validation_error("metric is required")
        found = self._plan(project, identifier, metric)
        span = found.span(self._service.now())
        variants = list(found.calculation.variants)
        config = found.calculation.statistics
        if span is None:
            read = found.reader.metric(metric)
            return result_object(Answer({}), variants, config, read)
        question = found.question(metric, span)
        result = result_object(self._service.computer.result(question), variants, config, question.metric)
        return self._service.corrected(found, metric, result, self._service.newest_of_family(found, metric))

    def _legacy(self, project: Project, query: Mapping[str, Any]) -> dict[str, Any]:
        identifier = query.get("experiment_id")
        if not _is_id(identifier):
            raise validation_error("experiment_id is required")
        parts = [part for part in query.values() if isinstance(part, Mapping)]
        found = self._plan(project, identifier, *parts)
        return legacy_answer(found, found.span(self._service.now()), query, self._service.computer)

    def _plan(self, project: Project, experiment_id: int, *further: Mapping[str, Any]) -> Plan:
        with self._service.database.read() as connection:
            row = experiments_store.get(connection, project.id, experiment_id)
            if row is None or row.deleted:
                raise validation_error(f"Experiment with id {experiment_id} not found")
            return plan(connection, project, row, further=further)

    # -- exposures -------------------------------------------------------------------------------------

    def _exposures(self, project: Project, query: Mapping[str, Any]) -> dict[str, Any]:
        return self._counted(project, self._asked(project, query))

    def exposures_of(self, found: Plan) -> dict[str, Any]:
        """The exposures of an experiment as it is stored. Raises `ApiError`."""
        flag, row = found.flag, found.row
        key = found.calculation.feature_flag_key
        filters = {} if flag is None else flag.filters
        asked = _Asked.of(
            found.project, key, filters, row.exposure_criteria, row.start_date, row.end_date, found
        )
        return self._explained(lambda: self._counted(found.project, asked))

    def _counted(self, project: Project, asked: _Asked) -> dict[str, Any]:
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
            "bias_risk": None,
        }
        if start is None or start > now:
            return answer
        until = max(start, min(now, end) if end is not None else now)
        variants = asked.calculation.variants
        grid = DayGrid.between(start, until, zone, limit=MAX_EXPOSURE_ROWS // (len(variants) + 1))
        question = Question(
            exposures=Reader(asked.actions).exposures(project.id, asked.calculation),
            span=Span(start, until, now, grid),
            metric=MeanMetric(Value(EventSource(()))),
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
        answer["sample_ratio_mismatch"] = _mismatch(totals, asked)
        answer["bias_risk"] = _bias(totals, asked, ended=end is not None and end <= now)
        return answer

    def _asked(self, project: Project, query: Mapping[str, Any]) -> _Asked:
        """What the query says, with the experiment behind it where the query is silent."""
        flag = query.get("feature_flag")
        key = flag.get("key") if isinstance(flag, Mapping) else None
        if not isinstance(key, str) or not key:
            raise validation_error("feature_flag key is required")
        criteria = query.get("exposure_criteria")
        criteria = criteria if isinstance(criteria, Mapping) and criteria else None
        filters = flag.get("filters") if isinstance(flag, Mapping) else None
        filters = (
            filters if isinstance(filters, Mapping) and flag_config.variant_keys(dict(filters)) else None
        )
        found: Plan | None = None
        if _is_id(query.get("experiment_id")):
            found = self._plan(project, query["experiment_id"])
        start, end = _moment(query, "start_date"), _moment(query, "end_date")
        if found is not None:
            start = start if "start_date" in query else found.row.start_date
            end = end if "end_date" in query else found.row.end_date
            filters = filters if filters is not None or found.flag is None else found.flag.filters
            criteria = criteria if criteria is not None else found.row.exposure_criteria
        return _Asked.of(project, key, dict(filters or {}), criteria, start, end, found)


@dataclass(frozen=True, slots=True)
class _Asked:
    """An exposure query with everything filled in."""

    calculation: Calculation
    rollout: Mapping[str, float]
    start: datetime | None
    end: datetime | None
    actions: Actions
    cohorts: Mapping[int, Cohort]

    @classmethod
    def of(
        cls,
        project: Project,
        key: str,
        filters: dict[str, Any],
        criteria: Mapping[str, Any] | None,
        start: datetime | None,
        end: datetime | None,
        found: Plan | None,
    ) -> _Asked:
        row: ExperimentRow | None = None if found is None else found.row
        excluded = set(row.excluded_variants) if row is not None else set()
        variants = [variant for variant in flag_config.variant_keys(filters) if variant not in excluded]
        base = (
            found.calculation
            if found is not None
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
        rollout = {
            variant["key"]: float(variant.get("rollout_percentage") or 0)
            for variant in (filters.get("multivariate") or {}).get("variants") or []
            if isinstance(variant, Mapping) and variant.get("key") in variants
        }
        actions = ({} if found is None else found.actions).get
        return cls(calculation, rollout, start, end, actions, {} if found is None else found.cohorts)


def _mismatch(totals: Mapping[str, int], asked: _Asked) -> dict[str, Any] | None:
    found = sample_ratio_mismatch(totals, asked.rollout)
    return None if found is None else {"expected": found.expected, "p_value": found.p_value}


def _bias(totals: Mapping[str, int], asked: _Asked, *, ended: bool) -> dict[str, Any] | None:
    criteria = asked.calculation.exposure_criteria or {}
    found = bias_risk(
        totals,
        list(asked.rollout.values()),
        excludes_multiple=criteria.get("multiple_variant_handling") != "first_seen",
        ended=ended,
    )
    return None if found is None else {"multiple_variant_percentage": found.multiple_variant_percentage}


def wire_error(error: ComputationError) -> ApiError:
    """How a request learns that something could not be computed: 429 when it may be asked again, else 400."""
    if error.retry:
        return ApiError(429, "throttled_error", "query_limit", str(error), headers={"Retry-After": "30"})
    return validation_error(str(error))


def _moment(query: Mapping[str, Any], name: str) -> datetime | None:
    value = query.get(name)
    if value is None:
        return None
    try:
        return parse_moment(str(value))
    except ValueError:
        raise validation_error(f"{name} is not a date-time", name) from None


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
