"""Names: never read, hiding others, or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.patterns import searched
from hoglab.hog.suggestions import Guesses, closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hoglab.hog.compiler.symbols import Symbol, SymbolTable
    from hoglab.hog.env import Globals
    from hoglab.hog.stdlib.registry import Function

_WORD = searched(r"[\w$]+")
_SHORTEST_GUESS = 4  # characters from which on a name may be called misspelt


def name_findings(
    tree: n.Node, names: SymbolTable, functions: Mapping[str, Function], known: Globals | None
) -> None:
    """Report doubtful names.

    They are variables, parameters and functions that are never read, names that hide functions, and unknown globals.
    """
    read = _read(tree, names)
    before_a_used_one = _before_a_used_one(names, read)
    places = _Places(names.source)
    for symbol, node in _declared(names):
        if symbol.name.startswith("_"):
            continue
        if symbol.name in functions and symbol.kind != "catch":
            names.report(
                "warning", "shadows-function", f"`{symbol.name}` hides the library function of that name",
                places.of(symbol, node), "calls of that name now mean the variable; take another name",
            )  # fmt: skip
        if symbol not in read and symbol not in before_a_used_one and _counts(symbol, node):
            _report_unused(names, symbol, node, places.of(symbol, node))
    _unknown(names, functions, known)


def _read(tree: n.Node, names: SymbolTable) -> set[Symbol]:
    """Return the variables whose values are ever read; a function that only calls itself is not read."""
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


def _before_a_used_one(names: SymbolTable, read: set[Symbol]) -> set[Symbol]:
    """Return the unread parameters that a later, used one requires."""
    needed: set[Symbol] = set()
    for scope in names.scopes.values():
        last_read = max((place for place, symbol in enumerate(scope.params) if symbol in read), default=0)
        needed.update(scope.params[:last_read])
    return needed


def _counts(symbol: Symbol, node: n.Node) -> bool:
    """Return whether an unread variable is worth a finding; the value of a loop is not."""
    if symbol.kind == "catch":
        return False
    if symbol.kind == "loop":
        return isinstance(node, n.ForInStatement) and symbol.name == node.key_var
    return True


_UNUSED = {
    "let": ("unused-variable", "The variable `{}` is never read"),
    "loop": ("unused-variable", "The variable `{}` is never read"),
    "param": ("unused-parameter", "The parameter `{}` is never read"),
    "fun": ("unused-function", "The function `{}` is never called"),
}


def _report_unused(names: SymbolTable, symbol: Symbol, node: n.Node, place: n.Node) -> None:
    code, text = _UNUSED[symbol.kind]
    hint = f"remove it, or call it `_{symbol.name}` if it must be there"
    if symbol.kind == "loop" and isinstance(node, n.ForInStatement):
        hint = f"write `for (let {node.value_var} in ...)`"
    names.report("warning", code, text.format(symbol.name), place, hint)


class _Places:
    """Positions of names inside the nodes that declare them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._params: dict[n.Node, dict[str, n.Node]] = {}

    def of(self, symbol: Symbol, node: n.Node) -> n.Node:
        """Return the position of a name inside the node that declares it; the node itself where it is not found."""
        if symbol.kind == "param":  # one of many in a node, which is read once for all of them
            if node not in self._params:
                self._params[node] = dict(reversed(list(self._words(node))))
            return self._params[node].get(symbol.name, node)
        return next((place for word, place in self._words(node) if word == symbol.name), node)

    def _words(self, node: n.Node) -> Iterator[tuple[str, n.Node]]:
        start = node.start + (4 if isinstance(node, (n.VariableDeclaration, n.Function)) else 0)
        for match in _WORD.finditer(self._source, start, max(node.end, start)):
            yield match[0], n.Node(match.start(), match.end())


def _unknown(names: SymbolTable, functions: Mapping[str, Function], known: Globals | None) -> None:
    declared = {symbol.name for symbol in names.symbols}
    candidates = declared if known is None else {*declared, *known}
    guesses = Guesses(candidates)
    for node in names.globals:
        name = node.chain[0]
        if name in functions and len(node.chain) == 1:
            continue
        if known is not None and name in known:
            _unknown_member(names, node, known[name])
            continue
        guess = guesses.closest(name)
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
    """Report a member that a global with fixed members does not have."""
    if members is None or len(node.chain) < 2 or node.chain[1] in members:
        return
    root, name = node.chain[:2]
    guess = closest(str(name), members)
    hint = f"did you mean `{guess}`?" if guess else f"there are: {', '.join(sorted(members))}"
    names.report("warning", "unknown-name", f"`{root}` has no member `{name}`", node, hint)
