"""How the server is doing: true figures, for administrators alone, and cheap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest
from tests.conftest import StartServer
from tests.http.asgi import ask
from tests.waiting import PATIENCE_S

from hoglab.accounts.service import AccountService
from hoglab.app import Hoglab, services
from hoglab.app.status_warnings import FunctionTroubles, StatusLimits, warnings_of
from hoglab.app.system_status import _Rate
from hoglab.http.health import Problem
from hoglab.http.identity import Level
from hoglab.settings import Settings

PATH = "/api/system_status/"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_server_says_of_itself(start_server: StartServer) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.api_key}"}) as client:
        first = client.get(PATH)
        assert first.status_code == 200, first.text
        assert (first.json()["ready"], first.json()["reasons"], first.json()["warnings"]) == (True, [], [])
        batch = [{"event": "e", "distinct_id": "d", "properties": {}} for _ in range(500)]
        sent = client.post("/batch/", json={"api_key": server.project_token, "batch": batch})
        assert sent.status_code == 200
        rates = []

        def is_stored() -> bool:
            status = client.get(PATH).json()
            rates.append(status["ingestion"]["events_per_s"])
            return max(rates) > 0 and status["event_log"]["waiting_records"] == 0

        until(is_stored)
        assert max(rates) <= 500
        status = client.get(PATH).json()
        sizes = {each["name"]: each["bytes"] for each in status["storage"]}
        assert sizes.keys() >= {"hoglab.db", "queue.db", "events.duckdb"}
        assert sizes["hoglab.db"] >= (server.data / "hoglab.db").stat().st_size
        assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
        assert status["disk_free_bytes"] > 0
        assert 50_000_000 < status["memory_bytes"] < 4_000_000_000
        assert (
            status["started_at"] < first.headers["date"] or status["started_at"] == first.json()["started_at"]
        )
        assert status["event_log"]["limit_bytes"] == 2048 * 1024 * 1024
        assert status["delivery"]["waiting"] == status["delivery"]["dead"] == 0


PROBLEMS = [Problem("event log", "the disk is full: make room"), Problem("delivery", "late", blocks=False)]


@pytest.fixture
def hoglab(tmp_path: Path) -> Hoglab:
    return Hoglab.open(Settings(data=tmp_path / "data", access_log=False))


def test_what_waits_what_is_wrong_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server whose background services do not run."""
    monkeypatch.setattr(services, "problems", lambda *_: PROBLEMS)
    hoglab = Hoglab.open(Settings(data=tmp_path / "data", access_log=False))
    try:
        key = hoglab.first_start
        assert key is not None
        event = {"api_key": key.project_token, "event": "e", "distinct_id": "d"}

        async def go() -> dict[str, object]:
            for _ in range(3):
                sent = [(b"content-type", b"application/json")]
                assert (
                    await ask(hoglab.http, "POST", "/capture/", sent, body=[orjson.dumps(event)])
                ).status == 200
            answer = await ask(
                hoglab.http, "GET", PATH, [(b"authorization", f"Bearer {key.api_key}".encode())]
            )
            shown: dict[str, object] = orjson.loads(answer.body)
            return shown

        status = asyncio.run(go())
    finally:
        hoglab.stop()
    log = status["event_log"]
    assert isinstance(log, dict)
    assert log["waiting_records"] == 3
    assert log["waiting_bytes"] > 0
    assert (status["ready"], status["reasons"]) == (False, ["event log: the disk is full: make room"])
    assert status["warnings"] == [
        {"code": "event_log", "message": "the disk is full", "hint": "make room"},
        {"code": "delivery", "message": "late", "hint": None},
    ]


