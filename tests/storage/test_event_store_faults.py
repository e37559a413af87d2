"""The event store when its process is killed and when its disk fills up for real."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from hoglab.storage.event_store.duckdb import DuckDbEventStore

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from uuid import UUID, uuid5
from hoglab.storage.event_store import EventBatch, PersonOverride
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from tests.storage.event_rows import event_row

def batch(offset):
    # Log records 3 * offset - 2 .. 3 * offset, seven events each; the last one resends one of the batch before.
    rows = [
        event_row(3 * offset - 2 + number // 7, uuid=uuid5(UUID(int=offset), str(number)), distinct_id=f"u{number}")
        for number in range(21)
    ]
    if offset > 1:
        rows.append(event_row(3 * offset, uuid=uuid5(UUID(int=offset - 1), "3"), distinct_id="u3"))
    return EventBatch(rows, [PersonOverride(1, UUID(int=offset), UUID(int=offset + 1))])

store = DuckDbEventStore(Path(sys.argv[1]), memory="200MB")
print("position", store.position(), flush=True)
offset = store.position() // 3
if offset:  # the batch that may or may not have been acknowledged
    assert len(store.append(batch(offset), log_offset=3 * offset)) == 21
while True:
    offset += 1
    assert len(store.append(batch(offset), log_offset=3 * offset)) == 21
    print("stored", offset, flush=True)
    if offset % 40 == 0:
        store.checkpoint()
"""


@pytest.mark.slow
def test_killed_ten_times_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.duckdb"
    chance = random.Random(2)
    acknowledged = 0
    for _ in range(10):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as writer:
            assert writer.stdout is not None
            word, position = writer.stdout.readline().split()
            assert word == "position"
            assert int(position) % 3 == 0  # whole batches only
            assert acknowledged <= int(position) // 3 <= acknowledged + 1
            for _ in range(chance.randrange(1, 40)):
                acknowledged = int(writer.stdout.readline().split()[1])
            writer.kill()
            for line in writer.stdout.read().splitlines(keepends=True):  # written before it died
                if line.endswith("\n"):
                    acknowledged = int(line.split()[1])

    store = DuckDbEventStore(path)
    batches = store.position() // 3
    assert acknowledged <= batches <= acknowledged + 1
    with store.reader() as reader:
        counts = "SELECT count(*), count(DISTINCT uuid), min(seq), max(seq), max(log_offset) FROM events"
        expected = (21 * batches, 21 * batches, 1, 21 * batches, 3 * batches)
        assert reader.execute(counts) == [expected]
        per_record = "SELECT DISTINCT count(*) FROM events GROUP BY log_offset"
        assert reader.execute(per_record) == [(7,)]
        merged = "SELECT count(*), count(DISTINCT person_id) FROM person_override"
        assert reader.execute(merged) == [(batches, 1)]
    store.close()


FILLER = """
import sys
from pathlib import Path
from hoglab.storage.event_store import EventBatch, EventStoreUnavailableError
from hoglab.storage.event_store import duckdb as module
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from tests.storage.event_rows import event_row
import random

module.CHECKPOINT_BYTES = int(sys.argv[2])
folder = Path(sys.argv[1])
ballast = folder / "ballast"
ballast.write_bytes(b"x" * 12_000_000)
store = DuckDbEventStore(folder / "events.duckdb", min_free_disk_bytes=0)
stored = set()
refused = 0

def batch(offset):
    text = lambda: random.randbytes(700).hex()
    return EventBatch([event_row(offset, properties=b'{"x":"%s"}' % text().encode()) for _ in range(100)])

offset, attempt = 0, batch(1)
while refused < 3:
    try:
        new = store.append(attempt, log_offset=offset + 1)
    except EventStoreUnavailableError as error:
        refused += 1
        continue
    stored |= {attempt.rows[position].uuid for position in new}
    offset, attempt = offset + 1, batch(offset + 2)
    assert offset < 1000, "the disk never filled"
ballast.unlink()
for _ in range(5):  # the batch that was refused, and others
    new = store.append(attempt, log_offset=offset + 1)
    assert len(new) == 100
    stored |= {attempt.rows[position].uuid for position in new}
    offset, attempt = offset + 1, batch(offset + 2)
assert store.position() == offset
with store.reader() as reader:
    found = {uuid for (uuid,) in reader.execute("SELECT uuid FROM events")}
    [(count,)] = reader.execute("SELECT count(*) FROM events")
assert len(found) == count == len(stored), (len(found), count, len(stored))
assert found == stored
store.close()
print("stored", count)
"""


@pytest.mark.parametrize("checkpoint_bytes", [1 << 20, 1 << 30], ids=["rewriting the file", "appending"])
def test_a_disk_that_fills_up_refuses_batches_and_recovers(tmp_path: Path, checkpoint_bytes: int) -> None:
    """On a file system of 24 MB of our own, in a mount namespace of our own."""
    inside = 'mount -t tmpfs -o size=24m none "$1" && exec "$2" -c "$3" "$1" "$4"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", inside, "sh"]
    try:
        subprocess.run([*command, str(tmp_path), "true", "", ""], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets us mount nothing")
    done = subprocess.run(
        [*command, str(tmp_path), sys.executable, FILLER, str(checkpoint_bytes)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[1]) > 500
