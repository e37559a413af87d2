"""Dialects of engines of events. All else that statements use is plain SQL that every one of them reads.

The rules that make this possible: spec experiment-results 11.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hoglab.filters.sql import Parameters, PropertyDialect
from hoglab.storage.table_files import FileTable


class Dialect(PropertyDialect, Protocol):
    """The primitives of one engine. Arguments and results are SQL unless said otherwise."""

    def named(self, name: str, sql: str) -> str:
        """Return a subquery with a name, computed once however often it is named, where the engine can."""
        ...

    def parameters(self) -> Parameters:
        """Return an empty set of values, referred to as the engine wants it."""
        ...

    def finished(self, sql: str) -> str:
        """Return the whole statement with what the engine needs to read it as others do."""
        ...

    def temporary_table(self, name: str, sql: str) -> str:
        """Return the statement that makes a table of what a query gives, which is there for its reader alone."""
        ...

    def drop_table(self, name: str) -> str:
        """Return the statement after which there is no such table, whether there was one or not."""
        ...

    def micros(self, column: str) -> str:
        """Return a timestamp column as microseconds since the epoch."""
        ...

    def moment_of_column(self, column: str) -> str:
        """Return a column of moments or of days in a table as microseconds since the epoch."""
        ...

    def one_of_people(self, column: str, people: str) -> str:
        """Return whether a column of person ids holds one of a bound list of ids (text)."""
        ...

    def any_key(self, column: str, prefix: str) -> str:
        """Return whether any key of a JSON object begins with a text of ours."""
        ...

    is_sealed: bool
    """Whether most events are in segments, the older ones before the others."""

    def json_line(self, columns: Sequence[str]) -> str:
        """Return columns of a row as an object of JSON in one line."""
        ...

    def uuid(self, text: str) -> str:
        """Return a text of a UUID to compare ids with: those of events, or of persons."""
        ...

    def quoted(self, name: str) -> str:
        """Return a column's name in quotes; it may have any characters."""
        ...

    def table(
        self, files: Sequence[str], table: FileTable, columns: Sequence[str], parameters: Parameters
    ) -> str:
        """Return the rows of files as a relation with these columns, each of its registered type."""
        ...

    def pairs(
        self,
        first: str,
        firsts: Sequence[str],
        second: str,
        seconds: Sequence[str],
        parameters: Parameters,
    ) -> str:
        """Return a relation of two columns of bound texts, which are as many."""
        ...

    def first_by(self, value: str, keys: Sequence[str]) -> str:
        """Return aggregate: ``value`` of the row that comes first by ``keys``."""
        ...

    def reached_step(self, moment: str, steps: Sequence[str], window_us: int) -> str | None:
        """Return an aggregate of rows, each of which is one of the steps or none: the last reached step, from 0.

        Steps are reached one after the other, at the same moment too, within a time of the first one, which may be
        reached again. None where the engine has no such aggregate.
        """
        ...

    def integer_division(self, dividend: str, divisor: int) -> str:
        """Return the quotient rounded down; the dividend is not negative."""
        ...

    def sum_numbers(self, value: str) -> str:
        """Return aggregate: a sum of float64 values that loses as little as the engine allows."""
        ...

    def quantile(self, value: str, level: float) -> str:
        """Return aggregate: the quantile of float64 values, interpolated between the two nearest ones.

        NULL without any.
        """
        ...

    def bound(self, values: Sequence[str], body: Callable[..., str]) -> str:
        """Return SQL of ``body`` for the names of some values, each of which is written and computed once.

        ``body`` may write a name several times, and reads nothing else of the row.
        """
        ...

    def number_of_truth(self, truth: str) -> str:
        """Return a truth value as 1 or 0 in float64; NULL stays."""
        ...

    def text_of_truth(self, truth: str) -> str:
        """Return a truth value as the text ``true`` or ``false``; NULL stays."""
        ...

    def text_of_number(self, number: str) -> str:
        """Return the shortest text of a float64, of a whole one without a point."""
        ...

    def text_of_moment(self, micros: str) -> str:
        """Return microseconds since the epoch as ISO 8601 in UTC, with six digits after the second."""
        ...

    def different_texts(self, text: str) -> str:
        """Return aggregate: a list of the different texts that are there and not empty, in any order."""
        ...

    def any_item(self, items: str, name: str, condition: str) -> str:
        """Return whether a condition, never NULL, holds for ``name`` being any item of a list.

        May be NULL without a list.
        """
        ...

    def scattered(self, text: str) -> str:
        """Return a number for each text, without any order but always the same."""
        ...

    def nth_smallest(self, values: Sequence[str], position: int) -> str:
        """Return the value at ``position`` (from 1) of the ascending values that are not NULL; NULL past the end."""
        ...

    def month_later(self, micros: str, months: int) -> str:
        """Return the moment some calendar months later at the same time of day, in microseconds since the epoch."""
        ...
