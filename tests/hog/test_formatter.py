"""The formatter: one style, the same meaning, all comments, and nothing left to do the second time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hog.oracles.corpus import CASES, Case
from tests.hog.oracles.programs import oracle_settings, programs, templates

from hoglab import hog
from hoglab.hog.backend_bytecode import compile_bytecode
from hoglab.hog.compiler.lower import lower
from hoglab.hog.formatter import WIDTH, format_program, format_template
from hoglab.hog.nodes import dump
from hoglab.hog.parser import parse_program, parse_template
from hoglab.hog.parser.lexer import tokenize

PROGRAMS = sorted((Path(__file__).parent / "corpus").glob("*.hog"))


def comments(source: str) -> list[str]:
    """The comments of a program in order, without the blanks around them."""
    found: list[str] = []
    end = 0
    for token in tokenize(source):
        found += re.findall(r"(?:--|//|#)[^\r\n]*|/\*.*?\*/", source[end : token.start], re.DOTALL)
        end = token.end
    return [re.sub(r"\r\n?", "\n", comment.rstrip()) for comment in found]


def bytecode(source: str) -> list[object]:
    return compile_bytecode(lower(parse_program(source), source))


def assert_well_formatted(source: str) -> str:
    text = format_program(source)
    assert repr(dump(parse_program(text))) == repr(dump(parse_program(source)))
    assert repr(bytecode(text)) == repr(bytecode(source))
    assert comments(text) == comments(source)
    assert format_program(text) == text
    assert text == "" or text.endswith("\n")
    inside_texts = "'" in text or "*/" in text
    assert inside_texts or all(line == line.rstrip() for line in text.splitlines())
    assert "\n\n\n" not in text or inside_texts
    return text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    assert_well_formatted(path.read_text())


@pytest.mark.parametrize("case", [case for case in CASES if case.error is None], ids=str)
def test_written_programs(case: Case) -> None:
    if case.kind == "template":
        formatted = format_template(case.source)
        assert repr(dump(parse_template(formatted))) == repr(dump(parse_template(case.source)))
        assert format_template(formatted) == formatted
    else:
        assert_well_formatted(case.source)


@oracle_settings(40, shrink=False)
@given(programs(max_statements=5))
def test_generated_programs(source: str) -> None:
    assert_well_formatted(source)


def test_a_comment_behind_the_last_argument_is_no_part_of_the_line() -> None:
    """It stands at the end of the line in the formatted text, where it is not counted either."""
    words = ", ".join(f"'{'x' * 20}{number}'" for number in range(3))
    for extra in range(30):
        assert_well_formatted(f"print([1], (if(a, concat({words}), {'y' * extra}b)) /* note */)\n")


@oracle_settings(60)
@given(templates())
def test_generated_templates(source: str) -> None:
    try:
        tree = parse_template(source)
    except hog.HogSyntaxError:
        return
    formatted = format_template(source)
    assert repr(dump(parse_template(formatted))) == repr(dump(tree))
    assert format_template(formatted) == formatted


_COMMENTS = (
    " -- c\n", "\n-- own\n", "\n\n// own\n\n", " /* in */ ", "\n/* own */\n", " # c\n", "\n/* a\n  b */ ", "\n\n\n"
)  # fmt: skip


@oracle_settings(60, shrink=False)
@given(programs(max_statements=2), st.data())
def test_comments_anywhere(source: str, data: st.DataObject) -> None:
    """Comments between any two tokens stay, in their order."""
    tokens = tokenize(source)
    depth, ends = 0, []
    for token in tokens:
        if not depth and token.kind not in ("f'", "text", "{{"):
            ends.append(token.start)
        depth += (token.kind == "f'") - (token.kind == "f-end")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.sampled_from(ends))
        ends = [end for end in ends if end <= at]
        source = source[:at] + data.draw(st.sampled_from(_COMMENTS)) + source[at:]
    if repr(compile_or_none(source)) != "None":
        assert_well_formatted(source)


def compile_or_none(source: str) -> object:
    try:
        return bytecode(source)
    except hog.HogSourceError:
        return None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ""),
        ("  -- alone  ", "-- alone\n"),
        ("LET a:=1;;let b:=- 1", "let a := 1\nlet b := -1\n"),
        ("return{'a':1,}", "return {'a': 1}\n"),
        ("let t:=(1,)", "let t := (1,)\n"),
        ("f(a)\n\n\n\ng( b , )", "f(a)\n\ng(b)\n"),
        ("a;(b)", "a;\n(b)\n"),
        ("if(a){return;}else return 1;", "if (a) {\n  return\n} else return 1\n"),
        ("if (a);", "if (a);\n"),
        ("let f := x->{ g(x); }", "let f := x -> {\n  g(x);\n}\n"),
        ("let f := x->{ g(x) }", "let f := x -> { g(x) }\n"),
        ("let d := {\n'a': 1}", "let d := {\n  'a': 1,\n}\n"),
        ("let d := {} let a := [ ]", "let d := {}\nlet a := []\n"),
        ("for(;;){}", "for (;;) {}\n"),
        ("fun f(a,b,){return a - -b}", "fun f(a, b) {\n  return a - -b\n}\n"),
        ("x AND NOT y IS NOT NULL", "x and not y is not null\n"),
        ("a?b:c", "a ? b : c\n"),
        ("a.b[ 'c' ]?.d.1 := `q q`", "a.b['c']?.d.1 := `q q`\n"),
        ("return <b a = {1} >x  y</b>", "return <b a = {1} >x  y</b>\n"),
        ("return f'a { b }'", "return f'a { b }'\n"),
        ("let s := 'two\nlines'", "let s := 'two\nlines'\n"),
        ("a\r\nb\r", "a\nb\n"),
    ],
)
def test_style(source: str, expected: str) -> None:
    assert assert_well_formatted(source) == expected


def test_long_things_are_broken() -> None:
    source = (
        "let answer := fetch(inputs.url, {'method': 'POST', 'headers': {'Authorization': inputs.token}, "
        "'body': {'a': event.properties.a, 'b': event.properties.b}})\n"
        "if (event.event = 'signed up' and person.properties.plan = 'pro' or event.properties.amount > 100000) "
        "{ return arrayMap(x -> { let y := x * 2 return y }, values) }\n"
        "let text := 'a long piece of text' || event.properties.something || 'another long piece' || person.id\n"
    )
    text = assert_well_formatted(source)
    assert text == (Path(__file__).parent / "formatted.hog").read_text()
    assert max(map(len, text.splitlines())) <= WIDTH


def test_comments_stay_where_they_are() -> None:
    source = """\
