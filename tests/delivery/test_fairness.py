"""Nobody's flood holds up somebody else: counted in what comes in between, whatever the clock says."""

from __future__ import annotations

import asyncio
import threading

import pytest
from aiohttp import web
from tests.delivery.conftest import NOW, House, Receiver, stored
from tests.waiting import wait_for

from hoglab.delivery.bodies.on_loop import AT_A_TIME, BodiesOnLoop
from hoglab.delivery.bodies.pool import BodyPool
from hoglab.delivery.limits.claim_size import COMPANY_S, ClaimSizes
from hoglab.delivery.limits.destination_breaker import DestinationBreakers
from hoglab.delivery.limits.in_flight import InFlight
from hoglab.delivery.limits.rate_limit import RateLimiter
from hoglab.delivery.outbound.fetch import FetchLimits
from hoglab.delivery.worker import WorkerLimits
from hoglab.fairness.fair_queue import FairQueue
from hoglab.fairness.fair_semaphore import FairSemaphore, Holder
from hoglab.functions.configuration.builder import FunctionPatch
from hoglab.storage.invocations import ClaimedInvocation

FLOOD = 600


def test_a_line_serves_one_function_after_the_other() -> None:
    line: FairQueue[int] = FairQueue()
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
        house.functions.create(project, None, FunctionPatch(wanted))
    house.run(stored(project_id=1), stored(project_id=other.id))  # everything is warm
    house.dispatch(*[stored(project_id=1) for _ in range(FLOOD)])
    wait_for(lambda: len(receiver.hits) > FLOOD // 10)
    before = len(receiver.hits)
    house.dispatch(stored(project_id=other.id))
    house.wait_idle()
    paths = [hit.path for hit in receiver.hits]
    assert len(paths) == FLOOD + 3
    assert paths.index("/quiet", before) - before < FLOOD // 2


def test_claims_are_small_while_others_have_work() -> None:
    now = 0.0
    sizes = ClaimSizes(16, 8, lambda: now)
    sizes.note(["flood"] * 16)
    assert sizes.size() == 16
    sizes.note(["flood"] * 16)
    assert sizes.size() == 16
    sizes.note(["flood", "quiet"])
    assert sizes.size() == 8
    sizes.note(["flood"] * 8)
    now = COMPANY_S * 1.5
    assert sizes.size() == 16, "nobody else had work for long"
    now = COMPANY_S * 2.5
    sizes.note(["flood"] * 8)
    assert sizes.size() == 16


class Requests:
    """Requests that hold a place until they are let go, by the name of their function."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.semaphore = semaphore
        self.entered: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, function_id: str, key: str = "h", *, project_id: int = 1) -> asyncio.Event:
        go_on = asyncio.Event()

        async def request() -> None:
            place = await self.semaphore.enter(key, Holder(project_id, function_id))
            self.entered.append(function_id)
            try:
                await go_on.wait()
            finally:
                self.semaphore.leave(place)

        self.tasks.append(asyncio.create_task(request()))
        return go_on

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert not self.semaphore.keys()
        self.semaphore.close()


def test_functions_take_turns_at_the_places_of_a_host() -> None:
    async def main() -> list[str]:
        requests = Requests(FairSemaphore(6))
        ends = [requests.begin("flood") for _ in range(6)]
        ends += [requests.begin("quiet"), requests.begin("other", "i")]
        await asyncio.sleep(0)
        assert requests.entered == ["flood", "flood", "quiet", "other"], "a third is the most of one function"
        requests.tasks[2].cancel()  # while it waits
        await asyncio.sleep(0)
        requests.tasks[0].cancel()  # its place goes to the next one ...
        await asyncio.sleep(0)
        requests.tasks[3].cancel()  # ... who is gone before it could take it
        await asyncio.sleep(0)
        for end in ends:
            end.set()
        for _ in range(4):
            await asyncio.sleep(0)
        await requests.end()
        return requests.entered

    assert asyncio.run(main()) == ["flood", "flood", "quiet", "other", "flood", "flood"]


@pytest.mark.parametrize("hanging", [1, 2, 10, 63])
def test_however_many_functions_hang_there_are_places_left(hanging: int) -> None:
    """Who comes last gets half as many as each of those who never answer, who have no more than a third."""

    async def main() -> None:
        requests = Requests(FairSemaphore(192, most=384))
        for _ in range(100):
            for number in range(hanging):
                requests.begin(f"hangs {number}")
        await asyncio.sleep(0)
        each = requests.entered.count("hangs 0")
        assert each <= 64
        for _ in range(each):
            requests.begin("quick")
        await asyncio.sleep(0)
        assert requests.entered.count("quick") >= max(1, each // 2)
        await requests.end()

    asyncio.run(main())


def test_a_project_with_many_functions_leaves_places_to_others() -> None:
    async def main() -> None:
        requests = Requests(FairSemaphore(192))
        for number in range(200):
            requests.begin(f"hangs {number}")
        await asyncio.sleep(0)
        assert len(requests.entered) == 144
        for _ in range(8):
            requests.begin("quick", project_id=2)
        await asyncio.sleep(0)
        assert requests.entered.count("quick") == 8
        await requests.end()

    asyncio.run(main())


def test_what_hangs_makes_room_for_others_but_not_for_its_own_function() -> None:
    async def main() -> None:
        requests = Requests(FairSemaphore(6, most=8, slow_s=0.05))
        for _ in range(8):
            requests.begin("hangs")
        for number in range(7):
            requests.begin(f"quick {number}", project_id=10 + number)
        await asyncio.sleep(0)
        assert requests.entered == ["hangs", "hangs", "quick 0", "quick 1", "quick 2", "quick 3"]
        async with asyncio.timeout(20):
            while len(requests.entered) < 8:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert requests.entered[6:] == ["quick 4", "quick 5"]
        await asyncio.sleep(0.1)
        requests.begin("late", project_id=8)  # eight are held, however long
        await asyncio.sleep(0)
        assert len(requests.entered) == 8
        await requests.end()

    asyncio.run(main())


@pytest.mark.parametrize("functions", [1, 10, 600])
def test_whatever_hangs_of_a_project_there_is_room_at_work_for_others(functions: int) -> None:
    """Runs that never end, claimed a hundred at a time as long as there are any."""
    in_flight = InFlight(512, 128)

    def claim(project_id: int, names: list[str]) -> int:
        quota, left = in_flight.quota(RateLimiter(lambda _function_id: None), DestinationBreakers()), 100
        for name in names:
            quota._rate_limits.allowance(name, 1)
        quota._rate_limits.look_up()
        for name in names:
            allowed = min(left, quota.allowed(project_id, name, WorkerLimits().claim_shared))
            quota.took(project_id, name, allowed)
            left -= allowed
            for _ in range(allowed):
                in_flight.began(run_of(project_id, name))
        return 100 - left

    names = [f"hangs {number}" for number in range(functions)]
    taken = 0
    while more := claim(1, names):
        taken += more
    assert taken <= 384
    if functions < 384:
        assert claim(1, ["quick"]) >= 8, "another function of the same project"
    assert sum(claim(2, ["quick"]) for _ in range(4)) == 32, "another project"
    full = in_flight.pass_over()
    assert 1 in full.projects or set(names) <= full.functions


def run_of(project_id: int, function_id: str) -> ClaimedInvocation:
    return ClaimedInvocation("i", project_id, function_id, None, "hog", 0, NOW, 0, b"", "t", NOW)


@pytest.mark.parametrize("hanging", [1, 10])
def test_a_path_that_hangs_does_not_hold_up_another_function_at_the_same_host(
    house: House, receiver: Receiver, hanging: int
) -> None:
    """None of the hanging requests ends before all of the others were answered."""
    house.close()
    house.options = {"fetch": FetchLimits(total_s=300)}
    house.open()
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/hang":
            await release.wait()
        return web.Response()

    receiver.answer = lambda request, _number: answer(request)
    for number in range(hanging):
        house.create("fetch(inputs.url)", values={"url": f"{receiver.url}/hang"}, name=f"hangs {number}")
    house.dispatch(*[stored() for _ in range(1_000 // hanging)])
    house.delivery.start()
    wait_for(lambda: sum(hit.path == "/hang" for hit in receiver.hits) >= 30)
    house.create(
        "fetch(inputs.url)", values={"url": f"{receiver.url}/quick"}, name="quick", filters=ONLY_QUICK
    )
    house.dispatch(*[stored("quick") for _ in range(100)])
    wait_for(lambda: sum(hit.path == "/quick" for hit in receiver.hits) == 100)
    receiver.call(release.set)


ONLY_QUICK = {"events": [{"id": "quick", "type": "events"}]}
