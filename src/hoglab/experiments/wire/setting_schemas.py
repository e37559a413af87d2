"""The settings of experiments and holdouts on the wire: their keys, and what each is for.

Documents, and the search for misspelt keys, are made from these models; `criteria`, `flag_config` and `holdouts`
check the values (spec experiments-api 3.4 to 3.7, 7.1; experiment-results 4.1).
"""

from typing import Any, ClassVar

from hoglab.http.fields.fields import WireModel
from hoglab.http.fields.notes import Note, Notes
from hoglab.http.fields.property_filters import Properties

_STATS: Notes = {
    "method": Note("`bayesian` or `frequentist`.", "bayesian"),
    "bayesian": "What the Bayesian comparison is told.",
    "frequentist": "What the frequentist comparison is told.",
    "baseline_variant_key": "The variant that others are compared with; `control`, else the first, without it.",
    "cuped": "Reduction of variance by what people did before.",
    "multiple_testing_correction": "How p-values of several metrics are corrected; `none` without it.",
    "ci_level": Note("The probability of the credible interval, between 0 and 1.", 0.95),
    "alpha": Note("The rate of false alarms, between 0 and 1.", 0.05),
    "difference_type": Note("`RELATIVE` or `ABSOLUTE`.", "RELATIVE"),
    "prior": Note(
        "A Normal prior on the effect; without it the prior is flat.",
        {"proper": True, "mean": 0, "variance": 0.01},
    ),
    "proper": "Whether the prior is used.",
    "mean": "The mean of the prior, in the unit of the effect.",
    "variance": "The variance of the prior.",
    "sequential_testing_enabled": "Whether results may be read at any time.",
    "sequential_tuning_parameter": Note(
        "Sample size at which sequential intervals are sharpest; without it the project's, else the planned size, "
        "else 5000.",
        5000,
    ),
    "design": Note(
        "How the experiment may stop early: `group_sequential` at planned analyses, `hybrid` at any time until the "
        "planned end; without it, it is read once there.",
        "group_sequential",
    ),
    "spending": Note(
        "How planned analyses share the error rate: `obrien_fleming` late, `pocock` evenly.", "obrien_fleming"
    ),
    "analyses": Note("How many analyses are planned, from 2 to 20, at equal parts of the plan.", 4),
    "analysis_days": Note(
        "Days after the start on which analyses are made before the planned end, in place of equal parts.",
        [7, 14],
    ),
    "enabled": "Whether it is on.",
    "lookback_days": Note("How many days before the exposure are looked at, from 1 to 30.", 14),
    "relative_variance": "`delta`, or `posthog` for intervals like PostHog's.",
    "posthog_numbers": (
        "Whether p-values and intervals are PostHog's, to the digit; without it the project's default."
    ),
}


class PriorSettings(WireModel):
    """A Normal prior on the effect."""

    notes = _STATS
    closed = True

    proper: Any = None
    mean: Any = None
    variance: Any = None


class BayesianSettings(WireModel):
    """Settings of the Bayesian comparison."""

    notes = _STATS
    closed = True
    unused = frozenset({"prior_type"})

    ci_level: Any = None
    difference_type: Any = None
    prior: PriorSettings | None = None


class FrequentistSettings(WireModel):
    """Settings of the frequentist comparison."""

    notes = _STATS
    closed = True

    alpha: Any = None
    difference_type: Any = None
    sequential_testing_enabled: Any = None
    sequential_tuning_parameter: Any = None
    design: Any = None
    spending: Any = None
    analyses: Any = None
    analysis_days: Any = None


class CupedSettings(WireModel):
    """Reduction of variance by a covariate from before the exposure."""

    notes = _STATS
    closed = True

    enabled: Any = None
    lookback_days: Any = None
    relative_variance: Any = None


class StatsConfig(WireModel):
    """Statistical settings of an experiment."""

    notes = _STATS
    closed = True
    unused = frozenset({"version", "difference_type", "test_type"})
    mistakable: ClassVar[dict[str, str]] = {"ci_level": "bayesian.ci_level", "alpha": "frequentist.alpha"}

    method: Any = None
    bayesian: BayesianSettings | None = None
    frequentist: FrequentistSettings | None = None
    baseline_variant_key: Any = None
    cuped: CupedSettings | None = None
    multiple_testing_correction: Any = None
    posthog_numbers: Any = None


