"""Executions: turns, journal, limits, errors with their place. spec: hog-runtime 4.1, 4.6; hog-language 8.10-8.12."""

import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from hoglab import hog
from hoglab.filters.hog import FILTER
from hoglab.functions.environments import TRANSFORMATION
from hoglab.hog.rt.values import HogDateTime

HOST = hog.ANY.with_functions(
    hog.host_function("fetch", "url?: any", "options?: any"), hog.host_function("make")
)


def start(source: str, variables: dict[str, Any] | None = None, **options: Any) -> tuple[Any, hog.Execution]:
    execution = hog.Execution(hog.compile_program(source, HOST), variables, **options)
    return execution.start(), execution


def failure(source: str, variables: dict[str, Any] | None = None, **options: Any) -> hog.ErrorInfo:
    step, _ = start(source, variables, **options)
    assert isinstance(step, hog.Finished)
    assert step.result.error is not None
    assert step.result.value is None
    return step.result.error


# --- the public face


def test_run_takes_plain_data_and_gives_a_result() -> None:
    result = hog.run("print('hi', name) return {'n': 1.0, 'at': toDateTime(0)}", {"name": "Ada"})
    assert result.printed == ("hi Ada",)
    assert result.error is None
    assert isinstance(result.value["at"], HogDateTime)
    assert result.json == {"n": 1, "at": {"__hogDateTime__": True, "dt": 0, "zone": "UTC"}}


def test_run_revives_marked_values_in_globals() -> None:
    marked = {"__hogDate__": True, "year": 2024, "month": 2, "day": 29}
    assert hog.run("return toString(dateAdd('day', 1, d))", {"d": marked}).value == "2024-03-01"


def test_run_performs_host_functions() -> None:
    calls: list[Any] = []

    def fetch(*args: Any) -> Any:
        calls.append(args)
        return {"status": 200, "body": {"n": len(calls)}}

    result = hog.run("return fetch('a').body.n + fetch('b', {'x': [1]}).body.n", host={"fetch": fetch})
    assert result.value == 3
    # the right operand first, as the official machine has it
    assert calls == [("b", {"x": [1]}), ("a",)]


def test_run_without_the_host_function() -> None:
    result = hog.run("print('before') sleep(1)")
    assert result.printed == ("before",)
    assert result.error is not None
    assert result.error.message == "Unknown async function 'sleep'"


def test_check_reports_without_running() -> None:
    assert hog.check("return 1") == []
    [found] = hog.check("let x := ")
    assert (found.severity, found.code, found.line, found.column) == ("error", "unexpected-token", 1, 10)
    [found] = hog.check("let a := 1\nmystery(a)")
    assert (found.severity, found.message, found.line) == (
        "error",
        "Hog function `mystery` is not implemented",
        2,
    )
    [found] = hog.check("let x := 1 x = 2")
    assert (found.severity, found.message) == ("warning", "You must use ':=' for assignment instead of '='.")
    [found] = hog.check("return 'a' + 1")
    assert found.code == "plus-string"
    [found] = hog.check("return x =~ '('")
    assert (found.severity, found.code, found.column) == ("warning", "bad-pattern", 13)
    [found] = hog.check("return upper()")
    assert (found.severity, found.message) == ("warning", "Function upper requires at least 1 arguments")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("let a := 1 let a := 2", "Variable `a` already declared in this scope"),
        ("fun f(a, a) {}", "Variable `a` already declared in this scope"),
        ("fun f() {} let f", "Variable `f` already declared in this scope"),
        ("x := 1", 'Variable "x" not declared in this scope. Can not assign to globals.'),
        ("event.a := 1", 'Variable "event" not declared in this scope. Can not assign to globals.'),
        (
            "fun f() { x := 1 } let x := 0",
            'Variable "x" not declared in this scope. Can not assign to globals.',
        ),
        ("f() := 1", "Can not assign to this type of expression"),
        ("return [1][0]", "Array access starts from 1"),
        ("try {} catch {} finally {}", "finally blocks are not yet supported"),
        ("try {}", "try statement must have at least one catch block"),
        ("let x := {a}", "Placeholders are not allowed in this context"),
        (
            "return a in cohort 5",
            "Can't use cohorts in real-time filters. Please inline the relevant expressions (cohort id=5).",
        ),
        (
            "return a in cohort 'x'",
            "Can't use cohorts in real-time filters. Please inline the relevant expressions (cohort: x).",
        ),
        ("return f(" + ", ".join(["1"] * 301) + ")", "Too many arguments"),
    ],
)
def test_compile_errors(source: str, message: str) -> None:
    with pytest.raises(hog.HogCompileError) as caught:
        hog.compile_program(source, hog.ANY)
    assert caught.value.message == message
    assert caught.value.excerpt


