"""E-mails of hog functions.

The arguments of ``sendEmail``, and sending to the operator's SMTP server (spec: hog-runtime 4.2; RFC 5321, RFC
5322).

The operator chooses the server, not a function, so the guard of outgoing requests does not apply to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_LINES
from email.utils import formatdate
from functools import cached_property
from typing import Any, Literal

import aiosmtplib
from yarl import URL

from hoglab.delivery.outbound.connections import tls_context
from hoglab.delivery.outbound.mail_head import address_field, fixed_field, text_field
from hoglab.fairness.token_bucket import TokenBucket
from hoglab.patterns import anchored, searched

Tls = Literal["starttls", "implicit", "none"]

PORTS: Mapping[Tls, int] = {"starttls": 587, "implicit": 465, "none": 25}
"""The default port by kind of connection."""

SMTP_URL_FORM = (
    "it is smtp://user:password@host:587, smtps://… for TLS from the start, or smtp://host:25?tls=none"
)

NOT_CONFIGURED = "No SMTP server is configured: the operator has not set HOGLAB_SMTP_URL"

GOODBYE_S = 1.0
"""Time in seconds that the server gets to end the connection after it has accepted an e-mail."""

_SENT_AS_IS = SMTP_LINES.clone(cte_type="7bit")
# The pattern of HTML's e-mail fields: what RFC 5322 allows without quotes and comments.
_LOCAL = anchored(r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}")
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN = anchored(rf"{_LABEL}(?:\.{_LABEL})*")
_CONTROL = searched(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HOST_NAME = anchored(r"[a-zA-Z0-9.-]{1,255}")


@dataclass(frozen=True, slots=True)
class MailLimits:
    """Named limits of e-mails.

    ``total_s``: one attempt, with connecting (``connect_s``); ``at_once``: simultaneous attempts; ``subject_chars``: of
    subjects and of names; ``content_bytes``: text and HTML together, in UTF-8. ``recipient_an_hour``: e-mails of one
    project that an address gets, at once and then each hour, for events of strangers may say who gets one.
    """

    total_s: float = 30.0
    connect_s: float = 5.0
    at_once: int = 16
    address_chars: int = 254
    subject_chars: int = 500
    content_bytes: int = 1024 * 1024
    recipient_an_hour: int = 20
    recipients_remembered: int = 100_000


@dataclass(frozen=True, slots=True)
class MailServer:
    """Address and settings of the server that sends e-mails.

    ``recipient_domains``: empty for any. ``recipient_an_hour``: None for the number in `MailLimits`.
    """

    host: str
    port: int
    tls: Tls
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    recipient_domains: frozenset[str] = frozenset()
    recipient_an_hour: int | None = None

    @classmethod
    def parse(cls, text: str) -> MailServer:
        """Return the server that a URL means. Raises `ValueError`, whose text does not repeat the URL."""
        try:
            url = URL(text.strip())
            host, port = url.host, url.explicit_port
        except ValueError:
            raise ValueError(f"is not the address of a mail server: {SMTP_URL_FORM}") from None
        if url.scheme not in ("smtp", "smtps") or not host:
            raise ValueError(f"is not the address of a mail server: {SMTP_URL_FORM}")
        if url.path not in ("", "/") or url.fragment or set(url.query) - {"tls", "recipient_an_hour"}:
            raise ValueError(f"has more parts than such an address has: {SMTP_URL_FORM}")
        wanted = url.query.get("tls", "implicit" if url.scheme == "smtps" else "starttls")
        tls = next((known for known in PORTS if known == wanted), None)
        if tls is None or (url.scheme == "smtps" and tls != "implicit"):
            raise ValueError("has a tls that is not one of starttls, implicit (smtps) and none")
        if (url.user is None) != (url.password is None):
            raise ValueError("has a user or a password, but not both")
        most = url.query.get("recipient_an_hour")
        if most is not None and not (most.isascii() and most.isdigit() and 0 < int(most[:10]) <= 1_000_000):
            raise ValueError("has a recipient_an_hour that is not a number from 1 to 1000000")
        recipient_an_hour = None if most is None else int(most)
        return cls(host, port or PORTS[tls], tls, url.user, url.password, recipient_an_hour=recipient_an_hour)

    def only_to(self, domains: Iterable[str]) -> MailServer:
        """Return the server with the domains that its e-mails may go to, none for any."""
        return replace(self, recipient_domains=frozenset(_wire_domain(domain).lower() for domain in domains))


@dataclass(frozen=True, slots=True)
class Email:
    """One e-mail. ``message_id`` is the same for each attempt, so that duplicates can be recognised."""

    sender: Address
    recipient: Address
    subject: str
    text: str | None
    html: str | None
    message_id: str

    def as_bytes(self) -> bytes:
        """Return the e-mail in the form of RFC 5322, dated now.

        Headers with texts of the function are written by `mail_head`, those of the content by the standard library.
        """
        head = (
            address_field("From", self.sender),
            address_field("To", self.recipient),
            text_field("Subject", self.subject),
            fixed_field("Date", formatdate()),
            fixed_field("Message-ID", self.message_id),
            fixed_field("Auto-Submitted", "auto-generated"),
        )
        return b"".join(head) + self._content().as_bytes()

    def _content(self) -> EmailMessage:
        message = EmailMessage(policy=_SENT_AS_IS)
        if self.text is not None:
            message.set_content(self.text)
        if self.html is not None and self.text is not None:
            message.add_alternative(self.html, subtype="html")
        elif self.html is not None:
            message.set_content(self.html, subtype="html")
        return message


@dataclass(frozen=True, slots=True)
class MailSent:
    """The server has accepted the e-mail."""


@dataclass(frozen=True, slots=True)
class MailFailure:
    """The e-mail was not sent. ``code`` is the server's answer, None when there was none."""

    detail: str
    retriable: bool
    code: int | None = None


