"""Mail servers that mean harm, or are broken: none holds up delivery, takes memory, or gets what is meant for TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from email.headerregistry import Address
from pathlib import Path

import pytest
from tests.delivery.mailbox import certificate
from tests.waiting import PATIENCE_S

from hoglab.delivery.outbound.mail import Email, Mailer, MailFailure, MailLimits, MailSent, MailServer

Session = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LIMITS = MailLimits(total_s=1.0, connect_s=0.5)
EMAIL = Email(
    Address("", "a", "example.com"),
    Address("", "b", "example.com"),
    "x",
    "secret text",
    None,
    "<1@example.com>",
)


@contextlib.asynccontextmanager
async def serving(session: Session, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    under_way: set[asyncio.Task[None]] = set()

    async def bounded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await session(reader, writer)
        writer.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way.add(asyncio.create_task(bounded(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way)


def sent(session: Session, url: str = "smtp://127.0.0.1:{}?tls=none") -> MailSent | MailFailure:
    async def story() -> MailSent | MailFailure:
        async with serving(session) as port:
            mailer = Mailer(MailServer.parse(url.format(port)), LIMITS)
            return await asyncio.wait_for(mailer.send(EMAIL, 1), PATIENCE_S)

    return asyncio.run(story())


async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(20)


async def dripping(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"2")
        await writer.drain()
        await asyncio.sleep(0.05)


async def endless_greeting(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"220-hello\r\n" * 1_000)
        await writer.drain()


async def endless_line(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"2" * 65_536)
        await writer.drain()


async def endless_capabilities(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.test\r\n")
    await reader.readline()
    while True:
        writer.write(b"250-SIZE 1\r\n" * 1_000)
        await writer.drain()


async def slow_in_every_step(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.test\r\n")
    while await reader.readline():
        await asyncio.sleep(0.4)
        writer.write(b"250 fine\r\n")


async def never_reads_the_content(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.test\r\n")
    while (line := await reader.readline()) and not line.startswith(b"DATA"):
        writer.write(b"250 fine\r\n")
    writer.write(b"354 go on\r\n")
    await asyncio.sleep(20)


async def nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x16\x03\x01\x00\xff" + bytes(range(256)) + b"\r\nHTTP/1.1 200 OK\r\n\r\n")
    await asyncio.sleep(1)


HOSTILE: list[Session] = [
    silent,
    dripping,
    endless_greeting,
    endless_line,
    endless_capabilities,
    slow_in_every_step,
    never_reads_the_content,
    nonsense,
]


@pytest.mark.parametrize("session", HOSTILE, ids=lambda one: one.__name__)
def test_a_hostile_server_costs_its_time_and_little_memory(session: Session) -> None:
    tracemalloc.start()
    try:
        answer = sent(session)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(answer, MailFailure)
    assert len(answer.detail) < 500
    assert peak < 32 * 1024 * 1024


def test_what_a_server_says_is_cut() -> None:
    async def wordy(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"554-" + b"no " * 150 + b"\r\n554 no\r\n")
        await writer.drain()
        await asyncio.sleep(0.2)

    answer = sent(wordy)
    assert isinstance(answer, MailFailure)
    assert len(answer.detail) < 400


def test_starttls_is_not_done_without() -> None:
    """Who takes STARTTLS out on the way, or answers to it in the clear, gets no login and no e-mail."""
    heard: list[bytes] = []

    def stripping(offers: bytes) -> Session:
        async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.test\r\n")
            while line := await reader.readline():
                heard.append(line)
                if line.startswith(b"EHLO"):
                    writer.write(b"250-mail.test\r\n" + offers + b"250 AUTH PLAIN LOGIN\r\n")
                elif line.startswith(b"STARTTLS"):
                    writer.write(b"220 go\r\n250 mail.test\r\n235 welcome\r\n250 sent\r\n")
                else:
                    writer.write(b"250 fine\r\n")

        return session

    for offers in (b"", b"250-STARTTLS\r\n"):
        answer = sent(stripping(offers), "smtp://user:pass-word@127.0.0.1:{}")
        assert isinstance(answer, MailFailure)
    said = b"".join(heard)
    for word in (b"AUTH", b"MAIL", b"RCPT", b"secret text", b"pass-word", b"dXNlcg", b"AHVzZXI"):
        assert word not in said


@pytest.mark.parametrize("wrong", ["a certificate that nobody trusts", "plain text"])
def test_a_server_with_the_wrong_tls_gets_nothing(tmp_path: Path, wrong: str) -> None:
    heard: list[bytes] = []

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test\r\n")
        while line := await reader.readline():
            heard.append(line)
            writer.write(b"250 fine\r\n")

    async def story() -> MailSent | MailFailure:
        context = None if wrong == "plain text" else certificate(tmp_path)[0]
        async with serving(session, context) as port:
            mailer = Mailer(MailServer.parse(f"smtps://user:pass-word@127.0.0.1:{port}"), LIMITS)
            return await asyncio.wait_for(mailer.send(EMAIL, 1), PATIENCE_S)

    answer = asyncio.run(story())
    assert isinstance(answer, MailFailure)
    assert answer.retriable
    assert not any(b"EHLO" in line or b"AUTH" in line for line in heard)
