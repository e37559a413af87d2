"""The first start on an empty directory: an organization, project 1, its owner, a key and a token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from hoglab.accounts import store
from hoglab.accounts.errors import AccountError
from hoglab.accounts.keys import is_key, is_token, new_token
from hoglab.http.identity import Level

if TYPE_CHECKING:
    from hoglab.accounts.service import AccountService
    from hoglab.storage.database import Database

FIRST_PROJECT_ID = 1
ORGANIZATION_NAME = "My organization"
PROJECT_NAME = "Default project"
OWNER_EMAIL = "owner@localhost"
KEY_LABEL = "First key"


@dataclass(frozen=True, slots=True)
class FirstStart:
    """Objects created by the first start; the key's value is shown once, because it is not stored."""

    project_id: int
    api_key: str
    project_token: str


def first_start(
    database: Database,
    accounts: AccountService,
    unannounced: Path,
    *,
    api_key: str | None = None,
    project_token: str | None = None,
) -> FirstStart | None:
    """Return credentials to show to the operator: those of this start, or of an earlier one that could not show them.

    ``unannounced`` is a file that exists from before the key is made until it was shown: the code that shows it
    removes the file. The value of a key is not stored, so a key that nobody saw gets another value. The parameters
    are those of `bootstrap`; a given key is known to the caller. Raises `AccountError`.
    """
    if api_key is None:
        with database.read() as connection:
            if store.is_empty(connection):
                unannounced.touch()
    created = bootstrap(database, accounts, api_key=api_key, project_token=project_token)
    if created is not None or not unannounced.exists():
        return created
    keys = accounts.keys()
    unseen = [key for key in keys if key["label"] == KEY_LABEL and key["last_used_at"] is None]
    project = accounts.project(FIRST_PROJECT_ID)
    if project is None or not unseen:
        return None
    return FirstStart(project.id, accounts.roll_key(unseen[-1]["id"]).value, project.api_token)


def bootstrap(
    database: Database,
    accounts: AccountService,
    *,
    api_key: str | None = None,
    project_token: str | None = None,
) -> FirstStart | None:
    """Fill an empty database; None when it is not empty, so that it may run at every start.

    ``api_key`` and ``project_token`` are used instead of random ones. Raises `AccountError` when they do not
    look like a key and a token.
    """
    if api_key is not None and not is_key(api_key):
        raise AccountError("a personal API key is phx_ and at least 32 letters, digits, _ or -")
    if project_token is not None and not is_token(project_token):
        raise AccountError("a project token is phc_ and 10 to 60 letters, digits, _ or -")
    with database.read() as connection:
        if not store.is_empty(connection):
            return None
    with database.write() as tx:
        if not store.is_empty(tx.connection):
            return None
        now = accounts.now()
        organization_id = str(uuid4())
        store.insert_organization(tx.connection, organization_id, ORGANIZATION_NAME, now)
        token = project_token or new_token()
        project = accounts.insert_project(
            tx, organization_id, PROJECT_NAME, project_id=FIRST_PROJECT_ID, token=token
        )
        owner = accounts.insert_user(tx, OWNER_EMAIL, "Owner", "", project.id)
        store.insert_membership(tx.connection, organization_id, owner.id, Level.OWNER, now)
        key = accounts.insert_key(tx, owner.id, KEY_LABEL, ["*"], value=api_key)
    return FirstStart(project.id, key.value, token)
