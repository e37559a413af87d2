"""The source of a site function: a JavaScript module made into the body of a function that gives its exports.

Only `export` at the top of a statement outside of all brackets is changed; the rest of the text is unchanged.
"""

from __future__ import annotations

from typing import NoReturn

from hoglab.hog.errors import HogCompileError
from hoglab.hog.patterns import DOTALL, VERBOSE, Match, trusted

_TOKEN = trusted(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>[0-9][0-9A-Za-z_.]*)
  | (?P<word>[A-Za-z_$][\w$]*)
  | (?P<space>\s+)
  | (?P<other>.)
    """,
    VERBOSE | DOTALL,
)
_REGEX = trusted(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_BEFORE_REGEX = frozenset("(,=:[!&|?{};+-*%~^<>")
_WORDS_BEFORE_REGEX = frozenset(
    {"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do"}
)
_DECLARED = trusted(r"(?:async\s+)?(?:function\s*\*?|class|const|let|var)\s*([A-Za-z_$][\w$]*)")
_LISTED = trusted(r"\{([^{}]*)\}\s*;?")
_NAMED = trusted(r"([A-Za-z_$][\w$]*)(?:\s+as\s+([A-Za-z_$][\w$]*))?")


def exports_function(source: str) -> str:
    """Return an expression of a function that runs the module and returns the object of its exports.

    Raises `HogCompileError` with the place of an `import`, or of an `export` of another form than
    `export function|class|const|let|var`, `export default` or `export { a, b as c }`.
    """
    parts: list[str] = []
    assigned: list[str] = []
    at = 0
    for start in _top_level_words(source):
        if start < at:
            continue
        parts.append(source[at:start])
        replacement, names, at = _exported(source, start)
        parts.append(replacement)
        assigned += [f"exports.{public} = {private};" for public, private in names]
    parts.append(source[at:])
    body = "".join(parts)
    return f"(function () {{let exports={{}};{body}\n;{''.join(assigned)}return exports;}})"


def _exported(source: str, start: int) -> tuple[str, list[tuple[str, str]], int]:
    """Return the replacement of the export at `start`, its names (outside, inside), and the end of the old text."""
    if not source.startswith("export", start):
        _refuse("Site functions cannot import modules", source, start)
    after = start + len("export")
    rest = len(source[after:]) - len(source[after:].lstrip())
    after += rest
    if trusted(r"default\b").match(source, after):
        return "exports.default =", [], after + len("default")
    declared = _DECLARED.match(source, after)
    if declared:
        return "", [(declared[1], declared[1])], after
    listed = _LISTED.match(source, after)
    if not listed or trusted(r"\s*from\b").match(source, listed.end()):
        _refuse("This form of `export` is not supported", source, start)
    names = []
    for item in filter(None, map(str.strip, listed[1].split(","))):
        matched = _NAMED.fullmatch(item)
        if matched is None:
            _refuse("This form of `export` is not supported", source, start)
        names.append((matched[2] or matched[1], matched[1]))
    return "", names, listed.end()


def _top_level_words(source: str) -> list[int]:
    """Yield the positions of `import` and `export` that start statements outside of brackets, texts and comments."""
    positions = []
    depth, at, before = 0, 0, ";"
    templates: list[int] = []  # the depths at which `${` opened
    while at < len(source):
        token = _regex_or_token(source, at, before)
        kind, text = token.lastgroup, token[0]
        at = token.end()
        if kind in ("comment", "space"):
            continue
        if text == "`" or (text == "}" and templates and templates[-1] == depth):
            if text == "}":
                templates.pop()
                depth -= 1
            at, opened = _template_end(source, at)
            if opened:
                depth += 1
                templates.append(depth)
            before = "(" if opened else ")"
            continue
        if text in "([{":
            depth += 1
        elif text in ")]}":
            depth -= 1
        elif (
            depth == 0
            and text in ("export", "import")
            and before != "."
            and source[at : at + 1] not in ("(", ".")
        ):
            positions.append(token.start())
        before = text
    return positions


def _regex_or_token(source: str, at: int, before: str) -> Match[str]:
    if source[at] == "/" and source[at : at + 2] not in ("//", "/*"):
        begins = before[-1] in _BEFORE_REGEX or before in _WORDS_BEFORE_REGEX
        matched = _REGEX.match(source, at) if begins else None
        if matched:
            return matched
    token = _TOKEN.match(source, at)
    assert token is not None  # noqa: S101 - the last alternative takes any character
    return token


def _template_end(source: str, at: int) -> tuple[int, bool]:
    """Return the position behind the text of a template, and whether `${` ended it instead of the closing quote."""
    while at < len(source):
        if source[at] == "\\":
            at += 2
        elif source[at] == "`":
            return at + 1, False
        elif source.startswith("${", at):
            return at + 2, True
        else:
            at += 1
    return at, False


def _refuse(message: str, source: str, start: int) -> NoReturn:
    raise HogCompileError(message, source=source, start=start, end=start + len("export"), code="module")
