"""Entities go on from what is known of them, and the results are those of all events (spec experiment-results 11.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.analysis.events import Event
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import (
    AMOUNT,
    CHECKOUT,
    END,
    EXPOSURE,
    METRICS,
    PURCHASE,
    START,
    WINDOWS,
    Bench,
    a_log,
    a_setting,
    compare_answers,
    funnel,
    in_window,
    mean,
    seeds,
)
from tests.analysis.test_state import (
    ALWAYS,
    HOUR,
    REVENUE,
    Experiment,
    Stateful,
    assert_same_points,
    plain,
    until,
)

from hoglab.analysis.incremental.aggregation import can_resume
from hoglab.analysis.incremental.cache_tables import RefreshWork

CONTROL, TEST = ({"$feature_flag": "flag", "$feature_flag_response": key} for key in ("control", "test"))
DAY = timedelta(days=1)
STEPS = funnel(CHECKOUT, PURCHASE, **in_window((2, "day")))
RATIO = {"metric_type": "ratio", "numerator": {**PURCHASE, **AMOUNT, "math": "sum"}, "denominator": CHECKOUT}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stateful]:
    engine = Stateful(tmp_path_factory.mktemp("resuming"))
    yield engine
    engine.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Stateful]:
    engine = Stateful(tmp_path)
    yield engine
    engine.close()


@pytest.fixture
def experiment(engine: Stateful) -> Experiment:
    return Experiment(engine)


# -- differential ------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_in_about_the_order_of_time_results_are_those_of_all_events(lasting: Stateful) -> None:
    """Most events come in order, some late; ends are sometimes in the middle of what came."""
    bench = Bench(lasting)
    resumable = [metric for metric in METRICS if can_resume(bench.ask(plain(), [], metric).metric)]
    work: list[RefreshWork] = []

    @settings(
        max_examples=lasting.examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    @given(
        seed=seeds,
        setting=a_setting(),
        metric=st.sampled_from(resumable),
        window=st.sampled_from(WINDOWS),
        cuts=st.lists(st.integers(30, 130), min_size=7, max_size=7).map(sorted),
        late=st.sampled_from([0, 0, 8]),
        behind=st.sampled_from([timedelta(0), timedelta(0), -6 * HOUR, 12 * HOUR]),
        merges=st.sampled_from([[], [], [("bob", "ann")]]),
        faithful=st.booleans(),
    )
    def example(
        seed: int,
        setting: Setting,
        metric: dict[str, Any],
        window: tuple[int | None, str | None],
        cuts: list[int],
        late: int,
        behind: timedelta,
        merges: list[tuple[str, str]],
        faithful: bool,
    ) -> None:
        setting = replace(setting, merged={}, matured_only=False)
        random = Random(seed)
        events = sorted(a_log(seed, 120), key=lambda event: event.timestamp)
        for _ in range(late):
            events.append(events.pop(random.randrange(len(events))))
        if faithful:  # otherwise most people see several variants after a while
            events = [event for event in events if "test" not in event.properties.values()]
        names = [{"property": name} for name in setting.breakdowns]
        metric = {**metric, **in_window(window), "breakdownFilter": {"breakdowns": names}}
        question = bench.ask(setting, [], metric)
        project = question.exposures.project_id
        end = START + HOUR
        for batch, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(events)], strict=True)):
            some = events[first:last]
            lasting.add(some, project_id=project, merges=merges if batch == 2 else [])
            newest = max((event.timestamp for event in some), default=end)
            end = min(END, max(end, newest + behind))
            lasting.stateful.points(until(question, end))
            work.append(lasting.state.last)
            assert_same_points(lasting, until(question, end), (batch, metric))
        setting = replace(setting, merged=dict(merges))
        last_day = assert_same_points(lasting, question, metric)
        compare_answers(last_day[max(last_day)], setting, events, metric, "at the end")

    example()
    resumed = sum(each.resumed for each in work)
    assert min(resumed, sum(each.entities for each in work) - resumed) > 10


# -- who goes on, and who is computed again ---------------------------------------------------------------


def work_of(experiment: Experiment, metric: dict[str, Any], *events: Event, **fields: Any) -> tuple[int, int]:
    """How many entities went on from their state, and how many were computed again, when these events came."""
    question = experiment.ask(metric, plain(**fields))
    experiment.cost(question)
    experiment.engine.add(events, project_id=experiment.project)
    work = experiment.cost(question)
    assert work.rebuilt is False
    return work.resumed, work.entities - work.resumed


def buys(hours: float, person: str = "user-4", amount: float = 7) -> Event:
    """User 4 is shown the control at minute 4, and buys an hour later."""
    return Event(person, START + timedelta(hours=hours), "purchase", {"amount": amount, "size": "big"})


def sees(hours: float, variant: dict[str, str], person: str = "user-4") -> Event:
    return Event(person, START + timedelta(hours=hours), "$feature_flag_called", variant)


KINDS = [
    REVENUE,
    mean(),
    *(mean(source={**PURCHASE, **AMOUNT, "math": name}) for name in ("avg", "min", "max")),
    mean(threshold=2),
    RATIO,
    STEPS,
    REVENUE | in_window((1, "hour")),
]


@pytest.mark.parametrize("metric", KINDS, ids=lambda metric: str(metric)[:90])
def test_what_comes_after_everything_else_goes_on(experiment: Experiment, metric: dict[str, Any]) -> None:
    assert work_of(
        experiment, metric, buys(30), buys(31), buys(60), buys(30, "user-7"), buys(30, "user-5")
    ) == (3, 0)
    assert work_of(experiment, metric, buys(61), sees(62, CONTROL), buys(63, "user-7", -3)) == (2, 0)
    counts_exposures = metric["metric_type"] == "funnel"  # each is the first step
    assert work_of(experiment, metric, sees(64, CONTROL)) == (int(counts_exposures), 0)


@pytest.mark.parametrize("metric", [REVENUE, RATIO, STEPS], ids=["mean", "ratio", "funnel"])
@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (sees(0.01, CONTROL), {}),
        (sees(0.01, CONTROL), {"first_seen": True}),
        (sees(40, TEST), {}),
        (Event("newcomer", START + 40 * HOUR, "$feature_flag_called", TEST), {}),
    ],
    ids=["earlier exposure", "earlier exposure, first seen", "another variant", "newly exposed"],
)
def test_whose_exposure_changes_is_computed_again(
    experiment: Experiment, metric: dict[str, Any], event: Event, fields: dict[str, Any]
) -> None:
    bought = Event("newcomer", START + 50 * HOUR, "purchase", {"amount": 3})  # stored before the exposure
    experiment.engine.add([bought], project_id=experiment.project)
    assert work_of(experiment, metric, event, **fields) == (0, 1)


@pytest.mark.parametrize("number", [1, 2**100], ids=["before", "after"])
def test_another_exposure_at_the_moment_of_the_first_is_looked_at_again(
    experiment: Experiment, number: int
) -> None:
    """Of two at one moment the one with the lower uuid is the first."""
    both = Event("user-4", START + timedelta(minutes=4), "$feature_flag_called", TEST, UUID(int=number))
    assert work_of(experiment, REVENUE, both, first_seen=True) == (0, 1)


def test_to_who_is_taken_as_first_seen_another_variant_is_nothing_new(experiment: Experiment) -> None:
    assert work_of(experiment, REVENUE, sees(40, TEST), first_seen=True) == (1, 0)


@pytest.mark.parametrize("metric", [REVENUE, RATIO, STEPS], ids=["mean", "ratio", "funnel"])
def test_who_saw_several_variants_goes_on(experiment: Experiment, metric: dict[str, Any]) -> None:
    assert work_of(experiment, metric, buys(50)) == (1, 0)
    assert work_of(experiment, metric, sees(40, TEST)) == (0, 1)
    assert work_of(experiment, metric, buys(70), sees(71, TEST), sees(72, CONTROL)) == (1, 0)
    assert work_of(experiment, metric, buys(75)) == (1, 0)
    assert work_of(experiment, metric, buys(74)) == ((1, 0) if metric is not STEPS else (0, 1))
    assert work_of(experiment, metric, sees(20, TEST)) == (
        0,
        1,
    )  # since when it has been in both is earlier now
    assert work_of(experiment, metric, buys(76)) == (1, 0)


def test_what_lies_before_the_last_day_is_computed_again(experiment: Experiment) -> None:
    assert work_of(experiment, REVENUE, buys(60)) == (1, 0)
    assert work_of(experiment, REVENUE, buys(61)) == (1, 0)
    assert work_of(experiment, REVENUE, buys(60.5)) == (1, 0)  # on the same day
    assert work_of(experiment, REVENUE, buys(20)) == (0, 1)


def test_a_row_of_a_funnel_before_the_last_one_is_computed_again(experiment: Experiment) -> None:
    assert work_of(experiment, STEPS, buys(60)) == (1, 0)
    assert work_of(experiment, STEPS, buys(60)) == (0, 1)  # at the same moment
    assert work_of(experiment, STEPS, Event("user-4", START + 59.5 * HOUR, "checkout")) == (0, 1)
    assert work_of(experiment, STEPS, buys(60.5)) == (1, 0)


def test_what_lies_before_the_exposure_matters_to_covariates_only(experiment: Experiment) -> None:
    before = [Event("user-4", START - hours * HOUR, "purchase", {"amount": 3}) for hours in (1, 2)]
    assert work_of(experiment, REVENUE, before[0], lookback=DAY) == (0, 1)
    assert work_of(experiment, REVENUE, before[1]) == (1, 0)


def test_a_chain_goes_on_over_batches_and_renews_with_the_exposure(experiment: Experiment) -> None:
    steps = funnel(CHECKOUT, EXPOSURE, PURCHASE, **in_window((1, "day")))
    question = experiment.ask(steps)
    experiment.cost(question)
    at = [
        sees(30, CONTROL),
        Event("user-4", START + 40 * HOUR, "checkout"),
        sees(50, CONTROL),
        buys(53),
        buys(54.5),
    ]
    for event in at:
        assert work_of(experiment, steps, event) == (1, 0)
    begun = [sees(30, CONTROL, "user-6"), Event("user-6", START + 40 * HOUR, "checkout")]
    assert work_of(experiment, steps, *begun) == (1, 0)
    assert work_of(experiment, steps, sees(50, CONTROL, "user-6"), buys(53, "user-6")) == (1, 0)
    [*_, last] = experiment.engine.stateful.points(question).values()
    assert getattr(last.groups["control"], "step_counts")[2] == 2  # noqa: B009 - of a proportion


@pytest.mark.parametrize("metric", [REVENUE, RATIO, STEPS], ids=["mean", "ratio", "funnel"])
def test_a_new_exposure_does_not_hide_one_whose_time_has_come(
    experiment: Experiment, metric: dict[str, Any]
) -> None:
    """Of who is newly exposed nothing before the first exposure is read, which may have been stored long ago."""
    question = experiment.ask(metric)
    ahead = [sees(31, CONTROL, "newcomer"), Event("newcomer", START + 32 * HOUR, "checkout")]
    experiment.engine.add([*ahead, buys(33, "newcomer")], project_id=experiment.project)
    experiment.cost(until(question, START + 30 * HOUR))
    experiment.engine.add(
        [sees(40, CONTROL, "newcomer"), buys(41, "newcomer")], project_id=experiment.project
    )
    work = experiment.cost(until(question, START + 50 * HOUR))
    assert (work.entities, work.resumed, work.rebuilt) == (1, 0, False)


@pytest.mark.parametrize("fields", [{}, {"lookback": 2 * DAY}, {"first_seen": True}], ids=str)
def test_newly_exposed_and_late_entities_are_read_together(
    experiment: Experiment, fields: dict[str, Any]
) -> None:
    """Of the first what follows the exposure is read, of the others everything."""
    newcomers = [f"newcomer-{number}" for number in range(3)]
    before = [buys(hours, each) for each in newcomers for hours in (2, 20)]
    experiment.engine.add(before, project_id=experiment.project)
    shown = [sees(10 + 5 * number, TEST, each) for number, each in enumerate(newcomers)]
    late = [buys(0.5, "user-6", 11), buys(30, "user-8")]
    experiment.cost(experiment.ask(REVENUE, plain(**fields)))
    assert work_of(experiment, REVENUE, buys(40, "user-6"), buys(41, "user-6"), **fields) == (1, 0)
    assert work_of(experiment, REVENUE, *shown, *late, **fields) == (1, 4)
    assert work_of(experiment, REVENUE, buys(60, newcomers[0]), buys(60, "user-6"), **fields) == (2, 0)


def test_an_activation_of_who_was_merged_after_the_flag_counts(experiment: Experiment) -> None:
    question = experiment.ask(REVENUE, plain(activation="saw"))
    experiment.cost(question)
    other = Event("nobody", START + HOUR, "other")  # a batch without events is none
    experiment.engine.add([other], project_id=experiment.project, merges=[("user-4", "newcomer")])
    assert experiment.cost(question).entities == 2
    saw = [Event("newcomer", START + 2 * HOUR, "saw"), buys(3, "newcomer")]
    experiment.engine.add(saw, project_id=experiment.project)
    assert experiment.cost(question).entities == 1


def test_an_activation_long_after_the_flag_is_computed_again(experiment: Experiment) -> None:
    fields = {"activation": "saw"}
    assert work_of(experiment, REVENUE, Event("user-4", START + 2 * HOUR, "saw"), **fields) == (0, 1)
    assert work_of(experiment, REVENUE, buys(30), **fields) == (1, 0)
    assert work_of(experiment, REVENUE, Event("user-4", START + HOUR / 2, "saw"), **fields) == (0, 1)


@pytest.mark.parametrize(
    ("metric", "resumable"),
    [
        (mean(threshold=2), True),
        (REVENUE | {"threshold": 2}, False),
        (mean(source={**PURCHASE, "math": "unique_session"}), False),
        (funnel(CHECKOUT, PURCHASE, funnel_order_type="strict"), False),
        (funnel(CHECKOUT, PURCHASE, funnel_order_type="unordered"), False),
        (REVENUE | {"upper_bound_percentile": 0.9}, False),
    ],
)
def test_which_metrics_go_on(experiment: Experiment, metric: dict[str, Any], resumable: bool) -> None:
    assert can_resume(experiment.ask(metric).metric) is resumable
    assert work_of(experiment, metric, buys(60))[0] == (1 if resumable else 0)


def test_increments_drift_no_further_than_the_check_allows(tmp_path: Path) -> None:
    engine = Stateful(tmp_path, replace(ALWAYS, check_every=6))
    experiment = Experiment(engine)
    checked = 0
    for number in range(16):
        amount = (0.1, -0.3, 1e6 / 3)[number % 3]
        engine.add(
            [buys(26 + 3 * number, f"user-{each}", amount) for each in range(0, 40, 3)],
            project_id=experiment.project,
        )
        engine.stateful.points(experiment.ask(REVENUE))
        assert engine.state.last.mismatch is False
        checked += engine.state.last.checked
    assert checked == 2
    engine.close()


# -- who goes back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [REVENUE, RATIO, STEPS, *KINDS[2:5]], ids=lambda metric: str(metric)[:90])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_who_goes_back_takes_a_day_along_that_had_events(
    experiment: Experiment, metric: dict[str, Any], zone: str
) -> None:
    """The days since are made anew whole: also what happened in their first minutes, and on the very day."""
    begin = datetime.combine(START.date() + 2 * DAY, time(), ZoneInfo(zone))

    def event(name: str, after: timedelta, amount: float = 7) -> Event:
        return Event("user-4", begin + after, name, {"amount": amount})

    minute = timedelta(minutes=1)
    of_a_day = [
        event("checkout", minute),
        event("purchase", 2 * minute, 5),
        event("purchase", 30 * minute, 3),
    ]
    later = [event("checkout", DAY + minute), event("purchase", DAY + 2 * minute, 11)]
    assert work_of(experiment, metric, *of_a_day, *later, zone=zone) == (1, 0)
    assert work_of(experiment, metric, event("purchase", 20 * minute, 13), zone=zone) == (0, 1)
    assert work_of(experiment, metric, event("purchase", 25 * minute, 19), zone=zone) == (0, 1)
    assert work_of(experiment, metric, event("purchase", DAY + 5 * minute, 17), zone=zone) == (1, 0)


@pytest.mark.parametrize("metric", [REVENUE, RATIO, STEPS], ids=["mean", "ratio", "funnel"])
def test_who_saw_several_variants_goes_back_no_further_than_that(
    experiment: Experiment, metric: dict[str, Any]
) -> None:
    assert work_of(experiment, metric, buys(30), sees(60, TEST), buys(61), buys(90)) == (0, 1)
    for hours in (85, 59, 61.5, 31, 84):  # after, on and before the day of the second variant
        assert work_of(experiment, metric, buys(hours)) == (0, 1)
    assert work_of(experiment, metric, buys(91)) == (1, 0)
