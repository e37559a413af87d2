"""Analysis of a tree before it is compiled: effects, suspension, loops, and the event paths it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hoglab.hog import nodes as n
from hoglab.hog.compiler.patterns import pattern_problem
from hoglab.hog.compiler.symbols import Symbol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hoglab.hog.compiler.symbols import FunctionScope, SymbolTable
    from hoglab.hog.stdlib.registry import Function

Suspension = Literal["never", "generator", "replay"]
"""Way in which a program waits for the host.

Not at all; as a generator; or, where it is unknown which functions may wait, by running again from the start with the
answers so far (design: spec hog-runtime 4.6, journal).
"""

_SEPARATE = (n.Function, n.Lambda, n.WhileStatement, n.ForStatement, n.ForInStatement)
_HEAVY = 100  # nodes in a body from which on its work is charged for besides its tick


@dataclass(slots=True)
class ProgramFacts:
    """The facts about one tree.

    `recursive`: functions that call themselves, directly or from a function inside them. `reads` holds the paths
    of globals that the program may read, as tuples of names; a path with a computed key is cut before it.
    """

    suspension: Suspension = "never"
    suspending: set[FunctionScope] = field(default_factory=set)
    pure: set[Symbol] = field(default_factory=set)
    recursive: set[Symbol] = field(default_factory=set)
    loops: bool = False
    functions: bool = False
    reads: frozenset[tuple[str, ...]] = frozenset()

    def include(self, other: ProgramFacts) -> None:
        """Add the facts about another text that runs beside, such as another template of the same inputs."""
        self.loops = self.loops or other.loops
        self.functions = self.functions or other.functions
        self.reads |= other.reads
        if other.suspension != "never":
            self.suspension = "replay"

    @property
    def bounded(self) -> bool:
        """Whether the work is bounded by the text: no loop, no function, no lambda."""
        return not (self.loops or self.functions)


def analyse(tree: n.Program | n.Expr, names: SymbolTable, functions: Mapping[str, Function]) -> ProgramFacts:
    """Analyse a tree for the Python backend and the callers of a program."""
    return _Analysis(tree, names, functions).facts


def node_count(node: n.Node) -> int:
    """Return the number of nodes evaluated in one pass through the node, without the bodies of loops and functions."""
    total = 0
    stack: list[n.Node] = [node]
    while stack:
        current = stack.pop()
        total += 1
        stack.extend(child for child in n.children(current) if not isinstance(child, _SEPARATE))
    return total


def loop_charge(body: n.Node) -> int:
    """Return the units to charge per pass through a body, besides its tick; 0 for bodies of ordinary size."""
    nodes = node_count(body)
    return nodes // 20 if nodes > _HEAVY else 0


def read_paths(tree: n.Node, names: SymbolTable) -> frozenset[tuple[str, ...]]:
    """Return the paths of globals that the tree reads."""
    return _paths_among(n.walk(tree), names)


def _paths_among(nodes: Iterable[n.Node], names: SymbolTable) -> frozenset[tuple[str, ...]]:
    """Return the paths of globals that some nodes stand for; nodes come before their parts."""
    paths: set[tuple[str, ...]] = set()
    inner: set[n.Node] = set()
    for node in nodes:
        if not isinstance(node, (n.Field, n.ArrayAccess)):
            continue
        path = global_path(node, names)
        if path is None:
            continue
        if isinstance(node, n.ArrayAccess):
            inner.add(node.array)
        if node not in inner:
            paths.add(path)
    return frozenset(paths)


def global_path(node: n.Node, names: SymbolTable) -> tuple[str, ...] | None:
    """Return the path of a global that an expression stands for; None for any other expression."""
    keys: list[str] = []
    while isinstance(node, n.ArrayAccess):
        key = node.property
        if not (isinstance(key, n.Constant) and isinstance(key.value, str)):
            return None
        keys.append(key.value)
        node = node.array
    if not isinstance(node, n.Field) or node in names.uses:
        return None
    return (*node.chain, *reversed(keys))


@dataclass(slots=True)
class _Function:
    """Facts about one function's own body, nested functions left out."""

    scope: FunctionScope
    waits: bool = False
    effects: bool = False
    callees: set[Symbol] = field(default_factory=set)


