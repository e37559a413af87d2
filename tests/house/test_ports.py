"""Ports of test servers: no two are given the same one, and only the newest are kept from others."""

from __future__ import annotations

import socket

import pytest
from tests import conftest


def test_ports_are_reserved_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "PORTS_RESERVED", 3)
    ports = [conftest.free_port() for _ in range(10)]
    assert len(set(ports)) == 10
    assert [reservation.getsockname()[1] for reservation in conftest._reserved_ports] == ports[-3:]
    with socket.socket(type=socket.SOCK_DGRAM) as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", ports[-1]))
