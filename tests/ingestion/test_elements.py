"""The chain of elements that is stored (spec: hog-runtime 2.7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.element_chains import parse_chain

from hoglab.filters.elements import chain_href, chain_ids, chain_texts
from hoglab.ingestion.elements import chain_of, take_elements_chain


def test_a_chain_as_the_spec_writes_it() -> None:
    elements = [
        {
            "tag_name": "a",
            "classes": ["ignored"],
            "attr_class": ["primary", "btn"],
            "attr_id": "buy",
            "href": "/pay",
            "nth_child": 1,
            "nth_of_type": 1,
            "$el_text": "Buy",
        },
        {"tag_name": "div", "attr_class": "box", "nth_child": 2, "nth_of_type": 1},
    ]
    assert chain_of(elements) == (
        'a.btn.primary:attr_id="buy"href="/pay"nth-child="1"nth-of-type="1"text="Buy";'
        'div.box:nth-child="2"nth-of-type="1"'
    )


def test_attributes_as_browsers_send_them() -> None:
    element = {
        "tag_name": "button",
        "attr__class": "big red",
        "attr__id": "go",
        "attr__href": "/x",
        "attr__data-a": 'say "hi"',
        "$el_text": "x" * 500,
        "nth_child": 3,
        "nth_of_type": 2,
    }
    chain = chain_of([element])
    (parsed,) = parse_chain(chain)
    assert (parsed.tag, parsed.classes) == ("button", ("big", "red"))
    assert (chain_href(chain), chain_ids(chain), chain_texts(chain)) == ("/x", ["go"], ["x" * 400])
    assert 'attr__data-a="say \\"hi\\""' in chain
    assert 'nth-child="3"nth-of-type="2"' in chain


@pytest.mark.parametrize(
    ("properties", "chain"),
    [
        ({"$elements_chain": "a:b"}, "a:b"),
        ({"$elements_chain": "a:b", "$elements": [{"tag_name": "p"}]}, "a:b"),
        ({"$elements": [{"tag_name": "p"}]}, 'p:nth-child="0"nth-of-type="0"'),
        ({"$elements": []}, ""),
        ({"$elements": "p"}, ""),
        ({"$elements_chain": 7}, ""),
        ({}, ""),
    ],
)
def test_the_chain_leaves_the_properties(properties: dict[str, Any], chain: str) -> None:
    properties["kept"] = 1
    assert take_elements_chain(properties) == chain
    assert properties == {"kept": 1}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(["tag_name", "attr_class", "attr__class", "attr__x", "$el_text", "href", "nth_child"])


@given(st.lists(anything | st.dictionaries(names, anything), max_size=4))
def test_no_list_of_elements_is_an_error(elements: list[Any]) -> None:
    assert isinstance(chain_of(elements), str)
