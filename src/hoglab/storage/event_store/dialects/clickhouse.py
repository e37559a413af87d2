"""The primitives as ClickHouse says them.

Statements read a relation ``resolved_events`` with the columns of `hoglab.storage.event_store.EventStore`'s view of
that name, where ``timestamp`` is DateTime64(6, 'UTC'), ``person_id`` Nullable(UUID), ``uuid`` the text of the uuid
(the engine's own order of UUIDs is another one) and the two property columns are JSON text.

The engine spells numbers its own way when it gives the text of a property: ``1.0`` becomes ``1`` and ``1e5`` becomes
``100000``. Filters and breakdowns by the spelling of a number see that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final

from hoglab.filters.sql import Bindable, Parameters
from hoglab.storage.event_store.dialects.duckdb import LOCAL_MOMENT, MOMENT_WITH_OFFSET, NUMBER
from hoglab.storage.table_files import ColumnType, FileTable

_NUMBER: Final = f"^({NUMBER})$".replace("\\", "\\\\")
_MOMENT: Final = f"^({LOCAL_MOMENT}|{MOMENT_WITH_OFFSET})$"
_MOST_STEPS: Final = 32
"""Maximum number of conditions that the engine takes for a funnel."""
_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.INTEGER: "Nullable(Int64)",
    ColumnType.FLOAT: "Nullable(Float64)",
    ColumnType.STRING: "Nullable(String)",
    ColumnType.BOOLEAN: "Nullable(Bool)",
    ColumnType.DATETIME: "Nullable(DateTime64(6, 'UTC'))",
    ColumnType.DATE: "Nullable(Date32)",
}


class PropertyForm(Enum):
    """Forms of properties that columns have."""

    TEXT = "text"
    NUMBER = "number"
    """Property as float64 where the JSON value is a number."""


TypedColumn = Callable[[PropertyForm, str, str], str | None]
"""Function that gives the column for a form of a property, by its JSON column and its key; None where there is none."""


def _no_typed_column(_form: PropertyForm, _column: str, _key: str) -> None:
    """Return None: all properties are read from JSON."""


class ClickHouse:
    """Statements for ClickHouse 26 or newer, with values as query parameters (``{name:Type}``)."""

    is_sealed = False

    def __init__(self, typed: TypedColumn = _no_typed_column) -> None:
        """Write SQL for properties that ``typed`` has as columns of their own, and for others in JSON."""
        self._typed = typed

    def named(self, name: str, sql: str) -> str:
        return f"{name} AS MATERIALIZED (\n{sql}\n)"

    def parameters(self) -> Parameters:
        return Parameters(lambda name, value: f"{{{name}:{_type(value)}}}")

    def finished(self, sql: str) -> str:
        return sql  # every request says what else statements need

    def temporary_table(self, name: str, sql: str) -> str:
        return f"CREATE TEMPORARY TABLE {name} ENGINE = Memory AS {sql}"

    def drop_table(self, name: str) -> str:
        return f"DROP TEMPORARY TABLE IF EXISTS {name}"

    def property_text(self, column: str, key: str, parameters: Parameters) -> str:
        return self._typed(PropertyForm.TEXT, column, key) or text_in_json(column, parameters.bind(key))

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        return self._typed(PropertyForm.NUMBER, column, key) or number_in_json(column, parameters.bind(key))

    def number(self, text: str) -> str:
        return f"if(match({text}, '{_NUMBER}'), toFloat64OrNull({text}), NULL)"

    def contains(self, text: str, pattern: str, *, escapes: bool = False) -> str:
        return f"{text} ILIKE {pattern if escapes else _without_escapes(pattern)}"

    def like(self, text: str, pattern: str) -> str:
        return f"{text} LIKE {_without_escapes(pattern)}"

    def matches(self, text: str, pattern: str) -> str:
        return f"match({text}, concat('(?-s)', {pattern}))"

    def first_group(self, text: str, pattern: str) -> str:
        return f"extract({text}, concat('(?-s)', {pattern}))"

    def any_group(self, text: str, pattern: str, name: str, condition: str) -> str:
        return self.any_item(f"extractAll({text}, concat('(?-s)', {pattern}))", name, condition)

    def any_item(self, items: str, name: str, condition: str) -> str:
        return f"arrayExists({name} -> {condition}, {items})"

    def moment(self, text: str, zone: str) -> str:
        tight = f"replaceRegexpOne(upper({text}), ' ([Z+-])', '\\\\1')"
        seconds = f"toInt64OrNull(toString(round(({self.number(text)}) * 1000000)))"
        parsed = f"parseDateTime64BestEffortOrNull(if(match({tight}, '{_MOMENT}'), {tight}, NULL), 6, {zone})"
        return f"coalesce({seconds}, toUnixTimestamp64Micro({parsed}))"

    def micros(self, column: str) -> str:
        return f"toUnixTimestamp64Micro({column})"

    def moment_of_column(self, column: str) -> str:
        return f"toUnixTimestamp64Micro(CAST({column} AS Nullable(DateTime64(6, 'UTC'))))"

    def one_of_people(self, column: str, people: str) -> str:
        return f"has({people}, toString({column}))"

    def any_key(self, column: str, prefix: str) -> str:
        return f"arrayExists(key -> startsWith(key, '{prefix}'), JSONExtractKeys({column}))"

    def json_line(self, columns: Sequence[str]) -> str:
        pairs = ", ".join(f"{column} AS {column}" for column in columns)
        return f"toJSONString(tuple({pairs}))"

    def uuid(self, text: str) -> str:
        return text  # ids of events are texts, and one that ids of persons are compared with is understood

    def quoted(self, name: str) -> str:
        return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def table(
        self, files: Sequence[str], table: FileTable, columns: Sequence[str], parameters: Parameters
    ) -> str:
        kinds = {column: _TYPES[kind] for column in columns if (kind := table.type_of(column)) is not None}
        structure = parameters.bind(
            ", ".join(f"{self.quoted(column)} {kind}" for column, kind in kinds.items())
        )
        shown = ", ".join(map(self.quoted, kinds)) or "1 AS nothing"
        parts = [
            f"SELECT {shown} FROM file({parameters.bind(file)}, '{table.format}', {structure})"  # noqa: S608 - names are quoted
            for file in files
        ]
        return f"({' UNION ALL '.join(parts)})"

    def pairs(
        self,
        first: str,
        firsts: Sequence[str],
        second: str,
        seconds: Sequence[str],
        parameters: Parameters,
    ) -> str:
        lists = [parameters.bind(tuple(texts)) for texts in (firsts, seconds)]
        pairs = f"SELECT arrayJoin(arrayZip({lists[0]}, {lists[1]})) AS pair"
        return f"(SELECT tupleElement(pair, 1) AS {first}, tupleElement(pair, 2) AS {second} FROM ({pairs}))"  # noqa: S608 - bound

    def first_by(self, value: str, keys: Sequence[str]) -> str:
        key = keys[0] if len(keys) == 1 else f"tuple({', '.join(keys)})"
        return f"argMin({value}, {key})"

    def reached_step(self, moment: str, steps: Sequence[str], window_us: int) -> str | None:
        if len(steps) > _MOST_STEPS:
            return None
        not_negative = f"CAST({moment} + {1 << 62} AS UInt64)"
        return f"greatest(windowFunnel({window_us})({not_negative}, {', '.join(steps)}) - 1, 0)"

    def integer_division(self, dividend: str, divisor: int) -> str:
        return f"intDiv({dividend}, {divisor})"

    def sum_numbers(self, value: str) -> str:
        return f"sumKahan(CAST({value} AS DOUBLE))"

    def quantile(self, value: str, level: float) -> str:
        return f"quantileExactInclusive({level!r})(CAST({value} AS Nullable(Float64)))"

    def bound(self, values: Sequence[str], body: Callable[..., str]) -> str:
        names = [f"bound_{place}" for place in range(len(values))]
        lists = ", ".join(f"[{value}]" for value in values)
        return f"arrayMap(({', '.join(names)}) -> {body(*names)}, {lists})[1]"

    def number_of_truth(self, truth: str) -> str:
        return f"CAST({truth} AS Nullable(Float64))"

    def text_of_truth(self, truth: str) -> str:
        return f"CAST(CAST({truth} AS Nullable(Bool)) AS Nullable(String))"

    def text_of_number(self, number: str) -> str:
        return f"CAST({number} AS Nullable(String))"

    def text_of_moment(self, micros: str) -> str:
        return f"concat(replaceOne(toString(fromUnixTimestamp64Micro({micros}, 'UTC')), ' ', 'T'), 'Z')"

    def different_texts(self, text: str) -> str:
        return f"groupUniqArrayIf({text}, {text} <> '')"

    def scattered(self, text: str) -> str:
        return f"cityHash64({text})"

    def nth_smallest(self, values: Sequence[str], position: int) -> str:
        present = f"arraySort(arrayFilter(each -> each IS NOT NULL, [{', '.join(values)}]))"
        return f"if(length({present}) >= {position}, {present}[{position}], NULL)"

    def month_later(self, micros: str, months: int) -> str:
        return f"toUnixTimestamp64Micro(addMonths(fromUnixTimestamp64Micro({micros}, 'UTC'), {int(months)}))"


def text_in_json(column: str, key: str) -> str:
    """Return the property ``key`` (SQL) of a JSON column as text."""
    # Whole numbers beyond 64 bits come in quotation marks; no other raw value begins with one.
    raw = f"trim(BOTH '\"' FROM JSONExtractRaw({column}, {key}))"
    return (
        f"multiIf(JSONType({column}, {key}) = 'String', JSONExtract({column}, {key}, 'Nullable(String)'), "
        f"JSONType({column}, {key}) = 'Null', NULL, {raw})"
    )


def number_in_json(column: str, key: str) -> str:
    """Return the property as float64 where its JSON value is a number."""
    return (
        f"if(JSONType({column}, {key}) IN ('Int64', 'UInt64', 'Double', 'BigInt'), "
        f"toFloat64OrNull(trim(BOTH '\"' FROM JSONExtractRaw({column}, {key}))), NULL)"
    )


def literal(text: str) -> str:
    """Return a text where statements take no parameters."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _type(value: Bindable) -> str:
    match value:
        case tuple():
            return "Array(String)"
        case str():
            return "String"
        case datetime():
            return "DateTime64(6, 'UTC')"
        case int():
            return "Int64"
        case _:
            return "Float64"


def _without_escapes(pattern: str) -> str:
    """Return a LIKE pattern in which a backslash stands for itself."""
    return rf"replaceAll({pattern}, '\\', '\\\\')"
