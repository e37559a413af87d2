"""Expressions of a query as SQL: over a row of events, and over the groups of a query.

Everything that reads an event is a column of the inner query; aggregates, groups and the order are over these columns.
So an expression is written once, and every engine takes it for the same in SELECT and in GROUP BY.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, ClassVar

from hoglab.analysis.query.days import DAY_US, OffsetStep, micros, zone_offsets
from hoglab.analysis.query.event_relation import RelationRow
from hoglab.analysis.query.expressions import ExpressionKind, Sql, Translation
from hoglab.analysis.query.model import chain_of
from hoglab.analysis.query.scope import local_time
from hoglab.filters.dates import parse_filter_date
from hoglab.filters.sql import Parameters
from hoglab.hog import nodes
from hoglab.storage.event_store.dialects import Dialect

TEXT, NUMBER, TRUTH = ExpressionKind.TEXT, ExpressionKind.NUMBER, ExpressionKind.TRUTH
MOMENT, LOCAL, DAY = ExpressionKind.MOMENT, ExpressionKind.LOCAL, ExpressionKind.DAY

FIRST_YEAR = 2000
"""Year from whose beginning on changes of the clocks are known; before, the offset of that time is taken."""
MAX_ITEMS = 200
"""Maximum number of items of a list after IN."""
EVENTS_EXAMPLE = (
    "event, distinct_id, person_id, timestamp, uuid, elements_chain, properties.x and person.properties.x"
)

_TIMES = frozenset({MOMENT, LOCAL, DAY})
_MINUTE_US, _HOUR_US = 60_000_000, 3_600_000_000
_INTERVALS = {
    "tointervalsecond": timedelta(seconds=1),
    "tointervalminute": timedelta(minutes=1),
    "tointervalhour": timedelta(hours=1),
    "tointervalday": timedelta(days=1),
    "tointervalweek": timedelta(weeks=1),
}
_MONTHS = {"tointervalmonth": 1, "tointervalquarter": 3, "tointervalyear": 12}
_ORDERS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_READERS = {"jsonextractstring": TEXT, "jsonextractfloat": NUMBER, "jsonextractint": NUMBER}
_AGGREGATES = frozenset({"count", "sum", "avg", "min", "max", "uniq", "uniqexact", "quantile", "median"})

Time = datetime | date
"""A moment or a day that is known before the query runs."""


@dataclass(frozen=True)
class QueryScope:
    """The surroundings of one query: engine, parameters, time and zone of the project."""

    dialect: Dialect
    now: datetime
    zone: tzinfo
    values: Mapping[str, Any]
    parameters: Parameters
    row: RelationRow

    @classmethod
    def of(cls, dialect: Dialect, now: datetime, zone: tzinfo, values: Mapping[str, Any]) -> QueryScope:
        """Return the scope of a query that is begun."""
        parameters = dialect.parameters()
        return cls(dialect, now, zone, values, parameters, RelationRow(dialect, parameters))

    def bind(self, value: str | float | datetime) -> str:
        """Return a reference to a value; halves of surrogate pairs, which no engine stores, become question marks."""
        if isinstance(value, str):
            value = value.encode(errors="replace").decode()
        return self.parameters.bind(value)

    def group_place(self, chain: Sequence[str]) -> tuple[str, str] | None:  # noqa: ARG002 - of the protocol
        """Return None: queries do not read the properties of groups."""
        return None

    @cached_property
    def offsets(self) -> list[OffsetStep]:
        """Offsets of the zone."""
        begin = datetime(FIRST_YEAR, 1, 1, tzinfo=self.zone)
        return zone_offsets(begin, self.now + timedelta(days=366), self.zone)

    def local(self, moment: str) -> str:
        """Return microseconds of local time of a moment in microseconds."""
        return local_time(moment, self.offsets)


def is_aggregate(node: nodes.Node) -> bool:
    """Return whether a node is the call of an aggregate."""
    return isinstance(node, nodes.Call) and node.name.lower().removesuffix("if") in _AGGREGATES


def has_aggregate(node: nodes.Node) -> bool:
    """Return whether an expression has an aggregate in it."""
    return any(is_aggregate(part) for part in nodes.walk(node))


@dataclass(frozen=True, slots=True)
class RowTranslation(Translation):
    """The translation of an expression over a row of events."""

    language: ClassVar[str] = "queries"

    query: QueryScope
    table: str
    aliases: Mapping[str, nodes.Expr]

    def translated(self, node: nodes.Expr) -> Sql:
        match node:
            case nodes.Placeholder():
                return self.constant(self._filled(node))
            case nodes.Alias(expr=inner):
                return self.translated(inner)
        moment = self._time(node)
        if moment is not None:
            return self._of_time(moment)
        if is_aggregate(node):
            raise self.refused(node, "an aggregate cannot be used here")
        return Translation.translated(self, node)

    def number(self, node: nodes.Expr) -> Sql:
        if self._alias(node) is not None:
            return self.as_number(self.translated(node))
        return Translation.number(self, node)

    # -- names

    def _chain(self, node: nodes.Expr) -> tuple[str, ...] | None:
        """Return the names by which an expression reads an event, without that of the table."""
        chain = chain_of(node)
        return chain[1:] if chain is not None and len(chain) > 1 and chain[0] == self.table else chain

    def _alias(self, node: nodes.Expr) -> nodes.Expr | None:
        chain = chain_of(node)
        return None if chain is None or len(chain) != 1 else self.aliases.get(chain[0])

    def _without(self, name: str) -> Mapping[str, nodes.Expr]:
        return {alias: expression for alias, expression in self.aliases.items() if alias != name}

    def _counted(self, sql: Sql) -> Sql:
        """Return what an alias stands for, which may be written many times, and counts each time."""
        self.scope.parameters.written(sql.text, self.place)
        return sql

    def event_value(self, node: nodes.Expr, chain: tuple[str, ...]) -> Sql:
        chain = self._chain(node) or chain
        row, dialect = self.query.row, self.query.dialect
        match chain:
            case ("timestamp",):
                return Sql(dialect.micros(row.column("timestamp")), MOMENT, plain=True)
            case ("created_at",):
                return Sql(dialect.micros(row.column("captured_at")), MOMENT, plain=True)
            case ("event" | "distinct_id" | "elements_chain" as name,):
                return Sql(row.column(name), TEXT, plain=True)
            case ("uuid" | "person_id" as name,):
                return Sql(f"CAST({row.column(name)} AS VARCHAR)", TEXT, plain=True)
            case ("person", "id"):
                return Sql(f"CAST({row.column('person_id')} AS VARCHAR)", TEXT, plain=True)
            case ("properties",):
                return Sql(row.column("whole_properties"), TEXT, plain=True)
            case ("person", "properties"):
                return Sql(row.column("person_properties"), TEXT, plain=True)
            case ("$session_id" as key,):
                return Sql(row.text("properties", key), TEXT, plain=True)
            case (name,) if name.startswith("$group_") and name[7:] in "01234":
                return Sql(f"CAST({row.column(name[1:])} AS VARCHAR)", TEXT, plain=True)
        place, meant = self.property_place(node), self._alias(node)
        if meant is not None:
            return self._counted(replace(self, aliases=self._without(chain[0])).translated(meant))
        if place is None:
            raise self.refused(node, f"{'.'.join(chain)} is not known: events have {EVENTS_EXAMPLE}")
        return Sql(row.text(*place), TEXT, plain=True)

    def property_place(self, node: nodes.Expr) -> tuple[str, str] | None:
        chain = self._chain(node)
        match chain:
            case ("properties", key):
                return "properties", key
            case ("person", "properties", key):
                return "person_properties", key
        return None

    # -- constants

    def _filled(self, node: nodes.Placeholder) -> nodes.Constant:
        """Return the value of a placeholder."""
        chain = chain_of(node.expr)
        name = "" if chain is None else ".".join(chain)
        if name not in self.query.values:
            raise self.refused(node, f"the placeholder {{{name}}} has no value in query.values")
        value = self.query.values[name]
        if value is not None and not isinstance(value, str | int | float | bool):
            raise self.refused(node, f"query.values.{name} must be a text, a number, true, false or null")
        return nodes.Constant(node.start, node.end, value)

    def _value(self, node: nodes.Expr) -> Any:
        """Return the value of a constant; an object that nothing equals for other expressions."""
        if isinstance(node, nodes.Placeholder):
            node = self._filled(node)
        return node.value if isinstance(node, nodes.Constant) else _NO_VALUE

    def _time(self, node: nodes.Expr) -> Time | None:
        """Return the moment or the day that an expression names without reading an event."""
        match node:
            case nodes.Call(name=name, args=()):
                today = self.query.now.astimezone(self.query.zone).date()
                times: dict[str, Time] = {
                    "now": self.query.now,
                    "today": today,
                    "yesterday": today - timedelta(days=1),
                }
                return times.get(name.lower())
            case nodes.Call(name=name, args=(only,)) if name.lower() in (
                "todatetime", "todate", "todatetime64", "parsedatetimebesteffort", "tostartofday",
            ):  # fmt: skip
                known = self._time(only) or self._time_of_text(only)
                if known is None or name.lower() not in ("todate", "tostartofday"):
                    return known
                day = self._day(known)
                return (
                    day
                    if name.lower() == "todate"
                    else datetime(day.year, day.month, day.day, tzinfo=self.query.zone)
                )
            case nodes.ArithmeticOperation(op="+" | "-" as op, left=left, right=nodes.Call() as right):
                base = self._time(left)
                return None if base is None else self._moved(base, right, 1 if op == "+" else -1)
        return None

    def _time_of_text(self, node: nodes.Expr) -> Time | None:
        text = self._value(node)
        if not isinstance(text, str):
            return None
        moment = parse_filter_date(text, self.query.now, self.query.zone)
        if moment is None:
            raise self.refused(node, f"{text!r} is no date and no date-time")
        return moment

    def _moved(self, base: Time, interval: nodes.Call, sign: int) -> Time:
        name = interval.name.lower()
        number = self._value(interval.args[0]) if len(interval.args) == 1 else None
        if type(number) is not int or not (name in _INTERVALS or name in _MONTHS):
            raise self.refused(interval, "only INTERVAL and a whole number can be added to a time")
        try:
            if name in _INTERVALS:
                if not isinstance(base, datetime) and _INTERVALS[name] < timedelta(days=1):
                    base = datetime(base.year, base.month, base.day, tzinfo=self.query.zone)
                return base + sign * number * _INTERVALS[name]
            months = base.year * 12 + base.month - 1 + sign * number * _MONTHS[name]
            year, month = divmod(months, 12)
            last = (date(year + (month + 1) // 12, (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
            return base.replace(year=year, month=month + 1, day=min(base.day, last))
        except (ValueError, OverflowError) as error:
            raise self.refused(interval, "the time is out of range") from error

    def _day(self, moment: Time) -> date:
        return moment.astimezone(self.query.zone).date() if isinstance(moment, datetime) else moment

    def _of_time(self, moment: Time) -> Sql:
        if isinstance(moment, datetime):
            return Sql(str(micros(moment)), MOMENT, plain=True)
        return Sql(str((moment - date(1970, 1, 1)).days), DAY, plain=True)

    # -- times of events

    def as_number(self, sql: Sql) -> Sql:
        match sql.kind:
            case ExpressionKind.MOMENT:
                return Sql(f"(CAST({sql.text} AS DOUBLE) / 1000000)", NUMBER)
            case ExpressionKind.LOCAL | ExpressionKind.DAY:
                return Sql(f"CAST({sql.text} AS DOUBLE)", NUMBER)
        return Translation.as_number(self, sql)

    def as_text(self, sql: Sql) -> Sql:
        text_of_moment = self.query.dialect.text_of_moment
        match sql.kind:
            case ExpressionKind.MOMENT | ExpressionKind.LOCAL:
                return Sql(text_of_moment(sql.text), TEXT)
            case ExpressionKind.DAY:
                return Sql(f"substr({text_of_moment(f'({sql.text} * {DAY_US})')}, 1, 10)", TEXT)
        return Translation.as_text(self, sql)

    def _local(self, node: nodes.Expr, sql: Sql) -> str:
        """Return microseconds of local time of a time, which ``node`` is."""
        match sql.kind:
            case ExpressionKind.MOMENT:
                return self.query.local(sql.text)
            case ExpressionKind.LOCAL:
                return sql.text
            case ExpressionKind.DAY:
                return f"({sql.text} * {DAY_US})"
        raise self.refused(node, "a time is needed here, such as timestamp")

    def comparison(self, node: nodes.CompareOperation) -> Sql:
        special = _COMPARED.get(node.op)
        if special is not None:
            compare, negated = special
            return compare(self, node, negated)
        raw = self.compared_timestamp(node)
        if raw is not None:
            return raw
        return Translation.comparison(self, node)

    def compared(self, node: nodes.CompareOperation, first: Sql, second: Sql) -> Sql:
        is_of_times = first.kind in _TIMES or second.kind in _TIMES
        if not is_of_times or any(self._value(side) is None for side in (node.left, node.right)):
            return Translation.compared(self, node, first, second)
        left, right = self._same_times(node, [first, second])
        return Sql(
            f"coalesce({left} {_ORDERS[node.op]} {right}, {'TRUE' if node.op == '!=' else 'FALSE'})", TRUTH
        )

    def compared_timestamp(self, node: nodes.CompareOperation) -> Sql | None:
        """Return a comparison of ``timestamp`` with a known moment over the column itself, which engines index."""
        for side, other, op in (
            (node.left, node.right, node.op),
            (node.right, node.left, _TURNED.get(node.op, node.op)),
        ):
            if self._chain(side) == ("timestamp",) and self._alias(side) is None and op in _ORDERS:
                moment = self._time(other) or self._time_of_text(other)
                if moment is None:
                    return None
                if not isinstance(moment, datetime):
                    moment = datetime(moment.year, moment.month, moment.day, tzinfo=self.query.zone)
                column = self.query.row.column("timestamp")
                return Sql(f"({column} {_ORDERS[op]} {self.query.bind(moment)})", TRUTH)
        return None

    def _same_times(self, node: nodes.CompareOperation, sides: list[Sql]) -> tuple[str, str]:
        """Return both sides of a comparison in the same unit."""
        kinds = {side.kind for side in sides if side.kind in _TIMES}
        unit = DAY if DAY in kinds else LOCAL if LOCAL in kinds else MOMENT
        texts = []
        for part, sql in zip((node.left, node.right), sides, strict=True):
            if sql.kind is TEXT and (known := self._time_of_text(part)) is not None:
                day = self._day(known)
                known_us = micros(known) if isinstance(known, datetime) else 0
                wanted = {
                    DAY: (day - date(1970, 1, 1)).days,
                    LOCAL: known_us + _offset_us(known, self.query.zone),
                    MOMENT: known_us,
                }
                texts.append(str(wanted[unit]))
            elif sql.kind not in _TIMES:
                raise self.refused(part, "a time can be compared with a time alone")
            elif sql.kind is unit:
                texts.append(sql.text)
            elif unit is LOCAL:
                texts.append(self._local(part, sql))
            else:
                texts.append(self.query.dialect.integer_division(self._local(part, sql), DAY_US))
        return texts[0], texts[1]

    # -- functions

    def call(self, node: nodes.Call) -> Sql:
        name, arguments = node.name.lower(), node.args
        if name in _READERS and len(arguments) == 2 and isinstance(key := self._value(arguments[1]), str):
            place = {"properties": "properties", "person.properties": "person_properties"}.get(
                ".".join(self._chain(arguments[0]) or ())
            )
            if place is None:
                raise self.refused(node, f"{node.name}() reads properties alone")
            if _READERS[name] is NUMBER:
                return Sql(self.query.row.number(place, key), NUMBER)
            return Sql(self.query.row.text(place, key), TEXT, plain=True)
        if name == "concat" and len(arguments) > 1:
            return Sql("(" + " || ".join(self.text(part).text for part in arguments) + ")", TEXT)
        special = _FUNCTIONS.get((name, len(arguments)))
        if special is not None and node.params is None and not node.distinct:
            return special(self, arguments)
        return Translation.call(self, node)

    def _local_of(self, arguments: tuple[nodes.Expr, ...]) -> str:
        return self._local(arguments[0], self.translated(arguments[0]))

    def _floored(self, arguments: tuple[nodes.Expr, ...], unit_us: int, kind: ExpressionKind) -> Sql:
        number = self.query.dialect.integer_division(self._local_of(arguments), unit_us)
        return Sql(number if kind is DAY else f"({number} * {unit_us})", kind)

    def to_date(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self._floored(arguments, DAY_US, DAY)

    def start_of_day(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self._floored(arguments, DAY_US, LOCAL)

    def start_of_hour(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self._floored(arguments, _HOUR_US, LOCAL)

    def start_of_minute(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return self._floored(arguments, _MINUTE_US, LOCAL)

    def start_of_week(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        """Return the Sunday at or before a time, as `toStartOfWeek` without a mode means it."""
        return Sql(self._bound(lambda day: f"({day} - ({day} + 4) % 7)", self.to_date(arguments)), DAY)

    def start_of_month(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(
            f"(substr({self.query.dialect.text_of_moment(self._local_of(arguments))}, 1, 7) || '-01')", TEXT
        )

    def hour(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        number = self.query.dialect.integer_division(self._local_of(arguments), _HOUR_US)
        return Sql(f"CAST({number} % 24 AS DOUBLE)", NUMBER)

    def day_of_week(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        """Return 1 for Monday to 7 for Sunday."""
        return Sql(f"CAST(({self.to_date(arguments).text} + 3) % 7 + 1 AS DOUBLE)", NUMBER)

    def same_time(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        sql = self.translated(arguments[0])
        if sql.kind not in _TIMES:
            raise self.refused(arguments[0], "a time is needed here, such as timestamp")
        return sql

    def upper(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"upper({self.text(arguments[0]).text})", TEXT)

    def is_null(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"({self.translated(arguments[0]).text} IS NULL)", TRUTH)

    def is_not_null(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"({self.translated(arguments[0]).text} IS NOT NULL)", TRUTH)

    def empty(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"(coalesce({self.text(arguments[0]).text}, '') = '')", TRUTH)

    def not_empty(self, arguments: tuple[nodes.Expr, ...]) -> Sql:
        return Sql(f"(coalesce({self.text(arguments[0]).text}, '') <> '')", TRUTH)

    # -- comparisons with words

    def like(self, node: nodes.CompareOperation, negated: bool) -> Sql:
        pattern = self._value(node.right)
        if not isinstance(pattern, str):
            raise self.refused(node.right, "the pattern must be a text")
        compare = self.query.dialect.contains if "ilike" in node.op else self.query.dialect.like
        condition = compare(self.text(node.left).text, self.query.bind(pattern))
        return Sql(f"({'NOT ' if negated else ''}coalesce({condition}, FALSE))", TRUTH)

    def one_of(self, node: nodes.CompareOperation, negated: bool) -> Sql:
        items = node.right.exprs if isinstance(node.right, nodes.Tuple | nodes.Array) else (node.right,)
        values = [self._value(item) for item in items]
        if not 0 < len(values) <= MAX_ITEMS or any(
            isinstance(value, bool) or not isinstance(value, str | int | float) for value in values
        ):
            raise self.refused(node.right, f"IN needs a list of 1 to {MAX_ITEMS} texts or numbers")
        if all(isinstance(value, str) for value in values):
            side, references = self.text(node.left).text, [self.query.bind(value) for value in values]
        elif any(isinstance(value, str) for value in values):
            raise self.refused(node.right, "the items of a list must be of one kind")
        else:
            side, references = (
                self.number(node.left).text,
                [self.query.bind(float(value)) for value in values],
            )
        condition = f"coalesce({side} IN ({', '.join(references)}), FALSE)"
        return Sql(f"({'NOT ' if negated else ''}{condition})", TRUTH)


_NO_VALUE = object()
_COMPARED: Mapping[str, tuple[Callable[[RowTranslation, nodes.CompareOperation, bool], Sql], bool]] = {
    "like": (RowTranslation.like, False),
    "ilike": (RowTranslation.like, False),
    "not like": (RowTranslation.like, True),
    "not ilike": (RowTranslation.like, True),
    "in": (RowTranslation.one_of, False),
    "not in": (RowTranslation.one_of, True),
}
_FUNCTIONS: Mapping[tuple[str, int], Callable[[RowTranslation, tuple[nodes.Expr, ...]], Sql]] = {
    ("todate", 1): RowTranslation.to_date,
    ("todatetime", 1): RowTranslation.same_time,
    ("tostartofday", 1): RowTranslation.start_of_day,
    ("tostartofhour", 1): RowTranslation.start_of_hour,
    ("tostartofminute", 1): RowTranslation.start_of_minute,
    ("tostartofweek", 1): RowTranslation.start_of_week,
    ("tostartofmonth", 1): RowTranslation.start_of_month,
    ("tohour", 1): RowTranslation.hour,
    ("todayofweek", 1): RowTranslation.day_of_week,
    ("upper", 1): RowTranslation.upper,
    ("isnull", 1): RowTranslation.is_null,
    ("isnotnull", 1): RowTranslation.is_not_null,
    ("empty", 1): RowTranslation.empty,
    ("notempty", 1): RowTranslation.not_empty,
}


def _offset_us(moment: Time, zone: tzinfo) -> int:
    offset = moment.astimezone(zone).utcoffset() if isinstance(moment, datetime) else None
    return 0 if offset is None else offset // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class GroupTranslation(RowTranslation):
    """The translation of an expression over the columns of the inner query, which it asks for as it needs them."""

    is_grouped: bool
    keys: Mapping[bytes, Sql]
    """Columns of the groups, by what they hold."""
    inner: dict[str, str] = field(default_factory=dict)
    """Names of the columns of the inner query, by their SQL."""

    def translated(self, node: nodes.Expr) -> Sql:
        if isinstance(node, nodes.Alias):
            return self.translated(node.expr)
        key = self.keys.get(same(node))
        if key is not None:
            return key
        meant, chain = self._alias(node), chain_of(node)
        if meant is not None and chain is not None:
            return self._counted(replace(self, aliases=self._without(chain[0])).translated(meant))
        if not self.is_grouped:
            return self.column(self.over_rows().translated(node))
        if isinstance(node, nodes.Call) and is_aggregate(node):
            return self._aggregate(node)
        if chain is not None:
            raise self.refused(node, f"{'.'.join(chain)} is neither in GROUP BY nor inside of an aggregate")
        return RowTranslation.translated(self, node)

    def number(self, node: nodes.Expr) -> Sql:
        return self.as_number(self.translated(node))

    def compared_timestamp(self, node: nodes.CompareOperation) -> Sql | None:  # noqa: ARG002 - as in rows
        return None

    def over_rows(self) -> RowTranslation:
        """Return the translation of the parts that read an event."""
        plain = {alias: part for alias, part in self.aliases.items() if not has_aggregate(part)}
        return RowTranslation(self.scope, self.place, None, self.query, self.table, plain)

    def column(self, sql: Sql) -> Sql:
        """Return the column of the inner query that holds an expression."""
        name = self.inner.setdefault(sql.text, f"c{len(self.inner)}")
        return Sql(name, sql.kind, plain=True)

    def _aggregate(self, node: nodes.Call) -> Sql:
        name = node.name.lower()
        plain, arguments = name.removesuffix("if"), node.args
        if node.filter_expr is not None or node.order_by is not None or node.within_group is not None:
            raise self.refused(node, f"{node.name}() with FILTER or an order cannot be used")
        if node.params is not None and plain != "quantile":
            raise self.refused(node, f"{node.name}() takes no parameters")
        condition = None
        if plain != name:
            *rest, last = arguments or (None,)
            if last is None:
                raise self.refused(node, f"{node.name}() needs a condition")
            condition, arguments = self.over_rows().truth(last).text, tuple(rest)
        if plain == "count" and (not arguments or chain_of(arguments[0]) == ("*",)):
            counted = (
                "count(*)" if condition is None else f"count({self._where(condition, Sql('1', NUMBER)).text})"
            )
            return Sql(f"CAST({counted} AS DOUBLE)", NUMBER)
        if len(arguments) != 1:
            raise self.refused(node, f"{node.name}() takes one value")
        needs_number = plain in ("sum", "avg", "quantile", "median")
        rows = self.over_rows()
        read = rows.number(arguments[0]) if needs_number else rows.translated(arguments[0])
        value = self.column(read) if condition is None else self._where(condition, read)
        if plain in ("uniq", "uniqexact") or (plain == "count" and node.distinct):
            return Sql(f"CAST(count(DISTINCT {value.text}) AS DOUBLE)", NUMBER)
        if node.distinct:
            raise self.refused(node, f"{node.name}() with DISTINCT cannot be used")
        match plain:
            case "count":
                return Sql(f"CAST(count({value.text}) AS DOUBLE)", NUMBER)
            case "sum":
                return Sql(f"coalesce({self.query.dialect.sum_numbers(value.text)}, 0)", NUMBER)
            case "avg":
                return Sql(f"avg({value.text})", NUMBER)
            case "min" | "max" if value.kind is not TRUTH:
                return Sql(f"{plain}({value.text})", value.kind)
            case "quantile" | "median":
                return Sql(self.query.dialect.quantile(value.text, self._level(node)), NUMBER)
        raise self.refused(node, f"{node.name}() cannot be used with a condition as its value")

    def _where(self, condition: str, value: Sql) -> Sql:
        """Return the column of a value where a condition holds."""
        return self.column(Sql(f"CASE WHEN {condition} THEN {value.text} END", value.kind))

    def _level(self, node: nodes.Call) -> float:
        level = self._value(node.params[0]) if node.params and len(node.params) == 1 else None
        if node.params is None:
            return 0.5
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0 <= level <= 1:
            raise self.refused(node, f"{node.name}() takes one level from 0 to 1")
        return float(level)


def same(node: nodes.Expr) -> bytes:
    """Return what is equal for expressions that mean the same."""
    # Not by orjson, which refuses whole numbers beyond 64 bits.
    return json.dumps(nodes.dump(node), sort_keys=True, default=str).encode()
