"""Compiled programs against the interpreter, which knows none of the compiler's short ways.

Both must give the same result, printed lines and errors. `HOGLAB_FUZZ_EXAMPLES` sets how many programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.hog.oracles.programs import oracle_settings, programs

from hoglab import hog
from hoglab.hog.rt.printing import repr_value

GLOBALS = json.loads((Path(__file__).parent / "corpus" / "globals.json").read_text())
LIMITS = hog.Limits(max_steps=20_000, time_s=60)


def described(result: hog.Result, *, words: bool = True) -> tuple[Any, ...]:
    """What both must agree on.

    A limit must stop both, but not at the same place: frames and copies are counted otherwise. Of two operands that
    both fail, compiled code may reach the other one first: then only the kind of the failure is the same (`words` is
    false), unless the program threw it.
    """
    error = result.error
    if error is None:
        return repr_value(result.value), result.printed
    if error.kind == "limit":
        return ("limit",)
    if error.kind == "runtime" and not words:
        return result.printed, error.kind
    return result.printed, error.kind, error.message, repr_value(error.payload), error.line, error.column


def patient(*, stopped: bool) -> hog.Limits:
    """The interpreter copies more, so that it takes more steps: what the limit stopped must stop it all the more."""
    return LIMITS if stopped else replace(LIMITS, max_steps=1_000_000)


def agree(source: str, variables: dict[str, Any], *, words: bool = True) -> None:
    # the first to meet a pattern pays for compiling it, so that a tight limit would stop only one of the two
    compiled = hog.run(source, variables, limits=LIMITS if words else patient(stopped=False), seed=1)
    limits = patient(stopped=compiled.error is not None and compiled.error.kind == "limit")
    interpreted = hog.interpret(source, variables, limits=limits, seed=1)
    assert described(compiled, words=words) == described(interpreted, words=words)
    assert compiled.error is None or "Internal error" not in compiled.error.message


@oracle_settings(100)
@given(programs())
def test_programs(source: str) -> None:
    agree(source, GLOBALS)


# --- operators and functions on anything

VALUES: dict[str, Any] = {
    "n": None, "yes": True, "no": False, "zero": 0, "one": 1, "two": 2, "half": 0.5, "big": 2**53, "minus": -3,
    "empty": "", "word": "word", "num": "2", "padded": " 1 ", "true_text": "true", "date": "2024-02-29", "list": [1, 2],
    "mixed": ["a", None, [1]], "none": [], "dict": {"k": 1, "2": "b", "list": [3]}, "bare": {},
}  # fmt: skip
LITERALS = (
    "null", "true", "false", "0", "1", "2", "-3", "0.5", "1e300", "9007199254740992", "''", "'word'", "'2'", "' 1 '",
    "'true'", "'2024-02-29'", "[1, 2]", "[]", "(1, 2)", "['a', null, [1]]", "{'k': 1, 2: 'b'}", "{}", "inf", "nan",
    "toDateTime('2024-02-29')", "toDate('2024-02-29')", "Error('bad', 1)", "(x -> x)", "upper",
)  # fmt: skip
BINARY = (
    "+", "-", "*", "/", "%", "=", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in", "like", "not like", "ilike",
    "not ilike", "=~", "!~", "=~*", "!~*", "||", "??",
)  # fmt: skip
SHAPES = (
    "not ({})", "- ({})", "({}) is null", "({}) is not null", "({})[1]", "({})['k']", "({}).k", "({})?.list",
    "f'{{{}}}'", "length({})",
    "substring({}, 1, 2)", "startsWith({}, 'w')", "toString({})", "toInt({})", "toFloat({})", "keys({})",
    "typeof({})", "jsonStringify({})", "empty({})", "upper({})", "isNull({})", "values({})", "if({}, 1, 'x')",
    "multiIf({}, 1, 2)", "arrayMap(x -> x, {})", "concat({}, 1)", "[{}]", "{{'v': {}}}", "{{ ({}): 1 }}",
    "({}) between 0 and 2", "1 between ({}) and 5", "(y -> [y, y])({})", "arrayExists(x -> x = 1, {})",
)  # fmt: skip
leaf = st.one_of(
    st.sampled_from(LITERALS),
    st.sampled_from(sorted(VALUES)),
    st.sampled_from(["a", "b", "dict.k", "mixed[3]"]),
)
wild = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds(lambda shape, part: shape.format(part), st.sampled_from(SHAPES), inner),
        st.builds(lambda op, left, right: f"({left}) {op} ({right})", st.sampled_from(BINARY), inner, inner),
    ),
    max_leaves=6,
)


@st.composite
def wild_programs(draw: st.DrawFn) -> str:
    """Statements that put any value into any place; `a` and `b` change their kind on the way."""
    lines = [f"let a := {draw(leaf.filter(lambda text: text not in 'ab'))} let b := 1"]
    forms = (
        "a := {};", "b := {};", "print({});", "a := a + ({});", "b := concat(b, {});", "if ({}) {{ b := a }}",
        "for (let v in {}) {{ b := [b, v] }}", "for (let k, v in {}) {{ print(k, v) a := v }}",
        "let i := 0 while (i < 3 and not ({})) {{ i := i + 1 b := i * b }}", "a := {{'k': 1}}; a.k := {};",
        "let d := dict; d[({})] := 1; print(d);", "try {{ throw Error('m', {}) }} catch (e) {{ b := e.payload }}",
        "fun f(p) {{ return p * 2 + ({}) }} b := f(a);", "let g := () -> {{ a := {}; return a; }}; print(g(), a);",
        "let l := list; l[1] := {}; print(l, list);",
        "let s := 'x' for (let q := 0; q < 3; q := q + 1) {{ s := s || ({}) }}",
    )  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(forms), max_size=4))
    lines += ["{ " + form.format(draw(wild)) + " }" for form in chosen]
    return "\n".join([*lines, f"return [a, b, {draw(wild)}]"])


@oracle_settings(300)
@given(wild_programs())
def test_any_value_in_any_place(source: str) -> None:
    try:
        agree(source, VALUES, words=False)
    except hog.HogCompileError as error:
        assert error.code == "zero-index"  # noqa: PT017 - most programs compile


# --- waiting for the host

HOST = hog.ANY.with_functions(hog.host_function("fetch"), hog.host_function("ask"))
ANSWERS = (1, "text", {"status": 200, "body": {"k": [1]}}, [3, 1], None, 0, True, 2.5)


def waiting(source: str) -> str:
    """A program that asks the host where the given one printed or called `floor` and `length`."""
    asked = re.sub(r"\bfloor\(", "ask(", re.sub(r"\blength\(", "ask(", source))
    parts = asked.split("print(")
    asked = (
        "".join(part + ("fetch(" if at % 2 else "print(") for at, part in enumerate(parts[:-1])) + parts[-1]
    )
    before, end, after = asked.rpartition("return ")
    moment = "print(now().dt, generateUUIDv4(), randomFloat());\n"
    return moment + before + moment + end + after


def run_waiting(
    program: hog.Program, *, restart: Callable[[int], bool], limits: hog.Limits = LIMITS
) -> tuple[Any, ...]:
    """Runs to the end; where `restart` says so, in a new execution made from the journal's JSON text."""
    ticks = count(1_700_000_000)

    def execution(journal: dict[str, Any] | None = None) -> hog.Execution:
        return hog.Execution(
            program, dict(GLOBALS), seed="s", limits=limits, journal=journal, clock=lambda: float(next(ticks))
        )

    run = execution()
    step = run.start()
    calls, printed = [], list(run.printed_lines)
    while isinstance(step, hog.Suspended):
        calls.append((step.name, json.dumps(step.args)))
        if restart(len(calls)):
            journal = json.loads(json.dumps(run.journal()))
            run.close()
            run = execution(journal)
            assert run.start() == step
            assert {**run.journal(), "used_s": journal["used_s"]} == journal
            assert run.printed_lines == []
            before = 0
        else:
            before = len(run.printed_lines)
        step = run.resume(ANSWERS[len(calls) % len(ANSWERS)])
        printed += (run.printed_lines if isinstance(step, hog.Suspended) else step.result.printed)[before:]
    error = step.result.error
    if error is not None and error.kind == "limit":
        return ("limit",)
    failed = None if error is None else (error.kind, error.message, error.line, error.column)
    return repr_value(step.result.value), failed, tuple(printed), tuple(calls)


@oracle_settings(60)
@given(programs())
def test_waiting_programs_go_on_from_their_journal(source: str) -> None:
    source = waiting(source)
    program = hog.compile_program(source, HOST)
    live = run_waiting(program, restart=lambda _call: False)
    assert live == run_waiting(program, restart=lambda _call: True)
    assert live == run_waiting(program, restart=lambda call: call % 2 == 0)
    interpreted = hog.compile_program(source, HOST, interpreted=True)
    limits = patient(stopped=live == ("limit",))
    assert live == run_waiting(interpreted, restart=lambda call: call == 2, limits=limits)