def test_only_administrators_see_it(hoglab: Hoglab) -> None:
    accounts: AccountService = hoglab.accounts
    member = accounts.create_user("m@example.com")
    accounts.join(accounts.projects()[0].organization_id, member.id, Level.MEMBER)
    owner = accounts.owner_id()
    keys = {
        accounts.create_key(member.id, "m", ["*"]).value: 403,
        accounts.create_key(owner, "o", ["project:read"]).value: 403,
        accounts.create_key(owner, "l", ["*"], scoped_projects=[1]).value: 403,
        accounts.create_key(owner, "a", ["organization:read"]).value: 200,
    }
    try:

        async def go(key: str) -> int:
            return (
                await ask(hoglab.http, "GET", PATH, [(b"authorization", f"Bearer {key}".encode())])
            ).status

        assert {key: asyncio.run(go(key)) for key in keys} == keys
    finally:
        hoglab.stop()


def test_a_look_costs_little(hoglab: Hoglab, no_collector: None) -> None:
    """Computing time, for waiting depends on the machine; the limit is 20 ms."""
    look = hoglab.status.look
    try:
        look()
        costs = []
        for _ in range(20):
            began = time.thread_time()
            look()
            costs.append(time.thread_time() - began)
    finally:
        hoglab.stop()
    assert min(costs) < 0.02


def test_rates_are_those_since_the_last_look() -> None:
    now = [0.0]
    rate = _Rate(lambda: now[0])
    assert rate.of(100) == 0
    now[0] = 2.0
    assert rate.of(150) == 25
    now[0] = 2.5
    assert rate.of(150) == 20  # less than a second after that: since the one before
    now[0] = 4.0
    assert rate.of(180) == 20


MIB = 1024 * 1024
LIMITS = StatusLimits(log_bytes=100 * MIB, free_disk_bytes=200 * MIB)
FINE = {
    "delivery": {"oldest_due_s": None, "dead": 0},
    "event_log": {"waiting_bytes": 0},
    "disk_free_bytes": 10_000 * MIB,
}
BEYOND: list[tuple[str, dict[str, object], str]] = [
    ("delivery_late", {"delivery": {"oldest_due_s": 60.1, "dead": 0}}, "60 s"),
    ("dead_letters", {"delivery": {"oldest_due_s": None, "dead": 1}}, "none"),
    ("event_log_filling", {"event_log": {"waiting_bytes": 50 * MIB + 1}}, f"{100 * MIB:,} bytes"),
    ("disk_filling", {"disk_free_bytes": 400 * MIB - 1}, f"{200 * MIB:,} bytes"),
]
WITHIN: list[dict[str, object]] = [
    FINE,
    {"delivery": {"oldest_due_s": 60.0, "dead": 0}},
    {"event_log": {"waiting_bytes": 50 * MIB}},
    {"disk_free_bytes": 400 * MIB},
]
NO_TROUBLES = FunctionTroubles({}, ())


@pytest.mark.parametrize(("code", "figures", "limit"), BEYOND)
def test_a_figure_beyond_its_limit_is_a_warning_that_names_the_limit(
    code: str, figures: dict[str, object], limit: str
) -> None:
    (warning,) = warnings_of({**FINE, **figures}, NO_TROUBLES, LIMITS)
    assert warning["code"] == code
    assert limit in warning["message"]
    assert warning["hint"]


@pytest.mark.parametrize("figures", WITHIN)
def test_figures_within_their_limits_are_fine(figures: dict[str, object]) -> None:
    assert warnings_of({**FINE, **figures}, NO_TROUBLES, LIMITS) == []


@pytest.mark.parametrize(
    ("troubles", "code", "count"),
    [
        (FunctionTroubles({"a": 3}, ()), "functions_stopped", "1 function is"),
        (FunctionTroubles({"a": 2, "b": 2}, ()), "functions_slowed", "2 functions are"),
        (FunctionTroubles({}, {"a", "b"}), "destinations_away", "2 functions are"),
    ],
)
def test_functions_that_fail_are_a_warning(troubles: FunctionTroubles, code: str, count: str) -> None:
    (warning,) = warnings_of(FINE, troubles, LIMITS)
    assert (warning["code"], warning["message"].startswith(count)) == (code, True)


def test_nothing_that_waits_has_no_age(hoglab: Hoglab) -> None:
    try:
        figures = hoglab.status.look()
    finally:
        hoglab.stop()
    assert (figures["event_log"]["oldest_s"], figures["delivery"]["oldest_due_s"]) == (None, None)
