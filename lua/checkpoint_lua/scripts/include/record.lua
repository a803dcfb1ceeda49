-- record: what is remembered of the workflow, or nil.
-- Needs `record_key`, `now_ms`, `store_ms`, `clock`. Rules WC-TIME-2, WC-TIME-4.
--
-- The record is one hash; its fields, all text:
--   stage, gen         stage and generation
--   holder             digest of the holder whose claim made the generation
--   claim_end          when the claim ends or ended, in ms (its deadline, or the
--                      abandon or settlement that cut it short)
--   state_end          when the record expires, in ms
--   changed            when it last changed, in ms
--   claim_ttl, state_ttl, retry   the configuration: seconds, seconds, 0 or 1
--   abandoned          1 when the claim ended by an abandon, else 0
--   evidence, print    evidence type of the generation's last transition or '',
--                      and 1 when that carried a fingerprint
--   o<digest>          one applied observation: its transition body's digest

local SETTLED = { caller_verified = true, failed = true, compensated = true }

local stored = redis.call('HMGET', record_key, 'stage', 'gen', 'holder', 'claim_end',
  'state_end', 'changed', 'claim_ttl', 'state_ttl', 'retry', 'abandoned', 'evidence', 'print')

local record = nil
if stored[1] then
  record = {
    stage = stored[1],
    generation = tonumber(stored[2]),
    holder = stored[3],
    claim_end_ms = tonumber(stored[4]),
    state_end_ms = tonumber(stored[5]),
    changed_ms = tonumber(stored[6]),
    claim_ttl = stored[7],
    state_ttl = stored[8],
    retry = stored[9],
    abandoned = stored[10],
    evidence = stored[11],
    print = stored[12],
  }
  if now_ms < record.changed_ms then
    now_ms = record.changed_ms
  end
  if now_ms >= record.state_end_ms then
    record = nil
  end
end

local settled = record and SETTLED[record.stage]
local retryable = record and record.stage == 'failed' and record.retry == '1'
local terminal = settled and not retryable
local claim_active = record and not settled and now_ms < record.claim_end_ms
