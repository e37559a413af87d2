"""Many metrics from one look at the events are what each is by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.analysis.engines import DuckDbEngine, no_groups
from tests.analysis.events import Event as LogEvent
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import (
    END,
    METRICS,
    PURCHASE,
    START,
    WINDOWS,
    Bench,
    a_log,
    a_setting,
    in_window,
    seeds,
)
from tests.embedded import EmbeddedReader
from tests.generated import examples
from tests.waiting import PATIENCE_S

from hoglab.analysis.cancellation import Cancellation, cancellable
from hoglab.analysis.errors import ComputationError, DefinitionError
from hoglab.analysis.execution.computer import Computer
from hoglab.analysis.query.combined_statement import MAX_COMBINED
from hoglab.analysis.query.model import EventMatch, EventSource, Question
from hoglab.analysis.query.statements import Answer
from hoglab.storage.event_store import QueryMemoryError

ENDLESS = "SELECT count(*) FROM range(1000000000000) AS a(i) WHERE hash(i) = 1"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    engine = DuckDbEngine(tmp_path_factory.mktemp("sharing"))
    yield Bench(engine)
    engine.close()


def questions(bench: Bench, setting: Setting, seed: int, metrics: list[dict[str, Any]]) -> list[Question]:
    """The metrics over one log, each with a window and the breakdowns of the setting."""
    names = [{"property": name} for name in setting.breakdowns]
    stored = bench.ask(setting, a_log(seed, 120), metrics[0]).exposures.project_id
    found = []
    for place, metric in enumerate(metrics):
        window = in_window(WINDOWS[place % len(WINDOWS)])
        asked = bench.ask(setting, [], {**metric, **window, "breakdownFilter": {"breakdowns": names}})
        found.append(replace(asked, exposures=replace(asked.exposures, project_id=stored)))
    return found


def numbers(answer: Answer) -> dict[str, float]:
    """Every number of an answer under its place."""
    found: dict[str, float] = {}
    for cell, groups in [((), answer.groups), *answer.cells.items()]:
        for variant, group in groups.items():
            fields = asdict(group)
            fields |= fields.pop("outcome", {})
            for place, count in enumerate(fields.pop("step_counts", ())):
                fields[f"step_{place}"] = count
            found |= {f"{cell} {variant} {name}": number for name, number in fields.items()}
    return found


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_shared_results_are_those_of_each_question_alone(bench: Bench) -> None:
    @settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=seeds, setting=a_setting())
    def example(seed: int, setting: Setting) -> None:
        asked = questions(bench, setting, seed, METRICS)
        with bench.computer.sharing(asked) as result:
            for question in asked:
                alone = bench.computer.result(question)
                shared = numbers(result(question))
                assert shared == pytest.approx(numbers(alone), rel=1e-12, nan_ok=True), question.metric

    example()


def test_of_matured_entities_each_window_has_its_own(bench: Bench) -> None:
    """Of people who came one every hour up to the end."""
    events = []
    for number in range(60):
        shown = {"$feature_flag": "flag", "$feature_flag_response": ("control", "test")[number % 2]}
        at = END - timedelta(hours=number, minutes=30)
        events.append(LogEvent(f"person-{number}", at, "$feature_flag_called", shown))
        events.append(LogEvent(f"person-{number}", at, "purchase", {"amount": number}))
    setting = replace(plain(), matured_only=True)
    stored = bench.ask(setting, events, mean()).exposures.project_id
    asked = []
    for window in (None, None), (1, "hour"), (1, "day"), (2, "day"):
        for metric in (mean(), mean(math="sum", math_property="amount")):
            question = bench.ask(setting, [], {**metric, **in_window(window)})
            asked.append(replace(question, exposures=replace(question.exposures, project_id=stored)))
    alone = [bench.computer.result(question) for question in asked]
    people = [sum(group.number_of_samples for group in each.groups.values()) for each in alone]
    assert people == [60, 60, 59, 59, 36, 36, 12, 12]
    with bench.computer.sharing(asked) as result:
        for question, expected in zip(asked, alone, strict=True):
            assert numbers(result(question)) == numbers(expected), question.metric


class Statements:
    """Counts the statements that read all events, and those that look for exposures among events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_all_events = 0
        self.of_exposures = 0
        self.of_shared_events: list[str] = []
        execute = EmbeddedReader.execute

        def counted(reader: EmbeddedReader, sql: str, *options: Any, **named: Any) -> Any:
            self.of_all_events += "resolved_events" in sql
            self.of_exposures += "feature_flag_response IN" in sql
            if "shared_events" in sql and "CREATE" not in sql and "DROP" not in sql:
                self.of_shared_events.append(sql)
            return execute(reader, sql, *options, **named)

        monkeypatch.setattr(EmbeddedReader, "execute", counted)


def plain() -> Setting:
    return Setting(START, END, now=END)


def mean(**fields: Any) -> dict[str, Any]:
    return {"metric_type": "mean", "source": {**PURCHASE, **fields}}


def test_events_are_looked_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(bench, plain(), 1, [mean(), mean(math="dau"), mean(math="unique_session")] * 5)
    count = Statements(monkeypatch)
    with bench.computer.sharing(asked) as result:
        for question in asked:
            result(question)
    assert (
        count.of_all_events == 2
    )  # for the table of the exposures, and for that of the events of the exposed
    assert count.of_exposures == 1


