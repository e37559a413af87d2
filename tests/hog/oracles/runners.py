"""The ways to run a Hog program, behind one face: `RUNNERS` names them all.

    outcome = runners.run("python", "return 1 + n", {"n": 2})
    outcomes = runners.run_all(source, variables)        # one Outcome per runner that can run the program

An `Outcome` holds only text and plain data, so that two of them compare with `==`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hoglab import hog
from hoglab.hog.backend_javascript import library_code
from hoglab.hog.rt.printing import is_truthy, repr_value

HERE = Path(__file__).parent
LIBRARY = Path(hog.__file__).parent / "backend_javascript" / "library"


@dataclass(frozen=True)
class Failure:
    """Why a program ended early: an uncaught error value (`throw`, with its printed form), something that the
    machine refuses (`failure`) or a limit. The words of the last two are free (spec: hog-language 9, D13) and
    take no part in comparisons; `text` keeps them for people."""

    kind: str
    thrown: str | None
    text: str = field(compare=False)


@dataclass(frozen=True)
class Outcome:
    """What a program did: its result in the printer's form (None after an error), the lines it printed, the
    host functions it called with their arguments, and its error."""

    result: str | None
    printed: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]
    error: Failure | None


@dataclass(frozen=True)
class Case:
    """A program with its globals, and the host's answers to its calls, in order."""

    source: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    answers: Sequence[Any] = ()
    host: tuple[str, ...] = ("fetch",)

    @property
    def environment(self) -> hog.Environment:
        return hog.ANY.with_functions(*map(hog.host_function, self.host))


