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
