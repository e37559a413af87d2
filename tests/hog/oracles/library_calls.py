"""Generates programs that call a library function, the same for the same seed.

Arguments are mostly of the kinds that a parameter declares, with values that mean something to it (units, zones,
patterns, paths), and now and then of any other kind, null or extreme.
"""

import random
from collections.abc import Callable
from typing import Final

from hoglab.hog.stdlib import LIBRARY, Function, Parameter

VOLATILE: Final = frozenset({"generateUUIDv4", "now", "randomFloat", "sleep", "today"})
"""Functions whose result is not a matter of their arguments."""

FUNCTIONS: Final = tuple(
    sorted({f.name: f for f in LIBRARY.values() if f.name not in VOLATILE}.values(), key=lambda f: f.name)
)

TEXTS: Final = (
    "", " ", "a", "A", "abc", "Hello World", "  padded\t\n", "héllo", "straße", "İI", "日本語", "😀", "a😀b", "e\u0301",
    "--x--", "a,b,,c", "aaa", "'", "\\", "%", "_", "$&$1$$", "null", "true", "0", "12", "-3.5", "1e3", "0x1F", "12abc",
    " 7 ", ".5", "5.", "Infinity", "NaN", "1_000", "9007199254740993", "a b&c=d/é", "a%20b", "%zz", "%C3%A9", "%e9",
    "aGVsbG8=", "aGk", "!!!", "w6k-_", "v1.2.3-beta", "1.10", "10.1.2.3", "2001:db8::1", "a\nb", "x\u00a0y", "\ufeffz",
)  # fmt: skip

DATES: Final = (
    "2024-12-18", "2024-12-18T10:30:00Z", "2024-02-29 23:59:59.999", "2024-01-31T00:00:00+05:30", "1999-12-31t12:00z",
    "2024-02-30", "2024-13-01", "0001-01-01", "9999-12-31T23:59:59Z", "2024-12-18T10:30:00,123456789-0800",
    "20241218", "2024-W01", "10:30", " 2024-12-18 ", "soon", "1970-01-01T00:00:00.001Z", "2024-06-15T12:00:00-05",
)  # fmt: skip

JSON_TEXTS: Final = (
    '{"a": [1, 2, {"b": null}], "1": "x", "é": true}', "[]", "{}", "null", "true", "5", '"text"', "[1, [2, [3]], {}]",
    '{"b": "12x", "a": 1.5}', "{a: 1}", "[1,]", "", " [1] ", '{"a": "{\\"b\\": 7}"}', "[1e400]", "1.0", "-0", "01",
    '"\\ud83d\\ude00"', '{"2": 1, "1": 2, "x": 3}', '{"a": {"b": [true, false]}}', '["7.9", -1, 1e21]', "NaN",
)  # fmt: skip

ZONES: Final = ("UTC", "America/New_York", "Asia/Kolkata", "Europe/London", "Pacific/Apia", "")

POOLS: Final[dict[str, tuple[str, ...]]] = {
    "unit": ("year", "month", "week", "day", "hour", "minute", "second", "days", "quarter"),
    "part": ("year", "month", "day", "hour", "minute", "second", "week"),
    "zone": ZONES,
    "encoding": ("hex", "base64", "base64url", "binary"),
    "format": ("%Y-%m-%d %H:%i:%S", "%W, %e %M at %r", "%a %b %c %C %D", "%f %F %g %G %h %I %j %k %l", "%Q %R %s %T",
               "%u %V %w %y %z %%", "%x?", "plain", "100%", "%n%t%p", "%d.%m.%y é"),
    "address": ("10.1.2.3", "192.168.0.1", "2001:db8::1", "::1", "1.2.3", "01.2.3.4", "256.1.1.1", "::ffff:10.0.0.1"),
    "range": ("10.0.0.0/8", "192.168.0.0/33", "2001:db8::/32", "::/0", "0.0.0.0/0", "10.1.2.3",
              "10.1.2.3/32", "::1/128"),
    "json": JSON_TEXTS,
    "character": (" ", "a", "-", "😀", "ab", "", "é"),
    "separator": (",", "", " ", "-", "a", "😀", "--"),
    "search": ("a", "", "b", "l", "--", "😀", "$"),
    "replacement": ("", "x", "yy", "é😀"),
    "wanted": ("a", "", "L", "WORLD", "😀", "é"),
}  # fmt: skip

