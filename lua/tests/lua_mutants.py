"""Every single-point mutant of the Lua scripts, made from their syntax trees.

A mutant is one file of the scripts with one place changed. The grammar of tree-sitter says where
each token begins and ends, operators and keywords too, so a change is one of bytes, and what is
not changed stays as it was written, comments and all.

Most changes are made wherever the grammar allows them. Which words may stand for each other is
stated here: `KINDS` for strings and names of fields, `LOOKALIKES` for variables.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import tree_sitter_lua
from tree_sitter import Language, Node, Parser

from checkpoint_lua.loader import ACTIONS, assemble, source
from checkpoint_model.vocabulary import ErrorCode, EvidenceType, Stage

_PARSER: Final = Parser(Language(tree_sitter_lua.language()))

FIELDS: Final = (
    *("stage", "gen", "holder", "claim_end", "state_end", "changed"),
    *("claim_ttl", "state_ttl", "retry", "abandoned", "evidence", "print"),
)
"""The fields of the record's hash."""
WORDS: Final = (
    *("acquired", "recovered", "reused"),
    *("transitioned", "observation_replayed", "abandoned", "reported"),
)
"""The outcomes that are no errors."""
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "stage": tuple(Stage),
    "evidence": ("", *EvidenceType),
    "outcome": (*WORDS, *ErrorCode),
    "field": FIELDS,
    "flag": ("0", "1"),
    "command": ("TIME", "HGET", "HMGET", "HSET", "DEL", "PEXPIREAT", "PERSIST"),
    "clock": ("shift", "at"),
}
"""The strings of which one may stand where another does."""
LOOKALIKES: Final = (
    ("VERIFIED_BY", "COMPENSATED_BY"),
    ("claim_ttl", "state_ttl"),
    ("now_ms", "store_ms"),
    ("claim_end_ms", "state_end_ms", "changed_ms"),
    ("observation", "body"),
    ("settled", "terminal", "retryable", "claim_active"),
    ("least", "most"),
)
"""The variables and members of which one may stand where another does."""
COMPARISONS: Final[Mapping[str, tuple[str, ...]]] = {
    "==": ("~=",),
    "~=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
}
ARITHMETIC: Final = {"+": "-", "-": "+", "*": "/", "/": "*"}
BOOLEAN: Final = {"and": "or", "or": "and"}
_STATEMENTS: Final = frozenset(
    {
        "assignment_statement",
        "variable_declaration",
        "function_call",
        "function_declaration",
        "if_statement",
        "return_statement",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LuaMutant:
    """The scripts with one place of one file changed."""

    file: str
    """Below the folder of the scripts."""
    line: int
    """The first that is changed, from 1."""
    operator: str
    """What kind of change it is."""
    number: int
    """Which of this kind on this line, from 1."""
    text: str
    """The file as it is then."""

    @property
    def id(self) -> str:
        """``file:line:operator``, and which of them where there are several."""
        more = f":{self.number}" if self.number > 1 else ""
        return f"{self.file}:{self.line}:{self.operator}{more}"

    @property
    def changes(self) -> list[tuple[list[str], list[str]]]:
        """The lines that differ: what stood there, and what stands there now."""
        old, new = source(self.file).splitlines(), self.text.splitlines()
        compared = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
        return [
            (old[a:b], new[c:d]) for what, a, b, c, d in compared.get_opcodes() if what != "equal"
        ]

    @property
    def diff(self) -> str:
        """What is changed, in one line."""
        return "; ".join(f"{_in_one(before)} → {_in_one(after)}" for before, after in self.changes)

    def scripts(self) -> dict[str, str]:
        """The assembled texts of the actions that are changed by it."""

        def read(path: str) -> str:
            return self.text if path == self.file else source(path)

        texts = {action: assemble(action, read) for action in ACTIONS}
        return {action: text for action, text in texts.items() if text != _right()[action]}


@cache
def _right() -> Mapping[str, str]:
    return {action: assemble(action, source) for action in ACTIONS}


def _in_one(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines) or "(nothing)"


def files() -> list[str]:
    """Every file of the scripts, in order."""
    folder = resources.files("checkpoint_lua.scripts")
    names = [f"{action}.lua" for action in ACTIONS]
    included = folder.joinpath("include").iterdir()
    return names + sorted(f"include/{path.name}" for path in included if path.name.endswith("lua"))


@cache
def all_mutants() -> tuple[LuaMutant, ...]:
    """Every mutant of every file; two ways to the same text are one mutant."""
    found: dict[tuple[str, str], LuaMutant] = {}
    for file in files():
        whole = source(file).encode()
        counted = Counter[tuple[int, str]]()
        for start, end, new, operator in _changes(tree(file)):
            text = (whole[:start] + new + whole[end:]).decode()
            if text == whole.decode() or (file, text) in found:
                continue
            line = whole.count(b"\n", 0, start) + 1
            counted[line, operator] += 1
            found[file, text] = LuaMutant(
                file=file,
                line=line,
                operator=operator,
                number=counted[line, operator],
                text=text,
            )
    return tuple(found.values())


def tree(file: str) -> Node:
    """The syntax tree of a file; raises ``ValueError`` where it is no Lua by itself."""
    root = _PARSER.parse(source(file).encode()).root_node
    if root.has_error:
        raise ValueError(f"{file} is not understood")
    return root


def nodes(node: Node) -> Iterator[Node]:
    """A node and everything below it, in the order of the text."""
    yield node
    for child in node.children:
        yield from nodes(child)


_Change = tuple[int, int, bytes, str]
"""From, to, what to put there, and the operator."""


def _changes(root: Node) -> Iterator[_Change]:
    for node in nodes(root):
        match node.type:
            case "binary_expression":
                yield from _of_operator(node)
            case "unary_expression":
                yield from _of_unary(node)
            case "if_statement" | "elseif_statement":
                yield from _of_condition(node)
            case "number":
                number = int(_text(node))
                yield _instead(node, f"{number + 1}", "constant")
                yield _instead(node, f"({number - 1})", "constant")
            case "string":
                yield from _of_string(node)
            case "true" | "false":
                yield _instead(node, "false" if node.type == "true" else "true", "boolean")
            case "identifier":
                yield from _of_name(node)
            case "arguments" | "expression_list" | "table_constructor":
                yield from _of_list(node)
            case "function_call":
                yield from _of_call(node)
            case _:
                pass
        if node.type in _STATEMENTS and node.parent is not None:
            yield from _of_statement(node, node.parent)


def _of_operator(node: Node) -> Iterator[_Change]:
    left, operator, right = node.children
    sign = operator.type
    for other in COMPARISONS.get(sign, ()):
        yield _instead(operator, other, "comparison")
    if sign in ARITHMETIC:
        yield _instead(operator, ARITHMETIC[sign], "arithmetic")
    if sign in BOOLEAN:
        yield _instead(operator, BOOLEAN[sign], "and-or")
    if sign not in COMPARISONS:
        yield _instead(node, _text(left), "operand-dropped")
        yield _instead(node, _text(right), "operand-dropped")
    if sign in ("-", "/", ".."):
        yield _instead(node, f"{_text(right)} {sign} {_text(left)}", "operands-swapped")


def _of_unary(node: Node) -> Iterator[_Change]:
    operator, operand = node.children
    if operator.type == "not":
        yield _instead(node, _text(operand), "not-dropped")


def _of_condition(node: Node) -> Iterator[_Change]:
    condition = node.child_by_field_name("condition")
    assert condition is not None
    yield _instead(condition, f"not ({_text(condition)})", "negated")
    yield _instead(condition, "true", "condition-true")
    yield _instead(condition, "false", "condition-false")
    for child in node.children:
        if child.type in ("elseif_statement", "else_statement"):
            yield _instead(child, "", f"{child.type.removesuffix('_statement')}-dropped")


def _of_string(node: Node) -> Iterator[_Change]:
    content = _text(node)[1:-1]
    kinds = [words for words in KINDS.values() if content in words]
    others: dict[str, None] = {}
    for words in kinds:
        at = words.index(content)
        others |= dict.fromkeys((words[(at + 1) % len(words)], words[at - 1]))
    if not kinds:
        others[""] = None
    for other in others:
        if other != content:
            yield _instead(node, f"'{other}'", "string")


def _of_name(node: Node) -> Iterator[_Change]:
    name, parent = _text(node), node.parent
    assert parent is not None
    if parent.type == "field" and node == parent.children[0]:
        # A key of the graph; those of the record are no words of the contract that stand for
        # each other, and are dropped as fields are.
        for words in (KINDS["stage"], KINDS["evidence"]):
            if name in words and parent.parent is not None and "true" in _text(parent.parent):
                at = words.index(name)
                for other in dict.fromkeys((words[(at + 1) % len(words)], words[at - 1])):
                    if other:
                        yield _instead(node, other, "key")
        return
    for alike in LOOKALIKES:
        if name in alike:
            for other in alike:
                if other != name:
                    yield _instead(node, other, "variable")


def _of_list(node: Node) -> Iterator[_Change]:
    """Elements dropped one by one, neighbours swapped, and the pairs of HSET dropped."""
    elements = [child for child in node.named_children if child.type != "comment"]
    for index, element in enumerate(elements):
        yield _without(element, element, "element-dropped")
        if index + 1 < len(elements):
            following = elements[index + 1]
            if element.type == "field" and element.child_by_field_name("name") is not None:
                continue  # by name they stand in any order
            between = _between(element, following)
            new = f"{_text(following)}{between}{_text(element)}"
            yield element.start_byte, following.end_byte, new.encode(), "elements-swapped"
    if elements and _text(elements[0]) == "'HSET'":
        for name, value in zip(elements[2::2], elements[3::2], strict=True):
            yield _without(name, value, "pair-dropped")


def _of_call(node: Node) -> Iterator[_Change]:
    called, arguments = node.child_by_field_name("name"), node.child_by_field_name("arguments")
    assert called is not None
    assert arguments is not None
    if _text(called) == "math.min":
        yield _instead(called, "math.max", "function")
    if _text(called) == "math.floor":
        yield _instead(called, "math.ceil", "function")
    is_value = node.parent is not None and node.parent.type not in ("block", "chunk")
    if is_value and _text(called) not in ("redis.call", "redis.error_reply"):
        for argument in arguments.named_children:
            yield _instead(node, _text(argument), "call-dropped")


def _of_statement(node: Node, parent: Node) -> Iterator[_Change]:
    if parent.type not in ("block", "chunk"):
        return
    yield _instead(node, "", "statement-deleted")
    following = node.next_named_sibling
    while following is not None and following.type == "comment":
        following = following.next_named_sibling
    if following is not None and following.type == node.type == "if_statement":
        new = f"{_text(following)}{_between(node, following)}{_text(node)}"
        yield node.start_byte, following.end_byte, new.encode(), "rows-swapped"


def _text(node: Node) -> str:
    assert node.text is not None
    return node.text.decode()


def _between(first: Node, second: Node) -> str:
    root = first
    while root.parent is not None:
        root = root.parent
    assert root.text is not None
    start = root.start_byte
    return root.text[first.end_byte - start : second.start_byte - start].decode()


def _instead(node: Node, new: str, operator: str) -> _Change:
    return node.start_byte, node.end_byte, new.encode(), operator


def _without(first: Node, last: Node, operator: str) -> _Change:
    """Without some elements of a list, and without a comma that they leave over."""
    after, before = last.next_sibling, first.prev_sibling
    if after is not None and after.type == ",":
        return first.start_byte, after.end_byte, b"", operator
    if before is not None and before.type == ",":
        return before.start_byte, last.end_byte, b"", operator
    return first.start_byte, last.end_byte, b"", operator
