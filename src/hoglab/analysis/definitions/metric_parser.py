"""Metrics and exposure criteria as experiments store them (JSON), read into questions.

Unknown keys are ignored; what cannot be computed raises `DefinitionError`. Source: spec experiment-results 1, 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from hoglab.analysis.definitions.actions import Actions, action_matches
from hoglab.analysis.definitions.hogql import aggregated, parsed
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import (
    SECOND_US,
    Bounds,
    BreakdownProperty,
    EventMatch,
    EventSource,
    Exposures,
    FunnelMeasure,
    FunnelOrder,
    JoinKey,
    Math,
    MeanMeasure,
    Metric,
    QuantileMeasure,
    RatioMeasure,
    RetentionMeasure,
    RetentionUnit,
    Source,
    TableSource,
    Value,
    tables_of,
)
from hoglab.experiments.definitions.fingerprint import (
    DEFAULT_EXPOSURE_EVENT,
    DEFAULT_EXPOSURES,
    WRITTEN_EXPOSURE_EVENT,
    Calculation,
)
from hoglab.experiments.exposed import GAVE_A_VARIANT
from hoglab.filters import FilterError, PropertyGroup, parse_filters
from hoglab.filters.model import GROUP_TYPES
from hoglab.hog.nodes import Expr, Field
from hoglab.statistics import CupedConfig
from hoglab.storage.table_files import FileTable

UNIT_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "month": 2_592_000}
MAX_WINDOW_S = 100 * 366 * 86_400
"""The longest conversion or retention window: longer ones would leave the calendar."""
MAX_BREAKDOWNS = 3
MAX_STEPS = 30
"""The most steps of one funnel."""

_CALLS_WITH_A_VARIANT = EventMatch(DEFAULT_EXPOSURE_EVENT, parse_filters([GAVE_A_VARIANT], "substitute"))

_PROPERTY_MATH = frozenset({Math.SUM, Math.AVG, Math.MIN, Math.MAX})


METRIC_TYPES = ("mean", "funnel", "ratio", "retention", "quantile")


def listed(names: Sequence[str]) -> str:
    """Join names into a list of a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


Tables = Callable[[str], FileTable | None]
"""A table by its name; None when there is none."""


def no_tables(_name: str) -> None:
    """Look up a table in a project without tables."""


