"""Expressions of users name no function of an engine that the language does not name: nothing reads files or URLs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.analysis.engines import Engine
from tests.analysis.test_emitters import counting, exposure, question

from hoglab.analysis.errors import DefinitionError

FUNCTIONS = {
    "duckdb": "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name SIMILAR TO '\\w+'",
    "clickhouse": "SELECT name FROM system.functions UNION DISTINCT SELECT name FROM system.table_functions",
}
"""Statements that list what an engine offers."""
REACHING = re.compile(
    r"url|file|s3|gcs|azure|hdfs|iceberg|delta|hudi|remote|cluster|mysql|postgres|sqlite|mongo|redis|jdbc|odbc|arrow"
    r"|read_|glob|getenv|env|dict|sleep|setting|input|executable|python|catboost|joinGet|hostName|user|pragma|query"
    r"|version|uptime|shard|server|addressTo|demangle|logTrace|filesystem|throwIf|materialize|checkpoint|force",
    re.IGNORECASE,
)
"""Names of functions that read, wait, or tell something of the machine."""
ENDINGS = (
    "toFloat(properties.x) SETTINGS max_memory_usage = 0",
    "1; SELECT 1",
    "1 FORMAT TSV",
    "1 INTO OUTFILE '/tmp/x'",
    "(SELECT 1)",
    "1 FROM url('http://127.0.0.1:1/')",
    "1 /* x */ UNION ALL SELECT 1",
    "1 -- x\n, file('/etc/passwd')",
    "properties.x) OR (1 = 1",
    "{v0:String}",
    "system.one",
    "@@version",
    "x::String",
    "*",
    "COLUMNS('.*')",
)
"""Texts that are more than an expression."""


def places(expression: str) -> list[dict[str, Any]]:
    """Return metrics with an expression in each place that takes one."""
    node: dict[str, Any] = {"kind": "EventsNode", "event": "purchase"}
    return [
        {"metric_type": "mean", "source": {**node, "math": "hogql", "math_hogql": expression}},
        {"metric_type": "mean", "source": {**node, "math": "hogql", "math_hogql": f"sum({expression})"}},
        counting(key=expression, type="hogql"),
        {
            "metric_type": "mean",
            "source": node,
            "breakdownFilter": {"breakdowns": [{"property": expression, "type": "hogql"}]},
        },
    ]


def accepted(engine: Engine, expression: str) -> int:
    """Return in how many places an expression is computed; in the others it is refused."""
    computed = 0
    for metric in places(expression):
        try:
            engine.computer.result(question(metric, 9))
        except DefinitionError:
            continue
        computed += 1
    return computed


@pytest.fixture(scope="module")
def offered(engine: Engine) -> list[str]:
    """The names of all functions of the engine."""
    engine.add([exposure("ann")], project_id=9)
    kind = "clickhouse" if "ClickHouse" in type(engine).__name__ else "duckdb"
    with engine.reader() as reader:
        return sorted({name for (name,) in reader.execute(FUNCTIONS[kind])})


def test_functions_that_reach_out_are_refused(engine: Engine, offered: list[str]) -> None:
    reaching = [name for name in offered if REACHING.search(name)]
    assert len(reaching) > 30
    forms = ("{}('http://127.0.0.1:1/x')", "{}('/etc/passwd', 'CSV')", "{}()")
    taken = {form.format(name) for name in reaching for form in forms if accepted(engine, form.format(name))}
    assert taken == set()


@pytest.mark.parametrize("text", ENDINGS)
def test_texts_that_are_more_than_an_expression_are_refused(
    engine: Engine, offered: list[str], text: str
) -> None:
    assert accepted(engine, text) == 0


def test_functions_of_the_language_are_computed(engine: Engine, offered: list[str]) -> None:
    assert offered
    assert accepted(engine, "toFloat(properties.x)") == len(places(""))