def email_of(args: list[Any], key: str, limits: MailLimits) -> Email | MailFailure:
    """Return the e-mail that a program's ``sendEmail(email)`` asks for. ``key`` is different for each call of it."""
    try:
        return _read(args[0] if args else None, key, limits)
    except _UnusableError as error:
        return MailFailure(str(error), retriable=False)


class _UnusableError(ValueError):
    """Error for arguments of a program that are not a valid e-mail."""


def _read(wanted: Any, key: str, limits: MailLimits) -> Email:
    if not isinstance(wanted, dict):
        raise _UnusableError("sendEmail takes an object with to, from, subject, and text or html")
    sender = _address(wanted, "from", limits)
    recipient = _address(wanted, "to", limits)
    subject = _line(wanted.get("subject"), "subject", limits)
    if not subject:
        raise _UnusableError("The e-mail has no subject")
    text, html = _content(wanted, "text"), _content(wanted, "html")
    if text is None and html is None:
        raise _UnusableError("The e-mail has neither text nor html")
    if sum(len(part.encode()) for part in (text, html) if part is not None) > limits.content_bytes:
        raise _UnusableError(f"text and html of an e-mail exceed {limits.content_bytes} bytes")
    return Email(sender, recipient, subject, text, html, f"<{key}@{sender.domain}>")


def _address(wanted: Mapping[str, Any], part: str, limits: MailLimits) -> Address:
    given = wanted.get(part)
    if not isinstance(given, dict) or not isinstance(given.get("email"), str):
        raise _UnusableError(f"'{part}' of an e-mail is an object with the text 'email'")
    local, at, domain = given["email"].strip().rpartition("@")
    # Before the domain is encoded, too: that takes time that grows with the square of its length.
    fits = len(local) + 1 + len(domain) <= limits.address_chars
    domain = _wire_domain(domain) if fits else ""
    fits = fits and len(local) + 1 + len(domain) <= limits.address_chars
    if not at or not fits or not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(domain):
        raise _UnusableError(f"'{part}.email' is not an e-mail address")
    return Address(_line(given.get("name"), f"{part}.name", limits), local, domain)


def _wire_domain(domain: str) -> str:
    """Return a domain in the ASCII form of DNS, or as it is when it has none."""
    try:
        return domain.encode("idna").decode()
    except UnicodeError:
        return domain


def _line(given: Any, part: str, limits: MailLimits) -> str:
    """Return a text for the head of an e-mail, where a line break would begin another header."""
    if given is None:
        return ""
    if not isinstance(given, str):
        raise _UnusableError(f"'{part}' of an e-mail is a text")
    if _CONTROL.search(given):
        raise _UnusableError(f"'{part}' of an e-mail has line breaks or control characters")
    if len(given) > limits.subject_chars:
        raise _UnusableError(f"'{part}' of an e-mail is longer than {limits.subject_chars} characters")
    return _encodable(given).strip()


def _content(wanted: Mapping[str, Any], part: str) -> str | None:
    given = wanted.get(part)
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise _UnusableError(f"'{part}' of an e-mail is a text")
    return _encodable(given).replace("\0", "")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class _Recipients:
    """Allowances of the addresses that were written to most recently, each for one project."""

    def __init__(self, limits: MailLimits) -> None:
        self._limits = limits
        self._allowances: OrderedDict[tuple[int, str], TokenBucket] = OrderedDict()
        self._lock = threading.Lock()  # test runs send on threads of their own

    def admit(self, project_id: int, recipient: Address) -> bool:
        """Return whether an address may get one more e-mail of a project, which is then counted."""
        # Mail systems tell case apart in no local part that people use, and many ignore what follows a "+".
        mailbox = f"{recipient.username.partition('+')[0]}@{recipient.domain}".lower()
        most, now = self._limits.recipient_an_hour, time.monotonic()
        full = TokenBucket(float(most), now, most / 3600, float(most))
        with self._lock:
            allowance = self._allowances.pop((project_id, mailbox), full).filled(now)
            admitted = allowance.tokens >= 1
            self._allowances[project_id, mailbox] = allowance.without(1.0) if admitted else allowance
            if len(self._allowances) > self._limits.recipients_remembered:
                self._allowances.popitem(last=False)
        return admitted