@dataclass(frozen=True, slots=True)
class MetricParser:
    """Parser of one project's definitions; ``actions`` looks up the steps of its actions, ``tables`` its tables."""

    actions: Actions
    tables: Tables = no_tables

    def exposures(
        self, project_id: int, calculation: Calculation, metric: Mapping[str, Any] | None = None
    ) -> Exposures:
        """Return the exposures of an experiment, with the breakdowns of a metric. Raises `DefinitionError`."""
        criteria = calculation.exposure_criteria or {}
        activation = criteria.get("activation_config")
        config = criteria.get("exposure_config")
        event = config.get("event") if isinstance(config, Mapping) else DEFAULT_EXPOSURE_EVENT
        is_default = event in DEFAULT_EXPOSURES and not _is_action(config)
        if isinstance(config, Mapping):
            source = self._exposure_source(config)
        else:
            source = EventSource((EventMatch(DEFAULT_EXPOSURE_EVENT),))
        written = is_default and event == WRITTEN_EXPOSURE_EVENT
        key = calculation.feature_flag_key
        return Exposures(
            project_id=project_id,
            source=source,
            flag_key=key if is_default else None,
            variant_property="$feature_flag_response" if is_default else f"$feature/{key}",
            variants=tuple(calculation.variants),
            test_account_filters=_filters(list(calculation.test_account_filters), "test_account_filters")
            if calculation.filters_test_accounts
            else PropertyGroup("AND", ()),
            first_seen=criteria.get("multiple_variant_handling") == "first_seen",
            group_type_index=calculation.aggregation_group_type_index,
            activation=self._exposure_source(activation)
            if is_default and isinstance(activation, Mapping)
            else None,
            breakdowns=_breakdowns(metric or {}),
            substitute=replace(source, alternatives=(_CALLS_WITH_A_VARIANT,)) if written else None,
        )

    def _exposure_source(self, config: Mapping[str, Any]) -> EventSource:
        filters = _filters(config.get("properties"), "exposure_config.properties")
        if _is_action(config):
            return EventSource(self._action(config.get("id")), filters)
        return EventSource((EventMatch(str(config.get("event"))),), filters)

    def metric(self, metric: Mapping[str, Any], *, cuped: CupedConfig | None = None) -> Metric:
        """Return a metric, with a covariate when CUPED is on and applies to it. Raises `DefinitionError`."""
        read = self._metric(metric)
        return read if cuped is None or not cuped.enabled else _with_covariate(read, cuped.lookback_days)

    def _metric(self, metric: Mapping[str, Any]) -> Metric:
        length_us = window_us(metric)
        match metric.get("metric_type"):
            case "mean":
                return MeanMeasure(self._mean_value(metric), length_us)
            case "funnel":
                return self._funnel(metric, length_us)
            case "ratio":
                return RatioMeasure(
                    self._side(metric, "numerator"), self._side(metric, "denominator"), length_us
                )
            case "retention":
                return self._retention(metric, length_us)
            case "quantile":
                return self._quantile(metric, length_us)
            case other:
                raise DefinitionError(
                    f"Metrics of type {other!r} are not supported. There are {listed(METRIC_TYPES)}."
                )

    def _mean_value(self, metric: Mapping[str, Any]) -> Value:
        value = self.value(metric.get("source"), "source", _bounds(metric))
        threshold = metric.get("threshold")
        return value if threshold is None else replace(value, threshold=_number(threshold, "threshold"))

    def _quantile(self, metric: Mapping[str, Any], window_us: int) -> QuantileMeasure:
        level = _number(metric.get("quantile_level"), "quantile_level")
        if not 0 < level < 1:
            raise DefinitionError("quantile_level must lie strictly between 0 and 1.")
        value = self.value(metric.get("source"), "source", None)
        per_event = metric.get("quantile_unit") == "event"
        if per_event and value.math not in _PROPERTY_MATH:
            raise DefinitionError(
                "A quantile over events needs a number of each event: a sum, avg, min or max."
            )
        return QuantileMeasure(value, level, per_event, metric.get("ignore_zeros") is True, window_us)

    def _side(self, metric: Mapping[str, Any], name: str) -> Value:
        handling = metric.get(f"{name}_outlier_handling")
        return self.value(
            metric.get(name), name, _bounds(handling) if isinstance(handling, Mapping) else None
        )

    def value(self, node: object, path: str, bounds: Bounds | None = None) -> Value:
        """Return the value that an event, action or table node counts or sums. Raises `DefinitionError`."""
        source = self.source(node, path)
        assert isinstance(node, Mapping)  # noqa: S101 - source() accepts nothing else
        name = node.get("math") or Math.TOTAL
        if name == "hogql":
            aggregate = aggregated(node.get("math_hogql"), path)
            return Value(
                source,
                aggregate.math,
                bounds=bounds,
                expression=aggregate.expression,
                level=aggregate.level,
                skips_null=aggregate.skips_null,
            )
        try:
            kind = Math(name)
        except ValueError:
            kind = Math.TOTAL  # an unknown math counts events
        prop = node.get("math_property") if kind in _PROPERTY_MATH else None
        if isinstance(source, TableSource):
            over = None if prop is None else _over_row(source.table, prop, f"{path}.math_property")
            return Value(source, kind, bounds=bounds, expression=over)
        if prop is not None and (
            prop == "$session_duration" or node.get("math_property_type") == "session_properties"
        ):
            return Value(source, kind, bounds=bounds, session_property=str(prop))
        index = node.get("math_group_type_index")
        if kind is Math.UNIQUE_GROUP and not (isinstance(index, int) and 0 <= index <= 4):
            raise DefinitionError(f"{path}.math_group_type_index: unique_group needs it.")
        return Value(source, kind, str(prop) if prop is not None else None, index, bounds)

    def _funnel(self, metric: Mapping[str, Any], window_us: int) -> FunnelMeasure:
        series = metric.get("series")
        if not isinstance(series, list) or not series:
            raise DefinitionError("A funnel needs at least one step.")
        if len(series) > MAX_STEPS:
            raise DefinitionError(f"A funnel can have at most {MAX_STEPS} steps.")
        order = metric.get("funnel_order_type") or FunnelOrder.ORDERED
        if order not in list(FunnelOrder):
            raise DefinitionError(f"Funnels of order {order!r} are not supported.")
        steps = tuple(self.source(node, f"series[{index}]") for index, node in enumerate(series))
        if len({step.events_join_key for step in steps if isinstance(step, TableSource)}) > 1:
            raise DefinitionError("All data warehouse steps of a funnel must have the same events_join_key.")
        return FunnelMeasure(steps, FunnelOrder(order), window_us)

    def _retention(self, metric: Mapping[str, Any], window_us: int) -> RetentionMeasure:
        first, last = (metric.get(f"retention_window_{edge}") for edge in ("start", "end"))
        unit = metric.get("retention_window_unit")
        if not _is_whole(first) or not _is_whole(last) or unit not in UNIT_S:
            raise DefinitionError("A retention metric needs a window of whole numbers and its unit.")
        if max(abs(first), abs(last)) * UNIT_S[unit] > MAX_WINDOW_S:
            raise DefinitionError("The retention window is too long.")
        start, completion = (
            self.source(metric.get(name), name) for name in ("start_event", "completion_event")
        )
        if (
            isinstance(start, TableSource)
            and isinstance(completion, TableSource)
            and (start.table.name, start.timestamp) == (completion.table.name, completion.timestamp)
            and (start.join_key, start.events_join_key) != (completion.join_key, completion.events_join_key)
        ):
            raise DefinitionError(
                "start_event and completion_event must be joined by the same keys when they are rows of one table."
            )
        return RetentionMeasure(
            start=start,
            completion=completion,
            first=first,
            last=last,
            unit=RetentionUnit(unit),
            last_seen=metric.get("start_handling") == "last_seen",
            window_us=window_us,
        )

    def events(self, node: object, path: str) -> EventSource:
        """Return an event or action node. Raises `DefinitionError`."""
        source = self.source(node, path)
        if isinstance(source, TableSource):
            raise DefinitionError(f"{path}: data warehouse tables cannot be used here.")
        return source

    def source(self, node: object, path: str) -> Source:
        """Return an event, action or table node. Raises `DefinitionError`."""
        if not isinstance(node, Mapping):
            raise DefinitionError(f"{path} must be an object.")
        parts = [_filters(node.get(name), f"{path}.{name}") for name in ("properties", "fixedProperties")]
        filters = PropertyGroup("AND", tuple(part for part in parts if part.values))
        match node.get("kind"):
            case "ActionsNode":
                return EventSource(self._action(node.get("id")), filters)
            case "ExperimentDataWarehouseNode":
                return self._table(node, path, filters)
            case _:
                event = node.get("event")
                return EventSource((EventMatch(None if event is None else str(event)),), filters)

    def _table(self, node: Mapping[str, Any], path: str, filters: PropertyGroup) -> TableSource:
        name, timestamp, own, theirs = (
            str(node.get(field) or "")
            for field in ("table_name", "timestamp_field", "data_warehouse_join_key", "events_join_key")
        )
        table = self.tables(name)
        if table is None:
            raise DefinitionError(f"{path}: the project has no data warehouse table {name!r}.")
        return TableSource(
            table,
            timestamp if table.type_of(timestamp) is not None else timestamp.removeprefix(f"{name}."),
            JoinKey(own, _over_row(table, own, f"{path}.data_warehouse_join_key")),
            JoinKey(theirs, parsed(theirs, f"{path}.events_join_key")),
            filters,
        )

    def _action(self, identifier: object) -> tuple[EventMatch, ...]:
        """Return the events of an action; none for an unknown one."""
        if not isinstance(identifier, int) or isinstance(identifier, bool):
            return ()
        steps = self.actions(identifier)
        return () if steps is None else action_matches(steps)


