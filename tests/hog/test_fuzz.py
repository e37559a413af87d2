"""Any text at all: the compilers answer with a program or with one of their own errors, in time.

`HOGLAB_FUZZ_EXAMPLES` makes every part of this longer, with new examples in each run.
"""

from __future__ import annotations

import gc
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hog.oracles.corpus import CASES
from tests.hog.oracles.programs import oracle_settings, programs

from hoglab import hog
from hoglab.hog.compiler.lower import MAX_ARGUMENTS
from hoglab.hog.formatter import format_program
from hoglab.hog.parser import MAX_DEPTH, MAX_NODES, MAX_OPERATORS, parse_program
from hoglab.hog.parser.lexer import MAX_SOURCE_BYTES, tokenize

MAX_SECONDS = 5.0
"""Processor time of this thread that no text may take to compile in every way; the longest takes 0.3 s."""

SOURCES = [case.source for case in CASES]
SIGNS = "(){}[]<>'\"`,;:.=+-*/%|?!~#\\ \n\tfxn01"
OPENINGS = [
    "(", "[", "{", "{'a': ", "f(", "x -> ", "not ", "- ", "if (a) ", "while (a) ", "f'{", "<a>", "<a b={", "a[",
    "a ? ", "a ?? ", "a.b", "(select ", "(select a from (", "sql(", "case when ", "fun f() {", "try {", "x, ",
    "for (let i in ", "let a := ", "return ", "throw ", "/*", "'", "`", "a = ", "a between ", "(with x as (",
    "() -> {", "interval ", "{{", "+ 1", "|| 'a' ", "and a ", "? 1 : ", ", a", "=", "else ", "catch ",
]  # fmt: skip


def refusals(source: str) -> list[hog.HogSourceError]:
    """Compiles the text as each kind of text and for each target; only documented errors get out."""
    found: list[hog.HogSourceError] = []
    gc.disable()  # a collection would walk the heap of the whole test process
    started = time.thread_time()
    for compile_text in (hog.compile_program, hog.compile_expression, hog.compile_template):
        try:
            program = compile_text(source, hog.ANY)
            assert program.bytecode
            assert program.javascript
            assert program.generated
        except hog.HogSourceError as error:
            found.append(error)
    with suppress(hog.HogSourceError):
        format_program(source)
    took = time.thread_time() - started
    gc.enable()
    assert took < MAX_SECONDS, f"{took:.1f} s for {source[:200]!r}"
    assert all(error.render().startswith(error.message) for error in found)
    return found


@oracle_settings(150)
@given(st.text(max_size=200))
def test_any_text(source: str) -> None:
    refusals(source)


@oracle_settings(150)
@given(st.text(alphabet=SIGNS, max_size=60))
def test_any_signs(source: str) -> None:
    refusals(source)


@oracle_settings(250)
@given(st.sampled_from(SOURCES), st.data())
def test_mutated_programs(source: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(source)))
        end = min(len(source), at + data.draw(st.integers(0, 8)))
        other = data.draw(st.sampled_from(SOURCES))
        cut = data.draw(st.integers(0, len(other)))
        snippets = ["", source[at:end] * 2, data.draw(st.sampled_from(SIGNS)), other[cut : cut + 12]]
        new = data.draw(st.sampled_from(snippets))
        source = source[:at] + new + source[end:]
    refusals(source)


@oracle_settings(25)
@given(programs(max_statements=4), st.data())
def test_cut_programs(source: str, data: st.DataObject) -> None:
    refusals(source[: data.draw(st.integers(0, len(source)))])


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("count", [150, 4_000])
def test_deep_nesting(opening: str, count: int) -> None:
    source = (opening * count)[: MAX_SOURCE_BYTES - 10]
    assert refusals(source) or count < MAX_DEPTH or opening in "'`"


