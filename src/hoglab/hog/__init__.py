"""The Hog language: parse, check, compile and run programs, expressions, templates and inputs.

    from hoglab import hog

    result = hog.run("let who := input.name return f'Hello {who}'", {"input": {"name": "Ada"}})
    result.value      # 'Hello Ada'
    hog.check("let x = 1")   # [Diagnostic(severity='error', code='unexpected-token', ...)]
    hog.format("let x:=1")   # 'let x := 1\\n'

For more control, compile once and run often:

    program = hog.compile_program(source, hog.ANY.with_functions(hog.host_function("fetch")))
    execution = hog.Execution(program, {"event": {...}}, seed="invocation-id")
    step = execution.start()
    while isinstance(step, hog.Suspended):
        step = execution.resume(answer(step.name, step.args))
    step.result.error, step.result.value, step.result.printed

`Execution.journal()` is JSON data from which another process can go on. Expressions are evaluated with
`hog.evaluate(hog.compile_expression(text, hog.TEMPLATE), globals)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hoglab.hog import codegen, nodes, patterns, sql_nodes, values
from hoglab.hog.backend_javascript import JavaScript
from hoglab.hog.compiler.templates import Path, map_texts, order_inputs
from hoglab.hog.env import (
    ANY,
    TEMPLATE,
    Environment,
    Globals,
    host_function,
)
from hoglab.hog.errors import (
    Diagnostic,
    HogCompileError,
    HogLimit,
    HogRuntimeError,
    HogSourceError,
    HogSyntaxError,
    HogThrow,
    Position,
    excerpt,
    missing_global,
)
from hoglab.hog.findings import findings
from hoglab.hog.formatter import format_program as format  # noqa: A004 - what every language calls it
from hoglab.hog.formatter import format_template
from hoglab.hog.parser import parse_expression, parse_program
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.hog.program import (
    Input,
    Program,
    compile_expression,
    compile_inputs,
    compile_program,
    compile_template,
)
from hoglab.hog.read_set import ReadSet, read_set
from hoglab.hog.rt.context import EXPRESSION_BYTES, EXPRESSION_LIMITS, Context, Limits
from hoglab.hog.rt.conversion import from_json, to_json
from hoglab.hog.run import REPEAT_FACTOR, Execution, Finished, Result, Suspended, evaluate
from hoglab.hog.session import Session, is_complete
from hoglab.hog.stdlib import LIBRARY, Function
from hoglab.hog.suggestions import closest, closest_function
from hoglab.hog.tracebacks import ErrorInfo
from hoglab.hog.tracing import TraceStep, traced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = [
    "ANY",
    "EXPRESSION_BYTES",
    "EXPRESSION_LIMITS",
    "LIBRARY",
    "REPEAT_FACTOR",
    "TEMPLATE",
    "Context",
    "Diagnostic",
    "Environment",
    "ErrorInfo",
    "Execution",
    "Finished",
    "Function",
    "Globals",
    "HogCompileError",
    "HogLimit",
    "HogRuntimeError",
    "HogSourceError",
    "HogSyntaxError",
    "HogThrow",
    "Input",
    "JavaScript",
    "Limits",
    "Path",
    "Position",
    "Program",
    "ReadSet",
    "Result",
    "Session",
    "Suspended",
    "TraceStep",
    "check",
    "closest",
    "closest_function",
    "codegen",
    "compile_expression",
    "compile_inputs",
    "compile_javascript",
    "compile_program",
    "compile_template",
    "ensure_stack",
    "evaluate",
    "excerpt",
    "findings",
    "format",
    "format_template",
    "from_json",
    "host_function",
    "interpret",
    "is_complete",
    "map_texts",
    "missing_global",
    "nodes",
    "order_inputs",
    "parse_expression",
    "parse_program",
    "patterns",
    "read_set",
    "reads",
    "run",
    "sql_nodes",
    "to_json",
    "trace",
    "values",
]


def run(
    source: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002 - the language's own word
    *,
    env: Environment = ANY,
    host: Mapping[str, Callable[..., Any]] | None = None,
    limits: Limits | None = None,
    seed: int | str | None = None,
) -> Result:
    """Compile a program and run it to its end.

    `globals` are plain JSON data. `host` performs the functions that make a program wait, each called with plain
    data: `run("return fetch(url).status", {"url": "..."}, host={"fetch": my_fetch})`.

    Raises `HogSyntaxError` or `HogCompileError`. Later errors are in `Result.error`.
    """
    return _run(source, globals, env, host, limits, seed, interpreted=False)


def interpret(
    source: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002 - as for `run`
    *,
    env: Environment = ANY,
    host: Mapping[str, Callable[..., Any]] | None = None,
    limits: Limits | None = None,
    seed: int | str | None = None,
) -> Result:
    """Run a program in the interpreter, some fifty times slower than `run`: the reference for compiled programs.

    Arguments and errors are those of `run`.
    """
    return _run(source, globals, env, host, limits, seed, interpreted=True)


def trace(
    source: str,
    watch: Callable[[TraceStep], None],
    globals: Mapping[str, Any] | None = None,  # noqa: A002 - as for `run`
    *,
    env: Environment = ANY,
    limits: Limits | None = None,
) -> Result:
    """Run a program and call `watch` for every statement, with the values that variables get.

    The program is interpreted, so its time limit is reached earlier than by `run`. Raises what `run` raises.
    """
    variables = {name: from_json(value) for name, value in (globals or {}).items()}
    program = traced(compile_program(source, env, interpreted=True), watch)
    execution = Execution(program, variables, limits=limits)
    step = execution.start()
    if isinstance(step, Suspended):
        return execution.fail(f"Unknown async function '{step.name}'").result
    return step.result


def _run(
    source: str,
    data: Mapping[str, Any] | None,
    env: Environment,
    host: Mapping[str, Callable[..., Any]] | None,
    limits: Limits | None,
    seed: int | str | None,
    *,
    interpreted: bool,
) -> Result:
    if host:
        env = env.with_functions(*(host_function(name) for name in host))
    variables = {name: from_json(value) for name, value in (data or {}).items()}
    program = compile_program(source, env, interpreted=interpreted)
    execution = Execution(program, variables, seed=seed, limits=limits)
    step = execution.start()
    while isinstance(step, Suspended):
        perform = (host or {}).get(step.name)
        if perform is None:
            return execution.fail(f"Unknown async function '{step.name}'").result
        step = execution.resume(perform(*step.args))
    return step.result


def compile_javascript(source: str | Program, env: Environment = ANY) -> str:
    """Compile a program to JavaScript, with the library functions it needs before it.

    The text is the body of a function that has `__getGlobal(name)` to read globals with; `print` writes to the
    console. Raises `HogSyntaxError` or `HogCompileError`, also for functions that cannot exist in a browser.
    """
    program = source if isinstance(source, Program) else compile_program(source, env)
    return program.javascript.text


def check(
    source: str,
    env: Environment = ANY,
    *,
    kind: Literal["program", "expression", "filter", "template"] = "program",
    known: Collection[str] | None = None,
) -> list[Diagnostic]:
    """Check a text without running it; return diagnostics in the order of places, none for a text without faults.

    Diagnostics of severity `error` mean that the text does not compile or cannot work. `kind` is the
    kind of text (`filter`: an expression that decides about events), `known` the globals it will have; the default is
    the environment's.
    """
    compile_text = {"program": compile_program, "template": compile_template}.get(kind, compile_expression)
    try:
        program = compile_text(source, env)
        program.generated  # noqa: B018 - compiles the rest
    except HogSourceError as error:
        return [error.diagnostic()]
    all_diagnostics = [*program.diagnostics, *findings(program, known=known, is_filter=kind == "filter")]
    return sorted(all_diagnostics, key=lambda entry: (entry.start, entry.end, entry.code))


def reads(
    source: str, env: Environment = ANY, *, kind: Literal["program", "expression", "template"] = "program"
) -> ReadSet:
    """Return the globals that a text reads. Raises `HogSyntaxError` or `HogCompileError`."""
    compile_text = {"program": compile_program, "template": compile_template}.get(kind, compile_expression)
    return read_set(compile_text(source, env))
