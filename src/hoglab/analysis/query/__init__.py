"""Questions to the event store as data, and the statements that answer them."""

from hoglab.analysis.query import days, event_relation, expressions, metrics, model, scope, shared_scan
from hoglab.analysis.query.changes import any_merge, arrivals, corrections, merges
from hoglab.analysis.query.combined_statement import MAX_COMBINED, can_combine, combine_questions
from hoglab.analysis.query.counts import any_event, events_per_day, people
from hoglab.analysis.query.exposures import (
    MULTIPLE,
    activation_condition,
    exposure_of_any_variant,
    exposures_by_phase,
    exposures_per_day,
    flag_exposures,
    variant_of_exposure,
)
from hoglab.analysis.query.pipeline import Pipeline, compiled, pipeline_of, value_statement
from hoglab.analysis.query.statements import (
    Answer,
    Compiled,
    Groups,
    all_days_at_once,
    at_end_of_day,
    can_share,
    is_additive,
)

__all__ = [
    "MAX_COMBINED",
    "MULTIPLE",
    "Answer",
    "Compiled",
    "Groups",
    "Pipeline",
    "activation_condition",
    "all_days_at_once",
    "any_event",
    "any_merge",
    "arrivals",
    "at_end_of_day",
    "can_combine",
    "can_share",
    "combine_questions",
    "compiled",
    "corrections",
    "days",
    "event_relation",
    "events_per_day",
    "exposure_of_any_variant",
    "exposures_by_phase",
    "exposures_per_day",
    "expressions",
    "flag_exposures",
    "is_additive",
    "merges",
    "metrics",
    "model",
    "people",
    "pipeline_of",
    "scope",
    "shared_scan",
    "value_statement",
    "variant_of_exposure",
]
