"""The oracles: things that others made, asked the same questions as ours. One process each for the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hog.oracles.official_parser import OfficialParser
from tests.hog.oracles.runners import Machine, Runners


@pytest.fixture(scope="session")
def runners(node_modules: Path) -> Iterator[Runners]:
    """Every way to run a Hog program (see `tests/hog/oracles/runners.py`)."""
    machine = Machine(node_modules)
    yield Runners(machine)
    machine.close()


@pytest.fixture(scope="session")
def official_parser() -> Iterator[OfficialParser]:
    """The parser of PostHog, running."""
    parser = OfficialParser()
    yield parser
    parser.close()
