"""The flags of one project in memory, ready for requests (spec: sdk-wire 3.9-3.11)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from hoglab.filters.evaluate import EvaluationContext
from hoglab.flags.matching.checks import CheckCompiler
from hoglab.flags.matching.definition import CompiledFlag, FlagSource
from hoglab.flags.matching.rules import OrderedFlag, order_stages
from hoglab.people.cohorts.definition import Cohort

MAX_SELECTIONS = 512
"""Maximum number of selections of flags (by runtime, contexts, keys) that are remembered for a project."""

SURVEY_PREFIX = "survey-targeting-"

Runtime = str
"""``client``, ``server`` or ``unknown``: where a request comes from; `ANY_RUNTIME` selects the flags of all."""
ANY_RUNTIME = "any"


class FlagSelection(msgspec.Struct, frozen=True):
    """Selection of flags that a request asks for (spec: sdk-wire 3.11)."""

    runtime: Runtime = "unknown"
    contexts: frozenset[str] | None = None
    """The contexts that the request lists; None when it lists none."""
    keys: frozenset[str] | None = None
    surveys_only: bool = False

    def includes(self, flag: CompiledFlag) -> bool:
        return (
            flag.active
            and (not self.surveys_only or flag.key.startswith(SURVEY_PREFIX))
            and (self.runtime == ANY_RUNTIME or flag.runtime in {"all", self.runtime})
            and (self.contexts is None or not flag.contexts or not self.contexts.isdisjoint(flag.contexts))
            and (self.keys is None or flag.key in self.keys)
        )


@dataclass(frozen=True, slots=True)
class ProjectData:
    """Data of a snapshot: the flags that are not deleted, in order, and what they refer to."""

    sources: Sequence[FlagSource]
    cohorts: Mapping[int, Cohort] = field(default_factory=dict)
    group_names: Mapping[int, str] = field(default_factory=dict)
    context: EvaluationContext = field(default_factory=EvaluationContext)


class ProjectFlags:
    """Compiled flags of one project. Immutable but for caches; a change makes a new object.

    Flags that did not change are taken over from ``previous`` when what they refer to did not change either.
    """

    def __init__(self, data: ProjectData, previous: ProjectFlags | None = None) -> None:
        self.data = data
        self.group_names = data.group_names
        self._by_key = {source.key: source.id for source in data.sources}
        self._keys = frozenset(self._by_key)
        self._ids = frozenset(source.id for source in data.sources)
        compiler = CheckCompiler(data.context, data.cohorts, self.resolve)
        if previous is not None and not previous.compiles_like(data):
            previous = None
        self.flags: dict[int, CompiledFlag] = {}
        for source in data.sources:
            known = previous.reuse(source, self) if previous is not None else None
            self.flags[source.id] = known or CompiledFlag(source, compiler)
        self.dependencies: dict[int, frozenset[int | None]] = {
            flag.id: frozenset(map(self.resolve, flag.depends_on)) if flag.active else frozenset()
            for flag in self.flags.values()
        }
        self._order, self._unresolvable = order_stages(self.flags, self.dependencies)
        self.has_runtime_rules = any(flag.runtime != "all" for flag in self.flags.values())
        self.has_active_flags = any(flag.active for flag in self.flags.values())
        self.continuity_keys = tuple(
            flag.key for flag in self.flags.values() if flag.active and flag.continuity
        )
        self._contexts = frozenset[str]().union(*(flag.contexts for flag in self.flags.values()))
        self._selections: dict[FlagSelection, tuple[OrderedFlag, ...]] = {}
        self._sources: dict[int, FlagSource] | None = None

    def resolve(self, key: str) -> int | None:
        """Return the flag that a dependency names by its id (or, leniently, its key); None for a missing flag."""
        if key.isascii() and key.isdigit() and len(key) < 19 and int(key) in self._ids:
            return int(key)
        return self._by_key.get(key)

    def with_source(self, source: FlagSource) -> ProjectFlags:
        """Return these flags with one added, or in the place of the one with its id."""
        others = [other for other in self.data.sources if other.id != source.id and other.key != source.key]
        return ProjectFlags(replace(self.data, sources=[*others, source]), self)

    def stages_of(self, flag_id: int) -> tuple[OrderedFlag, ...]:
        """Return one flag after everything that it depends on, to be evaluated; also one that is off."""
        chosen = self._with_dependencies({flag_id})
        return self._stages({flag_id}, *chosen)

    def compiles_like(self, data: ProjectData) -> bool:
        """Return whether a flag means the same with other data, as far as cohorts and clock go."""
        return self.data.cohorts == data.cohorts and self.data.context == data.context

    def reuse(self, source: FlagSource, successor: ProjectFlags) -> CompiledFlag | None:
        """Return the compiled flag of ``source`` when compiling it again would give the same."""
        flag = self.flags.get(source.id)
        if flag is None or self._source(source.id) != source:
            return None
        if any(self.resolve(key) != successor.resolve(key) for key in flag.depends_on):
            return None
        return flag

    def _source(self, flag_id: int) -> FlagSource:
        if self._sources is None:
            self._sources = {source.id: source for source in self.data.sources}
        return self._sources[flag_id]

    def dependency_chain(self, flag_id: int) -> list[int]:
        """Return a flag after everything that it depends on; empty when that cannot be put in order."""
        if flag_id in self._unresolvable:
            return []
        chosen: set[int] = set()
        open_ids = [flag_id]
        while open_ids:
            current = open_ids.pop()
            if current not in chosen:
                chosen.add(current)
                open_ids.extend(other for other in self.dependencies[current] if other is not None)
        return [other for other in self._order if other in chosen]

    def selection(self, choice: FlagSelection) -> tuple[OrderedFlag, ...]:
        """Return the selected flags with those they depend on, in an order in which they can be evaluated.

        Selections are remembered, because clients repeat them.
        """
        if choice.keys is not None or choice.contexts is not None:
            # Only names that exist are kept, so that what is remembered cannot grow with what clients send.
            choice = msgspec.structs.replace(
                choice,
                keys=None if choice.keys is None else choice.keys & self._keys,
                contexts=None if choice.contexts is None else choice.contexts & self._contexts,
            )
        known = self._selections.get(choice)
        if known is None:
            known = self._select(choice)
            if len(self._selections) >= MAX_SELECTIONS:
                self._selections.clear()
            self._selections[choice] = known
        return known

    def _select(self, choice: FlagSelection) -> tuple[OrderedFlag, ...]:
        shown = {flag.id for flag in self.flags.values() if choice.includes(flag)}
        return self._stages(shown, *self._with_dependencies(shown))

    def _with_dependencies(self, shown: Collection[int]) -> tuple[set[int], set[int]]:
        """Return ids of flags with those that they depend on, and the ids of the latter alone."""
        chosen: set[int] = set()
        wanted: set[int] = set()
        open_ids = list(shown)
        while open_ids:
            flag_id = open_ids.pop()
            if flag_id in chosen:
                continue
            chosen.add(flag_id)
            others = [other for other in self.dependencies[flag_id] if other is not None]
            wanted.update(others)
            open_ids.extend(others)
        return chosen, wanted

    def _stages(
        self, shown: Collection[int], chosen: Collection[int], wanted: Collection[int]
    ) -> tuple[OrderedFlag, ...]:
        return tuple(
            OrderedFlag.of(
                self.flags[flag_id],
                shown=flag_id in shown,
                wanted=flag_id in wanted,
                resolvable=flag_id not in self._unresolvable,
            )
            for flag_id in self._order
            if flag_id in chosen
        )
