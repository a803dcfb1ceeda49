-- reply: the outcome, the time of the step, and the record as it is after the step.
-- The outcome is a word of the contract: an error code of section 8, or one of
-- acquired, recovered, reused, transitioned, observation_replayed, abandoned, reported.
-- Without a record the reply ends after the time.

local function reply(outcome)
  if not record then
    return { outcome, digits(now_ms) }
  end
  return { outcome, digits(now_ms), record.stage, digits(record.generation), record.holder,
    digits(record.claim_end_ms), digits(record.state_end_ms), record.claim_ttl,
    record.state_ttl, record.retry, record.evidence, record.print }
end
