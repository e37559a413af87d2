"""How the files of the UI are served: paths, headers, caching, compression, and what is never served."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import brotli
import httpx
import pytest

import hoglab
from hoglab.demo.server import ChildServer
from hoglab.http.compression import choose_coding
from hoglab.ui.policy import POLICY

if TYPE_CHECKING:
    from tests.conftest import StartServer

STATIC = Path(hoglab.__file__).parent / "ui/static"
PAGE = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
"""What browsers send as ``Accept`` for a page."""
SCREENS = ("/ui/", "/ui/login", "/ui/p/1/experiments/7", "/ui/p/1/person/a%2Fb", "/ui/nowhere/at/all")


@pytest.fixture
def http(shared_server: ChildServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url) as client:
        yield client


def asset() -> str:
    return next(path.name for path in (STATIC / "assets").glob("index-*.js"))


@pytest.mark.parametrize("path", SCREENS)
def test_every_screen_gets_the_page(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert '<base href="/ui/" />' in answer.text
    assert f'<meta name="hoglab" content="{hoglab.__version__}" />' in answer.text


@pytest.mark.parametrize("path", [*SCREENS, f"/ui/assets/{asset()}", "/ui", "/project/1/events/x/y"])
def test_every_answer_has_the_policy(http: httpx.Client, path: str) -> None:
    for method in ("GET", "HEAD"):
        headers = http.request(method, path).headers
        assert headers["content-security-policy"] == POLICY
        assert "unsafe" not in POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in headers["permissions-policy"]


def test_assets_never_change_and_the_page_is_asked_for_again(http: httpx.Client) -> None:
    first = http.get(f"/ui/assets/{asset()}")
    assert first.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    page = http.get("/ui/")
    for sent in (page.headers["etag"], f"W/{page.headers['etag']}", f'"other", {page.headers["etag"]}', "*"):
        again = http.get("/ui/", headers={"If-None-Match": sent})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == POLICY
    assert http.get("/ui/", headers={"If-None-Match": '"other"'}).status_code == 200


def test_files_are_sent_as_the_browser_takes_them(http: httpx.Client) -> None:
    plain = (STATIC / "assets" / asset()).read_bytes()
    sizes = {}
    for accepted, decode in (("br", brotli.decompress), ("gzip", gzip.decompress), ("identity", bytes)):
        with http.stream("GET", f"/ui/assets/{asset()}", headers={"Accept-Encoding": accepted}) as answer:
            raw = b"".join(answer.iter_raw())
        assert decode(raw) == plain
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers.get("content-encoding", "identity") == accepted
        assert int(answer.headers["content-length"]) == len(raw)
        sizes[accepted] = len(raw)
    assert sizes["br"] < sizes["gzip"] < sizes["identity"]


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("*", "br"),
        ("*;q=0", "identity"),
        ("", "identity"),
        ("br;q=nonsense", "identity"),
    ],
)
def test_content_codings(accepted: str, chosen: str) -> None:
    assert choose_coding(accepted, ["br", "gzip", "identity"]) == chosen


def raw_status(url: str, path: str) -> tuple[int, bytes]:
    """What a path is answered that no client would send: not one character of it is changed on the way."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 10) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


@pytest.mark.parametrize(
    "way", ["..", "%2e%2e", "%2E%2E", ".%2e", "..%2f..", "..%5c..", "%252e%252e", "....//.."]
)
@pytest.mark.parametrize("start", ["/ui/", "/ui/assets/", "/ui/assets/x/"])
@pytest.mark.parametrize("goal", ["routes.py", "__init__.py", "static/index.html", "etc/passwd"])
def test_no_way_leads_out_of_the_files(shared_server: ChildServer, start: str, way: str, goal: str) -> None:
    status, body = raw_status(shared_server.url, f"{start}{way}/{way}/{goal}")
    assert status in (200, 400, 404)
    assert b"import" not in body
    assert b"root:" not in body
    assert status != 200 or b'<base href="/ui/" />' in body  # a screen that is not there, said by the page


