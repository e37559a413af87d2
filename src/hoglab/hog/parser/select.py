"""`select` queries inside expressions: `(select ...)`, `sql(select ...)`, and combinations of them.

The clauses of the official grammar, but for `pivot`, `unpivot`, `top` and `settings`, which are refused by name.
spec: hog-language 2.2, 6.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hoglab.hog.nodes import Alias, Constant, Expr, Field, OrderExpr, Tuple, WithFillExpr
from hoglab.hog.parser.expressions import ExpressionParser
from hoglab.hog.parser.precedence import SQL_WORDS
from hoglab.hog.parser.tags import tag
from hoglab.hog.sql_nodes import (
    CTE,
    GroupingSet,
    JoinConstraint,
    JoinExpr,
    LimitByExpr,
    NamedWindow,
    RatioExpr,
    SampleExpr,
    SelectQuery,
    SelectSetNode,
    SelectSetQuery,
    WindowExpr,
    WindowFrameExpr,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoglab.hog.errors import HogSyntaxError

T = TypeVar("T")

_SET_OPERATORS = ("union", "intersect", "except")
_SIDES = ("left", "right", "full")
_STRICT = ("all", "any", "asof", "semi", "anti")
_JOIN_WORDS = frozenset({*_SIDES, *_STRICT, "inner", "outer", "cross", "natural", "positional", "join"})
_REFUSED = frozenset({"settings", "pivot", "unpivot", "top"})


class SelectParser(ExpressionParser):
    """Parser of queries; the parenthesis around one belongs to the caller."""

    # --- whole queries

    def query(self) -> Expr:
        """Parse one query, or several combined."""
        self.enter()
        self.brackets += 1
        start = self.token.start
        query = self.combined(self.query_part(), start)
        self.brackets -= 1
        self.depth -= 1
        return query

    def combined(self, first: Expr, start_of_all: int) -> Expr:
        """Parse the queries that `union`, `intersect` or `except` combine with `first`; return `first` without any."""
        rest: list[SelectSetNode] = []
        while self.token.word in _SET_OPERATORS:
            self.count()
            start = self.token.start
            operator = self.set_operator()
            part = self.query_part()
            rest.append(SelectSetNode(start, self.last_end, part, operator))
        if not rest:
            return first
        return SelectSetQuery(start_of_all, self.last_end, first, tuple(rest))

    def set_operator(self) -> str:
        words = [self.advance().word.upper()]
        if self.token.word in ("all", "distinct"):
            words.append(self.advance().word.upper())
        elif words[0] == "UNION":
            words.append("DISTINCT")
        if self.at_word("by"):
            self.advance()
            self.expect_word("name", "after `by`")
            words.append("BY NAME")
        return " ".join(words)

    def query_part(self) -> Expr:
        if self.token.kind == "{":
            return self.brace()
        if self.accept("("):
            inner = self.query()
            self.expect(")", "after the query")
            return inner
        return self.select()

    def select(self) -> SelectQuery:
        """Parse `[with ...] select ...` with all its clauses, which have a fixed order."""
        self.count()
        start = self.token.start
        clauses: dict[str, Any] = {"ctes": self.with_clause() if self.at_word("with") else None}
        self.expect_word("select", "at the start of the query")
        if self.at_word("top") and self.peek().kind == "number":
            raise self.refused()
        if self.at_word("distinct") and self.peek().word != "from":
            self.advance()
            clauses["distinct"] = True
        clauses["select"] = self.columns()
        if self.accept_word("from"):
            clauses["select_from"] = self.joins()
            self.array_join(clauses)
        for word, field in (("prewhere", "prewhere"), ("where", "where")):
            if self.accept_word(word):
                clauses[field] = self.expression()
        self.group_by(clauses)
        for word in ("having", "qualify"):
            if self.accept_word(word):
                clauses[word] = self.expression()
        if self.at_word("window") and self.peek(2).word == "as":
            self.advance()
            clauses["window_exprs"] = self.separated(self.named_window)
        if self.at_words("order", "by"):
            clauses["order_by"] = self.order_by()
        self.limits(clauses)
        if self.token.word in _REFUSED:
            raise self.refused()
        return SelectQuery(start, self.last_end, **clauses)

    def columns(self) -> tuple[Expr, ...]:
        if self.at_word("from") and self.peek().kind in ("name", "quoted"):
            raise self.error("Expected the columns of the query, found `from`")
        columns = [self.column()]
        while self.accept(",") and not (self.at_word("from") or self.token.kind == ")"):
            columns.append(self.column())
        return tuple(columns)

    def column(self) -> Expr:
        column = self.expression()
        alias = self.implicit_alias()
        return column if alias is None else Alias(column.start, self.last_end, alias, column)

    def implicit_alias(self) -> str | None:
        token = self.token
        if token.kind == "quoted" or (token.kind == "name" and token.word not in SQL_WORDS):
            self.advance()
            return str(token.value)
        return None

    # --- with

    def with_clause(self) -> tuple[CTE, ...]:
        self.advance()
        recursive = self.at_word("recursive") and self.peek().kind != "("
        if recursive:
            self.advance()
        entries = [self.cte(recursive)]
        while self.accept(","):
            entries.append(self.cte(recursive))
        return tuple(entries)

    def cte(self, recursive: bool) -> CTE:
        self.count()
        start = self.token.start
        if not self.names_a_query():
            entry = self.expression()
            if not isinstance(entry, Alias):
                raise self.error(f"Expected `as` and a name in `with`, found {self.shown()}")
            return CTE(start, entry.end, entry.alias, entry.expr, "column", recursive)
        name = self.name("the name of the query")
        columns = self.name_list() if self.token.kind == "(" else None
        self.expect_word("as", "after the name of the query")
        materialized: bool | None = None
        if self.token.word in ("not", "materialized"):
            materialized = not self.accept_word("not")
            self.expect_word("materialized", "after `as`")
        self.expect("(", "before the query")
        query = self.query()
        end = self.expect(")", "after the query").end
        return CTE(start, end, name, query, "subquery", recursive, materialized, columns)

    def names_a_query(self) -> bool:
        """Return whether `name as (` or `name (columns) as (` follows."""
        at, tokens = self.at, self.tokens
        if tokens[at].kind not in ("name", "quoted"):
            return False
        at += 1
        if tokens[at].kind == "(":
            while tokens[at].kind in ("(", ",", "name", "quoted"):
                at += 1
            at += tokens[at].kind == ")"
        if tokens[at].word != "as":
            return False
        return tokens[at + 1].kind == "(" or tokens[at + 1].word in ("not", "materialized")

    def name_list(self) -> tuple[str, ...]:
        self.expect("(", "before the names of columns")
        names = self.separated(lambda: self.name("the name of a column"))
        self.expect(")", "after the names of columns")
        return names

    # --- from

    def joins(self) -> JoinExpr:
        """Parse the tables of a `from` clause, the first of them holding the rest."""
        return self.linked(self.join_chain())

    def linked(self, chain: list[dict[str, Any]]) -> JoinExpr:
        following: JoinExpr | None = None
        for part in reversed(chain):
            following = JoinExpr(next_join=following, **part)
        assert following is not None  # noqa: S101 - a chain has a table
        return following

    def join_chain(self) -> list[dict[str, Any]]:
        self.enter()
        chain = self.table()
        while True:
            if self.token.kind == ",":
                self.advance()
                operator: str | None = "CROSS JOIN"
            else:
                operator = self.join_operator()
            if operator is None:
                self.depth -= 1
                return chain
            self.count()
            joined = self.table()
            joined[0]["join_type"] = operator
            if operator != "CROSS JOIN":
                joined[0]["constraint"] = self.constraint()
            chain += joined

    def join_operator(self) -> str | None:
        """Parse the words before a joined table, in their official form; return None when no join follows."""
        if self.token.word not in _JOIN_WORDS or self.token.kind != "name" or self.array_join_follows():
            return None
        words: list[str] = []
        while self.token.word != "join":
            if self.token.word not in _JOIN_WORDS:
                raise self.error(f"Expected `join`, found {self.shown()}")
            words.append(self.advance().word)
        self.advance()
        if "cross" in words:
            return "CROSS JOIN"
        side = [word for word in words if word in _SIDES]
        strict = [word for word in words if word in _STRICT]
        if side:
            parts = [*side, *(["outer"] if "outer" in words else []), *strict]
        elif strict and strict[0] in ("semi", "anti"):
            parts = strict
        elif strict or "inner" in words:
            parts = [*strict, "inner"]
        else:
            parts = ["positional"] if "positional" in words else []
        return " ".join([*parts, "join"]).upper()

    def constraint(self) -> JoinConstraint | None:
        start = self.token.start
        if self.accept_word("on"):
            condition = self.expression()
            if self.token.kind == ",":
                raise self.error(
                    "`on` takes one condition", code="unsupported", hint="join conditions with `and`"
                )
            return JoinConstraint(start, condition.end, condition, "ON")
        if not self.accept_word("using"):
            return None
        bracketed = self.accept("(")
        columns = self.separated(self.expression)
        if bracketed:
            self.expect(")", "after the columns of `using`")
        expr = columns[0] if len(columns) == 1 else Tuple(columns[0].start, columns[-1].end, columns)
        return JoinConstraint(start, self.last_end, expr, "USING")

    def table(self) -> list[dict[str, Any]]:
        """Parse one table with its alias, or a chain of joins in parentheses."""
        token = self.token
        self.count()
        args: tuple[Expr, ...] | None = None
        if token.kind == "(":
            self.advance()
            if self.starts_select():
                table = self.query()
            else:
                chain = self.join_chain()
                lone = chain[0]["table"]
                if len(chain) > 1 or self.token.word not in _SET_OPERATORS:
                    self.expect(")", "after the tables")
                    return chain
                table = self.combined(lone, lone.start)
            self.expect(")", "after the query")
        elif token.kind == "{":
            table = self.brace()
        elif token.kind == "tag":
            table = tag(self)
        else:
            chain_of_names = [self.name("the name of a table")]
            while self.accept("."):
                chain_of_names.append(self.name("the name of a table"))
            table = Field(token.start, self.last_end, tuple(chain_of_names))
            if self.accept("("):
                args = self.arguments().args
        part: dict[str, Any] = {"join_type": None, "table": table, "table_args": args}
        self.table_suffix(part)
        return [{"start": token.start, "end": self.last_end, **part}]

    def table_suffix(self, part: dict[str, Any]) -> None:
        """Parse the alias, `final` and `sample` of a table."""
        alias = self.name("the alias") if self.accept_word("as") else self.implicit_alias()
        part["alias"] = alias
        if alias is not None and self.token.kind == "(":
            part["column_aliases"] = self.name_list()
        if self.accept_word("final"):
            part["table_final"] = True
        if self.at_word("sample"):
            start = self.advance().start
            value: RatioExpr | Expr = self.brace() if self.token.kind == "{" else self.ratio()
            offset = self.ratio() if self.accept_word("offset") else None
            part["sample"] = SampleExpr(start, self.last_end, value, offset)

    def ratio(self) -> RatioExpr:
        start = self.token.start
        left = self.number(start, 1)
        right = self.number(self.token.start, 1) if self.accept("/") else None
        return RatioExpr(start, self.last_end, left, right)

    def array_join_follows(self) -> bool:
        words = (self.token.word, self.peek().word, self.peek(2).word)
        return words[:2] == ("array", "join") or (
            words[0] in ("left", "inner") and words[1:] == ("array", "join")
        )

    def array_join(self, clauses: dict[str, Any]) -> None:
        if not self.array_join_follows():
            return
        words: list[str] = []
        while not words or words[-1] != "JOIN":
            words.append(self.advance().word.upper())
        clauses["array_join_op"] = " ".join(words)
        clauses["array_join_list"] = arrays = self.separated(self.column)
        for array in arrays:
            if not isinstance(array, Alias):
                raise self.error("ARRAY JOIN arrays must have an alias")

    # --- group by, window, order by, limit

    def group_by(self, clauses: dict[str, Any]) -> None:
        if not self.at_words("group", "by"):
            return
        self.advance()
        self.advance()
        word, following = self.token.word, self.peek()
        if word == "all" and following.kind not in (",", "(", "."):
            self.advance()
            clauses["group_by"], clauses["group_by_mode"] = (), "all"
        elif word in ("rollup", "cube") and following.kind == "(":
            self.advance()
            self.advance()
            clauses["group_by"], clauses["group_by_mode"] = (
                self.arguments().args,
                word,
            )
        elif word == "grouping" and following.word == "sets":
            self.advance()
            self.advance()
            self.expect("(", "before the grouping sets")
            clauses["group_by"], clauses["group_by_mode"] = self.separated(self.grouping_set), "grouping_sets"
            self.expect(")", "after the grouping sets")
        else:
            columns = [self.expression()]
            while self.accept(",") and self.token.kind != ")" and self.token.word not in SQL_WORDS:
                columns.append(self.expression())
            clauses["group_by"] = tuple(columns)
        while self.at_word("with") and self.peek().word in ("rollup", "cube", "totals"):
            self.advance()  # the official tree does not have these either
            self.advance()

    def grouping_set(self) -> GroupingSet:
        start = self.expect("(", "before a grouping set").start
        exprs = self.arguments().args
        return GroupingSet(start, self.last_end, exprs)

    def named_window(self) -> NamedWindow:
        start = self.token.start
        name = self.name("the name of the window")
        self.expect_word("as", "after the name of the window")
        window = self.window()
        return NamedWindow(start, self.last_end, name, window)

    def window(self) -> WindowExpr:
        """Parse the parenthesised description of a window."""
        start = self.expect("(", "before the window").start
        partition_by = order_by = method = first = last = None
        if self.at_words("partition", "by"):
            self.advance()
            self.advance()
            partition_by = self.separated(self.expression)
        if self.at_words("order", "by"):
            order_by = self.order_by()
        if self.token.word in ("rows", "range"):
            method = self.advance().word.upper()
            if self.accept_word("between"):
                first = self.frame_bound()
                self.expect_word("and", "between the bounds of the window")
                last = self.frame_bound()
            else:
                first = self.frame_bound()
        end = self.expect(")", "after the window").end
        return WindowExpr(start, end, partition_by, order_by, method, first, last)

    def frame_bound(self) -> WindowFrameExpr:
        start = self.token.start
        if self.accept_word("current"):
            self.expect_word("row", "after `current`")
            return WindowFrameExpr(start, self.last_end, "CURRENT ROW")
        value: int | None = None
        if not self.accept_word("unbounded"):
            count = self.expect("number", "as the bound of the window").value
            if not isinstance(count, int):
                raise self.error("Expected a whole number as the bound of the window")
            value = count
        if self.token.word not in ("preceding", "following"):
            raise self.error(f"Expected `preceding` or `following`, found {self.shown()}")
        return WindowFrameExpr(start, self.token.end, self.advance().word.upper(), value)

    def order_by(self) -> tuple[OrderExpr, ...]:
        self.advance()
        self.advance()
        return self.separated(self.order_part)

    def order_part(self) -> OrderExpr:
        start = self.token.start
        expr = self.expression()
        descends = self.token.word in ("desc", "descending")
        if descends or self.token.word in ("asc", "ascending"):
            self.advance()
        if self.at_word("nulls") and self.peek().word in ("first", "last"):
            self.advance()
            self.advance()
        if self.accept_word("collate"):
            self.expect("string", "after `collate`")
        fill = self.with_fill() if self.at_words("with", "fill") else None
        return OrderExpr(start, self.last_end, expr, "DESC" if descends else "ASC", fill)

    def with_fill(self) -> WithFillExpr:
        start = self.advance().start
        self.advance()
        parts = [self.expression() if self.accept_word(word) else None for word in ("from", "to", "step")]
        return WithFillExpr(start, self.last_end, *parts)

    def limits(self, clauses: dict[str, Any]) -> None:
        """Parse `limit ... by ...`, `limit`, `offset`, in the order of the grammar."""
        if self.at_word("limit"):
            start = self.advance().start
            n, offset = self.limit_values(clauses)
            if self.accept_word("by"):
                if isinstance(offset, tuple):  # `limit offset, n by`: here the first number is the offset
                    n, offset = offset[0], n
                exprs = self.separated(self.expression)
                clauses["limit_by"] = LimitByExpr(start, self.last_end, n, exprs, offset)
                if not self.accept_word("limit"):
                    return
                n, offset = self.limit_values(clauses)
            clauses["limit"] = n
            clauses["offset"] = offset[0] if isinstance(offset, tuple) else offset
            if self.at_words("with", "ties"):
                self.advance()
                self.advance()
                clauses["limit_with_ties"] = True
        if self.accept_word("offset"):
            clauses["offset"] = self.expression()

    def limit_values(self, clauses: dict[str, Any]) -> tuple[Expr, Any]:
        """Parse `n`, `n, m` (`m` in a tuple) or `n offset m`, and the rest of a percentage."""
        n = self.limit_number(clauses)
        if self.accept(","):
            return n, (self.expression(),)
        if self.at_word("offset"):
            self.advance()
            return n, self.expression()
        return n, None

    def limit_number(self, clauses: dict[str, Any]) -> Expr:
        if self.token.kind == "number" and self.peek().kind == "%":
            after = self.peek(2)
            if after.kind in (")", "eof") or after.word in SQL_WORDS:
                token = self.advance()
                self.advance()
                clauses["limit_percent"] = True
                value = token.value
                return Constant(token.start, token.end, value)
        return self.expression()

    # --- small parts

    def separated(self, part: Callable[[], T]) -> tuple[T, ...]:
        """Parse one or more parts with commas between them."""
        parts = [part()]
        while self.accept(","):
            parts.append(part())
        return tuple(parts)

    def at_words(self, first: str, second: str) -> bool:
        return self.at_word(first) and self.peek().word == second

    def refused(self) -> HogSyntaxError:
        return self.error(f"`{self.text(self.token)}` is not supported in queries", code="unsupported")
