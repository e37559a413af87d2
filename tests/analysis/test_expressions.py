"""HogQL expressions as SQL: they mean what Python says they mean, on both engines."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.analysis.engines import Engine
from tests.analysis.test_emitters import question
from tests.embedded import EmbeddedDialect

from hoglab.analysis.query.expressions import ExpressionKind, Sql, number_of, read, text_of
from hoglab.analysis.query.scope import Scope
from hoglab.storage.event_store.dialects import Dialect
from hoglab.storage.event_store.dialects.clickhouse import ClickHouse
from hoglab.storage.event_store.dialects.duckdb import NUMBER

ROWS: list[dict[str, Any]] = [
    {"a": a, "b": b, "s": s, "t": t}
    for a, b, s, t in [
        (1.0, 2.0, "x", "true"),
        (0.0, -1.5, "7", "x"),
        (None, 3.0, None, "false"),
        (4.0, None, "-2.5", None),
        (None, None, None, None),
        (0.0, 0.0, "0", "0"),
        (-3.0, 100.0, "", "Big"),
        (2.0, 2.0, "1e2", "1e2"),
    ]
]


class UnlikeError(Exception):
    """Engines write such a number in their own ways."""


@dataclass(frozen=True)
class Meaning:
    """An expression, what it is, and what it gives for a row."""

    text: str
    kind: ExpressionKind
    of: Callable[[Mapping[str, Any]], Any]

    def number(self, row: Mapping[str, Any]) -> float | None:
        value = self.of(row)
        if value is None or self.kind is ExpressionKind.NUMBER:
            return value  # type: ignore[no-any-return]
        if self.kind is ExpressionKind.TRUTH:
            return float(value)
        return float(value) if re.fullmatch(NUMBER, value) else None

    def words(self, row: Mapping[str, Any]) -> str | None:
        value = self.of(row)
        if value is None or self.kind is ExpressionKind.TEXT:
            return value  # type: ignore[no-any-return]
        if self.kind is ExpressionKind.TRUTH:
            return "true" if value else "false"
        if value and not 1e-3 <= abs(value) < 1e12:
            raise UnlikeError
        return repr(float(value)).removesuffix(".0")

    def truth(self, row: Mapping[str, Any]) -> bool | None:
        value = self.of(row)
        if value is None or self.kind is ExpressionKind.TRUTH:
            return value  # type: ignore[no-any-return]
        return value != 0 if self.kind is ExpressionKind.NUMBER else value == "true"


LEAVES = [
    Meaning("a", ExpressionKind.NUMBER, lambda row: row["a"]),
    Meaning("b", ExpressionKind.NUMBER, lambda row: row["b"]),
    Meaning("s", ExpressionKind.TEXT, lambda row: row["s"]),
    Meaning("t", ExpressionKind.TEXT, lambda row: row["t"]),
    Meaning("2", ExpressionKind.NUMBER, lambda _row: 2.0),
    Meaning("0", ExpressionKind.NUMBER, lambda _row: 0.0),
    Meaning("'x'", ExpressionKind.TEXT, lambda _row: "x"),
    Meaning("'7'", ExpressionKind.TEXT, lambda _row: "7"),
    Meaning("true", ExpressionKind.TRUTH, lambda _row: True),
    Meaning("null", ExpressionKind.NUMBER, lambda _row: None),
]


def strictly(how: Callable[..., Any], *values: Any) -> Any:
    return None if any(value is None for value in values) else how(*values)


def divided(one: float, other: float) -> float | None:
    return one / other if other else None


def every(parts: Sequence[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def compared(op: str, one: Meaning, other: Meaning) -> Callable[[Mapping[str, Any]], bool]:
    if op in ("==", "!=") and "null" in (one.text, other.text):
        side = other if one.text == "null" else one
        return lambda row: (side.of(row) is None) is (op == "==")
    as_ = Meaning.number if ExpressionKind.NUMBER in (one.kind, other.kind) else Meaning.words

    def holds(row: Mapping[str, Any]) -> bool:
        left, right = as_(one, row), as_(other, row)
        if op in ("==", "!="):
            return (left == right) is (op == "==")
        if left is None or right is None:
            return False
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]  # type: ignore[operator]

    return holds


def arithmetic(chance: random.Random, one: Meaning, other: Meaning) -> Meaning:
    op = chance.choice("+-*/")
    how: Callable[..., Any] = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "/": divided,
    }[op]
    return Meaning(
        f"({one.text} {op} {other.text})",
        ExpressionKind.NUMBER,
        lambda row: strictly(how, one.number(row), other.number(row)),
    )


def comparison(chance: random.Random, one: Meaning, other: Meaning) -> Meaning:
    op = chance.choice(["==", "!=", "<", "<=", ">", ">="])
    return Meaning(f"({one.text} {op} {other.text})", ExpressionKind.TRUTH, compared(op, one, other))


def of_both(chance: random.Random, one: Meaning, other: Meaning) -> Meaning:
    name = chance.choice(["least", "greatest", "ifNull", "coalesce"])
    text = f"{name}({one.text}, {other.text})"
    if name in ("least", "greatest"):
        how: Callable[..., Any] = min if name == "least" else max
        return Meaning(
            text, ExpressionKind.NUMBER, lambda row: strictly(how, one.number(row), other.number(row))
        )
    as_, kind = alike(one, other)
    return Meaning(text, kind, lambda row: as_(other, row) if as_(one, row) is None else as_(one, row))


def alike(one: Meaning, other: Meaning) -> tuple[Callable[[Meaning, Mapping[str, Any]], Any], ExpressionKind]:
    if one.kind is other.kind is ExpressionKind.TEXT:
        return Meaning.words, ExpressionKind.TEXT
    return Meaning.number, ExpressionKind.NUMBER


def condition(chance: random.Random, one: Meaning, other: Meaning) -> Meaning:
    op = chance.choice(["and", "or"])
    text = f"({one.text} {op} {other.text})"
    if op == "and":
        return Meaning(text, ExpressionKind.TRUTH, lambda row: every([one.truth(row), other.truth(row)]))

    def either(row: Mapping[str, Any]) -> bool | None:
        none = every([None if each is None else not each for each in (one.truth(row), other.truth(row))])
        return None if none is None else not none

    return Meaning(text, ExpressionKind.TRUTH, either)


def chosen(chance: random.Random, one: Meaning, other: Meaning) -> Meaning:
    which = chance.choice([one, other, *LEAVES])
    as_, kind = alike(one, other)
    return Meaning(
        f"if({which.text}, {one.text}, {other.text})",
        kind,
        lambda row: as_(one if which.truth(row) else other, row),
    )


def between(chance: random.Random, one: Meaning, other: Meaning) -> Meaning:
    low, negated = chance.choice(LEAVES), chance.random() < 0.5

    def within(row: Mapping[str, Any]) -> bool:
        it, least, most = one.number(row), low.number(row), other.number(row)
        found = every(
            [
                strictly(lambda x, y: x >= y, it, least),
                strictly(lambda x, y: x <= y, it, most),
            ]
        )
        return bool(found) is not negated

    middle = "not between" if negated else "between"
    return Meaning(f"({one.text} {middle} {low.text} and {other.text})", ExpressionKind.TRUTH, within)


def of_one(chance: random.Random, one: Meaning, _other: Meaning) -> Meaning:
    name = chance.choice(["toFloat", "toFloatOrZero", "toString", "lower", "abs", "not", "floor"])
    text = f"{name}({one.text})"
    match name:
        case "toFloat":
            return Meaning(text, ExpressionKind.NUMBER, one.number)
        case "toFloatOrZero":
            return Meaning(text, ExpressionKind.NUMBER, lambda row: one.number(row) or 0.0)
        case "toString":
            return Meaning(text, ExpressionKind.TEXT, one.words)
        case "lower":
            return Meaning(text, ExpressionKind.TEXT, lambda row: strictly(str.lower, one.words(row)))
        case "not":
            return Meaning(text, ExpressionKind.TRUTH, lambda row: strictly(lambda x: not x, one.truth(row)))
    how = abs if name == "abs" else lambda value: value // 1
    return Meaning(text, ExpressionKind.NUMBER, lambda row: strictly(how, one.number(row)))


FORMS = [arithmetic, comparison, of_both, condition, chosen, between, of_one]


def some(chance: random.Random, depth: int) -> Meaning:
    if not depth:
        return chance.choice(LEAVES)
    depths = [depth - 1, chance.randrange(depth)]
    chance.shuffle(depths)
    one, other = (some(chance, each) for each in depths)
    return chance.choice(FORMS)(chance, one, other)


COLUMNS = {
    "a": Sql("a", ExpressionKind.NUMBER, plain=True),
    "b": Sql("b", ExpressionKind.NUMBER, plain=True),
    "s": Sql("s", ExpressionKind.TEXT, plain=True),
    "t": Sql("t", ExpressionKind.TEXT, plain=True),
}
MEAN = {"metric_type": "mean", "source": {"kind": "EventsNode", "event": "e"}}
AS = {"number": (Meaning.number, number_of), "text": (Meaning.words, text_of)}


def relation(dialect: Dialect) -> str:
    number, text = (
        ("Nullable(Float64)", "Nullable(String)")
        if isinstance(dialect, ClickHouse)
        else ("DOUBLE", "VARCHAR")
    )
    rows = []
    for place, row in enumerate(ROWS):
        numbers = [
            f"CAST({'NULL' if row[name] is None else row[name]} AS {number}) AS {name}" for name in "ab"
        ]
        texts = ["NULL" if row[name] is None else f"'{row[name]}'" for name in "st"]
        named = [f"CAST({value} AS {text}) AS {name}" for name, value in zip("st", texts, strict=True)]
        rows.append(f"SELECT {place} AS place, {', '.join([*numbers, *named])}")
    return f"({' UNION ALL '.join(rows)}) AS given_rows"


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("wanted", list(AS))
def test_every_construct_means_what_it_says(engine: Engine, wanted: str, depth: int) -> None:
    chance = random.Random(f"{wanted} {depth}")
    meaning, translated = AS[wanted]
    dialect: Dialect = ClickHouse() if "ClickHouse" in type(engine).__name__ else EmbeddedDialect()
    for _ in range(8):
        scope = Scope(question(MEAN, 1), dialect)
        expected: list[list[Any]] = []
        shown: list[str] = []
        texts: list[str] = []
        while len(shown) < 25:
            found = some(chance, depth)
            try:
                expected.append([meaning(found, row) for row in ROWS])
            except UnlikeError:
                continue
            tree = read(found.text, "it")
            shown.append(translated(tree, scope, "it", lambda chain: COLUMNS[str(chain[0])]))
            texts.append(found.text)
        columns = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(shown))
        statement = scope.statement(f"SELECT {columns} FROM {relation(dialect)} ORDER BY place")  # noqa: S608
        with engine.reader() as reader:
            rows = reader.execute(statement.sql, statement.parameters)
        for number, (text, values) in enumerate(zip(texts, expected, strict=True)):
            got = [row[number] for row in rows]
            assert got == (values if wanted == "text" else pytest.approx(values)), text
