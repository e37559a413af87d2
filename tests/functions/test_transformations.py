"""Transformations on batches of events (spec: hog-runtime 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.rules import rule
from tests.functions.conftest import Api

from hoglab.delivery.bodies.transforming import TransformationProcess
from hoglab.fairness.compute_shares import ComputeShares
from hoglab.functions.body_run import BodyRun
from hoglab.functions.environments import (
    body_environment,
    clean_null_values,
    is_known_bot_ip,
    is_known_bot_user_agent,
)
from hoglab.functions.runtime import transformations
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.runtime.transformations import Supervision, Transformations
from hoglab.functions.secrets.box import SecretBox
from hoglab.hog import check
from hoglab.storage.database import Database
from hoglab.storage.invocations import AppMetric, LogEntry

UUID_1 = UUID("01990000-0000-7000-8000-000000000001")


@dataclass
class Event:
    """What ingestion hands over."""

    event: str = "$pageview"
    distinct_id: str = "u"
    properties: dict[str, Any] = field(default_factory=dict)
    uuid: UUID = UUID_1
    timestamp: datetime = datetime(2026, 1, 1, 10, tzinfo=UTC)


class Pipeline:
    """Transformations of the project, and what they leave behind."""

    def __init__(self, api: Api, database: Database, box: SecretBox, process: TransformationProcess) -> None:
        self.api = api
        self.metrics: list[AppMetric] = []
        self.logs: list[LogEntry] = []
        self.watched: list[str] = []
        self.stopped: set[str] = set()
        self.slowed: set[str] = set()
        self.clock = datetime(2026, 1, 2, tzinfo=UTC)
        self.runner = Transformations(
            FunctionRegistry(database, box),
            process,
            Supervision(
                self._record,
                self.stopped.__contains__,
                self.slowed.__contains__,
                lambda function_id, _ms: self.watched.append(function_id),
            ),
            ComputeShares(),
            site_url="https://h.example",
            now=lambda: self.clock,
        )

    def _record(self, metrics: Sequence[AppMetric], logs: Sequence[LogEntry]) -> None:
        self.metrics += metrics
        self.logs += logs

    def add(self, hog: str, name: str = "T", **body: Any) -> str:
        """Returns how the function is named in lists."""
        made = self.api.create(type="transformation", name=name, hog=hog, enabled=True, **body)
        return f"{name} ({made['id']})"

    def run(self, *events: Event) -> list[Event]:
        return self.runner.transform(1, list(events))

    def counts(self) -> dict[tuple[str, str], int]:
        return {(one.metric_name, one.metric_kind): one.count for one in self.metrics}


class Bare:
    """Runs programs on events without a server around them."""

    def __init__(self, process: TransformationProcess) -> None:
        self.process = process

    def run(self, hog: str, name: str) -> BodyRun:
        event = {"uuid": str(UUID_1), "event": name, "properties": {}}
        (run,) = self.process.run("f", hog, b"{}", [orjson.dumps({"event": event})])
        return run


@pytest.fixture
def bare(process: TransformationProcess) -> Bare:
    return Bare(process)


@pytest.fixture
def pipeline(api: Api, database: Database, box: SecretBox, process: TransformationProcess) -> Pipeline:
    return Pipeline(api, database, box, process)


def test_the_example_of_the_spec(pipeline: Pipeline) -> None:
    strip = "let e := event\nlet p := {}\nfor (let k, v in e.properties) { if (k != 'pw') { p[k] := v } }\n"
    first = pipeline.add(f"{strip}e.properties := p\nreturn e", "Strip pw")
    second = pipeline.add("return null", "T2", filters={"events": [{"id": "signup"}]})
    third = pipeline.add("throw Error('no')", "T3")
    (event,) = pipeline.run(
        Event(properties={"$ip": "1.2.3.4", "pw": "x", "$transformations_skipped": ["fake"]})
    )
    assert event.properties == {
        "$ip": "1.2.3.4",
        "$transformations_succeeded": [first],
        "$transformations_skipped": [second],
        "$transformations_failed": [third],
    }
    assert (event.event, event.distinct_id) == ("$pageview", "u")
    assert pipeline.counts() == {
        ("succeeded", "success"): 1,
        ("filtered", "other"): 1,
        ("failed", "failure"): 1,
    }
    assert [(one.level, one.message) for one in pipeline.logs] == [
        ("error", f"Error executing function on event {UUID_1}: Error('no')")
    ]


def test_no_transformations_leave_events_as_they_are(pipeline: Pipeline) -> None:
    event = Event(properties={"$transformations_failed": ["kept"]})
    assert pipeline.run(event) == [event]
    assert event.properties == {"$transformations_failed": ["kept"]}
    assert pipeline.runner.transform(999, [event]) == [event]


@pytest.mark.parametrize("result", ["null", "false", "0", "''", "", "1 - 1"])
@rule("H7.2")
def test_falsy_results_drop_the_event(pipeline: Pipeline, result: str) -> None:
    pipeline.add(f"return {result}" if result else "let a := 1")
    pipeline.add("print('never')\nreturn event", "after")
    assert pipeline.run(Event()) == []
    assert pipeline.counts() == {("succeeded", "success"): 1, ("dropped", "other"): 1}
    assert [line.level for line in pipeline.logs] == ([] if result else ["warn"])


# The paths of a program, of which `A` returns something for the event `a` and `B` returns nothing for `b`.
PATHS = {
    "A": [
        "return event",
        "return null",
        "return { 'properties': {} }",
        "throw Error('x')",
        "{ return event }",
    ],
    "B": [
        "",
        "let x := 1",
        "print(1)",
        "return;",
        "{ let y := 2 }",
        "if (event.event = 'a') { return event }",
    ],
}


@pytest.mark.parametrize("with_value", PATHS["A"])
@pytest.mark.parametrize("without", PATHS["B"])
@pytest.mark.parametrize(
    "program",
    [
        "if (event.event = 'a') {{ {A} }} else {{ {B} }}",
        "if (event.event != 'a') {{ {B} }} else if (event.event = 'a') {{ {A} }}",
        "try {{ if (event.event = 'b') {{ throw Error() }} {A} }} catch (e) {{ if (event.event = 'a') {{ {A} }} {B} }}",
        "for (let name in ['a']) {{ if (event.event = name) {{ {A} }} }} {B}",
        "while (true) {{ if (event.event = 'a') {{ {A} }} else {{ {B} return; }} }}",
        "let f := () -> {{ return event }} if (event.event = 'a') {{ {A} }} {B}",
    ],
)
def test_a_path_without_value_is_found_when_saved_and_told_when_it_drops_events(
    bare: Bare, program: str, with_value: str, without: str
) -> None:
    hog = program.format(A=with_value, B=without)
    environment = body_environment("transformation")
    assert "missing-return" in {finding.code for finding in check(hog, environment)}
    runs = [bare.run(hog, name) for name in ("a", "b")]
    assert [run.returned for run in runs] == [True, False], hog
    assert runs[1].value is None
    complete = f"{program.format(A=with_value, B=with_value)} return event"
    assert "missing-return" not in {finding.code for finding in check(complete, environment)}
    assert bare.run(complete, "b").returned


def test_dropped_events_are_counted_in_one_line_a_minute(pipeline: Pipeline) -> None:
    label = pipeline.add("if (event.event = 'kept') { return event }")
    function_id = label.partition("(")[2].rstrip(")")
    kept = Event("kept", uuid=uuid4())
    assert pipeline.run(kept, *(Event(uuid=uuid4()) for _ in range(3))) == [kept]
    pipeline.run(Event(), Event())
    pipeline.clock += timedelta(seconds=59)
    pipeline.run(Event())
    assert [line.message.partition(",")[0] for line in pipeline.logs] == ["3 events were dropped"]
    pipeline.clock += timedelta(seconds=1)
    pipeline.run(kept)
    assert [line.message.partition(",")[0] for line in pipeline.logs] == [
        "3 events were dropped",
        "3 events were dropped",
    ]
    assert {(line.level, line.log_source_id) for line in pipeline.logs} == {("warn", function_id)}
    pipeline.clock += timedelta(hours=1)
    pipeline.run(kept)
    assert len(pipeline.logs) == 2, "there is nothing new to tell"


@pytest.mark.parametrize("name", ["uuid", "timestamp", "elements_chain", "url", "person", "$set"])
def test_changes_that_are_ignored_are_told(pipeline: Pipeline, name: str) -> None:
    pipeline.add(f"let e := event\ne['{name}'] := '2020-01-01T00:00:00Z'\nreturn e")
    before = Event(properties={"a": 1})
    (event,) = pipeline.run(before)
    assert (event.uuid, event.timestamp) == (UUID_1, datetime(2026, 1, 1, 10, tzinfo=UTC))
    assert pipeline.counts() == {("succeeded", "success"): 1}
    (line,) = pipeline.logs
    assert line.level == "warn"
    assert line.message.startswith(f"1 event was returned with another `{name}`: ")


def test_an_unchanged_event_is_not_told(pipeline: Pipeline) -> None:
    pipeline.add("return event")
    pipeline.add(
        "return {'properties': event.properties, 'uuid': event.uuid, 'timestamp': event.timestamp}", "b"
    )
    pipeline.run(Event(properties={"$elements_chain": "a", "$current_url": "https://x.io"}))
    assert pipeline.logs == []


@pytest.mark.parametrize(
    "result",
    ["1", "'x'", "[1]", "{}", "{'properties': null}", "{'properties': [1]}", "{'properties': {}, 'event': 5}",
     "{'properties': {'a': 1}, 'distinct_id': null}", "now()", "x -> x"],
)  # fmt: skip
@rule("H7.3")
def test_results_that_are_no_event_change_nothing(pipeline: Pipeline, result: str) -> None:
    label = pipeline.add(f"return {result}")
    (event,) = pipeline.run(Event(properties={"p": 1}))
    assert event.properties == {"p": 1, "$transformations_failed": [label]}
    assert pipeline.counts() == {("failed", "failure"): 1}
    assert pipeline.logs[0].message.startswith(
        f"Error executing function on event {UUID_1}: Transformation must"
    )


@rule("H7.1")
def test_later_functions_and_filters_see_what_earlier_ones_made(pipeline: Pipeline) -> None:
    pipeline.add(
        "let e := event\ne.event := 'renamed'\ne.distinct_id := 'v'\ne.properties.n := 1\nreturn e", "a"
    )
    pipeline.add(
        "let e := event\ne.properties.seen := concat(e.event, e.distinct_id, e.properties.n)\nreturn e",
        "b",
        filters={"events": [{"id": "renamed"}]},
    )
    (event,) = pipeline.run(Event())
    assert (event.event, event.distinct_id) == ("renamed", "v")
    assert event.properties["seen"] == "renamedv1"


def test_uuid_and_time_cannot_change(pipeline: Pipeline) -> None:
    pipeline.add(
        "let e := event\ne.uuid := 'x'\ne.timestamp := 'y'\ne.properties.t := event.timestamp\nreturn e"
    )
    (event,) = pipeline.run(Event())
    assert event.uuid == UUID_1
    assert event.timestamp == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert event.properties["t"] == "2026-01-01T10:00:00.000Z"


def test_what_programs_see(pipeline: Pipeline) -> None:
    pipeline.add("let e := event\ne.properties := {'seen': {'project': project, 'event': event}}\nreturn e")
    properties = {"$elements_chain": "a.b", "$current_url": "https://x.io"}
    (event,) = pipeline.run(Event(properties=dict(properties)))
    assert event.properties["seen"] == {
        "project": {"id": 1, "name": "", "url": "https://h.example"},
        "event": {
            "uuid": str(UUID_1),
            "event": "$pageview",
            "distinct_id": "u",
            "properties": properties,
            "elements_chain": "a.b",
            "timestamp": "2026-01-01T10:00:00.000Z",
            "url": "https://x.io",
        },
    }


def test_there_are_no_persons_and_nothing_is_sent(pipeline: Pipeline) -> None:
    for number, (code, error) in enumerate(
        (
            ("return person", "Global variable not found: person"),
            ("return fetch('https://x.io')", "fetch is not supported in transformations"),
            ("return postHogCapture({'event': 'x'})", "posthogCapture is not supported in transformations"),
        )
    ):
        pipeline.add(code, f"T{number}")
        pipeline.run(Event())
        assert pipeline.logs[-1].message == f"Error executing function on event {UUID_1}: {error}"
    skipped = pipeline.add(
        "return event", "P", filters={"properties": [{"key": "a", "type": "person", "value": 1}]}
    )
    (event,) = pipeline.run(Event())
    assert event.properties["$transformations_skipped"] == [skipped]


def test_inputs_secrets_and_logs(pipeline: Pipeline) -> None:
    pipeline.add(
        "print('salt', inputs.salt, {'a': inputs.name})\nlet e := event\ne.properties.i := inputs.name\nreturn e",
        inputs_schema=[
            {"key": "salt", "type": "string", "secret": True},
            {"key": "name", "type": "string"},
            {"key": "unset", "type": "string"},
        ],
        inputs={"salt": {"value": "s3cr3t"}, "name": {"value": "{event.event}!"}},
    )
    other = UUID("01990000-0000-7000-8000-000000000002")
    events = pipeline.run(Event("a"), Event("b", uuid=other))
    assert [event.properties["i"] for event in events] == ["a!", "b!"]
    assert [one.message for one in pipeline.logs] == [
        'salt, ***REDACTED***, {"a":"a!"}',
        'salt, ***REDACTED***, {"a":"b!"}',
    ]
    assert {(one.level, one.log_source) for one in pipeline.logs} == {("info", "hog_function")}
    assert [one.instance_id for one in pipeline.logs] == [str(UUID_1), str(other)]


def test_inputs_that_fail(pipeline: Pipeline) -> None:
    label = pipeline.add(
        "return event",
        inputs_schema=[{"key": "a", "type": "string"}],
        inputs={"a": {"value": "{[1][event.properties.at]}"}},
    )
    (event,) = pipeline.run(Event(properties={"at": 0}))
    assert event.properties["$transformations_failed"] == [label]
    assert pipeline.counts() == {("inputs_failed", "failure"): 1}
    assert "Error building inputs: Hog arrays start from index 1" in pipeline.logs[0].message


def test_filters_that_fail_skip_the_function(pipeline: Pipeline) -> None:
    label = pipeline.add(
        "return null", filters={"properties": [{"key": "[1][properties.at] = 1", "type": "hogql"}]}
    )
    (event,) = pipeline.run(Event(properties={"at": 0}))
    assert event.properties["$transformations_skipped"] == [label]
    assert pipeline.counts() == {("filtering_failed", "other"): 1}
    assert pipeline.logs[0].message == f"Error filtering event {UUID_1}: Hog arrays start from index 1"


def test_results_have_a_largest_size(pipeline: Pipeline) -> None:
    text = "let s := 'x' while (length(s) < 4194304) { s := concat(s, s) } "
    label = pipeline.add(text + "return {'properties': {'s': s}}")
    (event,) = pipeline.run(Event(properties={"p": 1}))
    assert event.properties == {"p": 1, "$transformations_failed": [label]}
    assert pipeline.logs[0].message.endswith("The transformed event has 4194327 bytes; 4194304 are allowed")


@rule("H7.4")
def test_runaway_code_is_stopped_and_the_event_kept(pipeline: Pipeline) -> None:
    label = pipeline.add("while (true) {}", "loop")
    (event,) = pipeline.run(Event())
    assert event.properties["$transformations_failed"] == [label]
    assert "Execution timed out after 1 seconds" in pipeline.logs[0].message


def test_what_the_watcher_stopped_is_passed_over(pipeline: Pipeline) -> None:
    pipeline.add("return event", "healthy")
    label = pipeline.add("return null", "stopped")
    stopped_id = label.partition("(")[2].rstrip(")")
    pipeline.stopped.add(stopped_id)
    (event,) = pipeline.run(Event())
    assert event.properties["$transformations_skipped"] == [label]
    assert ("disabled_permanently", "failure") in pipeline.counts()
    assert stopped_id not in pipeline.watched
    assert len(pipeline.watched) == 1


def test_what_was_slow_for_long_is_given_up_earlier(pipeline: Pipeline) -> None:
    label = pipeline.add("while (true) {}", "loop")
    pipeline.slowed.add(label.partition("(")[2].rstrip(")"))
    events = pipeline.run(*(Event(uuid=uuid4()) for _ in range(4)))
    assert [event.properties["$transformations_failed"] for event in events] == [[label]] * 4
    assert len(pipeline.watched) == 1, "the others were not tried"


def test_what_a_project_may_take_of_a_batch_is_limited(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformations, "PROJECT_SLOW_S", 0.5)
    pipeline.add("if (event.properties.first) { while (true) {} } return event", "first")
    last = pipeline.add("while (true) {}", "last")
    events = pipeline.run(Event(properties={"first": True}), *(Event(uuid=uuid4()) for _ in range(3)))
    assert all(last in event.properties["$transformations_failed"] for event in events)
    assert len(pipeline.watched) == 4 + 1, "of the second function one run was tried"


def test_slow_filters_and_inputs_are_told_to_the_watcher(pipeline: Pipeline) -> None:
    slow = "arrayExists(a -> arrayExists(b -> a + b = 0.5, range(99999)), range(99999))"
    label = pipeline.add("return event", filters={"properties": [{"type": "hogql", "key": slow}]})
    pipeline.run(Event())
    assert pipeline.watched == [label.partition("(")[2].rstrip(")")]


def test_the_order_is_the_execution_order(pipeline: Pipeline, api: Api) -> None:
    append = "let e := event\ne.properties.o := concat(e.properties.o, '{}')\nreturn e"
    first, second = (
        pipeline.add(append.format(name), name, execution_order=order) for name, order in (("a", 2), ("b", 1))
    )
    (event,) = pipeline.run(Event())
    assert event.properties["o"] == "ba"
    ids = [label.partition("(")[2].rstrip(")") for label in (first, second)]
    assert api.patch("/hog_functions/rearrange/", {"orders": {ids[0]: 1, ids[1]: 2}}).status_code == 200
    (event,) = pipeline.run(Event())
    assert event.properties["o"] == "ab"


def test_values_survive_a_transformation_that_returns_the_event(pipeline: Pipeline) -> None:
    pipeline.add("return event")
    properties: dict[str, Any] = {
        "float": 1.5,
        "whole": 1.0,
        "large": 2**62,
        "text": "Ünï\u2028",
        "nested": [{"a": [None, True]}],
        "$set": {"name": "x"},
        "10": "b",
        "9": "a",
    }
    (event,) = pipeline.run(Event(properties=dict(properties)))
    event.properties.pop("$transformations_succeeded")
    assert event.properties == properties


def test_cleaning_nulls() -> None:
    value = {"a": None, "b": {"c": None, "d": {"e": None, "f": {"g": None}}}, "l": [None, 1, [None]]}
    assert clean_null_values(value) == {"b": {"d": {"f": {"g": None}}}, "l": [1, []]}


@given(
    st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_cleaning_leaves_no_null_near_the_top(value: Any) -> None:
    cleaned = clean_null_values(value)
    members = cleaned.values() if isinstance(cleaned, dict) else cleaned if isinstance(cleaned, list) else [1]
    assert None not in members


def test_bots() -> None:
    assert is_known_bot_user_agent("Mozilla/5.0 (compatible; Googlebot/2.1)")
    assert not is_known_bot_user_agent("Mozilla/5.0 (Macintosh) Chrome/120")
    assert not is_known_bot_user_agent(None)
    assert is_known_bot_ip("66.249.66.1")
    assert not is_known_bot_ip("203.0.113.1")
    assert not is_known_bot_ip("nonsense")
