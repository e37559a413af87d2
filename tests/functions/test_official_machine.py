"""Everything compiled that is saved, on the official virtual machine: it loads there, runs, and gives what ours gives.

What is read is what the database holds after a request: programs, inputs (secrets too), filters, masking, mappings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.filters.hog.events import filter_globals as event_globals
from tests.filters.hog.test_meaning import MISSING, TABLE, VALUES
from tests.functions.conftest import Api
from tests.functions.templates.cases import PROGRAMS
from tests.hog.oracles.runners import RUNNERS, Case, Machine, Outcome

from hoglab import hog
from hoglab.filters.hog import CompiledFilter, FilterContext, FilterFailure
from hoglab.functions import store
from hoglab.functions.configuration.builder import Configuration
from hoglab.functions.configuration.stored import read_configuration
from hoglab.functions.documents.template_pages import example
from hoglab.functions.runtime.compile import CompiledFunction, compile_configuration
from hoglab.functions.runtime.globals import filter_globals
from hoglab.functions.secrets.box import SecretBox
from hoglab.hog.rt.printing import repr_value
from hoglab.storage.database import Database

HOST = ("fetch", "postHogCapture")
GIVEN = ("geoipLookup", "cleanNullValues", "isKnownBotUserAgent", "isKnownBotIp")
"""Functions of the server that answer at once: here they give back what they get, on both machines."""
MERGED = "$$_extend_object"
"""A key whose object becomes part of the one that holds it, once it is filled in."""
PERSON = {
    "id": "p-1",
    "name": "ann@acme.io",
    "url": "https://h.example/project/1/person/p-1",
    "properties": {"email": "ann@acme.io", "plan": "pro", "first_name": "Ann"},
}
REQUEST = {
    "method": "POST",
    "headers": {"authorization": "no", "stripe-signature": "t=1,v1=0"},
    "query": {"a": "b"},
    "body": {"type": "payment", "id": "1", "data": {"object": {"id": "2"}}},
    "stringBody": '{"type": "payment"}',
    "ip": "1.2.3.4",
}
EVENTS = [
    {
        "event": "signup",
        "properties": {"plan": "pro", "amount": 12.5, "$ip": "1.2.3.4", "list": [1, {"a": None}]},
    },
    {"event": "$pageview", "properties": {"$current_url": "https://x.io/a?email=b%40c.d", "$lib": "web"}},
    {
        "event": "purchase",
        "properties": {"price": "9", "currency": "EUR"},
        "elements_chain": 'a.b:href="/x"text="T"',
    },
]


def happening(event: Mapping[str, Any]) -> dict[str, Any]:
    """The globals of programs."""
    return {
        "project": {"id": 1, "name": "Shop", "url": "https://h.example/project/1"},
        "source": {"name": "n", "url": "https://h.example/project/1/functions/f"},
        "groups": {"company": {"id": "acme", "type": "company", "index": 0, "properties": {"size": 5}}},
        "person": PERSON,
        "event": {
            "uuid": "01990000-0000-7000-8000-000000000001",
            "distinct_id": "u1",
            "timestamp": "2026-01-01T10:00:00.000Z",
            "url": "https://h.example/project/1/events/01990000-0000-7000-8000-000000000001/2026",
            "elements_chain": "",
            **event,
        },
        "request": REQUEST,
    }


GLOBALS = [happening(event) for event in EVENTS]


def texts(*keys: str) -> list[dict[str, Any]]:
    return [{"key": key, "type": "string"} for key in keys]


CORPUS: dict[str, dict[str, Any]] = {
    "kinds of inputs": {
        "hog": "print(inputs) return inputs",
        "inputs_schema": [
            *texts("plain", "whole", "mixed", "later", "escaped"),
            {"key": "json", "type": "json"},
            {"key": "dictionary", "type": "dictionary"},
            {"key": "flag", "type": "boolean"},
            {"key": "number", "type": "number"},
            {"key": "token", "type": "string", "secret": True},
            {"key": "unset", "type": "string"},
        ],
        "inputs": {
            "plain": {"value": "https://x.io/ä€😀"},
            "whole": {"value": "{event.properties}"},
            "mixed": {"value": "{event.event}: {person.properties.email ?? 'nobody'} {f'{event.distinct_id}!'}"},
            "later": {"value": "{inputs.mixed}/{inputs.token}"},
            "escaped": {"value": "\\{no template} {1 + 1}"},
            "json": {"value": {"a": ["{event}", 1, True, None, {"b": "x{length(event.event)}"}], "{k}": 1.5}},
            "dictionary": {"value": {"Authorization": "Bearer {inputs.token}"}},
            "flag": {"value": "{event.properties.amount > 10}"},
            "number": {"value": 3},
            "token": {"value": "s3cr3t-{event.distinct_id}"},
        },
    },
    "calls": {
        "hog": """
            let headers := {'X-A': 'b'}
            let answer := fetch(inputs.url, {'method': 'POST', 'headers': headers, 'body': {'e': event, 'n': [1, 2.5]}})
            if (answer.status >= 400) { throw Error(f'Failed: {answer.status}', {'body': answer.body}) }
            for (let i, item in event.properties?.list ?? []) { print(i, item) }
            postHogCapture({'event': 'seen', 'distinct_id': event.distinct_id, 'properties': {}})
            return arrayMap(x -> upper(x), keys(event.properties))
        """,
        "inputs_schema": texts("url"),
        "inputs": {"url": {"value": "https://hooks.example.com/{event.event}"}},
    },
    "errors": {
        "hog": "try { throw Error('a', {'b': 1}) } catch (e) { print(e.message, e.payload) } "
        "fun f(n) { if (n <= 1) { return 1 } return n * f(n - 1) } throw RetryError(f'{f(5)}')",
    },
    "masked": {"hog": "return 1", "masking": {"ttl": 60, "hash": "{person.id}-{event.properties.plan ?? 'none'}"}},
    "internal": {
        "type": "internal_destination",
        "hog": "print(event.event)",
        "filters": {"events": [{"id": "$insight_alert_firing", "type": "events"}]},
    },
    "transformation": {
        "type": "transformation",
        "hog": "let e := event e.properties.seen := inputs.who return e",
        "inputs_schema": texts("who"),
        "inputs": {"who": {"value": "{event.distinct_id}-{project.id}"}},
    },
    "mapped": {
        "hog": "print(inputs.base, inputs.name)",
        "inputs_schema": texts("base", "name"),
        "inputs": {"base": {"value": "https://x.io"}, "name": {"value": "own {event.event}"}},
        "filters": {"properties": [{"key": "plan", "type": "person", "operator": "exact", "value": ["pro"]}]},
        "mappings": [
            {
                "name": "Bought",
                "inputs_schema": texts("name", "price"),
                "inputs": {
                    "name": {"value": "{inputs.base}/{event.event}"},
                    "price": {"value": "{event.properties.price}"},
                },
                "filters": {"events": [{"id": "purchase", "type": "events"}]},
            },
            {"name": "All", "filters": {"events": [{"id": None, "type": "events"}]}},
        ],
    },
    "filters of every kind": {
        "hog": "return 1",
        "filters": {
            "events": [
                {
                    "id": "signup",
                    "type": "events",
                    "properties": [{"key": "amount", "type": "event", "operator": "gt", "value": 10}],
                },
                {"id": "purchase", "type": "events"},
            ],
            "properties": [
                {"key": "email", "type": "person", "operator": "icontains", "value": "@acme"},
                {"key": "size", "type": "group", "group_type_index": 0, "operator": "gte", "value": 5},
                {"key": "text", "type": "element", "operator": "is_not", "value": "Cancel"},
                {"key": "length(event) > 3 and properties.plan != 'free'", "type": "hogql"},
            ],
        },
    },
}  # fmt: skip
"""What people might save, by what it is about."""


class Here(Case):
    """With the functions that answer at once."""

    @property
    def environment(self) -> hog.Environment:
        identity = [hog.host_function(name, impl=lambda value: value) for name in GIVEN]
        return super().environment.with_functions(*identity)


@pytest.fixture(scope="module")
def machine(node_modules: Path) -> Iterator[Machine]:
    machine = Machine(node_modules)
    yield machine
    machine.close()


class Saved:
    """A function as the database holds it, and as our runtime runs it."""

    def __init__(self, api: Api, database: Database, box: SecretBox, body: Mapping[str, Any]) -> None:
        made = api.create(**body)
        with database.read() as connection:
            row = store.get(connection, 1, made["id"])
        assert row is not None
        self.configuration: Configuration = read_configuration(row, box)
        self.ours: CompiledFunction = compile_configuration(
            self.configuration, FilterContext(), function_id=made["id"], project_id=1
        )


def official(
    machine: Machine, bytecode: Any, variables: Mapping[str, Any], answers: Sequence[Any] = ()
) -> Outcome:
    """What the official machine makes of stored bytecode; our decisions about null are given to it (D4, D9)."""
    assert bytecode[:2] == ["_H", 1]
    request = {"machine": "official", "bytecode": bytecode, "globals": variables, "answers": list(answers)}
    return machine.ask({**request, "async": list(HOST), "given": list(GIVEN), "corrected": True})


def on_the_official_machine(machine: Machine, compiled: Any, variables: Mapping[str, Any]) -> Any:
    """The value of a compiled input, leaf by leaf, printed."""
    if isinstance(compiled, list) and compiled[:1] == ["_H"]:
        outcome = official(machine, compiled, variables)
        assert outcome.error is None, (compiled, outcome.error)
        return outcome.result
    if isinstance(compiled, list):
        return [on_the_official_machine(machine, one, variables) for one in compiled]
    if isinstance(compiled, dict):
        found = {key: on_the_official_machine(machine, one, variables) for key, one in compiled.items()}
        found.pop(MERGED, None)
        return found
    return repr_value(hog.from_json(compiled))


def printed(compiled: Any, value: Any) -> Any:
    """Our value in the shape of what it was compiled from."""
    if isinstance(compiled, list) and compiled[:1] != ["_H"]:
        return [printed(one, part) for one, part in zip(compiled, value, strict=True)]
    if isinstance(compiled, dict):
        return {key: printed(one, value[key]) for key, one in compiled.items() if key != MERGED}
    return repr_value(value)


def check_inputs(
    machine: Machine, saved: Saved, globals_: Mapping[str, Any], mapping: str | None = None
) -> int:
    """Compare every input that has bytecode; those before it are our own values. How many there were."""
    own = dict(saved.configuration.inputs.in_order())
    chosen = None
    if mapping is not None:
        chosen = saved.ours.mapping_of(mapping)
        stored = {one.id: one for one in saved.configuration.mappings or ()}
        own |= dict(stored[mapping].inputs.in_order())
    built = saved.ours.build_inputs(hog.from_json(globals_), chosen)
    variables = {**globals_, "inputs": hog.to_json(built)}
    compared = 0
    for key, item in own.items():
        if "bytecode" in item:
            found = on_the_official_machine(machine, item["bytecode"], variables)
            assert found == printed(item["bytecode"], built[key]), key
            compared += 1
    return compared


def check_filter(
    machine: Machine, filters: Mapping[str, Any] | None, ours: CompiledFilter, flat: Mapping[str, Any]
) -> None:
    """The stored filter gives true where ours matches, and nothing else there; where one fails so does the other."""
    if filters is None or filters["bytecode"] is None:
        return
    outcome = official(machine, filters["bytecode"], flat)
    try:
        expected = ours.matches(dict(flat))
    except FilterFailure:
        assert outcome.error is not None
        return
    assert outcome.error is None, (filters, outcome.error)
    assert (outcome.result == "true") is expected, (filters, outcome.result)


def check_program(machine: Machine, saved: Saved, globals_: Mapping[str, Any]) -> None:
    """The stored program prints, asks for and returns the same as our execution of the source."""
    inputs = hog.to_json(saved.ours.build_inputs(hog.from_json(globals_)))
    variables = {**globals_, "inputs": inputs}
    answers = [{"status": 200, "body": {"ok": True, "access_token": "t", "sendId": "x"}}] * 5
    case = Here(saved.configuration.hog, variables, answers, HOST)
    outcome = official(machine, saved.configuration.bytecode, variables, answers)
    expected = RUNNERS["python"](machine, case)
    if "now()" in saved.configuration.hog:  # each machine has a clock of its own
        assert [name for name, _ in outcome.calls] == [name for name, _ in expected.calls]
        assert (outcome.error, outcome.printed) == (expected.error, expected.printed)
    else:
        assert outcome == expected


def check(machine: Machine, saved: Saved) -> int:
    """Everything of a function on every event. How many inputs were compared."""
    compared = 0
    configuration, ours = saved.configuration, saved.ours
    for globals_ in GLOBALS:
        flat = filter_globals(globals_)
        compared += check_inputs(machine, saved, globals_)
        check_filter(machine, configuration.filters, ours.filter, flat)
        check_program(machine, saved, globals_)
        for mapping in ours.mappings or ():
            compared += check_inputs(machine, saved, globals_, mapping.id)
            [stored] = [one for one in configuration.mappings or () if one.id == mapping.id]
            check_filter(machine, stored.filters, mapping.filter, flat)
        if configuration.masking is not None:
            assert ours.masking is not None
            key = official(machine, configuration.masking["bytecode"], globals_)
            assert (key.error, key.result) == (None, repr_value(ours.masking.key(hog.from_json(globals_))))
    return compared


@pytest.mark.parametrize("about", CORPUS)
def test_saved_functions(api: Api, database: Database, box: SecretBox, machine: Machine, about: str) -> None:
    body = CORPUS[about]
    compared = check(machine, Saved(api, database, box, body))
    assert compared > 0 or "inputs" not in body


@pytest.mark.parametrize("template", PROGRAMS, ids=lambda template: template.folder)
def test_functions_of_templates(
    api: Api, database: Database, box: SecretBox, machine: Machine, template: Any
) -> None:
    """As their pages create them, values that nobody else knows included."""
    check(machine, Saved(api, database, box, example(template)))


def test_filters_with_every_operator(api: Api, database: Database, box: SecretBox, machine: Machine) -> None:
    """Each operator against each kind of value: what the table of meanings says, on the official machine too."""
    for operator, value, expected in TABLE:
        leaf = {"key": "p", "type": "event", "operator": operator, "value": value}
        saved = Saved(api, database, box, {"hog": "return 1", "filters": {"properties": [leaf]}})
        for one, letter in zip(VALUES, expected, strict=True):
            flat = event_globals(properties={} if one is MISSING else {"p": one})
            outcome = official(machine, saved.configuration.filters["bytecode"], flat)
            assert outcome.error is None, (leaf, outcome.error)
            assert (outcome.result == "true") is (letter == "T"), (leaf, one, outcome.result)
            check_filter(machine, saved.configuration.filters, saved.ours.filter, flat)
