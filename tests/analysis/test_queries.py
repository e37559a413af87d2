"""Kept answers, asynchronous queries, cancelling: what surrounds a query over the API."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.lab import NOW, REVENUE, Lab, bought, exposed
from tests.embedded import EmbeddedEventStore, EmbeddedReader
from tests.waiting import PATIENCE_S

from hoglab.analysis.timeseries import query_cache as queries
from hoglab.analysis.timeseries import query_status
from hoglab.storage.event_store import QueryCancelledError, QueryTimeoutError

START = datetime(2026, 3, 8, 9, 0, tzinfo=UTC)
ENDLESS = "SELECT count(*) FROM range(1000000000000) AS a(i) WHERE hash(i) = 1"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.service.query_runner.stop()
    lab.close()


@pytest.fixture
def query(lab: Lab) -> dict[str, Any]:
    experiment = lab.experiment(start_date=START.isoformat())
    lab.send([exposed("ann", "control", START), bought("ann", START, 5), exposed("bob", "test", START)])
    return {"kind": "ExperimentQuery", "experiment_id": experiment["id"], "metric": REVENUE}


def ask(lab: Lab, query: dict[str, Any], *, status: int = 200, **options: Any) -> dict[str, Any]:
    return lab.ok("POST", "/query/", {"query": query, **options}, status=status)  # type: ignore[no-any-return]


def ended(lab: Lab, identifier: str, *, status: int = 200) -> dict[str, Any]:
    """The status once the query has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = lab.call("GET", f"/query/{identifier}/")
        if answer.status_code != 202:
            assert answer.status_code == status, answer.text
            return answer.json()["query_status"]  # type: ignore[no-any-return]
        assert answer.json()["query_status"]["complete"] is False
    raise AssertionError("the query did not end")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Makes every statement endless; set once one runs."""
    running = threading.Event()
    execute = EmbeddedReader.execute

    def endless(reader: EmbeddedReader, sql: str, *_: Any, **__: Any) -> Any:
        running.set()
        return execute(reader, ENDLESS, timeout_s=PATIENCE_S)

    monkeypatch.setattr(EmbeddedReader, "execute", endless)
    return running


def test_an_answer_is_kept_until_an_event_comes(lab: Lab, query: dict[str, Any]) -> None:
    first = ask(lab, query)
    lab.now += timedelta(hours=1)
    again = ask(lab, query)
    assert (first["is_cached"], again["is_cached"]) == (False, True)
    assert again["last_refresh"] == first["last_refresh"]
    assert again["cache_key"] == first["cache_key"]
    assert again["baseline"] == first["baseline"]
    lab.send([bought("ann", START, 7)])
    new = ask(lab, query)
    assert (new["is_cached"], new["baseline"]["sum"]) == (False, 12)


def test_a_query_that_did_not_end_is_not_tried_again_at_once(
    lab: Lab, query: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def too_long(*_: Any, **__: Any) -> Any:
        tried.append(lab.now)
        raise QueryTimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedReader, "execute", too_long)
        waits = []
        for _ in range(4):
            before = len(tried)
            for blocking in ("force_blocking", "blocking"):
                refused = lab.call("POST", "/query/", {"query": query, "refresh": blocking})
                assert refused.status_code == 429, refused.text
                assert "time limit" in refused.json()["detail"]
                waits.append(int(refused.headers["Retry-After"]))
            assert len(tried) > before
            at_once, before = waits[-1], len(tried)
            ask(lab, query, refresh="force_blocking", status=429)
            assert len(tried) == before, "it costs nothing"
            lab.now += timedelta(seconds=at_once)
        assert waits == [30, 30, 60, 60, 120, 120, 240, 240]
    assert ask(lab, query, refresh="force_blocking")["baseline"]["sum"] == 5
    other = {**query, "metric": {**REVENUE, "threshold": 1}}
    assert ask(lab, other)["is_cached"] is False


def test_what_decides_the_numbers_decides_the_key(lab: Lab, query: dict[str, Any]) -> None:
    keys = {ask(lab, query)["cache_key"]}
    keys.add(ask(lab, {**query, "metric": {**REVENUE, "threshold": 1}})["cache_key"])
    lab.ok("PATCH", f"/experiments/{query['experiment_id']}/", {"stats_config": {"method": "frequentist"}})
    changed = ask(lab, query)
    assert changed["variant_results"][0]["method"] == "frequentist"
    assert len(keys | {changed["cache_key"]}) == 3


def test_a_new_day_and_a_whole_day_make_an_answer_stale(lab: Lab, query: dict[str, Any]) -> None:
    ask(lab, query)
    lab.now = NOW.replace(hour=23, minute=59)
    assert ask(lab, query)["is_cached"] is True
    lab.now = NOW + timedelta(hours=12)
    assert ask(lab, query)["is_cached"] is False, "days are counted"
    assert ask(lab, query)["is_cached"] is True


def test_forcing_computes_and_forbidding_does_not(lab: Lab, query: dict[str, Any]) -> None:
    missing = ask(lab, query, refresh="force_cache")
    assert "baseline" not in missing
    assert (missing["is_cached"], missing["query_status"]) == (False, None)
    ask(lab, query)
    assert ask(lab, query, refresh=True)["is_cached"] is False
    assert ask(lab, query, refresh="force_blocking")["is_cached"] is False
    lab.send([bought("ann", START, 7)])
    for way in (False, "force_cache", "lazy_async"):
        old = ask(lab, query, refresh=way)
        assert (old["is_cached"], old["baseline"]["sum"]) == (True, 5), way


def test_exposures_are_kept_too(lab: Lab, query: dict[str, Any]) -> None:
    counting = {"kind": "ExperimentExposureQuery", "feature_flag": {"key": "checkout"}}
    counting["experiment_id"] = query["experiment_id"]
    assert ask(lab, counting)["is_cached"] is False
    found = ask(lab, counting)
    assert (found["is_cached"], found["total_exposures"]) == (True, {"control": 1, "test": 1})


@pytest.mark.parametrize("options", [{"refresh": "async"}, {"refresh": "force_async"}, {"async": True}])
def test_an_asynchronous_query_is_answered_later(
    lab: Lab, query: dict[str, Any], options: dict[str, Any]
) -> None:
    status = ask(lab, query, status=202, **options)["query_status"]
    assert (status["complete"], status["query_async"], status["team_id"]) == (False, True, 1)
    done = ended(lab, status["id"])
    assert (done["complete"], done["error"]) == (True, False)
    assert done["results"]["baseline"]["sum"] == 5
    assert ask(lab, query, refresh="async")["is_cached"] is True, "fresh now, so it is answered at once"


def test_a_stale_answer_is_shown_while_a_new_one_is_computed(lab: Lab, query: dict[str, Any]) -> None:
    first = ask(lab, query, refresh="async_except_on_cache_miss")
    assert first["is_cached"] is False
    lab.send([bought("ann", START, 7)])
    old = ask(lab, query, refresh="async_except_on_cache_miss", status=202)
    assert old["baseline"]["sum"] == 5
    assert ended(lab, old["query_status"]["id"])["results"]["baseline"]["sum"] == 12


def test_a_running_query_is_joined_and_can_be_cancelled(
    lab: Lab, query: dict[str, Any], slow: threading.Event
) -> None:
    status = ask(lab, query, status=202, refresh="async", client_query_id="mine")["query_status"]
    assert status["id"] == "mine"
    assert slow.wait(PATIENCE_S)
    assert ask(lab, query, status=202, refresh="async")["query_status"]["id"] == "mine", "not computed twice"
    assert lab.call("DELETE", "/query/mine/").status_code == 204
    done = ended(lab, "mine", status=400)
    assert (done["error"], done["error_message"], done["results"]) == (True, "Query was cancelled", None)


def test_a_blocking_query_can_be_cancelled_by_its_clients_id(
    lab: Lab, query: dict[str, Any], slow: threading.Event
) -> None:
    def cancel() -> None:
        assert slow.wait(PATIENCE_S)
        assert lab.service.query_runner.cancel(1, "mine")

    helper = threading.Thread(target=cancel)
    helper.start()
    answer = ask(lab, query, status=400, client_query_id="mine")
    helper.join()
    assert answer["detail"] == "Query was cancelled"


def test_a_query_beyond_its_time_is_refused_and_the_server_goes_on(
    lab: Lab, query: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = EmbeddedReader.execute
    with monkeypatch.context() as patch:
        patch.setattr(
            EmbeddedReader, "execute", lambda reader, *_, **__: execute(reader, ENDLESS, timeout_s=0.2)
        )
        assert "exceeded the time limit" in ask(lab, query, status=429)["detail"]
    lab.now += timedelta(seconds=30)
    assert ask(lab, query)["baseline"]["sum"] == 5


def test_a_query_beyond_its_memory_is_refused_and_the_server_goes_on(
    lab: Lab, query: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = EmbeddedReader.execute
    big = "SELECT max(len(l)) FROM (SELECT list(i) AS l FROM range(400000000) AS a(i))"
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedReader, "execute", lambda reader, *_, **__: execute(reader, big))
        assert ask(lab, query, status=429)["detail"] == "Query exceeded the memory limit"
    lab.now += timedelta(seconds=30)
    assert ask(lab, query)["baseline"]["sum"] == 5


def test_waiting_queries_are_bounded(
    lab: Lab, query: dict[str, Any], slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_WAITING", 1)
    ask(lab, query, status=202, refresh="async")
    other = {**query, "metric": {**REVENUE, "threshold": 1}}
    assert ask(lab, other, status=429, refresh="async")["detail"] == "Too many queries are waiting"


def test_kept_answers_and_statuses_are_bounded(
    lab: Lab, query: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_CACHED", 1)
    monkeypatch.setattr(query_status, "MAX_STATUSES", 1)
    first = ask(lab, query, status=202, refresh="async")["query_status"]["id"]
    ended(lab, first)
    other = {**query, "metric": {**REVENUE, "threshold": 1}}
    ended(lab, ask(lab, other, status=202, refresh="async")["query_status"]["id"])
    assert lab.call("GET", f"/query/{first}/").status_code == 404
    assert "baseline" not in ask(lab, query, refresh="force_cache")


def test_bad_options_are_refused(lab: Lab, query: dict[str, Any]) -> None:
    assert ask(lab, query, status=400, refresh="now")["attr"] == "refresh"
    assert lab.call("GET", "/query/nothing/").status_code == 404
    assert lab.call("DELETE", "/query/nothing/").status_code == 204


def test_a_reader_is_interrupted(tmp_path: Path) -> None:
    store = EmbeddedEventStore(tmp_path / "events.duckdb", threads=1)
    with store.reader() as reader:
        caught: list[BaseException] = []

        def run() -> None:
            try:
                reader.execute(ENDLESS)
            except QueryCancelledError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():  # it may not have begun when it is interrupted first
            reader.interrupt()
            thread.join(0.05)
        assert len(caught) == 1
        with store.reader() as other:
            assert other.execute("SELECT 1") == [(1,)]
    store.close()