def test_files_beside_the_assets_are_not_served(http: httpx.Client) -> None:
    for path in ("/ui/manifest.json", "/ui/static/manifest.json", "/ui/index.html"):
        assert http.get(path).headers["content-type"].startswith("text/html")  # the page, for any screen
    for path in (
        "/ui/assets/",
        "/ui/assets/manifest.json",
        "/ui/assets/nothing.js",
        "/ui/assets//etc/passwd",
    ):
        assert http.get(path).status_code == 404


def test_other_methods_are_refused(http: httpx.Client) -> None:
    for path in ("/ui/", f"/ui/assets/{asset()}", "/project/1"):
        assert http.post(path).status_code == 405


@pytest.mark.parametrize(
    ("accept", "goes"),
    [
        (PAGE, True),
        ("text/html", True),
        ("text/html;q=0.5, application/json", False),
        ("application/json", False),
        ("*/*", False),
        ("", False),
        ("text/html;q=0", False),
    ],
)
def test_the_root_is_what_the_client_prefers(http: httpx.Client, accept: str, goes: bool) -> None:
    answer = http.get("/", headers={"Accept": accept})
    assert answer.headers["vary"] == "Accept"
    if goes:
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    else:
        assert answer.json()["name"] == "hoglab"


@pytest.mark.parametrize(
    ("path", "goal"),
    [
        ("/project/1", "/ui/p/1"),
        (
            "/project/1/events/018f-a/2026-01-01T00%3A00%3A00Z",
            "/ui/p/1/events/018f-a/2026-01-01T00%3A00%3A00Z",
        ),
        ("/project/1/person/a%2Fb%20%22c", "/ui/p/1/person/a%2Fb%20%22c"),
        ("/project/2/functions/018f/configuration/", "/ui/p/2/functions/018f/configuration/"),
        ("/project/1/groups/0/acme", "/ui/p/1/groups/0/acme"),
        ("/project/1/person/x%3a%C3%A4", "/ui/p/1/person/x%3a%C3%A4"),
        ("/project/1/person/two%0Alines%0D%00%E2%80%A8", "/ui/p/1/person/two%0Alines%0D%00%E2%80%A8"),
    ],
)
def test_addresses_in_messages_lead_to_their_screen(http: httpx.Client, path: str, goal: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, goal)
    assert http.get(goal).status_code == 200


def test_no_address_adds_a_header(http: httpx.Client) -> None:
    answer = http.get("/project/1/person/x%0d%0aSet-Cookie:%20a=b")
    assert "set-cookie" not in answer.headers
    assert "\n" not in answer.headers.get("location", "")


@pytest.mark.parametrize("path", ["/project/", "/project/x", "/project/1/nothing", "/project///example.com"])
def test_other_addresses_of_projects_are_unknown(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404


def test_behind_a_path_prefix(start_server: StartServer) -> None:
    server = start_server(HOGLAB_SITE_URL="https://example.com/lab/")
    with httpx.Client(base_url=server.url) as http:
        assert '<base href="/lab/ui/" />' in http.get("/ui/").text
        assert http.get("/", headers={"Accept": PAGE}).headers["location"] == "/lab/ui/"
        assert http.get("/ui").headers["location"] == "/lab/ui/"
        assert http.get("/project/1/person/a").headers["location"] == "/lab/ui/p/1/person/a"


def test_switched_off(start_server: StartServer) -> None:
    server = start_server(HOGLAB_UI="false")
    with httpx.Client(base_url=server.url) as http:
        for path in ("/ui", "/ui/", f"/ui/assets/{asset()}", "/project/1"):
            assert http.get(path).status_code == 404
        page = http.get("/", headers={"Accept": PAGE})
        assert page.status_code == 200
        assert "The API" in page.text
