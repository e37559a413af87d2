"""Results from what is kept of events are those of all events, and cost what is new (spec experiment-results 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.analysis.engines import DuckDbEngine, no_groups
from tests.analysis.events import Event, store_events
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import (
    AMOUNT,
    CHECKOUT,
    END,
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
from tests.analysis.test_sharing import numbers
from tests.embedded import EmbeddedDialect, EmbeddedEventStore, EmbeddedReader
from tests.generated import examples

from hoglab.analysis.cancellation import Cancellation, cancellable
from hoglab.analysis.errors import ComputationError
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.incremental.aggregate_cache import AggregateCache, CacheLimits
from hoglab.analysis.incremental.materialization import materialized
from hoglab.analysis.query.days import DayGrid, zone_of
from hoglab.analysis.query.model import Question, Span
from hoglab.analysis.query.statements import Answer, is_additive
from hoglab.storage.event_store import EventStoreUnavailableError

ALWAYS = CacheLimits(min_events=1, patience_s=0.01)
REVENUE = mean(source={**PURCHASE, **AMOUNT, "math": "sum"})
HOUR = timedelta(hours=1)


class Stateful(DuckDbEngine):
    """The product's store, with an aggregate cache; ``computer`` reads all events."""

    def __init__(self, path: Path, limits: CacheLimits = ALWAYS) -> None:
        self.path = path
        self.groups = {}
        self.open(limits)
        self.examples = examples(15)

    def open(self, limits: CacheLimits = ALWAYS) -> None:
        self.store = EmbeddedEventStore(
            self.path / "events.duckdb",
            memory="512MB",
            threads=2,
            cache_path=self.path / "aggregate-cache.duckdb",
        )
        self.state = AggregateCache(self.store, timeout_s=60, limits=limits)
        self.computer = Computer(self.store, no_groups, timeout_s=60)
        self.stateful = Computer(self.store, no_groups, timeout_s=60, aggregate_cache=self.state)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Stateful]:
    engine = Stateful(tmp_path)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stateful]:
    engine = Stateful(tmp_path_factory.mktemp("state"))
    yield engine
    engine.close()


def plain(**fields: Any) -> Setting:
    return Setting(START, END, END, **fields)


def until(question: Question, end: datetime) -> Question:
    grid = DayGrid.between(START, end, zone_of(question.zone))
    return replace(question, span=Span(START, end, max(end, question.span.now), grid))


def assert_same_points(engine: Stateful, question: Question, what: object) -> dict[int, Answer]:
    """With and without what is kept; where points are found one by one the last one is enough."""
    grid = question.span.days
    assert grid is not None
    last = grid.count - 1
    wanted = None if is_additive(question.metric) else [last]
    found, expected = engine.stateful.points(question, wanted), engine.computer.points(question, wanted)
    assert found.keys() == expected.keys()
    for day, answer in expected.items():
        assert numbers(found[day]) == pytest.approx(numbers(answer), rel=1e-9, abs=1e-6, nan_ok=True), (
            what,
            day,
        )
    known = numbers(engine.stateful.result(question))
    assert known == pytest.approx(numbers(expected[last]), rel=1e-9, abs=1e-6, nan_ok=True), what
    return dict(found)


def assert_same_exposures(engine: Stateful, question: Question) -> Any:
    found = engine.stateful.exposures(question)
    assert found == engine.computer.exposures(question)
    return found


# -- differential ------------------------------------------------------------------------------------