def test_thrown_errors() -> None:
    error = failure("let a := 1\n  throw HogError('Mine', 'it''s', {'a': a})")
    assert (error.kind, error.type, error.message, error.payload) == (
        "throw",
        "Mine",
        "Mine('it\\'s')",
        {"a": 1},
    )
    assert (error.line, error.column) == (2, 3)
    assert str(error) == "Mine('it\\'s') (line 2, column 3)"


@pytest.mark.parametrize(
    ("source", "message", "line", "column"),
    [
        ("return 1 +\n nope.x.y", "Global variable not found: nope.x.y", 2, 2),
        ("throw 'text'", "Can not throw: value is not of type Error", 1, 1),
        ("let x := 5\nreturn x(1)", "Invalid closure: 5", 2, 8),
        ("fun f(a) { return a }\nreturn f(1, 2)", "Too many arguments. Passed 2, expected 1", 2, 8),
        ("return (x -> x)(1, 2)", "Too many arguments. Passed 2, expected 1", 1, 8),
        ("return mystery(1)", "Unsupported function call: mystery", 1, 8),
        ("return upper()", "Function upper requires at least 1 arguments", 1, 8),
        ("return arrayMap(x -> x)", "Function arrayMap requires exactly 2 arguments", 1, 8),
        ("return jsonParse('{')", "", 1, 8),
        ("let a := [1]\na[-5 + 5] := 2", "Hog arrays start from index 1", 2, 1),
        ("let n := null\nn.x := 1", "Can not set x on non-object: object", 2, 1),
        ("return arrayMap(x -> x.y + nope, [1])", "Global variable not found: nope", 1, 28),
    ],
)
def test_runtime_errors_know_their_place(source: str, message: str, line: int, column: int) -> None:
    error = failure(source)
    assert error.kind == "runtime"
    if message:
        assert error.message == message
    assert (error.line, error.column) == (line, column)


def test_runtime_errors_cannot_be_caught() -> None:
    error = failure("try { jsonParse('{') } catch (e) { return 'caught' }")
    assert error.kind == "runtime"
    assert (
        failure("try { return nope } catch { return 'caught' }").message == "Global variable not found: nope"
    )


def test_a_rethrown_error_keeps_its_place() -> None:
    error = failure("fun f() {\n  throw Error('x')\n}\ntry { f() } catch (e: Other) { }")
    assert (error.line, error.column) == (2, 3)


def test_functions_of_the_library_are_values_but_data_wins() -> None:
    assert hog.run("return upper('a')", {"upper": "data"}).value == "A"
    assert hog.run("return upper", {"upper": "data"}).value == "data"
    assert hog.run("return typeof(upper)").value == "function"


# --- suspension


def test_suspends_with_plain_arguments() -> None:
    step, execution = start(
        "let r := fetch('https://x', {'t': (1, 2), 'at': toDate('2024-01-02')}) return r.status"
    )
    marked = {"__hogDate__": True, "year": 2024, "month": 1, "day": 2}
    assert step == hog.Suspended("fetch", ["https://x", {"t": [1, 2], "at": marked}])
    step = execution.resume({"status": 204})
    assert step.result.value == 204
    with pytest.raises(ValueError, match="does not wait"):
        execution.resume(None)
    with pytest.raises(ValueError, match="started before"):
        execution.start()


MODES = {
    "generator": "let a := fetch(1) print('got', a) let b := fetch(2) return [a, b]",
    "function": "fun get(n) { return fetch(n) } let a := get(1) print('got', a) return [a, get(2)]",
    "nested": (
        "fun get(n) { return fetch(n) }"
        " fun twice(n) { let a := get(n) print('got', a) return [a, get(n + 1)] } return twice(1)"
    ),
    "lambda": (
        "let out := [] let get := n -> { let a := fetch(n); if (n = 1) { print('got', a) } out[n] := a; }"
        " arrayMap(get, [1, 2]) return out"
    ),
    "value": "let f := fetch let a := f(1) print('got', a) return [a, f(2)]",
    "try": "try { let a := fetch(1) print('got', a) throw Error('x', a) } catch (e) { return [e.payload, fetch(2)] }",
    "loop": "let out := [] for (let i in [1, 2]) { out[i] := fetch(i) if (i = 1) { print('got', out[1]) } } return out",
}


