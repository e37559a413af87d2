"""Whatever is sent, the answer is well formed and no 500."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.generated import examples

WORDS = "/api/projects/environments/1/2/@current/widgets/special/echo/paint/colour/by_name/by_uuid/things/.."
SEGMENTS = st.sampled_from(WORDS.split("/")) | st.text(max_size=8).map(lambda text: quote(text, safe=""))
PATHS = st.one_of(
    st.lists(SEGMENTS, max_size=7).map(lambda segments: "/" + "/".join(segments)),
    st.lists(SEGMENTS, max_size=3).map(lambda segments: "/api/projects/1/widgets/" + "/".join(segments)),
)
METHODS = st.sampled_from(["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "X"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "note", "big", "size", "kind", "made_at", "tags", "parts", "extra"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)
BODIES = st.one_of(
    st.just((b"", "application/json")),
    JSON.map(lambda value: (json.dumps(value).encode(), "application/json")),
    st.tuples(
        st.binary(max_size=40),
        st.sampled_from(
            [
                "application/json",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "text/plain",
            ]
        ),
    ),
)
QUERIES = st.text(
    st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters="#"), max_size=30
)


@settings(
    max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(METHODS, PATHS, QUERIES, BODIES)
def test_no_request_is_a_defect(
    client: Any, method: str, path: str, query: str, body: tuple[bytes, str]
) -> None:
    if path.rstrip("/").endswith("/trouble"):
        return
    content, content_type = body
    try:
        url = httpx.URL(f"http://test{path}?{query}")
    except httpx.InvalidURL:
        reject()
    response = client.request(method, url, content=content, headers={"Content-Type": content_type})
    assert response.status_code < 500
    if method == "HEAD" or response.status_code == 204 or not response.content:
        return
    if response.status_code >= 400:
        answer = response.json()
        assert list(answer) == ["type", "code", "detail", "attr"]
        assert answer["detail"]
