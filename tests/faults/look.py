"""Starts a server on a directory that was damaged and prints how that ends: one line that begins with LOOK."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from hoglab.cli.errors import OperatorError
from hoglab.cli.serve import _open
from hoglab.http.errors import known_error
from hoglab.settings import Settings
from hoglab.storage.event_store import EventStoreUnavailableError, QueryError

SETTLE_S = 1.0


def main(data: Path) -> str:
    try:
        hoglab = _open(Settings(data=data), accept_loss=False, deliver=False)
    except OperatorError as error:
        return f"refused {error}" if "\n" not in str(error) else f"not in one line: {error}"
    hoglab.start()
    found = ""
    try:
        with hoglab.engines.store.reader() as reader:
            [(count, total)] = reader.execute("SELECT count(*), sum((properties->>'n')::INT) FROM events")
            found = f"{count} {total}"
        with hoglab.engines.database.read() as connection:
            connection.exec_driver_sql("SELECT count(*), sum(length(properties)) FROM person").all()
    except (EventStoreUnavailableError, QueryError) as error:
        if hoglab.engines.store.damage is None:
            return f"unnamed {error}"
    except Exception as error:
        if known_error(error) is None:
            raise
    time.sleep(SETTLE_S)
    problems = hoglab.problems()
    if problems:
        return f"degraded {'; '.join(map(str, problems))}"
    return f"answers {found}"


if __name__ == "__main__":
    verdict = main(Path(sys.argv[1]))
    print(f"LOOK {verdict}", flush=True)
    os._exit(0)