@pytest.mark.parametrize("mode", MODES)
def test_every_way_to_wait(mode: str) -> None:
    step, execution = start(MODES[mode])
    assert step == hog.Suspended("fetch", [1])
    step = execution.resume("one")
    assert step == hog.Suspended("fetch", [2])
    assert execution.printed_lines == ["got one"]
    step = execution.resume("two")
    assert step.result.value == ["one", "two"]
    assert step.result.printed == ("got one",)
    replayed = mode in ("lambda", "value")
    assert execution.program.generated.facts.suspension == ("replay" if replayed else "generator")


@pytest.mark.parametrize("mode", MODES)
def test_every_way_to_wait_from_a_journal(mode: str) -> None:
    program = hog.compile_program(MODES[mode], HOST)
    step, execution = start(MODES[mode], seed=1)
    for answer in ("one", "two"):
        journal = json.loads(json.dumps(execution.journal()))
        execution = hog.Execution(program, {}, journal=journal)
        assert execution.start() == step
        step = execution.resume(answer)
    assert step.result.value == ["one", "two"]
    assert step.result.printed == ()  # the line was shown two processes ago


def test_answers_belong_to_the_program() -> None:
    answer = {"list": [1]}
    step, execution = start("let r := fetch() r.list[1] := 'changed' fetch() return r")
    execution.resume(answer)
    assert answer == {"list": [1]}
    journal = execution.journal()
    assert journal["calls"][0]["result"] == {"list": [1]}
    again = hog.Execution(execution.program, {}, journal=journal)
    again.start()
    assert again.resume(None).result.value == {"list": ["changed"]}
    del step


def test_replay_is_deterministic() -> None:
    source = "let a := [randomFloat(), generateUUIDv4(), now().dt] fetch() return concat(a, randomFloat(), now().dt)"
    moments = iter([100.5, 200.5, 300.5])
    step, execution = start(source, seed="s", clock=lambda: next(moments))
    journal = execution.journal()
    assert journal["now"] == [100.5]
    value = execution.resume(1).result.value
    later = iter([200.5])
    again = hog.Execution(execution.program, {}, journal=journal, clock=lambda: next(later))
    assert again.start() == step
    assert again.resume(1).result.value == value
    other, execution = start(source, seed="t", clock=lambda: 100.5)
    assert execution.resume(1).result.value != value
    del other


def test_a_replay_that_takes_another_course_fails_clearly() -> None:
    source = "if (flag) { fetch(1) } else { make(1) } return fetch(2)"
    _, execution = start(source, {"flag": True})
    execution.resume("x")
    journal = execution.journal()

    def replay(variables: dict[str, Any], change: dict[str, Any] | None = None) -> hog.ErrorInfo:
        again = hog.Execution(execution.program, variables, journal={**journal, **(change or {})})
        step = again.start()
        assert isinstance(step, hog.Finished)
        assert step.result.error is not None
        return step.result.error

    assert (
        replay({"flag": False}).message == "The repeated run called make() where the first one called fetch()"
    )
    wrong = [{**journal["calls"][0], "args": "0" * 32}]
    assert "with other arguments" in replay({"flag": True}, {"calls": wrong}).message
    assert "Global variable not found" in replay({}).message

    short = hog.compile_program("if (flag) { fetch(1) } return 1", HOST)
    first = hog.Execution(short, {"flag": True})
    first.start()
    step = hog.Execution(short, {"flag": False}, journal=first.journal()).start()
    assert isinstance(step, hog.Finished)
    assert step.result.error is not None
    assert step.result.error.message == "The repeated run ended where the first one called fetch()"

    other = hog.compile_program("return 1", HOST)
    with pytest.raises(hog.HogRuntimeError, match="another program"):
        hog.Execution(other, {}, journal=journal)
    with pytest.raises(hog.HogRuntimeError, match="journal version"):
        hog.Execution(other, {}, journal={"version": 99})


def test_async_steps_are_limited() -> None:
    limits = hog.Limits(async_steps=2)
    step, execution = start("for (let i in [1, 2, 3]) { fetch(i) }", limits=limits)
    assert isinstance(execution.resume(None), hog.Suspended)
    step = execution.resume(None)
    assert step.result.error.message == "Exceeded maximum number of async steps: 2"
    assert step.result.error.kind == "limit"


