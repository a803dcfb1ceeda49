"""Mutants after faults that real libraries of the same kind had, where no other is that fault.

Which is after which is in ``track_record``. Each is the fault in terms of the contract; nothing is
taken over but what went wrong.
"""

from checkpoint_conformance.checks import http, walk
from checkpoint_conformance.client import HttpAnswer
from checkpoint_conformance.mutants.mutant import (
    Edit,
    Edited,
    Fault,
    InFront,
    Kind,
    Mutant,
    Part,
    always,
)
from checkpoint_conformance.mutants.proxy import Forward, Message, Tamper, with_members


def _mutant(
    name: str, wrong: str, fault: Fault, *rules: str, part: Part = walk.walk_frozen
) -> Mutant:
    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.DECISION if isinstance(fault, Edited) else Kind.ANSWER,
        fault=fault,
        rules=rules,
        part=part,
    )


def _claim(old: str, new: str) -> Edited:
    return Edited((Edit(action="claim", old=old, new=new),))


def _holds_what_lapsed() -> Tamper:
    """Remembers who acquired a workflow last, and believes it for good."""
    holders: dict[object, object] = {}

    def tamper(message: Message, forward: Forward) -> HttpAnswer:
        answer = forward(message)
        if not message.is_to_tool or answer.status != 200:
            return answer
        key, holder = message.json["workflow_key"], message.json.get("holder")
        if b'"acquired":true' in answer.body:
            holders[key] = holder
        lapsed = b'"claim_active":false' in answer.body and any(
            b'"stage":"%s"' % stage in answer.body for stage in (b"claimed", b"uncertain")
        )
        if lapsed and holder is not None and holders.get(key) == holder:
            return with_members(answer, held_by_caller=True)
        return answer

    return tamper


def _without_namespaces(message: Message, forward: Forward) -> HttpAnswer:
    if not isinstance(message.json.get("namespace"), str):
        return forward(message)  # to be refused, as it should
    return forward(message.with_json(namespace="all"))


RECORDED: tuple[Mutant, ...] = (
    _mutant(
        "holds-what-lapsed",
        "Tells a holder that it holds the claim although it has lapsed meanwhile.",
        InFront(_holds_what_lapsed),
        "WC-VIEW-3",
    ),
    _mutant(
        "no-time-left-is-no-deadline",
        "Takes a claim with no time left for one without a deadline, which never lapses.",
        Edited(
            (
                Edit(
                    old="not settled and now_ms < record.claim_end_ms",
                    new="not settled and record.abandoned ~= '1'",
                ),
            )
        ),
        "WC-TIME-2",
        "WC-CLAIM-8",
    ),
    _mutant(
        "reuse-drops-the-record",
        "Answers a holder that its claim goes on, and deletes the record.",
        _claim(
            "if holder == record.holder then return reply('reused') end",
            "if holder == record.holder then redis.call('DEL', record_key) "
            "return reply('reused') end",
        ),
        "WC-STATUS-2",
    ),
    _mutant(
        "a-holder-is-a-stranger-to-itself",
        "Refuses a claim of the very holder whose claim is active.",
        _claim(
            "if holder == record.holder then return reply('reused') end",
            "if holder == record.holder then return reply('CHECKPOINT_NOT_HELD') end",
        ),
        "WC-CLAIM-4",
        "WC-IDEM-1",
    ),
    _mutant(
        "goes-on-after-a-lapse",
        "Lets a holder whose claim has lapsed go on in the same generation.",
        _claim(
            "if record.generation >= GENERATIONS_MAX",
            "if holder == record.holder and not settled then\n"
            "  record.claim_end_ms = math.min(now_ms + claim_ttl_ms, record.state_end_ms)\n"
            "  redis.call('HSET', record_key, 'claim_end', digits(record.claim_end_ms))\n"
            "  return reply('reused')\n"
            "end\n"
            "if record.generation >= GENERATIONS_MAX",
        ),
        "WC-CLAIM-8",
    ),
    _mutant(
        "waiting-counts-against-the-claim",
        "Counts the lifetime of a claim that takes over from half a second before it was granted.",
        _claim(
            "record.claim_end_ms = math.min(now_ms + claim_ttl_ms, record.state_end_ms)",
            "record.claim_end_ms = math.min(now_ms - 500 + claim_ttl_ms, record.state_end_ms)",
        ),
        "WC-TIME-3",
    ),
    _mutant(
        "judges-by-a-clock-ahead",
        "Judges a claim's deadline by a clock two seconds ahead of the one that it is set by.",
        Edited(
            (
                Edit(
                    old="not settled and now_ms < record.claim_end_ms",
                    new="not settled and now_ms + 2000 < record.claim_end_ms",
                ),
            )
        ),
        "WC-TIME-2",
    ),
    _mutant(
        "takes-no-account-of-namespaces",
        "Tells workflows apart by their keys alone, whatever their namespaces.",
        InFront(always(_without_namespaces)),
        "WC-STATUS-1",
        part=http.identities,
    ),
)
