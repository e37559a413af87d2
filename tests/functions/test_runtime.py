"""What the runtime gets: compiled functions, kept in step with what is stored."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import insert, update
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.accounts.service import AccountService
from hoglab.filters.hog import CompiledFilter, FilterFailure, FusedDispatcher, dispatch
from hoglab.functions import store
from hoglab.functions.configuration.compiler_version import COMPILER_VERSION
from hoglab.functions.runtime.compile import CompiledFunction
from hoglab.functions.runtime.globals import filter_globals
from hoglab.functions.runtime.recompile import Recompiler
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.secrets.redaction import redactor
from hoglab.hog.errors import HogLimit, HogRuntimeError
from hoglab.hog.rt.context import Limits
from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import Database, DatabaseError
from hoglab.storage.database.tables import action

GLOBALS: dict[str, Any] = {
    "project": {"id": 1, "name": "Shop", "url": "https://h.example/project/1"},
    "event": {
        "uuid": "01990000-0000-7000-8000-000000000001",
        "event": "signup",
        "distinct_id": "u1",
        "properties": {"plan": "pro", "$groups": {"company": "acme"}},
        "elements_chain": "",
        "timestamp": "2026-01-01T10:00:00.000Z",
    },
    "person": {"id": "p-1", "name": "ann@acme.io", "properties": {"email": "ann@acme.io"}},
    "groups": {"company": {"id": "acme", "type": "company", "index": 0, "properties": {"size": 5}}},
}


@pytest.fixture
def registry(database: Database, box: SecretBox) -> FunctionRegistry:
    return FunctionRegistry(database, box)


def loaded(registry: FunctionRegistry, function: dict[str, Any]) -> CompiledFunction:
    functions = registry.for_project(1)
    assert functions is not None
    return functions.by_id[function["id"]]


def names(registry: FunctionRegistry, kind: str = "destinations") -> list[str]:
    functions = registry.for_project(1)
    assert functions is not None
    return [one.name for one in getattr(functions, kind).functions]


def add_action(database: Database, steps: list[dict[str, Any]]) -> int:
    with database.write() as tx:
        made = tx.execute(
            insert(action).values(
                project_id=1, name="a", steps=steps, tags=[], created_at=utc_now(), updated_at=utc_now()
            )
        )
        tx.changed("actions", 1)
        key = made.inserted_primary_key
        assert key is not None
        return int(key[0])


def change_action(database: Database, action_id: int, steps: list[dict[str, Any]]) -> None:
    with database.write() as tx:
        tx.execute(update(action).where(action.c.id == action_id).values(steps=steps))
        tx.changed("actions", 1)


# --- the registry


def test_functions_by_kind(api: Api, registry: FunctionRegistry) -> None:
    assert registry.for_project(99) is None
    api.create(name="off")
    api.create(name="d", enabled=True)
    api.create(name="null", type=None, enabled=True)
    api.create(name="updates", enabled=True, filters={"source": "person-updates"})
    api.create(name="i", type="internal_destination", enabled=True)
    api.create(name="i2", type="internal_destination", enabled=True, filters={"source": "events"})
    api.create(name="t2", type="transformation", enabled=True, hog="return event", execution_order=5)
    api.create(name="t1", type="transformation", enabled=True, hog="return event", execution_order=2)
    api.create(name="w", type="source_webhook", enabled=True)
    gone = api.create(name="gone", enabled=True)
    api.change(gone, deleted=True)
    assert names(registry) == ["d", "null"]
    assert names(registry, "internal_destinations") == ["i", "i2"]
    assert names(registry, "transformations") == ["t1", "t2"]
    functions = registry.for_project(1)
    assert functions is not None
    assert sorted(one.name for one in functions.by_id.values()) == sorted(
        ["d", "null", "updates", "i", "i2", "t1", "t2", "w"]
    )


@rule("F4.21")
def test_changes_are_seen_at_once_and_the_rest_is_kept(api: Api, registry: FunctionRegistry) -> None:
    first = api.create(name="a", enabled=True)
    second = api.create(name="b", enabled=True)
    kept = loaded(registry, second)
    before = registry.for_project(1)
    assert registry.for_project(1) is before
    api.change(first, name="A")
    assert names(registry) == ["A", "b"]
    assert loaded(registry, second) is kept
    api.change(first, enabled=False)
    assert names(registry) == ["b"]


def test_a_save_costs_no_look_at_the_other_functions(
    api: Api, registry: FunctionRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: rows that are read, and functions and filters that are compiled, after a change of one of fifty."""
    made = [
        api.create(
            name=f"f{number}", enabled=True, filters={"events": [{"id": f"e{number}", "type": "events"}]}
        )
        for number in range(50)
    ]

    def ready() -> None:
        functions = registry.for_project(1)
        assert functions is not None
        assert len(functions.destinations.dispatcher) == len(functions.destinations)

    ready()
    read: list[int] = []
    compiled: list[str] = []
    fused: list[int] = []
    by_ids, compile_one, fuse = store.by_ids, registry._compile_one, dispatch.fuse

    def counted(*args: Any, **options: Any) -> Any:
        found = by_ids(*args, **options)
        read.append(len(found))
        return found

    monkeypatch.setattr(store, "runnable", lambda *_: pytest.fail("all functions were read"))
    monkeypatch.setattr(store, "by_ids", counted)
    monkeypatch.setattr(
        registry, "_compile_one", lambda row, _: (compiled.append(row["name"]), compile_one(row, _))[1]
    )
    monkeypatch.setattr(dispatch, "fuse", lambda cases: (fused.append(len(cases)), fuse(cases))[1])
    api.change(made[7], name="seven")
    assert "seven" in names(registry)
    ready()
    assert (read, compiled, fused) == ([1], ["seven"], [])
    api.change(made[8], filters={"events": [{"id": "other", "type": "events"}]})
    api.change(made[9], enabled=False)
    assert len(names(registry)) == 49
    ready()
    assert (read, compiled) == ([1, 2], ["seven", "f8"])


