"""Statements and blocks, and the choice between a block and a dict where a brace opens.

spec: hog-language 3. Newlines have no meaning, semicolons are optional, and most keywords may also be names: the
tokens after a word decide. No construct is parsed twice: parsing takes linear time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog.nodes import (
    Block,
    Call,
    Catch,
    Dict,
    Expr,
    ExprStatement,
    Field,
    ForInStatement,
    ForStatement,
    Function,
    IfStatement,
    NamedArgument,
    Placeholder,
    Program,
    ReturnStatement,
    Statement,
    ThrowStatement,
    TryCatchStatement,
    VariableAssignment,
    VariableDeclaration,
    WhileStatement,
)
from hoglab.hog.parser.hints import CALLED, FOREIGN
from hoglab.hog.parser.precedence import ALIAS, SYMBOLS, WORDS
from hoglab.hog.parser.select import SelectParser

if TYPE_CHECKING:
    from hoglab.hog.parser.lexer import Token

# Tokens that cannot begin a statement: after `if (x)` or `{}` they continue an expression.
_CONTINUES = frozenset(
    {
        "eof", "}", "}}", ")", "]", ",", ":", ":=", "?", "?.", "??", "::", "->", "||", "=", "==", "!=", "<>",
        "<=", ">=", ">", "=~", "=~*", "!~", "!~*", "~", "~*", "/", "%",
    }
)  # fmt: skip
_OPERATOR_WORDS = frozenset({"and", "or", "is", "in", "like", "ilike", "between"})
_RETURN_IS_NAME = _CONTINUES - {"eof", "}", "}}", ")", "]", ","}


class StatementParser(SelectParser):
    """Parser of programs, blocks and statements."""

    # --- whole sources

    def program(self) -> Program:
        self.brackets = 0
        declarations: list[Statement] = []
        while self.token.kind != "eof":
            if not self.accept(";"):
                declarations.append(self.declaration())
        return Program(0, len(self.source), tuple(declarations))

    def whole_expression(self) -> Expr:
        tree = self.expression()
        if self.token.kind != "eof":
            raise self.error(f"Expected the end of the expression, found {self.shown()}")
        return tree

    def whole_template(self) -> Expr:
        return self.text_parts(0, "eof")

    # --- declarations and statements

    def declaration(self) -> Statement:
        if self.token.word == "let" and self.token.kind == "reserved":
            return self.let()
        return self.statement()

    def let(self) -> VariableDeclaration:
        self.count()
        start = self.advance().start
        name = self.name("the name of the variable")
        if not self.accept(":="):
            if self.token.kind == "=":
                raise self.error(
                    "Expected `:=` after the name of the variable, found `=`", hint="use `:=` to assign"
                )
            return VariableDeclaration(start, self.last_end, name, None)
        value = self.expression()
        return VariableDeclaration(start, self.last_end, name, value)

    def statement(self) -> Statement:
        """Parse one statement; a lone `;` is the empty one."""
        self.enter()
        self.count()
        token = self.token
        form = _FORMS.get(token.word) if token.kind in ("name", "reserved") else None
        if token.kind == ";":
            self.advance()
            statement: Statement = ExprStatement(token.start, token.end, None)
        elif token.kind == "{":
            statement = self.brace_statement()
        elif form is not None:
            statement = form(self, token)
        else:
            statement = self.expression_statement()
        self.depth -= 1
        return statement

    def body(self) -> Statement:
        """Parse the statement that an `if` or a loop governs."""
        if self.token.word == "let" and self.token.kind == "reserved":
            raise self.error("`let` is not allowed here", hint="put the body into braces: `{ let ... }`")
        return self.statement()

    def expression_statement(self) -> Statement:
        """Parse an assignment or an expression, with its optional semicolon."""
        token = self.token
        if token.kind in ("name", "quoted") and self.peek().kind == ":=":
            # at the start of a statement this assigns; anywhere else it would be a named argument
            left: Expr = self.true_false_target(token)
        else:
            self.foreign_word(token)
            left = self.expression()
        return self.finish_expression(left)

    def true_false_target(self, token: Token) -> Expr:
        self.advance()
        return Field(token.start, token.end, (str(token.value),))

    def finish_expression(self, left: Expr) -> Statement:
        if self.accept(":="):
            right = self.expression()
            return VariableAssignment(left.start, self.last_end, left, right)
        self.accept(";")
        return ExprStatement(left.start, left.end, left)

    def foreign_word(self, token: Token) -> None:
        """Warn about words of other languages, which are plain names here."""
        if token.kind != "name" or token.value not in FOREIGN:
            return
        following = self.peek()
        if following.kind in CALLED or following.kind in SYMBOLS or following.word in WORDS:
            return
        self.warn(
            "foreign-word", f"`{token.value}` is not a statement of Hog", token.start, token.end,
            FOREIGN[str(token.value)],
        )  # fmt: skip

    # --- statements that begin with a keyword

    def return_statement(self, token: Token) -> Statement:
        following = self.peek()
        is_name = following.kind in _RETURN_IS_NAME or (
            following.kind == "." and self.peek(2).kind != "number"
        )
        if is_name or (following.kind == "," and self.returns_lambda()):
            return self.expression_statement()
        self.advance()
        if following.kind == "reserved" or following.kind in _CONTINUES or following.kind == ";":
            self.accept(";")
            return ReturnStatement(token.start, token.end, None)
        if following.word == "else":
            self.warn(
                "return-else",
                "`return else` returns a variable named `else`",
                token.start,
                following.end,
                "end the `return` with `;`",
            )
        value = self.expression()
        end = self.last_end
        self.accept(";")
        return ReturnStatement(token.start, end, value)

    def returns_lambda(self) -> bool:
        """Return whether `return, x -> ...` follows, where `return` names a parameter."""
        at, tokens = self.at, self.tokens
        while tokens[at].kind in ("name", "quoted") and tokens[at + 1].kind == ",":
            at += 2
        return tokens[at].kind in ("name", "quoted") and tokens[at + 1].kind == "->"

    def throw_statement(self, token: Token) -> Statement:
        self.advance()
        value = self.expression()
        end = self.last_end
        self.accept(";")
        return ThrowStatement(token.start, end, value)

    def if_statement(self, token: Token) -> Statement:
        if self.peek().kind != "(" or self.lambda_ahead(1):
            return self.expression_statement()
        self.advance()
        self.advance()
        args = self.arguments().args
        continues = self.token.kind in _CONTINUES or (self.token.kind == "." and self.peek().kind != "number")
        if len(args) != 1 or continues or self.at_word("let") or self.is_operator_word():
            if self.at_word("let"):
                self.warn(
                    "if-let",
                    "`if (...)` is read as a call here, because `let` is not a statement",
                    token.start,
                    self.last_end,
                    "put the body into braces: `{ let ... }`",
                )
            return self.continue_call(token, args)
        then = self.body()
        other = None
        if self.token.kind == ";" and isinstance(then, VariableAssignment) and self.peek().word == "else":
            self.advance()  # an assignment has no semicolon of its own, except here
        if self.at_word("else"):
            self.advance()
            other = self.body()
        return IfStatement(token.start, (other or then).end, args[0], then, other)

    def is_operator_word(self) -> bool:
        return self.token.kind == "name" and self.token.word in (
            "and",
            "or",
            "is",
            "in",
            "like",
            "ilike",
            "between",
        )

    def lambda_ahead(self, distance: int) -> bool:
        """Return whether the parenthesis `distance` tokens ahead holds the parameters of a lambda."""
        at, tokens = self.at + distance + 1, self.tokens
        while tokens[at].kind in ("name", "quoted", ","):
            at += 1
        return tokens[at].kind == ")" and tokens[at + 1].kind == "->"

    def continue_call(self, token: Token, args: tuple[Expr, ...]) -> Statement:
        """Parse a statement that looked like `if (...)` or `for (...)` and is the call of a function of that name."""
        call = Call(token.start, self.last_end, str(token.value), args)
        self.plain_calls.add(call)
        return self.finish_expression(self.operators(call, ALIAS))

    def while_statement(self, token: Token) -> Statement:
        self.advance()
        self.expect("(", "after `while`")
        condition = self.bracketed_expression()
        self.expect(")", "after the condition")
        body = self.body()
        self.accept(";")
        return WhileStatement(token.start, body.end, condition, body)

    def for_statement(self, token: Token) -> Statement:
        if self.peek().kind != "(" or self.lambda_ahead(1):
            return self.expression_statement()
        self.advance()
        self.advance()
        self.brackets += 1
        if self.at_word("let"):
            loop: Statement = self.for_let(token)
        else:
            loop = self.for_parts(token)
        return loop

    def for_let(self, token: Token) -> Statement:
        start = self.advance().start
        name = self.name("the name of the loop variable")
        if self.token.kind == "," or self.at_word("in"):
            return self.for_in(token, name)
        value = self.expression() if self.accept(":=") else None
        if self.token.kind == "=":
            raise self.error(
                "Expected `:=` after the name of the variable, found `=`", hint="use `:=` to assign"
            )
        return self.for_rest(token, VariableDeclaration(start, self.last_end, name, value))

    def for_in(self, token: Token, name: str) -> Statement:
        key = None
        if self.accept(","):
            key, name = name, self.name("the name of the value variable")
        self.expect_word("in", "after the loop variables")
        collection = self.expression()
        self.expect(")", "after the collection")
        self.brackets -= 1
        body = self.body()
        self.accept(";")
        return ForInStatement(token.start, body.end, key, name, collection, body)

    def for_parts(self, token: Token) -> Statement:
        """Parse `for (init; ...)` without `let`, or a call of a function named `for`."""
        if self.token.kind == ";":
            return self.for_rest(token, None)
        args: list[Expr] = []
        if self.token.kind != ")":
            first = self.simple_part()
            if self.token.kind == ";" or isinstance(first, VariableAssignment):
                return self.for_rest(token, first)
            args.append(first)  # type: ignore[arg-type]  # no statement but the assignment gets here
            while self.accept(",") and self.token.kind != ")":
                args.append(self.expression())
        self.expect(")", "after the arguments")
        self.brackets -= 1
        return self.continue_call(token, tuple(args))

    def for_rest(self, token: Token, initializer: Statement | Expr | None) -> Statement:
        self.expect(";", "after the first part of `for`")
        condition = None if self.token.kind == ";" else self.expression()
        self.expect(";", "after the condition of `for`")
        increment = None if self.token.kind == ")" else self.simple_part()
        self.expect(")", "after the parts of `for`")
        self.brackets -= 1
        body = self.body()
        self.accept(";")
        return ForStatement(token.start, body.end, initializer, condition, increment, body)

    def simple_part(self) -> Statement | Expr:
        """Parse an assignment or a bare expression inside the head of a `for`."""
        if self.at_word("let"):
            self.advance()
            name = self.name("the name of the variable")
            value = self.expression() if self.accept(":=") else None
            return VariableDeclaration(self.token.start, self.last_end, name, value)
        token = self.token
        if token.kind in ("name", "quoted") and self.peek().kind == ":=":
            left: Expr = self.true_false_target(token)
        else:
            left = self.expression()
        if not self.accept(":="):
            return left
        right = self.expression()
        return VariableAssignment(left.start, right.end, left, right)

    def function(self, token: Token) -> Statement:
        self.advance()
        name = self.name("the name of the function")
        self.expect("(", "after the name of the function")
        params: list[str] = []
        while self.token.kind != ")":
            params.append(self.name("the name of a parameter"))
            if not self.accept(","):
                break
        if self.token.kind in (":=", "="):
            raise self.error(
                "Parameters cannot have default values", hint="a missing argument is null: `x ?? default`"
            )
        self.expect(")", "after the parameters")
        body = self.block("the body of the function")
        return Function(token.start, body.end, name, tuple(params), body)

    def try_statement(self, token: Token) -> Statement:
        self.advance()
        attempt = self.block("the body of `try`")
        catches: list[Catch] = []
        while self.at_word("catch"):
            start = self.advance().start
            var = kind = None
            if self.accept("("):
                var = self.name("the name of the error")
                if self.accept(":"):
                    kind = self.name("the type of the error")
                self.expect(")", "after the name of the error")
            block = self.block("the body of `catch`")
            catches.append(Catch(start, block.end, var, kind, block))
        last = self.block("the body of `finally`") if self.accept_word("finally") else None
        return TryCatchStatement(token.start, self.last_end, attempt, tuple(catches), last)

    # --- braces

    def block(self, what: str) -> Block:
        if self.token.kind != "{":
            raise self.error(f"Expected `{{` before {what}, found {self.shown()}")
        start = self.advance().start
        return self.block_rest(start, [])

    def block_rest(self, start: int, declarations: list[Statement]) -> Block:
        """Parse the rest of a block up to and including its closing brace."""
        brackets, self.brackets = self.brackets, 0
        while self.token.kind != "}":
            if self.token.kind == "eof":
                raise self.error("Expected `}` at the end of the block, found the end")
            if self.token.kind == ":" and declarations:
                raise self.error(
                    "Expected a block, found an object",
                    hint="a `{` that begins a statement opens a block; put the object into parentheses",
                )
            if not self.accept(";"):
                declarations.append(self.declaration())
        self.brackets = brackets
        end = self.advance().end
        return Block(start, end, tuple(declarations))

    def brace_statement(self) -> Statement:
        """Parse a brace at the start of a statement: a block, or an expression that begins with a dict."""
        start = self.advance().start
        if self.token.kind == "}":
            following = self.peek()
            if following.kind in _CONTINUES - {"eof", "}", "}}", ")", "]", ",", ":"} or (
                following.kind == "." and self.peek(2).kind != "number"
            ):
                self.advance()
                return self.finish_expression(self.operators(Dict(start, self.last_end, ()), ALIAS))
        elif self.starts_dict():
            key = self.bracketed_expression()
            dictionary = self.dict_items(start, key)
            return self.finish_expression(self.operators(dictionary, ALIAS))
        elif self.begins_with_expression():
            brackets, self.brackets = self.brackets, 0
            self.foreign_word(self.token)
            first = self.expression()
            self.brackets = brackets
            if self.token.kind == ":":
                return self.finish_expression(self.operators(self.dict_items(start, first), ALIAS))
            return self.block_rest(start, [self.finish_expression(first)])
        return self.block_rest(start, [])

    def starts_dict(self) -> bool:
        """Return whether the next two tokens are a simple key and its colon."""
        return (
            self.token.kind in ("name", "quoted", "string", "number", "literal") and self.peek().kind == ":"
        )

    def begins_with_expression(self) -> bool:
        """Return whether the block's first statement is an expression (so that a `:` behind it makes it a key)."""
        token = self.token
        if token.kind in ("reserved", ";", "}", "{"):
            return False
        if token.kind in ("name", "quoted") and self.peek().kind == ":=":
            return False
        return not (token.kind == "name" and token.word in _FORMS)

    def brace_body(self) -> Expr | Block:
        """Parse the braces of a lambda's body: a dict, a placeholder, or a block (spec: hog-language 3.6)."""
        start = self.advance().start
        if self.accept("}"):
            return self.operators(Dict(start, self.last_end, ()), ALIAS)
        if self.starts_dict():
            return self.operators(self.dict_items(start, self.bracketed_expression()), ALIAS)
        statements: list[Statement] = []
        if self.begins_with_expression():
            brackets, self.brackets = self.brackets, 0
            self.foreign_word(self.token)
            first = self.expression()
            self.brackets = brackets
            if self.token.kind == ":":
                return self.operators(self.dict_items(start, first), ALIAS)
            if self.token.kind == "}":
                end = self.advance().end
                return Placeholder(start, end, first)
            statements.append(self.finish_expression(first))
        elif self.token.kind != "}":
            return self.lone_statement_body(start)
        return self.block_rest(start, statements)

    def lone_statement_body(self, start: int) -> Expr | Block:
        """Parse a body that begins with a keyword, a brace or an assignment; a placeholder if only a value."""
        if self.accept(";"):
            return self.block_rest(start, [])
        name = self.token
        if name.kind in ("name", "quoted") and self.peek().kind == ":=":
            # `x -> { y := 1 }` is a named argument to the official parser, and refused later
            value = self.expression()
            if self.token.kind == "}" and isinstance(value, NamedArgument):
                return Placeholder(start, self.advance().end, value)
            assigned = _as_assignment(value)
            return self.block_rest(start, [assigned])
        brackets, self.brackets = self.brackets, 0
        first = self.declaration()
        self.brackets = brackets
        ended_by_semicolon = self.tokens[self.at - 1].kind == ";"
        if self.token.kind == "}" and not ended_by_semicolon:
            lone = _as_expression(first)
            if lone is not None:
                return Placeholder(start, self.advance().end, lone)
        return self.block_rest(start, [first])


def _as_assignment(value: Expr) -> Statement:
    if isinstance(value, NamedArgument):
        left = Field(value.start, value.start + len(value.name), (value.name,))
        return VariableAssignment(value.start, value.end, left, value.value)
    return ExprStatement(value.start, value.end, value)


def _as_expression(statement: Statement) -> Expr | None:
    """Return the expression that is the only statement of a lambda's body; None for any other body."""
    if isinstance(statement, ExprStatement):
        return statement.expr
    if isinstance(statement, ReturnStatement) and statement.expr is None:
        return Field(statement.start, statement.end, ("return",))
    if isinstance(statement, Block) and not statement.declarations:
        return Dict(statement.start, statement.end, ())
    return None


_FORMS = {
    "return": StatementParser.return_statement,
    "throw": StatementParser.throw_statement,
    "if": StatementParser.if_statement,
    "while": StatementParser.while_statement,
    "for": StatementParser.for_statement,
    "fun": StatementParser.function,
    "fn": StatementParser.function,
    "try": StatementParser.try_statement,
}