class Mailer:
    """Sends e-mails to one server, each over a connection of its own. Bound to no event loop."""

    def __init__(self, server: MailServer | None = None, limits: MailLimits | None = None) -> None:
        """Create the mailer. ``server`` is None when there is none; then no e-mail is sent."""
        self._server = server
        self.limits = limits or MailLimits()
        if server is not None and server.recipient_an_hour is not None:
            self.limits = replace(self.limits, recipient_an_hour=server.recipient_an_hour)
        self._recipients = _Recipients(self.limits)

    async def send(self, email: Email, project_id: int) -> MailSent | MailFailure:
        """Send an e-mail once, on a project's account. Never raises for errors of the network or the server."""
        server = self._server
        if server is None:
            return MailFailure(NOT_CONFIGURED, retriable=False)
        domain = email.recipient.domain.lower()
        if server.recipient_domains and domain not in server.recipient_domains:
            return MailFailure(
                "The operator lets no e-mails go to this domain (HOGLAB_SMTP_RECIPIENT_DOMAINS)",
                retriable=False,
            )
        if not self._recipients.admit(project_id, email.recipient):
            most = self.limits.recipient_an_hour
            return MailFailure(
                f"An address gets at most {most} e-mails an hour of a project", retriable=False
            )
        return await self._attempt(server, email)

    async def _attempt(self, server: MailServer, email: Email) -> MailSent | MailFailure:
        client = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            use_tls=server.tls == "implicit",
            start_tls=server.tls == "starttls",
            tls_context=None if server.tls == "none" else self._tls,
            local_hostname=_own_name(),
            timeout=self.limits.total_s,
        )
        try:
            async with asyncio.timeout(self.limits.total_s):
                await self._connect(client, server)
                envelope = email.sender.addr_spec, [email.recipient.addr_spec]
                await client.sendmail(*envelope, email.as_bytes())
            await _part(client)
        except aiosmtplib.SMTPConnectTimeoutError:
            text = f"The connection to the mail server timed out after {self.limits.connect_s:g} s"
            return MailFailure(text, retriable=True)
        except TimeoutError:
            text = f"The mail server timed out after {self.limits.total_s:g} s"
            return MailFailure(text, retriable=True)
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            return _failure(error)
        finally:
            client.close()
        return MailSent()

    @property
    def host(self) -> str:
        """The host of the server; empty without one."""
        return "" if self._server is None else self._server.host

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return tls_context()

    async def _connect(self, client: aiosmtplib.SMTP, server: MailServer) -> None:
        await client.connect(timeout=self.limits.connect_s)
        if server.user is not None and server.password is not None:
            await client.login(server.user, server.password)


async def _part(client: aiosmtplib.SMTP) -> None:
    """End the connection. The server has accepted the e-mail, so errors are ignored."""
    with contextlib.suppress(aiosmtplib.SMTPException, OSError, ValueError):
        async with asyncio.timeout(GOODBYE_S):
            await client.quit()


def _own_name() -> str:
    """Return the host name for the greeting: never looked up, for that may take long."""
    name = socket.gethostname()
    return name if _HOST_NAME.fullmatch(name) else "localhost"


def _failure(error: Exception) -> MailFailure:
    """Return the failure that an error stands for, in words that hold no password."""
    match error:
        case aiosmtplib.SMTPRecipientsRefused(recipients=[refused, *_]):
            return _failure(refused)
        case aiosmtplib.SMTPAuthenticationError(code=code):
            return MailFailure("The mail server refused the login", _is_for_now(code), code)
        case aiosmtplib.SMTPResponseException(code=code, message=message):
            return MailFailure(
                f"The mail server said: {' '.join(message.split())[:300]}", _is_for_now(code), code
            )
        case ssl.SSLError() | aiosmtplib.SMTPException(__cause__=ssl.SSLError()):
            return MailFailure("The TLS connection to the mail server could not be verified", retriable=True)
        case socket.gaierror() | aiosmtplib.SMTPException(__cause__=socket.gaierror()):
            return MailFailure("The name of the mail server could not be resolved", retriable=True)
        case aiosmtplib.SMTPServerDisconnected():
            return MailFailure("The mail server closed the connection", retriable=True)
        case aiosmtplib.SMTPConnectError() | aiosmtplib.SMTPTimeoutError() | OSError():
            return MailFailure("The mail server could not be reached", retriable=True)
        case ValueError():  # an address or a message that the protocol cannot carry
            return MailFailure("The e-mail cannot be sent as it is", retriable=False)
    # Other errors are raised where the server does not know STARTTLS, or no way to log in.
    return MailFailure("The mail server does not offer what HOGLAB_SMTP_URL asks for", retriable=False)


def _is_for_now(code: int) -> bool:
    """Return whether a later attempt may succeed (RFC 5321, 4.2.1)."""
    return not 500 <= code <= 599
