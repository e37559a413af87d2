"""Every template of a webhook does what its cases say, called over HTTP at its public address."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from tests.delivery.conftest import NOW, House, prepared
from tests.delivery.sender import Sender
from tests.functions.templates.cases import WEBHOOK_CASES, WEBHOOK_KEYS, Case

from hoglab.accounts.bootstrap import FirstStart
from hoglab.functions.configuration.builder import FunctionPatch

__all__ = ["prepared"]  # a fixture


@pytest.fixture(scope="module")
def house(prepared: tuple[Path, FirstStart], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("webhooks")
    house = House(Path(shutil.copytree(prepared[0], folder / "data")), now=lambda: NOW)
    house.open()
    yield house
    house.close()


@pytest.fixture(scope="module")
def sender(house: House) -> Iterator[Sender]:
    sender = Sender(house)
    yield sender
    sender.close()


@pytest.mark.parametrize("case", WEBHOOK_CASES, ids=lambda case: case.id)
def test_webhooks_do_what_their_cases_say(case: Case, house: House, sender: Sender) -> None:
    assert set(case.given) <= WEBHOOK_KEYS
    function = house.functions.create(house.project, None, FunctionPatch(case.function()))
    house.captured.clear()
    request = case.given["request"]
    answer = sender.send(
        function,
        request["method"],
        params=request.get("query", ""),
        headers=request.get("headers", {}),
        content=request.get("body", "").encode(),
    )
    wanted = case.given["answer"]
    body = wanted["body"]
    assert answer.status_code == wanted["status"]
    assert (answer.text if isinstance(body, str) else answer.json()) == body
    captured = [
        {
            "event": event["event"],
            "distinct_id": event["distinct_id"],
            "properties": {
                name: value
                for name, value in event["properties"].items()
                if name != "$hog_function_execution_count"
            },
        }
        for _, event in house.captured
    ]
    assert captured == ([case.given["captured"]] if "captured" in case.given else [])
    logs = house.logs(function)
    printed = [text for level, text in logs if level == "info" and not text.startswith("Responded with ")]
    assert len(printed) == case.given.get("printed_lines", 0)
    for secret in case.secrets():
        assert secret not in orjson.dumps(logs).decode()
