"""The Hog language: parse, check, compile and run programs, expressions, templates and inputs.

    from hoglab import hog

    result = hog.run("let who := input.name return f'Hello {who}'", {"input": {"name": "Ada"}})
    result.value      # 'Hello Ada'
    hog.check("let x = 1")   # [Diagnostic(severity='error', code='unexpected-token', ...)]

For more control, compile once and run often:

    program = hog.compile_program(source, hog.DESTINATION.with_functions(hog.host_function("fetch")))
    execution = hog.Execution(program, {"event": {...}}, seed="invocation-id")
    step = execution.start()
    while isinstance(step, hog.Suspended):
        step = execution.resume(answer(step.name, step.args))
    step.result.error, step.result.value, step.result.printed

`Execution.journal()` is JSON data from which another process can go on. Filters are evaluated with
`hog.evaluate(hog.compile_expression(text, hog.FILTER), globals)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hoglab.hog.env import (
    ANY,
    DESTINATION,
    FILTER,
    LOG_TRANSFORMATION,
    TEMPLATE,
    TRANSFORMATION,
    Environment,
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
)
from hoglab.hog.failures import ErrorInfo
from hoglab.hog.program import (
    Input,
    Program,
    compile_expression,
    compile_inputs,
    compile_program,
    compile_template,
)
from hoglab.hog.rt.context import Limits
from hoglab.hog.rt.values import from_json, to_json
from hoglab.hog.run import Execution, Finished, Result, Suspended, evaluate
from hoglab.hog.templates import input_dependencies, order_inputs, template_bytecode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ANY",
    "DESTINATION",
    "FILTER",
    "LOG_TRANSFORMATION",
    "TEMPLATE",
    "TRANSFORMATION",
    "Diagnostic",
    "Environment",
    "ErrorInfo",
    "Execution",
    "Finished",
    "HogCompileError",
    "HogLimit",
    "HogRuntimeError",
    "HogSourceError",
    "HogSyntaxError",
    "HogThrow",
    "Input",
    "Limits",
    "Position",
    "Program",
    "Result",
    "Suspended",
    "check",
    "compile_expression",
    "compile_inputs",
    "compile_program",
    "compile_template",
    "evaluate",
    "from_json",
    "host_function",
    "input_dependencies",
    "order_inputs",
    "run",
    "template_bytecode",
    "to_json",
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
    """Compiles and runs a program to its end.

    `globals` are plain JSON data. `host` performs the functions that make a program wait, each called with plain
    data: `run("return fetch(url).status", {"url": "..."}, host={"fetch": my_fetch})`.

    Raises `HogSyntaxError` or `HogCompileError`. What goes wrong later is in `Result.error`.
    """
    host = host or {}
    if host:
        env = env.with_functions(*(host_function(name) for name in host))
    variables = {name: from_json(value) for name, value in (globals or {}).items()}
    execution = Execution(compile_program(source, env), variables, seed=seed, limits=limits)
    step = execution.start()
    while isinstance(step, Suspended):
        perform = host.get(step.name)
        if perform is None:
            return execution.fail(f"Unknown async function '{step.name}'").result
        step = execution.resume(perform(*step.args))
    return step.result


def check(source: str, env: Environment = ANY) -> list[Diagnostic]:
    """Everything that can be said about a program without running it; empty when there is nothing.

    Diagnostics of severity `error` mean that the program does not compile or cannot work.
    """
    try:
        program = compile_program(source, env)
        program.generated  # noqa: B018 - compiles the rest
    except HogSourceError as error:
        return [error.diagnostic()]
    return list(program.diagnostics)
