"""Problems of a server: the findings of health and readiness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from hoglab.app.roles import Role
from hoglab.delivery.service import Delivery
from hoglab.flags.matching.registry import FlagRegistry
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.http.health import Problem
from hoglab.ingestion import LogIngestion
from hoglab.ingestion.quarantine import Quarantine
from hoglab.storage.database import DatabaseError
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.engines import Engines, SharedEngines
from hoglab.storage.event_log import EventLogFullError
from hoglab.storage.event_store import EventStoreUnavailableError, EventWriter, QueryError
from hoglab.storage.invocations.holding import held_runs

_DAMAGE_ADVICE = "run `hoglab check --full`, restore a backup"
LATE_S = 60.0
"""Time after which health reports that events wait to be ingested."""


@dataclass(frozen=True, slots=True)
class SharedComponents:
    """Components that processes of all roles have."""

    engines: SharedEngines
    functions: FunctionRegistry
    delivery: Delivery
    flags: FlagRegistry


def problems(
    engines: Engines,
    shared: SharedComponents,
    ingestion: LogIngestion | None,
    lag_s: Callable[[], float],
    quarantine: Quarantine,
    integrity: IntegrityWatch,
    lost: Mapping[str, str],
) -> list[Problem]:
    """Return the current problems of a process with events.

    ``ingestion``: where this process ingests. ``lag_s`` says how long events wait for that, in whichever process.
    ``lost``: what write-ahead logs lacked at the start, by database files.
    """
    of_events = [
        *event_problems(engines, quarantine, integrity, lost),
        *ingestion_problems(engines.store, ingestion),
    ]
    try:
        late_s = lag_s()
    except DatabaseError as error:
        of_events.append(Problem("event log", str(error)))
    else:
        if late_s > LATE_S and (ingestion is None or ingestion.fault is None):
            text = f"events wait {late_s:.0f} s to be stored; the limit is {LATE_S:.0f} s"
            of_events.append(Problem("ingestion", text, blocks=False))
    return of_events + shared_problems(shared)


def in_role(problems: Sequence[Problem], role: Role) -> list[Problem]:
    """Return the problems, of which those block whose component this role needs for its work."""
    if role.blocking is None:
        return list(problems)
    return [replace(problem, blocks=problem.component in role.blocking) for problem in problems]


def shared_problems(shared: SharedComponents) -> list[Problem]:
    """Return the current problems of the components that processes of all roles have."""
    engines, delivery, problems = shared.engines, shared.delivery, []
    for database, name in ((engines.database, "database"), (engines.queue_database, "queue")):
        try:
            database.check()
        except DatabaseError as error:
            problems.append(Problem(name, str(error), blocks=False))
        if database.damage is not None:
            problems.append(Problem(name, f"{database.damage}: {_DAMAGE_ADVICE}"))
    try:
        engines.accepting.check()
    except EventLogFullError as error:
        problems.append(Problem("event log", str(error)))
    if unusable := shared.functions.unusable():
        text = f"{unusable} enabled functions cannot be loaded and do not run: the server's log says why"
        problems.append(Problem("functions", text, blocks=False))
    problems += [Problem("flags", text, blocks=False) for text in shared.flags.problems()]
    if not delivery.is_alive():
        problems.append(Problem("delivery", "is not running; restart the server"))
    problems += [Problem("delivery", text, blocks=False) for text in delivery.problems()]
    return problems


def ingestion_problems(store: EventWriter, ingestion: LogIngestion | None) -> list[Problem]:
    """Return the current problems of the event store, and of the ingestion of this process, if it has one."""
    problems = []
    try:
        store.check()
    except (EventStoreUnavailableError, QueryError) as error:
        problems.append(Problem("event store", str(error)))
    if ingestion is None:
        return problems
    if not ingestion.is_alive():
        problems.append(Problem("ingestion", "is not running; restart the server"))
    elif (fault := ingestion.fault) is not None:
        problems.append(Problem("ingestion", fault, blocks=False))
    return problems


def event_problems(
    engines: Engines,
    quarantine: Quarantine,
    integrity: IntegrityWatch,
    lost: Mapping[str, str],
) -> list[Problem]:
    """Return the current problems of the files, of the quarantine, and of held runs."""
    problems = [
        Problem("database", f"{name} is damaged ({text}): {_DAMAGE_ADVICE}", blocks=False)
        for name, text in integrity.damages().items()
    ]
    problems += [
        Problem(
            "database" if name == "hoglab.db" else "queue",
            f"{text} Unless the power failed, changes that were answered are lost: restore a backup, or start again",
            blocks=False,
        )
        for name, text in lost.items()
    ]
    if engines.database_load is not None:
        problems += [Problem("database", text, blocks=False) for text in engines.database_load.problems()]
    for file in engines.files:
        if file.damage is not None:
            problems.append(
                Problem("event store", f"events.duckdb is damaged ({file.damage}): {_DAMAGE_ADVICE}")
            )
    with suppress(DatabaseError):  # told above
        kept = quarantine.state()
        if kept.records:
            size = f"{kept.records} records ({kept.bytes} bytes of {quarantine.max_bytes})"
            text = f"{size} could not be processed: look at them with `hoglab ingestion quarantine list`"
            problems.append(Problem("quarantine", text, blocks=False))
    with suppress(DatabaseError):
        if held := held_runs(engines.queue_database):
            text = f"{held} runs from before the restore are held: `hoglab serve --deliver` lets them go"
            problems.append(Problem("delivery", text, blocks=False))
    return problems
