"""The verdict: its rules on random cases, and its words on chosen ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.statistics import (
    BayesianConfig,
    DifferenceType,
    FrequentistConfig,
    Proportion,
    QuantileSample,
    SampleMean,
    StatisticsConfig,
    compare,
)
from hoglab.statistics.verdict import (
    Action,
    Case,
    Concern,
    Contest,
    Decision,
    Evidence,
    Look,
    Measured,
    MetricEvidence,
    Plan,
    PlanSource,
    Progress,
    State,
    Verdict,
    planned_end,
    progress_at,
    shipping_config,
    standing,
    verdict,
)

FIXED = StatisticsConfig(FrequentistConfig())
SEQUENTIAL = StatisticsConfig(FrequentistConfig(sequential_testing_enabled=True))
BAYESIAN = StatisticsConfig(BayesianConfig())
REACHED = Progress(10_000, 15, 10_000, 14, True, PlanSource.WRITTEN)
AHEAD = Progress(3_210, 6, 8_000, 15, False, PlanSource.WRITTEN)
MISMATCH = Concern("sample_ratio_mismatch", "The variants have not got their shares.", "Look for redirects.")
FAILED = Concern("metric_failed", "The last computation failed.", "Give the server more memory.")

UP, DOWN, NEITHER = (0.01, 0.09), (-0.09, -0.01), (-0.03, 0.042)


def evidence(variant: str, interval: tuple[float, float] | None) -> Evidence:
    significant = interval is not None and (interval[0] > 0 or interval[1] < 0)
    above = None if interval is None or sum(interval) == 0 else sum(interval) > 0
    problem = None if interval else "fewer than 50 people"
    p_above = 1e-4 if above else 1 - 1e-4
    return Evidence(
        variant,
        interval,
        above,
        p_above=p_above if significant else 0.5,
        is_significant=significant,
        problem=problem,
    )


def metric(
    name: str,
    *intervals: tuple[float, float] | None,
    primary: bool = True,
    decrease: bool = False,
    margin: float | None = None,
) -> MetricEvidence:
    keys = ["test", "other", "third"]
    found = [evidence(key, interval) for key, interval in zip(keys, intervals, strict=False)]
    losses = [interval and (interval[1] if decrease else -interval[0]) for interval in intervals]
    found = [replace(each, largest_loss=loss) for each, loss in zip(found, losses, strict=False)]
    return MetricEvidence(
        name, name, primary and margin is None, found, wants_decrease=decrease, margin=margin
    )


def judged(*metrics: MetricEvidence, config: StatisticsConfig = SEQUENTIAL, **fields: object) -> Verdict:
    given: dict[str, object] = {"progress": REACHED, **fields}
    return verdict(Case(config, "control", metrics, **given))  # type: ignore[arg-type]


# -- the rules, on any case ----------------------------------------------------------------------------------------

bounds = st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 4))
intervals = st.tuples(bounds, bounds).map(lambda pair: (min(pair), max(pair))) | st.none()


@st.composite
def metric_lists(draw: st.DrawFn) -> list[MetricEvidence]:
    variants = draw(st.sampled_from([1, 2, 3]))
    return [
        metric(
            f"m{number}",
            *(draw(intervals) for _ in range(variants)),
            primary=draw(st.booleans()),
            decrease=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 4)))
    ]


progresses = st.builds(
    Progress,
    st.integers(0, 10_000),
    st.integers(0, 60),
    st.integers(1, 20_000) | st.none(),
    st.integers(1, 60) | st.none(),
    st.booleans(),
    st.sampled_from(PlanSource),
)
configs = st.sampled_from(
    [
        FIXED,
        SEQUENTIAL,
        BAYESIAN,
        StatisticsConfig(FrequentistConfig(difference_type=DifferenceType.ABSOLUTE)),
    ]
)
cases = st.builds(
    Case,
    configs,
    st.just("control"),
    metric_lists(),
    progresses,
    st.lists(st.sampled_from([MISMATCH, replace(FAILED, metric_uuid="m0")]), max_size=2),
    st.booleans(),
)
WINS = {State.BETTER, State.MIXED, State.WORSE}
CLEAR = {Decision.BETTER, Decision.WORSE}


def decisions(found: Verdict) -> list[Decision]:
    return [each.decision for metric in found.metrics for each in metric.variants]


@given(cases)
def test_nothing_is_decided_while_a_critical_finding_stands(case: Case) -> None:
    found = verdict(replace(case, critical=[MISMATCH]))
    assert (found.state, found.withholds) == (State.INVALID, True)
    assert {each.state for each in found.variants} <= {State.INVALID}
    assert set(decisions(found)) <= {Decision.WITHHELD}
    assert found.action.code is Action.FIX_ASSIGNMENT
    assert found.action.variant is None
    assert [reason.code for reason in found.reasons] == ["sample_ratio_mismatch"]


@given(cases, st.data())
def test_a_critical_finding_of_a_secondary_metric_concerns_that_metric_alone(
    case: Case, data: st.DataObject
) -> None:
    case = replace(case, critical=(), metrics=[*case.metrics, metric("more", UP, primary=False)])
    wrong = data.draw(st.sampled_from(case.metrics))
    concern = replace(FAILED, metric_uuid=wrong.uuid)
    found = verdict(replace(case, critical=[concern]))
    assert (found.state is State.INVALID) == found.withholds == wrong.is_primary
    (reason,) = (each for each in found.reasons if each.code == "metric_failed")
    assert (reason.text, reason.metric_uuid) == (concern.message, wrong.uuid)
    if wrong.is_primary:
        assert set(decisions(found)) <= {Decision.WITHHELD}
        return
    alone = verdict(replace(case, metrics=[each for each in case.metrics if each is not wrong]))
    assert (found.state, found.headline, found.action) == (alone.state, alone.headline, alone.action)
    by_metric = {each.metric_uuid: each for each in found.metrics}
    assert {each.decision for each in by_metric.pop(wrong.uuid).variants} == {Decision.WITHHELD}
    assert tuple(by_metric.values()) == alone.metrics


@given(cases)
def test_a_method_of_a_single_look_decides_nothing_before_its_planned_end(case: Case) -> None:
    early = replace(
        case,
        config=FIXED if case.is_sequential else case.config,
        progress=replace(case.progress, is_reached=False),
        critical=(),
    )
    found = verdict(early)
    assert found.state is (State.INCONCLUSIVE if case.has_ended else State.RUNNING)
    assert CLEAR.isdisjoint(decisions(found))
    assert WINS.isdisjoint(each.state for each in found.variants)
    assert found.action.code not in (Action.SHIP_VARIANT, Action.KEEP_BASELINE, Action.WEIGH)


@given(cases)
def test_goals_are_symmetric(case: Case) -> None:
    """Turning every effect and every goal around changes no decision."""

    def turned(each: Evidence) -> Evidence:
        return replace(
            each,
            interval=None if each.interval is None else (-each.interval[1], -each.interval[0]),
            is_above=None if each.is_above is None else not each.is_above,
            p_above=None if each.p_above is None else 1 - each.p_above,
        )

    other = replace(
        case,
        metrics=[
            replace(
                each, wants_decrease=not each.wants_decrease, variants=[turned(row) for row in each.variants]
            )
            for each in case.metrics
        ],
    )
    mine, theirs = verdict(case), verdict(other)
    assert (mine.state, mine.variants, mine.action, mine.numbers) == (
        theirs.state,
        theirs.variants,
        theirs.action,
        theirs.numbers,
    )
    assert decisions(mine) == decisions(theirs)


@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_metrics_and_variants_does_not_matter(case: Case, random: object) -> None:
    def shuffled(some: Sequence[object]) -> list[object]:
        some = list(some)
        random.shuffle(some)  # type: ignore[attr-defined]
        return some

    metrics = [replace(each, variants=shuffled(each.variants)) for each in shuffled(case.metrics)]  # type: ignore[type-var]
    mine, theirs = verdict(case), verdict(replace(case, metrics=metrics))  # type: ignore[arg-type]
    assert (mine.state, mine.action, mine.numbers) == (theirs.state, theirs.action, theirs.numbers)
    assert set(mine.variants) == set(theirs.variants)
    assert {each.code for each in mine.reasons} == {each.code for each in theirs.reasons}


@given(cases)
def test_a_secondary_metric_never_makes_anything_better(case: Case) -> None:
    secondary = {each.uuid for each in case.metrics if not each.is_primary}
    alone = verdict(
        replace(
            case,
            metrics=[each for each in case.metrics if each.is_primary],
            critical=[each for each in case.critical if each.metric_uuid not in secondary],
        )
    )
    found = verdict(case)
    if found.state is State.BETTER:
        assert alone.state is State.BETTER


@given(cases)
def test_every_verdict_is_told_in_sentences(case: Case) -> None:
    found = verdict(case)
    for text in (found.headline, found.action.text, *(reason.text for reason in found.reasons)):
        assert text[0].isupper() or text[0].isdigit() or text[0] == "“"
        assert text.endswith(".")
        assert "None" not in text
        assert "  " not in text
    assert found.reasons


# -- the states ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "state", "action", "variant"),
    [
        ([metric("Revenue", UP)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Errors", DOWN, decrease=True)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", DOWN)], State.WORSE, Action.KEEP_BASELINE, "control"),
        ([metric("Revenue", UP), metric("Errors", UP, decrease=True)], State.MIXED, Action.WEIGH, None),
        ([metric("Revenue", UP), metric("Load", DOWN, primary=False)], State.BETTER, Action.SHIP_VARIANT, "test"),
        # A guardrail without a margin holds back what clearly harms it, one with a margin what may.
        ([metric("Revenue", UP), metric("Load", DOWN, margin=0)], State.MIXED, Action.DO_NOT_SHIP, None),
        ([metric("Revenue", UP), metric("Load", NEITHER, margin=0)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", UP), metric("Load", UP, margin=0)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", UP), metric("Load", DOWN, margin=0.02)], State.MIXED, Action.DO_NOT_SHIP, None),
        ([metric("Revenue", UP), metric("Load", NEITHER, margin=0.02)], State.NOT_SHOWN_SAFE, Action.SHOW_SAFETY, None),
        ([metric("Revenue", UP), metric("Load", NEITHER, margin=0.04)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", UP), metric("Load", DOWN, margin=0.1)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", UP), metric("Errors", NEITHER, decrease=True, margin=0.04)],
         State.NOT_SHOWN_SAFE, Action.SHOW_SAFETY, None),
        ([metric("Revenue", UP), metric("Errors", NEITHER, decrease=True, margin=0.05)],
         State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", UP), metric("Load", None, margin=0.02)], State.INCONCLUSIVE, Action.FIX_METRIC, None),
        ([metric("Revenue", NEITHER), metric("Load", NEITHER, margin=0.02)], State.INCONCLUSIVE, Action.STOP, None),
        ([metric("Revenue", DOWN), metric("Load", NEITHER, margin=0.02)], State.WORSE, Action.KEEP_BASELINE, "control"),
        ([metric("Revenue", UP, UP), metric("Load", NEITHER, UP, margin=0.02)],
         State.BETTER, Action.SHIP_VARIANT, "other"),
        ([metric("Revenue", UP, UP), metric("Load", NEITHER, DOWN, margin=0.02)],
         State.NOT_SHOWN_SAFE, Action.SHOW_SAFETY, None),
        ([metric("Revenue", UP), metric("Load", NEITHER, primary=False)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", NEITHER), metric("Load", UP, primary=False)], State.INCONCLUSIVE, Action.STOP, None),
        ([metric("Revenue", NEITHER), metric("Load", DOWN, primary=False)], State.INCONCLUSIVE, Action.STOP, None),
        ([metric("Revenue", NEITHER)], State.INCONCLUSIVE, Action.STOP, None),
        ([metric("Revenue", None)], State.INCONCLUSIVE, Action.STOP, None),
        ([metric("Load", UP, primary=False)], State.INCONCLUSIVE, Action.ADD_METRIC, None),
        ([], State.INCONCLUSIVE, Action.ADD_METRIC, None),
        # Several better variants are told apart by a comparison with each other, or not at all.
        ([metric("Revenue", UP, (0.05, 0.09))], State.BETTER, Action.CHOOSE_VARIANT, None),
        ([metric("Revenue", UP), metric("Signups", None)], State.INCONCLUSIVE, Action.FIX_METRIC, None),
        ([metric("Revenue", UP), metric("Load", None, primary=False)], State.BETTER, Action.SHIP_VARIANT, "test"),
        ([metric("Revenue", DOWN), metric("Signups", None)], State.WORSE, Action.KEEP_BASELINE, "control"),
        ([metric("Revenue", DOWN, UP)], State.BETTER, Action.SHIP_VARIANT, "other"),
        ([metric("Revenue", DOWN, NEITHER)], State.INCONCLUSIVE, Action.STOP, None),
        ([metric("Revenue", DOWN, DOWN)], State.WORSE, Action.KEEP_BASELINE, "control"),
        (
            [metric("Revenue", (0.05, 0.09), UP), metric("Load", DOWN, UP, margin=0)],
            State.BETTER,
            Action.SHIP_VARIANT,
            "other",
        ),
    ],
)  # fmt: skip
def test_what_the_metrics_make_of_it(
    metrics: list[MetricEvidence], state: State, action: Action, variant: str | None
) -> None:
    for config in (FIXED, SEQUENTIAL, BAYESIAN):
        found = judged(*metrics, config=config)
        assert (found.state, found.action.code, found.action.variant) == (state, action, variant)


def contest(first: str, second: str, difference: float, *, sure: bool) -> Contest:
    """A comparison of two variants; a sure one is so after a correction for several, too."""
    chance = 0.9999 if sure else 0.97
    return Contest(
        first,
        Evidence(
            second,
            (difference - 1, difference + 1),
            difference > 0,
            is_significant=True,
            p_value=1e-4 if sure else 0.03,
            chance_to_win=chance if difference > 0 else 1 - chance,
        ),
    )


@pytest.mark.parametrize("falls", [False, True])
@pytest.mark.parametrize("config", [FIXED, BAYESIAN, SEQUENTIAL])
def test_better_variants_are_compared_with_each_other(config: StatisticsConfig, falls: bool) -> None:
    sign = -1 if falls else 1
    interval = (-0.09, -0.01) if falls else (0.01, 0.09)

    def shipped(*contests: Contest, intervals: int = 3) -> tuple[Action, str | None]:
        revenue = replace(metric("Revenue", *[interval] * intervals, decrease=falls), contests=contests)
        action = judged(revenue, config=config).action
        assert action.variant is None or action.text == f"Ship “{action.variant}”."
        return action.code, action.variant

    clear = [contest("test", "other", sign, sure=True), contest("other", "third", -sign, sure=True)]
    assert shipped(*clear, contest("test", "third", sign, sure=False)) == (Action.SHIP_VARIANT, "other")
    unclear = contest("other", "third", sign, sure=False)
    assert shipped(clear[0], unclear, contest("test", "third", sign, sure=True)) == (
        Action.CHOOSE_VARIANT,
        None,
    )
    assert shipped(contest("test", "other", -sign, sure=True), intervals=2) == (Action.SHIP_VARIANT, "test")
    assert shipped(contest("test", "other", sign, sure=False), intervals=2) == (Action.SHIP_VARIANT, "other")
    assert shipped(intervals=2) == (Action.CHOOSE_VARIANT, None)


def test_variants_that_are_not_told_apart_are_named() -> None:
    found = judged(metric("Revenue", UP, (0.05, 0.09)))
    assert found.headline == (
        "2 variants do better than “control”, and are not told apart: “other” on “Revenue”: +7.0% (95% interval "
        "+5.0% … +9.0%) and “test” on “Revenue”: +5.0% (95% interval +1.0% … +9.0%)."
    )
    (reason,) = (each for each in found.reasons if each.code == "several_better")
    assert reason.text.endswith("“test” and “other” are not told apart.")


def test_only_a_sequential_method_decides_before_the_planned_end() -> None:
    early = judged(metric("Revenue", UP), progress=AHEAD)
    assert (early.state, early.reads_at_any_time) == (State.BETTER, True)
    assert judged(metric("Revenue", NEITHER), progress=AHEAD).state is State.RUNNING
    for config in (FIXED, BAYESIAN):
        found = judged(metric("Revenue", UP), progress=AHEAD, config=config)
        assert (found.state, found.reads_at_any_time) == (State.RUNNING, False)
        assert decisions(found) == [Decision.EARLY]
        assert "single_look" in {reason.code for reason in found.reasons}


@pytest.mark.parametrize("config", [FIXED, BAYESIAN, SEQUENTIAL])
def test_a_plan_that_nobody_wrote_is_no_reason_to_stop(config: StatisticsConfig) -> None:
    by_default = replace(REACHED, source=PlanSource.DEFAULT)
    found = judged(metric("Revenue", NEITHER), progress=by_default, config=config)
    assert (found.state, found.action.code) == (State.RUNNING, Action.WRITE_PLAN)
    assert found.headline == "Nothing is clear yet: no difference on “Revenue” beyond ±4.2% is likely."
    assert "default_plan" in {reason.code for reason in found.reasons}
    assert judged(metric("Revenue", UP), progress=by_default, config=config).state is State.BETTER
    assert judged(metric("Revenue", DOWN), progress=by_default, config=config).state is State.WORSE
    over = judged(metric("Revenue", NEITHER), progress=by_default, config=config, has_ended=True)
    assert (over.state, over.action.code) == (State.INCONCLUSIVE, Action.STOP)
    for source in (PlanSource.OWN_VARIANCE, PlanSource.WRITTEN):
        found = judged(metric("Revenue", NEITHER), progress=replace(REACHED, source=source), config=config)
        assert (found.state, found.action.code) == (State.INCONCLUSIVE, Action.STOP)


def test_the_words_of_each_state() -> None:
    revenue = metric("Revenue", UP)
    said = {
        "better": judged(revenue),
        "worse": judged(metric("Revenue", DOWN)),
        "mixed": judged(revenue, metric("Load", UP, decrease=True, margin=0)),
        "not shown": judged(revenue, metric("Load", NEITHER, margin=0.02)),
        "inconclusive": judged(metric("Revenue", NEITHER)),
        "running": judged(revenue, progress=AHEAD, config=FIXED),
        "stopped": judged(revenue, progress=AHEAD, config=FIXED, has_ended=True),
        "invalid": judged(revenue, critical=[MISMATCH]),
    }
    assert {name: found.headline for name, found in said.items()} == {
        "better": "“test” does better on “Revenue”: +5.0% (95% interval +1.0% … +9.0%).",
        "worse": "“test” does worse on “Revenue”: -5.0% (95% interval -9.0% … -1.0%).",
        "mixed": "“test” does better on “Revenue” (+5.0%), but worse on “Load” (+5.0%).",
        "not shown": "“test” does better on “Revenue”: +5.0% (95% interval +1.0% … +9.0%), but “Load” (a loss of 2.0% "
        "is allowed) is not shown to be safe.",
        "inconclusive": "No clear winner: no difference on “Revenue” beyond ±4.2% is likely.",
        "running": "Running for 6 of 15 days, with 3,210 of 8,000 people.",
        "stopped": "Stopped too early to decide: it ran for 6 of 15 days, with 3,210 of 8,000 people.",
        "invalid": "Do not decide. The variants have not got their shares.",
    }
    assert said["running"].action.text == (
        "Keep it running for about 9 more days, and do not decide by what it shows before."
    )
    assert said["inconclusive"].numbers.largest_difference == pytest.approx(0.042)
    assert said["invalid"].action.text == "Look for redirects."


def test_days_that_are_lacking_are_told_when_enough_people_came() -> None:
    progress = Progress(20_000, 0, 4_161, 7, False, PlanSource.OWN_VARIANCE)
    found = judged(metric("Revenue", UP), progress=progress, config=FIXED)
    assert (
        found.headline == "Running for less than one of 7 days, with all of the 4,161 people that it takes."
    )
    assert (
        found.action.text
        == "Keep it running for about 7 more days, and do not decide by what it shows before."
    )


def test_differences_of_shares_are_told_in_points_and_units_are_not_mixed() -> None:
    config = StatisticsConfig(FrequentistConfig(difference_type=DifferenceType.ABSOLUTE))
    rate = replace(metric("Rate", NEITHER), is_share=True)
    found = judged(rate, metric("Revenue", (-3.0, 7.0)), config=config)
    assert found.headline == (
        "No clear winner: no difference on “Rate” beyond ±4.2 pp and “Revenue” beyond ±7 is likely."
    )
    assert found.numbers.largest_difference is None
    assert judged(rate, config=config).numbers.largest_difference == pytest.approx(0.042)


def test_a_decision_by_former_numbers_says_so() -> None:
    found = judged(metric("Revenue", UP), config=FIXED, as_of=date(2026, 3, 14))
    assert found.as_of == date(2026, 3, 14)
    (reason,) = (each for each in found.reasons if each.code == "decided_at_planned_end")
    assert "2026-03-14" in reason.text


@pytest.mark.parametrize("config", [FIXED, BAYESIAN, SEQUENTIAL])
def test_primary_metrics_and_variants_share_one_level(config: StatisticsConfig) -> None:
    """Holm's rule, at 2.5 % for a variant to be better, whatever the rows say without it."""

    def state(*p_values: float) -> State:
        metrics = [metric(f"m{number}", UP) for number in range(len(p_values))]
        for each, p_value in zip(metrics, p_values, strict=True):
            each.variants[0:1] = [replace(each.variants[0], p_above=p_value)]  # type: ignore[index]
        return judged(*metrics, config=config).state

    assert (state(0.024), state(0.026)) == (State.BETTER, State.INCONCLUSIVE)
    assert (state(0.024, 0.024), state(0.012, 0.5)) == (State.INCONCLUSIVE, State.BETTER)
    assert (state(0.013, 0.5), state(0.001, 0.5, 0.5, 0.5)) == (State.INCONCLUSIVE, State.BETTER)
    two = metric("Revenue", UP, UP)
    weak = replace(two, variants=[replace(each, p_above=0.02) for each in two.variants])
    assert judged(weak, config=config).state is State.INCONCLUSIVE


