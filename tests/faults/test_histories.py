"""What clients of several servers on one PostgreSQL database see at once is what one server could have answered."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.experiments.conftest import Lab
from tests.faults.test_two_servers import address, prepared, shops
from tests.generated import SEED
from tests.linearizability import History, Operation, at_once, is_linearizable
from tests.storage.engines import PostgresEngine
from tests.storage.test_invocations import invocation, outcome
from tests.storage.test_invocations_postgres import engine
from tests.storage.test_sharing import databases
from tests.waiting import PATIENCE_S

from hoglab.http.fields.dates import utc_now
from hoglab.storage.database import Database
from hoglab.storage.invocations import InvocationBatch, MaskingCount, MaskingMovedError
from hoglab.storage.invocations.sql.sharing import RateLimits

__all__ = ["address", "databases", "engine", "prepared"]

SERVERS = 3
STEPS = 4
ROUNDS = 6


@contextmanager
def labs(address: str) -> Iterator[list[Lab]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Lab(address))) for _ in range(SERVERS)]


def register(state: Any, asked: Any, answer: Any) -> Iterator[Any]:
    """A value that is read with its tag, and changed by who says the tag of now. The state is a tag."""
    kind, tag = asked
    status, told = answer
    if kind == "read" and told == state:
        yield state
    elif kind == "write" and status == 200 and tag == state:
        yield told
    elif kind == "write" and status == 412 and tag != state:
        yield state


def test_changes_under_if_match_are_those_of_one_register(address: str) -> None:
    with labs(address) as servers:
        path = f"/experiments/{servers[0].create()['id']}/"

        def read(lab: Lab) -> tuple[int, str]:
            lab.database.refresh_changes()  # as after a notification
            answer = lab.call("GET", path)
            return answer.status_code, answer.headers["ETag"]

        def write(lab: Lab, name: str, tag: str) -> tuple[int, str]:
            answer = lab.call("PATCH", path, {"name": name}, headers={"If-Match": tag})
            return answer.status_code, answer.headers.get("ETag", "")

        def play(number: int) -> None:
            history = History()
            _, first = read(servers[0])

            def work(lab: Lab, client: int) -> None:
                tag = first
                for step in range(STEPS // 2):
                    status, new = history.note(
                        ("write", tag),
                        partial(write, lab, f"{number}/{client}/{step}", tag),
                    )
                    tag = new if status == 200 else history.note(("read", None), partial(read, lab))[1]

            at_once(*(partial(work, lab, client) for client, lab in enumerate(servers)))
            assert is_linearizable(history.operations, first, register), history.operations
            assert any(each.answer[0] == 412 for each in history.operations), "nobody overlapped"

        for number in range(ROUNDS):
            play(number)


def once(state: Any, asked: str, answer: tuple[int, bool]) -> Iterator[Any]:
    """Who is first under a key has an effect; later ones are answered the same, or are told that it runs."""
    status, replayed = answer
    if status == 201 and replayed is (state == "done"):
        yield "done"
    elif status == 409:
        yield state


def test_requests_under_one_idempotency_key_have_one_effect(address: str) -> None:
    with shops(address, SERVERS) as opened:

        def play(number: int) -> None:
            history = History()

            def ask(server: Any) -> tuple[int, bool]:
                answer = server.post({"ticket": f"t{number}"}, f"k{number}")
                return answer.status_code, "Idempotency-Replayed" in answer.headers

            def work(server: Any) -> None:
                for _ in range(STEPS):
                    history.note("buy", partial(ask, server))

            at_once(*(partial(work, server) for _, server in opened))
            assert is_linearizable(history.operations, "new", once), history.operations

        for number in range(ROUNDS):
            play(number)
        assert sorted(opened[0][0].sold()) == [f"t{number}" for number in range(ROUNDS)]


def one_owner(state: Any, asked: Any, answer: Any) -> Iterator[Any]:
    """A key that one flag at a time has. The state is the flag's id, None for nobody."""
    kind, given = asked
    status, told = answer
    if kind == "make" and status == 201 and state is None:
        yield told
    elif (kind == "make" and status == 400 and state is not None) or (
        kind == "delete" and status == 404 and state != given
    ):
        yield state
    elif kind == "delete" and status == 200 and state == given:
        yield None


