"""JavaScript output: its exact shapes (spec: hog-language 11.1-11.4), and the names that have to give way."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hoglab import hog
from hoglab.functions.site.artefact import compile_site_function


def expression(source: str) -> str:
    return hog.compile_expression(source, hog.ANY).javascript.code


def program(source: str) -> str:
    return hog.compile_program(source, hog.ANY).javascript.code


def run(source: str) -> list[str]:
    """What a program prints in node."""
    page = f"const __getGlobal = () => null\n;(function () {{ 'use strict'; {hog.compile_javascript(source)}\n}})()"
    return subprocess.run(
        ["node", "-"], input=page, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("1 + 2", "(1 + 2)"),
        ("-x % 2", '((0 - __getGlobal("x")) % 2)'),
        ("true and 1 and 'a'", '!!(true && 1 && "a")'),
        ("or(null, 1)", "!!(null || 1)"),
        ("not false", "(!false)"),
        ("1 = 2", "(1 == 2)"),
        ("1 != 2", "(1 != 2)"),
        ("1 <= 2", "(1 <= 2)"),
        ("1 in [1]", "([1].includes(1))"),
        ("'a' not in 'b'", '(!"b".includes("a"))'),
        ("'a' like 'b'", 'like("a", "b")'),
        ("'a' not ilike 'b'", '!ilike("a", "b")'),
        ("'a' =~ 'b'", 'match("a", "b")'),
        ("'a' !~ 'b'", '!match("a", "b")'),
        ("'a' =~* 'b'", '__imatch("a", "b")'),
        ("'a' !~* 'b'", '!__imatch("a", "b")'),
        (
            "1 between 2 and 3",
            (
                "(() => { const expr=(1), low=(2), high=(3); return expr !== null && expr !== undefined && low !== null"
                " && low !== undefined && high !== null && high !== undefined && !!(expr >= low && expr <= high); })()"
            ),
        ),
        ("a.b.c", '__getProperty(__getProperty(__getGlobal("a"), "b", true), "c", true)'),
        ("a[1]", '__getProperty(__getGlobal("a"), 1, false)'),
        ("a?.[1]?.2", '__getProperty(__getProperty(__getGlobal("a"), 1, true), 2, true)'),
        ("null", "null"),
        ("'é\"\\n'", '"\\u00e9\\"\\n"'),
        ("1.5", "1.5"),
        ("if(1, 2, 3)", "(1 ? 2 : 3)"),
        ("if(1, 2)", "(1 ? 2 : null)"),
        ("multiIf(1, 2, 3, 4, 5)", "(1 ? 2 : (3 ? 4 : 5))"),
        ("a ?? 1", '(__getGlobal("a") ?? 1)'),
        ("{'k': 1, a: 2}", '{"k": 1, [__getGlobal("a")]: 2}'),
        ("[1, 'a']", '[1, "a"]'),
        ("(1, 2)", "tuple(1, 2)"),
        ("x -> x", "__lambda((x) => x)"),
        ("(x, y) -> {'k': x}", '__lambda((x, y) => ({"k": x}))'),
        ("upper('a')", 'upper("a")'),
        ("toString", "toString"),
        ("typeof(1)", "__x_typeof(1)"),
        ("<b kind='x' />", '{"__hx_tag": "b", "kind": "x"}'),
        ("inf", "Infinity"),
    ],
)
def test_expressions(source: str, code: str) -> None:
    assert expression(source) == code


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("let x := 1", "let x = 1;"),
        ("let x", "let x;"),
        ("let x := 1 x := 2", "let x = 1;\nx = 2"),
        ("let x := {} x.a.b := 2", 'let x = {};\n__setProperty(__getProperty(x, "a", true), "b", 2)'),
        ("let x := [] x[1] := 2", "let x = [];\n__setProperty(x, 1, 2);"),
        ("f", '__getGlobal("f");'),
        ("return 1", "return 1;"),
        ("return", "return null;"),
        ("throw Error('a')", 'throw __x_Error("a");'),
        ("if (1) return 2 else return 3", "if (1) {\n    return 2;\n} else {\n    return 3;\n}"),
        ("while (0) { print(1) }", "while (0) {\n    print(1);\n}"),
        ("for (let i := 0; i < 3; i := i + 1) {}", "for (let i = 0; (i < 3); i = (i + 1)) {}"),
        ("for (;;) {}", "for (; ; ) {}"),
        ("for (let v in a) {}", 'for (let v of values(__getGlobal("a"))) {}'),
        (
            "for (let k, v in a) print(k)",
            (
                'for (let k of keys(__getGlobal("a"))) {\n    let v = __getGlobal("a")[k];\n'
                "    {\n        print(k);\n    }\n}"
            ),
        ),
        ("fun f(a) { return a }", "function f(a) {\n    return a;\n}"),
        (
            "try { print(1) } catch (e: A) { print(2) }",
            (
                'try {\n    print(1);\n} catch (__error) { if (__error.type === "A") {\n'
                "    let e = __error;\n    print(2);\n} else { throw __error; } }"
            ),
        ),
        (
            "try { print(1) } catch (x: A) { print(2) } catch { print(3) }",
            (
                'try {\n    print(1);\n} catch (__error) { if (__error.type === "A") {\n'
                "    let x = __error;\n    print(2);\n} else if (true) {\n    let e = __error;\n    print(3);\n} }"
            ),
        ),
    ],
)
def test_statements(source: str, code: str) -> None:
    assert program(source) == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("plain_1", "plain_1"),
        ("`class`", "__x_class"),
        ("`__x_a`", "__x___x_a"),
        ("$a", "__x_$24_a"),
        ("`two words`", "__x_two$20_words"),
        ("`é`", "__x_$e9_"),
    ],
)
def test_names(name: str, code: str) -> None:
    assert program(f"let {name} := 1") == f"let {code} = 1;"


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("let x := 1 { print(x) let x := 2 print(x) }", ["1", "2"]),
        ("fun f(x) { let x := 5 return x } print(f(1))", ["5"]),
        ("let x := x print(x)", ["null"]),
        ("let v := [1, 2] for (let v in v) { print(v) }", ["1", "2"]),
        ("let values := [1] let print2 := 3 for (let v in values) { print(v, values) }", ["1 [1]"]),
        ("let low := 1 let expr := 2 print(expr between low and 3)", ["true"]),
        ("let Math := 4 print(floor(1.5), Math)", ["1 4"]),
        ("fun length(x) { return 7 } print(length('a'), substring('abc', 1, 2))", ["7 ab"]),
        (
            "try { throw Error('a') } catch (err) { print(e.message, type) let e := 1 print(e) }",
            ["a Error", "1"],
        ),
        ("let e := 3 try { throw Error('a') } catch { let e := 1 print(e) } print(e)", ["1", "3"]),
        (
            "let f := [] for (let i := 0; i < 2; i := i + 1) { f := arrayPushBack(f, () -> i) } print(f[1]())",
            ["2"],
        ),
        (
            "let f := [] for (let i in [1, 2]) { f := arrayPushBack(f, () -> i) } print(arrayMap(g -> g(), f))",
            ["[2, 2]"],
        ),
        (
            "let n := 0 fun next() { n := n + 1 return {'a': n} } for (let k, v in next()) { print(k, v, n) }",
            ["a 1 1"],
        ),
        ("let x := 1 x := 2; (1 + 2); x := 3; [x]; print(x)", ["3"]),
        ("print(1 in [1], -1 in [-1])", ["true true"]),
        (
            "let o := {} o.`__proto__` := 1 print(o, o.toString, o.constructor)",
            ["{'__proto__': 1} null null"],
        ),
    ],
)
def test_what_a_name_means_in_hog_it_means_in_javascript(
    source: str, printed: list[str], node_modules: Path
) -> None:
    assert list(hog.run(source).printed) == printed
    assert run(source) == printed


def test_only_what_a_program_uses_comes_with_it() -> None:
    assert hog.compile_javascript("return 1 + 2") == "return (1 + 2);"
    text = hog.compile_javascript("return isNull(1)")
    assert text.count("function ") == 2
    assert text.index("function __isNull") < text.index("function isNull")
    assert text.endswith("}\n\nreturn isNull(1);")


@pytest.mark.parametrize(
    ("source", "code", "column"),
    [
        ("print(1, sleep(2))", "not-in-javascript", 10),
        ("let s := sleep", "not-in-javascript", 10),
        ("nope(1)", "unknown-function", 1),
        ("return upper()", "arity", 8),
    ],
)
def test_what_javascript_cannot_have_is_refused_with_its_place(source: str, code: str, column: int) -> None:
    with pytest.raises(hog.HogCompileError) as caught:
        hog.compile_javascript(source)
    assert (caught.value.code, caught.value.column) == (code, column)


def test_programs_are_written_in_the_language_of_2020(node_modules: Path, tmp_path: Path) -> None:
    """`??` is of 2020, a site function's `{ ...object }` of 2018, everything else of 2017 or before."""
    from tests.hog.oracles.corpus import RUNNABLE

    programs = (hog.compile_program(case.source, hog.ANY) for case in RUNNABLE if case.kind == "program")
    codes = [one.javascript.text for one in programs if not any(d.code == "arity" for d in one.diagnostics)]
    site = compile_site_function("export const onEvent = 1", (hog.Input("a", "{upper('x')}"),))
    checks = [(f"(function () {{{code}\n}})", 2020 if "??" in code else 2017) for code in codes] + [
        (site, 2018)
    ]
    script = tmp_path / "parse.cjs"
    script.write_text(
        f"const acorn = require({json.dumps(str(node_modules / 'acorn'))})\n"
        f"for (const [code, ecmaVersion] of {json.dumps(checks)}) acorn.parse(code, {{ ecmaVersion }})\n"
    )
    subprocess.run(["node", script], check=True)
    assert len(codes) > 100
