"""What browsers may do with answers: each that is no JSON has a policy, whoever gave it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route
from tests.http.asgi import Answer, ask

from hoglab.app import Hoglab
from hoglab.http.content_policy import CLOSED, page_policy
from hoglab.settings import Settings

KEY = "phx_" + "k" * 40
TOKEN = "phc_" + "t" * 20
UUID = "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"
PATHS_WITH_ICONS = (
    "/api/projects/1/hog_functions/icon/?id=slack.com",
    "/api/projects/1/hog_functions/icons/",
)


@pytest.fixture(scope="module")
def hoglab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hoglab]:
    dist = tmp_path_factory.mktemp("dist")
    (dist / "array.js").write_text("1")
    data = tmp_path_factory.mktemp("policies") / "data"
    hoglab = Hoglab.open(
        Settings(
            data=data,
            access_log=False,
            bootstrap_api_key=KEY,
            sdk_files=dist,
            bootstrap_project_token="phc_" + "t" * 20,
        )
    )
    try:
        yield hoglab
    finally:
        hoglab.stop()


def paths(hoglab: Hoglab) -> set[str]:
    """Every path that is served, with values in the place of parameters."""
    http = hoglab.http
    patterns = {getattr(route, "path", "/") for route, _ in http._patterns}
    templates = {f"{entry.template}/" for entry in http.management.table.entries}
    values = {"project_id": "1", "token": TOKEN, "path": "array.js", "path:path": "array.js"}
    filled = {
        re.sub(r"\{([^}]*)\}", lambda found: values.get(found[1], UUID), path)
        for path in patterns | templates
    }
    return {*http._exact, *filled, "/static/array.js", *PATHS_WITH_ICONS, "/nothing"}


def policy(answer: Answer) -> str | None:
    return answer.headers.get("content-security-policy")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("accept", [b"text/html", b"*/*"])
def test_every_answer_that_is_no_json_has_a_policy(hoglab: Hoglab, method: str, accept: bytes) -> None:
    headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"accept", accept), (b"host", b"localhost")]

    async def answers() -> dict[str, Answer]:
        found = {}
        for path in sorted(paths(hoglab)):
            plain, _, query = path.partition("?")
            # Streams have no end, and files wait for one; the headers are the same.
            asked = "HEAD" if method == "GET" and path.startswith(("/api/", "/static/")) else method
            found[path] = await ask(
                hoglab.http, asked, plain, headers, query=query.encode(), client=("127.0.0.1", 5000)
            )
        return found

    with_policy, without = {}, []
    for path, answer in asyncio.run(answers()).items():
        kind = answer.headers.get("content-type", "")
        if kind and not re.match(r"application/(json|.*\+json)", kind):
            with_policy[path] = policy(answer) or ""
            if "default-src 'none'" not in with_policy[path]:
                without.append((path, kind))
    assert without == []
    if method == "GET":
        shown = {"/favicon.ico", "/robots.txt", "/api/docs/", "/api/docs/try", "/metrics", "/static/array.js"}
        assert shown <= with_policy.keys()
        assert with_policy[PATHS_WITH_ICONS[0]] == CLOSED
        for path, text in with_policy.items():
            own = "'self'" if path.startswith("/ui") else "'none'"  # its page says where it is by a base
            for part in (f"base-uri {own}", f"form-action {own}", "frame-ancestors 'none'"):
                assert part in text


KINDS = ["text/html", "image/svg+xml", "application/xml", "text/plain; charset=x", "Text/HTML"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_says_nothing_is_closed(make_client: Callable[..., Any], kind: str) -> None:
    """Whoever adds a route need not think of it."""

    async def page(_request: Any) -> Response:
        return Response("<b>", headers={"Content-Type": kind})

    client = make_client(public=[Route("/page", page)])
    assert client.get("/page").headers["content-security-policy"] == CLOSED


def test_what_says_something_is_left_alone(make_client: Callable[..., Any]) -> None:
    own = page_policy(img_src="'self'")

    async def page(_request: Any) -> Response:
        return Response("<b>", headers={"CONTENT-Security-Policy": own}, media_type="text/html")

    client = make_client(public=[Route("/page", page)])
    assert client.get("/page").headers.get_list("content-security-policy") == [own]


def test_json_has_none(make_client: Callable[..., Any]) -> None:
    client = make_client()
    assert "content-security-policy" not in client.get("/api/projects/1/widgets/").headers
    assert "content-security-policy" not in client.get("/api/schema/").headers
    assert (
        "content-security-policy" not in client.request("DELETE", "/api/projects/1/widgets/1/paint/").headers
    )


def test_styles_are_allowed_by_what_they_say() -> None:
    digest = base64.b64encode(hashlib.sha256(b"b{}").digest()).decode()
    assert page_policy("b{}", img_src="'self'") == (
        f"default-src 'none'; img-src 'self'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
