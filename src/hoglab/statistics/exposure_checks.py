"""Checks of the exposures: does the split match the rollout, and can multiple exposure bias the result.

Source: spec experiment-results 2.6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p

from hoglab.statistics.distributions import chi_square_survival

MIN_SRM_EXPOSURES = 100
SRM_ALARM_P_VALUE = 0.001
"""Below this a mismatch is worth an alarm."""
SRM_CONCENTRATIONS = (100.0, 3000.0)
"""Weights of the flag's shares in two priors of other ones, in people: for large mismatches and for small ones."""
MULTIPLE_VARIANT = "$multiple"
MIN_MULTIPLE_VARIANT_PERCENTAGE = 0.1
MAX_MULTIPLE_VARIANT_PERCENTAGE = 1.0
"""Above this share of people who saw several variants, variants are no longer compared, whatever the split."""
EVEN_SPLIT_SPREAD = 1.0
"""Largest minus smallest rollout, in percentage points, that still counts as an even split."""


@dataclass(frozen=True, slots=True)
class SplitPhase:
    """A time during which the split did not change: the exposed entities of each variant, and its rollout shares."""

    observed: Mapping[str, int]
    rollout: Mapping[str, float]

    def compared(self, excluded: Collection[str] = ()) -> dict[str, tuple[int, float]]:
        """Return the count and the expected share of each variant with a positive rollout that is not excluded.

        Shares add up to 1. Empty with fewer than two variants. Raises ValueError for negative counts.
        """
        shares = {key: share for key, share in self.rollout.items() if share > 0 and key not in excluded}
        counts = {key: self.observed.get(key, 0) for key in shares}
        if any(count < 0 for count in counts.values()):
            raise ValueError("exposure counts cannot be negative")
        whole = sum(shares.values())
        return {key: (counts[key], share / whole) for key, share in shares.items()} if len(shares) > 1 else {}


@dataclass(frozen=True, slots=True)
class SampleRatioMismatch:
    """Expected exposures per variant, and how likely the observed ones are by chance.

    `p_value` is Pearson's, for a single look. `anytime_p_value` may be read at any time: without a mismatch it is ever
    below a level at most in that share of experiments.
    """

    expected: dict[str, float]
    p_value: float
    anytime_p_value: float
    chi2: float
    degrees_of_freedom: int

    def is_alarming(self, *, ended: bool) -> bool:
        """Return whether this is a mismatch: by Pearson's test after the end, before by the one for any time."""
        return (self.p_value if ended else self.anytime_p_value) < SRM_ALARM_P_VALUE


@dataclass(frozen=True, slots=True)
class BiasRisk:
    """Percent of exposed entities that saw several variants, where leaving them out may bias results."""

    multiple_variant_percentage: float


def sample_ratio_mismatch(
    phases: Sequence[SplitPhase], excluded_variants: Collection[str] = ()
) -> SampleRatioMismatch | None:
    """Return the tests of exposures against the rollout shares, over all phases of the split together.

    Only variants with a positive rollout that are not excluded take part, those without exposures included;
    their shares are renormalised, so a holdout changes nothing. Other keys of `observed` (`$multiple`,
    holdouts) are ignored. None when fewer than two variants take part or fewer than 100 entities were
    exposed. Raises ValueError for negative counts. Sources: Fabijan et al. 2019; Lindon, Malek 2022.
    """
    compared = [phase.compared(excluded_variants) for phase in phases]
    compared = [groups for groups in compared if sum(count for count, _ in groups.values()) > 0]
    if sum(count for groups in compared for count, _ in groups.values()) < MIN_SRM_EXPOSURES:
        return None
    expected: dict[str, float] = {}
    chi2, freedom, evidence = 0.0, 0, 0.0
    for groups in compared:
        total = sum(count for count, _ in groups.values())
        for key, (count, share) in groups.items():
            expected[key] = expected.get(key, 0.0) + total * share
            chi2 += (count - total * share) ** 2 / (total * share)
        freedom += len(groups) - 1
        counts, shares = zip(*groups.values(), strict=True)
        evidence += multinomial_evidence(counts, shares)
    anytime = exp(-evidence) if evidence > 0 else 1.0
    return SampleRatioMismatch(expected, chi_square_survival(chi2, freedom), anytime, chi2, freedom)


def multinomial_evidence(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Return the logarithm of the Bayes factor for other shares than these, of entities that came one after the other.

    The alternative has Dirichlet priors around `shares`, in equal parts. Without a mismatch the factor is a martingale
    with mean 1: it ever exceeds 1/α at most in the share α of experiments, however often one looks (Ville). Factors of
    disjoint groups multiply. Source: Lindon, Malek 2022, "Anytime-valid inference for multinomial count data".
    """
    first, second = sorted(_evidence(counts, shares, weight) for weight in SRM_CONCENTRATIONS)
    return second + log1p(exp(first - second)) - log(2)


def _evidence(counts: Sequence[int], shares: Sequence[float], weight: float) -> float:
    evidence = lgamma(weight) - lgamma(weight + sum(counts))
    for count, share in zip(counts, shares, strict=True):
        evidence += lgamma(weight * share + count) - lgamma(weight * share) - count * log(share)
    return evidence


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
