"""Files of a directory that are missing, foreign, older or cut off are told at the next start, never taken silently."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ingestion.conftest import event, record
from tests.waiting import wait_for

from hoglab.app import Hoglab
from hoglab.backup.checking import check
from hoglab.functions.secrets.box import SecretsError
from hoglab.settings import Settings
from hoglab.storage.directory import DataDirectory
from hoglab.storage.event_store import EventStoreUnavailableError
from hoglab.storage.identity import FilesDisagreeError


def run(data: Path, events: int = 0, *, accept_loss: bool = False, forget_log: bool = False) -> int:
    """Start a server on a directory, have it ingest events, change something, and stop it; events that it has then."""
    hoglab = Hoglab.open(Settings(data=data), accept_loss=accept_loss)
    engines = hoglab.engines
    hoglab.start()
    try:
        for number in range(events):
            asyncio.run(
                engines.log.append(record(event(f"e{number}", "ann", properties={"$set": {"n": number}})))
            )
        wait_for(lambda: engines.store.position() >= engines.log.last_offset())
        with engines.database.write() as tx:
            tx.changed("keys", 0)
        hoglab.change_counter_mirror.note()
        if forget_log:  # as soon as its consumers have noted that they are done
            wait_for(
                lambda: engines.log.trim(engines.log.last_offset()) >= 0 and engines.log.stats().records == 0
            )
        with engines.store.reader() as reader:
            return int(reader.execute("SELECT count(*) FROM events")[0][0])
    finally:
        hoglab.stop()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after three starts; ``earlier`` beside it is how it was before the last of them."""
    folder = tmp_path_factory.mktemp("lived")
    data = folder / "data"
    run(data, 3, forget_log=True)
    run(data, 2, forget_log=True)
    shutil.copytree(data, folder / "earlier")
    assert run(data, 4, forget_log=True) == 9
    assert run(data, 0) == 9
    run(folder / "other", 1)
    return folder


@pytest.fixture
def data(lived: Path, tmp_path: Path) -> Path:
    shutil.copytree(lived / "data", tmp_path / "data")
    return tmp_path / "data"


def without(*names: str) -> Callable[[Path, Path], None]:
    def change(data: Path, _: Path) -> None:
        for name in names:
            (data / name).unlink()

    return change


def earlier(name: str) -> Callable[[Path, Path], None]:
    return lambda data, lived: shutil.copyfile(lived / "earlier" / name, data / name) and None


def foreign(name: str) -> Callable[[Path, Path], None]:
    return lambda data, lived: shutil.copyfile(lived / "other" / name, data / name) and None


def undone_changes(data: Path, _: Path) -> None:
    """As after a cut write-ahead log: the latest changes are gone."""
    connection = sqlite3.connect(data / "hoglab.db")
    connection.execute("UPDATE change_version SET version = version - 1 WHERE topic = 'keys'")
    connection.commit()
    connection.close()


FAULTS = {
    "hoglab.db is lost": (without("hoglab.db"), "hoglab.db is missing: accounts"),
    "queue.db is lost": (without("queue.db"), "queue.db is missing"),
    "events.duckdb is lost": (
        without("events.duckdb"),
        "events.duckdb is missing: the events of records 1 to 9",
    ),
    "hoglab.db is older": (earlier("hoglab.db"), "hoglab.db is older"),
    "queue.db is older": (earlier("queue.db"), "queue.db is older"),
    "events.duckdb is older": (earlier("events.duckdb"), "events.duckdb is older"),
    "changes are cut off": (undone_changes, "a revoked key may work again"),
}