class Machine:
    """The node process: one for the whole session, a line of JSON for each program."""

    def __init__(self, packages: Path) -> None:
        self.process = subprocess.Popen(
            ["node", str(HERE / "machine.mjs"), str(packages), str(LIBRARY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, request: dict[str, Any]) -> Outcome:
        """What a program does; `machine.mjs` says what a request holds."""
        answer = self._exchange(request)
        return Outcome(
            answer["result"],
            tuple(answer["printed"]),
            tuple((name, canonical(args)) for name, args in answer["calls"]),
            _failure(**answer["error"]) if answer["error"] else None,
        )

    def evaluate(self, expressions: Sequence[str], units: Sequence[str]) -> list[str | None]:
        """The printed values of JavaScript expressions over these library functions; None for those that fail."""
        request = {"machine": "expressions", "library": library_code(units), "expressions": list(expressions)}
        results: list[str | None] = self._exchange(request)["results"]
        return results

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the node process died of {json.dumps(request)[:2000]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def canonical(data: Any) -> str:
    """Plain data as text; whole numbers have no fraction, as in JavaScript."""
    return json.dumps(hog.to_json(hog.from_json(data)), ensure_ascii=False)


def _failure(kind: str, text: str) -> Failure:
    return Failure(kind, text if kind == "throw" else None, text)


# --- the runners


def run_python(_machine: Machine, case: Case) -> Outcome:
    """The generated Python code, in one process all along."""
    return _straight(_execution(case), case)


def run_interpreter(_machine: Machine, case: Case) -> Outcome:
    """The interpreter; what it repeats after each call of the host must not show."""
    return _straight(_execution(case, interpreted=True), case)


def _straight(execution: hog.Execution, case: Case) -> Outcome:
    """All turns in one process."""
    step = execution.start()
    calls = []
    for answer in case.answers:
        if isinstance(step, hog.Finished):
            break
        calls.append((step.name, canonical(step.args)))
        step = execution.resume(answer)
    return _python_outcome(step, tuple(step.result.printed) if isinstance(step, hog.Finished) else (), calls)


def run_journal(_machine: Machine, case: Case) -> Outcome:
    """The generated Python code, rebuilt from the JSON text of its journal after each call of the host."""
    execution = _execution(case)
    step = execution.start()
    printed = list(execution.printed_lines)
    calls = []
    for answer in case.answers:
        if isinstance(step, hog.Finished):
            break
        calls.append((step.name, canonical(step.args)))
        journal = json.loads(json.dumps(execution.journal()))
        execution.close()
        execution = _execution(case, journal)
        assert execution.start() == step
        step = execution.resume(answer)
        printed += execution.printed_lines
    return _python_outcome(step, tuple(printed), calls)


def run_official(machine: Machine, case: Case, *, corrected: bool = False) -> Outcome:
    """Our bytecode on the official machine, its state going through JSON text after each call of the host.

    `corrected` gives the machine the library functions as hoglab decided them (spec: hog-language 9, D4 and D9).
    """
    return machine.ask(
        {
            "machine": "official",
            "bytecode": hog.compile_program(case.source, case.environment).bytecode,
            "globals": dict(case.variables),
            "answers": list(case.answers),
            "async": list(case.host),
            "corrected": corrected,
        }
    )


def run_javascript(machine: Machine, case: Case) -> Outcome:
    """Our JavaScript in node."""
    code = hog.compile_javascript(case.source, case.environment)
    return machine.ask({"machine": "javascript", "code": code, "globals": dict(case.variables)})


def execute(program: hog.Program, variables: Mapping[str, Any]) -> Outcome:
    """What a compiled text that needs no host does in Python."""
    values = {name: hog.from_json(value) for name, value in variables.items()}
    step = hog.Execution(program, values, seed="oracle").start()
    printed = tuple(step.result.printed) if isinstance(step, hog.Finished) else ()
    return _python_outcome(step, printed, [])


def _execution(
    case: Case, journal: Mapping[str, Any] | None = None, *, interpreted: bool = False
) -> hog.Execution:
    program = hog.compile_program(case.source, case.environment, interpreted=interpreted)
    variables = {name: hog.from_json(value) for name, value in case.variables.items()}
    return hog.Execution(program, variables, seed="oracle", journal=journal)


def _python_outcome(
    step: hog.Finished | hog.Suspended, printed: tuple[str, ...], calls: list[tuple[str, str]]
) -> Outcome:
    if isinstance(step, hog.Suspended):
        waiting = (step.name, canonical(step.args))
        return Outcome(None, printed, (*calls, waiting), _failure("failure", "No more answers"))
    error = step.result.error
    if error is None:
        return Outcome(repr_value(step.result.value), printed, tuple(calls), None)
    if error.kind == "throw":
        return Outcome(None, printed, tuple(calls), _failure("throw", _thrown_text(error)))
    return Outcome(
        None, printed, tuple(calls), _failure("limit" if error.kind == "limit" else "failure", error.message)
    )


def _thrown_text(error: hog.ErrorInfo) -> str:
    """The printed form of a thrown error value, payload included."""
    if not is_truthy(error.payload):
        return error.message
    return f"{error.message[:-1]}, {repr_value(error.payload)})"


def run_corrected(machine: Machine, case: Case) -> Outcome:
    """As `run_official`, with the library's functions corrected."""
    return run_official(machine, case, corrected=True)


RUNNERS: dict[str, Callable[[Machine, Case], Outcome]] = {
    "official": run_official,
    "corrected": run_corrected,
    "python": run_python,
    "interpreter": run_interpreter,
    "journal": run_journal,
    "javascript": run_javascript,
}
"""Every way to run a program. `official` is the one that the others are compared with."""


NOT_IN_JAVASCRIPT = frozenset({"not-in-javascript", "unknown-function", "arity"})
"""The reasons for which a program has no JavaScript: what fails when it is reached elsewhere."""


class Runners:
    """All runners over one node process."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def run(
        self,
        name: str,
        source: str,
        variables: Mapping[str, Any] | None = None,
        *,
        answers: Sequence[Any] = (),
    ) -> Outcome:
        """What the runner of that name makes of a program. Raises `HogSourceError` for one it cannot compile."""
        return RUNNERS[name](self.machine, Case(source, variables or {}, answers))

    def run_all(
        self, source: str, variables: Mapping[str, Any] | None = None, *, answers: Sequence[Any] = ()
    ) -> dict[str, Outcome]:
        """The outcome of every runner that can run the program, by its name.

        JavaScript cannot have all functions of the library; programs with others are left out there.
        """
        outcomes = {}
        for name in RUNNERS:
            try:
                outcomes[name] = self.run(name, source, variables, answers=answers)
            except hog.HogCompileError as refused:
                if name != "javascript" or refused.code not in NOT_IN_JAVASCRIPT:
                    raise
        return outcomes