def corrected(events: list[Event], random: Random) -> list[Event]:
    """The events, of which some say something else than before; they are the same events all the same."""
    others = []
    for event in events:
        if random.random() < 0.1:
            like = random.choice([each for each in events if each.event == event.event])
            day = event.timestamp.astimezone(UTC).date()
            moment = datetime.combine(day, like.timestamp.astimezone(UTC).timetz())
            event = replace(event, properties=like.properties, timestamp=moment)
        others.append(event)
    return others


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_after_every_batch_results_are_those_of_all_events(lasting: Stateful) -> None:
    """Events come late, out of order and twice; people merge; time goes on; and there are two metrics."""
    bench = Bench(lasting)

    @settings(
        max_examples=lasting.examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example is many statements
    )
    @given(
        seed=seeds,
        setting=a_setting(),
        metrics=st.lists(st.sampled_from(METRICS), min_size=2, max_size=2),
        window=st.sampled_from(WINDOWS),
        cuts=st.lists(st.integers(0, 120), min_size=3, max_size=3).map(sorted),
        hours=st.lists(st.integers(1, 140), min_size=4, max_size=4).map(sorted),
        order=st.permutations([("bob", "ann"), ("cy", "ann"), ("gus", "fay"), ("ann", "dee")]),
    )
    def example(
        seed: int,
        setting: Setting,
        metrics: list[dict[str, Any]],
        window: tuple[int | None, str | None],
        cuts: list[int],
        hours: list[int],
        order: list[tuple[str, str]],
    ) -> None:
        setting = replace(setting, merged={}, matured_only=False)
        events = a_log(seed, 120)
        names = [{"property": name} for name in setting.breakdowns]
        metrics = [
            {**each, **in_window(window), "breakdownFilter": {"breakdowns": names}} for each in metrics
        ]
        questions = [bench.ask(setting, [], metric) for metric in metrics]
        project = questions[0].exposures.project_id
        questions = [
            replace(each, exposures=replace(each.exposures, project_id=project)) for each in questions
        ]
        for batch, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(events)], strict=True)):
            lasting.add(events[first:last], project_id=project, merges=order[batch : batch + 1])
            end = min(END, START + hours[batch] * HOUR)
            for question in questions:
                assert_same_points(lasting, until(question, end), (batch, question.metric))
            assert_same_exposures(lasting, until(questions[0], end))
        became = dict(order)
        merged = {}
        for person, into in order:
            while into in became:
                into = became[into]
            merged[person] = into
        setting = replace(setting, merged=merged)
        for question, metric in zip(questions, metrics, strict=True):
            last_day = assert_same_points(lasting, question, metric)
            compare_answers(last_day[max(last_day)], setting, events, metric, "at the end")
        random = Random(seed)
        for _ in range(2):
            events = corrected(events, random)
            lasting.add(
                events[: random.randrange(len(events))], project_id=project
            )  # most are no others than before
            lasting.add(random.sample(events, len(events)), project_id=project)
            for question, metric in zip(questions, metrics, strict=True):
                last_day = assert_same_points(lasting, question, metric)
                compare_answers(last_day[max(last_day)], setting, events, metric, "corrected")
            assert_same_exposures(lasting, questions[0])

    example()


def test_what_is_kept_covers_the_usual_questions(lasting: Stateful) -> None:
    bench = Bench(lasting)
    covered = [
        metric
        for metric in METRICS
        if materialized(bench.ask(plain(), [], metric), EmbeddedDialect()) is not None
    ]
    of_sessions = [metric for metric in METRICS if "session_properties" in repr(metric)]
    assert [metric for metric in METRICS if metric not in covered] == of_sessions


def test_questions_that_time_or_merges_change_are_not_kept(lasting: Stateful) -> None:
    bench = Bench(lasting)
    recent = {"key": "when", "type": "event", "operator": "is_date_after", "value": "-7d"}
    assert (
        materialized(
            bench.ask(plain(matured_only=True), [], mean(**in_window((1, "day")))), EmbeddedDialect()
        )
        is None
    )
    assert (
        materialized(
            bench.ask(plain(), [], mean(source={**PURCHASE, "properties": [recent]})), EmbeddedDialect()
        )
        is None
    )
    of_group = {"key": "plan", "type": "group", "operator": "exact", "value": "pro", "group_type_index": 0}
    assert (
        materialized(
            bench.ask(plain(), [], mean(source={**PURCHASE, "properties": [of_group]})), EmbeddedDialect()
        )
        is None
    )
    by_group = {"breakdowns": [{"property": "plan", "type": "group", "group_type_index": 0}]}
    assert materialized(bench.ask(plain(), [], mean(breakdownFilter=by_group)), EmbeddedDialect()) is None
    question = bench.ask(plain(), [], REVENUE)
    assert (
        materialized(replace(question, span=replace(question.span, capped=True)), EmbeddedDialect()) is None
    )
    assert materialized(replace(question, span=replace(question.span, days=None)), EmbeddedDialect()) is None


