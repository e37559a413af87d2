"""Hostile programs: each is stopped by a limit, in bounded time and memory. spec: hog-runtime 4.1.

Time is CPU time, so a loaded machine does not fail these tests; what is allowed beyond the limit covers the longest
stretch of work between two looks at the clock.
"""

import multiprocessing
import resource
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.generated import examples

from hoglab import hog
from hoglab.hog.backend_python import UnsafeCodeError
from hoglab.hog.backend_python.verify import verify

pytestmark = pytest.mark.usefixtures("no_collector")

LIMITS = hog.Limits(time_s=0.3, memory_bytes=64 << 20)
OVERSHOOT_S = 1.0
MEMORY_GROWTH_KB = 400 << 10


def attack(source: str, variables: dict[str, Any] | None = None, limits: hog.Limits = LIMITS) -> hog.Result:
    """Runs a program and checks that it took no more than it was given."""
    program = hog.compile_program(source, hog.ANY)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.thread_time()
    step = hog.Execution(program, variables, limits=limits).start()
    used_s = time.thread_time() - started
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert isinstance(step, hog.Finished)
    assert used_s < limits.time_s + OVERSHOOT_S
    assert grown_kb < MEMORY_GROWTH_KB
    return step.result


def stopped(source: str, kind: str | None = None, **options: Any) -> str:
    error = attack(source, **options).error
    assert error is not None
    assert error.kind in ("limit", "runtime")
    if kind is not None:
        assert kind in error.message, error.message
    return error.message


LARGE = "let big := 'x' for (let i := 0; i < 20; i := i + 1) { big := big || big } "


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("while (true) {}", "timed out", id="empty loop"),
        pytest.param("for (;;) {}", "timed out", id="for without parts"),
        pytest.param("let i := 0 while (true) { i := i + 1 }", "timed out", id="counting"),
        pytest.param("fun f(n) { return f(n + 1) } f(0)", "Call stack", id="recursion"),
        pytest.param("let f := x -> f(x) f(1)", "Call stack", id="recursion through a value"),
        pytest.param("let f := x -> arrayMap(f, [x]) f(1)", "Call stack", id="recursion through arrayMap"),
        pytest.param("fun f(n) { if (n > 0) { f(n - 1) f(n - 1) } } f(60)", "timed out", id="wide recursion"),
        pytest.param(
            "let r := range(1000) for (let a in r) for (let b in r) for (let c in r) {}",
            "timed out",
            id="nested for-in",
        ),
        pytest.param(
            "let r := range(1000) arrayMap(a -> arrayMap(b -> arrayMap(c -> c, r), r), r)",
            "timed out",
            id="map in map",
        ),
        pytest.param("let x := 3 while (true) { x := x * x }", "timed out", id="squaring"),
        pytest.param("let x := 1 while (true) { x := x + x }", None, id="adding"),
        pytest.param("let x := 1 while (true) { x := x + x + 0.5 }", None, id="adding with fractions"),
        pytest.param("let s := 'xx' while (true) { s := s || s }", "Memory", id="doubling text"),
        pytest.param("let s := 'xx' while (true) { s := f'{s}{s}' }", "Memory", id="doubling by f-string"),
        pytest.param(
            "let s := 'xx' while (true) { s := replaceAll(s, 'x', 'xxxx') }", "Memory", id="replaceAll"
        ),
        pytest.param("let a := [] while (true) { a := arrayPushBack(a, 1) }", None, id="appending"),
        pytest.param(
            "let a := [] let i := 1 while (true) { a[i] := i i := i + 1 }",
            None,
            id="assigning beyond the end",
        ),
        pytest.param("let a := [] a[1000000000] := 1", "Memory", id="one far assignment"),
        pytest.param("let a := [1] while (true) { a := [a, a] }", None, id="list of lists"),
        pytest.param(
            "let d := {} let i := 0 while (true) { d[i] := 'v' i := i + 1 }", None, id="growing dict"
        ),
        pytest.param(
            "let keep := [] while (true) { keep := [keep, {'a': [1, 2, 3], 'b': 'text'}] }",
            None,
            id="chain of objects",
        ),
        pytest.param(
            "let fs := null while (true) { let own := fs fs := () -> own }", None, id="chain of closures"
        ),
        pytest.param("range(1000000000)", "Memory", id="huge range"),
        pytest.param("range(0, 9007199254740991)", "Memory", id="huge range between"),
        pytest.param("arrayStringConcat(range(100000), repeat)", None, id="unknown function"),
        pytest.param(
            LARGE
            + "let parts := [] for (let i := 0; i < 100; i := i + 1) { parts[i + 1] := big || i } return parts",
            "Memory",
            id="many large texts",
        ),
        pytest.param(LARGE + "while (true) { big =~ '(x+x+)+y' }", "timed out", id="regex on large text"),
        pytest.param(LARGE + "while (true) { big ilike '%y%' }", "timed out", id="ilike on large text"),
        pytest.param(LARGE + "while (true) { upper(big) }", "timed out", id="upper on large text"),
        pytest.param(LARGE + "while (true) { 'y' in big }", "timed out", id="in on large text"),
        pytest.param(LARGE + "while (true) { splitByString('x', big) }", None, id="split of large text"),
        pytest.param(LARGE + "while (true) { sha256Hex(big) }", "timed out", id="hash of large text"),
        pytest.param("let r := range(100000) while (true) { arraySort(r) }", "timed out", id="sorting"),
        pytest.param("let r := range(100000) while (true) { -1 in r }", "timed out", id="in on large list"),
        pytest.param("let r := range(100000) while (true) { r = r }", "timed out", id="comparing lists"),
        pytest.param("let r := range(100000) while (true) { jsonStringify(r) }", "timed out", id="stringify"),
        pytest.param(
            "let a := [1] for (let i := 0; i < 40; i := i + 1) { a := [a, a] } jsonStringify(a)",
            None,
            id="json bomb",
        ),
        pytest.param(
            "let a := [1] for (let i := 0; i < 40; i := i + 1) { a := [a, a] } print(a)",
            None,
            id="print bomb",
        ),
        pytest.param(
            "let a := [1] for (let i := 0; i < 40; i := i + 1) { a := [a, a] } return a = a || ''",
            None,
            id="text bomb",
        ),
        pytest.param("jsonParse(concat('[', replaceAll(range(5000) || '', ',', '[')))", None, id="deep json"),
        pytest.param(
            "let s := 'a' while (true) { s := encodeURLComponent(s || '%') }", None, id="growing escapes"
        ),
        pytest.param(
            "let x := [] while (true) { x := arrayMap(y -> y, arrayPushBack(x, 1)) }", None, id="growing map"
        ),
        pytest.param("try { while (true) {} } catch { while (true) {} }", "timed out", id="catching"),
        pytest.param("while (true) { try { throw Error('x') } catch {} }", "timed out", id="throwing"),
        pytest.param("while (true) { print('x') }", "timed out", id="printing"),
    ],
)
def test_stopped(source: str, message: str | None) -> None:
    stopped(source, message)