-- first

-- of the statement
let a := [ -- opens
  1, -- one
  -- before two
  2
  -- last
]
f( -- why
  a, /* inline */ b)
if (a) { -- reason
  -- only a comment
}
-- end"""
    assert (
        assert_well_formatted(source)
        == """\
-- first

-- of the statement
let a := [ -- opens
  1, -- one
  -- before two
  2,
  -- last
]
f( -- why
  a,
  /* inline */ b,
)
if (a) { -- reason
  -- only a comment
}
-- end
"""
    )


def test_queries() -> None:
    source = (
        "let q := (select event,count() from events left join persons p on p.id=events.person_id "
        "where timestamp>now() - interval 7 day and event={name} group by event order by count() desc limit 10)"
    )
    assert (
        assert_well_formatted(source)
        == """\
let q := (
  select event, count()
  from events
  left join persons p on p.id = events.person_id
  where timestamp > now() - interval 7 day and event = {name}
  group by event
  order by count() desc
  limit 10
)
"""
    )
    assert assert_well_formatted("let q:=(select 1 from a union all select 2)") == (
        "let q := (select 1 from a union all select 2)\n"
    )


def test_templates_keep_their_text() -> None:
    assert format_template("Hi {  person.name  }, \\{x} {f( 1,2 )}!") == "Hi {person.name}, \\{x} {f(1, 2)}!"
    assert format_template("{ {'a' : 1} }") == "{ {'a': 1} }"
    assert format_template("{a /* c */}{b\n}") == "{a /* c */}{b\n}"


def test_refuses_what_does_not_parse() -> None:
    with pytest.raises(hog.HogSyntaxError):
        format_program("let x = 1")
    with pytest.raises(hog.HogSyntaxError):
        format_template("{a")
