"""The real Python SDK speaking v1: the same events are stored as over v0 (spec: sdk-wire 1.15, 6.2)."""

from __future__ import annotations

from typing import Any

import posthog
import pytest

from hoglab.capture.records import decode_record
from hoglab.http.server import Address
from hoglab.ingestion.normalise import Event, events_of

pytestmark = pytest.mark.clients


def stored(server: Any) -> list[Event]:
    """Everything in the log, as ingestion reads it."""
    return [
        event
        for each in server.log.read(0, max_records=1000, max_bytes=2**30)
        for event in events_of(decode_record(each.payload), each.offset, [])
    ]


def use(address: Address, **options: Any) -> None:
    client = posthog.Posthog("phc_first_project", host=address.url, flush_at=50, **options)
    for number in range(5):
        client.capture(
            "viewed",
            distinct_id=f"user-{number}",
            properties={
                "n": number,
                "text": "é\u2028",
                "$session_id": "0197a3b2-0000-7000-8000-00000000000a",
            },
            groups={"company": "acme"},
        )
    client.set(distinct_id="user-1", properties={"plan": "pro"})
    client.alias(previous_id="anon", distinct_id="user-1")
    client.group_identify("company", "acme", {"name": "Acme"}, distinct_id="user-1")
    client.capture("personless", distinct_id="user-9", properties={"$process_person_profile": False})
    client.shutdown()


def comparable(events: list[Event]) -> list[Any]:
    return [
        (
            event.event,
            event.distinct_id,
            {name: value for name, value in event.properties.items() if name != "$sent_at"},
        )
        for event in events
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate", "zstd"])
def test_v1_stores_what_v0_stores(server: Any, address: Address, compression: str) -> None:
    use(address)
    over_v0 = stored(server)
    assert len(over_v0) == 9
    use(address, capture_mode="v1", capture_compression=compression)
    over_v1 = stored(server)[9:]
    assert comparable(over_v1) == comparable(over_v0)
    assert len({event.uuid for event in over_v0 + over_v1}) == 18
    drift = [abs((event.timestamp - event.captured_at).total_seconds()) for event in over_v1]
    assert max(drift) < 30
