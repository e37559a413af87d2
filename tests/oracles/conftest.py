"""The oracles: things that others made, asked the same questions as ours. One process each for the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.oracles.official_parser import OfficialParser
from tests.oracles.runners import Machine, Runners

from hoglab.hog.parser.recursion import ensure_stack

ensure_stack()  # before Hypothesis looks at the recursion limit: the first compilation changes it


@pytest.fixture(scope="session")
def runners(node_modules: Path) -> Iterator[Runners]:
    """Every way to run a Hog program (see `tests/oracles/runners.py`)."""
    machine = Machine(node_modules)
    yield Runners(machine)
    machine.close()


@pytest.fixture(scope="session")
def official_parser() -> Iterator[OfficialParser]:
    """The parser of PostHog, running."""
    parser = OfficialParser()
    yield parser
    parser.close()