class _Analysis:
    def __init__(
        self, tree: n.Program | n.Expr, names: SymbolTable, functions: Mapping[str, Function]
    ) -> None:
        self.names = names
        self.functions = functions
        self.facts = ProgramFacts()
        self.found = {node: _Function(scope) for node, scope in names.scopes.items()}
        self.async_values = False
        self.facts.functions = isinstance(
            tree, n.Lambda
        )  # one that stands alone has the scope of the whole text
        nodes = self.gather(tree)
        self.find_suspending()
        self.find_pure()
        self.facts.reads = _paths_among(nodes, names)

    def gather(self, tree: n.Node) -> list[n.Node]:
        """Gather the facts of every node; return all nodes, each before its parts."""
        nodes: list[n.Node] = []
        pending: list[tuple[n.Node, _Function]] = [(tree, self.found[tree])]
        while pending:
            node, owner = pending.pop()
            nodes.append(node)
            if node is not tree and node in self.found:
                self.facts.functions = True
                owner = self.found[node]
            look = _LOOKS.get(node.__class__)
            if look is not None:
                look(self, node, owner)
            pending += [(child, owner) for child in n.children(node)]
        return nodes

    def loop(self, _node: n.Node, _owner: _Function) -> None:
        self.facts.loops = True

    def effect(self, _node: n.Node, owner: _Function) -> None:
        owner.effects = True

    def assignment(self, node: n.VariableAssignment, owner: _Function) -> None:
        symbol = self.names.uses.get(node.left)
        if symbol is None or symbol.scope is not owner.scope or len(_chain(node.left)) > 1:
            owner.effects = True

    def field(self, node: n.Field, _owner: _Function) -> None:
        if len(node.chain) == 1 and node not in self.names.uses:
            function = self.functions.get(node.chain[0])
            if function is not None and function.is_async:
                self.async_values = True

    def call(self, node: n.Call, owner: _Function) -> None:
        symbol = self.names.uses.get(node)
        if symbol is not None:
            if symbol.function is not None and not symbol.reassigned:
                owner.callees.add(symbol)
                if any(scope.symbol is symbol for scope in enclosing(owner.scope)):
                    self.facts.recursive.add(symbol)
            else:
                owner.effects = True
            return
        function = self.functions.get(node.name)
        if function is None:
            owner.effects = True
        elif function.is_async:
            owner.waits = owner.effects = True
        elif not function.pure or function.cost == "callback":
            owner.effects = True

    def find_suspending(self) -> None:
        """Find the functions that may wait for the host, and how the program has to be suspended."""
        waiting = {node for node, function in self.found.items() if function.waits}
        if not waiting and not self.async_values:
            return
        self.propagate(waiting)
        self.facts.suspension = "generator"
        for node in waiting:
            scope = self.names.scopes[node]
            symbol = scope.symbol
            self.facts.suspending.add(scope)
            direct = symbol is not None and not symbol.reassigned and not symbol.read_as_value
            if scope.parent is not None and not (direct and symbol is not None and not symbol.in_loop):
                self.facts.suspension = "replay"
        if self.async_values:
            self.facts.suspension = "replay"

    def find_pure(self) -> None:
        impure = {node for node, function in self.found.items() if function.effects}
        self.propagate(impure)
        for symbol in self.names.symbols:
            if symbol.function is not None and symbol.function not in impure and not symbol.reassigned:
                self.facts.pure.add(symbol)

    def propagate(self, marked: set[n.Node]) -> None:
        """Mark the callers of marked functions, and their callers."""
        callers: dict[Symbol, list[n.Node]] = {}
        for node, function in self.found.items():
            for symbol in function.callees:
                callers.setdefault(symbol, []).append(node)
        pending = list(marked)
        while pending:
            called = self.names.scopes[pending.pop()].symbol
            for caller in () if called is None else callers.get(called, ()):
                if caller not in marked:
                    marked.add(caller)
                    pending.append(caller)


_LOOKS: dict[type[n.Node], Callable[..., None]] = {
    n.WhileStatement: _Analysis.loop,
    n.ForStatement: _Analysis.loop,
    n.ForInStatement: _Analysis.loop,
    n.Call: _Analysis.call,
    n.ExprCall: _Analysis.effect,
    n.ThrowStatement: _Analysis.effect,
    n.VariableAssignment: _Analysis.assignment,
    n.Field: _Analysis.field,
}


_INFALLIBLE = (n.And, n.Or, n.Not, n.BetweenExpr, n.If, n.IfNull, n.Array, n.Tuple)
"""Expressions that cannot fail where none of their parts can."""


