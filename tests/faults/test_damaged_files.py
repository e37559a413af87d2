"""Flipped bytes and cut ends of every file: the server answers right, refuses clearly, or says what is degraded."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ingestion.conftest import event, record, wait_for

from hoglab.app import Hoglab
from hoglab.settings import Settings

PLACES = int(os.environ.get("HOGLAB_TEST_DAMAGES", "1"))
SEED = int(os.environ.get("HOGLAB_TEST_SEED", str(random.SystemRandom().randrange(2**32))))
EVENTS = 300
FILES = ("hoglab.db", "queue.db", "events.duckdb", "secret-keys")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("sound") / "data"
    hoglab = Hoglab.open(Settings(data=data))
    hoglab.start()
    for start in range(0, EVENTS, 100):
        events = [
            event("e", f"p{n}", properties={"n": n, "$set": {"n": n}}) for n in range(start, start + 100)
        ]
        asyncio.run(hoglab.engines.log.append(record(*events)))
    wait_for(lambda: hoglab.engines.store.position() >= hoglab.engines.log.last_offset())
    hoglab.engines.store.checkpoint()
    hoglab.stop()
    return data


def damage(file: Path, dice: random.Random, how: str) -> str:
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


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * PLACES)
@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_never_silently_wrong(sound: Path, tmp_path: Path, name: str, how: str) -> None:
    print(f"HOGLAB_TEST_SEED={SEED}")
    dice = random.Random(f"{SEED}:{name}:{how}")
    right = (EVENTS, EVENTS * (EVENTS - 1) // 2)
    for number in range(PLACES):
        data = tmp_path / str(number)
        shutil.copytree(sound, data)
        what = damage(data / name, dice, how)
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.look", str(data)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=Path(__file__).parents[2],
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("LOOK ")]
        assert lines, f"{what}: {done.stdout}{done.stderr}"
        verdict = lines[-1].removeprefix("LOOK ")
        kind, _, rest = verdict.partition(" ")
        if kind == "answers":
            assert rest == f"{right[0]} {right[1]}", f"{what}: silently wrong: {rest}"
        else:
            assert kind in ("refused", "degraded"), f"{what}: {verdict}"
            assert rest
        shutil.rmtree(data)