# -- what changes cost (11.5) --------------------------------------------------------------------------


def traffic(people: int = 40) -> list[Event]:
    events = []
    for number in range(people):
        variant = ("control", "test")[number % 2]
        at = START + timedelta(minutes=number)
        shown = {"$feature_flag": "flag", "$feature_flag_response": variant}
        events.append(Event(f"user-{number}", at, "$feature_flag_called", shown))
        events.append(Event(f"user-{number}", at + HOUR, "purchase", {"amount": number, "size": "big"}))
        events.append(Event(f"user-{number}", at + HOUR / 2, "checkout"))
    return events


class Experiment:
    """Questions about one project, which has forty users to begin with."""

    def __init__(self, engine: Stateful) -> None:
        self.engine = engine
        self.bench = Bench(engine)
        self.project = self.ask(REVENUE).exposures.project_id
        self.engine.add(traffic(), project_id=self.project)
        assert_same_points(engine, self.ask(REVENUE), "first")

    def ask(self, metric: dict[str, Any], setting: Setting | None = None) -> Question:
        question = self.bench.ask(setting or plain(), [], metric)
        project = getattr(self, "project", question.exposures.project_id)
        return replace(question, exposures=replace(question.exposures, project_id=project))

    def cost(self, question: Question) -> Any:
        """The work for an answer, which is also checked."""
        self.engine.stateful.points(question)
        work = self.engine.state.last
        assert_same_points(self.engine, question, question)
        return work

    @property
    def stored(self) -> int:
        with self.engine.store.reader() as reader:
            [(count,)] = reader.execute("SELECT count(*) FROM events")
        return int(count)


@pytest.fixture
def experiment(engine: Stateful) -> Experiment:
    return Experiment(engine)


def test_exposures_are_counted_from_what_results_keep(experiment: Experiment) -> None:
    engine, question = experiment.engine, experiment.ask(REVENUE)
    engine.stateful.points(question)
    assert any(any(days) for days in assert_same_exposures(engine, question).values())
    assert_same_exposures(engine, question)
    assert (engine.state.last.events, engine.state.last.rebuilt) == (0, False)


def test_nothing_new_costs_nothing(experiment: Experiment) -> None:
    work = experiment.cost(experiment.ask(REVENUE))
    assert (work.events, work.entities, work.rebuilt) == (0, 0, False)


def test_new_events_cost_themselves_and_their_entities(experiment: Experiment) -> None:
    late = Event("user-3", START + 2 * HOUR, "purchase", {"amount": 5})
    experiment.engine.add([late, Event("nobody", START + HOUR, "purchase")], project_id=experiment.project)
    work = experiment.cost(experiment.ask(REVENUE))
    assert (work.events, work.entities, work.rebuilt) == (2 * 2, 1, False)  # two logs; only the exposed count


def test_an_earlier_exposure_that_comes_late_costs_its_entity(experiment: Experiment) -> None:
    shown = {"$feature_flag": "flag", "$feature_flag_response": "test"}
    late = Event("user-4", START, "$feature_flag_called", shown)  # control until now: it saw both
    experiment.engine.add([late], project_id=experiment.project)
    work = experiment.cost(experiment.ask(REVENUE))
    assert (work.entities, work.rebuilt) == (1, False)


@pytest.mark.parametrize(
    "metric",
    [
        mean(source={**PURCHASE, **AMOUNT, "math": "sum", "properties": [{"key": "size", "value": "big"}]}),
        mean(source=CHECKOUT),
        mean(source={**PURCHASE, "math": "sum", "math_property": "size"}),
    ],
    ids=["filters", "source", "property"],
)
def test_another_metric_source_is_read_from_the_events_once(
    experiment: Experiment, metric: dict[str, Any]
) -> None:
    question = experiment.ask(metric)
    assert experiment.cost(question).events == experiment.stored  # the exposures are known
    assert experiment.cost(question).events == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"flag": "another"},
        {"custom_event": "checkout"},
        {"counts": lambda event: event.person_properties.get("staff") is not True},
    ],
    ids=["flag", "custom exposure", "test accounts"],
)
def test_another_exposure_is_read_from_the_events_once(
    experiment: Experiment, fields: dict[str, Any]
) -> None:
    question = experiment.ask(REVENUE, plain(**fields))
    assert experiment.cost(question).events == experiment.stored  # the purchases are known
    assert experiment.cost(question).events == 0


