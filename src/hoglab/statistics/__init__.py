"""Inference on sufficient statistics: a library without I/O, clock or randomness.

    from hoglab.statistics import Proportion, StatisticsConfig, compare

    result = compare(StatisticsConfig(), Proportion(1529, 87), Proportion(1471, 62))
    result.chance_to_win, result.credible_interval, result.significant

A kind of metric is a class of sufficient statistics (`SampleMean`, `Proportion`, `Ratio`, `Retention`,
`QuantileSample`, and `WithCovariate` around the first two for CUPED). `resolve_config` reads an experiment's
settings, `compare` judges one variant against the baseline. Beside that: checks of exposures, sample size and
power, corrections for multiple tests, percentile bounds, and the two legacy metric kinds. docs/statistics.md
explains the methods.
"""

from hoglab.statistics.config import (
    Analysis,
    BayesianConfig,
    CupedConfig,
    Design,
    DifferenceType,
    FrequentistConfig,
    Method,
    Monitoring,
    Prior,
    RelativeVariance,
    SignificanceRule,
    Spending,
    StatisticsConfig,
    resolve_config,
)
from hoglab.statistics.exposure_checks import (
    SRM_ALARM_P_VALUE,
    BiasRisk,
    SampleRatioMismatch,
    bias_risk,
    counted_share_p_value,
    crossing_percentage,
    mismatch_of_phases,
    multinomial_evidence,
    sample_ratio_mismatch,
)
from hoglab.statistics.inference.bayesian import BayesianTest, bayesian_test
from hoglab.statistics.inference.comparison import (
    Inference,
    VariantComparison,
    compare,
    estimate_effect,
    infer,
)
from hoglab.statistics.inference.cuped import CupedAdjustment, cuped_effect, pooled_theta
from hoglab.statistics.inference.effects import Effect, effect_of
from hoglab.statistics.inference.frequentist import FrequentistTest, welch_test
from hoglab.statistics.inference.sequential import SequentialTest, sequential_test
from hoglab.statistics.inference.validation import ValidationFailure, baseline_failures, variant_failures
from hoglab.statistics.legacy.kinds import (
    FunnelVariant,
    LegacyResult,
    SignificanceCode,
    TrendsVariant,
    VariantCountError,
    legacy_result,
)
from hoglab.statistics.multiple_testing import Correction, benjamini_hochberg, bonferroni, holm
from hoglab.statistics.planning.plans import power_at, sample_size_for
from hoglab.statistics.planning.power import (
    minimum_detectable_difference,
    power_of_test,
    required_sample_size,
)
from hoglab.statistics.planning.running_time import (
    DEFAULT_MINIMUM_DETECTABLE_EFFECT,
    BaselineStats,
    RunningTime,
    RunningTimeMetric,
    calculate_running_time,
    remaining_days,
    running_time_metric,
)
from hoglab.statistics.refusal import REFUSAL_WORDS, RefusalError, StatisticsRefusal
from hoglab.statistics.samples.kinds import SufficientStatistics
from hoglab.statistics.samples.quantiles import (
    QuantileRanks,
    QuantileSample,
    cluster_factor,
    quantile_positions,
    quantile_precision,
    quantile_ranks,
)
from hoglab.statistics.samples.sums import (
    Moments,
    Proportion,
    Ratio,
    Retention,
    SampleMean,
    WithCovariate,
)
from hoglab.statistics.samples.winsorization import WinsorBounds, quantile_rank, winsor_bounds

__all__ = [
    "DEFAULT_MINIMUM_DETECTABLE_EFFECT",
    "REFUSAL_WORDS",
    "SRM_ALARM_P_VALUE",
    "Analysis",
    "BaselineStats",
    "BayesianConfig",
    "BayesianTest",
    "BiasRisk",
    "Correction",
    "CupedAdjustment",
    "CupedConfig",
    "Design",
    "DifferenceType",
    "Effect",
    "FrequentistConfig",
    "FrequentistTest",
    "FunnelVariant",
    "Inference",
    "LegacyResult",
    "Method",
    "Moments",
    "Monitoring",
    "Prior",
    "Proportion",
    "QuantileRanks",
    "QuantileSample",
    "Ratio",
    "RefusalError",
    "RelativeVariance",
    "Retention",
    "RunningTime",
    "RunningTimeMetric",
    "SampleMean",
    "SampleRatioMismatch",
    "SequentialTest",
    "SignificanceCode",
    "SignificanceRule",
    "Spending",
    "StatisticsConfig",
    "StatisticsRefusal",
    "SufficientStatistics",
    "TrendsVariant",
    "ValidationFailure",
    "VariantComparison",
    "VariantCountError",
    "WinsorBounds",
    "WithCovariate",
    "baseline_failures",
    "bayesian_test",
    "benjamini_hochberg",
    "bias_risk",
    "bonferroni",
    "calculate_running_time",
    "cluster_factor",
    "compare",
    "counted_share_p_value",
    "crossing_percentage",
    "cuped_effect",
    "effect_of",
    "estimate_effect",
    "holm",
    "infer",
    "legacy_result",
    "minimum_detectable_difference",
    "mismatch_of_phases",
    "multinomial_evidence",
    "pooled_theta",
    "power_at",
    "power_of_test",
    "quantile_positions",
    "quantile_precision",
    "quantile_rank",
    "quantile_ranks",
    "remaining_days",
    "required_sample_size",
    "resolve_config",
    "running_time_metric",
    "sample_ratio_mismatch",
    "sample_size_for",
    "sequential_test",
    "variant_failures",
    "welch_test",
    "winsor_bounds",
]
