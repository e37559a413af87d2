"""Random Hog programs as source text: what every oracle of the language is fed besides the written corpus.

The programs are well typed most of the time, end by themselves, read only the globals of
`corpus/globals.json`, and call only library functions without clock, randomness or host. So each of them can be
given to the official parser, to the official machine and to everything of ours, and the answers compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tests.generated import ALL, examples

T = TypeVar("T")

NUMBER, STRING, BOOLEAN, LIST, OBJECT, FUNCTION = "number", "string", "boolean", "list", "object", "function"
UNREAD = "unread"
"""What a name holds that is hidden and nothing reads.

That of a function in its own body, which would not end, that of a variable in its own value, and the key of a loop.
"""
VALUES = (NUMBER, STRING, BOOLEAN, LIST, OBJECT)

MAX_NESTING = 4
"""How deep generated expressions and statements nest."""


def oracle_settings(count: int, *, shrink: bool = True) -> settings:
    """Return the settings of a comparison with ``count`` examples, or `HOGLAB_FUZZ_EXAMPLES` new ones."""
    wanted = os.environ.get("HOGLAB_FUZZ_EXAMPLES")
    phases = (Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ()))
    return settings(
        max_examples=int(wanted) if wanted else examples(count),
        derandomize=wanted is None and not ALL,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
        ],
    )


@st.composite
def programs(draw: st.DrawFn, *, max_statements: int = 8) -> str:
    """A whole program that prints as it goes and returns a value."""
    return _Author(draw).program(max_statements)


@st.composite
def expressions(draw: st.DrawFn, kind: str | None = None) -> str:
    """One expression; `kind` (one of `VALUES`) says what it should give, most of the time."""
    author = _Author(draw)
    return author.value(kind or author.pick(VALUES), 0)


@st.composite
def templates(draw: st.DrawFn) -> str:
    """The text of a function's input: any characters with `{expression}` parts."""
    author = _Author(draw)
    parts = [author.template_part() for _ in range(author.upto(4))]
    return "".join(parts)


@dataclass
class _Scope:
    """The variables that a piece of the program may use, by what they hold."""

    names: dict[str, str] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)  # loop counters: nothing else may assign them
    arity: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str) -> list[str]:
        return [name for name, holds in self.names.items() if holds == kind]

    def inner(self) -> _Scope:
        return _Scope(dict(self.names), set(self.fixed), dict(self.arity))


_WORDS = (
    "a",
    "b",
    "total",
    "name",
    "items",
    "row",
    "select",
    "from",
    "date",
    "$x",
    "_y",
    "id",
    "count",
    "end",
)
_QUOTED = ("two words", "a-b", "let", "null", "1st")
OPERATORS = ("`not`", "`and`", "`or`", "`if`", "multiIf", "ifNull", "concat")
LIBRARY = (
    "length", "upper", "toString", "floor", "coalesce", "arrayMap", "values", "empty", "typeof", "keys", "lower", "now",
)  # fmt: skip
"""Names of operators and library functions that programs give to variables, functions and parameters of their own."""
_TEXTS = (
    "",
    "a",
    "Hello",
    "b c",
    "x,y,z",
    "10",
    " 7 ",
    "héllo",
    "it''s",
    "\\n",
    "\\\\d+",
    "{",
    "a\\'b",
    "%",
    "_",
    "😀",
)
_PATTERNS = ("%a%", "_", "h%", "%", "10")
_REGEXES = ("^a", "[a-z]+", "\\\\d", "l{2}", ".")
_BLANKS = (" ", " ", " ", "\n", "  ", "\t", " -- note\n", " // note\n", " /* note */ ")


