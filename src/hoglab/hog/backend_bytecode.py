"""From nodes to bytecode: the JSON array that the wire carries in `bytecode` fields.

spec: hog-language 5 and 6, with the corrections D5-D8 of 9. The trees given here are core trees
(`hoglab.hog.compiler.lower`) that have passed `hoglab.hog.compiler.symbols.resolve`, so nothing is refused
here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hoglab.hog import nodes as n
from hoglab.hog.errors import HogCompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Code = list[Any]

HEADER: Code = ["_H", 1]

MAX_REPEATED = 20_000
"""Maximum size of the operands of a `between`, whose code is repeated."""

GET_GLOBAL, CALL_GLOBAL, AND, OR, NOT, PLUS, MINUS = 1, 2, 3, 4, 5, 6, 7
EQ, NOT_EQ, GT, GT_EQ, LT, LT_EQ = 11, 12, 13, 14, 15, 16
TRUE, FALSE, NULL, STRING, INTEGER, FLOAT, POP = 29, 30, 31, 32, 33, 34, 35
GET_LOCAL, SET_LOCAL, RETURN, JUMP, JUMP_IF_FALSE = 36, 37, 38, 39, 40
DICT, ARRAY, TUPLE, GET_PROPERTY, SET_PROPERTY, JUMP_IF_STACK_NOT_NULL = 42, 43, 44, 45, 46, 47
GET_PROPERTY_NULLISH, THROW, TRY, POP_TRY, CALLABLE, CLOSURE = 48, 49, 50, 51, 52, 53
CALL_LOCAL, GET_UPVALUE, SET_UPVALUE, CLOSE_UPVALUE = 54, 55, 56, 57

_ARITHMETIC = {"+": 6, "-": 7, "*": 8, "/": 9, "%": 10}
_COMPARISON = {
    "==": EQ, "!=": NOT_EQ, ">": GT, ">=": GT_EQ, "<": LT, "<=": LT_EQ, "like": 17, "ilike": 18,
    "not like": 19, "not ilike": 20, "in": 21, "not in": 22, "=~": 23, "!~": 24, "=~*": 25, "!~*": 26,
}  # fmt: skip


def compile_bytecode(tree: n.Program | n.Expr, *, null_safe_between: bool = True) -> Code:
    """Return the bytecode of a program, expression or template, header included.

    `null_safe_between=False` gives `between` the shape of older compilers, for which null is 0
    (spec: hog-language 6.3).
    """
    compiler = _Compiler(null_safe_between)
    return HEADER + (compiler.program(tree) if isinstance(tree, n.Program) else compiler.expr(tree))


@dataclass(slots=True)
class _Local:
    name: str
    depth: int
    captured: bool = False


@dataclass(slots=True)
class _Function:
    """The function being compiled: its stack slots and the variables it captures."""

    parent: _Function | None
    locals: list[_Local] = field(default_factory=list)
    upvalues: list[tuple[int, bool]] = field(default_factory=list)  # index, whether of the enclosing frame
    depth: int = 0

    def slot(self, name: str) -> int | None:
        for index in range(len(self.locals) - 1, -1, -1):
            if self.locals[index].name == name:
                return index
        return None

    def upvalue(self, name: str) -> int | None:
        if self.parent is None:
            return None
        slot = self.parent.slot(name)
        if slot is not None:
            self.parent.locals[slot].captured = True
            return self.add_upvalue(slot, True)
        index = self.parent.upvalue(name)
        return None if index is None else self.add_upvalue(index, False)

    def add_upvalue(self, index: int, is_local: bool) -> int:
        entry = (index, is_local)
        if entry not in self.upvalues:
            self.upvalues.append(entry)
        return self.upvalues.index(entry)


class _Compiler:
    def __init__(self, null_safe_between: bool) -> None:
        self.null_safe_between = null_safe_between
        self.function = _Function(None)

    # --- scopes

    def begin_scope(self) -> None:
        self.function.depth += 1

    def end_scope(self) -> Code:
        function, code = self.function, []
        function.depth -= 1
        while function.locals and function.locals[-1].depth > function.depth:
            code.append(CLOSE_UPVALUE if function.locals.pop().captured else POP)
        return code

    def declare(self, name: str) -> int:
        self.function.locals.append(_Local(name, self.function.depth))
        return len(self.function.locals) - 1

    # --- statements

    def program(self, node: n.Program) -> Code:
        self.begin_scope()
        code = self.statements(node.declarations)
        return code + self.end_scope()

    def statements(self, declarations: Sequence[n.Statement]) -> Code:
        code: Code = []
        for statement in declarations:
            code += self.statement(statement)
        return code

    def statement(self, node: n.Statement) -> Code:
        return _STATEMENTS[type(node)](self, node)

    def block(self, node: n.Block) -> Code:
        self.begin_scope()
        code = self.statements(node.declarations)
        return code + self.end_scope()

    def body(self, node: n.Statement) -> Code:
        """Compile the body of a branch or loop.

        A function that is the whole body has a scope of its own: the official compiler leaves its place on the
        stack to chance.
        """
        if not isinstance(node, n.Function):
            return self.statement(node)
        self.begin_scope()
        code = self.statement(node)
        return code + self.end_scope()

    def variable(self, node: n.VariableDeclaration) -> Code:
        self.declare(node.name)  # before its value is compiled, as the official compiler does
        return [NULL] if node.expr is None else self.expr(node.expr)

    def assignment(self, node: n.VariableAssignment) -> Code:
        left = node.left
        if isinstance(left, n.ArrayAccess):
            return self.expr(left.array) + self.expr(left.property) + self.expr(node.right) + [SET_PROPERTY]
        if isinstance(left, n.TupleAccess):
            return [*self.expr(left.tuple), INTEGER, left.index, *self.expr(node.right), SET_PROPERTY]
        assert isinstance(left, n.Field)  # noqa: S101 - the resolver lets nothing else through
        name, *path = left.chain
        if not path:
            value = self.expr(node.right)
            slot = self.function.slot(name)
            if slot is not None:
                return [*value, SET_LOCAL, slot]
            return [*value, SET_UPVALUE, self.function.upvalue(name)]
        code = self.variable_read(name) or []
        for key in path[:-1]:
            code += [STRING, key, GET_PROPERTY]
        return [*code, STRING, path[-1], *self.expr(node.right), SET_PROPERTY]

    def expression(self, node: n.ExprStatement) -> Code:
        return [] if node.expr is None else [*self.expr(node.expr), POP]

    def returned(self, node: n.ReturnStatement) -> Code:
        return [NULL, RETURN] if node.expr is None else [*self.expr(node.expr), RETURN]

    def thrown(self, node: n.ThrowStatement) -> Code:
        return [*self.expr(node.expr), THROW]

    def condition(self, node: n.IfStatement) -> Code:
        test = self.expr(node.expr)
        then = self.body(node.then)
        other = self.body(node.else_) if node.else_ is not None else []
        if not other:
            return [*test, JUMP_IF_FALSE, len(then), *then]
        return [*test, JUMP_IF_FALSE, len(then) + 2, *then, JUMP, len(other), *other]

    def while_loop(self, node: n.WhileStatement) -> Code:
        test = self.expr(node.expr)
        body = self.body(node.body)
        back = -(len(test) + 2 + len(body) + 2)
        return [*test, JUMP_IF_FALSE, len(body) + 2, *body, JUMP, back]

    def for_loop(self, node: n.ForStatement) -> Code:
        self.begin_scope()
        start = self.part(node.initializer)
        test = self.expr(node.condition) if node.condition is not None else [TRUE]
        body = self.body(node.body)
        step = self.part(node.increment)
        back = -(len(step) + len(body) + 2 + len(test) + 2)
        code = [*start, *test, JUMP_IF_FALSE, len(body) + len(step) + 2, *body, *step, JUMP, back]
        return code + self.end_scope()

    def part(self, node: n.Statement | n.Expr | None) -> Code:
        if node is None:
            return []
        return self.statement(node) if isinstance(node, n.Statement) else [*self.expr(node), POP]

    def for_in_loop(self, node: n.ForInStatement) -> Code:
        self.begin_scope()
        code = self.expr(node.expr)
        collection = self.declare("__H_expr_H__")
        keys = -1
        if node.key_var is not None:
            keys = self.declare("__H_keys_H__")
            code += [GET_LOCAL, collection, CALL_GLOBAL, "keys", 1]
        values = self.declare("__H_values_H__")
        index = self.declare("__H_index_H__")
        limit = self.declare("__H_limit_H__")
        code += [GET_LOCAL, collection, CALL_GLOBAL, "values", 1, INTEGER, 1]
        code += [GET_LOCAL, values, CALL_GLOBAL, "length", 1]
        body: Code = []
        if node.key_var is not None:
            key = self.declare(node.key_var)
            code.append(NULL)
            body += [GET_LOCAL, keys, GET_LOCAL, index, GET_PROPERTY, SET_LOCAL, key]
        value = self.declare(node.value_var)
        code.append(NULL)
        body += [GET_LOCAL, values, GET_LOCAL, index, GET_PROPERTY, SET_LOCAL, value]
        body += self.body(node.body)
        test = [GET_LOCAL, limit, GET_LOCAL, index, LT_EQ]
        step = [GET_LOCAL, index, INTEGER, 1, PLUS, SET_LOCAL, index]
        back = -(len(step) + len(body) + 2 + len(test) + 2)
        code += [*test, JUMP_IF_FALSE, len(body) + len(step) + 2, *body, *step, JUMP, back]
        return code + self.end_scope()

    def try_catch(self, node: n.TryCatchStatement) -> Code:
        attempt = self.block(node.try_stmt)
        handler = self.catch_section(node)
        return [TRY, len(attempt) + 4, *attempt, POP_TRY, JUMP, len(handler), *handler]

    def catch_section(self, node: n.TryCatchStatement) -> Code:
        self.begin_scope()
        error = self.declare("e")
        code: Code = [GET_LOCAL, error, STRING, "type", GET_PROPERTY]
        kind = self.declare("type")
        ends: list[int] = []  # where the distances to the end belong
        for clause in node.catches:
            self.begin_scope()
            part: Code = []
            if clause.var is not None and clause.var != "e":
                self.declare(clause.var)
                part += [GET_LOCAL, error]
            part += self.block(clause.block)
            part += self.end_scope()
            if clause.type is not None and clause.type != "Error":
                code += [STRING, clause.type, GET_LOCAL, kind, EQ, JUMP_IF_FALSE, len(part) + 2]
            code += [*part, JUMP, 0]
            ends.append(len(code) - 1)
        code += [POP, THROW]
        for at in ends:
            code[at] = len(code) - at - 1
        return code + self.end_scope()

    # --- functions

    def function_declaration(self, node: n.Function) -> Code:
        self.declare(node.name)
        return self.closure(node.name, node.params, node.body)

    def closure(self, name: str, params: Sequence[str], body: n.Expr | n.Block) -> Code:
        self.function = function = _Function(self.function)
        for param in params:
            self.declare(param)
        code = self.function_body(body)
        assert function.parent is not None  # noqa: S101 - set two lines above
        self.function = function.parent
        captured: Code = []
        for index, is_local in function.upvalues:
            captured += [is_local, index]
        count = len(function.upvalues)
        return [CALLABLE, name, len(params), count, len(code), *code, CLOSURE, count, *captured]

    def function_body(self, body: n.Expr | n.Block) -> Code:
        if isinstance(body, n.Block):
            self.begin_scope()
            code = self.statements(body.declarations)
            if not (body.declarations and isinstance(body.declarations[-1], n.ReturnStatement)):
                code += [NULL, RETURN]
            return code + self.end_scope()
        if isinstance(body, n.Placeholder):
            return [*self.expr(body.expr), POP, NULL, RETURN]
        return [*self.expr(body), RETURN]

    # --- expressions

    def expr(self, node: n.Expr) -> Code:
        return _EXPRESSIONS[type(node)](self, node)

    def exprs(self, parts: Sequence[n.Expr]) -> Code:
        code: Code = []
        for part in parts:
            code += self.expr(part)
        return code

    def constant(self, node: n.Constant) -> Code:
        value = node.value
        if value is None:
            return [NULL]
        if value is True or value is False:
            return [TRUE if value else FALSE]
        if isinstance(value, str):
            return [STRING, value]
        if isinstance(value, int):
            if _LEAST <= value < -_LEAST:
                return [INTEGER, value]
            value = _as_double(value)
        if math.isfinite(value):
            return [FLOAT, value]
        # no JSON number says this: a division by zero does
        dividend = 0 if math.isnan(value) else 1 if value > 0 else -1
        return [INTEGER, 0, INTEGER, dividend, _ARITHMETIC["/"]]

    def variable_read(self, name: str) -> Code | None:
        slot = self.function.slot(name)
        if slot is not None:
            return [GET_LOCAL, slot]
        index = self.function.upvalue(name)
        return None if index is None else [GET_UPVALUE, index]

    def field(self, node: n.Field) -> Code:
        code = self.variable_read(node.chain[0])
        if code is None:
            code = []
            for name in reversed(node.chain):
                code += [STRING, name]
            return [*code, GET_GLOBAL, len(node.chain)]
        for name in node.chain[1:]:
            code += [STRING, name, GET_PROPERTY]
        return code

    def array_access(self, node: n.ArrayAccess) -> Code:
        get = GET_PROPERTY_NULLISH if node.nullish else GET_PROPERTY
        return [*self.expr(node.array), *self.expr(node.property), get]

    def tuple_access(self, node: n.TupleAccess) -> Code:
        get = GET_PROPERTY_NULLISH if node.nullish else GET_PROPERTY
        return [*self.expr(node.tuple), INTEGER, node.index, get]

    def arithmetic(self, node: n.ArithmeticOperation) -> Code:
        return [*self.expr(node.right), *self.expr(node.left), _ARITHMETIC[node.op]]

    def compare(self, node: n.CompareOperation) -> Code:
        return [*self.expr(node.right), *self.expr(node.left), _COMPARISON[node.op]]

    def between(self, node: n.BetweenExpr) -> Code:
        value, low, high = self.expr(node.expr), self.expr(node.low), self.expr(node.high)
        if len(value) + len(low) + len(high) > MAX_REPEATED:
            raise HogCompileError(
                "The operands of `between` are too large", start=node.start, code="too-large"
            )
        if node.negated:
            test = [*low, *value, LT, *high, *value, GT, OR, 2]
        else:
            test = [*low, *value, GT_EQ, *high, *value, LT_EQ, AND, 2]
        if not self.null_safe_between:
            return test
        no_nulls = [NULL, *value, NOT_EQ, NULL, *low, NOT_EQ, NULL, *high, NOT_EQ, AND, 3]
        return [*no_nulls, JUMP_IF_FALSE, len(test) + 2, *test, JUMP, 1, FALSE]

    def all_of(self, node: n.And) -> Code:
        return [*self.exprs(node.exprs), AND, len(node.exprs)]

    def any_of(self, node: n.Or) -> Code:
        return [*self.exprs(node.exprs), OR, len(node.exprs)]

    def negation(self, node: n.Not) -> Code:
        return [*self.expr(node.expr), NOT]

    def if_(self, node: n.If) -> Code:
        code = [NULL] if node.otherwise is None else self.expr(node.otherwise)
        for condition, value in reversed(node.branches):
            then = self.expr(value)
            code = [*self.expr(condition), JUMP_IF_FALSE, len(then) + 2, *then, JUMP, len(code), *code]
        return code

    def if_null(self, node: n.IfNull) -> Code:
        other = self.expr(node.otherwise)
        return [*self.expr(node.expr), JUMP_IF_STACK_NOT_NULL, len(other) + 1, POP, *other]

    def concat(self, node: n.Concat) -> Code:
        return [*self.exprs(node.exprs), CALL_GLOBAL, "concat", len(node.exprs)]

    def array(self, node: n.Array) -> Code:
        return [*self.exprs(node.exprs), ARRAY, len(node.exprs)]

    def tuple(self, node: n.Tuple) -> Code:
        return [*self.exprs(node.exprs), TUPLE, len(node.exprs)]

    def dict(self, node: n.Dict) -> Code:
        code: Code = []
        for key, value in node.items:
            code += self.expr(key)
            if node.ast and isinstance(value, n.Constant) and value.value.__class__ is bool:
                code += [INTEGER, value.value]  # as the official compiler has it (spec: hog-language 6.11)
            else:
                code += self.expr(value)
        return [*code, DICT, len(node.items)]

    def lambda_(self, node: n.Lambda) -> Code:
        return self.closure("lambda", node.args, node.body)

    def call(self, node: n.Call) -> Code:
        callee = self.variable_read(node.name)
        if callee is None:
            return [*self.exprs(node.args), CALL_GLOBAL, node.name, len(node.args)]
        return [*self.exprs(node.args), *callee, CALL_LOCAL, len(node.args)]

    def expr_call(self, node: n.ExprCall) -> Code:
        return [*self.exprs(node.args), *self.expr(node.expr), CALL_LOCAL, len(node.args)]


_STATEMENTS: dict[type[n.Node], Callable[..., Code]] = {
    n.Block: _Compiler.block,
    n.VariableDeclaration: _Compiler.variable,
    n.VariableAssignment: _Compiler.assignment,
    n.ExprStatement: _Compiler.expression,
    n.ReturnStatement: _Compiler.returned,
    n.ThrowStatement: _Compiler.thrown,
    n.IfStatement: _Compiler.condition,
    n.WhileStatement: _Compiler.while_loop,
    n.ForStatement: _Compiler.for_loop,
    n.ForInStatement: _Compiler.for_in_loop,
    n.Function: _Compiler.function_declaration,
    n.TryCatchStatement: _Compiler.try_catch,
}
_EXPRESSIONS: dict[type[n.Node], Callable[..., Code]] = {
    n.Constant: _Compiler.constant,
    n.Field: _Compiler.field,
    n.ArrayAccess: _Compiler.array_access,
    n.TupleAccess: _Compiler.tuple_access,
    n.ArithmeticOperation: _Compiler.arithmetic,
    n.CompareOperation: _Compiler.compare,
    n.BetweenExpr: _Compiler.between,
    n.And: _Compiler.all_of,
    n.Or: _Compiler.any_of,
    n.Not: _Compiler.negation,
    n.If: _Compiler.if_,
    n.IfNull: _Compiler.if_null,
    n.Concat: _Compiler.concat,
    n.Array: _Compiler.array,
    n.Tuple: _Compiler.tuple,
    n.Dict: _Compiler.dict,
    n.Lambda: _Compiler.lambda_,
    n.Call: _Compiler.call,
    n.ExprCall: _Compiler.expr_call,
}


_LEAST = -(2**63)
"""Magnitude above which whole numbers are written as doubles, as all numbers of the official machine are.

Programs are stored as JSON, and its encoders stop at 64 bits.
"""


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
