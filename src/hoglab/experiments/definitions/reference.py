"""Descriptions of the fields of experiments, holdouts and saved metrics (spec experiments-api 2, 3, 7)."""

from __future__ import annotations

from hoglab.flags.api import reference as flags
from hoglab.http.fields.notes import Note, Notes

METRIC = {
    "kind": "ExperimentMetric",
    "metric_type": "mean",
    "name": "Purchases",
    "goal": "increase",
    "source": {"kind": "EventsNode", "event": "purchase"},
}
VARIANTS = [{"key": "control", "split_percent": 50}, {"key": "test", "split_percent": 50}]

EXPERIMENT: Notes = {
    "name": Note("Display name; need not be unique.", "Button colour"),
    "description": Note(
        "Hypothesis of the experiment: the change, and its expected effect.", "Does a green button sell more?"
    ),
    "start_date": "Launch time; null for a draft.",
    "end_date": "End time; null before.",
    "feature_flag_key": Note(
        "The key of its feature flag. On create a flag of this key is made, or linked as it is when it exists.",
        "button-colour",
    ),
    "feature_flag": (
        "Feature flag. In a body: the flag's configuration (`key`, `filters`, …), or an answer's object sent back."
    ),
    "holdout": "The holdout that it belongs to; null for none.",
    "holdout_id": "The id of that holdout; null for none. Fixed once the experiment is launched.",
    "exposure_cohort": "The id of the cohort of everybody exposed; null until one is made.",
    "parameters": Note(
        "Free settings, replaced as a whole. `feature_flag_variants`, `rollout_percentage`, "
        "`aggregation_group_type_index`, `feature_flag_payloads` and `ensure_experience_continuity` configure the "
        "flag and are read back from it.",
        {"feature_flag_variants": VARIANTS, "rollout_percentage": 100},
    ),
    "running_time_calculation": Note(
        "Inputs and outcome of the running time calculator: `minimum_detectable_effect`, "
        "`recommended_running_time`, `recommended_sample_size`, `exposure_estimate_config`.",
        {"minimum_detectable_effect": 20},
    ),
    "excluded_variants": Note("Keys of variants that the results leave out; never the baseline.", []),
    "secondary_metrics": "Metrics in a form of old; kept as they come.",
    "saved_metrics": "The shared metrics that are linked, by the order of linking.",
    "saved_metrics_ids": (
        'The whole new set of linked shared metrics, each as `{"id": 1, "metadata": {"type": "primary"}}`. '
        "Always null in answers, and null changes nothing."
    ),
    "filters": Note("Filters in a form of old; kept as they come.", {}),
    "archived": "Whether it was put away: lists leave it out unless asked.",
    "type": Note("Place of the variants: in the product, or on a web page without code.", "product"),
    "exposure_criteria": Note(
        "Exposure criteria: `filterTestAccounts`, `exposure_config`, `multiple_variant_handling` "
        "(`exclude` or `first_seen`).",
        {"filterTestAccounts": True},
    ),
    "metrics": Note("Primary metrics, which decide. Each gets a `uuid` and a `fingerprint`.", [METRIC]),
    "metrics_secondary": Note("Secondary metrics, which are watched besides.", []),
    "stats_config": Note(
        "Statistical settings: `method` (`bayesian` or `frequentist`), its confidence, "
        "`baseline_variant_key`, `cuped`.",
        {"method": "bayesian"},
    ),
    "scheduling_config": 'Kept for clients that set it: `{"timeseries": true}`.',
    "conclusion": "Conclusion; null while there is none.",
    "conclusion_comment": "Explanation of the conclusion.",
    "primary_metrics_ordered_uuids": "Order in which the primary metrics are shown, shared ones included.",
    "secondary_metrics_ordered_uuids": "Order in which the secondary metrics are shown, shared ones included.",
    "only_count_matured_users": "Whether to leave out users whose conversion window is still open.",
    "allow_unknown_events": "Accept metrics of events that were never seen. Input only.",
    "update_feature_flag_params": "Apply configuration of the flag although the experiment is launched. Input only.",
    "status": Note("The state it is in, derived from its dates and its flag.", "draft"),
    "is_legacy": "Whether a metric of it is of a kind of old; such an experiment can hardly be changed.",
}

FLAG: Notes = {
    **flags.FLAG,
    "name": Note("Display name.", "Feature Flag for Experiment Button colour"),
    "active": "Whether it is switched on: off until the launch, and while the experiment is paused.",
}

