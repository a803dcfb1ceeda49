-- expiry: the native one, which only clears away; what exists is decided from the
-- stored deadlines. Rules WC-PRIV-3, WC-CTL-6. Needs `record_key`, `record`, `clock`,
-- `store_ms`, `now_ms`.

local CONTROLLED_SLACK_MS = 3600 * 1000 -- WC-CTL-6

local function expire_natively()
  local at_ms = record.state_end_ms
  if clock ~= '' then
    -- Under a frozen or shifted clock the store's own says nothing about the record's
    -- life: frozen at its birth, a record of one second would vanish while it exists.
    at_ms = store_ms + (record.state_end_ms - now_ms) + CONTROLLED_SLACK_MS
  end
  redis.call('PEXPIREAT', record_key, digits(at_ms))
end
