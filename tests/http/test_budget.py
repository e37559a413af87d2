"""The memory of bodies: a budget for all, parts and shares of it, and who gives way."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.http.asgi import Answer, ask

from hoglab.http.errors import ApiError
from hoglab.http.management.config import HttpConfig
from hoglab.http.management.endpoint import STRANGER_BODY_BYTES
from hoglab.http.requests.body import VALUE_BYTES, read_body
from hoglab.http.requests.budget import FREE_BYTES, BodyBudget, charge, known_owner, lease_of, release

TOTAL = 64 * FREE_BYTES
ECHO = "/api/projects/1/widgets/echo/"
JSON = (b"content-type", b"application/json")


def scope_of(budget: BodyBudget, address: str = "192.0.2.1") -> dict[str, Any]:
    scope: dict[str, Any] = {"headers": [], "client": (address, 1)}
    budget.watch(scope)
    return scope


def take(scope: dict[str, Any], size: int) -> None:
    lease = lease_of(scope)
    assert lease is not None
    lease.take(size)


def is_refused(scope: dict[str, Any], size: int) -> bool:
    try:
        take(scope, size)
    except ApiError as error:
        if (error.status, error.headers["Retry-After"]) != (503, "1"):
            raise
        return True
    return False


class TestParts:
    def test_one_address_gets_a_quarter(self) -> None:
        budget = BodyBudget(TOTAL)
        one, same, other = scope_of(budget), scope_of(budget), scope_of(budget, "192.0.2.2")
        take(one, TOTAL // 4)
        assert is_refused(same, 1)
        take(other, TOTAL // 4)

    def test_strangers_get_a_half(self) -> None:
        budget = BodyBudget(TOTAL)
        for number in (1, 2):
            take(scope_of(budget, f"192.0.2.{number}"), TOTAL // 4)
        third = scope_of(budget, "192.0.2.3")
        assert is_refused(third, 1)
        known_owner(third, "project:1")
        release(third)
        take(third, TOTAL // 2)

    def test_one_project_gets_a_half_whatever_its_addresses(self) -> None:
        budget = BodyBudget(TOTAL)
        for number in (1, 2):
            scope = scope_of(budget, f"192.0.2.{number}")
            known_owner(scope, "project:1")
            take(scope, TOTAL // 4)
        more, other = scope_of(budget, "192.0.2.3"), scope_of(budget)
        known_owner(more, "project:1")
        known_owner(other, "project:2")
        assert is_refused(more, 1)
        take(other, TOTAL // 2)
        assert is_refused(scope_of(budget, "192.0.2.4"), 1)  # nothing is left at all

    def test_who_is_known_no_longer_counts_for_strangers(self) -> None:
        budget = BodyBudget(TOTAL)
        scope = scope_of(budget)
        take(scope, TOTAL // 4)
        known_owner(scope, "project:1")
        take(scope_of(budget), TOTAL // 4)

    def test_what_is_answered_is_given_back(self) -> None:
        budget = BodyBudget(TOTAL)
        for _ in range(10):
            scope = scope_of(budget)
            take(scope, TOTAL // 4)
            known_owner(scope, "user:1")
            charge(scope, FREE_BYTES + 1)
            release(scope)
        assert budget.held == 0
        assert budget._by_address == budget._by_owner == {}
        assert not budget._leases

    def test_behind_a_proxy_each_client_has_its_share(self) -> None:
        budget = BodyBudget(TOTAL)
        for number in (1, 2):
            scope = scope_of(budget, "127.0.0.1")
            scope["headers"] = [(b"x-forwarded-for", b"10.9.9.9, 198.51.100.%d" % number)]
            take(scope, TOTAL // 4)
        named = scope_of(budget, "192.0.2.9")  # a peer that is no proxy says what it likes
        named["headers"] = [(b"x-forwarded-for", b"198.51.100.77")]
        lease = lease_of(named)
        assert lease is not None
        assert lease.address == "192.0.2.9"


class TestArriving:
    """What `read_body` charges while a body arrives."""

    @staticmethod
    async def stuck(scope: dict[str, Any], size: int) -> asyncio.Task[bytes]:
        """A body of which so much arrived, and no more comes."""
        parts, waits = iter([bytes(size)]), asyncio.Event()

        async def receive() -> dict[str, Any]:
            part = next(parts, None)
            if part is None:
                waits.set()
                await asyncio.Event().wait()
            return {"type": "http.request", "body": part, "more_body": True}

        task = asyncio.create_task(read_body(scope, receive))
        await waits.wait()
        return task

    def test_small_ones_are_free(self) -> None:
        async def main() -> None:
            budget = BodyBudget(TOTAL)
            scope = scope_of(budget)
            task = await self.stuck(scope, FREE_BYTES)
            assert budget.held == 0
            task.cancel()

        asyncio.run(main())

    def test_the_largest_that_is_not_finished_gives_way_to_smaller_ones(self) -> None:
        async def main() -> None:
            budget = BodyBudget(TOTAL)
            quarter = TOTAL // 4
            large = await self.stuck(scope_of(budget, "192.0.2.1"), quarter)
            small = await self.stuck(scope_of(budget, "192.0.2.2"), quarter - FREE_BYTES)
            lesser = scope_of(budget, "192.0.2.3")
            take(lesser, 2 * FREE_BYTES)
            with pytest.raises(ApiError) as caught:
                await large
            assert caught.value.status == 503
            assert not small.done()
            assert is_refused(scope_of(budget, "192.0.2.4"), quarter)  # larger than all that could give way
            small.cancel()

        asyncio.run(main())

    def test_what_is_worked_on_does_not_give_way(self) -> None:
        budget = BodyBudget(TOTAL)
        take(scope_of(budget), TOTAL // 4)
        assert is_refused(scope_of(budget), FREE_BYTES + 1)


class TestServer:
    @pytest.fixture
    def client(self, make_client: Any) -> Any:
        return make_client(HttpConfig(body_budget_bytes=8 * 1024 * 1024, body_timeout_s=0.2))

    @staticmethod
    def post(client: Any, body: list[bytes], *headers: tuple[bytes, bytes], **options: Any) -> Answer:
        async def go() -> Answer:
            return await ask(client.app, "POST", ECHO, [JSON, *headers], body=body, **options)

        answer: Answer = client.runner.run(go())
        return answer

    def key(self, client: Any) -> tuple[bytes, bytes]:
        return b"authorization", f"Bearer {client.key}".encode()

    def test_a_body_over_the_share_of_a_project_is_told_to_come_again(self, client: Any) -> None:
        answer = self.post(client, [bytes(1024 * 1024)] * 5, self.key(client))
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (
            503,
            "1",
            "close",
        )
        assert orjson.loads(answer.body)["code"] == "service_unavailable"
        assert client.app._budget.held == 0

    def test_what_it_becomes_counts_too(self, client: Any) -> None:
        values = 4 * 1024 * 1024 // VALUE_BYTES
        few, many = (b"[" + b"1," * count + b"1]" for count in (values // 2, values))
        assert self.post(client, [few], self.key(client)).status == 200
        assert self.post(client, [many], self.key(client)).status == 503

    def test_a_key_in_a_small_body_is_found(self, client: Any) -> None:
        body = orjson.dumps({"personal_api_key": client.key, "x": "y" * (STRANGER_BODY_BYTES - 200)})
        assert self.post(client, [body]).status == 200

    @pytest.mark.parametrize("announced", [True, False])
    def test_a_key_in_a_large_body_is_not_looked_for(self, client: Any, announced: bool) -> None:
        body = orjson.dumps({"personal_api_key": client.key, "x": "y" * STRANGER_BODY_BYTES})
        length = [(b"content-length", b"%d" % len(body))] if announced else []
        parts = [body[start : start + 1000] for start in range(0, len(body), 1000)]
        answer = self.post(client, parts, *length)
        assert answer.status == 401
        assert f"{STRANGER_BODY_BYTES} bytes" in orjson.loads(answer.body)["detail"]

    def test_a_key_in_the_query_vouches_for_the_body(self, client: Any) -> None:
        body = orjson.dumps({"x": "y" * STRANGER_BODY_BYTES})
        query = f"personal_api_key={client.key}".encode()
        assert self.post(client, [body], query=query).status == 200

    def test_slow_senders_give_everything_back(self, client: Any) -> None:
        answer = self.post(client, [bytes(1024 * 1024)], self.key(client), is_whole=False)
        assert answer.status == 408
        assert client.app._budget.held == 0

    def test_a_body_is_given_back_before_its_answer_is_read(self, client: Any) -> None:
        """Or a project that reads slowly keeps the memory that others need for their bodies."""
        held = []

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                held.append(client.app._budget.held)
                await send(message)

            await client.app(scope, receive, sending)

        body = [orjson.dumps({"x": "y" * (4 * FREE_BYTES)})]
        answer = client.runner.run(ask(watched, "POST", ECHO, [JSON, self.key(client)], body=body))
        assert answer.status == 200
        assert set(held) == {0}
