"""What authors get wrong most: each mistake is found at its place, with a stable code and a hint that helps."""

from __future__ import annotations

import re

import pytest
from tests.hog.oracles.corpus import CASES, Case

from hoglab import hog
from hoglab.hog.errors import EXCERPT_WIDTH, excerpt

COMPILERS = {
    "program": hog.compile_program,
    "expression": hog.compile_expression,
    "template": hog.compile_template,
}

# the text, what is found, where (the marked text), and a part of the hint
MISTAKES = [
    ("let b = 2", "unexpected-token", "=", "use `:=` to assign"),
    ("let a := 1 a += 1", "unexpected-token", "=", "there is no `+=`; write `x := x + ...`"),
    ("let x := 1 x++", "unexpected-token", "+", "there is no `++`"),
    ("return a === 1", "unexpected-token", "=", "there is no `===`; write `==`"),
    ("return a !== 1", "unexpected-token", "=", "there is no `!==`; write `!=`"),
    ("return a && b", "unexpected-character", "&", "use `and`"),
    ("return !a", "unexpected-character", "!", "use `not`"),
    ("let f := x => x", "unexpected-token", ">", "`x -> ...`"),
    ("let f := fun(x) { return x }", "unexpected-token", "fun", "functions need a name"),
    ("fun f(a := 1) { return a }", "unexpected-token", ":=", "a missing argument is null"),
    ("fun f(a = 1) { return a }", "unexpected-token", "=", "a missing argument is null"),
    ("fun f(a: string) { return a }", "unexpected-token", ":", "there are no types"),
    ("let a: string := 'x'", "unexpected-token", ":", "there are no types"),
    ("let {a, b} := c", "unexpected-token", "{", "declares one variable"),
    ("let 'x' := 1", "unexpected-token", "'x'", "single quotes make strings"),
    ("let let := 1", "reserved-word", "let", "quote it"),
    ("while (true) let x := 1", "unexpected-token", "let", "put the body into braces"),
    ("while true { print(1) }", "unexpected-token", "true", "in parentheses: `while (condition)"),
    ("if x > 1: print(x)", "unexpected-token", ":", "blocks are written in braces"),
    ("def f(x):\n  return x", "unexpected-token", ":", "`fun name(parameters)`"),
    ("for (const x of [1]) { }", "unexpected-token", "x", "declared with `let`"),
    ("for (let x of [1]) { }", "unexpected-token", "of", "`for (let item in items)`"),
    ("return [x for x in y]", "unexpected-token", "for", "`arrayMap(x -> ..., items)`"),
    ("switch (a) { case 1: b }", "unexpected-token", ":", "there is no `switch`"),
    ("return x is 1", "unexpected-token", "1", "compare with `=`"),
    ("return [...a]", "unexpected-token", ".", "there is no `...`"),
    ("return 'it's'", "unterminated-string", "'", "is written `''`"),
    ("return '\\d+'", "unknown-escape", "\\d", "for a backslash"),
    ("event := 1", "assign-global", "event", "declare it first: `let event := ...`"),
    ("return {event}", "placeholder", "{event}", "{'key': value}"),
    ("try { print(1) }", "no-catch", "try { print(1) }", "catch (e)"),
    ("try { } catch (e) { } finally { }", "unsupported", "{ }", "behind the `try`"),
    ("const x := 1", "assign-global", "x", "`let x := ...`"),
    ("var x = 1", "foreign-word", "var", "`let name := value`"),
    ("function f() { }", "foreign-word", "function", "`fun name(parameters)"),
    ("while (false) { break }", "foreign-word", "break", "a condition of the loop"),
    ("while (false) { continue }", "foreign-word", "continue", "into an `if`"),
    ("if true { print(1) }", "foreign-word", "if", "in parentheses: `if (condition)"),
    ("class A { }", "foreign-word", "class", "there are no classes"),
    ("raise Error('x')", "foreign-word", "raise", "`throw Error('message')`"),
    ("print 'x'", "foreign-word", "print", "`print(value)`"),
    ("select a from b", "foreign-word", "select", "`(select ...)`"),
    ('return "text"', "double-quotes", '"text"', "single quotes"),
    ("return None", "foreign-word", "None", "write `null`"),
    ("return 'a' + 'b'", "plus-string", "'a' + 'b'", "`||`"),
    ("let a := 1 a = 2", "comparison-statement", "a = 2", "dropped"),
    ("if (true) let b := 1", "if-let", "if (true)", "put the body into braces"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code", "marked", "hint"), MISTAKES, ids=[one[0] for one in MISTAKES])
def test_mistake(source: str, code: str, marked: str, hint: str) -> None:
    found = [one for one in hog.check(source) if one.code == code]
    assert found, hog.check(source)
    assert source[found[0].start : found[0].end] == marked
    assert hint in (found[0].hint or "")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_corpus_compiles_or_is_refused_as_stated(case: Case) -> None:
    found = refusal(case)
    if case.error is None and not case.runs:
        assert found in (None, "unknown-function")
    else:
        assert found == case.error


def refusal(case: Case) -> str | None:
    """The code with which the text is refused, after a look at the error itself."""
    try:
        program = COMPILERS[case.kind](case.source, hog.ANY)
    except hog.HogSourceError as found:
        error = found
    else:
        assert program.bytecode
        return program.errors[0].code if program.errors else None
    assert 0 <= error.offset <= error.end <= len(case.source)
    assert error.line == case.source.count("\n", 0, error.offset) + 1
    assert error.column == error.offset - (case.source.rfind("\n", 0, error.offset) + 1) + 1
    line, carets = error.excerpt.split("\n")
    assert set(carets.strip()) == {"^"}
    assert len(carets) <= len(line) + 1
    return error.code


def test_codes_are_words_in_small_letters() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", case.error) for case in CASES if case.error)


def test_excerpt_of_a_long_line_shows_the_place() -> None:
    source = "let a := 1\n" + "x" * 500 + "!" + "y" * 500
    line, carets = excerpt(source, 511, 512).split("\n")
    assert len(line) == EXCERPT_WIDTH
    assert line[carets.index("^")] == "!"


def test_excerpt_with_tabs_and_carriage_returns() -> None:
    assert excerpt("a\r\n\tb ! c\r\nd", 6, 7) == " b ! c\n   ^"