def test_a_better_metric_without_statistics_of_another_counts_as_a_test() -> None:
    revenue = metric("Revenue", UP)
    weak = replace(revenue, variants=[replace(revenue.variants[0], p_above=0.02)])
    assert judged(weak).state is State.BETTER
    assert judged(weak, metric("Signups", None)).state is State.INCONCLUSIVE
    assert judged(weak, metric("Signups", None)).action.code is Action.STOP


@pytest.mark.parametrize(
    ("config", "count", "text"),
    [
        (FIXED, 2, "at most 2.5% of experiments over all 2 comparisons together (Holm)."),
        (BAYESIAN, 1, "at most 2.5% of experiments."),
        (SEQUENTIAL, 3, "over all 3 comparisons together (Holm), however often it is read."),
    ],
)
def test_the_verdict_says_how_often_it_errs(config: StatisticsConfig, count: int, text: str) -> None:
    metrics = [metric(f"m{number}", NEITHER) for number in range(count)]
    found = {each.code: each.text for each in judged(*metrics, config=config).reasons}
    assert found["error_rates"].endswith(text)
    guarded = judged(*metrics, metric("Load", NEITHER, margin=0.02), config=config)
    assert {each.code: each.text for each in guarded.reasons}["error_rates"].endswith(
        "One that harms a guardrail by its margin ships in at most 5%."
    )


