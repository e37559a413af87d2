"""Texts of strangers in e-mails: a real mail server gets the headers that were meant and no others."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import re
from collections.abc import Iterator
from email.header import decode_header, make_header
from typing import Any

import pytest
from tests.delivery.mailbox import Mail, Mailbox

from hoglab.delivery.outbound.mail import (
    Email,
    Mailer,
    MailFailure,
    MailLimits,
    MailSent,
    MailServer,
    email_of,
)

LIMITS = MailLimits(recipient_an_hour=100_000)
HEADERS = [
    *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"),
    *("Content-Type", "Content-Transfer-Encoding", "MIME-Version"),
]
CHARSETS = ["utf-8", "UTF-8", "us-ascii", "iso-8859-1", "utf-16", "utf-7", "unknown-8bit", "utf-8*en"]
HARM = [
    "\r\nBcc: eve@example.net",
    "\nReply-To: eve@example.net\n\n<b>owned</b>",
    "\r\n\r\n.\r\nMAIL FROM:<eve@example.net>",
    "\rX-Injected: 1",
    "\0\x0b\x0c\x1c\x85\u2028X-Injected: 1",
    '", Eve <eve@example.net>, "',
    "friends: eve@example.net, mallory@example.net;",
]
SEPARATORS = [
    "\r\n",
    "\n",
    "\r",
    "\v",
    "\f",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\u2029",
    "\0",
    "\x7f",
]


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


def encoded(charset: str, harm: str, kind: str) -> str:
    raw = harm.encode("utf-16" if charset == "utf-16" else "utf-8")
    if kind.lower() == "b":
        return f"=?{charset}?{kind}?{base64.b64encode(raw).decode()}?="
    return f"=?{charset}?{kind}?{''.join(f'={byte:02X}' for byte in raw)}?="


def hostile_texts() -> list[str]:
    """Encoded words of every charset, encoding and harm, and what is made of them."""
    words = [
        encoded(charset, harm, kind) for charset, harm, kind in itertools.product(CHARSETS, HARM, "bBqQ")
    ]
    dice = random.Random(20)
    made = list(words)
    for word in dice.sample(words, 12):
        other = dice.choice(words)
        made += [
            f"Ann {word} Smith",
            f"{word} {other}",
            f"{word}{other}",
            f"{word[:-2]} ?=",  # a word with a blank in it
            word[: len(word) // 2] + " " + word[len(word) // 2 :],
            encoded("utf-8", word, "b"),  # one in another
            f'"{word}"',
            f"\\{word}",
            f"ü{word}" + "x" * 80,
            "y" * 70 + word,
        ]
    plain = [
        "=?",
        "?=",
        "=?utf-8?b?",
        "=?utf-8?b??=",
        '"',
        '\\"',
        "\\",
        "a, b <c@example.net>",
        "(c)",
        "@",
        ";",
        ":",
    ]
    wide = [
        "\U0001f994" * 100,
        "ü" * 500,
        "=?" * 250,
        "x" * 500,
        "\u202e=?utf-8?q?=0D=0A?=",
        "\ud800 lone",
    ]
    return [text for text in (*made, *plain, *wide) if len(text) <= LIMITS.subject_chars]


def sent(
    mailbox: Mailbox, *emails: dict[str, Any], limits: MailLimits = LIMITS
) -> list[MailSent | MailFailure]:
    async def story() -> list[MailSent | MailFailure]:
        mailer = Mailer(MailServer.parse(mailbox.url), limits)
        answers: list[MailSent | MailFailure] = []
        for wanted in emails:
            email = email_of([wanted], "key", limits)
            answers.append(await mailer.send(email, 1) if isinstance(email, Email) else email)
        return answers

    mailbox.mails.clear()
    return asyncio.run(story())


def email(**changes: Any) -> dict[str, Any]:
    return {
        "from": {"email": "shop@example.com"},
        "to": {"email": "ann@example.org"},
        "subject": "Hello",
        "text": "the text",
    } | changes


def fields(mail: Mail) -> list[tuple[str, str]]:
    """The headers as they came, unfolded, found by line breaks alone and by no library."""
    head, _, _body = mail.raw.partition(b"\r\n\r\n")
    unfolded = re.sub(rb"\r\n(?=[ \t])", b"", head)
    assert not re.search(rb"[^\x20-\x7e\r\n]", head)
    assert all(line.endswith(b"\r") for line in head.split(b"\n")[:-1])
    assert b"\r" not in unfolded.replace(b"\r\n", b"")
    pairs = [line.partition(b": ") for line in unfolded.split(b"\r\n")]
    return [(name.decode(), value.decode()) for name, _, value in pairs]


def shown(value: str) -> str:
    """A header as a mail program shows it: encoded words decoded, once."""
    return str(make_header(decode_header(value)))


def assert_as_meant(mail: Mail, subject: str, name: str) -> None:
    found = fields(mail)
    assert [field for field, _ in found] == HEADERS
    values = dict(found)
    assert shown(values["Subject"]) == subject
    for field, address in (("From", "shop@example.com"), ("To", "ann@example.org")):
        label, _, angled = values[field].rpartition("<")
        assert angled == f"{address}>"
        label = label.strip()
        if label.startswith('"'):
            label = re.sub(r"\\(.)", r"\1", label[1:-1])
        assert shown(label) == name
    assert (mail.sender, mail.recipients) == ("shop@example.com", ["ann@example.org"])
    assert b"the text" in mail.raw.partition(b"\r\n\r\n")[2]


def test_no_text_becomes_a_header_or_an_address(mailbox: Mailbox) -> None:
    texts = hostile_texts()
    assert len(texts) > 300
    emails = [
        email(
            subject=text,
            **{"from": {"email": "shop@example.com", "name": text}},
            to={"email": "ann@example.org", "name": text},
        )
        for text in texts
    ]
    answers = sent(mailbox, *emails)
    assert answers == [MailSent()] * len(texts)
    for text, mail in zip(texts, mailbox.mails, strict=True):
        meant = text.encode("utf-8", "replace").decode().strip()
        assert_as_meant(mail, meant, meant)


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
@pytest.mark.parametrize("part", ["subject", "from", "to"])
def test_a_line_break_of_any_kind_is_refused(mailbox: Mailbox, part: str, separator: str) -> None:
    text = f"Hello{separator}Bcc: eve@example.net"
    address = {"from": "shop@example.com", "to": "ann@example.org"}.get(part)
    changed = email(**{part: text if address is None else {"email": address, "name": text}})
    [answer] = sent(mailbox, changed)
    assert isinstance(answer, MailFailure)
    assert mailbox.mails == []


@pytest.mark.parametrize("part", ["from", "to"])
@pytest.mark.parametrize(
    "address",
    [
        "ann@example.org, eve@example.net",
        "ann@example.org,eve@example.net",
        "ann@example.org;eve@example.net",
        "friends: ann@example.org, eve@example.net;",
        "Ann <ann@example.org>",
        "<ann@example.org>",
        "ann@example.org>,<eve@example.net",
        '"ann, eve"@example.net',
        "(comment)ann@example.org",
        "@relay.example.net:ann@example.org",
        "ann@example.org\r\nRCPT TO:<eve@example.net>",
        "ann@example.org> NOTIFY=NEVER <",
        "ann@[127.0.0.1]",
        "eve%example.net@example.org\0",
        "=?utf-8?q?eve=40example.net=2C?=ann@example.org\u2028",
        "ann@example.org\u3000eve@example.net",
        "ann\uff0ceve@example.org",
        "ann@eve@example.org",
        "eve@example.net,",
    ],
)
def test_an_address_is_one_address(mailbox: Mailbox, part: str, address: str) -> None:
    [answer] = sent(mailbox, email(**{part: {"email": address}}))
    if answer == MailSent():  # what stands before the last "@" is a name that a mail system may give
        [mail] = mailbox.mails
        assert [field for field, _ in fields(mail)] == HEADERS
        assert re.fullmatch(
            r"[^\s,;<>@:\"()]+@[a-z.]+", mail.sender if part == "from" else mail.recipients[0]
        )
    else:
        assert isinstance(answer, MailFailure)
        assert mailbox.mails == []


def test_an_encoded_word_as_a_local_part_stays_one_address(mailbox: Mailbox) -> None:
    local = "=?utf-8?q?=2CBcc=3A?="
    [answer] = sent(mailbox, email(to={"email": f"{local}@example.org"}))
    assert answer == MailSent()
    [mail] = mailbox.mails
    assert dict(fields(mail))["To"] == f"<{local}@example.org>"


def test_an_address_is_not_flooded(mailbox: Mailbox) -> None:
    """An event says who gets an e-mail, so a stranger could have thousands sent to somebody."""
    ways = ["ann@example.org", "Ann@example.org", "ann@EXAMPLE.org", "ann+1@example.org", "ann+2@example.org"]
    answers = sent(
        mailbox, *(email(to={"email": way}) for way in ways), limits=MailLimits(recipient_an_hour=3)
    )
    refused = MailFailure("An address gets at most 3 e-mails an hour of a project", retriable=False)
    assert answers == [MailSent()] * 3 + [refused] * 2
    others = sent(
        mailbox, email(), email(to={"email": "bob@example.org"}), limits=MailLimits(recipient_an_hour=1)
    )
    assert others == [MailSent()] * 2


def test_an_address_may_be_written_to_for_each_project(mailbox: Mailbox) -> None:
    wanted = email_of([email()], "key", LIMITS)
    assert isinstance(wanted, Email)

    async def story() -> list[MailSent | MailFailure]:
        mailer = Mailer(MailServer.parse(mailbox.url), MailLimits(recipient_an_hour=1))
        return [await mailer.send(wanted, project_id) for project_id in (1, 2, 1)]

    first, second, third = asyncio.run(story())
    assert (first, second) == (MailSent(), MailSent())
    assert isinstance(third, MailFailure)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("ann@example.org", True),
        ("ann@EXAMPLE.ORG", True),
        ("ann@müller.example", True),
        ("ann@xn--mller-kva.example", True),
        ("ann@sub.example.org", False),
        ("ann@example.org.example.net", False),
        ("ann@notexample.org", False),
    ],
)
def test_the_operator_may_limit_where_e_mails_go(mailbox: Mailbox, address: str, allowed: bool) -> None:
    mailbox.mails.clear()
    server = MailServer.parse(mailbox.url).only_to(["Example.org", "müller.example"])
    wanted = email_of([email(to={"email": address})], "key", LIMITS)
    assert isinstance(wanted, Email)
    answer = asyncio.run(Mailer(server, LIMITS).send(wanted, 1))
    assert isinstance(answer, MailSent) is allowed
    assert len(mailbox.mails) == allowed


def test_the_address_of_the_server_says_how_many_an_address_gets(mailbox: Mailbox) -> None:
    wanted = email_of([email()], "key", LIMITS)
    assert isinstance(wanted, Email)

    async def story() -> list[MailSent | MailFailure]:
        mailer = Mailer(MailServer.parse(f"{mailbox.url}&recipient_an_hour=25"))
        return [await mailer.send(wanted, 1) for _ in range(26)]

    *allowed, refused = asyncio.run(story())
    assert allowed == [MailSent()] * 25
    assert refused == MailFailure("An address gets at most 25 e-mails an hour of a project", retriable=False)
