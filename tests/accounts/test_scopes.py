"""Scopes of keys against what endpoints ask for."""

from __future__ import annotations

from pathlib import Path

from hoglab.accounts.scopes import SERVED, UNSERVED
from hoglab.app import Hoglab
from hoglab.http.management.routing import Either
from hoglab.settings import load


def test_every_scope_that_an_endpoint_asks_for_is_known(tmp_path: Path) -> None:
    hoglab = Hoglab.open(load(data=tmp_path / "data"))
    hoglab.start()
    try:
        needs = [need for each in hoglab.http.management.table.operations() for need in each.needs or ()]
    finally:
        hoglab.stop()
    scopes = {scope for need in needs for scope in (need.scopes if isinstance(need, Either) else (need,))}
    assert {scope.partition(":")[0] for scope in scopes} == SERVED
    assert not SERVED & UNSERVED
