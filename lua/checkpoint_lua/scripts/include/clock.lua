-- clock: the time of this step, in whole milliseconds, read once (WC-TIME-1).
-- Needs `clock`: empty, or what the test controls say (WC-CTL-1):
--   'shift:<ms>'  the store's clock and so much more, or less
--   'at:<ms>'     a clock that stands still
-- Gives `store_ms`, the store's own clock, and `now_ms`, the contract's.

local store_time = redis.call('TIME')
local store_ms = tonumber(store_time[1]) * 1000 + math.floor(tonumber(store_time[2]) / 1000)
local now_ms = store_ms
if clock ~= '' then
  local kind, text = string.match(clock, '^(%a+):(-?%d+)$')
  if kind == 'shift' then
    now_ms = store_ms + tonumber(text)
  elseif kind == 'at' then
    now_ms = tonumber(text)
  else
    return refuse_call('clock')
  end
end

-- Numbers leave Lua as text: what Lua itself makes of a large one has 14 digits at most.
local function digits(number)
  return string.format('%.0f', number)
end
