-- transition: record what the holder observed, while it still holds the claim.
-- Rules WC-TRANS-1 … WC-TRANS-8, WC-GRAPH-1 … WC-GRAPH-4.
--
-- KEYS  record
-- ARGV  clock, holder, generation, to_stage, observation, body, evidence_type or '',
--       fingerprint_present (0 or 1); observation and body are digests
-- Outcomes: transitioned, observation_replayed, CHECKPOINT_NOT_FOUND, OBSERVATION_CONFLICT,
-- STALE_GENERATION, CHECKPOINT_TERMINAL, CHECKPOINT_NOT_HELD, INVALID_TRANSITION.

local record_key = KEYS[1]
local clock, holder, generation, to_stage = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local observation, body, evidence_type, fingerprint = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

-- @include arguments

if #KEYS ~= 1 or #ARGV ~= 8 then return refuse_call('transition takes 1 key and 8 arguments') end
if not is_digest(holder) then return refuse_call('holder') end
if not whole(generation, 1, 16) then return refuse_call('generation') end
if not is_digest(observation) then return refuse_call('observation') end
if not is_digest(body) then return refuse_call('body') end
if fingerprint ~= '0' and fingerprint ~= '1' then return refuse_call('fingerprint_present') end

-- The graph: from, to, and the evidence that the move asks for; '' stands for none.
local VERIFIED_BY = { provider_receipt = true, external_read = true, operator_attestation = true }
local COMPENSATED_BY = { compensation_receipt = true, operator_attestation = true }
local GRAPH = {
  claimed = {
    uncertain = { [''] = true },
    caller_verified = VERIFIED_BY,
    failed = { not_attempted = true, provider_rejection = true, external_absence = true,
      operator_attestation = true },
    compensated = COMPENSATED_BY,
  },
  uncertain = {
    caller_verified = VERIFIED_BY,
    failed = { external_absence = true, operator_attestation = true },
    compensated = COMPENSATED_BY,
  },
}

-- @include clock
-- @include record
-- @include expiry
-- @include reply

-- WC-TRANS-1
if not record then return reply('CHECKPOINT_NOT_FOUND') end

local observation_field = 'o' .. observation
local applied_body = redis.call('HGET', record_key, observation_field)
if applied_body then
  -- WC-TRANS-2
  if applied_body == body then return reply('observation_replayed') end
  -- WC-TRANS-3
  return reply('OBSERVATION_CONFLICT')
end

-- WC-TRANS-4
if tonumber(generation) ~= record.generation then return reply('STALE_GENERATION') end

-- WC-TRANS-5
if terminal then return reply('CHECKPOINT_TERMINAL') end

-- WC-TRANS-6
if holder ~= record.holder or not claim_active then return reply('CHECKPOINT_NOT_HELD') end

-- WC-TRANS-7
local evidence_accepted = GRAPH[record.stage][to_stage]
if not evidence_accepted or not evidence_accepted[evidence_type] then
  return reply('INVALID_TRANSITION')
end

-- WC-TRANS-8
record.stage = to_stage
record.evidence = evidence_type
record.print = fingerprint
if SETTLED[to_stage] then record.claim_end_ms = now_ms end
redis.call('HSET', record_key, 'stage', to_stage, 'claim_end', digits(record.claim_end_ms),
  'changed', digits(now_ms), 'evidence', evidence_type, 'print', fingerprint,
  observation_field, body)
if clock ~= '' then expire_natively() end
return reply('transitioned')
