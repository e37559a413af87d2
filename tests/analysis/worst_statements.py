"""The worst that expressions and filters may be within their limits, planned by the engine: run in a child process.

Prints, as JSON by name: the length of the statement, the processor time in seconds that translating and planning took,
and how deep it went.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.analysis.test_emitters import question
from tests.embedded import EmbeddedDialect, EmbeddedEventStore

from hoglab.analysis.errors import DefinitionError
from hoglab.analysis.query.combined_statement import combine_questions
from hoglab.analysis.query.expressions import MAX_NODES
from hoglab.analysis.query.pipeline import compiled
from hoglab.analysis.query.scope import SqlStatement
from hoglab.filters import FilterError
from hoglab.hog.parser.recursion import ensure_stack

MEMORY_BYTES = 3 << 30
PROCESSOR_S = 120

CONSTRUCTS = {
    "least": "least({e}, properties.b)",
    "least, of both": "least({e}, toFloat(properties.b) + 1)",
    "greatest": "greatest(properties.b, {e})",
    "division by it": "(1 / (1 + {e}))",
    "division": "({e} / properties.b)",
    "between": "toFloat({e} between 1 and 5)",
    "not between": "toFloat({e} not between properties.b and 5)",
    "bound of between": "toFloat(properties.b between {e} and 5)",
    "equal": "toFloat({e} == toFloat(properties.b))",
    "different": "toFloat(toFloat(properties.b) != {e})",
    "less": "toFloat({e} < 3)",
    "equal to a constant": "toFloat({e} == 3)",
    "condition": "if({e} > 1, 1, 2)",
    "then": "if(properties.a == 'x', {e}, 2)",
    "else": "if(properties.a == 'x', 2, {e})",
    "all of if": "if({e} > 1, {e}, {e})",
    "coalesce": "coalesce({e}, 1)",
    "ifNull": "ifNull(properties.b, {e})",
    "text of a number": "toFloat(toString({e}))",
    "lower": "toFloat(lower(toString({e})))",
    "not": "toFloat(not ({e} > 1))",
    "and": "toFloat(({e} > 1) and properties.b == 'x')",
    "or": "toFloat(({e} > 1) or properties.b == 'x')",
    "and of two": "toFloat(({e} > 1) and ({e} > 2))",
    "abs": "abs({e})",
    "floor": "floor({e})",
    "addition": "(1 + {e})",
    "sum of many": "{e} + 1",
    "product": "({e} * {e})",
    "toFloatOrZero": "toFloatOrZero({e})",
    "missing": "toFloat({e} == null)",
    "minus": "(-{e})",
}
"""Each with another expression in it."""

SOURCE = {"kind": "EventsNode", "event": "purchase"}
MEAN = {"metric_type": "mean", "source": SOURCE}


def summed(text: str, number: int = 0) -> dict[str, Any]:
    return {**MEAN, "source": {**SOURCE, "math": "hogql", "math_hogql": f"sum({text} + {number})"}}


def filtered(text: str, count: int) -> dict[str, Any]:
    return {
        **SOURCE,
        "properties": [{"type": "hogql", "key": f"{text} > {number}"} for number in range(count)],
    }


def broken_down(text: str) -> dict[str, Any]:
    parts = [{"type": "hogql", "property": f"{text} + {number}"} for number in range(3)]
    return {**MEAN, "breakdownFilter": {"breakdowns": parts}}


def ratio(text: str) -> dict[str, Any]:
    return {
        "metric_type": "ratio",
        "numerator": summed(text)["source"],
        "denominator": summed(text, 1)["source"],
    }


USES: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "ratio": lambda text, _count: ratio(text),
    "breakdown": lambda text, _count: broken_down(text),
    "filters": lambda text, count: {**MEAN, "source": filtered(text, count)},
    "funnel": lambda text, count: {"metric_type": "funnel", "series": [filtered(text, 1)] * count},
}
"""Where else expressions stand; in some there may be many."""
MANY = ("filters", "funnel")
HARDEST = ("between", "least", "and")
"""Constructs that take the longest."""


def nested(construct: str, depth: int) -> str:
    text = "properties.a"
    for _ in range(depth):
        text = CONSTRUCTS[construct].format(e=text)
        if len(text) > 5000:
            break
    return text


def statement_of(metric: dict[str, Any]) -> SqlStatement | None:
    """None for a metric that is refused."""
    try:
        return compiled(question(metric, 1), EmbeddedDialect()).statement
    except (DefinitionError, FilterError):
        return None


def largest(made: Callable[[int], dict[str, Any]], most: int) -> tuple[int, SqlStatement]:
    """The largest of a family that is not refused."""
    low, high, best = 0, most, None
    while low < high:
        middle = (low + high + 1) // 2
        found = statement_of(made(middle))
        if found is None:
            high = middle - 1
        else:
            low, best = middle, found
    assert best is not None
    return low, best


def deepening(construct: str) -> Callable[[int], dict[str, Any]]:
    return lambda depth: summed(nested(construct, depth))


def expressions() -> Iterator[tuple[str, int, SqlStatement]]:
    for construct in CONSTRUCTS:
        depth, statement = largest(deepening(construct), MAX_NODES)
        yield f"{construct}: sum", depth, statement
        text = nested(construct, depth - 1)
        for name, use in USES.items() if construct in HARDEST else ():
            yield f"{construct}: {name}", *largest(partial(use, text), 30 if name in MANY else 1)


def metrics_together() -> Iterator[tuple[str, int, SqlStatement]]:
    for construct in ("least", "and", "between"):
        depth, _ = largest(deepening(construct), MAX_NODES)
        text = nested(construct, depth - 1)
        for count in (10, 5, 2):
            try:
                found = combine_questions(
                    [question(summed(text, each), 1) for each in range(count)], EmbeddedDialect()
                )
            except FilterError:
                continue
            yield f"{construct}: metrics together", count, found.statement
            break


def grouped(parts: list[Any], *, kind: str = "OR") -> dict[str, Any]:
    return {**MEAN, "source": {**SOURCE, "properties": {"type": kind, "values": parts}}}


def leaf(number: int, operator: str = "exact", value: Any = None) -> dict[str, Any]:
    return {"key": f"p{number}", "operator": operator, "value": f"x{number}" if value is None else value}


def both(kind: str, number: int) -> dict[str, Any]:
    return {"type": kind, "values": [leaf(number), {**leaf(0), "key": "common"}]}


def deep(count: int) -> dict[str, Any]:
    """Groups in groups, as deep as they go, beside others."""
    chains = []
    for chain in range(count):
        inner: Any = leaf(chain)
        for level in range(30):
            inner = {"type": ("AND", "OR")[level % 2], "values": [inner, leaf(chain * 31 + level)]}
        chains.append(inner)
    return grouped(chains)


def filters() -> Iterator[tuple[str, int, SqlStatement]]:
    families: dict[str, Callable[[int], dict[str, Any]]] = {
        "any of many": lambda count: grouped([leaf(number) for number in range(count)]),
        "all of many": lambda count: grouped([leaf(number) for number in range(count)], kind="AND"),
        "numbers": lambda count: grouped([leaf(n, "gt", n) for n in range(count)]),
        "numbers and texts": lambda count: grouped([leaf(n, "exact", n) for n in range(count)]),
        "any of all": lambda count: grouped([both("AND", number) for number in range(count)]),
        "all of any": lambda count: grouped([both("OR", number) for number in range(count)], kind="AND"),
        "deep groups": deep,
        "values": lambda count: grouped([leaf(0, "exact", [f"v{n}" for n in range(10 * count)])]),
        "numbers as values": lambda count: grouped([leaf(0, "exact", [*range(10 * count)])]),
        "parts of texts": lambda count: grouped([leaf(0, "icontains", [f"v{n}" for n in range(count)])]),
        "dates": lambda count: grouped([leaf(n, "is_date_after", "2026-01-01") for n in range(count)]),
    }
    for name, made in families.items():
        yield f"filters: {name}", *largest(made, 1000)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    ensure_stack()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        store = EmbeddedEventStore(Path(directory) / "events.duckdb", memory="256MB", threads=1)

        def plan() -> None:
            with store.reader() as reader:
                for family in (expressions, metrics_together, filters):
                    for name, size, statement in family():
                        began = time.process_time()
                        reader.execute(f"EXPLAIN {statement.sql}", statement.parameters)
                        took = time.process_time() - began
                        found[name] = {"size": size, "length": len(statement.sql), "plan_s": took}

        worker = threading.Thread(target=plan)  # as requests are answered: with the stack of a thread
        worker.start()
        worker.join()
        store.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
