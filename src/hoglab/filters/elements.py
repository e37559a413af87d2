"""The chain of page elements that an autocaptured click carries, and CSS selectors over it.

A chain is text: elements joined by ``;``, the clicked one first, each written
``tag.class.class:key="value"key="value"`` with attributes sorted by key and
quotes inside values escaped (spec: hog-runtime 2.7).

Selectors are turned into one RE2 pattern over the chain text: the chain is a regular language and so is
"some element matches, its parent matches, ...", so a linear-time search answers exactly what a backtracking
matcher over parsed elements would, and the compiled filter needs no function that other machines lack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise, permutations

from hoglab.filters.model import FilterError

MAX_SELECTOR_PARTS = 8
"""Maximum number of elements in one selector."""

MAX_UNORDERED_CLASSES = 3
"""Up to so many classes of one part may stand in any order in the chain; more must be in sorted order."""

HREF, TEXT, ID = (rf'(?::|"){name}="(.*?)"' for name in ("href", "text", "attr_id"))
"""Patterns whose group is a value in a chain (spec: hog-runtime 1.2)."""

_HREF, _TEXT, _ID = map(re.compile, (HREF, TEXT, ID))
_TAG = re.compile(r"(?:^|;)(a|button|form|input|select|textarea|label)(?=\.|:|$)")


def chain_href(chain: str) -> str:
    """Return the first link address of a chain, ``""`` when it has none (spec: hog-runtime 1.2)."""
    found = _HREF.search(chain)
    return found[1] if found else ""


def chain_texts(chain: str) -> list[str]:
    """Return the distinct texts of a chain in order."""
    return list(dict.fromkeys(_TEXT.findall(chain)))


def chain_ids(chain: str) -> list[str]:
    """Return the distinct ids of a chain in order."""
    return list(dict.fromkeys(_ID.findall(chain)))


def chain_elements(chain: str) -> list[str]:
    """Return the distinct interactive tags (links, buttons, form fields) of a chain in order."""
    return list(dict.fromkeys(_TAG.findall(chain)))


@dataclass(frozen=True, slots=True)
class SelectorPart:
    """Conditions on one element: its tag (None: any), classes and attributes as the chain names them."""

    tag: str | None = None
    classes: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    parent_follows: bool = False
    """The next part must match the direct parent (``>``), not any ancestor."""


_SELECTOR_TOKEN = re.compile(r"""(?:\[[^\]"']*(?:"[^"]*"|'[^']*')?[^\]]*\]|[^\s\[>])+|>""")
_SIMPLE = re.compile(
    r"""(?P<tag>^(?:\*|[A-Za-z][\w-]*))
      | \.(?P<cls>(?:\\.|[^\s.\#\[\]:>"'])+(?::(?!nth-)(?:\\.|[^\s.\#\[\]:>"'])+)*)
      | \#(?P<id>(?:\\.|[^\s.\#\[\]:>"'])+)
      | \[\s*(?P<key>[^\s=\]~|^$*]+)\s*=\s*(?:"(?P<dq>[^"]*)"|'(?P<sq>[^']*)'|(?P<bare>[^\]"']*))\s*\]
      | :nth-(?P<nth>child|of-type)\(\s*(?P<n>\d+)\s*\)""",
    re.VERBOSE,
)


def parse_selector(selector: str) -> tuple[SelectorPart, ...]:
    """Return the parts of a CSS selector, the target first and outer elements after it.

    Raises `FilterError` for text outside the grammar of spec hog-runtime 2.7: tags, ``*``, classes, ids,
    exact attributes, ``:nth-child(n)``, ``>`` and blanks.
    """
    text = selector.replace("> *", "").strip()
    if _SELECTOR_TOKEN.sub("", text).strip():
        raise FilterError(f"Invalid selector: {selector}", "")
    tokens = _SELECTOR_TOKEN.findall(text)
    parts: list[SelectorPart] = []
    child_of_previous = False
    for word in tokens:
        if word == ">":
            if not parts or child_of_previous:
                raise FilterError(f"Invalid selector: {selector}", "")
            child_of_previous = True
            continue
        part = _parse_part(word, selector)
        parts.append(SelectorPart(part.tag, part.classes, part.attributes, parent_follows=child_of_previous))
        child_of_previous = False
    if not parts or child_of_previous:
        raise FilterError(f"Invalid selector: {selector}", "")
    if len(parts) > MAX_SELECTOR_PARTS:
        raise FilterError(f"Selectors may name at most {MAX_SELECTOR_PARTS} elements", "")
    return tuple(reversed(parts))


def _parse_part(token: str, selector: str) -> SelectorPart:
    tag: str | None = None
    classes: list[str] = []
    attributes: dict[str, str] = {}
    at = 0
    while at < len(token):
        match = _SIMPLE.match(token, at) if at == 0 else _match_inside(token, at)
        if match is None:
            raise FilterError(f"Invalid selector: {selector}", "")
        at = match.end()
        if match["tag"] is not None:
            tag = None if match["tag"] == "*" else match["tag"].lower()
        elif match["cls"] is not None:
            classes.append(_unescape(match["cls"]))
        elif match["id"] is not None:
            attributes["attr_id"] = _unescape(match["id"])
        elif match["key"] is not None:
            value = next(v for v in (match["dq"], match["sq"], match["bare"]) if v is not None)
            attributes[_chain_key(match["key"])] = value
        else:
            attributes[f"nth-{match['nth']}"] = match["n"]
    return SelectorPart(tag, tuple(sorted(set(classes))), tuple(sorted(attributes.items())))


def _match_inside(token: str, at: int) -> re.Match[str] | None:
    found = _SIMPLE.match(token, at)
    return None if found is None or found["tag"] is not None else found


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _chain_key(key: str) -> str:
    """Return the name of an attribute in the chain: some have a name of their own, the rest are prefixed."""
    if key == "id":
        return "attr_id"
    return key if key in {"href", "text", "nth-child", "nth-of-type"} else f"attr__{key}"


def only_id(parts: tuple[SelectorPart, ...]) -> str | None:
    """Return the id of a selector that is nothing but ``#id``; such a selector is a look-up in the list of ids."""
    if len(parts) == 1 and parts[0].tag is None and not parts[0].classes:
        attributes = parts[0].attributes
        if len(attributes) == 1 and attributes[0][0] == "attr_id":
            return attributes[0][1]
    return None


_VALUE = r'"(?:[^"\\]|\\.)*"'
_PAIRS = rf'(?:[^=";]*={_VALUE})*'
_ANY_ELEMENT = rf'(?:[^;"]|{_VALUE})+'
_ANY_CLASSES = r'(?:\.[^;".]*)*'


def selector_pattern(parts: tuple[SelectorPart, ...]) -> str:
    """Return an RE2 pattern that finds exactly the chains of which some elements match the selector.

    It relies on attributes being sorted by key, as the chain's grammar says.
    """
    pattern = [rf"(?s)^(?:{_ANY_ELEMENT};)*", _part_pattern(parts[0])]
    for part, outer in pairwise(parts):
        pattern.append(";" if part.parent_follows else rf";(?:{_ANY_ELEMENT};)*")
        pattern.append(_part_pattern(outer))
    pattern.append("(?:;|$)")
    return "".join(pattern)


def _part_pattern(part: SelectorPart) -> str:
    tag = r'[^;".:]*' if part.tag is None else _literal(part.tag)
    if not part.attributes:
        attributes = rf"(?::[A-Za-z0-9_-]*={_VALUE}{_PAIRS})?"
    else:
        wanted = (f"{_literal(key)}={_literal(_quoted(value))}" for key, value in part.attributes)
        attributes = f":{_PAIRS}" + _PAIRS.join(wanted) + _PAIRS
    return tag + _classes_pattern(part.classes) + attributes


def _classes_pattern(classes: tuple[str, ...]) -> str:
    if not classes:
        return _ANY_CLASSES
    orders = permutations(classes) if len(classes) <= MAX_UNORDERED_CLASSES else [classes]
    ways = [_ANY_CLASSES.join(rf"\.{_literal(name)}" for name in order) for order in orders]
    named = ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"
    return _ANY_CLASSES + named + _ANY_CLASSES


def _quoted(value: str) -> str:
    escaped = value.replace('"', '\\"')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    return "".join(c if c.isalnum() or c in "_-" or ord(c) > 127 else f"\\{c}" for c in text)


def tag_pattern(tag: str) -> str:
    """Return a pattern that finds the chains with an element of this tag (spec: hog-runtime 2.6)."""
    return rf"(^|;){_literal(tag)}(\.|;|:|$)"
