"""``/flags/`` and ``/decide/``: the values of a project's flags for one subject (spec: sdk-wire 2.1 to 2.4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import structlog
from uuid_utils import uuid7

from hoglab.filters.allowance import begin_request
from hoglab.flags.evaluation.answers import AnswerForm, decide_form, encode_answer, flags_form
from hoglab.flags.evaluation.decoding import MAX_WIRE_BYTES, decode_body
from hoglab.flags.evaluation.remote_config import BARE_CONFIG, config_fields
from hoglab.flags.evaluation.request import (
    FlagQuery,
    choice_of,
    disables_geoip,
    read_call,
    read_query,
    read_subject,
    runtime_of,
)
from hoglab.flags.matching import continuity
from hoglab.flags.matching.explanation import conditions_of, holdout_of, variant_bucket
from hoglab.flags.matching.lookups import (
    DatabaseFacts,
    FactsElsewhere,
    PointReader,
    SnapshotReader,
    StoredFactsNeededError,
    StoredHashKeys,
    hash_keys_of,
    merge_hash_keys,
    within,
)
from hoglab.flags.matching.outcome import FlagOutcome, FlagReason
from hoglab.flags.matching.registry import flag_source
from hoglab.flags.matching.rules import OrderedFlag, evaluate
from hoglab.flags.matching.snapshot import ANY_RUNTIME, FlagSelection
from hoglab.flags.matching.subject import FlagRequest, StoredFacts, Subject
from hoglab.http.errors import ApiError
from hoglab.http.fields.fields import parse_uuid
from hoglab.http.requests.body import header, read_body
from hoglab.http.requests.budget import known_owner
from hoglab.http.requests.client_ip import client_ip
from hoglab.http.responses import JSON, send_answer
from hoglab.storage.database import DatabaseError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from hoglab.flags.matching.registry import FlagRegistry, LoadedProject
    from hoglab.flags.store import FlagRow
    from hoglab.http.identity import Project
    from hoglab.people.person_cache import PersonCache
    from hoglab.storage.database import Database

WRITE_TIMEOUT_S = 2.0
"""Time limit for storing a bucketing id; SDKs give up after three seconds."""
READ_TIMEOUT_S = 2.0
"""Time limit for reading stored data over a network; flags that need it fail then."""
READERS = 16
"""Maximum number of requests whose stored facts are read at once over a network."""
THREADS = 4
"""Threads for work that must not delay other requests: loading flags, storing bucketing ids, large bodies."""
INLINE_BYTES = 64 * 1024
"""Larger bodies are decoded in a thread, so that other requests do not wait for them."""

ProjectByToken = Callable[[str], "Project | None"]
Places = Callable[[str], Mapping[str, Any]]
"""Function that returns the person properties (``$geoip_…``) of the place of an address."""

_ALLOW = b"GET, POST, OPTIONS, HEAD"

_log = structlog.get_logger(__name__)


def invalid_token() -> ApiError:
    """Return the 401 for a request that names no existing project."""
    detail = "Project API key invalid. Send the token of a project (phc_…) as token or api_key."
    return ApiError(401, "authentication_error", "invalid_api_key", detail)


class FlagEvaluator:
    """Evaluates requests from memory, completed by point reads when the request does not say everything.

    Where a read takes the time of a network, no request waits for one in the event loop: an evaluation that needs
    something stored begins again in a thread, and reads all of it in one transaction.
    """

    def __init__(
        self,
        database: Database,
        registry: FlagRegistry,
        projects: ProjectByToken,
        known_persons: PersonCache | None = None,
        places: Places | None = None,
    ) -> None:
        """Create the evaluator.

        ``known_persons`` is the cache of the service that writes persons; without it, each person is read.
        ``places`` gives the properties of the place of an address, when a GeoIP database is there.
        """
        self.places = places
        self.registry = registry
        self._database = database
        self._projects = projects
        self._reader = PointReader(database, known_persons)
        self._facts: dict[int, DatabaseFacts] = {}
        self._log_ins = continuity.RecentLogIns()
        self._shared_log_ins = continuity.SharedLogIns(database) if database.is_shared else None
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hoglab-flags")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="hoglab-flag-facts")

    def close(self) -> None:
        """Free the threads and the connection."""
        self._reader.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        self.threads.shutdown(wait=True, cancel_futures=True)

    def project(self, token: str | None) -> Project:
        """Return the project of a token. Raises 401."""
        project = self._projects(token) if token else None
        if project is None:
            raise invalid_token()
        return project

    async def load(self, project: Project) -> LoadedProject:
        """Return the flags of a project as they are now."""
        return await self.registry.get(project, self.threads)

    async def evaluate(
        self,
        project: Project,
        loaded: LoadedProject,
        stages: tuple[OrderedFlag, ...],
        request: FlagRequest,
        hash_keys: Mapping[str, str] | FlagReason | None = None,
        ip: str | None = None,
    ) -> tuple[list[FlagOutcome], bool]:
        """Return the outcomes of the selected flags, and whether any failed.

        ``hash_keys``: see `keep_bucketing`; ``ip``: the address whose place counts.
        """
        place = None if ip is None or self.places is None else partial(self.places, ip)

        def evaluated(facts: StoredFacts) -> tuple[list[FlagOutcome], bool]:
            begin_request(project.id)
            return evaluate(stages, Subject(request, loaded.flags.group_names, facts, place))

        if not self._database.is_shared:
            facts = self._facts.get(project.id)
            if facts is None:
                facts = self._facts[project.id] = DatabaseFacts(self._reader, project.id)
            if hash_keys is not None:
                facts = DatabaseFacts(self._reader, project.id, hash_keys=hash_keys)
            return evaluated(facts)

        def evaluated_in_snapshot() -> tuple[list[FlagOutcome], bool]:
            try:
                with self._database.read(durable=False) as connection:
                    return evaluated(
                        DatabaseFacts(SnapshotReader(connection), project.id, hash_keys=hash_keys)
                    )
            except DatabaseError as error:
                return evaluated(FactsElsewhere(error))

        try:
            return evaluated(FactsElsewhere(StoredFactsNeededError()))
        except StoredFactsNeededError:
            work = asyncio.get_running_loop().run_in_executor(self._readers, evaluated_in_snapshot)
        try:
            return await asyncio.wait_for(work, READ_TIMEOUT_S)
        except TimeoutError as error:
            _log.warning("flag_facts_timed_out", project_id=project.id)
            return evaluated(FactsElsewhere(error))

    def outcomes_for(self, project: Project, request: FlagRequest) -> tuple[LoadedProject, list[FlagOutcome]]:
        """Return a project's flags, and the outcomes of the active ones, for whichever run time these are.

        Evaluates in this thread, in one snapshot of what is stored, and stores nothing. Raises 503 for flags that
        cannot be read.
        """
        loaded = self.registry.load(project)
        with self._database.read(durable=False) as connection:
            begin_request(project.id)
            facts = DatabaseFacts(SnapshotReader(connection), project.id)
            subject = Subject(request, loaded.flags.group_names, facts)
            outcomes, _ = evaluate(loaded.flags.selection(FlagSelection(ANY_RUNTIME)), subject)
        return loaded, outcomes

    def explained_for(self, project: Project, request: FlagRequest, row: FlagRow) -> dict[str, Any]:
        """Return what a flag gives a subject, and what each of its conditions says of it.

        ``row`` may be a flag that is not saved yet: it stands for the stored flag of its id, if there is one. The flag
        is compiled and evaluated as for `outcomes_for`. Raises 503 for flags that cannot be read.
        """
        loaded = self.registry.load(project)
        flags = loaded.flags.with_source(flag_source(row, loaded.linked.get(row.id, ())))
        flag = flags.flags[row.id]
        with self._database.read(durable=False) as connection:
            begin_request(project.id)
            subject = Subject(
                request, flags.group_names, DatabaseFacts(SnapshotReader(connection), project.id)
            )
            stages = flags.stages_of(row.id)
            (outcome,), _ = evaluate(stages, subject)
            return {
                "outcome": outcome,
                "conditions": conditions_of(flag, row.filters, subject),
                "variant_bucket": variant_bucket(flag, outcome.condition_index, subject),
                "holdout": holdout_of(flag, subject),
                "depends_on": [
                    {
                        "key": flags.flags[stage.flag.id].key,
                        "value": subject.values.get(stage.flag.id),
                    }
                    for stage in stages
                    if not stage.shown
                ],
                "is_known": subject.person() is not None,
            }

    async def _stored_hash_keys(self, project_id: int, distinct_ids: tuple[str, ...]) -> list[StoredHashKeys]:
        if not self._database.is_shared:
            return hash_keys_of(self._reader, project_id, distinct_ids)

        def read() -> list[StoredHashKeys]:
            with self._database.read(durable=False) as connection:
                return hash_keys_of(within(connection), project_id, distinct_ids)

        work = asyncio.get_running_loop().run_in_executor(self._readers, read)
        return await asyncio.wait_for(work, READ_TIMEOUT_S)

    async def with_log_in(self, project_id: int, request: FlagRequest) -> FlagRequest:
        """Return a request with the anonymous id of a recent log-in, where it names none itself.

        Other processes on the database know the log-in when this has returned, and what they know counts here.
        """
        sent, distinct_id = request.anon_distinct_id, request.distinct_id
        if sent is not None:
            if self._log_ins.add(project_id, distinct_id, sent):
                await self._of_all_processes(
                    self.threads, lambda shared: shared.add(project_id, distinct_id, sent)
                )
            return request
        anonymous_id = self._log_ins.known(project_id, distinct_id)
        if anonymous_id is None:
            anonymous_id = await self._of_all_processes(
                self._readers, lambda shared: shared.known(project_id, distinct_id)
            )
            if anonymous_id is None:
                return request
            self._log_ins.add(project_id, distinct_id, anonymous_id)
        return msgspec.structs.replace(request, anon_distinct_id=anonymous_id)

    async def _of_all_processes(
        self, threads: ThreadPoolExecutor, ask: Callable[[continuity.SharedLogIns], str | None]
    ) -> str | None:
        """Return the answer of the log-ins that all processes know; None where that is no other or none answers."""
        if self._shared_log_ins is None:
            return None
        work = asyncio.get_running_loop().run_in_executor(threads, ask, self._shared_log_ins)
        try:
            return await asyncio.wait_for(work, READ_TIMEOUT_S)
        except Exception as error:
            _log.warning("flag_log_ins_unknown", error=str(error))
            return None

    async def keep_bucketing(
        self, project_id: int, request: FlagRequest, flag_keys: tuple[str, ...]
    ) -> Mapping[str, str] | FlagReason:
        """Store the anonymous id of a visitor who has just become known.

        Returns the stored bucketing ids by flag, or the reason why they are not known.
        """
        anonymous_id = request.anon_distinct_id or ""
        distinct_ids = (request.distinct_id, anonymous_id)
        try:
            stored = await self._stored_hash_keys(project_id, distinct_ids)
            if not continuity.missing(stored, flag_keys):
                return merge_hash_keys(stored)
            work = asyncio.get_running_loop().run_in_executor(
                self.threads,
                continuity.remember,
                self._database,
                project_id,
                distinct_ids,
                flag_keys,
                anonymous_id,
            )
            return await asyncio.wait_for(work, WRITE_TIMEOUT_S)
        except TimeoutError:
            _log.warning("flag_bucketing_timed_out", project_id=project_id)
            return FlagReason.TIMEOUT
        except Exception as error:
            _log.warning("flag_bucketing_failed", project_id=project_id, error=str(error))
            return FlagReason.DATABASE_ERROR


class EvaluationEndpoint:
    """One evaluation path as an ASGI app."""

    def __init__(self, evaluator: FlagEvaluator, *, decide: bool = False) -> None:
        self._evaluator = evaluator
        self._decide = decide

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        method = scope["method"]
        if method == "POST":
            return self._post(scope, receive, send)
        if method == "GET":
            return send_answer(send, 200, orjson.dumps(BARE_CONFIG), JSON)
        if method == "HEAD":
            return send_answer(send, 200)
        if method == "OPTIONS":
            return send_answer(send, 204)
        return send_answer(send, 405, headers=[(b"allow", _ALLOW)])

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = read_query(scope["query_string"])
        evaluator = self._evaluator
        raw = await read_body(scope, receive, MAX_WIRE_BYTES)
        if len(raw) <= INLINE_BYTES:
            body = self._decode(scope, query, raw)
        else:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(evaluator.threads, self._decode, scope, query, raw)
        call = read_call(body)
        project = evaluator.project(call.token)
        known_owner(scope, f"project:{project.id}")
        loaded = evaluator.registry.current(project) or await evaluator.load(project)
        flags = loaded.flags
        outcomes: list[FlagOutcome] = []
        errors = False
        if not call.disable_flags:
            request = read_subject(body, query)
            runtime = runtime_of(scope["headers"]) if flags.has_runtime_rules else "unknown"
            stages = flags.selection(choice_of(call, query, runtime))
            hash_keys = None
            if flags.continuity_keys:
                request = await evaluator.with_log_in(project.id, request)
            if request.anon_distinct_id is not None and flags.continuity_keys:
                hash_keys = await evaluator.keep_bucketing(project.id, request, flags.continuity_keys)
            ip = None if evaluator.places is None or disables_geoip(body) else client_ip(scope)
            outcomes, errors = await evaluator.evaluate(project, loaded, stages, request, hash_keys, ip)
        form, with_config = self._form(query)
        answer = encode_answer(
            form,
            outcomes,
            errors=errors,
            request_id=parse_uuid(header(scope, b"x-request-id")) or str(uuid7()),
            evaluated_at_ms=time.time_ns() // 1_000_000,
            config=config_fields(has_flags=flags.has_active_flags) if with_config else None,
        )
        await send_answer(send, 200, answer, JSON)

    def _decode(self, scope: Scope, query: FlagQuery, raw: bytes) -> Any:
        return decode_body(
            raw,
            content_type=header(scope, b"content-type") or "",
            content_encoding=header(scope, b"content-encoding") or "",
            compression=query.compression,
        )

    def _form(self, query: FlagQuery) -> tuple[AnswerForm, bool]:
        """Return the form of the answer, and whether it carries the remote-config fields."""
        if self._decide:
            return decide_form(query.version or 1), True
        if query.version is None and not query.given_config:
            return flags_form(2), True
        return flags_form(query.version or 1), query.config
