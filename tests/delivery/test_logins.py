"""Signatures and log-ins: made for each attempt, and shared by the runs of a function until they are refused."""

from __future__ import annotations

import asyncio
import threading

import pytest
from aiohttp import web
from tests.delivery.conftest import NOW, House, Receiver, stored
from tests.functions.templates.cases import CASES

from hoglab.delivery.execution.logins import MISTRUST_S, Logins, key_of_login, mark_of
from hoglab.delivery.outbound import FetchRequest, FetchResponse
from hoglab.hog import ANY, compile_program, host_function
from hoglab.hog.run import Execution, Finished, Suspended

CODE = """
let login := fetch(f'{inputs.url}/login', {'login': true, 'body': {'user': inputs.user}})
let answer := fetch(f'{inputs.url}/in', {'headers': {'Authorization': login.body.token}, 'body': {'n': event.uuid}})
print(answer.status)
"""


class Service:
    """A service that logs in and refuses tokens. ``valid``: tokens that it takes; None for the last one only."""

    def __init__(self, receiver: Receiver) -> None:
        self.tokens: list[str] = []
        self.valid: set[str] | None = None
        self.statuses: list[int] = []
        self.taken: list[str] = []
        self._lock = threading.Lock()
        receiver.answer = self.answer

    def answer(self, request: web.Request, _number: int) -> web.Response:
        with self._lock:
            if request.path.startswith("/login"):
                self.tokens.append(f"t{len(self.tokens) + 1}")
                return web.json_response({"token": self.tokens[-1]})
            token = request.headers["Authorization"]
            if token not in (self.tokens[-1:] if self.valid is None else self.valid):
                return web.json_response({"error": "expired"}, status=401)
            self.taken.append(token)
            return web.json_response({}, status=self.statuses.pop(0) if self.statuses else 200)


@pytest.fixture
def service(receiver: Receiver) -> Service:
    return Service(receiver)


def user(receiver: Receiver, name: str = "ann") -> dict[str, str]:
    return {"url": receiver.url, "user": name}


def test_many_runs_share_one_login(house: House, receiver: Receiver, service: Service) -> None:
    function = house.create(CODE, values=user(receiver))
    house.run(*(stored() for _ in range(30)))
    assert (len(service.tokens), len(service.taken)) == (1, 30)
    assert house.metrics(function) == {"triggered": 30, "fetch": 60, "succeeded": 30}


def test_functions_and_credentials_do_not_share(house: House, receiver: Receiver, service: Service) -> None:
    service.valid = {"t1", "t2", "t3"}
    first = house.create(CODE, values=user(receiver))
    house.create(CODE, values=user(receiver))
    house.run(stored())
    house.change(first, inputs={name: {"value": value} for name, value in user(receiver, "bob").items()})
    house.run(stored())
    assert len(service.tokens) == 3


def test_a_refused_login_is_made_again(house: House, receiver: Receiver, service: Service) -> None:
    function = house.create(CODE, values=user(receiver))
    house.run(stored())
    service.valid = {"t2"}
    house.run(*(stored() for _ in range(10)))
    assert service.tokens == ["t1", "t2"]
    assert service.taken == ["t1", *["t2"] * 10]
    assert house.metrics(function)["succeeded"] == 11


def test_a_login_that_ends_while_a_run_waits_is_made_again(
    house: House, receiver: Receiver, service: Service
) -> None:
    service.valid = {"t1"}
    service.statuses = [503]
    function = house.create(CODE, values=user(receiver))

    def expire(request: web.Request, number: int) -> web.Response:
        answer = service.answer(request, number)
        if answer.status == 503:
            service.valid = {"t2"}
        return answer

    receiver.answer = expire
    house.run(stored())
    assert [hit.path for hit in receiver.hits] == ["/login", "/in", "/in", "/login", "/in"]
    assert house.metrics(function)["succeeded"] == 1


def test_a_service_that_refuses_every_login_is_not_asked_again_and_again(
    house: House, receiver: Receiver, service: Service
) -> None:
    service.valid = set()
    function = house.create(CODE, values=user(receiver))
    house.run(stored())
    assert len(service.tokens) == 2
    house.run(*(stored() for _ in range(10)))
    assert len(service.tokens) == 2
    assert house.metrics(function)["failed"] == 11
    assert house.results()[-1]["error_message"].endswith("status code 401.")


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
def test_a_refusal_to_log_in_is_not_kept(house: House, receiver: Receiver, status: int) -> None:
    receiver.answer = lambda _request, _number: web.json_response({}, status=status)
    house.create(CODE, values=user(receiver))
    house.run(stored())
    house.run(stored())
    assert [hit.path for hit in receiver.hits] == ["/login", "/login"]


