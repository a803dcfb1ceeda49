"""One request from its bytes to its answer, whatever binding carried it.

The conversation, and the error of each step:

1. headers and body (section 3)                         INVALID_INPUT
2. the limit of the caller, or of the controls          RATE_LIMITED
3. the operator's switch, for ``claim``                 TOOL_PAUSED
4. identifiers become digests (section 4)
5. the script decides, in one atomic step (section 6)   the codes of section 6
6. no answer in time, or a write refused                DEPENDENCY_UNAVAILABLE
7. the result (section 7)
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkpoint_lua import Checkpoints, Reply
from checkpoint_model.vocabulary import ErrorCode
from checkpoint_reference_server import answers, inputs
from checkpoint_reference_server.connection import (
    StoreUnavailableError,
    unavailable_when_it_fails,
)
from checkpoint_reference_server.controls import Controls
from checkpoint_reference_server.digests import Digests, Workflow
from checkpoint_reference_server.gate import Caller
from checkpoint_reference_server.key_change import KeyMark
from checkpoint_reference_server.multiplexer import STORE_ANSWER_SECONDS_MAX
from checkpoint_reference_server.steps import Steps
from checkpoint_reference_server.switch import Switch

if TYPE_CHECKING:
    from checkpoint_reference_server.limiter import Limiter

_CODES: Final = {code.value: code for code in ErrorCode}


class Answer(NamedTuple):
    """A result, or a problem object. ``http_status`` is 200 for a result."""

    http_status: int
    members: dict[str, Any]
    action: str | None = None
    """For the log: what was asked, where that could be read."""
    outcome: str = ErrorCode.INVALID_INPUT
    """What a script answered, or the code of section 8; as it is counted."""
    store_seconds: float | None = None
    """How long the atomic step took, where one was asked for."""
    store_error: str | None = None
    """The kind of what went wrong in the store."""


class Tool:
    """The workflow checkpoint on one store."""

    def __init__(
        self,
        store: Steps,
        digests: Digests,
        controls: Controls | None,
        *,
        mark: KeyMark | None = None,
        limiter: "Limiter | None" = None,
    ) -> None:
        self.switch = Switch(store)
        self._mark = mark
        self._store = store
        self._checkpoints = Checkpoints(store, STORE_ANSWER_SECONDS_MAX)
        self._digests = digests
        self._controls = controls
        self._limiter = limiter

    async def answer(self, body: bytes, caller: Caller) -> Answer:
        """Answer the request in a body, or in the arguments of an MCP call (WC-MCP-2).

        Never raises for anything that a caller sent.
        """
        try:
            request = inputs.parse(body)
        except inputs.InvalidInputError as error:
            return refusal(error)
        action: str = request["action"]
        controls = self._controls
        if controls is not None:
            if not controls.admit():
                return _problem(ErrorCode.RATE_LIMITED, action)
            if not controls.dependency_available:
                return _problem(ErrorCode.DEPENDENCY_UNAVAILABLE, action)
        workflow = self._digests.workflow(
            request["namespace"], request["workflow_key"], caller.account
        )
        holder = request.get("holder")
        holder_digest = None if holder is None else workflow.holder(holder)
        paused = self.switch.known if action == "claim" else False
        asked = time.perf_counter()
        try:
            with unavailable_when_it_fails():
                if (
                    paused is not None
                    and self._limiter is None
                    and self._store.is_bounded
                    and not caller.waited_seconds
                ):
                    # One step is all that the store is asked for, and has a bound of its own.
                    if action == "claim" and not self._may_claim(paused=paused):
                        return _problem(ErrorCode.TOOL_PAUSED, action)
                    reply = await self._step(request, workflow, holder_digest)
                else:
                    # Of two requests that came together to a store that stands still, the second
                    # is begun when the first was given up: then nothing is left for it.
                    async with asyncio.timeout(STORE_ANSWER_SECONDS_MAX - caller.waited_seconds):
                        refused = await self._refuse(action, caller)
                        if refused is not None:
                            return refused
                        asked = time.perf_counter()
                        reply = await self._step(request, workflow, holder_digest)
        except StoreUnavailableError as error:
            members = answers.problem(ErrorCode.DEPENDENCY_UNAVAILABLE)
            return Answer(
                members["status"],
                members,
                action,
                outcome=ErrorCode.DEPENDENCY_UNAVAILABLE,
                store_seconds=time.perf_counter() - asked,
                store_error=str(error),
            )
        store_seconds = time.perf_counter() - asked
        code = _CODES.get(reply.outcome)
        if code is not None:
            members = answers.decided_problem(code, reply)
            return Answer(
                members["status"],
                members,
                action,
                outcome=reply.outcome,
                store_seconds=store_seconds,
            )
        assert reply.record is not None
        members = answers.result(
            reply,
            reply.record,
            action=action,
            workflow_hash=workflow.workflow_hash,
            caller=holder_digest,
        )
        return Answer(200, members, action, outcome=reply.outcome, store_seconds=store_seconds)

    async def _refuse(self, action: str, caller: Caller) -> Answer | None:
        """The answer where the step is not asked for: by a limit or by the operator's switch."""
        if self._limiter is not None:
            wait_seconds = await self._limiter.seconds_to_wait(caller)
            if wait_seconds is not None:
                return _problem(ErrorCode.RATE_LIMITED, action, wait_seconds)
        if action == "claim" and not self._may_claim(paused=await self.switch.paused()):
            return _problem(ErrorCode.TOOL_PAUSED, action)
        return None

    def _may_claim(self, *, paused: bool) -> bool:
        """Whether no operator paused the tool, and the store is this key's (``key_change.py``)."""
        return not paused and (self._mark is None or self._mark.holds())

    def _step(
        self, request: inputs.JsonObject, workflow: Workflow, holder: str | None
    ) -> Awaitable[Reply]:
        clock = "" if self._controls is None else self._controls.clock
        match request["action"], holder:
            case "status", _:
                return self._checkpoints.status(workflow.key, clock=clock)
            case "claim", str(holder):
                return self._checkpoints.claim(
                    workflow.key,
                    holder=holder,
                    claim_ttl_seconds=request["claim_ttl_seconds"],
                    state_ttl_seconds=request["state_ttl_seconds"],
                    retry_failed=request["retry_failed"],
                    clock=clock,
                )
            case "transition", str(holder):
                evidence_type = request.get("evidence_type")
                fingerprint = request.get("evidence_fingerprint")
                return self._checkpoints.transition(
                    workflow.key,
                    holder=holder,
                    generation=request["generation"],
                    to_stage=request["to_stage"],
                    observation=workflow.observation(request["observation_key"]),
                    body=workflow.body(
                        request["holder"],
                        request["generation"],
                        request["to_stage"],
                        evidence_type,
                        fingerprint,
                    ),
                    evidence_type=evidence_type,
                    evidence_fingerprint_present=fingerprint is not None,
                    clock=clock,
                )
            case "abandon", str(holder):
                return self._checkpoints.abandon(
                    workflow.key, holder=holder, generation=request["generation"], clock=clock
                )
            case other:
                raise AssertionError(f"the schema admits no such request: {other[0]}")


def refusal(error: inputs.InvalidInputError) -> Answer:
    """``INVALID_INPUT``, with the detail that names what is wrong."""
    members = answers.problem(
        ErrorCode.INVALID_INPUT, http_status=error.http_status, detail=error.detail
    )
    return Answer(error.http_status, members)


def _problem(code: ErrorCode, action: str, retry_after_seconds: int | None = None) -> Answer:
    members = answers.problem(code, retry_after_seconds=retry_after_seconds)
    return Answer(members["status"], members, action, outcome=code)