# --- limits


def ticking(step_s: float) -> Iterator[float]:
    moment = 0.0
    while True:
        yield moment
        moment += step_s


def test_time_limit() -> None:
    clock = ticking(0.2)
    error = failure("while (true) {}", limits=hog.Limits(time_s=0.55), timer=lambda: next(clock))
    assert error.kind == "limit"
    assert error.message.startswith("Execution timed out after 0.55 seconds. Performed ")
    assert error.message.endswith(" ops.")


def test_waiting_costs_no_time_and_turns_add_up() -> None:
    now = [0.0]
    busy = "for (let i := 0; i < 25000; i := i + 1) {}"
    program = hog.compile_program(f"fetch() {busy} fetch() {busy} return 1", HOST)
    limits = hog.Limits(time_s=0.02)
    execution = hog.Execution(program, {}, limits=limits, timer=lambda: now[0])
    execution.start()
    now[0] += 100  # waiting
    assert isinstance(execution.resume(None), hog.Suspended)
    execution.used_s = 0.018  # as if the turn had taken that long
    journal = execution.journal()

    repeating = ticking(0.003)  # repeating both turns takes longer than the limit, but is not charged
    again = hog.Execution(program, {}, journal=journal, limits=limits, timer=lambda: next(repeating))
    assert isinstance(again.start(), hog.Suspended)
    slow = ticking(0.003)
    again.context.budget.timer = lambda: next(slow)
    step = again.resume(None)
    assert isinstance(step, hog.Finished)
    assert step.result.error is not None
    assert "timed out after 0.02 seconds" in step.result.error.message


def test_step_limit() -> None:
    error = failure("let i := 0 while (true) { i := i + 1 }", limits=hog.Limits(max_steps=50_000))
    assert error.message == "Execution exceeded 50000 steps"


def test_a_limit_cannot_be_caught_nor_outlived() -> None:
    source = "try { while (true) {} } catch { print('caught') } for (let i in [1]) { print('after') } return 'survived'"
    step, _ = start(source, limits=hog.Limits(max_steps=20_000))
    assert step.result.error.kind == "limit"
    assert step.result.printed == ()
    assert step.result.value is None


def test_call_depth() -> None:
    source = "fun f(n) { if (n = 0) { return 'bottom' } return f(n - 1) } return f(depth)"
    step, _ = start(source, {"depth": 998})
    assert step.result.value == "bottom"
    error = failure(source, {"depth": 999})
    assert (error.kind, error.message) == ("limit", "Call stack exceeded maximum length of 1000")
    error = failure("let f := x -> f(x) return f(1)")
    assert error.message == "Call stack exceeded maximum length of 1000"
    error = failure("fun f() { try { return f() } catch { return 'caught' } } return f()")
    assert error.message == "Call stack exceeded maximum length of 1000"


def test_memory_limit() -> None:
    error = failure("let s := 'xxxxxxxx' while (true) { s := s || s }")
    assert error.kind == "limit"
    assert error.message.startswith("Memory limit of 67108864 bytes exceeded. Tried to allocate ")
    error = failure(
        "let a := [] while (true) { a := arrayPushBack(a, 'some text') }",
        limits=hog.Limits(memory_bytes=100_000),
    )
    assert error.message.startswith("Memory limit of 100000 bytes exceeded.")


def test_arguments_are_limited_through_values_too() -> None:
    assert hog.run("return concat(" + ", ".join(["'a'"] * 300) + ")").value == "a" * 300


def test_printed_lines_are_limited() -> None:
    step, execution = start(
        "for (let i := 0; i < 30; i := i + 1) { print(i) } fetch() print('next turn')",
        limits=hog.Limits(print_lines=24),
    )
    assert len(execution.printed_lines) == 24
    result = execution.resume(None).result
    assert result.printed[-1] == "next turn"
    assert result.dropped_lines == 6
    del step


def test_result_figures() -> None:
    result = hog.run("let s := 0 for (let i := 0; i < 500; i := i + 1) { s := s + i } return s", seed=1)
    assert result.value == 124750
    assert 500 <= result.steps <= 502
    assert 0 < result.duration_us < 5_000_000
    assert result.memory >= 0


# --- evaluation of filters


