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
MIN_EXPECTED = 5
"""Least number of counted, and of not counted, entities to expect in each variant for a test of their shares."""
MULTIPLE_VARIANT = "$multiple"
MIN_MULTIPLE_VARIANT_PERCENTAGE = 0.1
MAX_MULTIPLE_VARIANT_PERCENTAGE = 1.0
"""Above this share of people who saw several variants, variants are no longer compared, whatever the split."""
EVEN_SPLIT_SPREAD = 1.0
"""Largest minus smallest rollout, in percentage points, that still counts as an even split."""


@dataclass(frozen=True, slots=True)
class SampleRatioMismatch:
    """Expected exposures per variant, and the tests of the observed ones.

    `p_value` is Pearson's, for a single look. `evidence` is the logarithm of the Bayes factor for a mismatch.
    """

    expected: dict[str, float]
    p_value: float
    evidence: float
    chi2: float
    degrees_of_freedom: int

    @property
    def anytime_p_value(self) -> float:
        """P-value that may be read at any time: ever below a level in at most that share of healthy experiments."""
        return exp(-max(self.evidence, 0.0))

    def is_alarming(self, *, ended: bool) -> bool:
        """Return whether this is a mismatch: by Pearson's test after the end, before by the one for any time."""
        return (self.p_value if ended else self.anytime_p_value) < SRM_ALARM_P_VALUE


@dataclass(frozen=True, slots=True)
class BiasRisk:
    """Percent of exposed entities that saw several variants, where leaving them out may bias results."""

    multiple_variant_percentage: float


def sample_ratio_mismatch(
    observed: Mapping[str, int], rollout: Mapping[str, float], excluded_variants: Collection[str] = ()
) -> SampleRatioMismatch | None:
    """Return the tests of exposures against the rollout shares, while these are the same.

    Only variants with a positive rollout that are not excluded take part, those without exposures included;
    their shares are renormalised, so a holdout changes nothing. Other keys of `observed` (`$multiple`,
    holdouts) are ignored. None when fewer than two variants take part or fewer than 100 entities were
    exposed. Raises ValueError for negative counts. Sources: Fabijan et al. 2019; Lindon, Malek 2022.
    """
    given = {key: share for key, share in rollout.items() if share > 0 and key not in excluded_variants}
    counts = {key: observed.get(key, 0) for key in given}
    if any(count < 0 for count in counts.values()):
        raise ValueError("exposure counts cannot be negative")
    total, whole = sum(counts.values()), sum(given.values())
    if len(given) < 2 or total < MIN_SRM_EXPOSURES:
        return None
    shares = {key: share / whole for key, share in given.items()}
    expected = {key: total * share for key, share in shares.items()}
    chi2 = sum((counts[key] - mean) ** 2 / mean for key, mean in expected.items())
    freedom = len(shares) - 1
    evidence = multinomial_evidence(list(counts.values()), list(shares.values()))
    return SampleRatioMismatch(expected, chi_square_survival(chi2, freedom), evidence, chi2, freedom)


def mismatch_of_phases(phases: Sequence[SampleRatioMismatch | None]) -> SampleRatioMismatch | None:
    """Return the tests of an experiment's phases as one; None where no phase was tested.

    Expected counts and the degrees of freedom of the tested phases add up. Each p-value is the smallest of that of each
    phase and of that of the sums of chi-squares and evidence: a mismatch that one phase showed stays, however well
    later phases go, and a small one in every phase adds up. It is below a level in at most that share of experiments
    for each phase, and once more.
    """
    tested = [phase for phase in phases if phase is not None]
    if len(tested) <= 1:
        return tested[0] if tested else None
    expected: dict[str, float] = {}
    for phase in tested:
        for key, count in phase.expected.items():
            expected[key] = expected.get(key, 0.0) + count
    chi2, freedom = sum(phase.chi2 for phase in tested), sum(phase.degrees_of_freedom for phase in tested)
    p_value = min(chi_square_survival(chi2, freedom), *(phase.p_value for phase in tested))
    evidence = max(sum(phase.evidence for phase in tested), *(phase.evidence for phase in tested))
    return SampleRatioMismatch(expected, p_value, evidence, chi2, freedom)


def multinomial_evidence(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Return the logarithm of the Bayes factor for other shares than these, of entities that came one after the other.

    The alternative has Dirichlet priors around `shares`, in equal parts. Without a mismatch the factor is a martingale
    with mean 1: it ever exceeds 1/α at most in the share α of experiments, however often one looks (Ville). Factors of
    disjoint groups multiply. Source: Lindon, Malek 2022, "Anytime-valid inference for multinomial count data".
    """
    return _either([_evidence(counts, shares, weight) for weight in SRM_CONCENTRATIONS])


def counted_share_p_value(
    counted: Mapping[str, int], exposed: Mapping[str, int], *, ended: bool
) -> float | None:
    """Return how likely by chance the variants differ in the share of exposed entities whom a metric counts.

    Pearson's test of homogeneity after the end; before, the p-value of a Bayes factor of its χ² that may be read at any
    time, with the priors of `multinomial_evidence` in their Normal form. None with fewer than two variants, and where
    fewer than five entities are expected to be counted, or not to be, in a variant.
    """
    groups = [(min(counted.get(key, 0), size), size) for key, size in exposed.items() if size > 0]
    people, kept = sum(size for _, size in groups), sum(count for count, _ in groups)
    rarer = min(kept, people - kept)
    if len(groups) < 2 or rarer * min(size for _, size in groups) < MIN_EXPECTED * people:
        return None
    share = kept / people
    chi2 = sum((count - share * size) ** 2 / (share * (1 - share) * size) for count, size in groups)
    freedom = len(groups) - 1
    if ended:
        return chi_square_survival(chi2, freedom)
    evidence = _either(
        [
            chi2 / 2 * rarer / (rarer + weight) - freedom / 2 * log1p(rarer / weight)
            for weight in SRM_CONCENTRATIONS
        ]
    )
    return exp(-max(evidence, 0.0))


def _either(evidence: Sequence[float]) -> float:
    """Return the logarithm of the mean of Bayes factors from theirs."""
    largest = max(evidence)
    return largest + log(sum(exp(term - largest) for term in evidence) / len(evidence))


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
