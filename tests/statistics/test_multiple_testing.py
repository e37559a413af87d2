"""Corrections for several tests."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hoglab.statistics import Correction, benjamini_hochberg, bonferroni, holm

P_VALUES = st.lists(st.floats(0, 1), max_size=20)


@given(P_VALUES.filter(bool))
def test_benjamini_hochberg_agrees_with_scipy(p_values: list[float]) -> None:
    reference = stats.false_discovery_control(p_values)
    assert benjamini_hochberg(p_values) == pytest.approx(list(reference), rel=1e-9, abs=1e-300)


@given(P_VALUES)
def test_corrections_keep_the_order_and_only_ever_raise(p_values: list[float]) -> None:
    corrected = [correct(p_values) for correct in (benjamini_hochberg, holm, bonferroni)]
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for adjusted in corrected:
        ranked = [adjusted[place] for place in order]
        assert ranked == sorted(p for p in ranked if p is not None)
    for p, *adjusted_p in zip(p_values, *corrected, strict=True):
        steps = [p, *(value for value in adjusted_p if value is not None), 1.0]
        assert all(low <= high * (1 + 1e-12) for low, high in pairwise(steps))


def test_bonferroni_and_holm_by_hand() -> None:
    assert bonferroni([0.01, 0.4, 0.03]) == pytest.approx([0.03, 1.0, 0.09])
    assert holm([0.01, 0.4, 0.03]) == pytest.approx([0.03, 0.4, 0.06])


@pytest.mark.parametrize("correct", [bonferroni, holm, benjamini_hochberg])
def test_a_test_without_a_p_value_does_not_count(correct: object) -> None:
    assert callable(correct)
    plain = correct([0.01, 0.04])
    assert correct([None, 0.01, None, 0.04]) == [None, plain[0], None, plain[1]]
    assert correct([None]) == [None]
    assert correct([]) == []
    assert correct([0.03]) == [0.03]


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_what_is_not_a_probability_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, bad])


def test_the_corrections_control_what_they_say() -> None:
    """Ten tests, four of them of true effects: family-wise errors and false discoveries at 0.1."""
    runs, alpha = 1500, 0.1
    rng = np.random.default_rng(42)
    z = rng.standard_normal((runs, 10))
    z[:, :4] += 3
    families = (2 * stats.norm.sf(np.abs(z))).tolist()
    any_error, discoveries = 0, []
    for family in families:
        rejected = [p is not None and p < alpha for p in holm(family)]
        any_error += any(rejected[4:])
        found = [p is not None and p < alpha for p in benjamini_hochberg(family)]
        discoveries.append(sum(found[4:]) / max(sum(found), 1))
    assert any_error / runs < alpha + 4 * sqrt(alpha * (1 - alpha) / runs)
    # The false discovery rate is alpha times the share of true nulls, here 0.06.
    spread = float(np.std(discoveries)) / sqrt(runs)
    assert abs(float(np.mean(discoveries)) - 0.06) < 4 * spread


def test_a_correction_is_chosen_by_its_name() -> None:
    family = [0.01, None, 0.4, 0.03]
    assert Correction("none").adjust(family) == family
    assert Correction("bonferroni").adjust(family) == bonferroni(family)
    assert Correction("holm").adjust(family) == holm(family)
    assert Correction("benjamini-hochberg").adjust(family) == benjamini_hochberg(family)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Correction.NONE.adjust([2.0])
