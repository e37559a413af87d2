"""Test runs that send nothing end well for every template: they go on with what its service would answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.delivery.conftest import House, prepared
from tests.functions.templates.cases import CASES, Case

from hoglab.accounts.bootstrap import FirstStart
from hoglab.delivery.trials.runs import TestRuns
from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.runtime.compile import compile_configuration
from hoglab.functions.templates import acknowledgements

__all__ = ["prepared"]  # a fixture


def first_requests() -> list[Case]:
    """Return of each template its first case that sends requests and ends well."""
    cases: dict[str, Case] = {}
    for case in CASES:
        if case.given.get("requests") and "error" not in case.given and case.template.type == "destination":
            cases.setdefault(case.template.id, case)
    return list(cases.values())


@pytest.fixture(scope="module")
def house(prepared: tuple[Path, FirstStart], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("mocked")
    house = House(Path(shutil.copytree(prepared[0], folder / "data")))
    house.open()
    yield house
    house.close()


def mocked_errors(house: House, case: Case, answers: tuple[dict[str, object], ...]) -> list[str]:
    """Return the errors of a run that sends nothing."""
    configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
    function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    runs = TestRuns(house.delivery)
    report = runs.run(house.project, function, case.globals, run_id="r", mock=True, responses=answers)
    return report.errors


@pytest.mark.parametrize("case", first_requests(), ids=lambda case: case.template.folder)
def test_a_run_that_sends_nothing_ends_well(case: Case, house: House) -> None:
    assert mocked_errors(house, case, acknowledgements(case.template.id)) == []
