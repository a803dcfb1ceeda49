"""The registry record: all that is published about the tool, once.

Every published description (manifest, OpenAPI, llms.txt, ARD manifest, MCP tool) is generated
from one :class:`RegistryRecord`, so that none can say what another denies (section 13). It is
data: the contract's vocabulary and schemas, and words for people and for models that choose
tools. Whatever is a number stands in :class:`RecordLimits` alone; the schemas get theirs from
there.

Sentences that several documents print are kept short: some hosts refuse a tool whose
description is longer than 1024 characters, and the duties of section 1 must fit in there too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from checkpoint_model import schemas
from checkpoint_model.vocabulary import (
    BODY_BYTES_MAX,
    CONTRACT_LIMITS,
    CONTRACT_VERSION,
    MCP_TOOL,
    MINIMUM_ACTION_SAFETY_MARGIN_SECONDS,
    Action,
    ErrorCode,
    EvidenceType,
    Stage,
)
from checkpoint_reference_server.registry.examples import Example, load_examples

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordLimits:
    """The numbers that every description repeats; durations are in seconds."""

    generations: int = CONTRACT_LIMITS.generations
    observations: int = CONTRACT_LIMITS.observations
    claim_ttl_seconds: tuple[int, int] = CONTRACT_LIMITS.claim_ttl_seconds
    state_ttl_seconds: tuple[int, int] = CONTRACT_LIMITS.state_ttl_seconds
    body_bytes: int = BODY_BYTES_MAX

    def ranges(self) -> dict[str, tuple[int, int]]:
        """The bounds of each member that has them, wherever it occurs in a schema."""
        return {
            "generation": (1, self.generations),
            "claim_ttl_seconds": self.claim_ttl_seconds,
            "state_ttl_seconds": self.state_ttl_seconds,
            "claim_ttl_seconds_remaining": (0, self.claim_ttl_seconds[1]),
            "state_ttl_seconds_remaining": (0, self.state_ttl_seconds[1]),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorWords:
    """What a problem object of one code says. ``recovery`` is one sentence: what to do next."""

    title: str
    detail: str
    recovery: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """One edge of the graph of section 6, with the evidence that it asks for, if any."""

    source: Stage
    target: Stage
    evidence: tuple[EvidenceType, ...] = ()


ACTION_WORDS: Final[Mapping[Action, str]] = MappingProxyType(
    {
        Action.CLAIM: (
            "Ask to be the one who acts, for a limited time: begins the first generation, takes "
            "over one whose claim lapsed, or retries a failed one where the record allows it."
        ),
        Action.TRANSITION: (
            "Assert, as the holder of the active claim, what became of the effect, with the "
            "evidence that the move needs."
        ),
        Action.STATUS: "Read the record without changing it, with or without being a holder.",
        Action.ABANDON: (
            "Give the claim up before it ends, without saying anything about the effect."
        ),
    }
)
"""What each action is for."""

STAGE_WORDS: Final[Mapping[Stage, str]] = MappingProxyType(
    {
        Stage.CLAIMED: "A worker holds, or held, the claim; nothing was asserted yet.",
        Stage.UNCERTAIN: (
            "The effect may or may not have happened: a claim lapsed, or its holder could not tell."
        ),
        Stage.CALLER_VERIFIED: "The holder asserted that the effect happened.",
        Stage.FAILED: "The holder asserted that the effect did not happen.",
        Stage.COMPENSATED: "The holder asserted that the effect was made good by another one.",
    }
)
"""What each stage means."""

EVIDENCE_WORDS: Final[Mapping[EvidenceType, str]] = MappingProxyType(
    {
        EvidenceType.PROVIDER_RECEIPT: "The external service confirmed the effect to the caller.",
        EvidenceType.EXTERNAL_READ: "The caller looked, and saw the effect.",
        EvidenceType.PROVIDER_REJECTION: "The external service refused the attempt.",
        EvidenceType.EXTERNAL_ABSENCE: "The caller looked, and the effect is absent for good.",
        EvidenceType.NOT_ATTEMPTED: "The caller never tried.",
        EvidenceType.COMPENSATION_RECEIPT: "The external service confirmed a compensating effect.",
        EvidenceType.OPERATOR_ATTESTATION: "A person who is responsible says so.",
    }
)
"""What each evidence type claims. None is checked: it is what the caller says that it saw."""

_HAPPENED: Final = (
    EvidenceType.PROVIDER_RECEIPT,
    EvidenceType.EXTERNAL_READ,
    EvidenceType.OPERATOR_ATTESTATION,
)
_COMPENSATED: Final = (EvidenceType.COMPENSATION_RECEIPT, EvidenceType.OPERATOR_ATTESTATION)
GRAPH: Final = (
    Move(source=Stage.CLAIMED, target=Stage.UNCERTAIN),
    Move(source=Stage.CLAIMED, target=Stage.CALLER_VERIFIED, evidence=_HAPPENED),
    Move(
        source=Stage.CLAIMED,
        target=Stage.FAILED,
        evidence=(
            EvidenceType.NOT_ATTEMPTED,
            EvidenceType.PROVIDER_REJECTION,
            EvidenceType.EXTERNAL_ABSENCE,
            EvidenceType.OPERATOR_ATTESTATION,
        ),
    ),
    Move(source=Stage.CLAIMED, target=Stage.COMPENSATED, evidence=_COMPENSATED),
    Move(source=Stage.UNCERTAIN, target=Stage.CALLER_VERIFIED, evidence=_HAPPENED),
    Move(
        source=Stage.UNCERTAIN,
        target=Stage.FAILED,
        evidence=(EvidenceType.EXTERNAL_ABSENCE, EvidenceType.OPERATOR_ATTESTATION),
    ),
    Move(source=Stage.UNCERTAIN, target=Stage.COMPENSATED, evidence=_COMPENSATED),
)
"""The seven moves (WC-GRAPH-1), stated anew: the server takes nothing that decides (D2)."""

ERROR_WORDS: Final[Mapping[ErrorCode, ErrorWords]] = MappingProxyType(
    {
        ErrorCode.INVALID_INPUT: ErrorWords(
            title="Invalid input",
            detail="The request does not match the contract.",
            recovery="Correct the request and send it again; nothing was changed.",
        ),
        ErrorCode.CHECKPOINT_NOT_FOUND: ErrorWords(
            title="Checkpoint not found",
            detail=(
                "Nothing is remembered of this workflow: it was never claimed, or its record "
                "expired."
            ),
            recovery="Look at the external system before acting, then claim the workflow.",
        ),
        ErrorCode.CHECKPOINT_NOT_HELD: ErrorWords(
            title="Checkpoint not held",
            detail="The caller does not hold an active claim on this workflow.",
            recovery="Do not act; ask for the status, and claim when it allows that.",
        ),
        ErrorCode.CHECKPOINT_TERMINAL: ErrorWords(
            title="Checkpoint is terminal",
            detail="This workflow is settled for good.",
            recovery="Do not act; ask for the status to see how it was settled.",
        ),
        ErrorCode.STALE_GENERATION: ErrorWords(
            title="Stale generation",
            detail="The request names a generation that is not the record's.",
            recovery=(
                "Stop acting for the old generation; ask for the status to see the current one."
            ),
        ),
        ErrorCode.INVALID_TRANSITION: ErrorWords(
            title="Invalid transition",
            detail="This stage cannot be reached from the record's, or not with this evidence.",
            recovery="Send a move that the graph has, with the evidence that it asks for.",
        ),
        ErrorCode.OBSERVATION_CONFLICT: ErrorWords(
            title="Observation conflict",
            detail="This observation key was applied with another transition.",
            recovery="Use a fresh observation key for each outcome observed.",
        ),
        ErrorCode.CONFIGURATION_CONFLICT: ErrorWords(
            title="Configuration conflict",
            detail="The record was made with another configuration, given in `configuration`.",
            recovery="Claim with the record's own configuration.",
        ),
        ErrorCode.CHECKPOINT_LIMIT_REACHED: ErrorWords(
            title="Checkpoint limit reached",
            detail="The record has had all of its generations.",
            recovery="Settle the effect by hand, or wait until the record has expired.",
        ),
        ErrorCode.TOOL_PAUSED: ErrorWords(
            title="Tool paused",
            detail="An operator paused the tool: no claim is decided for now.",
            recovery=(
                "Wait as long as `retry_after_seconds` says, then send the same request again."
            ),
        ),
        ErrorCode.RATE_LIMITED: ErrorWords(
            title="Rate limited",
            detail="Too many requests.",
            recovery=(
                "Wait as long as `retry_after_seconds` says, then send the same request again."
            ),
        ),
        ErrorCode.DEPENDENCY_UNAVAILABLE: ErrorWords(
            title="Dependency unavailable",
            detail=(
                "The store did not answer in time or refused: the request may have been applied."
            ),
            recovery=(
                "Send the same request again; if it was applied, that is what the answer will say."
            ),
        ),
    }
)
"""The words of every problem object, in answers and in descriptions alike."""


def problem_type(code: ErrorCode) -> str:
    """The ``type`` of a problem object (RFC 9457)."""
    return f"urn:workflow-checkpoint:problem:{code}"


MEMBER_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "action": "What to do; it decides which other members the request has.",
        "namespace": "Scope of the workflow key. Hashed, never stored or returned.",
        "workflow_key": (
            "Your key of the one effect that is coordinated: the same for every worker that might "
            "cause it. Hashed, never stored or returned."
        ),
        "holder": (
            "Your key of this uninterrupted run of this worker; a restarted worker makes a new "
            "one. Hashed, never stored or returned."
        ),
        "claim_ttl_seconds": (
            "How long a claim lasts; less than `state_ttl_seconds`. Nothing renews it, so allow "
            "for the slowest call to the external service."
        ),
        "state_ttl_seconds": "How long the record is kept, from the first claim on.",
        "retry_failed": "Whether an effect that failed may be claimed again.",
        "generation": "The generation that your claim was told it holds.",
        "to_stage": "What you assert of the effect.",
        "observation_key": (
            "Your key of this one outcome; repeat it only to repeat the request. Hashed, never "
            "stored or returned."
        ),
        "evidence_type": (
            "What the assertion rests on; every stage but `uncertain` needs it, and `uncertain` "
            "takes none."
        ),
        "evidence_fingerprint": (
            "SHA-256 of the evidence, which is itself never sent; only together with "
            "`evidence_type`. Hashed, never stored or returned."
        ),
    }
)
"""What each member of a request is, for whoever fills it in."""

RESULT_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "action": "As requested.",
        "workflow_hash": "Keyed digest of the workflow identity; the same in every answer.",
        "observed_at": "The store's clock when this was decided.",
        "stage": "Where the record stands now.",
        "generation": "The attempt that the record is in; name it in transition and abandon.",
        "acquired": "This claim began the current generation: you are its holder.",
        "recovered": "It did so by taking over a lapsed one.",
        "reused": "This claim found your own claim still active; nothing changed.",
        "recovery_required": "Look at the external system before you act.",
        "transitioned": "This call moved the stage.",
        "observation_replayed": (
            "This transition was applied before; the answer is the state as it is now."
        ),
        "abandoned": "The claim was given up, by this call or by the same one before.",
        "claim_active": "Somebody holds the claim now.",
        "held_by_caller": "You hold the claim now.",
        "claim_expires_at": "When the active claim ends, else null.",
        "state_expires_at": "When the record will be forgotten.",
        "claim_ttl_seconds_remaining": "Whole seconds until the claim ends; 0 if none is active.",
        "state_ttl_seconds_remaining": "Whole seconds until the record is forgotten.",
        "evidence_type": "Evidence of the last transition in this generation, else null.",
        "evidence_fingerprint_present": "Whether that transition carried a fingerprint.",
        "retry_failed_allowed": "Whether a failed effect may be claimed again.",
        "allowed_next_actions": "What you may usefully send next.",
        "minimum_action_safety_margin_seconds": (
            "Act only with more of the claim left than this, counted from when you sent the "
            "request."
        ),
        "external_proof": "Always false: nothing here proves that the effect happened.",
    }
)
"""What each member of a result tells its caller."""

PROBLEM_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "type": "Identifies the kind of problem (RFC 9457).",
        "title": "The kind of problem in a few words.",
        "status": "The HTTP status, by whichever binding it came.",
        "detail": "What happened.",
        "code": "What to decide by.",
        "retry": "Whether the same request may be sent again unchanged.",
        "charged": "Always false: no error is charged.",
        "recovery": "What to do next.",
        "observed_at": "The store's clock when this was decided.",
        "stage": "Where the record stands.",
        "generation": "The attempt that the record is in.",
        "claim_expires_at": "When the active claim ends, where there is one.",
        "retry_after_seconds": "How long to wait before sending it again.",
        "configuration": "What the record was made with.",
    }
)
"""What each member of a problem object tells its caller."""


USE_WHEN: Final = (
    (
        "A worker is about to cause one external effect that must not happen twice, although "
        "workers crash, time out or are started again."
    ),
    "Several workers may pick up the same task, and only one of them may act at a time.",
    (
        "After a crash or a lost answer, somebody has to learn whether the effect may already have "
        "happened before it is tried again."
    ),
    "A failed effect may be tried again, and each attempt has to be told from the one before.",
)
"""When to choose the tool: one sentence each."""

DO_NOT_USE_WHEN: Final = (
    "You need a permanent audit log: every record is forgotten after at most {state_ttl} seconds.",
    "You need one transaction across several tools: each workflow is coordinated by itself.",
    (
        "You need exactly-once: the tool never contacts the external service and cannot see the "
        "effect."
    ),
    "You need proof that an effect happened: what it returns is what callers asserted.",
    "The operation is an ordinary one that can simply be repeated, or that nobody has to recover.",
)
"""When to choose another: one sentence each; ``{state_ttl}`` is the longest life of a record."""

CALLERS_OWE: Final = (
    "Let `holder` name one uninterrupted run of one worker; after a restart make a new one.",
    (
        "Act only if `held_by_caller`, not `recovery_required`, and more than "
        "`minimum_action_safety_margin_seconds` of the claim is left, counted from when you sent "
        "the request."
    ),
    (
        "On `recovery_required` look at the external system first; only if the effect is absent "
        "for good may the holder act, in that same generation, and then settles it."
    ),
    "Give each observed outcome a fresh `observation_key`; reuse it only to repeat a request.",
    "Undoing an effect that is `caller_verified` is new work with a workflow identity of its own.",
)
"""The duties of section 1: one sentence each, and all of them in every description."""

TYPICAL_RUN: Final = (
    (
        "`claim` the workflow, with a `claim_ttl_seconds` that is longer than the external call "
        "can take and a `holder` made up for this run."
    ),
    "Where the result is `acquired` and not `recovery_required`, cause the effect.",
    (
        "Send a `transition`: `caller_verified` with the receipt, `failed` with what shows that it "
        "did not happen, or `uncertain` where you cannot tell."
    ),
    (
        "Where the result is `recovery_required`, look before you act; then settle the generation "
        "that you hold with what you saw."
    ),
    "Where the claim is another's, wait or turn to other work; `status` says how things stand.",
)
"""How a worker uses the tool, in order."""

IDEMPOTENCY_IDENTITY: Final[Mapping[Action, tuple[str, ...]]] = MappingProxyType(
    {
        Action.CLAIM: (
            "namespace",
            "workflow_key",
            "holder",
            "claim_ttl_seconds",
            "state_ttl_seconds",
            "retry_failed",
        ),
        Action.TRANSITION: ("namespace", "workflow_key", "observation_key"),
        Action.ABANDON: ("namespace", "workflow_key", "holder", "generation"),
        Action.STATUS: (),
    }
)
"""WC-IDEM-1: the members by which a request sent again is known."""

STORED: Final = (
    "keyed digests",
    "stage",
    "generation",
    "deadlines and the time of the last change",
    "configuration",
    "whether the claim was abandoned",
    "evidence type",
    "whether there was an evidence fingerprint",
    "observation digests",
)
"""WC-PRIV-2: all that is stored for a record."""

NEVER_STORED: Final = (
    "namespace",
    "workflow_key",
    "holder",
    "observation_key",
    "evidence_fingerprint",
    "external content",
)
"""WC-PRIV-1."""

MCP_PROTOCOL_REVISIONS: Final = ("2025-06-18", "2025-11-25", "2026-07-28")
"""WC-MCP-1: the revisions of the Model Context Protocol that clients may speak."""

TESTED_WITH: Final = (
    "Valkey 8.1, a real one in every test",
    "100 concurrent contenders for one claim, judged by a model of the contract",
    "HTTP/1.1",
    f"MCP over Streamable HTTP, protocol revisions {', '.join(MCP_PROTOCOL_REVISIONS)}",
)
"""What the project's own CI tests this implementation with, and nothing else."""

