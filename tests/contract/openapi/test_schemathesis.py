"""Schemathesis invents requests from our document: whatever it sends, the answer is one that the document describes.

``HOGLAB_OPENAPI_CASES`` sets how many cases there are in all (``make test-openapi``); without it the run is short
and the same every time.
"""

from __future__ import annotations

import copy
import os

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.contract.openapi.conftest import METHODS, OPERATIONS, World

CASES = int(os.environ.get("HOGLAB_OPENAPI_CASES", "0"))
"""How many cases there are in all; 0: a few of each operation, the same ones every time."""
FEW = 4
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
_PARTS = {"method", "url", "params", "data", "json", "files", "headers", "cookies"}


@pytest.fixture(scope="session")
def described(world: World) -> schemathesis.BaseSchema:
    document = copy.deepcopy(world.document)
    for item in document["paths"].values():
        for body in (item[method].get("requestBody", {}) for method in set(METHODS) & item.keys()):
            for form in body.get("x-also-accepted", ()):  # to be tried as well
                body["content"][form] = {"schema": body["content"]["application/json"]["schema"]}
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_answers_are_as_described(
    world: World, described: schemathesis.BaseSchema, method: str, path: str
) -> None:
    operation = described[path][method]
    cases = st.one_of(
        operation.as_strategy(GenerationMode.POSITIVE), operation.as_strategy(GenerationMode.NEGATIVE)
    )
    answered = 0
    deletes_project = (method, path) == ("delete", "/api/projects/{project_id}/")

    @settings(
        max_examples=CASES // len(OPERATIONS) + 1 if CASES else FEW,
        derandomize=not CASES,
        database=None,
        deadline=None,
        phases=[Phase.generate] + ([Phase.shrink] if CASES else []),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases, st.data())
    def check(case: schemathesis.Case, data: st.DataObject) -> None:
        nonlocal answered
        for name in case.path_parameters or {}:
            known = world.ids["project" if deletes_project else name]
            if data.draw(st.integers(0, 5)):  # else whatever was invented for it
                case.path_parameters[name] = data.draw(st.sampled_from(known))
        response = send(world, case)
        case.validate_response(response, checks=CHECKS)
        answered += 1

    check()
    assert answered


def send(world: World, case: schemathesis.Case) -> Response:
    """The application's answer to a case, with the key of the project's owner."""
    wanted = case.as_transport_kwargs(base_url="http://hoglab.test")
    prepared = requests.Request(**{name: wanted[name] for name in _PARTS & wanted.keys()}).prepare()
    prepared.headers["Authorization"] = f"Bearer {world.api.key}"
    client = world.laboratory.client
    request = client.build_request(
        prepared.method,
        prepared.url,
        headers=[_encoded(*pair) for pair in prepared.headers.items()],
        content=prepared.body,
    )
    return Response.from_httpx(world.laboratory.runner.run(client.send(request)), verify=True)


def _encoded(name: str | bytes, value: str | bytes) -> tuple[bytes, bytes]:
    """A header as bytes; Schemathesis also invents values that are no ASCII."""
    encoded = [part if isinstance(part, bytes) else part.encode("utf-8") for part in (name, value)]
    return encoded[0], encoded[1]
