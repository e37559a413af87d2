"""Queries as text: the printed form of the objects of SQL nodes.  spec: hog-language 8.9.

The text is the official machine's: it lacks the clauses that the machine does not print (`with`, `array join`,
`limit by`, all but the first query of a union), and some kinds of nodes are refused.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.patterns import anchored
from hoglab.hog.rt.values import HogTuple, Value, too_deep

AST_KEY: Final = "__hx_ast"

_NAME = anchored(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
_OPERATORS: Final = {
    "==": "equals", "!=": "notEquals", "<": "less", "<=": "lessOrEquals", ">": "greater",
    ">=": "greaterOrEquals", "in": "in", "not in": "notIn", "like": "like", "not like": "notLike",
    "ilike": "ilike", "not ilike": "notILike", "+": "plus", "-": "minus", "*": "multiply", "/": "divide",
    "%": "modulo",
}  # fmt: skip


def is_node(value: Value) -> bool:
    """Return whether the object stands for an SQL node."""
    kind = value.get(AST_KEY)
    return kind is not None and kind is not False and kind != 0 and kind != ""


class Visited(Protocol):
    """The extent of the printing that the query is a part of."""

    def enter(self, container: Value, parts: int, depth: int) -> bool:
        """Open a container; return False for a cycle."""

    def leave(self, container: Value) -> None:
        """End a container."""

    def add_text(self, length: int) -> None:
        """Account for text about to be added."""


def query_text(
    node: dict[object, Value], visited: Visited, depth: int, value_text: Callable[[Value], str]
) -> str:
    """Print a node, without the `sql(...)` around it.

    `value_text` prints the values in it that are no nodes. Raises `HogRuntimeError` for nodes without a text.
    """
    return _Writer(visited, depth, value_text).written(node)


class _Writer:
    def __init__(self, visited: Visited, depth: int, value_text: Callable[[Value], str]) -> None:
        self.visited = visited
        self.depth = depth
        self.value_text = value_text

    def node(self, value: Value) -> str:
        """Print a node, or a value in the place of one."""
        if value.__class__ is not dict:
            return "" if value is None else self.value_text(value)
        if not is_node(value):
            raise HogRuntimeError("Node type is missing or undefined.")
        self.depth += 1
        if not self.visited.enter(value, len(value), self.depth):
            raise too_deep()
        text = self.written(value)
        self.visited.leave(value)
        self.depth -= 1
        return f"({text})" if value[AST_KEY] in ("SelectQuery", "SelectSetQuery") else text

    def written(self, node: dict[object, Value]) -> str:
        kind = node[AST_KEY]
        write = _WRITERS.get(kind) if kind.__class__ is str else None
        if write is None:
            shown = kind if kind.__class__ is str else self.value_text(kind)
            raise HogRuntimeError(f"Unknown AST node type: {shown}")
        text = write(self, node)
        self.visited.add_text(len(text))
        return text

    def nodes(self, owner: dict[object, Value], field: str) -> str:
        return ", ".join(map(self.node, _items(owner, field)))

    # --- expressions

    def constant(self, node: dict[object, Value]) -> str:
        value = node.get("value")
        return "null" if value is None else self.value_text(value)

    def field(self, node: dict[object, Value]) -> str:
        chain = _items(node, "chain")
        if chain == ["*"]:
            return "*"
        return ".".join(
            identifier(part) if part.__class__ is str else self.value_text(part) for part in chain
        )

    def alias(self, node: dict[object, Value]) -> str:
        return f"{self.node(node.get('expr'))} AS {identifier(_text(node, 'alias'))}"

    def compare(self, node: dict[object, Value]) -> str:
        op, left, right = _text(node, "op"), self.node(node.get("left")), self.node(node.get("right"))
        if "~" in op:
            pattern = f"concat('(?i)', {right})" if op.endswith("*") else right
            text = f"match({left}, {pattern})"
            return f"not({text})" if op.startswith("!") else text
        return f"{_OPERATORS.get(op, op)}({left}, {right})"

    def all_of(self, node: dict[object, Value]) -> str:
        exprs = self.nodes(node, "exprs")
        return f"and({exprs})" if exprs else ""

    def any_of(self, node: dict[object, Value]) -> str:
        exprs = self.nodes(node, "exprs")
        return f"or({exprs})" if exprs else ""

    def negation(self, node: dict[object, Value]) -> str:
        return f"not({self.node(node.get('expr'))})"

    def call(self, node: dict[object, Value]) -> str:
        return f"{_text(node, 'name')}({self.nodes(node, 'args')})"

    def lambda_(self, node: dict[object, Value]) -> str:
        names = [identifier(str(name)) for name in _items(node, "args")]
        if not names:
            raise HogRuntimeError("Lambdas require at least one argument")
        params = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return f"{params} -> {self.node(node.get('expr'))}"

    def array(self, node: dict[object, Value]) -> str:
        return f"[{self.nodes(node, 'exprs')}]"

    def tuple(self, node: dict[object, Value]) -> str:
        return f"tuple({self.nodes(node, 'exprs')})"

    def tag(self, node: dict[object, Value]) -> str:
        parts = [f"<{_text(node, 'kind')}"]
        for attribute in _items(node, "attributes"):
            value = attribute.get("value")
            text = self.value_text(value) if value.__class__ in (list, HogTuple) else self.node(value)
            parts.append(f"{_text(attribute, 'name')}={{{text}}}")
        return " ".join([*parts, "/>"])

    # --- queries

    def select(self, node: dict[object, Value]) -> str:
        parts = [f"SELECT {'DISTINCT ' if node.get('distinct') else ''}{self.nodes(node, 'select')}"]
        for field, words in (("select_from", "FROM"), ("prewhere", "PREWHERE"), ("where", "WHERE")):
            if node.get(field) is not None:
                parts.append(f"{words} {self.node(node[field])}")
        if node.get("group_by"):
            parts.append(f"GROUP BY {self.nodes(node, 'group_by')}")
        if node.get("having") is not None:
            parts.append(f"HAVING {self.node(node['having'])}")
        if node.get("order_by"):
            parts.append(f"ORDER BY {self.nodes(node, 'order_by')}")
        if node.get("limit") is not None:
            parts.append(f"LIMIT {self.node(node['limit'])}")
            if node.get("limit_with_ties"):
                parts.append("WITH TIES")
            if node.get("offset") is not None:
                parts.append(f"OFFSET {self.node(node['offset'])}")
        windows = node.get("window_exprs")
        if windows.__class__ is dict and windows:
            named = [f"{identifier(str(name))} AS ({self.node(window)})" for name, window in windows.items()]
            parts.append(f"WINDOW {', '.join(named)}")
        return " ".join(parts)

    def select_set(self, node: dict[object, Value]) -> str:
        return self.node(node.get("initial_select_query"))

    def join(self, node: dict[object, Value]) -> str:
        parts = [_text(node, "join_type")] if node.get("join_type") is not None else []
        parts.append(self.node(node.get("table")))
        if node.get("alias") is not None:
            parts.append(f"AS {identifier(_text(node, 'alias'))}")
        constraint = node.get("constraint")
        if constraint.__class__ is dict:
            parts.append(f"{_text(constraint, 'constraint_type')} {self.node(constraint)}")
        if node.get("next_join") is not None:
            parts.append(self.node(node["next_join"]))
        return " ".join(parts)

    def constraint(self, node: dict[object, Value]) -> str:
        return self.node(node.get("expr"))

    def order(self, node: dict[object, Value]) -> str:
        return f"{self.node(node.get('expr'))} {_text(node, 'order')}"

    def window_function(self, node: dict[object, Value]) -> str:
        args = f"({self.nodes(node, 'args')})" if node.get("args") else ""
        if node.get("over_identifier") is not None:
            over = identifier(_text(node, "over_identifier"))
        else:
            over = f"({self.node(node.get('over_expr'))})"
        return f"{_text(node, 'name')}({self.nodes(node, 'exprs')}){args} OVER {over}"

    def window(self, node: dict[object, Value]) -> str:
        parts = []
        if node.get("partition_by"):
            parts.append(f"PARTITION BY {self.nodes(node, 'partition_by')}")
        if node.get("order_by"):
            parts.append(f"ORDER BY {self.nodes(node, 'order_by')}")
        if node.get("frame_method") is not None:
            first, last = self.node(node.get("frame_start")), node.get("frame_end")
            bounds = first if last is None else f"BETWEEN {first} AND {self.node(last)}"
            parts.append(f"{_text(node, 'frame_method')} {bounds}")
        return " ".join(parts)

    def frame(self, node: dict[object, Value]) -> str:
        value = node.get("frame_value")
        return f"{'UNBOUNDED' if value is None else self.value_text(value)} {_text(node, 'frame_type')}"


def identifier(name: str) -> str:
    """Write a name: in backticks unless it is a plain one."""
    if name == "*" or not _NAME.match(name):
        escaped = name.replace("\\", "\\\\").replace("`", "``")
        return f"`{escaped}`"
    return name


def _items(owner: dict[object, Value], field: str) -> list[Any]:
    value = owner.get(field)
    if value is None and field in ("args", "exprs"):
        return []
    if value.__class__ not in (list, HogTuple):
        raise HogRuntimeError(f"The SQL node {owner[AST_KEY]} has no list {field}")
    return value


def _text(owner: dict[object, Value], field: str) -> str:
    value = owner.get(field)
    if value.__class__ is not str:
        raise HogRuntimeError(f"An SQL node has no text {field}")
    return value


_WRITERS: Final[dict[str, Callable[[_Writer, dict[object, Value]], str]]] = {
    "Constant": _Writer.constant,
    "Field": _Writer.field,
    "Alias": _Writer.alias,
    "CompareOperation": _Writer.compare,
    "ArithmeticOperation": _Writer.compare,
    "And": _Writer.all_of,
    "Or": _Writer.any_of,
    "Not": _Writer.negation,
    "Call": _Writer.call,
    "Lambda": _Writer.lambda_,
    "Array": _Writer.array,
    "Tuple": _Writer.tuple,
    "HogQLXTag": _Writer.tag,
    "SelectQuery": _Writer.select,
    "SelectSetQuery": _Writer.select_set,
    "JoinExpr": _Writer.join,
    "JoinConstraint": _Writer.constraint,
    "OrderExpr": _Writer.order,
    "WindowFunction": _Writer.window_function,
    "WindowExpr": _Writer.window,
    "WindowFrameExpr": _Writer.frame,
}
