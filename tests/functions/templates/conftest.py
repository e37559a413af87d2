"""Fixtures of the suites about templates."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.delivery.conftest import House, prepared

from hoglab.accounts.bootstrap import FirstStart

__all__ = ["prepared"]


@pytest.fixture(scope="module")
def house(prepared: tuple[Path, FirstStart], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Server of a module on a copy of the prepared directory."""
    folder = tmp_path_factory.mktemp("house")
    house = House(Path(shutil.copytree(prepared[0], folder / "data")))
    house.open()
    yield house
    house.close()
