"""The JavaScript library: every function against the official machine's answers, and its files as files."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import groupby
from pathlib import Path

import pytest
from tests.hog.oracles.runners import LIBRARY, Runners
from tests.hog.oracles.test_library import DIFFERENCES, IN_JAVASCRIPT
from tests.hog.stdlib.test_library_vectors import VECTORS, function_name

from hoglab import hog
from hoglab.hog.backend_javascript.library import runs_in_browsers, unit, unit_names
from hoglab.hog.stdlib import LIBRARY as FUNCTIONS

BY_FUNCTION = {
    name: list(calls) for name, calls in groupby(sorted(VECTORS, key=function_name), function_name)
}
NOT_IN_BROWSERS = {"sleep"}
SHAPES = {
    "today() = toStartOfDay(now())",  # `==` compares moments by identity there
}
"""Calls that JavaScript answers otherwise because of what its output has to look like (spec: hog-language 11)."""


def in_javascript(call: str) -> bool:
    return call.partition("(")[0] not in {*NOT_IN_BROWSERS, "print"} and call not in SHAPES


def answers(runners: Runners, calls: list[str]) -> list[str | None]:
    """What JavaScript answers to the calls; None for those that fail."""
    programs = [hog.compile_expression(call, hog.ANY).javascript for call in calls]
    units = {name for program in programs for name in program.stl}
    return runners.machine.evaluate([program.code for program in programs], sorted(units))


@pytest.mark.parametrize("name", BY_FUNCTION)
def test_calls_agree_with_the_official_machine(name: str, runners: Runners) -> None:
    calls = BY_FUNCTION[name]
    found = answers(runners, [source for source, _ in calls])
    different = [(*call, ours) for call, ours in zip(calls, found, strict=True) if call[1] != ours]
    assert different == []


def test_what_hoglab_decided_otherwise_holds_in_javascript_too(runners: Runners) -> None:
    otherwise = {source for listed in IN_JAVASCRIPT for source, _, _ in listed.examples}
    rows = [
        (source, ours)
        for listed in DIFFERENCES
        for source, _, ours in listed.examples
        if in_javascript(source) and source not in otherwise
    ]
    found = answers(runners, [source for source, _ in rows])
    different = [
        (row, answer) for row, answer in zip(rows, found, strict=True) if row[1] != (answer or "fails")
    ]
    assert different == []


def test_the_examples_of_the_reference_hold(runners: Runners) -> None:
    declared = {function.name: function for function in FUNCTIONS.values()}
    rows = [row for function in declared.values() for row in function.examples if in_javascript(row[0])]
    found = answers(runners, [source for source, _ in rows])
    assert [(row, answer) for row, answer in zip(rows, found, strict=True) if row[1] != answer] == []


def test_every_function_that_can_exist_in_a_browser_does() -> None:
    missing = {function.name for function in FUNCTIONS.values() if not runs_in_browsers(function.name)}
    assert missing == NOT_IN_BROWSERS


def test_no_file_imports_what_it_does_not_call_or_misses_what_it_does() -> None:
    """Names called, less those that the file declares itself and those of the language."""
    for name in sorted(unit_names()):
        one = unit(name)
        code = re.sub(r"//.*|'(?:\\.|[^'\\])*'", "", one.code)
        words = set(re.findall(r"(?<![.\w$])[A-Za-z_]\w*", code))
        assert set(one.uses) <= words, name
        missing = {word for word in words if word.startswith("__") and word in unit_names()}
        assert missing <= {*one.uses, name}, name


def test_files_are_modules_that_export_their_function(node_modules: Path, tmp_path: Path) -> None:
    script = tmp_path / "load.mjs"
    script.write_text(
        "import { readdirSync } from 'node:fs'\n"
        f"const folder = {json.dumps(LIBRARY.as_uri() + '/')}\n"
        f"for (const file of readdirSync({json.dumps(str(LIBRARY))})) {{\n"
        "    const module = await import(folder + file)\n"
        "    if (Object.keys(module).join() !== file.slice(0, -3)) throw new Error(file)\n"
        "    if (typeof module[file.slice(0, -3)] !== 'function') throw new Error(file)\n"
        "}\n"
    )
    subprocess.run(["node", script], check=True)


def test_the_library_is_written_in_the_language_of_2017(node_modules: Path, tmp_path: Path) -> None:
    """Old browsers read all of it before they run any of it. `acorn` is the judge of what belongs to ES2017."""
    script = tmp_path / "parse.cjs"
    script.write_text(
        f"const acorn = require({json.dumps(str(node_modules / 'acorn'))})\n"
        "const { readdirSync, readFileSync } = require('node:fs')\n"
        f"const folder = {json.dumps(str(LIBRARY))}\n"
        "for (const file of readdirSync(folder)) {\n"
        "    acorn.parse(readFileSync(folder + '/' + file, 'utf8'), { ecmaVersion: 2017, sourceType: 'module' })\n"
        "}\n"
    )
    subprocess.run(["node", script], check=True)
