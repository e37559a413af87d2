"""Backups beside a running server: of one moment, verified, incremental, restored without doing anything twice."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import threading
from functools import partial
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import duckdb
import httpx
import pytest
from tests import forked, waiting
from tests.conftest import StartServer, free_port
from tests.embedded import EmbeddedEventLog
from tests.faults.destination import Destination
from tests.ingestion.conftest import event, record
from tests.waiting import PATIENCE_S

from hoglab.app import Hoglab
from hoglab.backup.checking import check
from hoglab.backup.making import make_backup, packed
from hoglab.backup.repository import BackupError, BackupRepository
from hoglab.backup.restoring import restore_backup
from hoglab.capture.records import decode_record
from hoglab.demo.api import Api
from hoglab.demo.server import ChildServer
from hoglab.settings import Settings

FORWARD = {
    "name": "Forward purchases",
    "type": "destination",
    "enabled": True,
    "hog": "fetch(inputs.url, {'body': {'uuid': event.uuid}})",
    "inputs_schema": [{"key": "url", "type": "string", "required": True, "secret": True}],
    "filters": {"events": [{"id": "bought", "type": "events"}]},
}
BACKUPS = int(os.environ.get("HOGLAB_TEST_BACKUPS", "2"))
LOCAL = {"HOGLAB_FETCH_ALLOW_CIDRS": "127.0.0.1/32"}


def hoglab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(*arguments)


def send(server: ChildServer, *names: str) -> list[str]:
    events = [{"uuid": str(uuid4()), "event": name, "distinct_id": "ann"} for name in names]
    body = {"api_key": server.project_token, "batch": events}
    assert httpx.post(f"{server.url}/batch/", json=body, timeout=PATIENCE_S).status_code == 200
    return [event["uuid"] for event in events]


wait_for = partial(waiting.wait_for, every_s=0.1)


def stored(server: ChildServer) -> set[str]:
    headers = {"Authorization": f"Bearer {server.api_key}"}
    answer = httpx.get(f"{server.url}/api/projects/1/events/", params={"limit": 1000}, headers=headers)
    return {event["uuid"] for event in answer.json()["results"]}


def uuids_in(data: Path) -> set[str]:
    connection = duckdb.connect(str(data / "events.duckdb"))
    found = connection.execute("SELECT uuid::VARCHAR FROM stored_events").fetchall()
    connection.close()
    return {uuid for (uuid,) in found}


class Writer(threading.Thread):
    """Sends events and changes flags until it is stopped."""

    def __init__(self, server: ChildServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.sent: list[str] = []
        self.flags: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self.server.api_key}"}
        with httpx.Client(base_url=self.server.url, headers=headers, timeout=PATIENCE_S) as client:
            while not self.stopped.is_set():
                self.sent += send(self.server, *["viewed"] * 20)
                key = f"flag-{uuid4()}"
                body = {"key": key, "filters": {"groups": [{"rollout_percentage": 50}]}}
                made = client.post("/api/projects/1/feature_flags/", json=body)
                assert made.status_code == 201, made.text
                self.flags.append(key)


@pytest.mark.timeout(900 + 30 * BACKUPS)
def test_a_backup_under_load_has_all_that_was_answered_before_it(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(data=tmp_path / "data")
    writers = [Writer(server) for _ in range(2)]
    for writer in writers:
        writer.start()
    before, made = [], []
    try:
        wait_for(lambda: all(writer.flags for writer in writers))
        for _ in range(BACKUPS):
            before.append([(list(writer.sent), list(writer.flags)) for writer in writers])
            made.append(make_backup(server.data, tmp_path / "backups").manifest)
    finally:
        for writer in writers:
            writer.stopped.set()
            writer.join(60)
    wait_for(lambda: set(writers[0].sent[-20:]) <= stored(server))
    server.stop()
    for number, (answered, manifest) in enumerate(zip(before, made, strict=True)):
        data = tmp_path / "restored" / str(number)
        data.parent.mkdir(exist_ok=True)
        restored = restore_backup(tmp_path / "backups", data, name=manifest.name)
        assert (restored.manifest, restored.generation) == (manifest, 2)
        assert check(data, full=True).problems == []
        position, digests = contents(data)
        assert position <= manifest.position <= manifest.log_last_offset
        assert digests == contents(server.data, position, manifest.log_last_offset)[1]
        with sqlite3.connect(data / "hoglab.db") as connection:
            flags = {key for (key,) in connection.execute("SELECT key FROM feature_flag")}
        for sent, changed in answered:
            assert set(sent) <= events_and_records(data)
            assert set(changed) <= flags
        if number < len(made) - 1:
            shutil.rmtree(data)
    again = start_server(data=data)  # what was accepted and not stored yet is stored now
    again.api_key, again.project_token = server.api_key, server.project_token
    marker = send(again, "marker")[0]
    headers = {"Authorization": f"Bearer {again.api_key}"}
    with httpx.Client(base_url=again.url, headers=headers, timeout=PATIENCE_S) as client:
        wait_for(lambda: client.get(f"/api/projects/1/events/{marker}/").status_code == 200)
    again.stop()
    events = uuids_in(data)
    for sent, _ in before[-1]:
        assert set(sent) <= events
    assert {marker} < events <= {marker, *writers[0].sent, *writers[1].sent}


def contents(
    data: Path, position: int | None = None, last: int | None = None
) -> tuple[int, dict[str, object]]:
    """How far a directory has stored, and digests of its events up to a position and of the log up to a record."""
    connection = duckdb.connect(str(data / "events.duckdb"))
    if position is None:
        [(position,)] = connection.execute("SELECT position FROM store_state").fetchall()
    events = connection.execute(
        "SELECT count(*), bit_xor(hash(seq, uuid, event, distinct_id, person_id, timestamp, properties)) "
        "FROM stored_events WHERE log_offset <= $1",
        [position],
    ).fetchall()
    connection.close()
    log = sha256()
    with sqlite3.connect(data / "queue.db") as queue:
        query = 'SELECT "offset", payload FROM event_log_record WHERE "offset" <= ? ORDER BY "offset"'
        for offset, payload in queue.execute(query, (2**60 if last is None else last,)):
            log.update(b"%d " % offset + payload)
    return position, {"events": events, "log": log.hexdigest()}


def events_and_records(data: Path) -> set[str]:
    """The uuids of all events that are stored or accepted."""
    with sqlite3.connect(data / "queue.db") as queue:
        records = [decode_record(each) for (each,) in queue.execute("SELECT payload FROM event_log_record")]
    accepted = {str(each.uuid) for one in records for each in one.envelope.events}
    return accepted | uuids_in(data)


def test_what_waits_is_restored_and_held_until_somebody_lets_it_go(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Records that were accepted and not stored, retries, backfills, internal events, quarantine."""
    port = free_port()
    server = start_server(data=tmp_path / "data", **LOCAL)
    url = {"url": {"value": f"http://127.0.0.1:{port}/"}}
    function = Api(server.url, server.api_key).create_hog_function({**FORWARD, "inputs": url})
    failed = send(server, "bought")
    with sqlite3.connect(server.data / "queue.db") as queue:
        waits = "SELECT count(*) FROM invocation WHERE status = 'available' AND scheduled_at > created_at"
        wait_for(lambda: queue.execute(waits).fetchone() == (1,))  # nobody listens: to be tried again
    server.stop()
    made_up = [event(name, uuid=str(uuid4())) for name in ("bought", "viewed")]
    log = EmbeddedEventLog(server.data / "queue.db")
    offset = asyncio.run(log.append(record(*made_up)))
    log.close()
    with sqlite3.connect(server.data / "queue.db") as queue:
        quarantined = (1, 1, "ValueError", 3, 0, 0, b"abc")
        queue.execute("INSERT INTO quarantined_record VALUES (?, ?, ?, ?, ?, ?, ?)", quarantined)
        names = [row[1] for row in queue.execute("PRAGMA table_info(backfill)")]
        job = dict.fromkeys(names, 0) | {"id": "b", "project_id": 1, "function_id": function["id"]}
        job |= {"status": "running", "selection": None, "error": None, "finished_at": None}
        queue.execute(
            f"INSERT INTO backfill VALUES ({', '.join(':' + name for name in names)})",  # noqa: S608
            job,
        )
    with sqlite3.connect(server.data / "hoglab.db") as metadata:
        metadata.execute(
            "INSERT INTO internal_event (project_id, uuid, event, distinct_id, properties, person, created_at) "
            "VALUES (1, 'u', '$activity_log_entry_created', 'd', '{}', '{}', 0)"
        )
    make_backup(server.data, tmp_path / "backups")
    restored = restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert restored.held == (1, 1, 1)
    assert check(tmp_path / "restored", full=True).problems == []
    with sqlite3.connect(tmp_path / "restored" / "hoglab.db") as metadata:
        assert metadata.execute("SELECT count(*) FROM internal_event").fetchone() == (0,)
    with sqlite3.connect(tmp_path / "restored" / "queue.db") as queue:
        found = queue.execute("SELECT status, error FROM backfill").fetchall()
        assert found == [("cancelled", "restored from a backup")]
        assert queue.execute("SELECT * FROM quarantined_record").fetchall() == [quarantined]
    with Destination(port) as destination:
        again = start_server(data=tmp_path / "restored", **LOCAL)
        again.api_key, again.project_token = server.api_key, server.project_token
        wait_for(lambda: {each["uuid"] for each in made_up} <= stored(again))
        told = httpx.get(f"{again.url}/_readiness", timeout=PATIENCE_S).json()["degraded"]
        assert any("1 runs from before the restore are held" in each for each in told)
        new = send(again, "bought")
        wait_for(lambda: new[0] in destination.bodies)
        assert set(destination.bodies) == set(new), "neither the retry nor what was accepted before"
        again.stop()
        hoglab = Hoglab.open(Settings(data=again.data, fetch_allow_cidrs=("127.0.0.1/32",)), deliver=True)
        hoglab.start()
        wait_for(lambda: failed[0] in destination.bodies)
        hoglab.stop()
        assert set(destination.bodies) == {*new, *failed}
    assert offset > 1


