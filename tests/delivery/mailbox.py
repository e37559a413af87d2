"""A mail server on this machine (aiosmtpd), which keeps what it gets and answers as it is told."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ACCEPTED = "250 OK"


@dataclass
class Mail:
    """One e-mail as it came, with its envelope."""

    sender: str
    recipients: list[str]
    raw: bytes
    secured: bool
    user: str | None

    @property
    def message(self) -> EmailMessage:
        parsed = message_from_bytes(self.raw, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed

    def part(self, kind: str) -> str | None:
        """The plain text or the HTML."""
        found = self.message.get_body((kind,))
        return None if found is None else found.get_content().strip()


class Mailbox:
    """A running mail server. ``answer`` gives the reply to an e-mail from how many came before; it may wait."""

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        *,
        implicit: bool = False,
        logins: dict[str, str] | None = None,
    ) -> None:
        self.mails: list[Mail] = []
        self.attempts: list[Mail] = []
        """All that came, whatever was answered."""
        self.answer: Callable[[int], Any] = lambda _number: ACCEPTED
        self._tls, self._implicit, self._logins = tls, implicit, logins
        self._transports: list[asyncio.Transport] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port: int = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        scheme, query = ("smtps", "") if implicit else ("smtp", "" if tls is not None else "?tls=none")
        self.url = f"{scheme}://127.0.0.1:{self.port}{query}"

    async def _start(self) -> int:
        self._server = await self._loop.create_server(
            self._session, "127.0.0.1", 0, ssl=self._tls if self._implicit else None
        )
        name: tuple[str, int] = self._server.sockets[0].getsockname()
        return name[1]

    def _session(self) -> SMTP:
        with warnings.catch_warnings():  # aiosmtpd does not know of TLS from the start
            warnings.simplefilter("ignore")
            return self._protocol()

    def _protocol(self) -> SMTP:
        return SMTP(
            self,
            hostname="mail.test",
            loop=self._loop,
            tls_context=None if self._implicit else self._tls,
            require_starttls=self._tls is not None and not self._implicit,
            authenticator=self._authenticate if self._logins else None,
            auth_required=bool(self._logins),
            auth_require_tls=not self._implicit,
        )

    def _authenticate(
        self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        user = data.login.decode()
        known = (self._logins or {}).get(user) == data.password.decode()
        return AuthResult(success=known, auth_data=user, handled=False)

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        secured = session.ssl is not None or self._implicit
        mail = Mail(
            envelope.mail_from, envelope.rcpt_tos, envelope.original_content, secured, session.auth_data
        )
        number = len(self.attempts)
        self.attempts.append(mail)
        if isinstance(server.transport, asyncio.Transport):
            self._transports.append(server.transport)
        reply = self.answer(number)
        if asyncio.iscoroutine(reply):
            reply = await reply
        if reply == ACCEPTED:
            self.mails.append(mail)
        answered: str = reply
        return answered

    @property
    def tried(self) -> int:
        return len(self.attempts)

    def hang_up(self) -> str:
        """Close the connection of the e-mail at hand without an answer."""
        self._transports[-1].abort()
        return "421 gone"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        for transport in self._transports:
            self._loop.call_soon_threadsafe(transport.abort)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server at 127.0.0.1 needs for TLS, and the file with whom its clients must trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, secret = folder / "trusted.pem", folder / "server.key"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, secret)
    return context, trusted
