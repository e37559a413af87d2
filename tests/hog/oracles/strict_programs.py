"""Random programs on which JavaScript's own operators and Hog's agree.

JavaScript output uses the operators of JavaScript (spec: hog-language 11.2), which join texts with `+`, compare
loosely, evaluate from left to right and skip what does not matter; objects there have texts as keys, numbers first.
So in these programs every operand is made a value of its kind, functions change nothing outside of themselves and
print nothing, and keys are words. Everything else is as in `programs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from tests.hog.oracles.programs import (
    _GLOBAL_PATHS,
    _LITERALS,
    _WRITERS,
    BOOLEAN,
    FUNCTION,
    LIST,
    MAX_NESTING,
    NUMBER,
    OBJECT,
    OPERATORS,
    STRING,
    _Author,
)

_OF_KIND = {NUMBER: "(toFloat({}) ?? 0)", STRING: "toString({})", LIST: "values({})", BOOLEAN: "({})"}
"""What makes a value of its kind. Truth values stand in parentheses: what follows would be compared with them."""
_PATHS = {**_GLOBAL_PATHS, OBJECT: ("person.properties", "groups.company")}
_KEYS = ("'k'", "'a b'", "'other'", "'x' || 'y'")
_TEXTS = ("", "a", "Hello", "b c", "x,y,z", "héllo", "it''s", "\\n", "\\\\d+", "{", "%", "_", "😀")


@st.composite
def strict_programs(draw: st.DrawFn, *, max_statements: int = 8) -> str:
    """A whole program that prints as it goes and returns a value."""
    return _StrictAuthor(draw).program(max_statements)


class _StrictAuthor(_Author):
    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(draw)
        self.silent = False
        self.foreign = [
            *OPERATORS,
            "lower",
            "now",
        ]  # the library's other functions make values of a kind here

    def value(self, kind: str, depth: int) -> str:
        if depth >= MAX_NESTING or self.rarely(3):
            text = self.leaf(kind)
        else:
            text = self.own(self.pick(_WRITERS[kind]))(self, depth + 1)
        return _OF_KIND.get(kind, "{}").format(text)

    def leaf(self, kind: str) -> str:
        names = self.scope.of(kind)
        if names and self.rarely(2):
            return self.pick(names)
        return self.pick(_PATHS[kind]) if self.rarely(6) else self.own(_LITERALS[kind])(self)

    def own(self, write: Callable[..., str]) -> Callable[..., str]:
        """The method of this class that stands for one of the other's tables."""
        found: Callable[..., str] = getattr(type(self), write.__name__, write)
        return found

    def text_literal(self) -> str:
        return f"'{self.pick(_TEXTS)}'"

    def object_literal(self) -> str:
        pairs = [
            f"{self.object_key()}: {self.leaf(self.pick((NUMBER, STRING)))}" for _ in range(self.upto(3))
        ]
        return f"{{{', '.join(pairs)}}}"

    def object_of(self, depth: int) -> str:
        pairs = [
            f"{self.object_key()}: {self.value(self.pick((NUMBER, STRING)), depth)}"
            for _ in range(self.upto(3))
        ]
        return f"{{{', '.join(pairs)}}}"

    def joined(self, depth: int) -> str:
        """A call of an own `concat` has as many arguments as that takes, and there is none of a `concat` that is no
        function: JavaScript does not count arguments, and its `catch` catches all."""
        holds = self.scope.names.get("concat")
        if holds is None:
            return super().joined(depth)
        if holds != FUNCTION:
            return self.text_literal()
        parts = [self.operand(STRING, depth) for _ in range(self.scope.arity["concat"])]
        return f"concat({', '.join(parts)})"

    def string_call(self, depth: int) -> str:
        """None of an own `lower` that is no function (`joined` says why), or that would call itself forever."""
        text = super().string_call(depth)
        hidden = self.scope.names.get("lower", FUNCTION) != FUNCTION
        return self.text_literal() if hidden and text.startswith("lower(") else text

    def fstring(self, depth: int) -> str:
        return self.joined(depth) if "concat" in self.scope.names else super().fstring(depth)

    def assign(self, depth: int) -> str:
        """Only of what has members: JavaScript's `catch` would catch the failure."""
        text = super().assign(depth)
        target = text.partition(" :=")[0]
        for name, holds in self.scope.names.items():
            if holds in (LIST, OBJECT) and target.startswith((f"{name}.", f"{name}[")):
                return f"if (typeof({name}) = '{'array' if holds == LIST else 'object'}') {{ {text} }}"
        return text

    def object_key(self) -> str:
        return self.pick(_KEYS[:-1] if "concat" in self.scope.names else _KEYS)

    def accesses(self) -> Sequence[str]:
        return super().accesses()[:-1] if "concat" in self.scope.names else super().accesses()

    def show(self, depth: int) -> str:
        return self.declare(depth) if self.silent else super().show(depth)

    def function(self, depth: int) -> str:
        outer, self.silent = self.silent, True
        fixed, self.scope.fixed = self.scope.fixed, self.scope.fixed | set(self.scope.names)
        text = super().function(depth)
        self.silent, self.scope.fixed = outer, fixed
        return text

    def comparison(self, depth: int) -> str:
        kind = self.pick((NUMBER, NUMBER, STRING, BOOLEAN))
        if kind == BOOLEAN:
            return f"((({self.value(kind, depth)}) is null) = (({self.value(kind, depth)}) is not null))"
        return super().comparison(depth)
