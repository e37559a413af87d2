"""Writing the chain of page elements that an autocaptured event carries as a list (spec: hog-runtime 2.7)."""

from __future__ import annotations

from typing import Any

MAX_TEXT_CHARS = 400
MAX_HREF_CHARS = 2048


def take_elements_chain(properties: dict[str, Any]) -> str:
    """Return the chain of an event, which leaves its properties; empty when it has none."""
    chain = properties.pop("$elements_chain", None)
    elements = properties.pop("$elements", None)
    if isinstance(chain, str) and chain:
        return chain
    return chain_of(elements) if isinstance(elements, list) else ""


def chain_of(elements: list[Any]) -> str:
    """Return the chain of elements as browsers describe them, innermost first. What is no object is skipped."""
    return ";".join(_element(element) for element in elements if isinstance(element, dict))


def _element(element: dict[str, Any]) -> str:
    tag = element.get("tag_name")
    classes = element.get("attr__class") or element.get("attr_class") or ()
    names = classes.split() if isinstance(classes, str) else classes
    head = _bare(tag if isinstance(tag, str) else "")
    if isinstance(names, (list, tuple)):
        head += "".join(f".{_bare(name)}" for name in sorted(filter(_is_name, names)))
    attributes = {name: element[name] for name in element if name.startswith("attr__")}
    attributes["nth-child"] = element.get("nth_child", 0)
    attributes["nth-of-type"] = element.get("nth_of_type", 0)
    text = element.get("$el_text") or element.get("text")
    if text:
        attributes["text"] = _text(text)[:MAX_TEXT_CHARS]
    href = element.get("attr__href") or element.get("href")
    if href:
        attributes["href"] = _text(href)[:MAX_HREF_CHARS]
    identity = element.get("attr__id") or element.get("attr_id")
    if identity:
        attributes["attr_id"] = identity
    pairs = (f'{name.replace(chr(34), "")}="{_quoted(attributes[name])}"' for name in sorted(attributes))
    return f"{head}:{''.join(pairs)}"


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _bare(name: str) -> str:
    return name.replace('"', "").replace(";", "").replace(":", "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _quoted(value: Any) -> str:
    return _text(value).replace('"', '\\"')
