"""JavaScript for statements, in the shapes of spec: hog-language 11.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog import nodes as n
from hoglab.hog.backend_javascript.expressions import ExpressionWriter, literal
from hoglab.hog.backend_javascript.names import binds_e

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hoglab.hog.compiler.symbols import Symbol

_CONTINUES = ("(", "[", "+", "-", "/", "`")
"""Beginnings of lines that continue the line before when it has no semicolon."""

_ITEMS = "__x_items"
"""Variable that holds the iterated value of a loop with keys, where evaluating it again could give another value."""


class StatementWriter(ExpressionWriter):
    """Writer of statements; each is without a line break at its end."""

    def statement(self, node: n.Statement) -> str:
        return _WRITERS[type(node)](self, node)

    def statements(self, nodes: Sequence[n.Statement]) -> str:
        lines = [code for code in map(self.statement, nodes) if code]
        for at in range(1, len(lines)):
            if lines[at].startswith(_CONTINUES) and not lines[at - 1].endswith((";", "}")):
                lines[at - 1] += ";"
        return "\n".join(lines)

    def braces(self, code: str) -> str:
        """Return a block with the statements, indented by four spaces."""
        return f"{{\n{indented(code)}\n}}" if code else "{}"

    def body(self, node: n.Block | n.Expr) -> str:
        if isinstance(node, n.Block):
            return self.block(node)
        if isinstance(node, n.Placeholder):
            return self.braces(self.expression_code(node.expr))
        return self.expr(node)

    def block(self, node: n.Block) -> str:
        return self.braces(self.statements(node.declarations))

    def braced(self, node: n.Statement) -> str:
        """Return a statement as a block."""
        return self.block(node) if isinstance(node, n.Block) else self.braces(self.statement(node))

    def symbol(self, node: n.Node) -> Symbol:
        return self.table.declares[node][0]

    # --- variables

    def variable_declaration(self, node: n.VariableDeclaration) -> str:
        return f"let {self.declaration(node)};"

    def declaration(self, node: n.VariableDeclaration) -> str:
        name = self.variable(self.symbol(node))
        return name if node.expr is None else f"{name} = {self.expr(node.expr)}"

    def assignment(self, node: n.VariableAssignment) -> str:
        left, value = node.left, self.expr(node.right)
        if isinstance(left, n.ArrayAccess):
            return self.member_write(self.expr(left.array), self.expr(left.property), value) + ";"
        if isinstance(left, n.TupleAccess):
            return self.member_write(self.expr(left.tuple), str(left.index), value) + ";"
        assert isinstance(left, n.Field)  # noqa: S101 - the resolver lets nothing else through
        target = self.variable(self.table.uses[left])
        *path, last = left.chain
        if not path:
            return f"{target} = {value}"
        for name in path[1:]:
            target = self.member(target, literal(name), nullish=True)
        return self.member_write(target, literal(last), value)

    def member_write(self, code: str, key: str, value: str) -> str:
        return f"{self.helper('__setProperty')}({code}, {key}, {value})"

    def expression(self, node: n.ExprStatement) -> str:
        return "" if node.expr is None else self.expression_code(node.expr)

    def expression_code(self, node: n.Expr) -> str:
        code = self.expr(node)
        return f"({code});" if code.startswith("{") else f"{code};"

    def returned(self, node: n.ReturnStatement) -> str:
        return f"return {'null' if node.expr is None else self.expr(node.expr)};"

    def thrown(self, node: n.ThrowStatement) -> str:
        return f"throw {self.expr(node.expr)};"

    # --- branches and loops

    def condition(self, node: n.IfStatement) -> str:
        code = f"if ({self.expr(node.expr)}) {self.braced(node.then)}"
        return code if node.else_ is None else f"{code} else {self.braced(node.else_)}"

    def while_loop(self, node: n.WhileStatement) -> str:
        return f"while ({self.expr(node.expr)}) {self.braced(node.body)}"

    def for_loop(self, node: n.ForStatement) -> str:
        start = self.part(node.initializer)
        test = "" if node.condition is None else self.expr(node.condition)
        step = self.part(node.increment)
        body = self.braced(node.body)
        if isinstance(node.initializer, n.VariableDeclaration) and self.symbol(node.initializer).captured:
            # JavaScript would give each pass a variable of its own; Hog's passes share one
            return self.braces(f"{start};\nfor (; {test}; {step}) {body}")
        return f"for ({start}; {test}; {step}) {body}"

    def part(self, node: n.Statement | n.Expr | None) -> str:
        if node is None:
            return ""
        if isinstance(node, n.VariableDeclaration):
            return f"let {self.declaration(node)}"
        code = self.statement(node) if isinstance(node, n.Statement) else self.expr(node)
        return code.removesuffix(";")

    def for_in_loop(self, node: n.ForInStatement) -> str:
        items = self.expr(node.expr)
        symbols = self.table.declares[node]
        names = [self.variable(symbol) for symbol in symbols]
        body = self.braced(node.body)
        before = ""
        if node.key_var is not None and not _stays_the_same(node):
            before = f"const {_ITEMS} = {items};\n"
            items = _ITEMS
        let = "let "
        if any(symbol.captured for symbol in symbols):  # as in `for_loop`
            before += f"let {', '.join(names)};\n"
            let = ""
        if node.key_var is None:
            loop = f"for ({let}{names[0]} of {self.helper('values')}({items})) {body}"
        else:
            inner = self.braces(f"{let}{names[1]} = {items}[{names[0]}];\n{body}")
            loop = f"for ({let}{names[0]} of {self.helper('keys')}({items})) {inner}"
        return self.braces(before + loop) if before else loop

    # --- functions

    def function(self, node: n.Function) -> str:
        params = ", ".join(self.variable(symbol) for symbol in self.table.scopes[node].params)
        return f"function {self.variable(self.symbol(node))}({params}) {self.block(node.body)}"

    # --- errors

    def try_catch(self, node: n.TryCatchStatement) -> str:
        attempt = self.block(node.try_stmt)
        outer = self.caught
        clauses = []
        for clause in node.catches:
            self.caught = {**outer, **self.hidden_names(node, clause)}
            test = "true" if _catches_all(clause) else f"__error.type === {literal(clause.type)}"
            bound = self.clause_variable(node, clause)
            code = self.statements(clause.block.declarations)
            clauses.append(
                f"if ({test}) {self.braces(f'let {bound} = __error;' + (code and chr(10) + code))}"
            )
        self.caught = outer
        if not any(map(_catches_all, node.catches)):
            clauses.append("{ throw __error; }")
        return f"try {attempt} catch (__error) {{ {' else '.join(clauses)} }}"

    def hidden_names(self, node: n.TryCatchStatement, clause: n.Catch) -> dict[Symbol, str]:
        """Declare the names `e` and `type` in JavaScript, which all clauses of a `try` have."""
        error, kind = self.table.declares[node]
        return {error: self.names.of(error) if binds_e(clause) else "__error", kind: "__error.type"}

    def clause_variable(self, node: n.TryCatchStatement, clause: n.Catch) -> str:
        return self.names.of(self.symbol(node) if binds_e(clause) else self.symbol(clause))


def _catches_all(clause: n.Catch) -> bool:
    return clause.type is None or clause.type == "Error"


def _stays_the_same(node: n.ForInStatement) -> bool:
    """Return whether the iterated value of a loop may be evaluated again in each pass."""
    makes_something = (n.Call, n.If, n.IfNull, n.Concat, n.ExprCall, n.Lambda)
    return not any(isinstance(part, makes_something) for part in n.walk(node.expr)) and not any(
        isinstance(part, n.VariableAssignment) for part in n.walk(node.body)
    )


def indented(code: str) -> str:
    """Put four spaces before every line of code. Texts have no line breaks in JavaScript's output."""
    return "    " + code.replace("\n", "\n    ")


_WRITERS: dict[type[n.Node], Callable[..., str]] = {
    n.Block: StatementWriter.block,
    n.VariableDeclaration: StatementWriter.variable_declaration,
    n.VariableAssignment: StatementWriter.assignment,
    n.ExprStatement: StatementWriter.expression,
    n.ReturnStatement: StatementWriter.returned,
    n.ThrowStatement: StatementWriter.thrown,
    n.IfStatement: StatementWriter.condition,
    n.WhileStatement: StatementWriter.while_loop,
    n.ForStatement: StatementWriter.for_loop,
    n.ForInStatement: StatementWriter.for_in_loop,
    n.Function: StatementWriter.function,
    n.TryCatchStatement: StatementWriter.try_catch,
}
