"""Requests and e-mails that functions send, checked by the guard of addresses."""

from hoglab.delivery.outbound.addresses import AddressGuard, InvalidAllowanceError
from hoglab.delivery.outbound.fetch import Fetcher, FetchFailure, FetchLimits, FetchRequest, FetchResponse
from hoglab.delivery.outbound.mail import (
    Email,
    Mailer,
    MailFailure,
    MailLimits,
    MailSent,
    MailServer,
    email_of,
)
from hoglab.delivery.outbound.sending import Outbound
from hoglab.delivery.outbound.urls import read_url

__all__ = [
    "AddressGuard",
    "Email",
    "FetchFailure",
    "FetchLimits",
    "FetchRequest",
    "FetchResponse",
    "Fetcher",
    "InvalidAllowanceError",
    "MailFailure",
    "MailLimits",
    "MailSent",
    "MailServer",
    "Mailer",
    "Outbound",
    "email_of",
    "read_url",
]
