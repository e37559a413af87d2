"""What saving a hog function costs a project that has many: the save itself, and taking it over for the next event.

Each line is a project with so many enabled functions, nine of ten of them for events of their own. Reference is the
first line; ratios are to it. Best of several, in milliseconds of the wall clock; the functions are copied into the
database, and everything afterwards goes through the service and the registry that a server has.

    python -m benchmarks.function_saves [--smoke]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from sqlalchemy import insert, select

from hoglab.accounts.bootstrap import bootstrap
from hoglab.accounts.service import AccountService
from hoglab.functions.configuration.builder import FunctionPatch
from hoglab.functions.runtime.registry import FunctionRegistry
from hoglab.functions.secrets.box import SecretBox
from hoglab.functions.service import FunctionService
from hoglab.hog.parser.recursion import ensure_stack
from hoglab.http.identity import Project
from hoglab.storage.database import Database
from hoglab.storage.database.tables import hog_function

SIZES = (100, 600, 10_000)
ROUNDS = 7
MOST = 4.0
"""The most that a save may cost with many functions, in saves with the fewest."""


def body(number: int) -> FunctionPatch:
    events = [{"id": "$pageview" if number % 10 == 0 else f"event {number}", "type": "events"}]
    wanted = {"key": "plan", "value": [f"plan {number}"], "operator": "exact", "type": "event"}
    return FunctionPatch(
        {
            "type": "destination",
            "name": f"Function {number}",
            "enabled": True,
            "hog": "fetch(inputs.url, {'body': {'event': event.event}})",
            "inputs_schema": [
                {"key": "url", "type": "string"},
                {"key": "token", "type": "string", "secret": True},
            ],
            "inputs": {
                "url": {"value": "https://a.example/{event.uuid}"},
                "token": {"value": "something secret"},
            },
            "filters": {"events": events, "properties": [wanted]},
        }
    )


def fill(database: Database, service: FunctionService, project: Project, size: int) -> str:
    """Functions up to a number; the id of one that was really made."""
    models = [service.create(project, None, body(number))["id"] for number in range(20)]
    with database.write() as tx:
        rows = [dict(row) for row in tx.execute(select(hog_function)).mappings()]
        copies = [
            {**rows[number % len(rows)], "id": str(uuid4()), "filters": _filters(rows, number)}
            for number in range(size - len(rows))
        ]
        if copies:
            tx.execute(insert(hog_function), copies)
        tx.changed("functions", project.id)
    found: str = models[0]
    return found


def _filters(rows: list[dict[str, object]], number: int) -> object:
    filters = dict(rows[number % len(rows)]["filters"])  # type: ignore[call-overload]
    if number % 10:
        filters["events"] = [{"id": f"copied event {number}", "type": "events"}]
    return filters


def best_ms(step: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> float:
    found = float("inf")
    for _ in range(rounds):
        before()
        began = time.perf_counter()
        step()
        found = min(found, time.perf_counter() - began)
    return found * 1000


def measure(size: int, rounds: int) -> tuple[float, float]:
    """Milliseconds of a save, and of taking it over."""
    with TemporaryDirectory() as folder:
        database = Database.open(Path(folder) / "hoglab.db")
        accounts = AccountService(database)
        bootstrap(database, accounts)
        project = accounts.project(1)
        assert project is not None
        box = SecretBox([SecretBox.new_key()])
        service, registry = FunctionService(database, box), FunctionRegistry(database, box)
        function_id = fill(database, service, project, size)
        number = 0

        def save() -> None:
            nonlocal number
            number += 1
            filters = {"events": [{"id": f"edited {number}", "type": "events"}]}
            service.update(
                project, None, function_id, FunctionPatch({"filters": filters, "description": str(number)})
            )

        def take_over() -> None:
            functions = registry.for_project(project.id)
            assert functions is not None
            assert functions.by_id[function_id].filter is not None

        take_over()
        saving = best_ms(save, rounds)
        taking_over = best_ms(take_over, rounds, save)
        database.dispose()
    return saving, taking_over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="short runs")
    options = parser.parse_args()
    sizes, rounds = ((20, 200), 2) if options.smoke else (SIZES, ROUNDS)
    ensure_stack()
    print(f"{'functions':>10} {'save':>9} {'ratio':>6} {'take over':>10} {'both, ratio':>12}")
    first: tuple[float, float] | None = None
    worst = 0.0
    for size in sizes:
        saving, taking_over = measure(size, rounds)
        first = first or (saving, taking_over)
        worst = max(worst, saving / first[0])
        both = (saving + taking_over) / sum(first)
        print(
            f"{size:>10} {saving:>6.2f} ms {saving / first[0]:>6.2f} {taking_over:>7.2f} ms {both:>12.2f}",
            flush=True,
        )
    return 0 if options.smoke or worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
