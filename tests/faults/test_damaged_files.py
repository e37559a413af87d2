"""Flipped bytes and cut ends of every file: the server answers right, refuses clearly, or says what is degraded."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from tests.conftest import free_port
from tests.forked import ForkedServer
from tests.generated import SEED
from tests.ingestion.conftest import event, record
from tests.waiting import PATIENCE_S, wait_for

from hoglab.app import Hoglab
from hoglab.demo.api import Api
from hoglab.people import erasing
from hoglab.settings import Settings
from hoglab.storage.event_store.sealed.sealing import SealingLimits

PLACES = int(os.environ.get("HOGLAB_TEST_DAMAGES", "1"))
EVENTS = 300
SEALED = 200
STOPPED = (
    "hoglab.db",
    "queue.db",
    "events.duckdb",
    "events.duckdb.keys",
    "aggregate-cache.duckdb",
    "secret-keys",
)
KILLED = ("hoglab.db-wal", "hoglab.db-shm", "queue.db-wal", "queue.db-shm", "events.duckdb.wal")
FORWARD = {
    "name": "Forward",
    "type": "destination",
    "enabled": False,
    "hog": "print(inputs.key)",
    "inputs_schema": [{"key": "key", "type": "string", "secret": True}],
    "inputs": {"key": {"value": "very secret"}},
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that was used and left: with sealed and other events, persons, their index, flags, keys, a secret."""
    data = tmp_path_factory.mktemp("stopped") / "data"
    server = ForkedServer(data=data, host="127.0.0.1", port=free_port(), environment={})
    server.start()
    headers = {"Authorization": f"Bearer {server.api_key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_S) as client:
        for number in range(20):
            body = {"key": f"f{number}", "filters": {"groups": [{"rollout_percentage": number}]}}
            assert client.post("/api/projects/1/feature_flags/", json=body).status_code == 201
            body = {"label": f"key {number}", "scopes": ["*"]}
            assert client.post("/api/personal_api_keys/", json=body).status_code == 201
    Api(server.url, server.api_key).create_hog_function(FORWARD)
    server.stop()
    hoglab = Hoglab.open(Settings(data=data))
    hoglab.start()
    send(hoglab, 0, EVENTS)
    hoglab.engines.store.seal(SealingLimits(idle_rows=1, recent_rows=EVENTS - SEALED), is_idle=True)
    with hoglab.engines.database.write() as tx:
        while erasing.person_search(tx.connection).fill(tx.connection):
            pass
    hoglab.engines.store.checkpoint()
    hoglab.stop()
    return data


@pytest.fixture(scope="module")
def killed(stopped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same while it is used further, as a killed process leaves it: with all that stands beside the files."""
    folder = tmp_path_factory.mktemp("killed")
    used = Path(shutil.copytree(stopped, folder / "used"))
    hoglab = Hoglab.open(Settings(data=used))
    hoglab.start()
    left = folder / "left"
    for first in range(EVENTS, 2 * EVENTS, 50):
        send(hoglab, first, first + 50)
        shutil.copytree(used, left, ignore=shutil.ignore_patterns("*.sock"))
        # A server empties the logs soon after its start, and then once an hour.
        if all(log.stat().st_size for log in left.glob("*-wal")):
            break
        shutil.rmtree(left)
    hoglab.stop()
    return left


def send(hoglab: Hoglab, first: int, last: int) -> None:
    for start in range(first, last, 50):
        events = [
            event("e", f"p{n}", uuid=str(UUID(int=n + 1)), properties={"n": n, "$set": {"n": n}})
            for n in range(start, start + 50)
        ]
        asyncio.run(hoglab.engines.log.append(record(*events)))
    wait_for(lambda: hoglab.engines.store.position() >= hoglab.engines.log.last_offset())


def damage(path: Path, dice: random.Random, how: str) -> str:
    file = max(path.iterdir(), key=lambda each: each.stat().st_size) if path.is_dir() else path
    size = file.stat().st_size
    if how == "cut":
        left = dice.randrange(size)
        os.truncate(file, left)
        return f"{file.name} cut to {left} of {size}"
    place, mask = dice.randrange(size), 1 << dice.randrange(8)
    with file.open("r+b") as opened:
        opened.seek(place)
        (byte,) = opened.read(1)
        opened.seek(place)
        opened.write(bytes((byte ^ mask,)))
    return f"{file.name} flipped at {place} of {size}"


Look = Callable[[Path], str]


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    """How the start of a server on a directory ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.look"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asked, told = process.stdin, process.stdout

    def ask(data: Path) -> str:
        asked.write(f"{data}\n")
        asked.flush()
        said, verdict = [], ""
        while line := told.readline():
            if line == "LOOKED\n":
                return verdict
            if line.startswith("LOOK "):
                verdict = line.removeprefix("LOOK ").rstrip("\n")
            else:
                said.append(line)
        raise AssertionError("".join(said))

    yield ask
    asked.close()
    process.wait(60)
    told.close()


@pytest.fixture(scope="module")
def right(
    stopped: Path, killed: Path, look: Look, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, str]:
    """What undamaged copies answer."""
    found = {}
    for number, source in enumerate((stopped, killed)):
        found[source] = look(Path(shutil.copytree(source, tmp_path_factory.mktemp("right") / str(number))))
        assert found[source].startswith("answers "), found[source]
    return found


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900 + 60 * PLACES)
@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("name", STOPPED + KILLED)
def test_damage_is_never_silently_wrong(
    stopped: Path, killed: Path, look: Look, right: dict[Path, str], tmp_path: Path, name: str, how: str
) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(f"{SEED}:{name}:{how}")
    source = killed if name in KILLED else stopped
    for number in range(PLACES):
        data = tmp_path / str(number)
        shutil.copytree(source, data)
        what = damage(data / name, dice, how)
        verdict = look(data)
        kind, _, rest = verdict.partition(" ")
        print(f"{what}: {kind} {'' if kind == 'answers' else rest[:200]}")
        if kind == "answers":
            assert verdict == right[source], f"{what}: silently wrong: {rest}, not {right[source]}"
        else:
            assert kind in ("refused", "degraded"), f"{what}: {verdict}"
            assert rest
        shutil.rmtree(data)
