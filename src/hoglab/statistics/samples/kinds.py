"""The kinds of metrics that `compare` accepts."""

from __future__ import annotations

from hoglab.statistics.samples.quantiles import QuantileSample
from hoglab.statistics.samples.sums import Proportion, Ratio, Retention, SampleMean, WithCovariate

SufficientStatistics = SampleMean | Proportion | Ratio | Retention | WithCovariate | QuantileSample
"""Statistics of one variant and one metric; all but those of quantiles add up."""
