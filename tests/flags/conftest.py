from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from sqlalchemy import Connection
from tests.apps import app_of
from tests.databases import Template, template

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.actions.references import dependents_of
from hoglab.filters.evaluate import EvaluationContext
from hoglab.flags.api.routes import router
from hoglab.flags.evaluation.endpoint import FlagEvaluator
from hoglab.flags.evaluation.sdk_routes import hot_routes, sdk_routes
from hoglab.flags.matching.definition import FlagSource
from hoglab.flags.matching.outcome import FlagOutcome
from hoglab.flags.matching.registry import FlagRegistry
from hoglab.flags.matching.rules import evaluate
from hoglab.flags.matching.snapshot import FlagSelection, ProjectData, ProjectFlags
from hoglab.flags.matching.subject import FlagRequest, StoredPerson, Subject
from hoglab.flags.service import FlagService
from hoglab.flags.store import LinkedExperiment, active_flags
from hoglab.http.app import HoglabApp
from hoglab.http.identity import Project
from hoglab.people.cohorts import Cohort, CohortCalculator, CohortService
from hoglab.people.cohorts.routes import cohorts_router
from hoglab.people.service import PersonService
from hoglab.storage.database import Database, tables

NOW = datetime(2026, 3, 31, 15, 30, tzinfo=UTC)


@dataclass
class Memory:
    """Stored facts of one project, kept in dictionaries; counts its reads and can be made to fail."""

    persons: dict[str, StoredPerson] = field(default_factory=dict)
    groups: dict[tuple[int, str], Mapping[str, Any]] = field(default_factory=dict)
    members: set[tuple[int, int]] = field(default_factory=set)
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    broken: bool = False

    def person(self, distinct_id: str) -> StoredPerson | None:
        self._note("person")
        return self.persons.get(distinct_id)

    def group_properties(self, group_type_index: int, group_key: str) -> Mapping[str, Any] | None:
        self._note("group")
        return self.groups.get((group_type_index, group_key))

    def is_listed_in_cohort(self, cohort_id: int, person_id: int) -> bool:
        self._note("cohort")
        return (cohort_id, person_id) in self.members

    def hash_keys(self, distinct_ids: tuple[str, ...]) -> Mapping[str, str]:
        self._note("hash_keys")
        found: dict[str, str] = {}
        for distinct_id in reversed(distinct_ids):
            found.update(self.overrides.get(distinct_id, {}))
        return found

    def _note(self, what: str) -> None:
        self.reads.append(what)
        if self.broken:
            raise OSError("the database is on holiday")


