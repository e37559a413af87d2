"""The machine of the interpreter: its stack of visits, the variables of running functions, and their calls.

A visitor evaluates one kind of node. One that needs other nodes is a generator: it yields them and is sent their
values. The machine keeps the suspended visitors in a list, so a program's depth never becomes Python's.
"""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.compiler.analyse import loop_charge
from hoglab.hog.errors import HogLimit
from hoglab.hog.rt.calls import callback
from hoglab.hog.rt.values import ENDED, HogFunction, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from hoglab.hog.compiler.symbols import Symbol, SymbolTable
    from hoglab.hog.rt.context import Context
    from hoglab.hog.stdlib.registry import Function

Cells = dict["Symbol", list[Value]]
"""The variables of one running function: each a list of one value, shared with the closures that captured it."""

LOOK_EVERY = 500
"""Number of visits between two looks at the clock. A tick can be many visits, each slower than compiled code."""

FUNCTION_BYTES = 200
"""Memory that a function value is charged for, in bytes."""

Visitors = dict[type, "Callable[[Machine, Any], Any]"]
"""The visitor for each kind of node: it returns a value, or a generator that will."""


class Closure:
    """A function of the program with the variables it captured; calling it runs it on the machine."""

    __slots__ = ("captured", "machine", "node")

    def __init__(self, machine: Machine, node: n.Function | n.Lambda, captured: Cells) -> None:
        self.machine = machine
        self.node = node
        self.captured = captured

    def __call__(self, *args: Value) -> Value:
        return self.machine.evaluate(self.machine.enter(self, args))

    @property
    def __defaults__(self) -> tuple[Cells]:
        """Cells that the function keeps alive, where the accounting of memory looks for them in Python functions."""
        return (self.captured,)


class Machine:
    """Runs one text once, by the visitors of its nodes.

    `globals` must not be changed, so programs get copies. `at` is the node being evaluated, for the place of a
    failure.
    """

    def __init__(
        self,
        names: SymbolTable,
        functions: Mapping[str, Function],
        variables: Mapping[str, Value],
        context: Context,
        call_depth: int,
        visitors: Visitors,
    ) -> None:
        self.visitors = visitors
        self.names = names
        self.functions = functions
        self.globals = variables
        self.context: Any = context  # an `ExecutionContext` wherever the program may wait for the host
        self.call_depth = call_depth
        self.frames: list[Cells] = [{}]
        self.visits: list[GeneratorType[Any, Any, Any]] = []
        self.at: n.Node | None = None
        self.room = LOOK_EVERY
        self.loop_charges: dict[n.Node, int] = {}
        context.budget.live_roots = self.live

    def run(self, tree: n.Program | n.Expr) -> Value:
        """Return the value of an expression, or what a program returns; `ENDED` when it ends without `return`."""
        return self.evaluate(self.program(tree) if isinstance(tree, n.Program) else tree)

    def program(self, tree: n.Program) -> Generator[Any, Any, Value]:
        for statement in tree.declarations:
            returned = yield statement
            if returned is not None:
                return returned.value
        return ENDED

    # --- visits

    def evaluate(self, first: Any) -> Value:
        """Return the value of a node (or of a visit already begun), after the visits of its parts."""
        visits = self.visits
        base = len(visits)
        value = self.begin(first)
        error: BaseException | None = None
        while len(visits) > base:
            visit = visits[-1]
            try:
                wanted = visit.send(value) if error is None else visit.throw(error)
            except StopIteration as end:
                visits.pop()
                value, error = end.value, None
                continue
            except BaseException as raised:
                visits.pop()
                if len(visits) == base:
                    raise
                error = raised
                continue
            try:
                value, error = self.begin(wanted), None
            except BaseException as raised:
                error = raised
        return value

    def begin(self, wanted: Any) -> Value:
        """Return the value of a node, or None for one that has to be visited first."""
        self.room -= 1
        if not self.room:
            self.room = LOOK_EVERY
            self.context.budget.check_time()
        if wanted.__class__ is not GeneratorType:
            wanted = self.visitors[type(wanted)](self, wanted)
        if wanted.__class__ is GeneratorType:
            self.visits.append(wanted)
            return None
        return wanted

    def tick(self, work: n.Node) -> None:
        """Draw a tick from the budget, as every turn of a loop and every call does; more for large work."""
        units = self.loop_charges.get(work)
        if units is None:
            units = self.loop_charges[work] = loop_charge(work)
        for _ in self.context.ticks:
            if units:
                self.context.charge(units)
            return
        raise self.context.tripped

    def live(self) -> Iterator[Value]:
        """Yield every value that the program can still reach: variables, and values in suspended visits."""
        for cells in self.frames:
            yield from cells.values()
        for visit in self.visits:
            if visit.gi_frame is not None:
                yield from visit.gi_frame.f_locals.values()

    # --- variables and functions

    @property
    def is_in_function(self) -> bool:
        """Whether a function of the program is being executed, not the program itself."""
        return len(self.frames) > 1

    def bind(self, symbol: Symbol, value: Value) -> list[Value]:
        """Create a new variable; closures made before keep the former one."""
        self.frames[-1][symbol] = cell = [value]
        return cell

    def cell(self, symbol: Symbol) -> list[Value]:
        return self.frames[-1][symbol]

    def closure(self, name: str, node: n.Function | n.Lambda) -> HogFunction:
        """Create the function value of a declaration or a lambda."""
        self.context.grow(FUNCTION_BYTES)
        scope = self.names.scopes[node]
        captured = {symbol: self.frames[-1][symbol] for symbol in scope.captures}
        arity = len(scope.params)
        return HogFunction(name, arity, arity, Closure(self, node, captured))

    def call(self, function: Value, args: Sequence[Value]) -> Any:
        """Call a function value; return the visit of its body, or the result."""
        called = callback(self.context, function, len(args))
        closure = function.call
        if closure.__class__ is Closure and closure.machine is self:
            return self.enter(closure, [*args, *[None] * (function.arity - len(args))])
        return called(*args)

    def enter(self, closure: Closure, args: Sequence[Value]) -> Generator[Any, Any, Value]:
        """Yield the visit of a function's body; `args` are as many as it has parameters."""
        if len(self.frames) >= self.call_depth:
            raise HogLimit(f"Call stack exceeded maximum length of {self.call_depth}", kind="depth")
        params = self.names.scopes[closure.node].params
        self.frames.append(
            {**closure.captured, **{param: [arg] for param, arg in zip(params, args, strict=True)}}
        )
        try:
            body = closure.node.body
            self.tick(body)
            if isinstance(body, n.Block):
                returned = yield body
                return None if returned is None else returned.value
            if isinstance(body, n.Placeholder):
                yield body.expr
                return None
            value = yield body
            return value
        finally:
            self.frames.pop()