@pytest.mark.parametrize(
    ("metric", "fields"),
    [
        (REVENUE | in_window((1, "day")), {}),
        (REVENUE | {"upper_bound_percentile": 0.9}, {}),
        (REVENUE | {"threshold": 3}, {}),
        (REVENUE | {"goal": "decrease"}, {}),
        (REVENUE, {"first_seen": True}),
        (REVENUE, {"variants": ("control",)}),
        (REVENUE, {"lookback": timedelta()}),
    ],
    ids=["window", "bounds", "threshold", "goal", "handling", "excluded variant", "CUPED off"],
)
def test_other_settings_are_answered_from_the_logs(
    experiment: Experiment, metric: dict[str, Any], fields: dict[str, Any]
) -> None:
    if fields.get("lookback") is not None:  # with CUPED first, which looks further back
        assert experiment.cost(experiment.ask(REVENUE, plain(lookback=timedelta(days=1)))).events > 0
        fields = {}
    assert experiment.cost(experiment.ask(metric, plain(**fields))).events == 0


def test_metrics_of_one_source_share_its_log(experiment: Experiment) -> None:
    assert experiment.cost(experiment.ask(REVENUE | in_window((2, "day")))).events == 0
    steps = funnel(CHECKOUT, PURCHASE)
    assert experiment.cost(experiment.ask(steps)).events == experiment.stored
    assert experiment.cost(experiment.ask({**steps, "funnel_order_type": "strict"})).events == 0


def test_a_later_end_costs_what_it_reaches(experiment: Experiment) -> None:
    soon = START + timedelta(minutes=70)
    question = experiment.ask(REVENUE)
    experiment.cost(until(question, soon))
    work = experiment.cost(until(question, soon + timedelta(minutes=5)))
    assert (work.events, work.rebuilt) == (0, False)
    assert 0 < work.entities < 40


def test_an_earlier_end_is_answered_from_the_logs(experiment: Experiment) -> None:
    work = experiment.cost(until(experiment.ask(REVENUE), END - timedelta(days=2)))
    assert (work.events, work.rebuilt) == (0, True)


def test_a_later_start_is_answered_from_the_logs_an_earlier_one_reads_what_was_before(
    experiment: Experiment,
) -> None:
    question = experiment.ask(REVENUE)
    span = question.span
    for start, events in ((START + HOUR, 0), (START - HOUR, 2 * experiment.stored)):
        grid = DayGrid.between(start, END, UTC)
        assert experiment.cost(replace(question, span=replace(span, start=start, days=grid))).events == events


def test_a_merge_costs_the_entities_of_both(experiment: Experiment) -> None:
    experiment.engine.add([], project_id=experiment.project, merges=[("user-1", "user-2")])
    work = experiment.cost(experiment.ask(REVENUE))
    assert (work.events, work.entities, work.rebuilt) == (0, 2, False)
    experiment.engine.add([], project_id=experiment.project, merges=[("user-2", "user-5")])
    assert experiment.cost(experiment.ask(REVENUE)).entities == 3
    experiment.engine.add([], project_id=999, merges=[("user-7", "user-8")])  # of another project
    assert experiment.cost(experiment.ask(REVENUE)).entities == 0


@pytest.mark.parametrize("adds", [{}, {"threshold": 2}], ids=["from states", "computed again"])
def test_a_merge_into_somebody_unknown_takes_the_exposure_along(
    experiment: Experiment, adds: dict[str, Any]
) -> None:
    """Nothing that is kept has the person that events of the exposed one belong to from then on."""
    question = experiment.ask(REVENUE | adds)
    experiment.cost(question)
    bought = Event("newcomer", START + 2 * HOUR, "purchase", {"amount": 100})
    experiment.engine.add([bought], project_id=experiment.project, merges=[("user-1", "newcomer")])
    work = experiment.cost(question)
    assert (work.entities, work.rebuilt) == (2, False)


