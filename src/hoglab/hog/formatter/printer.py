"""From the concrete tree to a document: the house style.

Tokens are never changed, only the space between them; only commas before closing brackets and semicolons that end
nothing may be added or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hoglab.hog import nodes as n
from hoglab.hog.formatter.comments import gaps
from hoglab.hog.formatter.concrete import OPENING, Concrete, TokenSpan
from hoglab.hog.formatter.layout import (
    HARD,
    SOFT,
    SPACE,
    WIDTH,
    Doc,
    Indent,
    Inline,
    LayoutChoice,
    LineBreak,
    OwnLine,
    Trailing,
    WhenBroken,
    forced,
    group,
    joined,
    must_break,
    render,
)
from hoglab.hog.formatter.semicolons import superfluous_commas, superfluous_semicolons
from hoglab.hog.parser.precedence import AND, OR, TERNARY

Part = int | TokenSpan

_KEYWORD_STATEMENTS = (
    n.IfStatement,
    n.WhileStatement,
    n.ForStatement,
    n.ForInStatement,
    n.ReturnStatement,
    n.ThrowStatement,
)
_LOWERED = frozenset({"and", "or", "not", "in", "like", "ilike", "between", "is", "null", "else", "cohort"})
_TIGHT_BEFORE = frozenset({",", ";", ")", "]", ":", ".", "?.", "::"})
_CLAUSES = frozenset({"from", "prewhere", "where", "having", "qualify", "window", "limit", "settings"})
_JOIN_WORDS = frozenset(
    {
        "join",
        "left",
        "right",
        "full",
        "inner",
        "outer",
        "cross",
        "any",
        "all",
        "asof",
        "semi",
        "anti",
        "array",
    }
    | {"global", "positional"}
)
_SET_WORDS = frozenset({"union", "except", "intersect", "all", "distinct"})
_ENDLESS = 1_000_000  # columns, to see how wide something is
_TIGHT_AFTER = frozenset({"(", "[", ".", "?.", "::", "#"})


class Printer:
    """Printer of one concrete tree as documents."""

    def __init__(self, concrete: Concrete, *, keep_semicolons: bool = False) -> None:
        self.concrete = concrete
        self.source = concrete.source
        self.tokens = concrete.tokens
        self.dropped = superfluous_commas(concrete)
        if not keep_semicolons:
            self.dropped |= superfluous_semicolons(concrete)
        self.gaps = gaps(self.source, self.tokens, self.dropped)
        self.breaks = sorted(at for at, gap in self.gaps.items() if gap.breaks)
        self.remarks = sorted(at for at, gap in self.gaps.items() if gap.comments)
        self.after = self.followers()
        self.lowered = self.keywords(concrete.root)

    def program(self) -> Doc:
        """Return the whole text, ended by a line break."""
        eof = len(self.tokens) - 1
        root = self.concrete.root
        body = self.statements(root.parts())
        rest = self.before(eof)
        if rest and body:
            body = (*body, LineBreak(hard=True, blank=self.blank_before(eof)))
        return (*body, *rest, HARD) if body or rest else ""

    def template(self) -> Iterator[str]:
        """Yield the pieces of a template: its text, and its expressions on one line where their comments allow it."""
        at = 0
        for span in self.concrete.root.children:
            opening, close = self.tokens[span.start - 1], self.tokens[span.end]
            yield self.source[at : opening.end]
            held = self.source[opening.end : close.start]
            if "\n" not in held and not any(span.start <= at <= span.end for at in self.remarks):
                held = render(self.doc(span), width=_ENDLESS)
                held = f"{' ' * held.startswith('{')}{held}{' ' * held.endswith('}')}"
            yield held
            at = close.start
        yield self.source[at:]

    # --- tokens and comments

    def followers(self) -> dict[int, int]:
        """Return for each kept token the next kept one."""
        kept = [at for at in range(len(self.tokens)) if at not in self.dropped]
        return dict(pairwise(kept))

    def keywords(self, root: TokenSpan) -> set[int]:
        """Return the tokens that are keywords in their places, and so are written in lower case."""
        keywords: set[int] = set()
        stack = [root]
        while stack:
            span = stack.pop()
            stack.extend(span.children)
            tokens = [part for part in span.parts() if isinstance(part, int)]
            if span.kind == "infix":
                keywords.update(at for at in tokens if self.tokens[at].word in _LOWERED)
            elif isinstance(span.node, n.Not):
                keywords.update(tokens[:1])
            elif isinstance(span.node, _KEYWORD_STATEMENTS):
                keywords.update(tokens[:1])
                keywords.update(at for at in tokens if self.tokens[at].word in ("else", "in"))
            elif isinstance(span.node, n.Constant) and span.end == span.start + 1:
                keywords.update(at for at in tokens if self.tokens[at].word in ("true", "false"))
        return keywords

    def token(self, at: int) -> Doc:
        """Return a token with its comments: the ones on lines above it and the one at the end of its line."""
        if at in self.dropped:
            return ""
        return (*self.before(at), *self.bare(at))

    def bare(self, at: int) -> tuple[Doc, ...]:
        """Return a token and the comment at the end of its line."""
        token = self.tokens[at]
        text = self.source[token.start : token.end]
        if at in self.lowered or token.kind in ("reserved", "literal"):
            text = text.lower()
        gap = self.gaps.get(self.after.get(at, -1))
        if gap is None:
            return (text,)
        return (text, *(Trailing(comment.text) for comment in gap.comments if comment.place == "trailing"))

    def before(self, at: int) -> tuple[Doc, ...]:
        """Return the comments between the line of the token before and this token."""
        gap = self.gaps.get(at)
        if gap is None:
            return ()
        docs: list[Doc] = []
        comments = [comment for comment in gap.comments if comment.place != "trailing"]
        for index, comment in enumerate(comments):
            if comment.place == "inline":
                docs.append(Inline(comment.text))
            else:
                last = index + 1 == len(comments)
                after = last and gap.blank and self.tokens[at].kind not in (")", "]", "}", "eof")
                docs.append(OwnLine(comment.text, before=comment.blank and index > 0, after=after))
        return tuple(docs)

    def last_comments(self, close: int) -> tuple[tuple[Doc, ...], tuple[Doc, ...]]:
        """Return the comments before a closing bracket: those on its line, or a line break and all of them."""
        comments = self.before(close)
        if any(isinstance(comment, OwnLine) for comment in comments):
            return (), (HARD, *comments)
        return comments, ()

    def blank_before(self, at: int) -> bool:
        """Return whether an empty line stands before the token, or before the comments above it."""
        gap = self.gaps.get(at)
        if gap is None:
            return False
        for comment in gap.comments:
            if comment.place == "own":
                return comment.blank
        return gap.blank

    def commented(self, start: int, end: int) -> bool:
        """Return whether a comment inside the tokens `start`..`end` ends a line."""
        return any(start < at < end for at in self.breaks)

    def first(self, part: Part) -> int:
        return part if isinstance(part, int) else part.start

    def last(self, part: Part) -> int:
        at = part if isinstance(part, int) else part.end - 1
        while at in self.dropped:
            at -= 1
        return at

    # --- sequences

    def doc(self, part: Part, *, indent: bool = True) -> Doc:
        """Return the document of a token or construct."""
        if isinstance(part, int):
            return self.token(part)
        if part.kind == "statement":
            return self.statement(part)
        if part.kind == "operand":
            return self.operand(part)
        if part.kind == "lambda":
            return self.flow(part.parts())
        if part.kind == "query":
            return self.query(part)
        return self.chain(part.parts(), indent=indent)

    def flow(self, parts: Sequence[Part], *, indent: bool = True, after_comma: Doc = " ") -> Doc:
        """Return parts one after the other, with bracketed contents laid out as lists or blocks."""
        docs: list[Doc] = []
        before: Part | None = None
        at = 0
        while at < len(parts):
            part = parts[at]
            if isinstance(part, int) and part in self.dropped:
                at += 1
                continue
            if before is not None:
                docs.append(self.between(before, part, after_comma))
            if isinstance(part, int) and self.tokens[part].kind in OPENING:
                close = self.concrete.closing[part]
                stop = parts.index(close, at)
                docs.append(self.bracket(part, parts[at + 1 : stop], close))
                before, at = close, stop + 1
            else:
                docs.append(self.doc(part, indent=indent))
                before, at = part, at + 1
        return tuple(docs)

    def query(self, span: TokenSpan) -> Doc:
        """Return a `select`: each clause on its own line if they do not all fit on one."""
        clauses: list[list[Part]] = [[]]
        parts = span.parts()
        inside = -1  # up to this token, brackets are open
        for index, part in enumerate(parts):
            if index and self.first(part) > inside and self.begins_clause(parts, index):
                clauses.append([])
            if isinstance(part, int) and self.tokens[part].kind in OPENING:
                inside = max(inside, self.concrete.closing[part])
            clauses[-1].append(part)
        docs = [group(Indent(self.flow(clause, after_comma=SPACE))) for clause in clauses]
        return group(joined(SPACE, docs), broken=self.commented(span.start, span.end))

    def begins_clause(self, parts: Sequence[Part], index: int) -> bool:
        words = [self.word(part) for part in parts[index : index + 4]]
        if words[0] in ("group", "order"):
            return len(words) > 1 and words[1] == "by"
        if words[0] in _JOIN_WORDS and "join" in words and self.word(parts[index - 1]) not in _JOIN_WORDS:
            return all(word in _JOIN_WORDS for word in words[: words.index("join")])
        return words[0] in _CLAUSES

    def word(self, part: Part) -> str:
        return self.tokens[part].word if isinstance(part, int) else ""

    def between(self, before: Part, after: Part, after_comma: Doc) -> Doc:
        """Return the separator of two neighbours, which may be a line break."""
        if isinstance(before, int) and self.tokens[before].kind == ",":
            return after_comma
        queries = [isinstance(part, TokenSpan) and part.kind == "query" for part in (before, after)]
        if (queries[0] and isinstance(after, int)) or (queries[1] and self.word(before) in _SET_WORDS):
            return SPACE
        return self.space(before, after)

    def space(self, before: Part, after: Part) -> str:
        """Return the separator of two neighbours on one line."""
        left, right = self.tokens[self.last(before)], self.tokens[self.first(after)]
        if isinstance(before, int) and left.kind in ("-", "+"):
            return " " if right.kind == left.kind else ""
        if right.kind == "." and left.kind == "number" and right.start > left.end:
            return " "
        if isinstance(after, int) and right.kind in _TIGHT_BEFORE:
            return ""
        if isinstance(after, TokenSpan) and after.kind == "postfix":
            return ""
        if isinstance(after, int) and right.kind == "(" and isinstance(before, int):
            kind = self.concrete.lists.get(self.concrete.closing[after])
            return "" if kind in ("call", "parameters") and left.kind in ("name", "quoted") else " "
        if isinstance(after, int) and right.kind == "[" and isinstance(before, int):
            return ""  # array[...]
        if isinstance(before, int) and left.kind in _TIGHT_AFTER:
            return ""
        return "" if left.kind == "." or right.kind == "." else " "

    def chain(self, parts: Sequence[Part], *, indent: bool = True) -> Doc:
        """Return an expression: an operand with its suffixes, then operators of falling precedence."""
        end = len(parts)
        while end and isinstance(parts[end - 1], int) and self.tokens[self.first(parts[end - 1])].kind == ";":
            end -= 1
        if end < len(parts):
            before = self.chain(parts[:end], indent=indent) if end else ""
            return (before, *(self.doc(part) for part in parts[end:]))
        last = parts[-1]
        if not (isinstance(last, TokenSpan) and last.kind == "infix"):
            return self.flow(parts, indent=indent)
        start = len(parts) - 1
        while start and _is_infix(parts[start - 1], last.level):
            start -= 1
        head = self.chain(parts[:start])
        links = tuple(self.link(part) for part in parts[start:] if isinstance(part, TokenSpan))
        broken = self.commented(self.first(parts[0]), last.end)
        rest: Doc = Indent(links) if indent else links
        return group(head, rest, broken=broken)

    def link(self, span: TokenSpan) -> Doc:
        """Return an operator with its right side, which may stand on a line of its own."""
        if span.level == TERNARY:
            return self.ternary(span)
        documents: list[Doc] = []
        for index, part in enumerate(span.parts()):
            repeats = isinstance(part, int) and span.level in (AND, OR)
            documents.append(SPACE if not index or repeats else " ")
            documents.append(self.doc(part))
        return tuple(documents)

    def ternary(self, span: TokenSpan) -> Doc:
        """Return `? then : else`; a choice in the last place continues at the same depth."""
        question, then, colon, other = span.parts()
        documents: list[Doc] = [SPACE, self.doc(question), " ", self.doc(then), SPACE, self.doc(colon), " "]
        if isinstance(other, TokenSpan):
            inner = other.parts()
            last = inner[-1]
            if isinstance(last, TokenSpan) and _is_infix(last, TERNARY):
                return (*documents, self.chain(inner[:-1]), self.ternary(last))
        return (*documents, self.doc(other))

    def operand(self, span: TokenSpan) -> Doc:
        start = self.tokens[span.start]
        if start.kind in ("f'", "tag"):
            return self.verbatim(span)
        if start.kind == "name" and start.word == "case" and span.end > span.start + 1:
            return self.case(span)
        return self.flow(span.parts())

    def verbatim(self, span: TokenSpan) -> Doc:
        """Return text in which blanks have a meaning: f-strings and tags."""
        last = self.last(span)
        text = self.source[self.tokens[span.start].start : self.tokens[last].end]
        return (*self.before(span.start), text, *self.bare(last)[1:])

    def case(self, span: TokenSpan) -> Doc:
        parts = span.parts()
        branches: list[Doc] = []
        for part in parts[1:-1]:
            word = self.tokens[part].word if isinstance(part, int) else ""
            branches.append(SPACE if word in ("when", "else") else " ")
            branches.append(self.doc(part))
        broken = self.commented(span.start, span.end)
        return group(self.doc(parts[0]), Indent(tuple(branches)), SPACE, self.doc(parts[-1]), broken=broken)

    # --- brackets

    def bracket(self, opening: int, inside: Sequence[Part], close: int) -> Doc:
        kind = self.concrete.lists.get(close)
        if kind == "block":
            return self.block(opening, inside, close)
        if kind is not None:
            return self.listing(opening, inside, close, kind)
        holds = [part for part in inside if part not in self.dropped]
        inline, comments = self.last_comments(close)
        if not holds and not comments and not inline:
            return (self.token(opening), *self.bare(close))
        edge = SPACE if self.tokens[opening - 1].kind == "->" and holds else SOFT  # a lambda's body
        content: list[Doc] = [edge, self.flow(holds, indent=False)] if holds else []
        content += [*inline, *comments]
        broken = self.commented(opening, close + 1)
        return group(self.token(opening), Indent(tuple(content)), edge, *self.bare(close), broken=broken)

    def listing(self, opening: int, inside: Sequence[Part], close: int, kind: str) -> Doc:
        """Return the items of a list, separated by commas, on one line or each on its own."""
        items = self.items(inside)
        inline, comments = self.last_comments(close)
        if not items and not comments and not inline:
            return (self.token(opening), *self.bare(close))
        docs = [self.flow(item, indent=len(items) > 1 or kind == "dict") for item, _ in items]
        content: list[Doc] = []
        for (item, comma), doc in zip(items, docs, strict=True):
            blank = bool(content) and self.blank_before(self.first(item[0]))
            content += [LineBreak("", blank=blank) if not content else LineBreak(blank=blank), doc]
            content.append(WhenBroken(",") if comma is None else self.token(comma))
        if len(items) == 1 and kind == "tuple":
            content[-1] = self.token(self.last(items[0][0][-1]) + 1)
        tail = (*inline, *comments)
        broken = self.commented(opening, close + 1) or (kind == "dict" and self.opened_wide(opening, items))
        whole = group(self.token(opening), Indent((*content, *tail)), SOFT, *self.bare(close), broken=broken)
        if kind != "call":
            return whole
        return self.hugging(opening, items, docs, close, whole)

    def items(self, inside: Sequence[Part]) -> list[tuple[list[Part], int | None]]:
        """Return the parts of each item, and the comma behind it if it stays."""
        items: list[tuple[list[Part], int | None]] = []
        current: list[Part] = []
        for part in inside:
            if isinstance(part, int) and self.tokens[part].kind == ",":
                items.append((current, None if part in self.dropped else part))
                current = []
            else:
                current.append(part)
        if current:
            items.append((current, None))
        return items

    def opened_wide(self, opening: int, items: Sequence[object]) -> bool:
        """Return whether the author began a line behind the brace: such objects stay open."""
        gap = self.gaps.get(self.after[opening])
        return bool(items) and gap is not None and gap.newline

    def hugging(
        self,
        opening: int,
        items: Sequence[tuple[list[Part], int | None]],
        docs: Sequence[Doc],
        close: int,
        whole: Doc,
    ) -> Doc:
        """Return a call that opens its last argument (or a first one that is a function) beside its own bracket."""
        places = [len(items) - 1, 0] if len(items) > 1 else [0]
        for place in places:
            item = items[place][0]
            if place == 0 and len(items) > 1 and not self.is_function(item):
                continue
            if not self.is_open(item) or self.touched_by_comments(opening, item, close):
                continue
            others = [doc for index, doc in enumerate(docs) if index != place]
            if any(map(must_break, others)):
                continue
            if place < len(items) - 1 and len(render((*others,), width=_ENDLESS)) > WIDTH // 2:
                continue
            hugged = [forced(doc) if index == place else doc for index, doc in enumerate(docs)]
            flat = None if must_break(docs[place]) else (*self.ends(opening, joined(", ", docs), close),)
            return LayoutChoice(flat, self.ends(opening, joined(", ", hugged), close), forced(whole))
        return whole

    def ends(self, opening: int, content: tuple[Doc, ...], close: int) -> tuple[Doc, ...]:
        return (self.token(opening), *content, *self.bare(close))

    def touched_by_comments(self, opening: int, item: Sequence[Part], close: int) -> bool:
        """Return whether comments stand in the list, but not inside the item, so that the list needs its full form."""
        start, end = self.first(item[0]), self.last(item[-1])
        return any(opening < at <= close and not start < at <= end for at in self.remarks)

    def is_open(self, item: Sequence[Part]) -> bool:
        """Return whether an item ends in brackets that can stand open beside the brackets of the call."""
        last = self.tokens[self.last(item[-1])].kind
        if len(item) != 1 or not isinstance(item[0], TokenSpan) or last not in ("}", "]"):
            return False
        inner = item[0].children
        if len(inner) != 1 or inner[0].kind != "operand":
            return False
        return isinstance(inner[0].node, (n.Dict, n.Array)) or self.is_function(item)

    def is_function(self, item: Sequence[Part]) -> bool:
        """Return whether an item is a lambda whose body is a block."""
        span = item[0]
        node = span.node if isinstance(span, TokenSpan) else None
        return isinstance(node, n.Lambda) and isinstance(node.body, n.Block)

    # --- statements

    def block(self, opening: int, inside: Sequence[Part], close: int) -> Doc:
        body = self.statements(inside)
        inline, comments = self.last_comments(close)
        if not body and not comments and not inline:
            return (self.token(opening), *self.bare(close))
        content: list[Doc] = [HARD, *body] if body else []
        if comments and body and self.blank_before(close):
            comments = (LineBreak(hard=True, blank=True), *comments[1:])
        content += [*inline, *comments]
        return group(self.token(opening), Indent(tuple(content)), HARD, *self.bare(close), broken=True)

    def statements(self, parts: Sequence[Part]) -> tuple[Doc, ...]:
        """Return each statement on its own line, with at most one empty line between them."""
        documents: list[Doc] = []
        for parts_of_one in self.split(parts):
            if documents:
                documents.append(LineBreak(hard=True, blank=self.blank_before(self.first(parts_of_one[0]))))
            documents.append(self.whole_statement(parts_of_one))
        return tuple(documents)

    def split(self, parts: Sequence[Part]) -> list[list[Part]]:
        """Return the parts of each statement; a semicolon that stays ends the statement before it."""
        statements: list[list[Part]] = []
        loose = False
        for part in parts:
            if isinstance(part, int) and part in self.dropped:
                loose = False
            elif isinstance(part, TokenSpan) and part.kind == "statement":
                statements.append([part])
                loose = False
            elif isinstance(part, int) and self.tokens[part].kind == ";" and statements:
                statements[-1].append(part)
                loose = False
            elif loose:
                statements[-1].append(part)
            else:
                statements.append([part])
                loose = True
        return statements

    def whole_statement(self, parts: Sequence[Part]) -> Doc:
        """Return a statement, or the parts of one that begins a block (the parser sees it too early)."""
        if isinstance(parts[0], TokenSpan) and parts[0].kind == "statement":
            return self.flow(parts)
        return self.assignment(parts)

    def statement(self, span: TokenSpan) -> Doc:
        parts = span.parts()
        if isinstance(span.node, (n.IfStatement, n.WhileStatement, n.ForStatement, n.ForInStatement)):
            return self.governing(parts)
        if isinstance(span.node, (n.ExprStatement, n.VariableAssignment)):
            return self.assignment(parts)
        return self.flow(parts)

    def assignment(self, parts: Sequence[Part]) -> Doc:
        """Return `left := right`, or an expression alone."""
        for at, part in enumerate(parts):
            if isinstance(part, int) and self.tokens[part].kind == ":=":
                left = self.chain(parts[:at])
                return (left, " ", self.token(part), " ", self.flow(parts[at + 1 :]))
        return self.chain(parts)

    def governing(self, parts: Sequence[Part]) -> Doc:
        """Return `if`, `while` or `for` with its body, which is a block or a statement without braces."""
        docs: list[Doc] = []
        head: list[Part] = []
        previous: TokenSpan | None = None
        for part in parts:
            if not (isinstance(part, TokenSpan) and part.kind == "statement"):
                head.append(part)
                continue
            if previous is not None:
                docs.append(" " if isinstance(previous.node, n.Block) else HARD)
            docs.append(self.flow(head))
            docs.append(self.governed(part, after_else=previous is not None))
            head, previous = [], part
        rest = [part for part in head if part not in self.dropped]
        return (*docs, *(self.doc(part) for part in rest))

    def governed(self, span: TokenSpan, *, after_else: bool) -> Doc:
        doc = self.doc(span)
        if isinstance(span.node, n.Block) or (after_else and isinstance(span.node, n.IfStatement)):
            return (" ", doc)
        if isinstance(span.node, n.ExprStatement) and span.node.expr is None:
            return doc
        broken = any(at == span.start for at in self.breaks)
        return group(Indent((SPACE, doc)), broken=broken)


def _is_infix(part: Part, level: int) -> bool:
    return isinstance(part, TokenSpan) and part.kind == "infix" and part.level == level
