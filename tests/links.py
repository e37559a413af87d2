"""Links between a process and an engine that tests cut, or let carry nothing in one direction."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit


class Link:
    """A TCP proxy before one address, or a Unix socket. Use `url_of` for an address that goes through it."""

    def __init__(self, target: tuple[str, int] | Path) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._flows = {"there": threading.Event(), "back": threading.Event()}
        for each in self._flows.values():
            each.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def to(cls, url: str) -> Link:
        """One to the host and port of an address."""
        parts = urlsplit(url)
        if parts.hostname is None:  # that of PostgreSQL, which listens on a socket in a folder
            return cls(Path(parts.query.removeprefix("host=")) / ".s.PGSQL.5432")
        assert parts.port is not None
        return cls((parts.hostname, parts.port))

    def url_of(self, url: str) -> str:
        """An address with this link in the place of its host and port."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        query = "" if parts.hostname is None else parts.query
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}", query=query).geturl()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, tuple):
            server = socket.create_connection(self._target, timeout=30)
        else:
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
        server.settimeout(None)
        return server

    @contextmanager
    def cut(self) -> Iterator[None]:
        """End all connections, and refuse new ones during the block."""
        self._is_cut = True
        self._end_all()
        try:
            yield
        finally:
            self._is_cut = False

    @contextmanager
    def silent(self, *ways: str) -> Iterator[None]:
        """Let nothing through during the block, and end its connections then. ``ways``: "there", "back"."""
        for way in ways:
            self._flows[way].clear()
        try:
            yield
        finally:
            self._end_all()
            for way in ways:
                self._flows[way].set()

    def _end_all(self) -> None:
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        try:
            if self._is_cut:
                return
            server = self._connect()
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=self._pipe, args=(server, client, "back"), daemon=True)
            back.start()
            self._pipe(client, server, "there")
            back.join()
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {each for each in (client, server) if each is not None}
            client.close()
            if server is not None:
                server.close()

    def _pipe(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._flows[way].wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Take no connection any more, and end those that there are."""
        self._listener.close()
        self._end_all()
