"""Kinds of values: where a value is certainly of the wrong kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.compiler.optimise import UNKNOWN, Folder
from hoglab.hog.compiler.types import (
    ANY,
    ARRAY,
    BOOL,
    DICT,
    FLOAT,
    INT,
    NULL,
    NUMBER,
    OTHER,
    STR,
    kinds_of_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hoglab.hog.compiler.symbols import SymbolTable
    from hoglab.hog.compiler.types import InferredTypes
    from hoglab.hog.stdlib.registry import Function

_NAMES = {
    NULL: "null", BOOL: "a boolean", INT: "a number", FLOAT: "a number", STR: "a string", ARRAY: "an array",
    DICT: "an object",
}  # fmt: skip
_OPPOSITE = {"==": False, "!=": True}


def value_findings(
    tree: n.Node, names: SymbolTable, functions: Mapping[str, Function], kinds: InferredTypes
) -> None:
    """Report calls, operands, loops and comparisons that cannot work as written."""
    checks = _Values(names, functions, kinds)
    for node in n.walk(tree):
        check = _CHECKS.get(type(node))
        if check is not None:
            check(checks, node)


def filter_findings(tree: n.Expr, names: SymbolTable, kinds: InferredTypes) -> None:
    """Report a filter whose value is never the boolean true (spec: hog-runtime 2.3)."""
    kind = kinds.of(tree)
    if not kind & BOOL:
        names.report(
            "warning", "filter-not-boolean", f"This filter never matches: it gives {_shown(kind)}, not a boolean",
            tree, "compare it with something: only the boolean true matches",
        )  # fmt: skip
    elif isinstance(tree, (n.Field, n.ArrayAccess, n.TupleAccess)) and tree not in names.uses:
        names.report(
            "warning", "filter-not-boolean", "This filter matches only where the property is the boolean true", tree,
            "write `... is not null` or compare it with something",
        )  # fmt: skip


def _shown(kinds: int) -> str:
    texts = list(dict.fromkeys(text for bit, text in _NAMES.items() if kinds & bit))
    return " or ".join(texts) if texts else "another kind of value"


class _Values:
    def __init__(self, names: SymbolTable, functions: Mapping[str, Function], kinds: InferredTypes) -> None:
        self.names = names
        self.functions = functions
        self.kinds = kinds
        self.folder = Folder()
        self.told = {(diagnostic.start, diagnostic.end) for diagnostic in names.diagnostics}

    def warn(self, code: str, message: str, node: n.Node, hint: str | None = None) -> None:
        self.names.report("warning", code, message, node, hint)

    def sure(self, node: n.Expr) -> int:
        """Return the certain kinds of a value, 0 where nothing is certain."""
        kind = self.kinds.of(node)
        return 0 if kind == ANY else kind

    def call(self, node: n.Call) -> None:
        symbol = self.names.uses.get(node)
        function = self.functions.get(node.name)
        if symbol is None and function is not None:
            self.arguments(node, function)
        if symbol is None or symbol.reassigned or symbol.opaque or node in self.names.empty_reads:
            return
        value = (
            symbol.function if symbol.function is not None else symbol.values[-1] if symbol.values else None
        )
        if isinstance(value, n.Function):
            self.too_many(node, len(value.params))
        elif isinstance(value, n.Lambda):
            self.too_many(node, len(value.args))
        elif isinstance(value, n.Expr):
            kind = self.sure(value)
            if kind and not kind & OTHER:
                self.warn("not-callable", f"`{node.name}` is {_shown(kind)} and cannot be called", node)

    def arguments(self, node: n.Call, function: Function) -> None:
        for at, arg in enumerate(node.args):
            param = function.params[min(at, len(function.params) - 1)] if function.params else None
            if param is None or (at >= len(function.params) and not param.variadic):
                return
            kind = self.sure(arg)
            takes = kinds_of_names(param.kinds) | NULL
            if takes & NUMBER:
                takes |= STR | BOOL  # read as numbers
            if kind and not kind & takes:
                wanted = " or ".join(param.kinds)
                text = f"`{function.name}` takes {wanted} as `{param.name}`, and this is {_shown(kind)}"
                self.warn("wrong-kind", text, arg)

    def too_many(self, node: n.Call, most: int) -> None:
        passed = len(node.args)
        if passed > most:
            text = f"Too many arguments. Passed {passed}, expected {most}"
            self.warn("too-many-arguments", text, node, "this call fails when it is reached")

    def arithmetic(self, node: n.ArithmeticOperation) -> None:
        for side in (node.left, node.right):
            kind = self.sure(side)
            if kind and not kind & ~DICT:
                self.warn("not-a-number", f"`{node.op}` with an object gives NaN", side)

    def loop(self, node: n.ForInStatement) -> None:
        kind = self.sure(node.expr)
        if kind and not kind & ~(BOOL | NUMBER | STR):
            hint = "go through `splitByString('', text)`" if kind == STR else None
            self.warn(
                "not-iterable", f"This loop never runs: it goes through {_shown(kind)}", node.expr, hint
            )

    def access(self, node: n.ArrayAccess | n.TupleAccess) -> None:
        kind = self.sure(node.array if isinstance(node, n.ArrayAccess) else node.tuple)
        if kind and not kind & ~(BOOL | NUMBER):
            self.warn("no-property", f"This is always null: {_shown(kind)} has no properties", node)

    def comparison(self, node: n.CompareOperation) -> None:
        value = self.folder.value(node)
        if value is not UNKNOWN:
            self.constant(node, value=bool(value))
        elif node.op in _OPPOSITE:
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if self.never_equal(side, other):
                    self.constant(node, value=_OPPOSITE[node.op])
                    return

    def constant(self, node: n.CompareOperation, *, value: bool) -> None:
        if (node.start, node.end) in self.told:
            return
        self.warn("constant-comparison", f"This comparison is always {'true' if value else 'false'}", node)

    def never_equal(self, side: n.Expr, other: n.Expr) -> bool:
        """Return whether a value cannot equal the other one: new objects equal nothing, null only null."""
        if isinstance(side, n.Dict):
            return True
        if isinstance(side, n.Constant) and side.value is None:
            kind = self.sure(other)
            return bool(kind) and not kind & (NULL | OTHER)
        return False


_CHECKS: dict[type[n.Node], Callable[..., None]] = {
    n.Call: _Values.call,
    n.ArithmeticOperation: _Values.arithmetic,
    n.ForInStatement: _Values.loop,
    n.ArrayAccess: _Values.access,
    n.TupleAccess: _Values.access,
    n.CompareOperation: _Values.comparison,
}
