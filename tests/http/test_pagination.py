"""Pages (spec: experiments-api 1.7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoglab.http.management.config import HttpConfig
from hoglab.http.management.pagination import MAX_LIMIT, MAX_OFFSET, Page, read_page, replace_query

WIDGETS = "/api/projects/1/widgets"
HOST = "http://test"


@pytest.mark.parametrize(
    ("limit", "offset", "page"),
    [
        (None, None, Page(100, 0)),
        ("10", "5", Page(10, 5)),
        *(
            (bad, None, Page(100, 0))
            for bad in ("", "x", "0", "-1", "1.5", "1e3", "٣", "0x10", "None", "1 0")
        ),
        *((None, bad, Page(100, 0)) for bad in ("", "x", "-1", "1.5")),
        (" 7 ", "+3", Page(7, 3)),
        ("99999", None, Page(MAX_LIMIT, 0)),
        ("9" * 5000, "9" * 5000, Page(MAX_LIMIT, MAX_OFFSET)),
    ],
)
def test_what_is_asked_for(limit: str | None, offset: str | None, page: Page) -> None:
    assert read_page(limit, offset) == page


def test_other_limits() -> None:
    assert read_page("5000", None, default=20, maximum=1000) == Page(1000, 0)
    assert read_page(None, None, default=20, maximum=1000) == Page(20, 0)


@given(st.none() | st.text(max_size=30), st.none() | st.text(max_size=30))
def test_nothing_fails(limit: str | None, offset: str | None) -> None:
    page = read_page(limit, offset)
    assert 1 <= page.limit <= MAX_LIMIT
    assert 0 <= page.offset <= MAX_OFFSET


@pytest.mark.parametrize(
    ("query", "following", "preceding"),
    [
        ("", None, None),
        ("?limit=10", "/?limit=10&offset=10", None),
        ("?limit=10&offset=5", "/?limit=10&offset=15", "/?limit=10"),
        ("?limit=10&offset=10", "/?limit=10&offset=20", "/?limit=10"),
        ("?limit=10&offset=15", None, "/?limit=10&offset=5"),
        ("?offset=3", None, "/?limit=100"),
        ("?limit=10&offset=1000", None, "/?limit=10&offset=990"),
        ("?limit=x&offset=y", None, None),
        (
            "?z=1&limit=10&a=b%20c&a=%C3%A9&empty=",
            "/?a=b+c&a=%C3%A9&empty=&limit=10&offset=10&z=1",
            None,
        ),
        (
            "?type=site_destination,site_app&limit=1",
            "/?limit=1&offset=1&type=site_destination%2Csite_app",
            None,
        ),
    ],
)
def test_links(client: Any, query: str, following: str | None, preceding: str | None) -> None:
    body = client.get(f"{WIDGETS}/{query}").json()
    assert list(body) == ["count", "next", "previous", "results"]
    assert body["count"] == 25
    assert body["next"] == (following and HOST + WIDGETS + following)
    assert body["previous"] == (preceding and HOST + WIDGETS + preceding)


def test_results_of_a_page(client: Any) -> None:
    assert client.get(WIDGETS + "?limit=3&offset=20").json()["results"] == [20, 21, 22]
    assert client.get(WIDGETS + "?offset=25").json()["results"] == []
    assert client.get(WIDGETS + "?limit=3&limit=2").json()["results"] == [0, 1]


def test_slash_and_prefix_stay_as_received(client: Any) -> None:
    for path in (WIDGETS, WIDGETS + "/", "/api/environments/@current/widgets"):
        assert client.get(path + "?limit=1").json()["next"] == f"{HOST}{path}?limit=1&offset=1"


def test_following_the_links_visits_everything_once(client: Any) -> None:
    seen: list[int] = []
    url = WIDGETS + "?limit=7"
    while url:
        body = client.get(url).json()
        seen += body["results"]
        url = body["next"]
    assert seen == list(range(25))


def test_host_and_public_address(client: Any, make_client: Any) -> None:
    headers = {"Host": "example.com:8000"}
    link = client.get(WIDGETS + "?limit=1", headers=headers).json()["next"]
    assert link == f"http://example.com:8000{WIDGETS}?limit=1&offset=1"
    public = make_client(HttpConfig(public_url="https://hog.example.com/base/"))
    link = public.get(WIDGETS + "?limit=1", headers=headers).json()["next"]
    assert link == f"https://hog.example.com/base{WIDGETS}?limit=1&offset=1"


@given(st.text(max_size=60))
def test_any_query_is_encoded_anew(query: str) -> None:
    once = replace_query(query, {"limit": 5, "offset": None})
    assert replace_query(once, {"limit": 5, "offset": None}) == once
    assert once.isascii()
