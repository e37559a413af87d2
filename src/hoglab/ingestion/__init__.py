"""The loop from the event log to the event store, persons and delivery."""

from hoglab.ingestion.loop import LogIngestion
from hoglab.ingestion.normalise import Event
from hoglab.ingestion.quarantine import Quarantine
from hoglab.ingestion.steps import IngestionLimits
from hoglab.storage.event_store.ingested import IngestedEvent

__all__ = [
    "Event",
    "IngestedEvent",
    "IngestionLimits",
    "LogIngestion",
    "Quarantine",
]
