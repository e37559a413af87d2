"""Running functions on stored events (spec: hog-runtime 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.delivery.conftest import House, Receiver, stored
from tests.delivery.test_dead_letters import letters
from tests.delivery.test_routes import Api
from tests.embedded import EmbeddedEventStore
from tests.waiting import wait_for

from hoglab.accounts.bootstrap import FirstStart
from hoglab.background import RETRY_S
from hoglab.delivery.api.backfill_routes import backfill_router
from hoglab.delivery.replay import backfills as rules
from hoglab.delivery.replay.backfills import Backfills
from hoglab.delivery.replay.reruns import RerunFilter, rerun
from hoglab.storage.event_store import EventBatch, EventStoreUnavailableError
from hoglab.storage.event_store.history import TimeRange
from hoglab.storage.event_store.ingested import IngestedEvent
from hoglab.storage.invocations import InvocationBatch, JobKind, JobOverError, JobRunsError, ReplayJob
from hoglab.storage.job_leases import JobLeases, JobName

TELL = "fetch(inputs.url, {'body': {'n': event.properties.n, 'email': person.properties.email}})"
DAY = datetime(2026, 1, 1, 10, tzinfo=UTC)
EVER = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))


@dataclass
class History:
    """Stored events, and what runs functions on them."""

    house: House
    store: EmbeddedEventStore
    offset: int = 0

    @property
    def backfills(self) -> Backfills:
        return Backfills(self.house.delivery, self.store, JobLeases(self.house.database))

    def keep(self, *events: IngestedEvent) -> Sequence[IngestedEvent]:
        self.offset += 1
        rows = [replace(event.row, log_offset=self.offset) for event in events]
        self.store.append(EventBatch(rows), log_offset=self.offset)
        return events

    def keep_numbers(self, count: int, **options: Any) -> Sequence[IngestedEvent]:
        return self.keep(*(stored("past", {"n": n}, **options) for n in range(count)))

    def begin(self, function: dict[str, Any], **options: Any) -> ReplayJob:
        options = {"max_events": None, "dry_run": False, **options}
        since, until = options.pop("range", EVER)
        return self.backfills.begin(1, function["id"], since, until, **options)

    def finish(self, job: ReplayJob, backfills: Backfills | None = None) -> ReplayJob:
        """Do all steps of a backfill here."""
        backfills = backfills or self.backfills
        while backfills.running():
            backfills.step(self.read(job))
        return self.read(job)

    def read(self, job: ReplayJob) -> ReplayJob:
        now = self.backfills.get(1, job.function_id, job.id)
        assert now is not None
        return now


@pytest.fixture
def history(house: House) -> Iterator[History]:
    store = EmbeddedEventStore(house.folder / "events.duckdb", memory="256MB")
    yield History(house, store)
    store.close()


def counts(job: ReplayJob) -> tuple[Any, ...]:
    return tuple(getattr(job, name) for name in ("status", "total", "seen", "queued", "already_run"))


def test_events_come_back_as_they_went_in(house: House, history: History) -> None:
    event = stored(
        "signup", {"a": [1, {"b": None}]}, person={"email": "a@x"}, groups={0: "acme", 3: "t"}, chain='a:href="/"'
    )  # fmt: skip
    history.keep(stored("other"), event, stored("foreign", project_id=2))
    with history.store.reader() as reader:
        wanted = TimeRange(1, *EVER)
        extent = wanted.extent(reader)
        assert extent is not None
        assert extent.count == 2
        [_, (seq, row)] = wanted.window(reader, extent.first_seq - 1, extent.last_seq)
        assert TimeRange(9, *EVER).extent(reader) is None
    assert seq == extent.first_seq + 1
    assert row == replace(event.row, log_offset=1)


def test_a_function_runs_on_what_came_before_it(house: House, receiver: Receiver, history: History) -> None:
    history.keep_numbers(3, person={"email": "a@x"})
    history.keep(stored("other"))
    function = house.create(
        TELL, values={"url": receiver.url}, filters={"events": [{"id": "past", "type": "events"}]}
    )
    job = history.begin(function)
    assert counts(job) == ("running", 4, 0, 0, 0)
    done = history.finish(job)
    assert counts(done) == ("completed", 4, 4, 3, 0)
    house.run()
    sent = sorted((hit.json for hit in receiver.hits), key=lambda body: body["n"])
    assert sent == [{"n": n, "email": "a@x"} for n in range(3)]
    assert house.metrics(function)["succeeded"] == 3
    texts = [text for _, text in house.logs(function)]
    assert "Backfill of 4 events begins." in texts
    assert "Backfill completed: 4 of 4 events, 3 runs." in texts


def test_repeating_it_delivers_nothing_twice(house: House, receiver: Receiver, history: History) -> None:
    events = history.keep_numbers(3)
    function = house.create(TELL, values={"url": receiver.url})
    house.run(events[0])  # came live
    for already_run in (1, 3):
        done = history.finish(history.begin(function))
        house.run()
        house.queue.sweep()
        assert (done.queued, done.already_run) == (3 - already_run, already_run)
    assert len(receiver.hits) == 3


def test_what_was_cancelled_may_be_made_up_for(house: House, receiver: Receiver, history: History) -> None:
    [event] = history.keep_numbers(1)
    function = house.create(TELL, values={"url": receiver.url})
    house.dispatch(event)
    house.change(function, enabled=False)
    house.run()
    with house.queue_database.write() as tx:
        tx.connection.exec_driver_sql("DELETE FROM invocation")  # as the janitor does after a while
    house.change(function, enabled=True)
    assert history.finish(history.begin(function)).queued == 1


def test_only_the_range_and_the_first_so_many(house: House, history: History) -> None:
    function = house.create()
    for hours in range(6):
        event = stored(properties={"n": hours})
        history.keep(
            IngestedEvent(replace(event.row, timestamp=DAY + timedelta(hours=hours)), event.properties)
        )
    one_to_four = (DAY + timedelta(hours=1), DAY + timedelta(hours=4))
    done = history.finish(history.begin(function, range=one_to_four, dry_run=True))
    assert counts(done) == ("completed", 3, 3, 3, 0)
    done = history.finish(history.begin(function, range=one_to_four, max_events=2, dry_run=True))
    assert counts(done) == ("completed", 2, 2, 2, 0)
    nothing = history.begin(function, range=(EVER[0], EVER[0] + timedelta(days=1)))
    assert counts(nothing) == ("completed", 0, 0, 0, 0)


def test_a_dry_run_changes_nothing(house: House, history: History) -> None:
    history.keep_numbers(3)
    function = house.create()
    assert counts(history.finish(history.begin(function, dry_run=True))) == ("completed", 3, 3, 3, 0)
    assert house.queue.counts.backlog() == 0
    assert house.metrics(function) == {}
    assert counts(history.finish(history.begin(function))) == ("completed", 3, 3, 3, 0)


def test_it_goes_on_where_it_was_when_the_server_died(
    house: House, receiver: Receiver, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "WINDOW", 2)
    history.keep_numbers(7)
    function = house.create(TELL, values={"url": receiver.url})
    job = history.begin(function)
    history.backfills.step(history.read(job))
    assert counts(history.read(job)) == ("running", 7, 2, 2, 0)

    stale = history.read(job)
    dispatcher = house.delivery.dispatcher_for(1, "events", function["id"])
    assert dispatcher is not None

    def die(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(house.queue, "enqueue", die)
        with pytest.raises(KeyboardInterrupt):
            history.backfills.step(stale)
    house.restart()
    assert counts(history.finish(job)) == ("completed", 7, 7, 7, 0)
    history.backfills.step(stale)  # a step that another process did already
    assert counts(history.read(job)) == ("completed", 7, 7, 7, 0)
    house.run()
    assert sorted(hit.json["n"] for hit in receiver.hits) == list(range(7))


@pytest.mark.parametrize("corrections", [1, 3])
def test_events_that_are_corrected_while_it_runs_are_among_them(
    house: House,
    receiver: Receiver,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    corrections: int,
) -> None:
    """Before its beginning, and in each window: one that was read, one that is read next, and the last."""
    monkeypatch.setattr(rules, "WINDOW", 3)
    events = history.keep_numbers(9)

    def correct(*numbers: int) -> None:
        for version in range(corrections):
            history.keep(*(stored("past", {"n": n, "v": version}, uuid=events[n].row.uuid) for n in numbers))

    correct(0)
    function = house.create(TELL.replace("'n'", "'v': event.properties.v, 'n'"), values={"url": receiver.url})
    job = history.begin(function)
    assert job.total == 9
    correct(0, 5, 8)
    for numbers in ((1, 4), (1, 4, 7), ()):
        history.backfills.step(history.read(job))
        correct(*numbers)
    done = history.finish(job)
    assert (done.status, done.seen, done.queued) == ("completed", 9, 9)
    house.run()
    last = corrections - 1
    assert sorted((hit.json["n"], hit.json["v"]) for hit in receiver.hits) == [
        (0, last), (1, None), (2, None), (3, None), (4, last), (5, last), (6, None), (7, last), (8, last),
    ]  # fmt: skip


def test_events_that_share_a_uuid_are_all_run_on_once(
    house: House, receiver: Receiver, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came live before do not run again, those that came again since run in their last version."""
    monkeypatch.setattr(rules, "WINDOW", 2)
    shared = uuid4()

    def event(number: int, version: int = 0) -> IngestedEvent:
        made = stored("past", {"n": number, "v": version}, distinct_id=f"u{number // 2}", uuid=shared)
        return IngestedEvent(replace(made.row, timestamp=DAY + timedelta(days=number % 2)), made.properties)

    events = history.keep(*map(event, range(6)))
    function = house.create(TELL.replace("'n'", "'v': event.properties.v, 'n'"), values={"url": receiver.url})
    house.run(events[0], events[3])
    history.keep(event(0, 1), event(4, 1))
    done = history.finish(history.begin(function))
    assert counts(done) == ("completed", 6, 6, 4, 2)
    house.run()
    told = sorted((hit.json["n"], hit.json["v"]) for hit in receiver.hits)
    assert told == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 0)]


