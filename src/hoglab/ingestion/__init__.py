"""The loop from the event log to the event store, persons and delivery."""

from hoglab.ingestion.loop import Ingestion, IngestionLimits
from hoglab.ingestion.normalise import Event
from hoglab.ingestion.parking import Parking
from hoglab.ingestion.preparing import Transformer
from hoglab.ingestion.writing import Dispatcher
from hoglab.storage.event_store.ingested import IngestedEvent

__all__ = [
    "Dispatcher",
    "Event",
    "IngestedEvent",
    "Ingestion",
    "IngestionLimits",
    "Parking",
    "Transformer",
]
