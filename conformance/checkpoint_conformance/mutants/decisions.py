"""Mutants of section 6: the reference server with one place of its Lua scripts changed.

The texts are of the assembled scripts, which the harness itself never sees: the server that is
changed holds each against what it has, and a test does.
"""

from checkpoint_conformance.checks import walk
from checkpoint_conformance.mutants.mutant import Edit, Edited, Kind, Mutant, Part


def _mutant(
    name: str,
    wrong: str,
    edits: Edit | tuple[Edit, ...],
    *rules: str,
    part: Part = walk.walk_frozen,
) -> Mutant:
    edits = (edits,) if isinstance(edits, Edit) else edits
    return Mutant(
        name=name,
        wrong=wrong,
        kind=Kind.DECISION,
        fault=Edited(edits),
        rules=rules,
        part=part,
    )


DECISIONS: tuple[Mutant, ...] = (
    _mutant(
        "renews-on-reuse",
        "Renews a claim that its holder claims again.",
        Edit(
            action="claim",
            old="if holder == record.holder then return reply('reused') end",
            new="""if holder == record.holder then
    record.claim_end_ms = math.min(now_ms + claim_ttl_ms, record.state_end_ms)
    redis.call('HSET', record_key, 'claim_end', digits(record.claim_end_ms))
    return reply('reused')
  end""",
        ),
        "WC-CLAIM-4",
    ),
    _mutant(
        "ignores-the-generation",
        "Lets a transition of an earlier generation move the record.",
        Edit(
            action="transition",
            old="if tonumber(generation) ~= record.generation then",
            new="if false then",
        ),
        "WC-TRANS-4",
    ),
    _mutant(
        "recovers-as-claimed",
        "Starts a generation that takes over a lapsed one as `claimed`.",
        Edit(action="claim", old="local stage = 'uncertain'", new="local stage = 'claimed'"),
        "WC-CLAIM-8",
    ),
)