def test_of_many_metrics_those_that_are_known_cost_no_events(experiment: Experiment) -> None:
    engine = experiment.engine
    metrics = [mean(), mean(source=CHECKOUT), funnel(PURCHASE), funnel(CHECKOUT, PURCHASE), REVENUE]
    asked = [experiment.ask(metric) for metric in metrics]
    engine.stateful.points(asked[0])
    made = contents(engine)
    with engine.stateful.sharing(asked) as result:
        for question in asked:
            before = engine.state.last
            expected = numbers(engine.computer.result(question))
            assert numbers(result(question)) == pytest.approx(expected, rel=1e-9), question.metric
            assert (engine.state.last is not before) is (question in (asked[0], asked[-1]))
    assert contents(engine) == made  # nothing is kept of the others, which nobody follows from day to day


# -- files that are lost, damaged or of other events --------------------------------------------------


def test_a_deleted_file_is_made_anew(experiment: Experiment) -> None:
    engine = experiment.engine
    engine.close()
    (engine.path / "aggregate-cache.duckdb").unlink()
    engine.open()
    assert experiment.cost(experiment.ask(REVENUE)).events == 2 * experiment.stored


def test_what_is_kept_outlives_the_process(experiment: Experiment) -> None:
    experiment.engine.close()
    experiment.engine.open()
    assert experiment.cost(experiment.ask(REVENUE)).events == 0


def test_the_file_of_an_earlier_version_is_used_further(experiment: Experiment) -> None:
    engine = experiment.engine
    engine.close()
    old = engine.path / "results-state.duckdb"
    (engine.path / "aggregate-cache.duckdb").rename(old)
    engine.open()
    assert not old.exists()
    assert experiment.cost(experiment.ask(REVENUE)).events == 0


def test_the_file_of_an_earlier_version_is_deleted_beside_a_newer_one(experiment: Experiment) -> None:
    engine = experiment.engine
    engine.close()
    old = engine.path / "results-state.duckdb"
    old.write_bytes(b"old")
    engine.open()
    assert not old.exists()
    assert experiment.cost(experiment.ask(REVENUE)).events == 0


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_a_file_that_is_no_database_is_replaced(experiment: Experiment, content: bytes) -> None:
    engine = experiment.engine
    engine.close()
    (engine.path / "aggregate-cache.duckdb").write_bytes(content)
    engine.open()
    assert engine.store.has_aggregate_cache
    assert experiment.cost(experiment.ask(REVENUE)).events == 2 * experiment.stored


def test_a_damaged_file_is_replaced(experiment: Experiment) -> None:
    engine = experiment.engine
    engine.close()
    path = engine.path / "aggregate-cache.duckdb"
    content = bytearray(path.read_bytes())
    for place in range(3 * 4096 + 8 * 1024, len(content), 1024):  # behind the headers
        content[place : place + 512] = bytes(512)
    path.write_bytes(content)
    engine.open()
    assert experiment.cost(experiment.ask(REVENUE)).events == 2 * experiment.stored


def test_damage_that_a_statement_runs_into_is_mended(experiment: Experiment) -> None:
    engine = experiment.engine
    question = experiment.ask(REVENUE)
    with engine.store.reader() as reader:
        reader.execute(f"DROP TABLE {kept_of(question).sums_table}")
    assert_same_points(engine, question, "damaged")
    other = experiment.ask(REVENUE | in_window((1, "day")))
    assert experiment.cost(other).events == 2 * experiment.stored
    assert engine.store.has_aggregate_cache


def test_flipped_bits_change_no_answer_and_are_not_blamed_on_the_events(experiment: Experiment) -> None:
    engine, dice = experiment.engine, Random(7)
    question = experiment.ask(REVENUE)
    engine.close()
    path = engine.path / "aggregate-cache.duckdb"
    content = path.read_bytes()
    for start in range(3 * 4096, len(content), 256 * 1024):  # one block after the other
        flipped = bytearray(content)
        flipped[start + dice.randrange(4096)] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        engine.open()
        assert_same_points(engine, question, "flipped")
        assert_same_points(engine, question, "begun anew")
        assert engine.store.damage is None
        assert experiment.cost(question).events == 0, "kept again"
        engine.close()
    engine.open()


