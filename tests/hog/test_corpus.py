"""Whole programs with frozen output (`corpus/`), run in every way a program can be run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hoglab import hog
from hoglab.hog.rt.printing import repr_value

FOLDER = Path(__file__).parent / "corpus"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
GLOBALS = EXPECTED["globals"]
ENVIRONMENT = hog.ANY.with_functions(hog.host_function("fetch"))


@dataclass(frozen=True)
class CorpusProgram:
    name: str
    source: str
    answers: list[Any]
    printed: list[str]
    result: str | None
    error: str | None


PROGRAMS = [
    CorpusProgram(
        name,
        (FOLDER / f"{name}.hog").read_text(),
        expected.get("answers", []),
        expected["printed"],
        expected.get("result"),
        expected.get("error"),
    )
    for name, expected in EXPECTED["programs"].items()
]
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def variables() -> dict[str, Any]:
    return {name: hog.from_json(value) for name, value in GLOBALS.items()}


def check_outcome(program: CorpusProgram, result: hog.Result, printed: list[str]) -> None:
    assert printed == program.printed
    assert (None if result.error is None else result.error.message) == program.error
    if program.error is None:
        assert repr_value(result.value) == program.result


def test_every_program_has_an_expectation() -> None:
    assert {path.stem for path in FOLDER.glob("*.hog")} == {program.name for program in PROGRAMS}


@every_program
@pytest.mark.parametrize("interpreted", [False, True], ids=["compiled", "interpreted"])
def test_runs_as_frozen(program: CorpusProgram, interpreted: bool) -> None:
    compiled = hog.compile_program(program.source, ENVIRONMENT, interpreted=interpreted)
    assert not compiled.errors
    given = variables()
    execution = hog.Execution(compiled, given, seed="corpus")
    step = execution.start()
    for answer in program.answers:
        assert isinstance(step, hog.Suspended)
        step = execution.resume(answer)
    assert isinstance(step, hog.Finished)
    check_outcome(program, step.result, list(step.result.printed))
    assert given == variables(), "a program changed its globals"


@every_program
def test_runs_the_same_from_its_journal(program: CorpusProgram) -> None:
    """After every turn the execution is thrown away and rebuilt from JSON text."""
    compiled = hog.compile_program(program.source, ENVIRONMENT)
    execution = hog.Execution(compiled, variables(), seed="corpus")
    step = execution.start()
    printed = list(execution.printed_lines)
    for answer in program.answers:
        journal = json.loads(json.dumps(execution.journal()))
        execution.close()
        execution = hog.Execution(compiled, variables(), journal=journal)
        again = execution.start()
        assert again == step
        assert execution.printed_lines == []
        step = execution.resume(answer)
        printed += execution.printed_lines
    assert isinstance(step, hog.Finished)
    check_outcome(program, step.result, printed)


@every_program
def test_runs_the_same_inside_a_function_value(program: CorpusProgram) -> None:
    """Wrapped into a lambda, calls of the host can be anywhere: the program runs in replay mode."""
    wrapped = f"let wrapped := () -> {{\n{program.source};\n}}\nreturn wrapped()"
    compiled = hog.compile_program(wrapped, ENVIRONMENT)
    assert compiled.generated.facts.suspension == ("replay" if program.answers else "never")
    execution = hog.Execution(compiled, variables(), seed="corpus")
    step = execution.start()
    for answer in program.answers:
        assert isinstance(step, hog.Suspended)
        step = execution.resume(answer)
    assert isinstance(step, hog.Finished)
    check_outcome(program, step.result, list(step.result.printed))
