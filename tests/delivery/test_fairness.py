"""Nobody's flood holds up somebody else: counted in what comes in between, whatever the clock says."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.delivery.conftest import House, Receiver, stored, wait_for

from hoglab.delivery.bodies.line import Line
from hoglab.delivery.bodies.on_loop import AT_A_TIME, BodiesOnLoop
from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.gates import Gates
from hoglab.delivery.portions import COMPANY_S, Portions
from hoglab.functions.configuration import Sent

FLOOD = 600


def test_a_line_serves_one_function_after_the_other() -> None:
    line: Line[int] = Line()
    for number in range(3):
        line.append("flood", number)
    line.append("quiet", 10)
    line.append("flood", 3)
    assert (len(line), sorted(line)) == (5, [0, 1, 2, 3, 10])
    assert [line.popleft() for _ in range(len(line))] == [0, 10, 1, 2, 3]
    with pytest.raises(KeyError):
        line.popleft()


def test_what_ended_together_goes_on_a_few_at_a_time(bodies: BodyPool) -> None:
    """The loop is kept busy until the last of many jobs has ended."""
    count = 40
    went_on: list[tuple[int, str]] = []

    async def main() -> None:
        on_loop, loop = BodiesOnLoop(bodies), asyncio.get_running_loop()
        turn, left, ended = 0, count + 1, threading.Event()
        guard = threading.Lock()

        def job() -> str:
            nonlocal left
            with guard:
                left -= 1
                if not left:
                    ended.set()
            return ""

        async def go_on(function_id: str) -> None:
            await on_loop.run(job, function_id)
            went_on.append((turn, function_id))

        def count_turns() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count_turns)

        tasks = [asyncio.create_task(go_on(name)) for name in ["flood"] * count + ["quiet"]]
        await asyncio.sleep(0)  # they ask
        await asyncio.sleep(0)  # they are handed over
        assert ended.wait(20)
        count_turns()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert [name for _, name in went_on].index("quiet") <= 1
    turns = [turn for turn, _ in went_on]
    assert max(map(turns.count, turns)) <= AT_A_TIME


def test_a_flood_of_one_project_lets_another_project_in(house: House, receiver: Receiver) -> None:
    """An event that comes while hundreds of another project wait finds few of them ahead of it."""
    organization = house.accounts.project(1)
    assert organization is not None
    other = house.accounts.create_project(organization.organization_id, "Other")
    for project, name in ((house.project, "flood"), (other, "quiet")):
        wanted = {
            "type": "destination",
            "name": name,
            "enabled": True,
            "hog": "fetch(inputs.url)",
            "inputs_schema": [{"key": "url", "type": "string"}],
            "inputs": {"url": {"value": f"{receiver.url}/{name}"}},
        }
        house.functions.create(project, None, Sent(wanted))
    house.run(stored(project_id=1), stored(project_id=other.id))  # everything is warm
    house.dispatch(*[stored(project_id=1) for _ in range(FLOOD)])
    wait_for(lambda: len(receiver.hits) > FLOOD // 10)
    before = len(receiver.hits)
    house.dispatch(stored(project_id=other.id))
    house.wait_idle()
    paths = [hit.path for hit in receiver.hits]
    assert len(paths) == FLOOD + 3
    assert paths.index("/quiet", before) - before < FLOOD // 2


def test_portions_are_small_while_others_have_work() -> None:
    now = 0.0
    portions = Portions(16, 8, lambda: now)
    portions.note(["flood"] * 16)
    assert portions.size() == 16
    portions.note(["flood"] * 16)
    assert portions.size() == 16
    portions.note(["flood", "quiet"])
    assert portions.size() == 8
    portions.note(["flood"] * 8)
    now = COMPANY_S * 1.5
    assert portions.size() == 16, "nobody else had work for long"
    now = COMPANY_S * 2.5
    portions.note(["flood"] * 8)
    assert portions.size() == 16


def test_functions_take_turns_at_the_places_of_a_host() -> None:
    entered: list[str] = []

    async def main() -> None:
        gates, go_on = Gates(2), asyncio.Event()

        async def request(name: str, host: str = "h") -> None:
            await gates.enter(host, name)
            entered.append(name)
            try:
                await go_on.wait()
            finally:
                gates.leave(host)

        flood = [asyncio.create_task(request("flood")) for _ in range(6)]
        tasks = [*flood, asyncio.create_task(request("quiet")), asyncio.create_task(request("other", "i"))]
        await asyncio.sleep(0)
        assert entered == ["flood", "flood", "other"]
        flood[2].cancel()  # while it waits
        await asyncio.sleep(0)
        flood[0].cancel()  # its place goes to the next one ...
        await asyncio.sleep(0)
        flood[3].cancel()  # ... who is gone before it could take it
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not gates.hosts()

    asyncio.run(main())
    assert entered == ["flood", "flood", "other", "quiet", "flood", "flood"]