def test_state_of_other_events_is_thrown_away(experiment: Experiment) -> None:
    engine = experiment.engine
    engine.close()
    (engine.path / "events.duckdb").unlink()
    engine.open()
    others = [replace(event, uuid=UUID(int=5000 + number)) for number, event in enumerate(traffic(50))]
    store_events(engine.store, others, project_id=experiment.project)
    assert experiment.cost(experiment.ask(REVENUE)).events == 2 * experiment.stored


@pytest.mark.parametrize(
    "point",
    [
        "UPDATE aggregate_cache.log SET",
        "INSERT INTO aggregate_cache.of_",
        "INSERT INTO aggregate_cache.sum_",
        "UPDATE aggregate_cache.at_",
        "UPDATE aggregate_cache.contributions SET",
    ],
)
def test_a_step_that_breaks_off_leaves_nothing_behind(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    engine = experiment.engine
    engine.add([Event("user-1", START + 2 * HOUR, "purchase", {"amount": 7})], project_id=experiment.project)
    question = experiment.ask(REVENUE)
    execute = EmbeddedReader.execute
    reached: list[str] = []
    with monkeypatch.context() as patch:

        def breaking(reader: EmbeddedReader, sql: str, *args: Any, **options: Any) -> Any:
            if point in sql:
                reached.append(point)
                raise EventStoreUnavailableError("the power went")
            return execute(reader, sql, *args, **options)

        patch.setattr(EmbeddedReader, "execute", breaking)
        assert_same_points(engine, question, "broken off")
    assert reached
    work = experiment.cost(question)
    assert (work.entities, work.rebuilt) == (1, False)


# -- limits --------------------------------------------------------------------------------------------


def contents(engine: Stateful) -> set[str]:
    with engine.store.reader() as reader:
        rows = reader.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'aggregate_cache'"
        )
    return {name for (name,) in rows}


def test_with_few_events_nothing_is_kept(tmp_path: Path) -> None:
    engine = Stateful(tmp_path, CacheLimits(min_events=1000))
    Experiment(engine)
    assert contents(engine) == set()
    engine.close()


def test_what_was_not_asked_for_the_longest_goes_first(experiment: Experiment) -> None:
    engine = experiment.engine
    for metric in (mean(source=CHECKOUT), REVENUE):
        engine.stateful.points(experiment.ask(metric))
    before = contents(engine)
    with engine.store.reader() as reader:
        reader.execute("CHECKPOINT aggregate_cache")
        [(size,)] = reader.execute(
            "SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = 'aggregate_cache'"
        )
    engine.state = AggregateCache(engine.store, timeout_s=60, limits=replace(ALWAYS, bytes=size - 1))
    engine.stateful = Computer(engine.store, no_groups, timeout_s=60, aggregate_cache=engine.state)
    funnels = experiment.ask(funnel(PURCHASE, CHECKOUT))
    engine.stateful.points(funnels)
    after = contents(engine)
    assert kept_table(experiment.ask(mean(source=CHECKOUT))) in before - after
    assert kept_table(experiment.ask(REVENUE)) in after | before
    assert_same_points(engine, experiment.ask(mean(source=CHECKOUT)), "again")


def test_what_is_too_large_by_itself_is_not_tried_again(experiment: Experiment) -> None:
    engine = experiment.engine
    with engine.store.reader() as reader:
        reader.execute("CHECKPOINT aggregate_cache")
    engine.state = AggregateCache(engine.store, timeout_s=60, limits=replace(ALWAYS, bytes=1))
    engine.stateful = Computer(engine.store, no_groups, timeout_s=60, aggregate_cache=engine.state)
    question = experiment.ask(REVENUE)
    assert_same_points(engine, question, "too large")
    last = engine.state.last
    assert_same_points(engine, question, "again")
    assert engine.state.last is last
    assert not any(name.startswith(("log_", "of_", "at_", "sum_")) for name in contents(engine))