@given(cases, st.lists(st.tuples(intervals, st.booleans()), min_size=1, max_size=5))
def test_secondary_metrics_change_no_decision(
    case: Case, noise: list[tuple[tuple[float, float] | None, bool]]
) -> None:
    keys = {each.variant for other in case.metrics for each in other.variants}
    case = replace(case, metrics=[*case.metrics, metric("own", UP)])
    more = [
        metric(f"noise {number}", interval, primary=False, decrease=decrease)
        for number, (interval, decrease) in enumerate(noise)
    ]
    alone, found = verdict(case), verdict(replace(case, metrics=[*case.metrics, *more]))
    assert keys <= {each.variant for each in found.variants}
    assert (found.state, found.headline, found.variants) == (alone.state, alone.headline, alone.variants)
    assert (found.action.code, found.action.variant) == (alone.action.code, alone.action.variant)
    assert found.numbers == alone.numbers


def test_a_secondary_metric_that_is_lost_is_told_with_the_advice() -> None:
    found = judged(metric("Revenue", UP), metric("Load", DOWN, primary=False))
    assert found.action.text == (
        "Ship “test”. Look at “Load” (-5.0%) before: it is a secondary metric, which decides nothing."
    )


def test_a_guardrail_of_which_nothing_happened_holds_nothing_back() -> None:
    crashes = metric("Crashes", None, margin=0)
    nothing = replace(crashes, variants=[replace(crashes.variants[0], means=(0, 0))])
    some = replace(crashes, variants=[replace(crashes.variants[0], means=(0, 0.1))])
    assert judged(metric("Revenue", UP), nothing).state is State.BETTER
    assert judged(metric("Revenue", UP), some).action.code is Action.FIX_METRIC


