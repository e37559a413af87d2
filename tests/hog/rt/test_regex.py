"""Patterns of users: RE2, bounded, cached, with or without google-re2's private face.

spec: hog-language 9 (D16).
"""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt import regex
from hoglab.hog.rt.context import Context, activate
from hoglab.hog.rt.regex import MAX_PATTERN_BYTES, build_matcher, compile_regex

pytestmark = pytest.mark.usefixtures("no_collector")


def test_the_fast_way_works_with_the_pinned_version() -> None:
    assert regex.DIRECT


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        ("b.", "abc", ("bc",)),
        ("(b)(x)?", "abc", ("b", "b", None)),
        ("é(.)", "caféx", ("éx", "x")),
        ("(😀)", "a😀b", ("😀", "😀")),
        ("^$", "", ("",)),
        ("x*", "abc", ("",)),
        ("z", "abc", None),
        ("a\0b", "a\0b", ("a\0b",)),
        ("^b", "a\nb", None),
        ("(?m)^b", "a\nb", ("b",)),
        ("a.b", "a\nb", None),
        ("(?s)a.b", "a\nb", ("a\nb",)),
    ],
)
def test_both_ways_give_the_same(pattern: str, text: str, groups: Any, direct: bool) -> None:
    matcher = build_matcher(pattern, False, direct=direct)
    assert matcher.groups(text) == groups
    assert matcher.search(text) is (groups is not None)
    extracted = matcher.extract(text)
    if groups is None:
        assert extracted is None
    else:
        assert extracted == (groups[1] if len(groups) > 1 and groups[1] is not None else groups[0])


@given(st.text(), st.sampled_from(["a", "[a-z]+", "(x)?y*", ".", "^a|b$", r"\d", "é", "[^a]", "(?i)ß"]))
def test_both_ways_agree_on_any_text(text: str, pattern: str) -> None:
    fast = build_matcher(pattern, False, direct=True)
    plain = build_matcher(pattern, False, direct=False)
    assert fast.search(text) == plain.search(text)
    assert fast.groups(text) == plain.groups(text)


def test_lone_surrogates_do_no_harm() -> None:
    assert not compile_regex("a").search("\ud83d")
    assert compile_regex("a").search("\ud83da")


def test_case() -> None:
    assert compile_regex("ABC", ignore_case=True).search("xabcx")
    assert not compile_regex("ABC").search("abc")
    assert compile_regex("(?-i)ABC", ignore_case=True).search("ABC")
    assert not compile_regex("(?-i)ABC", ignore_case=True).search("abc")


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", r"(?=a)", r"(a)\1", "a**", "(?<x", r"\q"])
def test_refused_patterns(pattern: str) -> None:
    with pytest.raises(HogRuntimeError, match="Invalid regular expression"):
        compile_regex(pattern)


def test_patterns_are_limited_in_length_and_size() -> None:
    compile_regex("a" * MAX_PATTERN_BYTES)
    with pytest.raises(HogRuntimeError, match="longer than 1000 bytes"):
        compile_regex("a" * (MAX_PATTERN_BYTES + 1))
    with pytest.raises(HogRuntimeError, match="longer than 1000 bytes"):
        compile_regex("é" * 501)
    started = time.thread_time()
    with pytest.raises(HogRuntimeError, match="Invalid regular expression: pattern too large"):
        compile_regex(r"(\pL{1,30}){1,30}")
    with pytest.raises(HogRuntimeError, match="Invalid regular expression"):
        compile_regex("((a{100}){100}){100}")
    assert time.thread_time() - started < 1


def test_no_pattern_takes_more_than_linear_time() -> None:
    started = time.thread_time()
    assert not compile_regex("(a+)+$").search("a" * 100_000 + "b")
    assert not compile_regex("(a|aa)*c").search("a" * 100_000)
    assert time.thread_time() - started < 1


@pytest.mark.parametrize("direct", [True, False])
def test_awkward_patterns_are_not_let_loose_on_long_texts(direct: bool) -> None:
    """A pattern of thousands of states, each of which may be met at each byte of the text."""
    awkward = build_matcher("(?:[ab]{1,100}a){9}c", False, direct=direct)
    assert not awkward.search("ab" * 2_000)
    for use in (awkward.search, awkward.groups, awkward.extract):
        with pytest.raises(HogRuntimeError, match=r"Text of 1000000 bytes is too long .* \(at most 138504\)"):
            use("ab" * 500_000)
    assert not build_matcher("x+y", False, direct=direct).search("ab" * 2_000_000)


def test_searching_long_texts_is_charged_by_the_size_of_the_pattern() -> None:
    def steps(pattern: str) -> int:
        matcher = compile_regex(pattern)
        ctx = Context()
        former = activate(ctx)
        try:
            matcher.search("ab" * 10_000)
        finally:
            activate(former)
        return ctx.steps

    assert 10 < steps("x+y") < 1_000 < 10_000 < steps("(?:[ab]{1,100}a){9}c")


def test_patterns_come_from_a_cache() -> None:
    assert compile_regex("cached") is compile_regex("cached")
    assert compile_regex("cached") is not compile_regex("cached", ignore_case=True)


def test_a_changed_private_face_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Changed(regex._DirectMatcher):
        def __init__(self, *args: Any) -> None:
            raise AttributeError("_regexp")

    class Wrong(regex._DirectMatcher):
        def search(self, text: str) -> bool:
            return True

    for face in (Changed, Wrong):
        monkeypatch.setattr(regex, "_DirectMatcher", face)
        assert not regex._direct_calls_work()