REPRESENTATIVE_QUERIES: Final = (
    "make sure only one worker sends this payment",
    "find out after a crash whether this side effect may already have happened",
    "claim a task so that no other agent acts on it at the same time",
    "record that an external operation succeeded, failed or is uncertain",
    "retry a failed API call without causing its effect twice",
)
"""What somebody might ask for whom this is the tool; discovery services index them."""

TAGS: Final = (
    "coordination",
    "idempotency",
    "lease",
    "fencing",
    "recovery",
    "side-effects",
    "workflow",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryRecord:
    """What is published about the tool, whatever its deployment."""

    name: str = "workflow-checkpoint"
    title: str = "Workflow Checkpoint"
    version: str = CONTRACT_VERSION
    mcp_tool: str = MCP_TOOL
    summary: str = (
        "Coordinates which worker may cause one external side effect (create a page, send a "
        "payment), in which attempt, and what it last asserted of the outcome."
    )
    tagline: str = (
        "Coordinates which worker may cause an external side effect, and what it asserted of it."
    )
    """The same for those who have a hundred characters, as MCP server cards do."""
    use_in_short: str = (
        "Use it around an effect that must not happen twice though workers crash, retry or compete."
    )
    do_not_use_in_short: str = (
        "It never contacts the external service: no proof, audit log, transaction or exactly-once."
    )
    instructions: str = (
        "Before an external side effect that must not happen twice: claim, and act only if "
        "`held_by_caller` and not `recovery_required`; afterwards send a transition with what you "
        "saw. Errors are results with `code` and `recovery`; where `retry` is true, send the same "
        "arguments again after `retry_after_seconds`."
    )
    """What an MCP client is told of the server when it is let in: how to use the tool."""
    use_when: tuple[str, ...] = USE_WHEN
    do_not_use: tuple[str, ...] = DO_NOT_USE_WHEN
    callers_owe: tuple[str, ...] = CALLERS_OWE
    typical_run: tuple[str, ...] = TYPICAL_RUN
    limits: RecordLimits = field(default_factory=RecordLimits)
    minimum_action_safety_margin_seconds: int = MINIMUM_ACTION_SAFETY_MARGIN_SECONDS
    graph: tuple[Move, ...] = GRAPH
    tested_with: tuple[str, ...] = TESTED_WITH
    examples: tuple[Example, ...] = field(default_factory=load_examples)

    @property
    def caveats(self) -> str:
        """What it cannot know, and what it forgets: two sentences."""
        return (
            "It never contacts the external service, so nothing that it returns proves that the "
            "effect happened. It remembers a workflow for at most "
            f"{self.limits.state_ttl_seconds[1]} seconds, after which the workflow cannot be told "
            "from one that never was."
        )

    @property
    def description(self) -> str:
        """What it does, and the caveats."""
        return f"{self.summary} {self.caveats}"

    @property
    def do_not_use_when(self) -> tuple[str, ...]:
        """One sentence each."""
        longest = self.limits.state_ttl_seconds[1]
        return tuple(sentence.format(state_ttl=longest) for sentence in self.do_not_use)

    @property
    def limits_in_words(self) -> str:
        """All limits in one sentence."""
        limits = self.limits
        return (
            "A claim lasts {} to {} seconds and a record {} to {}, with at most {} generations and "
            "{} observations; a request has at most {} bytes.".format(
                *limits.claim_ttl_seconds,
                *limits.state_ttl_seconds,
                limits.generations,
                limits.observations,
                limits.body_bytes,
            )
        )

    def request_schema(self) -> JsonObject:
        """The schema of section 3, with the record's limits."""
        return self._limited(schemas.load("request.schema.json"))

    def result_schema(self) -> JsonObject:
        """The schema of section 7, with the record's limits."""
        return self._limited(schemas.load("result.schema.json"))

    def problem_schema(self) -> JsonObject:
        """The schema of section 8, with the record's limits."""
        return self._limited(schemas.load("problem.schema.json"))

    def _limited(self, schema: JsonObject) -> JsonObject:
        ranges = self.limits.ranges()

        def put_in(part: Any) -> None:
            if isinstance(part, dict):
                for member, inner in part.get("properties", {}).items():
                    if member in ranges and inner.get("type") == "integer":
                        inner["minimum"], inner["maximum"] = ranges[member]
            for inner in part.values() if isinstance(part, dict) else part:
                if isinstance(inner, dict | list):
                    put_in(inner)

        put_in(schema)
        return schema


RECORD: Final = RegistryRecord()
"""The record of this implementation."""
