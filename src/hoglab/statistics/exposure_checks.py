"""Checks of the exposures: does the split match the rollout, and can multiple exposure bias the result.

Source: spec experiment-results 2.6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hoglab.statistics.distributions import chi_square_survival

MIN_SRM_EXPOSURES = 100
SRM_ALARM_P_VALUE = 0.001
"""Below this a mismatch is worth an alarm; the check itself never decides."""
MULTIPLE_VARIANT = "$multiple"
MIN_MULTIPLE_VARIANT_PERCENTAGE = 0.1
MAX_MULTIPLE_VARIANT_PERCENTAGE = 1.0
"""Above this share of people who saw several variants, variants are no longer compared, whatever the split."""
EVEN_SPLIT_SPREAD = 1.0
"""Largest minus smallest rollout, in percentage points, that still counts as an even split."""


@dataclass(frozen=True, slots=True)
class SampleRatioMismatch:
    """Expected exposures per variant and the p-value of the observed ones."""

    expected: dict[str, float]
    p_value: float
    chi2: float
    degrees_of_freedom: int


@dataclass(frozen=True, slots=True)
class BiasRisk:
    """Percent of exposed entities that saw several variants, where leaving them out may bias results."""

    multiple_variant_percentage: float


def sample_ratio_mismatch(
    observed: Mapping[str, int], rollout: Mapping[str, float], excluded_variants: Collection[str] = ()
) -> SampleRatioMismatch | None:
    """Return Pearson's chi-square test of exposures against the rollout shares.

    Only variants with a positive rollout that are not excluded take part, those without exposures included;
    their shares are renormalised, so a holdout changes nothing. Other keys of `observed` (`$multiple`,
    holdouts) are ignored. None when fewer than two variants take part or fewer than 100 entities were
    exposed. Raises ValueError for negative counts. Source: Fabijan et al. 2019.
    """
    shares = {key: share for key, share in rollout.items() if share > 0 and key not in excluded_variants}
    counts = {key: observed.get(key, 0) for key in shares}
    if any(count < 0 for count in counts.values()):
        raise ValueError("exposure counts cannot be negative")
    total, whole = sum(counts.values()), sum(shares.values())
    if len(shares) < 2 or total < MIN_SRM_EXPOSURES:
        return None
    expected = {key: total * share / whole for key, share in shares.items()}
    chi2 = sum((counts[key] - mean) ** 2 / mean for key, mean in expected.items())
    freedom = len(shares) - 1
    return SampleRatioMismatch(expected, chi_square_survival(chi2, freedom), chi2, freedom)


def crossing_percentage(total_exposures: Mapping[str, int]) -> float | None:
    """Return the percentage of entities that saw several variants where it is more than 1 %, else None.

    They are known where they are excluded (`$multiple`), and are counted from 100 exposed entities on.
    """
    total, crossed = sum(total_exposures.values()), total_exposures.get(MULTIPLE_VARIANT, 0)
    if total < MIN_SRM_EXPOSURES:
        return None
    percentage = 100 * crossed / total
    return percentage if percentage > MAX_MULTIPLE_VARIANT_PERCENTAGE else None


def bias_risk(
    total_exposures: Mapping[str, int],
    rollout: Collection[float],
    *,
    excludes_multiple: bool,
    ended: bool = False,
) -> BiasRisk | None:
    """Return the share of entities that saw several variants, when it can bias the result, else None.

    It can while the experiment runs (`ended` false), such entities are excluded rather than kept under their
    first variant, the rollout is uneven, and they are more than 0.1 % of all exposed entities.
    """
    total = sum(total_exposures.values())
    if ended or not excludes_multiple or not rollout or not total:
        return None
    if max(rollout) - min(rollout) <= EVEN_SPLIT_SPREAD:
        return None
    percentage = 100 * total_exposures.get(MULTIPLE_VARIANT, 0) / total
    return BiasRisk(percentage) if percentage > MIN_MULTIPLE_VARIANT_PERCENTAGE else None
