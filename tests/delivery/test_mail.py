"""E-mails of functions, at a real mail server (spec: hog-runtime 4.2, 4.5)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.delivery.conftest import FAST, House, stored
from tests.delivery.mailbox import ACCEPTED, Mailbox, certificate
from tests.waiting import wait_for

from hoglab.delivery.execution.retries import RetryPolicy
from hoglab.delivery.outbound.mail import (
    NOT_CONFIGURED,
    Email,
    Mailer,
    MailFailure,
    MailLimits,
    MailSent,
    MailServer,
    email_of,
)
from hoglab.delivery.trials.runs import TestRuns
from hoglab.filters.hog import FilterContext
from hoglab.functions.configuration.builder import Builder, FunctionPatch
from hoglab.functions.errors import InvalidFunctionError
from hoglab.functions.runtime.compile import compile_configuration
from hoglab.functions.templates import find_template

MAIL = {
    "to": {"email": "ann@example.org", "name": "Ann Müller"},
    "from": {"email": "shop@example.com", "name": 'The "Shop", Ltd.'},
    "subject": "Grüße",
    "text": "Hello",
    "html": "<b>Hello</b>",
}
LIMITS = MailLimits()
QUICK = MailLimits(total_s=2.0, connect_s=2.0)


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


@pytest.fixture
def office(house: House, mailbox: Mailbox) -> House:
    """A house whose functions can send e-mails."""
    return furnished(house, mailbox.url)


def furnished(house: House, url: str, limits: MailLimits = QUICK, **options: Any) -> House:
    house.close()
    house.options = {"mail_server": MailServer.parse(url), "mail": limits, **options}
    house.open()
    return house


def sending(
    house: House, code: str = "print(jsonStringify(sendEmail(inputs.mail)))", **changes: Any
) -> dict[str, Any]:
    """A function from the template, which is what may call `sendEmail`."""
    given = {"from": {"value": "a@example.com"}, "subject": {"value": "x"}, "text": {"value": "x"}}
    schema = [*find("template-smtp-email"), {"key": "mail", "type": "json"}]
    inputs = {**given, "to": {"value": "b@example.com"}, "mail": {"value": {**MAIL, **changes}}}
    return house.create(code, template_id="template-smtp-email", inputs_schema=schema, inputs=inputs)


def find(template_id: str) -> list[dict[str, Any]]:
    template = find_template(template_id)
    assert template is not None
    return template.inputs_schema


def lines(house: House, function: dict[str, Any], level: str) -> list[str]:
    return [text for found, text in house.logs(function) if found == level]


# --- what arrives


def test_an_email_arrives_as_it_was_said(office: House, mailbox: Mailbox) -> None:
    function = sending(office)
    office.run(stored())
    [mail] = mailbox.mails
    assert (mail.sender, mail.recipients) == ("shop@example.com", ["ann@example.org"])
    message = mail.message
    assert message["Subject"] == "Grüße"
    assert str(message["From"]) == '"The \\"Shop\\", Ltd." <shop@example.com>'
    assert message["To"].addresses[0].display_name == "Ann Müller"
    assert (mail.part("plain"), mail.part("html")) == ("Hello", "<b>Hello</b>")
    assert message["Message-ID"] == f"<{office.results()[0]['invocation_id']}-0@example.com>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert lines(office, function, "info") == ['{"success":true}']
    assert office.metrics(function) == {"triggered": 1, "email_sent": 1, "succeeded": 1}
    assert ("email", "email_sent") in office.rows("app_metric", "metric_kind, metric_name", "1")


@pytest.mark.parametrize("missing", ["text", "html"])
def test_either_text_or_html_is_enough(office: House, mailbox: Mailbox, missing: str) -> None:
    sending(office, **{missing: None})
    office.run(stored())
    [mail] = mailbox.mails
    assert not mail.message.is_multipart()
    assert mail.message.get_content().strip() == (MAIL["html"] if missing == "text" else "Hello")


def test_whatever_stands_in_the_text_does_not_end_it(office: House, mailbox: Mailbox) -> None:
    text = "one\n.\nQUIT\r\n..two\n" + "x" * 5000 + "\nüber \0 end"
    sending(office, text=text, html=None)
    office.run(stored())
    [mail] = mailbox.mails
    content = mail.part("plain")
    assert content is not None
    assert content.splitlines() == text.replace("\0", "").splitlines()
    assert max(map(len, mail.raw.splitlines())) <= 998


def test_several_emails_of_a_run_have_ids_of_their_own(office: House, mailbox: Mailbox) -> None:
    sending(office, "sendEmail(inputs.mail) sendEmail(inputs.mail)")
    office.run(stored())
    ids = [mail.message["Message-ID"] for mail in mailbox.mails]
    assert len(set(ids)) == 2


def test_emails_count_as_calls(office: House, mailbox: Mailbox) -> None:
    function = sending(office, "let i := 0 while (i < 6) { sendEmail(inputs.mail) i := i + 1 }")
    office.run(stored())
    assert len(mailbox.mails) == 5
    [text] = lines(office, function, "error")
    assert text.endswith(": Exceeded maximum number of async steps: 5")


def test_so_many_are_handed_over_at_a_time(house: House, mailbox: Mailbox) -> None:
    pairs = asyncio.Barrier(2)
    busy: list[int] = []
    most = 0

    async def answer(number: int) -> str:
        nonlocal most
        busy.append(number)
        most = max(most, len(busy))
        await pairs.wait()  # of one at a time, the first would never be answered
        busy.remove(number)
        return ACCEPTED

    mailbox.answer = answer
    furnished(house, mailbox.url, MailLimits(at_once=2))
    sending(house, name="one")
    sending(house, name="another")  # one alone may not have both places
    house.run(*(stored() for _ in range(3)))
    assert (len(mailbox.mails), most) == (6, 2)


# --- what goes wrong


def test_a_refusal_for_now_is_tried_again_with_the_same_id(office: House, mailbox: Mailbox) -> None:
    mailbox.answer = lambda number: "451 try later" if number == 0 else ACCEPTED
    function = sending(office)
    office.run(stored())
    assert (mailbox.tried, len(mailbox.mails)) == (2, 1)
    assert len({mail.message["Message-ID"] for mail in mailbox.attempts}) == 1
    text = "E-mail failed on attempt 1 with SMTP code 451. Error: The mail server said: try later. Retrying."
    assert lines(office, function, "error") == [text]
    assert office.metrics(function) == {"triggered": 1, "email_sent": 1, "succeeded": 1}


def test_a_refusal_for_good_fails_the_run_at_once(office: House, mailbox: Mailbox) -> None:
    mailbox.answer = lambda _number: "554 no such thing"
    function = sending(office)
    office.run(stored())
    message = "E-mail failed on attempt 1 with SMTP code 554. Error: The mail server said: no such thing."
    assert mailbox.tried == 1
    assert lines(office, function, "error") == [message]
    assert lines(office, function, "info") == [
        '{"success":false,"error":"The mail server said: no such thing"}'
    ]
    assert office.results()[0]["error_message"] == message
    assert office.metrics(function) == {"triggered": 1, "email_failed": 1, "failed": 1}


def test_a_server_that_hangs_is_given_up_after_three_attempts(house: House, mailbox: Mailbox) -> None:
    mailbox.answer = lambda _number: asyncio.sleep(60)
    furnished(house, mailbox.url, MailLimits(total_s=0.3))
    function = sending(house)
    house.run(stored())
    assert len(lines(house, function, "error")) == 3
    assert lines(house, function, "info") == [
        '{"success":false,"error":"The mail server timed out after 0.3 s"}'
    ]
    assert house.results()[0]["error_kind"] == "timeout"


def test_an_email_whose_answer_is_lost_comes_again_under_the_same_id(office: House, mailbox: Mailbox) -> None:
    mailbox.answer = lambda number: mailbox.hang_up() if number == 0 else ACCEPTED
    function = sending(office)
    office.run(stored())
    first, second = mailbox.attempts
    assert first.message["Message-ID"] == second.message["Message-ID"]
    assert mailbox.mails == [second]
    [text] = lines(office, function, "error")
    assert "Retrying." in text


def test_a_server_that_is_not_there_is_tried_again(house: House) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        furnished(house, f"smtp://127.0.0.1:{free.getsockname()[1]}?tls=none")
        function = sending(house)
        house.run(stored())
    texts = lines(house, function, "error")
    assert len(texts) == 3
    assert texts[-1].endswith("Error: The mail server could not be reached.")


def test_without_a_server_no_email_is_sent(house: House) -> None:
    function = sending(house)
    house.run(stored())
    assert lines(house, function, "error") == [f"E-mail failed on attempt 1. Error: {NOT_CONFIGURED}."]
    assert house.metrics(function) == {"triggered": 1, "email_failed": 1, "failed": 1}


def test_an_email_that_is_tried_again_after_a_restart_has_the_same_id(house: House, mailbox: Mailbox) -> None:
    mailbox.answer = lambda _number: "451 try later"
    furnished(house, mailbox.url, retries=RetryPolicy(step_s=3600, jitter_s=0, max_backoff_s=3600))
    sending(house)
    house.dispatch(stored())
    house.delivery.start()
    wait_for(lambda: house.rows("invocation_result", "status", "version") == [("running",)])
    house.options["retries"] = FAST
    house.restart()
    mailbox.answer = lambda _number: ACCEPTED
    with house.queue_database.write() as tx:  # the hour is over
        tx.connection.exec_driver_sql("UPDATE invocation SET scheduled_at = created_at")
    house.run()
    [mail] = mailbox.mails
    assert mail.message["Message-ID"] == f"<{house.results()[0]['invocation_id']}-0@example.com>"


# --- who is trusted


@pytest.mark.parametrize("implicit", [False, True])
def test_passwords_and_emails_go_over_verified_tls(
    tmp_path: Path, implicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certificate(tmp_path)
    mailbox = Mailbox(context, implicit=implicit, logins={"shop": "p@ss:/word"})
    server = f"shop:p%40ss%3A%2Fword@127.0.0.1:{mailbox.port}"
    right, wrong = (f"{mailbox.url.split('/')[0]}//{one}" for one in (server, server.replace("ss", "xx")))
    try:
        refused = send(right)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        sent, denied = send(right), send(wrong)
    finally:
        mailbox.close()
    assert refused == MailFailure(
        "The TLS connection to the mail server could not be verified", retriable=True
    )
    assert sent == MailSent()
    assert denied == MailFailure("The mail server refused the login", retriable=False, code=535)
    [mail] = mailbox.mails
    assert (mail.secured, mail.user) == (True, "shop")


def test_a_server_without_tls_gets_nothing_that_is_meant_for_tls(mailbox: Mailbox) -> None:
    answer = send(mailbox.url.removesuffix("?tls=none"))
    assert isinstance(answer, MailFailure)
    assert not answer.retriable
    assert mailbox.tried == 0


def send(url: str) -> MailSent | MailFailure:
    email = email_of([MAIL], "key", LIMITS)
    assert isinstance(email, Email)
    return asyncio.run(Mailer(MailServer.parse(url), QUICK).send(email, 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smtp://mail.example.com", MailServer("mail.example.com", 587, "starttls")),
        ("smtps://mail.example.com", MailServer("mail.example.com", 465, "implicit")),
        ("smtp://mail.example.com?tls=implicit", MailServer("mail.example.com", 465, "implicit")),
        ("smtp://localhost?tls=none", MailServer("localhost", 25, "none")),
        ("smtp://u%40x:p%2F@[::1]:2525/", MailServer("::1", 2525, "starttls", "u@x", "p/")),
    ],
)
def test_addresses_of_servers(text: str, expected: MailServer) -> None:
    assert MailServer.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mail.example.com:25",
        "http://mail.example.com",
        "smtp://",
        "smtp://mail.example.com:port",
        "smtp://secret@mail.example.com",
        "smtp://mail.example.com?tls=maybe",
        "smtps://mail.example.com?tls=none",
        "smtp://mail.example.com?timeout=3",
        "smtp://mail.example.com/path",
        "smtp://mail.example.com?recipient_an_hour=0",
        "smtp://mail.example.com?recipient_an_hour=many",
        "smtp://mail.example.com?recipient_an_hour=10000000000000",
    ],
)
def test_what_is_no_address_of_a_server(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|has") as caught:
        MailServer.parse(text)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(MailServer("h", 1, "none", "u", "secret"))


# --- what is no e-mail


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"to": "ann@example.org"}, "'to' of an e-mail is an object with the text 'email'"),
        ({"to": {"email": "ann"}}, "'to.email' is not an e-mail address"),
        ({"to": {"email": "a@b.c\r\nRCPT TO:<x@y.z>"}}, "'to.email' is not an e-mail address"),
        ({"to": {"email": "a@b.c, x@y.z"}}, "'to.email' is not an e-mail address"),
        ({"to": {"email": f"{'a' * 60}@{'b.' * 120}c"}}, "'to.email' is not an e-mail address"),
        (
            {"from": {"email": "a@b.c", "name": "A\r\nBcc: x@y.z"}},
            "'from.name' of an e-mail has line breaks or control characters",
        ),
        ({"subject": "A\nBcc: x@y.z"}, "'subject' of an e-mail has line breaks or control characters"),
        ({"subject": "A\u2028B"}, "'subject' of an e-mail has line breaks or control characters"),
        ({"subject": "x" * 501}, "'subject' of an e-mail is longer than 500 characters"),
        ({"subject": 5}, "'subject' of an e-mail is a text"),
        ({"subject": ""}, "The e-mail has no subject"),
        ({"text": None, "html": ""}, "The e-mail has neither text nor html"),
        ({"text": {}}, "'text' of an e-mail is a text"),
        ({"text": "ü" * (512 * 1024), "html": "x"}, "text and html of an e-mail exceed 1048576 bytes"),
    ],
)
def test_what_is_no_email_is_not_sent(changes: dict[str, Any], detail: str) -> None:
    assert email_of([{**MAIL, **changes}], "key", LIMITS) == MailFailure(detail, retriable=False)


def test_an_email_is_an_object() -> None:
    for args in ([], [None], ["a"], [[1]]):
        assert isinstance(email_of(args, "key", LIMITS), MailFailure)


def test_what_is_no_email_fails_the_run_without_another_attempt(office: House, mailbox: Mailbox) -> None:
    function = sending(office, subject="A\r\nBcc: x@y.z")
    office.run(stored())
    assert mailbox.tried == 0
    assert len(lines(office, function, "error")) == 1
    assert office.metrics(function)["failed"] == 1


def test_names_of_other_scripts_reach_their_domain(office: House, mailbox: Mailbox) -> None:
    sending(office, to={"email": "ann@bücher.example"})
    office.run(stored())
    assert mailbox.mails[0].recipients == ["ann@xn--bcher-kva.example"]


# --- test runs


def test_runs(house: House, *, mock: bool) -> dict[str, Any]:
    function = sending(house)
    configuration = Builder(
        FunctionPatch(
            {
                **{key: function[key] for key in ("hog", "inputs_schema", "inputs", "type")},
                "template_id": "template-smtp-email",
            }
        ),
        None,
        FilterContext(),
    ).build()
    compiled = compile_configuration(configuration, FilterContext(), function_id="f", project_id=1)
    runs = TestRuns(house.delivery)
    globals_ = runs.globals_of(house.project, {"event": {"event": "a", "distinct_id": "u"}}, None)
    return runs.run(
        house.project, compiled, globals_, run_id="01990000-0000-7000-8000-000000000001", mock=mock
    ).answer()


test_runs.__test__ = False  # type: ignore[attr-defined]


def test_a_mocked_test_run_sends_nothing(office: House, mailbox: Mailbox) -> None:
    report = test_runs(office, mock=True)
    assert report["status"] == "success"
    texts = [line["message"] for line in report["logs"]]
    assert texts[0] == "Async function 'sendEmail' was mocked with arguments:"
    assert texts[1].startswith('sendEmail({\n  "to": {\n    "email": "ann@example.org"')
    assert texts[2] == '{"success":true}'
    assert mailbox.tried == 0


def test_another_test_run_sends_it(office: House, mailbox: Mailbox) -> None:
    assert test_runs(office, mock=False)["status"] == "success"
    assert len(mailbox.mails) == 1
    mailbox.answer = lambda _number: "451 later"
    report = test_runs(office, mock=False)
    assert report["errors"] == [
        "E-mail failed on attempt 1 with SMTP code 451. Error: The mail server said: later."
    ]


# --- who may send


@pytest.mark.parametrize("hog", ["sendEmail({})", "let f := sendEmail", "let f := () -> sendEmail({})"])
def test_code_without_the_template_may_not_name_it(house: House, hog: str) -> None:
    with pytest.raises(InvalidFunctionError) as caught:
        house.create(hog)
    assert caught.value.attr == "hog"
    assert caught.value.detail == (
        "Reserved for PostHog's own use and not callable from a function's code: sendEmail. Use the matching "
        "workflow step or destination template instead."
    )
    with pytest.raises(InvalidFunctionError):
        house.create(hog, template_id="template-webhook", inputs={"url": {"value": "http://a.example"}})
    plain = house.create("print('sendEmail')")
    with pytest.raises(InvalidFunctionError):
        house.change(plain, hog=hog)


def test_functions_of_the_template_may_change_their_code(office: House, mailbox: Mailbox) -> None:
    function = sending(office, "print(1)")
    office.change(function, hog="sendEmail(inputs.mail)")
    office.run(stored())
    assert len(mailbox.mails) == 1


@pytest.mark.parametrize(
    "name",
    [
        "sendPushNotification",
        "postHogGetTicket",
        "postHogUpdateTicket",
        "produceToWarehouseWebhooks",
        "generateMessagingPreferencesUrl",
    ],
)
def test_what_the_server_does_not_perform_ends_the_run(house: House, name: str) -> None:
    function = house.create(f"{name}({{}})")
    house.run(stored())
    assert house.results()[0]["error_message"] == f"Unknown async function '{name}'"
    assert house.metrics(function)["failed"] == 1
