"""Pytest plugin: the targets of the Makefile, and which of them each test belongs to.

`pytest --target NAME` runs the tests of one target; without the option all tests that are named run. Files are assigned
by `FILES`, the most particular entry first; of the other files, tests that need a server of PostgreSQL, ClickHouse or
Kafka belong to ``engines`` and the rest to ``test``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent
DEFAULT = "test"
"""The target of tests that need neither an engine nor a file of `FILES`: what `make test` runs."""
ENGINES = "engines"
"""The target of tests that need a server of a database or a broker, and of results that go on from stored ones."""
FILES = {
    # Many processes and engines, which are waited for for minutes, and what docs/operate.md says to operators.
    "backup/test_beside_database.py": "processes",
    "backup/test_document.py": "processes",
    "capture/test_capture_kafka.py": "processes",
    "deploy": "processes",
    "e2e/test_clickhouse.py": "processes",
    "e2e/test_cluster.py": "processes",
    "e2e/test_kafka.py": "processes",
    "e2e/test_log_in_of_processes.py": "processes",
    "e2e/test_moving_cluster.py": "processes",
    "e2e/test_roles.py": "processes",
    "faults/test_cluster_faults.py": "processes",
    "faults/test_ingesting_processes.py": "processes",
    "faults/test_paused_deliver.py": "processes",
    "faults/test_processes_disturbed.py": "processes",
    "faults/test_processes_killed.py": "processes",
    "ingestion/test_partitions.py": "processes",
    "storage/test_event_log_kafka.py": "processes",
    "storage/test_moving_cluster.py": "processes",
    # Kills, damage, full disks, hostile programs, backups, servers as operators start them, and walks from end to end.
    "analysis/test_bounded_statements.py": "faults",
    "analysis/test_jobs.py": "faults",
    "analysis/test_state_file.py": "faults",
    "backup": "faults",
    "cli/test_operators.py": "faults",
    "delivery/test_bodies.py": "faults",
    "delivery/test_worker.py": "faults",
    "e2e": "faults",
    "faults": "faults",
    "functions/test_liquid.py": "faults",
    "hog/stdlib/test_charges.py": "faults",
    "hog/test_attacks.py": "faults",
    "ingestion/test_kill.py": "faults",
    "people/test_kill.py": "faults",
    "storage/test_event_log_faults.py": "faults",
    "storage/test_event_store_faults.py": "faults",
    "storage/test_identity.py": "faults",
    "storage/test_invocations_faults.py": "faults",
    "storage/test_job_leases.py": "faults",
    "storage/test_log_damage.py": "faults",
    "transfer/test_running.py": "faults",
    # Results that go on from stored ones, compared with results of all events.
    "analysis/test_edited.py": "engines",
    "analysis/test_late_events.py": "engines",
    "analysis/test_merges.py": "engines",
    "analysis/test_resuming.py": "engines",
    "analysis/test_sealed.py": "engines",
    "analysis/test_sharing.py": "engines",
    "analysis/test_state.py": "engines",
    # Chromium, and the SDKs in the languages that they are written in.
    "clients": "browsers",
    "ui": "browsers",
}
"""Target by file or folder of ``tests``."""
TARGETS = frozenset({DEFAULT, ENGINES, *FILES.values()})
SERVERS = frozenset({"clickhouse", "events_url", "kafka", "postgres", "postgres_url"})
"""Fixtures that start a server of an engine, or need one."""
SERVER_PARAMETERS = frozenset({"clickhouse", "postgres", "postgresql"})
"""Values of parameters by which a fixture takes such an engine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of this plugin."""
    parser.getgroup("targets").addoption(
        "--target",
        choices=sorted(TARGETS),
        default=None,
        help="Run the tests of one target of the Makefile only.",
    )


@cache
def file_target(path: Path) -> str | None:
    """Return the target that `FILES` gives a file or folder of ``tests``; None where it gives none."""
    if not path.is_relative_to(ROOT):
        return None
    place = path.relative_to(ROOT)
    names = [place.as_posix(), *(parent.as_posix() for parent in place.parents)]
    return next((FILES[name] for name in names if name in FILES), None)


def item_target(item: pytest.Item) -> str:
    """Return the target of a test."""
    if (target := file_target(item.path)) is not None:
        return target
    callspec = getattr(item, "callspec", None)
    parameters = [] if callspec is None else list(callspec.params.values())
    needs_server = SERVERS & set(getattr(item, "fixturenames", ())) or any(
        value in SERVER_PARAMETERS for value in parameters if isinstance(value, str)
    )
    return ENGINES if needs_server else DEFAULT


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of other targets, so that they need not be imported."""
    wanted = config.getoption("--target")
    if wanted is None or collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    target = file_target(collection_path)
    is_other = target is not None and target != wanted
    # A file that no entry names has tests of these two targets only.
    is_undecided = target is None and wanted not in (DEFAULT, ENGINES)
    return True if is_other or is_undecided else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other targets."""
    wanted = config.getoption("--target")
    if wanted is None:
        return
    chosen, others = [], []
    for item in items:
        (chosen if item_target(item) == wanted else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def pytest_report_header(config: pytest.Config) -> Any:
    """Return the line that names the target."""
    return f"target: {config.getoption('--target') or 'all tests that are named'}"