class _Author:
    """Writes source text; every choice is drawn, so Hypothesis can shrink it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.scope = _Scope()
        self.made = 0
        self.foreign = [*OPERATORS, *LIBRARY]  # names that mean something else; each is taken once

    # --- choices

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def upto(self, most: int) -> int:
        return self.draw(st.integers(0, most))

    def rarely(self, one_in: int = 8) -> bool:
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def blank(self) -> str:
        return self.pick(_BLANKS)

    def new_name(self) -> str:
        self.made += 1
        if self.rarely(8) and self.foreign:
            return self.foreign.pop(self.upto(len(self.foreign) - 1))
        if self.rarely(12):
            return f"`{self.pick(_QUOTED)} {self.made}`"
        return f"{self.pick(_WORDS)}{self.made}"

    # --- programs and statements

    def program(self, most: int) -> str:
        lines = [self.statement(0) for _ in range(1 + self.upto(most - 1))]
        lines += [f"print({', '.join(self.scope.names)})"] if self.scope.names else []
        lines.append(f"return {self.value(self.pick(VALUES), 1)}")
        return "\n".join(lines) + self.pick(("", ";", "\n", ";\n"))

    def block(self, depth: int, *, within: _Scope | None = None) -> str:
        outer, self.scope = self.scope, (within or self.scope).inner()
        lines = [self.statement(depth + 1) for _ in range(1 + self.upto(2))]
        self.scope = outer
        return "{\n" + "\n".join(lines) + "\n}"

    def statement(self, depth: int) -> str:
        simple = (self.declare, self.declare, self.assign, self.show)
        nested = (
            self.branch,
            self.count_up,
            self.count_loop,
            self.each,
            self.function,
            self.attempt,
            self.scoped,
        )
        choices = simple if depth >= 2 else simple + nested
        return self.pick(choices)(depth)

    def declare(self, depth: int) -> str:
        name, kind = self.new_name(), self.pick((*VALUES, FUNCTION))
        self.scope.names[name] = UNREAD
        if kind == FUNCTION:
            value = self.lambda_text(depth)
            self.scope.arity[name] = 1
        elif self.rarely(12):
            value = "null"
        else:
            value = self.value(kind, depth)
        self.scope.names[name] = kind
        return f"let {name} :={self.blank()}{value}"

    def assign(self, depth: int) -> str:
        names = [name for name in self.scope.names if name not in self.scope.fixed]
        if not names:
            return self.declare(depth)
        name = self.pick(names)
        kind = self.scope.names[name]
        if kind == FUNCTION:
            return f"print({name}({self.value(NUMBER, depth + 1)}));"
        if kind == OBJECT and self.rarely(2):
            target = f"{name}{self.pick(('.k', '[' + self.text_literal() + ']', '.other', '.`a b`'))}"
            return f"{target} := {self.value(self.pick(VALUES), depth + 1)};"
        if kind == LIST and self.rarely(2):
            return f"{name}{self.pick(('[1]', '[2]', '.1', '[1 + 1]'))} := {self.value(NUMBER, depth + 1)};"
        return f"{name} := {self.value(kind, depth)}{self.pick(('', ';'))}"

    def show(self, depth: int) -> str:
        parts = [self.value(self.pick(VALUES), depth + 1) for _ in range(1 + self.upto(1))]
        return f"print({', '.join(parts)}){self.pick(('', ';'))}"

    def branch(self, depth: int) -> str:
        text = f"if ({self.value(BOOLEAN, depth + 1)}) {self.block(depth)}"
        if self.rarely(2):
            text += f" else {self.pick((self.block, self.branch))(depth)}"
        return text

    def count_up(self, depth: int) -> str:
        """A `while` that its own counter ends."""
        self.made += 1
        name = f"n{self.made}"
        inner = self.scope.inner()
        inner.names[name] = NUMBER
        inner.fixed.add(name)
        body = self.block(depth, within=inner)
        # In parentheses: an `or` in it would let the loop outlive its counter.
        more = f" and ({self.value(BOOLEAN, depth + 2)})" if self.rarely(4) else ""
        step = f"{name} := {name} + 1;"
        return f"let {name} := 0\nwhile ({name} < {self.upto(3)}{more}) {{ {step}\n{body} }}"

    def count_loop(self, depth: int) -> str:
        self.made += 1
        name = f"i{self.made}"
        inner = self.scope.inner()
        inner.names[name] = NUMBER
        inner.fixed.add(name)
        head = f"let {name} := 0; {name} < {self.upto(3)}; {name} := {name} + 1"
        return f"for ({head}) {self.block(depth, within=inner)}"

    def each(self, depth: int) -> str:
        collection = self.value(self.pick((LIST, OBJECT)), depth + 1)
        name = self.new_name()
        inner = self.scope.inner()
        inner.names[name] = NUMBER
        variables = name
        if self.rarely(3):
            key = self.new_name()
            inner.names[key] = UNREAD
            inner.fixed.add(key)
            variables = f"{key}, {name}"
        return f"for (let {variables} in {collection}) {self.block(depth, within=inner)}"

    def function(self, depth: int) -> str:
        name, params = self.new_name(), [self.new_name() for _ in range(1 + self.upto(1))]
        inner = self.scope.inner()
        inner.names.update(dict.fromkeys(params, NUMBER))
        inner.fixed.add(params[0])  # what ends a recursion
        inner.names[name] = UNREAD
        inner.fixed.add(name)
        outer, self.scope = self.scope, inner
        lines = [self.statement(2) for _ in range(self.upto(2))]
        result = self.value(NUMBER, depth + 1)
        self.scope = outer
        first = params[0]
        if self.rarely(3):
            recursion = f"return {name}({first} - 1) + 1" if len(params) == 1 else f"return {result}"
            lines = [f"if ({first} > 5 or {first} <= 0) {{ return {first} }}", *lines, recursion]
        else:
            lines.append(f"return {result}{self.pick(('', ';'))}")
        self.scope.names[name] = FUNCTION
        self.scope.arity[name] = len(params)
        body = "\n".join(lines)
        return f"{self.pick(('fun', 'fun', 'fn'))} {name}({', '.join(params)}) {{\n{body}\n}}"

    def attempt(self, depth: int) -> str:
        caught = self.pick(("(e)", "", "(err)", "(err: Error)", "(e: Odd)"))
        thrown = self.pick(("Error('bad')", "HogError('Odd', 'text', {'k': 1})", "RetryError('later')"))
        condition = self.value(BOOLEAN, depth + 1)
        body = f"{{ if ({condition}) {{ throw {thrown} }}\n{self.block(depth)} }}"
        text = f"try {body} catch {caught} {self.block(depth)}"
        if caught == "(e: Odd)" or self.rarely(3):
            text += " catch (other) { print(other.message, other.type) }"
        return text

    def scoped(self, depth: int) -> str:
        return self.block(depth)

    # --- expressions

    def value(self, kind: str, depth: int) -> str:
        if self.rarely(15):
            kind = self.pick(VALUES)
        stop = depth >= MAX_NESTING or self.rarely(3)
        text = self.leaf(kind) if stop else self.pick(_WRITERS[kind])(self, depth + 1)
        if self.rarely(10):
            text = f"({text})"
        return text + (self.blank() if self.rarely(10) else "")

    def leaf(self, kind: str) -> str:
        names = self.scope.of(kind)
        if names and self.rarely(2):
            return self.pick(names)
        if self.rarely(6):
            return self.pick(_GLOBAL_PATHS[kind])
        return _LITERALS[kind](self)

    def number_literal(self) -> str:
        return self.pick(
            ("0", "1", "2", "3", "7", "10", "0x1F", "1.5", ".25", "-1", "1e3", "2.0", "0b101", "100")
        )

    def text_literal(self) -> str:
        return f"'{self.pick(_TEXTS)}'"

    def list_literal(self) -> str:
        parts = [self.number_literal() for _ in range(self.upto(3))]
        return f"[{', '.join(parts)}{',' if parts and self.rarely() else ''}]"

    def object_literal(self) -> str:
        keys = ("'k'", "'a b'", "'other'", "1", "'x' || 'y'")
        pairs = [f"{self.pick(keys)}: {self.leaf(self.pick((NUMBER, STRING)))}" for _ in range(self.upto(3))]
        return f"{{{', '.join(pairs)}}}"

    def arithmetic(self, depth: int) -> str:
        """Nothing is divided by a zero with a sign, which whole numbers do not have (see `run_differences.toml`)."""
        op = self.pick(("+", "-", "*", "/", "%"))
        left, right = self.operand(NUMBER, depth), self.operand(NUMBER, depth)
        return f"{left} / ({right} + 0)" if op == "/" else f"{left} {op} {right}"

    def operand(self, kind: str, depth: int) -> str:
        """An operand of an infix operator: lambdas and ternaries would swallow what follows."""
        text = self.value(kind, depth)
        return f"({text})" if "?" in text or "->" in text or self.rarely(4) else text

    def negation(self, depth: int) -> str:
        return f"- ({self.value(NUMBER, depth)})"

    def number_call(self, depth: int) -> str:
        name, kind = self.pick(
            (("length", STRING), ("length", LIST), ("floor", NUMBER), ("round", NUMBER), ("toInt", STRING))
        )
        return f"{name}({self.value(kind, depth)})"

    def own_call(self, depth: int) -> str:
        names = self.scope.of(FUNCTION)
        if not names:
            name = self.parameter()
            return (
                f"({name} -> {self.with_variable(name, NUMBER, NUMBER, depth)})({self.value(NUMBER, depth)})"
            )
        name = self.pick(names)
        args = [self.value(NUMBER, depth) for _ in range(self.scope.arity[name])]
        return f"{name}({', '.join(args)})"

    def element(self, depth: int) -> str:
        index = self.pick(("[1]", "[-1]", "[2]", ".1", "?.[1]", "?.2", "[1 + 1]"))
        return f"({self.value(LIST, depth)}){index}"

    def member(self, depth: int) -> str:
        return f"({self.value(OBJECT, depth)}){self.pick(self.accesses())}"

    def accesses(self) -> Sequence[str]:
        return (".k", "['k']", "?.k", ".`a b`", "?.['other']", "['x' || 'y']")

    def choose(self, kind: str, depth: int) -> str:
        test, one, other = self.value(BOOLEAN, depth), self.value(kind, depth), self.value(kind, depth)
        form = self.pick(
            ("({}) ? {} : {}", "if({}, {}, {})", "multiIf({}, {}, {})", "case when {} then {} else {} end")
        )
        return f"({form.format(test, one, other)})"

    def otherwise(self, kind: str, depth: int) -> str:
        left = self.pick((self.leaf(kind), "null", "(event.missing)"))
        return self.pick(("({} ?? {})", "ifNull({}, {})", "coalesce({}, {})")).format(
            left, self.operand(kind, depth)
        )

    def joined(self, depth: int) -> str:
        parts = [self.operand(self.pick(VALUES[:3]), depth) for _ in range(2 + self.upto(1))]
        return " || ".join(parts) if self.rarely(2) else f"concat({', '.join(parts)})"

    def fstring(self, depth: int) -> str:
        parts = [
            self.pick(("text ", "", "\\{", "''", "}", "\\n")),
            f"{{ {self.value(self.pick(VALUES), depth)} }}",
        ]
        return f"f'{''.join(parts)}'"

    def string_call(self, depth: int) -> str:
        name, kind = self.pick(
            (("upper", STRING), ("lower", STRING), ("reverse", STRING), ("trim", STRING), ("toString", NUMBER),
             ("toString", LIST), ("jsonStringify", OBJECT), ("typeof", self.pick(VALUES)), ("toString", BOOLEAN))
        )  # fmt: skip
        return f"{name}({self.value(kind, depth)})"

    def comparison(self, depth: int) -> str:
        kind = self.pick((NUMBER, NUMBER, STRING))
        op = self.pick(("=", "==", "!=", "<>", "<", "<=", ">", ">="))
        return f"{self.operand(kind, depth)} {op} {self.operand(kind, depth)}"

    def matching(self, depth: int) -> str:
        if self.rarely(2):
            op = self.pick(("like", "not like", "ilike", "not ilike"))
            return f"{self.operand(STRING, depth)} {op} '{self.pick(_PATTERNS)}'"
        return (
            f"{self.operand(STRING, depth)} {self.pick(('=~', '!~', '=~*', '!~*'))} '{self.pick(_REGEXES)}'"
        )

    def membership(self, depth: int) -> str:
        return (
            f"{self.operand(NUMBER, depth)} {self.pick(('in', 'not in', 'IN'))} {self.operand(LIST, depth)}"
        )

    def logic(self, depth: int) -> str:
        parts = [f"({self.value(BOOLEAN, depth)})" for _ in range(2 + self.upto(1))]
        return f" {self.pick(('and', 'or', 'AND', 'or'))} ".join(parts)

    def denial(self, depth: int) -> str:
        return f"not {self.pick(('({})', '{}')).format(self.value(BOOLEAN, depth))}"

    def null_test(self, depth: int) -> str:
        return f"({self.value(self.pick(VALUES), depth)}) is {self.pick(('', 'not '))}null"

    def range_test(self, depth: int) -> str:
        parts = [self.operand(NUMBER, depth) for _ in range(3)]
        return "({} {}between {} and {})".format(parts[0], self.pick(("", "not ")), parts[1], parts[2])

    def boolean_call(self, depth: int) -> str:
        name = self.pick(("empty", "notEmpty", "isNull", "isNotNull"))
        return f"{name}({self.value(self.pick((STRING, LIST, OBJECT)), depth)})"

    def list_of(self, depth: int) -> str:
        return f"[{', '.join(self.value(NUMBER, depth) for _ in range(self.upto(3)))}]"

    def list_call(self, depth: int) -> str:
        items = self.value(LIST, depth)
        form = self.pick(
            ("arrayReverse({})", "arrayPushBack({}, 1)", "arraySort({})", "values({})", "arrayPopBack({})")
        )
        return form.format(items)

    def mapped(self, depth: int) -> str:
        name, kind = self.pick((("arrayMap", NUMBER), ("arrayFilter", BOOLEAN)))
        parameter = self.parameter()
        body = self.with_variable(parameter, NUMBER, kind, depth)
        head = self.pick(("{}", "({})", "({},)")).format(parameter)
        return f"{name}({head} -> {body}, {self.value(LIST, depth)})"

    def object_of(self, depth: int) -> str:
        keys = ("'k'", "'other'", "'a b'", "2")
        pairs = [f"{self.pick(keys)}: {self.value(self.pick(VALUES), depth)}" for _ in range(self.upto(3))]
        return f"{{{', '.join(pairs)}}}"

    def tag(self, depth: int) -> str:
        return (
            f"<b kind='x' of={{{self.value(self.pick(VALUES), depth)}}} flag>text {{{self.leaf(NUMBER)}}}</b>"
        )

    def lambda_text(self, depth: int) -> str:
        name = self.parameter()
        body = self.with_variable(name, NUMBER, NUMBER, depth + 1)
        return self.pick(
            ("{0} -> {1}", "({0}) -> {1}", "{0} -> {{ return {1}; }}", "{0} -> {{ let y := {1}; return y }}")
        ).format(name, body)

    def parameter(self) -> str:
        """The name of a lambda's argument."""
        return self.new_name() if self.rarely(6) else "x"

    def with_variable(self, name: str, holds: str, kind: str, depth: int) -> str:
        outer, self.scope = self.scope, self.scope.inner()
        self.scope.names[name] = holds
        text = self.value(kind, depth)
        self.scope = outer
        return text

    # --- templates

    def template_part(self) -> str:
        if self.rarely(2):
            return self.pick(("Hello ", "it's ", "\\{", "}", '"q"', "\\n", "\n", "100%", "é", "--", "'"))
        blank = self.pick(("", " "))
        return f"{{{blank}{self.value(self.pick(VALUES), 1)}{blank}}}"


