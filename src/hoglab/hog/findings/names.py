"""Names: never read, hiding others, or unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.suggestions import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hoglab.hog.compiler.symbols import Symbol, SymbolTable
    from hoglab.hog.env import Globals
    from hoglab.hog.stdlib.registry import Function

_SHORTEST_GUESS = 4  # characters from which on a name may be called misspelt


def name_findings(
    tree: n.Node, names: SymbolTable, functions: Mapping[str, Function], known: Globals | None
) -> None:
    """Findings about names.

    They are variables, parameters and functions that are never read, names that hide functions, and globals that nobody
    provides.
    """
    read = _read(tree, names)
    for symbol, node in _declared(names):
        if symbol.name.startswith("_"):
            continue
        if symbol.name in functions and symbol.kind != "catch":
            _report(
                names, symbol, node, "shadows-function",
                f"`{symbol.name}` hides the library function of that name",
                "calls of that name now mean the variable; take another name",
            )  # fmt: skip
        if symbol not in read and _counts(symbol, node, read, names):
            _report_unused(names, symbol, node)
    _unknown(names, functions, known)


def _read(tree: n.Node, names: SymbolTable) -> set[Symbol]:
    """Return the variables whose values are ever looked at; a function that only calls itself is not."""
    targets = {
        node.left
        for node in n.walk(tree)
        if isinstance(node, n.VariableAssignment)
        and isinstance(node.left, n.Field)
        and len(node.left.chain) == 1
    }
    own = {
        inner
        for scope in names.scopes.values()
        if scope.symbol is not None
        for inner in n.walk(scope.node)
        if names.uses.get(inner) is scope.symbol
    }
    return {symbol for node, symbol in names.uses.items() if node not in targets and node not in own}


def _declared(names: SymbolTable) -> Iterator[tuple[Symbol, n.Node]]:
    for node, symbols in names.declares.items():
        for symbol in symbols:
            yield symbol, node
    for scope in names.scopes.values():
        for symbol in scope.params:
            yield symbol, scope.node


def _counts(symbol: Symbol, node: n.Node, read: set[Symbol], names: SymbolTable) -> bool:
    """Return whether not being read says something: parameters before a used one must be there, values of loops too."""
    if symbol.kind == "catch":
        return False
    if symbol.kind == "loop":
        return isinstance(node, n.ForInStatement) and symbol.name == node.key_var
    if symbol.kind == "param":
        params = names.scopes[node].params
        return not any(later in read for later in params[params.index(symbol) + 1 :])
    return True


_UNUSED = {
    "let": ("unused-variable", "The variable `{}` is never read"),
    "loop": ("unused-variable", "The variable `{}` is never read"),
    "param": ("unused-parameter", "The parameter `{}` is never read"),
    "fun": ("unused-function", "The function `{}` is never called"),
}


def _report_unused(names: SymbolTable, symbol: Symbol, node: n.Node) -> None:
    code, text = _UNUSED[symbol.kind]
    hint = f"remove it, or call it `_{symbol.name}` if it must be there"
    if symbol.kind == "loop" and isinstance(node, n.ForInStatement):
        hint = f"write `for (let {node.value_var} in ...)`"
    _report(names, symbol, node, code, text.format(symbol.name), hint)


def _report(names: SymbolTable, symbol: Symbol, node: n.Node, code: str, message: str, hint: str) -> None:
    names.report("warning", code, message, _name_place(names.source, symbol.name, node), hint)


def _name_place(source: str, name: str, node: n.Node) -> n.Node:
    """Return the position of the name inside the node that declares it."""
    start = node.start + (4 if isinstance(node, (n.VariableDeclaration, n.Function)) else 0)
    found = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])").search(source, start, max(node.end, start))
    return node if found is None else n.Node(found.start(), found.end())


def _unknown(names: SymbolTable, functions: Mapping[str, Function], known: Globals | None) -> None:
    declared = {symbol.name for symbol in names.symbols}
    for node in names.globals:
        name = node.chain[0]
        if name in functions and len(node.chain) == 1:
            continue
        if known is not None and name in known:
            _unknown_member(names, node, known[name])
            continue
        guess = closest(name, declared if known is None else {*declared, *known})
        if name in declared:
            names.report(
                "warning", "unknown-name", f"`{name}` is declared, but not here: it is read from the globals", node,
                "declare it before, and outside of the block that needs it",
            )  # fmt: skip
        elif known is not None:
            hint = f"did you mean `{guess}`?" if guess else None
            names.report("warning", "unknown-name", f"There is no global `{name}`", node, hint)
        elif guess is not None and min(len(name), len(guess)) >= _SHORTEST_GUESS and len(node.chain) == 1:
            names.report(
                "warning", "unknown-name", f"`{name}` is no variable: it is read from the globals", node,
                f"did you mean `{guess}`?",
            )  # fmt: skip


def _unknown_member(names: SymbolTable, node: n.Field, members: frozenset[str] | None) -> None:
    """Reports a member of a global that has other ones only."""
    if members is None or len(node.chain) < 2 or node.chain[1] in members:
        return
    root, name = node.chain[:2]
    guess = closest(str(name), members)
    hint = f"did you mean `{guess}`?" if guess else f"there are: {', '.join(sorted(members))}"
    names.report("warning", "unknown-name", f"`{root}` has no member `{name}`", node, hint)
