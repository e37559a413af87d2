"""JSON text that is kept takes the memory of its characters."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from tests.storage.test_event_store import JSON

from hoglab.storage.json_text import json_bytes


@given(JSON)
def test_the_text_is_that_of_the_encoder(value: Any) -> None:
    assert json_bytes(value) == orjson.dumps(value)


def test_what_the_encoder_refuses_is_refused() -> None:
    with pytest.raises(TypeError):
        json_bytes(2**64)


def test_texts_that_are_kept_take_little_more_than_their_characters() -> None:
    value = {f"property_{number}": "x" * 20 for number in range(15)}
    texts, before = [], resident_bytes()
    for _ in range(20_000):
        texts.append(json_bytes(value))  # noqa: PERF401 - one by one, as events come
    assert resident_bytes() - before < 3 * sum(map(len, texts))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
