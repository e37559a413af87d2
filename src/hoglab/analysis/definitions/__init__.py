"""Definitions of experiments and metrics, read from what users wrote: questions, names, and what is wrong with them."""

from hoglab.analysis.definitions.actions import action_matches
from hoglab.analysis.definitions.cohorts import named_cohorts
from hoglab.analysis.definitions.experiment_inputs import (
    FINAL_AFTER,
    ExperimentInputs,
    SeriesKey,
    ShownMetric,
    final_at,
    inputs_asked,
    is_computed,
    is_id,
    named_by_exposures,
    query_to,
    read_inputs,
)
from hoglab.analysis.definitions.flag_properties import flag_property_seen
from hoglab.analysis.definitions.metric_parser import METRIC_TYPES, MetricParser, listed, window_us
from hoglab.analysis.definitions.metric_problems import Named, exposure_problem, metric_problem
from hoglab.analysis.definitions.naming import NO_LABEL, metrics_of, value_label
from hoglab.analysis.definitions.planned_inputs import PlannedInputs, planned_inputs

__all__ = [
    "FINAL_AFTER",
    "METRIC_TYPES",
    "NO_LABEL",
    "ExperimentInputs",
    "MetricParser",
    "Named",
    "PlannedInputs",
    "SeriesKey",
    "ShownMetric",
    "action_matches",
    "exposure_problem",
    "final_at",
    "flag_property_seen",
    "inputs_asked",
    "is_computed",
    "is_id",
    "listed",
    "metric_problem",
    "metrics_of",
    "named_by_exposures",
    "named_cohorts",
    "planned_inputs",
    "query_to",
    "read_inputs",
    "value_label",
    "window_us",
]
