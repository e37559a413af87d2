"""Transformations that mean harm, and kill -9 of the process that runs them: no event is lost, nobody else waits long.

``make soak`` kills 200 times, and tries all of the programs.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import httpx
import orjson
import pytest
from tests.conftest import free_port
from tests.forked import ForkedServer
from tests.generated import SEED
from tests.waiting import wait_for

from hoglab.delivery.bodies import transforming
from hoglab.delivery.bodies.child import BodyLimits
from hoglab.delivery.bodies.transforming import GIVEN_UP, TransformationProcess
from hoglab.demo.api import Api
from hoglab.functions.body_run import BodyRun

KILLS = int(os.environ.get("HOGLAB_TEST_BODY_KILLS", "12"))
TRIED = int(os.environ.get("HOGLAB_TEST_HOSTILE", "8"))

LARGE = "let s := 'x' for (let i := 0; i < 22; i := i + 1) { s := concat(s, s) } "
DEEP = "let a := [1] for (let i := 0; i < 60; i := i + 1) { a := [a, a] } "

HOSTILE = {
    "loops": "while (true) {}",
    "nested loops": "let r := range(100000) for (let a in r) { for (let b in r) { upper('x') } }",
    "catches": "while (true) { try { throw Error('again') } catch { } }",
    "recurses": "fn f(n) { return f(n + 1) } return f(0)",
    "recurses widely": "fn f(n) { if (n > 0) { f(n - 1) f(n - 1) } } return f(60)",
    "recurses in callbacks": "let f := x -> arrayMap(f, [x]) return f(1)",
    "maps in maps": "let r := range(900) return arrayMap(a -> arrayMap(b -> arrayMap(c -> 1, r), r), r)",
    "doubles": "let s := 'x' while (true) { s := concat(s, s) }",
    "keeps": "let a := [] while (true) { a := arrayPushBack(a, concat('text of its own ', length(a))) }",
    "ranges": "return range(1000000000)",
    "reaches far": "let a := [] a[1000000000] := 1 return a",
    "squares": "let n := 9007199254740993 while (true) { n := n * n }",
    "replaces": "let s := 'ab' while (true) { s := replaceAll(s, 'a', concat(s, s)) }",
    "sorts": "let a := range(1000000) while (true) { a := arraySort(arrayReverse(a)) }",
    "sorts texts": LARGE + "let a := arrayMap(x -> concat(s, x), range(12)) while (true) { a := arraySort(a) }",
    "matches": LARGE + "while (true) { match(s, '(x+x+)+y') }",
    "matches counted": LARGE + "while (true) { match(s, '((x{1,30}){1,30})y') }",
    "compiles patterns": "let i := 0 while (true) { i := i + 1 match('a', concat('(x{1,900}y{1,90})', i)) }",
    "likes": LARGE + "while (true) { s ilike '%x_x%x_x%x_x%y' }",
    "splits": LARGE + "while (true) { splitByString('x', s) }",
    "hashes": LARGE + "while (true) { sha256Hex(s) }",
    "decodes": LARGE + "while (true) { decodeURLComponent(encodeURLComponent(s)) }",
    "compares": LARGE + "let t := concat(s, '') while (true) { s = t }",
    "reads numbers": LARGE + "let n := replaceAll(s, 'x', '7') while (true) { toInt(n) }",
    "parses": "let s := jsonStringify(range(300000)) while (true) { jsonParse(s) }",
    "parses deep": LARGE + "let t := replaceAll(s, 'x', '[') while (true) { try { jsonParse(t) } catch {} }",
    "prints": "while (true) { print(range(3000)) }",
    "prints a bomb": DEEP + "print(a) return null = 1",
    "writes a bomb": DEEP + "return jsonStringify(a)",
    "returns a bomb": DEEP + "return {'properties': {'a': a}}",
    "returns depth": "let a := [1] for (let i := 0; i < 99999; i := i + 1) { a := [a] } return {'properties': a}",
    "returns bulk": LARGE + "return {'properties': {'a': arrayMap(x -> concat(s, x), range(8))}}",
    "returns no event": "return 1",
    "cleans": "let a := arrayMap(x -> range(1000), range(1000)) while (true) { cleanNullValues(a) }",
    "asks for bots": LARGE + "while (true) { isKnownBotUserAgent(s) isKnownBotIp(s) }",
}  # fmt: skip
"""Programs that come to no good end."""

GOOD = "return {'properties': {'seen': event.properties.n}}"
SHARED = orjson.dumps({"project": {"id": 1, "name": "", "url": ""}, "inputs": {}})


def events(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield orjson.dumps({"event": {"uuid": f"e{number}", "event": "x", "properties": {"n": number}}})


def answers(process: TransformationProcess, source: str, given: Iterable[bytes]) -> list[BodyRun]:
    with closing(process.run("f", source, SHARED, given)) as runs:
        return list(runs)


def seen(runs: list[BodyRun]) -> list[Any]:
    return [None if run.value is None else orjson.loads(run.value)["properties"]["seen"] for run in runs]


@pytest.fixture
def process() -> Iterator[TransformationProcess]:
    process = TransformationProcess()
    yield process
    process.close()


@pytest.mark.faults
@pytest.mark.slow
def test_hostile_transformations_end_and_cost_no_one_else(process: TransformationProcess) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    for name, source in random.Random(SEED).sample(sorted(HOSTILE.items()), min(TRIED, len(HOSTILE))):
        [run] = answers(process, source, events(1))
        assert run.error is not None or run.value == b"1", name
        # What the language allows, and what may pass between two looks at its clock.
        assert run.used_s <= 2.5, name
        assert seen(answers(process, GOOD, events(3))) == [0, 1, 2], name


@pytest.mark.faults
def test_a_function_that_is_slow_again_and_again_is_given_up_for_the_batch(
    process: TransformationProcess,
) -> None:
    runs = answers(process, "if (event.properties.n % 10 = 0) { while (true) {} } " + GOOD, events(1000))
    ran = [run for run in runs if not run.given_up]
    slow = [run for run in ran if run.error is not None]
    assert 3 <= len(slow) <= 5
    assert seen([run for run in ran if run.error is None]) == [n for n in range(len(ran)) if n % 10]
    assert {run.error for run in runs[len(ran) :]} == {GIVEN_UP}
    assert len(runs) == 1000
    assert seen(answers(process, GOOD, events(1000))) == list(range(1000))  # the next batch begins anew


@pytest.mark.faults
def test_results_of_a_batch_have_a_largest_size(
    process: TransformationProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforming, "BATCH_BYTES", 1 << 20)
    grows = "let s := 'x' while (length(s) < 100000) { s := concat(s, s) } return {'properties': {'s': s}}"
    runs = answers(process, grows, events(1000))
    kept = [run for run in runs if not run.given_up]
    assert sum(len(run.value or b"") for run in kept) < (1 << 20) + (9 << 20)  # and what one answer may hold
    assert len(runs) == 1000
    assert all(run.given_up for run in runs[len(kept) :])


@pytest.mark.faults
def test_the_kernel_ends_what_the_language_does_not() -> None:
    """The wall stands before the language's own limit here, as if that did not work."""
    process = TransformationProcess(BodyLimits(grace_s=-0.9))
    try:
        source = "if (event.properties.n = 7) { while (true) {} } " + GOOD
        runs = answers(process, source, events(300))
        assert seen(runs) == [None if n == 7 else n for n in range(300)]
        assert runs[7].error == "Execution timed out after 1 seconds."
        assert sum(run.error is not None for run in runs) == 1
    finally:
        process.close()


