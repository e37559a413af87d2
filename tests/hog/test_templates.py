"""Templates and inputs: spec hog-language 6.13, hog-functions-api 5.4-5.7, hog-runtime 3."""

from typing import Any

import pytest

from hoglab import hog

HYPHENS = (
    "Hyphens are not supported in identifiers and are interpreted as subtraction. Use bracket notation: "
)
GLOBALS: dict[str, Any] = {
    "event": {"event": "signup", "properties": {"plan": "pro", "n": 3, "tags": ["a"], "x-y": 1}},
    "person": {"properties": {"email": "ada@example.com", "gone": None}},
}


def render(text: str) -> Any:
    return hog.evaluate(hog.compile_template(text, hog.TEMPLATE), GLOBALS)


def resolve(*inputs: hog.Input, render: Any = None, variables: dict[str, Any] | None = None) -> Any:
    return hog.evaluate(hog.compile_inputs(inputs, hog.TEMPLATE, render), variables or GLOBALS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{event.event}", "signup"),
        ("{event.properties.n}", 3),
        ("{event.properties.tags}", ["a"]),
        ("{person.properties.gone}", None),
        ("{person.properties.gone}!", "!"),
        ("n={event.properties.n + 1}", "n=4"),
        ("{event.properties}", {"plan": "pro", "n": 3, "tags": ["a"], "x-y": 1}),
        ("tags: {event.properties.tags}", "tags: ['a']"),
        ("\\{literal} {event.event}", "{literal} signup"),
        ('it\'s "quoted" \\n', 'it\'s "quoted" \n'),
        ("{f'{event.event}-x'}", "signup-x"),
        ("{event.properties.n > 2 ? 'many' : 'few'}", "many"),
        ("{arrayMap(t -> upper(t), event.properties.tags)}", ["A"]),
        ("{event.properties['x-y']}", 1),
        ("{{'k': event.event}}", {"k": "signup"}),
    ],
)
def test_templates(text: str, value: Any) -> None:
    assert render(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "The `{` is not closed"),
        ("{ }", "The braces hold no expression"),
        ("{{ event.event }}", "Placeholders are not allowed in this context"),
        (
            "{event.properties.my-prop}",
            HYPHENS + "event.properties['my-prop']",
        ),
        (
            "{event.properties.my-long-prop || 'x'}",
            HYPHENS + "event.properties['my-long-prop']",
        ),
    ],
)
def test_template_errors(text: str, message: str) -> None:
    with pytest.raises(hog.HogSourceError) as caught:
        hog.compile_template(text, hog.TEMPLATE)
    assert caught.value.message == message


def test_spaced_subtraction_is_subtraction() -> None:
    assert render("{event.properties.n - event.properties.n}") == 0
    assert render("{event.properties.n -1}") == 2
    assert hog.run("let a := 5 let b := 3 return a-b").value == 2


def test_inputs_are_resolved_in_order_and_see_each_other() -> None:
    assert resolve(
        hog.Input("base", "https://x/{event.event}"),
        hog.Input("url", "{inputs.base}/hook"),
        hog.Input("body", {"who": "{person.properties.email}", "list": ["{inputs.url}", 1, None, True]}),
        hog.Input("flag", True),
        hog.Input("literal", "no {braces} here", mode="plain"),
    ) == {
        "base": "https://x/signup",
        "url": "https://x/signup/hook",
        "body": {"who": "ada@example.com", "list": ["https://x/signup/hook", 1, None, True]},
        "flag": True,
        "literal": "no {braces} here",
    }


def test_extended_objects() -> None:
    value = {"plan": "mine", "$$_extend_object": "{event.properties}", "own": "{event.event}"}
    expected = {"plan": "mine", "n": 3, "tags": ["a"], "x-y": 1, "own": "signup"}
    assert resolve(hog.Input("body", value)) == {"body": expected}
    assert resolve(hog.Input("body", {"$$_extend_object": "{event.event}", "k": 1})) == {"body": {"k": 1}}


