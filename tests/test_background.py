"""Rounds of background services: woken, failing, ended."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from hoglab.app import Hoglab
from hoglab.background import MAX_RETRY_S, RETRY_S, BackgroundService
from hoglab.settings import Settings


class Rounds(BackgroundService):
    """Counts its rounds; does ``work`` in each."""

    NAME = "rounds"

    def __init__(self, wait_s: float | None = None) -> None:
        super().__init__()
        self.done = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()
        self.errors: list[Exception] = []
        self.wait_s = wait_s

    def round(self) -> float | None:
        assert self.go_on.wait(PATIENCE_S)
        self.done.release()
        if self.errors:
            raise self.errors.pop()
        return self.wait_s

    def was_done(self) -> bool:
        return self.done.acquire(timeout=PATIENCE_S)


def test_a_service_works_at_once_and_when_it_is_woken() -> None:
    service = Rounds()
    service.start()
    assert service.was_done()
    assert not service.done.acquire(timeout=0.05), "nobody woke it"
    service.wake()
    assert service.was_done()
    service.stop(PATIENCE_S)
    assert not service._thread.is_alive()


def test_a_service_works_again_after_the_time_that_its_round_named() -> None:
    service = Rounds(0.001)
    service.start()
    assert all(service.was_done() for _ in range(3))
    service.stop(PATIENCE_S)


def test_a_wake_during_a_round_is_not_lost() -> None:
    service = Rounds()
    service.go_on.clear()
    service.start()
    service.wake()
    service.go_on.set()
    assert service.was_done()
    assert service.was_done()
    service.stop(PATIENCE_S)


def test_a_service_that_never_started_can_be_stopped() -> None:
    Rounds().stop(PATIENCE_S)


def test_what_a_round_waits_for_is_interrupted_when_no_other_begins() -> None:
    seen: list[bool] = []

    class Waiting(Rounds):
        def interrupt(self) -> None:
            seen.append(self.is_stopping and self._thread.is_alive())
            self.go_on.set()

    service = Waiting(0.0)
    service.go_on.clear()
    service.start()
    service.stop(PATIENCE_S)
    assert seen == [True]
    assert not service._thread.is_alive()


@pytest.mark.logs_exceptions
def test_rounds_that_fail_are_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Rounds()
    service.errors = [LookupError("a mistake of ours") for _ in range(8)]
    waits: list[float] = []
    monkeypatch.setattr(service._stopping, "wait", waits.append)
    service.start()
    assert all(service.was_done() for _ in range(9))
    service.stop(PATIENCE_S)
    assert waits == [RETRY_S, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_RETRY_S, MAX_RETRY_S]


LATER = {
    "flag-preload": "for processes beside a core",
    "event-log-leases": "for logs that several processes share",
}
"""Services that a server with every role makes and does not start, each with the reason."""


def test_a_server_starts_every_service_that_it_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services: list[BackgroundService] = []
    init = BackgroundService.__init__

    def noting(self: BackgroundService) -> None:
        services.append(self)
        init(self)

    monkeypatch.setattr(BackgroundService, "__init__", noting)
    server = Hoglab.open(Settings(data=tmp_path / "data", access_log=False))
    server.start()
    try:
        idle = {service.NAME for service in services if service._thread.ident is None}
    finally:
        server.stop()
    assert len(services) > 10
    assert idle == set(LATER)