def test_filters_are_compiled_together_when_they_are_first_asked(
    api: Api, registry: FunctionRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[int, object]] = []

    class Counted(FusedDispatcher):
        def __init__(self, filters: Sequence[CompiledFilter], before: FusedDispatcher | None = None) -> None:
            built.append((len(filters), before))
            super().__init__(filters, before)

    monkeypatch.setattr("hoglab.functions.runtime.compile.FusedDispatcher", Counted)
    for kind in ("destination", "internal_destination", "transformation"):
        api.create(type=kind, enabled=True, hog="return event")
    first = registry.for_project(1)
    assert first is not None
    assert built == []
    dispatcher = first.destinations.dispatcher
    assert first.destinations.dispatcher is dispatcher
    assert built == [(1, None)]
    for number in range(3):  # changes that nobody asks about: what was built before them is still taken over
        api.create(name=str(number), enabled=True, hog="return 1")
        later = registry.for_project(1)
        assert later is not None
    assert len(built) == 1
    assert len(later.destinations.dispatcher) == 4
    assert built[1:] == [(4, dispatcher)]


def test_filters_that_cannot_be_compiled_together_are_no_fault_of_an_event(
    api: Api, registry: FunctionRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault of the server")

    monkeypatch.setattr("hoglab.functions.runtime.compile.FusedDispatcher", fail)
    api.create(enabled=True, hog="return 1")
    functions = registry.for_project(1)
    assert functions is not None
    with pytest.raises(DatabaseError, match="a fault of the server"):
        _ = functions.destinations.dispatcher


def test_taking_changes_over_comes_to_the_same_as_reading_all(
    api: Api, registry: FunctionRegistry, database: Database, box: SecretBox
) -> None:
    chance = random.Random(7)
    made: list[dict[str, Any]] = []

    def change() -> None:
        if not made or chance.random() < 0.3:
            kind = chance.choice(["destination", "internal_destination", "transformation"])
            made.append(api.create(name=f"f{len(made)}", type=kind, enabled=True, hog="return event"))
            return
        one = chance.choice(made)
        if chance.random() < 0.2:
            add_action(database, [{"event": "signup"}])
            return
        changed: dict[str, Any] = chance.choice(
            [
                {"enabled": chance.random() < 0.5},
                {"deleted": chance.random() < 0.5},
                {"filters": {"events": [{"id": chance.choice("ab"), "type": "events"}]}},
                {"execution_order": chance.randrange(1, 9)},
            ]
        )
        api.patch(
            f"/hog_functions/{one['id']}/", changed
        )  # one that is deleted is found again by `deleted` only

    for _ in range(60):
        for _ in range(chance.randrange(1, 4)):
            change()
        taken_over, anew = registry.for_project(1), FunctionRegistry(database, box).for_project(1)
        assert taken_over is not None
        assert anew is not None
        assert taken_over.by_id.keys() == anew.by_id.keys()
        for kind in ("destinations", "internal_destinations", "transformations"):
            one, other = getattr(taken_over, kind), getattr(anew, kind)
            assert [each.id for each in one.functions] == [each.id for each in other.functions]
            assert one.reads == other.reads
            for event in ("a", "b", "signup"):
                flat = {**filter_globals(GLOBALS), "event": event}
                assert one.dispatcher.match(flat) == other.dispatcher.match(flat)
                assert one.dispatcher.concerns(event) == other.dispatcher.concerns(event)


def test_actions_and_settings_reach_filters_at_once(
    api: Api, registry: FunctionRegistry, database: Database, accounts: AccountService
) -> None:
    action_id = add_action(database, [{"event": "signup"}])
    made = api.create(
        enabled=True, filters={"actions": [{"id": str(action_id)}], "filter_test_accounts": True}
    )
    flat = filter_globals(GLOBALS)
    assert loaded(registry, made).filter.matches(flat)
    change_action(database, action_id, [{"event": "other"}])
    assert not loaded(registry, made).filter.matches(flat)
    change_action(database, action_id, [])
    assert loaded(registry, made).filter.matches(flat)
    internal = {"key": "email", "type": "person", "operator": "not_icontains", "value": "@acme.io"}
    accounts.update_project(1, {"test_account_filters": [internal]})
    assert not loaded(registry, made).filter.matches(flat)


def test_a_function_whose_action_is_gone_fails_on_every_event(
    api: Api, registry: FunctionRegistry, database: Database
) -> None:
    action_id = add_action(database, [])
    made = api.create(enabled=True, filters={"actions": [{"id": action_id}]})
    with database.write() as tx:
        tx.execute(update(action).where(action.c.id == action_id).values(deleted=True))
        tx.changed("actions", 1)
    with pytest.raises(FilterFailure, match="Filters were not compiled correctly"):
        loaded(registry, made).filter.matches(filter_globals(GLOBALS))


def test_the_dispatcher_knows_the_functions_by_place(api: Api, registry: FunctionRegistry) -> None:
    for name, event in (("a", "signup"), ("b", "other"), ("c", None)):
        api.create(name=name, enabled=True, filters={"events": [{"id": event}]})
    functions = registry.for_project(1)
    assert functions is not None
    found = functions.destinations.dispatcher.match(filter_globals(GLOBALS))
    assert [functions.destinations.functions[place].name for place in found.matched] == ["a", "c"]
    assert functions.destinations.reads == {"event"}


def test_a_function_set_knows_the_roots_that_its_filters_read(api: Api, registry: FunctionRegistry) -> None:
    api.create(enabled=True, filters={"properties": [{"key": "plan", "type": "person", "value": "pro"}]})
    text = {"properties": [{"key": "text", "type": "element", "value": "x"}]}
    api.create(enabled=True, mappings=[{"name": "m", "filters": text, "inputs_schema": [], "inputs": {}}])
    functions = registry.for_project(1)
    assert functions is not None
    assert functions.destinations.reads >= {"person", "elements_chain_texts"}
    assert not functions.destinations.reads & {"uuid", "timestamp", "pdi", "group_0"}


def test_functions_that_cannot_be_read_are_left_out(
    api: Api, database: Database, registry: FunctionRegistry
) -> None:
    api.create(name="plain", enabled=True)
    schema = [{"key": "t", "type": "string", "secret": True}]
    api.create(name="secret", enabled=True, inputs_schema=schema, inputs={"t": {"value": "x"}})
    assert names(registry) == ["plain", "secret"]
    from cryptography.fernet import Fernet

    other = FunctionRegistry(database, SecretBox([Fernet.generate_key().decode()]))
    assert names(other) == ["plain"]


def test_many_threads_ask_at_once(api: Api, registry: FunctionRegistry) -> None:
    api.create(name="a", enabled=True)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(registry.for_project(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(one) for one in found}) == 1


# --- compiled functions


@rule("F5.16")
def test_inputs_of_the_worked_example(api: Api, registry: FunctionRegistry) -> None:
    """The inputs of spec hog-runtime 4.8."""
    made = api.create(
        enabled=True,
        hog="let r := fetch(inputs.url, {'method':'POST','body':inputs.body})",
        inputs_schema=[
            {"key": "body", "type": "json"},
            {"key": "url", "type": "string"},
            {"key": "unset", "type": "string"},
            {"key": "slack", "type": "integration"},
            {"key": "codes", "type": "non_failure_status_codes"},
            {"key": "mail", "type": "email"},
        ],
        inputs={
            "url": {"value": "https://api.ex.com/in"},
            "body": {
                "value": {"who": "{person.name}", "co": "{groups.company.id}", "props": "{event.properties}"}
            },
            "slack": {"value": 5},
            "codes": {"value": [404, "5xx"]},
            "mail": {
                "value": {
                    "from": {"email": "a@x.io"},
                    "to": {"email": "{person.properties.email}"},
                    "subject": "s",
                    "text": "t",
                    "design": {"x": 1},
                }
            },
        },
    )
    function = loaded(registry, made)
    assert function.build_inputs(GLOBALS) == {
        "body": {
            "who": "ann@acme.io",
            "co": "acme",
            "props": {"plan": "pro", "$groups": {"company": "acme"}},
        },
        "url": "https://api.ex.com/in",
        "unset": None,
        "slack": None,
        "codes": [404, "5xx"],
        "mail": {"from": {"email": "a@x.io"}, "to": {"email": "ann@acme.io"}, "subject": "s", "text": "t"},
    }
    assert function.non_failure_status_codes == [404, "5xx"]
    assert function.program.reads >= {("inputs", "url"), ("inputs", "body")}
    assert "inputs" not in GLOBALS


@rule("F5.16")
def test_inputs_see_those_before_them(api: Api, registry: FunctionRegistry) -> None:
    made = api.create(
        enabled=True,
        inputs_schema=[{"key": key, "type": "string", "secret": key == "b"} for key in "abc"],
        inputs={
            "a": {"value": "{inputs.b}/{inputs.c}"},
            "b": {"value": "secret {inputs.c}"},
            "c": {"value": "{event.event}"},
        },
    )
    assert loaded(registry, made).build_inputs(GLOBALS) == {
        "a": "secret signup/signup",
        "b": "secret signup",
        "c": "signup",
    }


def test_inputs_that_fail_name_the_input(api: Api, registry: FunctionRegistry) -> None:
    made = api.create(
        enabled=True,
        inputs_schema=[{"key": "a", "type": "json"}],
        inputs={"a": {"value": {"deep": ["{jsonParse('{')}"]}}},
    )
    with pytest.raises(HogRuntimeError) as failure:
        loaded(registry, made).build_inputs(GLOBALS)
    assert failure.value.path == ("a", "deep", 0)


@rule("F8.5")
def test_mappings_override_inputs(api: Api, registry: FunctionRegistry) -> None:
    made = api.create(
        enabled=True,
        inputs_schema=[{"key": "url", "type": "string"}, {"key": "note", "type": "string"}],
        inputs={"url": {"value": "https://x.io/{inputs.note}"}, "note": {"value": "own"}},
        mappings=[
            {
                "name": "m",
                "inputs_schema": [
                    {"key": "note", "type": "string"},
                    {"key": "token", "type": "string", "secret": True},
                ],
                "inputs": {"note": {"value": "{event.event}"}, "token": {"value": "t0k3n"}},
                "filters": {"events": [{"id": "signup"}]},
            },
            {"name": "off", "disabled": True},
            {"filters": {"events": [{"id": "other"}]}},
        ],
    )
    function = loaded(registry, made)
    assert function.mappings is not None
    assert [one.name for one in function.mappings] == ["m", None]
    assert len({one.id for one in function.mappings}) == 2
    first, second = function.mappings
    flat = filter_globals(GLOBALS)
    assert first.filter.matches(flat)
    assert not second.filter.matches(flat)
    assert function.build_inputs(GLOBALS, first) == {
        "url": "https://x.io/signup",
        "note": "signup",
        "token": "t0k3n",
    }
    assert function.build_inputs(GLOBALS, second) == {"url": "https://x.io/own", "note": "own"}
    empty = api.create(enabled=True)
    api.change(empty, mappings=[])
    assert loaded(registry, empty).mappings == []
    assert loaded(registry, api.create(enabled=True)).mappings is None


def test_masking_keys(api: Api, registry: FunctionRegistry) -> None:
    made = api.create(enabled=True, masking={"ttl": 60, "threshold": 3, "hash": "{person.id}-{event.event}"})
    masking = loaded(registry, made).masking
    assert masking is not None
    assert (masking.key(dict(GLOBALS)), masking.ttl_s, masking.threshold) == ("p-1-signup", 60, 3)


def test_rows_of_tables_are_records(api: Api, registry: FunctionRegistry) -> None:
    made = api.create(
        enabled=True,
        filters={"source": "data-warehouse-table", "data_warehouse": [{"table_name": "t"}]},
        inputs_schema=[{"key": "a", "type": "string"}],
        inputs={"a": {"value": "{record.plan}"}},
    )
    assert loaded(registry, made).build_inputs(GLOBALS) == {"a": "pro"}


# --- filter globals


def test_filter_globals() -> None:
    flat = filter_globals(GLOBALS)
    assert flat["person"] == {"id": "p-1", "properties": {"email": "ann@acme.io"}}
    assert flat["pdi"] == {"distinct_id": "u1", "person_id": "p-1", "person": flat["person"]}
    assert (flat["$group_0"], flat["group_0"]) == ("acme", {"properties": {"size": 5}})
    assert (flat["$group_1"], flat["group_1"]) == (None, {"properties": {}})
    assert len(flat) == 23
    chain = {"event": {**GLOBALS["event"], "properties": {"$elements_chain": 'a:href="/x"text="T"'}}}
    without_person = filter_globals(chain)
    assert without_person["person"] is None
    assert without_person["pdi"] is None
    assert without_person["elements_chain_href"] == "/x"
    assert without_person["elements_chain_texts"] == ["T"]
    assert without_person["elements_chain_elements"] == ["a"]
    assert filter_globals(chain, {"pdi"}).keys() & {"pdi", "elements_chain_texts", "group_0"} == {"pdi"}
    assert filter_globals(chain, {"elements_chain_texts"})["elements_chain_texts"] == ["T"]
    assert filter_globals(GLOBALS, {"group_0"})["group_0"] == {"properties": {"size": 5}}
    odd = {"event": {**GLOBALS["event"], "properties": {"$elements_chain": 5}}}
    assert filter_globals(odd)["elements_chain"] == ""


# --- redaction


def test_secrets_never_show() -> None:
    schema = [
        {"key": "secret_one", "type": "string", "secret": True},
        {"key": "slack", "type": "integration"},
        {"key": "channel", "type": "integration_field"},
        {"key": "apiKey", "type": "string"},
        {"key": "headers", "type": "dictionary"},
        {"key": "plain", "type": "string"},
        {"key": "blank", "type": "string", "secret": True},
    ]
    redact = redactor(
        schema,
        {
            "secret_one": 'a"b\nc',
            "slack": {"team": {"access": ["xoxb-1"]}},
            "channel": "general",
            "apiKey": "key-9",
            "headers": {"Authorization": "Bearer tok.en", "X-Other": "seen"},
            "plain": "visible",
            "blank": "  ",
        },
    )
    text = 'a"b\nc | a\\"b\\nc | xoxb-1 | general | key-9 | Bearer tok.en | tok.en | tokXen | seen | visible'
    hidden = "***REDACTED***"
    assert redact(text) == (
        f"{hidden} | {hidden} | {hidden} | general | {hidden} | {hidden} | {hidden} | tokXen | seen | visible"
    )
    assert redactor([], {"plain": "visible"})("visible") == "visible"


@pytest.mark.parametrize("form", ["a b&c/é", "a%20b%26c%2F%C3%A9", "a+b%26c%2F%C3%A9", "a%20b%26c/%C3%A9"])
def test_secrets_are_hidden_in_addresses(form: str) -> None:
    schema = [{"key": "k", "type": "string", "secret": True}]
    shown = redactor(schema, {"k": "a b&c/é"})(f"https://x.example/?k={form}&l=1")
    assert shown.startswith("https://x.example/?k=***REDACTED***")
    assert redactor(schema, {"k": "\ud800 x"})("%3F+x") == "***REDACTED***"


def test_longer_secrets_go_first() -> None:
    schema = [{"key": key, "type": "string", "secret": True} for key in "ab"]
    assert redactor(schema, {"a": "abc", "b": "abcdef"})("abcdef abc") == "***REDACTED*** ***REDACTED***"


# --- keeping stored filters up to date


@rule("F6.9")
def test_stored_filters_follow_what_they_speak_about(
    api: Api, database: Database, accounts: AccountService, box: SecretBox
) -> None:
    action_id = add_action(database, [{"event": "a"}])
    entry = {"filters": {"actions": [{"id": action_id}]}}
    made = api.create(enabled=True, **entry)
    mapped = api.create(enabled=True, mappings=[entry])
    accounts_only = api.create(enabled=True, filters={"filter_test_accounts": True})
    recompiler = Recompiler(database, box)
    assert recompiler.recompile(1) == 0
    change_action(database, action_id, [{"event": "b"}])
    assert recompiler.recompile(1) == 2
    path = f"/hog_functions/{made['id']}/"
    changed = api.get(path).json()
    assert changed["filters"]["bytecode"] == ["_H", 1, 32, "b", 32, "event", 1, 1, 11]
    assert {**changed, "filters": None} == {**made, "filters": None}
    mapping = api.get(f"/hog_functions/{mapped['id']}/").json()["mappings"][0]
    assert mapping["filters"]["bytecode"] == changed["filters"]["bytecode"]
    accounts.update_project(1, {"test_account_filters": [{"key": "id", "type": "cohort", "value": 1}]})
    assert recompiler.recompile(1) == 1
    broken = api.get(f"/hog_functions/{accounts_only['id']}/").json()
    assert broken["filters"]["bytecode"] is None
    assert broken["filters"]["bytecode_error"].startswith("Your internal/test user filters include cohorts")
    assert broken["enabled"] is True


@rule("F6.9")
def test_it_happens_by_itself(api: Api, database: Database, box: SecretBox) -> None:
    action_id = add_action(database, [{"event": "a"}])
    made = api.create(enabled=True, filters={"actions": [{"id": action_id}]})
    recompiler = Recompiler(database, box)
    done = threading.Event()
    wanted = ["_H", 1, 32, "c", 32, "event", 1, 1, 11]

    def look(_project_id: int) -> None:
        if api_filters()["bytecode"] == wanted:
            done.set()

    def api_filters() -> dict[str, Any]:
        with database.read() as connection:
            row = store.get(connection, 1, made["id"])
        assert row is not None
        filters: dict[str, Any] = row["filters"]
        return filters

    database.changes.subscribe("functions", look)
    recompiler.start()
    try:
        change_action(database, action_id, [{"event": "c"}])
        assert done.wait(10)
    finally:
        recompiler.stop()


# --- keeping what is compiled in step with the compiler


OLD = ["_H", 1, 29]


def made_by_another_compiler(database: Database, function_id: str) -> dict[str, Any]:
    """Make a function look as if an older server had stored it; the row as it was before."""
    with database.write() as tx:
        row = dict(store.get(tx.connection, 1, function_id) or {})
        plain = {key: {**item, "bytecode": OLD} for key, item in row["inputs"].items()}
        mappings = row["mappings"] and [
            {**one, "inputs": {key: {**item, "bytecode": OLD} for key, item in one["inputs"].items()}}
            for one in row["mappings"]
        ]
        stale = {
            "compiler_version": COMPILER_VERSION - 1,
            "bytecode": OLD,
            "inputs": plain,
            "masking": row["masking"] and {**row["masking"], "bytecode": OLD},
            "mappings": mappings,
        }
        store.change(tx.connection, function_id, stale)
    return row


def test_everything_compiled_follows_the_compiler(api: Api, database: Database, box: SecretBox) -> None:
    schema = [
        {"key": "url", "type": "string", "required": True},
        {"key": "key", "type": "string", "secret": True},
    ]
    mapping = {
        "name": "m",
        "inputs_schema": [{"key": "what", "type": "string"}],
        "inputs": {"what": {"value": "{event.event}"}},
        "filters": {"events": [{"id": "a", "type": "events"}]},
    }
    made = api.create(
        enabled=True,
        hog="print(inputs.url)",
        inputs_schema=schema,
        inputs={"url": {"value": "{event.uuid}"}, "key": {"value": "s3cr3t"}},
        masking={"ttl": 60, "hash": "{person.id}"},
        mappings=[mapping],
    )
    before = made_by_another_compiler(database, made["id"])
    path = f"/hog_functions/{made['id']}/"
    assert api.get(path).json()["bytecode"] == OLD
    recompiler = Recompiler(database, box)
    assert recompiler.recompile(1) == 1
    assert api.get(path).json() == made, "as it was, with its version and its time"
    with database.read() as connection:
        assert store.get(connection, 1, made["id"]) == before
    assert recompiler.recompile(1) == 0


def test_code_that_the_compiler_refuses_stays_as_it_is(api: Api, database: Database, box: SecretBox) -> None:
    made = api.create(enabled=True)
    made_by_another_compiler(database, made["id"])
    with database.write() as tx:
        store.change(tx.connection, made["id"], {"hog": "return ("})
    recompiler = Recompiler(database, box)
    assert recompiler.recompile(1) == 1
    assert api.get(f"/hog_functions/{made['id']}/").json()["bytecode"] == OLD
    assert recompiler.recompile(1) == 0, "it is not tried again until the compiler is another"


def test_filters_and_inputs_have_the_limits_of_their_registry(
    api: Api, database: Database, box: SecretBox
) -> None:
    slow = "length(arrayMap(a -> length(arrayMap(b -> a * b, range(3000))), range(3000)))"
    filters = {"properties": [{"type": "hogql", "key": f"{slow} = 0"}]}
    parts = {
        "inputs_schema": [{"key": "slow", "type": "string"}],
        "inputs": {"slow": {"value": f"{{{slow}}}"}},
    }
    made = api.create(enabled=True, filters=filters, **parts, mappings=[{"filters": filters, **parts}])
    strict = FunctionRegistry(database, box, limits=Limits(time_s=0.05))
    function = loaded(strict, made)
    assert function.mappings is not None
    [mapping] = function.mappings
    text = "timed out after 0.05 seconds"
    for each in function.filters():
        with pytest.raises(FilterFailure, match=text):
            each.matches(filter_globals(GLOBALS))
    for one in (None, mapping):
        with pytest.raises(HogLimit, match=text):
            function.build_inputs(GLOBALS, one)
