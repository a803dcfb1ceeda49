"""Reading a JSON-RPC message whose arguments no parser takes: what is kept of it, and how fast."""

import importlib.util
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import not_run

if importlib.util.find_spec("mcp") is None:
    not_run("the MCP binding", "the MCP SDK", "pip install 'workflow-checkpoint[mcp]'")

from checkpoint_reference_server import mcp_binding

TEXT = st.text(st.sampled_from('"\\[]{}:, a\n\u00e9\ud83d\u2028') | st.characters(), max_size=8)
SHALLOW = st.recursive(
    TEXT | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
"""JSON that is nested less deeply than anything is replaced."""


@given(SHALLOW, st.booleans())
def test_what_is_not_deep_is_left_as_it_is(value: Any, ascii_only: bool) -> None:
    """Character by character, whatever brackets and quotation marks its strings have."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert mcp_binding._without_the_deep(text) == text


@given(TEXT, st.integers(9, 400), st.sampled_from([("[", "]"), ('{"a":', "}")]), TEXT)
def test_what_is_deep_becomes_a_number(
    before: str, depth: int, brackets: tuple[str, str], after: str
) -> None:
    """And what stands beside it stays."""
    deep = brackets[0] * depth + json.dumps(before) + brackets[1] * depth
    text = f'{{"x":{json.dumps(before)},"deep":{deep},"y":{json.dumps(after)}}}'
    left = json.loads(mcp_binding._without_the_deep(text))
    assert (left["x"], left["y"]) == (before, after)
    for _ in range(7):  # the outermost object is the first of eight
        left["deep"] = left["deep"][0] if brackets[0] == "[" else left["deep"]["a"]
    assert left["deep"] == 0


@given(st.text(st.sampled_from('"\\[]{}a\n'), max_size=40))
def test_no_character_is_lost_or_met_twice(text: str) -> None:
    """The tokens are the text: so the time that it takes grows with its length alone."""
    assert "".join(mcp_binding._TOKENS.findall(text)) == text


@pytest.mark.parametrize("hostile", ['"', '\\"', '"\\', "[", '"[', "{", "\\"])
def test_a_string_that_never_ends_is_one_token(hostile: str) -> None:
    """However many quotation marks it has that might have ended it."""
    tokens = mcp_binding._TOKENS.findall('"' + '\\"' * 20_000 + hostile)
    assert tokens[0].startswith('"' + '\\"' * 20_000)


@given(st.binary(max_size=60) | TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_body_is_a_fault(body: bytes) -> None:
    """It is a message or a refusal."""
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":'
    for whole in (body, head + body, head + body + b"}}"):
        assert refused_with(whole) in (None, -32700, -32600)


def refused_with(body: bytes) -> int | None:
    """The code of a refusal; None where it is a message."""
    try:
        mcp_binding._read(body)
    except mcp_binding._RefusedError as refused:
        return refused.error.code
    return None