def test_a_guardrail_that_is_not_shown_to_be_safe_says_how_many_people_it_takes() -> None:
    load = replace(metric("Load", NEITHER, margin=0.02), people_to_show=23_456)
    found = judged(metric("Revenue", UP), load)
    assert found.action.text == (
        "Keep it running. About 13,000 more people can show that the guardrail is safe, if nothing is lost."
    )
    once = judged(metric("Revenue", UP), load, config=FIXED)
    assert once.action.text.startswith("Do not ship yet. About 13,000 more people can show")
    (reason,) = (each for each in found.reasons if each.code == "guardrail_not_shown_safe")
    assert reason.text == (
        "The guardrail “Load” is not shown to be safe: for “test” it loses 3.0% at most (one-sided 95% bound), but "
        "2.0% are allowed."
    )


def test_effects_err_alike_on_both_sides_and_posthogs_relative_ones_downwards() -> None:
    """An experiment without an effect, whatever the goal. With PostHog's numbers, z of the level, and w the baseline's
    standard error as a share of its mean, an increase is clear beyond z(1 + zw/√2), a decrease beyond z(1 - zw/√2)."""
    size, runs = 200, 10_000
    values = np.random.default_rng(7).exponential(1, (2, runs, size))
    sums, squares = values.sum(2), (values**2).sum(2)
    w = 1 / sqrt(size)
    for test, z in ((FrequentistConfig, 1.96), (BayesianConfig, 1.645)):
        for posthog, skew in ((True, z * w / sqrt(2)), (False, 0)):
            config = StatisticsConfig(test(), posthog_numbers=posthog)
            found: Counter[tuple[bool, Decision]] = Counter()
            for each in range(runs):
                control, treated = (
                    SampleMean(size, float(sums[n, each]), float(squares[n, each])) for n in (0, 1)
                )
                compared = compare(config, control, treated)
                interval = compared.credible_interval or compared.confidence_interval
                assert compared.point_estimate is not None
                rises = compared.point_estimate > 0
                one = Evidence("test", interval, rises, is_significant=compared.significant is True)
                for falls in (False, True):
                    found[falls, one.direction(wants_decrease=falls)] += 1
            for falls, sign in ((False, 1), (True, -1)):
                expected = NormalDist().cdf(-z * (1 + sign * skew))
                error = sqrt(expected * (1 - expected) / runs)
                assert found[falls, Decision.BETTER] / runs == pytest.approx(expected, abs=5 * error)
                assert found[falls, Decision.BETTER] == found[not falls, Decision.WORSE]