@pytest.mark.parametrize(("fault", "text"), FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.slow
def test_a_file_that_does_not_fit_is_told_and_can_be_accepted(
    lived: Path, data: Path, fault: Callable[[Path, Path], None], text: str
) -> None:
    fault(data, lived)
    assert any(text.partition(":")[0] in problem for problem in check(data).problems)
    with pytest.raises(FilesDisagreeError) as refused:
        run(data)
    assert text in str(refused.value)
    assert "--accept-loss" in str(refused.value)
    assert "hoglab restore" in str(refused.value)
    assert "\n" not in str(refused.value)
    run(data, 1, accept_loss=True)
    run(data)  # from then on all is well


@pytest.mark.parametrize("name", ["hoglab.db", "queue.db", "events.duckdb"])
def test_a_file_of_another_installation_is_refused_for_good(lived: Path, data: Path, name: str) -> None:
    foreign(name)(data, lived)
    with pytest.raises(FilesDisagreeError, match="different installations") as refused:
        run(data)
    assert "--accept-loss" not in str(refused.value)
    with pytest.raises(FilesDisagreeError):
        run(data, accept_loss=True)


@pytest.mark.parametrize("starts", [1, 3])
def test_what_the_log_still_has_is_repaired_without_a_word_of_loss(tmp_path: Path, starts: int) -> None:
    data = tmp_path / "data"
    run(data, 5)
    for _ in range(1, starts):
        run(data)
    (data / "events.duckdb").unlink()
    assert check(data).problems == []
    assert run(data) == 5


def test_events_accepted_into_a_directory_whose_metadata_are_lost_are_set_aside(data: Path) -> None:
    (data / "hoglab.db").unlink()
    assert run(data, accept_loss=True) == 0
    (aside,) = data.glob("set-aside-*")
    assert {each.name for each in aside.iterdir()} >= {"queue.db", "events.duckdb"}


def test_a_shorter_store_is_refused(data: Path) -> None:
    file = data / "events.duckdb"
    os.truncate(file, int(file.stat().st_size * 0.6))
    with pytest.raises(EventStoreUnavailableError, match=r"cut off|cannot be opened"):
        run(data)


class TestSecretKeys:
    def test_lost_keys_are_told(self, data: Path) -> None:
        (data / "secret-keys").unlink()
        with pytest.raises(SecretsError, match=r"secret-keys back.*--accept-loss"):
            run(data)
        run(data, accept_loss=True)
        run(data)

    def test_rotated_keys_are_right(self, data: Path) -> None:
        from hoglab.functions.secrets.box import SecretBox
        from hoglab.functions.secrets.rotation import rotate
        from hoglab.storage.database import Database

        with DataDirectory.open(data) as directory:
            SecretBox.add_key(directory)
            database = Database.open(directory.metadata_path)
            rotate(database, SecretBox.open(directory))
            database.dispose()
            keys = (data / "secret-keys").read_text().splitlines()
            directory.replace_secret("secret-keys", keys[0].encode())
        run(data)


@pytest.mark.parametrize("exists", [False, True])
def test_directory_and_files_are_for_their_owner_alone(tmp_path: Path, exists: bool) -> None:
    data = tmp_path / "data"
    if exists:
        data.mkdir(mode=0o755)
        (data / "queue.db").touch(mode=0o644)
    (data / "warehouse").mkdir(parents=True, mode=0o755) if exists else None
    with DataDirectory.open(data, create=True):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        for each in data.iterdir():
            if each.name != "warehouse":
                assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each.name


def test_a_damaged_log_of_the_store_is_repaired_from_the_event_log(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hoglab.cli import app

    data = tmp_path / "data"
    run(data, 3)
    killed = tmp_path / "killed"
    hoglab = Hoglab.open(Settings(data=data))
    hoglab.start()
    for number in range(50):
        asyncio.run(hoglab.engines.log.append(record(event(f"later{number}", "bob"))))
    wait_for(lambda: hoglab.engines.store.position() >= hoglab.engines.log.last_offset())
    shutil.copytree(data, killed, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    hoglab.stop()
    wal = killed / "events.duckdb.wal"
    content = bytearray(wal.read_bytes())
    content[len(content) // 3] ^= 0xFF
    wal.write_bytes(content)
    with pytest.raises(EventStoreUnavailableError, match=r"events\.duckdb\.wal is damaged.*`hoglab repair`"):
        run(killed)
    done = CliRunner().invoke(app, ["repair", "--data", str(killed)])
    assert done.exit_code == 0, done.output
    assert "events.duckdb.wal" in done.output
    assert run(killed) == 53


def test_repairing_what_is_sound_changes_nothing(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hoglab.cli import app

    data = tmp_path / "data"
    run(data, 3)
    before = contents(data)
    assert {"events.duckdb", "aggregate-cache.duckdb", "hoglab.db", "queue.db"} <= before.keys()
    done = CliRunner().invoke(app, ["repair", "--data", str(data)])
    assert (done.exit_code, done.stdout[:25]) == (0, "nothing is to be repaired")
    assert contents(data) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of the files of a directory by their names, without the one that says who uses it."""
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".lock"
    }


@pytest.mark.parametrize("name", ["hoglab.db", "events.duckdb"])
def test_repairing_makes_no_file_that_is_missing(tmp_path: Path, name: str) -> None:
    from typer.testing import CliRunner

    from hoglab.cli import app
    from hoglab.cli.errors import OperatorError

    data = tmp_path / "data"
    run(data, 3)
    (data / name).unlink()
    done = CliRunner().invoke(app, ["repair", "--data", str(data)])
    assert isinstance(done.exception, OperatorError)
    assert name in str(done.exception)
    assert not (data / name).exists()