def test_evaluate() -> None:
    program = hog.compile_expression("properties.n > 3 and event ilike '%view%'", FILTER)
    assert program.generated.bounded
    assert hog.evaluate(program, {"event": "PageView", "properties": {"n": 5}}) is True
    assert hog.evaluate(program, {"event": "x", "properties": {}}) is False
    assert program.function({"event": "x", "properties": {}}) is False
    assert program.reads == {("properties", "n"), ("event",)}
    with pytest.raises(hog.HogRuntimeError, match=r"Global variable not found: properties\.n"):
        hog.evaluate(program, {"event": "x"})


def test_evaluate_with_lambdas_is_metered() -> None:
    program = hog.compile_expression("arrayExists(x -> x = 2, properties.list)", FILTER)
    assert not program.generated.bounded
    assert hog.evaluate(program, {"properties": {"list": [1, 2]}}) is True
    alone = hog.compile_expression("x -> x", FILTER)
    assert not alone.generated.bounded
    assert hog.evaluate(hog.compile_expression("(x -> x + 1)(2)", hog.ANY), {}) == 3
    hostile = hog.compile_expression(
        "arrayMap(a -> arrayMap(b -> arrayMap(c -> c, range(1000)), range(1000)), range(1000))",
        FILTER.with_limits(hog.Limits(max_steps=100_000)),
    )
    with pytest.raises(hog.HogLimit):
        hog.evaluate(hostile, {})


def test_filters_have_their_globals_and_nothing_else() -> None:
    with pytest.raises(hog.HogCompileError) as caught:
        hog.compile_expression("inputs.x = person_id", FILTER)
    assert caught.value.message == "Unknown global variable: inputs, person_id"
    with pytest.raises(hog.HogCompileError) as caught:
        hog.compile_program("return person.id", TRANSFORMATION)
    assert caught.value.message == (
        "Variable not available in transformations: person. "
        "Transformations only have access to project, event, and inputs."
    )
    assert hog.compile_expression("print(1)", FILTER).errors
    assert hog.compile_program("sleep(1)", TRANSFORMATION).errors
    with pytest.raises(hog.HogCompileError) as caught:
        hog.compile_expression('event = "text"', FILTER)
    assert caught.value.hint == "double quotes make names; strings are written in single quotes"


def test_host_functions_that_answer_at_once() -> None:
    def double(x: Any) -> Any:
        return x * 2

    env = hog.TEMPLATE.with_functions(hog.host_function("double", "x: any", impl=double))
    assert hog.evaluate(hog.compile_template("{double(21)}", env), {}) == 42
    with pytest.raises(hog.HogRuntimeError, match="Function double requires at most 1 arguments"):
        hog.evaluate(hog.compile_template("{double(1, 2)}", env), {})
    assert "double" not in hog.TEMPLATE.functions
    assert hog.compile_template("{double(1)}", env.without_functions("double")).errors


def test_compiled_texts_are_cached_per_environment() -> None:
    first = hog.compile_program("return 1 + 1", hog.ANY)
    assert hog.compile_program("return 1 + 1", hog.ANY) is first
    assert hog.compile_program("return 1 + 1", hog.TEMPLATE) is not first


def test_executions_leave_nothing_behind() -> None:
    """No reference cycles: a worker that drops an execution gets its memory back at once."""
    gc.collect()
    gc.disable()
    try:
        for source, answers in (
            ("return 1", []),
            ("fetch() fetch()", [1, 2]),
            ("fetch() fetch()", [1]),
            ("nope", []),
        ):
            step, execution = start(source, {"big": list(range(1000))})
            for answer in answers:
                step = execution.resume(answer)
            gone = weakref.ref(execution)
            del execution, step
            assert gone() is None, source
    finally:
        gc.enable()


def test_host_functions_find_the_execution() -> None:
    def whose(context: Any) -> Any:
        return context.owner.seed

    env = hog.ANY.with_functions(hog.host_function("whose", impl=whose, needs_context=True))
    execution = hog.Execution(hog.compile_program("return whose()", env), seed="mine")
    step = execution.start()
    assert isinstance(step, hog.Finished)
    assert step.result.value == "mine"


def test_dropped_lines_add_up_over_turns() -> None:
    source = (
        "let f := () -> { print('a') print('b') print('c') fetch() print('d') print('e') } f() print('f')"
    )
    step, execution = start(source, limits=hog.Limits(print_lines=2))
    assert execution.printed_lines == ["a", "b"]
    step = execution.resume(None)
    assert step.result.printed == ("a", "b", "d", "e")
    assert step.result.dropped_lines == 2