# -- the planned end -----------------------------------------------------------------------------------------------


def look(day: float, per_group: int, rate: float = 0.1) -> Look:
    groups = tuple(Proportion(per_group, round(per_group * rate)) for _ in range(2))
    return Look(2 * per_group, day, [Measured(groups)])


def test_a_plan_is_read_from_what_was_written_down() -> None:
    assert Plan.of({}) == Plan(None, None, None)
    assert Plan().planned_effect == 0.1
    assert Plan.of({}, 5) == Plan(None, None, 0.05)
    written = {
        "minimum_detectable_effect": 20,
        "recommended_sample_size": 999.5,
        "recommended_running_time": 14,
    }
    assert Plan.of(written, 5) == Plan(1000, 14, 0.2)
    for bad in (0, -1, True, "7", float("nan"), float("inf"), None, [], 1e300):
        names = ("recommended_sample_size", "recommended_running_time", "minimum_detectable_effect")
        assert Plan.of(dict.fromkeys(names, bad)) == Plan()


def test_all_that_was_written_down_is_to_be_reached() -> None:
    plan = Plan(people=1000, days=14)
    for people, days, reached in ((1000, 14, True), (999, 20, False), (5000, 13.9, False)):
        assert progress_at(plan, FIXED, Look(people, days)).is_reached is reached
    found = progress_at(plan, FIXED, Look(500, 10))
    assert (found.people_remaining, found.days_remaining, found.days_needed) == (500, 10, 20)
    found = progress_at(plan, FIXED, Look(2000, 10))
    assert (found.people_remaining, found.days_remaining, found.days_needed) == (0, 4, 14)
    assert progress_at(plan, FIXED, Look(0, 10)).days_remaining is None


