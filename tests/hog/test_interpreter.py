"""The interpreter by itself, and as the way out for programs that Python's compiler refuses."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hoglab import hog
from hoglab.hog.interpreter import Interpreted

Run = Callable[..., hog.Result]
both = pytest.mark.parametrize("run", [hog.run, hog.interpret], ids=["compiled", "interpreted"])
HOST = hog.ANY.with_functions(hog.host_function("fetch"))


@both
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("let fs := [] for (let i in [1, 2]) { let j := i fs[i] := () -> j } return [fs[1](), fs[2]()]", [1, 2]),
        ("let fs := [] for (let i in [1, 2]) { fs[i] := () -> i } return [fs[1](), fs[2]()]", [2, 2]),
        ("let n := 0 let add := () -> { n := n + 1; } add() add() return n", 2),
        ("fun outer() { let n := 1 fun inner() { n := n + 1 return n } inner() return inner() } return outer()", 3),
        ("let x := 1 { let x := x return x }", None),
        ("let f := n -> n < 2 ? n : f(n - 1) + f(n - 2) return f(10)", 55),
        ("fun f(a, b) { return [a, b] } return f(1)", [1, None]),
        ("let m := arrayMap return m(x -> x * 2, [1, 2])", [2, 4]),
        ("try { throw HogError('A', 'm', 1) } catch (e: B) { return 1 } catch (x: A) { return [x.payload, type] }",
         [1, "A"]),
        ("for (let k, v in {'a': 1}) { return [k, v] }", ["a", 1]),
        ("let d := {'a': {}} d.a.b := 1 d['c'] := 2 return d", {"a": {"b": 1}, "c": 2}),
        ("let e := event e.name := 'changed' return [e.name, event.name]", ["changed", "given"]),
        ("return <Tag a='1'>text</Tag>", {"__hx_tag": "Tag", "a": "1", "children": ["text"]}),
        ("let t := a -> a.b return <t b={2} />", 2),
        ("return [1 in [1], 'x' not like '%y%', 2 between 1 and 3, null ?? 5, not 1]", [True, True, True, 5, False]),
        ("return (x -> { x })(1)", None),
        ("return 1 and 0 or 2", True),
    ],
)  # fmt: skip
def test_programs(run: Run, source: str, value: Any) -> None:
    variables = {"event": {"name": "given"}}
    result = run(source, variables)
    assert result.error is None
    assert result.value == value
    assert variables == {"event": {"name": "given"}}


FAULTS = [
    "return 1 +\n nope.x",
    "let f := 5\nreturn f(1)",
    "fun f(a) { return a }\nreturn f(1, 2)",
    "return upper()",
    "return unknown(1)",
    "let a := [1]\na[0 * 1] := 2",
    "fun f() {\n  throw Error('inner')\n}\nf()",
    "throw 'text'",
    "return jsonParse('{')",
    "try { throw Error('a') } catch (e: Other) {}",
    "return 1 in null",
    "return arrayMap(x ->\n  x.a.b in 5, [1])",
    "let x := 1 for (let i in [1]) { let y := 'a' y.b := 1 }",
]


@pytest.mark.parametrize("source", FAULTS)
def test_failures_have_the_same_words_and_places(source: str) -> None:
    compiled, interpreted = hog.run(source).error, hog.interpret(source).error
    assert compiled is not None
    assert compiled == interpreted
    assert compiled.line is not None


@both
@pytest.mark.parametrize(
    ("source", "limits", "message"),
    [
        ("while (true) {}", hog.Limits(max_steps=5_000), "5000 steps"),
        ("while (true) {}", hog.Limits(time_s=0.1), "timed out after 0.1 seconds"),
        ("let x := 1 while (true) { " + "x := x + 1 " * 500 + "}", hog.Limits(time_s=0.1), "timed out"),
        ("let s := 'ab' while (true) { s := s || s }", hog.Limits(memory_bytes=1 << 20), "Memory limit"),
        ("let a := [1] while (true) { a := [a] }", hog.Limits(memory_bytes=1 << 20), "Memory limit"),
        ("let f := null while (true) { let g := f f := () -> g }", hog.Limits(memory_bytes=1 << 20), "Memory limit"),
        ("fun f(n) { return [n, f(n + 1)] } f(0)", hog.Limits(), "Call stack exceeded maximum length of 1000"),
        ("let f := x -> arrayMap(f, [x]) f(1)", hog.Limits(), "Call stack exceeded maximum length of 1000"),
        ("try { while (true) {} } catch { return 1 }", hog.Limits(max_steps=1_000), "1000 steps"),
    ],
)  # fmt: skip
def test_limits_stop_it(run: Run, source: str, limits: hog.Limits, message: str) -> None:
    error = run(source, limits=limits).error
    assert error is not None
    assert error.kind == "limit"
    assert message in error.message


def test_its_own_stack_is_as_deep_as_programs_may_call() -> None:
    source = "fun f(n) { if (n > 0) { let below := f(n - 1) return 1 + below } return 0 } return f({})"
    assert hog.interpret(source.replace("{}", "998")).value == 998
    assert hog.interpret(source.replace("{}", "999")).error is not None


WAITING = {
    "plain": "let a := fetch(1) print(a) return [a, fetch(2)]",
    "function": "fun get(n) { return fetch(n) } let a := get(1) print(a) return [a, get(2)]",
    "callback": "return arrayMap(n -> { let a := fetch(n) if (n = 1) { print(a) } return a }, [1, 2])",
    "value": "let f := fetch let a := f(1) print(a) return [a, f(2)]",
    "caught": "try { let a := fetch(1) print(a) throw Error('x', a) } catch (e) { return [e.payload, fetch(2)] }",
}


@pytest.mark.parametrize("way", WAITING)
def test_waiting_for_the_host_from_a_journal(way: str) -> None:
    program = hog.compile_program(WAITING[way], HOST, interpreted=True)
    execution = hog.Execution(program, {}, seed=1)
    step = execution.start()
    assert step == hog.Suspended("fetch", [1])
    step = execution.resume("one")
    assert step == hog.Suspended("fetch", [2])
    assert execution.printed_lines == ["one"]
    journal = json.loads(json.dumps(execution.journal()))
    again = hog.Execution(program, {}, journal=journal)
    assert again.start() == step
    for each in (execution, again):
        step = each.resume("two")
        assert isinstance(step, hog.Finished)
        assert step.result.value == ["one", "two"]


SHAPES = {
    "loops": ("let n := 0 " + "for (let i in [1]) { " * 30 + "n := n + 1" + " }" * 30 + " return n", 1),
    "tries": ("try { " * 30 + "throw Error('x')" + " } catch { throw e }" * 29 + " } catch { return e.message }", "x"),
    "inner function": ("fun f() { " + "while (true) { " * 25 + "return 7" + " }" * 25 + " } return f()", 7),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_what_python_refuses_is_interpreted(shape: str) -> None:
    source, value = SHAPES[shape]
    program = hog.compile_program(source, hog.ANY)
    assert isinstance(program.generated, Interpreted)
    assert hog.check(source) == []
    assert hog.run(source).value == value


def test_expressions_and_inputs_are_interpreted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text short enough for the parser makes Python refuse these today: the compiler is told to."""

    def refuse(*_args: Any, **_options: Any) -> None:
        raise RecursionError

    inputs = [
        hog.Input("url", "https://{event.host}/{upper('x')}"),
        hog.Input("body", {"$$_extend_object": "{event}", "deep": ["{inputs.url}", 1, "plain"]}),
        hog.Input("liquid", "?", mode="rendered"),
    ]
    event = {"host": "example.com"}

    def outcomes() -> list[Any]:
        render = hog.compile_inputs(inputs, hog.TEMPLATE, lambda key, seen: [key, seen["inputs"]["url"]])
        texts = [
            hog.compile_expression(" event.host = 'example.com'", hog.TEMPLATE),
            hog.compile_template("at {event.host} ", hog.TEMPLATE),
            render,
        ]
        assert all(isinstance(text.generated, Interpreted) is interpreted for text in texts)
        return [hog.evaluate(text, {"event": event}) for text in texts]

    interpreted = False
    compiled = outcomes()
    from hoglab.hog import program as module

    module._cache.clear()
    monkeypatch.setattr(module, "generate", refuse)
    monkeypatch.setattr(module, "generate_inputs", refuse)
    interpreted = True
    assert outcomes() == compiled
    module._cache.clear()
    assert compiled[2]["body"] == {"host": "example.com", "deep": ["https://example.com/X", 1, "plain"]}
    with pytest.raises(hog.HogRuntimeError, match="nope") as caught:
        hog.evaluate(hog.compile_inputs([hog.Input("a", "1\n{nope}")], hog.TEMPLATE), {})
    assert (caught.value.path, caught.value.position) == (("a",), hog.Position(2, 2, 0))