EVENT = {"p": {f"key{i}": ["x" * 20] * 10 for i in range(2_000)}}  # copying it takes about a millisecond
LIST = list(range(20_000))
HELD = "let big := 'x' for (let i := 0; i < 24; i := i + 1) { big := big || big } "


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the child runs one program and ends
@pytest.mark.parametrize("interpreted", [False, True], ids=["compiled", "interpreted"])
@pytest.mark.parametrize(
    "source",
    [
        pytest.param("let keep := [] while (true) { keep := [keep, event] }", id="copies of the event"),
        pytest.param("while (true) { let own := event.p }", id="copies that are dropped"),
        pytest.param("return arrayMap(x -> event, list)", id="copies from a callback"),
        pytest.param("return arrayReduce((a, x) -> [a, event], list, [])", id="copies in a reduction"),
        pytest.param("let a := [] for (let i in list) { let e := event a[i + 1] := () -> e }", id="copies in closures"),
        pytest.param("let e := null while (true) { e := Error('b', [e, event]) }", id="copies in errors"),
        pytest.param(
            "let x := 1 for (let i := 0; i < 100000; i := i + 1) { x := x + x } while (true) { let y := x * x }",
            id="products of huge integers",
        ),
        pytest.param(
            "let x := 1 for (let i := 0; i < 60000; i := i + 1) { x := x + x }"
            " let a := [] let i := 1 while (true) { a[i] := x + i i := i + 1 }",
            id="many huge integers",
        ),
        pytest.param(HELD + "fun f(n) { return [reverse(big), f(n - 1)] } f(0)", id="waiting in a list"),
        pytest.param(HELD + "fun f(n) { return concat(reverse(big), f(n - 1)) } f(0)", id="waiting to be joined"),
        pytest.param(HELD + "fun f(n) { return {'a': big || n, 'b': f(n - 1)} } f(0)", id="waiting in an object"),
        pytest.param(HELD + "fun f(a, n) { return f(reverse(big), f(big || n, n)) } f(1, 0)", id="waiting arguments"),
    ],
)  # fmt: skip
def test_what_nobody_sees_is_accounted_for(source: str, interpreted: bool) -> None:
    """In a process of its own, so that the growth of its memory is the program's."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])  # what it imports, it imports once
    process = processes.Process(target=run_alone, args=(sender, source, interpreted))
    process.start()
    error, used_s, grown_kb = receiver.recv()
    process.join()
    assert error in ("limit", "runtime")
    assert used_s < LIMITS.time_s + OVERSHOOT_S
    assert grown_kb < 200 << 10


def run_alone(sender: Any, source: str, interpreted: bool) -> None:
    program = hog.compile_program(source, hog.ANY, interpreted=interpreted)
    execution = hog.Execution(program, {"event": EVENT, "list": LIST}, limits=LIMITS)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.thread_time()
    step = execution.start()
    used_s = time.thread_time() - started
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    assert isinstance(step, hog.Finished)
    sender.send((step.result.error and step.result.error.kind, used_s, grown_kb))


def test_cycles_do_no_harm() -> None:
    result = attack(
        "let a := [1] a[2] := a let d := {'a': a} d.d := d print(a, d) return [toString(d), a = a]"
    )
    assert result.error is None
    assert result.value == ["{'a': [1, null], 'd': null}", True]


def test_regex_bombs_are_harmless() -> None:
    result = attack(
        "let s := 'a' for (let i := 0; i < 15; i := i + 1) { s := s || s } return s || 'b' =~ '^(a+)+$'"
    )
    assert result.error is None
    assert stopped("return 'x' =~ '((a{0,1000}){0,1000}){0,1000}'") != ""
    assert stopped("let p := '((a{0,1000}){0,1000}){0,1000}' return 'x' =~ p") != ""


def test_numeric_keys_cannot_collide() -> None:
    source = (
        "let d := {} for (let i := 0; i < 20000; i := i + 1) { d[i * 2305843009213693951] := i } return 1"
    )
    result = attack(source, limits=hog.Limits(time_s=2))
    assert result.error is None


def test_huge_integers_are_numbers_like_others() -> None:
    doubled = "let x := 1 for (let i := 0; i < 2000; i := i + 1) { x := x + x } "
    assert attack(doubled + "return [toString(x), x > 1, jsonStringify([x])]").value == [
        "Infinity",
        True,
        "[null]",
    ]
    assert attack(doubled + "return x + 0.5").value == float("inf")
    assert attack(doubled + "let d := {} d[x] := 'key' return toString(d)").error is None


def test_large_bodies_are_charged_for() -> None:
    source = "let x := 0 while (true) { " + "x := x + 1 " * 4000 + "}"
    stopped(source, "timed out")
    source = "fun f(x) { " + "x := x + 1 " * 3000 + "} while (true) { f(1) }"
    stopped(source, "timed out")


def test_deep_and_large_sources_are_refused_quickly() -> None:
    for source in (
        "(" * 50_000,
        "return " + "[" * 40_000,
        "f(" * 30_000,
        "{" * 50_000,
        "if (a) { " * 10_000,
        "x -> { if (" * 9_000,
        "f'{" * 30_000,
        "not " * 25_000,
        "1 ? " * 20_000,
        "a.b" * 30_000,
        "let x := [" + "1," * 45_000 + "]",
        "'" * 99_999,
        "`" * 99_999,
        "/*" * 50_000,
        "a" * 200_000,
        "a between " * 9_000,
    ):
        started = time.thread_time()
        with pytest.raises(hog.HogSourceError):
            hog.compile_program(source, hog.ANY)
        assert time.thread_time() - started < 2.0, source[:20]


def test_the_deepest_allowed_sources_compile_and_run() -> None:
    for source, value in (
        ("return " + "(" * 95 + "1" + ")" * 95, 1),
        ("return " + "[" * 95 + "1" + "]" * 95 + "[1]" * 95, 1),
        ("return " + "1 + (" * 95 + "1" + ")" * 95, 96),
        ("return " + "true and not (false or (" * 45 + "true" + "))" * 45, None),
        ("return " + "1 + " * 400 + "1", 401),
        ("return " + "1 = " * 400 + "1", None),
        ("return " + "null ?? (" * 95 + "7" + ")" * 95, 7),
        ("return " + "false ? 1 : " * 95 + "2", 2),
        ("if (false) { return 1 } else " * 95 + "return 2", 2),
        ("let x := 0 " + "if (true) { " * 95 + "x := 1 " + "}" * 95 + " return x", 1),
        ("return " + "(x -> " * 60 + "5" + ")" * 60 + "(1)" * 60, 5),
        ("return f'" + "{f'" * 90 + "deep" + "'}" * 90 + "'", "deep"),
    ):
        result = hog.run(source)
        assert result.error is None, (source[:40], result.error)
        if value is not None:
            assert result.value == value


def test_generated_code_can_name_nothing_else() -> None:
    for text in (
        "def main(g):\n return g.__dict__",
        "def main(g):\n return open",
        "def main(g):\n import os",
        "def main(g):\n g.x = 1",
        "def main(g):\n del g[0]",
        "def main(g):\n global h\n h = 1",
        "def main(g):\n def inner():\n  return __import__",
        "def main(g):\n class A: pass",
    ):
        with pytest.raises(UnsafeCodeError):
            verify(compile(text, "<test>", "exec"), {"get"}, {})
    verify(compile("def main(g):\n return get(g.get('x'))", "<test>", "exec"), {"get"}, {})


@pytest.mark.parametrize(
    "source",
    [
        "return x.__class__",
        "return x.__class__.__mro__[2]",
        "return ''.__class__",
        "return (upper).__globals__",
        "return (x -> x).__code__",
        "return (x -> x).call",
        "return Error('a').__init__",
        "return [].append",
        "return {}.get",
        "return x['__builtins__']",
        "return f'{x.__class__}'",
        "return toDateTime(0).seconds",
    ],
)
def test_python_attributes_do_not_exist(source: str) -> None:
    result = hog.run(source, {"x": {"a": 1}})
    assert result.error is None
    assert result.value in (None, "")


def test_names_of_python_mean_nothing() -> None:
    for name in (
        "__import__",
        "eval",
        "open",
        "c",
        "g",
        "b",
        "charge",
        "copy",
        "main",
        "v0",
        "k0",
        "t1",
        "f0",
    ):
        result = hog.run(f"let a := 1 return {name}")
        assert result.error is not None
        assert result.error.message == f"Global variable not found: {name}"
        assert hog.run(f"let {name} := 5 let f := () -> {name} return f() + {name}").value == 10


def test_format_strings_are_just_text() -> None:
    assert hog.run("return '{0.__class__} %s {x!r:>10}' || f'{x}%d'", {"x": "{y}"}).value == (
        "{0.__class__} %s {x!r:>10}{y}%d"
    )


# --- random text

WORDS = """
let fun fn if else while for in return throw try catch finally not and or is null true false inf like ilike between
case when then end interval day a b c x event.p.q f( ) ( [ ] { } , ; : := = == != < <= > >= + - * / % || ?? ? ?. . ->
1 2.5 0 'text' "name" `q` f'a{ }' ' // -- /* */ # \\ @ é 😀 select sql( <b/> <b> </b> arrayMap( length( upper ::
as distinct array [1] .1 0x1F 1e5
"""
FRAGMENTS = st.sampled_from([*WORDS.split(), "\n"])


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAGMENTS, max_size=40), st.sampled_from(["", " ", "\n"]))
@example(["x", "->", "x"], " ")  # a lambda that is the whole expression
@example([".", "1e5"], " ")
def test_random_text_never_crashes_the_compiler(parts: list[str], separator: str) -> None:
    source = separator.join(parts)
    for compile_text in (hog.compile_program, hog.compile_expression, hog.compile_template):
        try:
            program = compile_text(source, hog.ANY)
            program.generated  # noqa: B018
            program.bytecode  # noqa: B018
        except hog.HogSourceError as error:
            found = error
        else:
            continue
        assert found.message
        assert found.render()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FRAGMENTS, max_size=30))
def test_random_programs_end_within_their_limits(parts: list[str]) -> None:
    try:
        program = hog.compile_program(" ".join(parts), hog.ANY)
        execution = hog.Execution(program, {"event": {"p": {"q": 1}}}, limits=hog.Limits(max_steps=20_000))
    except hog.HogSourceError:
        return
    step = execution.start()
    if isinstance(step, hog.Finished) and step.result.error is not None:
        assert "Internal error" not in step.result.error.message
