"""The kinds of metrics: whatever `compare` accepts."""

from __future__ import annotations

from hoglab.statistics.samples.quantiles import QuantileSample
from hoglab.statistics.samples.sums import Proportion, Ratio, Retention, SampleMean, WithCovariate

SufficientStatistics = SampleMean | Proportion | Ratio | Retention | WithCovariate | QuantileSample
"""One variant's statistics of one metric; all but those of quantiles add up."""
