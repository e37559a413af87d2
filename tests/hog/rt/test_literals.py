"""What is read off patterns holds for RE2, which is asked about every text."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.generated import examples

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context, activate
from hoglab.hog.rt.literals import MAX_NESTING, MAX_TEXTS, Literals, literals_of
from hoglab.hog.rt.regex import build_matcher, compile_regex


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("plans", ("plans",)),
        (r"example\.com/pric(ing|es)", ("example.com/prices", "example.com/pricing")),
        ("(?:a|b)(c|d)", ("ac", "ad", "bc", "bd")),
        ("https?://x", ("http://x", "https://x")),
        ("ab??c", ("ac", "abc")),
        ("(ab)?c", ("c",)),
        ("foo|barfoo|bar", ("bar", "foo")),
        (r"a[.]b\-c", ("a.b-c",)),
        ("é😀\\$", ("é😀$",)),
        ("a\nb", ("a\nb",)),
    ],
)
def test_patterns_that_are_texts(pattern: str, texts: tuple[str, ...]) -> None:
    assert literals_of(pattern) == Literals(texts, exact=True)
    assert compile_regex(pattern).literals == Literals(texts, exact=True)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"example\.com/docs(/\d+)?$", ("example.com/docs",)),
        ("^/pricing$", ("/pricing",)),
        ("ab.*cdef.*gh", ("cdef",)),
        (r"(sign|log)(in|up)\b", ("login", "logup", "signin", "signup")),
        ("[a-z]+@example[.]com", ("@example.com",)),
        ("abcx*def", ("abc",)),
        ("[]x]abc[^]]", ("abc",)),
        (r"[\]]abc", ("abc",)),
    ],
)
def test_patterns_that_need_a_text(pattern: str, texts: tuple[str, ...]) -> None:
    assert literals_of(pattern) == Literals(texts, exact=False)
    assert compile_regex(pattern).literals == Literals(texts, exact=False)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a?",
        "a|",
        "ab.",
        "(?i)abc",
        "(?i:abc)",
        "(?P<name>abc)",
        "abc{2}",
        "abc{",
        r"\Qabc.\E",
        r"abc\x41",
        r"abc\pL",
        "[[:alpha:]]abc",
        ".*abc|.*def",
        "|".join(f"text{number}" for number in range(MAX_TEXTS + 1)),
        "(" * (MAX_NESTING + 1) + "abc" + ")" * (MAX_NESTING + 1),
    ],
)
def test_patterns_of_which_nothing_is_said(pattern: str) -> None:
    assert literals_of(pattern) is None
    assert build_matcher(pattern, False).search("Abc text1 abcabc") == compile_regex(pattern).search(
        "Abc text1 abcabc"
    )


_PLAIN = ["a", "b", "ab", "aba", "é", "ß", "K", "😀", " ", "\n", "\x00", "-", "_", "]", "}", ","]
_ESCAPES = r"\. \\ \( \- \[ \] \_ \d \w \b \B \A \z \n \x61 \pL \Q. \E".split(" ")  # noqa: SIM905
_SYNTAX = r". ^ $ [ab] [^a] []a] [^]a] [\]] [.] [b-é] [[:word:]] [a [^ { {2} ( ) | ? * + ?? *?".split(" ")  # noqa: SIM905
_ATOMS = st.sampled_from([*_PLAIN, *_ESCAPES, "\\ ", "\\\n", *_SYNTAX, "(?i)", "(?s)", "(?:"])
_TREES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map("".join),
        st.lists(inner, max_size=3).map("|".join),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"(?:{one})?"),
    ),
    max_leaves=12,
)
_TEXTS = st.text(alphabet="abé.ßKkſs😀 \n\x00-_]}[\\(,xnL\ud83d", max_size=12)


@settings(max_examples=examples(600))
@given(_TREES, st.lists(_TEXTS, max_size=8))
@example("abc(d|)", ["abc", "ab"])
@example("(|a)(|b)c", ["c", "abc", "ab"])
def test_looking_for_texts_finds_what_the_pattern_finds(pattern: str, texts: list[str]) -> None:
    try:
        alone = build_matcher(pattern, False)
    except HogRuntimeError:
        return
    literals = literals_of(pattern)
    matcher = compile_regex(pattern)
    wanted = literals.texts if literals is not None else ()
    for text in [*texts, *wanted, *("".join((a, one, a)) for one in wanted for a in texts)]:
        assert matcher.search(text) is alone.search(text), (pattern, text, literals)


def test_searching_long_texts_is_charged() -> None:
    ctx = Context()
    former = activate(ctx)
    try:
        assert not compile_regex("never|ever").search("ab" * 10_000_000)
    finally:
        activate(former)
    assert ctx.steps > 10_000
