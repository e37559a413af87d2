"""Outgoing requests over TLS: whom the runtime talks to, and what it makes of those that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.delivery.conftest import Receiver
from tests.functions.templates.receiver import Authority, Hosts

from hoglab.delivery.outbound import connections
from hoglab.delivery.outbound.addresses import AddressGuard
from hoglab.delivery.outbound.fetch import Fetcher, FetchFailure, FetchRequest, FetchResponse

GUARD = AddressGuard.create(["127.0.0.0/8"])


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    yield hosts
    hosts.close()


def fetched(url: str) -> FetchResponse | FetchFailure:
    async def go() -> FetchResponse | FetchFailure:
        fetcher = Fetcher(GUARD)
        try:
            return await fetcher.fetch(FetchRequest(url))
        finally:
            await fetcher.close()

    return asyncio.run(go())


def test_a_trusted_host_is_talked_to(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.lead_here(monkeypatch)
    hosts.answer_with([{"status": 200, "body": "hello"}])
    answer = fetched("https://api.example.com/")
    assert isinstance(answer, FetchResponse)
    assert answer.body == "hello"


def test_an_authority_of_the_operator_s_own_is_trusted(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = connections.tls_context
    hosts.lead_here(monkeypatch)
    hosts.answer_with([{"status": 200, "body": "hello"}])
    file = tmp_path / "authority.pem"
    file.write_text(hosts.authority.pem)
    monkeypatch.setattr(connections, "tls_context", system)
    assert isinstance(fetched("https://api.example.com/"), FetchFailure)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert isinstance(fetched("https://api.example.com/"), FetchResponse)


def test_a_certificate_that_nobody_trusts_is_a_failure_that_may_pass(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no bad URL: certificates expire and get renewed, so that the request is tried again."""
    hosts.lead_here(monkeypatch)
    other = Authority().context_of_clients()
    monkeypatch.setattr(connections, "tls_context", lambda: other)
    answer = fetched("https://api.example.com/")
    assert answer == FetchFailure("network", "CertificateError", "The TLS connection could not be verified")
    assert answer.retriable
    assert ": the certificate of api.example.com: " in answer.text
    assert hosts.requests == []


def test_a_port_without_tls_is_told_as_such(receiver: Receiver) -> None:
    answer = fetched(f"https://127.0.0.1:{receiver.port}/")
    assert isinstance(answer, FetchFailure)
    assert (
        answer.text == "The TLS connection could not be verified: 127.0.0.1 does not speak TLS at this port"
    )
