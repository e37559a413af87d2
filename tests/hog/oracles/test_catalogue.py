"""The programs of the template catalogue run on the official machine as on ours: same requests, same end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.functions.templates.cases import CASES
from tests.functions.templates.cases import Case as TemplateCase
from tests.hog.oracles.runners import RUNNERS, Case, Runners

from hoglab import hog
from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.runtime.compile import compile_configuration

HOST = ("fetch", "geoipLookup", "cleanNullValues", "isKnownBotUserAgent", "isKnownBotIp")


def program_case(case: TemplateCase) -> Case:
    """The case with its inputs filled in by us: what the machines run is the program."""
    configuration = Builder(FunctionPatch(case.function()), None, FilterContext()).build()
    function = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    variables = hog.from_json(case.globals)
    mapping = function.mappings[0] if function.mappings else None
    inputs = function.build_inputs(variables, mapping)
    answers = [{"status": one["status"], "body": one.get("body", "")} for one in case.responses]
    return Case(case.template.code, {**case.globals, "inputs": hog.to_json(inputs)}, answers, HOST)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_program_does_the_same_on_the_official_machine(case: TemplateCase, runners: Runners) -> None:
    asked = program_case(case)
    official, ours = (RUNNERS[name](runners.machine, asked) for name in ("corrected", "python"))
    if "now()" in case.template.code:  # each machine has a clock of its own
        assert [name for name, _ in official.calls] == [name for name, _ in ours.calls]
        official, ours = replace(official, calls=()), replace(ours, calls=())
    assert official == ours
