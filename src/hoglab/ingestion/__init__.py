"""The loop from the event log to the event store, persons and delivery."""

from hoglab.ingestion.loop import Dispatcher, Ingestion, IngestionLimits, Transformer
from hoglab.ingestion.normalise import Event
from hoglab.ingestion.quarantine import Quarantine
from hoglab.storage.event_store.ingested import IngestedEvent

__all__ = [
    "Dispatcher",
    "Event",
    "IngestedEvent",
    "Ingestion",
    "IngestionLimits",
    "Quarantine",
    "Transformer",
]
