"""The steps of an action as a Hog expression (spec: hog-runtime 2.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hoglab.filters.hog.conditions import Condition, Leaf, both, is_set, plain, same_text
from hoglab.filters.hog.operators import Operand, condition
from hoglab.filters.hog.properties import PropertyBuilder, selector_condition, tag_condition
from hoglab.filters.hog.tree import call, compare, const, field, lambda_
from hoglab.filters.model import FilterError
from hoglab.hog.values import like

if TYPE_CHECKING:
    from hoglab.hog.nodes import Expr

AUTOCAPTURE = "$autocapture"


def step_conditions(
    step: Mapping[str, Any], path: str, builder: PropertyBuilder
) -> tuple[str | None, list[Condition]]:
    """Return conditions of one step: the name of the event (None: any) and the others.

    Raises `FilterError` for what cannot be evaluated.
    """
    event = _text(step, "event", path)
    conditions: list[Condition] = []
    if event == AUTOCAPTURE:
        conditions += _element_conditions(step, path)
    url = _text(step, "url", path)
    if url:
        conditions.append(_url(url, _text(step, "url_matching", path), path))
    conditions += builder.conditions(step.get("properties"), f"{path}.properties")
    return event or None, conditions


def _element_conditions(step: Mapping[str, Any], path: str) -> list[Leaf]:
    conditions: list[Leaf] = []
    if selector := _text(step, "selector", path):
        conditions.append(selector_condition(selector, f"{path}.selector"))
    if tag := _text(step, "tag_name", path):
        conditions.append(tag_condition(tag, f"{path}.tag_name"))
    if href := _text(step, "href", path):
        way = _text(step, "href_matching", path)
        conditions.append(_matching(field("elements_chain_href"), href, way, f"{path}.href"))
    if text := _text(step, "text", path):
        way = _text(step, "text_matching", path)
        body = _matching(field("one"), text, way, f"{path}.text").node
        conditions.append(plain(call("arrayExists", lambda_("one", body), field("elements_chain_texts"))))
    return conditions


def _matching(place: Expr, value: str, way: str | None, path: str) -> Leaf:
    """Return a link address or a text: a pattern, a part whatever the case, or the whole."""
    if way == "regex":
        return _regex(place, value, path)
    if way == "contains":
        return condition(place, "icontains", Operand(value, path))
    return same_text(place, value)


def _url(value: str, way: str | None, path: str) -> Leaf:
    place = field("properties", "$current_url")
    if way == "regex":
        return _regex(place, value, f"{path}.url")
    if way == "exact":
        return condition(place, "exact", Operand(value, f"{path}.url"))
    pattern = f"%{value}%"
    is_like = plain(compare("like", place, const(pattern)))
    return both([is_set(place), is_like]) if like("null", pattern) else is_like


def _regex(place: Expr, pattern: str, path: str) -> Leaf:
    condition(place, "regex", Operand(pattern, path))  # refuses what is no pattern
    return plain(compare("=~", place, const(pattern)))


def _text(step: Mapping[str, Any], name: str, path: str) -> str | None:
    value = step.get(name)
    if value is not None and not isinstance(value, str):
        raise FilterError("must be a string", f"{path}.{name}")
    return value


def steps_of(
    actions: Mapping[int, Sequence[Mapping[str, Any]]], identifier: object, path: str
) -> Sequence[Mapping[str, Any]]:
    """Return the steps of an action. Raises `FilterError` when there is no such action."""
    text = str(identifier)
    if not isinstance(identifier, bool) and text.isascii() and text.isdigit() and int(text) in actions:
        return actions[int(text)]
    raise FilterError(f"Action {text} does not exist", path)
