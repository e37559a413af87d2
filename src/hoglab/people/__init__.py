"""Persons, the distinct ids that name them, and groups."""

from hoglab.people.batch import IngestionWarning, Resolution
from hoglab.people.identity import derived_person_id
from hoglab.people.reading import PersonView
from hoglab.people.service import ALL_EVENTS, Applied, Attribution, LogStage, PersonService

__all__ = [
    "ALL_EVENTS",
    "Applied",
    "Attribution",
    "IngestionWarning",
    "LogStage",
    "PersonService",
    "PersonView",
    "Resolution",
    "derived_person_id",
]
