"""Somebody elsewhere who sends webhooks."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from tests.apps import app_of
from tests.delivery.conftest import House

from hoglab.delivery.webhooks.routes import webhook_routes
from hoglab.http.app import HoglabApp


class Sender:
    """Sends requests to functions of a house, as somebody elsewhere would."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.app: HoglabApp = app_of(house.accounts, public=webhook_routes(house.delivery.webhooks))
        self._runner = asyncio.Runner()

    def send(
        self, function: dict[str, Any] | str, method: str = "POST", *, suffix: str = "", **options: Any
    ) -> httpx.Response:
        function_id = function if isinstance(function, str) else function["id"]

        async def go() -> httpx.Response:
            async with self._client() as client:
                return await client.request(method, f"/public/webhooks/{function_id}{suffix}", **options)

        return self._runner.run(go())

    def send_together(self, function: dict[str, Any], count: int) -> list[int]:
        async def go() -> list[int]:
            async with self._client() as client:
                path = f"/public/webhooks/{function['id']}"
                answers = await asyncio.gather(*(client.post(path) for _ in range(count)))
                return [answer.status_code for answer in answers]

        return self._runner.run(go())

    def _client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=("203.0.113.9", 4711))
        return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")

    def close(self) -> None:
        self.app.close()
        self._runner.close()
