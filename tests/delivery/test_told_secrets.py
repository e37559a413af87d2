"""Secrets that a program encodes, in all that is left behind of its runs."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from tests.delivery.conftest import House, Receiver, stored

from hoglab.delivery.replay.reruns import RerunFilter, rerun
from hoglab.functions.secrets.redaction import REPLACEMENT

TELLING = """
let t := inputs.token
let header := f'user:{t}'
print(base64Encode(header), base64Encode(t), base64Encode(f'x{t}'), base64Encode(f'xy{t}'))
print(encodeURLComponent(t), jsonStringify({'a': t}), base64Encode(jsonStringify([t])))
let headers := {'Authorization': f'Basic {base64Encode(header)}'}
let answer := fetch(inputs.url, {'headers': headers, 'body': base64Encode(header)})
print(answer.body)
throw Error(f'refused: {answer.body} {encodeURLComponent(t)}')
"""
SECRET = 'tk "zebra"/quartz+0042'


def test_logs_results_and_errors_of_a_run_have_none(house: House, receiver: Receiver) -> None:
    async def echo(request: web.Request) -> web.Response:
        said = await request.text()
        return web.Response(status=404, text=f"no {said} {request.headers['Authorization']}")

    receiver.answer = lambda request, _number: echo(request)
    schema: list[dict[str, Any]] = [
        {"key": "url", "type": "string"},
        {"key": "token", "type": "string", "secret": True},
    ]
    inputs = {"url": {"value": receiver.url}, "token": {"value": SECRET}}
    function = house.create(TELLING, inputs_schema=schema, inputs=inputs)
    house.run(stored())
    said = json.dumps([house.logs(function), house.results()], default=str)
    assert said.count(REPLACEMENT) >= 10
    for before, secret in (("user:", SECRET), ("", SECRET), ("x", SECRET), ('["', json.dumps(SECRET)[1:-1])):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            shift = len(before)
            text = encode((before + secret).encode()).decode()
            assert text[-(-8 * shift // 6) : 8 * (shift + len(secret)) // 6] not in said
    assert quote(SECRET, safe="") not in said


@pytest.mark.parametrize("change", ["rotated", "removed"])
def test_runs_from_before_use_the_secret_of_now(house: House, receiver: Receiver, change: str) -> None:
    """One that failed, when it is run again, and one that waited."""

    async def refuse(request: web.Request) -> web.Response:
        told.append((await request.json())["token"])
        return web.Response(status=404)

    told: list[str | None] = []
    receiver.answer = lambda request, _number: refuse(request)
    function = house.create(
        f"fetch('{receiver.url}', {{'body': {{'token': inputs.token}}}})",
        inputs_schema=[{"key": "token", "type": "string", "secret": True}],
        inputs={"token": {"value": "before-sesame"}},
    )
    house.run(stored())
    house.delivery.stop(10)
    house.restart()
    house.dispatch(stored())
    if change == "rotated":
        house.change(function, inputs={"token": {"value": "now-sesame"}})
    else:
        house.change(function, inputs_schema=[], inputs={})
    assert rerun(house.delivery, house.project, function["id"], RerunFilter(), {}).queued == 1
    house.run()
    assert told == ["before-sesame", *2 * ["now-sesame" if change == "rotated" else None]]
    kept = [house.rows(table, "*", "1") for table in ("invocation", "invocation_result", "log_entry")]
    assert "sesame" not in str(kept)
