"""HogQLX tags: `<Name attr='text' other={expr} flag>children</Name>` (spec: hog-language 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoglab.hog.nodes import Constant, Expr, HogQLXAttribute, HogQLXTag

if TYPE_CHECKING:
    from hoglab.hog.parser.lexer import Token
    from hoglab.hog.parser.literals import LiteralParser


def tag(p: LiteralParser) -> HogQLXTag:
    """Parse `<Name attr='text' other={expr} flag />` or a tag with children (spec: hog-language 2.3)."""
    p.enter()
    opening = p.advance()
    attributes: list[HogQLXAttribute] = []
    while p.token.kind == "attribute":
        attributes.append(_attribute(p))
    if p.accept("/>"):
        end = p.last_end
    else:
        p.expect("tag>", "at the end of the tag")
        children = _children(p, opening)
        end = p.last_end
        if children and any(attribute.name == "children" for attribute in attributes):
            message = "Can't have a HogQLX tag with both children and a 'children' attribute"
            raise p.error(message, opening, code="tag")
        if children:
            start = children[0].start
            attributes.append(HogQLXAttribute(start, children[-1].end, "children", tuple(children)))
    p.depth -= 1
    return HogQLXTag(opening.start, end, str(opening.value), tuple(attributes))


def _attribute(p: LiteralParser) -> HogQLXAttribute:
    p.count()
    name = p.advance()
    value: Expr = Constant(name.start, name.end, True)
    if p.accept("="):
        token = p.token
        if token.kind == "string":
            p.advance()
            value = Constant(token.start, token.end, token.value)
        elif p.accept("f'"):
            value = p.text_parts(token.start, "f-end")
        else:
            p.expect("{{", "or a string as the value of the attribute")
            value = p.bracketed_expression()
            p.expect("}}", "after the value of the attribute")
    return HogQLXAttribute(name.start, p.last_end, str(name.value), value)


def _children(p: LiteralParser, opening: Token) -> list[Expr]:
    children: list[Expr] = []
    while p.token.kind != "</":
        token = p.token
        p.count()
        if token.kind == "text":
            p.advance()
            children.append(Constant(token.start, token.end, token.value))
        elif token.kind == "tag":
            children.append(tag(p))
        else:
            p.expect("{{", "in the tag")
            children.append(p.bracketed_expression())
            p.expect("}}", "after the expression in the tag")
    if p.token.value != opening.value:
        raise p.error(
            f"Opening and closing HogQLX tags must match. Got {opening.value} and {p.token.value}",
            code="tag",
        )
    p.advance()
    return children
