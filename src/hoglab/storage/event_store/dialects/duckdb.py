"""The primitives as DuckDB says them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hoglab.filters.sql import Parameters
from hoglab.storage.event_store.mirrored import LEFT_OUT
from hoglab.storage.table_files import READERS, ColumnType, FileTable

NUMBER: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""Text that counts as a number. The engine's own cast also takes blanks, underscores and infinities."""

_DAY: Final = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_HOUR: Final = "([01][0-9]|2[0-3])"
_TIME: Final = f"[T ]{_HOUR}:[0-5][0-9](:[0-5][0-9]([.][0-9]{{1,9}})?)?"
LOCAL_MOMENT: Final = f"{_DAY}({_TIME})?"
"""Text in capitals of a date-time without an offset, as flags read it (`hoglab.filters.dates`)."""
MOMENT_WITH_OFFSET: Final = f"{_DAY}{_TIME}(Z|[+-]{_HOUR}:?[0-5][0-9])"
"""Text in capitals of a date-time with an offset, without a blank before it."""

_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.INTEGER: "BIGINT",
    ColumnType.FLOAT: "DOUBLE",
    ColumnType.STRING: "VARCHAR",
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.DATETIME: "TIMESTAMPTZ",
    ColumnType.DATE: "DATE",
}


class DuckDb:
    """Statements for `hoglab.storage.event_store.duckdb`."""

    is_sealed = True

    def named(self, name: str, sql: str) -> str:
        return f"{name} AS (\n{sql}\n)"

    def parameters(self) -> Parameters:
        return Parameters()

    def finished(self, sql: str) -> str:
        return sql

    def temporary_table(self, name: str, sql: str) -> str:
        return f"CREATE TEMP TABLE {name} AS {sql}"

    def drop_table(self, name: str) -> str:
        return f"DROP TABLE IF EXISTS {name}"

    def property_text(self, column: str, key: str, parameters: Parameters) -> str:
        return f"json_extract_string({_text_with(column, key)}, {parameters.bind(pointer(key))})"

    def json_number(self, column: str, key: str, parameters: Parameters) -> str:
        place = f"{_text_with(column, key)}, {parameters.bind(pointer(key))}"
        return (
            f"CASE WHEN json_type({place}) IN ('UBIGINT', 'BIGINT', 'HUGEINT', 'DOUBLE') "
            f"THEN TRY_CAST(json_extract_string({place}) AS DOUBLE) END"
        )

    def number(self, text: str) -> str:
        return f"CASE WHEN regexp_full_match({text}, '{NUMBER}') THEN TRY_CAST({text} AS DOUBLE) END"

    def contains(self, text: str, pattern: str, *, escapes: bool = False) -> str:
        escape = r" ESCAPE '\'" if escapes else ""  # which takes three times as long
        return f"{text} ILIKE {pattern}{escape}"

    def like(self, text: str, pattern: str) -> str:
        return f"{text} LIKE {pattern}"

    def matches(self, text: str, pattern: str) -> str:
        return f"regexp_matches({text}, {pattern})"

    def first_group(self, text: str, pattern: str) -> str:
        return f"regexp_extract({text}, {pattern}, 1)"

    def any_group(self, text: str, pattern: str, name: str, condition: str) -> str:
        return self.any_item(f"regexp_extract_all({text}, {pattern}, 1)", name, condition)

    def any_item(self, items: str, name: str, condition: str) -> str:
        return f"(len(list_filter({items}, lambda {name}: {condition})) > 0)"

    def moment(self, text: str, zone: str) -> str:
        tight = f"regexp_replace(upper({text}), ' ([Z+-])', '\\1')"
        local, hour = f"TRY_CAST({tight} AS TIMESTAMP)", "INTERVAL 1 HOUR"
        # Where clocks are put back, an hour comes twice: the engine takes the second, and flags take the first.
        first = f"least(timezone({zone}, {local}), timezone({zone}, {local} - {hour}) + {hour})"
        return (
            f"coalesce(TRY_CAST({self.number(text)} * 1000000 AS BIGINT), epoch_us("
            f"CASE WHEN regexp_full_match({tight}, '{LOCAL_MOMENT}') THEN {first} "
            f"WHEN regexp_full_match({tight}, '{MOMENT_WITH_OFFSET}') "
            f"THEN TRY_CAST({tight} AS TIMESTAMPTZ) END))"
        )

    def micros(self, column: str) -> str:
        return f"epoch_us({column})"

    def moment_of_column(self, column: str) -> str:
        return f"epoch_us(CAST({column} AS TIMESTAMPTZ))"

    def one_of_people(self, column: str, people: str) -> str:
        return f"{column} IN (SELECT CAST(unnest(CAST({people} AS VARCHAR[])) AS UUID))"

    def any_key(self, column: str, prefix: str) -> str:
        return f"len(list_filter(json_keys({column}), lambda key: starts_with(key, '{prefix}'))) > 0"

    def json_line(self, columns: Sequence[str]) -> str:
        return f"to_json(struct_pack({', '.join(f'{column} := {column}' for column in columns)}))"

    def uuid(self, text: str) -> str:
        return f"{text}::UUID"

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def table(
        self, files: Sequence[str], table: FileTable, columns: Sequence[str], parameters: Parameters
    ) -> str:
        kinds = {column: _TYPES[kind] for column in columns if (kind := table.type_of(column)) is not None}
        given = ", ".join(f"{_literal(column)}: '{kind}'" for column, kind in kinds.items())
        reader = READERS[table.format].format(
            files=parameters.bind(tuple(files)), types=f", types = {{{given}}}" if given else ""
        )
        shown = ", ".join(
            f"CAST({self.quoted(column)} AS {kind}) AS {self.quoted(column)}"
            for column, kind in kinds.items()
        )
        return f"(SELECT {shown or '1 AS nothing'} FROM {reader})"  # noqa: S608 - names are quoted

    def pairs(
        self,
        first: str,
        firsts: Sequence[str],
        second: str,
        seconds: Sequence[str],
        parameters: Parameters,
    ) -> str:
        lists = [f"CAST({parameters.bind(tuple(texts))} AS VARCHAR[])" for texts in (firsts, seconds)]
        return f"(SELECT unnest({lists[0]}) AS {first}, unnest({lists[1]}) AS {second})"

    def first_by(self, value: str, keys: Sequence[str]) -> str:
        key = keys[0] if len(keys) == 1 else f"ROW({', '.join(keys)})"
        return f"arg_min({value}, {key})"

    def reached_step(self, moment: str, steps: Sequence[str], window_us: int) -> str | None:  # noqa: ARG002
        return None

    def integer_division(self, dividend: str, divisor: int) -> str:
        return f"({dividend}) // {divisor}"

    def sum_numbers(self, value: str) -> str:
        return f"fsum({value})"

    def quantile(self, value: str, level: float) -> str:
        return f"quantile_cont(CAST({value} AS DOUBLE), {level!r})"

    def bound(self, values: Sequence[str], body: Callable[..., str]) -> str:
        if len(values) == 1:
            return f"list_transform([{values[0]}], lambda bound: {body('bound')})[1]"
        fields = ", ".join(f"'value_{place}': {value}" for place, value in enumerate(values))
        names = [f"bound.value_{place}" for place in range(len(values))]
        return f"list_transform([{{{fields}}}], lambda bound: {body(*names)})[1]"

    def number_of_truth(self, truth: str) -> str:
        return f"CAST({truth} AS DOUBLE)"

    def text_of_truth(self, truth: str) -> str:
        return f"CAST({truth} AS VARCHAR)"

    def text_of_number(self, number: str) -> str:
        return f"regexp_replace(CAST({number} AS VARCHAR), '\\.0$', '')"

    def text_of_moment(self, micros: str) -> str:
        return f"strftime(make_timestamp({micros}), '%Y-%m-%dT%H:%M:%S.%fZ')"

    def different_texts(self, text: str) -> str:
        return f"list(DISTINCT {text}) FILTER (WHERE {text} <> '')"

    def scattered(self, text: str) -> str:
        return f"hash({text})"

    def nth_smallest(self, values: Sequence[str], position: int) -> str:
        present = f"list_filter([{', '.join(values)}], lambda each: each IS NOT NULL)"
        return f"list_sort({present})[{position}]"

    def month_later(self, micros: str, months: int) -> str:
        return f"epoch_us(make_timestamp({micros}) + INTERVAL {int(months)} MONTH)"


def _text_with(column: str, key: str) -> str:
    """Return the column whose text has a property: that of sealed events lacks what the rest tells."""
    return "whole_properties" if column == "properties" and key in LEFT_OUT else column


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def pointer(key: str) -> str:
    """Return a JSON pointer to a top-level key (RFC 6901).

    Pointers reach every key. A JSON path cannot: quoted or not, ``*`` is a wildcard in it and an empty key an error.
    """
    return "/" + key.replace("~", "~0").replace("/", "~1")
