"""Execution of the programs of functions: on one event, on many, turn by turn."""

from hoglab.delivery.execution import answers, batch_run, calls, retries
from hoglab.delivery.execution.batches import BATCH_QUEUE
from hoglab.delivery.execution.capturing import CaptureRefusedError, EventSink
from hoglab.delivery.execution.loops import CHAIN_HEADER, WEBHOOK_PATH, chain_of
from hoglab.delivery.execution.program_run import (
    MAX_ERROR_CHARS,
    EventFacts,
    PendingCall,
    ProgramRun,
    clipped,
)
from hoglab.delivery.execution.steps import Perform, RunContext, TurnResult
from hoglab.delivery.execution.turn import Turn

__all__ = [
    "BATCH_QUEUE",
    "CHAIN_HEADER",
    "MAX_ERROR_CHARS",
    "WEBHOOK_PATH",
    "CaptureRefusedError",
    "EventFacts",
    "EventSink",
    "PendingCall",
    "Perform",
    "ProgramRun",
    "RunContext",
    "Turn",
    "TurnResult",
    "answers",
    "batch_run",
    "calls",
    "chain_of",
    "clipped",
    "retries",
]
