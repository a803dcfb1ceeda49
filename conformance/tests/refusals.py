"""Refusals that nobody provoked, as a right server or what stands before it gives them."""

import json
from typing import Final

from checkpoint_conformance.client import HttpAnswer

BAD_GATEWAY: Final = HttpAnswer(status=502, headers=(), body=b"<p>bad gateway")


def refusing(code: str, status: int) -> HttpAnswer:
    """A retryable error of the contract that section 6 does not decide."""
    members = {
        "type": "about:blank",
        "title": "t",
        "status": status,
        "detail": "d",
        "code": code,
        "retry": True,
        "charged": False,
        "recovery": "r",
        "retry_after_seconds": 1,
    }
    headers = (
        ("content-type", "application/problem+json"),
        ("cache-control", "no-store"),
        ("retry-after", "1"),
    )
    return HttpAnswer(status=status, headers=headers, body=json.dumps(members).encode())