def _over_row(table: FileTable, text: object, path: str) -> Expr:
    """Return an expression over a row; the name of a column may have any characters."""
    name = str(text)
    return Field(0, len(name), (name,)) if table.type_of(name) is not None else parsed(name, path)


def _breakdowns(metric: Mapping[str, Any]) -> tuple[BreakdownProperty, ...]:
    """Return the breakdowns of a metric (spec experiment-results 1.1, 3.9)."""
    setting = metric.get("breakdownFilter")
    listed = setting.get("breakdowns") if isinstance(setting, Mapping) else None
    if not isinstance(listed, list) or not listed:
        return ()
    if len(listed) > MAX_BREAKDOWNS:
        raise DefinitionError(f"Maximum of {MAX_BREAKDOWNS} breakdowns are supported for experiment metrics")
    breakdowns = []
    for breakdown in listed:
        if not isinstance(breakdown, Mapping) or not isinstance(breakdown.get("property"), str | int):
            raise DefinitionError("A breakdown needs a property.")
        kind, prop = str(breakdown.get("type") or "event"), str(breakdown["property"])
        expression = parsed(prop, "The HogQL of a breakdown") if kind == "hogql" else None
        index = breakdown.get("group_type_index")
        if kind == "group" and not (_is_whole(index) and 0 <= index < GROUP_TYPES):
            raise DefinitionError("A breakdown by a property of groups needs a group_type_index.")
        breakdowns.append(BreakdownProperty(prop, kind, expression, index if kind == "group" else None))
    return tuple(breakdowns)


