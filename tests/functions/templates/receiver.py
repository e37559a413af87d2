"""Every host there is, on this machine: one HTTPS server that has a certificate for whatever name it is called by.

The runtime stays as it is, with its TLS and its guard. What changes is where names lead to, and which authority
is trusted: one that is made for the test and forgotten with it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hoglab.delivery.outbound import connections, resolver

OURS = frozenset({"host", "user-agent", "accept-encoding", "content-length", "idempotency-key"})
"""Headers that the runtime sends whatever the program asks for."""


@dataclass(frozen=True)
class Request:
    method: str
    url: str
    headers: dict[str, str]
    body: str

    def data(self) -> Any:
        """The body, as data when it is JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return self.body


class Hosts:
    """Answers for every host. `answers` are used up in order; `requests` are those that came."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[dict[str, Any]] = []
        self.authority = Authority()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port: int = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    def answer_with(self, answers: list[dict[str, Any]]) -> None:
        """Begin anew, with these answers."""
        self.requests, self.answers = [], list(answers)

    def lead_here(self, patch: pytest.MonkeyPatch) -> None:
        """Let clients that are made from now on find every name here, and trust the authority."""
        trusting = self.authority.context_of_clients()
        patch.setattr(connections, "tls_context", lambda: trusting)
        patch.setattr(resolver, "look_up", self._look_up)

    def _look_up(self, _host: str, _port: int) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", self.port))]

    async def _start(self) -> int:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.authority.server()).start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def _handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items() if name.lower() not in OURS}
        url = f"https://{request.headers['Host']}{request.raw_path}"
        self.requests.append(Request(request.method, url, headers, await request.text()))
        if not self.answers:
            return web.Response(status=418, text="the case has no answer to this request")
        answer = self.answers.pop(0)
        body = answer.get("body", "")
        status, given = answer["status"], answer.get("headers")
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=given)
        return web.json_response(body, status=status, headers=given)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Authority:
    """Signs certificates for any name."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name("authority of the template tests")
        own = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.pem = own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        self._for_name = lru_cache(maxsize=None)(self._context)

    def context_of_clients(self) -> ssl.SSLContext:
        """The context of a client that trusts this authority and no other."""
        return ssl.create_default_context(cadata=self.pem)

    def server(self) -> ssl.SSLContext:
        """A server's context that finds the certificate for the name that a client asks for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

        def choose(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self._for_name(name or "localhost")

        context.sni_callback = choose
        return context

    def _context(self, name: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        served = (
            self._builder(_common_name("a host"), key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "served.pem"
            path.write_bytes(served.public_bytes(serialization.Encoding.PEM) + pem)
            context.load_cert_chain(path)
        return context

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
