"""Preparations for the tests of results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.analysis.engines import ClickHouseEngine, DuckDbEngine, Engine
from tests.analysis.lab import Lab

from hoglab.hog.parser.recursion import ensure_stack

ensure_stack()  # before Hypothesis looks at the recursion limit: reading an expression raises it


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each engine in turn, empty."""
    folder = tmp_path_factory.mktemp(request.param)
    found: Engine
    if request.param == "duckdb":
        found = DuckDbEngine(folder)
    else:
        found = ClickHouseEngine(folder, request.getfixturevalue("clickhouse"))
    yield found
    found.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Results on a directory of their own."""
    lab = Lab(tmp_path)
    yield lab
    lab.close()
