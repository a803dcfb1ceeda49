"""Mutants of section 6: the reference server with one place of its Lua scripts changed.

The texts are of the assembled scripts, which the harness itself never sees: the server that is
changed holds each against what it has, and a test does.
"""

from checkpoint_conformance.checks import controls, store, vectors, walk
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


_TERMINAL = "if terminal then return reply('CHECKPOINT_TERMINAL') end"
_NOT_HELD = (
    "if holder ~= record.holder or not claim_active then return reply('CHECKPOINT_NOT_HELD') end"
)
_STALE = "if tonumber(generation) ~= record.generation then return reply('STALE_GENERATION') end"
_REUSED = "if holder == record.holder then return reply('reused') end"


def _claim(old: str, new: str) -> Edit:
    return Edit(action="claim", old=old, new=new)


def _transition(old: str, new: str) -> Edit:
    return Edit(action="transition", old=old, new=new)


def _abandon(old: str, new: str) -> Edit:
    return Edit(action="abandon", old=old, new=new)


DECISIONS: tuple[Mutant, ...] = (
    _mutant(
        "renews-on-reuse",
        "Renews a claim that its holder claims again.",
        _claim(
            _REUSED,
            """if holder == record.holder then
    record.claim_end_ms = math.min(now_ms + claim_ttl_ms, record.state_end_ms)
    redis.call('HSET', record_key, 'claim_end', digits(record.claim_end_ms))
    return reply('reused')
  end""",
        ),
        "WC-CLAIM-4",
    ),
    _mutant(
        "recovers-as-claimed",
        "Starts a generation that takes over a lapsed one as `claimed`.",
        _claim("local stage = 'uncertain'", "local stage = 'claimed'"),
        "WC-CLAIM-8",
    ),
    _mutant(
        "starts-uncertain",
        "Starts a first generation as `uncertain`.",
        (
            _claim(
                "    stage = 'claimed',\n    generation = 1",
                "    stage = 'uncertain',\n    generation = 1",
            ),
            _claim(
                "'HSET', record_key, 'stage', 'claimed'", "'HSET', record_key, 'stage', 'uncertain'"
            ),
        ),
        "WC-CLAIM-1",
    ),
    _mutant(
        "starts-at-generation-2",
        "Starts a record at generation 2.",
        (
            _claim("generation = 1,", "generation = 2,"),
            _claim("'gen', '1'", "'gen', '2'"),
        ),
        "WC-CLAIM-1",
    ),
    _mutant(
        "terminal-may-be-claimed",
        "Makes a new generation of what was settled for good.",
        _claim(_TERMINAL, ""),
        "WC-CLAIM-2",
    ),
    _mutant(
        "failed-is-terminal",
        "Takes a failure that may be retried for terminal, in `claim`.",
        _claim(_TERMINAL, "if settled then return reply('CHECKPOINT_TERMINAL') end"),
        "WC-CLAIM-7",
    ),
    _mutant(
        "retries-always",
        "Makes a new generation after any failure, whatever `retry_failed` says.",
        _claim("record.stage == 'failed' and record.retry == '1'", "record.stage == 'failed'"),
        "WC-CLAIM-2",
    ),
    _mutant(
        "retries-a-success",
        "Makes a new generation after a success where a failure may be retried.",
        _claim(
            "record.stage == 'failed' and record.retry == '1'",
            "record.stage ~= 'compensated' and settled and record.retry == '1'",
        ),
        "WC-CLAIM-2",
        part=vectors.vectors,
    ),
    _mutant(
        "configuration-is-not-compared",
        "Takes a claim of another configuration for one of the record's.",
        _claim(
            (
                "if claim_ttl ~= record.claim_ttl or state_ttl ~= record.state_ttl or retry ~= "
                "record.retry then"
            ),
            "if false then",
        ),
        "WC-CLAIM-3",
    ),
    _mutant(
        "claim-ttl-is-not-compared",
        "Does not compare `claim_ttl_seconds` with the record's.",
        _claim("claim_ttl ~= record.claim_ttl or ", ""),
        "WC-CLAIM-3",
    ),
    _mutant(
        "state-ttl-is-not-compared",
        "Does not compare `state_ttl_seconds` with the record's.",
        _claim(" or state_ttl ~= record.state_ttl", ""),
        "WC-CLAIM-3",
    ),
    _mutant(
        "retry-failed-is-not-compared",
        "Does not compare `retry_failed` with the record's.",
        _claim(" or retry ~= record.retry", ""),
        "WC-CLAIM-3",
    ),
    _mutant(
        "configuration-before-terminal",
        "Compares the configuration before it looks whether the record is terminal (rows 2 and 3).",
        (
            _claim(_TERMINAL, ""),
            _claim(
                "  return reply('CONFIGURATION_CONFLICT')\nend",
                """  return reply('CONFIGURATION_CONFLICT')
end
if terminal then return reply('CHECKPOINT_TERMINAL') end""",
            ),
        ),
        "WC-CLAIM-2",
    ),
    _mutant(
        "reuse-before-configuration",
        "Finds its own claim before it compares the configuration (rows 3 and 4).",
        _claim(
            "if claim_ttl ~= record.claim_ttl or",
            """if claim_active and holder == record.holder then return reply('reused') end
if claim_ttl ~= record.claim_ttl or""",
        ),
        "WC-CLAIM-3",
    ),
    _mutant(
        "not-held-before-configuration",
        "Refuses another holder before it compares the configuration (rows 3 and 5).",
        _claim(
            "if claim_ttl ~= record.claim_ttl or",
            """if claim_active and holder ~= record.holder then
  return reply('CHECKPOINT_NOT_HELD')
end
if claim_ttl ~= record.claim_ttl or""",
        ),
        "WC-CLAIM-3",
    ),
    _mutant(
        "limit-before-not-held",
        "Looks at the limit before it looks whether another holds the claim (rows 5 and 6).",
        _claim(
            "if claim_active then\n  -- WC-CLAIM-4",
            """if record.generation >= GENERATIONS_MAX and holder ~= record.holder then
  return reply('CHECKPOINT_LIMIT_REACHED')
end
if claim_active then
  -- WC-CLAIM-4""",
        ),
        "WC-CLAIM-5",
    ),
    _mutant(
        "limit-before-reuse",
        "Looks at the limit before it finds its own claim (rows 4 and 6).",
        _claim(
            "if claim_active then\n  -- WC-CLAIM-4",
            """if record.generation >= GENERATIONS_MAX and holder == record.holder then
  return reply('CHECKPOINT_LIMIT_REACHED')
end
if claim_active then
  -- WC-CLAIM-4""",
        ),
        "WC-CLAIM-4",
    ),
    _mutant(
        "retry-before-limit",
        "Retries a failure in the last generation (rows 6 and 7).",
        _claim(
            "if record.generation >= GENERATIONS_MAX then",
            "if record.generation >= GENERATIONS_MAX and not retryable then",
        ),
        "WC-CLAIM-6",
    ),
    _mutant(
        "takes-over-a-held-claim",
        "Lets anybody take over a claim that is active.",
        _claim("  return reply('CHECKPOINT_NOT_HELD')\nend", "end"),
        "WC-CLAIM-5",
    ),
    _mutant(
        "reuses-for-anybody",
        "Takes every caller for the holder of an active claim.",
        _claim(_REUSED, "if true then return reply('reused') end"),
        "WC-CLAIM-5",
    ),
    _mutant(
        "seventeen-generations",
        "Allows a seventeenth generation.",
        _claim("GENERATIONS_MAX = 16", "GENERATIONS_MAX = 17"),
        "WC-CLAIM-6",
        "WC-LIMIT-1",
    ),
    _mutant(
        "fifteen-generations",
        "Allows fifteen generations only.",
        _claim("GENERATIONS_MAX = 16", "GENERATIONS_MAX = 15"),
        "WC-CLAIM-8",
    ),
    _mutant(
        "retries-as-uncertain",
        "Starts a retry of a failure as `uncertain`.",
        _claim("  stage = 'claimed'\nend", "end"),
        "WC-CLAIM-7",
    ),
    _mutant(
        "retries-as-recovered",
        "Calls a retry of a failure recovered.",
        _claim("  outcome = 'acquired'\n", ""),
        "WC-CLAIM-7",
    ),
    _mutant(
        "take-over-in-the-same-generation",
        "Takes over a lapsed claim without a new generation.",
        _claim(
            "record.generation = record.generation + 1",
            "record.generation = record.generation + (retryable and 1 or 0)",
        ),
        "WC-CLAIM-8",
    ),
    _mutant(
        "skips-a-generation",
        "Counts a take-over as two generations.",
        _claim("record.generation + 1", "record.generation + 2"),
        "WC-CLAIM-8",
    ),
    _mutant(
        "keeps-the-former-holder",
        "Leaves the former holder in place at a take-over.",
        (
            _claim("record.holder = holder\n", ""),
            _claim("  'holder', holder, 'claim_end'", "  'claim_end'"),
        ),
        "WC-VIEW-3",
    ),
    _mutant(
        "keeps-the-evidence",
        "Keeps the evidence of the generation before.",
        (
            _claim("record.evidence = ''\nrecord.print = '0'\n", ""),
            _claim(
                "  'abandoned', '0', 'evidence', '', 'print', '0')\nif", "  'abandoned', '0')\nif"
            ),
        ),
        "WC-VIEW-4",
    ),
    _mutant(
        "keeps-the-fingerprint",
        "Keeps in a new generation that there was a fingerprint.",
        (
            _claim("record.print = '0'\n", ""),
            _claim("'evidence', '', 'print', '0')\nif", "'evidence', '')\nif"),
        ),
        "WC-VIEW-4",
    ),
    _mutant(
        "stays-abandoned",
        "Leaves an abandoned record marked so after a take-over.",
        _claim("\n  'abandoned', '0'", "\n  'abandoned', '1'"),
        "WC-VIEW-3",
        part=vectors.vectors,
    ),
    _mutant(
        "transitions-of-nothing-are-stale",
        "Calls a transition of no record stale.",
        _transition(
            "if not record then return reply('CHECKPOINT_NOT_FOUND') end",
            "if not record then return reply('STALE_GENERATION') end",
        ),
        "WC-TRANS-1",
    ),
    _mutant(
        "remembers-observations-of-the-dead",
        "Finds an observation of a record that expired (rows 1 and 3).",
        _transition(
            "if not record then return",
            """if not record and redis.call('HEXISTS', record_key, 'o' .. observation) == 1 then
  return reply('OBSERVATION_CONFLICT')
end
if not record then return""",
        ),
        "WC-TRANS-1",
    ),
    _mutant(
        "replays-any-body",
        "Replays an observation key whatever its body says.",
        _transition("if applied_body == body then", "if true then"),
        "WC-TRANS-3",
    ),
    _mutant(
        "never-replays",
        "Calls every repeated observation key a conflict.",
        _transition("if applied_body == body then", "if false then"),
        "WC-TRANS-2",
        "WC-IDEM-1",
    ),
    _mutant(
        "forgets-observations",
        "Does not remember observation keys.",
        _transition("'print', fingerprint,\n  observation_field, body)", "'print', fingerprint)"),
        "WC-TRANS-2",
    ),
    _mutant(
        "replay-moves-again",
        "Records a replayed transition as the last change.",
        _transition(
            "if applied_body == body then return reply('observation_replayed') end",
            """if applied_body == body then
    record.claim_end_ms = record.claim_end_ms + 1000
    redis.call('HSET', record_key, 'claim_end', digits(record.claim_end_ms))
    return reply('observation_replayed')
  end""",
        ),
        "WC-TRANS-2",
    ),
    _mutant(
        "replay-after-stale",
        "Looks at the generation before the observation key (rows 2 and 4).",
        _transition(
            "if applied_body then\n",
            "if applied_body and tonumber(generation) == record.generation then\n",
        ),
        "WC-TRANS-2",
    ),
    _mutant(
        "stale-before-conflict",
        "Looks at the generation before it finds a conflict (rows 3 and 4).",
        _transition(
            "  return reply('OBSERVATION_CONFLICT')",
            (
                "  if tonumber(generation) == record.generation then return "
                "reply('OBSERVATION_CONFLICT') end"
            ),
        ),
        "WC-TRANS-3",
    ),
    _mutant(
        "terminal-before-conflict",
        "Looks whether the record is terminal before it finds a conflict (rows 3 and 5).",
        _transition(
            "  return reply('OBSERVATION_CONFLICT')",
            "  if not terminal then return reply('OBSERVATION_CONFLICT') end",
        ),
        "WC-TRANS-3",
    ),
    _mutant(
        "refused-transitions-record-their-key",
        "Records the observation key of a move that it refuses.",
        _transition(
            "  return reply('INVALID_TRANSITION')",
            """  redis.call('HSET', record_key, observation_field, body)
  return reply('INVALID_TRANSITION')""",
        ),
        "WC-TRANS-8",
    ),
    _mutant(
        "ignores-the-generation",
        "Lets a transition of another generation move the record.",
        _transition("if tonumber(generation) ~= record.generation then", "if false then"),
        "WC-TRANS-4",
    ),
    _mutant(
        "takes-earlier-generations",
        "Takes a transition of a generation that is no later than the record's.",
        _transition(
            "if tonumber(generation) ~= record.generation then",
            "if tonumber(generation) > record.generation then",
        ),
        "WC-TRANS-4",
    ),
    _mutant(
        "takes-later-generations",
        "Takes a transition of a generation that is no earlier than the record's.",
        _transition(
            "if tonumber(generation) ~= record.generation then",
            "if tonumber(generation) < record.generation then",
        ),
        "WC-TRANS-4",
    ),
    _mutant(
        "terminal-before-stale",
        "Looks whether the record is terminal before the generation (rows 4 and 5).",
        (
            _transition(_TERMINAL, ""),
            _transition(
                _STALE,
                """if terminal then return reply('CHECKPOINT_TERMINAL') end
if tonumber(generation) ~= record.generation then return reply('STALE_GENERATION') end""",
            ),
        ),
        "WC-TRANS-4",
    ),
    _mutant(
        "terminal-moves",
        "Refuses a move of what is terminal as not held.",
        _transition(_TERMINAL, ""),
        "WC-TRANS-5",
    ),
    _mutant(
        "not-held-before-terminal",
        (
            "Looks whether the caller is the holder before it finds the record terminal "
            "(rows 5 and 6)."
        ),
        _transition(
            _TERMINAL,
            "if terminal and holder == record.holder then return reply('CHECKPOINT_TERMINAL') end",
        ),
        "WC-TRANS-5",
    ),
    _mutant(
        "failed-is-terminal-for-moves",
        "Takes a failure that may be retried for terminal, in `transition`.",
        _transition(_TERMINAL, "if settled then return reply('CHECKPOINT_TERMINAL') end"),
        "WC-TRANS-6",
    ),
    _mutant(
        "anybody-moves",
        "Lets anybody move what another holds.",
        _transition(_NOT_HELD, "if not claim_active then return reply('CHECKPOINT_NOT_HELD') end"),
        "WC-TRANS-6",
    ),
    _mutant(
        "moves-after-the-claim",
        "Lets the holder move after its claim has ended.",
        _transition(
            _NOT_HELD,
            "if holder ~= record.holder or settled then return reply('CHECKPOINT_NOT_HELD') end",
        ),
        "WC-TRANS-6",
    ),
    _mutant(
        "graph-before-not-held",
        "Looks at the graph before it looks who holds the claim (rows 6 and 7).",
        _transition(
            _NOT_HELD,
            """if holder ~= record.holder or not claim_active then
  local moves = GRAPH[record.stage]
  if not moves or not moves[to_stage] or not moves[to_stage][evidence_type] then
    return reply('INVALID_TRANSITION')
  end
  return reply('CHECKPOINT_NOT_HELD')
end""",
        ),
        "WC-TRANS-6",
    ),
    _mutant(
        "settled-claims-live-on",
        "Leaves the claim of a settled record as it was, in the answer to the move.",
        _transition(
            "if SETTLED[to_stage] then record.claim_end_ms = now_ms end",
            "if to_stage == 'uncertain' then record.claim_end_ms = record.claim_end_ms + 1 end",
        ),
        "WC-TRANS-8",
        "WC-TIME-3",
    ),
    _mutant(
        "loses-the-evidence",
        "Does not store the evidence of a move.",
        _transition("'evidence', evidence_type, 'print', fingerprint,", "'print', fingerprint,"),
        "WC-VIEW-3",
    ),
    _mutant(
        "loses-the-fingerprint",
        "Does not store that there was a fingerprint.",
        _transition(
            "'evidence', evidence_type, 'print', fingerprint,", "'evidence', evidence_type,"
        ),
        "WC-VIEW-3",
    ),
    _mutant(
        "moves-without-a-trace",
        "Answers that the stage moved, and leaves it.",
        _transition(
            "redis.call('HSET', record_key, 'stage', to_stage, 'claim_end'",
            "redis.call('HSET', record_key, 'claim_end'",
        ),
        "WC-STATUS-2",
    ),
    _mutant(
        "verified-by-a-rejection",
        "Takes a rejection for evidence of success.",
        _transition("external_read = true,", "external_read = true, provider_rejection = true,"),
        "WC-TRANS-7",
    ),
    _mutant(
        "not-verified-by-a-read",
        "Does not take an external read for evidence of success.",
        _transition(" external_read = true,", ""),
        "WC-TRANS-8",
        "WC-GRAPH-1",
    ),
    _mutant(
        "not-verified-by-a-receipt",
        "Does not take a receipt for evidence of success.",
        _transition("provider_receipt = true,", ""),
        "WC-TRANS-8",
    ),
    _mutant(
        "not-verified-by-an-operator",
        "Does not take an operator's word for evidence of success.",
        _transition("external_read = true, operator_attestation = true", "external_read = true"),
        "WC-TRANS-8",
    ),
    _mutant(
        "compensated-by-a-receipt-of-the-provider",
        "Takes the provider's receipt for evidence of compensation.",
        _transition(
            "compensation_receipt = true,", "compensation_receipt = true, provider_receipt = true,"
        ),
        "WC-TRANS-7",
    ),
    _mutant(
        "not-compensated-by-an-operator",
        "Does not take an operator's word for evidence of compensation.",
        _transition(
            "compensation_receipt = true, operator_attestation = true",
            "compensation_receipt = true",
        ),
        "WC-TRANS-8",
    ),
    _mutant(
        "fails-by-a-receipt",
        "Takes a receipt for evidence of failure.",
        _transition("not_attempted = true,", "not_attempted = true, provider_receipt = true,"),
        "WC-TRANS-7",
    ),
    _mutant(
        "fails-attempted-only",
        "Does not let what was not attempted fail.",
        _transition("not_attempted = true, ", ""),
        "WC-TRANS-8",
    ),
    _mutant(
        "fails-without-rejections",
        "Does not take a rejection for evidence of a first attempt's failure.",
        _transition("provider_rejection = true, ", ""),
        "WC-TRANS-8",
    ),
    _mutant(
        "uncertain-fails-by-a-rejection",
        "Takes a rejection for evidence that an uncertain effect is absent.",
        _transition(
            "failed = { external_absence = true,",
            "failed = { provider_rejection = true, external_absence = true,",
        ),
        "WC-TRANS-7",
        "WC-GRAPH-3",
    ),
    _mutant(
        "uncertain-fails-as-not-attempted",
        "Lets an uncertain effect fail as not attempted.",
        _transition(
            "failed = { external_absence = true,",
            "failed = { not_attempted = true, external_absence = true,",
        ),
        "WC-TRANS-7",
        "WC-GRAPH-3",
    ),
    _mutant(
        "uncertain-never-fails-by-absence",
        "Does not take an absence for evidence that an uncertain effect failed.",
        _transition("failed = { external_absence = true, operator", "failed = { operator"),
        "WC-TRANS-8",
        "WC-GRAPH-1",
    ),
    _mutant(
        "uncertain-again",
        "Lets `uncertain` be entered again.",
        _transition(
            "  uncertain = {\n    caller_verified",
            "  uncertain = {\n    uncertain = { [''] = true },\n    caller_verified",
        ),
        "WC-TRANS-7",
        "WC-GRAPH-1",
    ),
    _mutant(
        "uncertain-with-evidence",
        "Takes evidence with a move to `uncertain`.",
        _transition(
            "uncertain = { [''] = true }", "uncertain = { [''] = true, external_read = true }"
        ),
        "WC-TRANS-7",
        "WC-GRAPH-2",
    ),
    _mutant(
        "uncertain-cannot-be-compensated",
        "Has no move from `uncertain` to `compensated`.",
        _transition(
            "operator_attestation = true },\n    compensated = COMPENSATED_BY,\n  },\n}",
            "operator_attestation = true },\n  },\n}",
        ),
        "WC-TRANS-8",
        "WC-GRAPH-1",
    ),
    _mutant(
        "claimed-cannot-be-uncertain",
        "Has no move from `claimed` to `uncertain`.",
        _transition("    uncertain = { [''] = true },\n", ""),
        "WC-TRANS-8",
        "WC-GRAPH-1",
    ),
    _mutant(
        "succeeds-without-evidence",
        "Lets a success be asserted without evidence.",
        _transition("VERIFIED_BY = { provider", "VERIFIED_BY = { [''] = true, provider"),
        "WC-TRANS-7",
        "WC-GRAPH-2",
    ),
    _mutant(
        "fails-without-evidence",
        "Lets a failure be asserted without evidence.",
        _transition("failed = { not_attempted", "failed = { [''] = true, not_attempted"),
        "WC-TRANS-7",
        "WC-GRAPH-2",
    ),
    _mutant(
        "wants-a-fingerprint",
        "Wants a fingerprint with every evidence.",
        _transition(
            "if not evidence_accepted or not",
            "if not evidence_accepted or (evidence_type ~= '' and fingerprint == '0') or not",
        ),
        "WC-TRANS-8",
        "WC-GRAPH-4",
    ),
    _mutant(
        "takes-no-fingerprint",
        "Refuses a fingerprint with an operator's word.",
        _transition(
            "if not evidence_accepted or not",
            (
                "if not evidence_accepted or (evidence_type == 'operator_attestation' and "
                "fingerprint == '1') or not"
            ),
        ),
        "WC-TRANS-8",
        "WC-GRAPH-4",
    ),
    _mutant(
        "abandons-nothing-as-stale",
        "Calls an abandon of no record stale.",
        _abandon(
            "if not record then return reply('CHECKPOINT_NOT_FOUND') end",
            "if not record then return reply('STALE_GENERATION') end",
        ),
        "WC-ABANDON-1",
    ),
    _mutant(
        "abandons-any-generation",
        "Lets the holder abandon whatever generation it names.",
        _abandon(_STALE, ""),
        "WC-ABANDON-2",
    ),
    _mutant(
        "abandon-terminal-before-stale",
        "Looks in `abandon` whether the record is terminal before the generation (rows 2 and 3).",
        _abandon(
            _STALE,
            """if (terminal) then return reply('CHECKPOINT_TERMINAL') end
if tonumber(generation) ~= record.generation then return reply('STALE_GENERATION') end""",
        ),
        "WC-ABANDON-2",
    ),
    _mutant(
        "abandons-the-settled-as-not-held",
        "Refuses to abandon what is terminal as not held (rows 3 and 5).",
        _abandon(_TERMINAL, ""),
        "WC-ABANDON-3",
    ),
    _mutant(
        "abandon-not-held-before-terminal",
        "Looks in `abandon` who holds before it finds the record terminal (rows 3 and 5).",
        _abandon(
            _TERMINAL,
            "if terminal and holder == record.holder then return reply('CHECKPOINT_TERMINAL') end",
        ),
        "WC-ABANDON-3",
    ),
    _mutant(
        "abandons-once",
        "Refuses a repeated abandon.",
        _abandon(
            (
                "if record.abandoned == '1' and holder == record.holder then return "
                "reply('abandoned') end"
            ),
            "",
        ),
        "WC-ABANDON-4",
        "WC-IDEM-1",
    ),
    _mutant(
        "abandoned-for-anybody",
        "Answers anybody that an abandoned claim was abandoned.",
        _abandon("record.abandoned == '1' and holder == record.holder", "record.abandoned == '1'"),
        "WC-ABANDON-5",
    ),
    _mutant(
        "abandon-before-stale",
        "Answers a repeated abandon before it looks at the generation (rows 2 and 4).",
        _abandon(
            _STALE,
            """if record.abandoned == '1' and (holder == record.holder) then
  return reply('abandoned')
end
if tonumber(generation) ~= record.generation then return reply('STALE_GENERATION') end""",
        ),
        "WC-ABANDON-2",
    ),
    _mutant(
        "anybody-abandons",
        "Lets anybody abandon what another holds.",
        _abandon(_NOT_HELD, "if not claim_active then return reply('CHECKPOINT_NOT_HELD') end"),
        "WC-ABANDON-5",
    ),
    _mutant(
        "abandons-the-lapsed",
        "Lets the holder abandon a claim that has lapsed.",
        _abandon(
            _NOT_HELD,
            "if holder ~= record.holder or settled then return reply('CHECKPOINT_NOT_HELD') end",
        ),
        "WC-ABANDON-5",
    ),
    _mutant(
        "abandon-keeps-the-claim",
        "Answers that the claim was abandoned, and leaves it.",
        _abandon(
            "redis.call('HSET', record_key, 'claim_end', digits(now_ms), 'changed'",
            "redis.call('HSET', record_key, 'changed'",
        ),
        "WC-VIEW-3",
    ),
    _mutant(
        "abandon-makes-uncertain",
        "Moves the stage to `uncertain` when a claim is abandoned.",
        _abandon(
            "record.claim_end_ms = now_ms\n",
            """record.claim_end_ms = now_ms
record.stage = 'uncertain'
redis.call('HSET', record_key, 'stage', 'uncertain')
""",
        ),
        "WC-ABANDON-6",
    ),
    _mutant(
        "abandon-forgets",
        "Does not store that a claim ended by an abandon.",
        _abandon("'changed', digits(now_ms),\n  'abandoned', '1')", "'changed', digits(now_ms))"),
        "WC-ABANDON-4",
    ),
    _mutant(
        "status-of-nothing",
        "Calls the status of no record stale.",
        Edit(
            action="status",
            old="return reply('CHECKPOINT_NOT_FOUND')",
            new="return reply('STALE_GENERATION')",
        ),
        "WC-STATUS-1",
    ),
    _mutant(
        "status-renews",
        "Renews the claim with every status.",
        Edit(
            action="status",
            old="-- WC-STATUS-2\n",
            new="""if claim_active then
  record.claim_end_ms = math.min(record.claim_end_ms + 1000, record.state_end_ms)
  redis.call('HSET', record_key, 'claim_end', digits(record.claim_end_ms))
end
""",
        ),
        "WC-TIME-3",
    ),
    _mutant(
        "record-lives-a-millisecond-longer",
        "Takes a record for existing at its deadline.",
        Edit(old="now_ms >= record.state_end_ms", new="now_ms > record.state_end_ms"),
        "WC-TIME-2",
    ),
    _mutant(
        "record-dies-a-millisecond-earlier",
        "Takes a record for gone a millisecond before its deadline.",
        Edit(old="now_ms >= record.state_end_ms", new="now_ms + 1 >= record.state_end_ms"),
        "WC-TIME-2",
    ),
    _mutant(
        "claim-lives-a-millisecond-longer",
        "Takes a claim for active at its deadline.",
        Edit(
            old="not settled and now_ms < record.claim_end_ms",
            new="not settled and now_ms <= record.claim_end_ms",
        ),
        "WC-TIME-2",
    ),
    _mutant(
        "claim-dies-a-millisecond-earlier",
        "Takes a claim for over a millisecond before its deadline.",
        Edit(
            old="not settled and now_ms < record.claim_end_ms",
            new="not settled and now_ms + 1 < record.claim_end_ms",
        ),
        "WC-TIME-2",
    ),
    _mutant(
        "claim-outlives-the-record",
        "Lets a claim of a later generation end after its record.",
        _claim(
            "record.claim_end_ms = math.min(now_ms + claim_ttl_ms, record.state_end_ms)",
            "record.claim_end_ms = now_ms + claim_ttl_ms",
        ),
        "WC-TIME-3",
    ),
    _mutant(
        "record-begins-anew-with-each-generation",
        "Moves the record's deadline with every generation.",
        (
            _claim(
                "record.evidence = ''\nrecord.print = '0'\n",
                """record.evidence = ''
record.print = '0'
record.state_end_ms = now_ms + tonumber(state_ttl) * 1000
redis.call('HSET', record_key, 'state_end', digits(record.state_end_ms))
""",
            ),
        ),
        "WC-TIME-3",
    ),
    _mutant(
        "transition-renews",
        "Renews the claim with a move to `uncertain`.",
        _transition(
            "if SETTLED[to_stage] then record.claim_end_ms = now_ms end",
            (
                "record.claim_end_ms = SETTLED[to_stage] and now_ms or now_ms + "
                "tonumber(record.claim_ttl) * 1000"
            ),
        ),
        "WC-TIME-3",
        part=vectors.vectors,
    ),
    _mutant(
        "seconds-for-milliseconds",
        "Counts the lifetime of a claim in units of a tenth.",
        _claim("tonumber(claim_ttl) * 1000", "tonumber(claim_ttl) * 100"),
        "WC-TIME-3",
    ),
    _mutant(
        "state-ttl-a-second-short",
        "Lets a record live a second less than it was told.",
        _claim("now_ms + tonumber(state_ttl) * 1000", "now_ms + tonumber(state_ttl) * 1000 - 1000"),
        "WC-TIME-3",
    ),
    _mutant(
        "clock-goes-back",
        "Goes by a clock that reads earlier than the record's last change.",
        Edit(old="if now_ms < record.changed_ms then", new="if false then"),
        "WC-TIME-4",
        part=controls.control_checks,
    ),
    _mutant(
        "observes-another-time-than-the-controls-show",
        "Observes every step ten seconds later than the clock that the controls show.",
        Edit(old="local now_ms = store_ms\n", new="local now_ms = store_ms + 10000\n"),
        "WC-TIME-1",
        part=controls.control_checks,
    ),
    _mutant(
        "whole-seconds",
        "Reads the store's clock in whole seconds.",
        Edit(old=" + math.floor(tonumber(store_time[2]) / 1000)", new=""),
        "WC-TIME-1",
        part=walk.walk,
    ),
    _mutant(
        "abandon-is-no-change",
        "Does not note an abandon as the last change.",
        _abandon("'changed', digits(now_ms),\n", ""),
        "WC-TIME-4",
        part=controls.control_checks,
    ),
    _mutant(
        "never-expires-natively",
        "Stores records without native expiry.",
        Edit(old="redis.call('PEXPIREAT', record_key, digits(at_ms))", new=""),
        "WC-PRIV-3",
        part=store.what_lies_there,
    ),
    _mutant(
        "expires-natively-too-late",
        "Lets a record's key live a minute longer than the record.",
        Edit(
            old="local at_ms = record.state_end_ms", new="local at_ms = record.state_end_ms + 60000"
        ),
        "WC-PRIV-3",
        part=store.what_lies_there,
    ),
    _mutant(
        "vanishes-under-a-frozen-clock",
        "Lets native expiry go by the frozen clock, without slack.",
        Edit(
            old="(record.state_end_ms - now_ms) + CONTROLLED_SLACK_MS",
            new="(record.state_end_ms - now_ms)",
        ),
        "WC-CTL-6",
        part=controls.control_checks,
    ),
    _mutant(
        "two-hours-of-slack",
        "Lets native expiry under a frozen clock be two hours late.",
        Edit(old="CONTROLLED_SLACK_MS = 3600 * 1000", new="CONTROLLED_SLACK_MS = 7200 * 1000"),
        "WC-CTL-6",
        part=store.what_lies_there,
    ),
)
