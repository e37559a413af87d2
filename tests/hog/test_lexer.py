"""Tokens: spec hog-language 1."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogSyntaxError
from hoglab.hog.parser.lexer import MAX_SOURCE_BYTES, tokenize


def values(source: str) -> list[object]:
    return [token.value for token in tokenize(source)[:-1]]


def kinds(source: str, *, template: bool = False) -> list[str]:
    return [token.kind for token in tokenize(source, template=template)[:-1]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("007", 7),
        ("017", 17),
        ("0x1F", 31),
        ("0b101", 5),
        ("1e3", 1000.0),
        ("1.e3", 1000.0),
        ("1.5e-3", 0.0015),
        (".5e2", 50.0),
        ("0x1.8p3", 12.0),
        ("0x1p-2", 0.25),
        ("9007199254740993", 9007199254740993),
        ("1e400", math.inf),
    ],
)
def test_numbers(text: str, value: float) -> None:
    [token] = tokenize(text)[:-1]
    assert token.kind == "number"
    assert token.value == value
    assert token.value.__class__ is value.__class__


@pytest.mark.parametrize("text", ["1_000", "0b12", "12abc", "1e", "0x", "0o17"])
def test_invalid_numbers(text: str) -> None:
    with pytest.raises(HogSyntaxError) as caught:
        tokenize(text)
    assert caught.value.code == "number"


def test_octal_is_refused_with_the_official_words() -> None:
    with pytest.raises(
        HogSyntaxError, match=r"does not support `0o`-prefixed octal .* got `0o17`\. Use a plain"
    ):
        tokenize("0o17")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'\b\f\r\n\t\a\v\\'", "\b\f\r\n\t\a\v\\"),
        (r"'a\0b'", "ab"),
        (r"'\x41'", r"\x41"),
        (r"'\N'", r"\N"),
        ("'line\nbreak'", "line\nbreak"),
        ("`a``b`", "a`b"),
        ('"a""b"', 'a"b'),
        ('"tab\\there"', "tab\there"),
        ("'😀'", "😀"),
    ],
)
def test_strings_and_quoted_names(text: str, value: str) -> None:
    assert values(text) == [value]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("'open", "unterminated-string"),
        ("'a''", "unterminated-string"),
        (r"'\d'", "unknown-escape"),
        (r"'\"'", "unknown-escape"),
        ("f'open {a}", "unterminated-string"),
        ("/* open", "unterminated-comment"),
        ("!a", "unexpected-character"),
        ("a & b", "unexpected-character"),
        ("é", "unexpected-character"),
        ("}", "unmatched-brace"),
        ("{", "unmatched-brace"),
    ],
)
def test_errors_carry_codes(text: str, code: str) -> None:
    with pytest.raises(HogSyntaxError) as caught:
        tokenize(text)
    assert caught.value.code == code


def test_unexpected_characters_are_named() -> None:
    with pytest.raises(HogSyntaxError, match=r"Unexpected character '!' \(U\+0021\)") as caught:
        tokenize("a\n  ! b")
    assert (caught.value.line, caught.value.column, caught.value.offset) == (2, 3, 4)
    assert caught.value.excerpt == "  ! b\n  ^"
    assert caught.value.hint is not None
    with pytest.raises(HogSyntaxError, match=r"Unexpected character U\+00EF"):
        tokenize("ï")


def test_comments_and_white_space_vanish() -> None:
    source = "\ufeffa -- one\n// two\r\n# three\n/* four * / */ b\u2003c"
    assert values(source) == ["a", "b", "c"]


def test_a_hash_before_a_digit_is_no_comment() -> None:
    assert kinds("#1") == ["#", "number"]


def test_longest_operators_win() -> None:
    assert kinds("a=~*b !~* ?? ?. := :: -> || !~ ~*") == [
        "name", "=~*", "name", "!~*", "??", "?.", ":=", "::", "->", "||", "!~", "~*",
    ]  # fmt: skip


def test_words() -> None:
    tokens = tokenize("LET Return AND nUll inf foo")[:-1]
    assert [(t.kind, t.word) for t in tokens] == [
        ("reserved", "let"),
        ("name", "return"),
        ("name", "and"),
        ("literal", "null"),
        ("literal", "inf"),
        ("name", "foo"),
    ]


def test_f_strings_nest() -> None:
    assert kinds("f'a{ {'k': f'{x}'} }b'") == [
        "f'", "text", "{{", "{", "string", ":", "f'", "{{", "name", "}}", "f-end", "}", "}}", "text", "f-end",
    ]  # fmt: skip
    assert values(r"f'\{{a}\''") == [None, "{", None, "a", None, "'", None]


def test_templates_keep_quotes_and_unknown_escapes() -> None:
    tokens = tokenize(r"it's \'q\' \d \n\{x} }{a}", template=True)
    assert [t.value for t in tokens if t.kind == "text"] == ["it's \\'q\\' \\d \n{x} }"]
    assert tokens[-3].value == "a"


def test_a_tag_is_told_from_less_than() -> None:
    assert kinds("a<b") == ["name", "<", "name"]
    assert kinds("a <b c") == ["name", "<", "name", "name"]
    assert kinds("return <b />") == ["name", "tag", "/>"]
    assert kinds("a\n<b>x</b>") == ["name", "tag", "tag>", "text", "</"]


def test_tags() -> None:
    assert kinds("<A b='c' d={e < f} g h=f'{i}'/>") == [
        "tag", "attribute", "=", "string", "attribute", "=", "{{", "name", "<", "name", "}}", "attribute",
        "attribute", "=", "f'", "{{", "name", "}}", "f-end", "/>",
    ]  # fmt: skip
    assert kinds("[<a>it's {b}<c-d/> ' </a>, 'x']") == [
        "[", "tag", "tag>", "text", "{{", "name", "}}", "tag", "/>", "text", "</", ",", "string", "]",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["<a>", "<a>text", '<a b="c" />', "<a b=1 />", "<a></", "<a>< b></a>"])
def test_faulty_tags(text: str) -> None:
    with pytest.raises(HogSyntaxError) as caught:
        tokenize(text)
    assert caught.value.code == "tag"


def test_limits() -> None:
    longest = "x" * (MAX_SOURCE_BYTES - 2)
    assert values(f"'{longest}'") == [longest]
    assert tokenize(" " * MAX_SOURCE_BYTES)
    for text in (" " * (MAX_SOURCE_BYTES + 1), "ä" * (MAX_SOURCE_BYTES // 2 + 1)):
        with pytest.raises(HogSyntaxError) as caught:
            tokenize(text)
        assert caught.value.code == "source-too-long"


@given(st.text(alphabet="ab1 .'\"`{}()\\f#-/*<>=!?:;,\n$é", max_size=40), st.booleans())
def test_any_text_gives_tokens_or_a_syntax_error(text: str, template: bool) -> None:
    try:
        tokens = tokenize(text, template=template)
    except HogSyntaxError as error:
        found = error
    else:
        assert tokens[-1].kind == "eof"
        ends = 0
        for token in tokens:
            assert ends <= token.start <= token.end <= len(text)
            ends = token.end
        return
    assert 0 <= found.offset <= found.end <= len(text)
