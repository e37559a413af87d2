"""Host names that a stranger made too long: none is encoded, which takes time that grows with the square of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.attacks import processor_time

from hoglab.delivery.execution.loops import marked
from hoglab.delivery.outbound.fetch import FetchRequest
from hoglab.delivery.outbound.mail import Email, MailFailure, MailLimits, email_of
from hoglab.delivery.outbound.redirects import next_url, refusal
from hoglab.delivery.outbound.urls import MAX_HOST_CHARS, MAX_URL_CHARS, UrlError, parse_url, read_url

LONG = 12_000
"""Characters of a name that takes more than ten seconds where it is encoded."""
NAMES = {
    "different letters": "".join(chr(0x4E00 + n) for n in range(LONG)),
    "long words": ".".join("".join(chr(0x4E00 + n) for n in range(LONG // 2)) for _ in range(2)),
    "marks out of order": "a" + "\u0301\u0316" * (LONG * 5 // 2),
    "an encoded word": "xn--" + "".join("abcdefghij"[n * n % 10] for n in range(60_000)),
    "letters beyond the plane": "".join(chr(0x20000 + n) for n in range(LONG)),
}
LIMITS = MailLimits()
HERE = "http://receiver.example/in"


def email(**parts: Any) -> Email | MailFailure:
    wanted = {
        "to": {"email": "a@example.com"},
        "from": {"email": "b@example.com"},
        "subject": "x",
        "text": "y",
    }
    return email_of([{**wanted, **parts}], "key", LIMITS)


def own(url: str) -> FetchRequest:
    """Return a request that names the project's token, so that its URL is compared with the server's."""
    request = FetchRequest(url, "POST", {}, "token")
    return marked(request, site_url="http://localhost:8000", token="token", function_id="f", causes=())


def refused(read: Callable[[str], object], url: str) -> None:
    with pytest.raises(UrlError):
        read(url)


USES: dict[str, Callable[[str], object]] = {
    "fetch": lambda host: refused(parse_url, f"http://{host}/x"),
    "fetch behind a backslash": lambda host: refused(parse_url, f"http://a\\{host}/x"),
    "fetch with a line break": lambda host: refused(parse_url, f"http://a\n{host}/x"),
    "fetch with a user": lambda host: refused(parse_url, f"http://u:p@{host}/x"),
    "fetch of an address": lambda host: refused(parse_url, f"http://[{host}]/x"),
    "reading": lambda host: refused(read_url, f"\x01 //{host}"),
    "reading with breaks": lambda host: refused(read_url, f"ht\ttp:/\n/{host}"),
    "redirect": lambda host: next_url(HERE, 307, f"http://{host}/in"),
    "redirect without a scheme": lambda host: next_url(HERE, 307, f"//{host}/in"),
    "reason of a redirect": lambda host: refusal(HERE, f"https://{host}", exhausted=False),
    "own address": lambda host: own(f"http://{host}/batch/"),
    "recipient": lambda host: email(to={"email": f"a@{host}"}),
    "sender": lambda host: email(**{"from": {"email": f"a@{host}"}}),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("use", USES)
def test_a_long_name_takes_no_time(use: str, name: str) -> None:
    assert processor_time(lambda: USES[use](NAMES[name])) < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_a_long_name_is_refused(name: str) -> None:
    host = NAMES[name]
    assert next_url(HERE, 307, f"http://{host}/in") is None
    assert own(f"http://{host}/batch/").url == f"http://{host}/batch/"
    assert isinstance(email(to={"email": f"a@{host}"}), MailFailure)
    with pytest.raises(UrlError, match=r"hostname is too long|longer than"):
        parse_url(f"http://{host}/")


def test_names_of_the_greatest_length_are_read() -> None:
    longest = ".".join(["a" * 49] * 5)[:MAX_HOST_CHARS]
    assert parse_url(f"https://user:{'p' * 2_000}@{longest}.:65535/").host == f"{longest}."
    assert parse_url("https://bücher.example/").raw_host == "xn--bcher-kva.example"
    assert read_url("/path//" + "é" * 300).path == "/path//" + "é" * 300
    assert not isinstance(email(to={"email": "a@bücher.example"}), MailFailure)
    with pytest.raises(UrlError):
        read_url("/" + "x" * MAX_URL_CHARS)
