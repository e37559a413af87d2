"""Chains of elements and selectors over them (spec: hog-runtime 1.2, 2.6, 2.7)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attacks import hostile_texts, processor_time
from tests.element_chains import Element, chain_matches, parse_chain

from hoglab.filters.elements import (
    MAX_SELECTOR_LENGTH,
    MAX_SELECTOR_PARTS,
    SelectorPart,
    chain_elements,
    chain_href,
    chain_ids,
    chain_texts,
    only_id,
    parse_selector,
    selector_pattern,
    tag_pattern,
)
from hoglab.filters.model import FilterError
from hoglab.hog.rt.regex import build_matcher, compile_regex

BUY = (
    'a.btn.primary:attr_id="buy"href="/pay"nth-child="1"nth-of-type="1"text="Buy";'
    'div.box:nth-child="2"nth-of-type="1"'
)


def matches(selector: str, chain: str) -> bool:
    """By the pattern that filters run, which must agree with plain search."""
    parts = parse_selector(selector)
    by_pattern = build_matcher(selector_pattern(parts), False).search(chain)
    assert by_pattern == chain_matches(parts, parse_chain(chain))
    return by_pattern


def test_a_chain_is_read_into_elements() -> None:
    assert parse_chain(BUY) == [
        Element(
            "a",
            ("btn", "primary"),
            (("attr_id", "buy"), ("href", "/pay"), ("nth-child", "1"), ("nth-of-type", "1"), ("text", "Buy")),
        ),
        Element("div", ("box",), (("nth-child", "2"), ("nth-of-type", "1"))),
    ]


def test_values_may_hold_separators_and_quotes() -> None:
    (element,) = parse_chain('button.md:flex:attr__title="a;b \\"c\\" =d"text="x.y:z"')
    assert element.classes == ("md:flex",)
    assert element.attribute("attr__title") == 'a;b "c" =d'
    assert element.attribute("text") == "x.y:z"
    assert element.attribute("missing") is None


def test_derived_fields() -> None:
    chain = BUY + ';a:href="/other"text="Buy";form:text="More";svg.a'
    assert chain_href(chain) == "/pay"
    assert chain_href("div") == ""
    assert chain_texts(chain) == ["Buy", "More"]
    assert chain_ids(chain) == ["buy"]
    assert chain_elements(chain) == ["a", "form"]
    assert chain_elements("label;input") == ["input"]  # what is followed by another element alone is not seen
    assert chain_elements("") == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("a", True),
        ("*", True),
        ("div", True),
        ("p", False),
        (".btn", True),
        ("a.primary.btn", True),
        ("a.btn.missing", False),
        ("#buy", True),
        ('[id="buy"]', True),
        ("a#buy.btn", True),
        ('[href="/pay"]', True),
        ("[href='/pay']", True),
        ('[href="/pa"]', False),
        ('[text="Buy"]', True),
        ("a:nth-child(1)", True),
        ("a:nth-child(2)", False),
        ("div > a", True),
        ("div.box a.btn", True),
        ("div > .btn", True),
        ("a > div", False),
        ("body a", False),
        ("div > * > a", True),  # "> *" is dropped
        ("A", True),
    ],
)
def test_selectors(selector: str, expected: bool) -> None:
    assert matches(selector, BUY) is expected


def test_ancestors_are_searched_with_backtracking() -> None:
    chain = 'a:nth-child="1";div.inner;section;div.outer;body'
    assert matches("div.outer a", chain)
    assert matches("div.outer > section a", chain)
    assert not matches("div.outer > a", chain)
    assert matches("body div.inner a", chain)
    assert not matches("div.inner div.outer", "a;div.inner;div.outer")
    assert matches("div.outer div.inner", "a;div.inner;div.outer")


def test_a_separator_inside_a_value_starts_no_element() -> None:
    chain = 'span:text="x;a.btn:href=\\"/\\""'
    assert not matches("a", chain)
    assert not matches(".btn", chain)
    assert matches("span", chain)


@pytest.mark.parametrize(
    "selector",
    [
        "",
        ">",
        "> a",
        "a >",
        "a > > b",
        "a[",
        "a[href]",
        "a..b",
        "a:hover",
        "a,b",
        "[" * 500,
        "[]",
        "[=b]",
        '[a=b"]',
        "[a='b\"]",
        "a:nth-child()",
        "a:nth-child(b)",
        "a:nth-child(2",
        "a\\",
        ".",
        "#",
        "a*",
        "[a~=b]",
        ".a:",
    ],
)
def test_what_is_no_selector_is_refused(selector: str) -> None:
    with pytest.raises(FilterError, match="Invalid selector"):
        parse_selector(selector)


def test_long_selectors_are_refused() -> None:
    parse_selector(" ".join(["a"] * MAX_SELECTOR_PARTS))
    with pytest.raises(FilterError, match=f"at most {MAX_SELECTOR_PARTS}"):
        parse_selector(" ".join(["a"] * (MAX_SELECTOR_PARTS + 1)))


def test_texts_beyond_the_limit_are_no_selectors() -> None:
    parse_selector("." + "a" * (MAX_SELECTOR_LENGTH - 1))
    with pytest.raises(FilterError, match=f"at most {MAX_SELECTOR_LENGTH} characters"):
        parse_selector("." + "a" * MAX_SELECTOR_LENGTH)


def test_no_selector_takes_more_than_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser itself does without the limit: a cubic one took 3 s for 3,000 brackets."""
    monkeypatch.setattr("hoglab.filters.elements.MAX_SELECTOR_LENGTH", 1_000_000)
    for text in hostile_texts(6_000):

        def parse(text: str = text) -> None:
            with contextlib.suppress(FilterError):
                parse_selector(text)

        assert processor_time(parse) < 1, text[:20]