PROJECT_CONFIG: Notes = {
    "default_experiment_stats_method": Note(
        "The method of new experiments; null: `bayesian`.", "frequentist"
    ),
    "default_experiment_confidence_level": Note("Confidence level of new experiments; null: 0.95.", 0.9),
    "default_only_count_matured_users": "Whether new experiments leave out users whose conversion window is open.",
    "default_cuped_enabled": "Whether CUPED is used where an experiment does not say.",
    "default_cuped_lookback_days": Note("Days before the exposure that CUPED looks at; null: 14.", 14),
    "default_sequential_testing_enabled": "Whether sequential testing is used where an experiment does not say.",
    "default_sequential_tuning_parameter": Note(
        "Sample size at which sequential tests are sharpest; null: the planned size, else 5000.", 5000
    ),
    "default_posthog_numbers": (
        "Whether p-values and intervals are PostHog's, to the digit, where an experiment does not say."
    ),
    "default_minimum_detectable_effect": Note(
        "Default of clients for the smallest effect worth finding, in per cent; null for none.", 20
    ),
    "default_flag_persistence_enabled": "Whether flags of new experiments keep their variant across the login.",
    "experiment_recalculation_times": Note(
        "Times of day at which the results of running experiments are computed: one or two whole "
        "hours in UTC, six hours apart; null: 02:00.",
        ["02:00:00"],
    ),
    "experiment_precomputation_enabled": "Kept for clients that set it; it changes nothing here.",
}

HOLDOUT: Notes = {
    "name": Note("Display name.", "Everybody else"),
    "description": "Purpose of the holdout.",
    "filters": Note(
        "One group, whose `rollout_percentage` says how many per cent see none of its experiments.",
        [{"properties": [], "rollout_percentage": 20}],
    ),
}

SAVED_METRIC: Notes = {
    "name": Note("Display name.", "Purchases"),
    "description": "Description of the metric.",
    "query": Note("The metric itself.", METRIC),
    "metadata": Note("Role in this experiment: `type` is `primary` or `secondary`.", {"type": "primary"}),
    "experiment": "The id of the experiment.",
    "saved_metric": "The id of the shared metric.",
}

RECORD: Notes = {
    "kind": Note(
        "`launched`: the plan at the launch. `known`: the plan when it was first kept. `amended`: a changed plan. "
        "`harm`: an alarm. `ended`, `shipped`: a decision.",
        "amended",
    ),
    "created_at": "When it was recorded.",
    "created_by": "The user who did it; null where the server did.",
    "detail": Note(
        "The plan with its digest and `changes`; the verdict of an alarm; of a decision the results with their sums, "
        "and null where they were not known soon enough.",
        {"changes": ["alpha changed from 0.05 to 0.2"]},
    ),
}

ACTIONS: Notes = {
    **EXPERIMENT,
    "variant_key": Note("The variant that everybody is to get.", "test"),
    "release_to_everyone": "Give it to everybody at all, not only to whom the flag reaches.",
    "disable_feature_flag": "Switch the flag off as well. Needs the scope `feature_flag:write`.",
    "target_team_id": Note("The id of the project to copy to, of the same organization.", 2),
}

RUNNING_TIME: Notes = {
    "metric_type": Note("Kind of the metric that decides.", "funnel"),
    "minimum_detectable_effect": Note("The smallest effect worth finding, in per cent of the baseline.", 20),
    "number_of_variants": "Number of variants, the baseline included.",
    "baseline_value": Note("The metric without the change: a rate from 0 to 1, or a mean.", 0.1),
    "variance": "The variance of the metric; not needed for funnels.",
    "exposure_rate_per_day": Note("Number of people exposed per day.", 500),
    "baseline_stats": "Sufficient statistics to take value and variance from: `number_of_samples`, `sum`, ….",
    "recommended_sample_size": "Number of people in all variants together.",
    "recommended_running_time_days": "Number of days for that many people.",
}

LISTING: Notes = {
    "status": Note("Only those in this state; `complete` is another name of `stopped`.", "all"),
    "archived": "List the archived ones instead.",
    "feature_flag_id": "Only those of this flag.",
    "event": "Only those whose metrics name this event.",
    "events": 'Events of a metric, as a JSON list of `{"id": …}`.',
    "actions": 'Actions of a metric, as a JSON list of `{"id": …}`.',
    "created_by_id": "Only those of this user; several ids as a JSON list.",
    "order": Note("The field to sort by, with `-` for descending.", "-created_at"),
    "active": "Only flags that are switched on (`true`), or off (`false`).",
    "evaluation_runtime": "Only flags for these SDKs.",
    "has_evaluation_contexts": flags.FLAG["has_evaluation_contexts"],
}

