"""A payment provider tells a running server what happened: signed requests become events, forged ones do not."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator

import httpx
import orjson
import pytest
from tests.clients.project import Project

from hoglab.demo.server import ChildServer

SECRET = "whsec_of_this_test"


@pytest.fixture
def project(shared_server: ChildServer) -> Iterator[Project]:
    project = Project(shared_server)
    yield project
    project.close()


def signature(body: bytes, at: float, secret: str = SECRET) -> str:
    """The header as Stripe documents it."""
    signed = f"{int(at)}.".encode() + body
    return f"t={int(at)},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def paid(event_id: str, **changes: object) -> bytes:
    invoice = {"id": "in_1", "customer": "cus_9", "amount_paid": 2500, **changes}
    return orjson.dumps({"id": event_id, "type": "invoice.paid", "data": {"object": invoice}})


def test_signed_requests_become_events_and_forged_ones_do_not(project: Project) -> None:
    function = project.post(
        "/hog_functions/",
        {
            "template_id": "template-source-stripe",
            "type": "source_webhook",
            "enabled": True,
            "inputs": {"signing_secret": {"value": SECRET}},
        },
    )
    address = f"{project.server.url}/public/webhooks/{function['id']}"

    def send(body: bytes, header: str | None) -> httpx.Response:
        headers = {"Content-Type": "application/json", "Stripe-Signature": header or ""}
        return httpx.post(address, content=body, headers=headers)

    now = time.time()
    forged = [
        send(paid("evt_forged"), None),
        send(paid("evt_forged"), signature(paid("evt_forged"), now, "whsec_guessed")),
        send(paid("evt_forged", amount_paid=1), signature(paid("evt_forged"), now)),
        send(paid("evt_replayed"), signature(paid("evt_replayed"), now - 3600)),
    ]
    assert [(answer.status_code, answer.text) for answer in forged] == [(400, "Invalid signature")] * 4
    assert {answer.headers["x-content-type-options"] for answer in forged} == {"nosniff"}
    assert {answer.headers["content-security-policy"] for answer in forged} == {
        "default-src 'none'; sandbox; form-action 'none'"
    }
    good = send(paid("evt_1"), signature(paid("evt_1"), now))
    assert (good.status_code, good.json()) == (200, {"status": "ok"})

    [event] = project.events(1)
    assert (event["event"], event["distinct_id"]) == ("invoice.paid", "cus_9")
    assert event["properties"]["stripe_event_id"] == "evt_1"
    assert event["properties"]["object"]["amount_paid"] == 2500
    logs = project.get(f"/hog_functions/{function['id']}/logs/")["results"]
    assert len([line for line in logs if line["level"] == "WARN"]) == 4
    totals = project.get(f"/hog_functions/{function['id']}/metrics/totals/", breakdown_by="name")["totals"]
    assert totals == {"triggered": 5, "succeeded": 5}
    assert SECRET not in orjson.dumps(logs).decode() + project.server.output()
