"""Every rule of the contract has a test."""

from __future__ import annotations

from tests.contract.rules import proven, rules


def test_every_rule_has_a_test() -> None:
    found = proven()
    missing = {number: sentence for number, sentence in rules().items() if number not in found}
    assert missing == {}
