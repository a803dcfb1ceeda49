"""Who is let in, before anything is read of what they want: host, origin, token, in that order.

The same for both bindings. None of the refusals is of section 8, so none has a code (WC-ERR-9).
What tells nothing about anybody's work needs no token: ``/healthz`` and the published
descriptions, which also pages of any origin may read.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from checkpoint_reference_server.accounts import Accounts
from checkpoint_reference_server.callers import FORBIDDEN, Callers

NO_STORE: Final = {"Cache-Control": "no-store"}
_NAMES_REMEMBERED: Final = 64
_UNAUTHORIZED: Final = 401
_CHALLENGE: Final = 'Bearer realm="workflow-checkpoint"'
_NO_TOKEN: Final = "A token is needed: Authorization: Bearer TOKEN."  # noqa: S105 - names none
_BAD_TOKEN: Final = "This token is none that is known here."  # noqa: S105 - names none


class Caller(NamedTuple):
    """Whoever was let in."""

    account: str | None
    """None where callers are not authenticated."""
    address: str
    """Of the connection; behind a proxy, the proxy's."""
    waited_seconds: float = 0.0
    """How long the whole request has lain behind others on its connection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """An answer to somebody who is not let in; quotes nothing of the request."""

    reason: str
    """``host``, ``origin`` or ``token``, as it is counted."""
    http_status: int
    text: str
    challenge: str | None = None
    """What ``WWW-Authenticate`` says."""

    def response(self) -> PlainTextResponse:
        """As it goes out."""
        headers = dict(NO_STORE)
        if self.challenge is not None:
            headers["WWW-Authenticate"] = self.challenge
        return PlainTextResponse(f"{self.text}\n", self.http_status, headers)


class Gate:
    """Lets callers in.

    Args:
        callers: the hosts and origins that are admitted.
        accounts: whose tokens are known; None where everybody may call.
    """

    def __init__(self, callers: Callers, accounts: Accounts | None) -> None:
        # Each client sends the same names with every request.
        self._refuse = lru_cache(_NAMES_REMEMBERED)(callers.refuse)
        self._accounts = accounts

    def admit(self, headers: Headers, client: Any) -> Caller | Refusal:
        """Who calls the tool, or why they may not. ``client`` is ASGI's: address and port."""
        refused = self._refuse(headers.get("host"), headers.get("origin"))
        if refused is not None:
            http_status, text = refused
            reason = "origin" if http_status == FORBIDDEN else "host"
            return Refusal(reason=reason, http_status=http_status, text=text)
        address = client[0] if client else ""
        if self._accounts is None:
            return Caller(None, address)
        authorization = headers.get("authorization")
        account = self._accounts.account(authorization)
        if account is not None:
            return Caller(account, address)
        if authorization is None:
            challenge, text = _CHALLENGE, _NO_TOKEN
        else:
            challenge, text = f'{_CHALLENGE}, error="invalid_token"', _BAD_TOKEN
        return Refusal(reason="token", http_status=_UNAUTHORIZED, text=text, challenge=challenge)

    def refuse_host(self, headers: Headers) -> Refusal | None:
        """Why a published description may not be read, which any origin may."""
        refused = self._refuse(headers.get("host"), None)
        if refused is None:
            return None
        return Refusal(reason="host", http_status=refused[0], text=refused[1])
