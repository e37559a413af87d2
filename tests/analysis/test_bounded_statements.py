"""What users write becomes statements that the engine plans in bounded time and memory, whatever it is."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.test_emitters import START, exposure, question
from tests.analysis.worst_statements import CONSTRUCTS, MEAN, SOURCE, grouped, leaf, nested, summed
from tests.embedded import EmbeddedDialect, EmbeddedEventStore

from hoglab.analysis.definitions.metric_parser import MAX_BREAKDOWNS, MAX_STEPS, MetricParser
from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.execution.statement_runner import MAX_CELLS
from hoglab.analysis.incremental.materialization import materialized
from hoglab.analysis.query.days import DayGrid
from hoglab.analysis.query.expressions import MAX_DEPTH, MAX_NODES
from hoglab.analysis.query.expressions import MAX_LENGTH as MAX_CHARACTERS
from hoglab.analysis.query.model import CohortMembers, Question
from hoglab.analysis.query.pipeline import compiled
from hoglab.analysis.query.shared_scan import MAX_PROPERTIES, shared_scan
from hoglab.experiments.definitions.metrics import MAX_METRICS
from hoglab.filters import FilterError, parse_filters
from hoglab.filters.model import MAX_FILTERS, MAX_GROUP_DEPTH
from hoglab.filters.sql import MAX_LENGTH, MAX_VALUES
from hoglab.storage.event_store import QueryTimeoutError
from hoglab.storage.event_store.dialects import Dialect
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse

PLAN_S = 20.0
"""Processor time in which any statement is planned; they take 2 s at most on a machine of today."""
TIMES = 4
"""How many times as long a statement may be as the conditions in it, which some write several times."""


def child(
    *command: str, memory: int | None = None, timeout_s: float = 500
) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        preexec_fn=limit,
    )


@pytest.mark.slow
def test_the_worst_statements_are_planned_in_time_and_memory() -> None:
    """In a process with so little memory and processor time that it would be killed."""
    done = child("-m", "tests.analysis.worst_statements")
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert {f"{construct}: sum" for construct in CONSTRUCTS} <= found.keys()
    slow = {name: each for name, each in found.items() if each["plan_s"] > PLAN_S}
    assert slow == {}
    assert max(each["length"] for each in found.values()) < TIMES * MAX_LENGTH


@pytest.mark.parametrize("construct", [name for name in CONSTRUCTS if CONSTRUCTS[name].count("{e}") == 1])
@pytest.mark.parametrize("dialect", [EmbeddedDialect(), ClickHouse()], ids=["duckdb", "clickhouse"])
def test_statements_are_linear_in_their_expressions(construct: str, dialect: Dialect) -> None:
    lengths = [
        len(compiled(question(summed(nested(construct, depth)), 1), dialect).statement.sql)
        for depth in (4, 8, 12)
    ]
    assert lengths[2] - lengths[1] <= 1.1 * (lengths[1] - lengths[0]) + 50


def refused(metric: dict[str, Any], **options: Any) -> str:
    with pytest.raises((DefinitionError, FilterError)) as raised:
        compiled(question(metric, 1, **options), EmbeddedDialect())
    return str(raised.value)


def test_deep_expressions_are_refused() -> None:
    text = f"an expression can be nested at most {MAX_DEPTH} levels deep"
    assert text in refused(summed(nested("abs", MAX_DEPTH)))
    assert text in refused(
        {**MEAN, "source": {**SOURCE, "properties": [{"type": "hogql", "key": nested("minus", 99)}]}}
    )
    breakdown = {"type": "hogql", "property": nested("coalesce", MAX_DEPTH)}
    assert text in refused({**MEAN, "breakdownFilter": {"breakdowns": [breakdown]}})


def test_a_sum_of_many_is_not_deep() -> None:
    many = "+".join(f"properties.p{number}" for number in range(99))
    compiled(question(summed(many), 1), EmbeddedDialect())
    parts = f"an expression can have at most {MAX_NODES} parts"
    assert parts in refused(summed(f"{many}+{many}"))


def test_too_long_conditions_are_refused() -> None:
    text = f"too many filters, or too large ones: they make more than {MAX_LENGTH:,} characters of SQL"
    assert text in refused(grouped([leaf(number, "gt", number) for number in range(MAX_FILTERS)]))
    steps = [{**SOURCE, "properties": [leaf(n, "exact", n) for n in range(100)]} for _ in range(30)]
    assert text in refused({"metric_type": "funnel", "series": steps})
    expressions = [{"type": "hogql", "key": f"{nested('least', 40)} > {n}"} for n in range(50)]
    assert text in refused({**MEAN, "source": {**SOURCE, "properties": expressions}})
    assert text in refused(grouped([leaf(0, "icontains", [f"v{n}" for n in range(MAX_VALUES)])]))


def test_cohorts_of_cohorts_are_refused_before_they_are_written() -> None:
    """Each names the next one a hundred times: written out that would be more than the universe has room for."""
    cohorts = {
        number: CohortMembers(
            parse_filters(
                [{"type": "cohort", "key": "id", "value": number + 1}] * 100
                if number < 10
                else [{"type": "person", "key": "a", "value": "b"}]
            )
        )
        for number in range(1, 11)
    }
    named = grouped([{"type": "cohort", "key": "id", "value": 1}])
    assert "characters of SQL" in refused(named, cohorts=cohorts)
    people = {1: CohortMembers(people=("a",))}
    many = grouped([{"type": "cohort", "key": "id", "value": [1] * 20_000}])
    assert "characters of SQL" in refused(many, cohorts=people)


def test_too_many_values_and_groups_are_refused() -> None:
    text = f"a filter can have at most {MAX_VALUES:,} values"
    assert text in refused(grouped([leaf(0, "exact", ["x"] * (MAX_VALUES + 1))]))
    assert f"holds more than {MAX_FILTERS} filters" in refused(grouped([{}] * (MAX_FILTERS + 1)))


def test_an_action_of_too_many_steps_is_refused() -> None:
    steps = [{"event": f"e{number}"} for number in range(30_000)]
    metric = {**MEAN, "source": {"kind": "ActionsNode", "id": 1}}
    read = MetricParser(lambda _identifier: steps).metric(metric)
    with pytest.raises(FilterError, match="characters of SQL"):
        compiled(replace(question(MEAN, 1), metric=read), EmbeddedDialect())


def test_every_limit_is_told() -> None:
    told = (Path(__file__).parents[2] / "docs" / "api" / "experiments.md").read_text()
    section = told.partition("## How large a metric may be")[2].partition("\n## ")[0]
    limits = [int(number.replace(",", "")) for number in re.findall(r"\| ([0-9,]+) \|", section)]
    known = [MAX_CHARACTERS, MAX_NODES, MAX_DEPTH, MAX_FILTERS, MAX_GROUP_DEPTH, MAX_VALUES, MAX_LENGTH]
    assert limits == [*known, MAX_STEPS, MAX_BREAKDOWNS, MAX_CELLS, MAX_METRICS]


SERVER = """
import resource, sys, time
from pathlib import Path
from tests.analysis.lab import Lab, REVENUE
from tests.analysis.test_live import START, hogql

