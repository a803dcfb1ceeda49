-- claim: make the next generation, or say that the caller's own claim is still active.
-- Rules WC-CLAIM-1 … WC-CLAIM-8; WC-TIME-3 for the deadlines, WC-VIEW-4 for the evidence.
--
-- KEYS  record
-- ARGV  clock, holder, claim_ttl_seconds, state_ttl_seconds, retry_failed (0 or 1)
-- Outcomes: acquired, recovered, reused, CHECKPOINT_TERMINAL, CONFIGURATION_CONFLICT,
-- CHECKPOINT_NOT_HELD, CHECKPOINT_LIMIT_REACHED.

local record_key = KEYS[1]
local clock, holder = ARGV[1], ARGV[2]
local claim_ttl, state_ttl, retry = ARGV[3], ARGV[4], ARGV[5]

-- @include arguments

if #KEYS ~= 1 or #ARGV ~= 5 then return refuse_call('claim takes 1 key and 5 arguments') end
if not is_digest(holder) then return refuse_call('holder') end
if not whole(claim_ttl, 1, 900) then return refuse_call('claim_ttl_seconds') end
if not whole(state_ttl, 1, 3600) then return refuse_call('state_ttl_seconds') end
if retry ~= '0' and retry ~= '1' then return refuse_call('retry_failed') end

-- @include clock
-- @include record
-- @include expiry
-- @include reply

local GENERATIONS_MAX = 16 -- WC-LIMIT-1
local claim_ttl_ms = tonumber(claim_ttl) * 1000

-- WC-CLAIM-1
if not record then
  local state_end_ms = now_ms + tonumber(state_ttl) * 1000
  record = {
    stage = 'claimed',
    generation = 1,
    holder = holder,
    claim_end_ms = math.min(now_ms + claim_ttl_ms, state_end_ms),
    state_end_ms = state_end_ms,
    claim_ttl = claim_ttl,
    state_ttl = state_ttl,
    retry = retry,
    evidence = '',
    print = '0',
  }
  if stored[1] then redis.call('DEL', record_key) end -- an expired record's leavings
  redis.call('HSET', record_key, 'stage', 'claimed', 'gen', '1', 'holder', holder,
    'claim_end', digits(record.claim_end_ms), 'state_end', digits(state_end_ms),
    'changed', digits(now_ms), 'claim_ttl', claim_ttl, 'state_ttl', state_ttl,
    'retry', retry, 'abandoned', '0', 'evidence', '', 'print', '0')
  expire_natively()
  return reply('acquired')
end

-- WC-CLAIM-2
if terminal then return reply('CHECKPOINT_TERMINAL') end

-- WC-CLAIM-3
if claim_ttl ~= record.claim_ttl or state_ttl ~= record.state_ttl or retry ~= record.retry then
  return reply('CONFIGURATION_CONFLICT')
end

if claim_active then
  -- WC-CLAIM-4
  if holder == record.holder then return reply('reused') end
  -- WC-CLAIM-5
  return reply('CHECKPOINT_NOT_HELD')
end

-- WC-CLAIM-6
if record.generation >= GENERATIONS_MAX then return reply('CHECKPOINT_LIMIT_REACHED') end

-- WC-CLAIM-7: a failure that may be retried starts afresh.
-- WC-CLAIM-8: a lapse proves nothing, so what follows it starts uncertain.
local outcome = 'recovered'
local stage = 'uncertain'
if retryable then
  outcome = 'acquired'
  stage = 'claimed'
end
record.stage = stage
record.generation = record.generation + 1
record.holder = holder
record.claim_end_ms = math.min(now_ms + claim_ttl_ms, record.state_end_ms)
record.evidence = ''
record.print = '0'
redis.call('HSET', record_key, 'stage', stage, 'gen', digits(record.generation),
  'holder', holder, 'claim_end', digits(record.claim_end_ms), 'changed', digits(now_ms),
  'abandoned', '0', 'evidence', '', 'print', '0')
if clock ~= '' then expire_natively() end
return reply(outcome)