def _with_covariate(metric: Metric, lookback_days: int) -> Metric:
    """Add a covariate to a mean without a threshold, or an ordered funnel of events (spec experiment-results 3.8)."""
    lookback_us = lookback_days * UNIT_S["day"] * SECOND_US
    match metric:
        case MeanMeasure() if metric.value.session_property is None and (
            metric.value.threshold is None or metric.value.bounds is not None
        ):
            return replace(metric, covariate_us=lookback_us)
        case FunnelMeasure() if metric.order is not FunnelOrder.UNORDERED and not tables_of(metric):
            return replace(metric, covariate_us=lookback_us)
    return metric


def _is_action(config: object) -> bool:
    return isinstance(config, Mapping) and config.get("kind") == "ActionsNode"


def _filters(raw: object, path: str) -> PropertyGroup:
    try:
        return parse_filters(raw, path)
    except FilterError as error:
        raise DefinitionError(str(error)) from error


def window_us(metric: Mapping[str, Any]) -> int:
    """Return the conversion window; 0 without a number or a unit (spec experiment-results 0)."""
    length, unit = metric.get("conversion_window"), metric.get("conversion_window_unit")
    if not length or not unit:
        return 0
    if unit not in UNIT_S or not _is_whole(length) or length < 0:
        raise DefinitionError("conversion_window must be a positive whole number of a known unit.")
    seconds = length * UNIT_S[unit]
    if seconds > MAX_WINDOW_S:
        raise DefinitionError("conversion_window is too long.")
    return int(seconds) * SECOND_US


def _bounds(raw: Mapping[str, Any]) -> Bounds | None:
    """Return the percentile bounds; None without any."""
    levels = []
    for name in ("lower_bound_percentile", "upper_bound_percentile"):
        level = raw.get(name)
        if level is not None:
            level = _number(level, name)
            if not 0 <= level <= 1:
                raise DefinitionError(f"{name} must lie between 0 and 1.")
        levels.append(level)
    lower, upper = levels
    if lower is None and upper is None:
        return None
    return Bounds(lower, upper, ignore_zeros=raw.get("ignore_zeros") is True)


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DefinitionError(f"{path} must be a number.")
    return float(value)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
