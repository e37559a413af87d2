"""JavaScript names for Hog's variables (spec: hog-language 11.1).

Hog and JavaScript disagree on the meaning of a name in three places: where a block reads an outer variable before it
declares its own of that name, where parameters and the body of a function share a name, and where a variable has
the name of a library function that the program uses. Only in these places a variable gets another name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.patterns import anchored, searched

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from hoglab.hog.compiler.symbols import Symbol, SymbolTable

PREFIX = "__x_"

RESERVED = frozenset(
    {
        "arguments", "await", "break", "case", "catch", "class", "const", "continue", "debugger",
        "default", "delete", "do", "else", "enum", "eval", "export", "extends", "false", "finally",
        "for", "function", "if", "implements", "import", "in", "instanceof", "interface", "let", "new",
        "null", "package", "private", "protected", "public", "return", "static", "super", "switch",
        "this", "throw", "true", "try", "typeof", "var", "void", "while", "with", "yield", "abstract",
        "boolean", "byte", "char", "double", "final", "float", "goto", "int", "long", "native", "short",
        "synchronized", "throws", "transient", "volatile", "Error", "__getGlobal",
    }
)  # fmt: skip
"""Names that variables in the JavaScript output may not have."""

BUILT_IN = frozenset(
    {
        "Array", "Date", "Infinity", "Intl", "JSON", "Math", "NaN", "Number", "Object", "RegExp",
        "String", "TextDecoder", "TextEncoder", "Uint8Array", "console", "crypto", "decodeURIComponent",
        "encodeURIComponent", "isNaN", "parseFloat", "parseInt", "undefined", "__error",
    }
)  # fmt: skip
"""Names that the library and the shapes of statements use; variables with these names are renamed."""

BETWEEN = frozenset({"expr", "low", "high"})
"""Names inside the code of a `between`."""

_PLAIN = anchored(r"[A-Za-z_][A-Za-z0-9_]*")
_FOREIGN = searched(r"[^A-Za-z0-9_]")


def identifier(name: str) -> str:
    """Return the JavaScript name of a Hog variable. Forbidden characters are written in hexadecimal."""
    if _PLAIN.fullmatch(name) and name not in RESERVED and not name.startswith(PREFIX):
        return name
    return PREFIX + _FOREIGN.sub(lambda match: f"${ord(match[0]):x}_", name)


def function_name(name: str) -> str:
    """Return the JavaScript name of a function of the Hog library."""
    return PREFIX + name if name in RESERVED else name


def binds_e(clause: n.Catch) -> bool:
    """Return whether a catch clause names the error `e`, which is also its default name."""
    return clause.var is None or clause.var == "e"


class Names:
    """The names of all variables of one tree; `taken` are names that belong to the library."""

    def __init__(self, tree: n.Program | n.Expr, table: SymbolTable, taken: Set[str]) -> None:
        self._names: dict[Symbol, str] = {}
        moved = _Conflicts(table).of(tree)
        for symbol in table.symbols:
            name = identifier(symbol.name)
            if symbol in moved or name in taken or name in BUILT_IN:
                name = f"{name if name.startswith(PREFIX) else PREFIX + name}${symbol.number}"
            self._names[symbol] = name

    def of(self, symbol: Symbol) -> str:
        return self._names[symbol]

    def collide(self, used: Iterable[str]) -> bool:
        """Return whether a variable has one of these names."""
        return not set(used).isdisjoint(self._names.values())


class _Conflicts:
    """Finder of variables that would capture a use of an outer variable of the same name.

    Walks the tree with the JavaScript scopes around: a scope holds a variable from its start, wherever in it the
    declaration stands.
    """

    def __init__(self, table: SymbolTable) -> None:
        self.table = table
        self.scopes: list[dict[str, Symbol]] = []
        self.moved: set[Symbol] = set()
        self.caught: dict[n.Node, Symbol] = {}  # the error that a clause binds as `e`
        self.hidden: set[Symbol] = set()  # what `catch` declares without naming it in JavaScript
        for node, symbols in table.declares.items():
            if isinstance(node, n.TryCatchStatement):
                self.hidden.update(symbols)
                self.caught.update({clause: symbols[0] for clause in node.catches if binds_e(clause)})

    def of(self, tree: n.Node) -> set[Symbol]:
        self.enter(tree)
        return self.moved

    def enter(self, node: n.Node) -> None:
        """Walk a node; nodes that open a scope in JavaScript open one here."""
        symbols = self.declared(node)
        if symbols is None:
            self.walk(node)
            return
        scope: dict[str, Symbol] = {}
        for symbol in symbols:
            name = identifier(symbol.name)
            if name in scope:
                self.moved.add(symbol)
            else:
                scope[name] = symbol
        self.scopes.append(scope)
        self.walk(node)
        self.scopes.pop()

    def walk(self, node: n.Node) -> None:
        symbol = self.table.uses.get(node)
        if symbol is not None:
            self.use(symbol)
        for child in n.children(node):
            self.enter(child)

    def use(self, symbol: Symbol) -> None:
        name = identifier(symbol.name)
        for scope in reversed(self.scopes):
            other = scope.get(name)
            if other is symbol:
                return
            if other is not None and symbol not in self.moved and symbol not in self.hidden:
                self.moved.add(other)

    def declared(self, node: n.Node) -> list[Symbol] | None:
        """Return the variables of the JavaScript scope that a node opens; None when it opens none."""
        if isinstance(node, (n.Program, n.Block)):
            return self.of_statements(node.declarations)
        if isinstance(node, (n.Function, n.Lambda)):
            params = list(self.table.scopes[node].params)
            body = node.body
            return params + self.of_statements(body.declarations) if isinstance(body, n.Block) else params
        if isinstance(node, n.Catch):
            bound = [self.caught[node]] if node in self.caught else list(self.table.declares.get(node, ()))
            return bound + self.of_statements(node.block.declarations)
        if isinstance(node, n.ForInStatement):
            return list(self.table.declares[node])
        if isinstance(node, n.ForStatement) and isinstance(node.initializer, n.VariableDeclaration):
            return list(self.table.declares[node.initializer])
        return None

    def of_statements(self, statements: Iterable[n.Statement]) -> list[Symbol]:
        return [
            symbol
            for statement in statements
            if isinstance(statement, (n.VariableDeclaration, n.Function))
            for symbol in self.table.declares[statement]
        ]
