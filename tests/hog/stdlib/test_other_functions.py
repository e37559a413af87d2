"""Printing, chance, sorting and addresses where the frozen answers do not reach."""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.hog.errors import HogRuntimeError
from hoglab.hog.rt.context import Context, Limits
from hoglab.hog.rt.values import HogTuple
from hoglab.hog.stdlib import LIBRARY

CTX = Context()


def call(name: str, *args: Any) -> Any:
    return LIBRARY[name].invoke(CTX, args)


# Printing


def test_printing_joins_with_spaces() -> None:
    ctx = Context()
    LIBRARY["print"].invoke(ctx, ["a", 1.0, [None, "b"], None])
    LIBRARY["print"].invoke(ctx, [])
    assert ctx.lines == ["a 1 [null, 'b'] null", ""]


def test_long_lines_are_cut() -> None:
    ctx = Context(Limits(print_chars=40))
    LIBRARY["print"].invoke(ctx, ["x" * 20, "y" * 20])
    LIBRARY["print"].invoke(ctx, ["x" * 12, "y" * 12])
    assert ctx.lines == ["x" * 20 + " " + "y" * 4 + "... (truncated)", "x" * 12 + " " + "y" * 12]


def test_sleep_is_left_to_the_host() -> None:
    declared = LIBRARY["sleep"]
    assert declared.is_async
    assert declared.as_value(CTX).kind == "async"
    with pytest.raises(HogRuntimeError, match="Unknown async function 'sleep'"):
        declared.invoke(CTX, [1])


# Chance


def test_chance_is_the_contexts() -> None:
    first, second = Context(seed="s"), Context(seed="s")
    for name in ("randomFloat", "generateUUIDv4"):
        assert LIBRARY[name].invoke(first, []) == LIBRARY[name].invoke(second, [])
        assert not LIBRARY[name].pure


# Arrays


@given(st.lists(st.integers() | st.floats(allow_nan=False)))
def test_numbers_are_sorted_by_size(items: list[float]) -> None:
    assert call("arraySort", items) == sorted(items)
    assert call("arrayReverseSort", items) == sorted(items)[::-1]


@given(st.lists(st.none() | st.booleans() | st.text() | st.integers(), min_size=1))
def test_other_values_are_sorted_by_their_text(items: list[Any]) -> None:
    texts = [call("plus", item, "") for item in call("arraySort", [*items, "x"])]
    assert texts == sorted(texts, key=lambda text: text.encode("utf-16-be", "surrogatepass"))


def test_not_a_number_is_sorted_last() -> None:
    assert str(call("arraySort", [float("nan"), 1, float("inf"), -1])) == "[-1, 1, inf, nan]"


@pytest.mark.parametrize(
    "name",
    [
        "arrayPushBack",
        "arrayPushFront",
        "arrayPopBack",
        "arrayPopFront",
        "arrayReverse",
        "arraySort",
        "values",
    ],
)
def test_arguments_are_never_changed(name: str) -> None:
    for items in ([3, 1, 2], HogTuple([3, 1, 2]), []):
        before = list(items)
        result = LIBRARY[name].invoke(CTX, [items] if LIBRARY[name].min_args == 1 else [items, 9])
        assert list(items) == before
        assert result is not items
        assert type(result) is list


# Hashes


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_hashes(text: str) -> None:
    data = text.encode()
    assert call("md5Hex", text) == hashlib.md5(data, usedforsecurity=False).hexdigest()
    assert call("sha1Hex", text) == hashlib.sha1(data, usedforsecurity=False).hexdigest()
    assert call("sha256", text, "binary").encode("latin-1") == hashlib.sha256(data).digest()
    chain = hmac.digest(hmac.digest(b"key", data, "sha256"), b"more", "sha256")
    assert call("sha256HmacChainHex", ["key", text, "more"]) == chain.hex()


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("sha256", ("a", "bogus"), "Unknown encoding, expected one of hex, base64, base64url, binary"),
        ("sha256", (5,), "Function sha256 expects a string, got integer"),
        ("sha256HmacChainHex", (["a"],), "Data array must contain at least two elements."),
        ("sha256HmacChainHex", (["a", 5],), "Function sha256HmacChainHex expects a string, got integer"),
        ("sha256HmacChainHex", (None,), "Function sha256HmacChainHex expects an array of strings"),
        ("assumeNotNull", (None,), "Value is null in assumeNotNull"),
        ("decodeURLComponent", ("%zz",), "Function decodeURLComponent got malformed text"),
    ],
)
def test_refusals(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(HogRuntimeError) as failure:
        call(name, *args)
    assert str(failure.value) == message


# Addresses


@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 128))
def test_addresses_in_ranges(address: Any, network: Any, prefix: int) -> None:
    found = call("isIPAddressInRange", str(address), f"{network}/{prefix}")
    if prefix > network.max_prefixlen:
        assert found is False
    else:
        assert found == (address in ipaddress.ip_network(f"{network}/{prefix}", strict=False))


@given(st.text(), st.text())
def test_any_text_is_an_answer(address: str, network: str) -> None:
    assert call("isIPAddressInRange", address, network) is False


# JSON


def test_paths_into_nested_text(evaluate: Callable[[str], Any]) -> None:
    document = r"""'{"outer": "{\\"inner\\": [1]}"}'"""
    assert evaluate(f"JSONHas({document}, 'outer', 'inner', 1)") is True
    assert evaluate(f"JSONHas({document}, 'outer', 'inner', 2)") is False
    assert evaluate(f"JSONLength({document}, 'outer', 'inner')") == 0


def test_results_of_json_functions_are_the_values_themselves() -> None:
    items = [1, 2]
    assert call("JSONExtractArrayRaw", {"a": items}, "a") is items