@pytest.mark.parametrize(
    ("selector", "classes"),
    [
        (r".w-\[10px\]", ("w-[10px]",)),
        (r".\[\&\>svg\]\:x", ("[&>svg]:x",)),
        (r".a\ b", ("a b",)),
        (r".a\.b.c", ("a.b", "c")),
        (".md:flex.a", ("a", "md:flex")),
    ],
)
def test_escaped_characters_belong_to_names(selector: str, classes: tuple[str, ...]) -> None:
    assert parse_selector(selector) == (SelectorPart(classes=classes),)


@pytest.mark.parametrize("selector", ['[a="x]y"]', "[a='x]y']", '[ a = "x]y" ]'])
def test_brackets_in_quotes_end_no_attribute(selector: str) -> None:
    assert parse_selector(selector) == (SelectorPart(attributes=(("attr__a", "x]y"),)),)


def test_only_an_id() -> None:
    assert only_id(parse_selector("#buy")) == "buy"
    assert only_id(parse_selector('[id="buy"]')) == "buy"
    assert only_id(parse_selector("a#buy")) is None
    assert only_id(parse_selector("div #buy")) is None


@pytest.mark.parametrize(
    ("chain", "expected"),
    [("a", True), ("a.x", True), ('a:text="1"', True), ("b;a;c", True), ("ab", False), ("b", False)],
)
def test_tags(chain: str, expected: bool) -> None:
    assert compile_regex(tag_pattern("a")).search(chain) is expected


TAGS = st.sampled_from(["a", "b", "div"])
CLASSES = st.lists(st.sampled_from(["x", "y", "md:z"]), max_size=3, unique=True).map(
    lambda names: tuple(sorted(names))
)
VALUES = st.sampled_from(["", "1", 'q"uote', "a;b", "c:d", ".x", "new\nline"])
ATTRIBUTES = st.dictionaries(st.sampled_from(["attr__t", "attr_id", "href", "text"]), VALUES, max_size=3).map(
    lambda pairs: tuple(sorted(pairs.items()))
)
ELEMENTS = st.builds(Element, TAGS, CLASSES, ATTRIBUTES)
PARTS = st.builds(SelectorPart, st.none() | TAGS, CLASSES, ATTRIBUTES, st.booleans())


def written(element: Element) -> str:
    """The chain text of an element."""
    pairs = "".join('{}="{}"'.format(key, value.replace('"', '\\"')) for key, value in element.attributes)
    return ".".join([element.tag, *element.classes]) + (f":{pairs}" if pairs else "")


@given(st.lists(ELEMENTS, min_size=1, max_size=5), st.lists(PARTS, min_size=1, max_size=3))
def test_patterns_find_exactly_what_plain_search_finds(
    elements: list[Element], parts: list[SelectorPart]
) -> None:
    chain = ";".join(map(written, elements))
    assert parse_chain(chain) == elements
    wanted = tuple(parts)
    assert build_matcher(selector_pattern(wanted), False).search(chain) == chain_matches(wanted, elements)


@given(st.text(max_size=60))
def test_any_text_is_some_chain(text: str) -> None:
    elements = parse_chain(text)
    for selector in ("a", "div > a.x", "#x"):
        parts = parse_selector(selector)
        build_matcher(selector_pattern(parts), False).search(text)
        chain_matches(parts, elements)


@given(st.text(alphabet="a.#[]\"'=:>* (1)x\\", max_size=30))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    try:
        parts = parse_selector(text)
    except FilterError:
        return
    assert parts
