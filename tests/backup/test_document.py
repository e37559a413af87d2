"""The commands of docs/operate.md, each as it stands: backup, restore, check, quarantine."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from tests import forked
from tests.conftest import StartServer
from tests.ingestion.conftest import event, record

from hoglab.ingestion.quarantine import Quarantine
from hoglab.storage.database import Database
from hoglab.storage.database.tables import queue_metadata
from hoglab.storage.event_log import SequenceNumber
from hoglab.storage.event_log.quarantine import QuarantineStore

DOCUMENT = Path(__file__).parents[2] / "docs" / "operate.md"
RECORD = 4711
"""The record that the document names."""


def commands(section: str) -> list[list[str]]:
    """What the examples of a section call, word by word, without comments."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [shlex.split(line, comments=True) for line in "".join(blocks).splitlines()]
    assert all(each[0] == "hoglab" for each in found)
    assert found
    return found


class Place:
    """A machine with the paths of the document below a folder, and a data directory."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.data = data

    def run(self, command: list[str], status: int = 0) -> str:
        """What a command prints: on success to standard output, else to standard error."""
        words = [self._place(word) for word in command[1:]]
        environment = {**os.environ, "HOGLAB_DATA": str(self.data)}
        done = forked.run(*words, environment=environment, folder=self.folder)
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout if status == 0 else done.stderr

    def _place(self, word: str) -> str:
        return str(self.folder / word[1:]) if word.startswith("/") else word


@pytest.fixture
def place(start_server: StartServer, tmp_path: Path) -> Place:
    """A server's directory after its end, with events and a record in quarantine."""
    server = start_server(data=tmp_path / "data")
    server.stop()
    quarantine(tmp_path / "data", RECORD)
    for name in ("mnt", "srv"):
        (tmp_path / name).mkdir()
    return Place(tmp_path, tmp_path / "data")


def quarantine(data: Path, offset: int) -> None:
    database = Database.open(data / "queue.db", queue_metadata)
    payload = record(event("broken"))
    Quarantine(QuarantineStore(database)).put(SequenceNumber(offset), payload, "because")
    database.dispose()


@pytest.mark.slow
@pytest.mark.files
@pytest.mark.timeout(900)
def test_backup_check_and_restore(place: Place, start_server: StartServer) -> None:
    for command in commands("Check and repair"):
        assert "secrets" in place.run(command)
    written = [place.run(command) for command in commands("Backup")]
    assert len(written) == 3
    assert all("verified" in each for each in written)
    assert (place.folder / "hoglab.tar").is_file()
    *restoring, serving = commands("Restore")
    assert serving[:2] == ["hoglab", "serve"]
    for command in restoring:
        assert "generation 2" in place.run(command)
    restored = place.folder / "srv" / "hoglab-new"
    assert serving[2:] == ["--data", "/srv/hoglab-new"]
    start_server(data=restored).stop()
    (again,) = restoring
    assert "is not empty" in place.run(again, status=1)


@pytest.mark.slow
@pytest.mark.files
@pytest.mark.timeout(900)
def test_quarantine(place: Place) -> None:
    listing, showing, replaying, discarding = commands("Quarantine")
    assert str(RECORD) in place.run(listing)
    assert [each["event"] for each in json.loads(place.run(showing))["events"]] == ["broken"]
    assert place.run(replaying) == "replaying 1 records\n"  # at the next start
    assert place.run(discarding) == "discarded 1 records\n"
    for command in (showing, replaying, discarding):
        assert f"there is no record {RECORD}" in place.run(command, status=1)
    everything = [word for word in replaying if word != str(RECORD)] + ["--all"]
    assert place.run(everything) == "replaying 0 records\n"
