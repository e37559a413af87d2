"""Starts servers on directories that were damaged, and prints how that ends: a line that begins with LOOK for each,
and LOOKED when nothing of the server is left.

Directories are read from the standard input, one a line. Each has a process of its own, without loading all anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from tests.ingestion.conftest import event, record
from tests.waiting import PATIENCE_S

from hoglab.app import Hoglab
from hoglab.cli.errors import OperatorError
from hoglab.cli.serve import _open
from hoglab.functions.secrets.box import SecretBox, SecretsError
from hoglab.http.errors import known_error
from hoglab.settings import Settings
from hoglab.storage.database import tables
from hoglab.storage.database.integrity import IntegrityWatch
from hoglab.storage.database.sqlite import person_search
from hoglab.storage.event_store import EventStoreUnavailableError, QueryError

SENT_AGAIN = 40
_EVENTS = "SELECT count(*), sum((properties->>'n')::INT), count(DISTINCT person_id) FROM resolved_events"
_TEXTS = "SELECT bit_xor(hash(uuid, event, distinct_id, properties, person_properties)) FROM stored_events"


def answers(hoglab: Hoglab, box: SecretBox) -> dict[str, Any]:
    """What the server would answer, of all its files."""
    storage = hoglab.engines
    found: dict[str, Any] = {}
    with storage.store.reader() as reader:
        found["events"] = [*reader.execute(_EVENTS)[0], *reader.execute(_TEXTS)[0]]
    with storage.database.read() as connection:
        for table in (
            tables.personal_api_key,
            tables.project,
            tables.feature_flag,
            tables.person,
            tables.person_distinct_id,
        ):
            names = [name for name in table.c.keys() if name not in ("last_used_at", "last_called_at")]  # noqa: SIM118
            rows = connection.execute(sa.select(*(table.c[name] for name in names)).order_by(names[0])).all()
            found[table.name] = [len(rows), sha256(repr(rows).encode()).hexdigest()]
        functions = connection.execute(
            sa.select(tables.hog_function.c.inputs, tables.hog_function.c.encrypted_inputs)
        )
        found["functions"] = [[inputs, box.unseal(sealed).inputs] for inputs, sealed in functions]
        found["search"] = len((person_search.find(connection, "p12", 1000) or [()])[0])
    return found


def main(data: Path) -> str:
    try:
        hoglab = _open(Settings(data=data), accept_loss=False, deliver=False)
    except OperatorError as error:
        return f"refused {error}" if "\n" not in str(error) else f"not in one line: {error}"
    hoglab.start()
    found, problem = "", ""
    try:
        box = SecretBox((data / "secret-keys").read_text().split())
        # What is stored already is sent again, and must not be stored twice.
        again = [
            event("e", f"p{n}", properties={"n": n}, uuid=str(UUID(int=n + 1))) for n in range(SENT_AGAIN)
        ]
        offset = asyncio.run(hoglab.engines.log.append(record(*again)))
        deadline = time.monotonic() + PATIENCE_S
        while hoglab.engines.store.position() < offset and time.monotonic() < deadline:
            if any("stands still" in each.text for each in hoglab.problems()):
                break
            time.sleep(0.01)
        if hoglab.engines.store.position() < offset:
            problem = f"late: stored up to {hoglab.engines.store.position()} of {offset}"
        found = json.dumps(answers(hoglab, box), sort_keys=True, default=str)
    except (EventStoreUnavailableError, QueryError) as error:
        problem = f"unnamed {error}" if hoglab.engines.store.damage is None else ""
    except SecretsError as error:
        problem = f"unnamed {error}"
    except Exception as error:
        problem = f"failed {error!r}"
        if known_error(error) is None:
            raise
    (watch,) = (each for each in hoglab._background if isinstance(each, IntegrityWatch))
    watch.looked.wait(PATIENCE_S)
    problems = hoglab.problems()
    if problems:
        return f"degraded {'; '.join(map(str, problems))}"
    return problem or f"answers {found}"


if __name__ == "__main__":
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            try:
                verdict = main(Path(line.rstrip("\n")))
            except BaseException as error:
                traceback.print_exc()
                verdict = f"failed {error!r}"
            os.write(1, f"\nLOOK {verdict}\n".encode())  # at once, for other threads may be writing log lines
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            print("LOOK died", flush=True)
        print("LOOKED", flush=True)  # no thread of it writes into the directory any more