@pytest.mark.parametrize(
    "source",
    [
        "return " + "a" * 100_000,
        "return " + "1" * 100_000,
        "return 0x" + "f" * 100_000,
        "return 1e" + "9" * 100_000,
        "return ." + "1" * 100_000,
        "return '" + "a" * 100_000 + "'",
        "return '" + "\\n" * 50_000 + "'",
        "return `" + "a" * 100_000 + "`",
        "return f'" + "a" * 100_000 + "'",
        "return <a>" + "b" * 100_000 + "</a>",
        "-- " + "a" * 100_000,
        "/* " + "*" * 100_000,
        "/*" + "*/ /*" * 20_000,
        "'" + "''" * 50_000,
        " " * 100_000,
        ";" * 100_000,
        "\\" * 100_000,
        "a." * 50_000,
        "let a := " + "(" * 50_000 + ")" * 50_000,
        "return " + "a, " * 30_000 + "b",
        "{" + "a: 1, " * 15_000 + "}",
        "f(" + "1, " * 30_000 + ")",
        "\ufeff" * 30_000,
        "\x00" * 1_000,
        "\ud800",
        "a\u2028b",
    ],
    ids=lambda source: f"{source[:10]!r}",
)
def test_huge_tokens(source: str) -> None:
    refusals(source)


@pytest.mark.parametrize(
    ("at_limit", "beyond", "code"),
    [
        ("-" * 2 + "a" * (MAX_SOURCE_BYTES - 2), "-" * 2 + "a" * (MAX_SOURCE_BYTES - 1), "source-too-long"),
        ("--" + "é" * (MAX_SOURCE_BYTES // 2 - 1), "--" + "é" * (MAX_SOURCE_BYTES // 2), "source-too-long"),
        (f"return '{'a' * (MAX_SOURCE_BYTES - 9)}'", f"return '{'a' * MAX_SOURCE_BYTES}'", "source-too-long"),
        (f"return f'{'a' * (MAX_SOURCE_BYTES - 10)}'", f"return f'{'a' * MAX_SOURCE_BYTES}'", "source-too-long"),
        ("- " * (MAX_DEPTH - 2) + "a", "- " * (MAX_DEPTH + 1) + "a", "too-deep"),
        ("a" + " - a" * MAX_OPERATORS, "a" + " - a" * (MAX_OPERATORS + 1), "too-deep"),
        (";".join("a" * (MAX_NODES // 2)), ";".join("a" * (MAX_NODES + 1)), "too-large"),
        (f"print({'1,' * MAX_ARGUMENTS})", f"print({'1,' * (MAX_ARGUMENTS + 1)})", "too-many-arguments"),
    ],
    ids=["bytes", "bytes-of-two", "string", "f-string", "depth", "operators", "nodes", "arguments"],
)  # fmt: skip
def test_limits(at_limit: str, beyond: str, code: str) -> None:
    hog.compile_program(at_limit, hog.ANY)
    with pytest.raises(hog.HogSourceError) as caught:
        hog.compile_program(beyond, hog.ANY)
    assert caught.value.code == code


def test_work_grows_with_the_text_and_no_faster() -> None:
    """Four times the text takes about four times the work, for the shapes that tempt a parser to go back.

    Work is counted in calls: time would depend on what else the machine does.
    """
    for piece in ("{a: x -> ", "(a, b, ", "if (a) {", "f(x, y, ", "x, y, ", "{ {", "<a>{", "let a := {"):
        few, many = (_calls_to_refuse(piece * count) for count in (10, 40))
        assert many < 6 * few + 200, piece


def _calls_to_refuse(source: str) -> int:
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(hog.HogSyntaxError):
            parse_program(source)
    finally:
        sys.setprofile(None)
    return calls


def test_tokens_are_in_order_and_inside_the_text() -> None:
    for source in SOURCES:
        try:
            tokens = tokenize(source)
        except hog.HogSyntaxError:
            continue
        ends = [0]
        for token in tokens:
            assert ends[-1] <= token.start <= token.end <= len(source)
            ends.append(token.end)
