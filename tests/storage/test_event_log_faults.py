"""The event log when its process is killed and when its disk fills up for real."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log.sqlite import SqliteEventLog

pytestmark = pytest.mark.faults

PRODUCER = """
import asyncio, sys
from pathlib import Path
from hoglab.storage.event_log.sqlite import SqliteEventLog

async def produce(log, name):
    number = 0
    while True:
        payload = f"{sys.argv[2]}/{name}/{number}|".encode().ljust(200 + 977 * (number % 9), b"x")
        offset = await log.append(payload)
        sys.stdout.write(f"{offset} {payload.split(b'|')[0].decode()}\\n")
        sys.stdout.flush()
        number += 1

async def main():
    log = SqliteEventLog(Path(sys.argv[1]))
    await asyncio.gather(*(produce(log, name) for name in range(8)))

asyncio.run(main())
"""


def test_killed_ten_times_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    chance = random.Random(1)
    acknowledged: dict[int, str] = {}
    for turn in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", PRODUCER, str(path), str(turn)], stdout=subprocess.PIPE, text=True
        ) as producer:
            assert producer.stdout is not None
            for _ in range(chance.randrange(1, 400)):
                offset, _, name = producer.stdout.readline().partition(" ")
                assert int(offset) not in acknowledged
                acknowledged[int(offset)] = name.strip()
            producer.kill()
            for line in producer.stdout.read().splitlines(keepends=True):  # written before it died
                if line.endswith("\n"):
                    offset, _, name = line.partition(" ")
                    acknowledged[int(offset)] = name.strip()
        log = SqliteEventLog(path)
        records = log.read(0, max_records=1_000_000, max_bytes=1 << 40)
        log.close()
        stored = {record.offset: record.payload.split(b"|")[0].decode() for record in records}
        assert acknowledged.items() <= stored.items()
        assert len(set(stored.values())) == len(records)  # nothing twice
        assert sorted(stored) == list(range(1, len(records) + 1))  # no gaps either
        for record in records:
            number = int(record.payload.split(b"|")[0].rpartition(b"/")[2])
            assert len(record.payload) == 200 + 977 * (number % 9)


FILLER = """
import asyncio, sys
from pathlib import Path
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_log.sqlite import SqliteEventLog

folder = Path(sys.argv[1])

async def fill(log, first):
    accepted = []
    for number in range(first, first + 1000):
        try:
            accepted.append(await log.append(b"%d|" % number + b"x" * 50_000))
        except EventLogFullError as error:
            assert error.retry_after_s == 30, error
            return accepted
    raise SystemExit("the disk never filled")

async def main():
    ballast = folder / "ballast"
    ballast.write_bytes(b"x" * 6_000_000)
    log = SqliteEventLog(folder / "queue.db", min_free_disk_bytes=0)
    first = await fill(log, 0)
    again = await fill(log, 1000)
    ballast.unlink()
    later = [await log.append(b"later|" + b"x" * 50_000) for _ in range(20)]
    log.commit("consumer", later[-1])
    records = log.read(0, max_records=10_000, max_bytes=1 << 40)
    assert [record.offset for record in records] == first + again + later, "lost or doubled"
    assert all(len(record.payload) > 50_000 for record in records)
    log.close()
    print("accepted", len(first), len(again), len(later))

asyncio.run(main())
"""


def test_a_disk_that_fills_up_refuses_requests_and_recovers(tmp_path: Path) -> None:
    """On a file system of 16 MB of our own, in a mount namespace of our own."""
    inside = 'mount -t tmpfs -o size=16m none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", inside, "sh"]
    try:
        subprocess.run([*command, str(tmp_path), "true", ""], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets us mount nothing")
    done = subprocess.run(
        [*command, str(tmp_path), sys.executable, FILLER], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.splitlines()[-1].split()
    assert words[0] == "accepted"
    assert int(words[1]) > 10
    assert int(words[3]) == 20


def test_a_disk_without_room_is_full_whatever_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SqliteEventLog(tmp_path / "queue.db", min_free_disk_bytes=0)
    try:
        log.check()
        monkeypatch.setattr(SqliteEventLog, "_free_disk_bytes", lambda _: 500_000)
        with pytest.raises(EventLogFullError, match="nearly full"):
            log.check()
    finally:
        log.close()
