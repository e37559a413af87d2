"""Chains of page elements read and searched plainly: what the patterns that filters run are compared with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hoglab.filters.elements import SelectorPart


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a chain."""

    tag: str
    classes: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]

    def attribute(self, key: str) -> str | None:
        for name, value in self.attributes:
            if name == key:
                return value
        return None


_ELEMENT = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*")+', re.DOTALL)
_ATTRIBUTES_START = re.compile(r':(?=[A-Za-z0-9_-]*=")')
_ATTRIBUTE = re.compile(r'([^=";]*)="((?:[^"\\]|\\.)*)"', re.DOTALL)


def parse_chain(chain: str) -> list[Element]:
    """The elements of a chain, the clicked one first; text that is no element is passed over."""
    elements = []
    for part in _ELEMENT.findall(chain):
        start = _ATTRIBUTES_START.search(part)
        head, attributes = (part[: start.start()], part[start.end() :]) if start else (part, "")
        tag, *classes = head.split(".")
        pairs = tuple((key, value.replace('\\"', '"')) for key, value in _ATTRIBUTE.findall(attributes))
        elements.append(Element(tag, tuple(name for name in classes if name), pairs))
    return elements


def part_matches(part: SelectorPart, element: Element) -> bool:
    """Whether one element is what a part of a selector asks for."""
    return (
        (part.tag is None or element.tag == part.tag)
        and all(name in element.classes for name in part.classes)
        and all(element.attribute(key) == value for key, value in part.attributes)
    )


def chain_matches(parts: tuple[SelectorPart, ...], elements: list[Element]) -> bool:
    """Whether a selector matches parsed elements, by plain search."""

    def rest_matches(part: int, at: int) -> bool:
        if part == len(parts):
            return True
        if parts[part - 1].parent_follows:
            return (
                at < len(elements)
                and part_matches(parts[part], elements[at])
                and rest_matches(part + 1, at + 1)
            )
        return any(
            part_matches(parts[part], elements[i]) and rest_matches(part + 1, i + 1)
            for i in range(at, len(elements))
        )

    return any(
        part_matches(parts[0], element) and rest_matches(1, i + 1) for i, element in enumerate(elements)
    )
