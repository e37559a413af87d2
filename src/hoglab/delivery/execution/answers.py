"""Answer to one attempt at a call of a program: its meaning, and its text for the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hoglab.delivery.outbound import FetchFailure, FetchResponse, MailFailure, MailSent

ANNOUNCED_FROM_S = 10.0
"""Minimum wait in seconds for which the log tells the end."""

Answer = FetchResponse | FetchFailure | MailSent | MailFailure


@dataclass(frozen=True, slots=True)
class Postponed:
    """End of a program that threw ``RetryError``: its last call is to be repeated later.

    ``after_s``: seconds to wait at least, None for as long as after a failed request.
    """

    reason: str
    after_s: float | None


def is_failure(answer: Answer) -> bool:
    match answer:
        case FetchResponse():
            return answer.status >= 400 or bool(answer.undelivered)
        case MailSent():
            return False
    return True


def failure_text(answer: Answer, attempts: int) -> str:
    """Return the line of the log for a failed attempt."""
    match answer:
        case FetchResponse():
            reason = f": {answer.undelivered}" if answer.undelivered else ""
            return f"HTTP fetch failed on attempt {attempts} with status code {answer.status}{reason}."
        case FetchFailure():
            return f"HTTP fetch failed on attempt {attempts} with status code (none). Error: {answer.text}."
        case MailFailure(code=code):
            said = "" if code is None else f" with SMTP code {code}"
            return f"E-mail failed on attempt {attempts}{said}. Error: {answer.detail}."
    raise AssertionError("a success has no such line")


def postponed_text(postponed: Postponed, attempts: int) -> str:
    """Return the line of the log for an attempt after which a program asked for another one."""
    return f"The function asked to be run again on attempt {attempts}: {postponed.reason}."


def next_attempt_text(due: datetime, delay_s: float) -> str:
    """Return the addition to a log line that gives the time of the next attempt; empty when the delay is short."""
    return f" Next attempt at {due:%Y-%m-%dT%H:%M:%SZ}." if delay_s >= ANNOUNCED_FROM_S else ""


def for_program(answer: Answer) -> dict[str, Any]:
    """Return the value of the call in the program (spec: hog-runtime 4.2, 4.5)."""
    match answer:
        case FetchResponse():
            shown = {"status": answer.status, "body": answer.body, "headers": answer.headers}
            # Programs that look at errors from 400 on only must not take a redirect for an acknowledgement.
            return {**shown, "error": answer.undelivered} if answer.undelivered else shown
        case FetchFailure():
            # The status is the upstream product's; `error` shows that no response was received.
            return {"status": 500, "body": f"{answer.name}: {answer.detail}", "error": answer.text}
        case MailSent():
            return {"success": True}
        case MailFailure():
            return {"success": False, "error": answer.detail}


def metric_of(answer: Answer) -> tuple[str, str]:
    """Return kind and name of the metric that counts a call once it is over (spec: hog-runtime 8)."""
    match answer:
        case MailSent():
            return ("email", "email_sent")
        case MailFailure():
            return ("email", "email_failed")
    return ("other", "fetch")
