"""Text in UTF-16 units.  spec: hog-language 9 (D15)."""

from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.rt.text import has_wide, joined, units, utf16_length
from hoglab.hog.rt.values import clean_text

TEXT = st.text(st.characters(exclude_categories=[]) | st.sampled_from("a\ud83d\ude00😀é"))


def test_lengths() -> None:
    assert utf16_length("abc") == 3
    assert utf16_length("héllo😀") == 7
    assert utf16_length("\ud83d") == 1
    assert has_wide("a😀")
    assert not has_wide("é\uffff")


def test_units_count_as_javascript_does() -> None:
    assert units("a😀b") == "a\ud83d\ude00b"
    assert joined(units("a😀b")[::-1]) == "b\ude00\ud83da"
    assert joined("\ud83d\ude00") == "😀"


@given(TEXT)
def test_units_and_back(text: str) -> None:
    assert utf16_length(text) == len(units(text))
    assert joined(units(text)) == joined(text)
    assert utf16_length(joined(text)) == utf16_length(text)


@given(TEXT)
def test_clean_text_can_always_be_encoded(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert utf16_length(clean) == utf16_length(text)


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert clean_text("a\ud83db") == "a\ufffdb"
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("plain é 😀") == "plain é 😀"
