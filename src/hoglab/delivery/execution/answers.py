"""Answer to one attempt to do what a program asked for: what it means, and how it is told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hoglab.delivery.outbound import FetchFailure, FetchResponse, MailFailure, MailSent

TOLD_FROM_S = 10.0
"""Waits that are at least so long are told with their end."""

Answer = FetchResponse | FetchFailure | MailSent | MailFailure


def is_failure(answer: Answer) -> bool:
    match answer:
        case FetchResponse():
            return answer.status >= 400
        case MailSent():
            return False
    return True


def failure_text(answer: Answer, attempts: int) -> str:
    """Return the line of the log for a failed attempt."""
    match answer:
        case FetchResponse():
            return f"HTTP fetch failed on attempt {attempts} with status code {answer.status}."
        case FetchFailure():
            return f"HTTP fetch failed on attempt {attempts} with status code (none). Error: {answer.told}."
        case MailFailure(code=code):
            said = "" if code is None else f" with SMTP code {code}"
            return f"E-mail failed on attempt {attempts}{said}. Error: {answer.detail}."
    raise AssertionError("a success has no such line")


def next_attempt_text(due: datetime, delay_s: float) -> str:
    """Return the addition to a log line that gives the time of the next attempt; empty when the delay is short."""
    return f" Next attempt at {due:%Y-%m-%dT%H:%M:%SZ}." if delay_s >= TOLD_FROM_S else ""


def for_program(answer: Answer) -> dict[str, Any]:
    """Return the value of the call in the program (spec: hog-runtime 4.2, 4.5)."""
    match answer:
        case FetchResponse():
            return {"status": answer.status, "body": answer.body, "headers": answer.headers}
        case FetchFailure():
            # The status is the upstream product's; `error` is there to tell that nobody sent it.
            return {"status": 500, "body": f"{answer.name}: {answer.detail}", "error": answer.told}
        case MailSent():
            return {"success": True}
        case MailFailure():
            return {"success": False, "error": answer.detail}


def metric_of(answer: Answer) -> tuple[str, str]:
    """Return kind and name of the metric that a call is counted by once it is over (spec: hog-runtime 8)."""
    match answer:
        case MailSent():
            return ("email", "email_sent")
        case MailFailure():
            return ("email", "email_failed")
    return ("other", "fetch")
