-- abandon: give up the claim before its deadline, saying nothing about the outcome.
-- Rules WC-ABANDON-1 … WC-ABANDON-6.
--
-- KEYS  record
-- ARGV  clock, holder, generation
-- Outcomes: abandoned, CHECKPOINT_NOT_FOUND, STALE_GENERATION, CHECKPOINT_TERMINAL,
-- CHECKPOINT_NOT_HELD.

local record_key = KEYS[1]
local clock, holder, generation = ARGV[1], ARGV[2], ARGV[3]

-- @include arguments

if #KEYS ~= 1 or #ARGV ~= 3 then return refuse_call('abandon takes 1 key and 3 arguments') end
if not is_digest(holder) then return refuse_call('holder') end
if not whole(generation, 1, 16) then return refuse_call('generation') end

-- @include clock
-- @include record
-- @include expiry
-- @include reply

-- WC-ABANDON-1
if not record then return reply('CHECKPOINT_NOT_FOUND') end

-- WC-ABANDON-2
if tonumber(generation) ~= record.generation then return reply('STALE_GENERATION') end

-- WC-ABANDON-3
if terminal then return reply('CHECKPOINT_TERMINAL') end

-- WC-ABANDON-4
if record.abandoned == '1' and holder == record.holder then return reply('abandoned') end

-- WC-ABANDON-5
if holder ~= record.holder or not claim_active then return reply('CHECKPOINT_NOT_HELD') end

-- WC-ABANDON-6
record.claim_end_ms = now_ms
redis.call('HSET', record_key, 'claim_end', digits(now_ms), 'changed', digits(now_ms),
  'abandoned', '1')
if clock ~= '' then expire_natively() end
return reply('abandoned')