class World:
    """A project for matching tests: flags given by their filters, evaluated for one request."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.sources: list[FlagSource] = []
        self.cohorts: dict[int, Cohort] = {}
        self.group_names: dict[int, str] = {0: "company", 1: "team"}
        self.now: Callable[[], datetime] = lambda: NOW

    def flag(self, key: str, filters: Mapping[str, Any] | None = None, **more: Any) -> FlagSource:
        more.setdefault("id", len(self.sources) + 1)
        more.setdefault("active", True)
        more.setdefault("version", 1)
        source = FlagSource(key=key, filters={"groups": [{}]} if filters is None else filters, **more)
        self.sources.append(source)
        return source

    def cohort(self, cohort_id: int, tree: Any = None, *, is_static: bool = False, version: int = 0) -> None:
        self.cohorts[cohort_id] = Cohort(cohort_id, is_static, tree, version)

    def project(self) -> ProjectFlags:
        context = EvaluationContext(now=self.now)
        return ProjectFlags(
            ProjectData(tuple(self.sources), dict(self.cohorts), dict(self.group_names), context)
        )

    def all(
        self, distinct_id: str = "user-1", choice: FlagSelection | None = None, **request: Any
    ) -> dict[str, FlagOutcome]:
        project = self.project()
        subject = Subject(FlagRequest(distinct_id, **request), project.group_names, self.memory)
        outcomes, _ = evaluate(project.selection(choice or FlagSelection()), subject)
        return {outcome.key: outcome for outcome in outcomes}

    def value(self, key: str, distinct_id: str = "user-1", **request: Any) -> bool | str:
        return self.all(distinct_id, **request)[key].value


class Client:
    """Calls the application in this process."""

    def __init__(self, app: HoglabApp, runner: asyncio.Runner, key: str | None = None) -> None:
        self._runner = runner
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._client = httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, url, **options))

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> httpx.Response:
        return self.request("POST", url, **options)

    def patch(self, url: str, **options: Any) -> httpx.Response:
        return self.request("PATCH", url, **options)

    def close(self) -> None:
        self._runner.run(self._client.aclose())


class Cipher:
    """Encrypts payloads with Fernet, as the application does; the key can be changed."""

    def __init__(self) -> None:
        self.change_key()

    def change_key(self) -> None:
        self._fernet = Fernet(Fernet.generate_key())

    def encrypt_text(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def decrypt_text(self, sealed: str) -> str:
        return self._fernet.decrypt(sealed).decode()


@dataclass
class Event:
    """What an event says about people; see `hoglab.people.batch.PersonEvent`."""

    project_id: int
    uuid: UUID
    event: str
    distinct_id: str
    timestamp: datetime
    properties: dict[str, Any]
    log_offset: int


PLACES = {"89.160.20.112": "SE", "81.2.69.142": "GB"}
"""Countries by address."""


class Server:
    """The flags room behind the real application: database, accounts, management API, SDK endpoints."""

    key = "phx_" + "k" * 43
    token = "phc_testtokentesttoken"

    def __init__(self, address: str | Path, path: Path) -> None:
        self.database = Database.open(address)
        self.accounts = AccountService(self.database)
        self.linked: dict[int, list[LinkedExperiment]] = {}
        self.people = PersonService(self.database)
        self.cipher = Cipher()
        self.service = FlagService(self.database, experiments=self._experiments, cipher=self.cipher)
        self.registry = FlagRegistry(self.database, experiments=self._experiments)
        self.evaluator = FlagEvaluator(
            self.database,
            self.registry,
            self.accounts.project_by_token,
            self.people.known,
            lambda ip: {"$geoip_country_code": PLACES[ip]} if ip in PLACES else {},
        )
        self.cohorts = CohortService(self.database, users=dependents_of("cohort", [active_flags]))
        self.calculator = CohortCalculator(self.database)
        self.app = app_of(
            self.accounts,
            router(self.database, self.service, self.evaluator),
            cohorts_router(self.database, self.cohorts, self.calculator.progress),
            hot=hot_routes(self.evaluator, self.accounts),
            sdk=sdk_routes(self.evaluator, sdk_files=path),
        )
        self._log_offset = 0
        self._runner = asyncio.Runner()
        self.client = Client(self.app, self._runner, self.key)
        self.sdk = Client(self.app, self._runner)

    def _experiments(
        self, _connection: Connection, _project_id: int, flag_ids: Collection[int] | None
    ) -> dict[int, list[LinkedExperiment]]:
        return {
            flag_id: links
            for flag_id, links in self.linked.items()
            if flag_ids is None or flag_id in flag_ids
        }

    @property
    def project(self) -> Project:
        project = self.accounts.project(1)
        assert project is not None
        return project

    def link(self, flag_id: int, *links: LinkedExperiment) -> None:
        """Say which experiments use a flag, and announce it as the experiments room does."""
        self.linked[flag_id] = list(links)
        with self.database.write() as tx:
            tx.changed("experiments", 1)

    def experiment(
        self, experiment_id: int, name: str = "Test", *, is_running: bool = False, deleted: bool = False
    ) -> LinkedExperiment:
        return LinkedExperiment(experiment_id, name, is_running, deleted)

    def cohort(
        self, tree: Any = None, *, members: Collection[str] | None = None, name: str = "A cohort"
    ) -> int:
        """Add a cohort by its property tree, or a static one by the distinct ids of its members."""
        with self.database.write() as tx:
            cohort_id: int = tx.execute(
                sa.insert(tables.cohort)
                .values(
                    project_id=1,
                    name=name,
                    filters={"properties": tree} if tree is not None else None,
                    groups=[],
                    is_static=members is not None,
                    created_at=NOW,
                )
                .returning(tables.cohort.c.id)
            ).scalar_one()
            for member in members or ():
                person_id = sa.select(tables.person_distinct_id.c.person_id).where(
                    tables.person_distinct_id.c.distinct_id == member
                )
                tx.execute(
                    sa.insert(tables.cohort_person).values(
                        cohort_id=cohort_id, person_id=person_id.scalar_subquery()
                    )
                )
            tx.changed("cohorts", 1)
        return cohort_id

    def create(self, key: str, filters: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        body = {"key": key, "filters": {"groups": [{}]} if filters is None else filters, **more}
        answer = self.client.post("/api/projects/1/feature_flags/", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def patch(self, flag_id: int, **changes: Any) -> httpx.Response:
        return self.client.patch(f"/api/projects/1/feature_flags/{flag_id}/", json=changes)

    def flags(
        self,
        distinct_id: str = "user-1",
        *,
        path: str = "/flags/?v=2",
        ip: str | None = None,
        **body: Any,
    ) -> dict[str, Any]:
        """The answer for somebody, who asks from an address when one is given."""
        headers = {} if ip is None else {"X-Forwarded-For": ip}
        body |= {"token": self.token, "distinct_id": distinct_id}
        answer = self.sdk.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def event(self, event: str, distinct_id: str, **properties: Any) -> None:
        """Let an event do to the stored people what ingestion makes it do."""
        self.batch((event, distinct_id, properties))

    def batch(self, *events: tuple[str, str, dict[str, Any]]) -> None:
        """Let the events of one batch do to the stored people what ingestion makes them do."""
        self._log_offset += 1
        happened = [Event(1, uuid4(), *event[:2], NOW, event[2], self._log_offset) for event in events]
        self.people.apply(happened, log_offset=self._log_offset)

    def close(self) -> None:
        self.client.close()
        self.sdk.close()
        self._runner.close()
        self.evaluator.close()
        self.app.close()
        self.database.dispose()


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Template:
    """A database that was started for the first time."""

    def first_start(database: Database) -> None:
        bootstrap(database, AccountService(database), api_key=Server.key, project_token=Server.token)

    return template(request, "flags", first_start)


@pytest.fixture
def server(tmp_path: Path, prepared: Template) -> Iterator[Server]:
    with prepared.copied(tmp_path) as address:
        server = Server(address, tmp_path)
        yield server
        server.close()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def value_of() -> Callable[..., bool | str]:
    """The value of one flag with these filters for one distinct id."""

    def evaluate_one(key: str, filters: Mapping[str, Any], distinct_id: str, **more: Any) -> bool | str:
        world = World()
        world.flag(key, filters, **more)
        return world.value(key, distinct_id)

    return evaluate_one
