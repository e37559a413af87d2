"""A stranger, a hostile key and hostile functions at work, and a project beside them that notices nothing.

``HOGLAB_TEST_ABUSE_S``: for how many seconds; `make soak` says minutes, and the bounds are strict then. Without it the
attacks are short, and the bounds so generous that neither other tests at work nor a slow machine reach them, but only a
wall that is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.conftest import StartServer
from tests.faults.abuse.neighbours import MAX_RESIDENT, Resident, Shop, enemy
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

IS_LONG = "HOGLAB_TEST_ABUSE_S" in os.environ
SECONDS = float(os.environ.get("HOGLAB_TEST_ABUSE_S", "5"))
TIMES_ALONE = 3 if IS_LONG else 10
FLOORS_S = (
    {"flags": 0.25, "capture": 0.5, "results": 3.0, "delivery": 5.0}
    if IS_LONG
    else {"flags": 3.0, "capture": 3.0, "results": 15.0, "delivery": 15.0}
)
"""What 99 of 100 may take anyway: on a small machine the attacks that are allowed take their share of time too."""


@pytest.fixture
def destination() -> Iterator[Destination]:
    with Destination() as destination:
        yield destination


@pytest.mark.parametrize("kind", ["stranger", "key", "function"])
def test_others_notice_nothing(
    start_server: StartServer, destination: Destination, kind: str, request: pytest.FixtureRequest
) -> None:
    server = start_server(
        HOGLAB_EVENT_STORE_MEMORY="256MB",
        HOGLAB_FETCH_ALLOW_CIDRS="127.0.0.1/32",
        HOGLAB_RESULTS_REFRESH_S="5",
    )
    shop = Shop(server, destination)
    request.addfinalizer(shop.close)
    rest = (*enemy(server), f"{destination.url}hang")
    shop.work(1)
    alone = shop.work(SECONDS / 2)
    command = [sys.executable, "-m", "tests.faults.abuse.attackers", kind, server.url, str(SECONDS + 2)]
    with Resident(server) as resident:
        attacker = subprocess.Popen([*command, *rest], stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(2)  # what they need to begin
            attacked = shop.work(SECONDS)
        finally:
            printed, _ = attacker.communicate(timeout=PATIENCE_S)
    answers = json.loads(printed)
    assert attacker.returncode == 0
    assert sum(answers.values()) > 0
    assert not [status for status in answers if status in ("500", "502")], answers
    later = shop.work(1)
    figures = {
        name: (round(alone[name], 3), round(attacked[name], 3), round(later[name], 3)) for name in alone
    }
    print(kind, figures, f"{resident.most >> 20} MiB", answers)
    slow = {
        name: times
        for name, times in figures.items()
        if attacked[name] > max(TIMES_ALONE * alone[name], FLOORS_S[name])
    }
    assert not slow, (figures, answers)
    assert resident.most < MAX_RESIDENT, (resident.most, answers)
    assert len(shop.sent) == len({name for name in shop.sent if name in destination.bodies})
