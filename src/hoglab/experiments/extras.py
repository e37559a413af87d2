"""Endpoints around experiments: numbers over all of them and running time (spec experiments-api 8)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

import orjson
import sqlalchemy as sa

from hoglab.actions import store as actions
from hoglab.experiments.actor import Actor
from hoglab.experiments.service import ExperimentService
from hoglab.experiments.wire.schemas import RunningTimeBody
from hoglab.http.errors import validation_error
from hoglab.statistics import BaselineStats, RunningTimeMetric, calculate_running_time
from hoglab.storage.database.tables import experiment

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.http.identity import Project

SAMPLE_DAYS = 7
DEFAULT_SAMPLE = 20
STATS_DAYS = 30


class ExperimentExtras:
    """Service behind the endpoints of this module."""

    def __init__(
        self,
        service: ExperimentService,
        *,
        flag_property_seen: Callable[[int, Collection[str], datetime, int], bool],
    ) -> None:
        self._service = service
        self._flag_property_seen = flag_property_seen

    # -- 8.4 -------------------------------------------------------------------------------------------------------

    def requires_flag_implementation(self, actor: Actor, query: Callable[[str], str | None]) -> bool:
        """Return whether none of the recent events of the given names carries flag values. Raises 400."""
        names = {entry["id"] for entry in _entities(query("events")) if isinstance(entry.get("id"), str)}
        wanted = {entry.get("id") for entry in _entities(query("actions"))}
        names |= self._action_events(actor.project, {int(str(i)) for i in wanted if str(i).isdecimal()})
        if not names:
            return True
        limit = query("limit") or ""
        sample = int(limit) if limit.isdecimal() and 0 < int(limit) <= 1000 else DEFAULT_SAMPLE
        since = actor.now - timedelta(days=SAMPLE_DAYS)
        return not self._flag_property_seen(actor.project.id, sorted(names), since, sample)

    def _action_events(self, project: Project, ids: Collection[int]) -> set[str]:
        with self._service.database.read() as connection:
            steps_by_action = actions.steps(connection, project.id, ids)
        return {
            step["event"]
            for steps in steps_by_action.values()
            for step in steps
            if isinstance(step.get("event"), str)
        }

    # -- 8.5 -------------------------------------------------------------------------------------------------------

    def stats(self, actor: Actor) -> dict[str, Any]:
        """Return the numbers of experiments that were launched, are active and were completed."""
        today = actor.now.astimezone(ZoneInfo(actor.project.timezone)).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        tomorrow = today + timedelta(days=1)
        last, previous = today - timedelta(days=STATS_DAYS), today - timedelta(days=2 * STATS_DAYS)
        column = experiment.c

        def count(*where: sa.ColumnElement[bool]) -> sa.Select[int]:
            mine = (
                column.project_id == actor.project.id,
                column.deleted.is_(False),
                column.archived.is_(False),
            )
            return sa.select(sa.func.count()).select_from(experiment).where(*mine, *where)

        def within(
            which: sa.ColumnElement[Any], start: datetime, end: datetime
        ) -> list[sa.ColumnElement[bool]]:
            return [which >= start.astimezone(UTC), which < end.astimezone(UTC)]

        with self._service.database.read() as connection:
            launched = connection.scalar(count(*within(column.start_date, last, tomorrow))) or 0
            before = connection.scalar(count(*within(column.start_date, previous, last))) or 0
            active = connection.scalar(count(column.start_date.is_not(None), column.end_date.is_(None))) or 0
            completed = connection.scalar(count(*within(column.end_date, last, tomorrow))) or 0
        change = (100.0 if launched else 0.0) if not before else round((launched - before) / before * 100, 1)
        return {
            "launched_last_30d": launched,
            "launched_previous_30d": before,
            "percent_change": change,
            "active_experiments": active,
            "completed_last_30d": completed,
        }

    # -- 8.8 -------------------------------------------------------------------------------------------------------

    def running_time(self, body: RunningTimeBody) -> dict[str, Any]:
        """Calculate the sample size and the days that an effect needs."""
        result = calculate_running_time(
            RunningTimeMetric(body.metric_type),
            body.minimum_detectable_effect,
            body.number_of_variants,
            baseline_value=body.baseline_value,
            variance=body.variance,
            exposure_rate_per_day=body.exposure_rate_per_day,
            baseline_stats=_baseline_stats(body.baseline_stats),
        )
        return {
            "baseline_value": result.baseline_value,
            "variance": result.variance,
            "recommended_sample_size": result.recommended_sample_size,
            "recommended_running_time_days": result.recommended_running_time_days,
        }


def _entities(text: str | None) -> list[dict[str, Any]]:
    """Read a legacy ``events`` or ``actions`` parameter."""
    if not text:
        return []
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise validation_error("Properties are unparsable!") from None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _baseline_stats(value: dict[str, Any] | None) -> BaselineStats | None:
    """Read the calculator's ``baseline_stats``. Raises 400 for anything but numbers."""
    if value is None:
        return None
    numbers = {
        name: value.get(name, default)
        for name, default in (
            ("number_of_samples", None),
            ("sum", None),
            ("sum_squares", 0),
            ("denominator_sum", None),
            ("denominator_sum_squares", None),
            ("numerator_denominator_sum_product", None),
        )
    }
    required = ("number_of_samples", "sum")
    for name, number in numbers.items():
        missing = number is None and name not in required
        if not missing and (isinstance(number, bool) or not isinstance(number, int | float)):
            raise validation_error("A valid number is required.", f"baseline_stats__{name}")
    counts = value.get("step_counts") or []
    if not isinstance(counts, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) for n in counts
    ):
        raise validation_error("Expected a list of integers.", "baseline_stats__step_counts")
    return BaselineStats(**cast(dict[str, Any], numbers), step_counts=tuple(counts))