def test_a_restored_server_delivers_nothing_twice(start_server: StartServer, tmp_path: Path) -> None:
    with Destination() as destination:
        server = start_server(data=tmp_path / "data", **LOCAL)
        Api(server.url, server.api_key).create_hog_function(
            {**FORWARD, "inputs": {"url": {"value": destination.url}}}
        )
        first = send(server, "bought")
        wait_for(lambda: set(first) <= destination.bodies.keys())
        server.stop()
        delivered = len(destination.bodies[first[0]])
        # One run waits, and one event is in the log alone.
        queue = sqlite3.connect(server.data / "queue.db")
        queue.execute(
            "INSERT INTO invocation "
            "(id, project_id, function_id, queue, priority, scheduled_at, status, state, created_at) "
            "SELECT ?, project_id, function_id, 'hog', 0, 0, 'available', x'', created_at FROM invocation LIMIT 1",
            (str(uuid4()),),
        )
        queue.commit()
        queue.close()
        made = make_backup(server.data, tmp_path / "backups")
        done = hoglab("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
        assert "held: 1 runs" in done.stdout, done.stderr
        again = start_server(data=tmp_path / "restored", **LOCAL)
        again.api_key, again.project_token = server.api_key, server.project_token
        told = httpx.get(f"{again.url}/_readiness", timeout=PATIENCE_S).json()["degraded"]
        assert any("1 runs from before the restore are held" in each for each in told)
        second = send(again, "bought")  # what is new is delivered
        wait_for(lambda: set(second) <= destination.bodies.keys())
        assert set(destination.bodies) == {*first, *second}
        assert all(len(set(keys)) == 1 for keys in destination.bodies.values())
        assert len(destination.bodies[first[0]]) == delivered
        again.stop()
        assert made.manifest.generation == 1
        restore_backup(tmp_path / "backups", tmp_path / "free", deliver=True)
        connection = sqlite3.connect(tmp_path / "free" / "queue.db")
        assert connection.execute(
            "SELECT count(*) FROM invocation WHERE status = 'available'"
        ).fetchone() == (1,)
        connection.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a server has used and left."""
    data = tmp_path_factory.mktemp("small") / "data"
    for _ in range(2):
        hoglab = Hoglab.open(Settings(data=data))
        hoglab.start()
        hoglab.stop()
    return data


class TestBackupRepository:
    def test_what_did_not_change_is_not_written_again(self, small: Path, tmp_path: Path) -> None:
        first = make_backup(small, tmp_path / "backups")
        second = make_backup(small, tmp_path / "backups")
        assert first.new_bytes > 0
        assert second.new_bytes == 0
        assert BackupRepository(tmp_path / "backups").names() == [first.manifest.name, second.manifest.name]

    def test_old_backups_go_when_asked_and_take_their_parts_along(self, small: Path, tmp_path: Path) -> None:
        data = tmp_path / "data"
        shutil.copytree(small, data)
        make_backup(data, tmp_path / "backups")
        (data / "secret-keys").write_text((data / "secret-keys").read_text() + "# a comment\n")
        repository = BackupRepository(tmp_path / "backups")
        made = make_backup(data, tmp_path / "backups", keep=1)
        assert repository.names() == [made.manifest.name]
        parts = {path.name for path in (tmp_path / "backups" / "parts").glob("*/*")}
        assert parts == {part for file in made.manifest.files for part in file.parts}
        restore_backup(tmp_path / "backups", tmp_path / "restored")
        assert (tmp_path / "restored" / "secret-keys").read_text().endswith("# a comment\n")

    @pytest.mark.parametrize("damage", ["flip", "cut", "lose"])
    def test_a_damaged_part_is_noticed(self, small: Path, tmp_path: Path, damage: str) -> None:
        made = make_backup(small, tmp_path / "backups")
        part = max((tmp_path / "backups" / "parts").glob("*/*"), key=lambda path: path.stat().st_size)
        data = bytearray(part.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
            part.write_bytes(data)
        elif damage == "cut":
            part.write_bytes(data[:-1])
        else:
            part.unlink()
        with pytest.raises(BackupError, match=r"a part of .* (is damaged|cannot be read)"):
            BackupRepository(tmp_path / "backups").verify(made.manifest)
        with pytest.raises(BackupError):
            restore_backup(tmp_path / "backups", tmp_path / "restored")
        assert not (tmp_path / "restored").exists()

    def test_one_file_holds_a_whole_backup(self, small: Path, tmp_path: Path) -> None:
        made = packed(small, tmp_path / "backup.tar")
        assert restore_backup(tmp_path / "backup.tar", tmp_path / "restored").manifest == made.manifest
        assert {path.name for path in tmp_path.iterdir()} == {"backup.tar", "restored"}


class TestRefusals:
    def test_a_directory_in_use_is_not_restored_into(self, small: Path, tmp_path: Path) -> None:
        make_backup(small, tmp_path / "backups")
        with pytest.raises(BackupError, match="is not empty"):
            restore_backup(tmp_path / "backups", small)

    def test_a_backup_that_is_not_there_is_answered_with_those_that_are(
        self, small: Path, tmp_path: Path
    ) -> None:
        made = make_backup(small, tmp_path / "backups")
        with pytest.raises(BackupError, match=f"no backup x in .*; the newest are {made.manifest.name}$"):
            restore_backup(tmp_path / "backups", tmp_path / "data", name="x")

    def test_backups_inside_of_the_data_are_refused(self, small: Path) -> None:
        with pytest.raises(BackupError, match="keep backups elsewhere"):
            make_backup(small, small / "backups")

    def test_a_directory_without_its_events(self, small: Path, tmp_path: Path) -> None:
        shutil.copytree(small, tmp_path / "data", ignore=shutil.ignore_patterns("*.sock", "events.duckdb"))
        with pytest.raises(BackupError, match=r"events\.duckdb is missing"):
            make_backup(tmp_path / "data", tmp_path / "backups")

    def test_commands_say_what_is_wrong_in_one_line(self, tmp_path: Path) -> None:
        done = hoglab("restore", str(tmp_path / "nothing"), "--data", str(tmp_path / "data"))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("hoglab: there is nothing at ")
        assert len(done.stderr.splitlines()) == 1


def test_check_and_backup_beside_a_server(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(data=tmp_path / "data")
    uuids = send(server, "a", "b")
    wait_for(lambda: set(uuids) <= stored(server))
    for arguments in (["check"], ["check", "--full"]):
        done = hoglab(*arguments, "--data", str(server.data))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "events.duckdb: 2 events" in done.stdout
    done = hoglab("backup", "--to", str(tmp_path / "backups"), "--json", "--data", str(server.data))
    assert json.loads(done.stdout)["position"] >= 1, done.stderr
    assert stat_modes(tmp_path / "backups") == {0o700, 0o600}
    assert send(server, "c")


def stat_modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
