"""Names and scopes: the variable, function or global that every name in a tree stands for.

Trees that parse but cannot be compiled are refused here; all backends rely on it.
spec: hog-language 3.2, 3.5, 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog import sql_nodes as sql
from hoglab.hog.compiler.patterns import pattern_problem
from hoglab.hog.errors import Diagnostic, HogCompileError, position_at
from hoglab.hog.parser.hints import FOREIGN_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(slots=True, eq=False)
class Symbol:
    """One variable: `number` is unique in its tree; `in_loop` says that a loop may declare it repeatedly.

    `values` are all expressions it is set to; `opaque` says that it is also set to values without an expression
    (parameters, loop variables, caught errors).
    """

    name: str
    number: int
    scope: FunctionScope
    in_loop: bool
    kind: str
    function: n.Function | None = None
    values: list[n.Expr] = field(default_factory=list)
    opaque: bool = False
    captured: bool = False
    reassigned: bool = False
    read_as_value: bool = False


@dataclass(slots=True, eq=False)
class FunctionScope:
    """One function, lambda, or the program itself, with its declared and captured variables."""

    node: n.Node
    parent: FunctionScope | None
    symbol: Symbol | None = None
    params: list[Symbol] = field(default_factory=list)
    captures: dict[Symbol, None] = field(default_factory=dict)


@dataclass(slots=True)
class SymbolTable:
    """Table of the names of one tree.

    `uses` maps fields and calls to the variable of their first name; other names are globals.
    `declares` maps declarations, loops and catch clauses to the variables they introduce.
    """

    source: str
    uses: dict[n.Node, Symbol] = field(default_factory=dict)
    declares: dict[n.Node, tuple[Symbol, ...]] = field(default_factory=dict)
    scopes: dict[n.Node, FunctionScope] = field(default_factory=dict)
    empty_reads: set[n.Node] = field(default_factory=set)
    symbols: list[Symbol] = field(default_factory=list)
    globals: list[n.Field] = field(default_factory=list)
    calls: list[n.Call] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def report(self, severity: str, code: str, message: str, node: n.Node, hint: str | None = None) -> None:
        """Add a finding about the place of `node`."""
        where = position_at(self.source, node.start)
        self.diagnostics.append(
            Diagnostic(severity, code, message, where.line, where.column, node.start, node.end, hint)
        )


def resolve(tree: n.Program | n.Expr, source: str, known: Mapping[str, Symbol] | None = None) -> SymbolTable:
    """Resolve every name of a tree. `known` are variables of earlier parts of the program, which it may hide.

    The tree is the core tree (`hoglab.hog.compiler.lower`); queries and tags left in it are refused.

    Raises `HogCompileError` for double declarations, assignments to globals, SQL
    outside of SQL, `finally`.
    """
    resolver = _Resolver(source)
    resolver.enter_function(tree, ())
    if known:
        resolver.blocks[-1].update(known)
        resolver.open_block()
    if isinstance(tree, n.Program):
        resolver.statements(tree.declarations)
    else:
        resolver.expr(tree)
    return resolver.found


class _Resolver:
    def __init__(self, source: str) -> None:
        self.source = source
        self.found = SymbolTable(source)
        self.function: FunctionScope = None  # type: ignore[assignment]  # set by enter_function
        self.blocks: list[dict[str, Symbol]] = []  # innermost last; one list for all functions
        self.owners: list[FunctionScope] = []
        self.loops = 0
        self.initializing: Symbol | None = None

    # --- scopes

    def enter_function(self, node: n.Node, params: Sequence[str], symbol: Symbol | None = None) -> None:
        self.function = FunctionScope(node, self.function, symbol)
        self.found.scopes[node] = self.function
        self.open_block()
        for name in params:
            param = self.declare(name, node, "param")
            param.opaque = True
            self.function.params.append(param)

    def leave_function(self) -> None:
        self.close_block()
        parent = self.function.parent
        if parent is not None:
            self.function = parent

    def open_block(self) -> None:
        self.blocks.append({})
        self.owners.append(self.function)

    def close_block(self) -> None:
        self.blocks.pop()
        self.owners.pop()

    def declare(self, name: str, node: n.Node, kind: str) -> Symbol:
        block = self.blocks[-1]
        if name in block:
            raise self.error(f"Variable `{name}` already declared in this scope", node, code="redeclared")
        symbol = Symbol(name, len(self.found.symbols), self.function, self.loops > 0, kind)
        self.found.symbols.append(symbol)
        block[name] = symbol
        return symbol

    def lookup(self, name: str) -> Symbol | None:
        for block in reversed(self.blocks):
            symbol = block.get(name)
            if symbol is not None:
                if symbol.scope is not self.function:
                    symbol.captured = True
                    inner: FunctionScope | None = self.function
                    while inner is not None and inner is not symbol.scope:
                        inner.captures[symbol] = None
                        inner = inner.parent
                return symbol
        return None

    # --- statements

    def statements(self, declarations: Sequence[n.Statement]) -> None:
        for statement in declarations:
            self.statement(statement)

    def statement(self, node: n.Statement) -> None:
        _STATEMENTS[type(node)](self, node)

    def block(self, node: n.Block) -> None:
        self.open_block()
        self.statements(node.declarations)
        self.close_block()

    def body(self, node: n.Statement) -> None:
        """Resolve the body of a branch or loop.

        A function that is the whole body is visible there only: it exists only if the body is reached, and later
        variables keep their places.
        """
        if isinstance(node, n.Function):
            self.open_block()
            self.statement(node)
            self.close_block()
        else:
            self.statement(node)

    def variable(self, node: n.VariableDeclaration) -> None:
        symbol = self.declare(node.name, node, "let")
        self.found.declares[node] = (symbol,)
        if node.expr is None:
            symbol.values.append(n.Constant(node.start, node.end, None))
            return
        outer, self.initializing = self.initializing, symbol
        self.expr(node.expr)
        self.initializing = outer
        if symbol.captured:  # by a lambda in its own value, which may run before there is one
            symbol.values.append(n.Constant(node.start, node.end, None))
        symbol.values.append(node.expr)

    def assignment(self, node: n.VariableAssignment) -> None:
        left = node.left
        if isinstance(left, n.Field):
            symbol = self.lookup(left.chain[0])
            if symbol is None:
                raise self.error(
                    f'Variable "{left.chain[0]}" not declared in this scope. Can not assign to globals.',
                    left,
                    code="assign-global",
                    hint=f"declare it first: `let {left.chain[0]} := ...`",
                )
            self.found.uses[left] = symbol
            if len(left.chain) == 1:
                symbol.reassigned = True
                symbol.values.append(node.right)
            else:
                symbol.read_as_value = True
        elif isinstance(left, n.ArrayAccess):
            self.expr(left.array)
            self.expr(left.property)
            self.check_index(left)
        elif isinstance(left, n.TupleAccess):
            self.expr(left.tuple)
        else:
            raise self.error("Can not assign to this type of expression", left, code="assign-target")
        self.expr(node.right)

    def expression(self, node: n.ExprStatement) -> None:
        if node.expr is None:
            return
        self.expr(node.expr)
        compared = node.expr
        if isinstance(compared, n.CompareOperation) and compared.op == "==":
            self.found.report(
                "warning",
                "comparison-statement",
                "You must use ':=' for assignment instead of '='.",
                node,
                "the result of the comparison is dropped",
            )

    def returned(self, node: n.ReturnStatement) -> None:
        if node.expr is not None:
            self.expr(node.expr)

    def thrown(self, node: n.ThrowStatement) -> None:
        self.expr(node.expr)

    def condition(self, node: n.IfStatement) -> None:
        self.expr(node.expr)
        self.body(node.then)
        if node.else_ is not None:
            self.body(node.else_)

    def while_loop(self, node: n.WhileStatement) -> None:
        self.loops += 1
        self.expr(node.expr)
        self.body(node.body)
        self.loops -= 1

    def for_loop(self, node: n.ForStatement) -> None:
        self.open_block()
        self.part(node.initializer)
        self.loops += 1
        if node.condition is not None:
            self.expr(node.condition)
        self.body(node.body)
        self.part(node.increment)
        self.loops -= 1
        self.close_block()

    def part(self, node: n.Statement | n.Expr | None) -> None:
        if isinstance(node, n.Statement):
            self.statement(node)
        elif node is not None:
            self.expr(node)

    def for_in_loop(self, node: n.ForInStatement) -> None:
        self.expr(node.expr)
        self.open_block()
        names = (node.value_var,) if node.key_var is None else (node.key_var, node.value_var)
        symbols = tuple(self.declare(name, node, "loop") for name in names)
        for symbol in symbols:
            symbol.opaque = True
        self.found.declares[node] = symbols
        self.loops += 1
        self.body(node.body)
        self.loops -= 1
        self.close_block()

    def function_declaration(self, node: n.Function) -> None:
        symbol = self.declare(node.name, node, "fun")
        symbol.function = node
        self.found.declares[node] = (symbol,)
        self.function_body(node, node.params, node.body, symbol)

    def function_body(
        self, node: n.Node, params: Sequence[str], body: n.Expr | n.Block, symbol: Symbol | None = None
    ) -> None:
        loops, self.loops = self.loops, 0
        initializing, self.initializing = self.initializing, None
        self.enter_function(node, params, symbol)
        if isinstance(body, n.Block):
            self.block(body)
        elif isinstance(body, n.Placeholder):
            self.expr(body.expr)
        else:
            self.expr(body)
        self.leave_function()
        self.loops, self.initializing = loops, initializing

    def try_catch(self, node: n.TryCatchStatement) -> None:
        if node.finally_stmt is not None:
            raise self.error(
                "finally blocks are not yet supported",
                node.finally_stmt,
                code="unsupported",
                hint="write what is in it behind the `try`",
            )
        if not node.catches:
            raise self.error(
                "try statement must have at least one catch block",
                node,
                code="no-catch",
                hint="add `catch (e) { ... }`",
            )
        self.block(node.try_stmt)
        self.open_block()
        hidden = (self.declare("e", node, "catch"), self.declare("type", node, "catch"))
        self.found.declares[node] = hidden
        for symbol in hidden:
            symbol.opaque = True
        for clause in node.catches:
            self.open_block()
            if clause.var is not None and clause.var != "e":
                symbol = self.declare(clause.var, clause, "catch")
                symbol.opaque = True
                self.found.declares[clause] = (symbol,)
            self.block(clause.block)
            self.close_block()
        self.close_block()

    # --- expressions

    def expr(self, node: n.Expr) -> None:
        visit = _EXPRESSIONS.get(type(node))
        if visit is not None:
            visit(self, node)
        else:
            for child in n.children(node):
                self.expr(child)  # type: ignore[arg-type]  # below an expression there are expressions

    def field(self, node: n.Field) -> None:
        name = node.chain[0]
        symbol = self.lookup(name)
        if "*" in node.chain:
            raise self.error("`*` is SQL only", node, code="sql-only")
        if symbol is None:
            self.found.globals.append(node)
            self.check_global(node)
            return
        self.found.uses[node] = symbol
        symbol.read_as_value = True
        if symbol is self.initializing:
            self.found.empty_reads.add(node)
            self.found.report(
                "warning",
                "empty-variable",
                f"`{name}` is still null here: the new variable hides any outer one in its own value",
                node,
            )

    def check_global(self, node: n.Field) -> None:
        """Warn about a name of a global that was probably meant for something else."""
        name = node.chain[0]
        if self.source.startswith('"', node.start):
            self.found.report(
                "warning",
                "double-quotes",
                f"`{self.source[node.start : node.end]}` is the name of a variable, not a text",
                node,
                "texts are written in single quotes",
            )
        elif name in FOREIGN_NAMES:
            self.found.report(
                "warning",
                "foreign-word",
                f"`{name}` is the name of a variable here",
                node,
                f"write `{FOREIGN_NAMES[name]}`",
            )

    def call(self, node: n.Call) -> None:
        if node.order_by is not None or node.filter_expr is not None or node.within_group is not None:
            raise self.error("`order by` and `filter` can only be used in SQL", node, code="sql-only")
        if node.name == "_caseWithExpression":
            raise self.error(
                "`case x when ...` is not supported",
                node,
                code="unsupported",
                hint="write `case when x = 1 then ... end`",
            )
        symbol = self.lookup(node.name)
        if symbol is None:
            self.found.calls.append(node)
        else:
            self.found.uses[node] = symbol
            if symbol is self.initializing:
                self.found.empty_reads.add(node)
        for arg in node.args:
            self.expr(arg)

    def expr_call(self, node: n.ExprCall) -> None:
        for arg in node.args:
            self.expr(arg)
        self.expr(node.expr)

    def lambda_(self, node: n.Lambda) -> None:
        self.function_body(node, node.args, node.body)

    def access(self, node: n.ArrayAccess) -> None:
        self.expr(node.array)
        self.expr(node.property)
        self.check_index(node)

    def check_index(self, node: n.ArrayAccess) -> None:
        key = node.property
        if isinstance(key, n.Constant) and key.value == 0 and key.value.__class__ in (int, float):
            raise self.error("Array access starts from 1", key, code="zero-index")

    def compare(self, node: n.CompareOperation) -> None:
        if node.op.endswith("cohort"):
            right = node.right
            if isinstance(right, n.Constant) and right.value.__class__ is int:
                shown = f"cohort id={right.value}"
            else:
                shown = f"cohort: {right.value if isinstance(right, n.Constant) else '...'}"
            raise self.error(
                f"Can't use cohorts in real-time filters. Please inline the relevant expressions ({shown}).",
                node,
                code="cohort",
            )
        if "~" in node.op and isinstance(node.right, n.Constant) and isinstance(node.right.value, str):
            problem = pattern_problem(node.op, node.right.value)
            if problem is not None:
                self.found.report("warning", "bad-pattern", problem, node.right)
        self.expr(node.left)
        self.expr(node.right)

    def arithmetic(self, node: n.ArithmeticOperation) -> None:
        if node.op == "-":
            self.check_hyphen(node)
        if node.op == "+":
            for side in (node.left, node.right):
                if isinstance(side, n.Constant) and side.value.__class__ is str:
                    self.found.report(
                        "warning",
                        "plus-string",
                        "`+` adds numbers and turns text into NaN",
                        node,
                        "join text with `||`, `concat(...)` or f'...'",
                    )
                    break
        self.expr(node.left)
        self.expr(node.right)

    def check_hyphen(self, node: n.ArithmeticOperation) -> None:
        """Refuse `event.properties.my-prop`: it subtracts, and was certainly meant as one name."""
        left: n.Expr = node
        parts: list[n.Field] = []
        while isinstance(left, n.ArithmeticOperation) and left.op == "-" and isinstance(left.right, n.Field):
            if self.source[left.left.end : left.right.start] != "-":
                return
            parts.append(left.right)
            left = left.left
        if not parts or not isinstance(left, n.Field) or len(left.chain) < 2:
            return
        names = [left.chain[-1], *(".".join(part.chain) for part in reversed(parts))]
        path = ".".join(left.chain[:-1])
        raise self.error(
            "Hyphens are not supported in identifiers and are interpreted as subtraction. "
            f"Use bracket notation: {path}['{'-'.join(names)}']",
            node,
            code="hyphen",
        )

    def placeholder(self, node: n.Placeholder) -> None:
        raise self.error(
            "Placeholders are not allowed in this context",
            node,
            code="placeholder",
            hint="an object is written {'key': value}",
        )

    def named_argument(self, node: n.NamedArgument) -> None:
        raise self.error(
            "`:=` is not allowed inside an expression",
            node,
            code="assign-in-expression",
            hint="use `=` to compare; in the body of a lambda end the assignment with `;`",
        )

    def sql_only(self, node: n.Expr) -> None:
        raise self.error(f"{_SQL_ONLY[type(node)]} can only be used in SQL", node, code="sql-only")

    def markup(self, node: n.Expr) -> None:
        """Refuse queries and tags, which the caller does not want."""
        raise self.error("Queries and tags are not allowed here", node, code="query")

    def error(self, message: str, node: n.Node, *, code: str, hint: str | None = None) -> HogCompileError:
        return HogCompileError(
            message, source=self.source, start=node.start, end=node.end, code=code, hint=hint
        )


_SQL_ONLY: dict[type[n.Node], str] = {
    n.Alias: "`as`",
    n.TypeCast: "Type casts",
    n.TryCast: "Type casts",
    sql.WindowFunction: "`over`",
    sql.ColumnsExpr: "Lists of columns",
    sql.PositionalRef: "Positional references",
    sql.IsDistinctFrom: "`is distinct from`",
}
_STATEMENTS: dict[type[n.Node], Callable[..., None]] = {
    n.Block: _Resolver.block,
    n.VariableDeclaration: _Resolver.variable,
    n.VariableAssignment: _Resolver.assignment,
    n.ExprStatement: _Resolver.expression,
    n.ReturnStatement: _Resolver.returned,
    n.ThrowStatement: _Resolver.thrown,
    n.IfStatement: _Resolver.condition,
    n.WhileStatement: _Resolver.while_loop,
    n.ForStatement: _Resolver.for_loop,
    n.ForInStatement: _Resolver.for_in_loop,
    n.Function: _Resolver.function_declaration,
    n.TryCatchStatement: _Resolver.try_catch,
}
_EXPRESSIONS: dict[type[n.Node], Callable[..., None]] = {
    n.Field: _Resolver.field,
    n.Call: _Resolver.call,
    n.ExprCall: _Resolver.expr_call,
    n.Lambda: _Resolver.lambda_,
    n.ArrayAccess: _Resolver.access,
    n.CompareOperation: _Resolver.compare,
    n.ArithmeticOperation: _Resolver.arithmetic,
    n.Placeholder: _Resolver.placeholder,
    n.NamedArgument: _Resolver.named_argument,
    **dict.fromkeys(_SQL_ONLY, _Resolver.sql_only),
    **dict.fromkeys((n.HogQLXTag, *sql.QUERIES), _Resolver.markup),
}
