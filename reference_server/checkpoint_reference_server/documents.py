"""Serves the published descriptions (section 13). They are made once, when a process starts."""

from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from checkpoint_reference_server.gate import Gate
from checkpoint_reference_server.registry import FORMATS, Deployment

CACHE_SECONDS: Final = 300
"""How long a cache may show a description without asking whether it is still the same."""
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def descriptions(deployment: Deployment, gate: Gate) -> list[Route]:
    """GET and HEAD of every description; other methods are 405 with ``Allow``."""
    return [
        Route(
            form.path,
            _handler(form.text(deployment).encode(), form.media_type, gate),
            methods=["GET"],
        )
        for form in FORMATS.values()
        if form.path is not None
    ]


def _handler(body: bytes, media_type: str, gate: Gate) -> _Handler:
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {
        "Cache-Control": f"public, max-age={CACHE_SECONDS}",
        "ETag": tag,
        # For pages of documentation and for agents in browsers: nothing in it is secret.
        "Access-Control-Allow-Origin": "*",
    }

    async def answer(request: Request) -> Response:
        refusal = gate.refuse_host(request.headers)
        if refusal is not None:
            return refusal.response()
        known = ", ".join(request.headers.getlist("if-none-match"))
        if _is_known(tag, known):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=media_type)

    return answer


def _is_known(tag: str, known: str) -> bool:
    """Whether a caller has the document: RFC 9110 compares weakly here, ``W/`` aside."""
    return any(word.strip().removeprefix("W/") in (tag, "*") for word in known.split(","))