def test_mistrust_ends() -> None:
    now = [0.0]
    logins = Logins(lambda: now[0])
    answer = FetchResponse(200, {"token": "t"}, {})
    request = FetchRequest("http://a.example/login", is_login=True)

    async def send() -> FetchResponse:
        return answer

    async def story() -> None:
        key, mark = key_of_login("f", request), mark_of(answer)
        await logins.answer("f", request, send)
        assert not logins.renew(key, mark, is_new=True)
        assert not logins.renew(key, mark, is_new=False)
        assert logins.renew(key, "another", is_new=False)
        now[0] = MISTRUST_S
        assert logins.renew(key, mark, is_new=False)

    asyncio.run(story())


ENVIRONMENT = ANY.with_functions(host_function("fetch"))
SIGNED = "fetch('u', {'at': toUnixTimestamp(now()), 'id': generateUUIDv4()}) return toUnixTimestamp(now())"


def test_a_request_that_nobody_answered_has_the_time_of_its_attempt() -> None:
    program = compile_program(SIGNED, ENVIRONMENT)
    first = Execution(program, seed=1, clock=lambda: 1_000.0)
    asked = first.start()
    assert isinstance(asked, Suspended)
    second = Execution(program, clock=lambda: 2_000.0, journal=first.journal(), renew=True)
    again = second.start()
    assert isinstance(again, Suspended)
    assert (asked.args[1]["at"], again.args[1]["at"]) == (1_000, 2_000)
    assert asked.args[1]["id"] == again.args[1]["id"]
    end = Execution(program, clock=lambda: 3_000.0, journal=second.journal()).start()
    assert isinstance(end, Suspended)
    assert end.args == again.args


def test_what_was_answered_keeps_its_time() -> None:
    program = compile_program(
        "let a := fetch(toUnixTimestamp(now())) let b := fetch(toUnixTimestamp(now()))", ENVIRONMENT
    )
    execution = Execution(program, clock=lambda: 1_000.0)
    execution.start()
    execution.resume("answer")
    later = Execution(program, clock=lambda: 2_000.0, journal=execution.journal(), renew=True).start()
    assert isinstance(later, Suspended)
    assert later.args == [2_000]


def test_a_repeated_program_may_find_that_it_is_too_late() -> None:
    program = compile_program("if (toUnixTimestamp(now()) < 1500) { fetch('u') } return 'late'", ENVIRONMENT)
    execution = Execution(program, clock=lambda: 1_000.0)
    assert isinstance(execution.start(), Suspended)
    end = Execution(program, clock=lambda: 2_000.0, journal=execution.journal(), renew=True).start()
    assert isinstance(end, Finished)
    assert (end.result.error, end.result.value) == (None, "late")
    assert end.result.duration_us >= 0


def test_kinesis_signs_each_attempt(house: House, receiver: Receiver) -> None:
    """Its own host stands behind a URL that the test cannot answer, so the program runs against another one."""
    case = next(case for case in CASES if case.template.folder == "aws-kinesis" and case.requests)
    code = case.template.code.replace("https://{host}/", receiver.url + "/")
    assert code != case.template.code
    moments = [NOW.replace(minute=minute) for minute in range(59)]
    house.close()
    house.now = lambda: moments[min(len(receiver.hits) * 7, 58)]
    house.open()
    receiver.answer = lambda _request, number: web.json_response(
        {"SequenceNumber": "1"}, status=503 if number < 2 else 200
    )
    function = case.function()
    del function["template_id"]
    house.create(
        code,
        inputs_schema=case.template.inputs_schema,
        inputs=function["inputs"],
    )
    house.run(stored())
    dates = [hit.headers["x-amz-date"] for hit in receiver.hits]
    assert len(set(dates)) == 3
    assert len({hit.headers["authorization"] for hit in receiver.hits}) == 3
    assert len({hit.body for hit in receiver.hits}) == 1
