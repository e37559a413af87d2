"""From text to tokens.

One pass, one list. A stack of modes follows the nesting of f-strings, template text and braces, because the meaning
of a character depends on it (spec: hog-language 1). The start of a HogQLX tag is recognised here too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from hoglab.hog.errors import HogSyntaxError
from hoglab.hog.patterns import DOTALL, Match, anchored, escape, searched

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SOURCE_BYTES = 102_400
"""The largest source text, in bytes of UTF-8."""

MAX_DEPTH = 200
"""Maximum depth of nested constructs; the parser keeps to it too."""

RESERVED = frozenset(
    {"catch", "except", "finally", "fn", "fun", "intersect"}
    | {"let", "materialized", "throw", "try", "while", "within"}
)
"""Words that are never names (spec: hog-language 1.2)."""

LITERALS: dict[str, float | None] = {
    "null": None,
    "inf": float("inf"),
    "infinity": float("inf"),
    "nan": float("nan"),
}
"""Words that are constants and never names."""

_WORDS = {**dict.fromkeys(RESERVED, "reserved"), **dict.fromkeys(LITERALS, "literal")}


class Token(NamedTuple):
    """A token; `kind` is the operator's own text, or a name from the list below.

    `name` (an identifier that is no reserved word; `word` is it in lower case), `quoted` (a quoted
    identifier), `reserved` (`word` in lower case), `literal` (null, inf, nan), `number`, `string`,
    `text` (a chunk of an f-string, a template or the inside of a tag), `f'` (start of an f-string), `f-end`,
    `{{` and `}}` (an interpolation opens and closes), `tag` (a tag opens; `value` is its name), `attribute`,
    `tag>` (the opening tag ends), `/>` (the tag ends), `</` (the closing tag, `value` is its name), `eof`.
    """

    kind: str
    value: int | float | str | None
    start: int
    end: int
    word: str = ""


_token: Callable[[tuple[str, int | float | str | None, int, int, str]], Token] = partial(tuple.__new__, Token)
"""Function that makes a `Token` of a tuple of its parts, in half the time."""

_BLANK = r" \t\r\n\x0b\x0c\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_ESCAPED = r"\\[bfrntav0BFRNTAV0\\']|\\[xX][0-9a-fA-F]{2}"
_OPERATORS = (
    ":=", "::", "->", "||", "==", "!=", "<>", "<=", ">=", "=~*", "=~", "!~*", "!~", "~*", "??", "?.",
    "(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "+", "-", "*", "/", "%", "=", "<", ">", "~", "?", "#",
)  # fmt: skip
_PATTERNS = {  # the most frequent first
    "name": r"(?!f')[A-Za-z_$][A-Za-z0-9_$]*+",
    "mark": r"[()\[\],;]|\.(?![0-9])|:(?![=:])",
    "string": rf"'(?:[^'\\]++|''|{_ESCAPED})*+'",
    "space": (
        rf"[{_BLANK}]+|(?:--|//)[^\r\n]*|#(?=[{_BLANK}]|\Z)[^\r\n]*"
        r"|/\*(?:[^*]|\*(?!/))*\*/"
    ),
    "fstring": r"f'",
    "hexfloat": r"0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?[pP][+-]?[0-9]+",
    "hex": r"0[xX][0-9a-fA-F]+",
    "binary": r"0[bB][01]+",
    "octal": r"0[oO][0-7]+",
    "exponent": r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+",
    "decimal": r"[0-9]+",
    "backtick": rf"`(?:[^`\\]++|``|{_ESCAPED})*+`",
    "double": rf'"(?:[^"\\]++|""|{_ESCAPED}|\\")*+"',
    "op": "|".join(escape(op) for op in sorted(_OPERATORS, key=len, reverse=True)),
}
_TOKEN = anchored(
    rf"(?:[{_BLANK}]++(?!\Z))?(?:{'|'.join(f'(?P<{kind}>{pattern})' for kind, pattern in _PATTERNS.items())})"
)
_NAME_CHAR = anchored(r"[A-Za-z0-9_$]")
_FSTRING_TEXT = anchored(rf"(?:[^'\\{{]|''|{_ESCAPED}|\\\{{)+")
# a backslash right before a brace always belongs to the brace, whatever stands before it
_TEMPLATE_TEXT = anchored(r"(?:[^\\{]++|\\\{|\\)++")
_TAG_START = anchored(rf"<[A-Za-z_][A-Za-z0-9_-]*(?:[>/]|[{_BLANK}]+[>/A-Za-z_$])")

_ESCAPES = {
    "b": "\b", "f": "\f", "r": "\r", "n": "\n", "t": "\t", "a": "\a", "v": "\v", "0": "", "\\": "\\",
    "'": "'", "{": "{", "`": "`", '"': '"',
}  # fmt: skip
_UNESCAPE_STRING = searched(r"''|\\(.)", DOTALL)
_UNESCAPE_TEMPLATE = searched(r"\\([bfrntav0\\{])")
_UNESCAPE_QUOTED = {"`": searched(r"``|\\([^'])", DOTALL), '"': searched(r"\"\"|\\([^'])", DOTALL)}

_UNCLOSED = {
    "'": anchored(rf"(?:[^'\\]|''|{_ESCAPED})*"),
    "`": anchored(rf"(?:[^`\\]|``|{_ESCAPED}|\\`)*"),
    '"': anchored(rf'(?:[^"\\]|""|{_ESCAPED}|\\")*'),
}
"""The text of a string that has no end, by its quote."""
_TAG_NAME = anchored(r"[A-Za-z_][A-Za-z0-9_-]*")
_TAG_TEXT = anchored(r"[^{<]+")
_SPACES = anchored(rf"[{_BLANK}]*")

_OPERAND_ENDS = frozenset(
    {"name", "quoted", "literal", "number", "string", "f-end", ")", "]", "}", "/>", "</"}
)

_BEFORE_OPERANDS = frozenset(
    {"return", "throw", "and", "or", "not", "in", "like", "ilike", "else", "then", "when", "case", "between"}
    | {"select", "distinct", "from", "join", "where", "on", "by"}
)

_HINTS = {
    "!": "use `not` or `!=`",
    "&": "use `and`",
    "|": "use `or`, or `||` to join strings",
    "^": "there is no power operator",
    "@": None,
}


def tokenize(source: str, *, template: bool = False) -> list[Token]:
    """Split the source into tokens, ended by one of kind `eof`.

    With `template`, the whole text is string content with `{...}` interpolations (an input of a function).
    Raises `HogSyntaxError` for characters and literals that the language does not have.
    """
    if len(source) > MAX_SOURCE_BYTES or len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise HogSyntaxError(
            f"The source is longer than {MAX_SOURCE_BYTES} bytes", source=source, code="source-too-long"
        )
    return _Lexer(source).run(template=template)


class _Lexer:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: list[Token] = []
        self.modes: list[tuple[str, int]] = []  # what is open, and since where

    def run(self, *, template: bool) -> list[Token]:
        source, size, match = self.source, len(self.source), _TOKEN.match
        add = self.tokens.append
        at = 0
        if template:
            self.modes.append(("template", 0))
            at = self.string_text(at)
        while at < size:
            matched = match(source, at)
            if matched is None:
                self.fail_at(at)
            kind = matched.lastgroup or ""
            text = matched.group(kind)
            at = matched.end()
            start = at - len(text)
            if kind == "name":
                if text == "F" and source.startswith("'", at):
                    raise self.error("Full template strings cannot be written in code", start, at + 1)
                word = text.lower()
                kind = _WORDS.get(word, "name")
                add(_token((kind, LITERALS[word] if kind == "literal" else text, start, at, word)))
            elif kind == "mark":
                add(_token((text, None, start, at, "")))
            elif kind == "space":
                continue
            elif kind == "op":
                at = self.operator(text, start, at)
            elif kind == "string":
                add(Token("string", self.string_value(start, at), start, at))
            elif kind == "fstring":
                add(Token("f'", None, start, at))
                self.modes.append(("fstring", start))
                at = self.string_text(at)
            elif kind in ("backtick", "double"):
                quote = source[start]
                value = _UNESCAPE_QUOTED[quote].sub(_unescape, source[start + 1 : at - 1])
                add(Token("quoted", value, start, at))
            else:
                self.number(kind, start, at)
        self.finish(template=template)
        return self.tokens

    def operator(self, op: str, start: int, end: int) -> int:
        if op == "{":
            self.modes.append(("brace", start))
        elif op == "}":
            if not self.modes:
                raise self.error("Unmatched `}`", start, end, code="unmatched-brace")
            if self.modes[-1][0] == "interpolation":
                self.modes.pop()
                self.tokens.append(Token("}}", None, start, end))
                return self.go_on(end)
            self.modes.pop()
        elif op == "/" and self.source.startswith("/*", start):
            raise self.error("The comment is not closed", start, start + 2, code="unterminated-comment")
        elif op == "<" and _TAG_START.match(self.source, start) and not self.after_operand(start):
            return self.tag(start)
        self.tokens.append(Token(op, None, start, end))
        return end

    def after_operand(self, start: int) -> bool:
        """Return whether an operand ends before `start` on the same line: then `<` can only mean less-than."""
        if not self.tokens:
            return False
        last = self.tokens[-1]
        if last.word in _BEFORE_OPERANDS:
            return False
        return last.kind in _OPERAND_ENDS and "\n" not in self.source[last.end : start]

    def string_text(self, at: int) -> int:
        """Read a chunk of f-string or template text; stop behind its end or behind an opening brace."""
        mode, opened = self.modes[-1]
        source = self.source
        pattern = _TEMPLATE_TEXT if mode == "template" else _FSTRING_TEXT
        matched = pattern.match(source, at)
        if matched is not None:
            start, at = at, matched.end()
            chunk = matched.group()
            unescape = _UNESCAPE_TEMPLATE if mode == "template" else _UNESCAPE_STRING
            value = unescape.sub(_unescape, chunk) if "\\" in chunk or "'" in chunk else chunk
            self.tokens.append(Token("text", value, start, at))
        if at >= len(source):
            if mode == "template":
                return at
            raise self.error("The f-string is not closed", opened, opened + 2, code="unterminated-string")
        if source[at] == "{":
            self.modes.append(("interpolation", at))
            self.tokens.append(Token("{{", None, at, at + 1))
            return at + 1
        if source[at] == "'":
            self.modes.pop()
            self.tokens.append(Token("f-end", None, at, at + 1))
            return self.go_on(at + 1) if self.modes and self.modes[-1][0] == "tag" else at + 1
        raise self.bad_escape(at)

    def go_on(self, at: int) -> int:
        """Read on behind an interpolation, an attribute or a tag, according to the open construct."""
        mode = self.modes[-1][0] if self.modes else ""
        if mode in ("fstring", "template"):
            return self.string_text(at)
        if mode == "tag":
            return self.tag_attributes(at)
        return self.tag_children(at) if mode == "children" else at

    # --- tags

    def tag(self, start: int) -> int:
        """Read an opening tag from its `<`."""
        match = _TAG_NAME.match(self.source, start + 1)
        if match is None:
            raise self.error("Expected the name of a tag", start, start + 1, code="tag")
        self.tokens.append(Token("tag", match.group(), start, match.end()))
        self.modes.append(("tag", start))
        if len(self.modes) > MAX_DEPTH:
            raise self.error(
                f"The code is nested more than {MAX_DEPTH} levels deep", start, match.end(), code="too-deep"
            )
        return self.tag_attributes(match.end())

    def tag_attributes(self, at: int) -> int:
        """Read attributes up to the end of the opening tag, or to a value that is an expression."""
        source, add = self.source, self.tokens.append
        while True:
            at = self.skip_spaces(at)
            name = _TAG_NAME.match(source, at)
            if name is not None and not source.startswith("f'", at):
                add(Token("attribute", name.group(), at, name.end()))
                at = name.end()
            elif source.startswith("=", at):
                add(Token("=", None, at, at + 1))
                at += 1
            elif source.startswith(("'", "f'", "{"), at):
                return self.tag_value(at)
            elif source.startswith("/>", at):
                add(Token("/>", None, at, at + 2))
                self.modes.pop()
                return self.go_on(at + 2) if self.modes and self.modes[-1][0] == "children" else at + 2
            elif source.startswith(">", at):
                add(Token("tag>", None, at, at + 1))
                self.modes[-1] = ("children", self.modes[-1][1])
                return self.tag_children(at + 1)
            else:
                raise self.bad_tag(at)

    def tag_value(self, at: int) -> int:
        source = self.source
        if source[at] == "{":
            self.modes.append(("interpolation", at))
            self.tokens.append(Token("{{", None, at, at + 1))
            return at + 1
        if source[at] == "f":
            self.tokens.append(Token("f'", None, at, at + 2))
            self.modes.append(("fstring", at))
            return self.string_text(at + 2)
        matched = _TOKEN.match(source, at)
        if matched is None or matched.lastgroup != "string":
            raise self.bad_string(at, "'")
        self.tokens.append(Token("string", self.string_value(at, matched.end()), at, matched.end()))
        return self.tag_attributes(matched.end())

    def tag_children(self, at: int) -> int:
        """Read the inside of a tag up to an expression, or through its closing tag."""
        source = self.source
        matched = _TAG_TEXT.match(source, at)
        if matched is not None:
            self.tokens.append(Token("text", matched.group(), at, matched.end()))
            at = matched.end()
        if source.startswith("{", at):
            self.modes.append(("interpolation", at))
            self.tokens.append(Token("{{", None, at, at + 1))
            return at + 1
        if not source.startswith("</", at):
            if at >= len(source):
                raise self.bad_tag(at)
            return self.tag(at)
        name = _TAG_NAME.match(source, self.skip_spaces(at + 2))
        end = self.skip_spaces(name.end()) if name is not None else at
        if name is None or not source.startswith(">", end):
            raise self.bad_tag(at)
        self.tokens.append(Token("</", name.group(), at, end + 1))
        self.modes.pop()
        return self.go_on(end + 1) if self.modes and self.modes[-1][0] == "children" else end + 1

    def skip_spaces(self, at: int) -> int:
        matched = _SPACES.match(self.source, at)
        return matched.end() if matched else at

    def bad_tag(self, at: int) -> HogSyntaxError:
        if at >= len(self.source):
            opened = self.modes[-1][1]
            return self.error("The tag is not closed", opened, opened + 1, code="tag")
        hint = None
        if self.source[at] == '"':
            hint = "values of attributes are written in single quotes or braces"
        return self.error(f"Unexpected `{self.source[at]}` in a tag", at, at + 1, code="tag", hint=hint)

    def number(self, kind: str, start: int, end: int) -> None:
        text = self.source[start:end]
        after = _NAME_CHAR.match(self.source, end)
        value: int | float
        if kind == "octal":
            raise self.error(
                f"HogQL does not support `0o`-prefixed octal integer literals; got `{text}`."
                " Use a plain decimal literal instead.",
                start,
                end,
                code="number",
            )
        if after is not None:
            stop = end
            while stop < len(self.source) and _NAME_CHAR.match(self.source, stop):
                stop += 1
            raise self.error(f"Invalid number `{self.source[start:stop]}`", start, stop, code="number")
        if kind == "decimal":
            value = _decimal_int(text)
        elif kind == "hex":
            value = _bounded(int(text, 16))
        elif kind == "binary":
            value = _bounded(int(text, 2))
        elif kind == "hexfloat":
            value = _hex_float(text)
        else:
            value = float(text)
        self.tokens.append(Token("number", value, start, end, kind))

    def string_value(self, start: int, end: int) -> str:
        body = self.source[start + 1 : end - 1]
        return _UNESCAPE_STRING.sub(_unescape, body) if "\\" in body or "'" in body else body

    def finish(self, *, template: bool) -> None:
        size = len(self.source)
        if self.modes and self.modes[-1][0] == "tag":
            raise self.bad_tag(size)
        if self.modes and self.modes[-1][0] == "interpolation":
            opened = self.modes[-1][1]
            raise self.error(
                "The `{` is not closed", opened, opened + 1, code="unmatched-brace",
                hint="write `\\{` for a brace that is part of the text",
            )  # fmt: skip
        if self.modes and self.modes[-1][0] == "brace" and not template:
            opened = self.modes[-1][1]
            raise self.error("The `{` is not closed", opened, opened + 1, code="unmatched-brace")
        self.tokens.append(Token("eof", None, size, size))

    # --- errors

    def error(
        self, message: str, start: int, end: int, *, code: str = "syntax", hint: str | None = None
    ) -> HogSyntaxError:
        return HogSyntaxError(message, source=self.source, start=start, end=end, code=code, hint=hint)

    def fail_at(self, at: int) -> NoReturn:
        """Raise the error for the text at `at`, where no token begins."""
        source = self.source
        char = source[at]
        if char in "'`\"":
            raise self.bad_string(at, char)
        if char == ".":
            raise self.error("Invalid number", at, at + 1, code="number")
        shown = f"'{char}' (U+{ord(char):04X})" if " " <= char <= "~" else f"U+{ord(char):04X}"
        raise self.error(
            f"Unexpected character {shown}", at, at + 1, code="unexpected-character", hint=_HINTS.get(char)
        )

    def bad_string(self, at: int, quote: str) -> HogSyntaxError:
        source, i = self.source, at + 1
        matched = _UNCLOSED[quote].match(source, i)
        stop = matched.end() if matched else i
        if stop < len(source) and source[stop] == "\\":
            return self.bad_escape(stop)
        hint = "a single quote inside a text is written `''` or `\\'`" if quote == "'" else None
        return self.error("The string is not closed", at, at + 1, code="unterminated-string", hint=hint)

    def bad_escape(self, at: int) -> HogSyntaxError:
        escape = self.source[at : at + 2]
        return self.error(
            f"Unknown escape `{escape}` in a string", at, at + 2, code="unknown-escape",
            hint=f"write `\\{escape}` for a backslash, as in regular expressions: '\\\\d'",
        )  # fmt: skip


def _unescape(matched: Match[str]) -> str:
    char = matched.group(1)
    if char is None:
        return matched.group()[0]
    value = _ESCAPES.get(char)
    return matched.group() if value is None else value


def _decimal_int(text: str) -> int | float:
    """Return the integer, or infinity when it has more digits than a number can hold."""
    return int(text) if len(text) <= 400 else float(text)


def _bounded(value: int) -> int | float:
    """Return the integer, or infinity when no number can hold it."""
    return value if value.bit_length() <= 1_024 else float("inf")


def _hex_float(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("inf")
