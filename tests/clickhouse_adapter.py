"""ClickHouse's real engine, a library of Python, behind as much of its HTTP interface as the official client asks for.

`python -m tests.clickhouse_adapter FOLDER NOTE` serves the databases of a folder on a free port of the loopback
interface, and writes the port into a file. What only a server has is missing: users, replicated and distributed tables,
quorum. What a library says otherwise is said here as a server says it:

- It gives queries numbers of its own. Those of the client stand in a comment before the statement, where ``KILL
  QUERY`` finds them.
- An insert that was ended is no failure to it: what the ``KILL QUERY`` of a client ended is noted, and answered so.
- Settings and databases of one request are those of a connection, which is made for it; sessions keep theirs.
"""

from __future__ import annotations

import contextlib
import email.parser
import email.policy
import re
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb
import lz4.frame
import zstandard

TAG = "hoglabhoglabhogl"
"""What tells an exception in the middle of an answer from data; a server makes one for each request."""
NO_SETTINGS = frozenset(
    {
        "client_protocol_version", "compress", "database", "decompress", "default_format", "enable_http_compression",
        "password", "query", "query_id", "quota_key", "session_check", "session_id", "session_timeout", "user",
        "wait_end_of_query", "send_progress_in_http_headers", "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
    }
)  # fmt: skip
_KILL = re.compile(r"\s*KILL QUERY WHERE (.*?)(?: SYNC| ASYNC|\s+FORMAT\b|$)", re.DOTALL | re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")
_INSERT = re.compile(rb"\s*(INSERT INTO .*?) FORMAT (\w+)\s*\n", re.DOTALL | re.IGNORECASE)
_IDENTITY = "extract(query, '^/[*]([^*]*)[*]/')"


@dataclass
class Session:
    """A connection, used by one request at a time."""

    connection: Any
    taken: threading.Lock = field(default_factory=threading.Lock)
    settings: set[str] = field(default_factory=set)
    is_readonly: bool = False

    def prepare(self, database: str, settings: dict[str, str]) -> None:
        """Have the settings of one request, and no others."""
        self.connection.query(f"USE `{database}`")
        wanted = dict(settings)
        if self.is_readonly:
            wanted.pop("readonly", None)
        changes = [f"{name} = DEFAULT" for name in self.settings - wanted.keys()]
        changes += [f"{name} = '{value}'" for name, value in wanted.items() if name != "readonly"]
        for change in changes:
            self.connection.query(f"SET {change}")
        self.settings = {name for name in wanted if name != "readonly"}
        if "readonly" in wanted:
            self.connection.query(f"SET readonly = {wanted['readonly']}")
            self.is_readonly = True


class Engine:
    """All connections to the databases of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._first = chdb.connect(self._folder)  # the engine ends with the last connection
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self.killed: set[str] = set()
        """The beginnings of the statements that were told to end."""

    @contextlib.contextmanager
    def session(self, name: str | None) -> Any:
        if name is None:
            session = Session(chdb.connect(self._folder))
            try:
                yield session
            finally:
                session.connection.close()
            return
        with self._lock:
            if name not in self._sessions:
                self._sessions[name] = Session(chdb.connect(self._folder))
        session = self._sessions[name]
        if not session.taken.acquire(blocking=False):
            raise RuntimeError(
                f"Code: 373. DB::Exception: Session {name} is locked by a concurrent client. (SESSION_IS_LOCKED)"
            )
        try:
            yield session
        finally:
            session.taken.release()


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping":
            self._answer(200, b"Ok.\n")
        else:
            self.do_POST()

    def do_POST(self) -> None:
        values = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        statement = self._body()
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            form = _form(kind, statement)
            values.update(form)
            statement = b""
        statement = values.pop("query", "").encode() + statement
        try:
            self._run(statement, values)
        except (RuntimeError, chdb.ChdbError) as error:
            self._fail(str(error))

    def _run(self, statement: bytes, values: dict[str, str]) -> None:
        parameters = {name[6:]: value for name, value in values.items() if name.startswith("param_")}
        settings = {
            name: value
            for name, value in values.items()
            if not name.startswith("param_") and name not in NO_SETTINGS
        }
        with self.engine.session(values.get("session_id")) as session:
            session.prepare(values.get("database", "default"), settings)
            mark = f"/*{values.get('query_id', '')}*/"
            if insert := _INSERT.match(statement):
                data = statement[insert.end() :]
                self.engine.killed.discard(mark)
                inserter = session.connection.send_insert(mark + insert[1].decode(), insert[2].decode())
                try:
                    inserter.append(data)
                    inserter.finish()
                except BaseException:
                    with contextlib.suppress(Exception):
                        inserter.cancel()
                    raise
                if mark in self.engine.killed:
                    raise RuntimeError("Code: 394. DB::Exception: Query was cancelled. (QUERY_WAS_CANCELLED)")
                self._answer(200, b"")
                return
            text = statement.decode()
            form = values.get("default_format", "TabSeparated")
            if kill := _KILL.match(text):
                text = self._noted(session, text, kill[1])
                self._answer(200, session.connection.query(text, form).bytes(), form)
            elif values.get("wait_end_of_query") == "1" or not re.match(
                r"\s*(SELECT|WITH)\b", text, re.IGNORECASE
            ):
                answer = session.connection.query(mark + text, form, params=parameters)
                self._answer(200, answer.bytes(), form)
            else:
                self._stream(session.connection.send_query(mark + text, form, params=parameters))

    def _noted(self, session: Session, text: str, condition: str) -> str:
        """A ``KILL QUERY`` of just those statements of which is noted that they were told to end."""
        found = f"SELECT {_IDENTITY} FROM system.processes WHERE {condition.replace('query_id', _IDENTITY)}"  # noqa: S608
        names = session.connection.query(found, "TabSeparatedRaw").bytes().decode().splitlines()
        self.engine.killed.update(f"/*{name}*/" for name in names)
        listed = ", ".join(f"'{name}'" for name in names)
        return text.replace(condition, f"has([{listed}], {_IDENTITY})")

    def _stream(self, answer: Any) -> None:
        first = answer.fetch()
        self.send_response(200)
        self._say({"Transfer-Encoding": "chunked", "X-ClickHouse-Exception-Tag": TAG})
        part = first
        try:
            while part is not None:
                self._chunk(part.bytes())
                part = answer.fetch()
        except (RuntimeError, chdb.ChdbError) as error:
            text = str(error)
            self._chunk(
                f"\r\n__exception__\r\n{TAG}\r\n{text}\n{len(text.encode()) + 1} {TAG}\r\n__exception__\r\n".encode()
            )
        except OSError:  # nobody reads it any more
            self.close_connection = True
            answer.cancel()
            return
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _fail(self, text: str) -> None:
        code = found[1] if (found := _CODE.search(text)) else "1002"
        self._answer(500, f"{text}\n".encode(), **{"X-ClickHouse-Exception-Code": code})

    def _answer(self, status: int, body: bytes, form: str = "TabSeparated", **headers: str) -> None:
        self.send_response(status)
        self._say({"Content-Length": str(len(body)), "X-ClickHouse-Format": form, **headers})
        self.wfile.write(body)

    def _say(self, headers: dict[str, str]) -> None:
        for name, value in {"X-ClickHouse-Timezone": "UTC", "X-ClickHouse-Summary": "{}", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match self.headers.get("Content-Encoding"):
            case "lz4":
                return lz4.frame.decompress(body)  # type: ignore[no-any-return]
            case "zstd":
                return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        return body


def _form(kind: str, body: bytes) -> dict[str, str]:
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    parts = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True).decode()  # type: ignore[union-attr]
        for part in parts.iter_parts()  # type: ignore[attr-defined]
    }


def main(folder: Path, note: Path) -> None:
    Handler.engine = Engine(folder)
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    draft = note.with_suffix(".draft")
    draft.write_text(str(server.server_port))
    draft.replace(note)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