def enclosing(scope: FunctionScope | None) -> Iterator[FunctionScope]:
    """Yield the scope and those around it, innermost first."""
    while scope is not None:
        yield scope
        scope = scope.parent


def _chain(node: n.Expr) -> tuple[str, ...]:
    return node.chain if isinstance(node, n.Field) else ()


class Effects:
    """Effects of the expressions of one tree: whether evaluating them is noticeable, or can fail."""

    def __init__(self, names: SymbolTable, facts: ProgramFacts, functions: Mapping[str, Function]) -> None:
        self.names = names
        self.facts = facts
        self.functions = functions
        self.memo: dict[n.Node, bool] = {}
        self.entering: dict[n.Node, bool] = {}

    def enters(self, node: n.Node) -> bool:
        """Return whether evaluating the expression may run a function of the program."""
        known = self.entering.get(node)
        if known is None:
            known = self.entering[node] = self.enters_here(node) or (
                not isinstance(node, n.Lambda) and any(self.enters(child) for child in n.children(node))
            )
        return known

    def enters_here(self, node: n.Node) -> bool:
        if isinstance(node, n.Call) and node not in self.names.uses:
            function = self.functions.get(node.name)
            return function is not None and function.cost == "callback"
        return isinstance(node, (n.Call, n.ExprCall))

    def pure(self, node: n.Node) -> bool:
        """Return whether evaluating the expression changes nothing and depends on nothing that a call could change."""
        known = self.memo.get(node)
        if known is None:
            known = self.memo[node] = self.pure_here(node) and (
                isinstance(node, n.Lambda) or all(self.pure(child) for child in n.children(node))
            )
        return known

    def pure_here(self, node: n.Node) -> bool:
        if isinstance(node, n.ExprCall):
            return False
        if isinstance(node, n.Call):
            symbol = self.names.uses.get(node)
            if symbol is not None:
                return symbol in self.facts.pure
            function = self.functions.get(node.name)
            return function is not None and function.pure and function.cost != "callback"
        return True

    def stable(self, node: n.Node) -> bool:
        """Return whether the value of the expression is the same before and after any call."""
        if isinstance(node, n.Constant):
            return True
        if isinstance(node, n.Field):
            symbol = self.names.uses.get(node)
            return symbol is None or (not symbol.reassigned and len(node.chain) == 1)
        return isinstance(node, n.Lambda)

    def swappable(self, left: n.Node, right: n.Node) -> bool:
        """Return whether the order in which two operands are evaluated makes no difference."""
        pure_left, pure_right = self.pure(left), self.pure(right)
        if pure_left and pure_right:
            return True
        return (pure_left or self.stable(right)) and (pure_right or self.stable(left))

    def infallible(self, node: n.Node, known: frozenset[str] | set[str]) -> bool:
        """Return whether the expression is pure and cannot fail; roots of globals in `known` exist."""
        if isinstance(node, n.Field):
            return node in self.names.uses or node.chain[0] in known
        if isinstance(node, n.Constant):
            return True
        if isinstance(node, n.ArrayAccess):
            key = node.property
            sure = isinstance(key, n.Constant) and isinstance(key.value, str)
            return sure and self.infallible(node.array, known)
        if isinstance(node, n.TupleAccess):
            return node.index != 0 and self.infallible(node.tuple, known)
        if isinstance(node, n.CompareOperation):
            return self.total_comparison(node, known)
        if isinstance(node, n.Call):
            function = self.functions.get(node.name)
            if node in self.names.uses or function is None:
                return False
            sure = function.pure and function.infallible and function.arity_error(len(node.args)) is None
            return sure and all(self.infallible(arg, known) for arg in node.args)
        return isinstance(node, _INFALLIBLE) and all(
            self.infallible(child, known) for child in n.children(node)
        )

    def total_comparison(self, node: n.CompareOperation, known: frozenset[str] | set[str]) -> bool:
        right = node.right
        if node.op in ("in", "not in") and not isinstance(right, (n.Array, n.Tuple)):
            return False
        if "~" in node.op or "like" in node.op:
            # a constant pattern is checked when the code is made
            if not (isinstance(right, n.Constant) and isinstance(right.value, str)):
                return False
            if pattern_problem(node.op, right.value) is not None:
                return False
        return self.infallible(node.left, known) and self.infallible(right, known)
