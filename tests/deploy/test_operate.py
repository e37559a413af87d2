"""docs/operate.md followed word for word: several processes set up, updated, killed, backed up, lost and restored."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import httpx
import pytest
from tests.deploy.machine import Machine, block, machine, needed
from tests.e2e.test_readme import tour
from tests.faults.destination import Destination
from tests.waiting import PATIENCE_S

WRITERS = 3
FUNCTION = {
    "type": "destination",
    "name": "sink",
    "enabled": True,
    "hog": "fetch(inputs.url, {'method': 'POST', 'body': {'uuid': event.uuid}})",
    "inputs_schema": [{"key": "url", "type": "string"}],
    "filters": {"events": [{"id": "counted", "type": "events"}]},
}


def wait_for(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.2)


class Writer(threading.Thread):
    """An SDK in short: sends batches through the proxy, each again until it is acknowledged."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self._url, self._token = url, token
        self.acknowledged: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_S) as client:
            while not self.stopped.is_set():
                uuids = [str(uuid4()) for _ in range(5)]
                batch = [{"event": "counted", "distinct_id": uuid[:2], "uuid": uuid} for uuid in uuids]
                while not self._sent(client, {"api_key": self._token, "batch": batch}):
                    self.stopped.wait(0.2)
                self.acknowledged += uuids
                self.stopped.wait(0.05)

    def _sent(self, client: httpx.Client, body: dict[str, Any]) -> bool:
        try:
            answer = client.post("/batch/", json=body)
        except httpx.TransportError:
            return False
        assert answer.status_code in (200, 502, 503, 504), answer.text
        return answer.status_code == 200


def stored(file: Path) -> Counter[str]:
    """How often each event with the name ``counted`` is in the store of a server that does not run."""
    query = "SELECT uuid::VARCHAR FROM stored_events WHERE event = 'counted'"
    with duckdb.connect(str(file), read_only=True) as connection:
        return Counter(uuid for (uuid,) in connection.execute(query).fetchall())


def set_up(host: Machine) -> None:
    """The documents' commands, and what tests need beside: that functions may reach this machine."""
    host.run(block("database"))
    (host.folder / "etc/hoglab").mkdir(exist_ok=True)
    (host.folder / "etc/hoglab/database-password").write_text("not asked for\n")
    host.run(block("processes").replace("END\nprintf", "HOGLAB_FETCH_ALLOW_CIDRS=127.0.0.0/8\nEND\nprintf"))
    host.run(block("proxy"))


def environment(host: Machine) -> dict[str, str]:
    lines = (host.folder / "etc/hoglab/all.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def take_tour(host: Machine, url: str, more: dict[str, str]) -> None:
    """README.md's tour, from the directory that it is to be taken in."""
    (host.folder / ".venv").symlink_to(
        Path(shutil.which("python", path=host.placed("/opt/hoglab/bin"))).parent.parent
    )  # type: ignore[arg-type]
    told = host.run(tour().replace("http://127.0.0.1:8000", url).replace("sleep 5", "sleep 20"), **more)
    _, _, events, results, logs = (line for line in told.splitlines() if line.strip())
    assert '"event":"signed up"' in events
    assert '"credible_interval":[' in results
    assert '"message":"user-' in logs


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_from_nothing_to_a_restored_server(tmp_path: Path) -> None:
    needed("nginx", "nginx")
    needed("curl", "curl")
    with Destination() as destination, machine(tmp_path) as host:
        set_up(host)
        take_tour(host, host.proxy, environment(host))
        key = host.run(
            "/opt/hoglab/bin/hoglab keys create --label test --scopes '*'", **environment(host)
        ).strip()
        api = httpx.Client(
            base_url=f"{host.proxy}/api/projects/1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=PATIENCE_S,
        )
        token = api.get("/").json()["api_token"]
        made = api.post("/hog_functions/", json={**FUNCTION, "inputs": {"url": {"value": destination.url}}})
        assert made.status_code == 201, made.text
        writers = [Writer(host.proxy, token) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        _disturb(host, writers)
        for writer in writers:
            writer.stopped.set()
            writer.join(60)
        sent = {uuid for writer in writers for uuid in writer.acknowledged}
        wait_for(lambda: sent <= destination.bodies.keys(), "the deliveries")
        _database_away(host, token)
        assert set(destination.bodies) == sent  # and nobody was told of anything else
        host.run(block("backup"), **environment(host))
        host.run("systemctl stop " + " ".join(units(host)))
        assert stored(host.folder / "var/lib/hoglab/events.duckdb") == Counter(sent)
        delivered = {uuid: len(keys) for uuid, keys in destination.bodies.items()}

        (host.folder / "var/lib/hoglab").rename(host.folder / "lost")
        (host.folder / "var/lib/hoglab").mkdir()
        told = host.run(block("restore"), **environment(host))
        assert "generation 2" in told
        assert "PROBLEM" not in told
        host.run(block("processes").strip().splitlines()[-1])
        event = {"api_key": token, "event": "counted", "distinct_id": "late", "uuid": str(uuid4())}
        assert httpx.post(f"{host.proxy}/capture/", json=event, timeout=PATIENCE_S).status_code == 200
        wait_for(lambda: event["uuid"] in destination.bodies, "a delivery of the restored server")
        destination.bodies.pop(event["uuid"])
        assert {uuid: len(keys) for uuid, keys in destination.bodies.items()} == delivered
        host.run("systemctl stop " + " ".join(units(host)))
        assert stored(host.folder / "var/lib/hoglab/restored/events.duckdb") == Counter(
            [*sent, event["uuid"]]
        )
        api.close()


def _disturb(host: Machine, writers: list[Writer]) -> None:
    """The documented update, then each process is killed and started; writers get on after each."""
    wait_for(lambda: all(writer.acknowledged for writer in writers), "acknowledgements")
    host.run(block("update"), **environment(host))
    for unit in units(host):
        before = [len(writer.acknowledged) for writer in writers]
        host.run(f"systemctl kill --signal=KILL {unit}; systemctl start {unit}")
        wait_for(
            lambda before=before: all(  # type: ignore[misc]
                len(writer.acknowledged) > count for writer, count in zip(writers, before, strict=True)
            ),
            f"acknowledgements after the end of {unit}",
        )
    host.run(block("processes").strip().splitlines()[-1])


def _database_away(host: Machine, token: str) -> None:
    """Through the proxy flags are answered meanwhile, and events told to come again."""
    event = {"api_key": token, "event": "not counted", "distinct_id": "somebody"}

    def capture() -> httpx.Response:
        return httpx.post(f"{host.proxy}/capture/", json=event, timeout=PATIENCE_S)

    host.postgres.stop()
    for _ in range(3):
        refused = capture()
        assert (refused.status_code, int(refused.headers["Retry-After"]) > 0) == (503, True)
        asked = {"token": token, "distinct_id": "somebody"}
        flags = httpx.post(f"{host.proxy}/flags/?v=2", json=asked, timeout=PATIENCE_S)
        assert flags.status_code == 200
        assert "button-colour" in flags.json()["flags"]
    host.postgres.start()
    wait_for(lambda: capture().status_code == 200, "capture")


def units(host: Machine) -> list[str]:
    """The names of all units that were started."""
    return sorted(file.stem for file in (host.folder / "etc/systemd/system").glob("*.pid"))