def test_inputs_rendered_by_the_host() -> None:
    seen: list[tuple[str, Any]] = []

    def liquid(key: str, variables: Any) -> str:
        seen.append((key, variables["inputs"]["first"]))
        return "rendered"

    assert resolve(
        hog.Input("first", "{event.event}"),
        hog.Input("second", "{{ event }}", mode="rendered"),
        hog.Input("third", "<{inputs.second}>"),
        render=liquid,
    ) == {"first": "signup", "second": "rendered", "third": "<rendered>"}
    assert seen == [("second", "signup")]


def test_plain_containers_are_not_shared_between_runs() -> None:
    program = hog.compile_inputs([hog.Input("list", [1, {"a": [2]}], mode="plain")], hog.TEMPLATE)
    first = hog.evaluate(program, GLOBALS)
    first["list"][1]["a"].append("changed")
    assert hog.evaluate(program, GLOBALS) == {"list": [1, {"a": [2]}]}


def test_errors_name_the_input() -> None:
    with pytest.raises(hog.HogSyntaxError) as syntax:
        resolve(hog.Input("body", {"ok": "{event}", "bad": ["fine", "{a +}"]}))
    assert syntax.value.path == ("body", "bad", 1)
    with pytest.raises(hog.HogRuntimeError) as runtime:
        resolve(
            hog.Input("url", "{event.event}\n{event.event}"),
            hog.Input("body", {"deep": ["line\n and {nope.x}"]}),
        )
    assert runtime.value.message == "Global variable not found: nope.x"
    assert runtime.value.path == ("body", "deep", 0)
    assert runtime.value.position is not None
    assert (runtime.value.position.line, runtime.value.position.column) == (2, 7)


def test_text_doubled_from_input_to_input_meets_the_memory_limit() -> None:
    inputs = [hog.Input("i0", "x" * 1000)]
    inputs += [hog.Input(f"i{n}", f"{{inputs.i{n - 1}}}{{inputs.i{n - 1}}}") for n in range(1, 40)]
    with pytest.raises(hog.HogLimit, match="Memory limit"):
        resolve(*inputs)


def test_loops_in_inputs_meet_the_limits() -> None:
    env = hog.TEMPLATE.with_limits(hog.Limits(max_steps=100_000))
    text = "{arrayMap(a -> arrayMap(b -> arrayMap(c -> c, range(1000)), range(1000)), range(1000))}"
    with pytest.raises(hog.HogLimit):
        hog.evaluate(hog.compile_inputs([hog.Input("x", text)], env), {})


def test_nothing_in_inputs_waits_or_prints() -> None:
    program = hog.compile_inputs([hog.Input("x", "{sleep(1)}"), hog.Input("y", "{print(1)}")], hog.TEMPLATE)
    assert [found.message for found in program.errors] == [
        "Hog function `sleep` is not implemented",
        "Hog function `print` is not implemented",
    ]
    with pytest.raises(hog.HogRuntimeError, match="Unsupported function call: sleep"):
        hog.evaluate(program, {})


def test_nested_values_are_limited() -> None:
    value: Any = "x{event}"
    for _ in range(100):
        value = [value]
    with pytest.raises(hog.HogCompileError, match="levels deep"):
        resolve(hog.Input("deep", value))


# --- order


@pytest.mark.parametrize(
    ("keys", "dependencies", "order"),
    [
        ("abc", {}, "abc"),
        ("abc", {"a": {"c"}}, "bca"),
        ("abcd", {"a": {"b"}, "b": {"c"}, "c": {"d"}}, "dcba"),
        ("ab", {"a": {"unknown"}}, "ab"),
        ("abcd", {"b": {"a"}, "d": {"a"}, "c": {"b", "d"}}, "abdc"),
    ],
)
def test_order(keys: str, dependencies: dict[str, set[str]], order: str) -> None:
    assert hog.order_inputs(keys, dependencies) == list(order)


@pytest.mark.parametrize("dependencies", [{"a": {"a"}}, {"a": {"b"}, "b": {"a"}}])
def test_cycles(dependencies: dict[str, set[str]]) -> None:
    with pytest.raises(hog.HogCompileError) as caught:
        hog.order_inputs("abc", dependencies)
    assert caught.value.message == "Circular dependency detected in input_deps."
    assert caught.value.code == "circular-inputs"