class ExposureConfig(WireModel):
    """The event or action by which people are exposed, or activated."""

    notes: ClassVar[Notes] = {
        "kind": "`ExperimentEventExposureConfig` or `ActionsNode`.",
        "event": Note("The name of the event.", "checkout opened"),
        "id": "The id of the action.",
        "name": "Display name.",
        "custom_name": "Display name, when it was changed.",
        "properties": Note("Property filters that the event must match.", []),
    }
    closed = True
    unused = frozenset(
        {
            "fixedProperties",
            "math",
            "math_property",
            "math_property_type",
            "math_hogql",
            "math_group_type_index",
            "math_multiplier",
            "response",
            "version",
        }
    )

    kind: Any = None
    event: Any = None
    id: Any = None
    name: Any = None
    custom_name: Any = None
    properties: Properties | None = None


class ExposureCriteria(WireModel):
    """Criteria by which a person counts as exposed."""

    notes: ClassVar[Notes] = {
        "filterTestAccounts": "Whether test accounts are left out.",
        "exposure_config": "Event that counts as an exposure; default: the call of the flag.",
        "activation_config": "Event that people must have after it to count.",
        "multiple_variant_handling": "Handling of people who saw several variants: `exclude` or `first_seen`.",
    }

    filterTestAccounts: Any = None  # noqa: N815 - wire name
    exposure_config: ExposureConfig | None = None
    activation_config: ExposureConfig | None = None
    multiple_variant_handling: Any = None


class ParameterVariant(WireModel):
    """A variant in ``parameters``; ``split_percent`` wins over ``rollout_percentage``."""

    notes: ClassVar[Notes] = {
        "key": Note("The name of the variant.", "control"),
        "name": "Display name.",
        "rollout_percentage": "Share of the variant; the older name.",
        "split_percent": Note("Share of the variant.", 50),
    }
    closed = True

    key: Any = None
    name: Any = None
    rollout_percentage: Any = None
    split_percent: Any = None


class ExperimentParameters(WireModel):
    """Free settings of an experiment, and the configuration of its flag."""

    notes: ClassVar[Notes] = {
        "feature_flag_variants": "The variants of the flag.",
        "rollout_percentage": Note("The share of everybody that the experiment is for.", 100),
        "aggregation_group_type_index": "The group type that the experiment is about; null for persons.",
        "feature_flag_payloads": Note("JSON as text, by variant.", {}),
        "ensure_experience_continuity": "Whether people keep their variant when they sign in.",
        "minimum_detectable_effect": Note("The smallest effect worth finding, in per cent.", 20),
        "recommended_running_time": "How many days the calculator recommends.",
        "recommended_sample_size": "How many people the calculator recommends.",
        "exposure_estimate_config": "How the calculator estimates exposures.",
        "excluded_variants": Note("Variants that the results leave out.", []),
        "custom_exposure_filter": "What exposes people, in a form of old; for the exposure cohort.",
        "variant_notes": Note("Free notes, by variant.", {}),
        "pause_on_harm": Note(
            "Whether the server switches the flag off once a variant is certainly worse; off without it.",
            False,
        ),
    }
    unused = frozenset({"variant_screenshot_media_ids", "prompt_metadata", "stats_config"})

    feature_flag_variants: list[ParameterVariant] | None = None
    rollout_percentage: Any = None
    aggregation_group_type_index: Any = None
    feature_flag_payloads: Any = None
    ensure_experience_continuity: Any = None
    minimum_detectable_effect: Any = None
    recommended_running_time: Any = None
    recommended_sample_size: Any = None
    exposure_estimate_config: Any = None
    excluded_variants: Any = None
    custom_exposure_filter: Any = None
    variant_notes: Any = None
    pause_on_harm: Any = None


class PlannedExperiment(WireModel):
    """Settings of an experiment that is not saved, as far as its plan depends on them."""

    notes: ClassVar[Notes] = {
        "parameters": "Variants, rollout and group type, as in the body that creates the experiment.",
        "stats_config": "Statistical settings.",
        "exposure_criteria": "Exposure criteria.",
    }
    closed = True

    parameters: ExperimentParameters | None = None
    stats_config: StatsConfig | None = None
    exposure_criteria: ExposureCriteria | None = None


class HoldoutGroup(WireModel):
    """The share of everybody who is held out."""

    notes: ClassVar[Notes] = {
        "properties": Note("Kept for clients that set it.", []),
        "rollout_percentage": Note("The share that is held out.", 10),
        "variant": "What flags give to them; set by the server.",
    }
    closed = True
    unused = frozenset({"aggregation_group_type_index", "description", "sort_key"})
    mistakable: ClassVar[dict[str, str]] = {
        "exclusion_percentage": "rollout_percentage",
        "percentage": "rollout_percentage",
    }

    properties: Any = None
    rollout_percentage: Any = None
    variant: Any = None
