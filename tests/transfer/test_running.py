"""Exports of a store that a server has open: over a socket, whole or not at all."""

from __future__ import annotations

import json
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import StartServer
from tests.embedded import EmbeddedEventStore
from tests.storage.event_rows import event_row
from tests.transfer.test_commands import Place, hoglab, rows, write_lines
from tests.waiting import PATIENCE_S

from hoglab.storage.event_store import EventBatch
from hoglab.storage.event_store.export import EventSelection
from hoglab.transfer.exporting import ExportError, export_events_beside_server
from hoglab.transfer.running import CutOffError, ExportService, NotServedError, running_export

EVENTS = 20_000
"""More than the buffers of a socket hold."""
ALL = EventSelection(project_id=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEventStore]:
    store = EmbeddedEventStore(tmp_path_factory.mktemp("store") / "events.duckdb", memory="200MB")
    given = [
        event_row(1, event=f"e{number % 10}", properties=b'{"n":%d,"pad":"%b"}' % (number, b"x" * 300))
        for number in range(EVENTS)
    ]
    store.append(EventBatch(given), log_offset=1)
    yield store
    store.close()


StartService = Callable[..., Path]


@pytest.fixture
def serve(store: EmbeddedEventStore, tmp_path: Path) -> Iterator[StartService]:
    """Starts a service and tells where its socket is."""
    started: list[ExportService] = []

    def start(path: Path = tmp_path / "hoglab.sock", max_exports: int = 4, stall_s: float = 60.0) -> Path:
        service = ExportService(store, path, max_exports=max_exports, stall_s=stall_s)
        service.start()
        started.append(service)
        return path

    yield start
    for service in started:
        assert service.stop(10)


def test_every_selected_event_is_a_line_in_order(serve: StartService) -> None:
    path = serve()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with running_export(path, EventSelection(project_id=1, event="e3")) as export:
        assert export.rows == EVENTS // 10
        lines = b"".join(export.parts).splitlines()
    numbers = [json.loads(json.loads(line)["properties"])["n"] for line in lines]
    assert numbers == list(range(3, EVENTS, 10))


def test_nothing_selected_is_an_empty_answer(serve: StartService) -> None:
    with running_export(serve(), EventSelection(project_id=2)) as export:
        assert (export.rows, list(export.parts)) == (0, [])


def test_events_that_come_meanwhile_are_left_out(tmp_path: Path) -> None:
    store = EmbeddedEventStore(tmp_path / "events.duckdb")
    store.append(EventBatch([event_row(1) for _ in range(5_000)]), log_offset=1)
    service = ExportService(store, tmp_path / "hoglab.sock")
    service.start()
    with running_export(tmp_path / "hoglab.sock", ALL) as export:
        store.append(EventBatch([event_row(2) for _ in range(10)]), log_offset=2)
        assert b"".join(export.parts).count(b"\n") == export.rows == 5_000
    assert service.stop(10)
    store.close()


def test_where_nobody_serves(tmp_path: Path, serve: StartService) -> None:
    with pytest.raises(NotServedError), running_export(tmp_path / "other.sock", ALL):
        pass
    # What a server leaves that is killed: the file, and nobody behind it.
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(stale))
    with pytest.raises(NotServedError), running_export(stale, ALL):
        pass
    with running_export(serve(stale), ALL) as export:
        assert export.rows == EVENTS


def test_a_path_may_be_longer_than_the_address_of_a_socket(tmp_path: Path, serve: StartService) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with running_export(serve(folder / "hoglab.sock"), ALL) as export:
        assert export.rows == EVENTS


def test_a_service_that_ends_cuts_off_and_says_so(store: EmbeddedEventStore, tmp_path: Path) -> None:
    path = tmp_path / "hoglab.sock"
    service = ExportService(store, path)
    service.start()
    with running_export(path, ALL) as export:
        assert next(export.parts)
        assert service.stop(10)
        with pytest.raises(CutOffError, match="stopped"):
            list(export.parts)
    assert not path.exists()


def test_only_so_many_at_once_and_none_for_ever(serve: StartService) -> None:
    path = serve(max_exports=1, stall_s=0.5)
    with running_export(path, ALL) as export:
        next(export.parts)
        with pytest.raises(CutOffError, match="too many"), running_export(path, ALL):
            pass
        # Its reader takes no more, so the server gives up on it.
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with running_export(path, EventSelection(project_id=2)):
                    break
            except CutOffError:
                assert time.monotonic() < deadline
        with pytest.raises(CutOffError):
            list(export.parts)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /events HTTP/1.1\r\n\r\n", 501),
        (b"POST /other HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 404),
        (b"POST /events HTTP/1.1\r\n\r\n", 404),
        (b"POST /events HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 404),
        (b"POST /events HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST /events HTTP/1.1\r\nContent-Length: 18\r\n\r\n" + b'{"project_id":"1"}', 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(serve: StartService, request_: bytes, status: int) -> None:
    path = serve()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(request_)
        assert f" {status} ".encode() in connection.makefile("rb").read()


# --- beside a real server


def test_a_killed_server_leaves_no_half_of_an_export(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    place = Place(server, 1, server.project_token)
    lines = write_lines(tmp_path / "given.jsonl", rows(EVENTS, padding="x" * 200))
    assert hoglab(*place.importing(lines), folder=tmp_path).returncode == 0
    wait_until_all_are_stored(place)
    target = tmp_path / "out.parquet"
    (tmp_path / "out.parquet").write_bytes(b"what was there before")
    seen: list[tuple[int, int]] = []

    def kill(done: int, of: int) -> None:
        if not seen:
            server.kill(signal.SIGKILL)
        seen.append((done, of))

    with pytest.raises(ExportError, match=r"out\.parquet was not written: the server did not finish"):
        export_events_beside_server(server.data / "hoglab.sock", target, ALL, on_progress=kill)
    assert 0 < seen[0][0] < seen[0][1] == EVENTS
    assert target.read_bytes() == b"what was there before"
    assert not list(tmp_path.glob(".*part*"))
    # The next server is asked again, though the socket of the killed one is still there.
    server.start()
    done = hoglab("export", "events", "--to", target, "--data", server.data, folder=tmp_path)
    assert done.stdout == f"{target}: {EVENTS} events\n", done.stderr


def wait_until_all_are_stored(place: Place) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        newest = place.get("/events/", limit=1)["results"]
        if newest and newest[0]["properties"]["n"] == EVENTS - 1:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)