STATS: Notes = {
    "launched_last_30d": "Launched in the last 30 days.",
    "launched_previous_30d": "Launched in the 30 days before.",
    "percent_change": "The first against the second, in per cent.",
    "active_experiments": "Running now.",
    "completed_last_30d": "Ended in the last 30 days.",
    "result": "Whether flag values are still lacking.",
    "cohort": "The new cohort.",
}

METRIC_FIELDS: Notes = {
    "kind": "Kind of the object.",
    "metric_type": "Type of the metric.",
    "uuid": Note(
        "Identifies the metric; made by the server where it is missing.",
        "6f1f3a52-1d0e-4c58-9a59-0f6f4e6b7a10",
    ),
    "name": Note("Display name.", "Purchases"),
    "custom_name": "Display name, when it was changed.",
    "fingerprint": "Identifies what its results are computed from; made by the server.",
    "goal": "Whether more of it is better (`increase`, also without it) or less.",
    "role": "In `metrics_secondary`: a `guardrail` can hold back a variant that harms it; a `secondary` one, the "
    "default, decides nothing.",
    "margin": Note(
        "Loss that a guardrail allows, as a share of the baseline. A variant ships when a larger one is ruled out; "
        "with 0, the default, unless there is a clear one.",
        0.02,
    ),
    "conversion_window": Note("Time after the exposure in which events count; unlimited by default.", 7),
    "conversion_window_unit": Note("The unit of that.", "day"),
    "breakdownFilter": Note("Split the results by properties.", {"breakdowns": [{"property": "$browser"}]}),
    "breakdowns": Note("Up to three properties.", [{"property": "$browser", "type": "event"}]),
    "property": Note("The property.", "$browser"),
    "type": Note("What has it: `event`, `person`, `session`, `group` or `hogql`.", "event"),
    "group_type_index": "The number of the group type, for properties of groups.",
    "isSharedMetric": "Kept for clients that set it.",
    "sharedMetricId": "Kept for clients that set it.",
    "version": "Kept for clients that set it.",
    "response": "Kept for clients that set it.",
    "source": "The events, and what is computed of them.",
    "lower_bound_percentile": Note("Raise values below this percentile (a fraction) to it.", 0.05),
    "upper_bound_percentile": Note("Lower values above this percentile (a fraction) to it.", 0.95),
    "ignore_zeros": "Whether the percentile is that of the values that are not zero.",
    "threshold": Note("Count people whose value reaches this, instead of the values.", 3),
    "series": "The steps.",
    "funnel_order_type": "Whether steps follow each other (`ordered`, also without it), with nothing between them "
    "(`strict`), or come in any order (`unordered`).",
    "numerator": "Value above the line of the ratio.",
    "denominator": "Value below the line of the ratio.",
    "numerator_outlier_handling": "Percentile bounds of the numerator.",
    "denominator_outlier_handling": "Percentile bounds of the denominator.",
    "start_event": "Event with which people start.",
    "completion_event": "Event with which they come back.",
    "retention_window_start": Note("Start of the retention window, in units after the start event.", 1),
    "retention_window_end": Note("End of the retention window.", 7),
    "retention_window_unit": Note("The unit of both.", "day"),
    "start_handling": "Start event that counts, when there are several.",
    "quantile_level": Note("Level of the quantile: 0.5 is the median, 0.9 the p90.", 0.9),
    "quantile_unit": "Values of the quantile: one for each person (`entity`, the default) or event (`event`).",
    "event": Note("The name of the event; null for any.", "purchase"),
    "id": Note("The id of the action.", 1),
    "properties": Note("Property filters that events must match.", []),
    "fixedProperties": Note("Further property filters that events must match, beside `properties`.", []),
    "math": "Aggregation of a person's events; default: their number.",
    "math_property": Note(
        "The property that is summed, averaged, …; needed by `sum`, `avg`, `min` and `max`.", "amount"
    ),
    "math_property_type": "Owner of the property: `event_properties`, or `session_properties`.",
    "math_property_revenue_currency": "Kept for clients that set it.",
    "math_hogql": Note("An aggregate in Hog, for `hogql`.", "sum(toFloat(properties.amount))"),
    "math_group_type_index": "The group type that `unique_group` counts.",
    "math_multiplier": "Kept for clients that set it.",
    "optionalInFunnel": "Kept for clients that set it.",
    "limit": "Kept for clients that set it.",
    "orderBy": "Kept for clients that set it.",
    "table_name": Note("The name of a registered table.", "orders"),
    "timestamp_field": Note("Column of the table with the time of a row.", "created_at"),
    "events_join_key": Note("Field of an event that equals the key of the table's rows.", "distinct_id"),
    "data_warehouse_join_key": Note("The column with that.", "user_id"),
}
"""Notes on the fields of metrics."""