@pytest.mark.parametrize("config", [FIXED, BAYESIAN, SEQUENTIAL])
def test_without_a_written_plan_the_own_variance_says_how_long(config: StatisticsConfig) -> None:
    plan = Plan(effect=0.2)
    small = progress_at(plan, config, look(20, 400))
    assert small.source is PlanSource.OWN_VARIANCE
    assert small.people_needed is not None
    assert not small.is_reached
    enough = progress_at(plan, config, look(20, small.people_needed))
    assert enough.is_reached
    barely = small.people_needed // 2
    assert progress_at(plan, config, look(20, round(barely * 1.03))).is_reached
    assert not progress_at(plan, config, look(20, round(barely * 0.97))).is_reached
    assert not progress_at(plan, config, look(6.9, 10 * barely)).is_reached, "a whole week at least"


def test_the_plan_does_not_look_at_the_groups_apart() -> None:
    """Else it would end sooner where they differ by chance, and the test would err more often than it says."""
    alike, apart = ((Proportion(500, 50), Proportion(500, 50)), (Proportion(500, 35), Proportion(500, 65)))
    needed = {
        progress_at(Plan(effect=0.2), FIXED, Look(1000, 9, [Measured(groups)])).people_needed
        for groups in (alike, apart, apart[::-1])
    }
    assert len(needed) == 1