def test_a_cancelled_one_ends_and_a_step_at_hand_enqueues_nothing(
    house: House, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "WINDOW", 2)
    history.keep_numbers(6)
    function = house.create()
    job = history.begin(function)
    backfills = history.backfills
    backfills.step(history.read(job))
    at_hand = history.read(job)
    cancelled = backfills.cancel(1, function["id"], job.id)
    assert cancelled is not None
    assert counts(cancelled) == ("cancelled", 6, 2, 2, 0)
    backfills.step(at_hand)
    assert house.queue.counts.backlog() == 2
    assert backfills.running() == []
    assert backfills.cancel(1, function["id"], job.id) == cancelled


def test_one_at_a_time_of_a_function(house: House, history: History) -> None:
    history.keep_numbers(1)
    function, other = house.create(), house.create()
    job = history.begin(function)
    with pytest.raises(JobRunsError):
        history.begin(function)
    history.begin(other)
    history.backfills.cancel(1, function["id"], job.id)
    history.begin(function)


def test_a_function_that_is_disabled_meanwhile_ends_it(house: House, history: History) -> None:
    history.keep_numbers(1)
    function = house.create()
    job = history.begin(function)
    house.change(function, enabled=False)
    done = history.finish(job)
    assert (done.status, done.error) == ("failed", rules.DISABLED)


