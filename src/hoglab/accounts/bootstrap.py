"""The first start on an empty directory: an organization, project 1, its owner, a key and a token."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class FirstStart:
    """What was made; the key's value is to be shown once, because it is kept nowhere."""

    project_id: int
    api_key: str
    project_token: str


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
        key = accounts.insert_key(tx, owner.id, "First key", ["*"], value=api_key)
    return FirstStart(project.id, key.value, token)
