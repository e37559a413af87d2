"""Text in UTF-16 units.  spec: hog-language 9 (D15)."""

from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.rt.conversion import clean_text
from hoglab.hog.rt.text import joined, units, utf16_length, utf16_reversed, utf16_slice

TEXT = st.text(st.characters(exclude_categories=[]) | st.sampled_from("a\ud83d\ude00😀é"))


def test_lengths() -> None:
    assert utf16_length("abc") == 3
    assert utf16_length("héllo😀") == 7
    assert utf16_length("\ud83d") == 1


def test_units_count_as_javascript_does() -> None:
    assert units("a😀b") == "a\ud83d\ude00b"
    assert utf16_reversed("a😀b") == "b\ude00\ud83da"
    assert utf16_slice("a😀b", 1, 3) == "😀"
    assert utf16_slice("a😀b", 2, 9) == "\ude00b"
    assert joined("\ud83d\ude00") == "😀"


@given(TEXT)
def test_units_and_back(text: str) -> None:
    assert utf16_length(text) == len(units(text))
    assert joined(units(text)) == joined(text)
    assert utf16_length(joined(text)) == utf16_length(text)
    assert utf16_reversed(text) == joined(units(text)[::-1])
    assert utf16_slice(text, 1, 4) == joined(units(text)[1:4])


@given(TEXT)
def test_clean_text_can_always_be_encoded(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert utf16_length(clean) == utf16_length(text)


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert clean_text("a\ud83db") == "a\ufffdb"
    assert clean_text("\ud83d\ude00") == "😀"
    assert clean_text("plain é 😀") == "plain é 😀"
