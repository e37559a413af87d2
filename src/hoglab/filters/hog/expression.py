"""The stored filters of a hog function as one tree, from which they are run, explained and fused.

spec: hog-runtime 2.1-2.3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoglab.filters.hog.actions import step_conditions, steps_of
from hoglab.filters.hog.conditions import AllOf, Condition, Leaf, same_text
from hoglab.filters.hog.properties import FilterContext, PropertyBuilder, UnsupportedCohortError
from hoglab.filters.hog.tree import FALSE, all_of, any_of, field
from hoglab.filters.model import FilterError

if TYPE_CHECKING:
    from hoglab.hog.nodes import Expr

ACTIVITY_EVENT = "$activity_log_entry_created"
"""The one event whose property keys lead into nested objects."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One way in which an event may qualify: by its name (None: any name) and further conditions."""

    event: str | None
    conditions: tuple[Condition, ...] = ()
    never: bool = False

    @property
    def name(self) -> Leaf | None:
        """The condition on the event's name."""
        return None if self.event is None else same_text(field("event"), self.event)

    @property
    def node(self) -> Expr:
        if self.never:
            return FALSE
        named = [] if self.name is None else [self.name.node]
        inner = [] if not self.conditions else [AllOf(self.conditions).node]
        return all_of([*named, *inner])


@dataclass(frozen=True, slots=True)
class EventAlternative:
    """One item of ``events`` or ``actions``: any of its branches, and its own properties.

    ``path`` and ``title`` are where it is stored and what it names; ``of_steps``: its branches are an action's steps.
    """

    branches: tuple[Branch, ...]
    conditions: tuple[Condition, ...] = ()
    path: str = ""
    title: str = ""
    of_steps: bool = False

    @property
    def node(self) -> Expr:
        inner = [] if not self.conditions else [AllOf(self.conditions).node]
        only = self.branches[0] if len(self.branches) == 1 else None
        if only is not None and only.event is None and not only.conditions and not only.never:
            return all_of(inner)
        return all_of([any_of([branch.node for branch in self.branches]), *inner])


@dataclass(frozen=True, slots=True)
class FilterExpression:
    """Conditions that must all hold, and the entries of which one must (no entries: no further condition).

    ``events_only``: an event whose name no entry names is turned away without looking further, so that
    nothing can fail on it (spec: hog-runtime 2.3).
    """

    required: tuple[Condition, ...]
    entries: tuple[EventAlternative, ...]
    events_only: bool

    @property
    def node(self) -> Expr:
        entries = [] if not self.entries else [any_of([entry.node for entry in self.entries])]
        return all_of([*(condition.node for condition in self.required), *entries])

    @property
    def infallible(self) -> bool:
        """Whether no event can make it fail."""
        return all(condition.infallible for condition in self.all_conditions())

    def all_conditions(self) -> list[Condition]:
        conditions = list(self.required)
        for entry in self.entries:
            conditions += entry.conditions
            for branch in entry.branches:
                conditions += branch.conditions
        return conditions

    @property
    def event_names(self) -> frozenset[str] | None:
        """The names of the events that can match at all, None when any may."""
        names = [branch.event for entry in self.entries for branch in entry.branches if not branch.never]
        if not self.entries or None in names:
            return None
        return frozenset(name for name in names if name is not None)


def build_filter(filters: Mapping[str, Any] | None, context: FilterContext) -> FilterExpression:
    """Read the ``filters`` object of a function. Raises `FilterError`; its text is the ``bytecode_error``."""
    filters = filters or {}
    events = _items(filters, "events")
    actions = _items(filters, "actions")
    plain = PropertyBuilder(context)
    nested = PropertyBuilder(context, nested_keys=True)
    only_activity = bool(events) and not actions and all(_id(item) == ACTIVITY_EVENT for item in events)
    required = _test_accounts(context, plain) if filters.get("filter_test_accounts") is True else []
    required += (nested if only_activity else plain).conditions(filters.get("properties"), "properties")
    entries = [
        _event_entry(item, f"events[{index}]", nested if _id(item) == ACTIVITY_EVENT else plain)
        for index, item in enumerate(events)
    ]
    entries += [_action_entry(item, f"actions[{index}]", plain) for index, item in enumerate(actions)]
    return FilterExpression(tuple(required), tuple(entries), events_only=bool(events) and not actions)


def _items(filters: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    items = filters.get(name)
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise FilterError("must be a list of objects", name)
    return items


def _id(item: Mapping[str, Any]) -> object:
    return item.get("id")


def _test_accounts(context: FilterContext, builder: PropertyBuilder) -> list[Condition]:
    try:
        return builder.conditions(list(context.test_account_filters), "test_account_filters")
    except UnsupportedCohortError as error:
        raise FilterError(
            "Your internal/test user filters include cohorts that can't be used in real-time filters: "
            f"{'; '.join(error.reasons)}.",
            "",
        ) from None


def _event_entry(item: Mapping[str, Any], path: str, builder: PropertyBuilder) -> EventAlternative:
    name = _id(item)
    if name is not None and not isinstance(name, str):
        raise FilterError("must be a string or null", f"{path}.id")
    conditions = builder.conditions(item.get("properties"), f"{path}.properties")
    title = "all events" if name is None else json.dumps(name, ensure_ascii=False)
    return EventAlternative((Branch(name),), tuple(conditions), path, title)


def _action_entry(item: Mapping[str, Any], path: str, builder: PropertyBuilder) -> EventAlternative:
    conditions = builder.conditions(item.get("properties"), f"{path}.properties")
    if "id" not in item:
        return EventAlternative((Branch(None, never=True),), tuple(conditions), path)
    steps = steps_of(builder.context.actions, _id(item), path)
    branches = []
    for index, step in enumerate(steps):
        event, asked = step_conditions(step, f"action {_id(item)}: steps[{index}]", builder)
        branches.append(Branch(event, tuple(asked)))
    title = f"action {item.get('name') or _id(item)}"
    return EventAlternative(
        tuple(branches) or (Branch(None),), tuple(conditions), path, title, of_steps=bool(branches)
    )
