"""Services of a running server to commands, as no other process can open its store: over a socket in its directory.

Who may use the files of a directory may connect to the socket, and nobody else, so there is no key to be given. A
request for events is a selection; the answer is a line of JSON for each of them, ended in a way that tells a whole
answer from one that was cut off (HTTP/1.1, chunked). A request for a *hold* has the store stand still while the other
side copies its files, until that says that it has them. A request for an examination reads the store through.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
import structlog

from hoglab.storage.catching_up import CatchUp
from hoglab.storage.database import DatabaseError
from hoglab.storage.event_store import (
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)
from hoglab.storage.event_store.examination import StoreReport, examine
from hoglab.storage.event_store.export import EventSelection, selected_lines

if TYPE_CHECKING:
    from pathlib import Path

    from hoglab.storage.event_store import EventStore, StoreFile

EVENTS_PATH = "/events"
HOLD_PATH = "/hold"
EXAMINATION_PATH = "/examination"
ROWS_HEADER = "Hoglab-Rows"
POSITION_HEADER = "Hoglab-Position"

MAX_EXPORTS = 4
"""Exports of one server at the same time; one more is refused."""
STALL_S = 60.0
"""An export whose other side takes or gives nothing for so long is given up."""
MAX_REQUEST_BYTES = 64 * 1024
PART_BYTES = 256 * 1024
SOCKET_MODE = 0o600
MAX_HOLD_S = 300.0
"""Maximum time for which events wait to be stored while files are copied; then the copy is given up."""
MAX_EXAMINATION_S = 4 * 3600.0
COPIED = b"+"
"""Message of the other side when it has the files, and the answer: that nothing was written meanwhile."""

MAX_ADDRESS_BYTES = 100
"""Longer paths do not fit the address of a socket (108 bytes on Linux)."""

_STORE_ERRORS = (
    DatabaseError,
    EventStoreUnavailableError,
    QueryCancelledError,
    QueryError,
    QueryMemoryError,
    QueryTimeoutError,
)

_log = structlog.get_logger(__name__)


class NotServedError(Exception):
    """No server offers exports of this data directory."""


class CutOffError(Exception):
    """The server refused the export, or ended it too early; the text is one line."""


# --- the server's side


class ExportService:
    """The background service of a server: `start` once, `stop` once. The data directory must be held."""

    def __init__(
        self,
        store: EventStore,
        path: Path,
        *,
        max_exports: int = MAX_EXPORTS,
        stall_s: float = STALL_S,
        catch_up: CatchUp | None = None,
        newest: Callable[[], int] | None = None,
        files: Sequence[StoreFile] = (),
    ) -> None:
        """Answer at a ``path``. ``files`` are those of the store, which holds keep as they are.

        ``newest`` returns the place up to which all events are stored; None: the store knows.
        """
        self._store = store
        self._catch_up = catch_up
        self._newest = newest
        self._files = files
        self._path = path
        self._slots = threading.BoundedSemaphore(max_exports)
        self._stall_s = stall_s
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to answer. Where the file system knows no sockets, it is logged, and there are no exports."""
        try:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()  # of a server that was killed: ours alone may be there
            with _address(self._path) as address:
                self._listener = _Listener(
                    address,
                    self._store,
                    self._slots,
                    self._stall_s,
                    self._catch_up,
                    self._newest,
                    self._files,
                )
            self._path.chmod(SOCKET_MODE)
        except OSError as error:
            _log.warning("exports_not_offered", path=str(self._path), reason=str(error))
            return
        self._thread = threading.Thread(target=self._listener.serve_forever, name="exports", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Refuse further clients, cut off the present ones, and return whether all answers ended in time."""
        listener, thread = self._listener, self._thread
        if listener is None or thread is None:
            return True
        # This wakes the thread, which looks only now and then whether it is to end.
        with contextlib.suppress(OSError):
            listener.socket.shutdown(socket.SHUT_RDWR)
        listener.shutdown()
        listener.server_close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        thread.join(timeout_s)
        return not thread.is_alive() and listener.cut_off(timeout_s)


class _Listener(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: str,
        store: EventStore,
        slots: threading.Semaphore,
        stall_s: float,
        catch_up: CatchUp | None,
        newest: Callable[[], int] | None,
        files: Sequence[StoreFile],
    ) -> None:
        self.store = store
        self.files = files
        self.catch_up = catch_up
        self.newest = newest
        self.slots = slots
        self.stall_s = stall_s
        self.hold_s = MAX_HOLD_S
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._open.discard(request)
                self._changed.notify_all()

    def cut_off(self, timeout_s: float) -> bool:
        """End all answers, and return whether they ended in time."""
        with self._changed:
            for request in self._open:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
            return self._changed.wait_for(lambda: not self._open, timeout_s)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        error = sys.exception()
        if isinstance(error, OSError):  # the other side is gone, or stalls
            _log.info("export_left", reason=str(error))
        else:
            _log.error("export_failed", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.listener = cast("_Listener", self.server)
        self.connection: socket.socket = self.request
        self.connection.settimeout(self.listener.stall_s)
        super().setup()

    def do_POST(self) -> None:
        self.close_connection = True
        size = self.headers.get("Content-Length", "")
        if self.path == HOLD_PATH:
            self._hold()
            return
        if self.path == EXAMINATION_PATH:
            self.rfile.read(int(size or 0))
            self._examine()
            return
        if self.path != EVENTS_PATH or not size.isdecimal() or int(size) > MAX_REQUEST_BYTES:
            self._refuse(HTTPStatus.NOT_FOUND, "this server does not know such an export")
            return
        try:
            selection = msgspec.json.decode(self.rfile.read(int(size)), type=EventSelection)
        except msgspec.DecodeError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the selection cannot be read: {error}")
            return
        if not self.listener.slots.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many exports run already: wait for one to end")
            return
        try:
            self._answer(selection)
        finally:
            self.listener.slots.release()

    def _hold(self) -> None:
        if not self.listener.files:
            self._refuse(HTTPStatus.NOT_FOUND, "the events of this server are not in a file of its directory")
            return
        [file] = self.listener.files
        try:
            with file.pause_writes() as position:
                self.send_response(HTTPStatus.OK)
                self.send_header(POSITION_HEADER, str(position))
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.connection.settimeout(self.listener.hold_s)
                if self.rfile.read(1) == COPIED:
                    self.wfile.write(b"1\r\n%b\r\n0\r\n\r\n" % COPIED)
        except _STORE_ERRORS as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _examine(self) -> None:
        try:
            report = examine(self.listener.store, timeout_s=MAX_EXAMINATION_S)
        except _STORE_ERRORS as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        text = msgspec.json.encode(report)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _answer(self, selection: EventSelection) -> None:
        begun = False
        if self.listener.catch_up is not None:
            self.listener.catch_up.wait(selection.project_id)  # and if that takes too long, what is stored
        newest = self.listener.newest
        try:
            with (
                self.listener.store.reader() as reader,
                selected_lines(reader, selection, self.listener.store.dialect, newest) as (count, parts),
            ):
                self.send_response(HTTPStatus.OK)
                self.send_header(ROWS_HEADER, str(count))
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                begun = True
                for lines in parts:
                    data = "".join([f"{line}\n" for line in lines]).encode()
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        except _STORE_ERRORS as error:
            _log.warning("export_failed", reason=str(error))
            if not begun:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        text = reason.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
        """Say nothing: the base class would write to standard error."""


# --- the command's side


class RunningExport(NamedTuple):
    """``rows`` lines of JSON, in ``parts`` of any size, which raise `CutOffError` when the server goes away."""

    rows: int
    parts: Iterator[bytes]


@contextmanager
def running_export(path: Path, selection: EventSelection) -> Iterator[RunningExport]:
    """Ask the server behind a socket for events. Raises `NotServedError` and `CutOffError`."""
    with contextlib.closing(_Connection(path)) as connection:
        try:
            connection.request("POST", EVENTS_PATH, msgspec.json.encode(selection))
            answer = connection.getresponse()
            refusal = "" if answer.status == HTTPStatus.OK else answer.read().decode(errors="replace")
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotServedError(f"nobody answers at {path}") from None
        except (OSError, http.client.HTTPException) as error:
            raise _cut_off(error) from error
        if refusal:
            raise CutOffError(refusal.strip().partition("\n")[0])
        yield RunningExport(int(answer.headers[ROWS_HEADER]), _parts(answer))


@contextmanager
def running_hold(path: Path) -> Iterator[int]:
    """Ask the server behind a socket to keep the files of its store as they are, and provide the store's position.

    When the block ends, nothing was written to them since it began. Raises `NotServedError` and `CutOffError`.
    """
    with contextlib.closing(_Connection(path)) as connection:
        answer = _asked(connection, path, HOLD_PATH, b"")
        yield int(answer.headers[POSITION_HEADER])
        try:
            connection.sock.sendall(COPIED)
            whole = answer.read() == COPIED
        except (OSError, http.client.HTTPException) as error:
            raise CutOffError(f"the server did not wait for the copy: {error}") from error
        if not whole:
            raise CutOffError(f"the copy took longer than the {MAX_HOLD_S:g} s that the server waits for it")


def running_examination(path: Path) -> StoreReport:
    """Ask the server behind a socket to read its store through. Raises `NotServedError` and `CutOffError`."""
    with contextlib.closing(_Connection(path, timeout_s=MAX_EXAMINATION_S)) as connection:
        answer = _asked(connection, path, EXAMINATION_PATH, b"")
        return msgspec.json.decode(answer.read(), type=StoreReport)


def _asked(connection: _Connection, path: Path, address: str, body: bytes) -> http.client.HTTPResponse:
    try:
        connection.request("POST", address, body)
        answer = connection.getresponse()
        refusal = "" if answer.status == HTTPStatus.OK else answer.read().decode(errors="replace")
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotServedError(f"nobody answers at {path}") from None
    except (OSError, http.client.HTTPException) as error:
        raise CutOffError(f"the server did not answer: {error}") from error
    if refusal:
        raise CutOffError(refusal.strip().partition("\n")[0])
    return answer


def _parts(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while part := answer.read(PART_BYTES):
            yield part
    except (OSError, http.client.HTTPException) as error:
        raise _cut_off(error) from error


def _cut_off(error: Exception) -> CutOffError:
    reason = "it takes too long" if isinstance(error, TimeoutError) else "it was stopped, or its store failed"
    return CutOffError(f"the server did not finish the export: {reason}")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, *, timeout_s: float = STALL_S) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with _address(self._path) as address:
            self.sock.connect(address)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Provide the address of a socket at a path, however long the path is."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
