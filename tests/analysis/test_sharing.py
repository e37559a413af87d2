"""Many metrics from one look at the events are what each is by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.analysis.engines import DuckDbEngine
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

from hoglab.analysis.compute import Computer
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.model import Question
from hoglab.analysis.query.statements import Answer
from hoglab.storage.event_store.duckdb import DuckDbReader


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


@pytest.mark.timeout(600)
def test_shared_results_are_those_of_each_question_alone(bench: Bench) -> None:
    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=seeds, setting=a_setting())
    def example(seed: int, setting: Setting) -> None:
        asked = questions(bench, setting, seed, METRICS)
        with bench.computer.sharing(asked) as result:
            for question in asked:
                alone = bench.computer.result(question)
                shared = numbers(result(question))
                assert shared == pytest.approx(numbers(alone), rel=1e-12, nan_ok=True), question.metric

    example()


class Statements:
    """Counts the statements that read all events, and those that look for exposures among events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_all_events = 0
        self.of_exposures = 0
        execute = DuckDbReader.execute

        def counted(reader: DuckDbReader, sql: str, *options: Any, **named: Any) -> Any:
            self.of_all_events += "resolved_events" in sql
            self.of_exposures += "feature_flag_response IN" in sql
            return execute(reader, sql, *options, **named)

        monkeypatch.setattr(DuckDbReader, "execute", counted)


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
    assert count.of_all_events == 1
    assert count.of_exposures == 2  # for the table of events, and for that of the exposures


def test_a_metric_that_cannot_be_computed_fails_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = mean(properties=[{"key": "x", "type": "group", "value": "y", "operator": "exact"}])
    asked = questions(bench, plain(), 2, [mean(), bad, mean(math="dau"), mean(math="unique_session")])
    count = Statements(monkeypatch)
    with bench.computer.sharing(asked) as result:
        with pytest.raises(DefinitionError):
            result(asked[1])
        result(asked[0])
    assert count.of_all_events == 1


def test_without_room_for_the_table_each_is_computed_by_itself(bench: Bench) -> None:
    asked = questions(bench, plain(), 3, [mean(), mean(math="dau"), mean(math="unique_session")])
    hurried = Computer(bench.engine.store, timeout_s=0.000001)  # type: ignore[attr-defined]
    with hurried.sharing(asked):
        pass
    with bench.computer.sharing(asked[:2]) as result:
        assert result(asked[0]) == bench.computer.result(asked[0])