_GLOBAL_PATHS = {
    NUMBER: ("event.properties.amount", "event.properties['count']", "event.properties.nested.list[1]"),
    STRING: (
        "event.event",
        "event.properties.`$browser`",
        "person.properties.email",
        "event.properties.$browser",
    ),
    BOOLEAN: ("person.properties.paying", "event.properties.missing"),
    LIST: ("event.properties.tags", "event.properties.nested.list"),
    OBJECT: ("event.properties", "person", "event.properties.nested"),
}
_LITERALS: dict[str, Callable[[_Author], str]] = {
    NUMBER: _Author.number_literal,
    STRING: _Author.text_literal,
    BOOLEAN: lambda author: author.pick(("true", "false", "TRUE", "False")),
    LIST: _Author.list_literal,
    OBJECT: _Author.object_literal,
}


def _either(kind: str) -> tuple[Callable[[_Author, int], str], ...]:
    return (
        lambda author, depth: author.choose(kind, depth),
        lambda author, depth: author.otherwise(kind, depth),
    )


_WRITERS: dict[str, tuple[Callable[[_Author, int], str], ...]] = {
    NUMBER: (
        _Author.arithmetic, _Author.arithmetic, _Author.negation, _Author.number_call, _Author.own_call,
        _Author.element, _Author.member, *_either(NUMBER),
    ),
    STRING: (_Author.joined, _Author.fstring, _Author.string_call, _Author.string_call, *_either(STRING)),
    BOOLEAN: (
        _Author.comparison, _Author.comparison, _Author.matching, _Author.membership, _Author.logic,
        _Author.denial, _Author.null_test, _Author.range_test, _Author.boolean_call, *_either(BOOLEAN),
    ),
    LIST: (_Author.list_of, _Author.list_call, _Author.mapped, *_either(LIST)),
    OBJECT: (_Author.object_of, _Author.object_of, _Author.tag, *_either(OBJECT)),
}  # fmt: skip
