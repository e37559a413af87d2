"""Host of a running body: the library, printing, and one captured event.

Imported in the processes that run bodies, so it must import no more than the language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from hoglab.functions.environments import DELIVERING
from hoglab.hog import Context, Execution, HogRuntimeError, host_function, to_json
from hoglab.hog.values import stringify

MAX_CHAIN = 9
"""Maximum number of functions in a row, each started by an event of the one before, that may capture events."""

CHAIN_PROPERTY = "$hog_function_execution_count"


class HostedExecution(Execution):
    """An execution whose program may capture one event (spec: hog-runtime 4.3).

    ``captured`` is that event, its ``timestamp`` in seconds of Unix time.
    """

    run_id: str = ""
    captured: dict[str, Any] | None = None
    called_capture = False
    loop_found = False

    def _global(self, name: str) -> Mapping[str, Any]:
        value = self.globals.get(name)
        return value if isinstance(value, dict) else {}

    def capture(self, given: Mapping[str, Any], now: float) -> None:
        """Keep the event that the program captures, unless the chain of functions that led to it is too long."""
        if self.called_capture:
            raise HogRuntimeError(
                "postHogCapture was called more than once. Only one call is allowed per function"
            )
        event, person = self._global("event"), self._global("person")
        name = given.get("event")
        if not isinstance(name, str) or not name:
            raise HogRuntimeError("[HogFunction] - postHogCapture call missing 'event' property")
        distinct_id = given.get("distinct_id") or event.get("distinct_id") or person.get("id")
        if not distinct_id:
            raise HogRuntimeError("[HogFunction] - postHogCapture call missing 'distinct_id' property")
        self.called_capture = True
        before = (event.get("properties") or {}).get(CHAIN_PROPERTY)
        count = before if isinstance(before, (int, float)) and not isinstance(before, bool) else 0
        if count > MAX_CHAIN:
            self.loop_found = True
            return
        properties = given.get("properties")
        self.captured = {
            "event": name,
            "distinct_id": distinct_id if isinstance(distinct_id, str) else stringify(distinct_id),
            # Equal when the program is run again, so that the event is stored once.
            "uuid": str(uuid5(UUID(self.run_id), "capture")),
            "timestamp": now,
            "properties": {
                **(properties if isinstance(properties, dict) else {}),
                CHAIN_PROPERTY: int(count) + 1,
            },
        }


def _capture(context: Context, wanted: Any = None) -> None:
    execution = getattr(context, "owner", None)
    if not isinstance(execution, HostedExecution):
        raise HogRuntimeError("Unknown async function 'postHogCapture'")
    execution.capture(to_json(wanted) if isinstance(wanted, dict) else {}, context.now())


PRINT_ROOM_CHARS = 20_000
"""Extra length of stored lines over shown ones, so that a secret is replaced before a cut could split it."""

RUNNING = DELIVERING.with_functions(
    host_function("postHogCapture", "event?: any", impl=_capture, needs_context=True)
).with_limits(replace(DELIVERING.limits, print_chars=PRINT_ROOM_CHARS))
"""Environment in which programs of destinations run: capturing does not make them wait."""