def test_a_unique_key_has_one_winner(address: str) -> None:
    with labs(address) as servers:

        def play(number: int) -> None:
            history = History()

            def make(lab: Lab) -> tuple[int, int | None]:
                filters = {"groups": [{"properties": [], "rollout_percentage": 100}]}
                answer = lab.call("POST", "/feature_flags/", {"key": f"key-{number}", "filters": filters})
                return answer.status_code, answer.json().get("id")

            def delete(lab: Lab, flag: int) -> tuple[int, None]:
                lab.database.refresh_changes()
                return lab.call("PATCH", f"/feature_flags/{flag}/", {"deleted": True}).status_code, None

            def work(lab: Lab) -> None:
                for _ in range(STEPS // 2):
                    status, made = history.note(("make", None), partial(make, lab))
                    if status == 201:
                        history.note(("delete", made), partial(delete, lab, made))

            at_once(*(partial(work, lab) for lab in servers))
            assert is_linearizable(history.operations, None, one_owner), history.operations

        for number in range(ROUNDS):
            play(number)


STEPS_OF_A_LIFE = {("draft", "launch"): "running", ("running", "end"): "ended", ("ended", "reset"): "draft"}
STEPS_OF_A_LIFE |= {("running", "reset"): "draft"}


def life(state: str, asked: str, answer: int) -> Iterator[str]:
    """The states of an experiment, and what may be done in each."""
    after = STEPS_OF_A_LIFE.get((state, asked))
    if answer == 200 and after is not None:
        yield after
    elif answer == 400 and after is None:
        yield state


def test_an_experiment_is_launched_and_ended_once_each(address: str) -> None:
    chance = random.Random(SEED)
    with labs(address) as servers:

        def play(number: int) -> None:
            path = f"/experiments/{servers[0].create(f'life-{number}')['id']}/"
            history = History()
            wishes = [chance.choices(("launch", "end", "reset"), (3, 2, 1), k=STEPS) for _ in servers]

            def act(lab: Lab, step: str) -> int:
                return lab.call("POST", f"{path}{step}/").status_code

            def work(lab: Lab, steps: list[str]) -> None:
                for step in steps:
                    history.note(step, partial(act, lab, step))

            at_once(*(partial(work, lab, steps) for lab, steps in zip(servers, wishes, strict=True)))
            assert is_linearizable(history.operations, "draft", life), history.operations

        for number in range(ROUNDS):
            play(number)


def mutex(holder: Any, asked: Any, answer: Any) -> Iterator[Any]:
    """At most one run of an order key is at work. The state is who has it, None for nobody."""
    if asked == "claim" and holder is None and len(answer) == 1:
        yield answer[0]
    elif asked == "finish" and answer == holder:
        yield None


def test_an_order_key_is_a_mutex(engine: PostgresEngine) -> None:
    """Also among runs that are enqueued at the same time, and while others end."""
    with ExitStack() as stack:
        queues = [stack.enter_context(closing(engine.queue())) for _ in range(SERVERS)]

        def play(number: int) -> None:
            history, left = History(), SERVERS * STEPS // 2

            def claim(queue: Any, claimed: list[Any]) -> tuple[str, ...]:
                claimed[:] = queue.claim(limit=3)
                return tuple(each.id for each in claimed)

            def finish(queue: Any, claimed: Any) -> str:
                assert queue.finish([outcome(claimed)])
                return str(claimed.id)

            def work(queue: Any) -> None:
                mine = STEPS // 2
                deadline = time.monotonic() + PATIENCE_S
                while sum(each.asked == "finish" for each in history.operations) < left:
                    assert time.monotonic() < deadline
                    if mine:
                        queue.enqueue(InvocationBatch([invocation(order_key=f"key-{number}")]))
                        mine -= 1
                    claimed: list[Any] = []
                    history.note("claim", partial(claim, queue, claimed))
                    for each in claimed:
                        history.note("finish", partial(finish, queue, each))

            at_once(*(partial(work, queue) for queue in queues))
            told = [each for each in history.operations if each.answer != ()]
            assert is_linearizable(told, None, mutex), told

        for number in range(ROUNDS):
            play(number)


def test_the_pace_of_a_function_is_kept_in_every_stretch_of_time(databases: list[Database]) -> None:
    per_s, size = 50.0, 4.0
    history = History()

    def work(database: Database) -> None:
        limits = RateLimits(database)
        for _ in range(25):
            history.note("take", lambda: limits.take("f", 3, per_s=per_s, size=size).number)

    at_once(*(partial(work, database) for database in databases))
    taken = history.operations
    limits, deadline = RateLimits(databases[0]), time.monotonic() + PATIENCE_S
    while sum(each.answer for each in taken) <= size:  # more are let through by and by
        assert time.monotonic() < deadline
        history.note("take", lambda: limits.take("f", 3, per_s=per_s, size=size).number)
    for since in {each.called_at for each in taken}:
        for until in {each.answered_at for each in taken if each.answered_at > since}:
            within = [each.answer for each in taken if each.called_at >= since and each.answered_at <= until]
            assert sum(within) <= size + per_s * (until - since) + 1e-6


def counter(state: int, asked: int, answer: int | None) -> Iterator[int]:
    """A count that who knows it may raise. The answer is the new one, None when it was another before."""
    if answer is None and asked != state:
        yield state
    elif answer == asked + 1 and asked == state:
        yield state + 1


def test_counts_of_masking_are_raised_by_who_knows_them(engine: PostgresEngine) -> None:
    with ExitStack() as stack:
        queues = [stack.enter_context(closing(engine.queue())) for _ in range(SERVERS)]
        ends = utc_now() + timedelta(hours=1)

        def play(number: int) -> None:
            history = History()

            def count(queue: Any, before: int) -> int | None:
                counted = MaskingCount("f", f"{number}", before + 1, ends, before)
                try:
                    queue.enqueue(InvocationBatch((), masking=[counted]))
                except MaskingMovedError:
                    return None
                return before + 1

            def work(queue: Any) -> None:
                for _ in range(STEPS):
                    found = queue.masking_counts([("f", f"{number}")])
                    before = found[0].count if found else 0
                    history.note(before, partial(count, queue, before))

            at_once(*(partial(work, queue) for queue in queues))
            assert is_linearizable(history.operations, 0, counter), history.operations
            [counted] = queues[0].masking_counts([("f", f"{number}")])
            assert counted.count == sum(each.answer is not None for each in history.operations)

        for number in range(ROUNDS):
            play(number)


class TestTheCheck:
    """It finds what no order explains."""

    BOTH_WROTE = (
        Operation(("write", "a"), (200, "b"), 0.0, 2.0),
        Operation(("write", "a"), (200, "c"), 1.0, 3.0),
    )

    def test_a_lost_update(self) -> None:
        assert not is_linearizable(self.BOTH_WROTE, "a", register)

    def test_operations_that_overlap_may_come_in_either_order(self) -> None:
        one, other = self.BOTH_WROTE
        refused = replace(one, answer=(412, ""))
        assert is_linearizable([refused, other], "a", register)
        assert is_linearizable([other, refused], "a", register)

    @pytest.mark.parametrize(("tag", "fits"), [("b", True), ("a", False)])
    def test_who_asks_after_an_answer_sees_it(self, tag: str, fits: bool) -> None:
        read = Operation(("read", None), (200, tag), 2.5, 3.0)
        assert is_linearizable([self.BOTH_WROTE[0], read], "a", register) is fits