def test_events_that_cannot_be_dealt_with_are_put_aside(house: House, history: History) -> None:
    history.keep(stored(properties={"a": "x", "b": "("}), stored(properties={"a": "x", "b": "x"}))
    bad = {"properties": [{"type": "hogql", "key": "match(properties.a, properties.b)"}]}
    function = house.create(filters=bad)
    done = history.finish(history.begin(function))
    assert (done.queued, done.dead_letters) == (1, 1)
    assert [letter["step"] for letter in letters(house, function_id=function["id"])] == ["filter"]


def test_live_events_go_first(house: House, history: History) -> None:
    history.keep_numbers(2)
    function = house.create()
    history.finish(history.begin(function))
    live = stored("live")
    house.dispatch(live)
    [claimed] = house.queue.claim(limit=1)
    assert b'"live"' in claimed.state


def test_the_service_works_in_the_background_and_waits_for_room(
    house: House, receiver: Receiver, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "WINDOW", 2)
    history.keep_numbers(9)
    function = house.create(TELL, values={"url": receiver.url})
    backfills = Backfills(house.delivery, history.store, JobLeases(house.database), max_backlog=4)
    backfills.start()
    try:
        job = backfills.begin(1, function["id"], *EVER, max_events=None, dry_run=False)
        wait_for(lambda: history.read(job).queued == 4)
        wait_for(lambda: house.queue.counts.backlog() == 4)  # counted after the commit
        house.delivery.start()
        wait_for(lambda: history.read(job).status == "completed")
        wait_for(lambda: len(receiver.hits) == 9)
    finally:
        backfills.stop(10)
    house.wait_idle()


