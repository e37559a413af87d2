"""Identity of a function's mappings while they are edited.

Runs wait with the id of their mapping; clients send mappings without ids. A mapping of the same name is the same.
Mappings without a name are matched in this order: by the same filters and inputs in any place, by the same filters
where only one has them, and by the same place as long as there are as many mappings as before. Last, a mapping with
the only copy of some filters and inputs is the same under another name. All others are new: the runs of a mapping
that nothing replaces end, rather than continue with another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from hoglab.functions.configuration.filtering import arrange_filters, bare_filters
from hoglab.functions.configuration.model import MappingConfiguration, mapping_labels

if TYPE_CHECKING:
    from hoglab.functions.configuration.schemas import Mapping as MappingBody


@dataclass(frozen=True, slots=True)
class _MappingSignature:
    """The features by which a mapping is recognised.

    ``label`` is None without a name; ``filters`` and ``values`` are JSON.
    """

    place: int
    label: str | None
    filters: bytes
    values: bytes


def counterparts(
    sent: Sequence[MappingBody], stored: Sequence[MappingConfiguration], kind: str | None
) -> list[MappingConfiguration | None]:
    """Return for each sent mapping the stored one that it is; None for new ones. ``kind`` is the function's type."""
    old = _signatures(
        [mapping.name for mapping in stored],
        [None if mapping.filters is None else bare_filters(mapping.filters) for mapping in stored],
        [{key: item.get("value") for key, item in mapping.inputs.plain.items()} for mapping in stored],
    )
    new = _signatures(
        [mapping.name for mapping in sent],
        [None if mapping.filters is None else arrange_filters(mapping.filters, kind) for mapping in sent],
        [_plain_values(mapping) for mapping in sent],
    )
    paired: dict[int, int] = {}

    def pair(
        key: Callable[[_MappingSignature], Hashable], *, named: bool = False, alone: bool = False
    ) -> None:
        """Pair the remaining mappings that have the same key; without ``named``, only those without a name.

        With ``alone``, only where there is one of each.
        """
        others = _by_key(
            key, [signature for signature in old if named or signature.label is None], set(paired.values())
        )
        for same, places in _by_key(
            key, [signature for signature in new if named or signature.label is None], paired
        ).items():
            there = others.get(same, [])
            if not alone or len(places) == len(there) == 1:
                paired.update(zip(places, there, strict=False))

    pair(lambda signature: signature.label, named=True)
    pair(lambda signature: (signature.filters, signature.values))
    pair(lambda signature: signature.filters, alone=True)
    if len(sent) == len(stored):
        pair(lambda signature: signature.place)
    pair(lambda signature: (signature.filters, signature.values), named=True, alone=True)
    return [stored[paired[place]] if place in paired else None for place in range(len(sent))]


def _signatures(
    names: Sequence[str | None],
    filters: Sequence[Mapping[str, Any] | None],
    values: Sequence[Mapping[str, Any]],
) -> list[_MappingSignature]:
    labels = mapping_labels(names)
    return [
        _MappingSignature(
            place, labels[place] if names[place] else None, _json(filters[place]), _json(values[place])
        )
        for place in range(len(names))
    ]


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _by_key(
    key: Callable[[_MappingSignature], Hashable],
    signatures: Sequence[_MappingSignature],
    paired: Collection[int],
) -> dict[Hashable, list[int]]:
    """Return by key the places of the mappings that are not paired, in their order."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for signature in signatures:
        if signature.place not in paired and key(signature) is not None:
            groups[key(signature)].append(signature.place)
    return groups


def _plain_values(sent: MappingBody) -> dict[str, Any]:
    secret = {entry.key for entry in sent.inputs_schema or () if entry.secret}
    return {key: item.value for key, item in (sent.inputs or {}).items() if item and key not in secret}