def test_the_slowest_primary_metric_decides_how_long() -> None:
    rare, often = (Measured((Proportion(500, count),) * 2) for count in (10, 250))
    shared = shipping_config(FIXED, 2)  # both share the level
    alone = [progress_at(Plan(), shared, Look(1000, 9, [each])).people_needed for each in (rare, often)]
    both = progress_at(Plan(), FIXED, Look(1000, 9, [rare, often])).people_needed
    assert both == max(each for each in alone if each is not None) == alone[0]


@pytest.mark.parametrize(
    "measured",
    [
        Measured((Proportion(0, 0), Proportion(0, 0))),
        Measured((Proportion(500, 0), Proportion(500, 0))),
        Measured((SampleMean(10, 0, 0), SampleMean(10, 0, 0))),
        Measured((SampleMean(10, 10, 10),)),
        Measured((QuantileSample(0, 0.9, 0, 0, 0), QuantileSample(0, 0.9, 0, 0, 0))),
    ],
)
def test_too_little_to_plan_with_is_no_plan(measured: Measured) -> None:
    for config in (FIXED, BAYESIAN, SEQUENTIAL):
        found = progress_at(Plan(), config, Look(100, 30, [measured]))
        assert (found.people_needed, found.is_reached, found.source) == (None, False, PlanSource.UNKNOWN)
        assert found.days_remaining is None