def test_what_counts_as_exposure_is_asked_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(bench, plain(), 8, [mean(), mean(math="dau"), mean(math="unique_session")] * 2)
    other = EventSource((EventMatch("other"),))
    asked = [replace(each, exposures=replace(each.exposures, substitute=other)) for each in asked]
    alone = [bench.computer.result(question) for question in asked]
    looked: list[str] = []
    execute = EmbeddedReader.execute

    def counted(reader: EmbeddedReader, sql: str, *options: Any, **named: Any) -> Any:
        looked.extend([sql] if sql.startswith("SELECT 1 AS found") else [])
        return execute(reader, sql, *options, **named)

    monkeypatch.setattr(EmbeddedReader, "execute", counted)
    with bench.computer.sharing(asked) as result:
        assert [result(question) for question in asked] == alone
    assert len(looked) == 1


def test_sums_are_computed_together_and_equal_metrics_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = [mean(math="sum", math_property=f"p{number}") for number in range(MAX_COMBINED + 4)]
    asked = questions(bench, plain(), 4, [{**each, "threshold": 1} for each in sums])
    asked = [replace(question, metric=replace(question.metric, window_us=0)) for question in asked]
    count = Statements(monkeypatch)
    with bench.computer.sharing([*asked, *asked, *asked]) as result:
        for question in [*asked, *asked]:
            result(question)
    assert len(count.of_shared_events) == 2
    assert count.of_shared_events[0].count("FILTER") == MAX_COMBINED


def test_metrics_of_the_same_events_are_computed_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a statement looks at no events but theirs."""
    names = ["purchase", "signup"] * MAX_COMBINED
    asked = questions(bench, plain(), 6, [mean(event=name) for name in names])
    asked = [
        replace(question, metric=replace(question.metric, window_us=(number + 1) * 3_600_000_000))
        for number, question in enumerate(asked)
    ]
    count = Statements(monkeypatch)
    with bench.computer.sharing(asked) as result:
        for question in asked:
            result(question)
    assert len(count.of_shared_events) == 2
    assert not any("OR event" in sql for sql in count.of_shared_events)


def test_what_fails_together_is_computed_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(bench, plain(), 5, [mean(), mean(math="sum", math_property="amount"), mean(math="dau")])
    alone = [bench.computer.result(question) for question in asked]
    execute = EmbeddedReader.execute

    def limited(reader: EmbeddedReader, sql: str, *options: Any, **named: Any) -> Any:
        if "FILTER" in sql:
            raise QueryMemoryError("too much")
        return execute(reader, sql, *options, **named)

    monkeypatch.setattr(EmbeddedReader, "execute", limited)
    with bench.computer.sharing(asked) as result:
        assert [result(question) for question in asked] == alone


def test_the_table_of_events_can_be_cancelled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(bench, plain(), 7, [mean(), mean(math="dau"), mean(math="unique_session")])
    cancellation = Cancellation()
    execute = EmbeddedReader.execute

    def endless(reader: EmbeddedReader, sql: str, *options: Any, **named: Any) -> Any:
        if not sql.startswith("CREATE TEMP TABLE shared_events"):
            return execute(reader, sql, *options, **named)
        stopper = Thread(target=cancel)
        stopper.start()
        try:
            return execute(reader, ENDLESS, timeout_s=PATIENCE_S)
        finally:
            ended.set()
            stopper.join()

    ended = Event()

    def cancel() -> None:
        while not ended.wait(0.01):  # an engine that has not begun forgets that it was interrupted
            cancellation.request()

    monkeypatch.setattr(EmbeddedReader, "execute", endless)
    with (
        cancellable(cancellation),
        pytest.raises(ComputationError, match="cancelled"),
        bench.computer.sharing(asked),
    ):
        pass


def test_only_what_is_read_is_taken_out_of_events(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    only = mean(properties=[{"key": "size", "value": "big", "operator": "exact", "type": "event"}])
    asked = questions(bench, plain(), 6, [only, mean(math="sum", math_property="amount"), mean(math="dau")])
    made: list[str] = []
    execute = EmbeddedReader.execute

    def noted(reader: EmbeddedReader, sql: str, *options: Any, **named: Any) -> Any:
        if sql.startswith("CREATE TEMP TABLE shared_events"):
            made.append(sql)
        return execute(reader, sql, *options, **named)

    monkeypatch.setattr(EmbeddedReader, "execute", noted)
    with bench.computer.sharing(asked) as result:
        for question in asked:
            result(question)
    [sql] = made
    assert sql.count("json_extract_string") == 2  # ``size`` as text, and ``amount`` for its number alone
    assert "elements_chain" not in sql
    assert "distinct_id" not in sql


def test_a_metric_that_cannot_be_computed_fails_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = mean(properties=[{"key": "x", "type": "group", "value": "y", "operator": "exact"}])
    asked = questions(bench, plain(), 2, [mean(), bad, mean(math="dau"), mean(math="unique_session")])
    count = Statements(monkeypatch)
    with bench.computer.sharing(asked) as result:
        with pytest.raises(DefinitionError):
            result(asked[1])
        result(asked[0])
    assert count.of_all_events == 2


def test_without_room_for_the_table_each_is_computed_by_itself(bench: Bench) -> None:
    asked = questions(bench, plain(), 3, [mean(), mean(math="dau"), mean(math="unique_session")])
    hurried = Computer(bench.engine.store, no_groups, timeout_s=0.000001)  # type: ignore[attr-defined]
    with hurried.sharing(asked):
        pass
    with bench.computer.sharing(asked[:2]) as result:
        assert result(asked[0]) == bench.computer.result(asked[0])