def test_it_does_not_wait_for_functions_that_hold_themselves_back(house: House, history: History) -> None:
    history.keep_numbers(3)
    house.create(
        filters={"events": [{"id": "live", "type": "events"}]}, x_delivery={"rate_limit": {"per_s": 0.001}}
    )
    function = house.create(filters={"events": [{"id": "past", "type": "events"}]})
    house.dispatch(*(stored("live") for _ in range(5)))
    backfills = Backfills(house.delivery, history.store, JobLeases(house.database), max_backlog=4)
    backfills.start()
    try:
        job = backfills.begin(1, function["id"], *EVER, max_events=None, dry_run=False)
        wait_for(lambda: history.read(job).status == "completed")
    finally:
        backfills.stop(10)
    assert history.read(job).queued == 3


@pytest.mark.logs_exceptions
def test_one_that_fails_holds_up_no_other(
    house: House, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.keep_numbers(1)
    broken, sound = house.create(), house.create()
    backfills = history.backfills
    step = Backfills.step

    def failing(self: Backfills, job: ReplayJob) -> None:
        if job.function_id == broken["id"]:
            raise LookupError("no such thing")
        step(self, job)

    monkeypatch.setattr(Backfills, "step", failing)
    jobs = [history.begin(function) for function in (broken, sound)]
    backfills.start()
    wait_for(lambda: not backfills.running())
    backfills.stop(10)
    assert [history.read(job).status for job in jobs] == ["failed", "completed"]
    assert history.read(jobs[0]).error == "LookupError: no such thing"


def test_a_store_that_cannot_be_read_is_waited_for(
    house: House, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.keep_numbers(1)
    function = house.create()
    job = history.begin(function)
    monkeypatch.setattr(rules, "RETRY_S", 0.01)
    tried: list[int] = []
    reader = history.store.reader

    def away() -> Any:
        tried.append(1)
        if len(tried) < 3:
            raise EventStoreUnavailableError("closed")
        return reader()

    monkeypatch.setattr(history.store, "reader", away)
    backfills = history.backfills
    backfills.start()
    wait_for(lambda: history.read(job).status == "completed")
    backfills.stop(10)
    assert len(tried) == 3


def test_old_ones_are_swept(house: House, history: History) -> None:
    function = house.create()
    job = history.begin(function)
    with house.queue_database.write() as tx:
        tx.connection.exec_driver_sql("UPDATE backfill SET finished_at = 0")
    house.queue.sweep()
    assert history.backfills.get(1, function["id"], job.id) is None


def test_a_step_needs_its_backfill(house: House) -> None:
    from hoglab.storage.invocations import JobStep

    with pytest.raises(JobOverError):
        house.queue.enqueue(InvocationBatch(step=JobStep("none", 0, 1)))


# --- over the API


@pytest.fixture
def api(house: House, history: History, prepared: tuple[Any, FirstStart]) -> Api:
    return Api(house, prepared[1].api_key, backfill_router(history.backfills, house.database))


def test_the_api_begins_shows_lists_and_cancels(house: House, history: History, api: Api) -> None:
    history.keep_numbers(3)
    function = house.create()
    path = f"/{function['id']}"
    answer = api.call("POST", f"{path}/backfill/", {"from": "2026-01-01", "to": "2026-02-01", "limit": 2})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert job == {
        "id": job["id"],
        "status": "running",
        "dry_run": False,
        "from": "2026-01-01T00:00:00Z",
        "to": "2026-02-01T00:00:00Z",
        "limit": 2,
        "total": 2,
        "seen": 0,
        "queued": 0,
        "already_run": 0,
        "dead_letters": 0,
        "error": None,
        "created_at": job["created_at"],
        "finished_at": None,
    }
    again = api.call("POST", f"{path}/backfill/", {"from": "2026-01-01"})
    assert (again.status_code, again.json()["code"]) == (409, "backfill_running")
    assert api.get(f"{path}/backfills/{job['id']}/") == job
    cancelled = api.call("POST", f"{path}/backfills/{job['id']}/cancel/").json()
    assert cancelled["status"] == "cancelled"
    api.call("POST", f"{path}/backfill/", {"from": "2026-01-01", "dry_run": True})
    page = api.get(f"{path}/backfills/", limit=1)
    assert (page["count"], page["results"][0]["dry_run"]) == (2, True)


@pytest.mark.parametrize(
    ("body", "attr"),
    [
        ({}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-01-02", "to": "2026-01-02"}, "to"),
        ({"from": "2026-01-01", "limit": 0}, "limit"),
        ({"from": "2026-01-01", "dry_run": "perhaps"}, "dry_run"),
    ],
)
def test_bad_requests_are_refused(house: House, api: Api, body: dict[str, Any], attr: str) -> None:
    answer = api.call("POST", f"/{house.create()['id']}/backfill/", body)
    assert (answer.status_code, answer.json()["attr"]) == (400, attr)


def test_only_enabled_destinations_can_be_run_on_history(house: House, api: Api) -> None:
    body = {"from": "2026-01-01"}
    for options in ({"type": "internal_destination"}, {"enabled": False}):
        function = house.create(**options)
        assert api.call("POST", f"/{function['id']}/backfill/", body).status_code == 400
    missing = "0190a3d4-0000-7000-8000-00000000000f"
    assert api.call("POST", f"/{missing}/backfill/", body).status_code == 404
    function = house.create()
    assert api.call("GET", f"/{function['id']}/backfills/{missing}/").status_code == 404
    assert api.call("POST", f"/{function['id']}/backfills/{missing}/cancel/").status_code == 404


def test_a_rerun_can_be_tried_dry(house: House, api: Api) -> None:
    function = house.create("throw Error('no')")
    house.run(stored(), stored())
    answer = api.call("POST", f"/{function['id']}/rerun/", {"dry_run": True}).json()
    assert answer == {"rerun_job_id": "", "queued_count": 2, "skipped_count": 0}
    assert house.queue.counts.backlog() == 0
    assert [result["attempts"] for result in house.results()] == [1, 1]


def test_what_failed_a_moment_ago_can_be_run_again(house: House, api: Api) -> None:
    """While the queue still remembers the run, so that its event does not start it twice."""
    function = house.create("throw Error('no')")
    event = stored()
    house.run(event)
    answer = api.call("POST", f"/{function['id']}/rerun/", {}).json()
    assert (answer["queued_count"], answer["skipped_count"]) == (1, 0)
    again = api.call("POST", f"/{function['id']}/rerun/", {}).json()
    house.dispatch(event)  # neither its event nor another request starts one that is under way
    house.wait_idle()
    [result] = house.results()
    assert result["is_retry"] == 1
    assert result["attempts"] == 2 + again["queued_count"]


def test_what_was_run_again_meanwhile_is_not_run_for_its_old_result(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have succeeded; and its keys are counted by the result that is repeated."""
    function = house.create("throw Error('no')")
    house.run(stored())
    really = house.queue.enqueue
    first: list[int] = []

    def ask() -> int:
        return rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued

    def enqueue(batch: InvocationBatch) -> int:
        if not first:  # another request is quicker
            first.append(0)
            first[0] = ask()
            house.wait_idle()
        return really(batch)

    monkeypatch.setattr(house.queue, "enqueue", enqueue)
    assert ask() == 0
    assert first == [1]
    house.wait_idle()
    [result] = house.results()
    assert result["attempts"] == 2
    assert ask() == 1


# --- running past invocations again


def failed_runs(house: House, count: int, source: str = "throw Error('no')") -> dict[str, Any]:
    """A function and that many of its runs, which failed; it would succeed now."""
    function = house.create(source)
    house.delivery.start()
    for first in range(0, count, 400):
        house.dispatch(*(stored() for _ in range(first, min(count, first + 400))))
    wait_for(lambda: house.queue.counts.backlog() == 0)
    house.change(function, hog="return 1")
    assert {result["status"] for result in house.results()} == {"failed"}
    return function


@contextmanager
def at_work(house: House, history: History) -> Iterator[Backfills]:
    backfills = Backfills(house.delivery, history.store, JobLeases(house.database))
    backfills.start()
    try:
        yield backfills
    finally:
        backfills.stop(10)


def statuses(house: House) -> Counter[str]:
    return Counter(result["status"] for result in house.results())


def test_any_number_is_run_again_in_the_background(house: House, history: History, api: Api) -> None:
    function = failed_runs(house, 1_300)
    path = f"/{function['id']}"
    begun = api.call("POST", f"{path}/rerun/", {}).json()
    assert begun["skipped_count"] == 0
    assert 500 <= begun["queued_count"] < 1_300  # the rest waits for the background service
    job = api.get(f"{path}/reruns/{begun['rerun_job_id']}/")
    assert (job["status"], job["total"], job["seen"]) == ("running", 1_300, begun["queued_count"])
    with at_work(house, history):
        wait_for(lambda: api.get(f"{path}/reruns/{job['id']}/")["status"] == "completed")
        wait_for(lambda: house.queue.counts.backlog() == 0)
    done = api.get(f"{path}/reruns/", limit=10)["results"]
    assert [(one["id"], one["seen"], one["queued"], one["skipped"]) for one in done] == [
        (job["id"], 1_300, 1_300, 0)
    ]
    assert done[0]["finished_at"] is not None
    assert statuses(house) == {"succeeded": 1_300}
    assert house.metrics(function)["triggered"] == 2_600
    lines = [line for (line,) in house.rows("log_entry", "message", "id") if "run again" in line]
    assert lines == ["1300 invocations are run again, 0 were skipped."]
    # They are no backfills, and hold up none.
    assert api.get(f"{path}/backfills/")["count"] == 0
    assert api.call("POST", f"{path}/backfill/", {"from": "2026-01-01"}).status_code == 201


def test_running_again_goes_on_where_a_former_process_came_to(
    house: House, history: History, api: Api
) -> None:
    function = failed_runs(house, 1_300)
    begun = api.call("POST", f"/{function['id']}/rerun/", {}).json()
    house.restart()
    house.delivery.start()
    with at_work(house, history) as later:
        wait_for(lambda: not later.running())
        wait_for(lambda: house.queue.counts.backlog() == 0)
    job = later.get(1, function["id"], begun["rerun_job_id"], JobKind.RERUN)
    assert job is not None
    assert (job.status, job.queued) == ("completed", 1_300)
    assert statuses(house) == {"succeeded": 1_300}


def test_running_again_can_be_stopped(house: House, history: History, api: Api) -> None:
    function = failed_runs(house, 900)
    path = f"/{function['id']}"
    begun = api.call("POST", f"{path}/rerun/", {}).json()
    stopped = api.call("POST", f"{path}/reruns/{begun['rerun_job_id']}/cancel/").json()
    assert (stopped["status"], stopped["queued"]) == ("cancelled", begun["queued_count"])
    with at_work(house, history):
        wait_for(lambda: house.queue.counts.backlog() == 0)
    assert statuses(house) == {"succeeded": begun["queued_count"], "failed": 900 - begun["queued_count"]}
    missing = "0190a3d4-0000-7000-8000-00000000000f"
    assert api.call("GET", f"{path}/reruns/{missing}/").status_code == 404
    assert api.call("POST", f"{path}/reruns/{missing}/cancel/").status_code == 404


def test_running_again_has_a_limit_when_asked_for_and_takes_the_oldest(house: House, api: Api) -> None:
    function = failed_runs(house, 20)
    answer = api.call(
        "POST", f"/{function['id']}/rerun/", {"filter": {"max_count": 7}, "dry_run": True}
    ).json()
    assert (answer["queued_count"], answer["skipped_count"]) == (7, 0)
    answer = api.call("POST", f"/{function['id']}/rerun/", {"filter": {"max_count": 7}}).json()
    assert (answer["queued_count"], answer["skipped_count"]) == (7, 0)
    wait_for(lambda: house.queue.counts.backlog() == 0)
    assert statuses(house) == {"succeeded": 7, "failed": 13}
    job = api.get(f"/{function['id']}/reruns/{answer['rerun_job_id']}/")
    assert (job["status"], job["total"]) == ("completed", 7)


def test_running_again_ends_when_the_function_is_disabled(house: House, history: History, api: Api) -> None:
    function = failed_runs(house, 900)
    begun = api.call("POST", f"/{function['id']}/rerun/", {}).json()
    house.change(function, enabled=False)
    path = f"/{function['id']}/reruns/{begun['rerun_job_id']}/"
    with at_work(house, history):
        wait_for(lambda: api.get(path)["status"] == "failed")
    assert api.get(path)["error"] == "The function is disabled or deleted."


def test_a_step_that_another_process_is_at_is_left_to_it(house: House, history: History) -> None:
    history.keep_numbers(3)
    job = history.begin(house.create())
    backfills = history.backfills
    with JobLeases(house.database).claimed(JobName("replay", job.id)):
        assert backfills.round() == RETRY_S
        assert history.read(job).queued == 0
    assert backfills.round() == 0
    assert history.read(job).status == "completed"
    assert backfills.round() is None


def test_who_comes_to_one_that_is_over_says_nothing(house: House, history: History) -> None:
    history.keep_numbers(3)
    function = house.create()
    job = history.begin(function)
    house.change(function, enabled=False)
    for _ in range(2):  # by two processes that have read it while it was running
        history.backfills.step(job)
    assert [text for _, text in house.logs(function) if "failed" in text] == [
        "Backfill failed: 0 of 3 events, 0 runs: The function is disabled or deleted."
    ]


def test_those_of_other_processes_are_looked_for(house: House, history: History) -> None:
    others = Backfills(house.delivery, history.store, JobLeases(house.database), look_every_s=0.01)
    others.start()
    try:
        history.keep_numbers(3)
        job = history.begin(house.create())
        wait_for(lambda: history.read(job).status == "completed")
    finally:
        others.stop(10)
