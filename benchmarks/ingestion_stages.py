"""Where the processor time of ingesting an event goes, and so what bounds the rate.

Runs the loop of `benchmarks.ingestion_loop` and measures the processor time of the threads in each stage: without
functions, with twenty, and with a thousand of which none matches. One thread does all but decoding, batch after batch:
its time bounds the rate, however many processors there are. What the thousand functions cost is compared with all else
in the same run, which other programs slow down as much.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.embedded import EmbeddedEventStore

from benchmarks.capture_batches import EVENTS
from benchmarks.ingestion_loop import IDLE_FUNCTIONS, run_loop
from hoglab.app import calm_garbage_collector
from hoglab.delivery.dispatch.dispatcher import EventDispatcher
from hoglab.ingestion import batches
from hoglab.ingestion.steps import BatchSteps
from hoglab.people import PersonService, service, store

FUNCTIONS = 20
ROUNDS = 3
Seconds = defaultdict[str, float]
KEPT = 0.8
"""Of the rate without functions, with those that match nothing."""

DECODING, LOOP, DISPATCH = "decoding, one batch ahead", "the loop", "  dispatch"
THE_REST = "threads of the engine, reading the log"
STAGES: tuple[tuple[str, Any, str], ...] = (
    (DECODING, batches, "batch_of"),
    (LOOP, BatchSteps, "_process"),
    ("  persons", PersonService, "apply"),
    ("    loading them", service, "load_persons"),
    ("    rules, properties, writing", PersonService, "_apply_project"),
    ("    of that writing", store, "save_persons"),
    ("  event store", EmbeddedEventStore, "append"),
    ("    columns from rows", EmbeddedEventStore, "_register"),
    (DISPATCH, EventDispatcher, "dispatch"),
    ("    filters and plans", EventDispatcher, "plan"),
    ("    queueing", EventDispatcher, "commit"),
)
"""What is printed, and the function whose time it is. What is indented is part of what stands above."""


@contextmanager
def measured(seconds: Seconds) -> Iterator[None]:
    """Adds up the processor time of threads in the functions of `STAGES`, while the block runs."""
    with ExitStack() as patches:
        for stage, owner, name in STAGES:
            patches.enter_context(patch.object(owner, name, _timed(stage, getattr(owner, name), seconds)))
        yield


def _timed(stage: str, function: Any, seconds: Seconds) -> Any:
    @wraps(function)
    def run(*values: Any, **named: Any) -> Any:
        started = time.thread_time()
        try:
            return function(*values, **named)
        finally:
            seconds[stage] += time.thread_time() - started

    return run


def profile(batch_count: int, functions: int, first_page: int) -> Seconds:
    """Microseconds of processor time an event in each stage, in the last round, and of the process under ``all``."""
    seconds, rounds = Seconds(float), list[Seconds]()

    def after_round(speed: Any, _store: object) -> None:
        micros = 1e6 / (batch_count * EVENTS)
        rounds.append(Seconds(float, {stage: taken * micros for stage, taken in seconds.items()}))
        rounds[-1]["all"] = 1e6 / speed.processor
        seconds.clear()

    with tempfile.TemporaryDirectory() as folder, measured(seconds):
        run_loop(Path(folder), batch_count, functions, ROUNDS, first_page=first_page, after_round=after_round)
    return min(rounds[1:], key=lambda one: one["all"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run")
    options = parser.parse_args()
    calm_garbage_collector()
    batch_count = 20 if options.smoke else 500
    idle = profile(batch_count, IDLE_FUNCTIONS, 100_000)
    columns = {
        "none": profile(batch_count, 0, 0),
        f"{FUNCTIONS}": profile(batch_count, FUNCTIONS, 1_000),
        f"{IDLE_FUNCTIONS:,} idle": idle,
    }
    print(f"{'processor us an event, functions:':<36}" + "".join(f"{name:>12}" for name in columns))
    for stage, *_ in STAGES:
        print(f"{stage:<36}" + "".join(f"{each[stage]:12.1f}" for each in columns.values()))
    rest = {name: each["all"] - each[LOOP] - each[DECODING] for name, each in columns.items()}
    print(f"{THE_REST:<36}" + "".join(f"{each:12.1f}" for each in rest.values()))
    print(f"{'all threads':<36}" + "".join(f"{each['all']:12.1f}" for each in columns.values()))
    print(
        f"{'most events/s, bound by the loop':<36}"
        + "".join(f"{1e6 / each[LOOP]:12,.0f}" for each in columns.values())
    )
    print(
        f"{IDLE_FUNCTIONS:,} functions of which none matches leave {1 - idle[DISPATCH] / idle['all']:.2f} of the rate "
        f"without dispatch in the same run; at least {KEPT} is wanted"
    )


if __name__ == "__main__":
    main()