@pytest.mark.faults
def test_memory_beyond_the_address_space_fails_the_run_only() -> None:
    process = TransformationProcess(BodyLimits(memory_bytes=220 << 20))
    try:
        source = "if (event.properties.n = 7) { return arrayMap(x -> [x, [x]], range(900000)) } " + GOOD
        runs = answers(process, source, events(20))
        assert seen(runs) == [None if n == 7 else n for n in range(20)]
        assert runs[7].error is not None
    finally:
        process.close()


@pytest.mark.faults
@pytest.mark.timeout(900 + 10 * KILLS)
def test_killed_processes_lose_no_event(process: TransformationProcess) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    batch, deaths = 2_000, 0

    def given() -> Iterator[bytes]:
        """Kills the process while the events of a batch are asked for."""
        nonlocal deaths
        moments = {dice.randrange(batch)}
        for number, text in enumerate(events(batch)):
            running = process.process()
            if number in moments and running is not None:
                os.kill(running, signal.SIGKILL)
                deaths += 1
            yield text

    while deaths < KILLS:
        runs = answers(process, GOOD, given())
        assert [run.error for run in runs if run.error is not None] == []
        assert seen(runs) == list(range(batch))


@pytest.mark.faults
def test_who_goes_away_early_leaves_no_answers_behind(process: TransformationProcess) -> None:
    with closing(process.run("f", GOOD, SHARED, events(1000))) as runs:
        next(runs)
    assert seen(answers(process, GOOD, events(10))) == list(range(10))


@pytest.mark.faults
def test_closing_ends_what_runs() -> None:
    process = TransformationProcess()
    found: list[BaseException] = []

    def wait() -> None:
        try:
            answers(process, "while (true) {}", events(1))
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while process.process() is None:
        pass
    process.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(found) == 1
    assert process.process() is None


@pytest.mark.faults
@pytest.mark.slow
def test_a_server_outlives_a_hostile_transformation(tmp_path: Any) -> None:
    """All of its events are stored, as they were, and so is what comes behind them."""
    server = ForkedServer(
        data=tmp_path, host="127.0.0.1", port=free_port(), environment={"HOGLAB_ACCESS_LOG": "false"}
    )
    server.start()
    try:
        api = Api(server.url, server.api_key)
        hostile = {"name": "Loop", "type": "transformation", "enabled": True, "hog": "while (true) {}"}
        api.create_hog_function(hostile)
        batch = [{"event": "e", "distinct_id": f"d{n % 5}", "properties": {"n": n}} for n in range(400)]
        with httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {server.api_key}"}
        ) as client:
            sent = client.post("/batch/", json={"api_key": server.project_token, "batch": batch})
            assert sent.status_code == 200

            def stored() -> list[Any]:
                found = client.get("/api/projects/1/events/", params={"limit": 1000, "event": "e"}).json()
                results: list[Any] = found["results"]
                return results

            wait_for(lambda: len(stored()) == 400)
            properties = [event["properties"] for event in stored()]
        assert sorted(each["n"] for each in properties) == list(range(400))
        assert all("$transformations_failed" in each for each in properties)
    finally:
        server.close()
