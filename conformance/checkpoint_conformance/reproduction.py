"""A failure as something to run without us: a shell script of ``curl`` calls."""

import json
import shlex
from collections.abc import Sequence

from checkpoint_conformance.client import Address
from checkpoint_conformance.tally import Sent

KEY_VARIABLE = "KEY"
_MARK = "\x00KEY\x00"


def script(sequence: Sequence[Sent], base: Address, controls: Address | None) -> str:
    """A POSIX shell script that sends the sequence again, on a workflow that nobody has used."""
    lines = ["#!/bin/sh", "# Sends the sequence again and prints each answer."]
    lines += commands(sequence, base, controls)
    return "\n".join(lines) + "\n"


def commands(sequence: Sequence[Sent], base: Address, controls: Address | None) -> list[str]:
    """The ``curl`` call of each request, and what was answered as a comment above it."""
    keys = {key for sent in sequence if (key := _workflow_key(sent)) is not None}
    # One workflow is the rule; where a sequence is about several, each keeps its own key.
    key = keys.pop() if len(keys) == 1 else None
    lines = [f"BASE={base.url}"]
    if controls is not None and any(sent.on_controls for sent in sequence):
        lines.append(f"CONTROLS={controls.url}")
    if key is not None:
        lines.append(f'{KEY_VARIABLE}="w_$(od -An -N16 -tx1 /dev/urandom | tr -d " \\n")"')
    for number, sent in enumerate(sequence, start=1):
        lines.append(f"# {number}: {sent.answered}")
        root = "$CONTROLS" if sent.on_controls else "$BASE"
        method = "" if sent.method == "POST" else f" -X {sent.method}"
        headers = "".join(f" -H {shlex.quote(f'{n}: {v}')}" for n, v in sent.headers)
        body = f" --data-binary {_quoted(sent.body, key)}" if sent.body else ""
        if sent.method == "POST" and not sent.body:
            body = " --data-binary ''"
        lines.append(f'curl -sS{method} "{root}{sent.path}"{headers}{body}; echo')
    return lines


def _quoted(body: str, key: str | None) -> str:
    if key is None:
        return shlex.quote(body)
    quoted = shlex.quote(body.replace(key, _MARK))
    return quoted.replace(_MARK, f"'\"${KEY_VARIABLE}\"'")


def _workflow_key(sent: Sent) -> str | None:
    try:
        body = json.loads(sent.body)
    except ValueError:
        return None
    key = body.get("workflow_key") if isinstance(body, dict) else None
    return key if isinstance(key, str) else None
