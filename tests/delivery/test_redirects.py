"""Redirects: the same request again at the same server, and no acknowledgement otherwise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from aiohttp import web
from tests.contract.rules import rule
from tests.delivery.conftest import House, Receiver, stored

from hoglab.delivery.outbound.redirects import MAX_REDIRECTS, next_url, refusal

KEEPING, OTHERS = (307, 308), (300, 301, 302, 303, 304, 305, 306)


def redirecting(status: int, location: str | None) -> Callable[[web.Request, int], web.Response]:
    """Return answers of a server that redirects everything but ``/end``."""

    def answer(request: web.Request, _number: int) -> web.Response:
        if request.path == "/end":
            return web.Response(status=200, text="arrived")
        return web.Response(status=status, headers={} if location is None else {"Location": location})

    return answer


def sender(house: House, url: str, **body: Any) -> dict[str, Any]:
    code = """
    let r := fetch(inputs.url, {'method': 'PUT', 'headers': {'Authorization': 'Bearer t'}, 'body': {'a': 1}})
    print(r.status, r.body)
    """
    return house.create(code, values={"url": url}, **body)


@pytest.mark.parametrize("status", KEEPING)
@pytest.mark.parametrize(
    "location", ["/end", "end?x=1#part", "SAME/end", "//HOST/end", "http://u:p@HOST/end"]
)
def test_the_same_request_is_sent_to_where_it_is_redirected(
    house: House, receiver: Receiver, status: int, location: str
) -> None:
    location = location.replace("SAME", receiver.url).replace("HOST", receiver.url.removeprefix("http://"))
    receiver.answer = redirecting(status, location)
    function = sender(house, f"{receiver.url}/in")
    house.run(stored())
    first, second = receiver.hits
    assert (second.method, second.path.partition("?")[0], second.json) == ("PUT", "/end", {"a": 1})
    for name in ("authorization", "content-type", "idempotency-key", "content-length"):
        assert first.headers.get(name) == second.headers.get(name)
    assert house.metrics(function) == {"triggered": 1, "fetch": 1, "succeeded": 1}


def test_the_password_of_a_url_goes_along(house: House, receiver: Receiver) -> None:
    receiver.answer = redirecting(307, "/end")
    house.create("fetch(inputs.url)", values={"url": receiver.url.replace("//", "//user:word@") + "/in"})
    house.run(stored())
    assert [hit.headers["authorization"] for hit in receiver.hits] == ["Basic dXNlcjp3b3Jk"] * 2


UNFOLLOWED = [
    *product(OTHERS, ["/end", "http://elsewhere.example/x?token=hidden", None]),
    *product(
        KEEPING,
        [
            "http://elsewhere.example/x?token=hidden",
            "http://127.0.0.1:1/x",
            "//elsewhere.example/x",
            "ftp://127.0.0.1/x",
            "",
            None,
        ],
    ),
]


@rule("H3.5")
def test_a_redirect_acknowledges_nothing(house: House, receiver: Receiver) -> None:
    receiver.answer = lambda request, number: redirecting(*UNFOLLOWED[int(request.path[1:])])(request, number)
    functions = [sender(house, f"{receiver.url}/{number}") for number in range(len(UNFOLLOWED))]
    house.run(stored())
    assert sorted(int(hit.path[1:]) for hit in receiver.hits) == list(range(len(UNFOLLOWED)))
    messages = {result["function_id"]: result["error_message"] for result in house.results()}
    for function, (status, location) in zip(functions, UNFOLLOWED, strict=True):
        message = messages[function["id"]]
        assert message.startswith(
            f"HTTP fetch failed on attempt 1 with status code {status}: redirected to "
        ), location
        assert "hidden" not in message


def test_only_so_many_redirects_are_followed(house: House, receiver: Receiver) -> None:
    receiver.answer = redirecting(308, "/in")
    sender(house, f"{receiver.url}/in")
    house.run(stored())
    assert len(receiver.hits) == MAX_REDIRECTS + 1
    assert house.results()[0]["error_message"].endswith(f"/in, after {MAX_REDIRECTS} other redirects.")


def test_a_program_may_take_a_redirect_for_an_answer(house: House, receiver: Receiver) -> None:
    receiver.answer = redirecting(307, "/end")
    function = house.create(
        "let r := fetch(inputs.url, {'redirect': 'manual'}) print(r.status, r.headers.location, r.error)",
        values={"url": f"{receiver.url}/in"},
    )
    wrong = house.create("fetch(inputs.url, {'redirect': 'maybe'})", values={"url": f"{receiver.url}/in"})
    house.run(stored())
    assert [text for level, text in house.logs(function) if level == "info"] == ["307, /end, null"]
    assert (house.metrics(function)["succeeded"], house.metrics(wrong)["failed"]) == (1, 1)
    assert len(receiver.hits) == 1


def test_a_host_may_send_a_request_on_to_its_own_https() -> None:
    here = "http://a.example:8080/in"
    upgrades = ["https://a.example/x", "https://a.example:8443/x", "HTTPS://A.example/x"]
    assert [next_url(here, 307, target) for target in upgrades] == [
        "https://a.example/x",
        "https://a.example:8443/x",
        "https://a.example/x",
    ]
    for target in (
        "http://a.example/x",
        "https://b.example/x",
        "https://a.example.b.example/x",
        "https://a/x",
    ):
        assert next_url(here, 307, target) is None
    for target in ("http://a.example/x", "http://a.example:443/x", "https://a.example:444/x"):
        assert next_url("https://a.example/in", 308, target) is None


def test_the_reason_holds_no_credentials() -> None:
    reason = refusal("https://a.example/in", "https://u:p@b.example/x?token=hidden#t", exhausted=False)
    assert reason == "redirected to https://b.example/x"
