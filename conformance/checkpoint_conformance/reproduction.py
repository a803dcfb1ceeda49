"""A failure as something to run without us: a shell script of ``curl`` calls."""

import base64
import json
import shlex
from collections.abc import Sequence
from typing import Final

from checkpoint_conformance.answers import json_object
from checkpoint_conformance.client import Address
from checkpoint_conformance.mcp_client import (
    REVISION_HEADER,
    SESSION_HEADER,
    Revision,
    arguments_of,
    envelope,
)
from checkpoint_conformance.plain import plain
from checkpoint_conformance.rules import Binding
from checkpoint_conformance.run import Target
from checkpoint_conformance.tally import ANSWER_MAX, Sent

KEY_VARIABLE: Final = "KEY"
HEAD: Final = ("#!/bin/sh", "# Sends the sequence again and prints each answer.")
"""The first lines of every script, by which one is known."""
_MARK: Final = "\x00KEY\x00"


def script(sequence: Sequence[Sent], target: Target) -> str:
    """A POSIX shell script that sends the sequence again, on a workflow that nobody has used."""
    lines = [*HEAD]
    lines += commands(sequence, target.address, target.controls, target.mcp)
    return "\n".join(lines) + "\n"


def commands(
    sequence: Sequence[Sent],
    base: Address,
    controls: Address | None,
    mcp: Address | None = None,
) -> list[str]:
    """The ``curl`` call of each request, and what was answered as a comment above it."""
    keys = {key for sent in sequence if (key := _workflow_key(sent)) is not None}
    # One workflow is the rule; where a sequence is about several, each keeps its own key.
    key = keys.pop() if len(keys) == 1 else None
    on_controls = controls is not None and any(sent.on_controls for sent in sequence)
    lines = [f"BASE={base.url}"]
    over_mcp = [sent for sent in sequence if sent.binding is Binding.MCP]
    if over_mcp:
        assert mcp is not None
        lines += [f"MCP={mcp.url}", *_shake_hands(over_mcp[0])]
    if on_controls:
        assert controls is not None
        lines.append(f"CONTROLS={controls.url}")
    given = dict.fromkeys(name for sent in sequence for name in sent.target_headers)
    lines += [f": ${{{_variable(name)}:?set it to the header {name}}}" for name in given]
    if key is not None:
        lines.append(f'{KEY_VARIABLE}="w_$(od -An -N16 -tx1 /dev/urandom | tr -d " \\n")"')
    for number, sent in enumerate(sequence, start=1):
        # One line: whatever stood on a second one, the shell would run.
        lines.append(f"# {number} was answered: {plain(sent.answered, ANSWER_MAX)}")
        lines.append(_command(sent, key))
    if on_controls:
        lines += [
            "# and the controls as they were",
            _call("$CONTROLS", "/reset") + " -d '{}'; echo",
        ]
    return lines


def _shake_hands(sent: Sent) -> list[str]:
    """How the script comes to a session of its own, where the run had one."""
    headers = dict(sent.headers)
    if SESSION_HEADER not in headers:
        return []
    params = {
        "protocolVersion": headers[REVISION_HEADER],
        "capabilities": {},
        "clientInfo": {"name": "curl", "version": "1"},
    }
    body, own = envelope(
        "initialize",
        json.dumps(params).encode(),
        request_id=0,
        revision=None,
        session_id=None,
    )
    call = _call("$MCP", "") + _headers(own)
    call += f" --data-binary {shlex.quote(body.decode())}"
    pattern = f"s/^{SESSION_HEADER}: *//Ip"
    session = f'SESSION="$({call} | tr -d "\\r" | sed -n {shlex.quote(pattern)})"'
    told, own = envelope(
        "notifications/initialized",
        b"",
        request_id=None,
        revision=Revision(headers[REVISION_HEADER]),
        session_id="",
    )
    call = _call("$MCP", "") + _headers(own)
    return [session, f"{call} --data-binary {shlex.quote(told.decode())}; echo"]


def _headers(headers: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f' -H "{name}: $SESSION"'
        if name == SESSION_HEADER
        else f" -H {shlex.quote(f'{name}: {value}')}"
        for name, value in headers
    )


def _command(sent: Sent, key: str | None) -> str:
    if sent.on_controls:
        call = _call("$CONTROLS", sent.path, sent.method)
    elif sent.binding is Binding.MCP:
        call = _call("$MCP", "")
    else:
        call = _call("$BASE", sent.path, sent.method)
    call += _headers(sent.headers)
    if not any(name == "content-type" for name, _ in sent.headers):
        call += " -H 'content-type:'"  # or curl would add one of its own
    for name in () if sent.on_controls else sent.target_headers:
        call += f' -H "{name}: ${_variable(name)}"'
    if sent.method == "HEAD":
        return call.replace("curl -sSi -X HEAD", "curl -sSI") + "; echo"
    text = _plain_text(sent.body)
    if text is None:
        encoded = base64.b64encode(sent.body).decode()
        return f"printf %s {encoded} | base64 -d | {call} --data-binary @-; echo"
    if sent.body or sent.method == "POST":
        call += f" --data-binary {_quoted(text, key)}"
    return f"{call}; echo"


def _plain_text(body: bytes) -> str | None:
    """A body that a shell can be given as it is; None for one with other bytes in it."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or not text else None


def _call(root: str, path: str, method: str = "POST") -> str:
    given = "" if method == "POST" else f" -X {method}"
    return f'curl -sSi{given} "{root}{path}"'


def _variable(header: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in header.upper())


def _quoted(body: str, key: str | None) -> str:
    if key is None:
        return shlex.quote(body)
    quoted = shlex.quote(body.replace(key, _MARK))
    return quoted.replace(_MARK, f"'\"${KEY_VARIABLE}\"'")


def _workflow_key(sent: Sent) -> str | None:
    is_call = sent.binding is Binding.MCP
    request = arguments_of(sent.body) if is_call else json_object(sent.body)
    key = (request or {}).get("workflow_key")
    return key if isinstance(key, str) else None