REGEXES: Final = (
    "a",
    "^a",
    "b$",
    "\\d+",
    "(\\d+)",
    "l+",
    "(?i)HELLO",
    "[a-c]+",
    "a|b",
    "(a)(b)?",
    "",
    ".",
    "\\w+\\s\\w+",
    "x{2}",
)

BOUNDS: Final = (
    "0",
    "1",
    "3",
    "-2",
    "2.5",
    "-0.5",
    "1000",
    "(0/0)",
    "(1/0)",
    "1e21",
    "null",
    "true",
    "'4'",
    "'x'",
    "[2]",
    "{}",
)
"""Bounds of ranges: a range of some thousand million elements ends the official machine's process."""

LIKES: Final = ("%a%", "a_c", "h%", "%", "_", "", "%😀%", "A.C", "a%b_c", "\\", "-,")

STEPS: Final = ("a", "b", "1", "é")


def literal(text: str) -> str:
    """A text as a Hog string."""
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "'" + "".join(escapes.get(character, character) for character in text) + "'"


class Calls:
    """Makes expressions from one source of chance."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)
        self.makers: dict[str, Callable[[], str]] = {
            "null": lambda: "null",
            "boolean": lambda: self.pick(("true", "false")),
            "integer": self.integer,
            "float": self.fraction,
            "number": self.number,
            "string": self.string,
            "array": lambda: f"[{self.items()}]",
            "tuple": self.tuple,
            "object": self.object,
            "date": lambda: f"toDate({literal(self.pick(DATES[:3]))})",
            "datetime": self.datetime,
            "error": lambda: f"Error({self.string()})",
            "function": self.function,
            "any": self.any,
        }
        self.depth = 0

    def pick(self, choices: tuple[str, ...]) -> str:
        return self.random.choice(choices)

    # Values

    def integer(self) -> str:
        near = str(self.random.randint(-12, 12))
        far = ("86400", "1734480000", "2147483648", "9007199254740991", "9007199254740993", "1e21", "-0")
        return near if self.random.random() < 0.8 else self.pick(far)

    def fraction(self) -> str:
        edges = (
            "0.5",
            "-2.5",
            "2.5",
            "-0.5",
            "0.1",
            "1e-7",
            "1e300",
            "1.7976931348623157e308",
            "(0/0)",
            "(1/0)",
            "(-1/0)",
        )
        return f"{self.random.uniform(-100, 100):.4g}" if self.random.random() < 0.4 else self.pick(edges)

    def number(self) -> str:
        return self.integer() if self.random.random() < 0.7 else self.fraction()

    def string(self) -> str:
        roll = self.random.random()
        if roll < 0.6:
            return literal(self.pick(TEXTS))
        if roll < 0.7:
            return literal(self.pick(DATES))
        if roll < 0.8:
            return literal(self.pick(JSON_TEXTS))
        return literal("".join(self.random.choices("ab1 -,.%éß😀\n'", k=self.random.randint(0, 8))))

    def items(self) -> str:
        if self.depth >= 2:
            return ""
        self.depth += 1
        kind = self.pick(("any", "integer", "string", "number"))
        parts = [self.makers[kind]() for _ in range(self.random.choice((0, 1, 2, 3, 5)))]
        self.depth -= 1
        return ", ".join(parts)

    def tuple(self) -> str:
        return f"tuple({self.items()})"

    def object(self) -> str:
        if self.depth >= 2:
            return "{}"
        self.depth += 1
        pairs = [f"{self.pick(KEYS)}: {self.any()}" for _ in range(self.random.choice((0, 1, 2, 3)))]
        self.depth -= 1
        return "{" + ", ".join(pairs) + "}"

    def datetime(self) -> str:
        if self.random.random() < 0.5:
            return f"toDateTime({self.random.choice((0, 1.5, 86399, 1734517800.25, -1, 951782400))})"
        return f"toDateTime({literal(self.pick(DATES[:4]))}, {literal(self.pick(ZONES[:4]))})"

    def function(self) -> str:
        return self.pick(
            (
                "(x -> x)",
                "(x -> equals(x, 'a'))",
                "(x -> [x])",
                "((a, b) -> b)",
                "((a, b) -> concat(a, b))",
                "toString",
            )
        )

    def any(self) -> str:
        kinds = (
            "null",
            "boolean",
            "number",
            "number",
            "string",
            "string",
            "array",
            "tuple",
            "object",
            "date",
            "datetime",
        )
        return self.makers[self.pick(kinds)]()

    # Arguments

    def argument(self, declared: Function, parameter: Parameter) -> str:
        """One argument: what suits the parameter most of the time, else any value."""
        if declared.name == "range":
            return self.pick(BOUNDS)
        if parameter.name == "pattern" and not declared.name.lower().endswith("like"):
            return self.pick((*map(literal, REGEXES), "null", "5", "false"))
        roll = self.random.random()
        if roll < 0.06:
            return "null"
        if roll < 0.18:
            return self.any()
        if roll < 0.2:
            return self.makers[self.pick(("error", "function"))]()
        if roll < 0.75:
            special = self.special(declared, parameter)
            if special is not None:
                return special
        return self.makers[self.pick(parameter.kinds)]()

    def special(self, declared: Function, parameter: Parameter) -> str | None:
        """A value that means something to the parameter, None when nothing special does."""
        name = parameter.name
        if name == "pattern":
            return literal(self.pick(LIKES))
        if name in ("path", "path_or_type", "more") and declared.category == "json":
            return self.number() if self.random.random() < 0.4 else literal(self.pick(STEPS))
        if declared.category == "dates" and name in ("value", "start", "end"):
            roll = self.random.random()
            return (
                literal(self.pick(DATES))
                if roll < 0.4
                else self.makers["datetime" if roll < 0.75 else "date"]()
            )
        if declared.category == "json" and name in ("json", "text"):
            return self.object() if self.random.random() < 0.2 else literal(self.pick(JSON_TEXTS))
        if declared.category == "crypto" and name == "items":
            return f"[{', '.join(self.string() for _ in range(self.random.randint(1, 4)))}]"
        if name == "wanted" and "array" in parameter.kinds:
            return f"[{', '.join(literal(self.pick(POOLS['wanted'])) for _ in range(self.random.randint(0, 3)))}]"
        if name in ("items", "container"):
            return self.makers[self.pick(("array", "array", "tuple", "object"))]()
        pool = POOLS.get(name)
        return None if pool is None else literal(self.pick(pool))

    def call(self, declared: Function) -> str:
        """A program that prints a call's result in brackets: plainly, with arguments whose kinds the compiler
        cannot know, or with the function as a value.
        """
        parameters = [p for p in declared.params if not p.optional or self.random.random() < 0.6]
        args = [self.argument(declared, parameter) for parameter in parameters]
        if declared.params and declared.params[-1].variadic:
            args += [
                self.argument(declared, declared.params[-1])
                for _ in range(self.random.choice((0, 0, 1, 2, 4)))
            ]
        form = self.random.choice(FORMS)
        return form.format(
            name=declared.name, args=", ".join(args), opaque=", ".join(f"o({arg})" for arg in args)
        )


FORMS: Final = (
    "print([{name}({args})])",
    "print([{name}({args})])",
    "fun o(x) {{ return x }} print([{name}({opaque})])",
    "let f := `{name}` print([f({args})])",
)

KEYS: Final = ("'a'", "'b'", "'1'", "2", "1", "'é'", "null", "'__proto__'", "'x y'")


def library_calls(declared: Function, count: int, seed: int = 0) -> list[str]:
    """That many programs that call the function."""
    calls = Calls(f"{seed}:{declared.name}")
    return [calls.call(declared) for _ in range(count)]
