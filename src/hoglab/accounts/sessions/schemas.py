"""Wire formats of sessions."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from hoglab.accounts.schemas import MeOut
from hoglab.http.fields.fields import Text, WireModel
from hoglab.http.fields.notes import Note, Notes

NOTES: Notes = {
    "token": Note(
        "Token of a login link: the part behind `#t=` of the link that `hoglab login` prints.",
        "c2Vzc2lvbnMgYXJlIG9wZW5lZCBieSBhIGxpbmssIG8",
    ),
    "personal_api_key": "A personal API key, `phx_…`: the session may do what the key may, and ends with it.",
    "email": "Not offered yet.",
    "password": "Not offered yet.",
    "user": "User of the session, as `users/@me` shows it.",
    "scopes": Note("Scopes of the session: those of its key, or `*`.", ["*"]),
    "expires_at": "Expiry time if the session is not used again before.",
    "last_seen_at": "Time of the last use, by the minute.",
    "user_agent": Note("User agent of the browser when the session was opened.", "Mozilla/5.0"),
    "ip": Note("The address that it was opened from.", "192.0.2.7"),
    "current": "Whether it is the one that asks.",
}


class SessionIn(WireModel):
    """Credential that opens a session: the token of a link, or a personal API key."""

    notes = NOTES

    token: Annotated[str, Text(max_length=200)] | None = Field(
        None, examples=["c2Vzc2lvbnMgYXJlIG9wZW5lZCBieSBhIGxpbmssIG8"]
    )
    personal_api_key: Annotated[str, Text(max_length=400)] | None = None
    email: Annotated[str, Text(max_length=400)] | None = None
    password: Annotated[str, Text(max_length=400)] | None = None


class SessionOut(WireModel):
    """The session of a browser."""

    notes = NOTES

    id: str
    user: MeOut
    scopes: list[str]
    expires_at: datetime


class SessionState(WireModel):
    """The session of a browser, or that it has none."""

    notes = NOTES

    id: str | None
    user: MeOut | None
    scopes: list[str]
    expires_at: datetime | None


class SessionItem(WireModel):
    """One of a user's sessions."""

    notes = NOTES

    id: str
    created_at: datetime
    last_seen_at: datetime
    user_agent: str
    ip: str
    current: bool