lab = Lab(Path(sys.argv[1]))
experiment = lab.experiment(start_date=START.isoformat())
key = lab.accounts.create_key(lab.accounts.owner_id(), "reader", ["query:read"]).value
nested = {"least": "properties.a", "if": "1", "division": "properties.a", "compared": "properties.a"}
for _ in range(int(sys.argv[2])):
    nested = {
        "least": f"least({nested['least']}, 5)",
        "if": f"if(properties.a = 'x', {nested['if']}, 2)",
        "division": f"1 / (1 + {nested['division']})",
        "compared": f"toFloat({nested['compared']} = toFloat(properties.b))",
    }
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for text in nested.values():
    query = {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": hogql(f"sum({text})")}
    began = time.process_time()
    answer = lab.call("POST", "/query/", {"query": query}, headers={"Authorization": f"Bearer {key}"})
    took = time.process_time() - began
    assert answer.status_code == 200, answer.text
    assert took < 20, took
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 300 * 1024, f"{grown} KiB"
lab.close()
print("answered")
"""


@pytest.mark.parametrize("depth", [13, 22])
def test_a_key_that_may_only_query_cannot_take_the_memory(depth: int, tmp_path: Any) -> None:
    """The deepest ones took 16 GB and did not end."""
    done = child("-c", SERVER, str(tmp_path), str(depth), memory=4 << 30, timeout_s=300)
    assert done.stdout.endswith("answered\n"), done.stderr[-2000:]


def test_a_filter_with_many_values_finds_them(engine: Any) -> None:
    """Of so many conditions the engine would run out of memory."""
    project = 71
    values = ["a", "7", 8, None, True, 1.5, *(f"v{number}" for number in range(5000))]
    stored: dict[str, Any] = {
        "text": "a",
        "digits": 7,
        "number": "8",
        "missing": None,
        "truth": "true",
        "half": 1.50,
    }
    others: dict[str, Any] = {"other": "b", "nine": 9, "false": False}
    events = []
    for name, value in {**stored, **others}.items():
        properties = {} if value is None else {"p": value}
        events += [exposure(name), type(exposure(name))(name, START, "purchase", properties)]
    engine.add(events, project_id=project)
    for operator, expected in (("exact", len(stored)), ("is_not", len(others))):
        metric = {**MEAN, "source": {**SOURCE, "properties": [leaf(0, operator, values) | {"key": "p"}]}}
        answer = engine.computer.result(question(metric, project))
        assert answer.groups["control"].sum == expected, operator


def reading(first: int, count: int) -> dict[str, Any]:
    """A metric that reads so many properties."""
    return grouped([leaf(number) for number in range(first, first + count)])


def test_metrics_that_read_too_many_properties_share_no_table() -> None:
    many = [question(reading(400 * number, 400), 1) for number in range(3)]
    with pytest.raises(FilterError, match=f"more than {MAX_PROPERTIES} properties"):
        shared_scan(many, EmbeddedDialect())
    shared_scan(many[:1] * 3, EmbeddedDialect())


def test_what_reads_too_many_properties_is_not_kept() -> None:
    def asked(count: int) -> Question:
        found = question(reading(0, count), 1)
        days = DayGrid.between(found.span.start, found.span.end, UTC)
        return replace(found, span=replace(found.span, days=days))

    assert materialized(asked(MAX_PROPERTIES), EmbeddedDialect()) is not None
    assert materialized(asked(MAX_PROPERTIES + 1), EmbeddedDialect()) is None


def test_a_time_limit_that_passes_while_a_statement_is_planned_ends_it(tmp_path: Path) -> None:
    """Nothing interrupts the engine while it plans; it must not forget to end the statement then."""
    doubled = "1.0"
    for _ in range(10):  # what the engine doubles with each level
        doubled = f"(1.0 / nullif(i + {doubled}, 0))"
    store = EmbeddedEventStore(tmp_path / "events.duckdb", memory="256MB", threads=1)
    with store.reader() as reader, pytest.raises(QueryTimeoutError):
        reader.execute(f"SELECT sum({doubled}) FROM range(90000000000) AS numbers(i)", timeout_s=0.05)  # noqa: S608
    store.close()