def kept_table(question: Question) -> str:
    found = materialized(question, EmbeddedDialect())
    assert found is not None
    return found.table.partition(".")[2]


def test_large_backlogs_are_taken_in_parts(tmp_path: Path) -> None:
    engine = Stateful(tmp_path, replace(ALWAYS, chunk_events=17))
    experiment = Experiment(engine)
    engine.add(traffic(7), project_id=experiment.project)
    assert experiment.cost(experiment.ask(REVENUE)).events == 2 * 21
    engine.close()


def test_every_so_many_increments_contributions_are_checked(tmp_path: Path) -> None:
    engine = Stateful(tmp_path, replace(ALWAYS, check_every=2))
    experiment = Experiment(engine)
    question = experiment.ask(REVENUE)
    checked = []
    for number in range(4):
        purchase = Event(f"user-{number}", START + 3 * HOUR, "purchase", {"amount": 1})
        engine.add([purchase], project_id=experiment.project)
        engine.stateful.points(question)
        checked.append((engine.state.last.checked, engine.state.last.mismatch))
    assert checked == [(False, False), (False, False), (True, False), (False, False)]
    with engine.store.reader() as reader:  # as if an increment had gone wrong
        reader.execute(f"UPDATE {kept_of(question).sums_table} SET s = s + 1 WHERE day = 0")  # noqa: S608
    for number in range(3):
        engine.add([Event(f"user-{number}", START + 4 * HOUR, "purchase")], project_id=experiment.project)
        wrong = engine.stateful.points(question)
        checked.append((engine.state.last.checked, engine.state.last.mismatch))
        right = number == 1
        assert (numbers(wrong[0]) == pytest.approx(numbers(engine.computer.points(question)[0]))) is right
        if right:
            break
    assert checked[-1] == (True, True)
    engine.close()


def kept_of(question: Question) -> Any:
    found = materialized(question, EmbeddedDialect())
    assert found is not None
    return found


def test_while_another_uses_the_state_results_come_from_the_events(experiment: Experiment) -> None:
    question = experiment.ask(REVENUE)
    before = experiment.engine.state.last
    with experiment.engine.state.in_use():
        assert_same_points(experiment.engine, question, "busy")
    assert experiment.engine.state.last is before


def test_with_a_full_disk_results_come_from_the_events(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise EventStoreUnavailableError("the disk is nearly full")

    question, before = experiment.ask(REVENUE), experiment.engine.state.last
    monkeypatch.setattr(experiment.engine.store, "check_room", full)
    assert_same_points(experiment.engine, question, "full")
    assert experiment.engine.state.last is before


def test_when_the_state_takes_too_long_results_come_from_the_events(experiment: Experiment) -> None:
    engine = experiment.engine
    hurried = AggregateCache(engine.store, timeout_s=0.000001, limits=ALWAYS)
    engine.stateful = Computer(engine.store, no_groups, timeout_s=60, aggregate_cache=hurried)
    assert_same_points(engine, experiment.ask(REVENUE), "hurried")


def test_a_cancelled_computation_does_not_go_on_with_the_events(experiment: Experiment) -> None:
    cancellation = Cancellation()
    cancellation.request()
    with cancellable(cancellation), pytest.raises(ComputationError, match="cancelled"):
        experiment.engine.stateful.points(experiment.ask(REVENUE))


def test_more_events_than_the_engine_writes_at_once(engine: Stateful) -> None:
    """More than a row group of DuckDB, which a transaction that wrote them does not always see."""
    bench = Bench(engine)
    question = bench.ask(plain(), traffic(), REVENUE)
    project = question.exposures.project_id
    buys = [
        Event(f"user-{number % 3000}", START + timedelta(seconds=number), "purchase", {"amount": 1})
        for number in range(130_000)
    ]
    engine.add(buys, project_id=project)
    assert_same_points(engine, question, "first")
    engine.add(traffic(60), project_id=project)
    assert_same_points(engine, question, "then")
    assert engine.state.last.rebuilt is False
