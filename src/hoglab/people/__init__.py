"""Persons, the distinct ids that name them, and groups."""

from hoglab.people.batch import IngestionWarning, Resolution
from hoglab.people.identity import derived_person_id
from hoglab.people.reading import PersonView
from hoglab.people.service import Applied, Attribution, PersonService

__all__ = [
    "Applied",
    "Attribution",
    "IngestionWarning",
    "PersonService",
    "PersonView",
    "Resolution",
    "derived_person_id",
]
