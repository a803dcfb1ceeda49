"""Before anything is judged: is there a Workflow Checkpoint at all?

One fault of the address would otherwise read like a fault of every rule.
"""

import json
from contextlib import ExitStack
from typing import Final

from checkpoint_conformance.answers import Problem, Result, read
from checkpoint_conformance.checks.store import StoreAddressError, open_store
from checkpoint_conformance.client import (
    JSON_HEADERS,
    Client,
    Exchange,
    HttpAnswer,
    Lost,
    LostReason,
)
from checkpoint_conformance.controls import ControlError, Controls
from checkpoint_conformance.mcp_client import ProtocolError
from checkpoint_conformance.run import Target
from checkpoint_conformance.session import LostError, fresh_identity
from checkpoint_conformance.tally import Tally
from checkpoint_model import ErrorCode, Status, format_request
from checkpoint_model.vocabulary import ERRORS, TOOL_PATH

SECOND_CONNECTION_SECONDS_MAX: Final = 3.0
"""A target that has not answered by a second connection by then serves one at a time."""


class UnreachableError(Exception):
    """The target cannot be checked; the message says what was found and what to do."""


def preflight(target: Target) -> None:
    """Look at the target, its controls and its store.

    Raises:
        UnreachableError: one of them is not there, or is something else.
    """
    _tool(target)
    if target.controls is not None:
        with target.controls_client() as client:
            try:
                Controls(client, Tally()).reset()
            except (ControlError, LostError) as error:
                got = error.failure.fault.got if isinstance(error, ControlError) else str(error)
                raise UnreachableError(
                    f"No test controls at {target.controls.url}: POST /reset gave «{got}», "
                    "not 200. Is --controls the base URL that the server printed?"
                ) from None
    if target.mcp is not None:
        try:
            target.endpoint().meet()
        except ProtocolError as error:
            raise UnreachableError(
                f"No MCP at {target.mcp.url}: {error}. It is claimed (--mcp, or the class mcp); "
                "is the URL the whole of the endpoint's, with its path?"
            ) from None
    if target.store_url is not None:
        try:
            open_store(target.store_url).close()
        except StoreAddressError as error:
            raise UnreachableError(f"--store: {error}.") from None


def serves_several(target: Target) -> bool:
    """Whether the target answers by one connection while another is held open, and limits nothing.

    One that does not is right all the same, and is checked by one connection at a time.
    """
    with ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(target.client())
            client.seconds_max = min(target.seconds_max, SECOND_CONNECTION_SECONDS_MAX)
            came = read(_asked(client))
            if not isinstance(came, Problem) or not ERRORS[came.code].decided:
                return False
    return True


def _asked(client: Client) -> Exchange:
    """The status of a workflow that nobody has used, which changes nothing."""
    body = json.dumps(format_request(fresh_identity(), Status())).encode()
    return client.exchange("POST", TOOL_PATH, body, JSON_HEADERS)


def _tool(target: Target) -> None:
    with target.client() as client:
        exchange = _asked(client)
    url = target.address.url
    if isinstance(exchange.answer, Lost):
        raise UnreachableError(_lost(url, target, exchange.answer))
    came = read(exchange)
    if isinstance(came, Problem) and came.code is ErrorCode.TOOL_PAUSED:
        raise UnreachableError(f"{url} answers TOOL_PAUSED: resume it, then run again.")
    if isinstance(came, Problem) and came.code is ErrorCode.DEPENDENCY_UNAVAILABLE:
        raise UnreachableError(f"{url} answers DEPENDENCY_UNAVAILABLE: its store is away.")
    if isinstance(came, Result | Problem):
        return  # whether it is the right one is the checks' business
    answer = exchange.answer
    assert isinstance(answer, HttpAnswer)
    why = came.why
    hint = "Is the base URL right? It is the server's root, without a path."
    if answer.status in (401, 403):
        hint = "It asks for credentials: give them with --header."
    elif answer.status in (301, 302, 307, 308):
        hint = f"It redirects to {answer.header('location')}: give that as --url."
    raise UnreachableError(
        f"{url} answers, but not as a Workflow Checkpoint: POST {TOOL_PATH} gave\n  {why}\n{hint}"
    )


def _lost(url: str, target: Target, lost: Lost) -> str:
    detail = f" ({lost.detail})" if lost.detail else ""
    hints = {
        LostReason.REFUSED: "Is the server running, and are host and port right?",
        LostReason.TIMED_OUT: "Something accepts connections there but does not answer.",
        LostReason.CLOSED: "Something listens there and hangs up. "
        + ("Is it plain http?" if target.address.tls else "Is it https?"),
        LostReason.CUT: "The answer stops half-way: look at the server's own log.",
        LostReason.NOT_HTTP: "Another protocol is spoken there: is the port right?",
        LostReason.TOO_LONG: "Is the base URL right? It is the server's root, without a path.",
    }
    reason = lost.reason[0].upper() + lost.reason[1:]
    return f"Cannot check {url}: {reason.lower()}{detail}. {hints[lost.reason]}"
