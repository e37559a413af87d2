"""Deliveries while the disk is full: none is lost, and they go on when there is room again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DELIVER = """
import sys
from pathlib import Path

from tests.delivery.conftest import House, Receiver, stored
from tests.waiting import wait_for
from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.storage.database import Database, DatabaseError

folder = Path(sys.argv[1])
database = Database.open(folder / "hoglab.db")
bootstrap(database, AccountService(database))
database.dispose()
house, receiver = House(folder), Receiver()
house.open()
house.create("fetch(inputs.url, {'body': {'n': event.properties.n}})", values={"url": receiver.url})
events = [stored(properties={"n": n, "text": "x" * 2_000}) for n in range(60)]
house.dispatch(*events[:40])
ballast = folder / "ballast"
with ballast.open("wb", buffering=0) as file:  # until nothing more goes in
    try:
        while True:
            file.write(b"x" * 4096)
    except OSError:
        pass
full = 0
try:
    for _ in range(200):
        house.dispatch(*(stored(properties={"n": -1, "text": "y" * 2_000}) for _ in range(20)))
except DatabaseError as error:
    assert "disk is full" in str(error), error
    full += 1
failed = []
claim, sweep = house.queue.claim, house.queue.sweep

def watched(step):
    def call(*args, **options):
        try:
            return step(*args, **options)
        except DatabaseError as error:
            failed.append(str(error))
            raise
    return call

house.queue.claim, house.queue.sweep = watched(claim), watched(sweep)
house.delivery.start()
wait_for(lambda: len(failed) >= 3)  # it keeps trying
ballast.unlink()
house.dispatch(*events[40:])
wait_for(lambda: house.queue.counts.backlog() == 0)
finished = house.results()
assert {result["status"] for result in finished} == {"succeeded"}, finished
found = {hit.json["n"] for hit in receiver.hits if hit.json["n"] >= 0}
assert found == set(range(60)), found
keys = {}
for hit in receiver.hits:
    if hit.json["n"] >= 0:
        keys.setdefault(hit.json["n"], set()).add(hit.headers["idempotency-key"])
assert all(len(each) == 1 for each in keys.values()), keys
house.close()
receiver.close()
print("refused", full, "delivered", len(found))
"""


def test_a_full_disk_delays_deliveries_and_loses_none(tmp_path: Path) -> None:
    """On a file system of 24 MB of our own, in a mount namespace of our own."""
    inside = 'mount -t tmpfs -o size=24m none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", inside, "sh"]
    try:
        subprocess.run([*command, str(tmp_path), "true", ""], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets us mount nothing")
    done = subprocess.run(
        [*command, str(tmp_path), sys.executable, DELIVER],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "refused 1 delivered 60"