def test_a_rate_that_cannot_grow_is_planned_to_fall() -> None:
    groups = (Proportion(500, 450), Proportion(500, 450))
    found = [
        progress_at(
            Plan(effect=0.3), FIXED, Look(1000, 1, [Measured(groups, wants_decrease=falls)])
        ).people_needed
        for falls in (False, True)
    ]
    assert found[0] == found[1] is not None


def test_quantiles_are_planned_by_the_mean_of_the_groups() -> None:
    groups = (QuantileSample(1000, 0.9, 10, 9, 11), QuantileSample(1000, 0.9, 12, 10.8, 13.2))
    found = progress_at(Plan(effect=0.1), FIXED, Look(2000, 9, [Measured(groups)]))
    assert found.people_needed is not None
    assert found.people_needed > 2000


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=30),
    st.sampled_from([Plan(people=900), Plan(days=9), Plan(people=900, days=9), Plan(effect=0.3)]),
)
def test_a_single_look_stays_the_one_of_the_planned_end(arrivals: list[int], plan: Plan) -> None:
    """Whatever comes later: so reading every day is reading once."""
    total, looks = 0, []
    for day, count in enumerate(arrivals, start=1):
        total += count
        looks.append(look(day, total))
    end = planned_end(plan, FIXED, looks)
    for day in range(len(looks)):
        until = looks[: day + 1]
        assert standing(plan, SEQUENTIAL, until)[0] == day
        number, progress = standing(plan, FIXED, until)
        assert number == (day if end is None or day < end else end)
        assert progress.is_reached == (end is not None and day >= end)
        # The day of the last look may go on.
        number, progress = standing(plan, FIXED, until, last_is_over=False)
        assert number == (day if end is None or day <= end else end)
        assert progress.is_reached == (end is not None and day > end)
