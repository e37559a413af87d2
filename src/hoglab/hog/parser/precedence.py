"""The operators by precedence, and the tokens that can begin an operand."""

from __future__ import annotations

# Precedence levels, loosest first (spec: hog-language 2.1).
ALIAS, TERNARY, OR, AND, NOT, BETWEEN, NULLISH, IS_NULL, COMPARE, ADD, MULTIPLY, UNARY, POSTFIX = range(1, 14)

SYMBOLS = {
    "?": TERNARY, "??": NULLISH, "=": COMPARE, "==": COMPARE, "!=": COMPARE, "<>": COMPARE, "<": COMPARE,
    "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "~": COMPARE, "=~": COMPARE, "!~": COMPARE, "~*": COMPARE,
    "=~*": COMPARE, "!~*": COMPARE, "+": ADD, "-": ADD, "||": ADD, "*": MULTIPLY, "/": MULTIPLY,
    "%": MULTIPLY, ".": POSTFIX, "?.": POSTFIX, "[": POSTFIX, "(": POSTFIX, "::": POSTFIX,
}  # fmt: skip
WORDS = {
    "as": ALIAS, "or": OR, "and": AND, "is": IS_NULL, "in": COMPARE, "like": COMPARE, "ilike": COMPARE,
    "between": BETWEEN,
}  # fmt: skip
COMPARE_OPS = {"=": "==", "<>": "!=", "~": "=~", "~*": "=~*"}
NEGATABLE = {"in": COMPARE, "like": COMPARE, "ilike": COMPARE, "between": BETWEEN}

OPERAND_KINDS = frozenset(
    {"name", "quoted", "literal", "number", "string", "f'", "(", "[", "{", "-", "+", "*", ".", "#", "tag"}
)

SQL_WORDS = frozenset({
    "all", "and", "anti", "any", "array", "as", "ascending", "asof", "asc", "between", "both", "by",
    "case", "cast", "cohort", "collate", "columns", "cross", "cube", "current", "day", "desc",
    "descending", "distinct", "else", "end", "except", "exclude", "extract", "final", "fill", "filter",
    "following", "for", "from", "full", "group", "grouping", "having", "hour", "if", "ilike", "ignore",
    "include", "in", "inner", "interpolate", "interval", "intersect", "is", "join", "lambda", "last",
    "leading", "left", "like", "limit", "local", "minute", "month", "name", "natural", "not", "nulls",
    "offset", "on", "or", "order", "outer", "over", "partition", "pivot", "positional", "preceding",
    "prewhere", "qualify", "quarter", "range", "recursive", "replace", "return", "right", "rollup", "row",
    "rows", "sample", "second", "select", "semi", "sets", "settings", "step", "substring", "then", "ties",
    "time", "timestamp", "to", "top", "totals", "trailing", "trim", "truncate", "try_cast", "unbounded",
    "union", "unpivot", "using", "values", "week", "when", "where", "window", "with", "within", "year",
    "zone",
})  # fmt: skip
"""Words that cannot be an alias without `as` in a query; most of them are names everywhere else."""
