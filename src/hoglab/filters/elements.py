"""The chain of page elements that an autocaptured click carries, and CSS selectors over it.

A chain is text: elements joined by ``;``, the clicked one first, each written
``tag.class.class:key="value"key="value"`` with attributes sorted by key and
quotes inside values escaped (spec: hog-runtime 2.7).

Selectors are turned into one RE2 pattern over the chain text: the chain is a regular language and so is
"some element matches, its parent matches, ...", so a linear-time search answers exactly what a backtracking
matcher over parsed elements would, and the compiled filter needs no function that other machines lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations

from hoglab.filters.model import FilterError
from hoglab.patterns import searched

MAX_SELECTOR_LENGTH = 1_000
"""Maximum number of characters in one selector."""

MAX_SELECTOR_PARTS = 8
"""Maximum number of elements in one selector."""

MAX_UNORDERED_CLASSES = 3
"""Maximum number of classes of one part that may stand in any order in the chain; more must be sorted."""

HREF, TEXT, ID = (rf'(?::|"){name}="([^"\n]*)"' for name in ("href", "text", "attr_id"))
"""Patterns whose group is a value in a chain (spec: hog-runtime 1.2)."""

_HREF, _TEXT, _ID = map(searched, (HREF, TEXT, ID))
_TAG = searched(r"(?:^|;)(a|button|form|input|select|textarea|label)(?=\.|:|$)")


def chain_href(chain: str) -> str:
    """Return the first link address of a chain, ``""`` when it has none (spec: hog-runtime 1.2)."""
    match = _HREF.search(chain)
    return match[1] if match else ""


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


_NAME_ENDS = frozenset(".#[]:>\"'")
"""Characters that end the name of a class or an id, besides blanks, unless they are escaped."""

_KEY_ENDS = frozenset("=]~|^$*")
"""Characters that no name of an attribute has: operators other than ``=`` are not known."""

_NTH = ("nth-child", "nth-of-type")


def parse_selector(selector: str) -> tuple[SelectorPart, ...]:
    """Return the parts of a CSS selector, the target first and outer elements after it.

    One pass over the text. Raises `FilterError` for text outside the grammar of spec hog-runtime 2.7 (tags, ``*``,
    classes, ids, exact attributes, ``:nth-child(n)``, ``>`` and blanks), for more than `MAX_SELECTOR_LENGTH`
    characters and for more than `MAX_SELECTOR_PARTS` elements.
    """
    if len(selector) > MAX_SELECTOR_LENGTH:
        raise FilterError(f"Selectors may have at most {MAX_SELECTOR_LENGTH} characters", "")
    try:
        parts = _parse_parts(selector.replace("> *", ""))
    except _SelectorError:
        raise FilterError(f"Invalid selector: {selector}", "") from None
    if len(parts) > MAX_SELECTOR_PARTS:
        raise FilterError(f"Selectors may name at most {MAX_SELECTOR_PARTS} elements", "")
    return tuple(reversed(parts))


class _SelectorError(Exception):
    """A text is outside the grammar of selectors."""


def _parse_parts(text: str) -> list[SelectorPart]:
    """Return the parts of a selector in the order of the text. Raises `_SelectorError`."""
    parts: list[SelectorPart] = []
    child_of_previous = False
    for word in _words(text):
        if word != ">":
            parts.append(_parse_part(word, child_of_previous))
            child_of_previous = False
        elif parts and not child_of_previous:
            child_of_previous = True
        else:
            raise _SelectorError
    if not parts or child_of_previous:
        raise _SelectorError
    return parts


def _words(text: str) -> Iterator[str]:
    """Yield the parts of a selector as texts, and each ``>`` between them."""
    start = 0
    while start < len(text):
        if text[start].isspace():
            start += 1
            continue
        end = start
        while end < len(text) and text[end] != ">" and not text[end].isspace():
            end = _bracket_end(text, end) if text[end] == "[" else end + (2 if text[end] == "\\" else 1)
        end = max(end, start + 1)
        yield text[start:end]
        start = end


def _bracket_end(text: str, start: int) -> int:
    """Return the place behind the ``]`` of a bracket; one inside of a quoted value does not count."""
    quotes = [at for quote in ('"', "'") if (at := text.find(quote, start)) >= 0]
    end = text.find("]", start)
    if quotes and min(quotes) < end:
        opened = min(quotes)
        closed = text.find(text[opened], opened + 1)
        behind = text.find("]", closed) if closed >= 0 else -1
        end = behind if behind >= 0 else end
    if end < 0:
        raise _SelectorError
    return end + 1


def _parse_part(word: str, parent_follows: bool) -> SelectorPart:
    tag: str | None = None
    classes: set[str] = set()
    attributes: dict[str, str] = {}
    at = 0
    if word[0] == "*":
        at = 1
    elif word[0].isascii() and word[0].isalpha():
        at = next((i for i, c in enumerate(word) if not (c.isalnum() or c in "_-")), len(word))
        tag = word[:at].lower()
    while at < len(word):
        match word[at]:
            case ".":
                name, at = _class_name(word, at + 1)
                classes.add(name)
            case "#":
                attributes["attr_id"], at = _name(word, at + 1)
            case "[":
                end = _bracket_end(word, at)
                key, value = _attribute(word[at + 1 : end - 1])
                attributes[_chain_key(key)] = value
                at = end
            case ":":
                key, value, at = _nth(word, at + 1)
                attributes[key] = value
            case _:
                raise _SelectorError
    return SelectorPart(tag, tuple(sorted(classes)), tuple(sorted(attributes.items())), parent_follows)


def _name(word: str, at: int) -> tuple[str, int]:
    """Return a name without its escapes, and the place behind it."""
    characters: list[str] = []
    while at < len(word) and word[at] not in _NAME_ENDS:
        at += word[at] == "\\"
        characters.append(word[at : at + 1])
        at += 1
    if not characters or not characters[-1]:
        raise _SelectorError
    return "".join(characters), at


def _class_name(word: str, at: int) -> tuple[str, int]:
    """Return the name of a class and the place behind it; ``.md:flex`` is one class, as style sheets' tools name it."""
    name, at = _name(word, at)
    while word.startswith(":", at) and not word.startswith(":nth-", at):
        more, at = _name(word, at + 1)
        name = f"{name}:{more}"
    return name, at


def _attribute(inside: str) -> tuple[str, str]:
    """Return name and value of ``name=value``; the value may be quoted, and blanks around both do not count."""
    key, equals, value = (part.strip() for part in inside.partition("="))
    if not key or not equals or any(c.isspace() or c in _KEY_ENDS for c in key):
        raise _SelectorError
    if value[:1] in {'"', "'"} and value:
        quote, value, ending = value[0], value[1:-1], value[1:][-1:]
        if ending != quote or quote in value:
            raise _SelectorError
    elif any(c in "]\"'" for c in value):
        raise _SelectorError
    return key, value


def _nth(word: str, at: int) -> tuple[str, str, int]:
    """Return the attribute of ``nth-child(n)`` or ``nth-of-type(n)``, the number's digits and the place behind."""
    end = word.find(")", at)
    name, _, digits = word[at:end].partition("(")
    if end < 0 or name not in _NTH or not digits.isdecimal():
        raise _SelectorError
    return name, digits, end + 1


def _chain_key(key: str) -> str:
    """Return the name of an attribute in the chain: some have a name of their own, the rest are prefixed."""
    if key == "id":
        return "attr_id"
    return key if key in {"href", "text", *_NTH} else f"attr__{key}"


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
