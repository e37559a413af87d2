"""Removing values that become secret from the history: no version and no entry of the activity log shows them again.

An input may become secret after its value was stored and shown in the clear (spec: hog-functions-api 10). From then
on the value is not shown anywhere: earlier copies of it are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.functions.configuration.inputs import Inputs
from hoglab.functions.configuration.model import Configuration, mapping_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NewlySecret:
    """The inputs that a change makes secret: keys of the function's own inputs, and of mappings by their label."""

    own: frozenset[str]
    mappings: Mapping[str, frozenset[str]]

    @classmethod
    def between(cls, before: Configuration, after: Configuration) -> NewlySecret:
        """Return the inputs that are plain values before and secrets after."""
        old = {mapping.id: (label, mapping.inputs) for label, mapping in before.labelled_mappings()}
        newly_secret: dict[str, frozenset[str]] = {}
        for label, mapping in after.labelled_mappings():
            known, inputs = old.get(mapping.id, (label, Inputs()))
            if keys := _newly_secret(inputs, mapping.inputs):
                for name in {label, known}:
                    newly_secret[name] = newly_secret.get(name, frozenset()) | keys
        return cls(_newly_secret(before.inputs, after.inputs), newly_secret)

    def __bool__(self) -> bool:
        return bool(self.own or self.mappings)

    def removed_from_content(self, content: Mapping[str, Any]) -> Part:
        """Return the content of a version, or of a draft, without these inputs."""
        remove: Mapping[str, Callable[[Any], Any]] = {
            "inputs": self._removed_from_inputs,
            "mappings": self._removed_from_mappings,
        }
        return {name: remove[name](part) if name in remove else part for name, part in content.items()}

    def removed_from_change(self, change: Mapping[str, Any]) -> Part:
        """Return one change of an activity entry without these inputs."""
        remove: Callable[[Any], Any]
        match change["field"]:
            case "inputs":
                remove = self._removed_from_inputs
            case "mappings":
                remove = self._removed_from_mappings
            case _:
                return dict(change)
        return {**change, "before": remove(change["before"]), "after": remove(change["after"])}

    def _removed_from_inputs(self, inputs: Mapping[str, Any] | None) -> Part | None:
        return None if inputs is None else _without(inputs, self.own)

    def _removed_from_mappings(self, mappings: list[Part] | None) -> list[Part] | None:
        if mappings is None:
            return None
        labels = mapping_labels([mapping.get("name") for mapping in mappings])
        return [
            {**mapping, "inputs": _without(mapping["inputs"], self.mappings.get(label, ()))}
            if mapping.get("inputs")
            else mapping
            for mapping, label in zip(mappings, labels, strict=True)
        ]


def _newly_secret(before: Inputs, after: Inputs) -> frozenset[str]:
    return frozenset(before.plain.keys() & after.secret.keys())


def _without(items: Mapping[str, Any], keys: Iterable[str]) -> Part:
    return {key: item for key, item in items.items() if key not in set(keys)}
